"""Bring notebooks into one form: clean metadata, stable cell ids, one bootstrap cell, folds.

    python -m tools.format_notebooks [--check] [NOTEBOOK…]

Without names, all notebooks of chapters, solutions and labs. With --check nothing is written, and
the exit status says whether all have the form already.
"""

from __future__ import annotations

import argparse
import copy
import os
import sys
from pathlib import Path

import nbformat

from tools import address, folding

FOLDERS = ("chapters", "solutions", "labs")
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
BOOTSTRAP = """\
{title}
# Make `support` importable: a clone has it at hand, on Colab it is installed.
import importlib.util
import subprocess
import sys
from pathlib import Path

found = importlib.util.find_spec("support")
folders = (found and found.submodule_search_locations) or []
# Another folder of the same name does not count.
if not any((Path(folder) / "profile.py").is_file() for folder in folders):
    if (Path.cwd().parent / "support" / "profile.py").is_file():
        sys.path.insert(0, str(Path.cwd().parent))
    else:
        pip = [sys.executable, "-m", "pip", "install", "--quiet"]
        source = "git+{repository}"
        subprocess.run([*pip, source], check=True)
        importlib.invalidate_caches()"""


def notebooks() -> list[Path]:
    """Return the paths of all notebooks, in the order of their names."""
    return [path for name in FOLDERS for path in sorted((address.ROOT / name).glob("*.ipynb"))]


def bootstrap() -> str:
    """Return the source of the first code cell, the same in every notebook."""
    title = folding.TITLE_LINES["setup"]
    return BOOTSTRAP.format(title=title, repository=address.repository())


def read(path: Path) -> nbformat.NotebookNode:
    """Return the notebook as version 4.5 or later of the format, ids as they are in the file."""
    notebook = nbformat.from_dict(nbformat.reader.reads(path.read_text(encoding="utf-8")))
    if notebook.nbformat != 4:
        raise ValueError(f"{path}: notebook format {notebook.nbformat}, but only 4 is allowed")
    notebook.nbformat_minor = max(notebook.get("nbformat_minor", 0), 5)
    return notebook


def write(notebook: nbformat.NotebookNode, path: Path) -> None:
    """Write the notebook whole or not at all."""
    draft = path.with_name(f".{path.name}.draft")
    try:
        draft.write_text(text_of(notebook), encoding="utf-8")
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def text_of(notebook: nbformat.NotebookNode) -> str:
    """Return the notebook as JSON in nbformat's own layout, ending in one newline."""
    return nbformat.writes(notebook).rstrip("\n") + "\n"


def format_notebook(notebook: nbformat.NotebookNode, name: str) -> nbformat.NotebookNode:
    """Return a copy in the one form; `name` seeds the ids of cells that have none of their own."""
    notebook = copy.deepcopy(notebook)
    _set_ids(notebook.cells, name)
    first = next((cell for cell in notebook.cells if cell.cell_type == "code"), None)
    if first is not None and "find_spec(" in first.source:
        first.source = bootstrap()
        first.metadata.tags = ["setup"]
    for cell in notebook.cells:
        cell.source = cell.source.rstrip()
        folding.fold(cell)
        if cell.cell_type == "code":
            cell.outputs = [_clean(output) for output in cell.outputs if not _passing(output)]
    collapsed = folding.collapsed_on_colab(notebook.cells)
    kept = {k: v for k, v in notebook.metadata.items() if k not in ("colab", "widgets")}
    notebook.metadata = nbformat.from_dict(kept | METADATA | collapsed)
    old, new = address.configured(), address.repository()
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = address.move(cell.source, old, new)
    return notebook


def _set_ids(cells: list[nbformat.NotebookNode], name: str) -> None:
    """Keep each cell's id; give one made of name and place to cells without, or with another's."""
    taken = {cell.id for cell in cells if cell.get("id")}
    seen = set()
    for place, cell in enumerate(cells, start=1):
        if not cell.get("id") or cell.id in seen:
            cell.id = f"{name}-{place}"[:64]
            while cell.id in taken:
                cell.id = f"{cell.id}x"
            taken.add(cell.id)
        seen.add(cell.id)


def _passing(output: nbformat.NotebookNode) -> bool:
    """Return whether the output belongs to one run only: warnings, progress bars, widgets."""
    stderr = output.output_type == "stream" and output.name == "stderr"
    return stderr or "application/vnd.jupyter.widget-view+json" in output.get("data", {})


def _clean(output: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Return the output without what differs from machine to machine."""
    if "metadata" in output:
        output.metadata = nbformat.from_dict({})
    if output.output_type == "error":
        # A traceback names folders of the machine; its last line says what a reader must know.
        output.traceback = [f"{output.ename}: {output.evalue}"]
    return output


def main(arguments: list[str] | None = None) -> int:
    """Format or check the notebooks named, or all, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("notebooks", nargs="*", type=Path)
    parser.add_argument("--check", action="store_true", help="write nothing, only say")
    options = parser.parse_args(arguments)
    changed = []
    for path in options.notebooks or notebooks():
        notebook = format_notebook(read(path), path.stem)
        if path.read_text(encoding="utf-8") != text_of(notebook):
            changed.append(os.path.relpath(path))
            if not options.check:
                write(notebook, path)
    if options.check:
        for name in changed:
            print(f"{name} is not in form: run `make format`")
        return int(bool(changed))
    changed += address.carry()
    print("Changed: " + ", ".join(changed) if changed else "All in form already")
    return 0


if __name__ == "__main__":
    sys.exit(main())
