"""The parameters of handlers and sources: which of them a call fills, and what is wrong with the
others. No I/O.
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
"""Kinds of parameters that take whatever is left."""
_EMPTY = inspect.Parameter.empty


def positional_of(signature: inspect.Signature) -> list[inspect.Parameter]:
    """The parameters that take an argument by its place; ``*arguments`` does not count."""
    return [
        parameter for parameter in signature.parameters.values() if parameter.kind in _POSITIONAL
    ]


def bound_by_name(function: Function) -> set[str]:
    """The parameters that partials have filled by name."""
    bound = set[str]()
    while isinstance(function, functools.partial):
        bound.update(function.keywords)
        function = function.func
    return bound


def called_of(function: Function) -> inspect.Signature:
    """What may be passed to a handler: a wrapper that names its parameter decides; one of (*args)
    passes all on.

    Raises:
        ValueError, TypeError: It cannot be read.
    """
    outer = inspect.signature(function, follow_wrapped=False)
    return outer if positional_of(outer) else inspect.signature(function)


def record_parameter(function: Function) -> inspect.Parameter:
    """The parameter of a handler that gets the record; where a wrapper's has no annotation, with
    the inner one's.
    """
    parameter = positional_of(called_of(function))[0]
    inner = positional_of(inspect.signature(function))
    if parameter.annotation is _EMPTY and inner:
        return parameter.replace(annotation=inner[0].annotation)
    return parameter


def asked_beside(
    function: Function, signature: inspect.Signature, local_names: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Parameters that a dependency fills -> their annotations; or may fill, where these name what
    is still to come.
    """
    bound = bound_by_name(function)
    found = {
        one.name: resolved(one.annotation, function, local_names)
        for one in signature.parameters.values()
        if one.kind not in REST and one.name not in bound
    }
    return {
        name: it for name, it in found.items() if isinstance(it, str) or depends_in(it) is not None
    }


def needs_of(asked: Mapping[str, Any]) -> tuple[Need, ...]:
    """What fills which parameter, of those that :func:`asked_beside` has found."""
    found = ((name, depends_in(annotation)) for name, annotation in asked.items())
    return tuple(Need(name, depends) for name, depends in found if depends is not None)


def why_not_handler(
    function: Function, signature: inspect.Signature, filled: Collection[str]
) -> str | None:
    """Why a call with one positional argument, and with *filled* by name, cannot work or is a
    mistake; or None.
    """
    first = positional_of(signature)[:1]
    if first and first[0].name in filled:
        return f"has the dependency {first[0].name} where the record comes: first the record, then what it needs"
    parameters = [it for it in signature.parameters.values() if it.name not in filled]
    problem = _defaulted(parameters) or _why_not_one(parameters)
    if problem is None and signature == inspect.signature(function, follow_wrapped=False):
        # A wrapper that passes all on may fill what it wraps.
        problem = _why_unfilled(parameters, function)
    if problem is None and filled:
        problem = _why_not_by_name(function, filled)
    return problem


def why_not_source(function: Function, filled: Collection[str]) -> str | None:
    """Why a call without an argument, but with *filled* by name, cannot work, or None."""
    parameters = [
        it for it in source_signature(function).parameters.values() if it.name not in filled
    ]
    if problem := _defaulted(parameters):
        return problem
    required = [it for it in parameters if it.default is _EMPTY and it.kind not in REST]
    if not required:
        return None
    bound = _unbound(required, "app.outgoing('prices')(market.prices)")
    return f"needs the argument{'s' * (len(required) > 1)} {', '.join(it.name for it in required)}{bound}"


def source_signature(function: Function) -> inspect.Signature:
    """What may be passed to a source."""
    signature = inspect.signature(function, follow_wrapped=False)
    if signature.parameters and all(it.kind in REST for it in signature.parameters.values()):
        # Of a wrapper that passes all on.
        return inspect.signature(function)
    return signature


def _why_not_one(parameters: Sequence[inspect.Parameter]) -> str | None:
    positional = [it for it in parameters if it.kind in _POSITIONAL]
    required = [parameter for parameter in positional if parameter.default is _EMPTY]
    named = [
        it.name
        for it in parameters
        if it.kind is inspect.Parameter.KEYWORD_ONLY and it.default is _EMPTY
    ]
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


def _why_unfilled(parameters: Sequence[inspect.Parameter], function: Function) -> str | None:
    """Why parameters that a call leaves at their defaults are a mistake, or None: there are
    none.
    """
    bound = bound_by_name(function)
    first, *others = [it for it in parameters if it.kind not in REST]
    if names := [it.name for it in others if it.name not in bound]:
        several = len(names) > 1
        why = f"which nothing fills: {'their defaults are' if several else 'its default is'} all that a call would have"
        return f"has the parameter{'s' * several} {', '.join(names)} beside {first.name}, {why}"
    return None


def _why_not_by_name(function: Function, filled: Collection[str]) -> str | None:
    try:
        inspect.signature(function, follow_wrapped=False).bind(None, **dict.fromkeys(filled))
    except TypeError as error:
        return f"cannot be called with a record, and {', '.join(filled)} by name: {error}"
    return None


def _defaulted(parameters: Sequence[inspect.Parameter]) -> str | None:
    """What is wrong with a dependency that is given as a default."""
    for one in parameters:
        if isinstance(one.default, Depends):
            return f"has Depends(...) as the default of {one.name}: annotate it, as in {EXAMPLE}"
    return None


def _unbound(required: Sequence[inspect.Parameter], right: str) -> str:
    """How to decorate a method, where these are the parameters of one without its instance."""
    is_method = required[0].name in ("self", "cls")
    return f" (a method is decorated on its instance: `{right}`)" if is_method else ""
