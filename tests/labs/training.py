"""Mistakes in the lab on autograd and optimizers: check, code, wrong form, words of the message."""

A, B = "to_a, to_b = g * b.data, g * a.data", "to_a, to_b = g * a.data, g * b.data"
UNDO = "g, b.data.shape)\n\n    return Value(a.data + b"
LIST = (
    "for parent in value.parents:\n                visit(parent)\n            order.append(value)"
)
SUM = 'memory.get("m", 0) + g  # new\n    return w - lr * memory["m"]'
ALIAS = 'memory["m"].mul_(beta).add_(g) if memory else g'
RELU, CE = "(g * (a.data > 0),)", "(g * p_minus_truth / len(y),)"
NORM, LOG_P = "wide = wide / (wide.norm() + 1e-7)", "log_p[rows, y].mean()"

MISTAKES = [
    ("unbroadcast", "while g.dim() > len(shape)", "if g.dim() > len(shape)", "sum all missing"),
    ("matmul_and_relu", f"return {RELU}", "return g * (a.data > 0)", "pull returns a tuple"),
    ("unbroadcast", "g = g.sum(0)", "g = g.mean(0)", "add up"),
    ("unbroadcast", "g.sum(axis, keepdim=True)", "g.sum(axis)", "keep dimensions of 1"),
    ("unbroadcast", "g = g.sum(axis, keepdim", "return g.sum(axis, keepdim", "to (1, 1)"),
    ("add_and_multiply", A, B, "for one factor"),
    ("add_and_multiply", UNDO, UNDO.replace("b.data.shape", "g.shape"), "undo the broadcasting"),
    ("matmul_and_relu", "return g @ w.data.T,", "return g @ w.data,", "x gets g @ w.T"),
    ("matmul_and_relu", "x.data.T @ g\n", "g.T @ x.data\n", "w gets x.T @ g"),
    ("matmul_and_relu", RELU, "(g * a.data.relu(),)", "the slope of ReLU is 1"),
    ("matmul_and_relu", RELU, "(g * (a.data >= 0),)", "the slope at 0 is 0"),
    ("matmul_and_relu", RELU, "(g.relu(),)", "positive, not g"),
    ("matmul_and_relu", RELU, "(g.mul_(a.data > 0),)", "g and the data given to relu"),
    ("cross_entropy", "log_p[rows, y].mean()", "log_p[rows, y].sum()", "take the mean"),
    ("cross_entropy", CE, "(g * p_minus_truth,)", "divide the gradient by B"),
    ("cross_entropy", CE, "(p_minus_truth / len(y),)", "multiply by the g given"),
    ("cross_entropy", "scores.data - scores.data.amax(1, keepdim=True)", "scores.data", "largest"),
    ("cross_entropy", LOG_P, "(log_p.exp() + 1e-9).log()[rows, y].mean()", "got 20.7"),
    ("cross_entropy", LOG_P, "log_p.exp().log()[rows, y].mean()", "log of the sum"),
    ("backward", "parent.grad = parent.grad + g", "parent.grad = g", "add to the gradient there"),
    ("backward", "loss.grad = torch.ones_like(loss.data)", "pass", "the gradient 1 at the loss"),
    ("backward", "if value not in seen", "if True", "list each value once"),
    ("backward", LIST, "return order.append(value) or [visit(p) for p in value.parents]", "uses"),
    ("sgd_and_momentum", "return w - lr * g\n", "return w + lr * g\n", "expected [0.1"),
    (
        "backward",
        "loss.grad = torch.ones_like(loss.data)",
        "loss.grad = loss.grad + 1",
        "[6.0, 157.0]",
    ),
    ("sgd_and_momentum", "return w - lr * g\n", "return w.sub_(lr * g)\n", "w or g is changed"),
    ("sgd_and_momentum", 'beta * memory.get("m", 0) + g  # new', ALIAS, "w or g is changed"),
    ("adam_and_adamw", "w = w - lr * decay * w", "w -= lr * decay * w", "w or g is changed"),
    ("sgd_and_momentum", " + g  # new", " + (1 - beta) * g", "m is a sum"),
    ("sgd_and_momentum", SUM, SUM.replace("+ g", "+ lr * g").replace("w - lr *", "w -"), "[-0.64"),
    ("sgd_and_momentum", "= beta * memory", "= 0.9 * memory", "{'momentum': 0.5}: expected"),
    ("adam_and_adamw", "/ (1 - beta1**t)", "", "expected"),
    ("adam_and_adamw", "(s.sqrt() + 1e-8)", "(s + 1e-8).sqrt()", "not below it"),
    ("adam_and_adamw", "w = w - lr * decay * w", "g = g + decay * w", "shrink the weights"),
    ("adam_and_adamw", 's = memory["s"] / (1 - beta2**t)', 's = memory["s"]', "divide s by"),
    ("adam_and_adamw", "beta1 * memory", "0.9 * memory", "'betas': (0.5, 0.9)}: expected"),
    ("adam_and_adamw", "lr * decay * w", "lr * 0.5 * w", "{'weight_decay': 0.2}: expected"),
    ("orthogonalize", NORM, "pass", "divide by the norm first"),
    ("orthogonalize", NORM, NORM.replace("= wide /", "/="), "x is changed"),
    ("orthogonalize", "x.shape[0] <= x.shape[1]", "True", "transpose a tall matrix"),
    ("orthogonalize", "(wide.norm() + 1e-7)", "wide.norm()", "add 1e-7 to the norm"),
    ("orthogonalize", "(wide.norm() + 1e-7)", "wide.abs().max()", "a (2, 3) matrix: expected"),
]
