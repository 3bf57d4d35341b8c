"""The marks of a partition: what is committed, settled above it, read, and in the log. Pure.

``static/page.js`` has the same rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

WIDTH = 200.0
READ_SHARE = 0.75
"""The share of the width for what is read, where there is more in the log. The lag may be a million
times larger than the window of records in flight, which could not be seen on one scale.
"""
LEAST_WIDTH = 1.0


@dataclass(frozen=True, slots=True)
class Mark:
    """A part of the bar."""

    kind: Literal["settled", "open", "unread"]
    start: float
    width: float


def marks_of(partition: Mapping[str, Any]) -> list[Mark]:
    """Return the parts of a partition's bar, from its committed position to the end of its log."""
    position = partition["position"]
    start = _start(partition)
    unread = max(0, (partition["log_end"] or position) - position)
    read = position - start
    if not read:
        return [Mark("unread", 0.0, WIDTH)] if unread else []
    width = WIDTH * READ_SHARE if unread else WIDTH
    marks = [Mark("open", 0.0, width)]
    for first, after in partition["settled_above"]:
        begin = (max(first, start) - start) / read * width
        end = (min(after, position) - start) / read * width
        if end > begin:
            marks.append(Mark("settled", round(begin, 2), round(max(end - begin, LEAST_WIDTH), 2)))
    if unread:
        marks.append(Mark("unread", width, WIDTH - width))
    return marks


def marks_text(partition: Mapping[str, Any]) -> str:
    """Return the marks in words, for people who do not see the bar."""
    committed = partition["committed"]
    settled = ", ".join(f"{first} to {after - 1}" for first, after in partition["settled_above"])
    log_end = partition["log_end"]
    return (
        f"{partition['topic']}-{partition['partition']}: "
        f"committed {'nothing' if committed is None else committed}, "
        f"settled above it {settled or 'nothing'}, "
        f"read {partition['position']}, end {'unknown' if log_end is None else log_end}"
    )


def _start(partition: Mapping[str, Any]) -> int:
    """Return where the bar begins: the committed position, or what was settled first."""
    committed = partition["committed"]
    begins = [partition["position"]]
    if committed is not None:
        begins.append(committed)
    elif partition["settled_above"]:
        begins.append(partition["settled_above"][0][0])
    return int(min(begins))
