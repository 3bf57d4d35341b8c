"""``reactive-kafka produce``: write the lines of standard input to a topic."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import click

from reactive_kafka.broker.client import Inspector, Producer
from reactive_kafka.broker.topic_lookup import known_topics
from reactive_kafka.cli import options
from reactive_kafka.cli.cluster_access import (
    BrokerOptions,
    ClusterAccess,
    find_cluster,
    with_broker_options,
)
from reactive_kafka.cli.errors import CommandFailed
from reactive_kafka.cli.progress import progress_line
from reactive_kafka.cli.records.confirmations import Confirmations
from reactive_kafka.cli.records.record_json import AddressedRecord, record_of_json
from reactive_kafka.cli.records.registry_access import schema_source, with_schemas
from reactive_kafka.cli.records.stdin_lines import InputLines, LineTooLongError
from reactive_kafka.cli.records.value_texts import json_writer, line_writer
from reactive_kafka.cli.topics.topic_plan import DEFAULT_PARTITIONS
from reactive_kafka.config.tables import TopicSettings
from reactive_kafka.errors import BrokerError, EncodeError, SchemaAwayError
from reactive_kafka.formats import SchemaSource
from reactive_kafka.records import HeaderPairs, RecordBytes
from reactive_kafka.wire import is_topic

# How long an interrupted command waits for the broker's confirmation of what it has sent.
CONFIRM_S = 10.0

ReadLine = Callable[[bytes], AddressedRecord]


def _headers(
    _: click.Context, __: click.Parameter, given: tuple[str, ...]
) -> tuple[tuple[str, bytes], ...]:
    pairs = []
    for text in given:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise click.BadParameter(f"{text!r}: expected NAME=VALUE")
        pairs.append((name, value.encode("utf-8", "surrogateescape")))
    return tuple(pairs)


@click.command(name="produce", short_help="Write lines of standard input to a topic.")
@options.topic
@click.option("--key", metavar="TEXT", help="The key of every record. Default: none.")
@click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="NAME=VALUE",
    callback=_headers,
    help="A header of every record. May be repeated.",
)
@click.option(
    "--partition",
    type=click.IntRange(0),
    metavar="N",
    help="Write to this partition. Default: the key decides, as for a channel.",
)
@options.format_option(
    "json and string check the line and write it as it is; int, float and the like write numbers; "
    "avro, json-schema and protobuf take a line of JSON, and their schema from the registry of the "
    "configuration. Default: any bytes."
)
@click.option(
    "--create",
    is_flag=True,
    help="Create the topic if it does not exist: as [topics.TOPIC] in the configuration declares "
    "it, or with one partition.",
)
@options.as_json(
    "Each line is a JSON object with value, and perhaps key, headers, partition and timestamp: "
    "what tail --json prints."
)
@with_broker_options
def produce(
    topic: str,
    key: str | None,
    headers: tuple[tuple[str, bytes], ...],
    partition: int | None,
    format_name: str | None,
    create: bool,
    as_json: bool,
    brokers: BrokerOptions,
) -> None:
    """Write each line of standard input to a topic, as the value of a record.

    Ends at the end of the input, when the broker has confirmed every record, and prints how many it
    has confirmed. At the first line that is refused it stops reading and exits with 1: it names the
    line, and says which lines were written. An empty line is a record with an empty value. The
    topic must exist, or be created with --create.

    \b
    Examples:
      echo '{"amount": 7}' | reactive-kafka produce orders --key ada --format json
      reactive-kafka produce orders --header source=import < orders.txt
      reactive-kafka tail orders --json | reactive-kafka produce orders-copy --json
    """
    if not is_topic(topic):
        raise click.UsageError(f"no topic can be called {topic!r}")
    if sys.stdin is None:
        raise click.UsageError("there is no standard input to read")
    if as_json and (key is not None or headers or partition is not None):
        raise click.UsageError(
            "--json cannot be combined with --key, --header and --partition: each object has its "
            "own"
        )
    fixed_key = None if key is None else key.encode("utf-8", "surrogateescape")

    def reader(source: SchemaSource) -> ReadLine:
        if as_json:
            value_of = json_writer(format_name, source)
            return lambda line: record_of_json(line, value_of)
        write = line_writer(format_name, source)
        return lambda line: _record(write(line), fixed_key, headers, partition)

    cluster = find_cluster(
        brokers,
        lambda channel: channel.client if channel.subscription.reads(topic) else None,
        lambda channel: channel.client if channel.topic == topic else None,
    )
    answers: list[Confirmations] = []
    try:
        asyncio.run(_produce(cluster, topic, format_name, reader, answers, create=create))
    except KeyboardInterrupt:
        for confirmations in answers:
            click.echo(confirmations.report(topic), err=True)
        raise
    [confirmations] = answers
    if confirmations.failed:
        raise CommandFailed(confirmations.report(topic))
    click.echo(confirmations.report(topic))


def _record(
    value: bytes | None, key: bytes | None, headers: HeaderPairs, partition: int | None
) -> AddressedRecord:
    return AddressedRecord(RecordBytes(value, key, headers), partition)


async def _produce(
    cluster: ClusterAccess,
    topic: str,
    format_name: str | None,
    reader: Callable[[SchemaSource], ReadLine],
    answers: list[Confirmations],
    *,
    create: bool,
) -> None:
    """Write the lines. *answers* gets the confirmations, also if this call is cancelled."""
    async with (
        schema_source(cluster.settings, topic, format_name) as source,
        cluster.clients() as (connector, inspector),
    ):
        read = reader(source)
        if not create:
            await known_topics(inspector, topic)
        producer = connector.producer(
            name="command-line", properties=_producer_properties(cluster, topic)
        )
        await producer.start()
        lines = InputLines(sys.stdin.buffer)
        confirmations = Confirmations()
        answers.append(confirmations)
        try:
            if create:
                await _create(cluster, inspector, producer, topic)
            with _progress_of(confirmations):
                try:
                    await _send(producer, topic, read, confirmations, lines)
                    await confirmations.all_answered()
                except asyncio.CancelledError:
                    await _answers_soon(confirmations)
                    raise
        finally:
            await producer.stop()


async def _create(
    cluster: ClusterAccess, inspector: Inspector, producer: Producer, topic: str
) -> None:
    """Create the topic, unless it exists.

    Raises:
        CommandFailed: The broker refuses it, and creates no topics by itself either.
    """
    if topic in await inspector.topics([topic]):
        return
    declared = None if cluster.settings is None else cluster.settings.topics.get(topic)
    wanted = declared or TopicSettings(name=topic)
    try:
        await inspector.create_topic(
            topic,
            wanted.partitions or DEFAULT_PARTITIONS,
            wanted.replication_factor,
            wanted.config,
        )
    except BrokerError as error:
        # The embedded broker has no request for it, and creates topics that a producer asks for.
        try:
            await producer.partitions(topic)
        except BrokerError:
            raise CommandFailed(str(error)) from error


def _progress_of(confirmations: Confirmations) -> AbstractContextManager[object]:
    """Return the progress to show; none while a person types the lines."""
    if sys.stdin.isatty():
        return nullcontext()
    return progress_line("written", lambda: confirmations.confirmed)


async def _answers_soon(confirmations: Confirmations) -> None:
    try:
        async with asyncio.timeout(CONFIRM_S):
            await confirmations.all_answered()
    except TimeoutError:
        # The report says how many have no answer.
        pass


def _producer_properties(cluster: ClusterAccess, topic: str) -> dict[str, Any]:
    """Return the properties of the channel that writes the topic, and the connection."""
    channels = [] if cluster.settings is None else cluster.settings.outgoing.values()
    for channel in channels:
        if channel.topic == topic:
            own = {
                name: value
                for name, value in channel.client.items()
                if name not in ("bootstrap_servers", "transactional_id")
            }
            # Without confirmations nothing could be counted.
            return {**own, **cluster.properties, "acks": "all"}
    return dict(cluster.properties)


async def _send(
    producer: Producer,
    topic: str,
    read: ReadLine,
    confirmations: Confirmations,
    lines: InputLines,
) -> None:
    """Send the records of all lines, or until one has failed."""
    while batch := await _next_lines(lines, confirmations):
        for line in batch:
            await confirmations.room()
            if confirmations.failed:
                return
            number = confirmations.lines + 1
            confirmations.lines = number
            try:
                record, partition = await with_schemas(partial(read, line))
            except (ValueError, EncodeError, SchemaAwayError) as error:
                confirmations.refused(number, str(error))
                return
            answer = await producer.send(
                topic,
                record.value,
                key=record.key,
                headers=record.headers,
                partition=partition,
                timestamp_ms=record.timestamp_ms,
            )
            confirmations.sent(number, len(line), answer)


async def _next_lines(lines: InputLines, confirmations: Confirmations) -> list[bytes]:
    """Return the next lines; none at the end of the input, or if a record has failed meanwhile.

    The input may be a terminal, so that the next line comes late or never.
    """
    reading = asyncio.ensure_future(lines.some())
    failing = asyncio.ensure_future(confirmations.failure())
    try:
        await asyncio.wait([reading, failing], return_when=asyncio.FIRST_COMPLETED)
        return [] if confirmations.failed else reading.result()
    except LineTooLongError as error:
        confirmations.lines += 1
        confirmations.refused(confirmations.lines, str(error))
        return []
    finally:
        reading.cancel()
        failing.cancel()
