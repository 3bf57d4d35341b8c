"""A real Apache Kafka on this machine, for development and tests: one node or three, on the loopback, in KRaft mode."""

from __future__ import annotations

import base64
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from reactive_kafka.broker.jars import KAFKA_VERSION, KafkaUnavailableError, find_java, kafka_jars
from reactive_kafka.broker.local_node import HOST, Node, Ports, server_properties
from reactive_kafka.broker.probe import brokers_known_to

_START_TIMEOUT_S = 90.0
_TERMINATE_TIMEOUT_S = 30.0
_TOOL_TIMEOUT_S = 60.0
# Below the ports that the kernel gives to outgoing connections: a client that keeps dialling a stopped
# broker's port could otherwise be given that very port, and the broker could not come back on it.
_PORTS = range(20_000, 32_000)


class KafkaCluster:
    """Apache Kafka in processes of its own, with data that goes when it stops.

    A context manager; it also stops when this process ends, however it ends.

    Args:
        nodes: One node, or three (replication 3, two in sync).
        directory: An empty or new folder for data and logs, kept afterwards; None takes a temporary one.
        properties: Further lines of ``server.properties``, of every node.
        advertised: node id (from 1) -> ``host:port`` that clients are told instead of the node's own
            address, such as a proxy's. Read at each start of the node.
        version: Of Apache Kafka, as on Maven Central.
        port: The first node's port for clients; None takes a free one, as everything else does.
    """

    def __init__(
        self,
        nodes: Literal[1, 3] = 1,
        directory: Path | str | None = None,
        *,
        properties: Mapping[str, str] | None = None,
        advertised: Mapping[int, str] | None = None,
        version: str = KAFKA_VERSION,
        port: int | None = None,
    ) -> None:
        ports = iter(([] if port is None else [_if_free(port)]) + _free_ports(3 * nodes))
        self.directory = Path(directory if directory is not None else tempfile.mkdtemp(prefix="reactive-kafka-"))
        self.directory = self.directory.resolve()
        self.advertised = dict(advertised or {})
        self._properties = dict(properties or {})
        self._version = version
        self._java = self._classpath = ""
        self.nodes = {
            number: Node(number, Ports(next(ports), next(ports), next(ports)), self.directory / f"node{number}")
            for number in range(1, nodes + 1)
        }
        # Holds no reference to self; runs at exit, too.
        self._cleanup = weakref.finalize(
            self, _clean_up, tuple(self.nodes.values()), self.directory if directory is None else None
        )

    @property
    def bootstrap_servers(self) -> str:
        """The addresses for clients, as ``bootstrap_servers`` takes them."""
        return ",".join(self.advertised.get(number, self.address(number)) for number in self.nodes)

    def address(self, node: int) -> str:
        """``host:port`` where the node itself listens for clients, whatever is advertised."""
        return f"{HOST}:{self.nodes[node].ports.client}"

    def start(self) -> Self:
        """Format and start every node, and return when each answers its clients and knows the others.

        Raises:
            KafkaUnavailableError: Java or the jars cannot be had, or a node did not start (with the end of its log).
        """
        if not self._cleanup.alive:
            raise KafkaUnavailableError("this cluster was stopped, and its data is gone: make a new one")
        try:
            self._java = find_java()
            self._classpath = f"{kafka_jars(self._version)}/*"
            self._format()
            for node in self.nodes.values():
                node.start(self._java, self._classpath, len(self.nodes))
            self._wait_until_ready(tuple(self.nodes), brokers=len(self.nodes))
        except BaseException:
            self.stop()
            raise
        return self

    def start_node(self, node: int, *, wait: bool = True) -> None:
        """Start a node that was ended, on the same ports and data."""
        self._write_config(self.nodes[node])
        self.nodes[node].start(self._java, self._classpath, len(self.nodes))
        if wait:
            self._wait_until_ready((node,), brokers=1)

    def kill(self, node: int = 1) -> None:
        """End a node with SIGKILL, and wait until its process is gone."""
        self.nodes[node].signal(signal.SIGKILL)
        self.nodes[node].kill()

    def terminate(self, node: int = 1, *, wait: bool = True) -> None:
        """End a node with SIGTERM: it hands its partitions over first."""
        self.nodes[node].signal(signal.SIGTERM)
        if wait and not self.nodes[node].wait(_TERMINATE_TIMEOUT_S):
            raise TimeoutError(f"node {node} did not end within {_TERMINATE_TIMEOUT_S:g} s of SIGTERM")

    def freeze(self, node: int = 1) -> None:
        """Stop a node's process in its tracks (SIGSTOP); its connections stay open."""
        self.nodes[node].signal(signal.SIGSTOP)

    def thaw(self, node: int = 1) -> None:
        """Let a frozen node go on (SIGCONT)."""
        self.nodes[node].signal(signal.SIGCONT)

    def stop(self) -> None:
        """End every node at once, and remove the data unless a directory was given. May be called twice."""
        self._cleanup()

    def create_topic(self, topic: str, partitions: int = 4, *, config: Mapping[str, str] | None = None) -> None:
        """Create a topic, replicated to every node. Takes a second: Kafka's own tool does it."""
        settings = [word for name, value in (config or {}).items() for word in ("--config", f"{name}={value}")]
        self.tool(
            "org.apache.kafka.tools.TopicCommand",
            *("--create", "--topic", topic, "--partitions", str(partitions)),
            *("--replication-factor", str(len(self.nodes)), *settings),
        )

    def tool(self, java_class: str, *arguments: str) -> str:
        """What one of Kafka's command-line tools prints; it is told the bootstrap servers.

        Raises:
            KafkaUnavailableError: It failed; the text is what it said.
        """
        # Past the clients' listener: what is advertised there (a proxy with faults) is not for tools.
        servers = ",".join(f"{HOST}:{node.ports.internal}" for node in self.nodes.values())
        return self._run(java_class, "--bootstrap-server", servers, *arguments)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _format(self) -> None:
        if any((node.directory / "data").exists() for node in self.nodes.values()):
            raise KafkaUnavailableError(f"{self.directory} has the data of another cluster: give an empty folder")
        cluster = _kafka_id()
        voters = ",".join(f"{one.number}@{HOST}:{one.ports.controller}:{_kafka_id()}" for one in self.nodes.values())
        quorum = ["--standalone"] if len(self.nodes) == 1 else ["--initial-controllers", voters]
        for node in self.nodes.values():
            self._write_config(node)
            self._run("kafka.tools.StorageTool", "format", *quorum, "-t", cluster, "-c", str(node.config))

    def _write_config(self, node: Node) -> None:
        advertised = self.advertised.get(node.number, self.address(node.number))
        node.write_config(server_properties(node, tuple(self.nodes.values()), advertised, self._properties))

    def _run(self, java_class: str, *arguments: str) -> str:
        logging = f"-Dlog4j2.configurationFile={self.nodes[1].directory / 'log4j2.properties'}"
        command = [self._java, "-Xmx256m", "-XX:TieredStopAtLevel=1", logging, "-cp", self._classpath, java_class]
        done = subprocess.run(
            [*command, *arguments], capture_output=True, text=True, timeout=_TOOL_TIMEOUT_S, check=False
        )
        if done.returncode != 0:
            raise KafkaUnavailableError(f"{java_class} failed:\n{(done.stdout + done.stderr).strip()}")
        return done.stdout

    def _wait_until_ready(self, numbers: Sequence[int], brokers: int) -> None:
        deadline = time.monotonic() + _START_TIMEOUT_S
        waiting = list(numbers)
        while waiting:
            node = self.nodes[waiting[0]]
            if self._is_ready(node, brokers):
                waiting.pop(0)
            elif node.pid is None:
                raise KafkaUnavailableError(
                    f"node {node.number} ended with code {node.exit_code} before it was ready; "
                    f"the end of {node.log}:\n{node.log_tail()}"
                )
            elif time.monotonic() > deadline:
                raise KafkaUnavailableError(
                    f"node {node.number} was not ready after {_START_TIMEOUT_S:g} s; "
                    f"the end of {node.log}:\n{node.log_tail()}"
                )
            else:
                time.sleep(0.05)

    def _is_ready(self, node: Node, brokers: int) -> bool:
        try:
            known = brokers_known_to(HOST, node.ports.client)
        except OSError:
            return False
        return node.number in known and len(known) >= brokers


def _clean_up(nodes: Sequence[Node], directory: Path | None) -> None:
    for node in nodes:
        node.kill()
    if directory is not None:
        shutil.rmtree(directory, ignore_errors=True)


def _kafka_id() -> str:
    """22 characters as Kafka draws its ids; never with a dash in front, which its tools read as an option."""
    while (drawn := base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=")).startswith("-"):
        pass
    return drawn


def _free_ports(count: int) -> list[int]:
    found: list[int] = []
    for port in random.sample(_PORTS, len(_PORTS)):
        if _is_free(port):
            found.append(port)
        if len(found) == count:
            return found
    raise KafkaUnavailableError(f"no {count} free ports on {HOST} between {_PORTS.start} and {_PORTS.stop}")


def _if_free(port: int) -> int:
    if not _is_free(port):
        raise KafkaUnavailableError(f"port {port} of {HOST} cannot be had: something listens there, or it is reserved")
    return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
