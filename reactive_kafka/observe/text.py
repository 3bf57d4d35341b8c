"""Text from anywhere, made safe to show on one line of a log, a page or a JSON answer. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from reactive_kafka.errors import escaped


def one_line(text: str, limit: int = 1000) -> str:
    r"""*text* on one line of at most *limit* characters, whatever it holds.

    Line breaks, control and colour sequences, invisible and bidirectional marks and lone surrogates
    become escapes such as ``\n`` and ``\u2028``: one event stays one line, and no text can forge
    another line.
    """
    # A record may be long: skip what is cut off anyway.
    head = escaped(text[: limit + 1])
    return head if len(head) <= limit else f"{head[: limit - 3]}..."


def first_of(items: Sequence[object], most: int) -> str:
    """``a, b and 3 more``: the first *most* of them, and how many there are besides."""
    more = len(items) - most
    return ", ".join(map(str, items[:most])) + (f" and {more} more" if more > 0 else "")
