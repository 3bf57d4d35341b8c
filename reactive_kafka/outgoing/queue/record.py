"""Records on their way to the broker. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from reactive_kafka.records import HeaderPairs, RecordBytes, TopicPartition


class OutgoingRecord(NamedTuple):
    """A record in bytes, and where to write it."""

    topic: str
    record: RecordBytes
    # None: the key chooses the partition, or any partition will do.
    partition: int | None = None


class QueuedRecord:
    """One record in a queue; it reports its outcome once, by ``written`` or ``fail``.

    The queue, the batch and the caller share this one object, because a further object would cost a
    tenth of the time that a record takes in all. That is also why it has no ``__init__``: the code
    that creates one sets its fields, which are those of
    :class:`~reactive_kafka.records.RecordBytes`.
    """

    __slots__ = ("headers", "key", "timestamp_ms", "value")

    value: bytes | None
    key: bytes | None
    headers: HeaderPairs
    timestamp_ms: int | None

    @property
    def is_over(self) -> bool:
        """True once it has reported, or is not needed: it is dropped unless already sent."""
        raise NotImplementedError

    def written(self, at: TopicPartition, offset: int) -> None:
        """The broker has it."""
        raise NotImplementedError

    def fail(self, error: BaseException) -> None:
        """It will not be written."""
        raise NotImplementedError

    @classmethod
    def all_written(cls, records: Sequence[QueuedRecord], at: TopicPartition, offset: int) -> None:
        """Report that the broker has all *records*, which are of one class.

        Args:
            offset: Of the first one; -1 if the broker does not say (``acks = 0``).

        Raises:
            BaseException: What the first callback that failed raised, after all others were called.
        """
        failed = None
        step = 0 if offset < 0 else 1
        for record in records:
            try:
                record.written(at, offset)
            except BaseException as error:
                failed = failed or error
            offset += step
        if failed is not None:
            raise failed
