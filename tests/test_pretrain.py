"""The command that trains a model from a text of one's own, in one process, two, and killed."""

import gzip
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
import torch.distributed.fsdp
import transformers

from support import pretrain
from support.data import datasets, tokens, toyworld
from support.models import pretrained

needs_real = pytest.mark.skipif(
    "PRETRAIN_DATA_DIR" not in os.environ, reason="PRETRAIN_DATA_DIR is not set"
)
DIVIDED = ["--fsdp"] if hasattr(torch.distributed.fsdp, "fully_shard") else []  # from 2.6 on
SIZES = "--vocab 400 --layers 2 --width 16 --heads 2 --context 16 --batch 8 --save-every 3".split()


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """A file of 120 KB."""
    path = tmp_path_factory.mktemp("text") / "toy.txt"
    path.write_text(toyworld.text(n=3_000), "utf-8")
    return path


def command(text, out, *more, steps=9):
    given = ["--text", str(text), "--out", str(out), "--steps", str(steps), "--micro-batch", "4"]
    return [*given, *SIZES, *more]


def train(text, out, *more, steps=9):
    return pretrain.run(pretrain.read_options(command(text, out, *more, steps=steps)))


def started(n, arguments):
    """Start the command in n processes, which can be killed together."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    program = [*launcher, "--nproc-per-node", str(n)] if n > 1 else [sys.executable]
    return subprocess.Popen(
        [*program, "-m", "support.pretrain", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PRETRAIN_PROFILE": "smoke"},
    )  # fmt: skip


def launched(n, arguments):
    """Run the command in n processes; return what it wrote."""
    run = started(n, arguments)
    written, _ = run.communicate(timeout=240)
    assert run.returncode == 0, written
    return written


def curve(out):
    return json.loads((out / "run/curve.json").read_text())


@pytest.fixture(scope="module")
def alone(text, tmp_path_factory):
    out = tmp_path_factory.mktemp("alone")
    train(text, out)
    return out


def test_the_library_loads_the_model_and_its_tokenizer(alone):
    theirs = transformers.AutoModelForCausalLM.from_pretrained(alone).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(alone)
    ids = torch.tensor([tokenizer("the capital of france is paris .")["input_ids"]])
    ours = pretrained.load_gpt(alone)
    with torch.no_grad():
        torch.testing.assert_close(theirs(ids).logits, ours(ids), atol=1e-4, rtol=1e-4)
    assert tokenizer.decode(ids[0]) == "the capital of france is paris ."
    assert (alone / "curve.png").stat().st_size > 1_000 and "Validation" in (
        alone / "README.md"
    ).read_text()


def test_a_bert_is_loaded_by_the_library(text, tmp_path):
    train(text, tmp_path, "--model", "bert")
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path).eval()
    ours = pretrained.load_bert(tmp_path, pretrain.BertForPretraining).eval()
    ids = torch.tensor([[2, 40, 50, 4, 60, 3]])
    with torch.no_grad():
        expected = ours.predict_tokens(ours.bert(ids))
        torch.testing.assert_close(theirs(ids).logits, expected, atol=1e-4, rtol=1e-4)


def test_training_lowers_the_loss(text, tmp_path):
    train(text, tmp_path, "--lr", "0.01", steps=60)
    points = curve(tmp_path)
    assert points["60"]["valid"] < points["3"]["valid"] - 0.8
    assert points["3"]["valid"] == pytest.approx(np.log(400), abs=0.5)


def assert_alike(out, expected):
    """Check that a run ended as another one, but for rounding."""
    found, wanted = curve(out), curve(expected)
    assert list(found) == list(wanted)
    for step in wanted:
        assert found[step] == pytest.approx(wanted[step], abs=1e-4)


@needs_real
@pytest.mark.exhaustive
def test_the_command_learns_tiny_shakespeare(tmp_path, tally):
    """Without any option, in minutes, to the loss that the chapter states."""
    text = tmp_path / "text.txt"
    text.write_text(datasets.shakespeare(source="real").text, "utf-8")
    start = time.monotonic()
    found = pretrain.run(pretrain.read_options(["--text", str(text), "--out", str(tmp_path / "m")]))
    minutes = (time.monotonic() - start) / 60
    tally(f"Tiny Shakespeare: {found['valid']:.3f} nats a token after {minutes:.1f} minutes")
    assert found["valid"] < 4.2


@pytest.mark.parametrize("more", [["--recompute"], ["--micro-batch", "8"]])
def test_what_saves_memory_changes_nothing(text, alone, tmp_path, more):
    train(text, tmp_path, *more)
    assert_alike(tmp_path, alone)


def test_a_bert_hides_the_same_tokens_whatever_is_taken_at_once(text, tmp_path):
    vocabulary = tokens.train_tokenizer(
        tokens.read_texts([text]), 400, pretrain.BertTask.specials, bert=True
    )
    vocabulary.save(str(tmp_path / "tokenizer.json"))
    for out, size in ((tmp_path / "a", "4"), (tmp_path / "b", "8")):
        given = ["--model", "bert", "--tokenizer", str(tmp_path / "tokenizer.json")]
        train(text, out, *given, "--micro-batch", size)
    assert_alike(tmp_path / "a", tmp_path / "b")


def test_two_processes_do_what_one_does(text, alone, tmp_path):
    launched(2, command(text, tmp_path))
    assert_alike(tmp_path, alone)


def killed(n, arguments, out, checkpoints):
    """Run the command in n processes and kill them at a moment after so many checkpoints."""
    run = started(n, arguments)
    folder, end = out / "run/checkpoints", time.monotonic() + 240
    while time.monotonic() < end and newest(folder) < checkpoints:
        assert run.poll() is None, run.communicate()[0]
        time.sleep(0.01)
    time.sleep(random.uniform(0, 0.1))
    os.killpg(run.pid, signal.SIGKILL)
    return run.communicate()[0]


def newest(folder):
    """Return the number of the newest checkpoint in a folder, 0 if there is none."""
    return max((int(path.stem[6:]) for path in folder.glob("epoch-*.safetensors")), default=0)


def test_killed_runs_go_on(text, tmp_path):
    """Killed in one process, killed in two that divide the weights, ended in one; and in one only.

    The first ends as a run left alone but for rounding, the second bit for bit.
    """
    whole, mixed, same = tmp_path / "whole", tmp_path / "mixed", tmp_path / "same"
    train(text, whole, steps=60)
    killed(1, command(text, mixed, steps=60), mixed, 2)
    shutil.copytree(mixed, same)
    for out, way in ((mixed, 2), (same, 1)):
        begun = newest(out / "run/checkpoints")
        more = DIVIDED if way == 2 else []
        written = killed(way, command(text, out, *more, steps=60), out, begun + 2)
        assert f"step {3 * (begun + 1)} of" in written, "nothing but the steps since was lost"
        train(text, out, steps=60)
    assert_alike(mixed, whole)
    ends = [(out / "model.safetensors").read_bytes() for out in (same, whole)]
    assert ends[0] == ends[1]


def test_the_plan_trains_nothing(text, tmp_path, capsys):
    plan = train(text, tmp_path, "--plan", "--card", "h100", "--devices", "2")
    shown = capsys.readouterr().out
    assert "2 x h100" in shown and "Chinchilla" in shown
    config = pretrain.gpt.GPTConfig(400, 16, 2, 2, max_length=16)
    assert plan.parameters == sum(p.numel() for p in pretrain.gpt.GPT(config).parameters())
    assert plan.tokens == 9 * 8 * 16 and plan.state_bytes == 16 * plan.parameters
    assert not (tmp_path / "model.safetensors").exists()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "no text"),
        (b"ab\0\1\2", "zero byte"),
        ("né".encode("latin-1") * 100, "no UTF-8 text"),
        (b"too short", "longer text"),
        (gzip.compress(b"a text\n" * 9_000)[:-20], "damaged"),
        (b"\x1f\x8bno gzip" * 9, "bad.txt.gz is damaged"),
        (b'{"text": "a"}\n{"te', "bad.jsonl is damaged"),
        (b"a few words . " * 20, "left for validation"),
    ],
)
def test_a_text_that_cannot_be_used_is_refused(tmp_path, content, reason):
    kinds = {b"\x1f\x8b": "bad.txt.gz", b'{"': "bad.jsonl"}
    bad = tmp_path / kinds.get(content[:2], "bad.txt")
    bad.write_bytes(content)
    with pytest.raises(SystemExit, match=reason):
        pretrain.main(command(bad, tmp_path / "out"))
    assert not list((tmp_path / "out").rglob("*.bin.*")), "nothing half-written is left"


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (["--text", "nowhere.txt"], "no file"),
        (["--tokenizer", "nowhere.json"], "no file"),
        (["--vocab", "100"], "257"),
        (["--width", "15"], "heads"),
    ],
)
def test_what_cannot_be_meant_is_refused(text, tmp_path, more, reason):
    with pytest.raises(SystemExit, match=reason):
        pretrain.main(command(text, tmp_path, *more))


@pytest.mark.parametrize("more", [["--width", "32"], ["--save-every", "4"], ["--lr", "1"]])
def test_a_run_goes_on_with_its_own_options_only(text, alone, more):
    with pytest.raises(SystemExit, match=f"holds a run with {more[0]}"):
        pretrain.main(command(text, alone, *more))


MEANINGLESS = (
    "--batch 9, --steps 0, --valid 1, --micro-batch 0, --micro-batch -4, --devices 0, --lr -1, "
    "--lr nan, --warmup -1, --weight-decay -1, --context 1, --seed -1, --unknown 1, --layers two"
)


@pytest.mark.parametrize("more", MEANINGLESS.split(", "))
def test_options_that_cannot_be_meant_are_refused(text, tmp_path, capsys, more):
    with pytest.raises(SystemExit):
        pretrain.main(command(text, tmp_path, *more.split()))
    assert more.split()[0] in capsys.readouterr().err.splitlines()[-1]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kept", [b"", b'{"model": '])
@pytest.mark.parametrize("name", ["options", "curve", "tokens", "tokenizer-gpt-400"])
def test_a_damaged_file_of_a_run_is_named_and_can_be_removed(text, alone, tmp_path, name, kept):
    out = shutil.copytree(alone, tmp_path / "out")
    damaged = out / f"run/{name}.json"
    damaged.write_bytes(kept)
    with pytest.raises(SystemExit, match=rf"{name}.json is (damaged|no tokenizer).* remove it"):
        pretrain.main(command(text, out))
    damaged.unlink()
    assert train(text, out)["valid"] == pytest.approx(curve(alone)["9"]["valid"], abs=1e-4)


def test_tokens_that_are_cut_short_are_made_again(text, alone, tmp_path):
    out = shutil.copytree(alone, tmp_path / "out")
    whole = (out / "run/tokens.bin").read_bytes()
    for part in (b"", whole[:-7], whole[: len(whole) // 4 * 2]):
        (out / "run/tokens.bin").write_bytes(part)
        train(text, out)
        assert (out / "run/tokens.bin").read_bytes() == whole


def test_checkpoints_that_are_cut_short_are_passed_over(text, alone, tmp_path):
    out = shutil.copytree(alone, tmp_path / "out")
    older, newer = sorted((out / "run/checkpoints").glob("*.safetensors"))
    newer.write_bytes(newer.read_bytes()[:500])
    with pytest.warns(UserWarning, match="damaged.*passed over"):
        train(text, out)
    assert_alike(out, alone)
    for path in (older, newer):
        (out / "run/checkpoints" / path.name).write_bytes(b"")
    with pytest.warns(UserWarning), pytest.raises(SystemExit, match="remove them to start anew"):
        pretrain.main(command(text, out))


def test_a_folder_that_cannot_be_written_and_an_interrupt_are_said_in_a_line(
    text, tmp_path, monkeypatch
):
    with pytest.raises(SystemExit, match=r"support.pretrain: .*toy.txt.*mend this"):
        pretrain.main(command(text, text / "below"))

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(pretrain.training, "fit", interrupt)
    with pytest.raises(SystemExit, match="stopped; the same command goes on"):
        pretrain.main(command(text, tmp_path))


def test_a_card_without_bfloat16_is_planned_in_float16(text, tmp_path):
    for card, precision in (("t4", "fp16"), ("v100", "fp16"), ("a100", "bf16")):
        more = command(text, tmp_path, "--plan", "--card", card)
        assert pretrain.read_options(more).precision == precision


def test_a_folder_of_another_text_is_refused(text, alone, tmp_path):
    other = tmp_path / "other.txt"
    other.write_text(text.read_text()[:50_000])
    with pytest.raises(SystemExit, match="another text"):
        pretrain.main(command(other, alone))


def test_a_full_disk_loses_nothing(text, tmp_path, monkeypatch):
    tokenizer = tokens.train_tokenizer(tokens.read_texts([text]), 300)
    usage = os.statvfs(tmp_path)
    monkeypatch.setattr(tokens.shutil, "disk_usage", lambda _: type("", (), {"free": 10}))
    with pytest.raises(OSError, match="room for 10 bytes"):
        tokens.make_tokens([text], tokenizer, tmp_path / "work")
    assert usage and not list((tmp_path / "work").iterdir())


def test_packed_texts_and_json_lines_are_the_same_text(text, tmp_path):
    zstd = pytest.importorskip("zstandard")
    lines = text.read_text().splitlines(keepends=True)
    packed, more = tmp_path / "a.txt.gz", tmp_path / "b.txt.zst"
    packed.write_bytes(gzip.compress(text.read_bytes()))
    more.write_bytes(zstd.compress(text.read_bytes()))
    for path in (text, packed, more):
        pieces = list(tokens.read_texts([path]))
        assert "".join(pieces[:-1]) == "".join(lines) and pieces[-1] is None
    records = tmp_path / "c.jsonl"
    records.write_text("\n".join(json.dumps({"text": line, "n": 1}) for line in lines[:50]))
    pieces = list(tokens.read_texts([records]))
    assert pieces[::2] == lines[:50] and pieces[1::2] == [None] * 50
    with pytest.raises(ValueError, match="no field 'body'"):
        list(tokens.read_texts([records], "body"))


def test_windows_cover_the_text_once_in_a_pass():
    windows = tokens.Windows(np.arange(1_000, dtype=np.uint16), 16, seed=3)
    starts = windows.starts(0, windows.n)
    assert len(set(starts)) == windows.n and all(np.diff(sorted(starts)) == 16)
    assert starts == windows.starts(0, 5) + windows.starts(5, windows.n - 5)
    second = windows.starts(windows.n, windows.n)
    assert sorted(second) != sorted(starts) and second != starts
    assert windows.at([7, 9]).tolist() == [list(range(7, 24)), list(range(9, 26))]
    assert windows.at([starts[0]]).dtype == np.int64 and max(second) + 17 <= 1_000
