"""Every answer of an exam has a second way to it, and no question of it is ill-posed."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from random import Random

import pytest

from tools import exam
from tools.exam_kinds import KINDS, bugs

ALL = [*exam.WEEKS]


def drawn(name, n=400):
    """Return the well-posed questions of a kind among those drawn from n seeds."""
    made = (replace(KINDS[name].draw(Random(seed)), kind=KINDS[name]) for seed in range(n))
    return [question for question in made if not exam.ill_posed(question)]


@pytest.fixture(scope="module")
def exams():
    return [exam.compose(seed, ALL) for seed in range(1000, 1200)]


def test_answers_of_200_exams_are_confirmed_and_well_posed(exams):
    for asked in exams:
        for question in asked:
            assert exam.check(question) is None, question.text
            assert exam.ill_posed(question) is None, question.text
        assert max(Counter(question.kind.name for question in asked).values()) == 1
        order = [[*KINDS].index(question.kind.name) for question in asked]
        assert len(asked) == 8 and order == sorted(order), "in the order of the book"
    assert {question.kind.name for asked in exams for question in asked} == {*KINDS}


def test_same_seed_gives_same_exam(exams):
    texts = [[question.text for question in asked] for asked in exams]
    assert [question.text for question in exam.compose(1000, ALL)] == texts[0]
    assert len({*map(str, texts)}) == len(texts), "and another seed another exam"


@pytest.mark.parametrize("name", KINDS)
def test_kind_has_several_answers_and_a_changed_one_is_refused(name):
    questions = drawn(name)
    assert len({str(question.answers) for question in questions}) > 1
    for question in questions[:3]:
        for part, value in question.answers.items():
            assert exam.check(replace(question, answers=question.answers | {part: changed(value)}))


def changed(value):
    """Return another answer: in the third digit, if it is rounded."""
    if isinstance(value, tuple):
        return (*value[:-1], changed(value[-1]))
    return value + "," if isinstance(value, str) else value * 1.02 if value % 1 else value + 1


def test_more_questions_than_kinds_repeat_kinds_but_no_question():
    (kind,) = (name for name in KINDS if KINDS[name].chapter in exam.WEEKS[2])
    asked = exam.compose(5, [2], 6)
    assert {question.kind.name for question in asked} == {kind}
    assert len({question.text for question in asked}) == 6


def test_weeks_choose_the_kinds(capsys):
    assert exam.week_numbers("1-3, 8") == [1, 2, 3, 8]
    assert {kind.chapter for kind in KINDS.values()} <= {c for w in exam.WEEKS.values() for c in w}
    for week in ALL:
        asked = exam.compose(0, [week], 2)
        assert {question.kind.chapter for question in asked} <= {*exam.WEEKS[week]}
    for said in ("11", "0-2", "5-3", "two", ""):
        with pytest.raises(SystemExit):
            exam.main(["--seed", "7", "--weeks", said])
        assert f"no week {said!r} in 'Ten weeks with labs'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"ranked": [[1, 5, 5]]}, "a tie"),
        ({"answers": {"(a)": 0.4445}}, "rounding changes"),
        ({"answers": {"(a)": 0.5}}, "read off"),
        ({"answers": {"(a)": Fraction(123_456_789)}}, "eight digits"),
        ({"answers": {"(a)": 0.012}}, "close to zero"),
        ({"given": ""}, r"no values of \sigma("),
    ],
)
def test_ill_posed_question_is_refused(changes, reason):
    question = next(q for q in drawn("neuron") if "0.5" in q.text)
    assert reason in exam.ill_posed(replace(question, **changes))


def test_listings_are_those_of_the_chapter():
    assert len(bugs()) >= 12
    for bug in bugs():
        assert bug["quoted"] in bug["wrong"][bug["changed"]]
        assert bug["wrong"] != bug["right"]


def test_notebooks_and_pdfs(browser, tmp_path):
    pypdf = pytest.importorskip("pypdf")
    asked = exam.compose(7, ALL)
    pages = exam.write(asked, "seed 7", tmp_path)
    exam.print_in(browser, pages, tmp_path)
    names = {"exam.ipynb", "answers.ipynb", "exam.pdf", "answers.pdf"}
    assert {path.name for path in tmp_path.iterdir()} == names
    points = sum(question.kind.points for question in asked)
    for name in pages:
        printed = pypdf.PdfReader(tmp_path / f"{name}.pdf")
        text = " ".join(sheet.extract_text() for sheet in printed.pages)
        assert f"{points} points" in text and "\\" not in text, "formulas are typeset"
        assert ("Marking." in text) == (name == "answers")
        titles = [bookmark.title for bookmark in printed.outline[1]]
        assert [q.kind.title in t for q, t in zip(asked, titles, strict=True)] == [True] * 8
