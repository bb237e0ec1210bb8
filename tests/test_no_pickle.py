"""Nothing that a reader brings from elsewhere is unpickled or run: traps are laid, code is read."""

import ast
import io
import pickle
import re
import shutil
from pathlib import Path

import nbformat
import numpy as np
import pytest
import torch

from support.data import datasets
from support.models import pretrained
from support.models.bert import Bert, BertConfig, TextClassifier
from support.models.gpt import GPT, GPTConfig
from support.text.wordpiece import WordPieceTokenizer
from support.vectors.word_vectors import FORMATS, WordVectors

ROOT = Path(__file__).parents[1]

# Traps: files that leave a trace when they are unpickled.


class Planted:
    """Something that makes a file when it is unpickled."""

    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        return Path.touch, (self.trace,)


def as_pickle(planted):
    return pickle.dumps({"tokens.weight": planted})


def as_old_pickle(planted):
    return pickle.dumps({"tokens.weight": planted}, protocol=0)


def as_torch(planted):
    file = io.BytesIO()
    torch.save({"tokens.weight": planted}, file)
    return file.getvalue()


def as_old_torch(planted):
    file = io.BytesIO()
    torch.save({"tokens.weight": planted}, file, _use_new_zipfile_serialization=False)
    return file.getvalue()


def as_numpy(planted):
    file = io.BytesIO()
    np.save(file, np.array([planted], dtype=object), allow_pickle=True)
    return file.getvalue()


def as_numpy_zip(planted):
    file = io.BytesIO()
    np.savez(file, vectors=np.array([planted], dtype=object))
    return file.getvalue()


OPEN = {
    as_pickle: pickle.load,
    as_old_pickle: pickle.load,
    as_torch: lambda file: torch.load(file, weights_only=False),
    as_old_torch: lambda file: torch.load(file, weights_only=False),
    as_numpy: lambda file: np.load(file, allow_pickle=True),
    as_numpy_zip: lambda file: np.load(file, allow_pickle=True)["vectors"],
}
# Every test lays the first; the exhaustive ones lay the others too.
OTHERS = [pytest.param(trap, marks=pytest.mark.exhaustive) for trap in [*OPEN][1:]]
traps = pytest.mark.parametrize("trap", [as_pickle, *OTHERS], ids=lambda trap: trap.__name__)


@traps
def test_the_traps_work(tmp_path, trap):
    OPEN[trap](io.BytesIO(trap(Planted(tmp_path / "trace"))))
    assert (tmp_path / "trace").exists()


