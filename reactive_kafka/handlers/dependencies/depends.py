"""``Depends``, and where annotations name it. No I/O."""

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
    """In ``Annotated[T, Depends(factory)]``, at a parameter: it gets what *factory* makes.

    Args:
        factory: A function, async or not, that returns the value or yields it once (what follows
            the ``yield`` ends it), or a class. Its own parameters may be dependencies, too. A
            function that is not async runs in a thread.
        scope: ``"call"``: made for each call of a handler, and ended when that returns or raises.
            ``"app"``: made at the start of the application, and ended when nothing of that runs any
            more.

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
    """What an annotation without text in it names; of several, the outermost."""
    # "type X = ..." of Python 3.12.
    while type(annotation).__name__ == "TypeAliasType":
        annotation = annotation.__value__
    if typing.get_origin(annotation) is not Annotated:
        return None
    found = [one for one in annotation.__metadata__ if isinstance(one, Depends)]
    return found[-1] if found else None
