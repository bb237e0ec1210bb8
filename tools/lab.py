"""Copy the plain notebooks to my_notebooks/, for a reader to change and to run.

    python -m tools.lab

A notebook that has been changed there, or saved with other outputs, stays as it is. In that folder
a notebook finds support/ beside it, whatever program opens it.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from tools import address

PLAIN = address.ROOT / "_build" / "colab"
MINE = address.ROOT / "my_notebooks"


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def copy(plain: Path, mine: Path) -> str:
    """Copy the notebooks, all into one folder, but for those changed there, and say what was done.

    The hidden file .copied.json keeps the checksum of each notebook as it was copied.
    """
    mine.mkdir(exist_ok=True)
    record = mine / ".copied.json"
    copied = json.loads(record.read_text("utf-8")) if record.exists() else {}
    kept, outdated = [], []
    for source in sorted(plain.glob("*/*.ipynb")):
        name = source.name if source.parent.name != "labs" else f"lab_{source.name}"
        target = mine / name
        if target.exists() and digest(target) != copied.get(name):
            kept.append(name)
            if copied.get(name) != digest(source):
                outdated.append(name)
            continue
        target.write_bytes(source.read_bytes())
        copied[name] = digest(source)
    record.write_text(json.dumps(copied, indent=1), "utf-8")
    said = f"{mine.name}/ has the book's notebooks, yours to change"
    said += f"; kept as you have changed them: {', '.join(kept)}" if kept else ""
    return said + (f"; delete to get the newer ones: {', '.join(outdated)}" if outdated else "")


if __name__ == "__main__":
    print(copy(PLAIN, MINE))
