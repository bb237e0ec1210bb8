"""Pack the built book into one file, to be read without a network: _build/NAME.zip.

    python -m tools.archive

The same pages give the same bytes, on every system and at any time.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

from tools import address


def pack(folder: Path, archive: Path) -> None:
    """Write all files of a folder into an archive, below a folder of the archive's name."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            name = f"{archive.stem}/{path.relative_to(folder).as_posix()}"
            entry = zipfile.ZipInfo(name)  # of 1980, with nothing of this machine
            entry.create_system, entry.external_attr = 3, 0o644 << 16
            packed.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)


if __name__ == "__main__":
    build = address.ROOT / "_build"
    archive = build / f"{address.repository().split('/')[-1]}.zip"
    pack(build / "html", archive)
    print(f"The book in one file, {archive.stat().st_size / 1e6:.0f} MB: {archive}")
