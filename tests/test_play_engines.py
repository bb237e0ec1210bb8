"""The explorers compute what Python computes, in a real browser, from the files alone."""

from __future__ import annotations

import itertools
import json
import math
import random
import re
import sys
import unicodedata
from typing import Any

import numpy as np
import pytest
import torch

from support.data import toyworld
from support.models import bert, gpt
from support.text.bpe import BPETokenizer, byte_symbols, pre_tokenize
from tests import play_files
from tests.browser import launch
from tests.test_gpu_rehearsal import names_of
from tools import address
from tools.format_notebooks import read

NAMES = play_files.names()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """Start the Chromium of this machine."""
    with launch(str(tmp_path_factory.mktemp("browser"))) as running:
        yield running


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


@pytest.mark.parametrize("name", NAMES)
def test_page_unpacks_the_numbers_that_python_reads(ground, name):
    flat = """(engine, name) => {
      const found = {};
      const walk = (value, path) => {
        if (ArrayBuffer.isView(value)) {
          const sum = (weigh) => value.reduce((total, x, i) => total + x * weigh(i), 0);
          found[path] = [...value.shape, sum(() => 1), sum((i) => Math.cos(i))];
        } else if (value && typeof value === "object") {
          for (const [key, item] of Object.entries(value)) walk(item, `${path}/${key}`);
        } else found[path] = value;
      };
      walk(play.unpacked(name), "");
      return found;
    }"""
    found, wanted = ask(ground, name, flat, name), {}

    def walk(value, path):
        if isinstance(value, np.ndarray):
            numbers = value.astype(np.float64).ravel()
            weighed = numbers @ np.cos(np.arange(len(numbers)))
            wanted[path] = [*value.shape, numbers.sum(), weighed]
        elif isinstance(value, (dict, list)):
            items = value.items() if isinstance(value, dict) else enumerate(value)
            for key, item in items:
                walk(item, f"{path}/{key}")
        else:
            wanted[path] = value

    walk(play_files.committed(name), "")
    assert found.keys() == wanted.keys()
    for path, value in wanted.items():
        expected = pytest.approx(value, rel=1e-5, abs=1e-3) if isinstance(value, list) else value
        assert found[path] == expected, path


# bpe


@pytest.fixture(scope="module")
def tokenizer() -> BPETokenizer:
    """Return the tokenizer of the chapter, made from what the page has."""
    found = play_files.committed("bpe")
    symbols = [byte_symbols()[byte] for byte in found["alphabet"]]
    vocab, merges = {symbol: i for i, symbol in enumerate(symbols)}, []
    for a, b in found["merges"]:
        if vocab.setdefault(symbols[a] + symbols[b], len(symbols)) == len(symbols):
            symbols.append(symbols[a] + symbols[b])
        merges.append((symbols[a], symbols[b]))
    return BPETokenizer(vocab, merges)


def random_texts(n: int, seed: int = 0) -> list[str]:
    """Return texts of all scripts: any characters, words and marks, what is special to Unicode."""
    rng = random.Random(seed)
    special = list("  \n\t\r\x0b\x1c\x85\xa0\u2028\u3000\u200d\ufeff'’.,!?…0１²Ⅷéßİıſ词元🙂")
    special += ["\u0301", "👩‍👩‍👧", "'s", "'ll", "'RE", " the", "People", "What", "   ", "\x00"]
    ranges = [(32, 127), (32, 0x250), (0x400, 0x700), (0x4E00, 0x9FFF), (0x1F300, 0x1FAFF)]
    texts = [""]
    while len(texts) < n:
        length, kind = rng.randrange(1, 30), rng.random()
        if kind < 0.3:
            letters = [chr(rng.randrange(sys.maxunicode + 1)) for _ in range(length)]
        elif kind < 0.6:
            low, high = rng.choice(ranges)
            letters = [chr(rng.randrange(low, high)) for _ in range(length)]
        else:
            letters = [rng.choice(special) for _ in range(length)]
        texts.append("".join(c for c in letters if unicodedata.category(c[0]) != "Cs"))
    return texts


