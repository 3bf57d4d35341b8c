"""Text from anywhere, made safe to show on one line of a log, a page or a JSON answer. Pure."""

from __future__ import annotations

"".encode("unicode_escape")  # loads the codec: when the interpreter goes down it cannot be any more


def one_line(text: str, limit: int = 1000) -> str:
    r"""*text* on one line of at most *limit* characters, whatever it holds.

    Line breaks, control and colour sequences, invisible and bidirectional marks and lone surrogates become
    escapes such as ``\n`` and ``\u2028``: one event stays one line, and nothing can pass for another line.
    """
    head = text[: limit + 1]  # a record's bytes may be long: what is cut off anyway is not looked at
    if not head.isprintable():
        head = "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in head)
    return head if len(head) <= limit else f"{head[: limit - 3]}..."
