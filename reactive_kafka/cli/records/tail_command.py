"""``reactive-kafka tail``: print the records of a topic."""

from __future__ import annotations

import asyncio
import heapq
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

import click

from reactive_kafka.broker.client import Chunk, Consumer, Inspector, start_without_group
from reactive_kafka.broker.topic_lookup import known_topics, logs_of
from reactive_kafka.cli import options
from reactive_kafka.cli.cluster_access import (
    BrokerOptions,
    ClusterAccess,
    find_cluster,
    with_broker_options,
)
from reactive_kafka.cli.console_text import counted
from reactive_kafka.cli.errors import CommandFailed
from reactive_kafka.cli.offsets.offset_changes import To
from reactive_kafka.cli.records.record_json import json_of
from reactive_kafka.cli.records.registry_access import schema_source, with_schemas
from reactive_kafka.cli.records.tail_range import (
    TailBounds,
    bounds_of,
    chosen_partitions,
    parse_bound,
)
from reactive_kafka.cli.records.value_texts import as_json_data, as_line, value_reader
from reactive_kafka.errors import DecodeError, EncodeError, escaped
from reactive_kafka.partitions.start_choice import timestamp_ms
from reactive_kafka.records import LogRange, RawRecord, TopicPartition
from reactive_kafka.subscription import Partitions

MAX_RECORDS = 500
POLL_S = 0.5
PATIENCE_S = 30.0
# Records of open and aborted transactions are not read.
COMMITTED = {"isolation_level": "read_committed"}
MOST_UNREADABLE = 10


class Shown(NamedTuple):
    """What to print of each record."""

    format_name: str | None
    keys: bool
    headers: bool
    as_json: bool


class TailRequest(NamedTuple):
    """What to read."""

    topic: str
    numbers: tuple[int, ...]
    bounds: TailBounds
    follow: bool
    limit: int | None


@click.command(name="tail", short_help="Print the records of a topic.")
@options.topic
@click.option(
    "--follow", "-f", is_flag=True, help="Begin at the end, and wait for new records until Ctrl-C."
)
@click.option(
    "--from",
    "start",
    type=parse_bound,
    metavar="WHERE",
    help="Where to begin: earliest, latest, an offset, a time with its zone "
    "(2026-11-21T08:00:00Z), a duration ago (10m, 24h), or by:-N, the last N offsets of each "
    "partition. Default: earliest; with --follow: latest.",
)
@click.option(
    "--until",
    type=parse_bound,
    metavar="WHERE",
    help="Where to end, in the same words; a record at that place is not read. Default: the end of "
    "the log when the command starts.",
)
@click.option(
    "--partition",
    "numbers",
    type=click.IntRange(0),
    multiple=True,
    metavar="N",
    help="Only this partition. May be repeated. Default: all partitions.",
)
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Maximum number of records.")
@options.format_option("Values are decoded and shown as text or JSON. Default: bytes as they are.")
@click.option("--keys", is_flag=True, help="Print the key before the value, with a tab between.")
@click.option(
    "--headers", is_flag=True, help="Print the headers before the value, with a tab between."
)
@options.as_json("Print one JSON object for each record. produce --json reads it.")
@with_broker_options
def tail(
    topic: str,
    follow: bool,
    start: To | timedelta | None,
    until: To | timedelta | None,
    numbers: tuple[int, ...],
    limit: int | None,
    format_name: str | None,
    keys: bool,
    headers: bool,
    as_json: bool,
    brokers: BrokerOptions,
) -> None:
    """Print the records of a topic, from its beginning to its end.

    Read-only: it joins no group and commits nothing. Records of aborted and open transactions are
    left out. Records of one partition are in order; those of several partitions that come at once
    are ordered by their timestamps. On a terminal control characters are escaped. Exits with 1 if a
    value cannot be decoded; the others are printed.

    \b
    Examples:
      reactive-kafka tail orders
      reactive-kafka tail orders --follow --keys
      reactive-kafka tail orders --from 10m --format avro --config prod.toml
      reactive-kafka tail orders --json | head -1
    """
    if follow and until is not None:
        raise click.UsageError("--follow and --until exclude each other")
    bounds = bounds_of(start, until, datetime.now(UTC), follow=follow)
    request = TailRequest(topic, numbers, bounds, follow, limit)
    cluster = find_cluster(
        brokers,
        lambda channel: channel.client if channel.subscription.reads(topic) else None,
        lambda channel: channel.client if channel.topic == topic else None,
    )
    shown = Shown(format_name, keys, headers, as_json)
    try:
        unreadable = asyncio.run(_tail(cluster, request, shown))
    except BrokenPipeError:
        # The reader of the output has what it wanted: head, for example.
        _leave_output_alone()
        return
    except KeyboardInterrupt:
        if not follow:
            raise
        return
    if unreadable:
        raise CommandFailed(f"{counted(unreadable, 'value')} could not be decoded")


