"""Decides where ``offsets reset`` and ``offsets import`` move a group. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

import click

from reactive_kafka.cli.errors import CommandFailed
from reactive_kafka.partitions.start_choice import By, chosen_position
from reactive_kafka.records import LogRange, TopicPartition

EXPECTED = (
    "expected earliest, latest, an offset, a time with its zone (2026-11-21T08:00:00Z), or by:N "
    "(by:-100)"
)


To = Literal["earliest", "latest"] | int | datetime | By


def parse_to(text: str) -> To:
    """Return what ``--to`` means, or raise BadParameter, which names what is allowed."""
    if text == "earliest":
        return "earliest"
    if text == "latest":
        return "latest"
    if text.startswith("by:"):
        return By(_number(text.removeprefix("by:"), text))
    if text.lstrip("+-").isdigit():
        offset = _number(text, text)
        if offset < 0:
            raise click.BadParameter(
                f"{text!r}: write by:{text} to go back from the committed position; offsets begin "
                "at 0"
            )
        return offset
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(f"{text!r}: {EXPECTED}") from None
    if moment.tzinfo is None:
        raise click.BadParameter(
            f"{text!r} has no time zone: add one after the time, such as Z or +02:00"
        )
    return moment


def _number(digits: str, text: str) -> int:
    try:
        number = int(digits) if digits.isascii() else None
    except ValueError:
        number = None
    if number is None or abs(number) >= 2**63:
        raise click.BadParameter(f"{text!r}: {EXPECTED}")
    return number


@dataclass(frozen=True, slots=True)
class Change:
    """One partition's position, before and after."""

    partition: TopicPartition
    # None if the group has no position.
    before: int | None
    after: int
    # The string to store with the new position.
    metadata: str = ""
    # The encoded state of the application, if a store keeps the position.
    state: str | None = None
    # There is nothing to write.
    is_same: bool = False
    # An explanation for the user.
    note: str = ""


def reset(
    to: To,
    logs: Mapping[TopicPartition, LogRange],
    before: Mapping[TopicPartition, int],
    at_time: Mapping[TopicPartition, int | None],
) -> list[Change]:
    """Decide where each partition of *logs* goes, in ascending order.

    An offset outside of the log becomes its nearest end. The metadata of a position that moves (the
    user's string, plans, kept acks) is dropped.
    Source: kafka-consumer-groups, ``--reset-offsets``.

    Args:
        to: What ``--to`` says.
        logs: The partitions, with the offsets of their logs.
        before: The positions of the group, where it has one.
        at_time: If *to* is a time: the offset of the first record at or after it. None: there is
            no such record yet.

    Raises:
        CommandFailed: *to* is ``by:``, and a partition has no position *before*.
    """
    without = ", ".join(str(partition) for partition in sorted(logs) if partition not in before)
    if isinstance(to, By) and without:
        raise CommandFailed(
            f"by: counts from the committed position, and there is none for {without}"
        )
    return [_reset(to, tp, logs[tp], before.get(tp), at_time.get(tp)) for tp in sorted(logs)]


def _reset(
    to: To, partition: TopicPartition, log: LogRange, before: int | None, at_time: int | None
) -> Change:
    if isinstance(to, By):
        wanted = (before or 0) + to.records
    elif isinstance(to, str):
        wanted = log.start if to == "earliest" else log.end
    else:
        wanted = chosen_position(to, log.start, log.end, at_time, lambda: before or 0)
    after = min(max(wanted, log.start), log.end)
    note = ""
    if wanted < log.start:
        note = f"{wanted} is before the log's start"
    elif wanted > log.end:
        note = f"{wanted} is past the log's end"
    elif isinstance(to, datetime) and at_time is None:
        note = "no record since then: the log's end"
    return Change(partition, before, after, is_same=before == after, note=note)


def outside(changes: list[Change], logs: Mapping[TopicPartition, LogRange]) -> list[str]:
    """Return why an import does not fit: missing partitions, positions outside of their logs."""
    problems = []
    for change in changes:
        log = logs.get(change.partition)
        if log is None:
            problems.append(f"{change.partition}: no such partition")
        elif not log.start <= change.after <= log.end:
            problems.append(
                f"{change.partition}: {change.after} is outside of the log, {log.start} to "
                f"{log.end}"
            )
    return problems
