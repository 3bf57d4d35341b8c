"""What fastavro is given to write: each union's branch is chosen, and what it would write wrongly
is refused. Pure.

fastavro takes a dict for the first record of a union that most of its fields are in, an int for the
first number, a datetime without a zone for one in the zone of the host, 7.5 for the integer 7, and
any text for a UUID. Here a class names its branch, a value goes to the type that holds exactly it,
and what fits several records alike is refused. What does not fit at all raises in fastavro, and
:mod:`.avro_misfits` finds out why.

Every step takes a datum twice: as plain data, and as the object that it was made of, whose class
names the branch.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from functools import cache
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
"""From plain data and its object to what fastavro takes."""
Check = Callable[[Any], Any]
"""The same of a scalar, whose object does not matter."""

_INSTANTS = ("timestamp-millis", "timestamp-micros")
_LOCAL = ("local-timestamp-millis", "local-timestamp-micros")
_TIMES = ("time-millis", "time-micros")


def preparer(schema: AvroSchema) -> Prepare | None:
    """What makes a value ready to be written; None: every value is.

    Its EncodeError names a field and says what is wrong with it, without its value.
    """
    return _Preparation(schema).of(schema.root, "the value")


class _Preparation:
    def __init__(self, schema: AvroSchema) -> None:
        self._schema = schema
        self._records: dict[str, _Record] = {}

    def of(self, kind: Any, at: str) -> Prepare | None:
        """*at* names the field for people."""
        kind = self._schema.full(kind)
        name = type_of(kind)
        if name == "union":
            return self._of_union([self._schema.full(one) for one in kind], at)
        if name in RECORDS:
            return self._of_record(kind)
        if name == "array":
            return _each_item(self.of(kind["items"], at))
        if name == "map":
            return _each_value(self.of(kind["values"], at))
        check = _of_scalar(kind, at)
        return None if check is None else lambda plain, it: check(plain)

    def _of_record(self, record: Any) -> Prepare | None:
        name = record["name"]
        if name in self._records:
            return self._records[name]
        made = self._records[name] = _Record()
        for field in record["fields"]:
            at = f"{short_name(name)}.{field['name']}"
            check = _of_scalar(self._schema.full(field["type"]), at)
            step = self.of(field["type"], at)
            if check is not None:
                made.checks[field["name"]] = check
            elif step is not None:
                made.steps[field["name"]] = step
        return made if made.checks or made.steps else None

    def _of_union(self, union: list[Any], at: str) -> Prepare | None:
        steps = [self.of(branch, at) for branch in union]
        branches = [index for index, branch in enumerate(union) if type_of(branch) != "null"]
        choice = _Union(self._schema, union, at)
        if len(branches) == 1:
            return _optional(choice.hints[branches[0]], steps[branches[0]])

        def of_union(plain: Any, it: Any) -> Any:
            if plain is None:
                return None
            if isinstance(plain, tuple) and len(plain) == 2 and isinstance(plain[0], str):
                index = choice.named(plain[0])
                plain = plain[1]
                it = plain
            else:
                index = choice.index_of(plain, it)
            step = steps[index]
            return choice.hints[index], plain if step is None else step(plain, it)

        return of_union


class _Record:
    """The fields of a record that have to be prepared."""

    def __init__(self) -> None:
        self.checks: dict[str, Check] = {}
        self.steps: dict[str, Prepare] = {}

    def __call__(self, plain: Any, it: Any) -> Any:
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
            kind: Any = type(it)
            attributes = _attributes_of(kind)
            for name, step in self.steps.items():
                if name in plain:
                    value = plain[name]
                    changed[name] = step(value, _part_of(it, attributes, name, value))
        # A dict may be the user's, and stays as it is.
        return {**plain, **changed} if changed else plain


@cache
def _attributes_of(kind: Hashable) -> Mapping[str, str] | None:
    """Name in the data -> attribute, of a model; None: it is none."""
    return (
        {field.written_as: field.attribute for field in fields_of(kind)} if is_model(kind) else None
    )


def _part_of(it: Any, attributes: Mapping[str, str] | None, name: str, value: Any) -> Any:
    """The object that a field's *value* was made of, as far as that can be told."""
    if attributes is None:
        return it.get(name, value) if isinstance(it, Mapping) else value
    part = getattr(it, attributes.get(name, name), value)
    while isinstance(part, RootModel):
        part = part.root
    return part


def _each_item(step: Prepare | None) -> Prepare | None:
    if step is None:
        return None

    def each(plain: Any, it: Any) -> Any:
        if isinstance(plain, set | frozenset):
            plain = list(plain)
        if not isinstance(plain, list | tuple):
            return plain
        objects = it if isinstance(it, list | tuple) and len(it) == len(plain) else plain
        return [step(one, other) for one, other in zip(plain, objects, strict=True)]

    return each


