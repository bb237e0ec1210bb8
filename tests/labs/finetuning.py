"""Mistakes in the lab on fine-tuning: check, code, its wrong form, words of the message."""

MEAN = "return (states * real[..., None]).sum(1) / lengths[:, None]"
LOGITS = "return self.head(self.vectors(ids, lengths))"
FACTOR = "factor = warmup_linear(len(steps) // 10, len(steps))"
ZEROS = "torch.zeros(n_out, rank)"
ORDER = "    model.body.requires_grad_(False)\n    replace(model.body.encoder, rank)"
FREEZE = "    model.body.requires_grad_(False)\n    for"
LAST = "model.body.encoder.layers[-n_layers:]"
NEW = "setattr(module, name, LoRALinear(child, rank))"
WALK = f"children()):\n        if isinstance(child, nn.Linear):\n            {NEW}"
DEEP = f"{WALK}\n        else:\n            replace(child, rank)"

MISTAKES = [
    ("classifier", MEAN, "return states.mean(1)", "leave padding out"),
    ("classifier", MEAN, "return (states * real[..., None]).mean(1)", "real tokens, not by T"),
    (
        "classifier",
        MEAN,
        "return (states * real[..., None]).sum(1)",
        "divide by the number of real",
    ),
    ("classifier", MEAN, "return states[:, 0]", "not the first state"),
    ("classifier", "self.body(ids, lengths=lengths)", "self.body(ids)", "hand lengths to the body"),
    ("classifier", MEAN, MEAN.replace("states", "states.detach()"), "no detach"),
    ("classifier", "real = positions < lengths[:, None]", "real = ids != 0", "nor ids != 0"),
    ("classifier", "d_model, n_classes)", "d_model, n_classes, bias=False)", "with a bias"),
    ("classifier", LOGITS, f"{LOGITS}.softmax(1)", "without softmax"),
    ("train", "in model.train().parameters()", "in model.parameters()", "dropout is on"),
    ("train", "        nn.utils.clip_grad_norm_(free, 1.0)\n", "", "clip the norm"),
    ("train", "        optimizer.zero_grad()\n", "", "call zero_grad"),
    ("train", "warmup_linear(len(steps) // 10,", "warmup_linear(0,", "a tenth of the steps"),
    ("train", "torch.optim.AdamW(free", "torch.optim.Adam(free", "leave it as it is"),
    ("train", "    torch.manual_seed(seed)\n    free", "    free", "the first loss; seed with 3"),
    ("train", "for _ in range(epochs)]", "for _ in [0]] * epochs", "a new permutation"),
    ("train", "lr * factor(step)", "lr", "before each step"),
    ("train", ".train().parameters()", ".train().requires_grad_().parameters()", "freezes none"),
    ("train", FACTOR, "factor = warmup_linear(1, 15)", "counts the small last batches"),
    ("train", "losses.append(loss.item())", "pass", "one loss a step"),
    ("lora_linear", "torch.randn(rank, n_in)", "torch.zeros(rank, n_in)", "nothing is learned"),
    ("lora_linear", ZEROS, "torch.randn(n_out, rank)", "start B at zero"),
    ("lora_linear", f"nn.Parameter({ZEROS})", ZEROS, "an nn.Parameter each"),
    ("lora_linear", "n_out, n_in = linear", "n_in, n_out = linear", "A (rank, n_in)"),
    (
        "lora_linear",
        "self.linear = linear",
        "self.linear = copy.deepcopy(linear)",
        "as it was given",
    ),
    ("lora_linear", " / math.sqrt(n_in))", ")", "divide A by the root"),
    ("lora_linear", "return self.linear(x) + change", "return change", "W x + b + B A x, not"),
    ("lora_linear", "x) + change", "x) + change.detach()", "A and B learn"),
    ("lora_linear", "x) + change", "x) + change / self.A.shape[0]", "not divided by the rank"),
    ("frozen", FREEZE, "    for", "the last 1: these should be frozen: ['body.encoder.layers.0"),
    ("frozen", FREEZE, FREEZE.replace(".body", ""), "should be free: ['head.bias', 'head.weight']"),
    ("frozen", FREEZE, FREEZE.replace("_(False)", " = False"), "call requires_grad_"),
    (
        "frozen",
        LAST,
        f"[{LAST[:-2]}]]",
        "the last 2: these should be free: ['body.encoder.layers.2",
    ),
    ("frozen", ORDER, "\n".join(ORDER.split("\n")[::-1]), "the body frozen first: these should be"),
    ("frozen", "replace(model.body.encoder, rank)", "replace(model.body, rank)", "encoder alone"),
    ("frozen", NEW, "child = LoRALinear(child, rank)", "with setattr"),
    ("frozen", NEW, NEW.replace("rank", "8"), "hand rank on"),
    ("frozen", DEEP, WALK.replace("children", "modules"), "LoRA never runs"),
    ("merge", "weight.data += child.B", "weight.data = child.B", "it does not replace it"),
    ("merge", "+= child.B @ child.A", "+= (child.B @ child.A).T", "not its transpose"),
    ("merge", "            setattr(module, name, child.linear)\n", "", "put back child.linear"),
]
