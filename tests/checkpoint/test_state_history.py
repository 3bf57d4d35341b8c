"""Which state a record sees, which goes with a position, and states as text."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from math import nan

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from reactive_kafka.checkpoint.state_codec import codec_of
from reactive_kafka.checkpoint.state_history import StateHistory
from reactive_kafka.errors import DecodeError, EncodeError
from tests.formats.refusals import refused_at_start_up

HERE = __name__


class Total(BaseModel):
    amount: int = Field(alias="sum")
    at: datetime


class Share(BaseModel):
    of: float
    note: str | None = None


class Hidden(BaseModel):
    key: str = Field(exclude=True)


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


class WithSettings(Reversed):
    def __init__(self, settings: object) -> None:
        self.settings = settings


class Awaited:
    """Its methods would have to be awaited, which nobody does."""

    def encode(self, state: str) -> str:
        return state

    async def decode(self, text: str) -> str:
        return text


instance = Reversed()
number = 5


def nothing_open(_: int) -> bool:
    return False


def everything_open(_: int) -> bool:
    return True


def test_a_record_sees_its_own_state_else_that_of_the_nearest_acked_one_before_it() -> None:
    states = StateHistory("base")
    states.set(5, 0, "five")
    states.set(7, 1, "seven")
    assert states.get(5, everything_open) == "five"
    assert states.get(6, nothing_open) == "five"
    assert states.get(6, everything_open) == "base"
    assert states.get(9, lambda arrival: arrival == 1) == "five"
    assert states.get(4, nothing_open) == "base"


def test_the_messages_of_one_batch_see_what_those_before_them_have_set_and_others_do_not() -> None:
    states = StateHistory(None)
    states.set(1, 0, "open, of before")
    states.begin([2, 3, 4])
    assert states.get(2, everything_open) is None
    states.set(2, 1, "two")
    assert states.get(4, everything_open) == "two"
    assert states.get(5, everything_open) is None


def test_a_call_that_begins_again_forgets_what_the_earlier_one_has_set() -> None:
    states = StateHistory("base")
    states.set(5, 0, "five")
    states.begin([5])
    assert states.get(5, nothing_open) == "base"
    assert states.at_position(6) == "base"


def test_a_state_can_be_taken_away() -> None:
    states = StateHistory("base")
    states.set(5, 0, None)
    assert states.at_position(6) is None
    assert states.at_position(5) == "base"


def test_what_another_call_has_stored_is_the_state_from_there_on() -> None:
    states = StateHistory("base")
    states.set(5, 0, "five")
    states.set(6, 1, "six")
    states.found(6, "of before")
    assert states.at_position(6) == "of before"
    assert states.at_position(7) == "six"


@given(st.data())
def test_the_state_of_a_position_is_what_the_highest_record_before_it_has_set(
    data: st.DataObject,
) -> None:
    states, model = StateHistory("base"), dict[int, str | None]()
    stored = 0
    for _ in range(data.draw(st.integers(0, 30))):
        offset = data.draw(st.integers(stored, 30))
        match data.draw(st.sampled_from(["set", "drop", "stored"])):
            case "set":
                model[offset] = data.draw(st.sampled_from([None, "a", "b"]))
                states.set(offset, offset, model[offset])
            case "drop":
                model.pop(offset, None)
                states.drop(offset)
            case "stored":
                stored = offset
                states.stored(stored)
                model = {
                    max([at for at in model if at < stored], default=-1): expected(model, stored)
                } | {at: text for at, text in model.items() if at >= stored}
        for position in range(stored, 32):
            assert states.at_position(position) == expected(model, position)
            assert states.get(position, nothing_open) == expected(model, position + 1)


def expected(model: dict[int, str | None], position: int) -> str | None:
    before = [offset for offset in model if offset < position]
    return model[max(before)] if before else "base"


@pytest.mark.parametrize(
    "state", [None, 0, "", [], {"b": 1, "a": [True, None, 1.5]}, "ü\0🙂", 2**70]
)
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


@pytest.mark.parametrize(
    ("name", "state"), [("Point", {"x": "secret"}), ("Seen", {"names": 5}), ("Total", None)]
)
def test_what_fits_no_model_is_refused_both_ways_and_not_quoted(name: str, state: object) -> None:
    codec = codec_of(f"{HERE}:{name}")
    with pytest.raises(EncodeError, match=name) as refused:
        codec.encode(state)
    assert "secret" not in str(refused.value)
    with pytest.raises(DecodeError, match=name):
        codec.decode(codec_of(None).encode(state))


def test_a_state_that_its_model_could_not_read_is_refused_when_it_is_set() -> None:
    shares = codec_of(f"{HERE}:Share")
    assert shares.decode(shares.encode(Share(of=0.5))) == Share(of=0.5)
    # Pydantic writes it as null.
    with pytest.raises(EncodeError, match="could not be read back: does not fit Share: of: "):
        shares.encode(Share(of=nan))
    assert shares.decode(shares.encode(Share(of=1.0, note="null"))) == Share(of=1.0, note="null")
    with pytest.raises(EncodeError, match="could not be read back: does not fit Hidden: key: "):
        codec_of(f"{HERE}:Hidden").encode(Hidden(key="a"))


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
        (
            f"{HERE}:number",
            "expected a model, or an object with the methods encode and decode, not int",
        ),
        (f"{HERE}:nobody", "has no 'nobody'"),
        (f"{HERE}:WithSettings", "called without arguments, it raised TypeError"),
        (f"{HERE}:Awaited", "it is async"),
        ("no_such_module:Model", "there is no module 'no_such_module'"),
        ("Model", "not of the form"),
    ],
)
def test_what_is_no_codec_is_told_at_start_up(path: str, told: str) -> None:
    with refused_at_start_up(told):
        codec_of(path)
