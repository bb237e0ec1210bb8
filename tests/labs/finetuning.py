"""Mistakes in the lab on fine-tuning: check, code, its wrong form, words of the message."""

MEAN = "return (states * real[..., None]).sum(1) / lengths[:, None]"
ORDER = "    model.body.requires_grad_(False)\n    replace(model.body.encoder, rank)"

MISTAKES = [
    ("classifier", MEAN, "return states.mean(1)", "leave padding out"),
    ("classifier", MEAN, "return (states * real[..., None]).mean(1)", "real tokens, not by T"),
    ("classifier", MEAN, "return states[:, 0]", "not the first state"),
    (
        "classifier",
        "return self.head(self.vectors(ids, lengths))",
        "return self.head(self.vectors(ids, lengths)).softmax(1)",
        "without softmax",
    ),
    ("train", "in model.train().parameters()", "in model.parameters()", "dropout is on"),
    ("train", "        nn.utils.clip_grad_norm_(free, 1.0)\n", "", "clip the norm"),
    ("train", "        optimizer.zero_grad()\n", "", "call zero_grad"),
    ("train", "warmup_linear(len(steps) // 10,", "warmup_linear(0,", "a tenth of the steps"),
    ("lora_linear", "torch.randn(rank, n_in)", "torch.zeros(rank, n_in)", "never learns"),
    ("lora_linear", "torch.zeros(n_out, rank)", "torch.randn(n_out, rank)", "start B at zero"),
    ("lora_linear", " / math.sqrt(n_in))", ")", "divide A by the root"),
    ("lora_linear", "return self.linear(x) + change", "return change", "old layer's output"),
    ("lora_linear", "x) + change", "x) + change / self.A.shape[0]", "not 1 / rank"),
    ("frozen", "    model.body.requires_grad_(False)\n    for", "    for", "freeze the body first"),
    (
        "frozen",
        "    model.body.requires_grad_(False)\n    for",
        "    model.requires_grad_(False)\n    for",
        "leave the head free",
    ),
    ("frozen", ORDER, "\n".join(ORDER.split("\n")[::-1]), "before you add A and B"),
    ("frozen", "replace(model.body.encoder, rank)", "replace(model.body, rank)", "encoder alone"),
    ("merge", "weight.data += child.B", "weight.data = child.B", "it does not replace it"),
    ("merge", "+= child.B @ child.A", "+= (child.B @ child.A).T", "not its transpose"),
    ("merge", "            setattr(module, name, child.linear)\n", "", "put child.linear back"),
]
