"""Makes any text safe for one line of a log, a page or a JSON answer. Pure."""

from __future__ import annotations

from reactive_kafka.errors import escaped


def one_line(text: str, limit: int = 1000) -> str:
    r"""Return *text* on one line of at most *limit* characters, with escapes.

    Line breaks, control and colour sequences, invisible and bidirectional marks and lone surrogates
    become escapes such as ``\n`` and ``\u2028``. So an event stays one line, and no text can forge
    another line.
    """
    # A text may be as long as a record, so escape only the characters that can be kept.
    head = escaped(text[: limit + 1])
    return head if len(head) <= limit else f"{head[: limit - 3]}..."
