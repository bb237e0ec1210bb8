"""What the explorers compute with: how it is packed, and that it is the committed notebooks'."""

from __future__ import annotations

import hashlib
import re

import numpy as np
import pytest
import torch

from support import play
from tests import play_files

PAGE_BYTES = 400_000  # for all that an explorer adds to a page
CELLS = play_files.cells()
NAMES = play_files.names()


# Packing.


def exported(tmp_path, monkeypatch, capsys, **things):
    """Return what export prints, and what its file holds."""
    monkeypatch.setenv(play.FOLDER, str(tmp_path))
    play.export("x", **things)
    script = (tmp_path / "x.data.js").read_bytes()
    return capsys.readouterr().out, script


def test_export_packs_what_it_is_given(tmp_path, monkeypatch, capsys):
    generator = torch.Generator().manual_seed(0)
    weights = {
        "matrix": torch.randn(5, 7, generator=generator),
        "deep": torch.randn(3, 2, 4, generator=generator),
        "row": torch.randn(9, generator=generator),
        "nothing": torch.zeros(2, 3),
    }
    whole = {"small": [0, 255], "middle": [0, 256], "signed": [-1, 3], "large": [0, 70_000]}
    things = {
        "weights": weights,
        "whole": {name: np.array(values) for name, values in whole.items()},
        "plain": {"words": ["a", "é", "词"], "number": 0.5, "none": None},
    }
    printed, script = exported(tmp_path, monkeypatch, capsys, **things)
    found = play_files.data(script.decode())
    assert found["plain"] == things["plain"]
    for name, values in whole.items():
        assert found["whole"][name].tolist() == values
    kinds = [found["whole"][name].dtype.name for name in whole]
    assert kinds == ["uint8", "uint16", "int32", "int32"]
    for name, tensor in weights.items():
        kept = found["weights"][name]
        assert kept.shape == tuple(tensor.shape)
        np.testing.assert_array_equal(kept, play.rounded(tensor))
        largest = tensor.reshape(len(tensor), -1).abs().amax(-1) / 127
        near = largest.reshape(-1, *[1] * (tensor.dim() - 1)).numpy() * 0.6 + 1e-3
        assert (np.abs(kept - tensor.numpy()) <= near).all()
    size, digest = len(script) / 1000, hashlib.sha256(script).hexdigest()[:8]
    assert printed == f"x: 82 numbers, {size:,.0f} KB, sha256 {digest}\n"


def test_fewer_levels_make_a_smaller_file(tmp_path, monkeypatch, capsys):
    weights = torch.randn(50, 50, generator=torch.Generator().manual_seed(0))
    sizes = [
        len(exported(tmp_path, monkeypatch, capsys, weights=weights, levels=levels)[1])
        for levels in (127, 31, 7)
    ]
    assert sizes == sorted(sizes, reverse=True) and sizes[2] < 0.7 * sizes[0]
    kept = play.rounded(weights[:1], 7)
    assert len(np.unique(kept)) <= 15
    assert np.abs(kept - weights[:1].numpy()).max() < 0.6 / 7 * float(weights[:1].abs().max())


@pytest.mark.parametrize(
    ("thing", "message"),
    [
        (float("nan"), "not JSON compliant"),
        (np.array([0, 2**31]), "32 bits, got some from 0 to 2147483648"),
        (np.array([1e5]), "range of float16"),
        (np.array([np.nan, 1.0]), "range of float16"),
        (np.array([[1e8, 1.0]]), "range of float16"),
        (np.array([[1.0, 0.5], [1e-7, 0.0]]), "rows of zeros or with larger numbers"),
    ],
)
def test_what_would_not_arrive_is_refused(thing, message):
    with pytest.raises(ValueError, match=message):
        play.export("x", thing=thing)
    for levels in (0, 128):  # of a byte
        with pytest.raises(ValueError, match="levels"):
            play.rounded(torch.ones(2, 2), levels)


# The files are those of the notebooks as they are committed.


@pytest.mark.parametrize(("path", "name", "cell"), CELLS, ids=[name for _, name, _ in CELLS])
def test_file_is_the_one_of_the_committed_run(path, name, cell):
    said = "".join(output.get("text", "") for output in cell.outputs)
    digest = re.search(rf"^{name}: [\d,]+ numbers, [\d,]+ KB, sha256 (\w+)$", said, re.M)
    assert digest, f"{path.name} does not export {name}, or has not run"
    script = (play_files.FOLDER / f"{name}.data.js").read_bytes()
    again = f"run `make run NB=chapters/{path.name} PROFILE=laptop` and commit both files"
    assert hashlib.sha256(script).hexdigest()[:8] == digest[1], again
    assert any("image/png" in output.get("data", {}) for output in cell.outputs), "no figure"


def test_every_explorer_has_a_notebook_and_every_file_an_explorer():
    assert sorted(name for _, name, _ in CELLS) == NAMES
    files = {"play.js", "play.css"} | {f"{n}{end}" for n in NAMES for end in (".js", ".data.js")}
    looks = {f"{name}.css" for name in NAMES}  # where it is not in play.css
    assert {path.name for path in play_files.FOLDER.iterdir()} - looks == files


@pytest.mark.parametrize("name", NAMES)
def test_explorer_is_small_and_its_words_stand_in_one_table(name):
    ground = [play_files.FOLDER / file for file in ("play.js", "play.css")]
    own = [play_files.FOLDER / f"{name}{end}" for end in (".js", ".data.js")]
    own += play_files.FOLDER.glob(f"{name}.css")
    assert sum(path.stat().st_size for path in ground + own) < PAGE_BYTES
    script = own[0].read_text(encoding="utf-8")
    assert re.search(r"^  const words = \{\n    en: \{$", script, re.M)
    addresses = script.replace("http://www.w3.org/2000/svg", "")  # a name, not an address
    assert not re.search(r"\bimport\b|\bfetch\(|https?://|\bexport\b", addresses)
