"""Files that are not what they say: read correctly, or a ValueError with the file's name."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.models import pretrained
from support.models.gpt import GPT, GPTConfig
from support.text.wordpiece import SPECIALS, WordPieceTokenizer
from support.vectors.word_vectors import WordVectors

# What a file of each kind could hold in the wrong place.
ALIEN = [b"", b"\0", b"\n", b" ", b"nan", b"1e999", b"-1", b"99999999999", b"\xff", b"\xed\xa0\x80"]
ALIEN += [b"[", b"{}", b'"', b"##", *"\ufeff \u2028 é שלום".encode().split()]


def vectors(path):
    found = WordVectors.load(path)
    assert np.isfinite(np.asarray(found.matrix)).all() and len(set(found.words)) == len(found) > 0


def vocabulary(path):
    tokenizer = WordPieceTokenizer.from_folder(path.parent)
    assert all(0 <= i < len(tokenizer) for i in tokenizer.encode("playing chess, naïve").ids)


def gpt(path):
    assert isinstance(pretrained.load_gpt(path.parent), GPT)


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """Return a folder with a good file for each reader."""
    folder = tmp_path_factory.mktemp("good")
    (folder / "vectors.txt").write_bytes("2 3\nnaïve 1 2 3\n. . . 0.5 -1 2e-3\n".encode())
    pieces = [*SPECIALS, "play", "##ing", "chess", ",", "naive"]
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n")
    torch.manual_seed(0)
    model = GPT(GPTConfig(vocab_size=5, d_model=4, n_layers=1, n_heads=2, max_length=4))
    pretrained.save(model, folder)
    return folder


READERS = {
    "vectors.txt": vectors,
    "vocab.txt": vocabulary,
    "model.safetensors": gpt,
}


@pytest.mark.parametrize("name", READERS)
def test_a_broken_file_is_read_or_refused_by_name(good, name):
    whole, seen = (good / name).read_bytes(), {"read": 0, "refused": 0}

    @settings(
        max_examples=150,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def broken(data):
        at = data.draw(st.integers(0, len(whole)))
        end = data.draw(st.sampled_from([at, at + 1, at + 9, len(whole)]))
        (good / name).write_bytes(whole[:at] + data.draw(st.sampled_from(ALIEN)) + whole[end:])
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                READERS[name](good / name)
            seen["read"] += 1
        except ValueError as error:
            assert type(error) is ValueError, "one from inside a decoder says nothing to a reader"
            assert str(good) in str(error)
            seen["refused"] += 1

    try:
        READERS[name](good / name)
        broken()
    finally:
        (good / name).write_bytes(whole)
    assert min(seen.values()) > 5, "neither are all nonsense, nor all whole"
