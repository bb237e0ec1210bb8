"""What is folded does not interrupt the text: small marks, at the figure or at a section's end."""

from __future__ import annotations

import pytest

from tests.browser import Tab

MEASURE = """() => [...document.querySelectorAll("main details.hide")].map((fold) => {
  const [box, cell] = [fold.getBoundingClientRect(), fold.closest(".cell")];
  const figure = cell.querySelector(":scope > .cell_output img")?.getBoundingClientRect();
  const kind = [...cell.classList].find((name) => /^tag_(setup|settings|plot|checks)$/.test(name));
  return [kind, box.width > cell.clientWidth / 2, figure ? box.top - figure.bottom : null];
})"""


@pytest.mark.parametrize("name", ["chapters/word2vec.html", "chapters/pretrained_models.html"])
def test_folds_are_small_marks(browser, origin, name):
    tab = Tab(browser, origin, math=False)
    tab.open(name)
    folds = tab.page.evaluate(MEASURE)
    tab.context.close()
    assert sorted(kind for kind, bar, _ in folds if bar) == ["tag_settings", "tag_setup"]
    # A cell that prints a table, and draws nothing, has no gap.
    gaps = [gap for kind, _, gap in folds if kind == "tag_plot" and gap is not None]
    assert gaps and all(0 <= gap < 100 for gap in gaps), "below the figure and its caption"
