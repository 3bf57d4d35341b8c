"""Why a channel or a partition is paused. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count

from reactive_kafka.records import TopicPartition


class Pauses:
    """The pauses of one channel; they outlive assignments and restarts.

    A pause has a reason. Records flow again when every reason is withdrawn. A reason counts once
    for the whole channel and once for each partition, however often it is given.

    A *hold* is a pause for which a handler has asked by ``Later``. It has no reason, and whoever
    holds ends it.
    """

    def __init__(self) -> None:
        # The reasons for the whole channel, oldest first.
        self._channel: dict[str, None] = {}
        # Reason -> the partitions that are paused for it. No set is empty.
        self._partitions: dict[str, set[TopicPartition]] = {}
        # Number of a hold -> its partitions; None: the whole channel.
        self._holds: dict[int, frozenset[TopicPartition] | None] = {}
        self._numbers = count()

    def pause(self, reason: str, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Pause the channel, or only these partitions. They need not be assigned."""
        if partitions is None:
            self._channel[reason] = None
            return
        paused = self._partitions.get(reason, set()).union(partitions)
        if paused:
            self._partitions[reason] = paused

    def resume(self, reason: str, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Withdraw a reason for these partitions or, with None, wherever it was given."""
        paused = self._partitions.pop(reason, set())
        if partitions is None:
            self._channel.pop(reason, None)
            return
        still_paused = paused.difference(partitions)
        if still_paused:
            self._partitions[reason] = still_paused

    def hold(self, partitions: Iterable[TopicPartition] | None) -> Callable[[], None]:
        """Hold the channel, or only these partitions, until the returned function is called."""
        number = next(self._numbers)
        self._holds[number] = None if partitions is None else frozenset(partitions)

        def end() -> None:
            self._holds.pop(number, None)

        return end

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the whole channel is paused, the oldest reason first; empty if it is not."""
        return tuple(self._channel)

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """The partitions that are paused by name, whether or not the whole channel is paused."""
        return frozenset().union(*self._partitions.values())

    def has(self, partition: TopicPartition) -> bool:
        """Return whether records of a partition may neither be fetched nor handled."""
        if self._channel or any(partition in paused for paused in self._partitions.values()):
            return True
        return any(held is None or partition in held for held in self._holds.values())

    def __bool__(self) -> bool:
        return bool(self._channel or self._partitions or self._holds)
