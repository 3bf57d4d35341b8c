"""Data of one Avro schema as data of another: the writer's, as fastavro has read it, becomes the
reader's. Pure.

fastavro resolves schemas, too. But it gives each record the JSON of a default, forgets which branch
of the reader's union a record is of, and applies the logical types of the writer only.

Data is as fastavro reads it with ``return_named_type``: in a union, what has a named type is a pair
of the type's full name and the datum.

Source: Avro specification 1.12, "Schema Resolution".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from functools import partial
from typing import Any
from uuid import UUID

from reactive_kafka.formats.registered.avro_schemas import (
    NAMED,
    RECORDS,
    AvroSchema,
    default_value,
    logical_reader,
    short_name,
    type_of,
)

Step = Callable[[Any], Any]
"""From data to data."""

_PROMOTIONS: dict[tuple[str, str], Step | None] = {
    ("int", "long"): None,
    ("int", "float"): float,
    ("int", "double"): float,
    ("long", "float"): float,
    ("long", "double"): float,
    ("float", "double"): None,
    ("string", "bytes"): str.encode,
    ("bytes", "string"): bytes.decode,
}
"""Writer's type and reader's type -> what a value becomes; None: it stays as it is."""

_CLASSES: dict[str, tuple[type, ...]] = {
    "null": (type(None),),
    "boolean": (bool,),
    "int": (int, date, time),
    "long": (int, datetime, time),
    "float": (float,),
    "double": (float,),
    "string": (str, UUID),
    "bytes": (bytes, Decimal),
    "array": (list,),
    "map": (dict,),
}
"""Type -> the classes that its values have in Python."""


class Later:
    """A step that is known later than it is used in another one."""

    step: Step

    def __call__(self, data: Any) -> Any:
        return self.step(data)


class Unresolved(Exception):
    """Data of the writer's schema has no place in the reader's. The text names types and fields,
    and quotes no data.
    """


def resolver(writer: AvroSchema, reader: AvroSchema) -> Step | None:
    """What makes data of the reader's schema; None: it is that already.

    A part that does not resolve raises :class:`Unresolved` when there is data of it: another branch
    may resolve.
    """
    return _Resolution(writer, reader).step(writer.root, reader.root)


class _Resolution:
    def __init__(self, writer: AvroSchema, reader: AvroSchema) -> None:
        self._writer = writer
        self._reader = reader
        # A record may stand inside of itself: its step is needed while it is being made.
        self._records: dict[tuple[str, str], Later] = {}

    def step(self, written: Any, asked: Any) -> Step | None:
        """What makes data of the one type data of the other."""
        written = self._writer.full(written)
        asked = self._reader.full(asked)
        if isinstance(written, list):
            return self._of_written_union(written, asked)
        if isinstance(asked, list):
            return self._into_union(written, asked)
        kind = type_of(written)
        if not self._matches(written, asked):
            return _unresolved(f"{_called(written)} is no {_called(asked)}")
        if kind in RECORDS:
            return self._of_records(written, asked)
        if kind == "enum":
            return _of_enums(written, asked)
        if kind == "array":
            return each_item(self.step(written["items"], asked["items"]))
        if kind == "map":
            return each_value(self.step(written["values"], asked["values"]))
        return _of_plain(written, asked)

    def _matches(self, written: Any, asked: Any) -> bool:
        """Whether the reader's type takes the writer's, without a look at fields and items."""
        kind = type_of(written)
        wanted = type_of(asked)
        if kind in RECORDS and wanted in RECORDS:
            return _is_called(written, asked)
        if kind in NAMED and kind == wanted:
            return _is_called(written, asked) and written.get("size") == asked.get("size")
        return kind == wanted or (kind, wanted) in _PROMOTIONS

    def _of_written_union(self, union: list[Any], asked: Any) -> Step | None:
        named: dict[str, Step | None] = {}
        plain: list[tuple[tuple[type, ...], Step | None]] = []
        for branch in map(self._writer.full, union):
            step = self.step(branch, asked)
            if type_of(branch) in NAMED:
                named[branch["name"]] = step
            else:
                plain.append((_CLASSES[type_of(branch)], step))
        if not named and not any(step for _, step in plain):
            return None

        def of_union(data: Any) -> Any:
            if type(data) is tuple:
                name, inner = data
                step = named[name]
                return inner if step is None else step(inner)
            for classes, step in plain:
                if isinstance(data, classes):
                    return data if step is None else step(data)
            raise Unresolved("a value of a union is of none of its types")

        return of_union

    def _into_union(self, written: Any, union: list[Any]) -> Step:
        """Into the branch of the same type and name, else into the first one that takes it.

        Source: org.apache.avro.Resolver.ReaderUnion of Java, which prefers the same type to a
        promotion.
        """
        branches = [
            branch for branch in map(self._reader.full, union) if self._matches(written, branch)
        ]
        if not branches:
            return _unresolved(f"{_called(written)} is in no type of the reader's union")
        branch = min(branches, key=lambda one: _distance(written, one))
        step = self.step(written, branch)
        if type_of(branch) not in NAMED:
            return step or as_it_is
        name = branch["name"]
        return lambda data: (name, data if step is None else step(data))

    def _of_records(self, written: Any, asked: Any) -> Step | None:
        key = written["name"], asked["name"]
        if key in self._records:
            return self._records[key]
        made = self._records[key] = Later()
        step = self._of_fields(written, asked)
        made.step = step or as_it_is
        return step

    def _of_fields(self, written: Any, asked: Any) -> Step | None:
        sources = {field["name"]: field for field in written["fields"]}
        copied: list[tuple[str, str, Step | None]] = []
        defaults: list[tuple[str, Callable[[], Any]]] = []
        for field in asked["fields"]:
            name = field["name"]
            source = next(
                (sources[one] for one in (name, *field.get("aliases", ())) if one in sources), None
            )
            if source is not None:
                copied.append((name, source["name"], self.step(source["type"], field["type"])))
            elif "default" in field:
                defaults.append((name, self._default(field)))
            else:
                return _unresolved(
                    f"{_called(asked)}.{name} is not in the writer's schema and has no default"
                )
        is_same = [(name, name, None) for name in sources] == copied and not defaults
        if is_same:
            return None

        def of_record(data: Any) -> Any:
            found = {}
            for name, source, step in copied:
                value = data[source]
                found[name] = value if step is None else step(value)
            for name, default in defaults:
                found[name] = default()
            return found

        return of_record

    def _default(self, field: Any) -> Callable[[], Any]:
        """What makes the default of a field: another list or dict for each record."""
        return partial(default_value, self._reader, field["type"], field["default"])


def _of_enums(written: Any, asked: Any) -> Step | None:
    known = frozenset(asked["symbols"])
    default = asked.get("default")
    if known.issuperset(written["symbols"]):
        return None

    def of_enum(symbol: Any) -> Any:
        if symbol in known:
            return symbol
        if default is None:
            raise Unresolved(
                f"a symbol of {_called(written)} is unknown to the reader, which has no default"
            )
        return default

    return of_enum


def each_item(step: Step | None) -> Step | None:
    """The step of a list whose items take *step*."""
    return None if step is None else lambda data: [step(one) for one in data]


def each_value(step: Step | None) -> Step | None:
    """The step of a dict whose values take *step*."""
    return None if step is None else lambda data: {key: step(one) for key, one in data.items()}


def _of_plain(written: Any, asked: Any) -> Step | None:
    """A value of the writer's logical type is of Python already; else the reader's makes one."""
    kind = type_of(written)
    wanted = type_of(asked)
    promoted = _PROMOTIONS.get((kind, wanted))
    if logical_reader(written) is not None:
        if promoted is None:
            return None
        return _unresolved(f"{written['logicalType']} is no {_called(asked)}")
    read = logical_reader(asked)
    if promoted is None or read is None:
        return promoted or read
    return lambda data: read(promoted(data))


def _unresolved(why: str) -> Step:
    def refuse(data: Any) -> Any:
        raise Unresolved(why)

    return refuse


def _distance(written: Any, asked: Any) -> int:
    """How far a type of the reader's union, which takes the data, is from the writer's."""
    if type_of(written) != type_of(asked):
        return 2
    return 0 if type_of(written) not in NAMED or written["name"] == asked["name"] else 1


def _is_called(written: Any, asked: Any) -> bool:
    """Whether the reader's type has the writer's name, without namespaces, or has it among its
    aliases.
    """
    name = written["name"]
    short = short_name(written["name"])
    return short_name(asked["name"]) == short or not {name, short}.isdisjoint(
        asked.get("aliases") or ()
    )


def _called(kind: Any) -> str:
    """A type, for people."""
    return str(kind["name"]) if isinstance(kind, Mapping) and "name" in kind else type_of(kind)


def as_it_is(data: Any) -> Any:
    """The step that changes nothing."""
    return data
