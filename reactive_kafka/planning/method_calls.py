"""Finds which methods a handler calls, by its code.

That is a guess: what depends on it may be a warning, and never an error.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, MethodType
from typing import Any

MOST_FUNCTIONS = 200
"""How many functions of the user are looked at, beginning with the handler."""


def calls_method(function: Callable[..., Any], method: str) -> bool:
    """Return whether a function, or one of its module that it calls by name, names the method."""
    waiting: list[Any] = [function]
    seen: set[CodeType] = set()
    while waiting and len(seen) < MOST_FUNCTIONS:
        plain = _plain(waiting.pop())
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
            called = _plain(inside.get(name))
            if getattr(called, "__module__", None) == here:
                waiting.append(called)
    return False


def _plain(function: Any) -> FunctionType | MethodType | None:
    """Return the function that partials and wrappers contain, or None.

    A name may also stand for any other object of the user. Such an object may answer to every
    attribute, or raise.
    """
    try:
        while isinstance(function, functools.partial):
            function = function.func
        function = inspect.unwrap(function)
    except Exception:
        return None
    return function if isinstance(function, FunctionType | MethodType) else None


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names that code uses, also in functions inside it."""
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)
