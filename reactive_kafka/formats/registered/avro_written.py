"""Prepares values for fastavro: chooses the branch of each union, and refuses wrong values. Pure.

Fastavro itself takes a dict for the first record of a union that has most of its fields, an int for
the first number type, a datetime without a zone for one in the zone of the host, 7.5 for the
integer 7, 1e39 for the infinity of a float, any text for a UUID, anything for a boolean or a null,
and the letters of a text or the keys of a dict for an array. Here a class names its branch, a value
goes to the type that holds it exactly, and a value that fits several records equally is refused. A
value that does not fit at all raises in fastavro, and :mod:`.avro_misfits` finds out why.

Every step gets a value twice: as plain data, and as the object that the data was made of. The class
of the object names the branch.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from functools import cache
from math import isinf
from struct import Struct
from typing import Any
from uuid import UUID

from pydantic import RootModel

from reactive_kafka.errors import EncodeError
from reactive_kafka.formats.registered.avro_branches import NamedRecord
from reactive_kafka.formats.registered.avro_schemas import (
    NAMED,
    RECORDS,
    AvroSchema,
    short_name,
    type_of,
)
from reactive_kafka.formats.registered.model_fields import fields_of
from reactive_kafka.formats.registered.plain_data import is_model

Prepare = Callable[[Any, Any], Any]
"""Plain data, and the object it was made of -> what fastavro writes."""
Check = Callable[[Any], Any]
"""Scalar -> what fastavro writes. The object does not matter for scalars."""

_INSTANTS = ("timestamp-millis", "timestamp-micros")
_LOCAL = ("local-timestamp-millis", "local-timestamp-micros")
_TIMES = ("time-millis", "time-micros")
_NO_LISTS = (str, bytes, bytearray, memoryview, Mapping)
"""Python can iterate over these, and fastavro would write them as lists."""


def preparer(schema: AvroSchema) -> Prepare | None:
    """Return what prepares values for fastavro; None: they need no preparation.

    It raises an EncodeError that names the field and the problem, and not the value.
    """
    return _Preparation(schema).of(schema.root, "the value")


class _Preparation:
    def __init__(self, schema: AvroSchema) -> None:
        self._schema = schema
        self._records: dict[str, _Record] = {}

    def of(self, kind: Any, where: str) -> Prepare | None:
        """Return what prepares values of the type *kind*. *where* names the field."""
        kind = self._schema.full(kind)
        name = type_of(kind)
        if name == "union":
            return self._of_union([self._schema.full(branch) for branch in kind], where)
        if name in RECORDS:
            return self._of_record(kind)
        if name == "array":
            return _each_item(self.of(kind["items"], where), where)
        if name == "map":
            return _each_value(self.of(kind["values"], where), where)
        check = _scalar_check(kind, where)
        if check is None:
            return None
        return lambda plain, source: check(plain)

    def _of_record(self, record: Any) -> Prepare | None:
        name = record["name"]
        if name in self._records:
            return self._records[name]
        # Kept before its fields are looked at, because a record may contain itself.
        made = _Record()
        self._records[name] = made
        for field in record["fields"]:
            where = f"{short_name(name)}.{field['name']}"
            check = _scalar_check(self._schema.full(field["type"]), where)
            step = self.of(field["type"], where)
            if check is not None:
                made.checks[field["name"]] = check
            elif step is not None:
                made.steps[field["name"]] = step
        return made if made.checks or made.steps else None

    def _of_union(self, union: list[Any], where: str) -> Prepare | None:
        steps = [self.of(branch, where) for branch in union]
        branches = [index for index, branch in enumerate(union) if type_of(branch) != "null"]
        choice = _BranchChoice(self._schema, union, where)
        if len(branches) == 1:
            return _optional(choice.hints[branches[0]], steps[branches[0]])

        def of_union(plain: Any, source: Any) -> Any:
            if plain is None:
                return None
            if isinstance(plain, tuple) and len(plain) == 2 and isinstance(plain[0], str):
                # The user has named the branch: a pair of its name and the value.
                name, plain = plain
                index = choice.named(name)
                source = plain
            else:
                index = choice.index_of(plain, source)
            step = steps[index]
            return choice.hints[index], plain if step is None else step(plain, source)

        return of_union


class _Record:
    """Prepares the fields of a record that need it."""

    def __init__(self) -> None:
        # By the name of the field.
        self.checks: dict[str, Check] = {}
        self.steps: dict[str, Prepare] = {}

    def __call__(self, plain: Any, source: Any) -> Any:
        if not isinstance(plain, Mapping):
            return plain
        changed: dict[str, Any] = {}
        for name, check in self.checks.items():
            if name in plain:
                value = plain[name]
                ready = check(value)
                if ready is not value:
                    changed[name] = ready
        if self.steps:
            kind: Any = type(source)
            attributes = _attributes_of(kind)
            for name, step in self.steps.items():
                if name in plain:
                    value = plain[name]
                    ready = step(value, _source_of(source, attributes, name, value))
                    if ready is not value:
                        changed[name] = ready
        if not changed:
            return plain
        # A copy, because the dict may be the user's.
        return {**plain, **changed}


@cache
def _attributes_of(kind: Hashable) -> Mapping[str, str] | None:
    """Return name in the data -> attribute of a model; None: the class is not a model."""
    if not is_model(kind):
        return None
    return {field.written_as: field.attribute for field in fields_of(kind)}


def _source_of(source: Any, attributes: Mapping[str, str] | None, name: str, value: Any) -> Any:
    """Return the object that a field's value was made of, or the value if that is not known.

    Args:
        source: The object that the record was made of.
        attributes: Name in the data -> attribute of that object.
        name: The name of the field in the data.
        value: Its plain value.
    """
    if attributes is None:
        return source.get(name, value) if isinstance(source, Mapping) else value
    part = getattr(source, attributes.get(name, name), value)
    while isinstance(part, RootModel):
        part = part.root
    return part


def _each_item(step: Prepare | None, where: str) -> Prepare:
    """Return what prepares a list with *step*, and refuses what only looks like one."""

    def each(plain: Any, source: Any) -> Any:
        if isinstance(plain, _NO_LISTS):
            raise EncodeError(f"{where} takes a list, not {type(plain).__name__}")
        if step is None:
            return plain
        if isinstance(plain, set | frozenset):
            plain = list(plain)
        if not isinstance(plain, list | tuple):
            return plain
        sources = plain
        if isinstance(source, list | tuple) and len(source) == len(plain):
            sources = source
        return [step(item, item_source) for item, item_source in zip(plain, sources, strict=True)]

    return each


def _each_value(step: Prepare | None, where: str) -> Prepare:
    """Return what prepares the values of a dict with *step*, and refuses anything else."""

    def each(plain: Any, source: Any) -> Any:
        if not isinstance(plain, Mapping):
            raise EncodeError(f"{where} takes a dict, not {type(plain).__name__}")
        if step is None:
            return plain
        sources = source if isinstance(source, Mapping) else plain
        return {key: step(value, sources.get(key, value)) for key, value in plain.items()}

    return each


def _optional(hint: str, step: Prepare | None) -> Prepare | None:
    """Return what prepares a union of null and one type.

    With the *hint*, the name of the branch, fastavro does not choose a branch itself.
    """
    if step is None:
        return None
    return lambda plain, source: None if plain is None else (hint, step(plain, source))


def _scalar_check(kind: Any, where: str) -> Check | None:
    """Return what refuses values that fastavro would write as another value."""
    logical = kind.get("logicalType") if isinstance(kind, Mapping) else None
    name = type_of(kind)
    if name in _BITS:
        return _integer_check(name, logical, where)
    if name in ("float", "double"):
        return _number_check(name, where)
    if name == "boolean":
        return _boolean_check(where)
    if name == "null":
        return _null_check(where)
    if name == "string" and logical == "uuid":
        return _uuid_check(where)
    return None


def _integer_check(name: str, logical: Any, where: str) -> Check:
    limit = 2 ** (_BITS[name] - 1)
    is_of_class = _CHECKS.get(logical) if isinstance(logical, str) else None

    def check(plain: Any) -> Any:
        if type(plain) is int:
            if -limit <= plain < limit:
                return plain
            raise EncodeError(f"{where} does not fit the {_BITS[name]} bits of {name}")
        if is_of_class is not None and is_of_class(plain, where):
            return plain
        if isinstance(plain, bool) or not hasattr(plain, "__index__"):
            expected = logical if is_of_class else "an integer"
            raise EncodeError(f"{where} takes {expected}, not {type(plain).__name__}")
        return check(operator.index(plain))

    return check


def _number_check(name: str, where: str) -> Check:
    layout = Struct("f" if name == "float" else "d")
    is_double = name == "double"

    def check(plain: Any) -> Any:
        if is_double and type(plain) is float:
            return plain
        if isinstance(plain, bool | str) or not hasattr(plain, "__float__"):
            raise EncodeError(f"{where} takes a number, not {type(plain).__name__}")
        try:
            number = float(plain)
            held = layout.unpack(layout.pack(number))[0]
        except OverflowError:
            raise EncodeError(f"{where} is too large for {name}") from None
        except ValueError:
            # A signalling NaN.
            raise EncodeError(f"{where} is no number that {name} has") from None
        if isinf(held) and plain != held:
            raise EncodeError(f"{where} is too large for {name}")
        if isinstance(plain, int) and held != plain:
            raise EncodeError(f"{where} is an integer that {name} does not hold exactly")
        return number

    return check


def _boolean_check(where: str) -> Check:
    def check(plain: Any) -> Any:
        if isinstance(plain, bool):
            return plain
        kind = type(plain)
        # Numpy's are no bools to Python.
        if kind.__module__ == "numpy" and kind.__name__ in ("bool", "bool_"):
            return bool(plain)
        raise EncodeError(f"{where} takes a bool, not {kind.__name__}")

    return check


def _null_check(where: str) -> Check:
    def check(plain: Any) -> Any:
        if plain is not None:
            raise EncodeError(f"{where} takes None, not {type(plain).__name__}")

    return check


def _uuid_check(where: str) -> Check:
    def check(plain: Any) -> Any:
        if isinstance(plain, str):
            try:
                UUID(plain)
            except ValueError:
                raise EncodeError(f"{where} is no UUID") from None
        elif not isinstance(plain, UUID):
            raise EncodeError(f"{where} takes a UUID, not {type(plain).__name__}")
        return plain

    return check


def _is_instant(value: Any, where: str) -> bool:
    """Return whether it is a datetime; raise if it has no zone, which fastavro would guess."""
    if isinstance(value, datetime) and value.utcoffset() is None:
        raise EncodeError(f"{where} has no time zone")
    return isinstance(value, datetime)


def _is_local_time(value: Any, where: str) -> bool:
    """Return whether it is a datetime; raise if it has a zone, which would get lost."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        raise EncodeError(f"{where} has a time zone, and a local timestamp has none")
    return isinstance(value, datetime)


