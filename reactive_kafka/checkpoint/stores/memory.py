"""A store in memory, for tests and simulations: it fails, waits and loses answers as it is told
to.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Literal, NamedTuple, TypeVar

from reactive_kafka.broker.memory.scripted_faults import Hold
from reactive_kafka.checkpoint.store import Checkpoint, Write, allows, refuse
from reactive_kafka.errors import CheckpointRefusedError, CorruptCheckpointError, StoreAwayError
from reactive_kafka.records import TopicPartition

DEADLINE_S = 10.0

Call = Literal["read", "write", "enter", "exit"]
"""``enter`` and ``exit`` are the start and the end of a transaction."""

Outcome = Literal["ok", "away", "lost", "late", "corrupt"]
"""What becomes of a call.

``away``: nothing happens, and it raises. ``lost``: it takes effect, and raises. ``late``: it
raises, and takes effect when :meth:`Rows.land` is called. ``corrupt``: what is stored cannot be
read.
"""

T = TypeVar("T")


class Written(NamedTuple):
    """One row that somebody tried to write."""

    # Name of the client.
    who: str
    group: str
    partition: TopicPartition
    write: Write
    # It was let through.
    stored: bool


class Faults:
    """What the next calls will meet; of one client, or of all of them."""

    def __init__(self) -> None:
        # While True every call raises StoreAwayError, and nothing happens.
        self.away = False
        # How long each call takes.
        self.slow_s = 0.0
        self._scripts: defaultdict[Call, deque[Outcome | Hold]] = defaultdict(deque)

    def script(self, call: Call, *outcomes: Outcome) -> None:
        """Let the next calls of one kind end like this, one after the other; then all is well
        again.
        """
        self._scripts[call].extend(outcomes)

    def hold(self, call: Call) -> Hold:
        """Hold up the next call of one kind, before anything happens. Given up by its caller it
        does nothing.
        """
        hold = Hold()
        self._scripts[call].append(hold)
        return hold

    async def meet(self, call: Call) -> Outcome:
        """The call's side: wait as long as it is to wait; then how it ends."""
        if self.slow_s:
            await asyncio.sleep(self.slow_s)
        step = self._scripts[call].popleft() if self._scripts[call] else "ok"
        if isinstance(step, Hold):
            await step.wait()
            step = "ok"
        return "away" if self.away else step


class Rows:
    """What the clients of one store share."""

    def __init__(self) -> None:
        # What transactions have written.
        self.data: dict[Any, Any] = {}
        # Every row that was tried to be written, as the store saw them.
        self.history: list[Written] = []
        # Those that every client meets.
        self.faults = Faults()
        self._rows: dict[tuple[str, TopicPartition], Checkpoint] = {}
        # What calls have yet to do until land()
        self.late: list[Callable[[], object]] = []

    def row(self, group: str, partition: TopicPartition) -> Checkpoint | None:
        """What is stored now."""
        return self._rows.get((group, partition))

    def put(self, group: str, partition: TopicPartition, checkpoint: Checkpoint | None) -> None:
        """Store a row, whatever is there; None removes it."""
        if checkpoint is None:
            self._rows.pop((group, partition), None)
        else:
            self._rows[group, partition] = checkpoint

    def refused(
        self, group: str, writes: Mapping[TopicPartition, Write]
    ) -> frozenset[TopicPartition]:
        """Which of them would not be let through now."""
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
        """Write what is let through, *together* all or nothing; which ones were refused."""
        refused = self.refused(group, writes)
        for partition in sorted(writes):
            stored = partition not in refused and not (together and refused)
            if stored:
                self._rows[group, partition] = writes[partition].checkpoint
            self.history.append(Written(who, group, partition, writes[partition], stored))
        return refused

    def land(self) -> list[Written]:
        """Let what is late arrive, in the order in which it was sent; what became of it."""
        before = len(self.history)
        late = self.late
        self.late = []
        for effect in late:
            # A transaction, rolled back; the history tells.
            with suppress(CheckpointRefusedError):
                effect()
        return self.history[before:]


_named: dict[str, Rows] = {}


def forget(name: str) -> None:
    """Drop the rows behind ``memory://name``."""
    _named.pop(name, None)


class MemoryStore:
    """One client of rows in memory; the rows are gone with the process."""

    def __init__(self, rows: Rows | None = None, *, who: str = "") -> None:
        # What it shares with other clients.
        self.rows = Rows() if rows is None else rows
        # Its name in the history.
        self.who = who
        # What this client alone meets; those of all come first.
        self.faults = Faults()
        # How long a call may take before it raises StoreAwayError.
        self.deadline_s = DEADLINE_S

    @classmethod
    def named(cls, name: str, *, who: str = "") -> MemoryStore:
        """A client of the rows that this process shares under a name, as ``memory://name`` opens
        it.
        """
        return cls(_named.setdefault(name, Rows()), who=who)

    def __repr__(self) -> str:
        return f"MemoryStore(who={self.who!r})"

    async def read(
        self, group: str, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, Checkpoint]:
        rows = self.rows
        return await self._ask(
            "read",
            lambda: {one: row for one in partitions if (row := rows.row(group, one)) is not None},
        )

    async def write(
        self, group: str, writes: Mapping[TopicPartition, Write]
    ) -> frozenset[TopicPartition]:
        return await self._ask("write", lambda: self.rows.write(self.who, group, writes))

    @asynccontextmanager
    async def transaction(
        self, group: str, writes: Mapping[TopicPartition, Write]
    ) -> AsyncIterator[dict[Any, Any]]:
        """Yields a dict: what is put into it comes into :attr:`Rows.data` together with the rows,
        or not at all.
        """

        def end() -> None:
            refuse(group, self.rows.write(self.who, group, writes, together=True))
            self.rows.data.update(mine)

        mine: dict[Any, Any] = {}
        await self._ask("enter", lambda: refuse(group, self.rows.refused(group, writes)))
        yield mine
        await self._ask("exit", end)

    async def close(self) -> None:
        """Nothing is open."""

    async def _ask(self, call: Call, effect: Callable[[], T]) -> T:
        try:
            async with asyncio.timeout(self.deadline_s):
                await asyncio.sleep(0)
                outcome = await self.rows.faults.meet(call)
                outcome = await self.faults.meet(call) if outcome == "ok" else outcome
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
