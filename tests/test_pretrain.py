"""The command that pre-trains on a text of one's own: texts, tokenizers, runs, exports, plans."""

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from argparse import Namespace
from pathlib import Path

import datasets
import numpy as np
import pytest
import torch
import transformers
from filelock import FileLock

from pretrain import plan, tokens, train
from pretrain.__main__ import main, read_options
from support.data import toyworld
from support.models import pretrained
from support.models.bert import BertForPretraining

SIZES = (
    "--layers 2 --width 16 --heads 2 --context 16 --batch 8 --vocab 400 --save-every 3 --lr 0.01"
)


@pytest.fixture(autouse=True)
def smoke(monkeypatch):
    monkeypatch.setenv("PRETRAIN_PROFILE", "smoke")


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """A file of 60 KB."""
    path = tmp_path_factory.mktemp("text") / "toy.txt"
    path.write_text(toyworld.text(n=1_500), "utf-8")
    return path


def command(text, out, *more, steps=9):
    given = ["--text", str(text), "--out", str(out), "--steps", str(steps)]
    return [*given, *SIZES.split(), *more]


def run(text, out, *more, steps=9):
    return train.run(read_options(command(text, out, *more, steps=steps)))


def log(out):
    """Return the entries of Trainer's log, of the newest checkpoint."""
    newest = train.newest_checkpoint(out / "run/checkpoints")
    return json.loads(Path(newest, "trainer_state.json").read_text())["log_history"]


def losses(out):
    """Return the losses of training and of validation by step."""
    names = ("loss", "eval_loss")
    return {(e["step"], name): e[name] for e in log(out) for name in names if name in e}


def assert_same_losses(out, expected, atol=1e-4):
    assert losses(out) == pytest.approx(losses(expected), abs=atol, rel=0)


@pytest.fixture(scope="module")
def alone(text, tmp_path_factory):
    """A GPT that one process has trained without a break."""
    out = tmp_path_factory.mktemp("alone") / "m"
    os.environ["PRETRAIN_PROFILE"] = "smoke"
    run(text, out)
    return out


@pytest.fixture(scope="module")
def bert(text, tmp_path_factory):
    out = tmp_path_factory.mktemp("bert") / "m"
    os.environ["PRETRAIN_PROFILE"] = "smoke"
    run(text, out, "--model", "bert", steps=6)
    return out


# ------------------------------------------------------------------------------------ texts
def read(*paths, field="text"):
    return "".join(piece or "" for piece in tokens.read_texts(paths, field))


@pytest.mark.parametrize(
    "name",
    ["book [2020].txt", "what?.txt", "wh*.txt", "part::one.txt", "notes [1].jsonl", "a b/x.TXT",
     "my [texts]/a.txt", "UPPER.JSONL", "no_suffix", "a.txt.gz", "b.jsonl.GZ"],
)  # fmt: skip
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "byte order mark"])
def test_names_are_literal_and_every_form_gives_the_text(tmp_path, name, mark):
    (tmp_path / "whatX.txt").write_text("another text\n")
    (tmp_path / "book2.txt").write_text("another text\n")
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    data = b'{"text": "mine \\u00e9\\n", "date": 1}\n' if "json" in name.lower() else "mine é\r\n"
    data = mark + (data.encode() if isinstance(data, str) else data)
    path.write_bytes(gzip.compress(data) if name.lower().endswith("gz") else data)
    assert read(path) == "mine é\n"
    assert list(tokens.read_texts([path]))[-1] is None


@pytest.mark.parametrize("value", ["2020-01-01", "2020-01-01T10:00:00Z", "1e5", "null", "\ud800x"])
def test_what_looks_like_a_date_or_a_number_stays_a_text(tmp_path, value):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"text": value}) + "\n\n" + json.dumps({"text": "b"}))
    found = list(tokens.read_texts([path]))
    assert found == [value.replace("\ud800", "\ufffd"), None, "b", None]


