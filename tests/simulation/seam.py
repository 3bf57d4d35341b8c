"""Stands between an application and the in-memory broker: notes what passes, and can cut the
application off.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Callable, Collection, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

from reactive_kafka.broker.client import Chunk, Connector, Poll, TransactionId, WrittenBatch
from reactive_kafka.errors import BrokerError, OutcomeUnknownError, TransientBrokerError
from reactive_kafka.records import Committed, HeaderPairs, RecordBytes, TopicPartition
from tests.simulation.checker import Headers, Place

REQUEST: ContextVar[int] = ContextVar("request", default=0)
"""The commit request in whose course something happens; what the broker does later for it still has
it.
"""
PLACE = "of-the-simulation"
"""A header of each record that an application gets: where it stands. What is made of the record has
it, too.
"""

Note = Callable[..., None]
_CALLS = frozenset(
    {
        "start",
        "poll",
        "committed",
        "beginning_offsets",
        "end_offsets",
        "topics",
        "check",
        "offsets_for_times",
    }
    | {"partitions"}
)
_CALLS_IN_TRANSACTIONS = frozenset({"partitions", "claim", "add_group", "commit", "abort"})


class Seam:
    """Shared by all clients of one application.

    Args:
        note: Adds an event to the history.
        called: Called before each call, which may then find the broker changed.
        next_request: The number of a commit request.
        sent: Called with the answer of each record or batch that is sent, to come.
        lost: Called with *who* when a client has lost its partitions because its group became
            classic in an epoch that it had not heard of.
        joined: Called when a partition is assigned, before the application hears of it.
        is_beside: Whether a partition's position is kept elsewhere, and its commits go on beside
            that.
    """

    def __init__(
        self,
        who: str,
        inner: Connector,
        note: Note,
        called: Callable[[], None],
        next_request: Callable[[], int],
        is_beside: Callable[[TopicPartition], bool] = lambda _: False,
        joined: Callable[[TopicPartition], None] = lambda _: None,
        sent: Callable[[Future[Any]], None] = lambda _: None,
        lost: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.who = who
        self.inner = inner
        self.note = note
        self.called = called
        self.next_request = next_request
        self.is_beside = is_beside
        self.joined = joined
        self.sent = sent
        self.lost = lost
        self.is_cut = False
        self.consumers: list[SeamConsumer] = []

    # -- the connector's face

    def consumer(self, *, name: str, **named: Any) -> Any:
        inner = self.inner.consumer(name=f"{self.who}.{name}", **named)
        if named.get("group_id") is None:
            # It is in no group: it owns nothing, and commits nothing.
            return _Counted(self, inner)
        made = SeamConsumer(self, inner)
        made.number = len(self.consumers) + 1
        self.consumers.append(made)
        return made

    def producer(self, *, name: str, **named: Any) -> Any:
        return _Counted(self, self.inner.producer(name=f"{self.who}.{name}", **named))

    def transactional_producer(self, *, name: str, **named: Any) -> Any:
        inner = self.inner.transactional_producer(name=f"{self.who}.{name}", **named)
        return _Counted(self, inner, _CALLS_IN_TRANSACTIONS)

    def inspector(self, **named: Any) -> Any:
        return _Counted(self, self.inner.inspector(**named))

    async def close(self) -> None:
        """The broker belongs to the scenario."""

    def check(self) -> None:
        """A call is made.

        Raises:
            TransientBrokerError: The application is cut off.
        """
        self.called()
        if self.is_cut:
            raise TransientBrokerError("cut off")


def without_place(headers: HeaderPairs) -> Headers:
    """As the record had them before an application got it."""
    return tuple(header for header in headers if header[0] != PLACE)


def place_of(headers: HeaderPairs) -> Place | None:
    """Of which record this is a copy; None: of none, or whoever made it has left its headers
    out.
    """
    for name, value in headers:
        if name == PLACE and value is not None:
            topic, partition, offset, _ = value.decode().rsplit(" ", 3)
            return (topic, int(partition)), int(offset)
    return None


def client_of(headers: HeaderPairs) -> int:
    """Which of the application's clients has fetched a record; 0: none of the group's."""
    for name, value in headers:
        if name == PLACE and value is not None:
            return int(value.rpartition(b" ")[2])
    return 0


def _with_places(polled: Poll, client: int = 0) -> Poll:
    polled.chunks[:] = [
        chunk._replace(records=[_placed(one, chunk, client) for one in chunk.records])
        for chunk in polled.chunks
    ]
    return polled


def _placed(record: Any, chunk: Chunk, client: int) -> Any:
    topic, partition = chunk.partition
    place = PLACE, f"{topic} {partition} {record.offset} {client}".encode()
    return replace(record, headers=(*without_place(record.headers), place))


class _Counted:
    """A client whose calls are counted, and fail while it is cut off."""

    def __init__(self, seam: Seam, inner: Any, calls: frozenset[str] = _CALLS) -> None:
        self._seam = seam
        self._inner = inner
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._inner, name)
        if name == "write":
            return self._write
        if name not in self._calls and name not in ("send", "create_topic"):
            return call

        async def counted(*arguments: Any, **named: Any) -> Any:
            self._seam.check()
            answer = await call(*arguments, **named)
            if name == "send":
                self._seam.sent(answer)
            return _with_places(answer) if name == "poll" else answer

        return counted

    async def _write(self, to: TopicPartition, records: Sequence[RecordBytes]) -> WrittenBatch:
        self._seam.check()
        over: Future[None] = asyncio.get_running_loop().create_future()
        self._seam.sent(over)
        try:
            written: WrittenBatch = await self._inner.write(to, records)
        finally:
            over.set_result(None)
        return written


class SeamConsumer(_Counted):
    """A consumer; its commits and assignments are noted."""

    number = 0

    async def start(self, listener: Any) -> None:
        self._seam.check()
        await self._inner.start(_Listener(self._seam, listener, self.number, self._is_behind))

    async def poll(
        self,
        budgets: Mapping[TopicPartition, int],
        timeout_s: float,
        most: int | None = None,
        byte_room: Any = None,
    ) -> Poll:
        self._seam.called()
        if self._seam.is_cut:
            await asyncio.sleep(timeout_s)
            return Poll()
        polled: Poll = await self._inner.poll(budgets, timeout_s, most, byte_room)
        if self._seam.is_cut:
            return Poll()
        for chunk in polled.chunks:
            first = chunk.records[0].offset if chunk.records else chunk.next_offset
            brought = {"offset": first, "until": chunk.next_offset, "count": len(chunk.records)}
            self._seam.note(
                "fetched", self._seam.who, tp=chunk.partition, client=self.number, **brought
            )
        return _with_places(polled, self.number)

    async def commit(self, offsets: Mapping[TopicPartition, Committed], generation: int) -> None:
        self._seam.check()
        number = self._seam.next_request()
        token = REQUEST.set(number)
        told = {tp: wanted for tp, wanted in offsets.items() if not self._seam.is_beside(tp)}
        for tp, wanted in sorted(told.items()):
            details = {
                "offset": wanted.offset,
                "call": number,
                "client": self.number,
                "text": wanted.metadata,
            }
            self._seam.note("send", self._seam.who, tp=tp, **details)
        outcome = "unknown"
        is_behind = self._is_behind()
        try:
            await self._inner.commit(offsets, generation)
            outcome = "ok"
        except OutcomeUnknownError:
            raise
        except BrokerError:
            outcome = "failed"
            if is_behind:
                # It may stop before it is told in a revocation.
                self._seam.lost(self._seam.who)
            raise
        finally:
            REQUEST.reset(token)
            if told:
                self._seam.note("answer", self._seam.who, note=outcome, call=number)
        if self._seam.is_cut:
            raise OutcomeUnknownError("cut off")

    async def commit_in(
        self,
        transaction: TransactionId,
        offsets: Mapping[TopicPartition, Committed],
        generation: int,
    ) -> None:
        self._seam.check()
        await self._inner.commit_in(transaction, offsets, generation)
        if self._seam.is_cut:
            raise OutcomeUnknownError("cut off")

    async def stop(self) -> None:
        self._seam.note("left", self._seam.who, client=self.number)
        await self._inner.stop()

    def _is_behind(self) -> bool:
        return getattr(self._inner._member, "is_behind", False)

    @property
    def member_id(self) -> str | None:
        """Its id in the group at the moment."""
        member = self._inner._member
        return member.member_id if member is not None else None


class _Listener:
    def __init__(self, seam: Seam, inner: Any, client: int, is_behind: Callable[[], bool]) -> None:
        self._seam = seam
        self._inner = inner
        self._client = client
        self._is_behind = is_behind

    async def on_assigned(self, partitions: frozenset[TopicPartition], generation: int) -> None:
        self._seam.called()
        if self._seam.is_cut:
            return
        for tp in sorted(partitions):
            self._seam.note(
                "assigned", self._seam.who, tp=tp, offset=generation, client=self._client
            )
            self._seam.joined(tp)
        await self._inner.on_assigned(partitions, generation)
        self._seam.note("rebalanced", self._seam.who, offset=generation, client=self._client)

    async def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self._seam.called()
        if self._seam.is_cut:
            return
        for tp in sorted(partitions):
            self._seam.note("revoking", self._seam.who, tp=tp, client=self._client)
        was_behind = self._is_behind()
        if was_behind:
            self._seam.lost(self._seam.who)
        await self._inner.on_revoked(partitions)
        if self._is_behind() and not was_behind:
            self._seam.lost(self._seam.who)
        for tp in sorted(partitions):
            self._seam.note("revoked", self._seam.who, tp=tp, client=self._client)
