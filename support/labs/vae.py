"""The lab on autoencoders and the VAE."""

import math

import torch
from torch import nn
from torch.distributions import Normal, kl_divergence
from torch.nn import functional as F

from support.labs import expect


class _Stub(nn.Module):
    """In the place of an encoder or decoder: returns the first n numbers, or zeros behind them."""

    def __init__(self, n):
        super().__init__()
        self.n, self.seen = n, []

    def forward(self, x):  # a negative padding cuts
        self.seen.append(x)
        return F.pad(x, (0, self.n - x.shape[-1]))


class _Known:
    """A model with a known cloud for each of two images, and a linear decoder."""

    def __init__(self):
        self.mu, self.sigma = torch.tensor([[1.2, -0.5], [0.0, 0.8]]), torch.tensor([[0.5, 0.7]])
        self.weight, self.seen = torch.tensor([[2.0, -1.0], [0.5, 1.5], [-1.0, 1.0]]), []

    def encode(self, x):
        return self.mu, self.sigma.expand(2, 2)

    def decoder(self, z):
        self.seen.append(z)
        return z @ self.weight.T


def _shapes(module):
    return [tuple(weight.shape) for weight in module.parameters() if weight.dim() > 1]


def _large(model):
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=0.5)
    return model


def autoencoder(mlp, Autoencoder, ae_loss):
    """Three layers with large weights, the sizes of both halves, and two images of three pixels."""
    net, x = _large(mlp(4, 5, 6, 3)), torch.randn(7, 4)
    expect(_shapes(net), [(5, 4), (6, 5), (3, 6)], "the matrices of mlp(4, 5, 6, 3)")
    a, b, c = (m for m in net.modules() if isinstance(m, nn.Linear))
    right = c(b(a(x).relu()).relu())
    wrong = {
        "no ReLU after the last layer": right.relu(),
        "ReLU comes between the layers": c(b(a(x))),
        "ReLU comes between all layers": c(b(a(x).relu())),
    }
    expect(net(x), right, "mlp(4, 5, 6, 3)", wrong)
    model, x = _large(Autoencoder(2, [6, 5])), torch.rand(3, 784)
    expect(_shapes(model.encoder), [(6, 784), (5, 6), (2, 5)], "the matrices of the encoder")
    wrong = {"the decoder has the hidden sizes in reverse": [(6, 2), (5, 6), (784, 5)]}
    right = [(5, 2), (6, 5), (784, 6)]
    expect(_shapes(model.decoder), right, "the matrices of the decoder", wrong)
    right = model.decoder(model.encoder(x))
    wrong = {"return logits: the sigmoid is in the loss": right.sigmoid()}
    expect(model(x), right, "Autoencoder(2, [6, 5])", wrong)
    logits, x = (
        torch.tensor([[3.0, -1.0, 0.5], [0.0, 2.0, -2.0]]),
        torch.tensor([[1.0, 0, 1], [0, 1, 0.3]]),
    )
    each = F.binary_cross_entropy_with_logits(logits, x, reduction="none")
    wrong = {
        "sum over the pixels of an image, do not average": each.mean(),
        "average over the images": each.sum(),
        "model(x) are logits: no sigmoid before binary_cross_entropy_with_logits":
            F.binary_cross_entropy_with_logits(logits.sigmoid(), x, reduction="none").sum(1).mean(),
        "use the binary cross-entropy": ((logits.sigmoid() - x) ** 2).sum(1).mean(),
    }  # fmt: skip
    expect(ae_loss(lambda x: logits, x), each.sum(1).mean(), "two images of three pixels", wrong)


