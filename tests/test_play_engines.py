"""The explorers compute what Python computes, in a real browser, from the files alone."""

from __future__ import annotations

import itertools
import json
import math
import random
import sys
import unicodedata

import numpy as np
import pytest
import torch

from support.data import toyworld
from support.models import bert, gpt
from support.text.bpe import BPETokenizer, byte_symbols, pre_tokenize
from tests import play_files
from tools import address
from tools.format_notebooks import read


@pytest.fixture(scope="module")
def ground(browser, tmp_path_factory):
    """Return an empty page, opened from a folder, on which the explorers can be asked."""
    path = tmp_path_factory.mktemp("page") / "blank.html"
    path.write_text(play_files.BLANK.format((play_files.FOLDER / "play.js").as_uri()))
    tab = browser.new_page()
    tab.goto(path.as_uri())
    yield tab
    tab.close()


def ask(tab, name: str, function: str, *given):
    """Return what a function (engine, …given) of JavaScript gives for the explorer of that name."""
    call = f"async ([name, given]) => ({function})(await play.engine(name), ...given)"
    return tab.evaluate(call, [name, list(given)])


def weights_of(name: str) -> dict[str, torch.Tensor]:
    """Return the weights that the page has."""
    weights = play_files.committed(name)["weights"]
    return {key: torch.from_numpy(array.copy()) for key, array in weights.items()}


def close(found, wanted: torch.Tensor, atol: float = 1e-3, rtol: float = 0) -> None:
    """Hold the page's numbers against PyTorch's."""
    assert wanted.double().std() > 0.01, "numbers that are all alike prove nothing"
    found = torch.tensor(found, dtype=torch.float64)
    torch.testing.assert_close(found, wanted.double(), atol=atol, rtol=rtol)


def random_texts(n: int) -> list[str]:
    """Return texts of all scripts: any characters, words and marks, what is special to Unicode."""
    rng = random.Random(0)
    special = [*"  \n\t\r\x0b\x1c\x85\xa0\u2028\u3000\u200d\ufeff'’.,!?…0１²Ⅷéßİıſ词元🙂", "   "]
    special += ["\u0301", "👩‍👩‍👧", "'s", "'ll", "'RE", " the", "People", "What", "\x00"]
    texts = [""]
    while len(texts) < n:
        length = rng.randrange(1, 30)
        if rng.random() < 0.5:
            low, high = rng.choice([(0, sys.maxunicode), (32, 0x250), (0x400, 0x9FFF)])
            letters = [chr(rng.randrange(low, high)) for _ in range(length)]
        else:
            letters = rng.choices(special, k=length)
        texts.append("".join(c for c in letters if unicodedata.category(c[0]) != "Cs"))
    return texts


def test_bpe_gives_the_ids_of_support(ground):
    found = play_files.committed("bpe")
    symbols = [byte_symbols()[byte] for byte in found["alphabet"]]
    vocab, merges = {symbol: i for i, symbol in enumerate(symbols)}, []
    for a, b in found["merges"]:
        if vocab.setdefault(symbols[a] + symbols[b], len(symbols)) == len(symbols):
            symbols.append(symbols[a] + symbols[b])
        merges.append((symbols[a], symbols[b]))
    texts = [*random_texts(1_000), *(s.title() for s in toyworld.sentences(n=50))]
    texts += ["What is the city but the people?", "Northumberland", "aaaa aaaaa"]
    call = "(bpe, texts, n) => texts.map((t) => bpe.encode(t, n).flat())"
    for n in (len(merges), 0, 1, 256, 5_000):
        younger = BPETokenizer(vocab, merges[:n])
        assert ask(ground, "bpe", call, texts, n) == [younger.encode(text) for text in texts], n


@pytest.mark.exhaustive
def test_bpe_cuts_at_every_character_as_support_does(ground):
    """Whatever the version of Unicode of the browser."""
    call = """(bpe, from, to) => {
      const kinds = [];
      for (let i = from; i < to; i++) {
        const c = String.fromCodePoint(i);
        kinds.push(["a", "1", "!", " "].map((x) => bpe.preTokens(x + c + x).length).join(""));
      }
      return kinds.join(" ");
    }"""
    for start, end in ((0, 0xD800), (0xE000, 0x80000), (0x80000, sys.maxunicode + 1)):
        for i, found in enumerate(ask(ground, "bpe", call, start, end).split(), start=start):
            wanted = "".join(str(len(pre_tokenize(x + chr(i) + x))) for x in "a1! ")
            assert found == wanted, hex(i)


