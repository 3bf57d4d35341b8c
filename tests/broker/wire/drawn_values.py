"""Draws values of any message, for property tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

from reactive_kafka.broker.wire import definitions
from reactive_kafka.broker.wire.codec import default_of
from reactive_kafka.broker.wire.schema import Api, WireField, WireMessage, versions_of

Draw = st.DrawFn

APIS: Mapping[str, Api] = {
    name: value for name, value in vars(definitions).items() if isinstance(value, Api)
}
MESSAGES: Mapping[str, WireMessage] = {
    message.name: message
    for value in vars(definitions).values()
    for message in (
        (value.request, value.response)
        if isinstance(value, Api)
        else (value,)
        if isinstance(value, WireMessage)
        else ()
    )
}

# A surrogate has no UTF-8.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
PLAIN: Mapping[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "uint16": st.integers(0, 2**16 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "uint32": st.integers(0, 2**32 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float64": st.floats(allow_nan=False),
    "uuid": st.binary(min_size=16, max_size=16),
    "string": TEXTS,
    "bytes": st.binary(max_size=8),
    "records": st.binary(max_size=8),
}


def versions(message: WireMessage) -> st.SearchStrategy[int]:
    return st.sampled_from(list(versions_of(message.versions)))


@st.composite
def values_of(draw: Draw, fields: Sequence[WireField], version: int) -> dict[str, Any]:
    """Draw a value of each field that the version has. The others have their default."""
    return {
        field.name: draw(_value(field, version))
        if version in versions_of(field.versions)
        else default_of(field)
        for field in fields
    }


def _value(field: WireField, version: int) -> st.SearchStrategy[Any]:
    name = field.type.removeprefix("[]")
    plain = values_of(field.fields, version) if field.fields else PLAIN[name]
    value = st.lists(plain, max_size=3) if field.type.startswith("[]") else plain
    return st.none() | value if version in versions_of(field.nullable) else value