def test_bpe_gives_the_ids_of_support(ground, tokenizer):
    texts = random_texts(1_000)
    texts += [sentence.title() for sentence in toyworld.sentences(n=50)]
    found = ask(ground, "bpe", "(bpe, texts) => texts.map((t) => bpe.encode(t).flat())", texts)
    assert found == [tokenizer.encode(text) for text in texts]
    assert sum(max(ids, default=0) > 255 for ids in found) > 100, "merges are applied"


def test_bpe_gives_the_ids_of_every_smaller_vocabulary(ground, tokenizer):
    texts = ["What is the city but the people?", "Northumberland", "aaaa aaaaa", *random_texts(20)]
    for n in (0, 1, 16, 256, 5_000, len(tokenizer.merges)):
        younger = BPETokenizer(tokenizer.vocab, tokenizer.merges[:n])
        call = "(bpe, texts, n) => texts.map((t) => bpe.encode(t, n).flat())"
        assert ask(ground, "bpe", call, texts, n) == [younger.encode(text) for text in texts], n


@pytest.mark.exhaustive
def test_bpe_cuts_at_every_character_as_support_does(ground):
    """Whatever the version of Unicode of the browser."""
    characters = [chr(i) for i in range(sys.maxunicode + 1) if not 0xD800 <= i < 0xE000]
    call = """(bpe, from, to) => {
      const kinds = [];
      for (let i = from; i < to; i++) {
        const c = String.fromCodePoint(i);
        kinds.push(["a", "1", "!", " "].map((x) => bpe.preTokens(x + c + x).length).join(""));
      }
      return kinds.join(" ");
    }"""
    found = []
    for start, end in ((0, 0xD800), (0xE000, 0x80000), (0x80000, sys.maxunicode + 1)):
        found += ask(ground, "bpe", call, start, end).split(" ")
    wanted = ["".join(str(len(pre_tokenize(x + c + x))) for x in "a1! ") for c in characters]
    differ = [hex(ord(c)) for c, f, w in zip(characters, found, wanted, strict=True) if f != w]
    assert not differ, differ[:20]


# gpt


@pytest.fixture(scope="module")
def writer() -> tuple[gpt.GPT, list[str]]:
    """Return the chapter's model with the weights that the page has, and its words."""
    found = play_files.committed("gpt")
    weights = {name: torch.from_numpy(w.copy()) for name, w in found["weights"].items()}
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
    generator = torch.Generator().manual_seed(0)
    for length in (1, 5, model.config.max_length):
        ids = torch.randint(len(vocab), (length,), generator=generator)
        call = "(gpt, ids) => gpt.logits(ids).map((row) => [...row])"
        found = torch.tensor(ask(ground, "gpt", call, ids.tolist()))
        wanted = model(ids[None])[0]
        assert wanted.std() > 0.5
        torch.testing.assert_close(found, wanted, atol=1e-3, rtol=0)


def test_gpt_draws_by_the_rules_of_support(ground):
    logits = 3 * torch.randn(4, 60, generator=torch.Generator().manual_seed(0))
    logits[0, :10] = logits[0, 0]  # equals
    rules = [
        {},
        {"temperature": 0},
        {"temperature": 0.5},
        {"temperature": 1.7},
        {"topK": 1},
        {"topK": 5},
        {"topP": 0.6},
        {"topP": 0.95, "topK": 20, "temperature": 1.3},
    ]
    python = {"topK": "top_k", "topP": "top_p", "temperature": "temperature"}
    for rule in rules:
        call = "(gpt, rows, rule) => rows.map((row) => [...gpt.rule(row, rule)])"
        found = torch.tensor(ask(ground, "gpt", call, logits.tolist(), rule), dtype=torch.float32)
        given = {python[name]: value for name, value in rule.items()}
        wanted = gpt.next_token_probabilities(logits, **given)
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=0)


def beginnings(n: int) -> list[list[str]]:
    """Return beginnings of sentences; some with a word changed, so that many are impossible."""
    rng, words = random.Random(0), toyworld.vocabulary()
    found = [[]]
    for sentence in toyworld.sentences(seed=7, n=n):
        tokens = sentence.split()[: rng.randrange(12)]
        tokens = [token for token in tokens if token != "."]
        if tokens and rng.random() < 0.3:
            tokens[rng.randrange(len(tokens))] = rng.choice(words)
        found.append([token for token in tokens if token != "."])
    return found