@pytest.fixture(scope="module")
def writer() -> tuple[gpt.GPT, list[str]]:
    """Return the chapter's model with the weights that the page has, and its words."""
    found, weights = play_files.committed("gpt"), weights_of("gpt")
    vocab_size, d_model = weights["tokens.weight"].shape
    n_layers = sum(name.endswith("qkv.weight") for name in weights)
    length = len(weights["positions.weight"])
    config = gpt.GPTConfig(vocab_size, d_model, n_layers, found["heads"], max_length=length)
    model = gpt.GPT(config).eval()
    model.load_state_dict(weights)
    return model, found["vocab"]


@torch.no_grad()
def test_gpt_gives_the_logits_of_pytorch(ground, writer):
    model, vocab = writer
    call = "(gpt, ids) => gpt.logits(ids).map((row) => [...row])"
    for length in (1, 5, model.config.max_length):
        ids = torch.randint(len(vocab), (length,), generator=torch.manual_seed(length))
        close(ask(ground, "gpt", call, ids.tolist()), model(ids[None])[0])


@pytest.mark.parametrize(
    ("temperature", "k", "p"), [(1, None, 1), (0, None, 1), (1.7, 5, 1), (1, 1, 1), (1.3, 20, 0.6)]
)
def test_gpt_draws_by_the_rules_of_support(ground, temperature, k, p):
    logits = 3 * torch.randn(4, 60, generator=torch.manual_seed(0))
    logits[0, :10] = logits[0, 0]  # equals
    rule = {"temperature": temperature, "topP": p, **({"topK": k} if k else {})}
    call = "(gpt, rows, rule) => rows.map((row) => [...gpt.rule(row, rule)])"
    wanted = gpt.next_token_probabilities(logits, temperature=temperature, top_k=k, top_p=p)
    close(ask(ground, "gpt", call, logits.tolist(), rule), wanted, atol=1e-5)


@torch.no_grad()
def test_gpt_knows_the_truth_of_toyworld_and_the_lowest_loss(ground, writer):
    rng, words, asked = random.Random(0), toyworld.vocabulary(), [[]]
    for sentence in toyworld.sentences(seed=7, n=400):
        tokens = sentence.split()[: rng.randrange(12)]
        if tokens and rng.random() < 0.3:  # so that many are impossible
            tokens[rng.randrange(len(tokens))] = rng.choice(words)
        asked.append([token for token in tokens if token != "."])
    call = "(gpt, asked) => asked.map((b) => { const p = gpt.after(b); return p && [...p]; })"
    impossible = 0
    for beginning, found in zip(asked, ask(ground, "gpt", call, asked), strict=True):
        try:
            truth = toyworld.next_token_log_probs(beginning)
        except ValueError:
            truth, impossible = None, impossible + 1
        wanted = truth and {word: math.exp(p) for word, p in truth.items()}
        assert (found and dict(found)) == (wanted and pytest.approx(wanted)), beginning
    assert 20 < impossible < 200
    model, vocab = writer
    sentence = "yesterday the farmer sang songs quietly near the field".split()
    ids = torch.tensor([[vocab.index(word) for word in [".", *sentence]]])
    log_q = model(ids)[0].log_softmax(-1)
    call = "(gpt, words) => gpt.read(words).map(({ cross, floor }) => [cross, floor])"
    for t, losses in enumerate(ask(ground, "gpt", call, sentence)):
        log_p = toyworld.next_token_log_probs(sentence[:t])
        cross = -sum(math.exp(p) * log_q[t, vocab.index(word)].item() for word, p in log_p.items())
        floor = -sum(math.exp(p) * p for p in log_p.values())
        assert losses == pytest.approx([cross, floor], abs=1e-3)


def test_attention_looks_as_pytorch_does(ground):
    call = "(e, x) => x.map((_, t) => e.look(x, t)).map((y) => [y.scores, y.weights, y.after])"
    for size in (0.5, 3, 20):
        x = size * torch.randn(5, 3, generator=torch.manual_seed(0))
        weights = (x @ x.T).softmax(-1)
        scores, shares, after = zip(*ask(ground, "attention", call, x.tolist()), strict=True)
        close(scores, x @ x.T, rtol=1e-5)
        close(shares, weights)
        close(after, weights @ x)


