"""Jobs: the functions of ``@app.every`` and ``@app.cron``, which the clock calls. No I/O."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from reactive_kafka.config.settings import IncomingSettings, Settings
from reactive_kafka.errors import ConfigError
from reactive_kafka.handlers.introspection import only_yields
from reactive_kafka.handlers.schedules import Schedule
from reactive_kafka.handlers.signature import name_and_place, name_of_handler
from reactive_kafka.handlers.unknown_channels import unknown_channel_problem
from reactive_kafka.records import TopicPartition

_OWNER = re.compile(r"([^:]+):(?:([a-zA-Z0-9._-]{1,249}):)?([0-9]{1,10})")
"""``channel:partition`` or ``channel:topic:partition``"""


class JobOwner(NamedTuple):
    """The partition whose owner runs a job; ``topic`` None: the only one of its channel."""

    channel: str
    topic: str | None
    partition: int

    def partition_in(self, settings: IncomingSettings) -> TopicPartition | None:
        """Return the partition, or None if the channel reads several topics and none is named."""
        if self.topic is not None:
            return TopicPartition(self.topic, self.partition)
        topics = settings.subscription.topics
        return TopicPartition(topics[0], self.partition) if len(topics) == 1 else None


@dataclass(frozen=True, slots=True)
class DeclaredJob:
    """A function below one ``@app.every`` or ``@app.cron``."""

    # The decorator and the function, for errors.
    who: str
    function: Callable[[], Any]
    # Makes the schedule of one run of the application.
    schedule: Callable[[], Schedule]
    # None: the job runs in each process.
    owner: JobOwner | None

    @property
    def name(self) -> str:
        """Module and qualified name of the function."""
        return name_of_handler(self.function)


def declared_job(
    decorator: str,
    function: Callable[[], Any],
    schedule: Callable[[], Schedule],
    owner: JobOwner | None,
) -> DeclaredJob:
    """Return the job of a function below *decorator*.

    Raises:
        ConfigError: The function cannot be called without arguments.
    """
    who = f"{decorator} of {name_and_place(function)}"
    if only_yields(function):
        raise ConfigError(f"{who} yields, but a job is only called: return instead")
    try:
        inspect.signature(function).bind()
    except TypeError as error:
        raise ConfigError(f"{who} is called without an argument: {error}") from None
    return DeclaredJob(who, function, schedule, owner)


def job_owner(who: str, on: object) -> JobOwner | None:
    """Return what ``on=`` of a decorator says.

    Raises:
        ConfigError: It names no partition.
    """
    if on is None:
        return None
    match = _OWNER.fullmatch(on) if isinstance(on, str) else None
    if match is None:
        raise ConfigError(
            f'{who}: on: expected a partition of a channel: "orders:0", or with its topic '
            '"orders:topic:0"'
        )
    return JobOwner(match[1], match[2], int(match[3]))


def why_not_configured(job: DeclaredJob, settings: Settings) -> str | None:
    """Return why the settings do not have the partition of a job; None: they do."""
    owner = job.owner
    if owner is None:
        return None
    channel = settings.incoming.get(owner.channel)
    if channel is None:
        return unknown_channel_problem(job.who, "incoming", owner.channel, settings)
    if owner.partition_in(channel) is None:
        named = f"{owner.channel}:TOPIC:{owner.partition}"
        return f'{job.who}: on: channel {channel.name!r} reads several topics, so write "{named}"'
    return None
