"""A real PostgreSQL for tests: the one on this machine, else Debian's packages unpacked into our
cache.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from tests.harness.debian import CACHE, Package, free_port, libraries, unpack
from tests.harness.debian import MissingError as PostgresMissingError

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 20.0
# Of the database.
USER = "postgres"
# PostgreSQL refuses to run as root.
NOT_ROOT = "nobody"
SERVER = Package(
    install="postgresql",
    server=re.compile(r"postgresql-\d+"),
    wanted=("postgresql-", "lib"),
    # Large, and nothing that a test server loads.
    unused=("libllvm", "libperl", "libjson-perl"),
    advice="install PostgreSQL 15 or newer",
)


@dataclass(frozen=True, slots=True)
class Programs:
    """Where PostgreSQL's programs are.

    Attributes:
        bin: The folder with ``initdb`` and ``postgres``.
        root: Of the packages in our cache; None where the machine has it installed.
    """

    bin: Path
    root: Path | None = None

    def environment(self) -> dict[str, str]:
        """What the programs need to find their libraries."""
        if self.root is None:
            return {}
        return libraries(self.root)

    def within(self, folder: Path) -> Programs:
        """Programs that any user can run: those in our cache as a copy in *folder*, for root's home
        is shut.
        """
        if self.root is None:
            return self
        shutil.copytree(self.root, folder, symlinks=True)
        return Programs(folder / self.bin.relative_to(self.root), folder)


def find_postgres() -> Programs:
    """The programs of this machine's newest PostgreSQL. Fetches Debian's when there is none;
    installs nothing.

    Raises:
        PostgresMissingError: This is no Debian, or the packages cannot be had.
    """
    return installed() or cached(CACHE / "postgresql")


def installed() -> Programs | None:
    """What the machine has: on the PATH, or where Debian puts it, which is on nobody's PATH."""
    on_path = shutil.which("postgres")
    if on_path is not None:
        return Programs(Path(on_path).resolve().parent)
    return _newest(Path("/"))


def cached(target: Path, apt_options: Sequence[str] = ()) -> Programs:
    """The programs unpacked in *target*, fetched if need be."""
    if not target.exists():
        unpack(SERVER, target, apt_options)
    found = _newest(target)
    if found is None:
        raise PostgresMissingError(
            f"{target} has no PostgreSQL in it: remove it, and it is fetched again"
        )
    return Programs(found.bin, target)


def _newest(root: Path) -> Programs | None:
    found = root.glob("usr/lib/postgresql/*/bin/postgres")
    newest = max(found, key=lambda program: int(program.parts[-3]), default=None)
    return Programs(newest.parent) if newest else None


class Postgres:
    """One server on a loopback port of its own, with an empty database; without a password, and
    never synced to disk.

    Args:
        programs: What to run.
        folder: An empty folder that the server's user can read and write.
    """

    def __init__(self, programs: Programs, folder: Path) -> None:
        self._programs = programs
        self._data = folder / "data"
        self._log = folder / "postgres.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()

    @property
    def dsn(self) -> str:
        """How clients connect."""
        return f"postgresql://{USER}@127.0.0.1:{self.port}/postgres"

    @property
    def pid(self) -> int:
        """Of the server."""
        assert self._process is not None, "PostgreSQL is not running"
        return self._process.pid

    def initialise(self) -> None:
        """Make the database's files."""
        options = [
            "--auth=trust",
            "--encoding=UTF8",
            "--locale=C",
            "--no-sync",
            f"--username={USER}",
        ]
        done = self._start([str(self._programs.bin / "initdb"), *options, "-D", str(self._data)])
        if done.wait(START_TIMEOUT_S):
            raise AssertionError(f"initdb ended with {done.returncode}:\n{self.said()}")

    def start(self) -> None:
        """Start the server and wait until it answers.

        Raises:
            AssertionError: It ended, or did not answer within :data:`START_TIMEOUT_S`; the text is
                its log's end.
        """
        assert self._process is None, "PostgreSQL runs already"
        settings = [
            "listen_addresses=127.0.0.1",
            "unix_socket_directories=",
            "fsync=off",
            f"port={self.port}",
        ]
        options = [part for setting in settings for part in ("-c", setting)]
        self._process = self._start(
            [str(self._programs.bin / "postgres"), *options, "-D", str(self._data)]
        )
        give_up = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            ended = self._process.poll()
            assert ended is None, f"postgres ended with {ended}:\n{self.said()}"
            assert time.monotonic() < give_up, (
                f"postgres does not answer after {START_TIMEOUT_S} s:\n{self.said()}"
            )
            time.sleep(0.05)

    def stop(self) -> None:
        """End the server, and with it every connection; what was committed stays. Nothing happens
        where none runs.
        """
        process, self._process = self._process, None
        if process is None:
            return
        # Its "fast" shutdown: waits for no client.
        process.send_signal(signal.SIGINT)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            # At once; SIGKILL would leave its children behind.
            process.send_signal(signal.SIGQUIT)
            process.wait(STOP_TIMEOUT_S)

    def restart(self) -> None:
        """End the server and start it again at the same port."""
        self.stop()
        self.start()

    def said(self) -> str:
        """The end of its log."""
        return self._log.read_text(errors="replace")[-3000:]

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.dsn, connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def _start(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        user = None if os.geteuid() else NOT_ROOT
        with self._log.open("ab") as log:
            return subprocess.Popen(
                command,
                cwd=self._data.parent,
                env={**os.environ, **self._programs.environment()},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                user=user,
                group=user and pwd.getpwnam(user).pw_gid,
            )


@contextmanager
def running_postgres(programs: Programs | None = None) -> Iterator[Postgres]:
    """A server with an empty database, in a temporary folder that goes with it.

    Args:
        programs: What to run; None looks for it, see :func:`find_postgres`.

    Raises:
        PostgresMissingError: There is none, and none could be fetched.
    """
    programs = programs or find_postgres()
    with tempfile.TemporaryDirectory(prefix="reactive-kafka-postgres-", dir="/tmp") as temporary:
        # Not pytest's: root's is shut to the server's user.
        folder = Path(temporary)
        if not os.geteuid():
            programs = programs.within(folder / "programs")
            shutil.chown(folder, NOT_ROOT)
        server = Postgres(programs, folder)
        server.initialise()
        try:
            server.start()
            yield server
        finally:
            server.stop()
