"""The labs: solved notebooks pass, blank ones say so, and each mistake is named.

That a solved notebook runs, and what it prints, is seen where all notebooks are run.
"""

from __future__ import annotations

import ast
import importlib
import json
import re
from contextlib import suppress
from pathlib import Path
from unittest.mock import Mock

import pytest

from support import labs
from support.labs.__main__ import executed, grade, main
from tools.address import ROOT
from tools.format_notebooks import read
from tools.labs import SOLUTION, blank, paths

NAMES = [path.stem for path in paths()]
MISTAKES = {name: importlib.import_module(f"tests.labs.{name}").MISTAKES for name in NAMES}
each_lab = pytest.mark.parametrize("lab", NAMES)


def cells(lab: str, form=lambda notebook: notebook) -> list[str]:
    """Return the code cells of a lab."""
    notebook = form(read(ROOT / "labs" / f"{lab}.ipynb"))
    return [cell.source for cell in notebook.cells if cell.cell_type == "code"]


def check_all(lab: str, code: list[str], only: str = "") -> dict[str, labs.Result]:
    """Return what the checks say of the definitions in some code."""
    space, found = executed(code), {}
    for name, check in labs.checks(lab).items():
        if name.endswith(only):
            parameters = check.__code__.co_varnames[: check.__code__.co_argcount]
            found[name] = labs.check(name, *(space[p] for p in parameters))
    return found


@each_lab
def test_every_check_passes_the_solution_and_is_called_in_the_lab(lab):
    assert all(check_all(lab, cells(lab)).values())
    code = "\n".join(cells(lab))
    assert all(f'labs.check("{name}", ' in code for name in labs.checks(lab))
    assert 5 <= len(labs.checks(lab)) <= 8


@each_lab
def test_blank_lab_has_no_line_of_a_solution_and_fails_every_check(lab):
    empty = cells(lab, blank)
    for said in check_all(lab, empty).values():
        assert ": not written yet (in " in said
    kept = {line.strip() for cell in empty for line in cell.split("\n")}
    for cell in cells(lab):
        for solution in SOLUTION.finditer(cell):
            lines = [line.strip() for line in solution[0].split("\n")[1:-1]]
            assert not {line for line in lines if len(line) > 20} & kept


@pytest.mark.parametrize(
    ("lab", "check", "code", "wrong", "words"),
    [(lab, *mistake) for lab, mistakes in MISTAKES.items() for mistake in mistakes],
)
def test_mistake_is_named(lab, check, code, wrong, words):
    source = "\n\n".join(cells(lab))
    assert code in source
    [said] = check_all(lab, [source.replace(code, wrong)], f".{check}").values()
    assert not said and words in said


@each_lab
def test_six_mistakes_or_more_are_named(lab):
    assert len({words for *_, words in MISTAKES[lab]}) >= 6


@each_lab
def test_code_of_the_lab_is_that_of_its_chapters(lab):
    """Where a chapter has a function or class of that name, one of its versions is the lab's."""

    def trees(path):
        for cell in read(path).cells:
            if cell.cell_type == "code":
                for node in ast.parse(cell.source).body:
                    if isinstance(node, ast.FunctionDef | ast.ClassDef):
                        for part in ast.walk(node):  # docstrings may differ
                            body = getattr(part, "body", [])
                            if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
                                if isinstance(getattr(body[0].value, "value", None), str):
                                    part.body = body[1:]
                        yield node.name, ast.dump(node)

    path = ROOT / "labs" / f"{lab}.ipynb"
    chapters = [ROOT / "chapters" / f"{c}.ipynb" for c in read(path).metadata.lab["chapters"]]
    known = [pair for chapter in chapters for pair in trees(chapter)]
    names = {name for name, _ in known}
    shared = [(name, tree) for name, tree in trees(path) if name in names]
    assert len(shared) >= 3
    assert [name for name, tree in shared if (name, tree) not in known] == []


CALL = re.compile(r"\blabs\.check\(\"([\w.]+)\",\s+([\w, ]+)\)")
EXERCISES = {  # the checks that exercises name, and in which chapter
    found[1]: path
    for path in sorted((ROOT / "chapters").glob("*.ipynb"))
    for cell in read(path).cells
    for found in CALL.finditer(cell.source)
    if not found[1][0].isdigit()
}
WRONG = importlib.import_module("tests.labs.chapters").MISTAKES
each_exercise = pytest.mark.parametrize("name", EXERCISES)


