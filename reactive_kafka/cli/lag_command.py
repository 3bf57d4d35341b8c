"""``reactive-kafka lag``."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import click

from reactive_kafka.channel.client_roles import group_of_retries
from reactive_kafka.cli import options
from reactive_kafka.cli.cluster_access import ClusterAccess, check_reachable
from reactive_kafka.cli.console_text import aligned
from reactive_kafka.cli.errors import CommandFailed
from reactive_kafka.cli.stored_positions import GroupView, look
from reactive_kafka.config.load import read_settings
from reactive_kafka.config.settings import IncomingSettings


class LagQuery(NamedTuple):
    """One group whose lag is wanted."""

    group: str
    # Those to look at; empty: those in which the group has committed anything.
    topics: tuple[str, ...]
    # Without channels: only Kafka is asked.
    cluster: ClusterAccess
    # The channel whose checkpoint store keeps the positions; None: Kafka keeps them.
    in_store_of: str | None = None
    # Of a channel's delayed retries: its topics and the group may still be to come.
    is_of_retries: bool = False


class Row(NamedTuple):
    """One partition, in offsets and records. ``committed`` and ``lag`` are None where nothing is
    committed.
    """

    group: str
    topic: str
    partition: int
    committed: int | None
    log_end: int
    lag: int | None


@click.command(name="lag", short_help="Show how far groups are behind.")
@options.config(
    "Configuration file; the groups and topics of its incoming channels and of their delayed retries are shown. "
    "Default: $REACTIVE_KAFKA_CONFIG, or ./reactive-kafka.toml."
)
@options.servers("Brokers to ask, without a configuration file; requires --group.")
@click.option("--group", metavar="GROUP", help="Only this group.")
@options.topics
@options.as_json("Print a JSON array with one object per partition.")
def lag(
    config: tuple[Path, ...] | None,
    bootstrap_servers: str | None,
    group: str | None,
    topics: tuple[str, ...],
    as_json: bool,
) -> None:
    """Show how far groups are behind: committed position, log end, and the number of records
    between them.

    Read-only: it joins no group and changes nothing, so it is safe to use while consumers run. A
    dash means that the group has committed nothing yet. For an unknown group or topic it exits with
    1.

    \b
    Examples:
      reactive-kafka lag
      reactive-kafka lag --config prod.toml --topic orders
      reactive-kafka lag --bootstrap-servers localhost:9092 --group billing --json
    """
    if bootstrap_servers is not None:
        if config is not None:
            raise click.UsageError("--config and --bootstrap-servers exclude each other")
        if group is None:
            raise click.UsageError("--bootstrap-servers needs --group")
        asked = [LagQuery(group, topics, ClusterAccess(bootstrap_servers, {}))]
    else:
        asked = _configured(config, group, topics)
    rows = asyncio.run(_rows(asked))
    click.echo(
        json.dumps([row._asdict() for row in rows], indent=2) if as_json else "\n".join(table(rows))
    )
    for note in notes(asked, rows):
        click.echo(note, err=True)


def _configured(
    config: tuple[Path, ...] | None, group: str | None, topics: tuple[str, ...]
) -> list[LagQuery]:
    settings = read_settings(config, environ=os.environ).checked()
    channels = list(settings.incoming.values())
    asked = [
        query
        for channel in channels
        for query in _of_channel(channel, settings.bootstrap_servers, topics)
        if group in (None, query.group)
    ]
    if not asked:
        known = "; ".join(
            f"{channel.name}: group {channel.group_id}, {_what(channel)}" for channel in channels
        )
        wanted = [f"group {group}"] * (group is not None) + [_names(topics)] * bool(topics)
        has = f"has {' and '.join(wanted)}" if wanted else "is there"
        raise CommandFailed(
            f"no incoming channel of {settings.source} {has}; there are: {known or 'none'}"
        )
    for query in asked:
        check_reachable(query.cluster.servers, settings.source)
    return list({(one.group, one.topics, one.cluster.servers): one for one in asked}.values())


def _of_channel(
    channel: IncomingSettings, servers: str, topics: tuple[str, ...]
) -> Iterator[LagQuery]:
    """The groups of a channel that read any of these topics; without any, all of them."""
    own = str(channel.client.get("bootstrap_servers") or servers)
    wanted = tuple(filter(channel.subscription.reads, topics))
    if channel.group_id is not None and (wanted or not topics):
        in_store_of = None if channel.checkpoint is None else channel.name
        cluster = ClusterAccess(own, channel.client)
        yield LagQuery(
            channel.group_id, wanted or channel.subscription.topics, cluster, in_store_of
        )
    if (delayed := channel.delayed_retry) is not None:
        wanted = tuple(topic for topic in delayed.topics if not topics or topic in topics)
        if wanted:
            yield LagQuery(
                group_of_retries(channel),
                wanted,
                ClusterAccess(own, delayed.client),
                is_of_retries=True,
            )


def _what(channel: IncomingSettings) -> str:
    """What the channel reads, for a message."""
    return (
        f"pattern {channel.pattern}"
        if channel.pattern is not None
        else _names(channel.subscription.topics)
    )


def _names(topics: Iterable[str]) -> str:
    return f"topic {', '.join(topics)}"


async def _rows(asked: Sequence[LagQuery]) -> list[Row]:
    views = [await _look(one) for one in asked]
    return [
        Row(view.name, *one.partition, one.position, one.log.end, one.lag)
        for view in views
        for one in view.positions
    ]


async def _look(asked: LagQuery) -> GroupView:
    if not asked.is_of_retries:
        return await look(asked.cluster, asked.group, asked.topics)
    async with asked.cluster.clients() as (_, inspector):
        known = await inspector.topics()
    # No record has been retried in the others.
    there = [topic for topic in asked.topics if topic in known]
    return await look(asked.cluster, asked.group, there, may_be_new=True)


def notes(asked: Iterable[LagQuery], rows: Collection[Row]) -> list[str]:
    """What the rows do not say by themselves."""
    lines = []
    for one in asked:
        if one.in_store_of is not None:
            lines.append(
                f"channel {one.in_store_of} keeps its positions in a checkpoint store: these are Kafka's, which are "
                f"older; reactive-kafka offsets show {one.group} reads the store"
            )
        elif one.is_of_retries and not any(row.group == one.group and row.log_end for row in rows):
            # No record has been retried.
            continue
        elif not any(row.group == one.group and row.committed is not None for row in rows):
            lines.append(f"group {one.group} has committed nothing to Kafka")
    return lines


def table(rows: Sequence[Row]) -> list[str]:
    """The rows as lines of text, and a last line with the sum where there are several."""
    head = ("group", "topic", "partition", "committed", "log end", "lag")
    lines = aligned(head, rows, left=head[:2])
    behind = f"{sum(row.lag or 0 for row in rows)} records behind, in {len(rows)} partitions"
    return [*lines, behind] if len(rows) > 1 else lines
