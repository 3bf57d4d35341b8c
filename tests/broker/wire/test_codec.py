"""Messages are written and read in each of their versions, and damaged ones are refused."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reactive_kafka.broker.wire.codec import decode, decode_first, default_of, encode
from reactive_kafka.broker.wire.definitions import (
    CONSUMER_GROUP_HEARTBEAT,
    DESCRIBE_TOPIC_PARTITIONS,
    FETCH,
    HEARTBEAT,
    LIST_GROUPS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    REQUEST_HEADER,
)
from reactive_kafka.broker.wire.errors import MessageDecodeError, MessageEncodeError
from reactive_kafka.broker.wire.lengths import read_varint, write_varint
from reactive_kafka.broker.wire.schema import WireField, WireMessage, versions_of
from tests.broker.wire.drawn_values import MESSAGES, values_of, versions

EACH_MESSAGE = pytest.mark.parametrize("name", MESSAGES)
FLEXIBLE = [
    name
    for name, message in MESSAGES.items()
    if versions_of(message.flexible).first <= versions_of(message.versions).last
    and message.flexible != "none"
]
NUMBERS = ("int8", "int16", "uint16", "int32", "uint32", "int64", "float64")


def message_of(*fields: WireField, flexible: str = "1+") -> WireMessage:
    return WireMessage("Example", versions="0-3", flexible=flexible, fields=fields)


# -- round trips


@EACH_MESSAGE
@settings(max_examples=12)
@given(data=st.data())
def test_what_is_written_is_read_again(name: str, data: st.DataObject) -> None:
    message = MESSAGES[name]
    version = data.draw(versions(message))
    values = data.draw(values_of(message.fields, version))
    content = encode(message, version, values)
    assert decode(message, version, content) == values
    assert encode(message, version, decode(message, version, bytearray(content))) == content


@EACH_MESSAGE
@settings(max_examples=5)
@given(data=st.data())
def test_what_is_left_out_has_its_default(name: str, data: st.DataObject) -> None:
    message = MESSAGES[name]
    version = data.draw(versions(message))
    values = data.draw(values_of(message.fields, version))
    kept = data.draw(st.sets(st.sampled_from(sorted(values)))) if values else set()
    # Records have no default that a version without null has.
    kept |= {field.name for field in message.fields if field.type == "records"}
    given_values = {field: value for field, value in values.items() if field in kept}
    expected = {field.name: default_of(field) for field in message.fields} | given_values
    assert decode(message, version, encode(message, version, given_values)) == expected


@pytest.mark.parametrize("type_name", NUMBERS)
def test_both_ends_of_a_number_fit_and_what_is_beyond_does_not(type_name: str) -> None:
    message = message_of(
        WireField("size", type_name, "0+"), WireField("sizes", f"[]{type_name}", "0+")
    )
    bits = int(type_name.lstrip("uintfloa"))
    ends = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    if type_name.startswith("u"):
        ends = (0, 2**bits - 1)
    if type_name == "float64":
        ends = (-1.7e308, 1.7e308)  # type: ignore[assignment]
    for end in ends:
        values = {"size": end, "sizes": [end, end]}
        for version in (0, 1):
            assert decode(message, version, encode(message, version, values)) == values
    if type_name != "float64":
        for beyond in (ends[0] - 1, ends[1] + 1):
            with pytest.raises(MessageEncodeError, match="Example v0, size"):
                encode(message, 0, {"size": beyond})
            with pytest.raises(MessageEncodeError, match="Example v0, sizes"):
                encode(message, 0, {"sizes": [beyond]})


@given(st.integers(0, 2**32 - 1))
def test_a_length_of_any_size_is_read_again(number: int) -> None:
    out = bytearray(b"x")
    write_varint(number, out)
    assert read_varint(out, 1) == (number, len(out))


def test_records_are_a_view_of_the_buffer_and_not_a_copy() -> None:
    partition = {"records": b"r" * 1000}
    content = encode(FETCH.response, 12, {"responses": [{"partitions": [partition]}]})
    buffer = bytearray(content)
    (topic,) = decode(FETCH.response, 12, buffer)["responses"]
    (read,) = topic["partitions"]
    buffer[content.index(b"rrr")] = ord("R")
    assert bytes(read["records"][:3]) == b"Rrr"


# -- versions


def test_a_message_in_a_version_that_it_does_not_have_is_refused() -> None:
    with pytest.raises(
        MessageEncodeError, match="OffsetCommitRequest has no version 99; it has 2-"
    ):
        encode(OFFSET_COMMIT.request, 99, {})


def test_a_field_that_the_version_does_not_have_is_refused_unless_it_has_its_default() -> None:
    with_name = {"group_id": "g", "group_instance_id": "i-1"}
    with pytest.raises(
        MessageEncodeError,
        match="HeartbeatRequest v2 has no group_instance_id, so 'i-1' cannot be sent; versions 3",
    ):
        encode(HEARTBEAT.request, 2, with_name)
    nameless = {"group_id": "g", "group_instance_id": None}
    assert encode(HEARTBEAT.request, 2, nameless) == encode(HEARTBEAT.request, 2, {"group_id": "g"})
    assert (
        decode(HEARTBEAT.request, 3, encode(HEARTBEAT.request, 3, with_name))["group_instance_id"]
        == "i-1"
    )


def test_an_array_and_a_struct_that_the_version_does_not_have_are_refused_too() -> None:
    with pytest.raises(MessageEncodeError, match="ListGroupsRequest v4 has no types_filter"):
        encode(LIST_GROUPS.request, 4, {"types_filter": ["share"]})
    assert encode(LIST_GROUPS.request, 4, {"types_filter": []}) == b"\x01\x00"
    state = {"replica_state": {"replica_id": 1}}
    with pytest.raises(MessageEncodeError, match="FetchRequest v12 has no replica_state"):
        encode(FETCH.request, 12, state)
    state["replica_state"]["replica_id"] = -1
    assert encode(FETCH.request, 12, state) == encode(FETCH.request, 12, {})


def test_an_ignorable_field_is_dropped_by_versions_without_it() -> None:
    topics = [{"name": "orders", "topic_id": b"t" * 16, "partitions": []}]
    content = encode(OFFSET_COMMIT.request, 10, {"topics": topics})
    assert b"orders" not in content
    assert b"t" * 16 in content
    assert decode(OFFSET_COMMIT.request, 10, content)["topics"][0]["name"] == ""


# -- values that do not fit


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"group": "g"}, "OffsetCommitRequest v8 has no field group; it has group_id, gen"),
        ({"group_id": None}, "OffsetCommitRequest v8, group_id: None is not allowed"),
        ({"group_id": b"g"}, "group_id: b'g' is no str"),
        ({"group_id": "\ud800"}, "group_id: .*surrogate"),
        ({"group_id": "g" * 32_768}, "group_id: a string of 32768 bytes"),
        ({"topics": None}, "topics: None is not allowed"),
        ({"topics": "orders"}, "topics: 'orders' is no list"),
        ({"topics": {}}, "topics: {} is no list"),
        ({"topics": ["orders"]}, "topics: 'orders' is not a mapping"),
        ({"generation_id_or_member_epoch": 1.5}, "member_epoch: 1.5 is no int32"),
        ({"generation_id_or_member_epoch": None}, "member_epoch: None is no int32"),
        (
            {"topics": [{"partitions": [{"offset": 1}]}]},
            "OffsetCommitRequest v8, topics, partitions has no field offset; it has part",
        ),
        (
            {"topics": [{"partitions": [{"partition_index": "1"}]}]},
            "OffsetCommitRequest v8, topics, partitions, partition_index: '1' is no int32",
        ),
    ],
)
def test_a_value_of_another_type_is_refused_with_its_field(
    values: dict[str, Any], error: str
) -> None:
    with pytest.raises(MessageEncodeError, match=error):
        encode(OFFSET_COMMIT.request, 8, values)


def test_what_python_would_change_silently_is_refused() -> None:
    with pytest.raises(MessageEncodeError, match="require_stable: 'no' is no bool"):
        encode(OFFSET_FETCH.request, 7, {"require_stable": "no"})
    for topic_id in (b"short", bytes(17), "AAAAAAAAAAAAAAAAAAAAAQ"):
        with pytest.raises(MessageEncodeError, match=r"topic_id: .* is no UUID of 16 bytes"):
            encode(METADATA.request, 12, {"topics": [{"topic_id": topic_id}]})
    many = message_of(WireField("ids", "[]uuid", "0+"), WireField("flags", "[]bool", "0+"))
    with pytest.raises(MessageEncodeError, match="ids: b'short' is no UUID"):
        encode(many, 0, {"ids": [b"short"]})
    with pytest.raises(MessageEncodeError, match="flags: 1 is no bool"):
        encode(many, 0, {"flags": [1]})


def test_the_longest_string_fits() -> None:
    text = "é" * 16_383 + "e"
    for version in (3, 4):
        content = encode(HEARTBEAT.request, version, {"group_id": text})
        assert decode(HEARTBEAT.request, version, content)["group_id"] == text


# -- nullable structs and tagged fields


def test_a_nullable_struct_is_none_or_there() -> None:
    assignment = {"topic_partitions": [{"topic_id": b"t" * 16, "partitions": [1, 2]}]}
    for value in (None, assignment, {"topic_partitions": []}):
        content = encode(CONSUMER_GROUP_HEARTBEAT.response, 0, {"assignment": value})
        read = decode(CONSUMER_GROUP_HEARTBEAT.response, 0, content)
        assert read["assignment"] == value
    cursor = encode(DESCRIBE_TOPIC_PARTITIONS.request, 0, {"cursor": {"topic_name": "t"}})
    assert cursor.endswith(b"\x01\x02t\x00\x00\x00\x00\x00\x00")


def test_a_tagged_field_with_its_default_is_not_sent() -> None:
    plain = encode(FETCH.request, 15, {})
    same = {"cluster_id": None, "replica_state": {"replica_id": -1, "replica_epoch": -1}}
    assert encode(FETCH.request, 15, same) == plain
    tagged = encode(FETCH.request, 15, {"cluster_id": "c", "replica_state": {"replica_id": 7}})
    assert tagged == plain[:-1] + bytes.fromhex(
        # Two tags: the first of two bytes, and the second of thirteen.
        "0200020263010d00000007ffffffffffffffff00"
    )


@pytest.mark.parametrize("name", FLEXIBLE)
def test_an_unknown_tagged_field_is_skipped(name: str) -> None:
    message = MESSAGES[name]
    version = versions_of(message.versions).last
    values = {field.name: b"" for field in message.fields if field.type == "records"}
    content = encode(message, version, values)
    assert content[-1] == 0, "no tags"
    newer = content[:-1] + b"\x01" + b"\x64\x03abc"
    assert decode(message, version, newer) == decode(message, version, content)


def test_a_tagged_field_of_another_size_than_its_value_is_refused() -> None:
    plain = encode(FETCH.request, 12, {})
    with pytest.raises(
        MessageDecodeError, match="cluster_id: the tag has 3 bytes, and its value 2"
    ):
        decode(FETCH.request, 12, plain[:-1] + b"\x01\x00\x03\x02cc")
    with pytest.raises(MessageDecodeError, match="cluster_id: the 1 bytes end before"):
        decode(FETCH.request, 12, plain[:-1] + b"\x01\x00\x01\x02")


def test_a_field_may_keep_the_old_form_in_a_flexible_version() -> None:
    header = {"request_api_key": 3, "request_api_version": 9, "client_id": "me"}
    assert encode(REQUEST_HEADER, 2, header) == bytes.fromhex("0003 0009 00000000 0002 6d65 00")


# -- damaged bytes


@EACH_MESSAGE
@settings(max_examples=6)
@given(data=st.data())
def test_a_message_that_is_cut_off_is_refused(name: str, data: st.DataObject) -> None:
    message = MESSAGES[name]
    version = data.draw(versions(message))
    content = encode(message, version, data.draw(values_of(message.fields, version)))
    if content:
        cut = content[: data.draw(st.integers(0, len(content) - 1))]
        with pytest.raises(MessageDecodeError, match=f"{message.name} v{version}, "):
            decode(message, version, cut)


@EACH_MESSAGE
@settings(max_examples=6)
@given(data=st.data())
def test_any_other_bytes_are_read_or_refused(name: str, data: st.DataObject) -> None:
    message = MESSAGES[name]
    version = data.draw(versions(message))
    content = bytearray(encode(message, version, data.draw(values_of(message.fields, version))))
    for _ in range(data.draw(st.integers(1, 3))):
        if content:
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        values, end = decode_first(message, version, content)
    except MessageDecodeError:
        return
    assert 0 <= end <= len(content)
    encode(message, version, values)


def test_bytes_after_the_end_are_refused() -> None:
    content = encode(HEARTBEAT.request, 4, {"group_id": "g"})
    with pytest.raises(
        MessageDecodeError, match="HeartbeatRequest v4: 2 bytes follow after its end"
    ):
        decode(HEARTBEAT.request, 4, content + b"ab")
    values, end = decode_first(HEARTBEAT.request, 4, b"head" + content + b"ab", 4)
    assert (values["group_id"], end) == ("g", 4 + len(content))


@pytest.mark.parametrize(
    "type_name", ["string", "bytes", "records", "[]int64", "[]string", "[]uuid"]
)
@pytest.mark.parametrize("version", [0, 1])
def test_a_false_length_allocates_nothing(type_name: str, version: int) -> None:
    message = message_of(WireField("field", type_name, "0+"))
    length = b"\xff\xff\xff\xff\x0f" if version else b"\x7f\xff\xff\xff"
    tracemalloc.start()
    try:
        with pytest.raises(MessageDecodeError, match=f"Example v{version}, field"):
            decode(message, version, length + bytes(100))
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"\x02\xff", "codec can't decode byte"),
        (b"\xff\xff\xff\xff\x7f", "a length of more than 32 bits"),
        (b"\xff\xff\xff\xff\xff\x01", "a length of more than 32 bits"),
        (b"\xff\xff", "the 2 bytes end before it does"),
    ],
)
def test_what_is_no_string_is_refused(content: bytes, error: str) -> None:
    with pytest.raises(MessageDecodeError, match=f"Example v1, name: .*{error}"):
        decode(message_of(WireField("name", "string", "0+")), 1, content)


@pytest.mark.parametrize(("type_name", "empty"), [("string", ""), ("bytes", b"")])
@pytest.mark.parametrize("version", [0, 1])
def test_none_where_it_is_not_allowed_is_read_as_empty(
    type_name: str, empty: object, version: int
) -> None:
    """The embedded broker answers a refused JoinGroup and SyncGroup so."""
    message = message_of(WireField("field", type_name, "0+"))
    none = (
        b"\x00\x00" if version else (b"\xff\xff" if type_name == "string" else b"\xff\xff\xff\xff")
    )
    assert decode(message, version, none) == {"field": empty}


def test_a_negative_length_is_refused() -> None:
    with pytest.raises(MessageDecodeError, match="Example v0, name: a length of -2"):
        decode(message_of(WireField("name", "string", "0+", nullable="0+")), 0, b"\xff\xfe")