@pytest.mark.parametrize("unit", ["abcdefg", "kana これは", "天地玄黄。", "a \n\n  b", "x\n"])
def test_a_text_of_any_form_goes_through_in_pieces_with_the_tokens_of_the_whole(tmp_path, unit):
    text = "".join(f"{unit}{i % 7}" for i in range(40_000))
    (tmp_path / "a.txt").write_text(text, "utf-8")
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": text}))
    tokenizer = tokens.train_tokenizer([text[:9_000]], 300)
    whole = tokenizer.encode(text).ids
    for name in ("a.txt", "a.jsonl"):
        pieces = [*tokens.read_texts([tmp_path / name])][:-1]
        assert max(map(len, pieces)) <= tokens.PIECE and "".join(pieces) == text
        ids = tokens.encode(pieces, tokenizer, [])
        if " " in unit or "\n" in unit:
            assert ids == whole
    assert tokenizer.decode(ids) == text


BAD_TEXTS = [
    ("a.txt", b"", "the text has 1 tokens"),
    ("a.jsonl", b"", "the text has 0 tokens"),
    ("a.txt", b"ab\0\1\2", "a.txt cannot be read: .*zero byte"),
    ("a.txt", "né".encode("latin-1") * 100, "a.txt cannot be read: .*utf-8"),
    ("a.txt", "text".encode("utf-16"), "a.txt cannot be read: .*utf-8"),
    ("a.txt", b"too short", "longer text"),
    ("a.txt", b"a few words . ", "shorter --context, must give 34"),
    ("a.txt.gz", gzip.compress(b"a text\n" * 9_000)[:-20], "a.txt.gz cannot be read"),
    ("a.txt.gz", gzip.compress(b"a text\n" * 9_000)[:-4], "a.txt.gz cannot be read"),
    ("a.txt.gz", b"\x1f\x8bno gzip" * 9, "a.txt.gz cannot be read"),
    ("a.jsonl", b'{"text": "a"}\n{"te', "line 2 is not JSON"),
    ("a.jsonl", b'{"text": "a"}\n{"body": "a"}', "line 2 has no text in field 'text'.*body"),
    ("a.jsonl", b'{"text": null}', "line 1 has no text"),
    ("a.jsonl", b'["a"]', "line 1 has no text"),
    ("missing.txt", None, "no file .*missing.txt"),
]


@pytest.mark.parametrize(("name", "content", "reason"), BAD_TEXTS)
def test_a_text_that_cannot_be_used_is_refused(tmp_path, name, content, reason):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(SystemExit, match=f"(?s)^pretrain: .*{reason}"):
        main(command(tmp_path / name, tmp_path / "out"))
    assert not list((tmp_path / "out").rglob("*.arrow")), "nothing half-written is left"


def ids_of(rows):
    """Return the token ids of all windows of a run."""
    return np.concatenate(rows[:]["ids"]).tolist()


