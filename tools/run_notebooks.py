"""Run notebooks from the first cell to the last and save them clean.

    python -m tools.run_notebooks [NOTEBOOK…]

Without names, all notebooks of chapters, solutions and labs. The profile is PRETRAIN_PROFILE's. A
notebook is saved only when every cell has run; at the first that fails, its cell is shown and the
file stays as it was. With it are saved the numbers that it exports for its explorers in laptop, the
profile that the book shows: see `support/play.py`.
"""

from __future__ import annotations

import argparse
import base64
import io
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from ipykernel.kernelspec import get_kernel_dict
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from PIL import Image
from traitlets import default

from support import play, profile
from tools import address
from tools.format_notebooks import format_notebook, notebooks, read, write

CELL_SECONDS = 1800
PLAY = address.ROOT / "_static" / "play"


class ThisPythonSpec(KernelSpecManager):
    """Knows one kernel only: the Python that runs this program, whatever the user has installed."""

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        """Return the specification of this Python's own kernel."""
        return KernelSpec(resource_dir="", **get_kernel_dict(["--log-level=ERROR"]))


class ThisPython(AsyncKernelManager):
    """Starts that kernel."""

    @default("kernel_spec_manager")
    def _this_python(self) -> KernelSpecManager:
        return ThisPythonSpec(parent=self)


def smaller(png: str) -> str:
    """Return a PNG in base64 with at most 256 colors, or as it was where that saves nothing."""
    image = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB")
    packed = io.BytesIO()
    image.quantize(256, dither=Image.Dither.NONE).save(packed, "png", optimize=True)
    encoded = base64.b64encode(packed.getvalue()).decode()
    return encoded if len(encoded) < len(png) else png


def run(path: Path) -> float:
    """Run the notebook in its own folder, save it in the one form, and return the seconds taken.

    Raises: nbclient's CellExecutionError, CellTimeoutError or DeadKernelError; then nothing is
    saved.
    """
    notebook = format_notebook(read(path), path.stem)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    client = NotebookClient(
        notebook,
        kernel_manager_class=ThisPython,
        timeout=CELL_SECONDS,
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(path.resolve().parent)}},
    )
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as exported:
        in_book = profile.name() == "laptop" and path.resolve().is_relative_to(PLAY.parents[1])
        client.execute(env={**os.environ, play.FOLDER: exported if in_book else ""})
        for file in Path(exported).iterdir():
            shutil.copy(file, PLAY)
    seconds = time.perf_counter() - start
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for count, cell in enumerate(code, start=1):
        cell.execution_count = count
        for output in cell.outputs:
            if output.output_type == "execute_result":
                output.execution_count = count
            if "image/png" in output.get("data", {}):
                output.data["image/png"] = smaller(output.data["image/png"])
    write(format_notebook(notebook, path.stem), path)
    return seconds


def main(arguments: list[str] | None = None) -> int:
    """Run the notebooks named, or all, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("notebooks", nargs="*", type=Path)
    paths = parser.parse_args(arguments).notebooks or notebooks()
    print(f"Profile: {os.environ.get('PRETRAIN_PROFILE') or 'gpu where CUDA is, else laptop'}")
    total = 0.0
    for path in paths:
        print(f"{os.path.relpath(path)} …", end=" ", flush=True)
        try:
            total += (seconds := run(path))
            print(f"{seconds:.1f} s", flush=True)
        except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
            print(f"failed and was not saved\n{error}", file=sys.stderr)
            return 1
    print(f"all together: {total / 60:.1f} min")
    return 0


if __name__ == "__main__":
    sys.exit(main())
