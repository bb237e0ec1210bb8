"""The second worker: it computes with us, its errors become ours, and nothing hangs or is left."""

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest
import torch
from torch import distributed

from support import workers

ours_to_signal = pytest.mark.skipif(os.name != "posix", reason="Windows has other signals")
SETUP = "import os, socket, sys, time, torch\nfrom torch import distributed"
# A notebook whose second worker calls this test, and which then waits in vain.
NOTEBOOK = """
import signal, time, torch
from torch import distributed
from support import workers
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it

second = workers.Second({setup!r}, seconds=60)
code = "line = socket.create_connection(('127.0.0.1', {port})); "
second.run(code + {there!r}, lambda: {here})
"""


def received():
    distributed.recv(torch.ones(3), 1)


@contextmanager
def at_most(seconds):
    """Check that something takes no longer."""
    start = time.monotonic()
    yield
    assert time.monotonic() - start < seconds


class Notebook:
    """A process that is started now, and its second worker, which calls when it is busy."""

    def __init__(self, here, there):
        self.server = socket.create_server(("127.0.0.1", 0))
        port = self.server.getsockname()[1]
        code = NOTEBOOK.format(setup=SETUP, port=port, here=here, there=there)
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        self.process = subprocess.Popen(
            [sys.executable, "-c", code], start_new_session=True, **pipes
        )

    def wait_until_busy(self):
        self.server.settimeout(60)
        self.line, _ = self.server.accept()

    def assert_no_orphan(self):
        """Check that the line to the worker is cut, as the system does when a process ends."""
        self.line.settimeout(5)
        assert self.line.recv(1) == b""

    def close(self):
        self.server.close()
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@pytest.fixture(scope="module")
def notebooks():
    """The notebooks of two tests, started together and before all else, as that takes seconds."""
    exchange = "distributed.recv(torch.ones(3), 1)", "distributed.recv(torch.ones(3), 0)"
    made = {"interrupted": Notebook(*exchange)}
    made["dead"] = Notebook("time.sleep(60)", "exec('while True: pass')")
    yield made
    for notebook in made.values():
        notebook.close()


@pytest.fixture(scope="module")
def starts():
    """Make a second worker for several tests, and another once it is closed."""
    kept = []

    def second():
        if not kept or kept[-1].process.poll() is not None:
            kept.append(workers.Second(SETUP, seconds=3))
        return kept[-1]

    yield second
    kept[-1].close()


@pytest.fixture
def second(notebooks, starts):
    return starts()


def assert_gone(second):
    assert second.process.poll() is not None and not distributed.is_initialized()
    with at_most(2), pytest.raises(RuntimeError, match="started again"):
        second.run("")


@ours_to_signal
def test_two_share_a_sum_and_who_waits_is_not_interrupted(second):
    def total():
        x = torch.ones(3)
        distributed.all_reduce(x)
        return x.tolist()

    second.process.send_signal(signal.SIGINT)
    assert second.run("x = torch.ones(3)\ndistributed.all_reduce(x)", total) == [2, 2, 2]
    assert os.environ["GLOO_SOCKET_IFNAME"] in ("lo", "lo0")


def test_a_worker_that_raises_says_why_at_once(second):
    with at_most(2), pytest.raises(RuntimeError, match="(?s)so far.*ZeroDivisionError"):
        second.run("print('so far'); 1 / 0", received)
    assert_gone(second)


@ours_to_signal
def test_a_worker_that_is_killed_is_missed_at_once(second):
    with at_most(2), pytest.raises(RuntimeError, match="failed"):
        second.run("os.kill(os.getpid(), 9)", received)
    assert_gone(second)


def test_a_worker_that_sends_nothing_is_not_waited_for(second):
    with at_most(3 + 4), pytest.raises(RuntimeError, match="(?i)tim"):
        second.run("time.sleep(15); sys.exit()", received)
    assert_gone(second)


@pytest.fixture
def deaf(monkeypatch):
    """A quick one, no PyTorch in it, that answers until it has been made, and then no more."""
    answer = "for _ in range(3): input(); print('done', flush=True)"
    code = f"{answer}\nimport time; time.sleep(60)"
    monkeypatch.setattr(workers, "COMMAND", f"exec({code!r})")
    monkeypatch.setattr(workers, "_meet", lambda *_: None)
    return workers.Second(seconds=0.5)


def test_a_worker_that_never_answers_is_ended(deaf):
    with at_most(2), pytest.raises(RuntimeError, match="no answer in 0.5 s"):
        deaf.run("")
    assert_gone(deaf)


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_our_own_error_ends_the_worker(deaf, error):
    def fail():
        raise error

    with at_most(2), pytest.raises(error):
        deaf.run("", fail)
    assert_gone(deaf)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("import sys; sys.exit('no PyTorch here')", "no PyTorch here"),
        ("import time; time.sleep(60)", "no answer in 0.5 s"),
        ("input(); print('done', flush=True)", "failed"),
    ],
    ids=["ends", "hangs", "does-not-come-to-the-meeting"],
)
def test_a_worker_that_is_lost_at_the_start(monkeypatch, command, said):
    monkeypatch.setattr(workers, "COMMAND", command)
    monkeypatch.setattr(workers.Second, "seconds", 0.5 if "sleep" in command else 60)
    with at_most(3), pytest.raises(RuntimeError, match=said):
        workers.Second(seconds=0.5)
    assert not distributed.is_initialized()


@ours_to_signal
def test_an_interrupted_notebook_leaves_no_worker(notebooks):
    notebook = notebooks["interrupted"]
    notebook.wait_until_busy()
    with at_most(5):
        os.killpg(notebook.process.pid, signal.SIGINT)  # as Jupyter does
        assert "KeyboardInterrupt" in notebook.process.communicate()[0]
    notebook.assert_no_orphan()


@ours_to_signal
def test_a_dead_notebook_leaves_no_worker(notebooks):
    notebook = notebooks["dead"]
    notebook.wait_until_busy()
    notebook.process.kill()
    notebook.assert_no_orphan()
