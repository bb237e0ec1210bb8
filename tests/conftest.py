"""What all tests share: they run in the smallest profile, and none reaches another machine."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from collections import Counter

import pytest

os.environ.setdefault("PRETRAIN_PROFILE", "smoke")

# Names that by RFC 2606 and 6761 belong to nobody: a test may use them for an address that is down.
NOBODYS = (".test", ".example", ".invalid", "example.com", "example.net", "example.org")


def _is_here(host: str) -> bool:
    """Return whether the host is this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host in ("", "localhost", socket.gethostname())


TALLY, EXAMPLES = pytest.StashKey[list[str]](), pytest.StashKey[Counter]()
COUNTS = re.compile(r"(\d+) (passing|failing|invalid)")


def pytest_configure(config):
    config.stash[TALLY], config.stash[EXAMPLES] = [], Counter()


@pytest.fixture
def tally(request):
    """Return a function that takes a line for the end of the test log, printed in any case."""
    return request.config.stash[TALLY].append


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item):
    """Count the examples that hypothesis tries in a test."""
    try:
        return (yield)
    finally:
        # Hypothesis leaves them here as text, such as "97 passing examples, 0 failing examples".
        text = getattr(item, "hypothesis_statistics", "")
        found = {kind: 0 for kind in ("tests", "passing", "failing", "invalid")}
        found["tests"] += bool(text)
        for number, kind in COUNTS.findall(text):
            found[kind] += int(number)
        item.config.stash[EXAMPLES].update(found)


def pytest_terminal_summary(terminalreporter, config):
    n = config.stash[EXAMPLES]
    if n["tests"]:
        kinds = ", ".join(f"{n[kind]} {kind}" for kind in ("passing", "failing", "invalid"))
        config.stash[TALLY].append(f"hypothesis: {n['tests']} tests, examples: {kinds}")
    if config.stash[TALLY]:
        terminalreporter.section("inputs tried")
        terminalreporter.write("\n".join([*config.stash[TALLY], ""]))


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    """Let no test reach another machine; fail one that tries, even if it copes with that."""
    asked = []
    resolve, connect = socket.getaddrinfo, socket.socket.connect

    def getaddrinfo(host, *args, **kwargs):
        name = host.decode() if isinstance(host, bytes) else host or ""
        if _is_here(name):
            return resolve(host, *args, **kwargs)
        if not name.endswith(NOBODYS):
            asked.append(name)
        raise socket.gaierror(socket.EAI_NONAME, f"tests have no network: {name}")

    def guarded(self, place):
        if isinstance(place, tuple) and not _is_here(place[0]):
            asked.append(place[0])
            raise ConnectionRefusedError(f"tests have no network: {place[0]}")
        return connect(self, place)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(socket.socket, "connect", guarded)
    yield
    assert not asked, f"the test asked for {asked}, but tests have no network"
