"""The Spark columns of a payload model, and SQL conditions for rows that do not fit it. Pure."""

from __future__ import annotations

import enum
import re
import typing
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID

from reactive_kafka.errors import ConfigError
from reactive_kafka.formats.payload_type import PayloadType, name_of, payload_type_of
from reactive_kafka.spark.batches import scalars
from reactive_kafka.spark.batches.payload_fields import (
    PLAIN_FORMS,
    Forms,
    ModelField,
    UnreadableModelError,
    fields_of,
    is_model,
)
from reactive_kafka.spark.batches.scalars import BytesForm, Misfit, Scalar, literal

KAFKA_COLUMNS = (
    "key",
    "value",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestampType",
    "headers",
)
CORRUPT = "_corrupt"
MOST_DIGITS = 38
ALLOWED = (
    "str, int, float, bool, bytes, datetime, date, Decimal, UUID, Enum or Literal of str,"
    " a list, set or tuple[X, ...] of them, dict[str, X], other models, and '| None' of each"
)
_SCALARS = {
    str: scalars.TEXT,
    int: scalars.INTEGER,
    float: scalars.FLOAT,
    bool: scalars.BOOLEAN,
    date: scalars.DATE,
    UUID: scalars.UUID_TEXT,
    # A Decimal whose model does not limit its digits.
    Decimal: scalars.decimal(MOST_DIGITS, 18),
}


@dataclass(frozen=True, slots=True)
class Collection:
    """A list, a set, or a dict with text keys. Its methods are those of :class:`Scalar`."""

    element: Kind
    element_may_be_null: bool
    is_map: bool
    is_set: bool = False

    @property
    def json(self) -> str:
        """The SQL type that is read."""
        return self._type_of(self.element.json)

    @property
    def column(self) -> str:
        """The SQL type of the column."""
        return self._type_of(self.element.column)

    @property
    def is_read_as_it_is(self) -> bool:
        """True if the value that is read is the column's value."""
        return self.element.is_read_as_it_is and not self.is_set

    def _type_of(self, element: str) -> str:
        return f"MAP<STRING, {element}>" if self.is_map else f"ARRAY<{element}>"

    def value(self, at: str) -> str:
        """Return SQL of the column's value; *at* is SQL of the value that was read."""
        if self.is_read_as_it_is:
            return at
        inner = _variable(at)
        value = self.element.value(inner)
        if self.is_map:
            return f"transform_values({at}, (k, {inner}) -> {value})"
        values = f"transform({at}, {inner} -> {value})"
        return f"array_distinct({values})" if self.is_set else values

    def null(self, at: str) -> str:
        """Return an SQL condition: the value is missing or null."""
        return f"{at} IS NULL"

    def misfits(self, at: str, name: str, made: str | None) -> Iterator[Misfit]:
        """Yield what may be wrong with a value that is not null, as :meth:`Scalar.misfits`."""
        if self.is_map:
            # A plain handler gets the last value of a key, Spark would return the first one.
            keys = f"map_keys({at})"
            yield Misfit(f"size({keys}) <> size(array_distinct({keys}))", f"{name} has a key twice")
        inner = _variable(at)
        values = f"map_values({at})" if self.is_map else at
        element_misfits = _misfits_of_value(
            self.element, self.element_may_be_null, inner, f"{name}[]", None
        )
        for misfit in element_misfits:
            yield Misfit(f"exists({values}, {inner} -> {misfit.condition})", misfit.reason)


def _variable(at: str) -> str:
    """Return a name for an element of *at*, which may be a part of an element itself."""
    outer = _VARIABLE.match(at)
    return f"x{int(outer[1]) + 1}" if outer else "x0"


