"""``reactive-kafka offsets``: show, set, save and restore the positions of a group."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import click

from reactive_kafka.cli import options
from reactive_kafka.cli.cluster_access import (
    BrokerOptions,
    ClusterAccess,
    find_cluster,
    with_broker_options,
)
from reactive_kafka.cli.console_text import counted
from reactive_kafka.cli.errors import CommandFailed, WrongUsage
from reactive_kafka.cli.offsets import offset_changes
from reactive_kafka.cli.offsets.export_file import Saved, read, written
from reactive_kafka.cli.offsets.offset_changes import Change, To
from reactive_kafka.cli.offsets.offsets_output import (
    change_json,
    change_lines,
    view_json,
    view_lines,
)
from reactive_kafka.cli.progress import waiting_line
from reactive_kafka.cli.stored_positions import (
    GroupView,
    Position,
    is_of,
    read_group,
    set_positions,
)
from reactive_kafka.observe.safe_text import one_line
from reactive_kafka.partitions.start_choice import timestamp_ms
from reactive_kafka.records import TopicPartition
from reactive_kafka.tracking.metadata.codec import without_topic

_group = click.argument("group", metavar="GROUP")


@click.group(name="offsets", short_help="Show, set, save and restore the positions of a group.")
def offsets() -> None:
    """Show, set, save and restore the positions of a group.

    \b
    Examples:
      reactive-kafka offsets show billing
      reactive-kafka offsets reset billing --topic orders --to earliest
    """


@offsets.command(name="show", short_help="Show a group: members, positions, metadata.")
@_group
@options.topics
@with_broker_options
@options.as_json()
def show(group: str, topics: tuple[str, ...], brokers: BrokerOptions, as_json: bool) -> None:
    """Show a group: its members, and the position, log, lag and metadata of each partition.

    Read-only. If a channel in the configuration keeps the group's positions in a checkpoint store,
    those are shown, with Kafka's next to them. Exits with 1 for an unknown group or topic.

    \b
    Examples:
      reactive-kafka offsets show billing
      reactive-kafka offsets show billing --topic orders --bootstrap-servers localhost:9092 --json
    """
    view = _read(_cluster(brokers, group), group, topics)
    click.echo(json.dumps(view_json(view), indent=2) if as_json else "\n".join(view_lines(view)))


def _cluster(brokers: BrokerOptions, group: str) -> ClusterAccess:
    return find_cluster(brokers, lambda channel: channel.client if is_of(channel, group) else None)


def _read(
    cluster: ClusterAccess, group: str, topics: Sequence[str], *, may_be_new: bool = False
) -> GroupView:
    with waiting_line(f"asking for group {one_line(group)}"):
        return asyncio.run(read_group(cluster, group, topics, may_be_new=may_be_new))


@offsets.command(name="reset", short_help="Set the positions of a group.")
@_group
@click.option("--topic", required=True, metavar="TOPIC", help="Topic whose positions are set.")
@click.option(
    "--partition",
    "numbers",
    type=click.IntRange(0),
    multiple=True,
    metavar="N",
    help="Only this partition. May be repeated. Default: all partitions.",
)
@click.option(
    "--to",
    type=offset_changes.parse_to,
    required=True,
    metavar="WHERE",
    help="earliest, latest, an offset, a time with its zone (2026-11-21T08:00:00Z: the first "
    "record since then), or by:N, N offsets forward from the position (by:-100: back). Limited to "
    "the ends of the log.",
)
@with_broker_options
@options.confirmed
@options.as_json()
def reset(
    group: str,
    topic: str,
    numbers: tuple[int, ...],
    to: To,
    brokers: BrokerOptions,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Set the positions of a group: replay records, or skip them.

    Shows the positions before and after, asks, sets them, and verifies them. Refused while the
    group has members. The metadata of a position that moves is removed. Positions in a checkpoint
    store are set there too, so name the configuration of the service. Answering no exits with 1;
    without a terminal and without --yes it exits with 2.

    \b
    Examples:
      reactive-kafka offsets reset billing --topic orders --to earliest --dry-run
      reactive-kafka offsets reset billing --topic orders --to 2026-11-20T00:00:00Z
      reactive-kafka offsets reset billing --topic orders --partition 3 --to by:1 --yes
    """
    cluster = _cluster(brokers, group)
    view = _read(cluster, group, [topic])
    changes = asyncio.run(_planned(cluster, to, _chosen(view, topic, numbers)))
    _finish(cluster, view, changes, dry_run=dry_run, yes=yes, as_json=as_json)


def _chosen(view: GroupView, topic: str, numbers: Sequence[int]) -> list[Position]:
    """Return the positions of the partitions *numbers*; without any, of all partitions."""
    by_number = {position.partition.partition: position for position in view.positions}
    missing = [str(number) for number in sorted(set(numbers)) if number not in by_number]
    if missing:
        raise CommandFailed(
            f"topic {topic} has no partition {', '.join(missing)}; it has {len(by_number)}, from 0 "
            "on"
        )
    return [by_number[number] for number in sorted(set(numbers) or by_number)]


