"""Calls the listener for each step of a member, one after the other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from reactive_kafka.broker.client import RebalanceListener
from reactive_kafka.broker.consumer.membership.group_parts import PartitionReader
from reactive_kafka.broker.consumer.membership.owned_since import OwnedSince
from reactive_kafka.broker.consumer.membership.rebalance_steps import (
    AssignStep,
    LoseStep,
    RebalanceStep,
)
from reactive_kafka.tasks import Flag


class SteppingMember(Protocol):
    """The rules of a member, as far as the listener is concerned."""

    owned: OwnedSince

    def next_step(self) -> RebalanceStep | None: ...

    def begin(self, step: RebalanceStep) -> None: ...

    def done(self, step: RebalanceStep) -> None: ...


class ListenerCalls:
    """The task that calls the listener. Requests of the member go on in another task meanwhile.

    Args:
        member: The rules.
        reader: Fetches what the member owns.
        note_change: Is called after each change of what the member owns, or may do next.
        prepare: Is awaited before the next step is asked for.
    """

    def __init__(
        self,
        member: SteppingMember,
        reader: PartitionReader,
        note_change: Callable[[], None],
        prepare: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._member = member
        self._reader = reader
        self._note_change = note_change
        self._prepare = prepare
        self._may_have_step = Flag()
        self._raised: Exception | None = None

    def wake(self) -> None:
        """Look for the next step of the member."""
        self._may_have_step.set()

    def take_error(self) -> Exception | None:
        """Return the first error that the listener has raised since the last call, if any."""
        raised = self._raised
        self._raised = None
        return raised

    async def run(self, listener: RebalanceListener) -> None:
        """Call the listener for ever.

        Cancellation: a call of the listener is cancelled. What it was to give up is released.
        """
        while True:
            await self._may_have_step.wait()
            self._may_have_step.clear()
            if self._prepare is not None:
                await self._prepare()
            while (step := self._member.next_step()) is not None:
                await self._carry_out(step, listener)

    async def _carry_out(self, step: RebalanceStep, listener: RebalanceListener) -> None:
        self._member.begin(step)
        if isinstance(step, AssignStep):
            self._reader.hold(step.partitions)
            self._note_change()
            await self._call(
                lambda: listener.on_assigned(step.partitions, self._member.owned.generation)
            )
            return
        self._reader.stop_reading(step.partitions)
        self._note_change()
        try:
            # A removed member that owns nothing has nothing to lose.
            if step.partitions or not isinstance(step, LoseStep):
                await self._call(lambda: listener.on_revoked(step.partitions))
        finally:
            self._reader.release(step.partitions)
            self._member.done(step)
            self._note_change()

    async def _call(self, call: Callable[[], Awaitable[None]]) -> None:
        """Call the listener, and keep what it raises for the next poll."""
        try:
            await call()
        except Exception as error:
            # The first error may be the cause of later ones.
            if self._raised is None:
                self._raised = error
            self._reader.wake()
