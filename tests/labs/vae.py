"""Mistakes in the lab on autoencoders and the VAE: check, code, its wrong form, words."""

DRAWN = "mu + sigma * torch.randn_like(sigma)"
NORMAL = "Normal(mu, sigma).log_prob(z)"
MEAN = "(ratios.logsumexp(0) - math.log(len(ratios))).mean()"
MISTAKES = [
    ("autoencoder", "*layers[:-1]", "*layers", "no ReLU after the last layer"),
    ("autoencoder", ", nn.ReLU()]", ", nn.Identity()]", "ReLU comes between"),
    ("autoencoder", "*reversed(hidden)", "*hidden", "in reverse"),
    ("autoencoder", "each.sum(1).mean()", "each.mean()", "sum over the pixels of an image"),
    (
        "autoencoder",
        "with_logits(model(x), x",
        "with_logits(model(x).sigmoid(), x",
        "no sigmoid before",
    ),
    ("convolutions", "* kernel).sum()", "* kernel.flip(0)).sum()", "not flipped"),
    (
        "convolutions",
        "len(x) - len(kernel) + 1, stride",
        "len(x) - len(kernel), stride",
        "fits at the last",
    ),
    ("convolutions", "+= number", "= number", "where copies overlap"),
    (
        "conv_autoencoder",
        "k),\n        )  # fmt: skip",
        "k), nn.ReLU(),\n        )  # fmt: skip",
        "after the code",
    ),
    (
        "conv_autoencoder",
        "padding=1),\n            nn.Flatten(),",
        "padding=1), nn.Sigmoid(),\n            nn.Flatten(),",
        "no sigmoid at the end",
    ),
    ("kl", "- sigma.log()", "- sigma.log() / 2", "not halved"),
    ("kl", "sigma**2 - 1", "sigma**2", "subtract 1"),
    ("kl", "- sigma.log()", "+ sigma.log()", "minus log sigma"),
    ("encode", "(log_variance / 2)", "log_variance", "halve it"),
    ("encode", "mu, log_variance = ", "log_variance, mu = ", "the means come first"),
    ("draw", DRAWN, "mu", "draw a code"),
    ("draw", DRAWN, "mu + sigma**2 * torch.randn_like(sigma)", "not by the variance"),
    ("draw", DRAWN, "torch.normal(mu, sigma)", "get no gradient"),
    ("draw", DRAWN, "mu + sigma * torch.randn_like(sigma[0])", "each image"),
    ("draw", DRAWN, "mu + sigma * torch.randn_like(sigma[:, :1])", "each dimension"),
    ("loss", "return each.sum(1), kl_to", "return each.mean(1), kl_to", "do not average"),
    ("loss", "beta * kl.sum(1)", "beta * kl.mean(1)", "add up the KLs"),
    ("loss", "(reconstruction + beta * kl", "(beta * reconstruction + kl", "not of the recon"),
    (
        "bound",
        "torch.randn(n, *mu.shape)",
        "torch.randn(mu.shape).expand(n, -1, -1)",
        "draw a code anew",
    ),
    ("bound", f" - {NORMAL}", "", "subtract log q"),
    ("bound", "change.sum(-1) - each", "change.sum(-1) + each", "is minus the cross-entropy"),
    ("bound", MEAN, "ratios.mean()", "that is the ELBO"),
    ("bound", MEAN, "ratios.logsumexp(0).mean()", "subtract log K"),
    ("bound", MEAN, "ratios.exp().mean(0).log().mean()", "use logsumexp"),
]
