"""The branch of a union that data was written as decides which class it is read as. Pure.

Two records may have the same fields, or all fields of the one may be in the other. So fields do not
say what a record is: the branch is on the wire, and a class is meant for the record of its name.
Only where no class is called like a record of the union do the fields decide, as they do in JSON.

Data is as fastavro reads it with ``return_named_type``: in a union, what has a named type is a pair
of the type's full name and the datum.
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
    Later,
    Step,
    as_it_is,
    each_item,
    each_value,
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
    """A record that was one of several in a union, as plain data: it is written as the same one
    again.
    """

    def __init__(self, name: str, fields: Mapping[str, Any]) -> None:
        super().__init__(fields)
        self.name = name
        """The full name of its schema."""

    def __reduce__(self) -> tuple[Any, ...]:
        return NamedRecord, (self.name, dict(self))

    def copy(self) -> NamedRecord:
        """Another one of the same name."""
        return NamedRecord(self.name, self)


def branch_reader(schema: AvroSchema, annotation: Any) -> Step | None:
    """What makes plain data, with an instance of its class where a branch says which; None: it is
    plain already.

    A record is refused with a DecodeError where *annotation* has classes for other branches of its
    union only.
    """
    return _Branches(schema).reader(schema.root, annotation)


class _Branches:
    def __init__(self, schema: AvroSchema) -> None:
        self._schema = schema
        self._records: dict[tuple[str, Any], Later] = {}

    def reader(self, kind: Any, annotation: Any) -> Step | None:
        kind = self._schema.full(kind)
        if isinstance(kind, list):
            return self._of_union([self._schema.full(one) for one in kind], annotation)
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
                named[branch["name"]] = as_it_is
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
            return self.reader(record, annotation) or as_it_is
        if kind is not None:
            inner = self.reader(record, kind) or as_it_is
            read = model_for(payload_type_of(kind)).from_value
            return lambda data: read(inner(data))
        if _takes_any_record(annotation):
            fields = self.reader(record, Any) or as_it_is
            return lambda data: NamedRecord(name, fields(data))
        if any(short_name(one["name"]) in classes for one in records):
            return _refused(f"it is a {name}, which {name_of(annotation)} has no class for")
        return self.reader(record, Any) or as_it_is

    def _of_record(self, record: Any, annotation: Any) -> Step | None:
        """Its fields, by what the class of its name asks for, or the only class that is asked
        for.
        """
        classes = _classes_of(annotation)
        only = next(iter(classes.values())) if len(classes) == 1 else None
        kind = classes.get(short_name(record["name"]), only)
        key = record["name"], kind
        if key in self._records:
            return self._records[key]
        made = self._records[key] = Later()
        annotations = _annotations_of(kind)
        steps: dict[str, Step] = {}
        for field in record["fields"]:
            step = self.reader(field["type"], annotations.get(field["name"], Any))
            if step is not None:
                steps[field["name"]] = step

        def of_record(data: Any) -> Any:
            # fastavro made the dict for this record, so it may be changed in place.
            for name, step in steps.items():
                data[name] = step(data[name])
            return data

        made.step = of_record if steps else as_it_is
        return of_record if steps else None


def _classes_of(annotation: Any) -> dict[str, Any]:
    """Name -> the models that *annotation* asks for. Two of one name are told apart by their
    fields.
    """
    found = [one for one in _members_of(annotation) if is_model(one)]
    names = [one.__name__ for one in found]
    return {one.__name__: one for one in found if names.count(one.__name__) == 1}


def _members_of(annotation: Any) -> list[Any]:
    base = payload_type_of(annotation).base
    if isinstance(base, type) and issubclass(base, RootModel):
        return _members_of(base.model_fields["root"].annotation)
    return (
        [payload_type_of(one).base for one in typing.get_args(base)] if is_union(base) else [base]
    )


def _takes_any_record(annotation: Any) -> bool:
    """Whether a dict of any fields is asked for."""
    return any(
        one in (Any, object, dict) or typing.get_origin(one) is dict
        for one in _members_of(annotation)
    )


def _annotations_of(kind: Any) -> dict[str, Any]:
    """Each name that data may have for a field -> what the field asks for."""
    if kind is None:
        return {}
    found: dict[str, Any] = {}
    for field in fields_of(kind):
        for name in (*field.read_as, field.attribute, field.written_as):
            found[name] = field.annotation
    return found


def _items_of(annotation: Any) -> Any:
    for one in _members_of(annotation):
        arguments = typing.get_args(one)
        if typing.get_origin(one) in _SEQUENCES and arguments:
            return arguments[0]
    return Any


def _values_of(annotation: Any) -> Any:
    for one in _members_of(annotation):
        arguments = typing.get_args(one)
        if typing.get_origin(one) in (dict, Mapping) and len(arguments) == 2:
            return arguments[1]
    return Any


def _refused(why: str) -> Callable[[Any], Any]:
    def refuse(data: Any) -> Any:
        raise DecodeError(why)

    return refuse
