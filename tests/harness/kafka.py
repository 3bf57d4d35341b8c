"""A real Apache Kafka that tests can hurt: one node or three, ended, frozen and started again one
by one.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, Self

from reactive_kafka.broker.client import Connector, Inspector, inspecting
from reactive_kafka.broker.embedded import EmbeddedBroker as EmbeddedBroker
from reactive_kafka.broker.jars import KAFKA_VERSION
from reactive_kafka.broker.kafka_connector import KafkaConnector
from reactive_kafka.broker.local_kafka import HOST, Node, free_ports, kafka_id
from reactive_kafka.broker.local_kafka import brokers_known_to as brokers_known_to
from tests.harness.other_kafkas import PINNED

_TERMINATE_TIMEOUT_S = 30.0


def clients_of(servers: str) -> Connector:
    """The clients that applications have of a real cluster."""
    return KafkaConnector(servers)


def inspector_of(servers: str) -> AbstractAsyncContextManager[Inspector]:
    """A client that looks at a real cluster, and may change it."""
    return inspecting(clients_of(servers), {})


class KafkaCluster:
    """Apache Kafka in processes of its own, with data that goes when it stops. A context manager.

    Each node has a second listener, INTERNAL, on which brokers and tools talk past the clients'
    one: a proxy with faults in front of that, or credentials asked for on the other, leave them
    alone.

    Args:
        nodes: One node, or three (replication 3, two in sync).
        properties: Further lines of ``server.properties``, of every node.
        listeners: Further listeners of every node: name -> security protocol, such as ``{"GUARDED":
            "SASL_SSL"}``.
        version: Of Apache Kafka.
        plugins: A folder with more classes for the brokers.

    Attributes:
        advertised: node id (from 1) -> ``host:port`` that clients are told instead of the node's
            own address, such as a proxy's. Read at each start of the node.
        internal: node id -> ``host:port`` of its second listener.
    """

    def __init__(
        self,
        nodes: Literal[1, 3] = 1,
        *,
        properties: Mapping[str, str] | None = None,
        listeners: Mapping[str, str] | None = None,
        version: str = KAFKA_VERSION,
        plugins: Path | None = None,
    ) -> None:
        self._temporary = TemporaryDirectory(prefix="reactive-kafka-", ignore_cleanup_errors=True)
        self.directory = Path(self._temporary.name).resolve()
        self._properties = dict(properties or {})
        self._listeners = dict(listeners or {})
        ports = iter(free_ports((3 + len(self._listeners)) * nodes))
        numbers = range(1, nodes + 1)
        self.nodes = {
            one: Node(
                one,
                self.directory / f"node{one}",
                next(ports),
                next(ports),
                version,
                pinned=PINNED,
                plugins=plugins,
            )
            for one in numbers
        }
        self.internal = {one: f"{HOST}:{next(ports)}" for one in numbers}
        self._others = {
            (one, name): f"{HOST}:{next(ports)}" for one in numbers for name in self._listeners
        }
        self.advertised: dict[int, str] = {}

    @property
    def bootstrap_servers(self) -> str:
        """The addresses for clients, as ``bootstrap_servers`` takes them."""
        return ",".join(
            self.advertised.get(number, node.address) for number, node in self.nodes.items()
        )

    def address(self, node: int, listener: str | None = None) -> str:
        """``host:port`` where the node itself listens for clients, whatever is advertised; or that
        of a listener.
        """
        return self.nodes[node].address if listener is None else self._others[node, listener]

    def __enter__(self) -> Self:
        try:
            self._format()
            for node in self.nodes.values():
                node.start()
            for node in self.nodes.values():
                node.wait_until_ready(brokers=len(self.nodes))
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End every node at once, and remove the data."""
        for node in self.nodes.values():
            node.kill()
        self._temporary.cleanup()

    def start_node(self, node: int) -> None:
        """Start a node that was ended, on the same ports and data."""
        self._write_config(self.nodes[node])
        self.nodes[node].start()
        self.nodes[node].wait_until_ready()

    def kill(self, node: int = 1) -> None:
        """End a node with SIGKILL, and wait until its process is gone."""
        self._signal(node, signal.SIGKILL)
        self.nodes[node].kill()

    def terminate(self, node: int = 1) -> None:
        """End a node with SIGTERM, which hands its partitions over first, and wait until its
        process is gone.
        """
        self._signal(node, signal.SIGTERM)
        process = self.nodes[node].process
        assert process is not None
        process.wait(_TERMINATE_TIMEOUT_S)
        self.nodes[node].kill()

    def freeze(self, node: int = 1) -> None:
        """Stop a node's process in its tracks (SIGSTOP); its connections stay open."""
        self._signal(node, signal.SIGSTOP)

    def thaw(self, node: int = 1) -> None:
        """Let a frozen node go on (SIGCONT)."""
        self._signal(node, signal.SIGCONT)

    def _signal(self, node: int, number: signal.Signals) -> None:
        process = self.nodes[node].process
        assert process is not None and process.poll() is None, f"node {node} does not run"
        process.send_signal(number)

    def create_topic(
        self, topic: str, partitions: int = 4, *, config: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic, replicated to every node. Takes a second: Kafka's own tool does it."""
        settings = [
            word
            for name, value in (config or {}).items()
            for word in ("--config", f"{name}={value}")
        ]
        self.tool(
            "org.apache.kafka.tools.TopicCommand",
            *("--create", "--topic", topic, "--partitions", str(partitions)),
            *("--replication-factor", str(len(self.nodes)), *settings),
        )

    def tool(self, java_class: str, *arguments: str) -> str:
        """What one of Kafka's command-line tools prints; it is told the bootstrap servers."""
        return self.nodes[1].run_tool(
            java_class, "--bootstrap-server", ",".join(self.internal.values()), *arguments
        )

    def _format(self) -> None:
        controllers = {one: f"{HOST}:{node.controller_port}" for one, node in self.nodes.items()}
        voters = ",".join(f"{one}@{address}:{kafka_id()}" for one, address in controllers.items())
        quorum = ["--standalone"] if len(self.nodes) == 1 else ["--initial-controllers", voters]
        cluster = kafka_id()
        for node in self.nodes.values():
            self._write_config(node)
            node.format(*quorum, "-t", cluster)

    def _write_config(self, node: Node) -> None:
        others = [f"{name}://{self._others[node.number, name]}" for name in self._listeners]
        internal = ",".join([f"INTERNAL://{self.internal[node.number]}", *others])
        advertised = self.advertised.get(node.number, node.address)
        protocols = {
            "CONTROLLER": "PLAINTEXT",
            "INTERNAL": "PLAINTEXT",
            "PLAINTEXT": "PLAINTEXT",
            **self._listeners,
        }
        listeners = {
            "listeners": f"PLAINTEXT://{node.address},{internal},CONTROLLER://{HOST}:{node.controller_port}",
            "advertised.listeners": f"PLAINTEXT://{advertised},{internal}",
            "inter.broker.listener.name": "INTERNAL",
            "listener.security.protocol.map": ",".join(
                f"{name}:{spoken}" for name, spoken in protocols.items()
            ),
        }
        node.write_config(
            {**listeners, **(self._replicated() if len(self.nodes) > 1 else {}), **self._properties}
        )

    def _replicated(self) -> dict[str, str]:
        replicas = str(len(self.nodes))
        factors = (
            "default",
            "offsets.topic",
            "transaction.state.log",
            "share.coordinator.state.topic",
        )
        in_sync = (
            "min.insync.replicas",
            "transaction.state.log.min.isr",
            "share.coordinator.state.topic.min.isr",
        )
        controllers = (f"{HOST}:{node.controller_port}" for node in self.nodes.values())
        return {
            "controller.quorum.bootstrap.servers": ",".join(controllers),
            **{f"{name}.replication.factor": replicas for name in factors},
            **{name: str(len(self.nodes) - 1) for name in in_sync},
            # How long a killed node's restart waits for its old self; 1 s is too short for three
            # nodes on two cores.
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "600",
        }
