"""What ``offsets`` prints: groups, positions and their changes, as tables and as JSON. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reactive_kafka.cli.console_text import aligned, counted
from reactive_kafka.cli.offsets.offset_changes import Change
from reactive_kafka.cli.stored_positions import GroupView, Position, member_json, member_text
from reactive_kafka.observe.safe_text import one_line
from reactive_kafka.observe.wording import first_of
from reactive_kafka.tracking.metadata.acks import AckMap
from reactive_kafka.tracking.metadata.codec import Metadata, decode

_USER_LIMIT = 60
_MOST_PLANS = 3
_NAMES = ("topic", "metadata", "note")


def view_lines(view: GroupView) -> list[str]:
    """Return a group with its members and positions, as lines of text."""
    if view.group is None:
        state = "no members, its positions are in a store only"
    elif view.group.state is None:
        state = "the broker does not say who its members are"
    else:
        state = f"{view.group.state}, {counted(len(view.members), 'member')}"
    lines = [
        f"group {one_line(view.name)}: {state}",
        *(f"  {member_text(member)}" for member in view.members),
    ]
    if not view.positions:
        return [*lines, "it has committed nothing"]
    return lines + _one_lines(view.positions)


def _one_lines(positions: Sequence[Position]) -> list[str]:
    channels = sorted({position.keeper for position in positions if position.keeper is not None})
    head = ["topic", "partition", "position", "log start", "log end", "lag", "metadata"]
    rows: list[list[object]] = []
    for position in positions:
        rows.append(
            [
                *position.partition,
                position.position,
                *position.log,
                position.lag,
                _metadata_text(position),
            ]
        )
    if channels:
        # The store's position counts. Kafka's is shown next to it.
        head.insert(3, "in kafka")
        for row, position in zip(rows, positions, strict=True):
            row.insert(3, _in_kafka(position))
    notes = [
        f'channel {channel!r} has commit_strategy = "checkpoint": its positions are those of its '
        "store"
        for channel in channels
    ]
    return aligned(head, rows, left=_NAMES) + notes


def _metadata_text(position: Position) -> str:
    """Return the metadata in short: the user's string, plans, kept acks, the size of a state."""
    metadata = _metadata(position)
    parts = [one_line(metadata.user, _USER_LIMIT)] if metadata.user else []
    if metadata.plans:
        plans = [f"{plan.start}-{plan.until}" for plan in metadata.plans]
        parts.append(f"planned {first_of(plans, _MOST_PLANS)}")
    if metadata.acks is not None:
        parts.append(f"{_done(metadata.acks)} acks kept below {metadata.acks.until}")
    if metadata.lost is not None:
        parts.append(f"our part of the metadata cannot be used: {one_line(metadata.lost)}")
    if position.state is not None:
        parts.append(f"state of {len(position.state)} characters")
    return "; ".join(parts)


def _metadata(position: Position) -> Metadata:
    return (
        Metadata()
        if position.stored is None
        else decode(position.stored.metadata, position.stored.offset)
    )


def _done(kept: AckMap | None) -> int:
    """Return how many offsets at or above the position are done, including gaps of the log."""
    return 0 if kept is None else kept.until - kept.base - len(kept.open)


def _in_kafka(position: Position) -> int | None:
    return position.kafka.offset if position.kafka is not None else None


def view_json(view: GroupView) -> dict[str, Any]:
    """Return a group with its members and positions, as JSON."""
    return {
        "group": view.name,
        "state": view.group.state if view.group is not None else None,
        "members": [member_json(member) for member in view.members],
        "positions": [_position_json(position) for position in view.positions],
    }


def _position_json(position: Position) -> dict[str, Any]:
    metadata = _metadata(position)
    store = None
    if position.keeper is not None:
        store = {
            "channel": position.keeper,
            "state": position.state,
            "in_kafka": _in_kafka(position),
        }
    return {
        **position.partition._asdict(),
        "position": position.position,
        "log_start": position.log.start,
        "log_end": position.log.end,
        "lag": position.lag,
        "metadata": metadata.user,
        "planned": [[plan.start, plan.until] for plan in metadata.plans],
        "kept_acks": _done(metadata.acks),
        "store": store,
    }


def change_lines(changes: Sequence[Change]) -> list[str]:
    """Return the positions before and after, as the lines of a table."""
    rows = []
    for change in changes:
        by = "" if change.before is None else f"{change.after - change.before:+d}"
        note = "; ".join(filter(None, ["stays" if change.is_same else "", change.note]))
        rows.append([*change.partition, change.before, change.after, by, note])
    return aligned(("topic", "partition", "before", "after", "change", "note"), rows, left=_NAMES)


def change_json(change: Change) -> dict[str, Any]:
    """Return one change as JSON."""
    position = {"before": change.before, "after": change.after}
    return {**change.partition._asdict(), **position, "note": change.note}
