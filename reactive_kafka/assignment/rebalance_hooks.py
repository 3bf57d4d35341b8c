"""The application's hooks of a channel's rebalances: each in a task of its own, and in its time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from reactive_kafka.assignment.deadlines import Deadlines
from reactive_kafka.clock import Clock
from reactive_kafka.observe.events import HookFailed, Observer
from reactive_kafka.records import TopicPartition
from reactive_kafka.tasks import outcome_of, told_of

PartitionHook = Callable[[frozenset[TopicPartition]], Awaitable[None]]
RevokedHook = Callable[[frozenset[TopicPartition], bool], Awaitable[None]]
"""Also told whether the partitions are lost: they are another's by now, and nothing can be
committed for them.
"""


HOOK: ContextVar[tuple[str, asyncio.Task[Any] | None] | None] = ContextVar(
    "reactive_kafka hook", default=None
)
"""The channel whose hook runs, and its task: whoever is called from there must not wait for the
rebalance's end.
"""


@dataclass(frozen=True, slots=True)
class RebalanceHooks:
    """The application's hooks of one channel, each already awaitable."""

    # Before reading begins.
    on_assigned: tuple[PartitionHook, ...] = ()
    # While the partitions are still ours, unless they are lost.
    on_revoked: tuple[RevokedHook, ...] = ()
    # When all that was there at the assignment is handled.
    on_caught_up: tuple[PartitionHook, ...] = ()


def as_hook_of(channel: str, call: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
    """The call of a hook, which says in its task whose it is."""

    async def run() -> None:
        HOOK.set((channel, asyncio.current_task()))
        await call()

    return run


class HookRunner:
    """Runs hooks one after the other; what they raise is told and returned, and the rebalance goes
    on.
    """

    def __init__(self, channel: str, clock: Clock, observer: Observer) -> None:
        self._channel = channel
        self._clock = clock
        self._observer = observer

    async def run(
        self, kind: str, calls: Sequence[Callable[[], Awaitable[None]]], deadlines: Deadlines
    ) -> list[BaseException]:
        # What a hook does to its task (cancels it, awaits one that was cancelled) can only be told
        # from the end of the rebalance itself if it has a task of its own. What it raises is that
        # task's result, because asyncio passes a task's SystemExit on to the loop.
        channel = self._channel
        errors = list[BaseException]()
        for number, call in enumerate(calls):
            slot = deadlines.hook(self._clock.monotonic(), len(calls) - number)
            error = await outcome_of(
                as_hook_of(channel, call),
                f"{kind} of {channel}",
                slot.run_s,
                cleanup_s=slot.cleanup_s,
            )
            if error is not None:
                self._observer.on(
                    HookFailed(channel=channel, hook=kind, reason=told_of(error), error=error)
                )
                errors.append(error)
        return errors
