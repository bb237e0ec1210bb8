"""The lab on autoencoders and the VAE."""

import math
from types import SimpleNamespace

import torch
from torch.distributions import Normal, kl_divergence
from torch.nn.functional import binary_cross_entropy_with_logits as bce

from support.labs import equal, expect
from support.labs.transformer import _large


def _layers(module):
    return [m for m in module.modules() if hasattr(m, "weight")]


def autoencoder(mlp, Autoencoder, ae_loss):
    """Three layers with large weights, the sizes of both halves, and three images.

    mlp: a linear layer for each pair of neighboring sizes, the last one, too; give it
    *hidden, with the star. forward: decoder(encoder(x)), nothing between. ae_loss:
    binary_cross_entropy_with_logits(logits, x) in this order, summed over pixels, divided by len(x)
    """
    net, x = _large(mlp(4, 5, 6, 3)), torch.randn(7, 4)
    a, b, c = _layers(net)
    right = c(b(a(x).relu()).relu())
    wrong = {"no ReLU after the last layer": right.relu(), "ReLU comes between": c(b(a(x)))}
    expect(net(x), right, "mlp(4, 5, 6, 3)", wrong)
    model, x = _large(Autoencoder(2, hidden := [6, 5])), torch.rand(3, 784)
    wrong = {"the decoder has the hidden sizes in reverse": [6, 5, 784]}
    expect([m.out_features for m in _layers(model.decoder)], [5, 6, 784], "the decoder", wrong)
    assert hidden == [6, 5], "leave the list hidden as it is: reversed(hidden)"
    logits = model.decoder(model.encoder(x))
    wrong = {"sum over the pixels of an image, do not average": bce(logits, x)}
    wrong["no sigmoid before the loss: it has one"] = 784 * bce(logits.sigmoid(), x)
    expect(ae_loss(model, x), 784 * bce(logits, x), "ae_loss of three images", wrong)


def convolutions(convolve, convolve_transposed):
    """A kernel of three numbers, and a stride of 2.

    number i of the result of convolve, and copy i of convolve_transposed, start at i * stride; the
    lengths that the docstrings give; kernel not flipped; sums, no means; a tensor of floats
    """
    x, z, kernel = map(torch.tensor, ([1.0, 0, 2, 3, 1], [3.0, 5], [0.5, 2, 4]))
    wrong = {"do not flip the kernel": [5.0, 14.5], "the kernel fits at the last position": [8.5]}
    expect(convolve(x, kernel, 2).tolist(), [8.5, 11.0], "1 0 2 3 1 with .5 2 4, stride 2", wrong)
    wrong = {"add up where copies overlap": [1.5, 6.0, 2.5, 10.0, 20.0]}
    got = convolve_transposed(z, kernel, 2).tolist()
    expect(got, [1.5, 6.0, 14.5, 10.0, 20.0], "3 5 with .5 2 4, stride 2, transposed", wrong)


def conv_autoencoder(ConvAutoencoder):
    """Two images, a code of five numbers, and large weights.

    three layers in each half, with biases; a padding of 1 in every convolution; nn.ConvTranspose2d
    on the way back; a ReLU after each convolution and the decoder's linear layer, but none after
    the code or the image; nn.Flatten(), without arguments, last
    """
    model, x = _large(ConvAutoencoder(5)), torch.rand(2, 784)
    a, b, c, d, e, f = layers = [*_layers(model.encoder), *_layers(model.decoder)]
    for layer, n in zip(layers, (136, 4_128, 7_845, 9_408, 4_104, 129), strict=True):
        expect(sum(w.numel() for w in layer.parameters()), n, f"parameters of {layer}")
    code = c(b(a(x.view(2, 1, 28, 28)).relu()).relu().flatten(1))
    expect(model.encoder(x), code, "two codes", {"no ReLU after the code": code.relu()})
    right = f(e(d(code).relu().view(2, 32, 7, 7)).relu()).view(2, 784)
    wrong = {"no sigmoid at the end: it is in the loss": right.sigmoid()}
    expect(model(x), right, "two reconstructions", wrong)


def kl(kl_to_prior):
    """Three clouds, against PyTorch's.

    sigma is the standard deviation, not the variance or a logarithm: sigma**2 inside the half,
    sigma.log() outside of it, neither halved nor to base 2; subtract the logarithm; divide nothing
    by sigma (that is the KL from the prior); no sum, no mean
    """
    mu, sigma = torch.tensor([1.2, 0.0, -2.0]), torch.tensor([0.5, 3.0, 0.25])
    right = kl_divergence(Normal(mu, sigma), Normal(0.0, 1.0))
    wrong = {"do not halve log sigma": right + sigma.log() / 2, "subtract 1": right + 0.5}
    expect(kl_to_prior(mu, sigma), right, "three clouds", wrong)


