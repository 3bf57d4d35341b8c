"""The user's own objects, which a configuration names as ``module:object``.

They are imported at start-up. One that cannot be imported, does not exist, or is not what it should
be raises a FormatError.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from pathlib import PurePath
from typing import Any

from reactive_kafka.formats.format_names import FormatError

_ASYNC = "it is async, but its result is needed at once: write a plain function"
_YIELDS = "it yields, but it is only called: write a plain function that returns its result"


def load_object(path: str) -> Any:
    """Return the object at *path* (``package.module:name``, ``module:Class.name``)."""
    module_name, _, attributes = path.partition(":")
    if not all(part.isidentifier() for part in [*module_name.split("."), *attributes.split(".")]):
        raise FormatError("not of the form package.module:function")
    target: Any = _import(module_name)
    for attribute in attributes.split("."):
        if not hasattr(target, attribute):
            raise FormatError(f"{module_name} has no {attributes!r}")
        target = getattr(target, attribute)
    return target


def load_function(path: str) -> Callable[[Any], Any]:
    """Return the plain function, or another callable, at *path*."""
    target = load_object(path)
    if not callable(target):
        raise FormatError(f"it is not callable: its type is {type(target).__name__}")
    check_is_plain(target)
    function: Callable[[Any], Any] = target
    return function


def format_function(path: str) -> Callable[[Any], Any]:
    """Return the function of a serializer or deserializer; an error names its path."""
    try:
        return load_function(path)
    except FormatError as error:
        raise FormatError(f"{path!r}: {error}") from (error.__cause__ or error)


def load_strategy(path: str, method: str) -> Any:
    """Return what *path* names: a strategy, or a class or function that makes one.

    Args:
        path: The path of the object.
        method: The method that a strategy must have.
    """
    target = load_object(path)
    if inspect.isclass(target) or hasattr(target, method):
        return target
    if not callable(target):
        expected = f"an object with a method {method}, or a class or function that makes one"
        raise FormatError(f"expected {expected}, not {type(target).__name__}")
    check_is_plain(target)
    return target


def made_strategy(target: Any, method: str, settings: Any) -> Any:
    """Return the strategy. A class or function is called with the channel's settings for it."""
    if hasattr(target, method) and not inspect.isclass(target):
        return target
    try:
        made = target(settings)
    except Exception as error:
        # The user's code may raise anything; start-up ends with its error.
        call = f"called with the settings of channel {settings.name!r}"
        raise FormatError(f"{call}, it raised {type(error).__name__}: {error}") from error
    if inspect.iscoroutine(made):
        # Closed, because Python warns about a coroutine that is never awaited.
        made.close()
        raise FormatError(_ASYNC)
    return made


def check_is_plain(target: Callable[..., Any]) -> None:
    """Check that a call runs the function, and returns what it returns.

    Raises:
        FormatError: A call returns a coroutine or a generator. A filter would let all records pass.
    """
    for function in (target, type(target).__call__):
        if inspect.iscoroutinefunction(function):
            raise FormatError(_ASYNC)
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise FormatError(_YIELDS)


def _import(module_name: str) -> Any:
    if module_name == _program() and module_name not in sys.modules:
        # A second import of the program would create its classes a second time.
        return sys.modules["__main__"]
    try:
        return importlib.import_module(module_name)
    except Exception as error:
        # The user's code may raise anything; start-up ends with its error.
        reason = f"{type(error).__name__}: {error}"
        if isinstance(error, ModuleNotFoundError):
            if error.name is not None and f"{module_name}.".startswith(f"{error.name}."):
                raise FormatError(f"there is no module {error.name!r}") from error
            reason = str(error)
        raise FormatError(f"importing {module_name} failed: {reason}") from error


def _program() -> str | None:
    """Return the module name of the running program (``python shop.py``, ``python -m shop``)."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    file = getattr(main, "__file__", None)
    if spec is not None:
        return str(spec.name)
    return PurePath(file).stem if file else None
