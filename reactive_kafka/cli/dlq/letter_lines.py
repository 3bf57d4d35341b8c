"""Dead letters as lines of text."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any


def letter_line(topic: str, letter: Mapping[str, Any]) -> str:
    """Return one record of a dead-letter topic as one line."""
    parts = [f"{topic}-{letter['partition']} {letter['offset']}", time_text(letter["timestamp_ms"])]
    is_letter = letter["written_by"] is not None
    parts.append(_origin(letter["origin"]) if is_letter else "no dead letter")
    parts.append(f"key {letter['key']}" if letter["key"] is not None else "no key")
    if is_letter:
        parts.append(reason_text(letter["exception"], letter["reason"]))
    if letter.get("group") is not None:
        group = f"group {letter['group']}"
        if letter["deliveries"] is not None:
            group += f", delivered {letter['deliveries']} times"
        parts.append(group)
    if letter.get("value") is not None:
        parts.append(f"value {letter['value']}")
    return "  ".join(parts)


def _origin(origin: Mapping[str, Any] | None) -> str:
    if origin is None:
        return "origin unknown"
    time = "" if origin["timestamp_ms"] is None else f" of {time_text(origin['timestamp_ms'])}"
    return "from {topic}-{partition} {offset}".format(**origin) + time


def reason_text(exception: str, reason: str) -> str:
    """Return why a record became a dead letter."""
    return ": ".join(filter(None, [exception, reason])) or "no reason given"


def time_text(timestamp_ms: int | None) -> str:
    """Return the timestamp of a record as people read it."""
    if timestamp_ms is None or timestamp_ms < 0:
        return "no time"
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        # The producer may have set any number.
        return f"{timestamp_ms} ms"
