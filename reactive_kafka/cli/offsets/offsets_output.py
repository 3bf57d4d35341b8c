"""What ``offsets`` prints: groups, positions and their changes, as tables and as JSON. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reactive_kafka.cli.console_text import aligned, counted
from reactive_kafka.cli.offsets.offset_changes import Change
from reactive_kafka.cli.stored_positions import GroupView, Position, shown
from reactive_kafka.observe.safe_text import one_line
from reactive_kafka.observe.wording import first_of
from reactive_kafka.tracking.metadata.acks import AckMap
from reactive_kafka.tracking.metadata.codec import Metadata, decode

_USER_LIMIT = 60
_MOST_PLANS = 3
_NAMES = ("topic", "metadata", "note")


def view_lines(view: GroupView) -> list[str]:
    """A group with its members and positions, as lines of text."""
    state = "no members, its positions are in a store only"
    if view.group is not None:
        state = f"{view.group.state}, {counted(len(view.members), 'member')}"
        if view.group.state is None:
            state = "the broker does not say who its members are"
    lines = [
        f"group {one_line(view.name)}: {state}",
        *(f"  {shown(member)}" for member in view.members),
    ]
    return lines + (_positions(view.positions) if view.positions else ["it has committed nothing"])


def _positions(positions: Sequence[Position]) -> list[str]:
    keepers = sorted({one.keeper for one in positions if one.keeper is not None})
    head = [
        "topic",
        "partition",
        "position",
        *["in kafka"] * bool(keepers),
        "log start",
        "log end",
        "lag",
        "metadata",
    ]
    rows = [
        [
            *one.partition,
            one.position,
            *[_in_kafka(one)] * bool(keepers),
            *one.log,
            one.lag,
            _said(one),
        ]
        for one in positions
    ]
    notes = [
        f'channel {it!r} has commit_strategy = "checkpoint": its positions are those of its store'
        for it in keepers
    ]
    return aligned(head, rows, left=_NAMES) + notes


def _said(one: Position) -> str:
    """The metadata of a position in short: the user's string, planned ranges, kept acks; and the
    size of a state.
    """
    metadata = _metadata(one)
    parts = [one_line(metadata.user, _USER_LIMIT)] if metadata.user else []
    if metadata.plans:
        plans = [f"{plan.start}-{plan.until}" for plan in metadata.plans]
        parts.append(f"planned {first_of(plans, _MOST_PLANS)}")
    if metadata.acks is not None:
        parts.append(f"{_done(metadata.acks)} acks kept below {metadata.acks.until}")
    if metadata.lost is not None:
        parts.append(f"what we keep here cannot be used: {one_line(metadata.lost)}")
    if one.state is not None:
        parts.append(f"state of {len(one.state)} characters")
    return "; ".join(parts)


def _metadata(one: Position) -> Metadata:
    return Metadata() if one.stored is None else decode(one.stored.metadata, one.stored.offset)


def _done(kept: AckMap | None) -> int:
    """How many offsets at or above the position are done, gaps of the log among them."""
    return 0 if kept is None else kept.until - kept.base - len(kept.open)


def _in_kafka(one: Position) -> int | None:
    return one.kafka.offset if one.kafka is not None else None


def view_json(view: GroupView) -> dict[str, Any]:
    """A group with its members and positions, as JSON."""
    return {
        "group": view.name,
        "state": view.group.state if view.group is not None else None,
        "members": [member._asdict() for member in view.members],
        "positions": [_position_json(one) for one in view.positions],
    }


def _position_json(one: Position) -> dict[str, Any]:
    metadata = _metadata(one)
    store = None
    if one.keeper is not None:
        store = {"channel": one.keeper, "state": one.state, "in_kafka": _in_kafka(one)}
    return {
        **one.partition._asdict(),
        "position": one.position,
        "log_start": one.log.start,
        "log_end": one.log.end,
        "lag": one.lag,
        "metadata": metadata.user,
        "planned": [[plan.start, plan.until] for plan in metadata.plans],
        "kept_acks": _done(metadata.acks),
        "store": store,
    }


def change_lines(changes: Sequence[Change]) -> list[str]:
    """The positions before and after, as a table."""
    rows = []
    for change in changes:
        by = "" if change.before is None else f"{change.after - change.before:+d}"
        note = "; ".join(filter(None, ["stays" if change.is_same else "", change.note]))
        rows.append([*change.partition, change.before, change.after, by, note])
    return aligned(("topic", "partition", "before", "after", "change", "note"), rows, left=_NAMES)


def change_json(change: Change) -> dict[str, Any]:
    """One change, as JSON."""
    position = {"before": change.before, "after": change.after}
    return {**change.partition._asdict(), **position, "note": change.note}