@torch.no_grad()
def test_heads_gives_logits_weights_and_words_of_the_chapter(ground):
    data, weights = play_files.committed("heads"), weights_of("heads")
    alphabet = data["alphabet"]
    vocab_size, d_model = weights["encoder.embed.tokens.weight"].shape
    d_ff = len(weights["encoder.layers.0.feed_forward.up.weight"])
    shape = {"d_model": d_model, "d_ff": d_ff, "n_heads": data["heads"], "n_layers": 1}
    model = play_files.defined("transformer")["Transformer"](vocab_size, **shape).eval()
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert not unexpected and all(name.endswith(("places", "positions")) for name in missing)
    parts = {
        "encoder": model.encoder.layers[-1].attention,
        "decoder": model.decoder.layers[-1].attention,
        "cross": model.decoder.layers[-1].cross_attention,
    }
    for sizes in ((2, 2), (7, 7), (10, 4), (17, 17)):
        source, target = (
            torch.randint(1, len(alphabet), (n,), generator=torch.manual_seed(n)) for n in sizes
        )
        call = """(heads, source, target) => {
          const { logits, ...looks } = heads.run(source, target);
          return { logits: logits.map((row) => [...row]), ...looks };
        }"""
        found = ask(ground, "heads", call, source.tolist(), target.tolist())
        close(found["logits"], model(source[None], target[None])[0], rtol=1e-4)
        for name, part in parts.items():
            close(found[name], part.weights[0])
    rng, words = random.Random(0), ["monday", "international", "a", "banana"]
    words += ["".join(rng.choices(alphabet[3:], k=rng.randrange(1, 17))) for _ in range(30)]
    found = ask(ground, "heads", "(heads, words) => words.map((word) => heads.write(word))", words)
    for word, letters in zip(words, found, strict=True):
        source = torch.tensor([[alphabet.index(letter) for letter in word + ">"]])
        written = "".join(alphabet[i] for i in model.generate(source, len(word) + 1)[0])
        end = written.find(">") + 1 or len(written)
        assert "".join(letters) == written[:end], word


def test_vectors_finds_what_the_chapter_finds(ground):
    found, rng = play_files.committed("vectors"), random.Random(0)
    asked = [rng.sample(range(len(found["words"])), 3) for _ in range(40)] + [[1, 1, 2], [3, 4, 3]]
    call = """(vectors, name, asked) => asked.map((three) => [
      vectors.neighbors(name, three[0], 5),
      vectors.analogy(name, three, 5, true), vectors.analogy(name, three, 5, false)])"""
    for name, table in found["models"].items():
        unit = torch.nn.functional.normalize(torch.from_numpy(table.copy()), dim=1)
        for three, lists in zip(asked, ask(ground, "vectors", call, name, asked), strict=True):
            a, b, c = three
            target = torch.nn.functional.normalize(unit[b] - unit[a] + unit[c], dim=0)
            wanted = ((unit[a], [a]), (target, three), (target, []))
            for (direction, left_out), answers in zip(wanted, lists, strict=True):
                cosine = unit @ direction
                cosine[left_out] = -torch.inf
                rows, numbers = zip(*answers, strict=True)
                best = cosine.topk(5).values
                assert len({*rows} - {*left_out}) == 5
                torch.testing.assert_close(torch.tensor(numbers), best, atol=1e-3, rtol=0)
                torch.testing.assert_close(cosine[list(rows)], best, atol=1e-3, rtol=0)


@torch.no_grad()
def test_bert_gives_the_logits_of_pytorch(ground):
    found = play_files.committed("bert")
    weights = {
        name.replace("bert.layers", "bert.encoder.layers"): w
        for name, w in weights_of("bert").items()
    }
    vocab_size, d_model = weights["bert.tokens.weight"].shape
    depth = sum(name.endswith("qkv.weight") for name in weights)
    length = len(weights["bert.positions.weight"])
    sizes = (vocab_size, d_model, depth, found["heads"], 4 * d_model, length)
    model = bert.BertForPretraining(bert.Bert(bert.BertConfig(*sizes, norm_eps=1e-5))).eval()
    missing, unknown = model.load_state_dict(weights, strict=False)
    assert not unknown and all("pooler" in n or "next_sentence" in n for n in missing)
    call = "(bert, ids) => bert.logits(ids).map((row) => [...row])"
    for n in (1, 7, length):
        ids = torch.randint(vocab_size, (n,), generator=torch.manual_seed(n))
        close(
            ask(ground, "bert", call, ids.tolist()), model.predict_tokens(model.bert(ids[None]))[0]
        )


