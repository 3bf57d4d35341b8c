"""The user's own formats, strategies and ordering keys, configured as ``module:object`` and imported at start-up."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from pathlib import PurePath
from typing import Any, Protocol

from reactive_kafka.errors import EncodeError
from reactive_kafka.formats.names import FormatError

_ASYNC = "it is async, but its result is needed at once: write a plain function"


class Named(Protocol):
    """A channel's settings, as far as this module reads them: ``config`` imports ``formats``, not the reverse."""

    @property
    def name(self) -> str: ...


def load_object(path: str) -> Any:
    """The object at *path* (``package.module:name``, ``module:Class.name``).

    Raises:
        FormatError: It cannot be imported, or does not exist.
    """
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
    """The callable at *path*.

    Raises:
        FormatError: It cannot be imported, does not exist, is not callable, or is async.
    """
    target = load_object(path)
    if not callable(target):
        raise FormatError(f"it is not callable: its type is {type(target).__name__}")
    if _is_async(target):
        raise FormatError(_ASYNC)
    function: Callable[[Any], Any] = target
    return function


def format_function(path: str) -> Callable[[Any], Any]:
    """:func:`load_function` for a serializer or deserializer: the error names its path."""
    try:
        return load_function(path)
    except FormatError as error:
        raise FormatError(f"{path!r}: {error}") from (error.__cause__ or error)


def load_strategy(path: str, method: str) -> Any:
    """The strategy at *path*, or the class or function that :func:`made_strategy` calls to make one.

    Args:
        method: The name of a method that strategies have and their factories do not.

    Raises:
        FormatError: It cannot be imported, does not exist, or is neither.
    """
    target = load_object(path)
    if inspect.isclass(target) or hasattr(target, method):
        return target
    if not callable(target):
        raise FormatError(
            f"expected an object with a method {method}, or a class or function that makes one, "
            f"not {type(target).__name__}"
        )
    if _is_async(target):
        raise FormatError(_ASYNC)
    return target


def made_strategy(target: Any, method: str, settings: Named) -> Any:
    """*target*, or what it makes of the channel's settings if it is a class or function.

    Raises:
        FormatError: It raised, or is async.
    """
    if hasattr(target, method) and not inspect.isclass(target):
        return target
    try:
        made = target(settings)
    except Exception as error:  # user code may raise anything; start-up ends with its error
        call = f"called with the settings of channel {settings.name!r}"
        raise FormatError(f"{call}, it raised {type(error).__name__}: {error}") from error
    if inspect.iscoroutine(made):
        made.close()  # nobody will await it
        raise FormatError(_ASYNC)
    return made


def _is_async(target: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(target) or inspect.iscoroutinefunction(type(target).__call__)


def _import(module_name: str) -> Any:
    if module_name == _program() and module_name not in sys.modules:
        return sys.modules["__main__"]  # a second import would create its classes a second time
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module_name}.".startswith(f"{error.name}."):
            raise FormatError(f"there is no module {error.name!r}") from error
        raise FormatError(f"importing {module_name} failed: {error}") from error
    except Exception as error:  # user code may raise anything; start-up ends with its error
        raise FormatError(f"importing {module_name} failed: {type(error).__name__}: {error}") from error


def _program() -> str | None:
    """The module name of the running program (``python shop.py``, ``python -m shop``); None if it has none."""
    main = sys.modules["__main__"]
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if spec is not None:
        return str(spec.name)
    return PurePath(file).stem if file else None


def function_writer(path: str) -> Callable[[object], bytes | None]:
    """A writer that calls the user's function for each value but None, and raises only EncodeError."""
    function = format_function(path)

    def write(value: object) -> bytes | None:
        if value is None:
            return None
        try:
            data = function(value)
        except Exception as error:  # user code may raise anything; it becomes the cause
            raise EncodeError(f"{path} raised {type(error).__name__}") from error
        if data is None or isinstance(data, bytes):
            return data
        raise EncodeError(f"{path} must return bytes or None, but returned {type(data).__name__}")

    return write