def _is_time_of_day(value: Any, where: str) -> bool:
    """Return whether it is a time; raise if it has a zone, which would get lost."""
    if isinstance(value, time) and value.tzinfo is not None:
        raise EncodeError(f"{where} has a time zone, and a time of day has none")
    return isinstance(value, time)


def _is_date(value: Any, where: str) -> bool:
    """Return whether it is a date; raise if it is a datetime, whose time would get lost."""
    if isinstance(value, datetime):
        raise EncodeError(f"{where} is a datetime, and a date has no time")
    return isinstance(value, date | str)


_BITS = {"int": 32, "long": 64}
_CHECKS: Mapping[str, Callable[[Any, str], bool]] = {
    **dict.fromkeys(_INSTANTS, _is_instant),
    **dict.fromkeys(_LOCAL, _is_local_time),
    **dict.fromkeys(_TIMES, _is_time_of_day),
    "date": _is_date,
}
"""Logical type of an integer -> what checks that a value is of its Python class."""


class _BranchChoice:
    """Chooses the branch of a union for a value.

    Attributes:
        hints: The name that fastavro uses for each branch.
    """

    def __init__(self, schema: AvroSchema, union: list[Any], where: str) -> None:
        self._schema = schema
        self._union = union
        # Names the field, for errors.
        self._where = where
        # Class -> the index of the branch with its name, for the classes that were seen.
        self._index_by_class: dict[type, int | None] = {}
        self.hints = [
            branch["name"] if type_of(branch) in NAMED else type_of(branch) for branch in union
        ]

    def named(self, name: str) -> int:
        """Return the branch with a name: its full name, or its short one if only one has that."""
        if name in self.hints:
            return self.hints.index(name)
        matching = [
            index for index, hint in enumerate(self.hints) if short_name(hint) == short_name(name)
        ]
        if len(matching) != 1:
            raise EncodeError(f"{self._where} is of a type that the schema's union does not have")
        return matching[0]

    def index_of(self, plain: Any, source: Any) -> int:
        """Return the branch for a value that is not None."""
        if isinstance(source, NamedRecord) and source.name in self.hints:
            return self.hints.index(source.name)
        by_class = self._by_class(type(source))
        if by_class is not None:
            is_record = type_of(self._union[by_class]) in RECORDS
            if is_record == isinstance(plain, Mapping):
                return by_class
        if isinstance(plain, Mapping):
            return self._of_mapping(plain)
        rank, index = min((_rank(branch, plain), index) for index, branch in enumerate(self._union))
        if rank == _NEVER:
            raise EncodeError(
                f"{self._where} is a {type(source).__name__}, which the schema's union does not "
                "have"
            )
        return index

    def _by_class(self, kind: type) -> int | None:
        """Return the branch with the name of a model or enum, or of one of its base classes."""
        if kind not in self._index_by_class:
            index = None
            if is_model(kind) or issubclass(kind, Enum):
                index = self._called_like(kind)
            self._index_by_class[kind] = index
        return self._index_by_class[kind]

    def _called_like(self, kind: type) -> int | None:
        for base in kind.__mro__:
            matching = [
                index
                for index, branch in enumerate(self._union)
                if type_of(branch) in NAMED and short_name(branch["name"]) == base.__name__
            ]
            if len(matching) == 1:
                return matching[0]
        return None

    def _of_mapping(self, plain: Mapping[Any, Any]) -> int:
        """Return the record that fits a dict best, or else a map.

        It is the one that lacks the fewest of the keys, and of these the one with the fewest other
        fields.
        """
        # Keys that the record lacks, fields that the dict lacks, and the index of the record.
        fitting: list[tuple[int, int, int]] = []
        for index, branch in enumerate(self._union):
            if type_of(branch) in RECORDS and self._holds(branch, plain):
                fields = {field["name"] for field in branch["fields"]}
                fitting.append((len(plain.keys() - fields), len(fields - plain.keys()), index))
        if not fitting:
            if "map" in self.hints:
                return self.hints.index("map")
            raise EncodeError(f"{self._where} fits no record of the schema's union")
        best = min(fitting)
        alike = [self.hints[index] for *distance, index in fitting if tuple(distance) == best[:2]]
        if len(alike) > 1:
            raise EncodeError(
                f"{self._where} fits {' and '.join(alike)} alike: send an object of a class of "
                "that name, or a pair of the name and the fields"
            )
        return best[2]

    def _holds(self, kind: Any, value: Any) -> bool:
        """Return whether data may be of a type. It is exact enough to tell records apart."""
        kind = self._schema.full(kind)
        name = type_of(kind)
        if name == "null":
            return value is None
        if name == "union":
            return any(self._holds(branch, value) for branch in kind)
        if name == "map":
            return isinstance(value, Mapping)
        if name not in RECORDS:
            return _rank(kind, value) < _NEVER
        if not isinstance(value, Mapping):
            return False
        for field in kind["fields"]:
            if field["name"] in value:
                if not self._holds(field["type"], value[field["name"]]):
                    return False
            elif not may_be_missing(field):
                return False
        return True