def best_guesses(world: toyworld.ToyWorld, seen: list[str | None]) -> list[dict[str, float]] | None:
    """Return the chances of the words in each gap, from the probabilities of whole sentences."""
    gaps, filled = [k for k, word in enumerate(seen) if word is None], {}
    for pattern in world.patterns.items:
        if len(pattern) != len(seen):
            continue
        for put_in in itertools.product(*(sorted(pattern.words[k]) for k in gaps)):
            words = iter(put_in)
            sentence = " ".join(next(words) if word is None else word for word in seen)
            if world.derivations(sentence):
                filled[put_in] = math.exp(world.log_prob(sentence))
    if not filled:
        return None
    chances = [{} for _ in gaps]
    for put_in, p in filled.items():
        for own, word in zip(chances, put_in, strict=True):
            own[word] = own.get(word, 0.0) + p / sum(filled.values())
    return chances


def test_bert_knows_the_best_guesses_of_toyworld(ground):
    cells = read(address.ROOT / "chapters" / "bert.ipynb").cells
    (source,) = (c.source for c in cells if "world = toyworld.ToyWorld(" in c.source)
    names = {"toyworld": toyworld, "print": lambda *_: None}
    exec(source, names)
    world = names["world"]
    assert play_files.committed("bert")["grammar"] == json.loads(json.dumps(world.grammar()))
    rng, vocabulary, asked = random.Random(0), world.vocabulary(), []
    for sentence in world.sentences(seed=7, n=120):
        tokens = sentence.split()
        if rng.random() < 0.2:
            tokens[rng.randrange(len(tokens))] = rng.choice(vocabulary)
        for k in rng.sample(range(len(tokens)), rng.choice([0, 1, 1, 2])):
            tokens[k] = None
        asked.append(tokens)
    call = """(bert, asked) => asked.map((seen) => {
      const best = bert.posterior(seen);
      return best && best.map((chances) => [...chances]);
    })"""
    impossible = 0
    for seen, found in zip(asked, ask(ground, "bert", call, asked), strict=True):
        best = best_guesses(world, seen)
        impossible += best is None
        assert (found is None) == (best is None), seen
        for k, word in enumerate(seen if found else []):
            wanted = best.pop(0) if word is None else {word: 1.0}
            assert dict(found[k]) == pytest.approx(wanted, abs=1e-9), (seen, k)
    assert 5 < impossible < 60


def pytorch_walk(found: dict, name: str, sizes: dict, start: list[float]) -> torch.Tensor:
    """Return the points (steps + 1, 2) that PyTorch's optimizer visits in the chapter's valley."""
    w = torch.tensor(start, dtype=torch.float64, requires_grad=True)
    curvature, lowest = (torch.tensor(found[key]) for key in ("curvature", "lowest"))
    rate, beta = sizes["rate"], float(sizes.get("beta", 0))
    optimizer = {
        "sgd": lambda: torch.optim.SGD([w], lr=rate),
        "momentum": lambda: torch.optim.SGD([w], lr=rate, momentum=beta),
        "rmsprop": lambda: torch.optim.RMSprop([w], lr=rate, alpha=beta),
        "adam": lambda: torch.optim.Adam([w], lr=rate, betas=(beta, sizes["beta2"])),
    }[name]()
    path = [w.detach().clone()]
    for _ in range(found["steps"]):
        w.grad = curvature * (w.detach() - lowest)
        optimizer.step()
        path.append(w.detach().clone())
    return torch.stack(path)


def test_optimizers_visit_the_points_of_pytorch(ground):
    found, rng = play_files.committed("optimizers"), random.Random(0)
    curvature, lowest = torch.tensor(found["curvature"]), torch.tensor(found["lowest"])
    for name, sizes in found["rules"].items():
        asked = [(found["start"], sizes)]
        for _ in range(15):
            other = {key: rng.choice(found["betas"]) for key in sizes if key == "beta"}
            other = {**sizes, **other, "rate": rng.choice(found["rates"])}
            asked.append(([rng.uniform(-3, 4), rng.uniform(-0.4, 2.4)], other))
        for start, own in asked:
            call = """(engine, ...given) => {
              const path = engine.walk(...given);
              return [path, path.map(engine.loss)];
            }"""
            path, losses = ask(ground, "optimizers", call, name, start, found["steps"], own)
            wanted = pytorch_walk(found, name, own, start)
            close(path, wanted, rtol=1e-3)
            heights = (curvature * (torch.tensor(path).double() - lowest) ** 2).sum(-1) / 2
            close(losses[:4], heights[:4], rtol=1e-5)  # later some are infinite


