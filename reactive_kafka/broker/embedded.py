"""The embedded broker: librdkafka's mock cluster, from the wheel of confluent-kafka.

For development and demos. librdkafka calls it experimental. It has one member per group, no
transactions, nothing on disk, and keeps about 5 MiB of each partition: older records vanish. Groups
with several members need Kafka, or the in-memory broker.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any, Self

from reactive_kafka.errors import BrokerError, MissingExtraError

# The type RD_KAFKA_PRODUCER.
_PRODUCER = 0
_TEXT_BYTES = 512


class EmbeddedBroker:
    """A mock cluster with one broker on a free port of the loopback. A context manager.

    Topics are created by their first use, with 4 partitions. Consumers join their group at once.

    Raises:
        MissingExtraError: confluent-kafka is not installed.
        BrokerError: Its library cannot be used this way, or did not start the cluster.
    """

    def __init__(self) -> None:
        self._library = _load_library()
        self._client = _client(self._library)
        self._cluster: int | None = self._library.rd_kafka_mock_cluster_new(self._client, 1)
        if not self._cluster:
            self._library.rd_kafka_destroy(self._client)
            raise BrokerError("librdkafka could not start its mock cluster")
        # Kafka waits 3 s for more members of a new group. Here there is only one, so that would
        # only delay each start.
        self._library.rd_kafka_mock_group_initial_rebalance_delay_ms(self._cluster, 0)

    @property
    def bootstrap_servers(self) -> str:
        return str(self._library.rd_kafka_mock_cluster_bootstraps(self._running).decode())

    def create_topic(self, topic: str, partitions: int) -> None:
        """Create a topic. BrokerError: it exists, or librdkafka refuses it."""
        code = self._library.rd_kafka_mock_topic_create(
            self._running, topic.encode(), partitions, 1
        )
        if code != 0:
            reason = self._library.rd_kafka_err2str(code).decode()
            raise BrokerError(f"the embedded broker could not create topic {topic!r}: {reason}")

    def close(self) -> None:
        """End the broker; its connections close. May be called twice."""
        cluster = self._cluster
        self._cluster = None
        if cluster is not None:
            self._library.rd_kafka_mock_cluster_destroy(cluster)
            self._library.rd_kafka_destroy(self._client)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _running(self) -> int:
        if self._cluster is None:
            raise BrokerError("the embedded broker is closed")
        return self._cluster


def _load_library() -> Any:
    try:
        import confluent_kafka
    except ImportError:
        raise MissingExtraError("the embedded broker", "embedded") from None
    package = Path(confluent_kafka.__file__).parent
    places = (
        package.parent / "confluent_kafka.libs",
        package / ".dylibs",
        package.parent / "confluent_kafka.dylibs",
    )
    found = [library for place in places for library in sorted(place.glob("librdkafka*"))]
    if not found:
        raise BrokerError(
            f"no librdkafka next to {package}: "
            "the embedded broker needs confluent-kafka's own wheel"
        )
    library = ctypes.CDLL(str(found[0]))
    pointer = ctypes.c_void_p
    text = ctypes.c_char_p
    number = ctypes.c_int
    signatures = {
        "rd_kafka_conf_new": (pointer, []),
        "rd_kafka_conf_set": (number, [pointer, text, text, text, ctypes.c_size_t]),
        "rd_kafka_new": (pointer, [number, pointer, text, ctypes.c_size_t]),
        "rd_kafka_destroy": (None, [pointer]),
        "rd_kafka_err2str": (text, [number]),
        "rd_kafka_mock_cluster_new": (pointer, [pointer, number]),
        "rd_kafka_mock_cluster_destroy": (None, [pointer]),
        "rd_kafka_mock_cluster_bootstraps": (text, [pointer]),
        "rd_kafka_mock_topic_create": (number, [pointer, text, number, number]),
        "rd_kafka_mock_group_initial_rebalance_delay_ms": (None, [pointer, ctypes.c_int32]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    return library


def _client(library: Any) -> int:
    said = ctypes.create_string_buffer(_TEXT_BYTES)
    settings = library.rd_kafka_conf_new()
    # Log only errors.
    library.rd_kafka_conf_set(settings, b"log_level", b"3", said, _TEXT_BYTES)
    client = library.rd_kafka_new(_PRODUCER, settings, said, _TEXT_BYTES)
    if not client:
        raise BrokerError(f"librdkafka could not start: {said.value.decode()}")
    return int(client)
