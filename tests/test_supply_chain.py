"""What is installed and what CI runs: requirements, locks, the environment, workflows."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.address import ROOT

PYTHONS = ("3.10", "3.11", "3.12", "3.13")
SYSTEMS = {
    "linux": ("Linux", "x86_64"),
    "darwin": ("Darwin", "arm64"),
    "win32": ("Windows", "AMD64"),
}
# Each lock with the requirements it answers and the Pythons it is for.
LOCKS = {
    "book": ("requirements/book.txt", PYTHONS),
    "reader": ("requirements.txt", PYTHONS),
    "dev": ("requirements/dev.txt", PYTHONS),
    "torchtext": ("requirements/torchtext.txt", PYTHONS[:3]),
    "oldest": ("requirements/dev.txt", PYTHONS[:1]),
}
PLACES = [(python, system) for python in PYTHONS for system in SYSTEMS]
# These tests may run within make, with options of its own.
OWN = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL", "LOCKED", "VENV")}
needs_make = pytest.mark.skipif(os.name == "nt" or not shutil.which("make"), reason="needs make")


def required(name: str) -> list[Requirement]:
    """Return the requirements of a file and of those that it names with -r."""
    found = []
    for line in (ROOT / name).read_text(encoding="utf-8").splitlines():
        line = re.sub(r"(^|\s)#.*", "", line).strip()
        if line.startswith("-r "):
            path = ((ROOT / name).parent / line[3:].strip()).resolve()
            found += required(path.relative_to(ROOT.resolve()).as_posix())
        elif line:
            found.append(Requirement(line))
    return found


def entries(lock: str) -> list[tuple[Requirement, str]]:
    """Return each pinned release of a lock with what follows it: its checksums."""
    text = (ROOT / "requirements" / f"{lock}.lock").read_text(encoding="utf-8")
    lines = re.sub(r"^#.*\n", "", text.replace("\\\n", " "), flags=re.M).splitlines()
    split = [re.split(r"\s+(?=--)", line, maxsplit=1) for line in lines]
    return [(Requirement(release), checksums) for release, checksums in split]


def pinned(lock: str, python: str, system: str) -> dict[str, str]:
    """Return name → version of what a lock installs in one place."""
    platform, machine = SYSTEMS[system]
    where = {"python_version": python, "python_full_version": f"{python}.9", "sys_platform": system}
    where |= {"platform_system": platform, "platform_machine": machine}
    where |= {"os_name": "nt" if system == "win32" else "posix", "implementation_name": "cpython"}
    where["platform_python_implementation"] = "CPython"
    here = [e for e, _ in entries(lock) if e.marker is None or e.marker.evaluate(where)]
    return {canonicalize_name(e.name): str(e.specifier).removeprefix("==") for e in here}


@pytest.mark.parametrize("lock", LOCKS)
def test_lock_answers_its_requirements_and_has_checksums(lock):
    source, pythons = LOCKS[lock]
    for entry, checksums in entries(lock):
        assert re.fullmatch(r"==[\w.+!]+", str(entry.specifier)), f"{lock}.lock: {entry}"
        assert re.fullmatch(r"(--hash=sha256:[0-9a-f]{64}\s*)+", checksums), f"{lock}.lock: {entry}"
    for python, system in PLACES:
        have = pinned(lock, python, system) if python in pythons else {}
        for one in required(source) if have else []:
            version = have.get(canonicalize_name(one.name), "none")
            message = f"{lock}.lock has {version} of {one}: run `make lock`"
            assert version != "none" and one.specifier.contains(version, prereleases=True), message


def test_builds_readers_and_tests_have_the_same_releases_and_builds_no_pytorch():
    for where in PLACES:
        book, reader, dev = (pinned(lock, *where) for lock in ("book", "reader", "dev"))
        assert book.items() <= reader.items() <= dev.items()
        assert not [name for name in book if re.match("torch|nvidia|transformers|scipy", name)]


@needs_make
def test_environment_is_left_alone_while_nothing_changes(tmp_path):
    """In a folder with a space; Python is a script that notes how it was called."""
    copy = tmp_path / "a copy"
    (copy / "tools").mkdir(parents=True)
    for name in ("tools/environment.sh", "pyproject.toml", "requirements.txt", "Makefile"):
        shutil.copy(ROOT / name, copy / name)
    shutil.copytree(ROOT / "requirements", copy / "requirements")
    (copy / ".venv" / "bin").mkdir(parents=True)
    pretend = copy / ".venv" / "bin" / "python"
    pretend.write_text('#!/bin/sh\necho "$@" >>calls\n')
    pretend.chmod(0o755)

    def installs(*arguments: str) -> list[str]:
        """Run make; return what pip was asked to install."""
        (copy / "calls").write_text("")
        subprocess.run(["make", *arguments], cwd=copy, env={**OWN, "UV": ""}, check=True)
        return re.findall(r"install --quiet --quiet (.*)", (copy / "calls").read_text())

    assert installs("setup-book") == ["-r requirements/book.txt"] and not installs("setup-book")
    assert installs("setup-dev") == ["-r requirements/dev.txt -e ."]
    assert not installs("setup-dev") and not installs("setup") and not installs("setup-book")
    assert installs("setup", "LOCKED=1")[0] == "--require-hashes -r requirements/reader.lock"
    (copy / "requirements" / "bench.txt").write_text("more\n")
    assert installs("setup") == ["-r requirements.txt -e ."], "what changed may be of no use now"


@needs_make
def test_make_takes_names_as_they_are(tmp_path):
    """Spaces, brackets, quotes, what the shell expands, and what make does."""
    names = {"TEXT": "my texts/it's [1] *?::$b.txt", "OUT": "a `model`", "NB": 'my "book" $x.ipynb'}
    (tmp_path / "python").write_text('#!/bin/sh\nfor word; do echo "<$word>"; done\n')
    (tmp_path / "python").chmod(0o755)
    for target, given in {"pretrain": ("TEXT", "OUT"), "run": ("NB",)}.items():
        asked = ["make", "-n", target, *(f"{name}={names[name]}" for name in given)]
        shown = subprocess.check_output(asked, cwd=ROOT, env=OWN, text=True)
        command = shown.splitlines()[-1].replace(".venv/bin/python", str(tmp_path / "python"))
        said = subprocess.run(["sh", "-c", command], capture_output=True, text=True).stdout
        assert all(f"<{names[name]}>" in said.splitlines() for name in given), said


@pytest.mark.parametrize("path", sorted((ROOT / ".github/workflows").glob("*.yml")), ids=str)
def test_workflow_is_careful(path):
    content = path.read_text(encoding="utf-8")
    workflow = yaml.safe_load(content)
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    by_commit = re.findall(r"uses: [\w./-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+$", content, re.M)
    assert len(by_commit) == sum("uses" in step for step in steps), "pin each action by its commit"
    assert workflow["permissions"] == {"contents": "read"}
    assert "pull_request_target" not in workflow[True], "it runs a stranger's code with our rights"
    for step in steps:
        assert "${{" not in step.get("run", ""), f"hand it over in env: {step['run']}"
        if "checkout@" in step.get("uses", ""):
            assert not step["with"]["persist-credentials"], "the checkout leaves its token behind"
