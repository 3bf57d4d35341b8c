"""What Kafka accepts as a topic's name, and as the fields of a record. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

TOPIC_RULE = "letters, digits, dot, underscore and hyphen, at most 249"
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
# How many characters of a value an error shows.
_LONGEST_SHOWN = 80
_BATCH_BYTES = 61
# The fields of a record besides its contents, at most.
_RECORD_BYTES = 36
# The two lengths of a header, at most.
_HEADER_BYTES = 10


def is_topic(name: object) -> bool:
    """True if a topic can have this name. Source: Kafka's ``Topic.validate``."""
    return isinstance(name, str) and _TOPIC.fullmatch(name) is not None and name not in (".", "..")


def topic_problem(topic: object) -> str | None:
    """Return what is wrong with a topic's name, or None."""
    if is_topic(topic):
        return None
    return f"topic = {shown(topic)}: no topic can be called so; allowed are {TOPIC_RULE}"


def record_problem(
    topic: object,
    value: object,
    key: object,
    headers: object,
    partition: object,
    timestamp_ms: object,
) -> str | None:
    """Return why a record can never be written, with field and value, or None."""
    return topic_problem(topic) or fields_problem(value, key, headers, partition, timestamp_ms)


def fields_problem(
    value: object, key: object, headers: object, partition: object, timestamp_ms: object
) -> str | None:
    """Return why the fields of a record can never be written, or None. The topic is not checked."""
    return (
        _bytes_problem("value", value)
        or _bytes_problem("key", key)
        or headers_problem(headers)
        or _number_problem("partition", partition, least=0, bits=32)
        or _number_problem("timestamp_ms", timestamp_ms, least=-(2**63), bits=64)
    )


def _bytes_problem(field: str, value: object) -> str | None:
    if value is None or isinstance(value, bytes):
        return None
    return f"{field} = {shown(value)}: expected bytes or None"


def batch_bytes(
    value: bytes | None, key: bytes | None, headers: Sequence[tuple[str, bytes | None]]
) -> int:
    """Return how many bytes a batch with this one record has, uncompressed; a few too many.

    Source: the format of record batches, version 2.
    """
    size = _BATCH_BYTES + _RECORD_BYTES + len(value or b"") + len(key or b"")
    for name, content in headers:
        size += _HEADER_BYTES + len(name.encode("utf-8", "surrogateescape")) + len(content or b"")
    return size


def headers_problem(headers: object) -> str | None:
    """Return why headers can never be written, or None."""
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
    """Return what to write instead of a header value that is a str."""
    if isinstance(header, tuple | list) and len(header) == 2 and isinstance(header[1], str):
        return ": encode the text, text.encode()"
    return ""


def _is_text(name: str) -> bool:
    """True if the name can be encoded.

    A name that was not UTF-8 when it was read has lone surrogates, and is written as it was read.
    """
    try:
        name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def _number_problem(field: str, value: object, *, least: int, bits: int) -> str | None:
    if value is None or (isinstance(value, int) and least <= value < 2 ** (bits - 1)):
        return None
    limit = f" of {least} or more" if least >= 0 else ""
    return f"{field} = {shown(value)}: expected None or an integer{limit}"


def shown(value: object) -> str:
    """Return the repr of any value, shortened. It may be user code, whose repr may raise."""
    try:
        text = repr(value)
    except BaseException:
        # As in errors.text_of: reporting one mistake must not cause another.
        text = f"<{type(value).__name__}>"
    return text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN - 3]}..."
