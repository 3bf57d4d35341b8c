"""Reads each branch of an Avro union into the class of the branch's name. Pure.

Two records may have the same fields, or one may have all fields of the other. So the fields do not
say what a record is. The data says which branch it was written as, and a class means the
record of its name. Only if no class has the name of a record of the union, the fields decide, as
they do in JSON.

The data is as fastavro reads it with ``return_named_type``: in a union, a value of a named type is
a pair of the type's full name and the value.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import RootModel

from reactive_kafka.errors import DecodeError
from reactive_kafka.formats.models import model_for
from reactive_kafka.formats.payload_type import is_union, name_of, payload_type_of
from reactive_kafka.formats.registered.avro_resolution import (
    LateStep,
    Step,
    each_item,
    each_value,
    unchanged,
)
from reactive_kafka.formats.registered.avro_schemas import (
    NAMED,
    RECORDS,
    AvroSchema,
    short_name,
    type_of,
)
from reactive_kafka.formats.registered.model_fields import fields_of
from reactive_kafka.formats.registered.plain_data import is_model

_SEQUENCES = (list, tuple, set, frozenset, Sequence)


class NamedRecord(dict[str, Any]):
    """A record of a union with several, as plain data. It is written as the same record again.

    Attributes:
        name: The full name of its schema.
    """

    def __init__(self, name: str, fields: Mapping[str, Any]) -> None:
        super().__init__(fields)
        self.name = name

    def __reduce__(self) -> tuple[Any, ...]:
        return NamedRecord, (self.name, dict(self))

    def copy(self) -> NamedRecord:
        """Return a copy with the same name."""
        return NamedRecord(self.name, self)


def branch_reader(schema: AvroSchema, annotation: Any) -> Step | None:
    """Return the step that makes plain data, with instances of classes in place of branches.

    It raises DecodeError for a record if *annotation* has classes for other branches only.

    Returns:
        None if the data is plain already.
    """
    return _Branches(schema).reader(schema.root, annotation)


class _Branches:
    def __init__(self, schema: AvroSchema) -> None:
        self._schema = schema
        self._records: dict[tuple[str, Any], LateStep] = {}

    def reader(self, kind: Any, annotation: Any) -> Step | None:
        kind = self._schema.full(kind)
        if isinstance(kind, list):
            return self._of_union([self._schema.full(branch) for branch in kind], annotation)
        if type_of(kind) in RECORDS:
            return self._of_record(kind, annotation)
        if type_of(kind) == "array":
            return each_item(self.reader(kind["items"], _items_of(annotation)))
        if type_of(kind) == "map":
            return each_value(self.reader(kind["values"], _values_of(annotation)))
        return None

    def _of_union(self, union: list[Any], annotation: Any) -> Step | None:
        records = [branch for branch in union if type_of(branch) in RECORDS]
        classes = _classes_of(annotation)
        named: dict[str, Step] = {}
        plain: dict[type, Step] = {}
        for branch in union:
            if type_of(branch) in RECORDS:
                named[branch["name"]] = self._of_branch(branch, records, annotation, classes)
            elif type_of(branch) in NAMED:
                named[branch["name"]] = unchanged
            else:
                step = self.reader(branch, annotation)
                if step is not None:
                    plain[dict if type_of(branch) == "map" else list] = step
        if not named and not plain:
            return None

        def of_union(data: Any) -> Any:
            if type(data) is tuple:
                name, inner = data
                return named[name](inner)
            step = plain.get(type(data))
            return data if step is None else step(data)

        return of_union

    def _of_branch(
        self, record: Any, records: list[Any], annotation: Any, classes: Mapping[str, Any]
    ) -> Step:
        name = record["name"]
        kind = classes.get(short_name(name))
        if len(records) == 1:
            return self.reader(record, annotation) or unchanged
        if kind is not None:
            inner = self.reader(record, kind) or unchanged
            read = model_for(payload_type_of(kind)).from_value
            return lambda data: read(inner(data))
        if _takes_any_record(annotation):
            fields = self.reader(record, Any) or unchanged
            return lambda data: NamedRecord(name, fields(data))
        if any(short_name(other["name"]) in classes for other in records):
            return _refused(f"it is a {name}, which {name_of(annotation)} has no class for")
        return self.reader(record, Any) or unchanged

    def _of_record(self, record: Any, annotation: Any) -> Step | None:
        """Return the step for the fields of a record.

        They are read as the class with the record's name asks, or the only class of the annotation.
        """
        classes = _classes_of(annotation)
        only_class = next(iter(classes.values())) if len(classes) == 1 else None
        kind = classes.get(short_name(record["name"]), only_class)
        key = record["name"], kind
        if key in self._records:
            return self._records[key]
        # Kept before the fields are looked at, because a record may contain itself.
        made = LateStep()
        self._records[key] = made
        annotations = _annotations_of(kind)
        steps: dict[str, Step] = {}
        for field in record["fields"]:
            step = self.reader(field["type"], annotations.get(field["name"], Any))
            if step is not None:
                steps[field["name"]] = step

        def of_record(data: Any) -> Any:
            # Fastavro made the dict for this record alone, so it may be changed in place.
            for name, step in steps.items():
                data[name] = step(data[name])
            return data

        made.step = of_record if steps else unchanged
        return of_record if steps else None


def _classes_of(annotation: Any) -> dict[str, Any]:
    """Return name -> model, for the models that *annotation* asks for.

    Models that share a name are left out: their fields decide.
    """
    models = [member for member in _members_of(annotation) if is_model(member)]
    names = [model.__name__ for model in models]
    return {model.__name__: model for model in models if names.count(model.__name__) == 1}


def _members_of(annotation: Any) -> list[Any]:
    base = payload_type_of(annotation).base
    if isinstance(base, type) and issubclass(base, RootModel):
        return _members_of(base.model_fields["root"].annotation)
    if is_union(base):
        return [payload_type_of(member).base for member in typing.get_args(base)]
    return [base]


def _takes_any_record(annotation: Any) -> bool:
    """Return whether *annotation* takes a dict with any fields."""
    return any(
        member in (Any, object, dict) or typing.get_origin(member) is dict
        for member in _members_of(annotation)
    )


def _annotations_of(kind: Any) -> dict[str, Any]:
    """Return each name that data may use for a field -> the annotation of the field."""
    if kind is None:
        return {}
    annotations: dict[str, Any] = {}
    for field in fields_of(kind):
        for name in (*field.read_as, field.attribute, field.written_as):
            annotations[name] = field.annotation
    return annotations


def _items_of(annotation: Any) -> Any:
    for member in _members_of(annotation):
        arguments = typing.get_args(member)
        if typing.get_origin(member) in _SEQUENCES and arguments:
            return arguments[0]
    return Any


def _values_of(annotation: Any) -> Any:
    for member in _members_of(annotation):
        arguments = typing.get_args(member)
        if typing.get_origin(member) in (dict, Mapping) and len(arguments) == 2:
            return arguments[1]
    return Any


def _refused(why: str) -> Callable[[Any], Any]:
    def refuse(data: Any) -> Any:
        raise DecodeError(why)

    return refuse