# Every place where something is read from files.


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return a folder with one of each thing that can be read; not to be changed."""
    folder = tmp_path_factory.mktemp("made")
    sizes = {"vocab_size": 7, "d_model": 4, "n_layers": 1, "n_heads": 1, "max_length": 5}
    pretrained.save(Bert(BertConfig(**sizes, d_ff=4)), folder / "bert")
    pretrained.save(GPT(GPTConfig(**sizes)), folder / "gpt")
    (folder / "bert" / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\n")
    (folder / "bert" / "tokenizer_config.json").write_text("{}")
    return folder


def vectors(format):
    return lambda folder: WordVectors.load(folder / "vectors", format)


PLACES = {
    "bert/model.safetensors": pretrained.load_bert,
    "bert/config.json": lambda folder: pretrained.load_bert(folder, TextClassifier),
    "bert/vocab.txt": WordPieceTokenizer.from_folder,
    "bert/tokenizer_config.json": WordPieceTokenizer.from_folder,
    "gpt/model.safetensors": pretrained.load_gpt,
    "gpt/config.json": pretrained.load_gpt,
    "new/text.txt": lambda folder: datasets.from_file(folder / "text.txt"),
    "new/vectors": vectors(None),
    **{f"new/{format}/vectors": vectors(format) for format in FORMATS},
}


@traps
@pytest.mark.parametrize("place", PLACES)
def test_a_pickle_in_place_of_a_file_is_refused(made, tmp_path, trap, place):
    folder = Path(shutil.copytree(made, tmp_path / "made"))
    trace, path = tmp_path / "trace", folder / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(trap(Planted(trace)))
    top = folder / "run" if place.startswith("run") else path.parent
    if trap is as_old_pickle and place == "new/text.txt":
        PLACES[place](top)  # it is all letters: a text like any other
    else:
        with pytest.raises(ValueError) as caught:
            PLACES[place](top)
        assert len(str(caught.value)) > 20
    assert not trace.exists()


@pytest.mark.parametrize("kind", ["bert", "gpt"])
def test_a_pickle_beside_the_weights_is_not_opened(made, tmp_path, kind):
    folder = Path(shutil.copytree(made / kind, tmp_path / kind))
    (folder / "pytorch_model.bin").write_bytes(as_torch(Planted(tmp_path / "trace")))
    load = {"bert": pretrained.load_bert, "gpt": pretrained.load_gpt}[kind]
    load(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="holds no model.safetensors"):
        load(folder)
    assert not (tmp_path / "trace").exists()


DATA = {
    "ptb/ptb.valid.txt": lambda: datasets.ptb("valid", source="real"),
    "wikitext-2/wiki.test.tokens": lambda: datasets.wikitext2("test", source="real"),
    "shakespeare/input.txt": lambda: datasets.shakespeare(source="real"),
    "ag_news_csv/test.csv": lambda: datasets.ag_news("test", source="real"),
    "mnist/t10k-images-idx3-ubyte": lambda: datasets.mnist("test", source="real"),
    "analogies/capital-common-countries.txt": lambda: datasets.analogies(source="real"),
    "glove/glove.6B.50d.txt": lambda: datasets.glove(source="real"),
    "all-MiniLM-L6-v2/model.safetensors": lambda: datasets.minilm(source="real"),
}


@pytest.mark.parametrize("place", DATA)
def test_a_pickle_in_the_readers_own_data_folder_is_refused(tmp_path, monkeypatch, place):
    monkeypatch.setenv("PRETRAIN_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("PRETRAIN_CACHE_DIR", str(tmp_path / "cache"))
    trap = as_pickle(Planted(tmp_path / "trace"))
    for path in datasets.FILES:  # of some sets all files are looked for, in whatever order
        if path.startswith(place.split("/")[0]):
            (tmp_path / "data" / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "data" / path).write_bytes(trap)
    with pytest.raises(ValueError, match="is not the .* that it should be"):
        DATA[place]()
    assert not (tmp_path / "trace").exists()


# The code: what could run what it reads is not in it.

MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
MODULES |= {"jsonpickle", "imp", "runpy", "code"}
CALLS = {
    "torch.load", "torch.hub.load", "torch.jit.load", "torch.package.PackageImporter",
    "yaml.load", "yaml.load_all", "yaml.unsafe_load", "yaml.full_load",
    "pd.read_pickle", "pandas.read_pickle", "np.lib.format.read_array",
}  # fmt: skip
BUILTINS = {"eval", "exec", "compile", "__import__"}
# (file, what): why it may be there.
ALLOWED: dict[tuple[str, str], str] = {
}


def dangers(source):
    """Return what in a source could run what it reads from a file."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [name.name for name in node.names if name.name.split(".")[0] in MODULES]
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            found += [module] if module.split(".")[0] in MODULES else []
            whole = {f"{module}.{name.name}" for name in node.names}
            found += sorted(whole & CALLS)
        elif isinstance(node, ast.Attribute):
            name = ast.unparse(node)
            found += [name] if name in CALLS else []
            found += [node.attr] if node.attr in ("extractall", "unpack_archive") else []
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            found += [node.func.id] if node.func.id in BUILTINS else []
        if isinstance(node, ast.keyword) and node.arg in ("allow_pickle", "trust_remote_code"):
            off = isinstance(node.value, ast.Constant) and node.value.value is False
            found += [] if off else [node.arg]
        if isinstance(node, ast.keyword) and node.arg in ("weights_only", "use_safetensors"):
            on = isinstance(node.value, ast.Constant) and node.value.value is True
            found += [] if on else [node.arg]
    return found


def sources():
    """Yield the name and the code of each file of support, chapters and solutions."""
    for path in sorted((ROOT / "support").rglob("*.py")):
        yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
    for folder in ("chapters", "solutions"):
        for path in sorted((ROOT / folder).glob("*.ipynb")):
            cells = nbformat.read(path, as_version=4).cells
            code = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
            # Commands to the shell and to IPython are not Python; pip is all that they call.
            yield path.relative_to(ROOT).as_posix(), re.sub(r"(?m)^(\s*)[%!].*", r"\1pass", code)


def test_no_code_runs_what_it_reads():
    read = dict(sources())
    assert len(read) > 50
    found = {(name, danger) for name, source in read.items() for danger in dangers(source)}
    assert found == set(ALLOWED)


@pytest.mark.parametrize(
    ("source", "danger"),
    [
        ("import pickle", "pickle"),
        ("from joblib import load", "joblib"),
        ("import numpy, dill", "dill"),
        ("state = torch.load(path)", "torch.load"),
        ("torch.load(path, weights_only=True)", "torch.load"),
        ("from torch import load", "torch.load"),
        ("load = torch.load", "torch.load"),
        ("np.load(path, allow_pickle=True)", "allow_pickle"),
        ("np.load(path, allow_pickle=flag)", "allow_pickle"),
        ("yaml.load(text, Loader=yaml.Loader)", "yaml.load"),
        ("eval(path.read_text())", "eval"),
        ("exec(open(path).read())", "exec"),
        ("AutoModel.from_pretrained(name, trust_remote_code=True)", "trust_remote_code"),
        ("AutoModel.from_pretrained(name, use_safetensors=False)", "use_safetensors"),
        ("zipfile.ZipFile(path).extractall(folder)", "extractall"),
        ("shutil.unpack_archive(path)", "unpack_archive"),
        ("pd.read_pickle(path)", "pd.read_pickle"),
    ],
)
def test_the_search_finds(source, danger):
    assert dangers(source) == [danger]


def test_the_search_lets_pass_what_is_safe():
    safe = "model.eval(); np.load(path, allow_pickle=False); yaml.safe_load(text); re.compile('a')"
    assert dangers(safe) == []
