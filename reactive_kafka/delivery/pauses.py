"""Who has paused a channel, or partitions of it, and for which reasons. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Iterable

from reactive_kafka.records import TopicPartition


class Pauses:
    """The pauses of one channel, through all of its assignments and restarts.

    Several parties may pause, each for a reason of its own; records flow again when every reason is gone. A reason
    counts once, however often it is given, for the whole channel and for each partition.
    """

    def __init__(self) -> None:
        self._channel: dict[str, None] = {}  # in the order in which they came
        self._partitions: dict[TopicPartition, dict[str, None]] = {}

    def pause(self, reason: str, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Pause the channel, or of it these partitions, whether or not they are assigned at the moment."""
        if partitions is None:
            self._channel[reason] = None
            return
        for partition in partitions:
            self._partitions.setdefault(partition, {})[reason] = None

    def resume(self, reason: str, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Take a reason away: of these partitions, or, with None, wherever it was given; else nothing changes."""
        if partitions is None:
            self._channel.pop(reason, None)
            partitions = tuple(self._partitions)
        for partition in partitions:
            reasons = self._partitions.get(partition, {})
            reasons.pop(reason, None)
            if not reasons:
                self._partitions.pop(partition, None)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the whole channel is paused, the oldest reason first; empty: it is not."""
        return tuple(self._channel)

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """Those that are paused by themselves, whatever is true of the channel."""
        return frozenset(self._partitions)

    def has(self, partition: TopicPartition) -> bool:
        """Whether nothing of a partition may be fetched or handled."""
        return bool(self._channel) or partition in self._partitions

    def __bool__(self) -> bool:
        return bool(self._channel or self._partitions)
