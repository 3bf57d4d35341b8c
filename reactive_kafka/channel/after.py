"""``after``: a channel starts records only while other channels have none waiting."""

from __future__ import annotations

import asyncio
from asyncio import TimerHandle
from collections.abc import Callable, Iterable, Mapping
from math import inf

from reactive_kafka.channel.client_connection import CONNECTING
from reactive_kafka.channel.clients import ChannelConsumer
from reactive_kafka.delivery.lanes.queue import StartGate
from reactive_kafka.partitions.partition import Partition

LOOK_S = 0.05
"""How often a channel that waits looks whether the others still have records."""


class AfterChannels(StartGate):
    """Lets the records of a channel start while the channels before it have none waiting.

    Args:
        channels: Name -> whether that channel has records waiting.
        limit: The channel's ``rate_limit``; None: it has none.
        wake: Called when a record may start, after :meth:`may_start` has refused one.
    """

    def __init__(
        self,
        channels: Mapping[str, Callable[[], bool]],
        limit: StartGate | None,
        wake: Callable[[], None],
    ) -> None:
        self._channels = channels
        self._limit = limit
        self._wake = wake
        self._timer: TimerHandle | None = None

    @property
    def waits_for(self) -> tuple[str, ...]:
        """The channels that have records waiting."""
        return tuple(name for name, has_waiting in self._channels.items() if has_waiting())

    def _must_wait(self) -> bool:
        """Return whether another channel has records; if so, ``wake`` is called once none has."""
        if not any(has_waiting() for has_waiting in self._channels.values()):
            return False
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look)
        return True

    def _look(self) -> None:
        self._timer = None
        if not self._must_wait():
            self._wake()

    @property
    def is_exhausted(self) -> bool:
        """Whether the rate limit lets no record start at the moment."""
        return self._limit is not None and self._limit.is_exhausted

    def may_start(self) -> bool:
        """Return whether a record may start. If not, ``wake`` is called once one may."""
        if self._must_wait():
            return False
        return self._limit is None or self._limit.may_start()

    def start(self, records: int) -> None:
        """Count records that start now."""
        if self._limit is not None:
            self._limit.start(records)

    def give_back(self, records: int) -> None:
        """Count records no more that were to start, and were skipped."""
        if self._limit is not None:
            self._limit.give_back(records)

    @property
    def batch_at(self) -> float:
        """When the next batch may be taken; infinite while another channel has records."""
        if self._must_wait():
            return inf
        return -inf if self._limit is None else self._limit.batch_at

    def batch_taken(self) -> Callable[[int], None]:
        """Note that a batch was taken that starts later."""
        return _count_nothing if self._limit is None else self._limit.batch_taken()

    def close(self) -> None:
        """Stop waking workers."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._limit is not None:
            self._limit.close()


def has_waiting(clients: Iterable[ChannelConsumer]) -> bool:
    """Return whether a running channel has records that are not settled, as far as is known.

    Delayed retries that are not due do not count. Nor does what is not known while a client cannot
    use its brokers: an outage must not hold up channels that read elsewhere.
    """
    return any(map(_client_has_waiting, clients))


def _client_has_waiting(client: ChannelConsumer) -> bool:
    if client.is_for_retries:
        return any(_unsettled(partition) for partition in client.table if partition.is_ours)
    error = client.connection.broker_error
    knows_all = error is None or error == CONNECTING
    if knows_all and not client.assignment.has_joined:
        return True
    return any(_has_waiting(partition, knows_all=knows_all) for partition in client.table)


def _has_waiting(partition: Partition, *, knows_all: bool) -> bool:
    if not partition.is_ours:
        return False
    tracker = partition.tracker
    run_end = partition.log.run_end
    if tracker is None:
        return knows_all
    if run_end is not None:
        # The run ends there, whatever comes later.
        return tracker.safe < run_end
    if _unsettled(partition):
        return True
    if partition.is_read_out or not knows_all:
        return False
    return partition.log.end is None or tracker.position < partition.log.end


def _unsettled(partition: Partition) -> int:
    """Return how many fetched records are unsettled, without retries that are not due."""
    if partition.tracker is None or partition.lane is None:
        return 0
    return partition.tracker.unsettled - len(partition.lane.delayed)


def _count_nothing(records: int) -> None:
    """Do nothing: there is no rate limit that would count the records of a batch."""
