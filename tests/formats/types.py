"""Types that the tests of this folder read into, and functions that they name as
``module:function``.
"""

from __future__ import annotations

import typing
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

import msgspec
from pydantic import BaseModel, ConfigDict, Field, field_validator


class OrderModel(BaseModel):
    id: int
    customer: str = Field(default="", alias="who")
    at: datetime | None = None
    counts: dict[str, int] = {}


class StrictModel(BaseModel):
    model_config = ConfigDict(extra="forbid")
    kind: Literal["a", "b"] = "a"
    number: int = 0

    @field_validator("number")
    @classmethod
    def _no_sixes(cls, value: int) -> int:
        if value == 6:
            raise ValueError("no sixes")
        if value == 7:
            raise KeyError("seven")
        return value


@dataclass
class OrderData:
    id: int
    customer: str = ""


class OrderStruct(msgspec.Struct):
    id: int
    customer: str = ""
    kind: Literal["a", "b"] = "a"
    counts: dict[str, int] = {}


class Inner(typing.TypedDict, total=False):
    lines: list[int]


class OrderDict(typing.TypedDict):
    id: int
    inner: typing.NotRequired[Inner]


class Colour(StrEnum):
    RED = "red"


class Unreadable:
    """No validator knows this class."""


def upper(value: bytes) -> str:
    return value.decode().upper()


def fails(value: Any) -> Any:
    raise LookupError(f"no luck with {value!r}")


def to_unreadable(value: bytes) -> Unreadable:
    return Unreadable()


def to_order(value: bytes) -> dict[str, Any]:
    return {"id": value.decode()}


def reverse(value: str) -> bytes:
    return value[::-1].encode()


def no_bytes(value: str) -> str:
    return value


async def asynchronous(value: bytes) -> bytes:
    return value


def yielding(value: bytes) -> Iterator[bytes]:
    yield value


async def yielding_asynchronous(value: bytes) -> AsyncIterator[bytes]:
    yield value


class Yielding:
    def __call__(self, value: bytes) -> Iterator[bytes]:
        yield value


YIELDING = Yielding()


NOT_CALLABLE = 3
