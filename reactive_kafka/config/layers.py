"""The layers of a configuration: code, files, environment. Pure.

A layer is a list of leaves. A leaf is a path of keys, a value, and where it was written.
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
# A table whose keys are names of exceptions, so their case matters.
_ROUTES = "failure_routes"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value was written: ``my.toml, line 12``, ``environment variable X``, ``code``."""

    source: str
    line: int | None = None

    @property
    def is_variable(self) -> bool:
        """Whether the value is that of an environment variable."""
        return self.source.startswith(VARIABLE)

    def __str__(self) -> str:
        return self.source if self.line is None else f"{self.source}, line {self.line}"


@dataclass(frozen=True, slots=True)
class Leaf:
    """One value as it was written."""

    # Its keys from the top, as written.
    path: KeyPath
    # The text of a variable is already read as a TOML value if it looks like one.
    value: Any
    origin: Origin
    # The whole text of the environment variable that the value comes from, if any.
    text: str | None = None
    # Why the value cannot be used as written.
    problem: str | None = None
    # Key and value as errors show them, if the file has other keys than ours.
    where: str | None = None


@dataclass(slots=True)
class Problems:
    """The problems found so far, one line each."""

    lines: list[tuple[Origin, str]] = field(default_factory=list)

    def add(self, origin: Origin, where: str, what: str) -> None:
        """Note a problem with *where* (section, key and value), which was written at *origin*."""
        self.lines.append((origin, f"{origin}: {where}: {what}"))

    def report(self) -> list[str]:
        """Return the lines, each once: layer by layer, and those of a file by line number."""
        sources = list(dict.fromkeys(origin.source for origin, _ in self.lines))
        ordered = sorted(
            self.lines, key=lambda item: (sources.index(item[0].source), item[0].line or 0)
        )
        return list(dict.fromkeys(line for _, line in ordered))


@dataclass(frozen=True, slots=True)
class Layer:
    """All leaves of one source."""

    leaves: tuple[Leaf, ...]
    # Returns the line of a key in a file.
    line_of: LineOf = lambda _: None
    # Its values have no references, whatever they look like.
    is_expanded: bool = False
    # What was wrong already when the layer was read: where, at what, why.
    problems: tuple[tuple[Origin, str, str], ...] = ()
    warnings: tuple[str, ...] = ()


def of_code(source: str, data: Mapping[Any, Any]) -> Layer:
    """Return the layer of nested tables made in code. A key whose value is None is left out.

    Raises:
        ConfigError: See :func:`of_mapping`.
    """

    def without_none(table: Mapping[Any, Any]) -> dict[Any, Any]:
        return {
            key: without_none(value) if isinstance(value, Mapping) else value
            for key, value in table.items()
            if value is not None
        }

    # First, because without_none recurses.
    _check_depth(source, data)
    return of_mapping(source, without_none(data))


def of_mapping(source: str, data: Mapping[Any, Any], line_of: LineOf = lambda _: None) -> Layer:
    """Return the layer of nested tables.

    An empty table is a leaf, so that a channel without keys exists.

    Raises:
        ConfigError: Something is nested more than ``MOST_DEPTH`` deep, or contains itself.
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
    path = _too_deep(data)
    if path:
        origin = Origin(source, line_of(path))
        raise ConfigError(
            f"{origin}: {'.'.join(path[:3])}...: nested too deeply: at most {MOST_DEPTH} levels "
            "are read"
        )


def _too_deep(data: Any) -> KeyPath | None:
    """Return the path to a value that is nested more than ``MOST_DEPTH`` deep; None if none is."""
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
    """Return the layer of all variables that start with ``REACTIVE_KAFKA__``.

    Variables have no case and no hyphens. A variable that matches the beginning of a path in
    *known* (a channel, a Spark property) means that path. Any other means its own name in lower
    case. The exception of a failure route keeps its case.
    """
    # Some names are the user's own, and a variable cannot spell all of them. A path of 2 parts ends
    # with a channel's name ([incoming."my.orders"]), one of 3 with a key of the channel or a Spark
    # property, and a whole path may end with the exception of a failure route. The longest match
    # wins, so that a variable overrides exactly the key that the file has.
    known = list(known)
    spelled_names = {path[:2] for path in known if path[:2] == _form(path[:2])}
    prefixes = {
        _form(path[:length]): path[:length]
        for path in known
        # A variable for "my_orders" does not mean "my-orders" as well, if there are both.
        if path[:2] in spelled_names or _form(path[:2]) not in spelled_names
        for length in (2, 3, len(path))
    }
    leaves = []
    for variable, text in environ.items():
        if not variable.upper().startswith(PREFIX):
            continue
        spelled = tuple(variable[len(PREFIX) :].split("__"))
        path = tuple(part.lower() for part in spelled)
        exception_index = _exception_index(path)
        path = path[:exception_index] + spelled[exception_index:]
        # Most variables are written in capitals. Then the case of the exception is lost.
        problem = _IN_CAPITALS if "".join(path[exception_index:]).isupper() else None
        for length in range(min(len(path), MOST_DEPTH), 1, -1):
            known_path = prefixes.get(_form(path[:length]))
            if known_path is not None:
                if length == len(path):
                    # A file spells the exception.
                    problem = None
                path = known_path + path[length:]
                break
        leaves.append(Leaf(path, from_text(text), Origin(VARIABLE + variable), text, problem))
    return Layer(tuple(leaves), is_expanded=True)


def _exception_index(path: KeyPath) -> int:
    """Return where the exception of a failure route begins; the path's length without a route."""
    index = 2 if path[0] == "kafka" else 3
    is_route = path[index - 1 : index] == (_ROUTES,)
    return index if is_route else len(path)


def _form(path: KeyPath) -> KeyPath:
    return tuple(re.sub(r"[^a-z0-9_]", "_", part.lower()) for part in path)


def from_text(text: str) -> Any:
    """Return the text as a TOML scalar or array if it reads as one, else the text itself."""
    if not text.isprintable() or too_deep_in_toml(text):
        return text
    try:
        value = tomllib.loads("value = " + text)["value"]
    except ValueError:
        # TOMLDecodeError, or a number that is too long.
        return text
    return value if isinstance(value, str | bool | int | float | list) else text


def expanded(layer: Layer, environ: Mapping[str, str]) -> Layer:
    """Return the layer with the references in its strings (``${VAR}``) replaced.

    If that fails, the ``problem`` of the leaf says why.
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
            # It had a reference. As with a variable, a text such as "8080" is a number then. The
            # text is kept for keys that want one.
            read = from_text(value)
            is_text = isinstance(read, str)
            return replace(leaf, value=value if is_text else read, text=value)
        return replace(leaf, value=value)

    return replace(layer, leaves=tuple(map(expanded_leaf, layer.leaves)))


def _expand_value(value: Any, environ: Mapping[str, str]) -> Any:
    if type(value) is str:
        return expand(value, environ)
    if isinstance(value, list | tuple):
        return [_expand_value(item, environ) for item in value]
    return value


def expand(text: str, environ: Mapping[str, str]) -> str:
    """Return the text with its references replaced. ``$${`` becomes a plain ``${``.

    The default of ``${VAR:-default}`` is used if VAR is not set or is empty. It may contain
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
    """Return the index of the brace that closes the reference at the start of *text*."""
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
