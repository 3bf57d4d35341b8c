"""Reads and writes YAML. Only plain data is read, and only as much as fits into memory."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from reactive_kafka.config.scan import MOST_DEPTH, KeyPath, Lines, hinted
from reactive_kafka.errors import ConfigError, MissingExtraError

MOST_NODES = 20_000
"""The most keys and values of a file, with its aliases expanded.

Each alias means everything that it names, so a few lines of aliases of aliases can mean billions. A
hundred channels with all their keys need half of this number.
"""
LONGEST_INTEGER = 4300
"""The most characters of an integer, because Python prints no more digits.

Integers with colons (1:30 is 90) take PyYAML a time that is quadratic in their length.
"""
_SCALARS = frozenset({"null", "bool", "int", "float", "binary", "timestamp", "str"})
_QUOTED = re.compile(r""" ['"].*""", re.DOTALL)


def parse_yaml(source: str, text: str) -> tuple[Any, Lines]:
    """Return what a YAML text says, and the lines of its keys.

    Args:
        source: The name of the file, for errors.
        text: The text.

    Raises:
        ConfigError: It is not YAML, has a value that its own tag forbids, is nested too deeply, or
            expands to too much.
        MissingExtraError: PyYAML is not installed.
    """
    with _loader_of(source, text) as loader:
        root = _composed(source, loader, loader.get_single_node)
        if root is None:
            return {}, {}
        nodes = _Nodes(source, loader)
        nodes.measure(root, 1)
        nodes.check_values()
        lines = yaml_lines(root)
        return loader.construct_document(root), lines


def yaml_documents(source: str, text: str) -> list[Any]:
    """Return PyYAML's node trees of all documents, with merges (``<<``) done and no values made.

    Raises:
        ConfigError: See :func:`parse_yaml`. A key that is twice in one table is an error, too.
        MissingExtraError: See :func:`parse_yaml`.
    """

    def all_documents() -> list[Any]:
        found = []
        while loader.check_node():
            found.append(loader.get_node())
        return found

    with _loader_of(source, text) as loader:
        roots: list[Any] = _composed(source, loader, all_documents)
        nodes = _Nodes(source, loader)
        size = 0
        for root in roots:
            size += nodes.measure(root, 1)
            if size > MOST_NODES:
                line = root.start_mark.line + 1
                raise ConfigError(
                    f"{source}, line {line}: more than {MOST_NODES} keys and values, with its "
                    "aliases expanded"
                )
        nodes.merge()
        return roots


@contextmanager
def _loader_of(source: str, text: str) -> Iterator[Any]:
    """Open a loader of PyYAML; inside the context its errors become ConfigError."""
    try:
        import yaml
    except ImportError:
        raise MissingExtraError(f"the YAML file {source}", "yaml") from None
    loader = None
    try:
        loader = yaml.SafeLoader(text)
        yield loader
    except yaml.MarkedYAMLError as error:
        # Only the problem is shown: the text of the error quotes the line, which may hold a secret.
        # So may the name of an alias or a tag, which some problems quote.
        problem = error.problem or ""
        quotes_names = (
            isinstance(error, yaml.composer.ComposerError | yaml.constructor.ConstructorError)
            or "tag handle" in problem
        )
        if quotes_names:
            problem = _QUOTED.sub("", problem)
        where = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConfigError(f"{source}{where}: not YAML: {hinted(problem)}") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ConfigError(
            f"{source}, line {line}: not YAML: a character that it does not allow"
        ) from None
    finally:
        if loader is not None:
            loader.dispose()


def _composed(source: str, loader: Any, read: Callable[[], Any]) -> Any:
    """Return the nodes that *read* composes, or raise ConfigError if there are too many."""
    count = itertools.count(1)
    compose = loader.compose_node

    def counted(parent: Any, index: Any) -> Any:
        # Counted while composing, because the nodes of a megabyte take PyYAML half a minute.
        if next(count) > MOST_NODES:
            raise ConfigError(
                f"{source}, line {loader.line + 1}: more than {MOST_NODES} keys and values"
            )
        return compose(parent, index)

    loader.compose_node = counted
    try:
        return read()
    except ConfigError:
        raise
    except (ValueError, OverflowError):
        # PyYAML does not check the numbers in escapes and directives.
        raise ConfigError(
            f"{source}, line {loader.line + 1}: not YAML: a number that is too large"
        ) from None
    except RecursionError:
        raise ConfigError(f"{source}, line {loader.line + 1}: nested too deeply") from None


def yaml_of(data: Any) -> str:
    """Return plain data as YAML, in its order. Raises MissingExtraError without PyYAML."""
    try:
        import yaml
    except ImportError:
        raise MissingExtraError("YAML", "yaml") from None

    class Plain(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            # Equal parts are written out each time, instead of as an anchor and aliases.
            return True

    return str(yaml.dump(data, Dumper=Plain, sort_keys=False, width=120))


class _Extent(NamedTuple):
    """How many nodes a node means with aliases expanded, and how many levels; itself included."""

    size: int
    height: int


class _Nodes:
    """Checks the node tree of a file before values are made from it."""

    def __init__(self, source: str, loader: Any) -> None:
        self._source = source
        self._loader = loader
        # Id of a node -> its extent. None while the node is being measured.
        self._extents: dict[int, _Extent | None] = {}
        self._scalars: list[Any] = []
        self._mappings: list[Any] = []

    def measure(self, node: Any, depth: int) -> int:
        """Return how many nodes *node* means, with aliases expanded.

        Raises:
            ConfigError: Too many, too deeply nested, or an alias inside of the value that it stands
                for.
        """
        return self._extent(node, depth).size

    def _extent(self, node: Any, depth: int) -> _Extent:
        key = id(node)
        known = self._extents.get(key)
        if known is None and key in self._extents:
            raise self._problem(node, "an alias inside of the value that it stands for")
        if known is not None:
            # The alias may be deeper than the value that it stands for was.
            if depth + known.height - 1 > MOST_DEPTH:
                raise self._problem(
                    node,
                    f"nested too deeply, with its aliases expanded: at most {MOST_DEPTH} levels "
                    "are read",
                )
            return known
        if depth > MOST_DEPTH:
            raise self._problem(node, f"nested too deeply: at most {MOST_DEPTH} levels are read")
        self._extents[key] = None
        size = 1
        height = 1
        for child in self._children(node):
            extent = self._extent(child, depth + 1)
            size += extent.size
            height = max(height, extent.height + 1)
        if size > MOST_NODES:
            raise self._problem(
                node, f"more than {MOST_NODES} keys and values, with its aliases expanded"
            )
        measured = _Extent(size, height)
        self._extents[key] = measured
        return measured

    def _children(self, node: Any) -> Iterator[Any]:
        """Yield the nodes inside a node, and note the node for the checks that follow."""
        if node.id == "scalar" or _kind(node) in _SCALARS:
            self._scalars.append(node)
        if node.id == "mapping":
            self._mappings.append(node)
            for key, value in node.value:
                yield key
                yield value
        elif node.id != "scalar":
            yield from node.value

    def merge(self) -> None:
        """Put the tables that a key ``<<`` names into its table, whose own keys win."""
        for node in self._mappings:
            lines: dict[str, int] = {}
            for key, _ in node.value:
                if key.id != "scalar":
                    continue
                if key.value in lines:
                    raise self._problem(key, f"{key.value} is in line {lines[key.value]}, too")
                lines[key.value] = key.start_mark.line + 1
        for node in self._mappings:
            self._loader.flatten_mapping(node)

    def check_values(self) -> None:
        """Make each plain value; the loader keeps them.

        Raises:
            ConfigError: The tag of a value forbids it.
        """
        for node in self._scalars:
            if not self._is_value(node):
                raise self._problem(
                    node, f"expected a value of the type {_kind(node)}; in quotes it is a string"
                )

    def _is_value(self, node: Any) -> bool:
        kind = _kind(node)
        # The keys "<<" and "=" have no value of their own.
        if kind in ("merge", "value"):
            return True
        # PyYAML reads a table with a key "=" as the value of that key.
        if node.id != "scalar" or (kind == "int" and len(node.value) > LONGEST_INTEGER):
            return False
        try:
            # str(), because Python refuses to print an integer of more than 4,300 digits.
            str(self._loader.construct_object(node))
        except (ValueError, LookupError, AttributeError, OverflowError):
            # PyYAML's conversions raise any of these.
            return False
        return True

    def _problem(self, node: Any, what: str) -> ConfigError:
        return ConfigError(f"{self._source}, line {node.start_mark.line + 1}: {what}")


def _kind(node: Any) -> str:
    """Return the kind in a node's tag: ``int`` for ``tag:yaml.org,2002:int``."""
    return str(node.tag).rpartition(":")[2]


def yaml_lines(root: Any) -> Lines:
    """Return the lines of the keys in a node tree of PyYAML.

    No alias may be inside of the value that it stands for: this walks without an end then.
    """
    lines: Lines = {}

    def walk(node: Any, path: KeyPath) -> None:
        if node.id != "mapping":
            return
        for key, value in node.value:
            if key.id == "scalar":
                lines.setdefault((*path, key.value), []).append(key.start_mark.line + 1)
                walk(value, (*path, key.value))

    walk(root, ())
    return lines
