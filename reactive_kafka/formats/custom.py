"""What is configured as ``module:object``: formats, strategies, ordering keys of the user's, imported at start-up."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any

from reactive_kafka.errors import EncodeError
from reactive_kafka.formats.names import FormatError


def load_object(path: str) -> Any:
    """What *path* (``package.module:name``, ``module:Class.name``) names.

    Raises:
        FormatError: It cannot be imported, or is not there.
    """
    module_name, _, attributes = path.partition(":")
    if not all(part.isidentifier() for part in [*module_name.split("."), *attributes.split(".")]):
        raise FormatError(f"{path!r} is not of the form package.module:function")
    target: Any = _import(path, module_name)
    for attribute in attributes.split("."):
        if not hasattr(target, attribute):
            raise FormatError(f"{path!r}: {module_name} has no {attributes!r}")
        target = getattr(target, attribute)
    return target


def load_function(path: str) -> Callable[[Any], Any]:
    """The callable that *path* names.

    Raises:
        FormatError: It cannot be imported, is not there, cannot be called, or is async.
    """
    target = load_object(path)
    if not callable(target):
        raise FormatError(f"{path!r} cannot be called: it is of type {type(target).__name__}")
    if inspect.iscoroutinefunction(target):
        raise FormatError(f"{path!r} is async, and its answer is needed at once: write a plain function")
    function: Callable[[Any], Any] = target
    return function


def _import(path: str, module_name: str) -> Any:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module_name}.".startswith(f"{error.name}."):
            raise FormatError(f"{path!r}: there is no module {error.name!r}") from error
        raise FormatError(f"{path!r}: importing {module_name} failed: {error}") from error
    except Exception as error:  # the module is the user's and may raise anything; start-up stops with its error
        raise FormatError(f"{path!r}: importing {module_name} failed: {type(error).__name__}: {error}") from error


def function_writer(path: str) -> Callable[[object], bytes | None]:
    """A writer that calls the user's function for every value but None; it raises EncodeError only."""
    function = load_function(path)

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