def loss(VAE, vae_loss):
    """4,000 codes of one image, their gradients, four images, and three with known losses.

    encoder: 2 * d_code outputs; decoder: d_code inputs. encode: chunk(2, dim=1), means first; sigma
    = exp(half the rest). forward: mu + sigma * randn_like(sigma); returns logits, mu, sigma.
    losses: pixels summed over dim 1. vae_loss: reconstruction + beta * kl.sum(1), then the mean
    """
    model, x = VAE(2, []), torch.rand(4, 784)
    [encoder], [decoder] = _layers(model.encoder), _layers(model.decoder)
    means, log = torch.tensor([[1.2, -1.0], [-math.log(4), math.log(4)]])
    encoder.bias.data = torch.cat((means, log))
    decoder.weight.data[:], decoder.bias.data = torch.eye(784, 2), torch.zeros(784)
    wrong = {"the encoder returns log sigma squared: halve it": (means, log.exp())}
    wrong["the means come first"] = log, (means / 2).exp()
    logits, mu, sigma = model(torch.zeros(4_000, 784))
    expect((mu[0], sigma[0]), (means, (log / 2).exp()), "mu and sigma", wrong)
    assert not logits[:, 2:].any(), "return the decoder's logits, without a sigmoid"
    z = logits[:, :2]  # what the decoder has got
    wrong = {"draw a code for each image": [0.0, 0, 0], "sigma is not the variance": [0.25, 4, 0]}
    wrong["draw an epsilon for each dimension"] = [0.5, 2, 1]
    got = torch.stack((*z.std(0), z.T.cov()[0, 1]))
    expect(got, [0.5, 2.0, 0.0], "two deviations and the covariance of the codes", wrong, 0.12)
    gradient = torch.autograd.grad(z.sum(), encoder.bias, materialize_grads=True)[0]
    assert gradient[:2].all(), "mu and sigma get no gradient"
    assert gradient.all(), "sigma gets no gradient"
    assert not equal(model.losses(x), model.losses(x)), "in losses, decode a draw, not mu"
    encoder.weight.data[2:], encoder.bias.data[2:] = 0.0, -60.0  # sigma is e^-30
    each = bce(model.decoder(model.encoder(x)[:, :2]), x, reduction="none")
    wrong = {"sum over the pixels, do not average": each.mean(1)}
    expect(model.losses(x)[0], each.sum(1), "reconstruction losses of four images", wrong)
    kl = (model.encoder(x)[:, :2] ** 2 - 1) / 2 + 30
    expect(model.losses(x)[1], kl, "KLs of four images, (4, 2): kl_to_prior(mu, sigma)", {})
    parts = torch.tensor([100.0, 120, 140]), torch.tensor([[2.0, 1.0], [3.0, 2.0], [1.0, 3.0]])
    wrong = {"add up the KLs of an image's dimensions, do not average": 126.0}
    wrong["beta is the factor of the KL, not of the reconstruction"] = 364.0
    got = vae_loss(SimpleNamespace(losses=lambda x: parts), x, beta=3.0)
    expect(got.item(), 132.0, "vae_loss of three images with beta = 3", wrong)


def bound(log_ratios, bound):
    """Two images and 50 draws from known clouds, and logarithms near -2,000.

    log_ratios: z from q, Normal(mu, sigma) (not the prior, nor the variance); log p(z) added, log q
    subtracted, each summed over dim -1, minus the cross-entropy with logits (a sigmoid may round to
    1); (n, B). bound: logsumexp over the draws, dim 0; subtract log len(ratios); then the mean
    """
    mu, sigma, x = torch.tensor([[40.0, -40], [50, 60]]), torch.full((2, 2), 2.0), torch.rand(2, 3)
    seen, decoder = [], _large(torch.nn.Linear(2, 3))  # logits of up to 100
    decoder.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0]))
    model = SimpleNamespace(encode=lambda x: (mu, sigma), decoder=decoder)
    got = log_ratios(model, x, 50)
    z = torch.cat([z.reshape(-1, 2, 2) for z in seen])
    alike = z.flatten(1).T.corrcoef().triu(1).max()
    assert alike < 0.9, "draw an epsilon anew for each of the n, each image and each dimension"
    expect([z.mean(0), z.std(0)], [mu, sigma], "means and deviations of the codes z", None, 1.2)
    log_p, log_q = Normal(0.0, 1.0).log_prob(z).sum(-1), Normal(mu, sigma).log_prob(z).sum(-1)
    log_x = -bce(decoder(z), x.expand(50, 2, 3), reduction="none").sum(-1)
    wrong = {"subtract log q(z | x)": log_x + log_p}
    wrong["log p(x | z) is minus the cross-entropy"] = log_p - log_q - log_x
    expect(got, log_x + log_p - log_q, "50 draws for two images", wrong)
    ratios = torch.tensor([[0.0, -2_000.0], [math.log(3.0), -2_001.0], [0.5, -2_002.0]])
    sums = ratios.logsumexp(0)
    wrong = {"take the mean before the logarithm: that is the ELBO": ratios.mean()}
    wrong |= {"subtract log K": sums.mean(), "use logsumexp": torch.tensor(-torch.inf)}
    expect(bound(ratios), (sums - math.log(3)).mean(), "three draws for two images", wrong)
