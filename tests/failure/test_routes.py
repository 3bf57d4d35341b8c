"""Which strategy an exception meets."""

from __future__ import annotations

from typing import Any

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka import TopicPartition
from reactive_kafka.errors import BadDataError, DecodeError, HandlerError, OffloadError
from reactive_kafka.failure.routes import setting_for


class Own(ValueError):
    class Inner(KeyError):
        pass


def pydantics() -> Exception:
    try:
        pydantic.TypeAdapter(int).validate_python("x")
    except pydantic.ValidationError as error:
        return error
    raise AssertionError


def undecodable(cause: Exception) -> DecodeError:
    error = DecodeError("does not fit")
    error.__cause__ = cause
    return error


def failed_job(cause: Exception, kind: type[OffloadError] = OffloadError) -> OffloadError:
    error = kind("the job failed")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("reason", "routes", "strategy"),
    [
        (ValueError(), {}, "fail"),
        (ValueError(), {"ValueError": "ignore"}, "ignore"),
        (ValueError(), {"builtins.ValueError": "ignore"}, "ignore"),
        (Own(), {"ValueError": "ignore"}, "ignore"),
        (Own(), {"ValueError": "ignore", "Own": "dead-letter-queue"}, "dead-letter-queue"),
        (Own(), {f"{__name__}.Own": "ignore"}, "ignore"),
        (Own(), {"elsewhere.Own": "ignore"}, "fail"),
        (Own(), {"Own": "fail", f"{__name__}.Own": "ignore"}, "ignore"),
        (Own.Inner(), {f"{__name__}.Own.Inner": "ignore"}, "ignore"),
        (KeyError(), {"ValueError": "ignore"}, "fail"),
        (KeyError(), {"LookupError": "ignore", "Exception": "dead-letter-queue"}, "ignore"),
        (pydantics(), {"pydantic.ValidationError": "ignore"}, "ignore"),
        (
            pydantics(),
            {"ValueError": "ignore", "ValidationError": "dead-letter-queue"},
            "dead-letter-queue",
        ),
        (undecodable(pydantics()), {"ValidationError": "ignore"}, "ignore"),
        (undecodable(KeyError()), {"DecodeError": "ignore"}, "ignore"),
        (undecodable(KeyError()), {"reactive_kafka.errors.DecodeError": "ignore"}, "ignore"),
        (undecodable(KeyError()), {"DecodeError": "fail", "KeyError": "ignore"}, "ignore"),
        (
            undecodable(KeyError()),
            {"DecodeError": "ignore", "LookupError": "fail", "Exception": "fail"},
            "ignore",
        ),
        (failed_job(Own()), {"ValueError": "ignore"}, "ignore"),
        (failed_job(Own()), {"OffloadError": "fail", "Own": "ignore"}, "ignore"),
        (
            failed_job(Own(), BadDataError),
            {"BadDataError": "ignore", "ValueError": "fail"},
            "ignore",
        ),
        (failed_job(KeyError(), BadDataError), {"OffloadError": "ignore"}, "ignore"),
        (OffloadError("timed out"), {"OffloadError": "ignore"}, "ignore"),
    ],
)
def test_the_nearest_class_decides(
    reason: Exception, routes: dict[str, str], strategy: str
) -> None:
    assert setting_for(reason, routes, "fail") == strategy


def test_what_we_wrapped_is_looked_at_and_not_the_wrapping() -> None:
    reason = HandlerError("orders", TopicPartition("orders", 0), 1, KeyError())
    reason.__cause__ = KeyError()
    assert setting_for(reason, {"HandlerError": "fail", "KeyError": "ignore"}, "fail") == "ignore"


class A(Exception): ...


class B(A): ...


class C(A): ...


class D(B, C): ...


class E(D): ...


KINDS: list[Any] = [Exception, A, B, C, D, E]


@given(st.sampled_from(KINDS), st.sets(st.sampled_from(KINDS)), st.booleans())
def test_no_other_routed_class_is_nearer_than_the_one_chosen(
    kind: Any, routed: set[Any], dotted: bool
) -> None:
    prefix = f"{__name__}." if dotted else ""
    routes = {
        ("builtins." if dotted and it is Exception else prefix) + it.__name__: it.__name__
        for it in routed
    }
    order = [base.__name__ for base in kind.__mro__]
    chosen = setting_for(kind(), routes, "none")
    near = [name for name in order if name in {it.__name__ for it in routed}]
    assert chosen == (near[0] if near else "none")