def test_windows_are_the_text_and_are_made_again_for_another_one(text, tmp_path, monkeypatch):
    monkeypatch.setattr(tokens, "GROUP", 2)
    tokenizer = tokens.train_tokenizer(tokens.read_texts([text]), 300)
    documents = tmp_path / "texts.jsonl"
    documents.write_text("".join(json.dumps({"text": t}) + "\n" for t in ("abc", "d e", "fg hi")))

    def make(length):
        given = [documents], "text", tokenizer, 0, length, tmp_path / "tokens"
        return ids_of(tokens.make_windows(*given))

    whole = [i for t in ("abc", "d e", "fg hi") for i in (*tokenizer.encode(t).ids, 0)]
    assert make(3) == whole[: len(whole) // 3 * 3] and make(4) == whole[: len(whole) // 4 * 4]
    files = sorted((tmp_path / "tokens").rglob("*.arrow"))
    assert make(3) == whole[: len(whole) // 3 * 3]
    assert sorted((tmp_path / "tokens").rglob("*.arrow")) == files, "not made twice"
    documents.write_text(documents.read_text().replace("abc", "xyz"))
    assert tokenizer.decode(make(3)[:3]) == "xyz"


# ------------------------------------------------------------------------------- tokenizers
@pytest.mark.parametrize("model", ["gpt", "bert"])
def test_vocab_is_what_the_vocabulary_has_and_no_character_is_lost(model):
    many = "".join(map(chr, range(0x4E00, 0x4E00 + 4_000)))
    lines = ["น้ำ นา มี ม", "की कु में म", "かぎ かき パン", "йод иод", "má mà ma Ma", "a\u200bb",
             "https://example.org/" + "x" * 300, "แมวนอนบนเสื่อ" * 40, many]  # fmt: skip
    tokenizer = tokens.train_tokenizer(lines * 3, 700, model)
    assert tokenizer.get_vocab_size() == tokens.n_ids(tokenizer) == 700
    for line in [*lines, "🧪 ⵣ never seen"]:
        found = tokenizer.encode(line, add_special_tokens=False)
        assert tokenizer.decode(found.ids, skip_special_tokens=False) == line
        assert "[UNK]" not in found.tokens
    with pytest.raises(ValueError, match="at least 2"):
        tokens.train_tokenizer(lines, 200, model)


def saved(tmp_path, change, model="gpt"):
    """Return the file of a learned tokenizer, changed as the given function says."""
    content = json.loads(tokens.train_tokenizer([toyworld.text(n=300)], 400, model).to_str())
    change(content)
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(content))
    return path


def shortened(content):
    fixed = {"direction": "Right", "max_length": 16, "strategy": "LongestFirst", "stride": 0}
    content["truncation"] = fixed
    padding = {"strategy": {"Fixed": 128}, "direction": "Right", "pad_to_multiple_of": None}
    content["padding"] = padding | {"pad_id": 0, "pad_type_id": 0, "pad_token": "<|endoftext|>"}
    content["model"]["dropout"] = 0.5
    content["post_processor"] = {
        "type": "BertProcessing", "sep": ["<|endoftext|>", 0], "cls": ["<|endoftext|>", 0]
    }  # fmt: skip


def test_a_given_tokenizer_loses_nothing_of_the_text(text, tmp_path):
    before = tokens.read_tokenizer(saved(tmp_path, lambda content: None))
    after = tokens.read_tokenizer(saved(tmp_path, shortened))
    expected = tokens.encode([text.read_text()], before, [0])
    assert tokens.encode([text.read_text()], after, [0]) == expected and len(expected) > 9_000


@pytest.mark.parametrize("gap", [50, 70_000])
def test_ids_may_have_gaps(text, tmp_path, gap):
    def spread(content):
        vocabulary = content["model"]["vocab"]
        vocabulary.update({token: i + gap for token, i in vocabulary.items() if i >= 300})

    path = saved(tmp_path, spread)
    run(text, tmp_path / "m", "--tokenizer", str(path), steps=1)
    config = json.loads((tmp_path / "m/config.json").read_text())
    assert config["vocab_size"] == 400 + gap
    tokenizer = tokens.read_tokenizer(path)
    ids = ids_of(tokens.make_windows([text], "text", tokenizer, 0, 17, tmp_path / "tokens"))
    assert max(ids) >= 300 + gap and text.read_text().startswith(tokenizer.decode(ids))


def renamed(content, new="</s>"):
    content["added_tokens"][0]["content"] = new
    content["model"]["vocab"][new] = content["model"]["vocab"].pop("<|endoftext|>")


def test_an_end_token_of_another_name_is_used(tmp_path):
    tokenizer = tokens.read_tokenizer(saved(tmp_path, renamed))
    assert tokens.end_id(tokenizer, "gpt") == 0 and tokens.n_ids(tokenizer) == 400


def dropping(content):
    content["pre_tokenizer"] = {"type": "Whitespace"}


BAD_TOKENIZERS = [
    (lambda content: renamed(content, "the end"), "gpt", "no end token"),
    (dropping, "gpt", "drops unknown characters"),
    (lambda content: content.pop("model"), "gpt", "is no tokenizer"),
    (lambda content: None, "bert", r"no end token, such as \[SEP\]"),
]


@pytest.mark.parametrize(("change", "model", "reason"), BAD_TOKENIZERS)
def test_a_tokenizer_that_cannot_be_used_is_refused(tmp_path, change, model, reason):
    with pytest.raises(ValueError, match=reason):
        tokens.read_tokenizer(saved(tmp_path, change), model)


# ------------------------------------------------------------------------------- examples
def rows(values, length):
    """Return windows as make_windows does."""
    windows = np.asarray(values)[: len(values) // length * length].reshape(-1, length)
    return datasets.Dataset.from_dict({"ids": windows}).with_format("numpy")


def test_windows_come_once_a_pass_in_an_order_of_seed_and_pass():
    windows = train.Windows(rows(np.arange(170), 17), 3, 40, None)
    examples = [windows[i] for i in range(40)]
    for example in examples:
        ids, labels = example["input_ids"], example["labels"]
        assert (np.diff(ids) == 1).all() and (labels == ids + 1).all() and len(ids) == 16
        assert ids.dtype == np.int64
    starts = [int(example["input_ids"][0]) for example in examples]
    passes = [starts[i : i + 10] for i in range(0, 40, 10)]
    assert all(sorted(one) == list(range(0, 170, 17)) for one in passes) and passes[0] != passes[1]
    assert windows[7]["input_ids"][0] == starts[7], "it follows from its number, not from history"
    other = train.Windows(rows(np.arange(170), 17), 4, 40, None)
    assert [int(other[i]["input_ids"][0]) for i in range(40)] != starts


def test_masked_windows_hide_words_only():
    tokenizer = tokens.train_tokenizer([toyworld.text(n=100)], 300, "bert")
    end, word = tokenizer.token_to_id("[SEP]"), 200
    windows = train.Windows(rows([word, word, end] * 190, 19), 0, 200, tokenizer)
    hidden = changed = 0
    for i in range(200):
        ids, labels = windows[i]["input_ids"], windows[i]["labels"]
        assert ids[0] == 2 and ids[-1] == 3 and (labels[[0, -1]] == -100).all()
        chosen = labels != -100
        hidden += chosen.sum()
        changed += (ids[chosen] == 4).sum()
        assert (labels[chosen] == word).all() and (ids[chosen] >= 4).all(), "no special token drawn"
        assert ((ids == word) | (ids == end) | chosen)[1:-1].all()
    assert hidden == pytest.approx(0.15 * 200 * 16 * 2 / 3, rel=0.3)
    assert changed == pytest.approx(0.8 * hidden, rel=0.1)
    nothing = train.Windows(rows(np.full(99, end), 9), 0, 1, tokenizer)[0]
    assert (nothing["labels"] == -100).all()


@pytest.mark.parametrize("model", ["gpt", "bert"])
def test_the_loss_does_not_depend_on_how_a_step_is_divided(model):
    torch.manual_seed(0)
    options = read_options(command("-", "-", "--model", model))
    module = train.WithLoss(plan.new_model(plan.new_config(options, 50)))
    for weight in module.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    ids, labels = torch.randint(50, (2, 4, 16))
    labels[0, 3:] = labels[2] = -100  # windows with few targets, and with none
    whole = module(ids, labels)["loss"]
    n = (labels != -100).sum()
    parts = [module(ids[[i]], labels[[i]], num_items_in_batch=n)["loss"] for i in range(4)]
    torch.testing.assert_close(sum(parts), whole)
    assert module(ids[2:3], labels[2:3])["loss"] == 0, "nothing to predict is not a NaN"


# ------------------------------------------------------------------------------------ runs
def test_training_lowers_the_loss(alone):
    found = losses(alone)
    assert found[9, "eval_loss"] < found[3, "eval_loss"] - 0.05
    assert found[3, "eval_loss"] == pytest.approx(np.log(400), abs=0.5)


@pytest.mark.parametrize(("warmup", "second"), [("0", 0.009986), ("4", 0.0025), (None, 0.005)])
def test_the_learning_rate_is_that_of_the_options(text, tmp_path, warmup, second):
    """By default a twentieth of the steps, two of 40, are the warm-up; the end is a tenth."""
    more = ["--save-every", "1", *(["--warmup", warmup] if warmup else [])]
    run(text, tmp_path / "m", *more, steps=40)
    rates = [entry["learning_rate"] for entry in log(tmp_path / "m") if "loss" in entry]
    assert rates[0] == (0.01 if warmup == "0" else 0) and max(rates) <= 0.01
    assert rates[1] == pytest.approx(second, rel=1e-4)
    assert rates[-1] == pytest.approx(0.001, rel=0.02)


def test_the_trainer_is_given_what_the_options_say(text, tmp_path, monkeypatch):
    caught = []

    def catch(self, *_):
        caught.append(self)
        raise KeyboardInterrupt

    monkeypatch.setattr(train.WindowTrainer, "train", catch)
    for n, seed in enumerate("001"):
        more = ["--seed", seed, "--dropout", "0.5", "--weight-decay", "0.3", "--valid", "0.2"]
        with pytest.raises(KeyboardInterrupt):
            run(text, tmp_path / f"m{n}", *more)
    first, again, other = (trainer.model.model.tokens.weight for trainer in caught)
    assert torch.equal(first, again) and not torch.equal(first, other), "initial weights by --seed"
    trainer = caught[0]
    groups = trainer.create_optimizer().param_groups
    assert {g["weight_decay"] for g in groups if any(p.dim() > 1 for p in g["params"])} == {0.3}
    assert {g["weight_decay"] for g in groups if any(p.dim() < 2 for p in g["params"])} == {0.0}
    assert {g["betas"] for g in groups} == {(0.9, 0.95)} and trainer.args.max_grad_norm == 1.0
    assert trainer.evaluate() == trainer.evaluate(), "no dropout in validation"
    tokenizer = tokens.read_tokenizer(tmp_path / "m0/run/tokenizer.json")
    whole = tokens.make_windows([text], "text", tokenizer, 0, 17, tmp_path / "tokens")
    n = len(trainer.train_dataset.rows)
    assert n == round(0.8 * len(whole))
    assert ids_of(trainer.train_dataset.rows) == ids_of(whole)[: 17 * n]
    assert ids_of(trainer.eval_dataset.rows) == ids_of(whole)[17 * n :]


def test_a_smaller_micro_batch_changes_nothing(text, alone, tmp_path):
    run(text, tmp_path / "m", "--micro-batch", "2")
    assert_same_losses(tmp_path / "m", alone)


def started(n, arguments, **environment):
    """Start the command in n processes, which can be killed together."""
    launcher = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(n), "-m"]
    program = [sys.executable, "-m", *(launcher if n > 1 else []), "pretrain", *arguments]
    return subprocess.Popen(
        program, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PRETRAIN_PROFILE": "smoke"} | environment,
    )  # fmt: skip


def test_two_processes_do_what_one_does_and_one_goes_on_after_them(text, bert, tmp_path):
    """A BERT, whose micro-batches and processes have unlike numbers of targets."""
    out = tmp_path / "m"
    two = started(2, command(text, out, "--model", "bert", "--micro-batch", "2", steps=6))
    said = two.communicate(timeout=240)[0].decode()
    assert two.returncode == 0, said
    assert said.count("parameters;") == 1, "one process reports"
    assert_same_losses(out, bert)
    shutil.rmtree(out / "run/checkpoints/checkpoint-6")
    run(text, out, "--model", "bert", steps=6)
    assert_same_losses(out, bert)


def test_a_killed_run_goes_on_bit_for_bit(text, tmp_path, capsys):
    """With dropout, and a terminal that lacks the characters of a sample."""
    chinese = text.read_text().replace("e", "天")
    text = tmp_path / "text.txt"
    text.write_text(chinese, "utf-8")
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    options = ["--dropout", "0.2"]
    run(text, whole, *options, steps=60)
    process = started(1, command(text, killed, *options, steps=60), PYTHONIOENCODING="ascii")
    end = time.monotonic() + 240
    while not list(killed.glob("run/checkpoints/checkpoint-6/trainer_state.json")):
        assert process.poll() is None and time.monotonic() < end, process.communicate()[0]
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    begun = int(train.newest_checkpoint(killed / "run/checkpoints").rpartition("-")[2])
    assert 6 <= begun < 60
    capsys.readouterr()
    run(text, killed, *options, steps=60)
    said = capsys.readouterr().out
    assert f"step {begun + 3}:" in said and f"step {begun}:" not in said
    assert_same_losses(killed, whole, atol=0)
    ends = [(out / "model.safetensors").read_bytes() for out in (killed, whole)]
    assert ends[0] == ends[1]


def test_an_incomplete_checkpoint_is_passed_over(text, alone, tmp_path):
    out = shutil.copytree(alone, tmp_path / "m")
    checkpoints = out / "run/checkpoints"
    os.truncate(checkpoints / "checkpoint-9/trainer_state.json", 500)
    (checkpoints / "checkpoint-12").mkdir()  # killed before anything was in it
    assert train.newest_checkpoint(checkpoints) == str(checkpoints / "checkpoint-6")
    run(text, out)
    assert_same_losses(out, alone, atol=0)


def test_dropout_follows_from_seed_step_and_process():
    report = train.Report(1, None, None)
    drawn = []
    for rank, step in [(0, 0), (1, 0), (0, 1), (1, 1)] * 2:
        report.on_step_begin(Namespace(process_index=rank), Namespace(global_step=step), None)
        drawn.append(torch.rand(1).item())
    assert drawn[:4] == drawn[4:] and len(set(drawn)) == 4


def test_a_loss_that_is_not_finite_ends_the_run_before_it_is_saved(text, tmp_path):
    with pytest.raises(SystemExit, match="the loss is nan: try a smaller --lr"):
        main(command(text, tmp_path / "m", "--lr", "1e30"))
    assert not list(tmp_path.rglob("trainer_state.json"))


def test_two_runs_in_one_folder_are_refused(text, tmp_path):
    (tmp_path / "run").mkdir()
    with FileLock(tmp_path / "run/lock"), pytest.raises(SystemExit, match="another run is at work"):
        main(command(text, tmp_path))
    assert not (tmp_path / "run/options.json").exists()


@pytest.mark.parametrize("more", [["--width", "32"], ["--save-every", "4"], ["--warmup", "0"]])
def test_a_run_goes_on_with_its_own_options_only(text, alone, more):
    with pytest.raises(SystemExit, match=f"holds a run with {more[0]}"):
        main(command(text, alone, *more))


def test_a_run_goes_on_with_its_own_text_only(text, alone, tmp_path):
    out = shutil.copytree(alone, tmp_path / "m")
    other = tmp_path / "toy.txt"
    other.write_text(text.read_text() + "one more .\n", "utf-8")
    with pytest.raises(SystemExit, match="holds a run with --text .*toy.txt of"):
        main(command(other, out))


@pytest.mark.parametrize("name", ["options", "tokenizer"])
def test_a_damaged_file_of_a_run_is_named(text, alone, tmp_path, name):
    out = shutil.copytree(alone, tmp_path / "m")
    (out / f"run/{name}.json").write_bytes(b'{"model": ')
    with pytest.raises(SystemExit, match=rf"{name}.json is (damaged|no tokenizer).* remove it"):
        main(command(text, out))


MEANINGLESS = (
    "--steps 0, --valid 1, --micro-batch 0, --micro-batch -4, --devices 0, --lr -1, --lr nan, "
    "--warmup -1, --weight-decay -1, --context 2, --seed -1, --unknown 1, --layers two, "
    "--dropout 1, --width 15"
)


@pytest.mark.parametrize("more", MEANINGLESS.split(", "))
def test_options_that_make_no_sense_are_refused(text, tmp_path, capsys, more):
    with pytest.raises(SystemExit):
        main(command(text, tmp_path / "m", *more.split()))
    assert more.split()[0] in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "m").exists()


