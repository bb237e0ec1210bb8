"""Print what the pages weigh, as the browser tests measured it in their last run (`make pages`).

    python -m tools.page_report

Sizes are in MB: of a page compressed, as a server sends it, once with and once without the numbers
of its explorer; of the site as it lies on the disk. Requests are those before a reader scrolls.
Outputs are cut in a window of 1,400 px, tables in one of 360.
"""

from __future__ import annotations

import json

from tools import address

FOLDER = address.ROOT / "_build" / "measured"


def main() -> None:
    """Print a table of the pages, then the sites and the ranks of the searches."""
    files = sorted(FOLDER.glob("*.json"))
    measured = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in files}
    print(f"{'page':42}{'MB':>6}{'all':>6}{'requests':>10}{'outputs':>9}{'tables':>8}")
    others = []
    for name, numbers in measured.items():
        if "requests" not in numbers:
            others.append((name, numbers))
            continue
        size, explorer = numbers["bytes"] / 1e6, numbers["explorer"] / 1e6
        cut = f"{numbers['cut outputs']:9}{numbers['cut tables']:8}"
        print(f"{name:42}{size:6.2f}{size + explorer:6.2f}{numbers['requests']:10}{cut}")
    for name, numbers in others:
        shown = [
            f"{x / 1e6:.1f} MB" if key == "bytes" else f"{key} {x}" for key, x in numbers.items()
        ]
        print(f"{name}: {', '.join(shown)}")


if __name__ == "__main__":
    main()
