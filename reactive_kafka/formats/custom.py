"""What is configured as ``module:object``: formats, strategies, ordering keys of the user's, imported at start-up."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from pathlib import PurePath
from typing import Any, Protocol

from reactive_kafka.errors import EncodeError
from reactive_kafka.formats.names import FormatError

_ASYNC = "it is async, and its answer is needed at once: write a plain function"


class Named(Protocol):
    """A channel's settings, as far as this module reads them: ``config`` imports ``formats``, not the reverse."""

    @property
    def name(self) -> str: ...


def load_object(path: str) -> Any:
    """What *path* (``package.module:name``, ``module:Class.name``) names.

    Raises:
        FormatError: It cannot be imported, or is not there.
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
    """The callable that *path* names.

    Raises:
        FormatError: It cannot be imported, is not there, cannot be called, or is async.
    """
    target = load_object(path)
    if not callable(target):
        raise FormatError(f"it cannot be called: it is of type {type(target).__name__}")
    if _is_async(target):
        raise FormatError(_ASYNC)
    function: Callable[[Any], Any] = target
    return function


def format_function(path: str) -> Callable[[Any], Any]:
    """The same, of a serializer or a deserializer: its path is in the error."""
    try:
        return load_function(path)
    except FormatError as error:
        raise FormatError(f"{path!r}: {error}") from (error.__cause__ or error)


def load_strategy(path: str, method: str) -> Any:
    """The strategy that *path* names, or the class or function that makes one: see :func:`made_strategy`.

    Args:
        method: What a strategy has, and nothing that only makes one.

    Raises:
        FormatError: It cannot be imported, is not there, or is neither.
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
    """What :func:`load_strategy` found, made of the channel's settings where it is not there yet.

    Raises:
        FormatError: It cannot be made.
    """
    if hasattr(target, method) and not inspect.isclass(target):
        return target
    try:
        made = target(settings)
    except Exception as error:  # it is the user's and may raise anything; start-up stops with its error
        who = f"called with the settings of channel {settings.name!r}"
        raise FormatError(f"{who} it raised {type(error).__name__}: {error}") from error
    if inspect.iscoroutine(made):
        made.close()  # nobody will await it
        raise FormatError(_ASYNC)
    return made


def _is_async(target: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(target) or inspect.iscoroutinefunction(type(target).__call__)


def _import(module_name: str) -> Any:
    if module_name == _program() and module_name not in sys.modules:
        return sys.modules["__main__"]  # imported once more, its classes would be others than those that it uses
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module_name}.".startswith(f"{error.name}."):
            raise FormatError(f"there is no module {error.name!r}") from error
        raise FormatError(f"importing {module_name} failed: {error}") from error
    except Exception as error:  # the module is the user's and may raise anything; start-up stops with its error
        raise FormatError(f"importing {module_name} failed: {type(error).__name__}: {error}") from error


def _program() -> str | None:
    """What the running program (``python shop.py``, ``python -m shop``) would be imported as; None: it is no module."""
    main = sys.modules["__main__"]
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if spec is not None:
        return str(spec.name)
    return PurePath(file).stem if file else None


def function_writer(path: str) -> Callable[[object], bytes | None]:
    """A writer that calls the user's function for every value but None; it raises EncodeError only."""
    function = format_function(path)

    def write(value: object) -> bytes | None:
        if value is None:
            return None
        try:
            data = function(value)
        except Exception as error:  # the user's function may raise anything; the record fails with it as cause
            raise EncodeError(f"{path} raised {type(error).__name__}") from error
        if data is None or isinstance(data, bytes):
            return data
        raise EncodeError(f"{path} must return bytes or None, and returned {type(data).__name__}")

    return write
