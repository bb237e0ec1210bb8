"""The files of the data sets: their sizes and checksums, and where they are to be had.

`catalog.json` lists them in kinds; the names of a kind's files take the place of {name} in its path
and in its addresses, which are tried in turn; {hub} is the variable HF_ENDPOINT, or Hugging Face. A
new data set is a new kind there, and in `datasets.py` the function that reads it; `python -m
tools.check_mirrors --only FOLDER` downloads each file from each address. The checksums of AG News'
train file and of the GloVe vectors are published ones; all others were computed from the files.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from support.data.files import DataFile


def _files(path: Path) -> dict[str, DataFile]:
    """Return the files of a catalog by their paths."""
    files, hub = {}, os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    for kind in json.loads(path.read_text(encoding="utf-8")):
        for name, proof in kind["files"].items():
            urls = tuple(url.format(name=name, hub=hub) for url in kind["urls"])
            file = DataFile(kind["path"].format(name=name), **proof, urls=urls)
            files[file.path] = file
    return files


FILES = _files(Path(__file__).with_name("catalog.json"))