def test_gpt_knows_the_truth_of_toyworld(ground):
    asked = beginnings(400)
    call = "(gpt, asked) => asked.map((b) => { const p = gpt.after(b); return p && [...p]; })"
    impossible = 0
    for beginning, found in zip(asked, ask(ground, "gpt", call, asked), strict=True):
        try:
            wanted = toyworld.next_token_log_probs(beginning)
        except ValueError:
            assert found is None, beginning
            impossible += 1
            continue
        assert dict(found) == pytest.approx({w: math.exp(p) for w, p in wanted.items()}), beginning
    assert 20 < impossible < 200


@torch.no_grad()
def test_gpt_computes_cross_entropy_and_floor(ground, writer):
    model, vocab = writer
    ids = {word: i for i, word in enumerate(vocab)}
    sentence = "yesterday the farmer sang songs quietly near the field".split()
    call = "(gpt, words) => gpt.read(words).map(({ cross, floor }) => [cross, floor])"
    found = ask(ground, "gpt", call, sentence)
    log_q = model(torch.tensor([[ids[w] for w in [".", *sentence]]]))[0]
    log_q = log_q.log_softmax(-1)
    assert len(found) == len(sentence) + 1
    for t, (cross, floor) in enumerate(found):
        log_p = toyworld.next_token_log_probs(sentence[:t])
        p = {word: math.exp(value) for word, value in log_p.items()}
        wanted = -sum(p[word] * log_q[t, ids[word]].item() for word in p)
        assert cross == pytest.approx(wanted, abs=1e-3)
        assert floor == pytest.approx(-sum(p[w] * log_p[w] for w in p), abs=1e-6)
        assert cross >= floor - 1e-9


def test_gpt_reads_texts_longer_than_its_window(ground, writer):
    model, vocab = writer
    words = [vocab[i] for i in torch.randint(len(vocab), (40,)).tolist()]
    words = [word for word in words if word != "."]
    call = "(gpt, words) => gpt.read(words).map(({ model }) => [...model])"
    found = torch.tensor(ask(ground, "gpt", call, words))
    ids = torch.tensor([[vocab.index(word) for word in words]])[:, -model.config.max_length :]
    with torch.no_grad():
        wanted = model(ids)[0, -1].softmax(-1)
    torch.testing.assert_close(found[-1], wanted, atol=1e-3, rtol=0)


# attention


def test_attention_looks_as_pytorch_does(ground):
    generator = torch.Generator().manual_seed(0)
    for size in (0.3, 1, 3, 20):
        x = size * torch.randn(5, 3, generator=generator)
        call = "(e, x) => x.map((_, t) => e.look(x, t)).map((y) => [y.scores, y.weights, y.after])"
        found = ask(ground, "attention", call, x.tolist())
        weights = (x @ x.T).softmax(-1)
        for t, answers in enumerate(found):
            scores, shares, after = (torch.tensor(a, dtype=torch.float32) for a in answers)
            torch.testing.assert_close(scores, x @ x[t], atol=1e-3, rtol=1e-5)
            torch.testing.assert_close(shares, weights[t], atol=1e-3, rtol=0)
            torch.testing.assert_close(after, weights[t] @ x, atol=1e-3, rtol=0)


# heads


@pytest.fixture(scope="module")
def mirror() -> tuple[torch.nn.Module, str]:
    """Return the chapter's Transformer with the weights that the page has, and its alphabet."""
    found = play_files.committed("heads")
    names = {"math": math, "torch": torch, "nn": torch.nn}
    classes = ("causal_mask", "MultiHeadAttention", "FeedForward", "Block", "sinusoids", "Embed")
    classes += ("Encoder", "DecoderBlock", "Decoder", "SelfAttention_v2", "Transformer")
    for cell in read(address.ROOT / "chapters" / "transformer.ipynb").cells:
        defined = re.findall(r"^(?:class|def) (\w+)", cell.source, re.M)
        if cell.cell_type == "code" and set(defined) & set(classes):
            code = "\n".join(line for line in cell.source.split("\n") if line[:5] != "print")
            exec(code, names)
    weights = {name: torch.from_numpy(w.copy()) for name, w in found["weights"].items()}
    vocab_size, d_model = weights["encoder.embed.tokens.weight"].shape
    d_ff = len(weights["encoder.layers.0.feed_forward.up.weight"])
    shape = {"d_model": d_model, "d_ff": d_ff, "n_heads": found["heads"], "n_layers": 1}
    model = names["Transformer"](vocab_size, **shape).eval()
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert not unexpected and all(name.endswith("places") for name in missing)
    return model, found["alphabet"]


