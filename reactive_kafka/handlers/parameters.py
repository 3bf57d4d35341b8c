"""The parameters of handlers and sources: which of them a call fills, and why others are wrong.

No I/O.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from reactive_kafka.handlers.dependencies.depends import EXAMPLE, Depends, Need, depends_in
from reactive_kafka.handlers.introspection import resolved

Function = Callable[..., Any]

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
REST = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
"""The kinds ``*args`` and ``**kwargs``."""
_EMPTY = inspect.Parameter.empty


def positional_of(signature: inspect.Signature) -> list[inspect.Parameter]:
    """Return the parameters that take an argument by its place, without ``*args``."""
    return [
        parameter for parameter in signature.parameters.values() if parameter.kind in _POSITIONAL
    ]


def bound_by_name(function: Function) -> set[str]:
    """Return the parameters that partials have filled by name."""
    bound = set[str]()
    while isinstance(function, functools.partial):
        bound.update(function.keywords)
        function = function.func
    return bound


def called_of(function: Function) -> inspect.Signature:
    """Return the signature by which a handler is called.

    That of a wrapper counts if it names a parameter. A wrapper with only ``*args`` passes
    everything on, so that of the wrapped function counts.

    Raises:
        ValueError, TypeError: The signature cannot be read.
    """
    outer = inspect.signature(function, follow_wrapped=False)
    return outer if positional_of(outer) else inspect.signature(function)


def record_parameter(function: Function) -> inspect.Parameter:
    """Return the parameter of a handler that gets the record.

    If it belongs to a wrapper and has no annotation, it gets that of the wrapped function.
    """
    parameter = positional_of(called_of(function))[0]
    inner = positional_of(inspect.signature(function))
    if parameter.annotation is _EMPTY and inner:
        return parameter.replace(annotation=inner[0].annotation)
    return parameter


def asked_beside(
    function: Function, signature: inspect.Signature, local_names: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the parameters that a dependency fills -> their annotations.

    An annotation that is still text may name a dependency that is defined later, so its parameter
    is among them.
    """
    bound = bound_by_name(function)
    annotations = {
        parameter.name: resolved(parameter.annotation, function, local_names)
        for parameter in signature.parameters.values()
        if parameter.kind not in REST and parameter.name not in bound
    }
    return {
        name: annotation
        for name, annotation in annotations.items()
        if isinstance(annotation, str) or depends_in(annotation) is not None
    }


def needs_of(asked: Mapping[str, Any]) -> tuple[Need, ...]:
    """Return which dependency fills which of the parameters that :func:`asked_beside` has found."""
    found = ((name, depends_in(annotation)) for name, annotation in asked.items())
    return tuple(Need(name, depends) for name, depends in found if depends is not None)


def why_not_handler(
    function: Function, signature: inspect.Signature, filled: Collection[str]
) -> str | None:
    """Return why a function is no handler, or None if it is one.

    A handler is called with one positional argument, the record.

    Args:
        filled: The parameters that dependencies fill, by name.
    """
    first = positional_of(signature)[:1]
    if first and first[0].name in filled:
        return (
            f"has the dependency {first[0].name} where the record comes: first the record, then "
            "what it needs"
        )
    parameters = [each for each in signature.parameters.values() if each.name not in filled]
    problem = _defaulted(parameters) or _why_not_one(parameters)
    if problem is None and signature == inspect.signature(function, follow_wrapped=False):
        # A wrapper that passes everything on is not judged: it may fill parameters itself.
        problem = _why_unfilled(parameters, function)
    if problem is None and filled:
        problem = _why_not_by_name(function, filled)
    return problem


def why_not_source(function: Function, filled: Collection[str]) -> str | None:
    """Return why a function cannot be called as a source, or None if it can.

    A source is called without an argument, but dependencies fill the parameters *filled*.
    """
    signature = source_signature(function)
    parameters = [each for each in signature.parameters.values() if each.name not in filled]
    if problem := _defaulted(parameters):
        return problem
    required = [each for each in parameters if each.default is _EMPTY and each.kind not in REST]
    if not required:
        return None
    arguments = "arguments" if len(required) > 1 else "argument"
    names = ", ".join(parameter.name for parameter in required)
    hint = _method_hint(required, "app.outgoing('prices')(market.prices)")
    return f"needs the {arguments} {names}{hint}"


def source_signature(function: Function) -> inspect.Signature:
    """Return the signature by which a source is called."""
    signature = inspect.signature(function, follow_wrapped=False)
    parameters = signature.parameters.values()
    if parameters and all(parameter.kind in REST for parameter in parameters):
        # A wrapper that passes everything on: the wrapped function decides.
        return inspect.signature(function)
    return signature


def _why_not_one(parameters: Sequence[inspect.Parameter]) -> str | None:
    """Return why exactly one positional argument cannot be passed, or None if it can."""
    positional = [each for each in parameters if each.kind in _POSITIONAL]
    required = [each for each in positional if each.default is _EMPTY]
    keyword_only = [each for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY]
    named = [each.name for each in keyword_only if each.default is _EMPTY]
    if named:
        arguments = "arguments" if len(named) > 1 else "argument"
        return f"needs the keyword {arguments} {', '.join(named)}, which nothing fills"
    if len(required) > 1:
        names = ", ".join(parameter.name for parameter in required)
        hint = _method_hint(required, "app.incoming('orders')(billing.handle)")
        return f"takes {len(required)} parameters ({names}){hint}"
    if positional:
        return None
    if any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in parameters):
        return "takes only *args, which does not say what it wants"
    if keyword_only:
        return "takes keyword arguments only"
    return "takes no parameter"


def _why_unfilled(parameters: Sequence[inspect.Parameter], function: Function) -> str | None:
    """Return why parameters that each call leaves at their defaults are a mistake.

    None: there are no such parameters.
    """
    bound = bound_by_name(function)
    first, *others = [each for each in parameters if each.kind not in REST]
    names = [each.name for each in others if each.name not in bound]
    if not names:
        return None
    named = ", ".join(names)
    if len(names) > 1:
        return (
            f"has the parameters {named} after {first.name}, which nothing fills: their defaults "
            "are all that a call would have"
        )
    return (
        f"has the parameter {named} after {first.name}, which nothing fills: its default is all "
        "that a call would have"
    )


def _why_not_by_name(function: Function, filled: Collection[str]) -> str | None:
    try:
        inspect.signature(function, follow_wrapped=False).bind(None, **dict.fromkeys(filled))
    except TypeError as error:
        return f"cannot be called with a record, and {', '.join(filled)} by name: {error}"
    return None


def _defaulted(parameters: Sequence[inspect.Parameter]) -> str | None:
    """Return what is wrong with a dependency that is given as a default, or None."""
    for parameter in parameters:
        if isinstance(parameter.default, Depends):
            return (
                f"has Depends(...) as the default of {parameter.name}: annotate it, as in {EXAMPLE}"
            )
    return None


def _method_hint(required: Sequence[inspect.Parameter], right_form: str) -> str:
    """Return how a method is decorated, if these are the parameters of an unbound one."""
    if required[0].name not in ("self", "cls"):
        return ""
    return f" (a method is decorated on its instance: `{right_form}`)"
