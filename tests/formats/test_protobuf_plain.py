"""Protobuf messages as dicts, and back: what Python has no type for is kept."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from functools import cache
from typing import Any
from uuid import UUID

import pandas
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from pydantic import BaseModel
from pydantic_core import to_json

from reactive_kafka.errors import EncodeError
from reactive_kafka.formats import ChannelSchemas, SchemaSource, decoder_for, encoder_for
from reactive_kafka.formats.registered.proto_files import class_of, compiled_text, file_of
from reactive_kafka.formats.registered.proto_plain import fill, to_plain
from reactive_kafka.formats.registered.schema_questions import ById, LatestOf, Schema, SchemaWithId

PROTO = """syntax = "proto3";
package shop;
import "google/protobuf/any.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/field_mask.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
message Odd {
  google.protobuf.Timestamp at = 1;
  google.protobuf.Duration took = 2;
  google.protobuf.Any what = 3;
  google.protobuf.Value value = 4;
  repeated google.protobuf.Value values = 5;
  map<string, google.protobuf.Value> by_name = 6;
  oneof choice { google.protobuf.Value chosen = 7; string text = 8; google.protobuf.Value other = 9; }
  google.protobuf.FieldMask mask = 10;
  google.protobuf.Struct fields = 11;
  repeated google.protobuf.Timestamp ats = 12;
  repeated google.protobuf.Any whats = 13;
  optional google.protobuf.Value maybe = 14;
  map<string, google.protobuf.Timestamp> at_by_name = 15;
  Odd inner = 16;
}
message Named { string value = 1; google.protobuf.Any inner = 2; }
message Numbers {
  float single = 1;
  double whole = 2;
  google.protobuf.FloatValue wrapped_single = 3;
  google.protobuf.DoubleValue wrapped_double = 4;
  google.protobuf.BoolValue wrapped_bool = 5;
  google.protobuf.StringValue wrapped_text = 6;
  repeated float singles = 7;
  string text = 8;
  google.protobuf.Struct fields = 9;
  map<string, int32> by_name = 10;
  map<bool, int32> by_answer = 11;
}
"""
UNKNOWN = "type.googleapis.com/acme.Unknown"


@cache
def schema() -> Schema:
    return Schema("PROTOBUF", compiled_text(Schema("PROTOBUF", PROTO)))


@cache
def kind(name: str = "Odd") -> Any:
    return class_of(file_of(schema()).message_types_by_name[name])


def odd(change: Callable[[Any], object]) -> Any:
    made = kind()()
    change(made)
    return made


def with_known_any(message: Any) -> None:
    file = message.DESCRIPTOR.file
    named = class_of(file.message_types_by_name["Named"])(value="x")
    message.what.type_url = "type.googleapis.com/shop.Named"
    message.what.value = named.SerializeToString()


def with_unknown_inside_known(message: Any) -> None:
    named = class_of(message.DESCRIPTOR.file.message_types_by_name["Named"])()
    named.inner.type_url, named.inner.value = UNKNOWN, b"\1\2"
    message.what.type_url, message.what.value = (
        "type.googleapis.com/shop.Named",
        named.SerializeToString(),
    )


def with_timestamp_inside(message: Any) -> None:
    message.what.type_url = "type.googleapis.com/google.protobuf.Timestamp"
    message.what.value = Timestamp(seconds=5, nanos=7).SerializeToString()


CASES: dict[str, tuple[Callable[[Any], object], dict[str, Any]]] = {
    "any of an unknown type": (
        lambda one: one.what.MergeFrom(type(one.what)(type_url=UNKNOWN, value=b"\x08\xff\1")),
        {"what": {"@type": UNKNOWN, "value": b"\x08\xff\1"}},
    ),
    "any of an unknown type in a list": (
        lambda one: one.whats.add(type_url=UNKNOWN),
        {"whats": [{"@type": UNKNOWN, "value": b""}]},
    ),
    "any without a type": (
        lambda one: one.what.MergeFrom(type(one.what)(value=b"\1")),
        {"what": {"@type": "", "value": b"\1"}},
    ),
    "any without anything": (lambda one: one.what.SetInParent(), {"what": {}}),
    "any whose bytes are none of its type": (
        lambda one: one.what.MergeFrom(type(one.what)(type_url="x/shop.Named", value=b"\xff")),
        {"what": {"@type": "x/shop.Named", "value": b"\xff"}},
    ),
    "any of a type of the schema": (
        with_known_any,
        {"what": {"@type": "type.googleapis.com/shop.Named", "value": "x"}},
    ),
    "any of a type that has an unknown one inside": (
        with_unknown_inside_known,
        {
            "what": {
                "@type": "type.googleapis.com/shop.Named",
                "value": b"\x12&\n " + UNKNOWN.encode() + b"\x12\2\1\2",
            }
        },
    ),
    "any of a time": (
        with_timestamp_inside,
        {
            "what": {
                "@type": "type.googleapis.com/google.protobuf.Timestamp",
                "value": "1970-01-01T00:00:05.000000007Z",
            }
        },
    ),
    "null": (lambda one: setattr(one.value, "null_value", 0), {"value": None}),
    "optional null": (lambda one: setattr(one.maybe, "null_value", 0), {"maybe": None}),
    "nulls in a list": (lambda one: setattr(one.values.add(), "null_value", 0), {"values": [None]}),
    "nulls in a map": (
        lambda one: setattr(one.by_name["a"], "null_value", 0),
        {"by_name": {"a": None}},
    ),
    "null that was chosen": (lambda one: setattr(one.chosen, "null_value", 0), {"chosen": None}),
    "something else that was chosen": (lambda one: setattr(one, "text", "x"), {"text": "x"}),
    "null in a struct": (
        lambda one: one.fields.update({"a": None, "b": [1.5, True, {"c": "d"}]}),
        {"fields": {"a": None, "b": [1.5, True, {"c": "d"}]}},
    ),
    "infinity": (
        lambda one: setattr(one.value, "number_value", float("inf")),
        {"value": float("inf")},
    ),
    "mask": (lambda one: one.mask.paths.append("a_b.c"), {"mask": "aB.c"}),
    "mask without a form in JSON": (
        lambda one: one.mask.paths.append("a_1"),
        {"mask": {"paths": ["a_1"]}},
    ),
    "nothing": (lambda one: None, {}),
}


@pytest.mark.parametrize("name", CASES)
def test_what_a_message_says_is_in_the_dict_and_comes_back_unchanged(name: str) -> None:
    change, said = CASES[name]
    message = odd(change)
    plain = to_plain(message, exact=True)
    assert {key: plain[key] for key in said} == said
    back = kind()()
    fill(back, plain)
    assert back.SerializeToString(deterministic=True) == message.SerializeToString(
        deterministic=True
    )


@pytest.mark.parametrize("seconds", [-62_135_596_800, -1, 0, 1_764_072_000, 253_402_300_799])
@pytest.mark.parametrize("nanos", [0, 1, 999, 1_000, 123_456_789, 999_999_999])
def test_nanoseconds_of_a_timestamp_come_back(seconds: int, nanos: int) -> None:
    message = kind()()
    message.at.seconds, message.at.nanos = seconds, nanos
    message.ats.add(seconds=seconds, nanos=nanos)
    plain = to_plain(message, exact=True)
    assert plain["at"] == message.at.ToDatetime(tzinfo=UTC)
    assert getattr(plain["at"], "nanosecond", 0) == nanos % 1_000
    back = kind()()
    fill(back, plain)
    assert back == message


@pytest.mark.parametrize("seconds", [-315_576_000_000, -86_401, -1, 0, 1, 315_576_000_000])
@pytest.mark.parametrize("nanos", [0, 1, 999, 1_000, 123_456_789, 999_999_999])
def test_nanoseconds_of_a_duration_come_back(seconds: int, nanos: int) -> None:
    message = kind()()
    message.took.seconds, message.took.nanos = seconds, -nanos if seconds < 0 else nanos
    plain = to_plain(message, exact=True)
    assert plain["took"] == message.took.ToTimedelta()
    back = kind()()
    fill(back, plain)
    assert back == message


def test_a_time_with_nanoseconds_is_an_ordinary_one_for_everything_else() -> None:
    message = kind()()
    message.at.seconds, message.at.nanos = 5, 1_007
    message.took.seconds, message.took.nanos = -5, -1_007
    plain = to_plain(message, exact=True)
    at, took = plain["at"], plain["took"]
    assert (at, took) == (
        datetime(1970, 1, 1, 0, 0, 5, 1, UTC),
        -timedelta(seconds=5, microseconds=1),
    )
    assert hash(at) == hash(datetime(1970, 1, 1, 0, 0, 5, 1, UTC))
    for copied in (copy.deepcopy(at), pickle.loads(pickle.dumps(at))):
        assert (copied, copied.nanosecond, type(copied)) == (at, 7, type(at))
    for copied in (copy.deepcopy(took), pickle.loads(pickle.dumps(took))):
        assert (copied, copied.nanoseconds, type(copied)) == (took, -7, type(took))
    assert type(at + timedelta(0)) is type(at - timedelta(1)) is datetime
    assert type(took + took) is type(-took) is timedelta
    assert at.replace(hour=3) == datetime(1970, 1, 1, 3, 0, 5, 1, UTC)
    assert getattr(at.replace(hour=3), "nanosecond", 0) == 0
    assert to_json({"at": at}) == b'{"at":"1970-01-01T00:00:05.000001Z"}'


def test_of_a_model_times_are_cut_to_microseconds_and_no_subclass() -> None:
    message = kind()()
    message.at.nanos, message.took.nanos = 1_007, 1_007
    plain = to_plain(message)
    assert (type(plain["at"]), type(plain["took"])) == (datetime, timedelta)
    assert (plain["at"].microsecond, plain["took"]) == (1, timedelta(microseconds=1))
    assert plain["value"] is None


TIMES: list[tuple[str, Any, int]] = [
    ("at", "1970-01-01T00:00:05.000000007Z", 5_000_000_007),
    ("at", "1970-01-01T01:00:05+01:00", 5_000_000_000),
    ("at", pandas.Timestamp(5_000_000_007, tz="UTC"), 5_000_000_007),
    ("at", {"seconds": 5, "nanos": 7}, 5_000_000_007),
    ("took", "-5.000000007s", -5_000_000_007),
    ("took", pandas.Timedelta(-5_000_000_007), -5_000_000_007),
    ("took", timedelta(microseconds=-1), -1_000),
]


@pytest.mark.parametrize(("field", "value", "nanos"), TIMES)
def test_times_may_be_written_as_text_and_by_pandas(field: str, value: Any, nanos: int) -> None:
    message = kind()()
    fill(message, {field: value})
    assert getattr(message, field).ToNanoseconds() == nanos


NAIVE = datetime(2026, 1, 1, 12, 30)
ODD_URL = "type.googleapis.com/shop.Odd"
WITHOUT_A_ZONE: list[tuple[str, dict[str, Any]]] = [
    ("at", {"at": NAIVE}),
    ("at", {"at": "2026-01-01T12:30:00"}),
    ("at", {"at": pandas.Timestamp(NAIVE)}),
    ("ats", {"ats": [NAIVE.replace(tzinfo=UTC), NAIVE]}),
    ("at_by_name", {"at_by_name": {"SECRET": NAIVE}}),
    ("inner.at", {"inner": {"at": NAIVE}}),
    (
        "what.value",
        {"what": {"@type": "type.googleapis.com/google.protobuf.Timestamp", "value": NAIVE}},
    ),
    ("what.ats", {"what": {"@type": ODD_URL, "ats": [NAIVE]}}),
    ("whats.inner.at", {"whats": [{"@type": ODD_URL, "inner": {"at": NAIVE}}]}),
]


@pytest.mark.parametrize(("field", "value"), WITHOUT_A_ZONE)
def test_a_time_without_a_zone_is_refused_wherever_it_stands(
    field: str, value: dict[str, Any]
) -> None:
    schemas = ChannelSchemas("orders")
    schemas.answered(LatestOf("orders-value"), SchemaWithId(1, schema()))
    encode = encoder_for("protobuf", SchemaSource(schemas, "orders", register=False))
    with pytest.raises(EncodeError) as refused:
        encode(value)
    assert str(refused.value) == f"dict does not fit the Protobuf message: {field} has no time zone"


UNFIT: list[tuple[dict[str, Any], str]] = [
    ({"text": 5}, "text takes no int"),
    ({"text": UUID(int=7)}, "text takes no UUID"),
    ({"inner": {"text": b"\xff"}}, "inner.text takes no bytes"),
    ({"inner": {"fields": {"a": UUID(int=7)}}}, "inner.fields does not take this dict"),
    ({"ats": NAIVE}, "ats has an item that it does not take, or is no list"),
    ({"ats": [5]}, "ats takes a message, a model or a dict, not int"),
    ({"at_by_name": 5}, "at_by_name has an item that it does not take, or is no mapping"),
    ({"inner": {"SECRET": 5}}, "inner has a key that is no field of shop.Odd"),
    ({"what": {"@type": UNKNOWN, "value": "SECRET!"}}, "what does not take this dict"),
]


@pytest.mark.parametrize(("value", "why"), UNFIT)
def test_what_does_not_fit_is_named_by_its_field_and_not_quoted(
    value: dict[str, Any], why: str
) -> None:
    schemas = ChannelSchemas("orders")
    schemas.answered(LatestOf("orders-value"), SchemaWithId(1, schema()))
    encode = encoder_for("protobuf", SchemaSource(schemas, "orders", register=False))
    with pytest.raises(EncodeError) as refused:
        encode(value)
    assert str(refused.value) == f"dict does not fit the Protobuf message: {why}"


@pytest.mark.parametrize(
    ("value", "why"),
    [
        # Protobuf would write these as other values.
        ({"single": 1e39}, "single does not take this float"),
        ({"singles": [1.0, -1e39]}, "singles has an item that it does not take, or is no list"),
        ({"single": Decimal("1e39")}, "single does not take this Decimal"),
        ({"whole": Decimal("1e400")}, "whole does not take this Decimal"),
        ({"text": b"text"}, "text takes no bytes"),
        ({"by_name": {b"a": 1}}, "by_name has an item that it does not take, or is no mapping"),
        ({"by_answer": {1: 1}}, "by_answer has an item that it does not take, or is no mapping"),
        ({"wrapped_single": 1e39}, "wrapped_single does not take this float"),
        ({"wrapped_double": 2**53 + 1}, "wrapped_double does not take this int"),
        ({"wrapped_double": True}, "wrapped_double takes no bool"),
        ({"wrapped_bool": 1}, "wrapped_bool takes no int"),
        ({"wrapped_text": b"text"}, "wrapped_text takes no bytes"),
    ],
)
def test_no_value_becomes_another_one(value: dict[str, Any], why: str) -> None:
    with pytest.raises(EncodeError) as refused:
        fill(kind("Numbers")(), value)
    assert str(refused.value) == why


def test_what_numbers_and_wrappers_can_hold_comes_back() -> None:
    value = {
        "single": -math.inf,
        "whole": 1e39,
        "wrapped_single": 1.5,
        "wrapped_double": 2**53,
        "wrapped_bool": False,
        "wrapped_text": "",
        "singles": [math.inf, 3.4028234663852886e38],
        "text": "text",
        "fields": {"a": 1.0},
        "by_name": {"a": 1},
        "by_answer": {True: 1},
    }
    message = kind("Numbers")()
    fill(message, value)
    assert to_plain(message) == value


def test_a_model_is_refused_with_a_naive_time_too() -> None:
    schemas = ChannelSchemas("orders")
    schemas.answered(LatestOf("orders-value"), SchemaWithId(1, schema()))
    encode = encoder_for("protobuf", SchemaSource(schemas, "orders", register=False))
    with pytest.raises(
        EncodeError, match=r"^Order does not fit the Protobuf message: at has no time zone$"
    ):
        encode(Order(at=NAIVE, took=timedelta(), value=None, what={}))


def test_a_time_with_a_zone_is_that_moment_in_an_any_too() -> None:
    message = kind()()
    at = datetime(2026, 1, 1, 12, 30, tzinfo=timezone(timedelta(hours=2)))
    fill(message, {"what": {"@type": ODD_URL, "at": at, "ats": [at]}, "at_by_name": {"a": at}})
    assert message.at_by_name["a"].ToDatetime(tzinfo=UTC) == at
    in_utc = "2026-01-01T10:30:00Z"
    assert to_plain(message)["what"] == {"@type": ODD_URL, "at": in_utc, "ats": [in_utc]}


@pytest.mark.parametrize(
    "value", [{"chosen": None, "text": "x"}, {"text": "x", "chosen": None, "other": None}]
)
def test_none_takes_nothing_away_from_what_was_chosen(value: dict[str, Any]) -> None:
    message = kind()()
    fill(message, value)
    assert message.WhichOneof("choice") == "text"


@pytest.mark.parametrize(
    "value",
    [
        {"chosen": 1, "text": "a"},
        {"text": "a", "chosen": False},
        {"text": "", "other": ""},
    ],
)
def test_several_fields_of_one_choice_are_refused_by_their_names(value: dict[str, Any]) -> None:
    # in the order of the .proto file
    given = " and ".join(sorted(value, key=["chosen", "text", "other"].index))
    with pytest.raises(
        EncodeError, match=rf"^Odd\.choice is one of its fields, and {given} are given$"
    ):
        fill(kind()(), value)


def test_an_unknown_any_may_have_been_in_json_and_no_other_shape_is_taken() -> None:
    message = kind()()
    fill(message, {"what": {"@type": UNKNOWN, "value": "CP8B"}})
    assert (message.what.type_url, message.what.value) == (UNKNOWN, b"\x08\xff\1")
    for wrong in (
        {"@type": UNKNOWN, "value": "no base64!"},
        {"@type": UNKNOWN, "a": 1},
        {"value": b"1", "b": 2},
        "x",
    ):
        with pytest.raises((ValueError, TypeError)):
            fill(kind()(), {"what": wrong})


class Order(BaseModel):
    at: datetime
    took: timedelta
    value: Any
    what: dict[str, Any]


@pytest.mark.parametrize("annotation", [dict, dict[str, Any], Any, Order])
def test_through_the_codecs_a_dict_keeps_everything_and_a_model_what_its_types_hold(
    annotation: Any,
) -> None:
    schemas = ChannelSchemas("orders")
    schemas.answered(ById(1), schema())
    schemas.answered(LatestOf("orders-value"), SchemaWithId(1, schema()))
    source = SchemaSource(schemas, "orders", register=False)
    message = kind()()
    message.at.nanos, message.took.nanos, message.value.null_value = 1_007, 1_007, 0
    message.what.type_url, message.what.value = UNKNOWN, b"\xff"
    decode = decoder_for(annotation, "protobuf", source)
    assert decode is not None
    value = b"\0\0\0\0\1\0" + message.SerializeToString(deterministic=True)
    back = encoder_for("protobuf", source)(decode(value)) or b""
    if annotation is Order:
        message.at.nanos = message.took.nanos = 1_000
    assert kind().FromString(back[6:]) == message
