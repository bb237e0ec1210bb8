"""What all tests share: they run in the smallest profile, and none reaches another machine."""

from __future__ import annotations

import ipaddress
import os
import socket

import pytest

from tests import misbehaving_server
from tests.browser import browser, origin  # noqa: F401

os.environ.setdefault("PRETRAIN_PROFILE", "smoke")
os.environ["HF_HUB_OFFLINE"] = os.environ["TRANSFORMERS_OFFLINE"] = "1"

# Names that by RFC 2606 and 6761 belong to nobody: a test may use them for an address that is down.
NOBODYS = (".test", ".example", ".invalid", "example.com", "example.net", "example.org")


def _is_here(host: str) -> bool:
    """Return whether the host is this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host in ("", "localhost", socket.gethostname())


def pytest_make_parametrize_id(val, argname):
    """Name bytes by their argument: their content may change (gzip writes the time)."""
    return argname if isinstance(val, bytes) else None


@pytest.fixture
def tally(record_property):
    """Return a function that takes a line for the end of the test log, printed in any case."""
    return lambda line: record_property("tally", line)


def pytest_terminal_summary(terminalreporter):
    """Print the lines of all tests."""
    reports = [report for kind in terminalreporter.stats.values() for report in kind]
    said = [pair for report in reports for pair in getattr(report, "user_properties", ())]
    for line in sorted({value for name, value in said if name == "tally"}):
        terminalreporter.write_line(line)


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


@pytest.fixture
def server():
    """A server that misbehaves as it is asked to, until the test is over."""
    with misbehaving_server.running() as running:
        yield running


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The path of an empty cache; what is written anywhere else fails the test."""
    with misbehaving_server.shut_in(tmp_path, monkeypatch) as folder:
        yield folder


@pytest.fixture(scope="session")
def library():
    """The Transformers library, quiet."""
    library = pytest.importorskip("transformers", reason="the Transformers library is not here")
    if not library.utils.is_torch_available():
        pytest.skip("the Transformers library does not take this PyTorch")
    library.utils.logging.set_verbosity_error()
    library.utils.logging.disable_progress_bar()
    return library
