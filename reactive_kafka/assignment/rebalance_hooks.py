"""Runs the application's hooks of a rebalance: each in a task of its own, with a deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any

from reactive_kafka.assignment.deadlines import Deadlines
from reactive_kafka.observe.events import HookFailed
from reactive_kafka.partitions.client_context import ClientContext
from reactive_kafka.records import TopicPartition
from reactive_kafka.tasks import outcome_of, outcome_text

PartitionHook = Callable[[frozenset[TopicPartition]], Awaitable[None]]
RevokedHook = Callable[[frozenset[TopicPartition], bool], Awaitable[None]]
"""Is also told whether the partitions are lost: another member has them by now, and nothing can be
committed for them."""

HOOK: ContextVar[tuple[str, asyncio.Task[Any] | None] | None] = ContextVar(
    "reactive_kafka hook", default=None
)
"""The channel whose hook runs, and the task of the hook: what is called from there must not wait
for the end of the rebalance."""

HOOK_CLIENT: ContextVar[HookRunner | None] = ContextVar("reactive_kafka client of hook")
"""The runner of the hook that runs: each client of a channel has one. A client may learn only late
that it has lost a partition, when another client of its channel has it already."""


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
    """Wrap the call of a hook, so that its task knows whose hook it is."""

    async def run() -> None:
        HOOK.set((channel, asyncio.current_task()))
        await call()

    return run


class HookRunner:
    """Runs hooks one after the other. What they raise is reported, and the rebalance continues.

    Args:
        exit: Called if a hook asked the process to end.
    """

    def __init__(
        self, context: ClientContext, hooks: RebalanceHooks, exit: Callable[[BaseException], None]
    ) -> None:
        self.hooks = hooks
        self._context = context
        self._exit = exit

    async def run_assigned(
        self, partitions: frozenset[TopicPartition], deadlines: Deadlines
    ) -> list[BaseException]:
        """Run the ``on_assigned`` hooks; returns what they raised."""
        calls = [partial(hook, partitions) for hook in self.hooks.on_assigned]
        return await self._run("on_assigned", calls, deadlines)

    async def run_revoked(
        self, partitions: frozenset[TopicPartition], deadlines: Deadlines, *, is_lost: bool
    ) -> list[BaseException]:
        """Run the ``on_revoked`` hooks; returns what they raised."""
        calls = [partial(hook, partitions, is_lost) for hook in self.hooks.on_revoked]
        return await self._run("on_revoked", calls, deadlines)

    async def _run(
        self, kind: str, calls: Sequence[Callable[[], Awaitable[None]]], deadlines: Deadlines
    ) -> list[BaseException]:
        # What a hook does to its task (cancels it, awaits one that was cancelled) can only be told
        # from the end of the rebalance itself if it has a task of its own. What it raises is that
        # task's result, because asyncio passes a task's SystemExit on to the loop.
        channel = self._context.channel
        errors = list[BaseException]()
        for number, call in enumerate(calls):
            slot = deadlines.hook(self._context.clock.monotonic(), len(calls) - number)
            error = await outcome_of(
                as_hook_of(channel, partial(self._call, call)),
                f"{kind} of {channel}",
                slot.run_s,
                cleanup_s=slot.cleanup_s,
            )
            if error is not None:
                self._context.observer.on(
                    HookFailed(channel=channel, hook=kind, reason=outcome_text(error), error=error)
                )
                errors.append(error)
        return errors

    async def _call(self, call: Callable[[], Awaitable[None]]) -> None:
        HOOK_CLIENT.set(self)
        await call()

    def exit_if_asked(self, errors: Iterable[BaseException]) -> None:
        """End the process if a hook has asked for it."""
        for error in errors:
            if isinstance(error, SystemExit | KeyboardInterrupt):
                self._exit(error)
