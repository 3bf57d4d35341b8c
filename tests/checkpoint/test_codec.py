"""States as text: JSON, models of three kinds, and a codec of the user's."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec
import pytest
from pydantic import BaseModel, Field

from reactive_kafka.checkpoint.codec import codec_of
from reactive_kafka.errors import DecodeError, EncodeError
from reactive_kafka.formats import FormatError

HERE = __name__


class Total(BaseModel):
    amount: int = Field(alias="sum")
    at: datetime


@dataclass
class Point:
    x: int
    y: int = 0


class Seen(msgspec.Struct):
    names: list[str]


class Reversed:
    """A codec of the user's."""

    def encode(self, state: str) -> str:
        return state[::-1]

    def decode(self, text: str) -> str:
        return text[::-1]


class Broken:
    def encode(self, state: object) -> object:
        return b"bytes" if state else 1 / 0

    def decode(self, text: str) -> object:
        raise LookupError(text)


instance = Reversed()
number = 5


@pytest.mark.parametrize("state", [None, 0, "", [], {"b": 1, "a": [True, None, 1.5]}, "ü\0🙂", 2**70])
def test_json_brings_back_what_json_can_tell_in_its_own_order(state: object) -> None:
    codec = codec_of(None)
    assert codec.decode(codec.encode(state)) == state
    assert codec.encode({"b": 1, "a": 2}) == '{"b":1,"a":2}'


def test_what_json_cannot_tell_is_refused() -> None:
    with pytest.raises(EncodeError, match="no JSON form"):
        codec_of(None).encode(object())
    with pytest.raises(EncodeError, match="NaN"):
        codec_of(None).encode(float("nan"))
    with pytest.raises(DecodeError, match="not valid JSON"):
        codec_of(None).decode('{"cut": ')


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("Total", Total(sum=5, at=datetime(2026, 11, 21, tzinfo=UTC))),
        ("Point", Point(1, 2)),
        ("Seen", Seen(["a"])),
    ],
)
def test_a_model_comes_back_as_itself(name: str, state: object) -> None:
    codec = codec_of(f"{HERE}:{name}")
    again = codec.decode(codec.encode(state))
    assert again == state
    assert type(again) is type(state)


@pytest.mark.parametrize(("name", "state"), [("Point", {"x": 1}), ("Seen", {"names": ["a"]})])
def test_what_fits_a_model_is_made_one(name: str, state: object) -> None:
    codec = codec_of(f"{HERE}:{name}")
    assert type(codec.decode(codec.encode(state))).__name__ == name


@pytest.mark.parametrize(("name", "state"), [("Point", {"x": "secret"}), ("Seen", {"names": 5}), ("Total", None)])
def test_what_fits_no_model_is_refused_both_ways_and_not_quoted(name: str, state: object) -> None:
    codec = codec_of(f"{HERE}:{name}")
    with pytest.raises(EncodeError, match=name) as refused:
        codec.encode(state)
    assert "secret" not in str(refused.value)
    with pytest.raises(DecodeError, match=name):
        codec.decode(codec_of(None).encode(state))


@pytest.mark.parametrize("name", ["Reversed", "instance"])
def test_a_codec_of_the_users_is_an_object_or_its_class(name: str) -> None:
    codec = codec_of(f"{HERE}:{name}")
    assert codec.encode("abc") == "cba"
    assert codec.decode("cba") == "abc"


def test_what_a_codec_of_the_users_raises_is_an_error_of_ours() -> None:
    codec = codec_of(f"{HERE}:Broken")
    with pytest.raises(EncodeError, match="raised ZeroDivisionError") as raised:
        codec.encode(None)
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
    with pytest.raises(EncodeError, match="must return str, and returned bytes"):
        codec.encode(1)
    with pytest.raises(EncodeError, match="with a NUL in it"):
        codec_of(f"{HERE}:Reversed").encode("a\0b")
    with pytest.raises(EncodeError, match="with a lone surrogate in it"):
        codec_of(f"{HERE}:Reversed").encode("half \ud83d of one")
    with pytest.raises(DecodeError, match="raised LookupError"):
        codec.decode("")


@pytest.mark.parametrize(
    ("path", "told"),
    [
        (f"{HERE}:number", "expected a model, or an object with the methods encode and decode, not int"),
        (f"{HERE}:nobody", "has no 'nobody'"),
        ("no_such_module:Model", "there is no module 'no_such_module'"),
        ("Model", "not of the form"),
    ],
)
def test_what_is_no_codec_is_told_at_start_up(path: str, told: str) -> None:
    with pytest.raises(FormatError, match=told):
        codec_of(path)
