"""A Kafka whose brokers write what clients push into a file. See ReceivedMetrics.java."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from reactive_kafka.broker.jars import find_java, kafka_jars
from tests.harness.kafka import KafkaCluster

SOURCE = Path(__file__).parent / "ReceivedMetrics.java"
JAVA_MEMBER = Path(__file__).parents[1] / "broker" / "consumer" / "JavaMember.java"
COMPILE_S = 120.0

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class ReceivedPoint:
    """A point as the broker's plugin has read it."""

    # "gauge", "sum" (since the last push) or "total" (since the start).
    kind: str
    value: float


@dataclass
class Received:
    """One push, as the broker's plugin has read it."""

    client_id: str
    instance_id: str
    is_terminating: bool
    labels: dict[str, str] = field(default_factory=dict)
    # Name and attributes -> the point.
    points: dict[tuple[str, Labels], ReceivedPoint] = field(default_factory=dict)

    @property
    def names(self) -> set[str]:
        """The names of its metrics."""
        return {name for name, _ in self.points}

    def value(self, name: str, **attributes: str) -> float:
        """The value of one point."""
        return self.points[name, tuple(sorted(attributes.items()))].value


class ReceivingKafka:
    """A running Kafka of one node, with what its plugin has written."""

    def __init__(self, cluster: KafkaCluster, file: Path) -> None:
        self.cluster = cluster
        self._file = file

    @property
    def servers(self) -> str:
        """The address for clients."""
        return self.cluster.bootstrap_servers

    def subscribe(self, name: str, *prefixes: str, interval_ms: int = 1000) -> None:
        """Have the brokers want metrics of all clients, as an operator does."""
        settings = f"metrics=[{','.join(prefixes)}],interval.ms={interval_ms}"
        self._alter(name, "--add-config", settings)

    def unsubscribe(self, name: str) -> None:
        """Have the brokers want these metrics no more."""
        self._alter(name, "--delete-config", "metrics,interval.ms")

    def _alter(self, name: str, *change: str) -> None:
        entity = ("--entity-type", "client-metrics", "--entity-name", name)
        self.cluster.tool("org.apache.kafka.tools.ConfigCommand", "--alter", *entity, *change)

    @contextmanager
    def java_consumer(self, topic: str, group: str) -> Iterator[None]:
        """Run a consumer of Kafka's own client within the block."""
        command = [find_java(), "-cp", f"{kafka_jars()}/*", str(JAVA_MEMBER)]
        command += [self.servers, topic, group, "-"]
        pipe = subprocess.PIPE
        with subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL
        ) as consumer:
            assert consumer.stdin is not None
            assert consumer.stdout is not None
            try:
                # It says what it owns.
                consumer.stdout.readline()
                yield
            finally:
                consumer.stdin.close()

    def pushes(self) -> list[Received]:
        """Return what clients have pushed, the oldest first."""
        if not self._file.exists():
            return []
        # The broker may be in the middle of the last one: it writes a long text in pieces.
        whole, _, _ = self._file.read_text().rpartition("end\n")
        found: list[Received] = []
        current: Received | None = None
        for line in f"{whole}end\n".splitlines():
            kind, *words = line.split("\t")
            if kind == "push":
                current = Received(words[0], words[1], words[2] == "true")
            elif kind == "end" and current is not None:
                found.append(current)
                current = None
            elif kind == "label" and current is not None:
                current.labels[words[0]] = words[1]
            elif current is not None:
                attributes = dict(word.split("=", 1) for word in words[2:] if word)
                series = (words[0], tuple(sorted(attributes.items())))
                current.points[series] = ReceivedPoint(kind, float(words[1]))
        return found


@contextmanager
def receiving_kafka(
    folder: Path, properties: Mapping[str, str] | None = None
) -> Iterator[ReceivingKafka]:
    """Run a Kafka with the plugin until the context ends."""
    classes = folder / "classes"
    file = folder / "received.txt"
    compiled = [find_java(), "-m", "jdk.compiler/com.sun.tools.javac.Main"]
    jars = os.pathsep.join(map(str, kafka_jars().glob("*.jar")))
    compiled += ["-d", str(classes), "-cp", jars, str(SOURCE)]
    subprocess.run(compiled, check=True, timeout=COMPILE_S)
    plugin = {"metric.reporters": "ReceivedMetrics", "received.metrics.file": str(file)}
    with KafkaCluster(properties={**plugin, **(properties or {})}, plugins=classes) as cluster:
        yield ReceivingKafka(cluster, file)