def convolutions(convolve, convolve_transposed):
    """Kernels of 2 to 4 numbers and strides of 1 to 3, against PyTorch's."""

    def library(layer, x, kernel, stride=1):
        return layer(x[None, None], kernel[None, None], stride=stride)[0, 0]

    for n, k, stride in ((8, 2, 1), (9, 3, 2), (10, 4, 3)):
        x, kernel = torch.randn(n), torch.randn(k)
        right = library(F.conv1d, x, kernel, stride)
        wrong = {
            "the kernel is not flipped": library(F.conv1d, x, kernel.flip(0), stride),
            "move on by the stride": library(F.conv1d, x, kernel),
            "the kernel also fits at the last position": right[:-1],
        }
        where = f"{n} numbers, a kernel of {k}, stride {stride}"
        expect(convolve(x, kernel, stride), right, where, wrong)
    for m, k, stride in ((3, 3, 2), (4, 2, 1), (2, 2, 3)):
        z, kernel = torch.randn(m), torch.randn(k)
        right = library(F.conv_transpose1d, z, kernel, stride)
        last = torch.zeros(len(right))
        for i in range(m):
            last[i * stride : i * stride + k] = z[i] * kernel
        wrong = {
            "add up where copies overlap": last,
            "the kernel is not flipped": library(F.conv_transpose1d, z, kernel.flip(0), stride),
            "a copy starts a stride after the one before": library(F.conv_transpose1d, z, kernel),
        }
        where = f"{m} copies of {k} numbers, stride {stride}"
        expect(convolve_transposed(z, kernel, stride), right, where, wrong)


def conv_autoencoder(ConvAutoencoder):
    """Two images, a code of five numbers, and large weights."""
    model, x = ConvAutoencoder(5), torch.rand(2, 784)
    right = [(8, 1, 4, 4), (32, 8, 4, 4), (5, 1568)], [(1568, 5), (32, 8, 4, 4), (8, 1, 4, 4)]
    expect(_shapes(model.encoder), right[0], "the kernels and matrices of the encoder")
    expect(_shapes(model.decoder), right[1], "the kernels and matrices of the decoder")
    (a, p, b, q, c, r), (d, s, e, t, f, u) = model.encoder.parameters(), model.decoder.parameters()
    step = {"stride": 2, "padding": 1}
    h = F.conv2d(F.conv2d(x.view(2, 1, 28, 28), a, p, **step).relu(), b, q, **step)
    code = F.linear(h.relu().flatten(1), c, r)
    wrong = {
        "no ReLU after the code": code.relu(),
        "a ReLU follows the second convolution": F.linear(h.flatten(1), c, r),
    }
    expect(model.encoder(x), code, "the codes of two images", wrong)
    h = F.linear(code, d, s)
    up = F.conv_transpose2d(h.relu().view(2, 32, 7, 7), e, t, **step)
    right = F.conv_transpose2d(up.relu(), f, u, **step).flatten(1)
    no_relu = F.conv_transpose2d(h.view(2, 32, 7, 7), e, t, **step).relu()
    wrong = {
        "no ReLU at the end: a logit may be negative": right.relu(),
        "no sigmoid at the end: it is in the loss": right.sigmoid(),
        "a ReLU follows the decoder's first layer": F.conv_transpose2d(
            no_relu, f, u, **step
        ).flatten(1),
        "a ReLU follows the first transposed convolution": F.conv_transpose2d(
            up, f, u, **step
        ).flatten(1),
        "return rows of 784 logits": right.view(2, 1, 28, 28),
    }
    expect(model(x), right, "the reconstructions of two images", wrong)


def kl(kl_to_prior):
    """Six clouds, against PyTorch's."""
    mu, sigma = (
        torch.tensor([[1.2, 0.0, -2.0], [0.3, 0.0, 1.0]]),
        torch.tensor([[0.5, 1.0, 0.25], [3.0, 0.5, 1.5]]),
    )
    cloud, prior, right = (
        Normal(mu, sigma),
        Normal(0.0, 1.0),
        (mu**2 + sigma**2 - 1) / 2 - sigma.log(),
    )
    wrong = {
        "from the cloud to the prior, not from the prior to the cloud": kl_divergence(prior, cloud),
        "the logarithm is of sigma, so it is not halved": right + sigma.log() / 2,
        "sigma is squared": right + (sigma - sigma**2) / 2,
        "mu is squared": right + (mu - mu**2) / 2,
        "sigma is the standard deviation, not the variance": (mu**2 + sigma - 1 - sigma.log()) / 2,
        "subtract 1, so that the prior itself has a KL of 0": right + 0.5,
        "minus log sigma": right + 2 * sigma.log(),
        "the KL is never negative": -right,
        "return one number for each dimension": right.sum(1),
    }
    expect(kl_to_prior(mu, sigma), kl_divergence(cloud, prior), "six clouds", wrong)


