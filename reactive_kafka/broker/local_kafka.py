"""Runs a real Apache Kafka on this machine, for development and tests.

One node on the loopback, in KRaft mode.
"""

from __future__ import annotations

import base64
import os
import random
import socket
import struct
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

from reactive_kafka.broker.jar_hashes import SHA256
from reactive_kafka.broker.jars import KAFKA_VERSION, KafkaUnavailableError, find_java, kafka_jars

_METADATA = 3
# The newest version without compact fields. Every Kafka from 0.11 on has it.
_METADATA_VERSION = 4
_MAX_ANSWER_BYTES = 1024 * 1024
HOST = "127.0.0.1"

_START_TIMEOUT_S = 90.0
_TOOL_TIMEOUT_S = 60.0
# Below the ports that the kernel gives to outgoing connections. Otherwise a client that keeps
# dialling the port of a stopped broker could be given that very port, and the broker could not come
# back on it.
_PORTS = range(20_000, 32_000)

_LOG4J2 = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %-5p %c{1} - %m%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""


def brokers_known_to(host: str, port: int, timeout_s: float = 1.0) -> dict[int, str]:
    """Return node id -> advertised ``host:port``, as a broker tells its clients.

    Raises:
        OSError: Nothing answers there in time, or it does not speak Kafka's protocol.
    """
    client_id = b"reactive-kafka-probe"
    head = struct.pack(">hhih", _METADATA, _METADATA_VERSION, 1, len(client_id)) + client_id
    # No topics, and create none.
    body = struct.pack(">i?", 0, False)
    with (
        socket.create_connection((host, port), timeout=timeout_s) as connection,
        connection.makefile("rb") as stream,
    ):
        connection.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
        (size,) = struct.unpack(">i", _receive(stream, 4))
        if not 0 < size <= _MAX_ANSWER_BYTES:
            raise OSError(f"{host}:{port} does not speak Kafka's protocol")
        return _brokers(_receive(stream, size))


def _receive(stream: BinaryIO, size: int) -> bytes:
    received = stream.read(size)
    if len(received) < size:
        raise ConnectionError("the broker closed the connection")
    return received


def _brokers(answer: bytes) -> dict[int, str]:
    found = {}
    # The brokers come after the correlation id and the throttle time.
    (count,) = struct.unpack_from(">i", answer, 8)
    pos = 12
    for _ in range(count):
        node, length = struct.unpack_from(">ih", answer, pos)
        pos += 6
        host = answer[pos : pos + length].decode()
        (port, rack) = struct.unpack_from(">ih", answer, pos + length)
        pos += length + 6 + max(rack, 0)
        found[node] = f"{host}:{port}"
    return found


@contextmanager
def local_kafka(port: int | None = None) -> Iterator[str]:
    """Run Apache Kafka with one node in a process until the context ends. Yields ``host:port``.

    Its data is deleted at the end. The process ends when this one does, even by SIGKILL. Without
    *port* it gets a free one.

    Raises:
        KafkaUnavailableError: Java or the jars cannot be had, the port is taken, or the node did
            not start (with the end of its log).
    """
    if port is not None and not _is_free(port):
        raise KafkaUnavailableError(
            f"port {port} of {HOST} cannot be had: something listens there, or it is reserved"
        )
    free, for_controller = free_ports(2)
    with TemporaryDirectory(prefix="reactive-kafka-", ignore_cleanup_errors=True) as directory:
        node = Node(1, Path(directory).resolve(), free if port is None else port, for_controller)
        node.write_config()
        node.format("--standalone", "-t", kafka_id())
        try:
            node.start()
            node.wait_until_ready()
            yield node.address
        finally:
            node.kill()


