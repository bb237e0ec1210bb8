"""Mistakes in the lab on GloVe: check, code, its wrong form, words of the message."""

RATIO, F = "(x[a, k] / sums[a]) / (x[b, k] / sums[b])", "(x / x_max).clamp(max=1) ** 0.75"
ERROR = "(weight * (predicted - x.log()) ** 2)"
PRODUCT = "(self.center(i) * self.context(j)).sum(1)"
INIT = "        nn.init.normal_(self.context.weight, std=0.01)\n"
CHANCE = "        self.context_bias.data.copy_(chance)  # new\n"
COPIES = "        self.center_bias.data.copy_(chance)  # new\n" + CHANCE
SHARED = "        self.center_bias.data = self.context_bias.data = chance\n"
LOGS = "row_sums.log() - row_sums.sum().log() / 2"
SLOPES = "slope.sum(1), slope.sum(0)"

MISTAKES = [
    ("count", "                x[other, word] += 1 / distance\n", "", "in both directions"),
    ("count", "+= 1 / distance", "+= 1", "1/d, not 1"),
    ("count", "start=1)", "start=2)", "expected {"),
    ("count", "t + 1 + window]", "t + window]", "at distance window, too"),
    ("count", "+= 1 / distance", "= 1 / distance", "add up the counts"),
    (
        "count",
        "x[other, word] +=",
        "x[other, word] += (word != other) *",
        "a word that meets itself",
    ),
    ("count", "1 / distance", "(window + 1 - distance) / window", "window 3: expected"),
    ("count", "t + 1 + window]", "]", "window 3: expected"),
    ("ratio", RATIO, "x[a, k] / x[b, k]", "by the sum of all x[a, …]"),
    ("ratio", "if i == word)", "if i == word and _ != k)", "k counts in the sum"),
    ("ratio", "if i == word)", "if i == word != _)", "x[a, a] counts"),
    ("weights", F, "(x / x_max) ** 0.75", "at most 1"),
    ("weights", F, "(x.clamp_(max=x_max) / x_max) ** 0.75", "leaves x unchanged"),
    ("weights", F, "(x**0.75 / x_max).clamp(max=1)", "first divide by x_max"),
    (
        "model",
        "self.context_bias = nn.Parameter(torch.zeros(vocab_size))",
        "self.context_bias = torch.zeros(vocab_size)",
        "not an nn.Parameter",
    ),
    ("weights", ERROR + ".mean()", ERROR + ".sum()", "take the mean"),
    ("weights", "predicted - x.log()", "predicted - x", "predict log x"),
    ("model", PRODUCT, "self.center(i) @ self.context(j).T", "not for all combinations"),
    ("model", "[i] + self.context_bias[j]", "[i]", "add both biases"),
    ("model", PRODUCT, PRODUCT.replace("context", "center"), "vectors of their own"),
    ("model", INIT, "", "initialize context, too"),
    ("model", "self.center_bias[i]", "self.center_bias.data[i]", "use it without .data"),
    (
        "model",
        "self.context = nn.Embedding(vocab_size, dim)",
        "self.context = self.center",
        "no copy",
    ),
    ("chance", LOGS, "-row_sums.sum().log() / 2 + row_sums.log_()", "row_sums must stay as it is"),
    (
        "chance",
        CHANCE,
        CHANCE + "        self.context_bias.requires_grad = False\n",
        "biases alone",
    ),
    ("chance", "row_sums.sum().log() / 2", "row_sums.sum().log()", "halve log n"),
    ("chance", "row_sums.log() -", "row_sums -", "the row sums 2, 8, 30: expected"),
    ("chance", COPIES, SHARED, "biases share memory"),
    ("chance", CHANCE, "", "initialize both biases"),
    ("gradients", "torch.where(x > 0, x, 1).log()", "x.log()", "put another number there"),
    ("gradients", "slope.T @ v", "slope @ v", "transpose for u"),
    ("gradients", "slope @ u, slope.T @ v", "slope.T @ u, slope @ v", "for v a product of the"),
    ("gradients", "slope = 2 * f", "slope = f", "has the factor 2"),
    ("gradients", SLOPES, "slope.sum(0), slope.sum(1)", "belongs to the rows"),
    ("train", "            optimizer.zero_grad()\n", "", "set the gradients to zero"),
    (
        "train",
        "            loss.backward()\n",
        "            loss.backward()\n            optimizer.zero_grad()\n",
        "backward, then step",
    ),
    ("train", "(weight[batch] * error**2)", "(error**2)", "multiply by the weights"),
    ("train", "optim.Adagrad", "optim.SGD", "two steps of AdaGrad: expected"),
    ("train", "torch.randperm(len(x))", "torch.arange(len(x))", "in a new random order"),
    ("train", "        after_epoch(model)\n", "", "call after_epoch"),
]
