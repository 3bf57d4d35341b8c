"""``reactive-kafka dlq``: show dead letters, and send them back."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import click

from reactive_kafka.broker.client import Chunk
from reactive_kafka.cli import options
from reactive_kafka.cli.cluster_access import (
    BrokerOptions,
    ClusterAccess,
    find_cluster,
    with_broker_options,
)
from reactive_kafka.cli.console_text import counted
from reactive_kafka.cli.dlq.letter_lines import letter_line, reason_text
from reactive_kafka.cli.errors import CommandFailed
from reactive_kafka.cli.paging import show_lines
from reactive_kafka.cli.progress import DoneCount, progress_line
from reactive_kafka.dead_letters.letters import ReplayPlan, letter_of
from reactive_kafka.dead_letters.replay import (
    Replayed,
    carry_out_replay,
    letter_client,
    plan_replay,
    producing_of,
    reading_topic,
)

_MOST_REASONS = 20
DEFAULT_LIMIT = 100
_topic = options.topic
_limit = click.option(
    "--limit",
    type=click.IntRange(1),
    metavar="N",
    help="Maximum number of records, partition by partition, oldest first.",
)


@click.group(name="dlq", short_help="Show dead letters, and send them back.")
def dlq() -> None:
    """Show dead letters, and send them back.

    \b
    Examples:
      reactive-kafka dlq show dead-letter-topic-orders
      reactive-kafka dlq replay dead-letter-topic-orders --dry-run
    """


@dlq.command(name="show", short_help="Show the records of a dead-letter topic.")
@_topic
@click.option(
    "--limit",
    type=click.IntRange(1),
    metavar="N",
    help="Maximum number of records, partition by partition, oldest first. Default: 100, with "
    "--json all of them.",
)
@click.option("--all", "show_all", is_flag=True, help="Show all records.")
@click.option("--values", is_flag=True, help="Also show the beginning of each value.")
@with_broker_options
@options.as_json()
def show(
    topic: str,
    limit: int | None,
    show_all: bool,
    values: bool,
    brokers: BrokerOptions,
    as_json: bool,
) -> None:
    """Show the records of a dead-letter topic: origin, reason and key of each, and a summary.

    Reads the dead letters of this package and of SmallRye, of Kafka Streams and Kafka Connect, and
    those that a broker writes for a share group. Read-only, and without joining a group. Values are
    shown only with --values. On a terminal long lists are shown in a pager. Exits with 1 if the
    topic has records and none of them is a dead letter.

    \b
    Examples:
      reactive-kafka dlq show dead-letter-topic-orders
      reactive-kafka dlq show dead-letter-topic-orders --all
      reactive-kafka dlq show dead-letter-topic-orders --limit 20 --values --json
    """
    if show_all and limit is not None:
        raise click.UsageError("--all and --limit exclude each other")
    if limit is None and not show_all and not as_json:
        limit = DEFAULT_LIMIT
    asyncio.run(_show(_cluster(brokers, topic), topic, limit, values=values, as_json=as_json))


def _cluster(brokers: BrokerOptions, topic: str) -> ClusterAccess:
    return find_cluster(brokers, lambda channel: letter_client(channel, topic))


async def _show(
    cluster: ClusterAccess, topic: str, limit: int | None, *, values: bool, as_json: bool
) -> None:
    shown: list[dict[str, Any]] = []
    lines: list[str] = []
    counts: Counter[tuple[str, str]] = Counter()
    strangers = 0
    async with reading_topic(cluster, topic) as (offsets, chunks):
        async for letter in _letters(chunks, limit, with_value=values):
            if letter["written_by"] is None:
                strangers += 1
            else:
                counts[letter["exception"], letter["reason"]] += 1
            if as_json:
                shown.append(letter)
            elif limit is None:
                # They may be very many, so they are printed as they come.
                click.echo(letter_line(topic, letter))
            else:
                lines.append(letter_line(topic, letter))
    if as_json:
        by_reason = [
            {"exception": kind, "reason": why, "count": count}
            for (kind, why), count in counts.most_common()
        ]
        answer = {"topic": topic, "records": shown, "by_reason": by_reason, "no_letters": strangers}
        click.echo(json.dumps(answer, indent=2))
    else:
        is_cut = counts.total() + strangers == limit
        show_lines([*lines, *_summary(topic, counts, strangers, offsets, is_cut=is_cut)])
    if strangers and not counts:
        raise CommandFailed(
            f"{topic} is not a dead-letter topic: none of its records has the headers of a dead "
            "letter"
        )


async def _letters(
    chunks: AsyncIterator[Chunk], limit: int | None, *, with_value: bool
) -> AsyncIterator[dict[str, Any]]:
    """Yield the records in order, at most *limit*. Nothing is read beyond the last one."""
    count = 0
    async for chunk in chunks:
        for record in chunk.records:
            yield letter_of(chunk.partition, record, with_value=with_value)
            count += 1
            if count == limit:
                return


def _summary(
    topic: str, counts: Counter[tuple[str, str]], strangers: int, offsets: int, *, is_cut: bool
) -> list[str]:
    count = counts.total() + strangers
    lines = [f"{_records(count)} in {topic}"]
    if is_cut and count < offsets:
        lines = [
            f"the first {_records(count)} of {topic}; up to {offsets - count} more: --all shows "
            "them, --limit N the first N"
        ]
    if strangers:
        lines.append(f"{strangers:>8}  no dead letters: without the headers of one")
    lines += [
        f"{count:>8}  {reason_text(*reason)}" for reason, count in counts.most_common(_MOST_REASONS)
    ]
    others = len(counts) - _MOST_REASONS
    return [*lines, f"{'':>8}  and {others} other reasons"] if others > 0 else lines


def _records(count: int) -> str:
    return counted(count, "record")


@dlq.command(name="replay", short_help="Send dead letters back to their topics.")
@_topic
@click.option(
    "--to",
    metavar="TOPIC",
    help="Send all records to this topic instead of those named in their headers.",
)
@_limit
@with_broker_options
@options.confirmed
@options.as_json()
def replay(
    topic: str,
    to: str | None,
    limit: int | None,
    brokers: BrokerOptions,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Send dead letters back to the topics they came from, with their key, headers, value and time.

    Shows the target topics with the number of records for each, asks, and writes. The group
    reactive-kafka-replay:TOPIC (with --to: reactive-kafka-replay:TOPIC:TO) stores how far the
    replay got, so nothing is sent twice, and an interrupted replay continues where it stopped. The
    brokers delete that position offsets.retention.minutes after the last replay, 7 days by default.
    If the target would delete or refuse a record for its timestamp, it gets the time of the replay.
    Records whose headers name no origin, or a topic that no incoming channel of the configuration
    reads, are left out and listed, and the command exits with 1.

    \b
    Examples:
      reactive-kafka dlq replay dead-letter-topic-orders --dry-run
      reactive-kafka dlq replay dead-letter-topic-orders --limit 1
      reactive-kafka dlq replay dead-letter-topic-orders --to orders-fixed --yes
    """
    if to == topic:
        raise click.UsageError(
            f"--to {to} is the topic that is read, so every record would come back to it"
        )
    cluster = _cluster(brokers, topic)
    read = DoneCount()
    with progress_line("read", lambda: read.value):
        wanted = asyncio.run(plan_replay(cluster, topic, to, limit, read.add))

    def say(text: str) -> None:
        # With --json stdout is for the JSON alone.
        click.echo(text, err=as_json)

    say("\n".join(_planned(wanted)))
    total = wanted.counts.total()
    replayed = Replayed()
    if dry_run:
        say(f"would replay {_records(total)}")
    elif total:
        options.ask(f"Write {_records(total)}?", yes=yes)
        replayed = _carried_out(cluster, wanted)
        restamped = ""
        if replayed.restamped:
            restamped = f", {replayed.restamped} with the time of the replay as timestamp"
        say(f"replayed {_records(replayed.records)}{restamped}")
    if as_json:
        click.echo(json.dumps(_replay_json(wanted, replayed, dry_run=dry_run), indent=2))
    if wanted.refused_count:
        raise CommandFailed(
            f"{_records(wanted.refused_count)} cannot be sent back; name a topic with --to"
        )