class Node:
    """One broker and controller: its files and its process.

    The process ends with the process that has started it.

    Args:
        number: Its id in the cluster.
        directory: For its files.
        port: For clients.
        controller_port: For the other controllers.
        version: Of Apache Kafka.
        pinned: Name of a jar -> its SHA-256.
        plugins: A folder with more classes for the broker. None: it needs no others.
    """

    def __init__(
        self,
        number: int,
        directory: Path,
        port: int,
        controller_port: int,
        version: str = KAFKA_VERSION,
        *,
        pinned: Mapping[str, str] = SHA256,
        plugins: Path | None = None,
    ) -> None:
        self.number = number
        self.version = version
        self._pinned = pinned
        self._plugins = plugins
        self.port = port
        self.controller_port = controller_port
        self.address = f"{HOST}:{port}"
        self.process: subprocess.Popen[bytes] | None = None
        self._directory = directory
        self._config = directory / "server.properties"
        self._logging = directory / "log4j2.properties"
        self._log = directory / "kafka.log"
        self._watchdog: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The process id of the running broker; None while it does not run."""
        if self.process is None or self.process.poll() is not None:
            return None
        return self.process.pid

    def write_config(self, extra: Mapping[str, str] | None = None) -> None:
        """Write ``server.properties``, in which *extra* wins, and the logging configuration."""
        self._directory.mkdir(parents=True, exist_ok=True)
        properties = {**self._properties(), **(extra or {})}
        self._config.write_text(
            "".join(f"{name}={value}\n" for name, value in properties.items()), encoding="utf-8"
        )
        self._logging.write_text(_LOG4J2, encoding="utf-8")

    def _properties(self) -> dict[str, str]:
        """Return the properties of a node that is its whole cluster."""
        own_topics = ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
        return {
            "process.roles": "broker,controller",
            "node.id": str(self.number),
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://{HOST}:{self.controller_port}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": f"{HOST}:{self.controller_port}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": str(self._directory / "data"),
            "num.partitions": "4",
            # Records of tests may be old: by default Kafka would delete them after a week.
            "log.retention.ms": "-1",
            **{f"{topic}.replication.factor": "1" for topic in own_topics},
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.num.partitions": "4",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
            "group.initial.rebalance.delay.ms": "0",
            "group.min.session.timeout.ms": "1000",
            # A member of the consumer protocol that was killed keeps its partitions for so long.
            # By default it is 45 s: too long for whoever develops or tests.
            "group.consumer.session.timeout.ms": "6000",
            "group.consumer.min.session.timeout.ms": "1000",
            "broker.session.timeout.ms": "1000",
            "broker.heartbeat.interval.ms": "200",
        }

    def format(self, *arguments: str) -> None:
        """Prepare the data folder according to the configuration."""
        self.run_tool("kafka.tools.StorageTool", "format", *arguments, "-c", str(self._config))

    def run_tool(self, java_class: str, *arguments: str) -> str:
        """Run one of Kafka's command-line tools, and return what it prints.

        Raises:
            KafkaUnavailableError: The tool failed.
        """
        command = [*self._java("-Xmx256m"), java_class, *arguments]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TOOL_TIMEOUT_S, check=False
        )
        if done.returncode != 0:
            raise KafkaUnavailableError(
                f"{java_class} failed:\n{(done.stdout + done.stderr).strip()}"
            )
        return done.stdout

    def _java(self, *flags: str) -> list[str]:
        # Only the first compiler is used: starting fast and little memory matter here, throughput
        # does not.
        logging = f"-Dlog4j2.configurationFile={self._logging}"
        jars = kafka_jars(self.version, pinned=self._pinned)
        classes = f"{jars}/*" if self._plugins is None else f"{jars}/*{os.pathsep}{self._plugins}"
        return [find_java(), *flags, "-XX:TieredStopAtLevel=1", logging, "-cp", classes]

    def start(self) -> None:
        """Start the process if it does not run. Does not wait until it is ready."""
        if self.pid is not None:
            return
        self._dismiss_watchdog()
        java = self._java("-Xmx512m", "-Xms128m", "-XX:+UseSerialGC", "-Djava.awt.headless=true")
        command = [*java, "kafka.Kafka", str(self._config)]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        # The watchdog kills the broker when this process is gone, in whatever way: then the other
        # end of its pipe is closed.
        command = ["/bin/sh", "-c", 'cat >/dev/null; kill -9 "$0"', str(self.process.pid)]
        nowhere = subprocess.DEVNULL
        self._watchdog = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=nowhere, stderr=nowhere, start_new_session=True
        )

    def wait_until_ready(self, brokers: int = 1) -> None:
        """Wait until the node answers clients and knows so many brokers, itself included.

        Raises:
            KafkaUnavailableError: It has ended, or is not ready in time (with the end of its log).
        """
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not self._is_ready(brokers):
            if self.pid is None:
                code = None if self.process is None else self.process.returncode
                raise self._unavailable(f"ended with code {code} before it was ready")
            if time.monotonic() > deadline:
                raise self._unavailable(f"was not ready after {_START_TIMEOUT_S:g} s")
            time.sleep(0.05)

    def _is_ready(self, brokers: int) -> bool:
        try:
            known = brokers_known_to(HOST, self.port)
        except OSError:
            return False
        return self.number in known and len(known) >= brokers

    def _unavailable(self, what: str) -> KafkaUnavailableError:
        said = self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-30:]
        return KafkaUnavailableError(
            "\n".join([f"node {self.number} {what}; the end of {self._log}:", *said])
        )

    def kill(self) -> None:
        """End the process at once (SIGKILL), and wait until it is gone."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        self._dismiss_watchdog()

    def _dismiss_watchdog(self) -> None:
        # Before the process id may be given to another process.
        if self._watchdog is not None:
            self._watchdog.kill()
            self._watchdog.communicate()
            self._watchdog = None


def kafka_id() -> str:
    """Return 22 random characters like Kafka's ids.

    They never begin with a dash, which Kafka's tools read as an option.
    """
    while True:
        drawn = base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=")
        if not drawn.startswith("-"):
            return drawn


def free_ports(count: int) -> list[int]:
    """Return free ports of the loopback."""
    found = list(islice(filter(_is_free, random.sample(_PORTS, len(_PORTS))), count))
    if len(found) < count:
        raise KafkaUnavailableError(
            f"no {count} free ports on {HOST} between {_PORTS.start} and {_PORTS.stop}"
        )
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