_VARIABLE = re.compile(r"x([0-9]+)\b")


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a model. ``name`` is that of its column, ``json_name`` that in JSON."""

    name: str
    json_name: str
    kind: Kind
    may_be_null: bool


@dataclass(frozen=True, slots=True)
class Struct:
    """A model. Its methods are those of :class:`Scalar`."""

    fields: tuple[Field, ...]

    @property
    def json(self) -> str:
        """The SQL type that is read."""
        return _struct_type((field.json_name, field.kind.json) for field in self.fields)

    @property
    def column(self) -> str:
        """The SQL type of the column."""
        return _struct_type((field.name, field.kind.column) for field in self.fields)

    @property
    def is_read_as_it_is(self) -> bool:
        """True if the value that is read is the column's value."""
        return all(
            field.name == field.json_name and field.kind.is_read_as_it_is for field in self.fields
        )

    def value(self, at: str) -> str:
        """Return SQL of the column's value; *at* is SQL of the value that was read."""
        if self.is_read_as_it_is:
            return at
        values = (
            f"{literal(field.name)}, {field.kind.value(_field_of(at, field))}"
            for field in self.fields
        )
        return f"CASE WHEN {at} IS NOT NULL THEN named_struct({', '.join(values)}) END"

    def null(self, at: str) -> str:
        """Return an SQL condition: the value is missing or null."""
        return f"{at} IS NULL"

    def misfits(self, at: str, name: str, made: str | None) -> Iterator[Misfit]:
        """Yield what may be wrong with a value that is not null, as :meth:`Scalar.misfits`."""
        for field in self.fields:
            path = f"{name}.{field.name}" if name else field.name
            made_field = f"{made}.{identifier(field.name)}" if made else None
            field_misfits = _misfits_of_value(
                field.kind, field.may_be_null, _field_of(at, field), path, made_field
            )
            for misfit in field_misfits:
                if name:
                    # A model inside of another one may be null itself.
                    condition = f"({at} IS NOT NULL AND {misfit.condition})"
                    yield Misfit(condition, misfit.reason)
                else:
                    yield misfit


def _field_of(at: str, field: Field) -> str:
    return f"{at}.{identifier(field.json_name)}"


Kind = Scalar | Collection | Struct


def _misfits_of_value(
    kind: Kind, may_be_null: bool, at: str, name: str, made: str | None
) -> Iterator[Misfit]:
    if not may_be_null:
        yield Misfit(kind.null(at), f"{name} is missing or null")
    yield from kind.misfits(at, name, made)


@dataclass(frozen=True, slots=True)
class PayloadSchema:
    """The columns of a payload."""

    # The model's name, for people.
    model: str
    struct: Struct
    # The payload is `Model | None`, so a record without a value (a tombstone) fits.
    accepts_none: bool = False

    def misfits(self, at: str, made: str) -> tuple[Misfit, ...]:
        """Return what may be wrong with a payload; the first match counts.

        *at* is SQL of the value that was read, *made* is SQL of the column's value.
        """
        return tuple(self.struct.misfits(at, "", made))


def payload_schema(model: Any, who: str, *, base64: bool = False) -> PayloadSchema:
    """Return the columns of a model, or of ``Model | None``.

    Args:
        model: The model.
        who: The decorator, for the texts of errors.
        base64: Bytes are base64 in the JSON, whatever the model says.

    Raises:
        ConfigError: The model cannot be columns. It has all problems at once.
    """
    asked = payload_type_of(model)
    whole = f"{who}, payload = {name_of(model)}"
    if not is_model(asked.base):
        raise ConfigError(f"{whole}: expected a dataclass, a pydantic model or a msgspec Struct")
    reader = _ModelReader(whole, base64)
    struct = reader.struct(asked.base, "", (), PLAIN_FORMS)
    reader.check_reserved(struct)
    if reader.problems:
        raise ConfigError(*reader.problems)
    return PayloadSchema(name_of(asked.base), struct, asked.accepts_none)


