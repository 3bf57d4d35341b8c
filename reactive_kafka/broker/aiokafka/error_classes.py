"""An exception class for each error code: aiokafka's own where it has one, else one that keeps the
code.

aiokafka 0.14 has classes for the codes -1 to 72 and 79. Every other code became its
``UnknownError``, with the number -1: nobody could tell a record that the broker refuses for good
from a passing trouble of the broker. Its ``for_code`` is replaced when this module is imported. An
application that uses aiokafka directly sees subclasses of ``UnknownError`` instead of it.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import aiokafka.errors as kafka_errors

from reactive_kafka.broker.error_codes import KNOWN, ErrorCode, error_code

_CODE = re.compile(r"\[Error (-?\d+)\]")


# Aiokafka is untyped.
class CodeError(kafka_errors.UnknownError):  # type: ignore[misc]
    """The base of classes for codes that aiokafka does not know."""

    def __repr__(self) -> str:
        # aiokafka raises some errors again with nothing but their repr as text.
        return str(self)


@cache
def class_for(code: int) -> type[kafka_errors.BrokerResponseError]:
    """The exception class for an error code of a broker's answer."""
    theirs: type[kafka_errors.BrokerResponseError] | None = kafka_errors.kafka_errors.get(code)
    if theirs is not None:
        return theirs
    known = error_code(code)
    attributes = {
        "errno": code,
        "message": known.name,
        "retriable": known.is_retriable,
        # The codes that mean this are retriable, and for the others nothing asks.
        "invalid_metadata": known.is_retriable,
    }
    return type(known.name, (CodeError,), attributes)


kafka_errors.for_code = class_for


def code_of(error: BaseException | type[BaseException]) -> ErrorCode | None:
    """The error code that an exception of aiokafka's is about, or its class; None if it is about
    none.

    aiokafka raises some of them again as a plain ``KafkaError`` that has the first one as cause, or
    only as text.
    """
    number = getattr(error, "errno", None)
    if _is(error, kafka_errors.BrokerResponseError) and number is not None:
        return error_code(number)
    if not isinstance(error, kafka_errors.KafkaError):
        return None
    if isinstance(error.__cause__, kafka_errors.KafkaError):
        return code_of(error.__cause__)
    if type(error) is not kafka_errors.KafkaError:
        return None
    if found := _CODE.search(str(error)):
        return error_code(int(found[1]))
    return next(
        (KNOWN[code] for name, code in _codes_by_name().items() if f"{name}(" in str(error)), None
    )


def is_retriable(error: Any) -> bool:
    """Whether the same request may succeed later: by Kafka's table where it has a code, else by
    aiokafka.

    *error* is an exception of aiokafka's, or its class.
    """
    code = code_of(error)
    return bool(error.retriable) if code is None else code.is_retriable


def _is(error: BaseException | type[BaseException], kind: type[BaseException]) -> bool:
    return issubclass(error, kind) if isinstance(error, type) else isinstance(error, kind)


@cache
def _codes_by_name() -> dict[str, int]:
    """Name of aiokafka's class -> its code; the longest names first, for one may end with
    another.
    """
    named = {kind.__name__: code for code, kind in kafka_errors.kafka_errors.items() if code}
    return dict(sorted(named.items(), key=lambda item: len(item[0]), reverse=True))