@torch.no_grad()
def test_heads_gives_logits_and_weights_of_the_chapter(ground, mirror):
    model, alphabet = mirror
    generator = torch.Generator().manual_seed(0)
    parts = {
        "encoder": model.encoder.layers[-1].attention,
        "decoder": model.decoder.layers[-1].attention,
        "cross": model.decoder.layers[-1].cross_attention,
    }
    for length, written in ((1, 1), (7, 7), (10, 4), (17, 17)):
        source, target = (
            torch.randint(1, len(alphabet), (n,), generator=generator) for n in (length, written)
        )
        call = """(heads, source, target) => {
          const { logits, ...looks } = heads.run(source, target);
          return { logits: logits.map((row) => [...row]), ...looks };
        }"""
        found = ask(ground, "heads", call, source.tolist(), target.tolist())
        wanted = model(source[None], target[None])[0]
        assert wanted.std() > 0.5
        torch.testing.assert_close(torch.tensor(found["logits"]), wanted, atol=1e-3, rtol=1e-4)
        for name, part in parts.items():
            looks = torch.tensor(found[name], dtype=torch.float32)
            torch.testing.assert_close(looks, part.weights[0], atol=1e-3, rtol=0)


def test_heads_writes_what_the_chapters_model_writes(ground, mirror):
    model, alphabet = mirror
    rng, words = random.Random(0), ["monday", "international", "a", "banana"]
    words += ["".join(rng.choices(alphabet[3:], k=rng.randrange(1, 17))) for _ in range(60)]
    found = ask(ground, "heads", "(heads, words) => words.map((word) => heads.write(word))", words)
    mirrored = 0
    for word, letters in zip(words, found, strict=True):
        source = torch.tensor([[alphabet.index(letter) for letter in word + ">"]])
        written = "".join(alphabet[i] for i in model.generate(source, len(word) + 1)[0])
        assert "".join(letters) == written.split(">")[0] + (">" if ">" in written else ""), word
        mirrored += written == word[::-1] + ">"
    assert mirrored > 20


# vectors


def test_vectors_finds_what_the_chapter_finds(ground):
    found = play_files.committed("vectors")
    rng = random.Random(0)
    n = len(found["words"])
    asked = [rng.sample(range(n), 3) for _ in range(40)] + [[1, 1, 2], [3, 4, 3]]
    for name, table in found["models"].items():
        unit = torch.nn.functional.normalize(torch.from_numpy(table.copy()), dim=1)
        call = """(vectors, name, asked) => asked.map((three) => [
          vectors.neighbors(name, three[0], 5),
          vectors.analogy(name, three, 5, true), vectors.analogy(name, three, 5, false)])"""
        for three, lists in zip(asked, ask(ground, "vectors", call, name, asked), strict=True):
            a, b, c = three
            target = torch.nn.functional.normalize(unit[b] - unit[a] + unit[c], dim=0)
            wanted = ((unit[a], [a]), (target, three), (target, []))
            for (direction, left_out), answers in zip(wanted, lists, strict=True):
                cosine = unit @ direction
                cosine[left_out] = -torch.inf
                rows, numbers = zip(*answers, strict=True)
                assert not set(rows) & set(left_out) and len(set(rows)) == 5
                best = cosine.topk(5).values
                torch.testing.assert_close(torch.tensor(numbers), best, atol=1e-3, rtol=0)
                torch.testing.assert_close(cosine[list(rows)], best, atol=1e-3, rtol=0)