class _ModelReader:
    """Reads models into kinds of columns, and collects their problems."""

    def __init__(self, who: str, base64: bool) -> None:
        self._who = who
        self._base64 = base64
        self.problems: list[str] = []

    def struct(self, model: Any, path: str, outer: tuple[Any, ...], forms: Forms) -> Struct:
        """Read a model.

        Args:
            model: The model.
            path: The field that has it; "" for the payload itself.
            outer: The models that contain this one.
            forms: The forms of the innermost of these.
        """
        try:
            found = fields_of(model)
        except UnreadableModelError as error:
            self._refuse(f"{_field(path)}{name_of(model)}: {error}" if path else str(error))
            return Struct(())
        if not found.fields:
            self._refuse(f"{_field(path)}{name_of(model)} has no fields")
        self._check_names(found.fields, path)
        forms = forms.of_part(found.forms)
        return Struct(
            tuple(self._field(field, path, (*outer, model), forms) for field in found.fields)
        )

    def _field(self, field: ModelField, path: str, outer: tuple[Any, ...], forms: Forms) -> Field:
        asked = payload_type_of(field.annotation)
        inner = f"{path}.{field.name}" if path else field.name
        kind = self._kind(asked, inner, outer, forms)
        if isinstance(kind, Scalar) and asked.base is Decimal and field.decimal is not None:
            kind = self._decimal(*field.decimal, inner)
        return Field(field.name, field.json_name, kind, asked.accepts_none or not field.required)

    def _kind(self, asked: PayloadType, path: str, outer: tuple[Any, ...], forms: Forms) -> Kind:
        base = asked.base
        if self._base64 and base is bytes:
            return scalars.BYTES[BytesForm.BASE64]
        scalar = _scalar(base, forms)
        if scalar is not None:
            return scalar
        if base in outer:
            return self._unknown(
                path, f"holds itself ({name_of(base)}), and a column has a fixed depth"
            )
        if is_model(base):
            return self.struct(base, path, outer, forms)
        element = _element(base)
        if element is not None:
            inner = payload_type_of(element)
            origin = typing.get_origin(base)
            kind = self._kind(inner, f"{path}[]", outer, forms)
            return Collection(
                kind, inner.accepts_none, is_map=origin is dict, is_set=origin in (set, frozenset)
            )
        return self._unknown(
            path, f"is of type {asked.name}, which no column has; allowed are {ALLOWED}"
        )

    def _decimal(self, digits: int, places: int, path: str) -> Kind:
        if 0 <= places <= digits <= MOST_DIGITS:
            return scalars.decimal(digits, places)
        return self._unknown(
            path,
            f"has {digits} digits, {places} of them decimal; a column has {MOST_DIGITS} at most",
        )

    def _check_names(self, fields: tuple[ModelField, ...], path: str) -> None:
        names = (
            ("columns", [field.name for field in fields]),
            ("names in JSON", [field.json_name for field in fields]),
        )
        for what, names_of_kind in names:
            twins = _first_twins(names_of_kind)
            if twins:
                self._refuse(
                    f"{_field(path)}{what} {twins[0]!r} and {twins[1]!r} are the same to Spark"
                )
                return

    def check_reserved(self, struct: Struct) -> None:
        """Refuse columns of the model with names that the columns of a record have."""
        taken = {name.lower(): name for name in (*KAFKA_COLUMNS, CORRUPT)}
        for field in struct.fields:
            for name in dict.fromkeys((field.name, field.json_name)):
                column = taken.get(name.lower())
                if column is not None and (name == field.name or column == CORRUPT):
                    self._refuse(
                        f"field {field.name!r} would be a second column {column!r}; those of a"
                        f" record are {', '.join(taken.values())}: rename the field, its alias"
                        " stays what it is in JSON"
                    )

    def _unknown(self, path: str, problem: str) -> Kind:
        self._refuse(f"{_field(path)}{problem}")
        return scalars.TEXT

    def _refuse(self, problem: str) -> None:
        self.problems.append(f"{self._who}: {problem}")


def _field(path: str) -> str:
    return f"field {path!r} " if path else ""


def _first_twins(names: Iterable[str]) -> tuple[str, ...]:
    """Return two names that differ only in case, or () if there are none."""
    first: dict[str, str] = {}
    for name in names:
        if name.lower() in first:
            return first[name.lower()], name
        first[name.lower()] = name
    return ()


def _scalar(base: Any, forms: Forms) -> Scalar | None:
    if base is bytes:
        return scalars.BYTES[forms.bytes]
    if base is datetime:
        return scalars.TIMESTAMPS[forms.times]
    values = _values_of(base)
    if values is not None:
        return scalars.texts(values)
    return _SCALARS.get(base) if isinstance(base, type) else None


def _values_of(base: Any) -> tuple[str, ...] | None:
    """Return the values of an Enum or a Literal of text, or None for anything else."""
    values: tuple[Any, ...] = ()
    if isinstance(base, type) and issubclass(base, enum.Enum):
        values = tuple(member.value for member in base)
    elif typing.get_origin(base) is Literal:
        values = typing.get_args(base)
    if not values or not all(isinstance(value, str) for value in values):
        return None
    return values


def _element(base: Any) -> Any:
    """Return the element type of a list, set, tuple[X, ...] or dict[str, X], or None."""
    origin = typing.get_origin(base)
    arguments = typing.get_args(base)
    if origin is dict and len(arguments) == 2 and payload_type_of(arguments[0]).base is str:
        return arguments[1]
    if origin in (list, set, frozenset) and len(arguments) == 1:
        return arguments[0]
    if origin is tuple and arguments[1:] == (...,):
        return arguments[0]
    return None


def _struct_type(fields: Iterator[tuple[str, str]]) -> str:
    return f"STRUCT<{', '.join(f'{identifier(name)}: {kind}' for name, kind in fields)}>"


def identifier(name: str) -> str:
    """Quote *name* as the name of a column or a field in Spark SQL."""
    return "`" + name.replace("`", "``") + "`"
