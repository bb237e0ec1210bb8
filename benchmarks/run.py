"""Measure everything, print one table, and keep it as JSON and as a page.

    python -m benchmarks.run [--repeats N] [--only word_vectors subwords bpe language_models images]

Both sides of a row take turns in one run. The ratio is that of the medians, above 1 where ours is
better; the spread is the middle half of the ratios of the single turns. What has no other side in
the run is no row but a footnote. With --only, the rows of the other parts stay as they were.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from datetime import date
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np
import torch

from benchmarks import bpe, images, language_models, word_vectors
from benchmarks.measure import matmul_gflops
from support.data import datasets

RESULTS = Path(__file__).parent / "results"
FILE = RESULTS / "cpu.json"
PARTS = {
    "word_vectors": word_vectors.run,
    "subwords": word_vectors.run_subwords,
    "bpe": bpe.run,
    "language_models": language_models.run,
    "images": images.run,
}


def main() -> None:
    """Measure the parts asked for and write them beside this file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5, help="turns of each side, at least 5")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        data_dir = _texts(Path(folder))
        rows = []
        for name in PARTS:
            if name in options.only:
                measured = PARTS[name](data_dir, options.repeats)
                rows += [_finish(row) | {"part": name} for row in measured]
            else:
                rows += _kept(name)
    report = {"machine": machine(), "date": date.today().isoformat(), "rows": rows}
    page = _page(report)
    print(page)
    RESULTS.mkdir(exist_ok=True)
    FILE.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    (RESULTS / "README.md").write_text(page, encoding="utf-8")


def _kept(part: str) -> list[dict]:
    """Return the rows of a part that is not measured anew, as they were."""
    rows = json.loads(FILE.read_text(encoding="utf-8"))["rows"] if FILE.exists() else []
    return [row for row in rows if row["part"] == part]


def _texts(folder: Path) -> Path:
    """Write the real texts to a folder as their original files, wherever the course has them."""
    (folder / "ptb").mkdir()
    for split in ("train", "valid", "test"):
        text = datasets.ptb(split, source="real").text
        (folder / "ptb" / f"ptb.{split}.txt").write_text(text, encoding="utf-8")
    text = datasets.wikitext2("valid", source="real").text
    (folder / "wiki.valid.tokens").write_text(text, encoding="utf-8")
    return folder


def machine() -> dict:
    """Return what a measurement depends on."""
    cpu = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next((x.split(":")[1].strip() for x in lines if x.startswith("model name")), cpu)
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "float32 GFLOP/s": round(matmul_gflops()),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }


def _finish(row: dict) -> dict:
    """Add medians, the ratio of the medians, its spread, and whether the target is met."""
    if "beside" in row:
        return row | {"medians": [median(row["ours"])]}
    ours, peer = row["ours"], row["peer"]
    single = [a / b if row["higher_is_better"] else b / a for a, b in zip(ours, peer, strict=True)]
    a, b = median(ours), median(peer)
    ratio = a / b if row["higher_is_better"] else b / a
    spread = [round(float(q), 3) for q in np.quantile(single, [0.25, 0.75])]
    met = ratio >= row["target"]
    return row | {"medians": [a, b], "ratio": round(ratio, 3), "spread": spread, "met": met}


def _page(report: dict) -> str:
    machine = ", ".join(f"{name} {value}" for name, value in report["machine"].items())
    lines = [
        "# Measured side by side",
        "",
        "Written by `make bench`. A ratio above 1 means that ours is better; its spread is the",
        "middle half of the single turns.",
        "",
        f"Machine: {machine}; {report['date']}.",
        "",
        "| work | unit | ours | peer | | ratio | spread | to reach |",
        "|---|---|---|---|---|---|---|---|",
    ]
    rows = [row for row in report["rows"] if "peer" in row]
    for row in rows:
        a, b = (f"{x:,.0f}" if x >= 100 else f"{x:.3g}" for x in row["medians"])
        low, high = row["spread"]
        reach = f"{row['target']:g} {'✓' if row['met'] else '✗ missed'}"
        lines.append(
            f"| {row['work']} | {row['unit']} | {a} | {row['peer_name']} | {b} "
            f"| {row['ratio']:.2f} | {low:.2f} … {high:.2f} | {reach} |"
        )
    notes = [f"- {row['work']}: {row['note']}." for row in rows if row.get("note")]
    footnotes = [
        f"- {row['work']}: {row['medians'][0]:.3g} {row['unit']}; {row['beside']}."
        for row in report["rows"]
        if "beside" in row
    ]
    apart = "Not side by side, and so not in the table:"
    return "\n".join([*lines, "", *notes, "", apart, "", *footnotes]) + "\n"


if __name__ == "__main__":
    main()
