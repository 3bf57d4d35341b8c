"""What stands behind a function that was decorated: its code, its own annotations, and how it is
called. No I/O.
"""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Mapping
from typing import Any


def code_of(function: Any) -> Any:
    """The function that a call runs first: behind partials, bound methods and objects with
    ``__call__``.
    """
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.ismethod(function):
        return function.__func__
    return function if inspect.isroutine(function) else type(function).__call__


def owner_of(function: Any) -> Any:
    """The function that the annotations were written at: the innermost one, behind wrappers too."""
    while True:
        inner = getattr(function, "__wrapped__", None) or code_of(function)
        if inner is function:
            return function
        function = inner


def is_coroutine(function: Any) -> bool:
    """Whether its call returns a coroutine, as far as that can be seen."""
    return inspect.iscoroutinefunction(code_of(function)) or inspect.iscoroutinefunction(function)


def is_async_generator(function: Any) -> bool:
    """Whether its call returns an async generator: it is one, or a plain wrapper around one hands
    that on.
    """
    if inspect.isasyncgenfunction(code_of(function)):
        return True
    return inspect.isasyncgenfunction(owner_of(function)) and not is_coroutine(function)


def resolve(annotation: Any, function: Any, local_names: Mapping[str, Any] | None = None) -> Any:
    """*annotation* without any text in it; raises whatever evaluating the text raises."""
    if annotation is inspect.Parameter.empty:
        return Any
    owner = owner_of(function)
    holder = types.SimpleNamespace(__annotations__={"it": annotation})
    names = {**_closure_of(owner), **(local_names or {})}
    return typing.get_type_hints(
        holder, getattr(owner, "__globals__", {}), names, include_extras=True
    )["it"]


def resolved(annotation: Any, function: Any, local_names: Mapping[str, Any] | None = None) -> Any:
    """*annotation* without any text in it, or as it is where the text cannot be resolved (yet)."""
    try:
        return resolve(annotation, function, local_names)
    except Exception:
        # It is the user's code, and may raise anything.
        return annotation


def annotated_return(function: Any) -> Any:
    """What its call returns, as annotated, as far as that can be resolved."""
    return resolved(inspect.signature(function).return_annotation, function)


def _closure_of(owner: Any) -> dict[str, Any]:
    """The names of the scope around a function that it uses in its body."""
    cells = getattr(owner, "__closure__", None) or ()
    found = {}
    for name, cell in zip(
        getattr(owner, "__code__", owner).co_freevars if cells else (), cells, strict=True
    ):
        try:
            found[name] = cell.cell_contents
        except ValueError:
            # Not assigned yet.
            continue
    return found
