"""One node of a local Apache Kafka: its properties, its process, and the signals that make faults."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

HOST = "127.0.0.1"

_LOG4J2 = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %-5p %c{1} - %m%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""

# Quick starts and small memory matter here, throughput does not.
_JVM_FLAGS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")
_HEAP = {1: ("-Xmx512m", "-Xms256m"), 3: ("-Xmx384m", "-Xms128m")}


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports of one node: for clients, between brokers, and of the controllers' quorum."""

    client: int
    internal: int
    controller: int


class Node:
    """One broker and controller in a process and a session of its own."""

    def __init__(self, number: int, ports: Ports, directory: Path) -> None:
        self.number = number
        self.ports = ports
        self.directory = directory
        self.config = directory / "server.properties"
        self.log = directory / "kafka.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Process id of the running broker, None when it does not run."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    @property
    def exit_code(self) -> int | None:
        """How the last process ended; None while one runs."""
        return self._process.poll() if self._process is not None else None

    def write_config(self, properties: Mapping[str, str]) -> None:
        """Write ``server.properties`` and the logging configuration into the node's folder."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.config.write_text("".join(f"{name}={value}\n" for name, value in properties.items()), encoding="utf-8")
        (self.directory / "log4j2.properties").write_text(_LOG4J2, encoding="utf-8")

    def start(self, java: str, classpath: str, cluster_size: int) -> None:
        """Start the process; does not wait until it is ready. Does nothing when it runs already."""
        if self.pid is not None:
            return
        logging = f"-Dlog4j2.configurationFile={self.directory / 'log4j2.properties'}"
        heap = _HEAP[cluster_size]
        command = [java, *heap, *_JVM_FLAGS, logging, "-cp", classpath, "kafka.Kafka", str(self.config)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        self._watchdog = _watch(self._process.pid)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the broker's process."""
        pid = self.pid
        if pid is None:
            raise ProcessLookupError(f"node {self.number} does not run")
        os.kill(pid, number)

    def wait(self, timeout_s: float) -> bool:
        """Wait until the process has ended; False when it has not within *timeout_s*."""
        if self._process is None:
            return True
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        self._dismiss_watchdog()
        return True

    def kill(self) -> None:
        """End the process at once (SIGKILL), and wait until it is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._dismiss_watchdog()

    def log_tail(self, lines: int = 30) -> str:
        """The end of the broker's log."""
        if not self.log.exists():
            return "(no log)"
        return "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])

    def _dismiss_watchdog(self) -> None:
        # It must go before the process id can be given to somebody else.
        if self._watchdog is not None:
            self._watchdog.kill()
            self._watchdog.communicate()
            self._watchdog = None


def server_properties(node: Node, nodes: Sequence[Node], advertised: str, extra: Mapping[str, str]) -> dict[str, str]:
    """The node's ``server.properties``; *extra* wins. *advertised* is the address that clients are told."""
    replicas = len(nodes)
    in_sync = max(1, replicas - 1)
    session_ms = 1000 if replicas == 1 else 3000  # how long a killed node's restart waits for its old self
    ports = node.ports
    return {
        "process.roles": "broker,controller",
        "node.id": str(node.number),
        "listeners": f"PLAINTEXT://{HOST}:{ports.client},INTERNAL://{HOST}:{ports.internal},"
        f"CONTROLLER://{HOST}:{ports.controller}",
        # Brokers talk among themselves past the clients' listener, so that a proxy in front of it leaves them alone.
        "advertised.listeners": f"PLAINTEXT://{advertised},INTERNAL://{HOST}:{ports.internal}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": ",".join(f"{HOST}:{one.ports.controller}" for one in nodes),
        "inter.broker.listener.name": "INTERNAL",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,INTERNAL:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": str(node.directory / "data"),
        "num.partitions": "4",
        "default.replication.factor": str(replicas),
        "min.insync.replicas": str(in_sync),
        "offsets.topic.replication.factor": str(replicas),
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(in_sync),
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": str(replicas),
        "share.coordinator.state.topic.min.isr": str(in_sync),
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1000",
        "broker.session.timeout.ms": str(session_ms),
        "broker.heartbeat.interval.ms": str(session_ms // 5),
        **extra,
    }


def _watch(pid: int) -> subprocess.Popen[bytes]:
    # Kills the broker when this process is gone, however it went: the pipe's other end closes with it.
    command = ["/bin/sh", "-c", 'cat >/dev/null; kill -9 "$0"', str(pid)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
