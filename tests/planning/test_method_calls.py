"""What a handler calls is guessed from its code, whatever else its module has."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from reactive_kafka import Message
from reactive_kafka.planning.method_calls import calls_method


class Service:
    """A client of a web service: every attribute is another part of a path."""

    def __getattr__(self, name: str) -> Service:
        return Service()

    def __call__(self, *arguments: Any) -> None: ...


class Unbound:
    """A proxy that has nothing behind it yet. pytest itself asks for other names."""

    def __getattr__(self, name: str) -> Any:
        raise (RuntimeError if name == "__wrapped__" else AttributeError)(name)

    def __call__(self, *arguments: Any) -> None: ...


service = Service()
unbound = Unbound()


def logged(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        return function(*arguments)

    return call


@logged
def postpone(message: Message[bytes]) -> None:
    message.retry_later("1s")


postpone_first = functools.partial(postpone)


async def calls_a_wrapped_function(message: Message[bytes]) -> None:
    postpone(message)


async def calls_a_partial(message: Message[bytes]) -> None:
    postpone_first(message)


async def calls_objects(message: Message[bytes]) -> None:
    service.orders.create(message.payload)
    unbound(message.payload)


async def calls_objects_before(message: Message[bytes]) -> None:
    service.orders.create(message.payload)
    unbound(message.payload)
    postpone(message)


@pytest.mark.parametrize(
    ("handler", "is_found"),
    [
        (calls_a_wrapped_function, True),
        (calls_a_partial, True),
        (calls_objects, False),
        (calls_objects_before, True),
        (functools.partial(calls_objects_before), True),
        (service, False),
        (unbound, False),
    ],
)
def test_methods_are_found_in_functions_and_other_objects_are_left_alone(
    handler: Callable[..., Any], is_found: bool
) -> None:
    assert calls_method(handler, "retry_later") is is_found