def test_what_the_machine_cannot_do_is_said_in_a_line(text, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for more, reason in ((["--precision", "fp16"], "need GPUs"), (["--fsdp"], "need GPUs"),
                         (["--micro-batch", "3"], "not a multiple")):  # fmt: skip
        with pytest.raises(SystemExit, match=f"^pretrain: .*{reason}"):
            main(command(text, tmp_path / "m", *more))
    with pytest.raises(SystemExit, match="toy.txt.*still there"):
        main(command(text, text / "below"))

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(train.WindowTrainer, "train", interrupt)
    with pytest.raises(SystemExit, match="stopped; the same command goes on"):
        main(command(text, tmp_path / "m"))


# --------------------------------------------------------------------------------- exports
def test_an_exported_gpt_is_what_was_trained(alone, text, tmp_path):
    theirs = transformers.AutoModelForCausalLM.from_pretrained(alone).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(alone)
    end = tokenizer.convert_tokens_to_ids("<|endoftext|>")
    given = tokenizer("the capital of france", return_tensors="pt")
    assert set(given) == {"input_ids", "attention_mask"}
    assert tokenizer.decode(given["input_ids"][0]) == "the capital of france"
    ours = tokens.read_tokenizer(alone / "run/tokenizer.json")
    whole = tokens.make_windows([text], "text", ours, end, 17, tmp_path)
    windows = train.Windows(whole.select(range(round(0.95 * len(whole)), len(whole))), 0, 128, None)
    ids, labels = (torch.tensor(np.stack([windows[i][name] for i in range(128)]))
                   for name in ("input_ids", "labels"))  # fmt: skip
    with torch.no_grad():
        logits = theirs(ids).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()).item()
    assert loss == pytest.approx(losses(alone)[9, "eval_loss"], abs=1e-4)
    for config in (theirs.config, theirs.generation_config):
        assert (config.eos_token_id, config.bos_token_id, config.pad_token_id) == (end, end, end)
    assert theirs.generation_config.max_length == tokenizer.model_max_length == 16
    assert len(tokenizer) == theirs.config.vocab_size == 400
    assert theirs.generate(**given).shape[1] <= 16


