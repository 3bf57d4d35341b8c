"""The layers of a configuration, each as leaves: a key path, a value with its references expanded,
its place. Pure.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from reactive_kafka.config.scan import MOST_DEPTH, KeyPath, too_deep_in_toml
from reactive_kafka.errors import ConfigError

PREFIX = "REACTIVE_KAFKA__"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BRACE = re.compile(r"\$\{|\}")
VARIABLE = "environment variable "
PROFILE_VARIABLE = "REACTIVE_KAFKA_PROFILE"
LineOf = Callable[[KeyPath], int | None]
_IN_CAPITALS = "in capitals it names no exception: spell it as in Python, or name it in a file"
# A table whose keys are the user's own names.
_AS_SPELLED = "failure_routes"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value stands: ``reactive-kafka.toml, line 12``, ``environment variable X``,
    ``code``.
    """

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
    """One value as it was written."""

    # Its keys from the top, as written.
    path: KeyPath
    # A text that reads as a TOML value is that value.
    value: Any
    origin: Origin
    # Of the environment variable that the value comes from, if any.
    text: str | None = None
    # Why the value cannot be used as written.
    problem: str | None = None
    # Key and value as errors show them, where the file has others than ours.
    where: str | None = None


@dataclass(slots=True)
class Problems:
    """The problems found so far, one line each."""

    lines: list[tuple[Origin, str]] = field(default_factory=list)

    def add(self, origin: Origin, where: str, what: str) -> None:
        """Note a problem with *where* (section, key and value), which stands at *origin*."""
        self.lines.append((origin, f"{origin}: {where}: {what}"))

    def report(self) -> list[str]:
        """The lines, each once: layer by layer as they were met, and those of a file by line
        number.
        """
        sources = list(dict.fromkeys(origin.source for origin, _ in self.lines))
        ordered = sorted(
            self.lines, key=lambda item: (sources.index(item[0].source), item[0].line or 0)
        )
        return list(dict.fromkeys(line for _, line in ordered))


@dataclass(frozen=True, slots=True)
class Layer:
    """All leaves of one source."""

    leaves: tuple[Leaf, ...]
    # Knows the lines of a file's keys.
    line_of: LineOf = lambda _: None
    # Its values have no references, whatever they look like.
    is_expanded: bool = False
    # Found in it already: where, at what, why.
    problems: tuple[tuple[Origin, str, str], ...] = ()
    warnings: tuple[str, ...] = ()


def of_code(source: str, data: Mapping[Any, Any]) -> Layer:
    """The layer of nested tables that code has made: there a key whose value is None is not given.
    Raises as below.
    """

    def given(table: Mapping[Any, Any]) -> dict[Any, Any]:
        there = {key: value for key, value in table.items() if value is not None}
        return {
            key: given(value) if isinstance(value, Mapping) else value
            for key, value in there.items()
        }

    # Before anything recurses.
    _check_depth(source, data)
    return of_mapping(source, given(data))


def of_mapping(source: str, data: Mapping[Any, Any], line_of: LineOf = lambda _: None) -> Layer:
    """The layer of nested tables. An empty table is a leaf, so that a channel without keys exists.

    Raises:
        ConfigError: Something is nested more than ``MOST_DEPTH`` deep, or without an end.
    """
    _check_depth(source, data, line_of)

    def walk(table: Mapping[Any, Any], path: KeyPath) -> Iterator[Leaf]:
        for key, value in table.items():
            here = (*path, str(key))
            if isinstance(value, Mapping) and value:
                yield from walk(value, here)
            else:
                yield Leaf(here, value, Origin(source, line_of(here)))

    return Layer(tuple(walk(data, ())), line_of)


def _check_depth(source: str, data: Mapping[Any, Any], line_of: LineOf = lambda _: None) -> None:
    if deep := _too_deep(data):
        where = Origin(source, line_of(deep))
        raise ConfigError(
            f"{where}: {'.'.join(deep[:3])}...: nested too deeply: at most {MOST_DEPTH} levels are read"
        )


def _too_deep(data: Any) -> KeyPath | None:
    """The path of keys to the first value that is nested more than ``MOST_DEPTH`` deep, or None."""
    waiting: list[tuple[Any, KeyPath, int]] = [(data, (), 0)]
    while waiting:
        value, path, depth = waiting.pop()
        if depth > MOST_DEPTH:
            return path
        if isinstance(value, Mapping):
            waiting += ((item, (*path, str(key)), depth + 1) for key, item in value.items())
        elif isinstance(value, list | tuple):
            waiting += ((item, path, depth + 1) for item in value)
    return None


