"""What ``offsets`` prints: groups, positions, and their changes. Pure, but for the words of the shell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reactive_kafka.cli.offsets_plan import Change
from reactive_kafka.cli.positions import GroupView, Position, shown
from reactive_kafka.cli.tables import aligned, counted, number
from reactive_kafka.commit.metadata.acks import AckMap
from reactive_kafka.commit.metadata.codec import Metadata, decode
from reactive_kafka.observe.text import one_line

_USER_LIMIT = 60
_MOST_PLANS = 3
_NAMES = ("topic", "metadata", "note")


def view_lines(view: GroupView) -> list[str]:
    """A group with its members and positions, as lines of text."""
    lines = [f"group {one_line(view.name)}: {_state(view)}"]
    lines += [f"  {shown(member)}" for member in view.members]
    if not view.positions:
        return [*lines, "it has committed nothing"]
    return [*lines, *_positions(view.positions)]


def _state(view: GroupView) -> str:
    if view.group is None:
        return "no members, its positions are in a store only"
    if view.group.state is None:
        return "the broker does not say who its members are"
    return f"{view.group.state}, {counted(len(view.members), 'member')}"


def _positions(positions: Sequence[Position]) -> list[str]:
    keepers = sorted({one.keeper for one in positions if one.keeper is not None})
    head = ["topic", "partition", "position", *["in kafka"] * bool(keepers), "log start", "log end", "lag", "metadata"]
    rows = [_row(one, with_kafka=bool(keepers)) for one in positions]
    lines = aligned(head, rows, left=_NAMES)
    for name in keepers:
        lines.append(f'channel {name!r} has commit_strategy = "checkpoint": its positions are those of its store')
    return lines


def _row(one: Position, *, with_kafka: bool) -> list[str]:
    stored = one.stored
    said = [] if stored is None else [metadata_text(decode(stored.metadata, stored.offset))]
    if one.state is not None:
        said.append(f"state of {len(one.state)} characters")
    return [
        one.partition.topic,
        str(one.partition.partition),
        number(one.position),
        *[number(_in_kafka(one))] * with_kafka,
        str(one.log.start),
        str(one.log.end),
        number(one.lag),
        "; ".join(filter(None, said)),
    ]


def metadata_text(metadata: Metadata) -> str:
    """The metadata of a position in short: the user's string, planned ranges, the number of kept acks."""
    parts = [one_line(metadata.user, _USER_LIMIT)] if metadata.user else []
    if metadata.plans:
        first = ", ".join(f"{plan.start}-{plan.until}" for plan in metadata.plans[:_MOST_PLANS])
        more = f" and {len(metadata.plans) - _MOST_PLANS} more" if len(metadata.plans) > _MOST_PLANS else ""
        parts.append(f"planned {first}{more}")
    if metadata.acks is not None:
        parts.append(f"{_done(metadata.acks)} acks kept below {metadata.acks.until}")
    if metadata.lost is not None:
        parts.append(f"what we keep here cannot be used: {one_line(metadata.lost)}")
    return "; ".join(parts)


def _done(kept: AckMap) -> int:
    """How many offsets at or above the position are done, gaps of the log among them."""
    return kept.until - kept.base - len(kept.open)


def view_json(view: GroupView) -> dict[str, Any]:
    """A group with its members and positions, as JSON."""
    return {
        "group": view.name,
        "state": view.group.state if view.group is not None else None,
        "members": [member._asdict() for member in view.members],
        "positions": [_position_json(one) for one in view.positions],
    }


def _position_json(one: Position) -> dict[str, Any]:
    metadata = Metadata() if one.stored is None else decode(one.stored.metadata, one.stored.offset)
    store = None
    if one.keeper is not None:
        store = {"channel": one.keeper, "state": one.state, "in_kafka": _in_kafka(one)}
    return {
        "topic": one.partition.topic,
        "partition": one.partition.partition,
        "position": one.position,
        "log_start": one.log.start,
        "log_end": one.log.end,
        "lag": one.lag,
        "metadata": metadata.user,
        "planned": [[plan.start, plan.until] for plan in metadata.plans],
        "kept_acks": 0 if metadata.acks is None else _done(metadata.acks),
        "store": store,
    }


def _in_kafka(one: Position) -> int | None:
    return one.kafka.offset if one.kafka is not None else None


def change_lines(changes: Sequence[Change]) -> list[str]:
    """The positions before and after, as a table."""
    head = ("topic", "partition", "before", "after", "change", "note")
    return aligned(head, [_change_row(change) for change in changes], left=_NAMES)


def _change_row(change: Change) -> list[str]:
    by = "" if change.before is None else f"{change.after - change.before:+d}"
    note = "; ".join(filter(None, ["stays" if change.is_same else "", change.note]))
    partition = change.partition
    return [partition.topic, str(partition.partition), number(change.before), str(change.after), by, note]


def change_json(change: Change) -> dict[str, Any]:
    """One change, as JSON."""
    return {
        "topic": change.partition.topic,
        "partition": change.partition.partition,
        "before": change.before,
        "after": change.after,
        "note": change.note,
    }