def _leave_output_alone() -> None:
    """Replace stdout: Python flushes it at the end, and would complain again."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


async def _tail(cluster: ClusterAccess, request: TailRequest, shown: Shown) -> int:
    """Print the records. Returns how many could not be decoded."""
    async with (
        schema_source(cluster.settings, request.topic, shown.format_name) as source,
        cluster.clients(**COMMITTED) as (connector, inspector),
    ):
        printer = RecordPrinter(shown, value_reader(shown.format_name, source))
        existing = (await known_topics(inspector, request.topic))[request.topic]
        partitions = chosen_partitions(request.topic, existing, request.numbers)
        ranges = await _ranges(inspector, request.bounds, partitions)
        consumer = connector.consumer(
            name="command-line",
            subscription=Partitions(tuple(partitions)),
            group_id=None,
            properties={**cluster.properties, **COMMITTED},
        )
        try:
            await start_without_group(consumer)
            left = request.limit
            async for records in _reading(consumer, ranges, follow=request.follow):
                for partition, record in records[:left]:
                    await printer.show(partition, record)
                printer.flush()
                if left is not None:
                    left -= len(records)
                    if left <= 0:
                        break
        finally:
            await consumer.stop()
    return printer.unreadable


async def _ranges(
    inspector: Inspector, bounds: TailBounds, partitions: list[TopicPartition]
) -> dict[TopicPartition, LogRange]:
    logs = await logs_of(inspector, partitions)
    at_time = {}
    for moment in bounds.moments():
        times = dict.fromkeys(partitions, timestamp_ms(moment))
        at_time[moment] = await inspector.offsets_for_times(times)
    return bounds.ranges(logs, at_time)


PartitionRecord = tuple[TopicPartition, RawRecord]


async def _reading(
    consumer: Consumer, ranges: Mapping[TopicPartition, LogRange], *, follow: bool
) -> AsyncIterator[list[PartitionRecord]]:
    """Yield the records of all ranges as they come; with *follow* also those behind the ranges.

    Raises:
        CommandFailed: A partition cannot be read, or nothing has come for ``PATIENCE_S``.
    """
    unread = {tp: log for tp, log in ranges.items() if follow or log.start < log.end}
    consumer.start_at({tp: log.start for tp, log in unread.items()})
    consumer.pause([tp for tp in ranges if tp not in unread])
    loop = asyncio.get_running_loop()
    deadline = loop.time() + PATIENCE_S
    while unread:
        poll = await consumer.poll(dict.fromkeys(unread, MAX_RECORDS), POLL_S)
        for partition, error in poll.errors.items():
            raise CommandFailed(f"{partition} cannot be read: {error}")
        chunks = [chunk for chunk in poll.chunks if chunk.partition in unread]
        if chunks:
            deadline = loop.time() + PATIENCE_S
        elif not follow and loop.time() > deadline:
            missing = ", ".join(map(str, sorted(unread)))
            raise CommandFailed(
                f"no records came for {PATIENCE_S:g} s, and there are more: {missing}"
            )
        in_range = [_in_range(chunk, ranges, follow=follow) for chunk in chunks]
        records = list(heapq.merge(*in_range, key=_time))
        if not follow:
            read = {chunk.partition: chunk.next_offset for chunk in chunks}
            finished = [tp for tp, reached in read.items() if reached >= ranges[tp].end]
            consumer.pause(finished)
            for partition in finished:
                del unread[partition]
        if records:
            yield records


def _in_range(
    chunk: Chunk, ranges: Mapping[TopicPartition, LogRange], *, follow: bool
) -> list[PartitionRecord]:
    end = ranges[chunk.partition].end
    return [(chunk.partition, record) for record in chunk.records if follow or record.offset < end]


def _time(of: PartitionRecord) -> int:
    return of[1].timestamp or 0


class RecordPrinter:
    """Prints records to stdout.

    Attributes:
        unreadable: How many values could not be decoded. They are named on stderr.
    """

    def __init__(self, shown: Shown, read: Callable[[RawRecord], object]) -> None:
        self.unreadable = 0
        self._shown = shown
        self._read = read
        self._out = sys.stdout.buffer
        self._is_terminal = self._out.isatty()

    async def show(self, partition: TopicPartition, record: RawRecord) -> None:
        """Print a record.

        Raises:
            BrokenPipeError: The program that reads the output has ended.
        """
        try:
            line = await with_schemas(partial(self._line, partition, record))
        except (DecodeError, EncodeError) as error:
            self.unreadable += 1
            if self.unreadable <= MOST_UNREADABLE:
                text = escaped(f"{partition} offset {record.offset}: {error}")
                click.echo(text, err=True)
            return
        if self._is_terminal:
            line = escaped(line.decode("utf-8", "backslashreplace").replace("\t", "  ")).encode()
        self._out.write(line + b"\n")

    def flush(self) -> None:
        """Hand over what was printed, so that the next program sees it at once."""
        self._out.flush()

    def _line(self, partition: TopicPartition, record: RawRecord) -> bytes:
        value = self._read(record)
        if self._shown.as_json:
            found = json_of(*partition, record, as_json_data(value))
            text = json.dumps(found, ensure_ascii=self._is_terminal)
            # A lone surrogate becomes an escape of JSON.
            return text.encode("utf-8", "backslashreplace")
        parts = []
        if self._shown.keys:
            parts.append(as_line(record.key))
        if self._shown.headers:
            parts.append(b",".join(map(_header, record.headers)))
        return b"\t".join([*parts, as_line(value)])


def _header(pair: tuple[str, Any]) -> bytes:
    name, value = pair
    return name.encode("utf-8", "surrogateescape") + b"=" + as_line(value)
