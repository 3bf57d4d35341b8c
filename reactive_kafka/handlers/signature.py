"""Reads the signature of a handler, and refuses functions that cannot be one. No I/O.

A signature is read twice. When the function is decorated, :func:`draft_handler` reads its
parameters, and the annotations that can be resolved by then. At start-up, when everything that
annotations name exists, :meth:`HandlerDraft.to_function` resolves the others.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import FrameType
from typing import Annotated, Any

from reactive_kafka.errors import ConfigError
from reactive_kafka.formats.payload_type import name_of, parts_of
from reactive_kafka.handlers.dependencies.depends import EXAMPLE, Need
from reactive_kafka.handlers.introspection import (
    code_of,
    is_async_generator,
    is_coroutine,
    owner_of,
    resolve,
    resolved,
)
from reactive_kafka.handlers.parameters import (
    asked_beside,
    called_of,
    needs_of,
    record_parameter,
    source_signature,
    why_not_handler,
    why_not_source,
)
from reactive_kafka.records import Record
from reactive_kafka.verdicts.batch import Batch
from reactive_kafka.verdicts.message import Message

Handler = Callable[..., Any]

RAISED_BY = "raised by the "
"""Begins the note of an exception that names the function of the application which raised it."""

RIGHT_FORM = (
    "a handler takes one parameter, as in `async def f(order: Order)`, "
    "`async def f(message: Message[Order])` or `async def f(batch: Batch[Order])`; "
    f"what it needs besides is a dependency, as in {EXAMPLE}"
)
_YIELDS = (
    "yield values one by one with `async def f(order: Order): ... yield invoice` "
    "and an @app.outgoing"
)
_SOURCE = (
    "a function without @app.incoming is a source, which takes nothing and yields, as in "
    "`async def prices(): ... yield price`"
)


class Shape(Enum):
    """What a handler is called with."""

    PAYLOAD = "payload"
    MESSAGE = "message"
    BATCH = "batch"


@dataclass(frozen=True, slots=True)
class HandlerFunction:
    """A handler, and what its signature says about how it is called."""

    function: Handler
    # Module and qualified name, for logs and errors.
    name: str
    # What it is called with.
    shape: Shape
    # The type that a value is decoded into. Any: the annotation names none.
    payload_type: Any
    # True: it is called on the loop, and returns an awaitable. False: it runs in a worker thread.
    # A plain wrapper around an async function is called in a thread, too. The awaitable that it
    # returns is awaited on the loop.
    is_async: bool
    # Its call returns an async generator, on the loop, whose values are sent.
    yields: bool = False
    # What it returns, as annotated. Any: it has no annotation that can be read.
    returns: Any = Any
    # The parameters that dependencies fill. They are given by name.
    needs: tuple[Need, ...] = ()


@dataclass(frozen=True, slots=True)
class HandlerDraft:
    """A decorated handler. Its annotations may still name what does not exist yet."""

    function: Handler
    # The parameter that gets the record, and its annotation.
    parameter: str
    annotation: Any
    returns: Any = Any
    # Parameter -> annotation, for those that a dependency fills, or whose annotation is still text.
    asked: Mapping[str, Any] = field(default_factory=dict)

    def to_function(self, sends: bool = False) -> HandlerFunction:
        """Resolve the annotations that are left, and return how the handler is called.

        Args:
            sends: The function has an ``@app.outgoing``, too.

        Raises:
            ConfigError: The signature is not one of a handler.
        """
        yields = is_async_generator(self.function)
        if yields and not sends:
            why = "has no @app.outgoing that would send what it yields: return instead"
            raise _wrong(self.function, f"yields, and {why}")
        annotation = self._resolved(self.parameter, self.annotation)
        needs = needs_of(
            {name: self._resolved(name, annotation) for name, annotation in self.asked.items()}
        )
        _check(self.function, [need.parameter for need in needs])
        shape, payload_type = _shape_of(annotation, self.function)
        return HandlerFunction(
            self.function,
            name_of_handler(self.function),
            shape,
            payload_type,
            is_async=yields or is_coroutine(self.function),
            yields=yields,
            returns=resolved(self.returns, self.function),
            needs=needs,
        )

    def _resolved(self, parameter: str, annotation: Any) -> Any:
        try:
            return resolve(annotation, self.function)
        except Exception as error:
            # An annotation is the user's code, which may raise anything. It ends the start.
            raise _wrong(self.function, _why_unresolved(parameter, annotation, error)) from error

    def dropped(self) -> str | None:
        """Return the warning that the Records which the function returns are not sent, or None.

        It is for functions without an ``@app.outgoing`` whose return annotation promises Records.
        """
        annotation = resolved(self.returns, self.function)
        kinds = (typing.get_origin(part) or part for part in parts_of(annotation))
        if not any(isinstance(kind, type) and issubclass(kind, Record) for kind in kinds):
            return None
        why = f"returns {name_of(annotation)} and has no @app.outgoing: what it returns is dropped"
        return f"handler {name_and_place(self.function)} {why}"


def draft_handler(
    function: Handler, *, local_names: Mapping[str, Any] | None = None
) -> HandlerDraft:
    """Read the signature of a function that is decorated, and check what can be checked by now.

    Args:
        function: A function, a bound method, a partial or a callable object.
        local_names: The names of the scope that decorates it. Annotations that are text find the
            classes made there.

    Raises:
        ConfigError: The parameters are wrong, the annotation names what no handler is given, or the
            function is a plain generator.
    """
    if problem := _why_no_function(function):
        raise _wrong(function, f"{problem}: {RIGHT_FORM}")
    if inspect.isgeneratorfunction(code_of(function)):
        raise _wrong(function, f"is a plain generator: return one value, or {_YIELDS}")
    try:
        called = called_of(function)
    except (ValueError, TypeError) as error:
        raise _wrong(
            function, f"has no signature that can be read ({error}): {RIGHT_FORM}"
        ) from error
    asked = asked_beside(function, called, local_names)
    first = next(iter(called.parameters), "")
    if isinstance(asked.get(first), str):
        # This is the parameter of the record: only its annotation is still text.
        del asked[first]
    _check(function, asked)
    parameter = record_parameter(function)
    # It may name a class that is defined later. to_function() tries again, and reports what is
    # still wrong.
    annotation = resolved(parameter.annotation, function, local_names)
    if not isinstance(annotation, str):
        _shape_of(annotation, function)
    returns = resolved(inspect.signature(function).return_annotation, function, local_names)
    return HandlerDraft(function, parameter.name, annotation, returns, asked)


def source_needs(function: Handler) -> tuple[Need, ...]:
    """Return the parameters of a source that dependencies fill."""
    return needs_of(asked_beside(function, source_signature(function)))


def why_no_source(function: Handler) -> str | None:
    """Return why a function that only sends is no source, or None if it is one.

    A source is an async generator function without parameters.
    """
    problem = _why_no_function(function)
    if problem is None and not is_async_generator(function):
        is_plain = inspect.isgeneratorfunction(code_of(function))
        problem = "is a plain generator" if is_plain else "does not yield"
    if problem is None:
        problem = why_not_source(function, [need.parameter for need in source_needs(function)])
    if problem is None:
        return None
    return f"{name_and_place(function)} has @app.outgoing and {problem}: {_SOURCE}"


def local_names_at(frame: FrameType, function: Handler) -> Mapping[str, Any]:
    """Return the names in the scope *frame*, if *function* was written in it.

    For a function from elsewhere the names may mean something else, and none are returned.
    """
    owner = owner_of(function) if callable(function) and not inspect.isclass(function) else None
    code = getattr(owner, "__code__", None)
    if code is None or code.co_filename != frame.f_code.co_filename:
        return {}
    around = code.co_qualname.rpartition(".")[0].removesuffix(".<locals>")
    return dict(frame.f_locals) if around == frame.f_code.co_qualname else {}


def _why_no_function(function: Any) -> str | None:
    if inspect.isclass(function):
        return "is a class, not a function"
    return None if callable(function) else f"is of type {type(function).__name__}"


def _check(function: Handler, filled: Collection[str]) -> None:
    if problem := why_not_handler(function, called_of(function), filled):
        raise _wrong(function, f"{problem}: {RIGHT_FORM}")


def _shape_of(annotation: Any, function: Handler) -> tuple[Shape, Any]:
    """Return what the handler is called with, and the type of its payload."""
    asked = annotation
    if typing.get_origin(annotation) is Annotated:
        asked = typing.get_args(annotation)[0]
    origin = typing.get_origin(asked) or asked
    arguments = typing.get_args(asked)
    shapes = {Message: Shape.MESSAGE, Batch: Shape.BATCH}
    if isinstance(origin, type) and origin in shapes:
        payload_type = arguments[0] if arguments else Any
        _refuse_our_own(payload_type, asked, function)
        return shapes[origin], Any if isinstance(payload_type, typing.TypeVar) else payload_type
    _refuse_our_own(annotation, annotation, function)
    return Shape.PAYLOAD, annotation


def _refuse_our_own(annotation: Any, whole: Any, function: Handler) -> None:
    """Refuse messages inside other types, as in ``list[Message[Order]]``: none is ever given."""
    for part in parts_of(annotation):
        kind = typing.get_origin(part) or part
        if kind in (Message, Batch):
            raise _wrong(function, f"asks for {name_of(whole)}, which is never given: {RIGHT_FORM}")
        if kind is Record:
            raise _wrong(
                function, f"asks for {name_of(whole)}, but a Record is what is sent: {RIGHT_FORM}"
            )


def name_of_handler(function: Any) -> str:
    """Return the module and qualified name of a function, for logs and errors."""
    owner = function
    if callable(function) and not inspect.isclass(function):
        owner = owner_of(function)
    name = getattr(owner, "__qualname__", None)
    if name is None:
        return repr(owner)
    return f"{getattr(owner, '__module__', None) or '?'}.{name}"


def name_and_place(function: Any) -> str:
    """Return the name of a function with ``(file:line)``, if it has a source, for errors."""
    name = name_of_handler(function)
    code = getattr(owner_of(function), "__code__", None) if callable(function) else None
    if code is None:
        return name
    return f"{name} ({code.co_filename}:{code.co_firstlineno})"


def _wrong(function: Any, problem: str) -> ConfigError:
    return ConfigError(f"handler {name_and_place(function)} {problem}")


def _why_unresolved(parameter: str, annotation: Any, error: Exception) -> str:
    text = annotation if isinstance(annotation, str) else name_of(annotation)
    why = f"{type(error).__name__}: {error}"
    if isinstance(error, NameError):
        why = (
            f"there is no {error.name or str(error)!r} in its module when the app starts "
            "(imported only under TYPE_CHECKING, or made inside a function? import it, or move it "
            "to the module)"
        )
    return f"has the annotation {text!r} at {parameter!r}, which cannot be resolved: {why}"
