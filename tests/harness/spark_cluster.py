"""Spark on loopback, of pip's PySpark: a standalone cluster (master and workers) and a Spark
Connect server.

Every process is a session of its own, ends with its ``async with``, and is killed by a watchdog
when this process goes in any other way. Executors belong to the session of their worker.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

HOST = "127.0.0.1"
DEPLOY = "org.apache.spark.deploy"
START_LIMIT_S = 60.0
# Below those of outgoing connections, so that a port is still free at a restart.
_PORTS = range(20_000, 32_000)
SMALL_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


def free_port() -> int:
    """A port that nobody listens on."""
    while True:
        port = random.choice(_PORTS)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if probe.connect_ex((HOST, port)):
                return port


async def until(condition: Callable[[], object], what: str, limit_s: float = START_LIMIT_S) -> None:
    """Poll *condition* in a thread until it is true.

    Raises:
        TimeoutError: It did not become true within *limit_s*; the text is *what*.
    """
    deadline = time.monotonic() + limit_s
    while not await asyncio.to_thread(condition):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {limit_s:g} s")
        await asyncio.sleep(0.05)


class SparkProcess:
    """One Java process of Spark's, started by one of its scripts.

    Args:
        command: The script (under ``bin``) and its arguments.
        folder: Working directory, log and scratch.
        environ: Beside what every process of Spark gets.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        folder: Path,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.folder = folder
        self.log = folder / f"{name}.log"
        self._command = command
        self._environ = environ or {}
        self._process: subprocess.Popen[bytes] | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """None where it does not run."""
        return (
            self._process.pid
            if self._process is not None and self._process.poll() is None
            else None
        )

    def start(self) -> None:
        """Start it; does not wait until it is ready. Its log begins anew."""
        assert self.pid is None, f"{self.name} runs already"
        self.folder.mkdir(parents=True, exist_ok=True)
        command = [str(_spark_home() / "bin" / self._command[0]), *self._command[1:]]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                cwd=self.folder,
                env={**os.environ, **_environ(), **self._environ},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._watchdog = _watch(self._process.pid)

    def kill(self) -> None:
        """End it and its children at once (SIGKILL), and wait until it is gone. May be called
        twice.
        """
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        # It must go before the process id can be given to somebody else.
        if self._watchdog is not None:
            self._watchdog.kill()
            self._watchdog.communicate()
            self._watchdog = None

    def freeze(self) -> None:
        """Stop it in its tracks; its connections stay open."""
        assert self.pid is not None
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        assert self.pid is not None
        os.kill(self.pid, signal.SIGCONT)

    async def started(self, is_ready: Callable[[], object], limit_s: float = START_LIMIT_S) -> None:
        """Wait until *is_ready*.

        Raises:
            RuntimeError: It ended, or is not ready in time; the text has the end of its log.
        """
        try:
            await until(lambda: self.pid is None or is_ready(), self.name, limit_s)
        except TimeoutError as error:
            raise RuntimeError(f"{error}\n{self.log_tail()}") from error
        if self.pid is None:
            raise RuntimeError(f"{self.name} ended\n{self.log_tail()}")

    def log_tail(self, lines: int = 40) -> str:
        """The end of its log."""
        return (
            "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
            if self.log.exists()
            else "(no log)"
        )


