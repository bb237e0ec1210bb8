"""What is installed and what CI runs: requirements, locks, the environment, workflows."""

from __future__ import annotations

import functools
import hashlib
import inspect
import os
import re
import shutil
import subprocess
import sys
import zipfile

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools import address

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

ROOT = address.ROOT
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
SYSTEMS = {
    "ubuntu-latest": ("linux", "Linux", "posix", "x86_64"),
    "macos-latest": ("darwin", "Darwin", "posix", "arm64"),
    "windows-latest": ("win32", "Windows", "nt", "AMD64"),
}
# Each lock with the requirements it answers and the Pythons it is for.
LOCKS = {
    "requirements-book.lock": ("requirements-book.txt", PYTHONS),
    "requirements.lock": ("requirements.txt", PYTHONS),
    "requirements-dev.lock": ("requirements-dev.txt", PYTHONS),
    "requirements-torchtext.lock": ("requirements-torchtext.txt", PYTHONS[:3]),
    "requirements-oldest.lock": ("requirements-dev.txt", PYTHONS[:1]),
}
needs_sh = pytest.mark.skipif(os.name == "nt", reason="make and its scripts are for POSIX systems")


def text(name: str) -> str:
    """Return the text of one of the repository's files."""
    return (ROOT / name).read_text(encoding="utf-8")


def required(name: str) -> list[Requirement]:
    """Return the requirements of a file and of those that it names with -r."""
    found = []
    for line in text(name).splitlines():
        line = re.sub(r"(^|\s)#.*", "", line).strip()
        if line.startswith("-r "):
            found += required(line[3:].strip())
        elif line:
            found.append(Requirement(line))
    return found


# Requirements.


def test_readers_get_every_dependency_and_no_torchtext():
    reader = {r.name: r.specifier for r in required("requirements.txt")}
    for line in PROJECT["project"]["dependencies"]:
        needed = Requirement(line)
        assert reader[needed.name] == needed.specifier, needed.name
    assert "torchtext" not in {r.name for r in required("requirements-dev.txt")}
    assert "torchtext==0.18.0" in map(str, required("requirements-torchtext.txt"))


def test_a_build_needs_no_pytorch():
    names = {canonicalize_name(entry.name) for entry, _ in entries(text("requirements-book.lock"))}
    assert "jupyter-book" in names
    assert not {name for name in names if re.match(r"torch|nvidia|transformers|scipy", name)}


# Lock files.


@functools.cache
def entries(content: str) -> list[tuple[Requirement, list[str]]]:
    """Return each pinned release of a lock with what follows it: its checksums."""
    logical = content.replace("\\\n", " ").splitlines()
    split = [re.split(r"\s+(?=--)", line.strip()) for line in logical if not line.startswith("#")]
    return [(Requirement(first), rest) for first, *rest in split if first]


def place(python: str, system: str) -> dict[str, str]:
    """Return the markers of a CPython on one of the systems."""
    sys_platform, platform_system, os_name, machine = SYSTEMS[system]
    return {
        "python_version": python,
        "python_full_version": f"{python}.9",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "sys_platform": sys_platform,
        "platform_system": platform_system,
        "os_name": os_name,
        "platform_machine": machine,
    }


def pinned(content: str, where: dict[str, str]) -> dict[str, str]:
    """Return name → version of what a lock installs in one place; two versions are an error."""
    found: dict[str, str] = {}
    for entry, _ in entries(content):
        if entry.marker is None or entry.marker.evaluate(where):
            name = canonicalize_name(entry.name)
            assert name not in found, f"{name} is pinned twice"
            found[name] = str(entry.specifier).removeprefix("==")
    return found


def unmet(content: str, asked: list[Requirement], where: dict[str, str]) -> list[str]:
    """Return the requirements to which no release of the lock answers in one place."""
    have = pinned(content, where)
    return [
        str(one)
        for one in asked
        if (one.marker is None or one.marker.evaluate(where))
        and not (
            (version := have.get(canonicalize_name(one.name)))
            and one.specifier.contains(version, prereleases=True)
        )
    ]


@pytest.mark.parametrize("lock", LOCKS)
def test_lock_answers_its_requirements_everywhere(lock):
    source, pythons = LOCKS[lock]
    asked = required(source) + [Requirement(line) for line in PROJECT["build-system"]["requires"]]
    for python in pythons:
        for system in SYSTEMS:
            assert unmet(text(lock), asked, place(python, system)) == [], (python, system)


