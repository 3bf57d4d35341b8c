"""``reactive-kafka lag``: how far groups are behind."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import click

from reactive_kafka.channel.client_roles import group_of_retries
from reactive_kafka.cli import options
from reactive_kafka.cli.cluster_access import ClusterAccess, check_reachable
from reactive_kafka.cli.console_text import aligned
from reactive_kafka.cli.errors import CommandFailed
from reactive_kafka.cli.lag_trend import LagHistory, PartitionOffsets
from reactive_kafka.cli.paging import echo_table
from reactive_kafka.cli.progress import waiting_line
from reactive_kafka.cli.stored_positions import GroupView, read_group
from reactive_kafka.clock import SYSTEM_CLOCK, Clock
from reactive_kafka.config.load import read_settings
from reactive_kafka.config.settings import IncomingSettings
from reactive_kafka.errors import BrokerError, FatalBrokerError, escaped


class LagQuery(NamedTuple):
    """A group to ask for.

    Attributes:
        group: Its name.
        topics: The topics to ask for. Empty: those in which the group has committed anything.
        cluster: Where to ask. It has no channels, so that only Kafka is asked.
        in_store_of: The channel whose checkpoint store keeps the positions. None: Kafka keeps them.
        is_of_retries: The group reads delayed retries. Its topics, and the group, may not exist
            yet.
    """

    group: str
    topics: tuple[str, ...]
    cluster: ClusterAccess
    in_store_of: str | None = None
    is_of_retries: bool = False


class Row(NamedTuple):
    """One partition. ``committed`` and ``lag`` are None if nothing is committed."""

    group: str
    topic: str
    partition: int
    committed: int | None
    log_end: int
    lag: int | None


class LagLook(NamedTuple):
    """One look at all groups.

    Attributes:
        rows: The partitions of the groups that could be read.
        read: The questions that these rows answer.
        problems: Why other groups cannot be shown.
    """

    rows: list[Row]
    read: Sequence[LagQuery] = ()
    problems: Sequence[str] = ()


@click.command(name="lag", short_help="Show how far groups are behind.")
@options.config(
    "Configuration file; the groups and topics of its incoming channels and of their delayed "
    "retries are shown. Default: $REACTIVE_KAFKA_CONFIG, or ./reactive-kafka.toml."
)
@options.servers("Brokers to ask, without a configuration file; requires --group.")
@click.option("--group", metavar="GROUP", help="Only this group.")
@options.topics
@click.option(
    "--watch",
    "every_s",
    type=click.FloatRange(0.1, 86_400),
    is_flag=False,
    flag_value=5.0,
    metavar="[SECONDS]",
    help="Look again every so many seconds (5 without a number) until Ctrl-C, and show how fast "
    "the groups catch up. With --json: one array on each line.",
)
@options.as_json("Print a JSON array with one object per partition.")
def lag(
    config: tuple[Path, ...] | None,
    bootstrap_servers: str | None,
    group: str | None,
    topics: tuple[str, ...],
    every_s: float | None,
    as_json: bool,
) -> None:
    """Show how far groups are behind: committed position, log end, and the records between them.

    Read-only: it joins no group and changes nothing, so it is safe to use while consumers run. A
    dash means that the group has committed nothing yet. Exits with 1 for an unknown group or topic,
    when it has shown the others.

    \b
    Examples:
      reactive-kafka lag
      reactive-kafka lag --config prod.toml --topic orders
      reactive-kafka lag --watch 10
      reactive-kafka lag --bootstrap-servers localhost:9092 --group billing --json
    """
    if bootstrap_servers is not None:
        if config is not None:
            raise click.UsageError("--config and --bootstrap-servers exclude each other")
        if group is None:
            raise click.UsageError("--bootstrap-servers needs --group")
        queries = [LagQuery(group, topics, ClusterAccess(bootstrap_servers, {}))]
    else:
        queries = _configured(config, group, topics)
    with waiting_line("asking the brokers"):
        found = asyncio.run(_look(queries))
    problems = "\n".join(found.problems)
    if problems and not found.rows:
        raise CommandFailed(problems)
    if every_s is not None:
        with suppress(KeyboardInterrupt):
            asyncio.run(_watch(queries, every_s, as_json=as_json))
        return
    if as_json:
        click.echo(json.dumps([row._asdict() for row in found.rows], indent=2))
    else:
        echo_table(table(found.rows))
    for note in notes(found.read, found.rows):
        click.echo(note, err=True)
    if problems:
        raise CommandFailed(problems)


async def _watch(queries: Sequence[LagQuery], every_s: float, *, as_json: bool) -> None:
    async for rows, history in looks(lambda: _look(queries), SYSTEM_CLOCK, every_s):
        if as_json:
            click.echo(json.dumps([row._asdict() for row in rows]))
            continue
        if sys.stdout.isatty():
            click.clear()
        echo_table(table(rows))
        for line in trend_lines(rows, history):
            click.echo(line)


async def looks(
    ask: Callable[[], Awaitable[LagLook]], clock: Clock, every_s: float
) -> AsyncIterator[tuple[list[Row], LagHistory]]:
    """Yield the rows that *ask* returns, every so many seconds, with their history.

    What cannot be read is reported on stderr, and asked again.
    """
    history = LagHistory()
    while True:
        started = clock.monotonic()
        try:
            rows, _, problems = await ask()
        except BrokerError as error:
            rows = []
            problems = [str(error)]
        if rows or not problems:
            offsets = {
                (row.group, row.topic, row.partition): PartitionOffsets(row.committed, row.log_end)
                for row in rows
                if row.committed is not None
            }
            history.add(clock.monotonic(), offsets)
            yield rows, history
        for problem in problems:
            click.echo(f"{escaped(problem)}; asking again in {every_s:g} s", err=True)
        await asyncio.sleep(max(0.0, started + every_s - clock.monotonic()))


def trend_lines(rows: Sequence[Row], history: LagHistory) -> list[str]:
    """Return a line for each group: how fast it reads, and when it has caught up."""
    lines = []
    for group in dict.fromkeys(row.group for row in rows):
        keys = [(row.group, row.topic, row.partition) for row in rows if row.group == group]
        trend = history.trend(keys)
        lines.append(f"group {group}: {'measuring' if trend is None else trend.text()}")
    return lines


def _configured(
    config: tuple[Path, ...] | None, group: str | None, topics: tuple[str, ...]
) -> list[LagQuery]:
    """Return the groups of the configuration that the command line asks for."""
    settings = read_settings(config, environ=os.environ).checked()
    channels = list(settings.incoming.values())
    queries = [
        query
        for channel in channels
        for query in _of_channel(channel, settings.bootstrap_servers, topics)
        if group in (None, query.group)
    ]
    if not queries:
        raise CommandFailed(_nothing_found(settings.source, channels, group, topics))
    for query in queries:
        check_reachable(query.cluster.servers, settings.source)
    # Channels that share a group and its topics are shown once.
    unique = {(query.group, query.topics, query.cluster.servers): query for query in queries}
    return list(unique.values())


def _nothing_found(
    source: str, channels: Sequence[IncomingSettings], group: str | None, topics: tuple[str, ...]
) -> str:
    known = "; ".join(
        f"{channel.name}: group {channel.group_id}, {_subscription_text(channel)}"
        for channel in channels
    )
    wanted = []
    if group is not None:
        wanted.append(f"group {group}")
    if topics:
        wanted.append(_topics_text(topics))
    has = f"has {' and '.join(wanted)}" if wanted else "is there"
    return f"no incoming channel of {source} {has}; there are: {known or 'none'}"


def _of_channel(
    channel: IncomingSettings, servers: str, topics: tuple[str, ...]
) -> Iterator[LagQuery]:
    """Yield the groups of a channel that read any of *topics*; without topics, all its groups."""
    own_servers = str(channel.client.get("bootstrap_servers") or servers)
    wanted = tuple(filter(channel.subscription.reads, topics))
    if channel.group_id is not None and (wanted or not topics):
        yield LagQuery(
            group=channel.group_id,
            topics=wanted or channel.subscription.topics,
            cluster=ClusterAccess(own_servers, channel.client),
            in_store_of=None if channel.checkpoint is None else channel.name,
        )
    delayed = channel.delayed_retry
    if delayed is None:
        return
    wanted = tuple(topic for topic in delayed.topics if not topics or topic in topics)
    if wanted:
        yield LagQuery(
            group=group_of_retries(channel),
            topics=wanted,
            cluster=ClusterAccess(own_servers, delayed.client),
            is_of_retries=True,
        )


def _subscription_text(channel: IncomingSettings) -> str:
    if channel.pattern is not None:
        return f"pattern {channel.pattern}"
    return _topics_text(channel.subscription.topics)


def _topics_text(topics: Iterable[str]) -> str:
    return f"topic {', '.join(topics)}"


async def _look(queries: Sequence[LagQuery]) -> LagLook:
    """Ask for all groups.

    One that does not exist yet, and a cluster that is away, keep no other from being shown.
    """
    rows: list[Row] = []
    read: list[LagQuery] = []
    problems: dict[str, None] = {}
    away: set[str] = set()
    for query in queries:
        if query.cluster.servers in away:
            continue
        try:
            view = await _view(query)
        except (CommandFailed, BrokerError) as error:
            problems[str(error)] = None
            if not isinstance(error, CommandFailed | FatalBrokerError):
                # The next group would wait for these brokers as long.
                away.add(query.cluster.servers)
            continue
        read.append(query)
        rows += [
            Row(view.name, *each.partition, each.position, each.log.end, each.lag)
            for each in view.positions
        ]
    return LagLook(rows, read, list(problems))


async def _view(query: LagQuery) -> GroupView:
    if not query.is_of_retries:
        return await read_group(query.cluster, query.group, query.topics)
    async with query.cluster.clients() as (_, inspector):
        known = await inspector.topics()
    # A retry topic that does not exist has had no retries.
    existing = [topic for topic in query.topics if topic in known]
    return await read_group(query.cluster, query.group, existing, may_be_new=True)


def notes(queries: Iterable[LagQuery], rows: Collection[Row]) -> list[str]:
    """Return what the rows do not show."""
    lines = []
    for query in queries:
        own_rows = [row for row in rows if row.group == query.group]
        if query.in_store_of is not None:
            lines.append(
                f"channel {query.in_store_of} keeps its positions in a checkpoint store: these are "
                f"Kafka's, which are older; reactive-kafka offsets show {query.group} reads the "
                "store"
            )
        elif query.is_of_retries and not any(row.log_end for row in own_rows):
            # There have been no retries.
            continue
        elif all(row.committed is None for row in own_rows):
            lines.append(f"group {query.group} has committed nothing to Kafka")
    return lines


def table(rows: Sequence[Row]) -> list[str]:
    """Return the rows as lines of text. If there are several, the last line is the sum."""
    head = ("group", "topic", "partition", "committed", "log end", "lag")
    lines = aligned(head, rows, left=head[:2])
    if len(rows) > 1:
        behind = sum(row.lag or 0 for row in rows)
        lines.append(f"{behind} records behind, in {len(rows)} partitions")
    return lines
