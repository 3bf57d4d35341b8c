"""Which offsets of each partition ``tail`` reads. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import click

from reactive_kafka.cli.errors import CommandFailed
from reactive_kafka.cli.offsets.offset_changes import To, parse_to
from reactive_kafka.config.kinds import parse_duration
from reactive_kafka.partitions.start_choice import By
from reactive_kafka.records import LogRange, TopicPartition


def parse_bound(text: str) -> To | timedelta:
    """Return what ``--from`` or ``--until`` means, or raise BadParameter.

    It is what ``offsets reset --to`` takes, or a duration: so long ago.
    """
    seconds = None if text.isdigit() else parse_duration(text)
    if seconds is not None:
        return timedelta(seconds=seconds)
    try:
        return parse_to(text)
    except click.BadParameter as error:
        raise click.BadParameter(
            f"{error.message}, or a duration: so long ago (10m, 24h)"
        ) from None


@dataclass(frozen=True, slots=True)
class TailBounds:
    """Where to begin and to end. ``until`` is not read itself; None: everything."""

    start: To
    until: To | None = None

    def moments(self) -> list[datetime]:
        """The times for which the broker has to be asked, each once."""
        return list(
            dict.fromkeys(
                bound for bound in (self.start, self.until) if isinstance(bound, datetime)
            )
        )

    def ranges(
        self,
        logs: Mapping[TopicPartition, LogRange],
        at_time: Mapping[datetime, Mapping[TopicPartition, int | None]],
    ) -> dict[TopicPartition, LogRange]:
        """Return partition -> the offsets to read, within its log; empty ranges included.

        Args:
            logs: The partitions, with the offsets of their logs.
            at_time: Moment -> partition -> offset of the first record at or after it. None: there
                is no such record yet.
        """
        found = {}
        for partition, log in logs.items():
            start = _offset(self.start, log, partition, at_time)
            end = log.end
            if self.until is not None:
                end = _offset(self.until, log, partition, at_time)
            found[partition] = LogRange(start, max(start, end))
        return found


def _offset(
    bound: To,
    log: LogRange,
    partition: TopicPartition,
    at_time: Mapping[datetime, Mapping[TopicPartition, int | None]],
) -> int:
    """Return the offset of a bound, or the nearest one that the log has."""
    if isinstance(bound, By):
        wanted = log.start + bound.records if bound.records >= 0 else log.end + bound.records
    elif isinstance(bound, datetime):
        found = at_time[bound].get(partition)
        wanted = log.end if found is None else found
    elif isinstance(bound, int):
        wanted = bound
    else:
        wanted = log.start if bound == "earliest" else log.end
    return min(max(wanted, log.start), log.end)


def bounds_of(
    start: To | timedelta | None, until: To | timedelta | None, now: datetime, *, follow: bool
) -> TailBounds:
    """Return the bounds that the options say. ``--follow`` begins at the end."""
    if start is None:
        start = "latest" if follow else "earliest"
    return TailBounds(_moment(start, now), None if until is None else _moment(until, now))


def _moment(bound: To | timedelta, now: datetime) -> To:
    if not isinstance(bound, timedelta):
        return bound
    try:
        return now - bound
    except OverflowError:
        return "earliest"


def chosen_partitions(
    topic: str, partitions: list[TopicPartition], numbers: tuple[int, ...]
) -> list[TopicPartition]:
    """Return the partitions with these numbers; without any, all of them.

    Raises:
        CommandFailed: The topic has no such partition.
    """
    existing = {partition.partition: partition for partition in partitions}
    missing = [str(number) for number in sorted(set(numbers)) if number not in existing]
    if missing:
        raise CommandFailed(
            f"topic {topic} has no partition {', '.join(missing)}; it has {len(existing)}, from 0 "
            "on"
        )
    return [existing[number] for number in sorted(set(numbers) or existing)]