def test_vectors_has_all_words_in_all_models_and_on_all_maps():
    found = play_files.committed("vectors")
    words = found["words"]
    assert len(set(words)) == len(words) > 1_000
    assert list(found["models"]) == list(found["maps"]) and len(found["models"]) >= 3
    for name, table in found["models"].items():
        assert table.shape[0] == len(words) and np.abs(table).sum(1).min() > 0, name
        assert found["maps"][name].shape == (len(words), 2)
        assert np.ptp(found["maps"][name], axis=0).tolist() == [255, 255], "the map is full"


# bert


@pytest.fixture(scope="module")
def reader() -> tuple[bert.BertForPretraining, list[str]]:
    """Return the model of support with the weights that the page has, and the chapter's words."""
    found = play_files.committed("bert")
    weights = {
        name.replace("bert.layers", "bert.encoder.layers"): torch.from_numpy(w.copy())
        for name, w in found["weights"].items()
    }
    vocab_size, d_model = weights["bert.tokens.weight"].shape
    depth = sum(name.endswith("qkv.weight") for name in weights)
    length = len(weights["bert.positions.weight"])
    config = bert.BertConfig(
        vocab_size, d_model, depth, found["heads"], 4 * d_model, length, norm_eps=1e-5
    )
    model = bert.BertForPretraining(bert.Bert(config)).eval()
    missing, unknown = model.load_state_dict(weights, strict=False)
    assert not unknown and all("pooler" in n or "next_sentence" in n for n in missing)
    return model, found["vocab"]


@torch.no_grad()
def test_bert_gives_the_logits_of_pytorch(ground, reader):
    model, vocab = reader
    generator = torch.Generator().manual_seed(0)
    for length in (1, 7, model.bert.config.max_length):
        ids = torch.randint(len(vocab), (length,), generator=generator)
        call = "(bert, ids) => bert.logits(ids).map((row) => [...row])"
        found = torch.tensor(ask(ground, "bert", call, ids.tolist()))
        wanted = model.predict_tokens(model.bert(ids[None]))[0]
        assert wanted.std() > 0.5
        torch.testing.assert_close(found, wanted, atol=1e-3, rtol=0)


@pytest.fixture(scope="module")
def small_world() -> toyworld.ToyWorld:
    """Return the language of the chapter, made by the chapter's own cell."""
    cells = read(address.ROOT / "chapters" / "bert.ipynb").cells
    (source,) = (c.source for c in cells if "world = toyworld.ToyWorld(" in c.source)
    names = {"toyworld": toyworld, "print": lambda *_: None}
    exec(source, names)
    return names["world"]


def best_guesses(world: toyworld.ToyWorld, seen: list[str | None]) -> list[dict[str, float]] | None:
    """Return the chances of the words in each gap, from the probabilities of whole sentences."""
    gaps, filled = [k for k, word in enumerate(seen) if word is None], {}
    for pattern in world.patterns.items:
        if len(pattern) != len(seen):
            continue
        for put_in in itertools.product(*(sorted(pattern.words[k]) for k in gaps)):
            tokens = [*seen]
            for k, word in zip(gaps, put_in, strict=True):
                tokens[k] = word
            if world.derivations(sentence := " ".join(tokens)):
                filled[put_in] = math.exp(world.log_prob(sentence))
    if not filled:
        return None
    chances = [{} for _ in gaps]
    for put_in, p in filled.items():
        for own, word in zip(chances, put_in, strict=True):
            own[word] = own.get(word, 0.0) + p / sum(filled.values())
    return chances


def sentences_with_gaps(world: toyworld.ToyWorld, n: int) -> list[list[str | None]]:
    """Return sentences with none, one or two words hidden; in some another word is wrong."""
    rng, vocabulary, found = random.Random(0), world.vocabulary(), []
    for sentence in world.sentences(seed=7, n=n):
        tokens = sentence.split()
        if rng.random() < 0.2:
            tokens[rng.randrange(len(tokens))] = rng.choice(vocabulary)
        for k in rng.sample(range(len(tokens)), rng.choice([0, 1, 1, 2])):
            tokens[k] = None
        found.append(tokens)
    return found


