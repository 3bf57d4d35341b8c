"""Jobs: functions that the clock calls, as ``@app.every`` and ``@app.cron`` declare them. No
I/O.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

from reactive_kafka.config.settings import IncomingSettings, Settings
from reactive_kafka.errors import ConfigError
from reactive_kafka.handlers.registry import unknown
from reactive_kafka.handlers.schedules import Schedule, cron, every
from reactive_kafka.handlers.signature import name_and_place, name_of_handler
from reactive_kafka.records import TopicPartition

Hook = TypeVar("Hook", bound=Callable[[], object])

_OWNED = re.compile(r"([^:]+):(?:([a-zA-Z0-9._-]{1,249}):)?([0-9]{1,10})")


class Owned(NamedTuple):
    """The partition whose owner runs a job; ``topic`` None: the only one of its channel."""

    channel: str
    topic: str | None
    partition: int

    def of(self, settings: IncomingSettings) -> TopicPartition | None:
        """The partition, by the settings of its channel; None: that reads several topics, and none
        was named.
        """
        if self.topic is not None:
            return TopicPartition(self.topic, self.partition)
        topics = settings.subscription.topics
        return TopicPartition(topics[0], self.partition) if len(topics) == 1 else None


@dataclass(frozen=True, slots=True)
class JobSpec:
    """One decoration."""

    # The decorator and the function, for errors.
    who: str
    function: Callable[[], Any]
    # Makes that of one run of the application.
    schedule: Callable[[], Schedule]
    # None: it runs in each process.
    owned: Owned | None

    @property
    def name(self) -> str:
        """Module and qualified name of the function."""
        return name_of_handler(self.function)


def job(
    decorator: str, function: Callable[[], Any], schedule: Callable[[], Schedule], on: Owned | None
) -> JobSpec:
    """The job of a function below *decorator*. ConfigError: it cannot be called without
    arguments.
    """
    who = f"{decorator} of {name_and_place(function)}"
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise ConfigError(f"{who}: a job is called, and yields nothing")
    try:
        inspect.signature(function).bind()
    except TypeError as error:
        raise ConfigError(f"{who} is called without an argument: {error}") from None
    return JobSpec(who, function, schedule, on)


def owned(who: str, on: object) -> Owned | None:
    """What ``on=`` says. ConfigError: it names no partition."""
    if on is None:
        return None
    match = _OWNED.fullmatch(on) if isinstance(on, str) else None
    if match is None:
        raise ConfigError(
            f'{who}: on: expected a partition of a channel: "orders:0", or with its topic "orders:topic:0"'
        )
    return Owned(match[1], match[2], int(match[3]))


def misfit(job: JobSpec, settings: Settings) -> str | None:
    """Why the partition of a job is none of the settings' channels; None: it is, or it has none."""
    if job.owned is None:
        return None
    channel = settings.incoming.get(job.owned.channel)
    if channel is None:
        return unknown(job.who, "incoming", job.owned.channel, settings)
    if job.owned.of(channel) is None:
        named = f"{job.owned.channel}:TOPIC:{job.owned.partition}"
        return f'{job.who}: on: channel {channel.name!r} reads several topics, so write "{named}"'
    return None


class JobDecorators:
    """The decorators of jobs."""

    def _decorating(self, decorator: str) -> Any:
        """Where *decorator* declares something, which has ``hooks``. RuntimeError: nothing can be
        declared now.
        """
        raise NotImplementedError

    def every(self, interval: str | float, *, on: str | None = None) -> Callable[[Hook], Hook]:
        """Call the function (no arguments, async or not) again and again while the application
        runs.

        It never runs twice at once: what is due while it runs is left out. What it raises is told,
        and it goes on.

        Args:
            interval: Between two calls: ``"500ms"``, ``"1m"``, ``"1h"``, or seconds. The first call
                is one interval after the start.
            on: A partition of a channel, ``"orders:0"``, or ``"orders:topic:0"`` where it reads
                several topics: only the member of the group that has it calls, at multiples of the
                    interval since 1970. None: each process.

        Raises:
            ConfigError: An argument is wrong, or the function cannot be called without one.
            RuntimeError: The application is running.
        """
        who = f"@app.every({interval!r})"
        of = owned(f"@app.every({interval!r})", on)
        make = partial(every, who, interval, is_shared=of is not None)
        return self._clocked("every", who, make, of)

    def cron(
        self, expression: str, *, on: str | None = None, tz: str = "UTC"
    ) -> Callable[[Hook], Hook]:
        """Call the function at the times of a cron expression: ``"0 3 * * *"``; everything else as
        with ``every``.

        Args:
            expression: Minute, hour, day of the month, month, day of the week; a sixth field before
                them: second.
            on: As with ``every``.
            tz: The time zone of the expression: ``"UTC"``, ``"Europe/Berlin"``.

        Raises:
            ConfigError: An argument is wrong, or the function cannot be called without one.
            RuntimeError: The application is running.
            MissingExtraError: cronsim is not installed.
        """
        who = f"@app.cron({expression!r})"
        return self._clocked("cron", who, partial(cron, who, expression, tz), owned(who, on))

    def _clocked(
        self, decorator: str, who: str, make: Callable[[], Schedule], of: Owned | None
    ) -> Callable[[Hook], Hook]:
        jobs: list[JobSpec] = self._decorating(decorator).hooks.jobs
        # Raises where an argument is wrong.
        make()

        def decorate(function: Hook) -> Hook:
            jobs.append(job(who, function, make, of))
            return function

        return decorate
