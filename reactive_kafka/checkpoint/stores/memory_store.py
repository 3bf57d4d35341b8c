"""A store in memory, for tests and simulations. Scripts make it fail, wait and lose answers."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Literal, NamedTuple, TypeVar

from reactive_kafka.broker.memory.scripted_faults import Hold
from reactive_kafka.checkpoint.outbox import StoredEvent
from reactive_kafka.checkpoint.store import Checkpoint, Write, allows, raise_if_refused
from reactive_kafka.errors import CheckpointRefusedError, CorruptCheckpointError, StoreAwayError
from reactive_kafka.records import TopicPartition
from reactive_kafka.verdicts.outbox import OutboxEvent

DEADLINE_S = 10.0

CallKind = Literal["read", "write", "enter", "exit"]
"""``enter`` and ``exit`` are the start and the end of a transaction."""

Outcome = Literal["ok", "away", "lost", "late", "corrupt"]
"""What becomes of a call.

``away``: it raises and has no effect. ``lost``: it takes effect, and raises. ``late``: it raises,
and takes effect when :meth:`Rows.land` is called. ``corrupt``: the row cannot be read.
"""

T = TypeVar("T")


class WriteAttempt(NamedTuple):
    """One row that a client tried to write.

    Attributes:
        who: The client's name.
        stored: The write was allowed.
    """

    who: str
    group: str
    partition: TopicPartition
    write: Write
    stored: bool


class Faults:
    """The script of what happens to the next calls, of one client or of all clients.

    Attributes:
        away: While true, every call raises StoreAwayError and has no effect.
        slow_s: How long each call takes.
    """

    def __init__(self) -> None:
        self.away = False
        self.slow_s = 0.0
        self._scripts: defaultdict[CallKind, deque[Outcome | Hold]] = defaultdict(deque)

    def script(self, call: CallKind, *outcomes: Outcome) -> None:
        """Let the next calls of one kind end like this, one after the other. Later ones succeed."""
        self._scripts[call].extend(outcomes)

    def hold(self, call: CallKind) -> Hold:
        """Hold up the next call of one kind. If its caller gives it up, it has no effect."""
        hold = Hold()
        self._scripts[call].append(hold)
        return hold

    async def meet(self, call: CallKind) -> Outcome:
        """Wait as the script says, and return how the call ends."""
        if self.slow_s:
            await asyncio.sleep(self.slow_s)
        step = self._scripts[call].popleft() if self._scripts[call] else "ok"
        if isinstance(step, Hold):
            await step.wait()
            step = "ok"
        return "away" if self.away else step


class Rows:
    """The rows that the clients of one store share.

    Attributes:
        data: The data that users have written in transactions.
        history: Every attempt to write a row, in the order of the store.
        events: The rows of the outbox, each with its group, in the order of their numbers.
        faults: The script for the calls of all clients.
        late: The effects of late calls, which :meth:`land` carries out.
    """

    def __init__(self) -> None:
        self.data: dict[Any, Any] = {}
        self.history: list[WriteAttempt] = []
        self.events: list[tuple[str, StoredEvent]] = []
        self._next_number = 1
        self.faults = Faults()
        self._rows: dict[tuple[str, TopicPartition], Checkpoint] = {}
        self.late: list[Callable[[], object]] = []

    def row(self, group: str, partition: TopicPartition) -> Checkpoint | None:
        """Return the row that is stored now."""
        return self._rows.get((group, partition))

    def put(self, group: str, partition: TopicPartition, checkpoint: Checkpoint | None) -> None:
        """Store a row unconditionally; None removes it."""
        if checkpoint is None:
            self._rows.pop((group, partition), None)
        else:
            self._rows[group, partition] = checkpoint

    def refused(
        self, group: str, writes: Mapping[TopicPartition, Write]
    ) -> frozenset[TopicPartition]:
        """Return the partitions whose write would be refused now."""
        return frozenset(
            partition
            for partition in writes
            if not allows(self.row(group, partition), writes[partition])
        )

    def write(
        self,
        who: str,
        group: str,
        writes: Mapping[TopicPartition, Write],
        *,
        together: bool = False,
    ) -> frozenset[TopicPartition]:
        """Write the rows that are allowed, and return the partitions that were refused.

        Args:
            together: Write nothing if one is refused.
        """
        refused = self.refused(group, writes)
        for partition in sorted(writes):
            stored = partition not in refused and not (together and refused)
            if stored:
                self._rows[group, partition] = writes[partition].checkpoint
            self.history.append(WriteAttempt(who, group, partition, writes[partition], stored))
        return refused

    def add_events(self, group: str, events: Sequence[tuple[TopicPartition, OutboxEvent]]) -> None:
        """Store events, each with the incoming partition whose owner relays it."""
        for source, event in events:
            self.events.append((group, StoredEvent(self._next_number, source, event)))
            self._next_number += 1

    def events_of(self, group: str, sources: Collection[TopicPartition]) -> list[StoredEvent]:
        """Return the rows of the outbox that the owner of these partitions relays."""
        return [stored for of, stored in self.events if of == group and stored.source in sources]

    def land(self) -> list[WriteAttempt]:
        """Carry out the late calls, in the order in which they were sent.

        Returns:
            What they tried to write.
        """
        before = len(self.history)
        late = self.late
        self.late = []
        for effect in late:
            # A transaction that is refused is rolled back; the history has its attempts.
            with suppress(CheckpointRefusedError):
                effect()
        return self.history[before:]


_named: dict[str, Rows] = {}


def forget(name: str) -> None:
    """Drop the rows behind ``memory://name``."""
    _named.pop(name, None)


