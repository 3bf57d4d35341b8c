from __future__ import annotations

import inspect
from typing import Any

import pytest

from reactive_kafka.broker.client import Connector, Consumer
from reactive_kafka.broker.client_wrapper import ClientWrapper


def methods(protocol: type) -> list[str]:
    """The names of a protocol's methods."""
    return [
        name
        for name, _ in inspect.getmembers(protocol, inspect.isfunction)
        if not name.startswith("_")
    ]


class Recorded:
    """Answers every method of a protocol with what it was called with."""

    def __init__(self, protocol: type) -> None:
        self._protocol = protocol

    def __getattr__(self, name: str) -> Any:
        def answer(*args: object, **kwargs: object) -> object:
            return name, args, kwargs

        async def answer_later(*args: object, **kwargs: object) -> object:
            return answer(*args, **kwargs)

        return (
            answer_later if inspect.iscoroutinefunction(getattr(self._protocol, name)) else answer
        )


@pytest.mark.parametrize(
    ("protocol", "name"),
    [
        *((Consumer, name) for name in methods(Consumer)),
        *((Connector, name) for name in methods(Connector) if name != "consumer"),
    ],
)
async def test_every_call_is_passed_on_as_it_is(protocol: type, name: str) -> None:
    calls: list[object] = []

    class Inner(Recorded):
        def __getattr__(self, called: str) -> Any:
            answer = super().__getattr__(called)

            def noted(*args: object, **kwargs: object) -> object:
                calls.append((called, args, kwargs))
                return answer(*args, **kwargs)

            return noted

    parameters = list(inspect.signature(getattr(protocol, name)).parameters.values())[1:]
    args = [object() for one in parameters if one.kind is not one.KEYWORD_ONLY]
    kwargs = {one.name: object() for one in parameters if one.kind is one.KEYWORD_ONLY}
    answered = getattr(ClientWrapper(Inner(protocol)), name)(*args, **kwargs)
    if inspect.isawaitable(answered):
        answered = await answered
    assert calls == [(name, tuple(args), kwargs)]
    assert answered == calls[0]
