"""Messages that aiokafka has, too, have the same bytes there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from io import BytesIO
from types import ModuleType
from typing import Any

import pytest
from aiokafka.protocol.api import RequestHeader_v1, RequestHeader_v2, RequestStruct
from aiokafka.protocol.types import Array, Schema
from hypothesis import given, settings
from hypothesis import strategies as st

from reactive_kafka.broker.wire.codec import decode, default_of, encode
from reactive_kafka.broker.wire.definitions import HEARTBEAT
from reactive_kafka.broker.wire.requests import PreparedRequest
from reactive_kafka.broker.wire.schema import Api, WireField, WireMessage, versions_of
from tests.broker.wire.drawn_values import APIS, values_of

MODULES: list[ModuleType] = [
    import_module(f"aiokafka.protocol.{name}")
    for name in ("admin", "commit", "coordination", "fetch", "group", "metadata", "offset")
]
BY_KEY = {api.key: api for api in APIS.values()}
TAGS = "TaggedFields"
OTHERS = {
    "OffsetRequest_v4": "has a leader epoch of 64 bits",
    "OffsetRequest_v5": "has a leader epoch of 64 bits",
    "DescribeGroupsRequest_v3": "has the response of version 2",
    "CreatePartitionsRequest_v0": "nests its fields in another way",
    "CreatePartitionsRequest_v1": "nests its fields in another way",
}
"""Requests of aiokafka that cannot be compared. Java has the same bytes as we have for them."""


def theirs() -> Iterator[tuple[Api, Any]]:
    """Each request of aiokafka that our definitions have in the same version."""
    for module in MODULES:
        for kind in vars(module).values():
            is_request = isinstance(kind, type) and issubclass(kind, RequestStruct)
            if not is_request or kind is RequestStruct or kind.__name__ in OTHERS:
                continue
            api = BY_KEY.get(kind.API_KEY)
            if api is not None and kind.API_VERSION in versions_of(api.request.versions):
                yield api, kind


BOTH = list(theirs())


def as_tuple(schema: Schema, fields: Sequence[WireField], version: int, values: Any) -> list[Any]:
    """Return values in the order of aiokafka's schema, whose names are others."""
    present = iter(
        field
        for field in fields
        if version in versions_of(field.versions) and version not in versions_of(field.tagged)
    )
    row = []
    for theirs in schema.fields:
        if getattr(theirs, "__name__", "") == TAGS:
            row.append({})
            continue
        field = next(present)
        value = values[field.name]
        if isinstance(theirs, Array) and isinstance(theirs.array_of, Schema):
            value = [as_tuple(theirs.array_of, field.fields, version, each) for each in value or ()]
        elif field.fields:
            # An array of structs with one field each is an array of values there.
            (only,) = [one for one in field.fields if version in versions_of(one.versions)]
            value = [each[only.name] for each in value]
        row.append(value)
    assert next(present, None) is None, "aiokafka lacks a field"
    return row


def without_tagged(fields: Sequence[WireField], version: int, values: Any) -> Any:
    """Return the values without those of tagged fields, and with no array that is None.

    aiokafka has neither.
    """
    if values is None:
        return []
    if isinstance(values, list):
        return [without_tagged(fields, version, each) for each in values]
    changed = dict(values)
    for field in fields:
        if version in versions_of(field.tagged):
            changed[field.name] = default_of(field)
        elif field.fields:
            changed[field.name] = without_tagged(field.fields, version, values[field.name])
    return changed


@pytest.mark.parametrize(("api", "kind"), BOTH, ids=[f"{kind.__name__}" for _, kind in BOTH])
@settings(max_examples=5)
@given(data=st.data())
def test_aiokafka_writes_the_same_bytes(api: Api, kind: Any, data: st.DataObject) -> None:
    version = kind.API_VERSION
    pairs: list[tuple[WireMessage, Any]] = [
        (api.request, kind),
        (api.response, kind.RESPONSE_TYPE),
    ]
    for message, their_kind in pairs:
        values = data.draw(values_of(message.fields, version))
        values = without_tagged(message.fields, version, values)
        content = encode(message, version, values)
        row = as_tuple(their_kind.SCHEMA, message.fields, version, values)
        assert their_kind(*row).encode() == content
        assert their_kind.decode(BytesIO(content)).encode() == content
        assert decode(message, version, content) == values


def test_the_requests_of_aiokafka_are_found() -> None:
    assert len(BOTH) > 20


@pytest.mark.parametrize("client_id", ["", "bob", "ä" * 100])
def test_the_headers_of_requests_are_those_of_aiokafka(client_id: str) -> None:
    old = PreparedRequest(HEARTBEAT, 3, {})
    new = PreparedRequest(HEARTBEAT, 4, {})
    for request, theirs in ((old, RequestHeader_v1), (new, RequestHeader_v2)):
        header = theirs(request, correlation_id=2**31 - 1, client_id=client_id)
        ours = request.build_request_header(correlation_id=2**31 - 1, client_id=client_id)
        assert ours.encode() == header.encode()
