"""Tells of handlers whose outputs may be lost: what they return is sent after a transaction has settled the record."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

from reactive_kafka.handlers.signature import name_and_place
from reactive_kafka.handlers.spec import IncomingSpec

METHOD = "transaction"
MOST_FUNCTIONS = 200
"""So many functions of the user's are looked at, from the handler on."""


def may_lose_outputs(spec: IncomingSpec) -> Iterator[str]:
    """A warning for each handler that opens a transaction of the checkpoint store and returns what is sent.

    The rows and the position are stored when the block ends, and the output is sent after that: a crash in between
    loses it, and so does an output that cannot be written.
    """
    settings = spec.settings
    if settings.commit_strategy != "checkpoint" or settings.checkpoint is None:
        return
    for handler in spec.handlers:
        outgoing = spec.outgoing_of(handler)
        if outgoing and opens_transaction(handler.function):
            where = settings.place("commit_strategy", settings.commit_strategy)
            names = ", ".join(f"@app.outgoing({name!r})" for name in outgoing)
            yield (
                f"{where}, with {names} of {name_and_place(handler.function)}: transaction() stores the rows and the "
                "position before the output is sent, so that a crash, or an output that cannot be written, loses it; "
                "write the output to a table in the transaction, and send it from there (an outbox: "
                "docs/checkpoints.md); an outbox of our own comes later"
            )


def opens_transaction(function: Callable[..., Any]) -> bool:
    """Whether a function, or one that it calls by name in its module, calls a method ``transaction``."""
    waiting: list[Any] = [function]
    seen: set[CodeType] = set()
    while waiting and len(seen) < MOST_FUNCTIONS:
        plain = waiting.pop()
        while isinstance(plain, functools.partial):
            plain = plain.func
        plain = inspect.unwrap(plain)
        code = getattr(plain, "__code__", None)
        if not isinstance(code, CodeType) or code in seen:
            continue
        names = set(_names(code))
        if METHOD in names:
            return True
        seen.add(code)
        inside = getattr(plain, "__globals__", {})
        here = inside.get("__name__")
        for name in names:
            called = inside.get(name)
            if callable(called) and getattr(called, "__module__", None) == here:
                waiting.append(called)
    return False


def _names(code: CodeType) -> Iterator[str]:
    """The names that code uses, and those of functions inside of it."""
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)
