"""What the lecture documents ask for is treated where lecture_items.tsv and the map say."""

import re
from functools import cache

from tools.address import ROOT
from tools.format_notebooks import read

START = re.compile(r"^(?:#+ +(.+?) *|`+\{exercise\}.*\n:label: (\S+))$", re.M)


@cache
def sections(page: str) -> dict[str, str]:
    """Return the source of each section and exercise of a notebook, its white space made even."""
    marked = ""
    for cell in read(ROOT / page).cells:
        mark = "\n\0\\1\\2\n" if cell.cell_type == "markdown" else r"\g<0>"
        marked += START.sub(mark, cell.source) + "\n"
    parts = (part.partition("\n") for part in marked.split("\0")[1:])
    return {title: " ".join(text.split()) for title, _, text in parts}


def test_items_and_rows_of_the_map_lead_to_their_sections():
    file, topics = ROOT / "tests" / "lecture_items.tsv", ROOT / "appendix" / "lecture_map.md"
    rows = [line.split("\t") for line in file.read_text(encoding="utf-8").splitlines()[1:]]
    lost = [r for r in rows if r[3] not in sections(r[1]).get(r[2].removeprefix("exercise "), "")]
    assert len({item for item, *_ in rows}) == len(rows) and not lost, f"mend {file}"
    links = re.findall(r"\]\(\.\./([^#)]+)#([^)]+)\)", topics.read_text(encoding="utf-8"))
    titles = {(p, re.sub(r"[^\w -]", "", s)) for p in dict(links) for s in sections(p)}
    lost = {*links} - {(page, title.lower().replace(" ", "-")) for page, title in titles}
    assert links and not lost, f"mend {topics}"