def test_an_exported_bert_is_what_was_trained(bert):
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(bert).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(bert)
    given = tokenizer("the cat .", "Ein Hund .", return_tensors="pt")
    names = tokenizer.convert_ids_to_tokens(given["input_ids"][0])
    assert names[0] == "[CLS]" and names[-1] == "[SEP]" and names.count("[SEP]") == 2
    ours = pretrained.load_bert(bert, BertForPretraining).eval()
    with torch.no_grad():
        expected = ours.predict_tokens(ours.bert(given["input_ids"]))
        torch.testing.assert_close(theirs(**given).logits, expected, atol=1e-4, rtol=1e-4)
    assert tokenizer.mask_token == "[MASK]" and theirs.config.pad_token_id == 0
    assert len(tokenizer) == theirs.config.vocab_size == 400


def test_every_version_of_transformers_knows_the_class_of_the_tokenizer(alone, bert):
    for out in (alone, bert):
        about = json.loads((out / "tokenizer_config.json").read_text())
        assert about["tokenizer_class"] == "PreTrainedTokenizerFast"
        assert "extra_special_tokens" not in about


def test_an_exported_model_goes_on_training(alone, text):
    model = transformers.AutoModelForCausalLM.from_pretrained(alone)
    ids = transformers.AutoTokenizer.from_pretrained(alone)(text.read_text()[:40])["input_ids"]
    batch = torch.tensor([ids[:16]])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    found = []
    for _ in range(5):
        loss = model(batch, labels=batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.item())
    assert found[-1] < found[0] - 0.5


