"""Mistakes in the lab on autoencoders and the VAE: check, code, its wrong form, words."""

DRAWN = "mu + sigma * torch.randn_like(sigma)"
NORMAL = "Normal(mu, sigma).log_prob(z)"
MEAN = "(ratios.logsumexp(0) - math.log(len(ratios))).mean()"
SIGMOID = "with_logits(model(x).sigmoid(), x"
CODE = "k),\n        )  # fmt: skip"
IMAGE = "padding=1),\n            nn.Flatten(),"
MU = "mu, sigma = self.encode(x)\n        logits = self.decoder(mu)"
EACH = 'each = F.binary_cross_entropy_with_logits(logits, pixels, reduction="none")'
BY_HAND = "p = logits.sigmoid()\n    each = -x * p.log() - (1 - x) * (1 - p).log()"
MISTAKES = [
    ("autoencoder", "*layers[:-1]", "*layers", "no ReLU after the last layer"),
    ("autoencoder", ", nn.ReLU()]", ", nn.Identity()]", "ReLU comes between"),
    ("autoencoder", "*reversed(hidden)", "*hidden", "in reverse"),
    ("autoencoder", "each.sum(1).mean()", "each.mean()", "sum over the pixels of an image"),
    ("autoencoder", "with_logits(model(x), x", SIGMOID, "no sigmoid before"),
    ("convolutions", "* kernel).sum()", "* kernel.flip(0)).sum()", "do not flip"),
    ("convolutions", "- len(kernel) + 1, stride", "- len(kernel), stride", "at the last"),
    ("convolutions", "+= number", "= number", "where copies overlap"),
    ("conv_autoencoder", CODE, f"k), nn.ReLU(),{CODE[3:]}", "after the code"),
    ("conv_autoencoder", IMAGE, f"padding=1), nn.Sigmoid(),{IMAGE[11:]}", "no sigmoid at the end"),
    ("conv_autoencoder", "(1, 8, 4, s", "(1, 8, 4, bias=False, s", "expected 136"),
    ("kl", "- sigma.log()", "- sigma.log() / 2", "do not halve"),
    ("kl", "sigma**2 - 1", "sigma**2", "subtract 1"),
    ("loss", "(log_variance / 2)", "log_variance", "halve it"),
    ("loss", "mu, log_variance = ", "log_variance, mu = ", "the means come first"),
    ("loss", DRAWN, "mu", "draw a code for each image"),
    ("loss", DRAWN, "mu + sigma**2 * torch.randn_like(sigma)", "not the variance"),
    ("loss", DRAWN, "torch.normal(mu, sigma)", "get no gradient"),
    ("loss", DRAWN, "mu + sigma.detach() * torch.randn_like(sigma)", "sigma gets no gradient"),
    ("loss", DRAWN, "mu + sigma * torch.randn(len(mu), 1)", "an epsilon for each dimension"),
    ("loss", "return each.sum(1), kl_to", "return each.mean(1), kl_to", "do not average"),
    ("loss", "logits, mu, sigma = self(x)", MU, "decode a draw, not mu"),
    ("loss", "beta * kl.sum(1)", "beta * kl.mean(1)", "add up the KLs"),
    ("loss", "(reconstruction + beta * kl", "(beta * reconstruction + kl", "not of the recon"),
    ("bound", "torch.randn(n, *mu.shape)", "torch.randn(mu.shape).expand(n, -1, -1)", "anew"),
    ("bound", "z = mu + sigma * torch.randn", "z = torch.randn", "deviations of the codes"),
    ("bound", "torch.randn(n, *mu.shape)", "torch.randn(n, 1, 2)", "each image and each dimension"),
    ("bound", EACH, BY_HAND, "cross-entropy with logits"),
    ("bound", f" - {NORMAL}", "", "subtract log q"),
    ("bound", "change.sum(-1) - each", "change.sum(-1) + each", "is minus the cross-entropy"),
    ("bound", MEAN, "ratios.mean()", "that is the ELBO"),
    ("bound", MEAN, "ratios.logsumexp(0).mean()", "subtract log K"),
    ("bound", MEAN, "ratios.exp().mean(0).log().mean()", "use logsumexp"),
]
