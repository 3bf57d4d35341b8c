"""The layers of a configuration, each flattened into leaves: a key path, a value, and where it stands. Pure."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from reactive_kafka.config.expand import expand

PREFIX = "REACTIVE_KAFKA__"
VARIABLE = "environment variable "
Path = tuple[str, ...]
_AS_SPELLED = "failure_routes"  # a table whose keys are names of the user's own


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value stands: ``reactive-kafka.toml, line 12``, ``environment variable X``, ``code``."""

    source: str
    line: int | None = None

    @property
    def is_variable(self) -> bool:
        """True for a value that stands in an environment variable."""
        return self.source.startswith(VARIABLE)

    def __str__(self) -> str:
        return self.source if self.line is None else f"{self.source}, line {self.line}"


@dataclass(frozen=True, slots=True)
class Leaf:
    """One value as it was written.

    Args:
        path: Its keys from the top, as written.
        value: The value; of a text that reads as a TOML value, that value.
        text: What an environment variable held, where the value comes from one.
        problem: Why the value is not usable as it was written.
    """

    path: Path
    value: Any
    origin: Origin
    text: str | None = None
    problem: str | None = None


@dataclass(slots=True)
class Problems:
    """What is wrong, one line each; the same line is kept once."""

    lines: list[tuple[Origin, str]] = field(default_factory=list)

    def add(self, origin: Origin, where: str, what: str) -> None:
        """Note a problem with *where* (section, key and value) that stands at *origin*."""
        self.lines.append((origin, f"{origin}: {where}: {what}"))

    def report(self) -> list[str]:
        """The lines: layer by layer in the order in which they were met, those of a file by line number."""
        sources = list(dict.fromkeys(origin.source for origin, _ in self.lines))
        ordered = sorted(self.lines, key=lambda item: (sources.index(item[0].source), item[0].line or 0))
        return list(dict.fromkeys(line for _, line in ordered))


@dataclass(frozen=True, slots=True)
class Layer:
    """All leaves of one source; later layers win over earlier ones. ``line_of`` knows the lines of a file's keys."""

    source: str
    leaves: tuple[Leaf, ...]
    line_of: Callable[[Path], int | None] = lambda _: None


def of_mapping(source: str, data: Mapping[Any, Any], line_of: Callable[[Path], int | None] = lambda _: None) -> Layer:
    """The layer of nested tables. An empty table is a leaf, so that a channel may say nothing."""

    def walk(table: Mapping[Any, Any], path: Path) -> Iterator[Leaf]:
        for key, value in table.items():
            here = (*path, str(key))
            if isinstance(value, Mapping) and value:
                yield from walk(value, here)
            else:
                yield Leaf(here, value, Origin(source, line_of(here)))

    return Layer(source, tuple(walk(data, ())), line_of)


def of_environment(environ: Mapping[str, str], known: Iterable[Path]) -> Layer:
    """The layer of all variables that start with ``REACTIVE_KAFKA__``.

    A variable has no case and no hyphens; where it fits the beginning of a path in *known* (a channel, a Spark
    property) it means that one, else what it says in lower case. The exception of a failure route keeps its case.
    """
    prefixes = {_form(path[:length]): path[:length] for path in known for length in (2, 3, len(path))}
    leaves = []
    for variable, text in environ.items():
        if not variable.upper().startswith(PREFIX):
            continue
        path = _variable_path(variable[len(PREFIX) :])
        problem = None if _has_case(path) else "its case says no exception: spell it as in Python, or name it elsewhere"
        for length in range(len(path), 1, -1):
            if found := prefixes.get(_form(path[:length])):
                path, problem = found + path[length:], None if length == len(path) else problem
                break
        leaves.append(Leaf(path, from_text(text), Origin(VARIABLE + variable), text, problem))
    return Layer("environment", tuple(leaves))


def _route_at(path: Path) -> int:
    """Where the exception's name of a failure route begins; the path's end where it is no route."""
    table = 1 if path[0] == "kafka" else 2
    return table + 1 if path[table : table + 1] == (_AS_SPELLED,) else len(path)


def _variable_path(name: str) -> Path:
    spelled, path = tuple(name.split("__")), tuple(name.lower().split("__"))
    at = _route_at(path)
    return path[:at] + spelled[at:]


def _has_case(path: Path) -> bool:
    """False for a failure route whose exception is written in capitals only, as variables mostly are."""
    return not "".join(path[_route_at(path) :]).isupper()


def _form(path: Path) -> Path:
    return tuple(re.sub(r"[^a-z0-9_]", "_", part.lower()) for part in path)


def from_text(text: str) -> Any:
    """The text as a TOML scalar or array where it reads as one, else the text itself."""
    try:
        value = tomllib.loads("value = " + text)["value"] if text.isprintable() else text
    except (tomllib.TOMLDecodeError, ValueError, RecursionError):
        return text
    return value if isinstance(value, str | bool | int | float | list) else text


def expanded(layer: Layer, environ: Mapping[str, str]) -> Layer:
    """The layer with the references in its strings replaced; a leaf where that fails says why in ``problem``."""
    return replace(layer, leaves=tuple(_expand_leaf(leaf, environ) for leaf in layer.leaves))


def _expand_leaf(leaf: Leaf, environ: Mapping[str, str]) -> Leaf:
    try:
        value = _expand_value(leaf.value, environ)
    except ValueError as error:
        return replace(leaf, problem=str(error))
    if isinstance(value, str) and value != leaf.value:
        read = from_text(value)
        return replace(leaf, value=value if isinstance(read, str) else read, text=value)
    return replace(leaf, value=value)


def _expand_value(value: Any, environ: Mapping[str, str]) -> Any:
    if type(value) is str:
        return expand(value, environ)
    if isinstance(value, list | tuple):
        return [_expand_value(item, environ) for item in value]
    return value
