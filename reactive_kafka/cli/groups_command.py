"""``reactive-kafka groups``: the groups of a cluster, and the members of one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import click

from reactive_kafka.broker.client import GroupDescription, GroupListing, Inspector
from reactive_kafka.cli import options
from reactive_kafka.cli.cluster_access import (
    BrokerOptions,
    ClusterAccess,
    find_cluster,
    with_broker_options,
)
from reactive_kafka.cli.console_text import aligned, counted
from reactive_kafka.cli.errors import CommandFailed
from reactive_kafka.cli.paging import echo_table
from reactive_kafka.cli.progress import progress_line
from reactive_kafka.cli.stored_positions import member_json, member_text
from reactive_kafka.errors import FatalBrokerError
from reactive_kafka.observe.safe_text import one_line
from reactive_kafka.records import Committed, TopicPartition

# How many groups are asked for at once.
AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group with its members and positions."""

    listing: GroupListing
    description: GroupDescription
    committed: Mapping[TopicPartition, Committed]
    # Ends of the logs of those partitions that exist.
    ends: Mapping[TopicPartition, int]

    @property
    def state(self) -> str | None:
        return self.listing.state or self.description.state

    @property
    def topics(self) -> list[str]:
        """The topics in which it has positions or members have partitions."""
        assigned = [tp for member in self.description.members for tp in member.partitions]
        return sorted({tp.topic for tp in (*self.committed, *assigned)})

    @property
    def lag(self) -> int | None:
        """Records behind, in all partitions; None if nothing is committed."""
        behind = [
            max(0, self.ends[tp] - position.offset)
            for tp, position in self.committed.items()
            if tp in self.ends
        ]
        return sum(behind) if behind else None

    def as_json(self) -> dict[str, Any]:
        """Return the group as JSON data."""
        return {
            "group": self.listing.group_id,
            "type": self.listing.kind,
            "protocol": self.listing.protocol_type,
            "state": self.state,
            "members": [member_json(member) for member in self.description.members],
            "topics": self.topics,
            "lag": self.lag,
        }


