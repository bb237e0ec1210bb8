"""Mistakes in the lab on several workers: check, code, its wrong form, words of the message."""

MISTAKES = [
    ("memory", "sum(t.nbytes for", "sum(t.numel() for", "count bytes, not numbers"),
    ("memory", "torch.is_tensor(s) and s.dim()", "torch.is_tensor(s)", "leave out scalars"),
    (
        "memory",
        "(memory - activations) * (workers if fsdp else 1)",
        "memory * (workers if fsdp else 1) - activations",
        "subtract them before you multiply",
    ),
    ("accumulate", "(loss_of(model, part) / pieces)", "loss_of(model, part)", "divide each loss"),
    ("accumulate", "    model.zero_grad()\n    for part", "    for part", "begin with model.zero"),
    (
        "accumulate",
        "    for part in ids.chunk(pieces):\n        (loss_of(model, part) / pieces).backward()",
        "    sum(loss_of(model, part) / pieces for part in ids.chunk(pieces)).backward()",
        "all activations are kept",
    ),
    (
        "accumulate",
        "(loss / n).backward()",
        "(loss / (targets != -100).sum() / len(pieces)).backward()",
        "the tokens of all pieces",
    ),
    ("accumulate", "(targets != -100).sum()", "targets.numel()", "do not count padding"),
    ("accumulate", "return total", "return torch.tensor(total)", "the loss returned"),
    ("recompute", "if again:", "if False:", "with again, use checkpoint"),
    ("recompute", "if again:", "if not again:", "without again, no checkpoint"),
    ("ring_mean", "    values /= n\n", "", "divide by n at the end, in place"),
    ("ring_mean", "came.copy_(came + received", "came = (came + received", "in place"),
    (
        "ring_mean",
        "        sending = distributed.isend(",
        "        distributed.recv(received, left)\n        sending = distributed.isend(",
        "first send, then receive",
    ),
    (
        "ring_mean",
        "    for step in range(2 * (n - 1)):\n        sent, came",
        "    passed, received = values.clone(), torch.empty_like(values)\n"
        "    for _ in range(n - 1):\n        distributed.isend(passed, right)\n"
        "        distributed.recv(received, left)\n        passed = received.clone()\n"
        "        values += received\n    for step in range(0):\n        sent, came",
        "send one part in each round",
    ),
    ("train_shared", "random_ids(batch).chunk(n)[own]", "random_ids(batch)", "the own rows alone"),
    (
        "train_shared",
        "torch.manual_seed(step)",
        "torch.manual_seed(step + own)",
        "seed each step with step",
    ),
    ("ring_mean", "        sending.wait()\n", "", "call .wait() on what isend returns"),
    (
        "ring_mean",
        "        distributed.recv(received, left)\n        sending.wait()\n",
        "        sending.wait()\n        distributed.recv(received, left)\n",
        "but after recv",
    ),
    ("ring_mean", "values.chunk(n)", "values.split(n)", "chunk(n), not split(n)"),
    ("memory", "t.nbytes for", "4 * t.numel() for", "got 176. Look at: held_bytes: nbytes (2"),
    (
        "accumulate",
        "(targets != -100).sum()) for _, targets in",
        "(x != 0).sum()) for x, _ in",
        "n counts targets",
    ),
    (
        "accumulate",
        "        (loss / n).backward()\n        total += loss.item() / n\n    return total",
        "        total += loss / n\n    total.backward()\n    return total.item()",
        "all activations are kept",
    ),
    (
        "train_shared",
        "        optimizer.step()\n        losses.append(mean_of(loss))",
        "        optimizer.step()\n        losses.append(mean_of(loss_of(model, ids)))",
        "batch before each step",
    ),
    (
        "train_shared",
        "        optimizer.zero_grad()\n",
        "        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)\n"
        "        optimizer.zero_grad()\n",
        "make AdamW once",
    ),
    ("train_shared", "lr=1e-3", "lr=3e-3", "AdamW with lr=0.001"),
    ("train_shared", "        put_gradient(model, flat)\n", "", "write the mean back"),
    ("train_shared", "append(mean_of(loss))", "append(loss.item())", "by mean_of(loss)"),
    ("train_shared", "        optimizer.zero_grad()\n", "", "zero_grad before backward"),
]
