"""An exception class for each of Kafka's error codes.

aiokafka 0.14 has classes for the codes -1 to 72 and 79, and aiokafka 0.15 for 82, too. It turns
every other code into ``UnknownError`` with the number -1: a record that the broker refuses for good
looks like a passing trouble of the broker. So importing this module replaces aiokafka's
``for_code``. An application that uses aiokafka directly gets subclasses of ``UnknownError``
instead.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import aiokafka.errors as kafka_errors

from reactive_kafka.broker.error_codes import KNOWN, ErrorCode, error_code

_CODE = re.compile(r"\[Error (-?\d+)\]")


# aiokafka is untyped.
class CodeError(kafka_errors.UnknownError):  # type: ignore[misc]
    """The base of the classes for codes that aiokafka does not know."""

    def __repr__(self) -> str:
        # aiokafka re-raises some errors with nothing but their repr as text.
        return str(self)


@cache
def class_for(code: int) -> type[kafka_errors.BrokerResponseError]:
    """Return the exception class for an error code: aiokafka's own, or one that keeps the code."""
    theirs: type[kafka_errors.BrokerResponseError] | None = kafka_errors.kafka_errors.get(code)
    if theirs is not None:
        return theirs
    known = error_code(code)
    attributes = {
        "errno": code,
        "message": known.name,
        "retriable": known.is_retriable,
        # All codes with this meaning are retriable. For other codes nothing reads it.
        "invalid_metadata": known.is_retriable,
    }
    return type(known.name, (CodeError,), attributes)


kafka_errors.for_code = class_for


def code_of(error: BaseException | type[BaseException]) -> ErrorCode | None:
    """Return the error code of an aiokafka exception or its class; None if it has none.

    aiokafka re-raises some errors as a plain ``KafkaError``. The first error is then its cause, or
    only part of its text.
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
    """True if the same request may succeed later.

    Kafka's table decides if the error has a code, otherwise aiokafka. *error* is an exception of
    aiokafka's, or its class.
    """
    code = code_of(error)
    return bool(error.retriable) if code is None else code.is_retriable


def _is(error: BaseException | type[BaseException], kind: type[BaseException]) -> bool:
    return issubclass(error, kind) if isinstance(error, type) else isinstance(error, kind)


@cache
def _codes_by_name() -> dict[str, int]:
    """Return name of aiokafka's class -> its code.

    Longer names come first, because one name may end with another.
    """
    named = {kind.__name__: code for code, kind in kafka_errors.kafka_errors.items() if code}
    return dict(sorted(named.items(), key=lambda item: len(item[0]), reverse=True))