@pytest.mark.parametrize("lock", LOCKS)
def test_lock_has_only_releases_with_checksums(lock):
    content = text(lock)
    assert content.splitlines()[1] == "#    tools/lock.sh", "the header names the command"
    assert len(entries(content)) > 100
    for entry, rest in entries(content):
        assert re.fullmatch(r"==[\w.+!]+", str(entry.specifier)), entry
        assert entry.url is None, entry
        assert rest and all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", x) for x in rest), entry
    assert not re.search(r"://|^\s*-[a-z-]", re.sub(r"^    --hash=", "", content, flags=re.M), re.M)


def test_a_stale_lock_is_found():
    asked = [Requirement("a>=2"), Requirement("b-c"), Requirement("d; sys_platform == 'win32'")]
    here, there = place("3.10", "ubuntu-latest"), place("3.13", "windows-latest")
    lock = (
        "a==2.1 \\\n    --hash=sha256:0\nb-c==1 ; python_version < '3.11' \\\n    --hash=sha256:1"
    )
    assert unmet(lock, asked, here) == []
    assert unmet(lock, asked, there) == ["b-c", 'd; sys_platform == "win32"']
    assert unmet(lock.replace("2.1", "1.9"), asked, here) == ["a>=2"]
    with pytest.raises(AssertionError, match="a is pinned twice"):
        unmet(lock + "\na==2.2 ; python_full_version < '3.12'\n", asked, here)


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("system", SYSTEMS)
def test_builds_readers_and_tests_have_the_same_releases(python, system):
    where = place(python, system)
    names = ("requirements-book.lock", "requirements.lock", "requirements-dev.lock")
    book, reader, dev = (pinned(text(name), where) for name in names)
    assert book.items() <= reader.items() <= dev.items()


def test_the_oldest_lock_is_the_oldest():
    have = pinned(text("requirements-oldest.lock"), place("3.10", "ubuntu-latest"))
    assert have["torch"].startswith("2.3.") and have["numpy"].startswith("1.26.")
    lowest = 0
    for one in required("requirements-dev.txt"):
        bound = re.search(r">=([\d.]+)", str(one.specifier))[1].split(".")
        got = have[canonicalize_name(one.name)].split(".")
        lowest += got[: len(bound)] == bound
    assert lowest >= 0.9 * len(required("requirements-dev.txt")), "a bound is not tried"


# The environment.


