"""Print how large the parts of the repository are, each beside its limit.

    python -m tools.sizes

A limit may be lowered, never raised: what does not fit goes elsewhere, or is cut.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Lines, docstrings and blank ones included.
LIMITS = {
    "support/": 4500,
    "support/labs/": 2350,
    "pretrain/": 700,
    "tests/": 13500,
    "transformer.py": 330,
    "gpt.py": 180,
    "entries in the root": 26,
}


def _lines(paths: list[Path]) -> int:
    return sum(path.read_text(encoding="utf-8").count("\n") for path in paths)


def measured() -> dict[str, int]:
    """Return what each limit is about, counted: lines of Python and of JavaScript, and entries."""
    support = [p for p in (ROOT / "support").rglob("*.py") if p.parent.name != "labs"]
    tests = [p for ending in ("py", "js") for p in (ROOT / "tests").rglob(f"*.{ending}")]
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout
    return {
        "support/": _lines(support),
        "support/labs/": _lines(list((ROOT / "support" / "labs").rglob("*.py"))),
        "pretrain/": _lines(list((ROOT / "pretrain").rglob("*.py"))),
        "tests/": _lines(tests),
        "transformer.py": _lines([p for p in support if p.name == "transformer.py"]),
        "gpt.py": _lines([p for p in support if p.name == "gpt.py"]),
        "entries in the root": len({line.split("/")[0] for line in tracked.splitlines()}),
    }


def main() -> None:
    """Print the table; what is over its limit is marked."""
    for what, size in measured().items():
        over = "  OVER" if size > LIMITS[what] else ""
        print(f"{what:22}{size:6} of at most {LIMITS[what]:6}{over}")


if __name__ == "__main__":
    main()