# ----------------------------------------------------------------------------------- plans
def test_the_plan_is_of_the_card_and_writes_nothing(text, tmp_path, capsys):
    for card, precision in (("t4", "fp16"), ("v100", "fp16"), ("a100", "bf16")):
        options = read_options(command(text, tmp_path / "m", "--plan", "--card", card))
        assert options.precision == precision
        costs = plan.say_plan(options)
    main(command(text, tmp_path / "m", "--plan", "--card", "t4", "--devices", "2"))
    shown = capsys.readouterr().out
    assert "2 x t4" in shown and "Chinchilla" in shown and "does not fit" not in shown
    model = plan.new_model(plan.new_config(options, 400))
    assert costs.parameters == sum(p.numel() for p in model.parameters())
    assert costs.tokens == 9 * 8 * 16 and costs.state_bytes == 16 * costs.parameters
    main(
        command(text, tmp_path / "m", "--plan", "--card", "t4", "--width", "4096", "--layers", "32")
    )
    assert "does not fit" in capsys.readouterr().out
    assert not (tmp_path / "m").exists()


def test_the_plan_counts_the_work_of_gpt2():
    """855.17 MFLOP a token, as nanoGPT's estimate; half the memory a device where two share."""
    sizes = "--layers 12 --width 768 --heads 12 --context 1024 --batch 2 --fsdp --devices 2"
    options = read_options(command("-", "-", *sizes.split()))
    costs = plan.make_plan(plan.new_config(options, 50_257), options, 2)
    assert costs.parameters == 124_439_808
    assert costs.flop / costs.tokens / 1e6 == pytest.approx(855.17, abs=0.01)
    assert costs.state_bytes == 8 * costs.parameters
    seconds = costs.flop / (2 * 0.4 * plan.CARDS["t4"][0])
    assert f"{round(seconds)} (h" in costs.text(1_000, "t4", 2).replace("0:00:0", "")


