"""A checkpoint store in virtual time that is away, slow, loses its answers, and lets requests land
late or twice.

All applications share one :class:`Database`; each has a :class:`StoreClient` of its own, which a
killed process takes with it. What a request does to the rows is one step, at the moment when it
lands.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

from reactive_kafka.checkpoint.store import Checkpoint, Write, allows
from reactive_kafka.errors import CheckpointRefusedError, StoreAwayError
from reactive_kafka.records import TopicPartition
from tests.simulation.history import Partition

if TYPE_CHECKING:
    from tests.simulation.member import Member
    from tests.simulation.world import World

T = TypeVar("T")

STORE_TIMEOUT_S = 2.0
"""How long a client waits for an answer."""
LATE_S = 3.0
"""How much later a request lands that the network repeats."""


class Database:
    """The rows, the user's own rows, and the faults that all clients meet.

    Attributes:
        rows: partition -> its row.
        user: place -> how often its record was written by transactions.
        away: Nothing reaches it.
        slow_s: How long each request is on its way.
        lost: So many answers of writes get lost.
        twice: So many writes land once more, later.
        held: While it is set, requests to write wait; of one application, or ("") of all.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.rows: dict[Partition, Checkpoint] = {}
        self.user: Counter[tuple[Partition, int]] = Counter()
        self.away = False
        self.slow_s = 0.0
        self.lost = 0
        self.twice = 0
        self.held: dict[str, asyncio.Event] = {}

    def hold(self, who: str = "") -> asyncio.Event:
        """Hold up all that is written (by one application) until it is released."""
        return self.held.setdefault(who, asyncio.Event())

    def release(self, who: str = "") -> None:
        """Let what was held up land."""
        if (held := self.held.pop(who, None)) is not None:
            held.set()

    def heal(self) -> None:
        """No fault follows."""
        self.away, self.slow_s, self.lost, self.twice = False, 0.0, 0, 0
        for who in tuple(self.held):
            self.release(who)

    def land(
        self,
        who: str,
        writes: Mapping[TopicPartition, Write],
        call: int,
        records: Collection[tuple[Partition, int]] = (),
    ) -> frozenset[TopicPartition]:
        """Write the rows that may be written, and the user's with them: all or nothing, where there
        are some.
        """
        refused = frozenset(
            tp for tp, write in writes.items() if not allows(self.rows.get(tp), write)
        )
        for tp in sorted(refused):
            self._note("refused", who, tp, writes[tp].checkpoint, call)
        if records and refused:
            return refused
        for place in records:
            self.user[place] += 1
            self.world.note("row", who, tp=place[0], offset=place[1], call=call)
        for tp, write in sorted(writes.items()):
            if tp not in refused:
                self._put(who, tp, write, call)
        return refused

    def _put(self, who: str, tp: TopicPartition, write: Write, call: int) -> None:
        before = self.rows.get(tp)
        self.rows[tp] = write.checkpoint
        is_claim = write.checkpoint.token != write.expected
        if is_claim:
            self._note("claim", who, tp, write.checkpoint, call)
        if not is_claim or write.checkpoint[1:] != (before or Checkpoint(0))[1:]:
            self._note("commit", who, tp, write.checkpoint, call)
            self.world.note_plans(tp, write.checkpoint.metadata, call)

    def _note(self, kind: str, who: str, tp: TopicPartition, row: Checkpoint, call: int) -> None:
        offset = -1 if row.position is None else row.position
        self.world.note(
            kind,
            who,
            tp=tuple(tp),
            offset=offset,
            call=call,
            token=row.token,
            state=row.state,
            text=row.metadata,
        )


class Connection:
    """What a transaction yields: the user's rows, until it ends."""

    def __init__(self) -> None:
        self.records: list[tuple[Partition, int]] = []

    def insert(self, tp: Partition, offset: int) -> None:
        """Write a record."""
        self.records.append((tp, offset))


class StoreClient:
    """One application's; has the face of
    :class:`reactive_kafka.checkpoint.store.TransactionalStore`.
    """

    def __init__(self, database: Database, member: Member) -> None:
        self._database = database
        self._member = member

    async def read(
        self, group: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, Checkpoint]:
        """The rows that there are."""
        rows = self._database.rows
        return await self._ask(lambda: {tp: rows[tp] for tp in partitions if tp in rows})

    async def write(
        self, group: str, writes: Mapping[TopicPartition, Write]
    ) -> frozenset[TopicPartition]:
        """Compare and set."""
        wanted = dict(writes)
        return await self._write(
            wanted, lambda call: self._database.land(self._member.who, wanted, call)
        )

    @asynccontextmanager
    async def transaction(
        self, group: str, writes: Mapping[TopicPartition, Write]
    ) -> AsyncIterator[Connection]:
        """Compare at the entry, compare and set at the exit."""
        rows = self._database.rows
        await self._ask(lambda: None)
        if any(not allows(rows.get(tp), write) for tp, write in writes.items()):
            raise CheckpointRefusedError("refused at the entry")
        connection = Connection()
        yield connection
        wanted = dict(writes)
        refused = await self._write(
            wanted,
            lambda call: self._database.land(self._member.who, wanted, call, connection.records),
        )
        if refused:
            raise CheckpointRefusedError("refused at the exit")

    async def close(self) -> None:
        """There is nothing to close."""

    # -- requests

    async def _write(self, writes: Mapping[TopicPartition, Write], effect: Callable[[int], T]) -> T:
        """A request that changes something: noted from its start to its answer."""
        world = self._member.world
        call = world.next_request()
        for tp, write in sorted(writes.items()):
            at = -1 if write.checkpoint.position is None else write.checkpoint.position
            self._member.note("send", tp=tp, offset=at, call=call, token=write.checkpoint.token)
        outcome = "unknown"
        try:
            answer = await self._ask(lambda: effect(call), writes=True)
            outcome = "failed" if answer else "ok"
            return answer
        finally:
            self._member.note("answer", note=outcome, call=call)

    async def _ask(self, effect: Callable[[], T], *, writes: bool = False) -> T:
        self._check()
        database = self._database
        is_held = writes and bool(database.held.keys() & {"", self._member.who})
        if not (is_held or database.slow_s or database.lost or database.twice):
            await asyncio.sleep(0)
            self._check()
            return effect()
        if writes and database.twice:
            database.twice -= 1
            self._member.world.bite("store twice")
            self._member.world.spawn(self._later(effect))
        on_its_way = asyncio.create_task(self._carry(effect, writes=writes), name="store request")
        self._member.world.keep(on_its_way)
        try:
            async with asyncio.timeout(STORE_TIMEOUT_S):
                # Who is cancelled leaves it on its way.
                answer = await asyncio.shield(on_its_way)
        except TimeoutError:
            raise StoreAwayError("no answer") from None
        if writes and database.lost:
            database.lost -= 1
            self._member.world.bite("store lost")
            raise StoreAwayError("the answer was lost")
        self._check()
        return answer

    async def _carry(self, effect: Callable[[], T], *, writes: bool) -> T:
        database = self._database
        await asyncio.sleep(database.slow_s)
        for who in ("", self._member.who) if writes else ():
            if (held := database.held.get(who)) is not None:
                await held.wait()
                self._member.world.bite("store late")
        return effect()

    async def _later(self, effect: Callable[[], object]) -> None:
        await asyncio.sleep(LATE_S)
        effect()

    def _check(self) -> None:
        self._member.world.called()
        if self._database.away or self._member.seam.is_cut:
            self._member.world.bite("store away")
            raise StoreAwayError("away")
