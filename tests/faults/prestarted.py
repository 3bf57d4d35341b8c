"""Starts services by forking a process that has imported everything: a tenth of the time that a new
one takes.

``python -m tests.faults.prestarted`` reads a JSON line for each process: its arguments and its log.
It prints the id of each, and how each ended. When its input ends it kills what still runs.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import queue
import random
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import Any, NoReturn

from tests.faults.driver import REPOSITORY, Process

# What a service imports late, so that nobody pays for it who does not use it; here each process
# would.
LATE = (
    "reactive_kafka.broker.aiokafka.kafka_consumer",
    "reactive_kafka.http.server",
    "reactive_kafka.observe.prometheus",
    "tests.faults.soak_service",
)
LOOK_EVERY_S = 0.02
ANSWER_S = 30.0


class Forked:
    """A process that the server has forked."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.ended = threading.Event()
        self.code = 0

    def poll(self) -> int | None:
        """Its exit code, minus the signal that has ended it; None while it runs."""
        return self.code if self.ended.is_set() else None

    def kill(self) -> None:
        """End it at once."""
        if not self.ended.is_set():
            os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        """Its exit code, when it has ended."""
        self.ended.wait(ANSWER_S)
        return self.code


class Server:
    """Asks the server's process for others."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._started: queue.Queue[Forked] = queue.Queue()
        self._running: dict[int, Forked] = {}
        self.reader = threading.Thread(target=self._read, name="prestarted", daemon=True)

    def launch(self, module: list[str], log: Path) -> Process:
        """A process that runs a module, given with its arguments."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"module": module, "log": str(log)}).encode() + b"\n")
        self._process.stdin.flush()
        return self._started.get(timeout=ANSWER_S)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said = json.loads(line)
            if "code" in said:
                forked = self._running.pop(said["pid"])
                forked.code = said["code"]
                forked.ended.set()
            else:
                self._running[said["pid"]] = forked = Forked(said["pid"])
                self._started.put(forked)


@contextmanager
def forking() -> Iterator[Server]:
    """A server; what it has started ends with it."""
    command = [sys.executable, "-m", "tests.faults.prestarted"]
    process = subprocess.Popen(
        command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    server = Server(process)
    server.reader.start()
    try:
        yield server
    finally:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.close()
        process.wait()
        server.reader.join()
        process.stdout.close()


def serve(wishes: FileIO) -> None:
    """Fork a process for each wish, and tell how each ends, until there are no more wishes."""
    running: set[int] = set()
    while True:
        if select.select([wishes], [], [], LOOK_EVERY_S)[0]:
            line = wishes.readline()
            if not line:
                break
            pid = os.fork()
            if pid == 0:
                _become(json.loads(line))
            running.add(pid)
            _say({"pid": pid})
        _tell_who_ended(running, os.WNOHANG)
    for pid in running:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    while running:
        _tell_who_ended(running, 0)


def _tell_who_ended(running: set[int], how: int) -> None:
    while running:
        pid, status = os.waitpid(-1, how)
        if pid == 0:
            return
        running.discard(pid)
        _say({"pid": pid, "code": os.waitstatus_to_exitcode(status)})


def _say(what: dict[str, Any]) -> None:
    os.write(1, json.dumps(what).encode() + b"\n")


def _become(wish: dict[str, Any]) -> NoReturn:
    """Be the process that was asked for."""
    code = 1
    try:
        log = os.open(wish["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        for number in (1, 2):
            os.dup2(log, number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        # All would draw the same.
        random.seed()
        sys.argv = wish["module"]
        importlib.import_module(wish["module"][0]).main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    for name in LATE:
        importlib.import_module(name)
    # Ctrl-C is for who has started us, and ends us then.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Or the collector would touch, and so copy, what the processes share.
    gc.freeze()
    with open(0, "rb", buffering=0) as wishes:
        serve(wishes)