def test_bert_knows_the_best_guesses_of_toyworld(ground, small_world):
    assert play_files.committed("bert")["grammar"] == json.loads(json.dumps(small_world.grammar()))
    asked = sentences_with_gaps(small_world, 120)
    call = """(bert, asked) => asked.map((seen) => {
      const best = bert.posterior(seen);
      return best && best.map((chances) => [...chances]);
    })"""
    impossible = 0
    for seen, found in zip(asked, ask(ground, "bert", call, asked), strict=True):
        wanted = best_guesses(small_world, seen)
        if wanted is None:
            assert found is None, seen
            impossible += 1
            continue
        gaps = [k for k, word in enumerate(seen) if word is None]
        for k, word in enumerate(seen):
            best = wanted[gaps.index(k)] if word is None else {word: 1.0}
            assert dict(found[k]) == pytest.approx(best, abs=1e-9), (seen, k)
    assert 5 < impossible < 60


@torch.no_grad()
def test_bert_computes_the_expected_loss_and_the_lowest(ground, reader, small_world):
    model, vocab = reader
    seen = "the crane in italy is one of the highest on earth .".split()
    for gaps in ([1], [1, 8], [3, 8]):
        asked = [None if k in gaps else word for k, word in enumerate(seen)]
        call = "(bert, seen) => bert.read(seen).map(({ cross, floor }) => [cross, floor])"
        found = ask(ground, "bert", call, asked)
        ids = [vocab.index(word or "[MASK]") for word in ["[CLS]", *asked, "[SEP]"]]
        log_p = model.predict_tokens(model.bert(torch.tensor([ids])))[0, 1:-1].log_softmax(-1)
        for k, best in zip(gaps, best_guesses(small_world, asked), strict=True):
            loss = -sum(q * log_p[k, vocab.index(word)].item() for word, q in best.items())
            assert found[k] == pytest.approx(
                [loss, -sum(q * math.log(q) for q in best.values())], abs=1e-3
            )


def test_bert_draws_sentences_of_its_world(ground, small_world):
    call = """(bert, n) => {
      const uniform = play.random(0);
      return Array.from({ length: n }, () => bert.sentence(uniform));
    }"""
    drawn = ask(ground, "bert", call, 400)
    patterns = []
    for found in drawn:
        ((pattern, _),) = small_world.derivations(" ".join(found["words"]))
        assert pattern.split()[found["at"]].startswith("{"), "the gap is where a word was drawn"
        patterns.append(pattern)
    for pattern, p in zip(small_world.patterns.items, small_world.patterns.probs, strict=True):
        assert patterns.count(pattern.text) / 400 == pytest.approx(p, abs=0.045)


# optimizers


def pytorch_walk(found: dict, name: str, sizes: dict, start: list[float]) -> torch.Tensor:
    """Return the places (steps + 1, 2) that a rule of PyTorch visits in the chapter's valley."""
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


def test_optimizers_visit_the_places_of_pytorch(ground):
    found, rng = play_files.committed("optimizers"), random.Random(0)
    far = 0
    for name, sizes in found["rules"].items():
        asked = [(found["start"], sizes)]
        for _ in range(25):
            other = {key: rng.choice(found["betas"]) for key in sizes if key == "beta"}
            other = {**sizes, **other, "rate": rng.choice(found["rates"])}
            asked.append(([rng.uniform(-3, 4), rng.uniform(-0.4, 2.4)], other))
        for start, own in asked:
            call = "(engine, ...given) => engine.walk(...given)"
            path = ask(ground, "optimizers", call, name, start, found["steps"], own)
            wanted = pytorch_walk(found, name, own, start)
            near = torch.tensor(path, dtype=torch.float64)
            torch.testing.assert_close(near, wanted, atol=1e-3, rtol=1e-3, msg=f"{name} {own}")
            far += bool(wanted.abs().max() > 100)
    assert 5 < far < 50, "some rates are too large"


def test_optimizers_know_the_loss_of_the_valley(ground):
    found = play_files.committed("optimizers")
    curvature, lowest = np.array(found["curvature"]), np.array(found["lowest"])
    places = np.random.default_rng(0).uniform(-3, 3, (20, 2))
    losses = ask(ground, "optimizers", "(engine, all) => all.map(engine.loss)", places.tolist())
    np.testing.assert_allclose(losses, (curvature * (places - lowest) ** 2).sum(1) / 2, atol=1e-6)


