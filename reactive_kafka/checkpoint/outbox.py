"""Rows of events in the checkpoint store: what a store does with them, and who is told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Protocol, runtime_checkable

from reactive_kafka.checkpoint.store import TransactionalStore
from reactive_kafka.checkpoint.store_transactions import StoreTransaction
from reactive_kafka.observe.facts import OutboxFacts
from reactive_kafka.records import RawRecord, TopicPartition
from reactive_kafka.verdicts.outbox import OutboxEvent


class StoredEvent(NamedTuple):
    """The row of an event.

    Attributes:
        number: Rows of one partition are relayed in this order. A number is never used again.
        source: The incoming partition whose owner relays the event.
        created_at: When it was written, in seconds since the epoch. None: the store does not say.
    """

    number: int
    source: TopicPartition
    event: OutboxEvent
    created_at: float | None = None


@runtime_checkable
class OutboxStore(TransactionalStore, Protocol):
    """A store that keeps events as rows of its transactions. Raises as the others of its calls."""

    async def add_events(
        self,
        connection: Any,
        group: str,
        source: TopicPartition,
        events: Sequence[OutboxEvent],
    ) -> None:
        """Write events, at least one, in the transaction that has yielded *connection*.

        Their rows get ascending numbers in this order.
        """

    async def count_events(
        self, group: str, sources: Collection[TopicPartition]
    ) -> Mapping[str, int]:
        """Return outgoing channel -> its rows. The first call creates the table."""

    async def read_events(
        self,
        group: str,
        sources: Collection[TopicPartition],
        channel: str,
        *,
        most: int,
        most_bytes: int,
    ) -> Sequence[StoredEvent]:
        """Return the first rows of an outgoing channel, in the order of their numbers.

        Args:
            most: How many rows, at most.
            most_bytes: How many bytes their values have together. One row is always returned.
        """

    async def delete_events(self, numbers: Collection[int]) -> None:
        """Delete rows. Those that are gone already do not matter."""

    async def event_problems(self) -> Sequence[str]:
        """Return what keeps events from being written, read and deleted, for people.

        The table is created if it is missing. No row is changed.
        """


class Relay(Protocol):
    """Relays the events of one incoming channel to Kafka, as its hook sees it."""

    def begin(self) -> None:
        """A partition is read from now on: relay the rows that it has in the store."""

    def why_full(self) -> str | None:
        """Return why no transaction may add rows now; None: it may."""

    def added(self, events: Mapping[str, int]) -> None:
        """Rows are stored: outgoing channel -> their number."""

    def unsure(self) -> None:
        """Rows may be stored. Nobody knows."""

    async def flush(self, deadline: float) -> None:
        """Wait until no row is left, or until *deadline* (monotonic) if that takes longer."""

    def rows(self) -> int | None:
        """How many rows wait; None: they are being counted."""

    def facts(self) -> OutboxFacts:
        """Return how many rows wait, and for how long."""

    def not_ready(self) -> list[str]:
        """Return what keeps rows from being relayed, for people."""

    def close(self) -> None:
        """Relay nothing more."""


class StoreOutboxTransaction:
    """An :class:`~reactive_kafka.verdicts.outbox.OutboxTransaction` of a checkpoint store.

    Args:
        transaction: The transaction itself.
        partition: The incoming partition whose owner relays its events.
        source: The record that it settles, if it is one.
    """

    def __init__(
        self,
        transaction: StoreTransaction,
        store: OutboxStore,
        group: str,
        partition: TopicPartition,
        source: RawRecord | None,
        relay: Relay,
    ) -> None:
        self.source = source
        self._transaction = transaction
        self._store = store
        self._group = group
        self._partition = partition
        self._relay = relay
        self._connection: Any = None
        self._added: Counter[str] = Counter()

    async def __aenter__(self) -> Any:
        self._connection = await self._transaction.__aenter__()
        return self._connection

    async def add(self, events: Sequence[OutboxEvent]) -> None:
        if not events:
            # What was sent is no record, such as None.
            return
        await self._store.add_events(self._connection, self._group, self._partition, events)
        self._added.update(event.channel for event in events)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        try:
            suppressed = await self._transaction.__aexit__(kind, error, trace)
        except BaseException:
            # The commit may have failed, or only its answer is lost: the rows must be counted.
            if error is None and self._added:
                self._relay.unsure()
            raise
        if error is None and self._added:
            self._relay.added(self._added)
        return suppressed
