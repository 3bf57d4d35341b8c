"""Finds the code and annotations of a function behind partials, methods, wrappers. No I/O."""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Mapping
from typing import Any


def code_of(function: Any) -> Any:
    """Return the function that a call runs first.

    It may be inside a partial, a bound method, or an object with ``__call__``.
    """
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.ismethod(function):
        return function.__func__
    return function if inspect.isroutine(function) else type(function).__call__


def owner_of(function: Any) -> Any:
    """Return the function whose annotations count: the innermost one, behind all wrappers."""
    while True:
        # An object may answer any name. Then each answer would be another such object, for ever.
        is_wrapper = inspect.getattr_static(function, "__wrapped__", None) is not None
        inner = (function.__wrapped__ if is_wrapper else None) or code_of(function)
        if inner is function:
            return function
        function = inner


def is_coroutine(function: Any) -> bool:
    """Return whether a call returns a coroutine, as far as that can be seen."""
    return inspect.iscoroutinefunction(code_of(function)) or inspect.iscoroutinefunction(function)


def is_async_generator(function: Any) -> bool:
    """Return whether a call returns an async generator.

    The function is an async generator function, or a plain wrapper around one.
    """
    if inspect.isasyncgenfunction(code_of(function)):
        return True
    return inspect.isasyncgenfunction(owner_of(function)) and not is_coroutine(function)


def only_yields(function: Any) -> bool:
    """Return whether a call runs nothing of the function: it returns a generator, async or not."""
    code = code_of(function)
    return inspect.isasyncgenfunction(code) or inspect.isgeneratorfunction(code)


def resolve(annotation: Any, function: Any, local_names: Mapping[str, Any] | None = None) -> Any:
    """Return *annotation* with all text in it evaluated; raises whatever that raises."""
    if annotation is inspect.Parameter.empty:
        return Any
    owner = owner_of(function)
    holder = types.SimpleNamespace(__annotations__={"it": annotation})
    names = {**_closure_of(owner), **(local_names or {})}
    return typing.get_type_hints(
        holder, getattr(owner, "__globals__", {}), names, include_extras=True
    )["it"]


def resolved(annotation: Any, function: Any, local_names: Mapping[str, Any] | None = None) -> Any:
    """Return *annotation* with all text evaluated, or as it is if that is not possible (yet)."""
    try:
        return resolve(annotation, function, local_names)
    except Exception:
        # The text is the user's code, which may raise anything.
        return annotation


def annotated_return(function: Any) -> Any:
    """Return the return annotation of a function, resolved if that is possible."""
    return resolved(inspect.signature(function).return_annotation, function)


def _closure_of(owner: Any) -> dict[str, Any]:
    """Return the names of the scopes around a function that its body uses, with their values."""
    cells = getattr(owner, "__closure__", None)
    if not cells:
        return {}
    values = {}
    for name, cell in zip(owner.__code__.co_freevars, cells, strict=True):
        try:
            values[name] = cell.cell_contents
        except ValueError:
            # The name has no value yet.
            continue
    return values