def test_numbers_of_the_ground_are_those_of_pytorch(ground):
    generator = torch.Generator().manual_seed(0)
    x, weight = torch.randn(16, generator=generator) * 3, torch.randn(5, 16, generator=generator)
    scale, bias = torch.randn(16, generator=generator), torch.randn(16, generator=generator)
    given = [json.loads(json.dumps(t.tolist())) for t in (x, weight.flatten(), scale, bias)]
    found = ground.evaluate(
        """([x, weight, scale, bias]) => {
          weight.shape = [5, 16];
          const all = [play.linear(weight, x, bias), play.softmax(x),
            play.layerNorm(x, scale, bias), play.geluTanh(x)];
          return all.map((y) => [...y]);
        }""",
        given,
    )
    f = torch.nn.functional
    wanted = [weight @ x + bias[:5], x.softmax(-1), f.layer_norm(x, (16,), scale, bias)]
    wanted.append(f.gelu(x, approximate="tanh"))
    for one, two in zip(found, wanted, strict=True):
        torch.testing.assert_close(torch.tensor(one), two, atol=1e-4, rtol=0)


# jpeg


@pytest.fixture(scope="module")
def chapter() -> dict[str, Any]:
    """Return the functions of the chapter on compression, with the photograph that the page has."""
    names = names_of("chapters/compression.ipynb")
    found = play_files.committed("jpeg")
    names |= {"photo": found["photo"].astype(int), "STANDARD": found["standard"].astype(int)}
    names["C"] = names["dct"](8)
    places = sorted(np.ndindex(8, 8), key=names["zigzag"])
    names["rows"], names["columns"] = np.array(places).T
    names["waves"] = names["C"] @ names["to_blocks"](names["photo"] - 128) @ names["C"].T
    return names


def as_on_page(symbol) -> str:
    """Return a symbol of the chapter as the page writes it: (0, 4) as "0 4"."""
    return symbol if isinstance(symbol, str) else " ".join(map(str, symbol))


@pytest.mark.parametrize("quality", [1, 10, 50, 75, 100])
def test_jpeg_gives_the_bits_and_the_copy_of_the_chapter(ground, chapter, quality):
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
    assert dict(found["word"]) == {as_on_page(symbol): word for symbol, word in words.items()}
    assert found["bits"] == round(rate * chapter["photo"].size)
    assert found["decibels"] == pytest.approx(decibels, abs=1e-3)
    copy = chapter["from_blocks"](chapter["C"].T @ (quantized * steps) @ chapter["C"]) + 128
    assert np.abs(found["copy"] - copy.round().clip(0, 255).ravel()).max() <= 1  # at a half
    differ = np.array(found["own"]).reshape(quantized.shape) != quantized
    assert (np.abs(exact - np.floor(exact) - 0.5)[differ] < 1e-9).all(), "at a half, it may"
    assert differ.mean() < 0.002


def test_jpeg_transforms_any_block_as_numpy_does(ground, chapter):
    blocks = np.random.default_rng(0).uniform(-128, 128, size=(20, 8, 8))
    call = "(jpeg, blocks) => blocks.map((x) => [[...jpeg.forth(x)], [...jpeg.back(x)]])"
    found = np.array(ask(ground, "jpeg", call, blocks.reshape(-1, 64).tolist()))
    C = chapter["C"]
    np.testing.assert_allclose(found[:, 0], (C @ blocks @ C.T).reshape(-1, 64), atol=1e-3)
    np.testing.assert_allclose(found[:, 1], (C.T @ blocks @ C).reshape(-1, 64), atol=1e-3)


def test_jpeg_makes_the_symbols_of_the_chapter(ground, chapter):
    rng = np.random.default_rng(0)
    rows = rng.integers(-300, 300, size=(200, 64)) * (rng.random((200, 64)) < rng.random((200, 1)))
    rows[0], rows[1, 1:] = 0, 0
    call = "(jpeg, rows) => rows.map((row) => jpeg.symbolsOf(row, 7).map((s) => s.slice(0, 2)))"
    for row, found in zip(rows.tolist(), ask(ground, "jpeg", call, rows.tolist()), strict=True):
        wanted = chapter["block_symbols"](row, 7)
        assert found == [[as_on_page(symbol), number] for symbol, number in wanted]
    numbers = [*range(-40, 41), -1023, 1023]
    found = ask(ground, "jpeg", "(jpeg, numbers) => numbers.map(jpeg.toBits)", numbers)
    assert found == [chapter["to_bits"](number) for number in numbers]


