r"""Parses expressions: ``${name}``, ``${name:default}``; ``\${`` is a plain ``${``. Pure.

Source: ``io.smallrye.common.expression.Expression`` with the flags that SmallRye Config gives it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MOST_NESTED = 32
_SIGNS = re.compile(r"\$\$|\\\$|\$\{|[:}]")


class CannotExpand(ValueError):
    """An expression cannot be read, or has no value. The text names properties, but no values."""


@dataclass(frozen=True, slots=True)
class Expression:
    """One expression. Its name and its default may contain others."""

    name: tuple[Part, ...]
    default: tuple[Part, ...] | None


Part = str | Expression


def parsed(text: str) -> tuple[Part, ...]:
    """Return the plain texts and the expressions of a value, in their order.

    Raises:
        CannotExpand: An expression is not closed, is nested too deeply, or is one that only Java
            understands.
    """
    return _parts(text, 0, "", 0)[0]


def _parts(text: str, start: int, until: str, depth: int) -> tuple[tuple[Part, ...], int]:
    """Return the parts from *start* up to a sign in *until*, or to the end; and where that is."""
    if depth > MOST_NESTED:
        raise CannotExpand("expressions inside of expressions, too deeply")
    parts: list[Part] = []
    while sign := _SIGNS.search(text, start):
        if sign.start() > start:
            parts.append(text[start : sign.start()])
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
    if start < len(text):
        parts.append(text[start:])
    return tuple(parts), len(text)


def _expression(text: str, start: int, depth: int) -> tuple[Expression, int]:
    """Return the expression whose inside begins at *start*, and the index behind its brace."""
    name, end = _parts(text, start, ":}", depth)
    default = None
    if text.startswith("::", end):
        raise CannotExpand(
            "${handler::secret} asks a secret handler of Java's; name a variable with the secret"
        )
    if text[end] == ":":
        default, end = _parts(text, end + 1, "}", depth)
    return Expression(name, default), end + 1
