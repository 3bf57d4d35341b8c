"""What Kafka takes: how a topic may be called, and what the fields of a record to be written must
be. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

TOPIC_RULE = "letters, digits, dot, underscore and hyphen, at most 249"
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
# Characters of a value in a problem's text.
_LONGEST_SHOWN = 80


def is_topic(name: object) -> bool:
    """Whether a topic may be called so. Source: Kafka's ``Topic.validate``."""
    return isinstance(name, str) and _TOPIC.fullmatch(name) is not None and name not in (".", "..")


def topic_problem(topic: object) -> str | None:
    """What is wrong with a topic's name, in words that go after ``because``; None: nothing."""
    return (
        None
        if is_topic(topic)
        else f"topic = {shown(topic)}: no topic can be called so; allowed are {TOPIC_RULE}"
    )


def record_problem(
    topic: object,
    value: object,
    key: object,
    headers: object,
    partition: object,
    timestamp_ms: object,
) -> str | None:
    """What keeps a record from ever being written, by field and value; None: it can be."""
    return topic_problem(topic) or fields_problem(value, key, headers, partition, timestamp_ms)


def fields_problem(
    value: object, key: object, headers: object, partition: object, timestamp_ms: object
) -> str | None:
    """The same, of all but the topic."""
    return (
        _bytes_problem("value", value)
        or _bytes_problem("key", key)
        or headers_problem(headers)
        or _number_problem("partition", partition, least=0, bits=32)
        or _number_problem("timestamp_ms", timestamp_ms, least=-(2**63), bits=64)
    )


def _bytes_problem(field: str, value: object) -> str | None:
    return (
        None
        if value is None or isinstance(value, bytes)
        else f"{field} = {shown(value)}: expected bytes or None"
    )


def headers_problem(headers: object) -> str | None:
    """What keeps headers from being written; None: nothing."""
    if not isinstance(headers, Sequence) or isinstance(headers, str | bytes):
        return f"headers = {shown(headers)}: expected a sequence of pairs of str and bytes"
    for header in headers:
        if not _is_header(header):
            return f"headers: {shown(header)} is no pair of a str and bytes or None{_hint(header)}"
    return None


def _is_header(header: object) -> bool:
    if not isinstance(header, tuple | list) or len(header) != 2:
        return False
    name, value = header
    return isinstance(name, str) and (value is None or isinstance(value, bytes)) and _is_text(name)


def _hint(header: object) -> str:
    """What to write for a value that is a text."""
    if isinstance(header, tuple | list) and len(header) == 2 and isinstance(header[1], str):
        return ": encode the text, text.encode()"
    return ""


def _is_text(name: str) -> bool:
    """Whether it has a form in bytes: UTF-8, or, where it was read from a record and is none, the
    bytes that it had.
    """
    try:
        name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def _number_problem(field: str, value: object, *, least: int, bits: int) -> str | None:
    if value is None or (isinstance(value, int) and least <= value < 2 ** (bits - 1)):
        return None
    return f"{field} = {shown(value)}: expected None or an integer" + (
        f" of {least} or more" if least >= 0 else ""
    )


def shown(value: object) -> str:
    """Its repr, cut; the value may be anybody's, and even its repr may raise."""
    try:
        text = repr(value)
    except BaseException:
        # As in errors.text_of: telling of one mistake must not be another.
        text = f"<{type(value).__name__}>"
    return text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN - 3]}..."
