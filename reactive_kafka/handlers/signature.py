"""What a handler's signature asks for, decided once.

It is read twice: when the function is decorated (the parameters, and the annotations as far as they resolve by then),
and by :meth:`HandlerDraft.spec` at start-up, when everything that they name exists.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import FrameType
from typing import Annotated, Any

from reactive_kafka.errors import ConfigError
from reactive_kafka.formats.wanted import name_of, parts_of
from reactive_kafka.handlers.functions import code_of, is_async_generator, is_coroutine, owner_of, resolve, resolved
from reactive_kafka.records import Record
from reactive_kafka.verdicts.message import Batch, Message

Handler = Callable[..., Any]

RIGHT_FORM = (
    "a handler takes one parameter, as in `async def f(order: Order)`, `async def f(message: Message[Order])`"
    " or `async def f(batch: Batch[Order])`"
)
_YIELDS = "yield values one by one with `async def f(order: Order): ... yield invoice` and an @app.outgoing"
_SOURCE = (
    "a function without @app.incoming is a source, which takes nothing and yields, as in"
    " `async def prices(): ... yield price`"
)
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_REST = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_EMPTY = inspect.Parameter.empty


class Shape(Enum):
    """What a handler is called with."""

    PAYLOAD = "payload"
    MESSAGE = "message"
    BATCH = "batch"


@dataclass(frozen=True, slots=True)
class HandlerSpec:
    """How a handler is called, and with what."""

    function: Handler
    name: str  # module and qualified name, for logs and errors
    shape: Shape
    payload_type: Any  # that a value is decoded into; Any if the handler does not say
    # It is called on the loop, and returns an awaitable. Others run in a worker thread; if a plain wrapper stands
    # around an async function, that call may return an awaitable all the same, which is awaited on the loop.
    is_async: bool
    yields: bool = False  # its call, on the loop too, returns an async generator instead, whose values are sent
    returns: Any = Any  # as annotated; Any if that says nothing


@dataclass(frozen=True, slots=True)
class HandlerDraft:
    """A handler whose one parameter is right; its annotation is resolved, or may still name what does not exist yet."""

    function: Handler
    parameter: str
    annotation: Any
    returns: Any = Any  # as for the parameter; what cannot be resolved says nothing

    def spec(self, sends: bool = False) -> HandlerSpec:
        """How the handler is called, or a ConfigError; *sends*: the function also has an ``@app.outgoing``."""
        yields = is_async_generator(self.function)
        if yields and not sends:
            why = "has no @app.outgoing that would send what it yields: return instead"
            raise _wrong(self.function, f"yields, and {why}")
        try:
            annotation = resolve(self.annotation, self.function)
        except Exception as error:  # an annotation is the user's code and may raise anything; start-up stops with it
            raise _wrong(self.function, _why_unresolved(self, error)) from error
        is_async = yields or is_coroutine(self.function)
        name = name_of_handler(self.function)
        returns = resolved(self.returns, self.function)
        return HandlerSpec(self.function, name, *_shape_of(annotation, self.function), is_async, yields, returns)

    def dropped(self) -> str | None:
        """The warning that nobody sends the Records which the return annotation of the function promises, or None."""
        annotation = resolved(self.returns, self.function)
        kinds = (typing.get_origin(part) or part for part in parts_of(annotation))
        if not any(isinstance(kind, type) and issubclass(kind, Record) for kind in kinds):
            return None
        why = f"returns {name_of(annotation)} and has no @app.outgoing: what it returns is dropped"
        return f"handler {name_and_place(self.function)} {why}"


def draft_handler(function: Handler, *, local_names: Mapping[str, Any] | None = None) -> HandlerDraft:
    """Check what can be checked while *function* (a bound method, a partial, a callable object) is decorated.

    *local_names* are those of the scope that decorates: annotations written as text find classes made there.

    Raises:
        ConfigError: The parameters are wrong, the annotation is never given, or it is a plain generator.
    """
    if problem := _why_no_function(function):
        raise _wrong(function, f"{problem}: {RIGHT_FORM}")
    if inspect.isgeneratorfunction(code_of(function)):
        raise _wrong(function, f"is a plain generator: return one value, or {_YIELDS}")
    parameter = _parameter_of(function)
    # Names that come later: spec() tries again, and reports what is still wrong with the parameter.
    annotation = resolved(parameter.annotation, function, local_names)
    if not isinstance(annotation, str):
        _shape_of(annotation, function)
    returns = resolved(inspect.signature(function).return_annotation, function, local_names)
    return HandlerDraft(function, parameter.name, annotation, returns)


def why_no_source(function: Handler) -> str | None:
    """What is wrong with a function that only sends: it is to be an async generator function without parameters."""
    problem = _why_no_function(function)
    if problem is None and not is_async_generator(function):
        problem = "is a plain generator" if inspect.isgeneratorfunction(code_of(function)) else "does not yield"
    if problem is None:
        problem = _why_not_without(function)
    return None if problem is None else f"{name_and_place(function)} has @app.outgoing and {problem}: {_SOURCE}"


def local_names_at(frame: FrameType, function: Handler) -> Mapping[str, Any]:
    """The names in the scope *frame*, if *function* was written in it: elsewhere they may mean something else."""
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


def _parameter_of(function: Handler) -> inspect.Parameter:
    """The one parameter that a call fills; where a wrapper's has no annotation, with the inner function's."""
    try:
        inner = inspect.signature(function)
        outer = inspect.signature(function, follow_wrapped=False)
    except (ValueError, TypeError) as error:
        raise _wrong(function, f"has no signature that can be read ({error}): {RIGHT_FORM}") from error
    # A wrapper that names its parameter decides what may be passed; one of (*args, **kwargs) passes all on.
    called = outer if positional_of(outer) else inner
    problem = _why_not_one(called)
    if problem is None and called is outer:  # a wrapper that passes all on may fill what it wraps
        problem = _why_unfilled(called, function)
    if problem:
        raise _wrong(function, f"{problem}: {RIGHT_FORM}")
    parameter = positional_of(called)[0]
    if parameter.annotation is _EMPTY and positional_of(inner):
        parameter = parameter.replace(annotation=positional_of(inner)[0].annotation)
    return parameter


def _why_not_one(signature: inspect.Signature) -> str | None:
    """Why a call with one positional argument cannot work, or None."""
    parameters = signature.parameters.values()
    positional = positional_of(signature)
    required = [parameter for parameter in positional if parameter.default is _EMPTY]
    named = [it.name for it in parameters if it.kind is inspect.Parameter.KEYWORD_ONLY and it.default is _EMPTY]
    if named:
        return f"needs the keyword argument{'s' * (len(named) > 1)} {', '.join(named)}, which nobody gives"
    if len(required) > 1:
        bound = _unbound(required, "app.incoming('orders')(billing.handle)")
        return f"takes {len(required)} parameters ({', '.join(it.name for it in required)}){bound}"
    if positional:
        return None
    if any(it.kind is inspect.Parameter.VAR_POSITIONAL for it in parameters):
        return "takes only *args, which does not say what it wants"
    if any(it.kind is inspect.Parameter.KEYWORD_ONLY for it in parameters):
        return "takes keyword arguments only"
    return "takes no parameter"


def _why_unfilled(signature: inspect.Signature, function: Handler) -> str | None:
    """Why parameters that a call leaves at their defaults are a mistake, or None: there are none."""
    bound: set[str] = set()
    while isinstance(function, functools.partial):
        bound.update(function.keywords)
        function = function.func
    first, *others = [it for it in signature.parameters.values() if it.kind not in _REST]
    if names := [it.name for it in others if it.name not in bound]:
        several = len(names) > 1
        why = f"which nothing fills: {'their defaults are' if several else 'its default is'} all that a call would have"
        return f"has the parameter{'s' * several} {', '.join(names)} beside {first.name}, {why}"
    return None


def _why_not_without(function: Handler) -> str | None:
    """Why a call without an argument cannot work, or None."""
    signature = inspect.signature(function, follow_wrapped=False)
    if signature.parameters and all(it.kind in _REST for it in signature.parameters.values()):
        signature = inspect.signature(function)  # of a wrapper that passes all on
    required = [it for it in signature.parameters.values() if it.default is _EMPTY and it.kind not in _REST]
    if not required:
        return None
    bound = _unbound(required, "app.outgoing('prices')(market.prices)")
    return f"needs the argument{'s' * (len(required) > 1)} {', '.join(it.name for it in required)}{bound}"


def _unbound(required: Sequence[inspect.Parameter], right: str) -> str:
    """How to decorate a method, where these are the parameters of one without its instance."""
    is_method = required[0].name in ("self", "cls")
    return f" (a method is decorated on its instance: `{right}`)" if is_method else ""


def positional_of(signature: inspect.Signature) -> list[inspect.Parameter]:
    """The parameters that take an argument by its place; ``*arguments`` does not count."""
    return [parameter for parameter in signature.parameters.values() if parameter.kind in _POSITIONAL]


def _shape_of(annotation: Any, function: Handler) -> tuple[Shape, Any]:
    """What the handler is called with, and the type of its payload."""
    asked = typing.get_args(annotation)[0] if typing.get_origin(annotation) is Annotated else annotation
    origin, arguments = typing.get_origin(asked) or asked, typing.get_args(asked)
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
            raise _wrong(function, f"asks for {name_of(whole)}, but a Record is what is sent: {RIGHT_FORM}")


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


def _why_unresolved(draft: HandlerDraft, error: Exception) -> str:
    text = draft.annotation if isinstance(draft.annotation, str) else name_of(draft.annotation)
    why = f"{type(error).__name__}: {error}"
    if isinstance(error, NameError):
        why = (
            f"there is no {error.name or str(error)!r} in its module when the app starts (imported only under "
            "TYPE_CHECKING, or made inside a function? import it, or move it to the module)"
        )
    return f"has the annotation {text!r} at {draft.parameter!r}, which cannot be resolved: {why}"
