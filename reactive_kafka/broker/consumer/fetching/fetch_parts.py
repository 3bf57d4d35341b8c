"""What fetching needs of the client that it lives in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from reactive_kafka.broker.consumer.fetching.node_fetch import NodeFetch
from reactive_kafka.broker.consumer.fetching.read_partition import RecordReader
from reactive_kafka.broker.consumer.fetching.response_decoding import FetchAnswer
from reactive_kafka.errors import BrokerError
from reactive_kafka.records import TopicPartition


class NodeConnections(Protocol):
    """Connections to the nodes of a cluster, and its metadata."""

    async def send(self, fetch: NodeFetch) -> FetchAnswer:
        """Send a fetch to its node, and return the answer.

        Raises:
            BrokerError: The node cannot be reached, or has not answered.
        """

    def leader_of(self, partition: TopicPartition) -> int | None:
        """Return the node that leads a partition; None: it has none, or is not known."""

    def has_node(self, node: int) -> bool:
        """True if the node is part of the cluster."""

    def request_metadata(self) -> None:
        """Ask for the metadata of the cluster, unless that was asked already."""


class RecordFormat(Protocol):
    """Reads the bytes of record batches."""

    def first_batch_bytes(self, content: bytes) -> int:
        """Return the size of the first batch; 0: it is cut short.

        Raises:
            ValueError: The content cannot begin with a batch. The text has the reason.
        """

    def until(self, content: bytes, offset: int) -> int | None:
        """Return the position after the first batch, which cannot be read; None: it is not certain.

        Args:
            content: Begins with the batch.
            offset: Was to be read from there.
        """

    def reader(
        self,
        partition: TopicPartition,
        offset: int,
        content: bytes,
        aborted: Sequence[tuple[int, int]] | None,
    ) -> RecordReader:
        """Return a reader of fetched batches.

        Args:
            partition: They are of this partition.
            offset: The first one to return.
            content: The batches.
            aborted: Producer id and first offset of the aborted transactions in them, which are
                passed over. None: they are read, too.
        """

    def error_of(self, code: int, about: str) -> BrokerError:
        """Return our error for an error code of a broker."""
