"""How functions of the application are called: blocking ones in worker threads, and its hooks.

A thread cannot be ended. A call that is cancelled goes on in its thread, and the process must not
wait for it at exit.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context
from dataclasses import dataclass, field
from typing import Any, TypeVar

from anyio import CapacityLimiter, to_thread

from reactive_kafka.assignment.rebalance_hooks import RebalanceHooks, RevokedHook
from reactive_kafka.config.schema import Settings
from reactive_kafka.handlers.jobs import JobSpec, misfit
from reactive_kafka.handlers.parameters import positional_of
from reactive_kafka.handlers.registry import unknown
from reactive_kafka.handlers.signature import RAISED_BY, name_and_place
from reactive_kafka.tasks import outcome_of, told_of
from reactive_kafka.verdicts.unawaited import checked_alone

Hook = Callable[..., Any]
H = TypeVar("H", bound=Hook)

_running: set[object] = set()
"""One token for each call that is in its thread now, awaited or not."""


def calls_in_threads() -> int:
    """How many blocking calls have not returned."""
    return len(_running)


def as_async(
    function: Callable[..., Any], limiter: CapacityLimiter | None = None
) -> Callable[..., Awaitable[Any]]:
    """The function as an awaitable; one that is not async runs in a thread, within *limiter* or
    anyio's own limit.
    """
    if inspect.iscoroutinefunction(function):
        return function

    def run(*arguments: Any) -> tuple[Any, GeneratorExit | None]:
        token = object()
        _running.add(token)
        try:
            return function(*arguments), None
        except GeneratorExit as raised:
            # A future that held it would close the coroutines that await it.
            return None, raised
        finally:
            _running.discard(token)

    async def call(*arguments: Any) -> Any:
        # anyio gives the limiter back when the call is cancelled, though its thread runs on: hence
        # the tokens.
        result, raised = await to_thread.run_sync(
            run, *arguments, limiter=limiter, abandon_on_cancel=True
        )
        if raised is not None:
            raise raised
        return await result if inspect.isawaitable(result) else result

    return call


@dataclass(slots=True)
class HookSet:
    """The hooks and jobs that an application was decorated with; hooks of partitions by channel."""

    start: list[Hook] = field(default_factory=list)
    before_stop: list[Hook] = field(default_factory=list)
    assigned: dict[str, list[Hook]] = field(default_factory=dict)
    revoked: dict[str, list[Hook]] = field(default_factory=dict)
    caught_up: dict[str, list[Hook]] = field(default_factory=dict)
    jobs: list[JobSpec] = field(default_factory=list)

    @property
    def of_partitions(self) -> dict[str, dict[str, list[Hook]]]:
        """The name of a decorator -> the hooks of each channel."""
        return {
            "on_assigned": self.assigned,
            "on_revoked": self.revoked,
            "on_caught_up": self.caught_up,
        }

    @property
    def are_there(self) -> bool:
        """Whether there is a hook, or a job."""
        return bool(self.start or self.before_stop or any(self.of_partitions.values()) or self.jobs)

    def take(self, other: HookSet) -> None:
        """Have the hooks of another one, too, behind its own."""
        self.start += other.start
        self.before_stop += other.before_stop
        self.jobs += other.jobs
        for kind, theirs in other.of_partitions.items():
            for channel, hooks in theirs.items():
                self.of_partitions[kind].setdefault(channel, []).extend(hooks)

    def misfits(self, settings: Settings) -> list[str]:
        """The problems of all hooks: signatures that cannot be called, and channels that are not
        configured.
        """
        problems = [_misfit("@app.on_start", hook) for hook in self.start]
        problems += [_misfit("@app.before_stop", hook) for hook in self.before_stop]
        for kind, hooks in self.of_partitions.items():
            for channel, functions in hooks.items():
                who = f"@app.{kind}({channel!r})"
                for hook in functions:
                    lost = (
                        ("whether they are lost",)
                        if kind == "on_revoked" and _takes_two(hook)
                        else ()
                    )
                    problems.append(_misfit(who, hook, "the partitions", *lost))
                    if channel not in settings.incoming:
                        problems.append(
                            unknown(
                                f"{who} of {name_and_place(hook)}", "incoming", channel, settings
                            )
                        )
        problems += [misfit(job, settings) for job in self.jobs]
        return [problem for problem in problems if problem is not None]

    def of(self, channel: str) -> RebalanceHooks:
        """The hooks of one channel, each awaitable."""
        return RebalanceHooks(
            tuple(checked_hook("on_assigned", hook) for hook in self.assigned.get(channel, ())),
            tuple(_revoked(hook) for hook in self.revoked.get(channel, ())),
            tuple(checked_hook("on_caught_up", hook) for hook in self.caught_up.get(channel, ())),
        )


def hook_into(hooks: dict[str, list[Hook]], channel: str) -> Callable[[H], H]:
    """A decorator that adds a function to the hooks of a channel."""

    def decorate(function: H) -> H:
        hooks.setdefault(channel, []).append(function)
        return function

    return decorate


def _signature(hook: Hook) -> inspect.Signature | None:
    try:
        return inspect.signature(hook)
    except (ValueError, TypeError):
        # A builtin without one: the call will tell.
        return None


def _misfit(who: str, hook: Hook, *given: str) -> str | None:
    """Why the hook cannot be called with *given*, each argument in words, or None; *who* is its
    decorator.
    """
    try:
        if signature := _signature(hook):
            signature.bind(*given)
    except TypeError as error:
        number = ("without an argument", "with one argument", "with two arguments")[len(given)]
        called = f"{number}, {' and '.join(given)}" if given else number
        return f"{who} of {name_and_place(hook)} is called {called}: {error}"
    return None


def _takes_two(hook: Hook) -> bool:
    """Whether the hook has a second positional parameter."""
    signature = _signature(hook)
    return signature is not None and len(positional_of(signature)) >= 2


def checked_hook(kind: str, hook: Hook) -> Callable[..., Awaitable[Any]]:
    """The hook as an awaitable, which raises if it has not awaited a send."""
    who = f"the {kind} hook {name_and_place(hook)}"
    return checked_alone(as_async(hook), who, in_thread=not inspect.iscoroutinefunction(hook))


def _revoked(hook: Hook) -> RevokedHook:
    call = checked_hook("on_revoked", hook)
    return call if _takes_two(hook) else lambda partitions, lost: call(partitions)


async def run_start_hooks(
    hooks: Sequence[Hook], context: Context, then: Callable[[], None]
) -> None:
    """Run the hooks of the start one after the other, in tasks of their own, and *then* with the
    last one.

    A hook may cancel its task, also late, and the caller's is to live as long as the run. *then*
    comes in the same turn of the loop as the end of the last hook: a task that a hook has started,
    and that asks for a channel in its first line, finds it. The hooks may change *context*.

    Raises:
        BaseException: What a hook has raised.
        RuntimeError: A hook has ended as cancelled; for whoever starts the application that is no
            cancellation.
    """
    if not hooks:
        then()
    for number, hook in enumerate(hooks, 1):

        async def run(hook: Hook = hook, is_last: bool = number == len(hooks)) -> None:
            await checked_hook("on_start", hook)()
            if is_last:
                then()

        error = await outcome_of(run, "on_start hook", None, context)
        if isinstance(error, asyncio.CancelledError):
            raise RuntimeError(
                f"the on_start hook {name_and_place(hook)} ended with {told_of(error)}"
            ) from error
        if error is not None:
            error.add_note(f"{RAISED_BY}on_start hook {name_and_place(hook)}")
            raise error