class GroupsGroup(click.Group):
    """Lists the groups if no command is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        is_help = any(arg in ctx.help_option_names for arg in args[:1])
        if not is_help and (not args or args[0].startswith("-")):
            args = ["list", *args]
        return super().parse_args(ctx, args)


@click.group(name="groups", cls=GroupsGroup, short_help="Show the groups of a cluster.")
def groups() -> None:
    """Show the groups of a cluster, or the members of one. Without a command: list.

    \b
    Examples:
      reactive-kafka groups
      reactive-kafka groups show billing
    """


@groups.command(name="list", short_help="Show all groups: state, members, topics, lag.")
@with_broker_options
@options.as_json("Print a JSON array with one object per group.")
def list_(brokers: BrokerOptions, as_json: bool) -> None:
    """Show all groups: their type and state, members, topics, and the records they are behind.

    Read-only: it joins no group. The type is classic, consumer (the newer protocol of Kafka,
    KIP-848), share, or another one that the cluster has. A dash under lag means that the group has
    committed nothing to Kafka; a share group never does. Exits with 1 for a group that may not be
    read, when it has shown the others.

    \b
    Examples:
      reactive-kafka groups
      reactive-kafka groups list --config prod.toml --json
    """
    rows, problems = asyncio.run(_rows(find_cluster(brokers)))
    if as_json:
        click.echo(json.dumps([row.as_json() for row in rows], indent=2))
    elif rows:
        echo_table(group_table(rows))
    elif not problems:
        click.echo("there are no groups")
    if problems:
        raise CommandFailed("\n".join(problems))


def group_table(rows: Iterable[GroupRow]) -> list[str]:
    """Return the groups as the lines of a table."""
    head = ("group", "type", "state", "members", "lag", "topics")
    cells = [
        (
            one_line(row.listing.group_id),
            row.listing.kind,
            row.state,
            len(row.description.members),
            row.lag,
            ", ".join(row.topics),
        )
        for row in rows
    ]
    return aligned(head, cells, left=("group", "type", "state", "topics"))


@groups.command(name="show", short_help="Show the members of a group and their partitions.")
@click.argument("group", metavar="GROUP")
@with_broker_options
@options.as_json()
def show(group: str, brokers: BrokerOptions, as_json: bool) -> None:
    """Show the members of a group, with the partitions that each has, and the group's lag.

    Read-only. `offsets show` has the positions. Exits with 1 for an unknown group.

    \b
    Examples:
      reactive-kafka groups show billing
      reactive-kafka groups show billing --bootstrap-servers localhost:9092 --json
    """
    row = asyncio.run(_row(find_cluster(brokers), group))
    if as_json:
        click.echo(json.dumps(row.as_json(), indent=2))
        return
    click.echo("\n".join(group_lines(row)))


def group_lines(row: GroupRow) -> list[str]:
    """Return a group with its members, as lines of text."""
    members = row.description.members
    name = one_line(row.listing.group_id)
    lines = [f"group {name}: {row.listing.kind}, {row.state}, {counted(len(members), 'member')}"]
    for member in members:
        partitions = ", ".join(map(str, member.partitions)) or "no partitions"
        lines.append(f"  {member_text(member)}: {partitions}")
    unassigned = sorted(set(row.committed) - {tp for member in members for tp in member.partitions})
    if members and unassigned:
        lines.append(f"  no member has {', '.join(map(str, unassigned))}")
    if row.lag is None:
        return [*lines, "it has committed nothing to Kafka"]
    count = counted(len(row.committed), "partition")
    return [*lines, f"{counted(row.lag, 'record')} behind, in {count}"]


async def _row(cluster: ClusterAccess, group: str) -> GroupRow:
    async with cluster.clients() as (_, inspector):
        listed = {listing.group_id: listing for listing in await inspector.list_groups()}
        if group not in listed:
            names = ", ".join(map(one_line, listed)) or "none"
            raise CommandFailed(f"unknown group {group!r}; the cluster has {names}")
        rows, problems = await _read(inspector, [listed[group]])
        if problems:
            raise CommandFailed(problems[0])
        return rows[0]


async def _rows(cluster: ClusterAccess) -> tuple[list[GroupRow], list[str]]:
    async with cluster.clients() as (_, inspector):
        return await _read(inspector, await inspector.list_groups())


async def _read(
    inspector: Inspector, listings: list[GroupListing]
) -> tuple[list[GroupRow], list[str]]:
    """Describe the groups, a few at once, and ask for the ends of the logs they read.

    Returns:
        The groups, and why others cannot be read: a cluster may list groups that it describes to
        their owners only.
    """
    places = asyncio.Semaphore(AT_ONCE)
    done = 0

    problems: list[str] = []

    async def ask(
        listing: GroupListing,
    ) -> tuple[GroupListing, GroupDescription, dict[TopicPartition, Committed]] | None:
        nonlocal done
        async with places:
            committed = {}
            try:
                described = await inspector.describe_group(listing.group_id)
                if listing.kind != "share":
                    committed = await inspector.committed(listing.group_id)
            except FatalBrokerError as error:
                problems.append(f"group {one_line(listing.group_id)}: {error}")
                return None
            finally:
                done += 1
            return listing, described, committed

    with progress_line("read", lambda: done, len(listings), "groups"):
        answers = [answer for answer in await asyncio.gather(*map(ask, listings)) if answer]
        topics = {tp.topic for _, _, committed in answers for tp in committed}
        existing = await inspector.topics(topics) if topics else {}
        partitions = [tp for found in existing.values() for tp in found]
        ends = await inspector.end_offsets(partitions) if partitions else {}
    return [GroupRow(*answer, ends) for answer in answers], sorted(problems)