@needs_sh
def test_environment_refuses_an_old_python(tmp_path):
    old = tmp_path / "python3.8"
    pretend = "import sys; sys.version_info = (3, 8, 18); exec(sys.argv[1])"
    old.write_text(
        '#!/bin/sh\n[ "$1" != --version ] || { echo Python 3.8.18; exit; }\n'
        f'[ "$1" = -c ] && exec "{sys.executable}" -c "{pretend}" "$2"\n'
    )
    old.chmod(0o755)
    command = ["sh", "tools/environment.sh", str(tmp_path / "env"), "requirements.txt"]
    environment = {**os.environ, "PYTHON": str(old)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert "needs Python 3.10 or newer" in done.stderr and "is Python 3.8.18" in done.stderr
    assert not (tmp_path / "env").exists()


@needs_sh
def test_environment_is_left_alone_while_nothing_changes(tmp_path):
    """The stamp depends on the contents of the files, and on no times."""
    own = {**os.environ, "UV": ""}
    copy = tmp_path / "copy"
    (copy / "tools").mkdir(parents=True)
    shutil.copy(ROOT / "tools" / "environment.sh", copy / "tools")
    shutil.copy(ROOT / "pyproject.toml", copy)
    for path in ROOT.glob("requirements*.*"):
        shutil.copy(path, copy)
    (copy / "env" / "bin").mkdir(parents=True)
    pretend = copy / "env" / "bin" / "python"
    pretend.write_text('#!/bin/sh\necho "$@" >>calls\n')
    pretend.chmod(0o755)

    def calls() -> list[str]:
        """Return the calls of pip install until now."""
        return [line for line in (copy / "calls").read_text().splitlines() if " install" in line]

    def installs(*names: str) -> int:
        """Run the script and return how many times it has called pip install by now."""
        command = ["sh", "tools/environment.sh", "env", *names]
        subprocess.run(command, cwd=copy, env=own, check=True, capture_output=True)
        return len(calls())

    assert installs("requirements-book.txt") == installs("requirements-book.txt") == 1
    assert calls() == ["-m pip install --quiet --quiet -r requirements-book.txt"]
    (copy / "calls").unlink()

    both = ("requirements.txt", "requirements-dev.txt")
    assert installs("requirements.txt") == 1
    assert calls()[0].endswith("-r requirements.txt -e .")
    (copy / "requirements.txt").touch()
    assert installs("requirements.txt") == 1
    assert installs(*both) == 2
    assert installs(*both) == installs("requirements.txt") == 2
    before = (copy / "requirements-dev.txt").read_bytes()
    (copy / "requirements-dev.txt").write_bytes(before + b"# more\n")
    assert installs("requirements.txt") == 3
    (copy / "requirements-dev.txt").write_bytes(before)
    assert installs(*both) == 4, "what was installed for the old contents may be gone"
    copy = copy.rename(tmp_path / "moved")
    assert installs(*both) == 5, "the environment holds the checkout's place"

    locked = ("requirements.lock", "requirements-dev.lock")
    assert installs(*locked) == installs("requirements.lock") == 7
    assert "--require-hashes -r requirements-dev.lock" in calls()[5]
    assert {"--no-index", "--no-deps", "--no-build-isolation"} <= set(calls()[6].split())
    assert not any("--require-hashes" in call for call in calls()[:5])
    with (copy / "requirements.lock").open("a") as lock:
        lock.write("# more\n")
    assert installs(*locked) == 9
    assert installs(*both) == 10, "newer releases than the lock's are wanted again"


def wheel(folder: str, name: str) -> str:
    """Write the wheel of an empty package and return its file name."""
    file, info = f"{name}-1-py3-none-any.whl", f"{name}-1.dist-info"
    with zipfile.ZipFile(f"{folder}/{file}", "w") as archive:
        archive.writestr(f"{name}.py", "")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return file


BACKEND = f"""
import zipfile

{inspect.getsource(wheel)}

def build_editable(folder, config_settings=None, metadata_directory=None):
    return wheel(folder, "course")
"""


SAID = {
    "pip": ("DO NOT MATCH THE HASHES", "Hashes are required"),
    "uv": ("Hash mismatch", "all requirements must have a hash"),
}


@needs_sh
@pytest.mark.exhaustive  # makes environments: half a minute
@pytest.mark.parametrize("installer", SAID)
def test_a_download_without_its_checksum_is_refused(tmp_path, installer):
    """By the installer itself, in an environment made for it, without the network."""
    if installer == "uv" and not shutil.which("uv"):
        pytest.skip("uv is not on PATH")
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "environment.sh", tmp_path / "tools")
    (tmp_path / "backend.py").write_text(BACKEND)
    (tmp_path / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    (tmp_path / "requirements.txt").write_text("needed\n")
    body = (tmp_path / wheel(str(tmp_path), "needed")).read_bytes()
    own = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}
    own |= {"UV": "", "PYTHON": sys.executable}
    if installer == "uv":
        own |= {"UV": "uv", "UV_NO_INDEX": "1", "UV_FIND_LINKS": str(tmp_path), "UV_NO_CONFIG": "1"}
        own["UV_CACHE_DIR"] = str(tmp_path / "cache")

    def install(line: str) -> tuple[subprocess.CompletedProcess, set[str]]:
        """Install from a lock of this line; return what came of it."""
        lock = tmp_path / "requirements.lock"
        lock.write_text(f"{line}\n")
        done = subprocess.run(
            ["sh", "tools/environment.sh", "env", lock.name],
            cwd=tmp_path,
            env={**os.environ, **own},
            capture_output=True,
            text=True,
        )
        packages = tmp_path.glob("env/lib/python*/site-packages/*.py")
        stamps = tmp_path.glob("env/installed-*")
        return done, {path.name for path in (*packages, *stamps)}

    ours = {"needed.py", "course.py", "installed-requirements.lock"}
    right, wrong = (hashlib.sha256(b).hexdigest() for b in (body, body + b"."))
    lines = (f"needed==1 --hash=sha256:{wrong}", "needed==1")
    for line, said in zip(lines, SAID[installer], strict=True):
        done, installed = install(line)
        assert done.returncode != 0 and said in done.stderr, done.stderr
        assert not ours & installed
    done, installed = install(f"needed==1 --hash=sha256:{right}")
    assert done.returncode == 0, done.stderr
    assert ours <= installed


