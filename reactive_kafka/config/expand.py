"""``${VAR}`` and ``${VAR:-default}`` in strings. Pure: the environment is passed in."""

from __future__ import annotations

import re
from collections.abc import Mapping

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def expand(text: str, environ: Mapping[str, str]) -> str:
    """The text with its references replaced; ``$${`` stands for a plain ``${``.

    The default of ``${VAR:-default}`` is taken when VAR is not set or empty, and may hold references
    itself. What a variable holds is never expanded again.

    Raises:
        ValueError: A variable is not set and has no default, or a reference cannot be read. The text names
            the variable, never a value.
    """
    done: list[str] = []
    at = 0
    while (start := text.find("${", at)) >= 0:
        if start > at and text[start - 1] == "$":
            done.append(text[at : start - 1] + "${")
            at = start + 2
            continue
        end = _closing(text, start + 2)
        done.append(text[at:start] + _value(text[start + 2 : end], environ))
        at = end + 1
    return "".join(done) + text[at:]


def _closing(text: str, at: int) -> int:
    """Index of the brace that closes the reference whose inside starts at *at*."""
    depth = 1
    for match in re.compile(r"\$\{|\}").finditer(text, at):
        depth += 1 if match[0] == "${" else -1
        if not depth:
            return match.start()
    raise ValueError("a ${ is not closed by }; write $${ for a plain ${")


def _value(reference: str, environ: Mapping[str, str]) -> str:
    name, has_default, default = reference.partition(":-")
    if not _NAME.fullmatch(name):
        raise ValueError("cannot read a reference: expected ${VAR} or ${VAR:-default}; write $${ for a plain ${")
    value = environ.get(name)
    if has_default and not value:
        return expand(default, environ)
    if value is None:
        raise ValueError(f"${{{name}}} is not set and has no default; set {name} or write ${{{name}:-default}}")
    return value
