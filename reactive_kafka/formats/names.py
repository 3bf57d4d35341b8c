"""What a configuration names: formats, and the user's own objects as ``module:object``, imported at
start-up.

What cannot be imported, does not exist, or is not what it should be raises a FormatError.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import sys
from collections.abc import Callable
from pathlib import PurePath
from typing import Any

from reactive_kafka.errors import ReactiveKafkaError

# Name -> bytes written; readers take 4 and 8.
INTEGERS = {"int": 8, "int64": 8, "int32": 4}
FLOATS = {"float": 8, "float64": 8, "float32": 4}
EVENTS = "cloudevents"
KEY_FORMATS = ("json", "string", "bytes", *INTEGERS, *FLOATS)
# An event is a whole record, so no key is one.
BUILT_FORMATS = (*KEY_FORMATS, EVENTS)
# Their schemas are in a registry.
REGISTERED_FORMATS = ("avro", "json-schema", "protobuf")
FORMATS = (*BUILT_FORMATS, *REGISTERED_FORMATS)
_ASYNC = "it is async, but its result is needed at once: write a plain function"


class FormatError(ReactiveKafkaError, ValueError):
    """A format is unknown, cannot be imported, or contradicts the annotation. Raised at
    start-up.
    """


def unusable(name: str) -> FormatError:
    """The error for a format that is neither built in nor ``module:function``."""
    allowed = f"allowed: {', '.join(FORMATS)} or module:function"
    if name in REGISTERED_FORMATS:
        return FormatError(
            f"the format {name!r} is for values and keys of records only, which have a schema"
        )
    close = difflib.get_close_matches(name.lower(), FORMATS, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return FormatError(f"the format {name!r} does not exist: {hint}{allowed}")


def load_object(path: str) -> Any:
    """The object at *path* (``package.module:name``, ``module:Class.name``)."""
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
    """The plain function, or other callable, at *path*."""
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
    """The strategy at *path*, which has *method*, or the class or function that
    :func:`made_strategy` calls for one.
    """
    target = load_object(path)
    if inspect.isclass(target) or hasattr(target, method):
        return target
    if not callable(target):
        expected = f"an object with a method {method}, or a class or function that makes one"
        raise FormatError(f"expected {expected}, not {type(target).__name__}")
    if _is_async(target):
        raise FormatError(_ASYNC)
    return target


def made_strategy(target: Any, method: str, settings: Any) -> Any:
    """*target*, or what it makes of the channel's settings if it is a class or function."""
    if hasattr(target, method) and not inspect.isclass(target):
        return target
    try:
        made = target(settings)
    except Exception as error:
        # User code may raise anything; start-up ends with its error.
        call = f"called with the settings of channel {settings.name!r}"
        raise FormatError(f"{call}, it raised {type(error).__name__}: {error}") from error
    if inspect.iscoroutine(made):
        # Nobody will await it.
        made.close()
        raise FormatError(_ASYNC)
    return made


def _is_async(target: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(target) or inspect.iscoroutinefunction(type(target).__call__)


def _import(module_name: str) -> Any:
    if module_name == _program() and module_name not in sys.modules:
        # A second import would create its classes a second time.
        return sys.modules["__main__"]
    try:
        return importlib.import_module(module_name)
    except Exception as error:
        # User code may raise anything; start-up ends with its error.
        why = f"{type(error).__name__}: {error}"
        if isinstance(error, ModuleNotFoundError):
            if error.name is not None and f"{module_name}.".startswith(f"{error.name}."):
                raise FormatError(f"there is no module {error.name!r}") from error
            why = str(error)
        raise FormatError(f"importing {module_name} failed: {why}") from error


def _program() -> str | None:
    """The module name of the running program (``python shop.py``, ``python -m shop``); None if it
    has none.
    """
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    file = getattr(main, "__file__", None)
    if spec is not None:
        return str(spec.name)
    return PurePath(file).stem if file else None
