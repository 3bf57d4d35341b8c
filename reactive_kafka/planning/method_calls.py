"""Which methods a handler calls, as far as its code tells: what depends on that is a warning, and
never an error.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

MOST_FUNCTIONS = 200
"""So many functions of the user's are looked at, from the handler on."""


def calls_method(function: Callable[..., Any], method: str) -> bool:
    """Whether a function, or one that it calls by name in its module, names this method."""
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
    """The names that code uses, and those of functions inside of it."""
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)
