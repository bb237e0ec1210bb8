"""A second worker: another Python that runs what it is sent. Neither can hang for the other."""

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from contextlib import suppress
from datetime import timedelta

from torch import distributed

COMMAND = "import sys; sys.path.insert(0, {!r}); from support import workers; workers._serve()"


def stay_on_this_machine() -> None:
    """Let gloo use the loopback interface, and not look up this machine's name, which may fail."""
    if os.name == "posix":
        os.environ["GLOO_SOCKET_IFNAME"] = "lo0" if sys.platform == "darwin" else "lo"


class Second:
    """Worker 1 of a gloo group of two, of which this process becomes worker 0; code sets it up.

    Neither waits for the other longer than seconds. Raises: RuntimeError as run does.
    """

    seconds = 120.0  # in which a new Python must have imported PyTorch

    def __init__(self, code: str = "", seconds: float = 120.0):
        stay_on_this_machine()
        self.folder, self.printed = tempfile.TemporaryDirectory(), tempfile.TemporaryFile()
        command = [sys.executable, "-c", COMMAND.format(os.path.dirname(os.path.dirname(__file__)))]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self.printed}
        self.process = subprocess.Popen(command, bufsize=0, **pipes)
        self.run("")
        self.seconds, place = seconds, os.path.join(self.folder.name, "meeting")
        self.run(f"_meet({place!r}, 1, {seconds})", _meet, place, 0, seconds)
        self.run(code)

    def run(self, code: str, function=lambda: None, *arguments):
        """Let the worker run code, call a function here meanwhile, wait, and return its result.

        Raises: what function raises, or RuntimeError with what the worker printed if it has ended,
        or was ended as it did not answer in time. After any error the worker is closed.
        """
        limit = threading.Timer(self.seconds, self.process.kill)
        try:
            self.process.stdin.write(json.dumps(code).encode() + b"\n")
            result = function(*arguments)
            limit.start()
            if not self.process.stdout.readline():
                raise EOFError("no answer")
            return result
        except BaseException as error:
            with suppress(subprocess.TimeoutExpired):  # what failed here may have failed there
                self.process.wait(isinstance(error, Exception))
            ours = self.process.poll() is None or not isinstance(error, Exception)
            self.close()
            if ours:
                raise
            self.printed.seek(0)
            said = self.printed.read().decode(errors="replace").strip()
            reason = f"the second worker failed, or gave no answer in {self.seconds:g} s"
            raise RuntimeError(f"{reason}; it must be started again. It said:\n{said}") from error
        finally:
            limit.cancel()

    def close(self) -> None:
        """End the worker and the group."""
        self.process.kill()
        self.process.wait()
        if distributed.is_initialized():
            distributed.destroy_process_group()


def _meet(place: str, rank: int, seconds: float) -> None:
    if distributed.is_initialized():
        distributed.destroy_process_group()
    options = {"store": distributed.FileStore(place, 2), "timeout": timedelta(seconds=seconds)}
    distributed.init_process_group("gloo", rank=rank, world_size=2, **options)


def _serve() -> None:
    def listen():
        for line in sys.stdin:  # it ends as soon as nobody is there to send anything
            codes.put(json.loads(line))
        os._exit(0)

    answers, sys.stdout = sys.stdout, sys.stderr
    codes, names = queue.Queue(), {"_meet": _meet}
    threading.Thread(target=listen, daemon=True).start()
    try:
        while True:
            code = codes.get()
            # An interrupt of the notebook comes here as well. It must end what runs, not who waits.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            exec(code, names)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            print("done", file=answers, flush=True)
    except BaseException:
        traceback.print_exc()
    os._exit(1)  # at once: else the thread and the group would be waited for