def encode(VAE):
    """The sizes of both halves, and an encoder whose outputs are known."""
    model = VAE(2, [6, 5])
    wrong = {"the encoder returns two numbers for each dimension": [(6, 784), (5, 6), (2, 5)]}
    expect(_shapes(model.encoder), [(6, 784), (5, 6), (4, 5)], "the encoder's matrices", wrong)
    expect(_shapes(model.decoder), [(5, 2), (6, 5), (784, 6)], "the decoder's matrices")
    x, model.encoder = torch.randn(3, 784), _Stub(4)
    mu, last = x[:, :2], x[:, 2:4]
    wrong = {
        "the encoder returns log sigma squared: halve it": (mu, last.exp()),
        "take the square root of the variance, not its square": (mu, (2 * last).exp()),
        "the means come first": (last, (mu / 2).exp()),
        "return the standard deviation, not the logarithm": (mu, last / 2),
        "the first k numbers are the means": (x[:, 0:4:2], (x[:, 1:4:2] / 2).exp()),
    }
    expect(
        tuple(model.encode(x)), (mu, (last / 2).exp()), "an encoder that returns x[:, :4]", wrong
    )


def draw(VAE):
    """4,000 codes of one image, and their gradients."""
    model, x = VAE(2, [6]), torch.zeros(4_000, 784)
    x[:, :4] = torch.tensor([1.2, -1.0, 2 * math.log(0.5), 2 * math.log(2.0)])
    model.encoder, model.decoder = _Stub(4), _Stub(784)
    logits, mu, sigma = model(x.requires_grad_())
    z = model.decoder.seen[0]
    wrong = {"return logits: the sigmoid is in the losses": F.pad(z, (0, 782)).sigmoid()}
    expect(logits, F.pad(z, (0, 782)), "the logits", wrong)
    expect((mu, sigma), (x[:, :2], (x[:, 2:4] / 2).exp()), "mu and sigma")
    at, eps = [0.5, 2.0], (z - mu) / sigma
    wrong = {
        "draw a code: add sigma times epsilon to mu, in evaluation too": [0.0, 0.0],
        "multiply epsilon by sigma, not by the variance": [0.25, 4.0],
        "multiply epsilon by sigma": [1.0, 1.0],
        "draw epsilon from a normal distribution with mean 0, not uniformly": [
            0.5 / 12**0.5,
            2 / 12**0.5,
        ],
    }
    if (z - mu).std(0).max() < 1e-12 < (z - mu).abs().max():
        raise AssertionError("each image has an epsilon of its own")
    expect(z.std(0).tolist(), at, "standard deviations of the codes", wrong, atol=0.12)
    expect(z.mean(0).tolist(), [1.2, -1.0], "means of the codes", atol=0.15)
    assert (eps[:, 0] * eps[:, 1]).mean().abs() < 0.2, "each dimension has an epsilon of its own"
    gradient = torch.autograd.grad(z.sum(), x)[0] if z.requires_grad else torch.zeros(1, 784)
    assert gradient[:, :2].any() and gradient[:, 2:4].any(), (
        "mu and sigma get no gradient: z = mu + sigma * epsilon, with epsilon from torch.randn_like"
    )


