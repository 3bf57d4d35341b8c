"""The application's hooks of a rebalance, and how they are run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from reactive_kafka.observe.events import HookFailed, Observer
from reactive_kafka.records import TopicPartition
from reactive_kafka.tasks import outcome_of, told_of

HOOK_DEADLINE_S = 30.0
"""How long a hook of a rebalance may take: half of the time after which the group goes on without this member."""

PartitionHook = Callable[[frozenset[TopicPartition]], Awaitable[None]]
RevokedHook = Callable[[frozenset[TopicPartition], bool], Awaitable[None]]
"""Also told whether the partitions are lost: they are another's by now, and nothing can be committed for them."""


@dataclass(frozen=True, slots=True)
class Hooks:
    """The application's hooks of one channel, each already awaitable.

    Attributes:
        on_assigned: They run before reading begins.
        on_revoked: They run while the partitions are still ours, unless they are lost.
    """

    on_assigned: tuple[PartitionHook, ...] = ()
    on_revoked: tuple[RevokedHook, ...] = ()


class HookRunner:
    """Runs the hooks of one channel.

    Args:
        exit: A hook asked the process to end.
    """

    def __init__(self, channel: str, hooks: Hooks, observer: Observer, exit: Callable[[BaseException], None]) -> None:
        self._channel = channel
        self._hooks = hooks
        self._observer = observer
        self._exit = exit

    @property
    def has_assigned(self) -> bool:
        """Whether there is a hook for what an assignment brings."""
        return bool(self._hooks.on_assigned)

    async def assigned(self, partitions: frozenset[TopicPartition]) -> None:
        """An assignment brings these. A hook that asks the process to end does so at once."""
        for hook in self._hooks.on_assigned:
            self.exit_if_asked(await self._run("on_assigned", partial(hook, partitions)))

    async def revoked(self, partitions: frozenset[TopicPartition], *, is_lost: bool) -> list[BaseException | None]:
        """These go. What hooks raise is returned: a process that is to end by it first commits, and lets go."""
        return [await self._run("on_revoked", partial(hook, partitions, is_lost)) for hook in self._hooks.on_revoked]

    async def _run(self, kind: str, call: Callable[[], Awaitable[None]]) -> BaseException | None:
        """What a hook raises is told and returned, and the rebalance goes on; only who cancels that ends it."""
        # What a hook does to its task (cancels it, awaits one that was cancelled) can only be told from the end of the
        # rebalance itself if it has a task of its own. What it raises is that task's result, because asyncio passes a
        # task's SystemExit on to the loop.
        error = await outcome_of(call, f"{kind} of {self._channel}", HOOK_DEADLINE_S)
        if error is not None:
            self._observer.on(HookFailed(channel=self._channel, hook=kind, reason=told_of(error), error=error))
        return error

    def exit_if_asked(self, *errors: BaseException | None) -> None:
        """End the process if one of these asks for that."""
        for error in errors:
            if isinstance(error, SystemExit | KeyboardInterrupt):
                self._exit(error)