@pytest.mark.parametrize("quality", [10, 75])
def test_jpeg_gives_the_bits_and_the_copy_of_the_chapter(ground, quality):
    chapter, found = play_files.defined("compression"), play_files.committed("jpeg")
    chapter |= {"photo": found["photo"].astype(int), "STANDARD": found["standard"].astype(int)}
    chapter["C"] = C = chapter["dct"](8)
    chapter["rows"], chapter["columns"] = np.array(
        sorted(np.ndindex(8, 8), key=chapter["zigzag"])
    ).T
    chapter["waves"] = C @ chapter["to_blocks"](chapter["photo"] - 128) @ C.T
    call = """(jpeg, quality, numbers) => {
      const { steps, word, bits, copy, decibels } = jpeg.code(quality, numbers);
      const own = jpeg.code(quality).numbers.map((row) => [...row]);
      return { steps, own, word: [...word], bits, copy: [...copy], decibels };
    }"""
    steps = chapter["table"](quality)
    exact = chapter["waves"] / steps
    quantized = np.rint(exact).astype(int)
    found = ask(ground, "jpeg", call, quality, quantized.reshape(-1, 64).tolist())
    _, words = chapter["encode"](quantized)
    rate, decibels = chapter["our_jpeg"](quality)
    assert found["steps"] == steps.ravel().tolist()
    on_page = {
        x if isinstance(x, str) else " ".join(map(str, x)): word for x, word in words.items()
    }
    assert dict(found["word"]) == on_page
    assert found["bits"] == round(rate * chapter["photo"].size)
    assert found["decibels"] == pytest.approx(decibels, abs=1e-3)
    copy = chapter["from_blocks"](C.T @ (quantized * steps) @ C) + 128
    assert np.abs(found["copy"] - copy.round().clip(0, 255).ravel()).max() <= 1  # at a half
    differ = np.array(found["own"]).reshape(quantized.shape) != quantized
    assert (np.abs(exact - np.floor(exact) - 0.5)[differ] < 1e-9).all(), "at a half, it may"


@torch.no_grad()
def test_vae_reads_and_draws_as_pytorch_does(ground):
    chapter, weights = play_files.defined("vae"), weights_of("vae")
    hidden = [len(weights["encoder.0.bias"]), len(weights["encoder.2.bias"])]
    model = chapter["VAE"](2, hidden).eval()
    model.load_state_dict(weights)
    generator = torch.manual_seed(0)
    pictures = torch.rand(12, 784, generator=generator) * torch.rand(12, 1, generator=generator)
    pictures[:6] = pictures[:6].bernoulli(generator=generator)
    call = "(vae, xs) => xs.map((x) => vae.encode(x)).map((c) => [...c.mu, ...c.sigma, c.cost])"
    found = ask(ground, "vae", call, pictures.tolist())
    mu, sigma = model.encode(pictures)
    cost = chapter["kl_to_prior"](mu, sigma).sum(1, keepdim=True)
    close(found, torch.cat([mu, sigma, cost], 1), rtol=1e-4)
    codes = 2 * torch.randn(12, 2, generator=generator)
    x = torch.rand(784, generator=generator).bernoulli(generator=generator)
    call = """(vae, codes, x) => codes.map((z) => {
      const logits = vae.decode(z);
      return [[...logits], [...vae.draw(logits)], vae.price(x, logits)];
    })"""
    logits, drawn, price = zip(*ask(ground, "vae", call, codes.tolist(), x.tolist()), strict=True)
    wanted = model.decoder(codes)
    close(logits, wanted)
    close(drawn, wanted.sigmoid())
    cross_entropy = torch.nn.functional.binary_cross_entropy_with_logits
    close(price, cross_entropy(wanted, x.expand_as(wanted), reduction="none").sum(1), rtol=1e-5)