def _each_value(step: Prepare | None) -> Prepare | None:
    if step is None:
        return None

    def each(plain: Any, it: Any) -> Any:
        if not isinstance(plain, Mapping):
            return plain
        objects = it if isinstance(it, Mapping) else plain
        return {key: step(one, objects.get(key, one)) for key, one in plain.items()}

    return each


def _optional(hint: str, step: Prepare | None) -> Prepare | None:
    """A union of null and one type. fastavro does not look into what a *hint* names."""
    if step is None:
        return None
    return lambda plain, it: None if plain is None else (hint, step(plain, it))


def _of_scalar(kind: Any, at: str) -> Check | None:
    """What refuses a value that fastavro would write as another one."""
    logical = kind.get("logicalType") if isinstance(kind, Mapping) else None
    name = type_of(kind)
    if name in _BITS:
        return _of_integer(name, logical, at)
    if name in ("float", "double"):
        return _of_number(name, at)
    return _of_uuid(at) if name == "string" and logical == "uuid" else None


def _of_integer(name: str, logical: Any, at: str) -> Check:
    limit = 2 ** (_BITS[name] - 1)
    check = _CHECKS.get(logical) if isinstance(logical, str) else None

    def of_integer(plain: Any) -> Any:
        if type(plain) is int:
            if -limit <= plain < limit:
                return plain
            raise EncodeError(f"{at} does not fit the {_BITS[name]} bits of {name}")
        if check is not None and check(plain, at):
            return plain
        if isinstance(plain, bool) or not hasattr(plain, "__index__"):
            raise EncodeError(
                f"{at} takes {logical if check else 'an integer'}, not {type(plain).__name__}"
            )
        return of_integer(operator.index(plain))

    return of_integer


def _of_number(name: str, at: str) -> Check:
    layout = Struct("f" if name == "float" else "d")

    def of_number(plain: Any) -> Any:
        if type(plain) is float:
            return plain
        if isinstance(plain, bool | str) or not hasattr(plain, "__float__"):
            raise EncodeError(f"{at} takes a number, not {type(plain).__name__}")
        number = float(plain)
        if isinstance(plain, int) and layout.unpack(layout.pack(number))[0] != plain:
            raise EncodeError(f"{at} is an integer that {name} does not hold exactly")
        return number

    return of_number


def _of_uuid(at: str) -> Check:
    def of_uuid(plain: Any) -> Any:
        if isinstance(plain, str):
            try:
                UUID(plain)
            except ValueError:
                raise EncodeError(f"{at} is no UUID") from None
        elif not isinstance(plain, UUID):
            raise EncodeError(f"{at} takes a UUID, not {type(plain).__name__}")
        return plain

    return of_uuid


def _is_instant(value: Any, at: str) -> bool:
    """EncodeError: its zone would be guessed."""
    if isinstance(value, datetime) and value.utcoffset() is None:
        raise EncodeError(f"{at} has no time zone")
    return isinstance(value, datetime)