def _carried_out(cluster: ClusterAccess, wanted: ReplayPlan) -> Replayed:
    written = Replayed()
    with progress_line("replayed", lambda: written.records, wanted.counts.total()):
        return asyncio.run(
            carry_out_replay(
                cluster, wanted, producing_of(cluster.channels, wanted.letters), written
            )
        )


def _replay_json(wanted: ReplayPlan, replayed: Replayed, *, dry_run: bool) -> dict[str, Any]:
    return {
        "topic": wanted.letters,
        "dry_run": dry_run,
        "targets": dict(sorted(wanted.counts.items())),
        "replayed": replayed.records,
        "restamped": replayed.restamped,
        "replayed_before": wanted.done,
        "refused": wanted.refused_count,
        "refused_first": [
            {"partition": str(partition), "offset": offset, "reason": why}
            for partition, offset, why in wanted.refused
        ],
    }


def _timestamps(wanted: ReplayPlan, target: str) -> list[str]:
    """Return lines about records that cannot keep their timestamps in a topic, or may not."""
    if target not in wanted.limits:
        return [
            f"          the broker does not tell the retention of {target} (is the right "
            "DESCRIBE_CONFIGS missing?): it deletes records whose own timestamps are older"
        ]
    return [
        f"          {count} of them with the time of the replay as timestamp, because {target} has "
        f"{why}"
        for (topic, why), count in sorted(wanted.restamped.items())
        if topic == target
    ]


def _planned(wanted: ReplayPlan) -> list[str]:
    lines = [f"{wanted.letters}: {_records(wanted.counts.total())} to replay"]
    for target, count in sorted(wanted.counts.items()):
        lines.append(f"{count:>8}  to {target}")
        lines += _timestamps(wanted, target)
    if wanted.strangers:
        lines.append(f"{wanted.strangers:>8}  of them no dead letters: without the headers of one")
    if wanted.done:
        lines.append(f"{wanted.done:>8}  replayed before")
    if wanted.refused_count:
        lines.append(f"{wanted.refused_count:>8}  stay")
    lines += [f"          {partition} {offset}: {why}" for partition, offset, why in wanted.refused]
    more = wanted.refused_count - len(wanted.refused)
    return [*lines, f"          and {more} more"] if more else lines
