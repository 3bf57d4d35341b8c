"""Converts data of the writer's Avro schema to data of the reader's schema. Pure.

Fastavro resolves schemas, too. But it gives each record the JSON of a default, forgets to which
branch of the reader's union a record belongs, and applies only the writer's logical types.

The data is as fastavro reads it with ``return_named_type``: in a union, a value of a named type is
a pair of the type's full name and the value.

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
"""Converts data."""

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
"""Writer's type and reader's type -> the conversion; None: the value stays the same."""

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
"""Type -> the Python classes of its values."""


class LateStep:
    """A step that other steps use before it is known: a record may contain itself."""

    step: Step

    def __call__(self, data: Any) -> Any:
        return self.step(data)


class Unresolved(Exception):
    """Data of the writer's schema does not resolve to the reader's. The text quotes no data."""


def resolver(writer: AvroSchema, reader: AvroSchema) -> Step | None:
    """Return the step that makes data of the reader's schema; None: it is that already.

    If a part of the schema does not resolve, the step raises :class:`Unresolved` only for data of
    that part. Other branches of a union may resolve.
    """
    return _Resolution(writer, reader).step(writer.root, reader.root)


class _Resolution:
    def __init__(self, writer: AvroSchema, reader: AvroSchema) -> None:
        self._writer = writer
        self._reader = reader
        # The step of a record is needed while it is being made, because a record may contain
        # itself.
        self._records: dict[tuple[str, str], LateStep] = {}

    def step(self, written: Any, asked: Any) -> Step | None:
        """Return the step from the writer's type *written* to the reader's type *asked*."""
        written = self._writer.full(written)
        asked = self._reader.full(asked)
        if isinstance(written, list):
            return self._from_union(written, asked)
        if isinstance(asked, list):
            return self._into_union(written, asked)
        kind = type_of(written)
        if not self._matches(written, asked):
            return _unresolved(f"{_shown(written)} is no {_shown(asked)}")
        if kind in RECORDS:
            return self._record_step(written, asked)
        if kind == "enum":
            return _enum_step(written, asked)
        if kind == "array":
            return each_item(self.step(written["items"], asked["items"]))
        if kind == "map":
            return each_value(self.step(written["values"], asked["values"]))
        return _scalar_step(written, asked)

    def _matches(self, written: Any, asked: Any) -> bool:
        """Return whether the reader's type takes the writer's. Fields and items do not matter."""
        written_kind = type_of(written)
        asked_kind = type_of(asked)
        if written_kind in RECORDS and asked_kind in RECORDS:
            return _has_name_of(asked, written)
        if written_kind in NAMED and written_kind == asked_kind:
            return _has_name_of(asked, written) and written.get("size") == asked.get("size")
        return written_kind == asked_kind or (written_kind, asked_kind) in _PROMOTIONS

    def _from_union(self, union: list[Any], asked: Any) -> Step | None:
        """Return the step of a writer's union: it takes the step of the branch of each value.

        A value of a named branch comes as a pair with the name, and its step unwraps the pair. So
        there is a step if any branch is named, even if no value has to be changed. The branch of
        any other value is found by its class.
        """
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
                # Not isinstance: a bool is an int, and a datetime is a date.
                if type(data) in classes:
                    return data if step is None else step(data)
            raise Unresolved("a value of a union is of none of its types")

        return of_union

    def _into_union(self, written: Any, union: list[Any]) -> Step:
        """Return the step into the branch with the same type and name, or the first that matches.

        Source: org.apache.avro.Resolver.ReaderUnion of Java, which prefers the same type to a
        promotion.
        """
        branches = [
            branch for branch in map(self._reader.full, union) if self._matches(written, branch)
        ]
        if not branches:
            return _unresolved(f"{_shown(written)} is in no type of the reader's union")
        branch = min(branches, key=lambda branch: _distance(written, branch))
        step = self.step(written, branch)
        if type_of(branch) not in NAMED:
            return step or unchanged
        name = branch["name"]
        return lambda data: (name, data if step is None else step(data))

    def _record_step(self, written: Any, asked: Any) -> Step | None:
        key = written["name"], asked["name"]
        if key in self._records:
            return self._records[key]
        late_step = LateStep()
        self._records[key] = late_step
        step = self._fields_step(written, asked)
        late_step.step = step or unchanged
        return step

    def _fields_step(self, written: Any, asked: Any) -> Step | None:
        written_fields = {field["name"]: field for field in written["fields"]}
        # The reader's name, the writer's name, and the step from the writer's value.
        copied: list[tuple[str, str, Step | None]] = []
        defaults: list[tuple[str, Callable[[], Any]]] = []
        for field in asked["fields"]:
            name = field["name"]
            source = _written_field(written_fields, field)
            if source is not None:
                copied.append((name, source["name"], self.step(source["type"], field["type"])))
            elif "default" in field:
                defaults.append((name, self._default(field)))
            else:
                return _unresolved(
                    f"{_shown(asked)}.{name} is not in the writer's schema and has no default"
                )
        is_same = [(name, name, None) for name in written_fields] == copied and not defaults
        if is_same:
            return None

        def of_record(data: Any) -> Any:
            resolved = {}
            for name, source, step in copied:
                value = data[source]
                resolved[name] = value if step is None else step(value)
            for name, default in defaults:
                resolved[name] = default()
            return resolved

        return of_record

    def _default(self, field: Any) -> Callable[[], Any]:
        """Return what makes the default of a field, with a new list or dict for each record."""
        return partial(default_value, self._reader, field["type"], field["default"])


def _written_field(written_fields: Mapping[str, Any], field: Any) -> Any:
    """Return the writer's field that the reader's *field*, or one of its aliases, names."""
    for name in (field["name"], *field.get("aliases", ())):
        if name in written_fields:
            return written_fields[name]
    return None


def _enum_step(written: Any, asked: Any) -> Step | None:
    known = frozenset(asked["symbols"])
    default = asked.get("default")
    if known.issuperset(written["symbols"]):
        return None

    def of_enum(symbol: Any) -> Any:
        if symbol in known:
            return symbol
        if default is None:
            raise Unresolved(
                f"a symbol of {_shown(written)} is unknown to the reader, which has no default"
            )
        return default

    return of_enum


def each_item(step: Step | None) -> Step | None:
    """Return the step of a list whose items take *step*."""
    if step is None:
        return None
    return lambda data: [step(item) for item in data]


def each_value(step: Step | None) -> Step | None:
    """Return the step of a dict whose values take *step*."""
    if step is None:
        return None
    return lambda data: {key: step(value) for key, value in data.items()}


def _scalar_step(written: Any, asked: Any) -> Step | None:
    """Return the step that promotes a value, and applies the reader's logical type."""
    promote = _PROMOTIONS.get((type_of(written), type_of(asked)))
    if logical_reader(written) is not None:
        # Fastavro has made a value of the writer's logical type already, and it stays.
        if promote is None:
            return None
        return _unresolved(f"{written['logicalType']} is no {_shown(asked)}")
    read = logical_reader(asked)
    if promote is None or read is None:
        return promote or read
    return lambda data: read(promote(data))


def _unresolved(why: str) -> Step:
    def refuse(data: Any) -> Any:
        raise Unresolved(why)

    return refuse


def _distance(written: Any, asked: Any) -> int:
    """Return how far a matching type of the reader's union is from the writer's type."""
    if type_of(written) != type_of(asked):
        return 2
    if type_of(written) in NAMED and written["name"] != asked["name"]:
        return 1
    return 0


def _has_name_of(asked: Any, written: Any) -> bool:
    """Return whether the reader's type has the name of the writer's, or an alias with that name.

    Namespaces do not matter.
    """
    name = written["name"]
    short = short_name(name)
    if short_name(asked["name"]) == short:
        return True
    return not {name, short}.isdisjoint(asked.get("aliases") or ())


def _shown(kind: Any) -> str:
    """Return the name of a type, for people."""
    if isinstance(kind, Mapping) and "name" in kind:
        return str(kind["name"])
    return type_of(kind)


def unchanged(data: Any) -> Any:
    """Return *data*: the step that changes nothing."""
    return data