def answers(name: str, code: str = "", wrong: str = "") -> list:
    """Return what the chapter defines for a check of an exercise, some code of it replaced."""
    called = labs.checks(name.partition(".")[0])[name].__code__
    names, space = called.co_varnames[: called.co_argcount], {}
    for source in (c.source for c in read(EXERCISES[name]).cells if c.cell_type == "code"):
        if re.search(rf"^(def|class) {names[0]}\b", source, re.MULTILINE):
            assert code in source
            source = source.replace(code, wrong)
        for node in ast.parse(source).body:
            if isinstance(node, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef):
                with suppress(Exception):  # it may need what the chapter has computed
                    exec(compile(ast.Module([node], []), "answer", "exec"), space)
    return [space[n] for n in names]


@each_exercise
def test_exercise_names_its_check_and_its_solution_passes(name):
    cells = [cell for cell in read(EXERCISES[name]).cells if f'labs.check("{name}",' in cell.source]
    calls = [CALL.search(cell.source)[2] for cell in cells]
    assert [cell.cell_type for cell in cells] == ["markdown", "code"] and len(set(calls)) == 1
    assert labs.check(name, *answers(name))


@each_exercise
def test_answer_that_is_not_written_says_so(name):
    blank = Mock(side_effect=NotImplementedError)
    assert labs.check(name, blank, *answers(name)[1:]).startswith(f"{name}: not written yet")


@pytest.mark.parametrize(
    ("name", "code", "wrong", "words"),
    [(f"chapters.{m[0]}", *m[1:]) for m in WRONG if f"chapters.{m[0]}" in EXERCISES],
)
def test_mistake_in_an_exercise_is_named(name, code, wrong, words):
    said = labs.check(name, *answers(name, code, wrong))
    assert not said and words in said


def test_each_check_of_an_exercise_knows_two_mistakes():
    known = [mistake[0] for mistake in WRONG]
    assert [n for n in labs.checks("chapters") if known.count(n.partition(".")[2]) < 2] == []


def test_a_check_says_what_was_expected_and_what_was_got():
    assert "expected ['aa', 'a', 'b'], got None" in labs.check("bpe.merge", lambda s, pair: None)
    with pytest.raises(AssertionError, match="expected 1, got 1.00000[23]"):
        labs.expect(1.0000025, 1.0, "numbers that look equal")
    with pytest.raises(ValueError, match="no check 'bpe.split': there are bpe.count_pairs, "):
        labs.check("bpe.split", None)
    with pytest.raises(ValueError, match="no lab 'bpf': there are "):
        labs.check("bpf.merge", None)


def test_progress_keeps_what_the_file_says_of_checks_not_tried_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(labs, "_results", {})
    assert "got None. Look" in labs.check("bpe.merge", Mock(side_effect=ValueError("got\nNone.")))
    old = {f"bpe.{name}": f"bpe.{name}: passed" for name in ("learn", "merge")}
    Path("bpe.json").write_text(json.dumps(old))
    assert labs.progress("bpe").startswith("1 of 6; to be done: bpe.count_pairs, bpe.merge, ")
    assert "got None" in (said := json.loads(Path("bpe.json").read_text()))["bpe.merge"]
    assert said["bpe.learn"] == "bpe.learn: passed" and "not tried" in said["bpe.merge_some"]


EVIL = {
    "count_pairs": "import os; os._exit(0)",
    "merge": "while True: pass",
    "learn": "print('x' * 10**9); exit()",
    "apply_merges": "from support import labs; labs.check = labs.expect = lambda *a, **k: None",
}


def test_grading_survives_answers_that_exit_hang_print_or_cheat(tmp_path):
    bodies = [f"def {name}(*_, **__):\n    {body}\n" for name, body in EVIL.items()]
    (tmp_path / "bpe.py").write_text("\n".join([*cells("bpe"), *bodies]))
    said = grade(tmp_path / "bpe.py", "bpe", seconds=20)
    for name, words in (
        ("count_pairs", "the answer ends the program"),
        ("merge", "took longer than 20 seconds"),
        ("learn", "the answer ends the program"),
        ("apply_merges", "expected ['a', 'bc'], got None"),
    ):
        assert words in said[f"bpe.{name}"]
    assert labs.Result(said["bpe.merge_some"])


@pytest.mark.exhaustive
def test_thirty_files_give_thirty_rows(tmp_path):
    files = [tmp_path / f"{i}.py" for i in range(30)]
    for i, file in enumerate(files):
        name, body = list(EVIL.items())[i % 4]
        evil = f"def {name}(*_, **__):\n    {body}\n" if i < 4 else ""
        file.write_text("\n".join([*cells("bpe"), evil]))
    assert main(["grade", *map(str, files), "--lab", "bpe", "--json", str(tmp_path / "said")]) == 1
    said = json.loads((tmp_path / "said").read_text())
    assert [sum(map(bool, map(labs.Result, row.values()))) == 6 for row in said.values()] == (
        [False] * 4 + [True] * 26
    )
