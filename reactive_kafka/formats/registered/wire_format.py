"""How a record names the schema that it was written with. Pure.

The name is written before the data, or in a header. It is a zero and the schema's id in four bytes,
or a one and the schema's GUID.

Source: Confluent's wire format.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from reactive_kafka.errors import DecodeError
from reactive_kafka.formats.registered.schema_questions import ByGuid, ById

HEAD = 5
"""Bytes of a prefix with an id."""
GUID_HEAD = 17
"""Bytes of a prefix with a GUID."""
VALUE_HEADER = "__value_schema_id"
"""The header that may name the schema of a record's value."""
KEY_HEADER = "__key_schema_id"
"""The header that may name the schema of a record's key."""


def possible_prefix(value: bytes) -> bytes:
    """Return the first bytes of *value*: its prefix, if it has one.

    :func:`schema_named_by` finds out whether they are one.
    """
    return value[: GUID_HEAD if value[:1] == b"\1" else HEAD]


def schema_named_by(prefix: bytes) -> ById | ByGuid:
    """Return the question for the schema that a prefix names.

    Raises:
        DecodeError: The prefix names none.
    """
    if len(prefix) == HEAD and not prefix[0]:
        return ById(int.from_bytes(prefix[1:], "big"))
    if len(prefix) == GUID_HEAD and prefix[0] == 1:
        return ByGuid(str(UUID(bytes=prefix[1:])))
    raise DecodeError("it names no schema: a zero and four bytes of an id are to come first")


def framed(
    data: bytes | None, headers: Sequence[tuple[str, bytes | None]], named_in: str = VALUE_HEADER
) -> bytes | None:
    """Return a value or key with the prefix before it that the header *named_in* may hold.

    Raises:
        DecodeError: The header names no schema. If it were put before the data, the first bytes of
            the data would be taken for a part of the name.
    """
    for name, content in headers:
        if name == named_in and content is not None and data is not None:
            schema_named_by(possible_prefix(content))
            return content + data
    return data


def prefix_of(id: int) -> bytes:
    """Return the prefix of records whose schema has this id."""
    return b"\0" + id.to_bytes(4, "big")