# vae


@pytest.fixture(scope="module")
def painter() -> tuple[torch.nn.Module, Any]:
    """Return the chapter's VAE with the weights that the page has, and its price of a cloud."""
    names = names_of("chapters/vae.ipynb")
    weights = play_files.committed("vae")["weights"]
    weights = {name: torch.from_numpy(w.copy()) for name, w in weights.items()}
    hidden = [len(weights["encoder.0.bias"]), len(weights["encoder.2.bias"])]
    model = names["VAE"](2, hidden).eval()
    model.load_state_dict(weights)
    return model, names["kl_to_prior"]


@torch.no_grad()
def test_vae_reads_pictures_as_pytorch_does(ground, painter):
    model, price = painter
    generator = torch.Generator().manual_seed(0)
    pictures = torch.rand(12, 784, generator=generator) * torch.rand(12, 1, generator=generator)
    pictures[:6] = pictures[:6].bernoulli(generator=generator)
    call = "(vae, xs) => xs.map((x) => vae.encode(x)).map((c) => [...c.mu, ...c.sigma, c.cost])"
    found = torch.tensor(ask(ground, "vae", call, pictures.tolist()))
    mu, sigma = model.encode(pictures)
    torch.testing.assert_close(found[:, :2], mu, atol=1e-3, rtol=0)
    torch.testing.assert_close(found[:, 2:4], sigma, atol=1e-3, rtol=0)
    torch.testing.assert_close(found[:, 4], price(mu, sigma).sum(1), atol=1e-3, rtol=1e-4)


@torch.no_grad()
def test_vae_draws_as_pytorch_does_and_asks_the_same_price(ground, painter):
    model, _ = painter
    generator = torch.Generator().manual_seed(0)
    codes = 2 * torch.randn(12, 2, generator=generator)
    x = torch.rand(784, generator=generator).bernoulli(generator=generator)
    call = """(vae, codes, x) => codes.map((z) => {
      const logits = vae.decode(z);
      return [[...logits], [...vae.draw(logits)], vae.price(x, logits)];
    })"""
    found = ask(ground, "vae", call, codes.tolist(), x.tolist())
    wanted = model.decoder(codes)
    logits, drawn, price = (torch.tensor(part) for part in zip(*found, strict=True))
    torch.testing.assert_close(logits, wanted, atol=1e-3, rtol=0)
    torch.testing.assert_close(drawn, wanted.sigmoid(), atol=1e-3, rtol=0)
    cross_entropy = torch.nn.functional.binary_cross_entropy_with_logits
    each = cross_entropy(wanted, x.expand_as(wanted), reduction="none").sum(1)
    torch.testing.assert_close(price, each, atol=1e-3, rtol=1e-5)


@torch.no_grad()
def test_vae_shows_the_clouds_of_the_chapter(ground, painter):
    """Those on the plane were made with the weights before they were rounded."""
    model, _ = painter
    found = play_files.committed("vae")
    call = "(vae) => vae.digits.map(({ label, pixels }) => [label, [...pixels]])"
    labels, pixels = zip(*ask(ground, "vae", call), strict=True)
    assert sorted(labels) == sorted([*range(10)] * 2)
    mu, sigma = model.encode(torch.tensor(pixels).float())
    for k, ours in enumerate((mu, sigma)):
        kept = np.stack(found["clouds"][("mu", "sigma")[k]])
        assert np.abs(ours[0].numpy() - kept[:, 0]).max() < 0.1  # the first test digit


def test_vae_moves_a_drawing_to_the_middle(ground):
    ink = np.zeros((28, 28))
    ink[2:10, 15:26] = 1
    found = ask(ground, "vae", "(vae, ink) => vae.centered(ink)", ink.ravel().tolist())
    found = np.array(found).reshape(28, 28)
    rows, columns = np.nonzero(found)
    assert found.sum() == ink.sum()
    assert abs(rows.mean() - 13.5) <= 0.5 and abs(columns.mean() - 13.5) <= 0.5
