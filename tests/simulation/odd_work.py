"""What odd handlers, callers and hooks do: cancel themselves, leave children behind, raise what
nobody expects.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reactive_kafka import Later, Message
from reactive_kafka.errors import BrokerError, ChannelClosedError
from reactive_kafka.records import TopicPartition
from tests.simulation.scenario import TOPIC, Load
from tests.simulation.time_draw import LONGER

if TYPE_CHECKING:
    from tests.simulation.member import Member

CONTEXT: ContextVar[str] = ContextVar("of the simulation", default="")
"""Set by some handlers; none may find it set."""
A_WHILE_S = 0.05
OWN = "_is_of_the_simulation"
"""An attribute of exceptions that are the handler's own, whatever their class."""


class MuteError(Exception):
    """Has no text."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


@dataclass
class UnhashableError(Exception):
    """Is compared by what it holds."""

    key: bytes = b""


class OwnError(BaseException):
    """Is caught by nobody who catches Exception."""


def own(error: BaseException) -> BaseException:
    """Mark an exception as the handler's own."""
    setattr(error, OWN, True)
    return error


def is_own(error: BaseException) -> bool:
    """Whether a handler has raised it by itself, be it a CancelledError."""
    return getattr(error, OWN, False)


class OddWork:
    """One application's."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._world = member.world
        # Tasks of calls that have cancelled themselves, and have not caught that.
        self._cancelled: set[asyncio.Task[Any] | None] = set()

    @property
    def has_cancelled_call(self) -> bool:
        """Whether the call that runs has cancelled itself, and has not caught that."""
        return asyncio.current_task() in self._cancelled

    def forget_cancellation(self) -> None:
        """The call that runs is over. Its task may make others."""
        self._cancelled.discard(asyncio.current_task())

    async def act(self, load: Load) -> None:
        """What the handler of a record does before its work."""
        if not load.odd or load.odd in (
            "nack-waits",
            "ack-waits",
            "ack-cancelled",
            "around-before",
            "around-after",
        ):
            return
        self._world.bite(f"odd {load.odd}")
        task = asyncio.current_task()
        # For the type checker.
        assert task is not None
        before = task.cancelling()
        try:
            await getattr(self, "_" + load.odd.replace("-", "_"))(load, task)
        except BaseException as error:
            mine = 1 if load.odd in ("self-cancel", "home-timeout", "home-timeout-over") else 0
            if not isinstance(error, asyncio.CancelledError) or task.cancelling() <= before + mine:
                own(error)
            raise

    async def _self_cancel(self, load: Load, task: asyncio.Task[Any]) -> None:
        task.cancel()
        await asyncio.sleep(0)

    async def _self_cancel_late(self, load: Load, task: asyncio.Task[Any]) -> None:
        task.cancel()
        self._cancelled.add(task)

    async def _home_timeout(self, load: Load, task: asyncio.Task[Any]) -> None:
        timer = asyncio.get_running_loop().call_later(A_WHILE_S, task.cancel)
        try:
            await asyncio.sleep(2 * A_WHILE_S)
        except asyncio.CancelledError:
            raise TimeoutError("home-made") from None
        finally:
            timer.cancel()

    async def _home_timeout_over(self, load: Load, task: asyncio.Task[Any]) -> None:
        try:
            await self._home_timeout(load, task)
        except TimeoutError:
            # It goes on without an answer. It may have caught what another record of its batch has
            # sent.
            self._cancelled.discard(task)

    async def _leaves_child(self, load: Load, task: asyncio.Task[Any]) -> None:
        self._world.keep(asyncio.create_task(asyncio.sleep(load.takes_s), name="a handler's child"))

    async def _cancelled_child(self, load: Load, task: asyncio.Task[Any]) -> None:
        child = asyncio.create_task(asyncio.sleep(A_WHILE_S), name="a handler's child")
        await asyncio.sleep(0)
        child.cancel()
        await child

    async def _mute(self, load: Load, task: asyncio.Task[Any]) -> None:
        raise MuteError

    async def _unhashable(self, load: Load, task: asyncio.Task[Any]) -> None:
        raise UnhashableError(load.id.encode())

    async def _base(self, load: Load, task: asyncio.Task[Any]) -> None:
        raise OwnError(load.id)

    async def _generator_exit(self, load: Load, task: asyncio.Task[Any]) -> None:
        raise GeneratorExit

    async def _group(self, load: Load, task: asyncio.Task[Any]) -> None:
        raise ExceptionGroup(
            "several", [ValueError(load.id), ExceptionGroup("more", [KeyError(load.id)])]
        )

    async def _base_group(self, load: Load, task: asyncio.Task[Any]) -> None:
        raise BaseExceptionGroup("several", [OwnError(load.id), ValueError(load.id)])

    async def _later_record(self, load: Load, task: asyncio.Task[Any]) -> None:
        raise Later(load.takes_s * LONGER, "record")

    async def _later_partition(self, load: Load, task: asyncio.Task[Any]) -> None:
        raise Later(load.takes_s * LONGER, "partition")

    async def _later_channel(self, load: Load, task: asyncio.Task[Any]) -> None:
        raise Later(load.takes_s * LONGER, "channel")

    async def _context(self, load: Load, task: asyncio.Task[Any]) -> None:
        CONTEXT.set(load.id)

    # -- verdicts that somebody waits for

    async def nack(self, message: Message[Any], reason: BaseException) -> None:
        """Nack a record, and wait for that under a timeout."""
        self._world.bite("odd nack-waits")
        try:
            async with asyncio.timeout(A_WHILE_S):
                await message.nack(reason)
        except TimeoutError:
            # It is carried out all the same.
            pass

    async def ack(self, message: Message[Any], kind: str) -> None:
        """Ack a record: wait for that under a timeout, or cancel it."""
        self._world.bite(f"odd {kind}")
        answer = message.ack()
        if kind == "ack-cancelled":
            answer.cancel()
            return
        try:
            async with asyncio.timeout(A_WHILE_S):
                await answer
        except TimeoutError:
            # It counts all the same.
            pass

    # -- while a partition is assigned

    async def assigned(self, partitions: frozenset[TopicPartition]) -> None:
        """The application's hook."""
        for kind in self._world.scenario.hooks:
            if not kind.startswith("seek") and partitions:
                self._world.bite(f"odd {kind}")
                await getattr(self, "_" + kind.replace("-", "_"))(min(partitions))

    async def _hook_raises(self, partition: TopicPartition) -> None:
        raise ValueError("a hook's own")

    async def _hook_cancelled(self, partition: TopicPartition) -> None:
        child = asyncio.create_task(asyncio.sleep(A_WHILE_S), name="a hook's child")
        child.cancel()
        await child

    async def _hook_acks(self, partition: TopicPartition) -> None:
        if self._member.held:
            await self._member.ack(*self._member.held.pop())

    async def _hook_seeks(self, partition: TopicPartition) -> None:
        await self.seek(partition)

    def joined(self, partition: TopicPartition) -> None:
        """A partition is assigned; its hooks have not run."""
        for kind in self._world.scenario.hooks:
            if kind.startswith("seek"):
                self._member.spawn(self._seek_later(partition, kind))

    async def _seek_later(self, partition: TopicPartition, kind: str) -> None:
        for _ in range(0 if kind == "seek-on-join" else self._world.dice.randrange(1, 30)):
            await asyncio.sleep(0)
        self._world.bite(f"odd {kind}")
        await self.seek(partition)

    async def seek(self, partition: TopicPartition) -> None:
        """Go on from somewhere, once in a while; not where all is to come to an end."""
        if self._world.dice.random() < 0.5 or self._world.healed.is_set():
            return
        offset = self._world.dice.randrange(self._world.broker.end(partition) + 1)
        before = len(self._world.events)
        self._world.skip(self._member, partition, offset, before)
        try:
            await self._member.app.channel(TOPIC).seek(partition, offset)
        except (BrokerError, ChannelClosedError):
            # It is not ours any more.
            return
        self._world.skip(self._member, partition, offset, before)
