"""Which types can be told apart by what is read, and that it is then read as the right one of
them.
"""

from __future__ import annotations

import types
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from reactive_kafka.errors import DecodeError
from reactive_kafka.formats import decoder_for
from reactive_kafka.formats.discriminated_unions import classes_of_annotation, discriminated_union


class Placed(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    type: Literal["placed"] = Field(alias="kind")


class Cancelled(BaseModel):
    type: Literal["cancelled", "annulled"] = Field(alias="kind")


@dataclass
class Paid:
    version: Literal[1]
    type: Literal["paid"]


@dataclass
class Unpaid:
    version: Literal[1]
    type: Literal["unpaid"] = "unpaid"


class PaidTwice(BaseModel):
    version: Literal[1]
    type: Literal["paid", "paid twice"]


class Sub(Cancelled):
    type: Literal["sub"] = "sub"  # type: ignore[assignment]


class A(msgspec.Struct, tag=True):
    pass


class B(msgspec.Struct, tag=True):
    pass


class SameTag(msgspec.Struct, tag="A"):
    pass


class OtherField(msgspec.Struct, tag="C", tag_field="kind"):
    pass


class Loose(msgspec.Struct):
    type: Literal["loose"] = "loose"


class Bag(TypedDict):
    type: Literal["bag"]


class Colour(StrEnum):
    RED = "red"


NOT_EMPTY = AfterValidator(lambda value: value)


@pytest.mark.parametrize(
    ("annotations", "value", "kind"),
    [
        ([Placed, Cancelled], b'{"kind": "placed"}', Placed),
        ([Placed, Cancelled], b'{"kind": "annulled"}', Cancelled),
        ([Placed | Cancelled, Cancelled], b'{"kind": "cancelled"}', Cancelled),
        (
            [Annotated[Placed | Cancelled, Field(discriminator="type")], Placed],
            b'{"kind": "placed"}',
            Placed,
        ),
        ([Paid, Unpaid], b'{"version": 1, "type": "unpaid"}', Unpaid),
        ([Paid, Unpaid | None], b'{"version": 1, "type": "paid"}', Paid),
        ([Paid, Unpaid | None], None, types.NoneType),
        ([A, B], b'{"type": "B"}', B),
        ([A | None, B], None, types.NoneType),
        ([Placed, Placed | None], None, types.NoneType),
    ],
)
def test_a_value_is_read_as_the_right_one(
    annotations: list[Any], value: bytes | None, kind: type
) -> None:
    decode = decoder_for(discriminated_union(annotations), None)
    assert decode is not None
    read = decode(value)
    assert type(read) is kind
    takers = [one for one in annotations if isinstance(read, classes_of_annotation(one) or ())]
    assert takers


@pytest.mark.parametrize(
    "annotations",
    [
        [Paid, PaidTwice],
        [Placed, Paid],
        [Cancelled, Sub],
        [A, SameTag],
        [A, OtherField],
        [A, Loose],
        [A, Paid],
        [Paid, Bag],
        [Paid, dict],
        [Paid, dict[str, int]],
        [Paid, Any],
        [Paid, object],
        [Paid, str],
        [str, Colour],
        [Paid, Literal["x"]],
        [Annotated[Paid, NOT_EMPTY], Unpaid],
        [Paid | Annotated[Unpaid, NOT_EMPTY], Unpaid],
    ],
)
def test_what_nothing_tells_apart_is_not_told_apart(annotations: list[Any]) -> None:
    assert discriminated_union(annotations) is None
    assert discriminated_union(annotations[::-1]) is None


def test_objects_are_told_apart_by_their_classes() -> None:
    assert discriminated_union([Paid, PaidTwice], are_objects=True) == Paid | PaidTwice
    assert discriminated_union([Cancelled, Sub], are_objects=True) is None


@given(st.lists(st.sets(st.sampled_from("abcdef"), min_size=1), min_size=2, max_size=4))
def test_literals_decide_exactly_where_no_value_is_in_two_of_them(values: list[set[str]]) -> None:
    models = [
        type(
            f"M{number}",
            (BaseModel,),
            {"__annotations__": {"kind": Literal[tuple(sorted(some))], "n": int}},
        )
        for number, some in enumerate(values)
    ]
    together = discriminated_union(models)
    are_apart = sum(map(len, values)) == len(set().union(*values))
    assert (together is not None) is are_apart
    if together is None:
        return
    decode = decoder_for(together, None)
    assert decode is not None
    for number, some in enumerate(values):
        for kind in some:
            assert type(decode(f'{{"kind": "{kind}", "n": 1}}'.encode())) is models[number]
    with pytest.raises(DecodeError, match="Input tag does not match"):
        decode(b'{"kind": "z", "n": 1}')
