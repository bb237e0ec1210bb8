"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def whole_file(path: str | os.PathLike) -> Iterator[BinaryIO]:
    """Yield a file to write bytes to, which takes its name only when it is complete.

    After an error the file that had the name is as it was, and nothing else is left.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())  # or a loss of power could leave the new name without content
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