class SparkCluster:
    """A standalone cluster: a master, and workers of one core each.

    Args:
        folder: For logs and work directories.
        workers: How many.
        memory_mb: What each worker has for executors.
    """

    def __init__(self, folder: Path, workers: int = 2, memory_mb: int = 1024) -> None:
        self._port, self._web_port = free_port(), free_port()
        master = [
            "spark-class",
            f"{DEPLOY}.master.Master",
            "--host",
            HOST,
            "--port",
            str(self._port),
        ]
        self.master = SparkProcess(
            "master", [*master, "--webui-port", str(self._web_port)], folder / "master"
        )
        worker = [
            "spark-class",
            f"{DEPLOY}.worker.Worker",
            "--host",
            HOST,
            "--cores",
            "1",
            "--memory",
            f"{memory_mb}m",
        ]
        self.workers = [
            SparkProcess(
                f"worker{number}",
                [*worker, "--webui-port", str(free_port()), "--work-dir", "work", self.url],
                folder / f"worker{number}",
                {"SPARK_WORKER_OPTS": "-Dspark.worker.cleanup.enabled=true"},
            )
            for number in range(1, workers + 1)
        ]

    @property
    def url(self) -> str:
        """As ``[spark] master`` takes it."""
        return f"spark://{HOST}:{self._port}"

    async def __aenter__(self) -> Self:
        try:
            await self.start_master()
            await self.start_workers()
        except BaseException:
            self.kill()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def kill(self) -> None:
        """End everything at once."""
        self.kill_workers()
        self.master.kill()

    async def start_master(self) -> None:
        """Start the master, on the port that it had; returns when it answers."""
        self.master.start()
        await self.master.started(self.state)

    async def start_workers(self) -> None:
        """Start every worker that does not run; returns when all of them are registered."""
        for worker in self.workers:
            if worker.pid is None:
                worker.start()
        await self.all_registered()

    async def all_registered(self, limit_s: float = START_LIMIT_S) -> None:
        """Wait until the master knows as many workers as run."""
        for worker in self.workers:
            await worker.started(lambda: self.registered() >= len(self.workers), limit_s)

    def kill_workers(self) -> None:
        """End the workers and their executors at once."""
        for worker in self.workers:
            worker.kill()

    def state(self) -> dict[str, Any] | None:
        """What the master's page tells; None where it does not answer."""
        try:
            with urllib.request.urlopen(
                f"http://{HOST}:{self._web_port}/json/", timeout=5
            ) as answer:
                state: dict[str, Any] = json.load(answer)
        except (OSError, ValueError):
            # Not listening yet, or not any more.
            return None
        return state

    def registered(self) -> int:
        """How many living workers the master knows."""
        return int((self.state() or {}).get("aliveworkers", 0))

    def executors(self) -> list[int]:
        """Process ids of the executors that run."""
        workers = {worker.pid for worker in self.workers} - {None}
        return [pid for pid in _java_pids() if _parent(pid) in workers]


class ConnectServer:
    """A Spark Connect server with a driver of its own.

    Args:
        folder: For its log and scratch.
        master: Of its driver.
        conf: Spark's properties.
    """

    def __init__(
        self, folder: Path, master: str = "local[2]", conf: Mapping[str, str] | None = None
    ) -> None:
        self._port = free_port()
        properties = {
            "spark.connect.grpc.binding.address": HOST,
            "spark.connect.grpc.binding.port": str(self._port),
            "spark.driver.host": HOST,
            "spark.driver.bindAddress": HOST,
            "spark.ui.enabled": "false",
            "spark.connect.progress.reportInterval": "200ms",
            "spark.sql.shuffle.partitions": "2",
            **(conf or {}),
        }
        self.process = SparkProcess(
            "connect",
            [
                *(
                    "spark-submit",
                    "--class",
                    "org.apache.spark.sql.connect.service.SparkConnectServer",
                ),
                *("--master", master),
                *(
                    word
                    for name, value in properties.items()
                    for word in ("--conf", f"{name}={value}")
                ),
                "spark-internal",
            ],
            folder,
            # Counts here, and spark.driver.memory does not.
            {"SPARK_DAEMON_MEMORY": "768m"},
        )

    @property
    def remote(self) -> str:
        """As ``[spark] remote`` takes it."""
        return f"sc://{HOST}:{self._port}"

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            self.process.kill()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.process.kill()

    async def start(self) -> None:
        """Start it on the port that it had; returns when it listens."""
        self.process.start()
        await self.process.started(self._listens)

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((HOST, self._port)) == 0


def _spark_home() -> Path:
    import pyspark

    return Path(pyspark.__file__).parent


def _environ() -> dict[str, str]:
    """What every process gets: this Python and what it imports from, loopback, little memory."""
    return {
        "SPARK_HOME": str(_spark_home()),
        "SPARK_LOCAL_IP": HOST,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": SMALL_JVM,
        "SPARK_NO_DAEMONIZE": "1",
    }


def _watch(pid: int) -> subprocess.Popen[bytes]:
    # Kills the process and its children when this one is gone, however it went: the pipe's other
    # end closes with it.
    command = ["/bin/sh", "-c", 'cat >/dev/null; kill -9 "-$0"', str(pid)]
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _java_pids() -> list[int]:
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and (folder / "comm").read_text().strip() == "java":
                found.append(int(folder.name))
        except OSError:
            # It has ended meanwhile.
            continue
    return found


def _parent(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        # It has ended meanwhile.
        return None
