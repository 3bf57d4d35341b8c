"""Relays the rows of an outbox to Kafka, while this process owns their incoming partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence

from reactive_kafka.backoff import Backoff, Waits
from reactive_kafka.channel.outbox_backlog import OutboxBacklog, OutboxTotals, size_of
from reactive_kafka.checkpoint.channel_rows import CheckpointRows
from reactive_kafka.checkpoint.outbox import OutboxStore, StoredEvent
from reactive_kafka.errors import (
    ChannelClosedError,
    CorruptCheckpointError,
    FatalBrokerError,
    StoreAwayError,
    text_of,
)
from reactive_kafka.observe.facts import OutboxFacts
from reactive_kafka.outgoing.outgoing_channel import OutgoingChannel
from reactive_kafka.outgoing.queue.receipt import Receipt, receipted
from reactive_kafka.outgoing.queue.record import OutgoingRecord
from reactive_kafka.records import TopicPartition
from reactive_kafka.tasks import Flag, Handle, Spawn, is_set_within

MOST_EVENTS = 500
"""How many events are read and sent at once, at most."""
MOST_BYTES = 4_194_304
"""How many bytes the values of these have together, unless the first one alone has more."""
LOOK_S = 1.0
"""How often the partitions of this process are looked at."""
READ_S = 10.0
"""How often the table is read although no transaction has added rows."""
OWNED_S = 0.25
"""How often it is looked whether the partitions of events that are being sent are still ours."""
BACKOFF = Backoff(0.25, 5.0)
"""How soon the store is asked again after an error."""
FLUSH_S = 5.0
"""How long a stop waits for rows that can be relayed, at most."""
FLUSH_LOOK_S = 0.02


class EventReceipt(Receipt):
    """The outcome of one event."""

    __slots__ = ("_sent", "event")

    def __init__(self, event: StoredEvent, sent: SentEvents) -> None:
        super().__init__()
        self.event = event
        self._sent = sent

    def report(self, error: BaseException | None) -> None:
        self._sent.ended(self.event, error)


class SentEvents:
    """The events that were sent: those that have no outcome yet, and the outcomes of others."""

    def __init__(self) -> None:
        self.open: dict[int, EventReceipt] = {}
        self.confirmed: list[StoredEvent] = []
        self.refused: list[tuple[StoredEvent, str]] = []
        # Set while no outcome is open.
        self.is_over = Flag()

    def add(self, events: Iterable[StoredEvent]) -> list[EventReceipt]:
        """Return the receipts of events that are about to be sent."""
        # All of them first: an event may have its outcome at once.
        added = [EventReceipt(event, self) for event in events]
        self.open.update((receipt.event.number, receipt) for receipt in added)
        self._look()
        return added

    def ended(self, event: StoredEvent, error: BaseException | None) -> None:
        """Note the outcome of one event."""
        self.open.pop(event.number, None)
        if error is None:
            self.confirmed.append(event)
        elif not isinstance(error, ChannelClosedError):
            self.refused.append((event, text_of(error)))
        self._look()

    def drop(self, ours: frozenset[TopicPartition]) -> None:
        """Send no more events of partitions that are not ours. What is being written is written."""
        for number, receipt in list(self.open.items()):
            if receipt.event.source not in ours:
                receipt.void()
                del self.open[number]
        self._look()

    def _look(self) -> None:
        if self.open:
            self.is_over.clear()
        else:
            self.is_over.set()

    @property
    def has_outcomes(self) -> bool:
        """Whether there are outcomes that were not taken."""
        return bool(self.confirmed or self.refused)

    def take_outcomes(self) -> tuple[list[StoredEvent], list[tuple[StoredEvent, str]]]:
        """Return the events that were confirmed since the last call, and the refused ones."""
        taken = (self.confirmed, self.refused)
        self.confirmed = []
        self.refused = []
        return taken

    def has_room(self, most: int) -> bool:
        """Whether fewer than *most* outcomes are open, of events with less than ``MOST_BYTES``."""
        if len(self.open) >= most:
            return False
        return sum(size_of(receipt.event) for receipt in self.open.values()) < MOST_BYTES


class ChannelRelay:
    """Relays the rows of one incoming and one outgoing channel, in the order of their numbers.

    Args:
        names: The outgoing channels that the handlers of the incoming channel send to.
    """

    def __init__(
        self,
        rows: CheckpointRows,
        store: OutboxStore,
        channel: OutgoingChannel,
        names: frozenset[str],
        totals: OutboxTotals,
    ) -> None:
        self.name = channel.name
        self.backlog = OutboxBacklog(channel.settings.outbox_max_rows)
        # Outgoing channel that no handler sends to -> its rows, as counted last.
        self.unknown: Mapping[str, int] = {}
        # Why the store cannot be used until its operator has acted.
        self.problem: str | None = None
        self._rows = rows
        self._store = store
        self._channel = channel
        self._names = names
        self._totals = totals
        self._most = min(MOST_EVENTS, channel.settings.max_in_flight)
        self._sent = SentEvents()
        self._woken = Flag()
        self._read_at = 0.0
        self._counted_at = 0.0

    def wake(self) -> None:
        """There may be rows to relay."""
        self._woken.set()

    def owned(self) -> frozenset[TopicPartition]:
        """Return the partitions whose rows this process relays."""
        return frozenset(
            owned.partition
            for owned in self._rows.owned.values()
            if owned.tracker is not None
            and not owned.tracker.is_closed
            and self._rows.is_kept(owned.tracker)
        )

    @property
    def is_held_up(self) -> bool:
        """Whether nothing can be relayed now."""
        return (
            self.problem is not None
            or self._rows.away is not None
            or self._channel.facts().broker_error is not None
            or self.backlog.refused > 0
        )

    async def run(self) -> None:
        """Relay rows until this is cancelled."""
        waits = Waits(BACKOFF)
        clock = self._rows.clock
        sources: frozenset[TopicPartition] = frozenset()
        while True:
            is_woken = await is_set_within(self._woken, LOOK_S)
            self._woken.clear()
            before = sources
            sources = self.owned()
            self._sent.drop(sources)
            is_due = is_woken or sources != before or clock.monotonic() - self._read_at >= READ_S
            if not sources:
                await self._count(sources)
            if not sources or not is_due:
                continue
            try:
                await self._relay(sources)
            except StoreAwayError:
                self.wake()
                await asyncio.sleep(waits.next_s())
            except (FatalBrokerError, CorruptCheckpointError) as error:
                self.problem = text_of(error)
                self.wake()
                await asyncio.sleep(waits.next_s())
            else:
                self.problem = None
                waits.progressed()

    async def _relay(self, sources: frozenset[TopicPartition]) -> None:
        """Relay the rows of these partitions until none is left, or until others are ours."""
        try:
            await self._relay_all(sources)
        except BaseException:
            # Whatever it was: the rows of unsent events stay, and are read again.
            self._sent.drop(frozenset())
            self._note_outcomes()
            raise

    async def _relay_all(self, sources: frozenset[TopicPartition]) -> None:
        await self._delete_confirmed()
        while sources == self.owned():
            self._woken.clear()
            if self.backlog.must_count(sources) or self._is_unknown_old():
                await self._count(sources)
            events = await self._read(sources)
            # An event that is confirmed meanwhile must not be sent again.
            self._note_outcomes()
            is_progress = await self._write(self._to_send(events))
            if is_progress or self._sent.open:
                continue
            if events:
                # The broker refuses them. They are sent again when they are due.
                await is_set_within(self._woken, LOOK_S)
                self.wake()
            return
        # The next round has the partitions that are ours then.
        self.wake()

    def _to_send(self, events: Sequence[StoredEvent]) -> list[StoredEvent]:
        """Return the events to send now, at most as many as there is room for."""
        opened = self._sent.open
        due = self.backlog.to_send(events, self._rows.clock.monotonic())
        new = [event for event in due if event.number not in opened]
        return new[: self._most - len(opened)]

    def _is_unknown_old(self) -> bool:
        """Whether rows of channels that no handler sends to have to be counted again.

        Nothing else shows that an operator has deleted them.
        """
        now = self._rows.clock.monotonic()
        return bool(self.unknown) and now - self._counted_at >= READ_S

    async def _count(self, sources: frozenset[TopicPartition]) -> None:
        additions = self.backlog.additions
        if not sources:
            # The owners of the partitions report problems with their rows.
            self.backlog.counted(sources, 0, additions)
            self.unknown = {}
            self.problem = None
            return
        call = self._store.count_events(self._rows.group, sources)
        counted = await self._rows.ask(call, is_write=False)
        self._counted_at = self._rows.clock.monotonic()
        self.unknown = {name: rows for name, rows in counted.items() if name not in self._names}
        self.backlog.counted(sources, counted.get(self.name, 0), additions)

    async def _read(self, sources: frozenset[TopicPartition]) -> Sequence[StoredEvent]:
        backlog = self.backlog
        additions = backlog.additions
        # Rows that the broker refuses stay in the table, and must not keep others from being read.
        most = self._most + backlog.refused
        most_bytes = MOST_BYTES + backlog.refused_bytes
        call = self._store.read_events(
            self._rows.group, sources, self.name, most=most, most_bytes=most_bytes
        )
        events = await self._rows.ask(call, is_write=False)
        self._read_at = self._rows.clock.monotonic()
        is_all = len(events) < most and sum(map(size_of, events)) < most_bytes
        backlog.read(events, is_all=is_all, additions=additions)
        return events

    async def _write(self, events: Sequence[StoredEvent]) -> bool:
        """Write events, and delete the rows of those that the broker has confirmed.

        An event whose topic or partition is away has no outcome for as long as that takes. It holds
        up no others: this returns before, when something else can be done.

        Returns:
            Whether any was confirmed.
        """
        for receipt in self._sent.add(events):
            self._put(receipt)
        while not await is_set_within(self._sent.is_over, OWNED_S):
            owned = self.owned()
            self._sent.drop(owned)
            # During an outage this is where it waits, and the number is shown all the time.
            if self.backlog.must_count(owned):
                await self._count(owned)
            if self._may_read_more():
                break
        is_progress = self._note_outcomes()
        await self._delete_confirmed()
        return is_progress

    def _may_read_more(self) -> bool:
        """Return whether the store may have more events, and there is room to send them."""
        if not self._sent.has_room(self._most):
            return False
        is_due = self._rows.clock.monotonic() - self._read_at >= READ_S
        return is_due or self._sent.has_outcomes or self._woken.is_set()

    def _note_outcomes(self) -> bool:
        """Note what the broker has said about events; return whether it has confirmed any."""
        confirmed, refused = self._sent.take_outcomes()
        self._totals.relayed += len(confirmed)
        self.backlog.sent(confirmed, refused, self._rows.clock.monotonic())
        return bool(confirmed)

    def _put(self, receipt: EventReceipt) -> None:
        event = receipt.event.event
        outgoing = OutgoingRecord(event.topic, event.record, event.partition)
        try:
            # Without a wait for room: no more events are read than there is room for.
            self._channel.put_now(outgoing, receipted(outgoing, receipt))
        except ChannelClosedError as error:
            receipt.void()
            self._sent.ended(receipt.event, error)

    async def _delete_confirmed(self) -> None:
        numbers = list(self.backlog.confirmed)
        if numbers:
            await self._rows.ask(self._store.delete_events(numbers))
            self.backlog.deleted(numbers)


class OutboxRelay:
    """Relays the events of one incoming channel, to each outgoing channel by itself.

    A :class:`~reactive_kafka.checkpoint.outbox.Relay`. An outgoing channel whose brokers are away
    holds up no other.

    Args:
        channels: Those with an outbox that the handlers of the channel send to.
        spawn: Starts the tasks, when the first partition is read.
        totals: Counts the events that are relayed.
    """

    def __init__(
        self,
        rows: CheckpointRows,
        store: OutboxStore,
        channels: Iterable[OutgoingChannel],
        spawn: Spawn,
        totals: OutboxTotals,
    ) -> None:
        self._clock = rows.clock
        self._totals = totals
        targets = list(channels)
        names = frozenset(channel.name for channel in targets)
        self._relays = [ChannelRelay(rows, store, channel, names, totals) for channel in targets]
        self._incoming = rows.channel
        self._spawn = spawn
        # The tasks of the relays.
        self._running: list[Handle] = []
        self._has_begun = False

    def begin(self) -> None:
        for relay in self._relays:
            if not self._has_begun:
                handle = self._spawn(relay.run, f"outbox of {self._incoming} to {relay.name}")
                if handle is not None:
                    self._running.append(handle)
            # The partition may have rows.
            relay.backlog.count_again()
            relay.wake()
        self._has_begun = True

    def why_full(self) -> str | None:
        for relay in self._relays:
            if relay.backlog.rows is None:
                return "the rows of the outbox are being counted"
            if relay.backlog.is_full:
                return (
                    f"the outbox has {relay.backlog.rows} rows for channel {relay.name!r}, and "
                    f"outbox_max_rows is {relay.backlog.most_rows}"
                )
        return None

    def added(self, events: Mapping[str, int]) -> None:
        for relay in self._relays:
            if relay.name in events:
                relay.backlog.added(events[relay.name])
                relay.wake()

    def unsure(self) -> None:
        for relay in self._relays:
            relay.backlog.count_again()
            relay.wake()

    async def flush(self, deadline: float) -> None:
        until = min(deadline, self._clock.monotonic() + FLUSH_S)
        if not self._has_begun:
            return
        # The rows are deleted in several places; the loop ends within seconds.
        while self._clock.monotonic() < until and any(  # noqa: ASYNC110
            relay.backlog.rows != 0 and not relay.is_held_up for relay in self._relays
        ):
            await asyncio.sleep(FLUSH_LOOK_S)

    def rows(self) -> int | None:
        if not self._has_begun:
            return 0
        total = 0
        for relay in self._relays:
            if relay.backlog.rows is None:
                return None
            total += relay.backlog.rows
        return total

    def facts(self) -> OutboxFacts:
        wall = self._clock.wall()
        ages = [
            max(0.0, wall - relay.backlog.oldest_at)
            for relay in self._relays
            if relay.backlog.oldest_at is not None
        ]
        return OutboxFacts(self.rows(), max(ages, default=None), self._totals.relayed)

    def not_ready(self) -> list[str]:
        return list(self._reasons())

    def _reasons(self) -> Iterator[str]:
        unknown = dict[str, int]()
        for relay in self._relays:
            backlog = relay.backlog
            if relay.problem is not None:
                yield f"the outbox cannot be read: {relay.problem}"
            if backlog.refusal is not None:
                yield (
                    f"the broker refuses {backlog.refused} events of the outbox for channel "
                    f"{relay.name!r}: {backlog.refusal}; their rows stay"
                )
            if backlog.rows is not None and backlog.is_full:
                yield (
                    f"the outbox is full: {backlog.rows} rows for channel {relay.name!r} "
                    f"(outbox_max_rows = {backlog.most_rows}); no record is handled until it has "
                    "room"
                )
            unknown |= relay.unknown
        for name, rows in unknown.items():
            yield (
                f"the outbox has {rows} rows for channel {name!r}, which no handler of "
                f"{self._incoming!r} sends to: give it one again, or delete them"
            )

    def close(self) -> None:
        # Each is cancelled once. A relay may be reading the store: SQLAlchemy then closes the
        # connection, and if that is cancelled as well, the connection never ends.
        for handle in self._running:
            handle.cancel()
