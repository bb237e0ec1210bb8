"""No code of the course unpickles or runs what it reads from a file."""

import ast
import re

import pytest

from tools.address import ROOT
from tools.format_notebooks import notebooks, read

MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "runpy"}
CALLS = {
    "torch.hub.load", "torch.jit.load", "yaml.load", "yaml.unsafe_load", "pd.read_pickle",
    "pandas.read_pickle", "eval", "exec", "compile", "__import__",
}  # fmt: skip
# The value that alone is safe, and the calls that need it.
SAFE = {
    "allow_pickle": (False, set()),
    "trust_remote_code": (False, set()),
    "weights_only": (True, {"torch.load"}),
    "use_safetensors": (True, set()),
}
# (file, what): why it may be there.
ALLOWED = {
    ("support/labs/__main__.py", call): "grading runs answers, each file in a process of its own"
    for call in ("compile", "exec")
}


def dangers(source: str) -> list[str]:
    """Return what in a source could run what it reads from a file."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [name.name for name in node.names if name.name.split(".")[0] in MODULES]
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            names = {f"{module}.{name.name}" for name in node.names}
            found += [module] if module.split(".")[0] in MODULES else []
            found += sorted(names & (CALLS | {"torch.load"}))
        elif isinstance(node, ast.Attribute) and node.attr in ("extractall", "unpack_archive"):
            found.append(node.attr)
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            given = {keyword.arg: keyword.value for keyword in node.keywords}
            found += [called] if called in CALLS else []
            for option, (value, needed_by) in SAFE.items():
                is_safe = ast.unparse(given[option]) == repr(value) if option in given else None
                if is_safe is False or (is_safe is None and called in needed_by):
                    found.append(option)
    return found


def sources() -> dict[str, str]:
    """Return the code of each file of support, pretrain, chapters and solutions by its name."""
    paths = [p for name in ("support", "pretrain") for p in sorted((ROOT / name).rglob("*.py"))]
    found = {path: path.read_text(encoding="utf-8") for path in paths}
    for path in notebooks():
        code = "\n".join(cell.source for cell in read(path).cells if cell.cell_type == "code")
        # Commands to the shell and to IPython are not Python; pip is all that they call.
        found[path] = re.sub(r"(?m)^(\s*)(?:%(?! )|!(?!=)).*", r"\1pass", code)
    return {path.relative_to(ROOT).as_posix(): source for path, source in found.items()}


def test_no_code_runs_what_it_reads():
    read = sources()
    assert len(read) > 50
    found = {(name, danger) for name, source in read.items() for danger in dangers(source)}
    assert found <= set(ALLOWED)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import numpy, dill", ["dill"]),
        ("from joblib import load", ["joblib"]),
        ("from torch import load", ["torch.load"]),
        ("state = torch.load(path)", ["weights_only"]),
        ("torch.load(path, weights_only=flag)", ["weights_only"]),
        ("np.load(path, allow_pickle=True)", ["allow_pickle"]),
        ("eval(path.read_text())", ["eval"]),
        ("zipfile.ZipFile(path).extractall(folder)", ["extractall"]),
        ("torch.load(path, weights_only=True); np.load(path); model.eval()", []),
    ],
)
def test_the_search_finds(source, found):
    assert dangers(source) == found