def of_environment(environ: Mapping[str, str], known: Iterable[KeyPath]) -> Layer:
    """The layer of all variables that start with ``REACTIVE_KAFKA__``.

    They have no case and no hyphens. One that matches the beginning of a path in *known* (a
    channel, a Spark property) means that path, and any other its own name in lower case. The
    exception of a failure route keeps its case.
    """
    # Parts of a path that a variable cannot spell are the user's own names. With 2 parts a path
    # ends after a channel's name ([incoming."my.orders"]), with 3 after a key of it or a Spark
    # property, and in full after the exception of a failure route. The longest one that fits wins,
    # so that a variable overrides the very key that the file spells.
    prefixes = {
        _form(path[:length]): path[:length] for path in known for length in (2, 3, len(path))
    }
    leaves = []
    for variable, text in environ.items():
        if not variable.upper().startswith(PREFIX):
            continue
        spelled = tuple(variable[len(PREFIX) :].split("__"))
        path = tuple(part.lower() for part in spelled)
        at = _route_at(path)
        path = path[:at] + spelled[at:]
        # As most variables are written.
        problem = _IN_CAPITALS if "".join(path[at:]).isupper() else None
        for length in range(min(len(path), MOST_DEPTH), 1, -1):
            if found := prefixes.get(_form(path[:length])):
                if length == len(path):
                    problem = None
                path = found + path[length:]
                break
        leaves.append(Leaf(path, from_text(text), Origin(VARIABLE + variable), text, problem))
    return Layer(tuple(leaves), is_expanded=True)


def _route_at(path: KeyPath) -> int:
    """The index at which a failure route's exception begins; the path's length if it is not a
    route.
    """
    at = 2 if path[0] == "kafka" else 3
    return at if path[at - 1 : at] == (_AS_SPELLED,) else len(path)


def _form(path: KeyPath) -> KeyPath:
    return tuple(re.sub(r"[^a-z0-9_]", "_", part.lower()) for part in path)


def from_text(text: str) -> Any:
    """The text as a TOML scalar or array if it reads as one, else the text itself."""
    if not text.isprintable() or too_deep_in_toml(text):
        return text
    try:
        value = tomllib.loads("value = " + text)["value"]
    except ValueError:
        # TOMLDecodeError, or a number too long.
        return text
    return value if isinstance(value, str | bool | int | float | list) else text


def expanded(layer: Layer, environ: Mapping[str, str]) -> Layer:
    """The layer with the references in its strings replaced. If that fails, the leaf's ``problem``
    says why.
    """
    if layer.is_expanded:
        return layer

    def expanded_leaf(leaf: Leaf) -> Leaf:
        try:
            value = _expand_value(leaf.value, environ)
        except ValueError as error:
            return replace(leaf, problem=str(error))
        except RecursionError:
            return replace(leaf, problem="references inside of references, too deeply")
        if isinstance(value, str) and value != leaf.value:
            read = from_text(value)
            return replace(leaf, value=value if isinstance(read, str) else read, text=value)
        return replace(leaf, value=value)

    return replace(layer, leaves=tuple(map(expanded_leaf, layer.leaves)))


def _expand_value(value: Any, environ: Mapping[str, str]) -> Any:
    if type(value) is str:
        return expand(value, environ)
    if isinstance(value, list | tuple):
        return [_expand_value(item, environ) for item in value]
    return value


def expand(text: str, environ: Mapping[str, str]) -> str:
    """The text with its references replaced; ``$${`` stands for a plain ``${``.

    The default of ``${VAR:-default}`` is used if VAR is not set or empty, and may contain
    references itself. The value of a variable is never expanded again.

    Raises:
        ValueError: A variable is not set and has no default, or a reference cannot be read. The
            text names the variable, never a value.
    """
    done = ""
    while True:
        head, found, text = text.partition("${")
        if not found:
            return done + head
        if head.endswith("$"):
            done += head[:-1] + "${"
        else:
            end = _closing(text)
            done += head + _reference(text[:end], environ)
            text = text[end + 1 :]


def _closing(text: str) -> int:
    """Index of the brace that closes the reference whose inside *text* begins with."""
    depth = 1
    for match in _BRACE.finditer(text):
        depth += 1 if match[0] == "${" else -1
        if not depth:
            return match.start()
    raise ValueError("a ${ is not closed by }; write $${ for a plain ${")


def _reference(reference: str, environ: Mapping[str, str]) -> str:
    name, has_default, default = reference.partition(":-")
    if not _NAME.fullmatch(name):
        raise ValueError(
            "cannot read a reference: expected ${VAR} or ${VAR:-default}; write $${ for a plain ${"
        )
    value = environ.get(name)
    if has_default and not value:
        return expand(default, environ)
    if value is None:
        raise ValueError(
            f"${{{name}}} is not set and has no default; set {name} or write ${{{name}:-default}}"
        )
    return value
