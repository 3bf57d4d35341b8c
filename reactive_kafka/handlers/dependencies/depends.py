"""``Depends``, which users write in annotations, and how it is found there. No I/O."""

from __future__ import annotations

import typing
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from reactive_kafka.errors import ConfigError

Factory = Callable[..., Any]
Scope = Literal["call", "app"]

SCOPES: tuple[Scope, ...] = ("call", "app")
EXAMPLE = "`pool: Annotated[Pool, Depends(make_pool)]`"


@dataclass(frozen=True, slots=True)
class Depends:
    """``Annotated[T, Depends(factory)]`` at a parameter: it gets what *factory* makes.

    Args:
        factory: A class, or a function that returns the value or yields it once. What follows the
            ``yield`` runs when the scope ends. A function that is not async runs in a thread. The
            parameters of a factory may be dependencies, too.
        scope: ``"call"``: the value is made for each call of a handler, and ended when the call
            returns or raises. ``"app"``: it is made at the start of the application, and ended
            after all handlers.

    Raises:
        ConfigError: *factory* cannot be called or hashed, or there is no such scope.
    """

    factory: Factory
    scope: Scope = field(default="call", kw_only=True)

    def __post_init__(self) -> None:
        if not callable(self.factory):
            raise ConfigError(
                f"Depends({self.factory!r}): expected a function or a class, which makes the value"
            )
        if self.scope not in SCOPES:
            raise ConfigError(
                f"Depends(scope={self.scope!r}): allowed are {', '.join(map(repr, SCOPES))}"
            )
        try:
            hash(self.factory)
        except TypeError as error:
            raise ConfigError(
                f"Depends({self.factory!r}): {error}, and it is made once a scope"
            ) from None


@dataclass(frozen=True, slots=True)
class Need:
    """A parameter that a dependency fills."""

    parameter: str
    depends: Depends


def depends_in(annotation: Any) -> Depends | None:
    """Return the ``Depends`` of a resolved annotation, or None. Of several the last one counts."""
    # ``type X = ...`` of Python 3.12 has to be unpacked.
    while type(annotation).__name__ == "TypeAliasType":
        annotation = annotation.__value__
    if typing.get_origin(annotation) is not Annotated:
        return None
    found = [entry for entry in annotation.__metadata__ if isinstance(entry, Depends)]
    return found[-1] if found else None