async def _planned(cluster: ClusterAccess, to: To, chosen: Sequence[Position]) -> list[Change]:
    offsets_at_time: dict[TopicPartition, int | None] = {}
    if isinstance(to, datetime):
        async with cluster.clients() as (_, inspector):
            offsets_at_time = await inspector.offsets_for_times(
                {position.partition: timestamp_ms(to) for position in chosen}
            )
    logs = {position.partition: position.log for position in chosen}
    before = {
        position.partition: position.position
        for position in chosen
        if position.position is not None
    }
    changes = offset_changes.reset(to, logs, before, offsets_at_time)
    return [_with_state(change, position) for change, position in zip(changes, chosen, strict=True)]


def _with_state(change: Change, position: Position) -> Change:
    """Add what happens to a state in a store: a move forward keeps it, a move back drops it."""
    if position.state is None or change.is_same:
        return change
    if change.before is not None and change.after < change.before:
        return replace(change, note="; ".join(filter(None, [change.note, "its state is dropped"])))
    return replace(change, state=position.state)


@offsets.command(name="export", short_help="Save the positions of a group.")
@_group
@options.topics
@with_broker_options
def export(group: str, topics: tuple[str, ...], brokers: BrokerOptions) -> None:
    """Print the positions of a group with their metadata, as JSON for offsets import.

    Positions that a channel in the configuration keeps in a checkpoint store are read there, with
    their states.

    \b
    Examples:
      reactive-kafka offsets export billing > billing.json
    """
    view = _read(_cluster(brokers, group), group, topics)
    saved = [
        Saved(position.partition, *position.stored, position.state)
        for position in view.positions
        if position.stored is not None
    ]
    click.echo(written(group, datetime.now(UTC), saved))


@offsets.command(
    name="import", short_help="Restore the positions of a group, or copy them to another."
)
@_group
@click.argument(
    "file", type=click.Path(path_type=Path, dir_okay=False, exists=True), metavar="FILE"
)
@with_broker_options
@options.confirmed
@options.as_json()
def import_(
    group: str, file: Path, brokers: BrokerOptions, dry_run: bool, yes: bool, as_json: bool
) -> None:
    """Set the positions and metadata of a group to those of a file that offsets export has saved.

    The file may be from another group, and the group may be new. Shows, asks and refuses like
    offsets reset. Partitions that are not in the file stay unchanged. If a position is outside its
    log, or a partition does not exist, it is named and nothing is changed.

    \b
    Examples:
      reactive-kafka offsets import billing billing.json
      reactive-kafka offsets import billing-copy billing.json --yes
    """
    try:
        saved = read(file.read_text())
    except (OSError, ValueError) as error:
        raise WrongUsage(f"{file}: {error}") from error
    cluster = _cluster(brokers, group)
    topics = sorted({entry.partition.topic for entry in saved})
    view = _read(cluster, group, topics, may_be_new=True)
    current = {position.partition: position for position in view.positions}
    changes = [_restored(entry, current.get(entry.partition)) for entry in saved]
    problems = offset_changes.outside(
        changes, {partition: position.log for partition, position in current.items()}
    )
    if problems:
        raise CommandFailed(f"{file} does not fit: {'; '.join(problems)}")
    _finish(cluster, view, changes, dry_run=dry_run, yes=yes, as_json=as_json)


def _restored(saved: Saved, current: Position | None) -> Change:
    # The metadata names the id of the topic that it was written for. The operator says that it is
    # for this topic, so the id is removed.
    metadata = without_topic(saved.metadata, saved.position)
    has_store = current is not None and current.keeper is not None
    state = saved.state if has_store else None
    return Change(
        partition=saved.partition,
        before=None if current is None else current.position,
        after=saved.position,
        metadata=metadata,
        state=state,
        is_same=(
            current is not None
            and _is_stored(current, saved.position, metadata)
            and current.state == state
        ),
        note="its state is left out: there is no store" if saved.state != state else "",
    )


def _is_stored(current: Position, position: int, metadata: str) -> bool:
    stored = current.stored
    if stored is None or stored.offset != position:
        return False
    return without_topic(stored.metadata, stored.offset) == metadata


def _finish(
    cluster: ClusterAccess,
    view: GroupView,
    changes: Sequence[Change],
    *,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Show the changes, ask, and carry them out."""

    def say(text: str) -> None:
        # With --json stdout is for the JSON alone.
        click.echo(text, err=as_json)

    say("\n".join([f"group {view.name}", *change_lines(changes)]))
    wanted = [change for change in changes if not change.is_same]
    count = counted(len(wanted), "position")
    if not dry_run:
        view.check_idle()
        if wanted:
            options.ask(f"Set {count} of group {view.name}?", yes=yes)
            with waiting_line("setting the positions"):
                asyncio.run(set_positions(cluster, view, wanted))
    say(f"{'would set' if dry_run else 'set'} {count}")
    if as_json:
        report = {
            "group": view.name,
            "dry_run": dry_run,
            "changes": [change_json(change) for change in changes],
        }
        click.echo(json.dumps(report, indent=2))
