"""What a handler's signature asks for, decided once.

It is read twice: when the function is decorated (the parameters, and the annotations as far as they
resolve by then), and by :meth:`HandlerDraft.to_function` at start-up, when everything that they name
exists.
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
from reactive_kafka.formats.wanted import name_of, parts_of
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
"""How the note of an exception begins that names the function of the application which has raised
it.
"""

RIGHT_FORM = (
    "a handler takes one parameter, as in `async def f(order: Order)`, `async def f(message: Message[Order])`"
    f" or `async def f(batch: Batch[Order])`; what it needs besides is a dependency, as in {EXAMPLE}"
)
_YIELDS = "yield values one by one with `async def f(order: Order): ... yield invoice` and an @app.outgoing"
_SOURCE = (
    "a function without @app.incoming is a source, which takes nothing and yields, as in"
    " `async def prices(): ... yield price`"
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
    """A handler whose parameters are right, as far as that can be seen: annotations are resolved,
    or may still name what does not exist yet."""

    function: Handler
    parameter: str
    annotation: Any
    # As for the parameter; what cannot be resolved says nothing.
    returns: Any = Any
    # Parameters -> annotations: dependencies, or still text.
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
        needs = needs_of({name: self._resolved(name, one) for name, one in self.asked.items()})
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
            # An annotation is the user's code and may raise anything; start-up stops with it.
            raise _wrong(self.function, _why_unresolved(parameter, annotation, error)) from error

    def dropped(self) -> str | None:
        """The warning that nobody sends the Records which the return annotation of the function
        promises, or None.
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
    """Check what can be checked while *function* (a bound method, a partial, a callable object) is
    decorated.

    *local_names* are those of the scope that decorates: annotations written as text find classes
      made there.

    Raises:
        ConfigError: The parameters are wrong, the annotation is never given, or it is a plain
            generator.
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
        # The record's.
        del asked[first]
    _check(function, asked)
    parameter = record_parameter(function)
    # Names that come later: to_function() tries again, and reports what is still wrong with the parameter.
    annotation = resolved(parameter.annotation, function, local_names)
    if not isinstance(annotation, str):
        _shape_of(annotation, function)
    returns = resolved(inspect.signature(function).return_annotation, function, local_names)
    return HandlerDraft(function, parameter.name, annotation, returns, asked)


def source_needs(function: Handler) -> tuple[Need, ...]:
    """What a function that only sends is called with, by name."""
    return needs_of(asked_beside(function, source_signature(function)))


def why_no_source(function: Handler) -> str | None:
    """What is wrong with a function that only sends: it is to be an async generator function
    without parameters.
    """
    problem = _why_no_function(function)
    if problem is None and not is_async_generator(function):
        problem = (
            "is a plain generator"
            if inspect.isgeneratorfunction(code_of(function))
            else "does not yield"
        )
    if problem is None:
        problem = why_not_source(function, [need.parameter for need in source_needs(function)])
    return (
        None
        if problem is None
        else f"{name_and_place(function)} has @app.outgoing and {problem}: {_SOURCE}"
    )


def local_names_at(frame: FrameType, function: Handler) -> Mapping[str, Any]:
    """The names in the scope *frame*, if *function* was written in it: elsewhere they may mean
    something else.
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
    """What the handler is called with, and the type of its payload."""
    asked = (
        typing.get_args(annotation)[0] if typing.get_origin(annotation) is Annotated else annotation
    )
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
    """Refuse messages inside of other types: nobody fills a ``list[Message[Order]]``."""
    for part in parts_of(annotation):
        kind = typing.get_origin(part) or part
        if kind in (Message, Batch):
            raise _wrong(function, f"asks for {name_of(whole)}, which is never given: {RIGHT_FORM}")
        if kind is Record:
            raise _wrong(
                function, f"asks for {name_of(whole)}, but a Record is what is sent: {RIGHT_FORM}"
            )


def name_of_handler(function: Any) -> str:
    """Module and qualified name, for logs and errors."""
    owner = function if inspect.isclass(function) or not callable(function) else owner_of(function)
    name = getattr(owner, "__qualname__", None)
    return repr(owner) if name is None else f"{getattr(owner, '__module__', None) or '?'}.{name}"


def name_and_place(function: Any) -> str:
    """Its name, and ``(file:line)`` where there is a source, for errors."""
    code = getattr(owner_of(function), "__code__", None) if callable(function) else None
    return f"{name_of_handler(function)}{f' ({code.co_filename}:{code.co_firstlineno})' if code is not None else ''}"


def _wrong(function: Any, problem: str) -> ConfigError:
    return ConfigError(f"handler {name_and_place(function)} {problem}")


def _why_unresolved(parameter: str, annotation: Any, error: Exception) -> str:
    text = annotation if isinstance(annotation, str) else name_of(annotation)
    why = f"{type(error).__name__}: {error}"
    if isinstance(error, NameError):
        why = (
            f"there is no {error.name or str(error)!r} in its module when the app starts (imported only under "
            "TYPE_CHECKING, or made inside a function? import it, or move it to the module)"
        )
    return f"has the annotation {text!r} at {parameter!r}, which cannot be resolved: {why}"
