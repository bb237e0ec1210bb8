"""Figures: each draws what it says it draws."""

import matplotlib
import numpy as np
import pytest
import torch

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402

from support import plots  # noqa: E402


@pytest.fixture(autouse=True)
def clean():
    """Close each test's figures and set Matplotlib's defaults again."""
    with plt.rc_context():
        yield
    plt.close("all")


def draws(ax):
    """Return the axes after drawing them, which is when Matplotlib finds what is amiss."""
    ax.figure.canvas.draw()
    return ax


pytestmark = pytest.mark.filterwarnings("error::UserWarning", "error::RuntimeWarning")


def test_the_style_holds_for_figures_made_after_it():
    plots.style()
    fig, ax = plt.subplots()
    colors = [ax.plot([0, 1], [i, i])[0].get_color() for i in range(7)]
    assert tuple(colors) == plots.COLORS and len(set(colors)) == len(set(plots.MARKERS)) == 7
    assert not ax.spines["top"].get_visible() and fig.get_constrained_layout()
    assert ax.imshow(np.eye(2)).get_cmap().name == "cividis"
    draws(ax)


def test_a_single_run_is_one_line_without_a_legend():
    ax = draws(plots.loss_curve([3.0, 2.0, 1.5, 1.0], epochs=2))
    [line] = ax.lines
    np.testing.assert_allclose(line.get_xdata(), [0.5, 1, 1.5, 2])
    np.testing.assert_allclose(line.get_ydata(), [3, 2, 1.5, 1])
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("epochs", "loss (nats)")
    assert ax.get_legend() is None


def test_several_runs_have_a_line_and_a_name_each():
    runs = {"one": [4, 3], "two": np.array([5.0, 4.0, 3.0]), "short": [2]}
    ax = draws(plots.loss_curve(runs, epochs=3, unit="bits"))
    assert [line.get_label() for line in ax.lines] == list(runs)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == list(runs)
    assert [line.get_xdata()[-1] for line in ax.lines] == [3, 3, 3]
    assert [line.get_ydata().tolist() for line in ax.lines] == [[4, 3], [5, 4, 3], [2]]
    assert ax.get_ylabel() == "loss (bits)"


def test_a_running_mean_ends_each_value_where_its_window_ends():
    ax = plots.loss_curve([4, 2, 6, 0, 2], epochs=5, smooth=3)
    np.testing.assert_allclose(ax.lines[0].get_xdata(), [3, 4, 5])
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [4, 8 / 3, 8 / 3])
    short = plots.loss_curve([4, 2], epochs=7, smooth=99).lines[0]
    assert short.get_xdata().tolist() == [7] and short.get_ydata().tolist() == [3]


def test_the_floor_is_a_dashed_line_with_its_value():
    ax = draws(plots.loss_curve([3, 2], floor=1.23456))
    curve, floor = ax.lines
    assert set(floor.get_ydata()) == {1.23456} and floor.get_linestyle() == "--"
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["lowest possible: 1.235"]


def test_a_heat_map_shows_the_matrix_with_its_names_and_scale():
    matrix = [[0.0, 0.25, 1.0], [0.5, 0.75, 0.125]]
    ax = draws(plots.heat_map(matrix, ["x", "y"], ["a", "b", "c"], label="share", digits=2))
    [image] = ax.images
    np.testing.assert_array_equal(image.get_array(), matrix)
    assert [t.get_text() for t in ax.get_xticklabels()] == ["a", "b", "c"]
    assert [t.get_text() for t in ax.get_yticklabels()] == ["x", "y"]
    scale = next(other for other in ax.figure.axes if other is not ax)
    assert scale.get_ylabel() == "share"
    cells = {text.get_position(): text for text in ax.texts}
    assert {position: text.get_text() for position, text in cells.items()} == {
        (j, i): f"{matrix[i][j]:.2f}" for i in range(2) for j in range(3)
    }
    dark, light = cells[0, 0].get_color(), cells[2, 0].get_color()
    assert (dark, light) == ("white", "black"), "numbers must stand out from their cell"


@pytest.mark.parametrize("shape", [(2, 2), (3, 2)])
def test_a_matrix_without_a_name_for_each_line_is_refused(shape):
    with pytest.raises(ValueError, match=r"expected a matrix of 2 rows and 3 columns.*got"):
        plots.heat_map(np.zeros(shape), "ab", "cde", label="x")


def test_image_rows_shows_each_image_in_its_row():
    rows = {"one": np.zeros((3, 2, 2)), "other": torch.ones(2, 1, 2, 2)}
    axes = plots.image_rows(rows).axes
    assert [ax.get_ylabel() for ax in axes] == ["one", "other"]
    for ax, value, n in zip(axes, (0, 1), (3, 2), strict=True):
        (image,) = ax.images
        assert image.get_clim() == (0, 1), "a white image must not be stretched to gray"
        shown = np.full((2, 8), np.nan)  # three tiles of two columns, and two gaps of one
        for i in range(n):
            shown[:, 3 * i : 3 * i + 2] = value
        np.testing.assert_array_equal(image.get_array().filled(np.nan), shown)
