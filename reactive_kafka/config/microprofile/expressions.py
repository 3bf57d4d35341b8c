r"""The expressions in a value: ``${name}``, ``${name:default}``, ``\${`` for a plain ``${``. Pure.

Source: ``io.smallrye.common.expression.Expression`` with the flags that SmallRye Config gives it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Union

MOST_NESTED = 32
_SIGNS = re.compile(r"\$\$|\\\$|\$\{|[:}]")


class CannotExpand(ValueError):
    """An expression that cannot be read, or has no value. The text names properties, and shows no
    value.
    """


@dataclass(frozen=True, slots=True)
class Expression:
    """One expression; its name and its default may hold others."""

    name: tuple[Part, ...]
    # None: it has none.
    default: tuple[Part, ...] | None


# Evaluated before Expression is there.
Part = Union[str, Expression]  # noqa: UP007


def parsed(text: str) -> tuple[Part, ...]:
    """The plain texts and the expressions of a value, in their order.

    Raises:
        CannotExpand: An expression is not closed, is nested too deeply, or is one that only Java
            understands.
    """
    return _parts(text, 0, "", 0)[0]


def _parts(text: str, start: int, until: str, depth: int) -> tuple[tuple[Part, ...], int]:
    """The parts from *start* up to one of *until*, or to the end; and where that is."""
    if depth > MOST_NESTED:
        raise CannotExpand("expressions inside of expressions, too deeply")
    parts: list[Part] = []
    while sign := _SIGNS.search(text, start):
        parts += [text[start : sign.start()]] if sign.start() > start else []
        start = sign.end()
        if sign[0] == "${":
            expression, start = _expression(text, start, depth + 1)
            parts.append(expression)
        elif sign[0] in until:
            return tuple(parts), sign.start()
        else:
            parts.append("$" if "$" in sign[0] else sign[0])
    if until:
        raise CannotExpand(r"a ${ is not closed by }; write \\${ for a plain ${")
    parts += [text[start:]] if start < len(text) else []
    return tuple(parts), len(text)


def _expression(text: str, start: int, depth: int) -> tuple[Expression, int]:
    """The expression whose inside begins at *start*, and the place behind its brace."""
    name, at = _parts(text, start, ":}", depth)
    default = None
    if text.startswith("::", at):
        raise CannotExpand(
            "${handler::secret} asks a secret handler of Java's; name a variable with the secret"
        )
    if text[at] == ":":
        default, at = _parts(text, at + 1, "}", depth)
    return Expression(name, default), at + 1
