"""Why a channel, or partitions of it, are paused. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Iterable

from reactive_kafka.records import TopicPartition


class Pauses:
    """The pauses of one channel; they outlive assignments and restarts.

    Records flow again when every reason is gone. A reason counts once, however often it is given, for the whole channel
    and for each partition.
    """

    def __init__(self) -> None:
        self._channel: dict[str, None] = {}  # in the order in which they came
        self._partitions: dict[str, set[TopicPartition]] = {}  # reason -> what is paused for it; never empty

    def pause(self, reason: str, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Pause the channel, or only these partitions, whether or not they are assigned at the moment."""
        if partitions is None:
            self._channel[reason] = None
        elif paused := self._partitions.get(reason, set()).union(partitions):
            self._partitions[reason] = paused

    def resume(self, reason: str, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Withdraw a reason, for these partitions or, with None, wherever it was given."""
        paused = self._partitions.pop(reason, set())
        if partitions is None:
            self._channel.pop(reason, None)
        elif left := paused.difference(partitions):
            self._partitions[reason] = left

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the whole channel is paused, the oldest reason first; empty if it is not."""
        return tuple(self._channel)

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """The partitions that are paused one by one, whether or not the whole channel is."""
        return frozenset().union(*self._partitions.values())

    def has(self, partition: TopicPartition) -> bool:
        """Whether a partition is paused: nothing of it may be fetched or handled."""
        return bool(self._channel) or any(partition in paused for paused in self._partitions.values())

    def __bool__(self) -> bool:
        return bool(self._channel or self._partitions)
