"""YAML: its values, and on which lines its keys stand. Only what is plain data is read, and no more
of it than fits.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from reactive_kafka.config.scan import MOST_DEPTH, KeyPath, Lines, hinted
from reactive_kafka.errors import ConfigError, MissingExtraError

MOST_NODES = 20_000
"""Keys and values of a file with its aliases expanded: each alias stands for all that it names, so
a few lines of aliases of aliases can mean billions. A hundred channels with all their keys are half
of it."""
LONGEST_INTEGER = 4300
"""Characters; Python makes no text of more digits. With colons (1:30 is 90) its time is square in
its length.
"""
_SCALARS = frozenset({"null", "bool", "int", "float", "binary", "timestamp", "str"})
_QUOTED = re.compile(r""" ['"].*""", re.DOTALL)


def parse_yaml(source: str, text: str) -> tuple[Any, Lines]:
    """What a YAML text says, and the lines of its keys; *source* begins the text of each
    ConfigError.

    Raises:
        ConfigError: It is not YAML, has a value that its own tag forbids, or is nested or expands
            too far.
        MissingExtraError: There is no PyYAML.
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
    """PyYAML's node trees of all documents of a text, with the merges (``<<``) done; no value is
    made.

    Raises as :func:`parse_yaml`. A key that stands twice in one table is a ConfigError, too.
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
                    f"{source}, line {line}: more than {MOST_NODES} keys and values, with its aliases"
                )
        nodes.merge()
        return roots


@contextmanager
def _loader_of(source: str, text: str) -> Iterator[Any]:
    """A loader of PyYAML's, whose errors are ours within this context."""
    try:
        import yaml
    except ImportError:
        raise MissingExtraError(f"the YAML file {source}", "yaml") from None
    loader = None
    try:
        loader = yaml.SafeLoader(text)
        yield loader
    except yaml.MarkedYAMLError as error:
        # The error's own text quotes the line, which may hold a secret, as may the name of an alias
        # or a tag.
        quotes = isinstance(error, yaml.composer.ComposerError | yaml.constructor.ConstructorError)
        quotes = quotes or "tag handle" in (error.problem or "")
        problem = _QUOTED.sub("", error.problem or "") if quotes else error.problem
        where = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConfigError(f"{source}{where}: not YAML: {hinted(problem or '')}") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ConfigError(
            f"{source}, line {line}: not YAML: a character that it does not allow"
        ) from None
    finally:
        if loader is not None:
            loader.dispose()


def _composed(source: str, loader: Any, read: Callable[[], Any]) -> Any:
    """What *read* makes of the file's nodes; a ConfigError where there are too many."""
    count = itertools.count(1)
    compose = loader.compose_node

    def counted(parent: Any, index: Any) -> Any:
        # Here, for PyYAML takes half a minute for the nodes of a megabyte.
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
        # PyYAML reads the numbers of escapes and directives without a look.
        raise ConfigError(
            f"{source}, line {loader.line + 1}: not YAML: a number that is too large"
        ) from None
    except RecursionError:
        raise ConfigError(f"{source}, line {loader.line + 1}: nested too deeply") from None


def yaml_of(data: Any) -> str:
    """Plain data as YAML, in its order; a MissingExtraError without PyYAML."""
    try:
        import yaml
    except ImportError:
        raise MissingExtraError("YAML", "yaml") from None

    class Plain(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            # What stands there twice is written twice.
            return True

    return str(yaml.dump(data, Dumper=Plain, sort_keys=False, width=120))


class _Nodes:
    """The node tree of a file, looked at before its values are made."""

    def __init__(self, source: str, loader: Any) -> None:
        self._source = source
        self._loader = loader
        # Id of a node -> the nodes that it stands for; 0: being measured.
        self._sizes: dict[int, int] = {}
        self._scalars: list[Any] = []
        self._mappings: list[Any] = []

    def measure(self, node: Any, depth: int) -> int:
        """How many nodes *node* stands for; a ConfigError if that is too many, too deep, or without
        an end.
        """
        known = self._sizes.get(id(node))
        if known:
            return known
        if known == 0:
            raise self._problem(node, "an alias inside of what it stands for")
        if depth > MOST_DEPTH:
            raise self._problem(node, f"nested too deeply: at most {MOST_DEPTH} levels are read")
        self._sizes[id(node)] = 0
        size = 1
        if node.id == "scalar" or _kind(node) in _SCALARS:
            self._scalars.append(node)
        if node.id == "mapping":
            self._mappings.append(node)
        if node.id != "scalar":
            for part in node.value:
                for one in part if node.id == "mapping" else (part,):
                    size += self.measure(one, depth + 1)
        if size > MOST_NODES:
            raise self._problem(
                node, f"more than {MOST_NODES} keys and values, with its aliases expanded"
            )
        self._sizes[id(node)] = size
        return size

    def merge(self) -> None:
        """Put what a key ``<<`` names into its table, whose own keys win."""
        for node in self._mappings:
            lines: dict[str, int] = {}
            for key, _ in node.value:
                if key.id != "scalar":
                    continue
                if key.value in lines:
                    raise self._problem(key, f"{key.value} stands in line {lines[key.value]} too")
                lines[key.value] = key.start_mark.line + 1
        for node in self._mappings:
            self._loader.flatten_mapping(node)

    def check_values(self) -> None:
        """Make each plain value; a ConfigError for one that its tag forbids. The loader keeps those
        that are made.
        """
        for node in self._scalars:
            if not self._is_value(node):
                raise self._problem(
                    node, f"expected a value of the type {_kind(node)}; in quotes it is a string"
                )

    def _is_value(self, node: Any) -> bool:
        kind = _kind(node)
        # "<<" and "=" as keys, which have no value of their own.
        if kind in ("merge", "value"):
            return True
        # To PyYAML a table with a key "=" is what stands there.
        if node.id != "scalar" or (kind == "int" and len(node.value) > LONGEST_INTEGER):
            return False
        try:
            # An integer of more than 4,300 digits has no text.
            str(self._loader.construct_object(node))
        except (ValueError, LookupError, AttributeError, OverflowError):
            # Whatever PyYAML's own conversions raise.
            return False
        return True

    def _problem(self, node: Any, what: str) -> ConfigError:
        return ConfigError(f"{self._source}, line {node.start_mark.line + 1}: {what}")


def _kind(node: Any) -> str:
    """``int`` of ``tag:yaml.org,2002:int``."""
    return str(node.tag).rpartition(":")[2]


def yaml_lines(root: Any) -> Lines:
    """The lines of the keys in the node tree that PyYAML composes, in which no alias stands inside
    of what it names.
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
