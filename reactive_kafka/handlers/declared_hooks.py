"""The hooks and jobs that an application was decorated with. No I/O."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from reactive_kafka.assignment.rebalance_hooks import RebalanceHooks, RevokedHook
from reactive_kafka.config.settings import Settings
from reactive_kafka.errors import ConfigError
from reactive_kafka.handlers.blocking_calls import as_async
from reactive_kafka.handlers.declared_jobs import DeclaredJob, why_not_configured
from reactive_kafka.handlers.introspection import only_yields
from reactive_kafka.handlers.parameters import positional_of
from reactive_kafka.handlers.signature import name_and_place
from reactive_kafka.handlers.unknown_channels import unknown_channel_problem
from reactive_kafka.verdicts.unawaited import checked_alone

Hook = Callable[..., Any]
H = TypeVar("H", bound=Hook)


@dataclass(slots=True)
class DeclaredHooks:
    """The hooks and jobs of one application or router; hooks of partitions by channel."""

    start: list[Hook] = field(default_factory=list)
    before_stop: list[Hook] = field(default_factory=list)
    assigned: dict[str, list[Hook]] = field(default_factory=dict)
    revoked: dict[str, list[Hook]] = field(default_factory=dict)
    caught_up: dict[str, list[Hook]] = field(default_factory=dict)
    jobs: list[DeclaredJob] = field(default_factory=list)
    # Name of a check -> its function.
    readiness: dict[str, Hook] = field(default_factory=dict)

    @property
    def of_partitions(self) -> dict[str, dict[str, list[Hook]]]:
        """The name of a decorator -> the hooks of each channel."""
        return {
            "on_assigned": self.assigned,
            "on_revoked": self.revoked,
            "on_caught_up": self.caught_up,
        }

    def __bool__(self) -> bool:
        has_hooks = bool(self.start or self.before_stop or any(self.of_partitions.values()))
        return has_hooks or bool(self.jobs or self.readiness)

    def add_readiness(self, name: str, function: Hook) -> None:
        """Add the function of a check.

        Raises:
            ConfigError: The name is taken.
        """
        self._check_is_free(name, function)
        self.readiness[name] = function

    def _check_is_free(self, name: str, function: Hook) -> None:
        if name in self.readiness:
            raise ConfigError(
                f"@app.readiness({name!r}) of {name_and_place(function)}: "
                f"{name_and_place(self.readiness[name])} has that name: give each check its own"
            )

    def check_fits(self, other: DeclaredHooks) -> None:
        """Check that the hooks of another application or router can be taken over.

        Raises:
            ConfigError: A check of both has the same name.
        """
        for name, function in other.readiness.items():
            self._check_is_free(name, function)

    def take(self, other: DeclaredHooks) -> None:
        """Take over the hooks of another application or router, behind these."""
        self.readiness.update(other.readiness)
        self.start += other.start
        self.before_stop += other.before_stop
        self.jobs += other.jobs
        for kind, theirs in other.of_partitions.items():
            for channel, hooks in theirs.items():
                self.of_partitions[kind].setdefault(channel, []).extend(hooks)

    def problems(self, settings: Settings) -> list[str]:
        """Return why hooks cannot be called, and which channels of theirs are not configured."""
        problems = [_why_not_callable("@app.on_start", hook) for hook in self.start]
        problems += [_why_not_callable("@app.before_stop", hook) for hook in self.before_stop]
        problems += [
            _why_not_callable(f"@app.readiness({name!r})", function)
            for name, function in self.readiness.items()
        ]
        for kind, hooks in self.of_partitions.items():
            for channel, functions in hooks.items():
                who = f"@app.{kind}({channel!r})"
                for hook in functions:
                    arguments = ["the partitions"]
                    if kind == "on_revoked" and _takes_two(hook):
                        arguments.append("whether they are lost")
                    problems.append(_why_not_callable(who, hook, *arguments))
                    if channel not in settings.incoming:
                        where = f"{who} of {name_and_place(hook)}"
                        problems.append(
                            unknown_channel_problem(where, "incoming", channel, settings)
                        )
        problems += [why_not_configured(job, settings) for job in self.jobs]
        return [problem for problem in problems if problem is not None]

    def of(self, channel: str) -> RebalanceHooks:
        """Return the hooks of one channel, each as a function that is awaited."""
        return RebalanceHooks(
            tuple(checked_hook("on_assigned", hook) for hook in self.assigned.get(channel, ())),
            tuple(_revoked_hook(hook) for hook in self.revoked.get(channel, ())),
            tuple(checked_hook("on_caught_up", hook) for hook in self.caught_up.get(channel, ())),
        )


def hook_into(hooks: dict[str, list[Hook]], channel: str) -> Callable[[H], H]:
    """Return a decorator that adds a function to the hooks of a channel."""

    def decorate(function: H) -> H:
        hooks.setdefault(channel, []).append(function)
        return function

    return decorate


def _signature(hook: Hook) -> inspect.Signature | None:
    try:
        return inspect.signature(hook)
    except (ValueError, TypeError):
        # Some builtins have no signature. Their first call shows whether they can be called.
        return None


def _why_not_callable(who: str, hook: Hook, *arguments: str) -> str | None:
    """Return why the hook cannot be called with these arguments, or None if it can be.

    Args:
        who: The decorator of the hook.
        arguments: What the hook is called with, each argument in words.
    """
    if only_yields(hook):
        return f"{who} of {name_and_place(hook)} yields, but it is only called: return instead"
    signature = _signature(hook)
    if signature is None:
        return None
    try:
        signature.bind(*arguments)
    except TypeError as error:
        count = ("without an argument", "with one argument", "with two arguments")[len(arguments)]
        called = f"{count}, {' and '.join(arguments)}" if arguments else count
        return f"{who} of {name_and_place(hook)} is called {called}: {error}"
    return None


def _takes_two(hook: Hook) -> bool:
    """Return whether the hook has a second positional parameter."""
    signature = _signature(hook)
    return signature is not None and len(positional_of(signature)) >= 2


def checked_hook(kind: str, hook: Hook) -> Callable[..., Awaitable[Any]]:
    """Return the hook as a function that is awaited. It raises if a send was not awaited."""
    who = f"the {kind} hook {name_and_place(hook)}"
    return checked_alone(as_async(hook), who, in_thread=not inspect.iscoroutinefunction(hook))


def _revoked_hook(hook: Hook) -> RevokedHook:
    call = checked_hook("on_revoked", hook)
    if _takes_two(hook):
        return call
    return lambda partitions, lost: call(partitions)
