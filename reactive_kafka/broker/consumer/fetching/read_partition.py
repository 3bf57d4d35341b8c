"""The state of one partition that a consumer owns. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from reactive_kafka.errors import BrokerError
from reactive_kafka.records import RawRecord, TopicPartition


class RecordReader(Protocol):
    """Takes records, as many as wanted at a time, from what one fetch returned of one partition."""

    @property
    def next_offset(self) -> int:
        """The position after the records that were taken, and after markers behind them."""

    @property
    def is_exhausted(self) -> bool:
        """True if nothing is left to take."""

    @property
    def left_bytes(self) -> int:
        """How many bytes come after the batch that is being read."""

    @property
    def pending_unpack(self) -> Callable[[], memoryview] | None:
        """Work for a thread before more can be taken; its result goes to finish_unpack()."""

    def take(self, count: int) -> list[RawRecord]:
        """Return up to *count* records.

        Raises:
            CorruptRecordError: The next batch cannot be read.
            TransientBrokerError: It cannot be read now.
        """

    def take_bytes(self, count: int, most_bytes: int) -> list[RawRecord]:
        """Return up to *count* records, and stop after the one that reaches *most_bytes*."""

    def finish_unpack(self, done: Any) -> None:
        """Continue with the result of the work in ``pending_unpack``, a future."""


class FetchedPiece:
    """What one fetch returned of one partition, until all of it is taken.

    Attributes:
        reader: Takes the records.
        size: Of all of it, in bytes.
        left_bytes: What was left of it after the last poll.
        came_at: When the answer came.
    """

    __slots__ = ("came_at", "left_bytes", "reader", "size")

    def __init__(self, reader: RecordReader, size: int, came_at: float) -> None:
        self.reader = reader
        self.size = size
        self.left_bytes = size
        self.came_at = came_at


class ReadPartition:
    """What a consumer knows of one of its partitions, and has fetched of it.

    Attributes:
        position: The offset of the next record to take. None: ``start_at`` has not set it yet, and
            the partition is not fetched.
        is_paused: It is not fetched, and polls return none of its records.
        is_leaving: The same, because it is being revoked.
        high_watermark: The end of the log in the last answer; None: there was none yet.
        last_stable_offset: Where the oldest open transaction begins, in the last answer.
        log_start: The first offset of the log in the last answer.
        leader: The node that leads it; None: it has no leader, or the leader is not known.
        replica: The follower to fetch from until ``replica_until``; None: the leader.
        piece: What was fetched, and is not taken yet.
        error: Why it cannot be fetched, until a poll has returned that.
        retry_at: It is not fetched before, because the last attempt has failed.
    """

    __slots__ = (
        "error",
        "high_watermark",
        "is_leaving",
        "is_paused",
        "last_stable_offset",
        "leader",
        "log_start",
        "partition",
        "piece",
        "position",
        "replica",
        "replica_until",
        "retry_at",
    )

    def __init__(self, partition: TopicPartition, leader: int | None) -> None:
        self.partition = partition
        self.position: int | None = None
        self.is_paused = False
        self.is_leaving = False
        self.high_watermark: int | None = None
        self.last_stable_offset: int | None = None
        self.log_start: int | None = None
        self.leader = leader
        self.replica: int | None = None
        self.replica_until = 0.0
        self.piece: FetchedPiece | None = None
        self.error: BrokerError | None = None
        self.retry_at = 0.0

    @property
    def is_flowing(self) -> bool:
        """True if it is to be fetched, and its records are to be taken."""
        return self.position is not None and not self.is_paused and not self.is_leaving

    def node(self, now: float) -> int | None:
        """Return the node to fetch it from; None: its leader is not known."""
        if self.replica is None:
            return self.leader
        if now >= self.replica_until:
            self.replica = None
            return self.leader
        return self.replica

    def end(self, *, read_committed: bool) -> int | None:
        """Return the end of the log that the last fetch was answered with.

        None before a fetch was answered, and if the broker does not tell the end.
        """
        end = self.last_stable_offset if read_committed else self.high_watermark
        return None if end is None or end < 0 else end
