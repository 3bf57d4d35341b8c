"""A record that waits to be written, and who is told what becomes of it. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Sequence

from reactive_kafka.records import HeaderPairs, TopicPartition


class Waiting:
    """One record on its way: what is written, and who is told once what became of it.

    The line, the batch and whoever waits for the confirmation share this one object, because each further object
    would cost a tenth of a record's whole way. For the same reason there is no ``__init__``: who makes one sets its
    fields, which are those of :class:`~reactive_kafka.records.RecordBytes`.
    """

    __slots__ = ("headers", "key", "timestamp_ms", "value")

    value: bytes | None
    key: bytes | None
    headers: HeaderPairs
    timestamp_ms: int | None

    @property
    def is_over(self) -> bool:
        """Whether it was told, or nobody waits for it any more: what is not on its way yet is not written then."""
        raise NotImplementedError

    def written(self, at: TopicPartition, offset: int) -> None:
        """The broker has it."""
        raise NotImplementedError

    def fail(self, error: BaseException) -> None:
        """It will not be written."""
        raise NotImplementedError

    @classmethod
    def all_written(cls, waiting: Sequence[Waiting], at: TopicPartition, offset: int) -> None:
        """The broker has all of these, which are of one class, from *offset* on; -1: it does not say where.

        What one of them raises is raised when the others were told, too.
        """
        failed, step = None, 0 if offset < 0 else 1
        for one in waiting:
            try:
                one.written(at, offset)
            except BaseException as error:  # of whoever is told
                failed = failed or error
            offset += step
        if failed is not None:
            raise failed