def loss(VAE, vae_loss):
    """Four images, and a model whose losses are known."""
    model, x = VAE(2, [6]), torch.rand(4, 784)
    model.encoder, model.decoder = _Stub(4), _Stub(784)
    (reconstruction, kl), z = model.losses(x), model.decoder.seen[0]
    each = F.binary_cross_entropy_with_logits(F.pad(z, (0, 782)), x, reduction="none")
    wrong = {
        "sum over the pixels, do not average": each.mean(1),
        "return the reconstruction loss of each image": each.sum(1).mean(),
        "return the reconstruction loss of each image, not its sum": each.sum(),
        "sum over the pixels of each image": each,
    }
    expect(reconstruction, each.sum(1), "four images", wrong)
    right = kl_divergence(Normal(x[:, :2], (x[:, 2:4] / 2).exp()), Normal(0.0, 1.0))
    expect(kl, right, "the KLs", {"return the KL of each dimension": right.sum(1)})
    kl, reconstruction = torch.tensor([[1.0, 2.0], [0.0, 3.5]]), torch.tensor([100.0, 120.0])
    model.losses = lambda x: (reconstruction, kl)
    wrong = {
        "add up the KLs of an image's dimensions, do not average": 110 + 2 * kl.mean(),
        "beta is the factor of the KL": 110 + kl.sum(1).mean(),
        "beta is the factor of the KL, not of the reconstruction": 220 + kl.sum(1).mean(),
        "average the loss over the images": 220 + 2 * kl.sum(),
        "average the KL over the images too": 110 + 2 * kl.sum(),
        "the KL is added": 110 - 2 * kl.sum(1).mean(),
    }
    expect(vae_loss(model, x, beta=2.0), 110 + 2 * kl.sum(1).mean(), "beta = 2", wrong)
    expect(vae_loss(model, x), 110 + kl.sum(1).mean(), "beta left out")


def bound(log_ratios, bound):
    """Two images and 2,000 draws from known clouds, and logarithms near -2,000."""
    model, x = _Known(), torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
    got = log_ratios(model, x, 2_000)
    z, sigma = torch.cat([z.reshape(-1, 2, 2) for z in model.seen]), model.sigma
    expect(tuple(z.shape), (2_000, 2, 2), "the codes that the decoder gets: n draws for each image")
    assert z.std(0).min() > 0.1, "draw a code anew for each of the n"
    expect(z.std(0), sigma.expand(2, 2), "standard deviations of the codes", atol=0.1)
    each = F.binary_cross_entropy_with_logits(
        z @ model.weight.T, x.expand(2_000, 2, 3), reduction="none"
    )
    log_x, log_p, log_q = (
        -each.sum(-1),
        Normal(0.0, 1.0).log_prob(z),
        Normal(model.mu, sigma).log_prob(z),
    )
    wrong = {
        "add log p(z), the prior": log_x - log_q.sum(-1),
        "subtract log q(z | x)": log_x + log_p.sum(-1),
        "subtract log q, and add log p": log_x + (log_q - log_p).sum(-1),
        "log p(x | z) is minus the cross-entropy": (log_p - log_q).sum(-1) - log_x,
        "sum over the pixels, do not average": log_x / 3 + (log_p - log_q).sum(-1),
        "sum over the dimensions of the code": log_x + (log_p - log_q).mean(-1),
        "that is the density of q at mu, not at z": log_x
        + (log_p - Normal(model.mu, sigma).log_prob(model.mu)).sum(-1),
        "Normal takes the standard deviation": log_x
        + (log_p - Normal(model.mu, sigma**2).log_prob(z)).sum(-1),
    }
    expect(got, log_x + (log_p - log_q).sum(-1), "2,000 draws for two images", wrong)
    ratios = torch.tensor([[0.0, -2_000.0], [math.log(3.0), -2_001.0]])
    sums = ratios.logsumexp(0)
    wrong = {
        "take the mean before the logarithm: that is the ELBO": ratios.mean(),
        "subtract log K, since a mean is asked for": sums.mean(),
        "use logsumexp: the exponentials of -2,000 are zero": torch.tensor(-math.inf),
        "the draws are in the rows: reduce dimension 0": (ratios.logsumexp(1) - math.log(2)).mean(),
        "average over images after the logarithm": ratios.logsumexp((0, 1)) - math.log(4),
        "average over the images": (sums - math.log(2)).sum(),
    }
    expect(bound(ratios), (sums - math.log(2)).mean(), "two draws for two images", wrong)