def test_the_plan_of_a_large_text_reads_its_beginning(text, tmp_path, capsys, monkeypatch):
    found = []
    for sample in (500, 3):
        monkeypatch.setattr(plan, "SAMPLE", sample)
        main(command(text, tmp_path / "m", "--plan"))
        line = capsys.readouterr().out.splitlines()[0]
        found.append(int(line.replace(",", "").split()[-2]))
    tokenizer = tokens.train_tokenizer(tokens.read_texts([text]), 400)
    whole = len(tokens.encode([text.read_text(), None], tokenizer, [0]))
    assert found[0] == whole and found[1] == pytest.approx(whole, rel=0.1)


@pytest.mark.parametrize("precision", ["no", "bf16"])
@pytest.mark.parametrize("model", ["gpt", "bert"])
def test_the_planned_activations_are_those_that_pytorch_keeps(precision, model):
    given = f"--model {model} --width 128 --heads 2 --layers 4 --context 64 --batch 8 --precision"
    options = read_options(command("-", "-", *given.split(), precision))
    config = plan.new_config(options, 1_000)
    module, kept = train.WithLoss(plan.new_model(config)), {}
    weights = {w.untyped_storage().data_ptr() for w in module.parameters()}

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage
        return tensor

    ids, labels = torch.randint(1_000, (2, 8, 64))
    if model == "bert":
        labels[torch.rand(8, 64) > 0.15] = -100
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            module(ids, labels)
    measured = sum(storage.nbytes() for storage in kept.values())
    planned = plan.make_plan(config, options, 1).activation_bytes
    logits = (1 if model == "gpt" else 0.15) * 8 * 64 * 1_000 * 4  # and their gradient
    assert planned - logits == pytest.approx(measured, rel=0.1)
