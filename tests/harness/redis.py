"""A real Redis for tests: the one on this machine, else Debian's packages unpacked into our
cache.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import redis

from tests.harness.debian import CACHE, MissingError, Package, free_port, libraries, unpack

START_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 10.0
SERVER = Package(
    install="redis-server",
    # Where Debian has the program.
    server=re.compile("redis-tools"),
    wanted=("redis-tools", "lib"),
    advice="install Redis 6 or newer",
)


@dataclass(frozen=True, slots=True)
class Program:
    """Where the server's program is.

    Attributes:
        root: Of the packages in our cache; None where the machine has it installed.
    """

    path: Path
    root: Path | None = None

    def environment(self) -> dict[str, str]:
        """What it needs to find its libraries."""
        return {} if self.root is None else libraries(self.root)


def find_redis() -> Program:
    """This machine's Redis. Fetches Debian's when there is none; installs nothing.

    Raises:
        MissingError: This is no Debian, or the packages cannot be had.
    """
    on_path = shutil.which("redis-server")
    return Program(Path(on_path)) if on_path else cached(CACHE / "redis")


def cached(target: Path) -> Program:
    """The program unpacked in *target*, fetched if need be."""
    if not target.exists():
        unpack(SERVER, target)
    found = next(
        (
            path
            for name in ("redis-server", "redis-check-rdb")
            if (path := target / "usr/bin" / name).is_file()
        ),
        None,
    )
    if found is None:
        raise MissingError(f"{target} has no Redis in it: remove it, and it is fetched again")
    return Program(found, target)


class Redis:
    """One server on a loopback port of its own; what it has is in memory, or in a file synced at
    each write.

    Attributes:
        url: Of its database 0.
    """

    def __init__(self, program: Program, folder: Path, *, durable: bool) -> None:
        self._program = program
        self._folder = folder
        self._durable = durable
        self._log = folder / "log"
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        """Of the server that runs."""
        assert self._process is not None, "Redis does not run"
        return self._process.pid

    def start(self) -> None:
        """Start the server and wait until it answers."""
        assert self._process is None, "Redis runs already"
        options = {
            "port": str(self.port),
            "bind": "127.0.0.1",
            "dir": str(self._folder),
            "save": "",
            "appendonly": "yes" if self._durable else "no",
            "appendfsync": "always",
            "daemonize": "no",
        }
        command = [part for name, value in options.items() for part in (f"--{name}", value)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                # The program goes by this name: Debian's one file is several programs.
                ["redis-server", *command],
                executable=self._program.path,
                env={**os.environ, **self._program.environment()},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        give_up = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            ended = self._process.poll()
            assert ended is None, f"redis ended with {ended}:\n{self.said()}"
            assert time.monotonic() < give_up, (
                f"redis does not answer after {START_TIMEOUT_S} s:\n{self.said()}"
            )
            time.sleep(0.02)

    def stop(self) -> None:
        """End the server, and with it every connection. Nothing happens where none runs."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the server at once."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """End the server and start it again at the same port; without *durable* it has nothing
        then.
        """
        self.stop()
        self.start()

    def freeze(self) -> None:
        """Let it answer nobody, with every connection open, until :meth:`thaw`."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        os.kill(self.pid, signal.SIGCONT)

    def connect(self) -> redis.Redis:
        """A client of the tests' own."""
        return redis.Redis.from_url(self.url, decode_responses=True)

    def said(self) -> str:
        """The end of its log."""
        return self._log.read_text(errors="replace")[-3000:]

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_TIMEOUT_S)

    def _answers(self) -> bool:
        try:
            with self.connect() as client:
                return bool(client.ping())
        except redis.RedisError:
            return False


@contextmanager
def running_redis(*, durable: bool = False) -> Iterator[Redis]:
    """A server with nothing in it, in a temporary folder that goes with it.

    Args:
        durable: Keep what it confirms over a restart and a kill.

    Raises:
        MissingError: There is none, and none could be fetched.
    """
    program = find_redis()
    with tempfile.TemporaryDirectory(prefix="reactive-kafka-redis-", dir="/tmp") as folder:
        server = Redis(program, Path(folder), durable=durable)
        try:
            server.start()
            yield server
        finally:
            server.stop()