def _is_local_time(value: Any, at: str) -> bool:
    """EncodeError: its zone would be forgotten."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        raise EncodeError(f"{at} has a time zone, and a local timestamp has none")
    return isinstance(value, datetime)


def _is_time_of_day(value: Any, at: str) -> bool:
    """EncodeError: its zone would be forgotten."""
    if isinstance(value, time) and value.tzinfo is not None:
        raise EncodeError(f"{at} has a time zone, and a time of day has none")
    return isinstance(value, time)


def _is_date(value: Any, at: str) -> bool:
    """EncodeError: its time would be forgotten."""
    if isinstance(value, datetime):
        raise EncodeError(f"{at} is a datetime, and a date has no time")
    return isinstance(value, date | str)


_BITS = {"int": 32, "long": 64}
_CHECKS: Mapping[str, Callable[[Any, str], bool]] = {
    **dict.fromkeys(_INSTANTS, _is_instant),
    **dict.fromkeys(_LOCAL, _is_local_time),
    **dict.fromkeys(_TIMES, _is_time_of_day),
    "date": _is_date,
}
"""Logical type of integers -> whether a value is of its class."""


class _Union:
    """The choice among the branches of a union."""

    def __init__(self, schema: AvroSchema, union: list[Any], at: str) -> None:
        self._schema = schema
        self._union = union
        self._at = at
        self._classes: dict[type, int | None] = {}
        self.hints = [
            branch["name"] if type_of(branch) in NAMED else type_of(branch) for branch in union
        ]
        """What fastavro calls each branch."""

    def named(self, name: str) -> int:
        """The branch of a name: the full one, or the short one of a single branch."""
        if name in self.hints:
            return self.hints.index(name)
        found = [
            index for index, hint in enumerate(self.hints) if short_name(hint) == short_name(name)
        ]
        if len(found) != 1:
            raise EncodeError(f"{self._at} is of a type that the schema's union does not have")
        return found[0]

    def index_of(self, plain: Any, it: Any) -> int:
        """The branch of a value that is not None."""
        if isinstance(it, NamedRecord) and it.name in self.hints:
            return self.hints.index(it.name)
        by_class = self._by_class(type(it))
        if by_class is not None and isinstance(plain, Mapping) == (
            type_of(self._union[by_class]) in RECORDS
        ):
            return by_class
        if isinstance(plain, Mapping):
            return self._of_mapping(plain)
        rank, index = min((_rank(branch, plain), index) for index, branch in enumerate(self._union))
        if rank == _NEVER:
            raise EncodeError(
                f"{self._at} is a {type(it).__name__}, which the schema's union does not have"
            )
        return index

    def _by_class(self, kind: type) -> int | None:
        """The branch that is called like the class of a model or enum, or like a class that it is
        derived from.
        """
        if kind not in self._classes:
            self._classes[kind] = (
                self._called_like(kind) if is_model(kind) or issubclass(kind, Enum) else None
            )
        return self._classes[kind]

    def _called_like(self, kind: type) -> int | None:
        for base in kind.__mro__:
            found = [
                index
                for index, branch in enumerate(self._union)
                if type_of(branch) in NAMED and short_name(branch["name"]) == base.__name__
            ]
            if len(found) == 1:
                return found[0]
        return None

    def _of_mapping(self, plain: Mapping[Any, Any]) -> int:
        """The record that knows most of the keys, and has the fewest other fields; else a map."""
        fitting: list[tuple[int, int, int]] = []
        for index, branch in enumerate(self._union):
            if type_of(branch) in RECORDS and self._holds(branch, plain):
                fields = {field["name"] for field in branch["fields"]}
                fitting.append((len(plain.keys() - fields), len(fields - plain.keys()), index))
        if not fitting:
            if "map" in self.hints:
                return self.hints.index("map")
            raise EncodeError(f"{self._at} fits no record of the schema's union")
        best = min(fitting)
        alike = [self.hints[index] for *distance, index in fitting if tuple(distance) == best[:2]]
        if len(alike) > 1:
            raise EncodeError(
                f"{self._at} fits {' and '.join(alike)} alike: send an object of a class of that name, or a pair of the"
                " name and the fields"
            )
        return best[2]

    def _holds(self, kind: Any, value: Any) -> bool:
        """Whether data may be of a type, going by what is needed to tell records apart."""
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
        return isinstance(value, Mapping) and all(
            self._holds(field["type"], value[field["name"]])
            if field["name"] in value
            else may_be_missing(field)
            for field in kind["fields"]
        )


def may_be_missing(field: Mapping[str, Any]) -> bool:
    """Whether fastavro writes a record without this field."""
    kind = field["type"]
    return "default" in field or kind == "null" or (isinstance(kind, list) and "null" in kind)


_RAW = 8
_NEVER = 9
"""The ranks of a value that is read as another one, of the logical type, and of one that is not
taken.
"""


def _rank(branch: Any, value: Any) -> int:
    """How well a type holds a value that is no record: 0 is best, :data:`_NEVER` not at all."""
    logical = branch.get("logicalType") if isinstance(branch, Mapping) else None
    if not isinstance(logical, str) or logical not in _LOGICAL:
        return _rank_of_base(branch, value)
    if isinstance(value, _LOGICAL[logical]):
        return _rank_of_logical(logical, value)
    return _NEVER if _rank_of_base(branch, value) == _NEVER else _RAW


def _rank_of_base(branch: Any, value: Any) -> int:
    name = type_of(branch)
    if isinstance(value, bool) or name == "boolean":
        return 0 if isinstance(value, bool) and name == "boolean" else _NEVER
    if name in _BITS:
        limit = 2 ** (_BITS[name] - 1)
        return 0 if isinstance(value, int) and -limit <= value < limit else _NEVER
    if name in ("double", "float"):
        size = 0 if name == "double" else 1
        return size if isinstance(value, float) else 2 + size if isinstance(value, int) else _NEVER
    if name == "enum":
        is_in = value in branch["symbols"]
    elif name == "fixed":
        is_in = isinstance(value, bytes | bytearray) and len(value) == branch["size"]
    else:
        is_in = isinstance(value, _CLASSES.get(name, ()))
    return 0 if is_in else _NEVER


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
"""Logical type -> the class of Python that it holds."""


def _rank_of_logical(logical: str, value: Any) -> int:
    if logical == "date":
        return 5 if isinstance(value, datetime) else 0
    has_zone = isinstance(value, datetime) and value.utcoffset() is not None
    is_other_kind = (logical in _INSTANTS and not has_zone) or (logical in _LOCAL and has_zone)
    return 4 if is_other_kind else 0