def may_be_missing(field: Mapping[str, Any]) -> bool:
    """Return whether fastavro writes a record without this field."""
    kind = field["type"]
    return "default" in field or kind == "null" or (isinstance(kind, list) and "null" in kind)


_RAW = 8
"""The rank of a value that fits the base of a logical type: it is read as a value of that type."""
_NEVER = 9
"""The rank of a value that does not fit."""


def _rank(branch: Any, value: Any) -> int:
    """Return how well a type that is no record holds a value: 0 is best, _NEVER not at all."""
    logical = branch.get("logicalType") if isinstance(branch, Mapping) else None
    if not isinstance(logical, str) or logical not in _LOGICAL:
        return _rank_of_base(branch, value)
    if isinstance(value, _LOGICAL[logical]):
        return _rank_of_logical(logical, value)
    if _rank_of_base(branch, value) == _NEVER:
        return _NEVER
    return _RAW


def _rank_of_base(branch: Any, value: Any) -> int:
    """Return the rank for a type without its logical type."""
    name = type_of(branch)
    if name in ("double", "float") and not isinstance(value, bool):
        return _rank_of_number(name, value)
    if isinstance(value, bool) or name == "boolean":
        fits = isinstance(value, bool) and name == "boolean"
    elif name in _BITS:
        limit = 2 ** (_BITS[name] - 1)
        fits = isinstance(value, int) and -limit <= value < limit
    elif name == "enum":
        fits = value in branch["symbols"]
    elif name == "fixed":
        fits = isinstance(value, bytes | bytearray) and len(value) == branch["size"]
    else:
        fits = isinstance(value, _CLASSES.get(name, ()))
    return 0 if fits else _NEVER


def _rank_of_number(name: str, value: Any) -> int:
    """Return the rank for a double or float: doubles first, and floats before ints."""
    rank = 0 if name == "double" else 1
    if isinstance(value, float):
        return rank
    if isinstance(value, int):
        return 2 + rank
    return _NEVER


_CLASSES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "bytes": (bytes, bytearray),
    "array": (list, tuple, set, frozenset),
}
_LOGICAL: Mapping[str, type] = {
    **dict.fromkeys((*_INSTANTS, *_LOCAL), datetime),
    "date": date,
    **dict.fromkeys(_TIMES, time),
    "decimal": Decimal,
    "uuid": UUID,
}
"""Logical type -> the Python class of its values."""


def _rank_of_logical(logical: str, value: Any) -> int:
    """Return the rank of a value that is of the logical type's class."""
    if logical == "date":
        # A datetime is a date to Python, but would lose its time.
        return 5 if isinstance(value, datetime) else 0
    has_zone = isinstance(value, datetime) and value.utcoffset() is not None
    if logical in _INSTANTS and not has_zone:
        return 4
    if logical in _LOCAL and has_zone:
        return 4
    return 0