class TransactionData(dict[Any, Any]):
    """What a transaction yields: a dict, with ``send`` for events.

    Attributes:
        events: The events so far, each with the incoming partition whose owner relays it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.events: list[tuple[TopicPartition, OutboxEvent]] = []


class MemoryStore:
    """One client of rows in memory. The rows are gone with the process.

    Attributes:
        rows: The rows, which it shares with other clients.
        who: Its name in the history.
        faults: The script for this client alone; that for all clients is played first.
        deadline_s: How long a call may take before it raises StoreAwayError.
    """

    def __init__(self, rows: Rows | None = None, *, who: str = "") -> None:
        self.rows = Rows() if rows is None else rows
        self.who = who
        self.faults = Faults()
        self.deadline_s = DEADLINE_S

    @classmethod
    def named(cls, name: str, *, who: str = "") -> MemoryStore:
        """Return a client of the rows that this process keeps for ``memory://name``."""
        return cls(_named.setdefault(name, Rows()), who=who)

    def __repr__(self) -> str:
        return f"MemoryStore(who={self.who!r})"

    async def read(
        self, group: str, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, Checkpoint]:

        def found() -> dict[TopicPartition, Checkpoint]:
            rows = {partition: self.rows.row(group, partition) for partition in partitions}
            return {partition: row for partition, row in rows.items() if row is not None}

        return await self._ask("read", found)

    async def write(
        self, group: str, writes: Mapping[TopicPartition, Write]
    ) -> frozenset[TopicPartition]:
        return await self._ask("write", lambda: self.rows.write(self.who, group, writes))

    @asynccontextmanager
    async def transaction(
        self, group: str, writes: Mapping[TopicPartition, Write]
    ) -> AsyncIterator[dict[Any, Any]]:
        """Yield a dict. Its items are added to :attr:`Rows.data` if the rows are stored."""
        data = TransactionData()

        def begin() -> None:
            raise_if_refused(group, self.rows.refused(group, writes))

        def end() -> None:
            raise_if_refused(group, self.rows.write(self.who, group, writes, together=True))
            self.rows.data.update(data)
            self.rows.add_events(group, data.events)

        await self._ask("enter", begin)
        yield data
        await self._ask("exit", end)

    async def add_events(
        self,
        connection: TransactionData,
        group: str,
        source: TopicPartition,
        events: Sequence[OutboxEvent],
    ) -> None:
        connection.events += [(source, event) for event in events]

    async def count_events(
        self, group: str, sources: Collection[TopicPartition]
    ) -> Mapping[str, int]:
        def counted() -> Counter[str]:
            found = self.rows.events_of(group, sources)
            return Counter(stored.event.channel for stored in found)

        return await self._ask("read", counted)

    async def read_events(
        self,
        group: str,
        sources: Collection[TopicPartition],
        channel: str,
        *,
        most: int,
        most_bytes: int,
    ) -> Sequence[StoredEvent]:
        def first() -> list[StoredEvent]:
            found = self.rows.events_of(group, sources)
            of_channel = [stored for stored in found if stored.event.channel == channel]
            size = 0
            taken: list[StoredEvent] = []
            for stored in of_channel[:most]:
                if taken and size >= most_bytes:
                    break
                size += len(stored.event.record.value or b"")
                taken.append(stored)
            return taken

        return await self._ask("read", first)

    async def delete_events(self, numbers: Collection[int]) -> None:
        def delete() -> None:
            self.rows.events = [
                (group, stored)
                for group, stored in self.rows.events
                if stored.number not in numbers
            ]

        await self._ask("write", delete)

    async def event_problems(self) -> Sequence[str]:
        return ()

    async def close(self) -> None:
        """Do nothing: nothing is open."""

    async def _ask(self, call: CallKind, effect: Callable[[], T]) -> T:
        try:
            async with asyncio.timeout(self.deadline_s):
                await asyncio.sleep(0)
                outcome = await self.rows.faults.meet(call)
                if outcome == "ok":
                    outcome = await self.faults.meet(call)
        except TimeoutError as error:
            raise StoreAwayError(
                f"the in-memory store did not answer within {self.deadline_s:g} s"
            ) from error
        if outcome == "corrupt":
            raise CorruptCheckpointError(
                "the in-memory store: the script says that this row cannot be read"
            )
        if outcome == "away":
            raise StoreAwayError("the in-memory store is away")
        if outcome == "late":
            self.rows.late.append(effect)
            raise StoreAwayError("the in-memory store did not answer: what was sent is on its way")
        result = effect()
        if outcome == "lost":
            raise StoreAwayError("the in-memory store did not answer: what was sent has arrived")
        return result
