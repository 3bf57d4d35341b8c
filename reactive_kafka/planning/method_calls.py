"""Finds which methods a handler calls, by its code.

That is a guess: what depends on it may be a warning, and never an error.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

MOST_FUNCTIONS = 200
"""How many functions of the user are looked at, beginning with the handler."""


def calls_method(function: Callable[..., Any], method: str) -> bool:
    """Return whether a function, or one of its module that it calls by name, names the method."""
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
        if method in names:
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
    """Yield the names that code uses, also in functions inside it."""
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)