@needs_sh
@pytest.mark.skipif(not shutil.which("make"), reason="no make on this machine")
@pytest.mark.parametrize(
    ("arguments", "installed"),
    [
        ("setup-book", "requirements-book.txt"),
        ("setup", "requirements-book.txt requirements.txt"),
        ("setup-dev", "requirements-book.txt requirements.txt requirements-dev.txt"),
        ("setup-book LOCKED=1", "requirements-book.lock"),
        ("setup-dev LOCKED=1", "requirements-book.lock requirements.lock requirements-dev.lock"),
        (
            "setup-dev LOCKED=1 REQUIREMENTS=requirements-torchtext.txt",
            "requirements-torchtext.lock",
        ),
        ("setup-dev REQUIREMENTS=requirements-torchtext.txt", "requirements-torchtext.txt"),
    ],
)
def test_make_installs_from_the_lock_when_asked(arguments, installed):
    own = {"LOCKED", "REQUIREMENTS", "VENV", "MAKEFLAGS"}
    environment = {name: value for name, value in os.environ.items() if name not in own}
    command = ["make", "--no-print-directory", "--dry-run", *arguments.split()]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == f'tools/environment.sh ".venv" {installed}', done.stderr


# Workflows.

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
USES = re.compile(r"^\s*(?:- )?uses: ([\w./-]+)@([0-9a-f]{40})  # v\d+\.\d+\.\d+$", re.M)


def steps(workflow: dict) -> list[dict]:
    """Return the steps of all jobs."""
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def faults(content: str) -> list[str]:
    """Return what is careless in a workflow."""
    workflow = yaml.safe_load(content)
    found = []
    if len(USES.findall(content)) != sum("uses" in step for step in steps(workflow)):
        found.append("an action is not pinned by commit with its version in a comment")
    if workflow.get("permissions") != {"contents": "read"}:
        found.append("permissions of the whole are not just contents: read")
    if "pull_request_target" in workflow[True]:  # YAML 1.1 reads the key `on` as true
        found.append("runs a stranger's code with our rights")
    for name, job in workflow["jobs"].items():
        if "write" in job.get("permissions", {}).values() and any(
            re.search(r"pip|make|\.ci|python", step.get("run", "")) for step in job["steps"]
        ):
            found.append(f"{name}: installs or runs packages with leave to write")
    for step in steps(workflow):
        if "${{" in step.get("run", ""):
            found.append("text is put into a command; hand it over in env")
        if "checkout@" in step.get("uses", "") and step["with"]["persist-credentials"]:
            found.append("the checkout leaves its token behind")
    return found


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflow_is_careful(path):
    assert faults(path.read_text(encoding="utf-8")) == []


CARELESS = {
    "an action is not pinned": (r"@[0-9a-f]{40}  # v[\d.]+", "@v4"),
    "an action is not": (r"(@[0-9a-f]{40})  # v[\d.]+", r"\1"),
    "permissions of the whole": (
        r"^permissions:\n  contents: read",
        "permissions:\n  contents: write",
    ),
    "runs a stranger's code": (r"^on:\n", "on:\n  pull_request_target:\n"),
    "with leave to write": (r"^    env:\n", "    permissions: {issues: write}\n    env:\n"),
    "text is put into a command": (
        r"run: \.ci/run",
        "run: echo ${{ github.event.head_commit.message }}",
    ),
    "leaves its token": (r"persist-credentials: false", "persist-credentials: true"),
}


@pytest.mark.parametrize("fault", CARELESS)
def test_a_careless_workflow_is_found(fault):
    content = text(".github/workflows/test.yml")
    changed, times = re.subn(*CARELESS[fault], content, count=1, flags=re.M)
    assert times == 1
    assert any(fault in found for found in faults(changed)), faults(changed)


def test_ci_runs_all_tests():
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    assert text(".ci/run").split("\n\n")[-1].split() == "make test-all make test-torchtext".split()
    for name, command in {"test": ".ci/run", "weekly": ".ci/run", "pages": "make book-zh"}.items():
        workflow = yaml.safe_load(text(f".github/workflows/{name}.yml"))
        assert any(step.get("run") == command for step in steps(workflow)), name
