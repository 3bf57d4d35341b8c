"""Avro schemas as fastavro takes them, and as our own code walks along them. The only module that
imports fastavro.

A writer's schema is anybody's, and is read as leniently as Java's library reads it: a default that
does not match its type does not matter to who reads data, and a logical type that is not valid is
ignored. A schema of ours has to be right.

Source: Avro specification 1.12, "Complex Types", "Logical Types", "Schema Resolution".
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reactive_kafka.errors import DecodeError, EncodeError, MissingExtraError
from reactive_kafka.formats.format_names import FormatError
from reactive_kafka.formats.registered.avro_limits import Types
from reactive_kafka.formats.registered.schema_questions import Schema

NAMED = ("record", "error", "enum", "fixed")
RECORDS = ("record", "error")
ONLY = "value"
"""The only field of the record that stands for a schema that is no record."""


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """A parsed schema."""

    root: Any
    named: Types
    text: str
    record: Any
    """What fastavro is given: a record, ``root`` itself or one whose only field is ``root``.

    The bytes are the same. fastavro would parse a schema that is no record again for each datum,
    and would not find the types that the schema refers to.
    """

    @property
    def is_wrapped(self) -> bool:
        """Whether ``root`` is no record: data is a dict with the one key :data:`ONLY` to
        fastavro.
        """
        return self.record is not self.root

    @property
    def name(self) -> str:
        """The full name of the type; empty if it has none."""
        root = self.full(self.root)
        return str(root.get("name", "")) if isinstance(root, Mapping) else ""

    def full(self, schema: Any) -> Any:
        """The schema itself where it is a reference to a named type."""
        return self.named.get(schema, schema) if isinstance(schema, str) else schema


def type_of(schema: Any) -> str:
    """The name of its type: ``record``, ``union``, ``long`` and so on, or the full name that it
    refers to.
    """
    if isinstance(schema, list):
        return "union"
    return str(schema["type"]) if isinstance(schema, Mapping) else str(schema)


def short_name(full_name: str) -> str:
    """A name without its namespace."""
    return full_name.rpartition(".")[2]


def fastavro() -> Any:
    """The library. MissingExtraError: it is not installed."""
    try:
        import fastavro
        import fastavro.read
        import fastavro.schema
    except ImportError as error:
        raise MissingExtraError("the format 'avro'", "avro") from error
    return fastavro


def careful_reader() -> Any:
    """The reader of fastavro that is not compiled: Python counts how deep it is, where the other
    ends the process.
    """
    from fastavro._read_py import schemaless_reader

    return schemaless_reader


def loaded(file: str) -> Any:
    """The JSON of the schema in a file. Types that it only names come from files of these names
    beside it.

    FormatError: the file cannot be read, or is no Avro schema.
    """
    library = fastavro()
    try:
        if Path(file).suffix != ".avsc":
            return _clean(library.parse_schema(json.loads(Path(file).read_text())))
        return _clean(library.schema.load_schema(file))
    except OSError as error:
        raise FormatError(f"{file} cannot be read: {error.strerror}") from error
    except Exception as error:
        # Whatever a library makes of text that is no schema.
        raise FormatError(f"{file} is no Avro schema: {type(error).__name__}: {error}") from error


def own_schema(schema: Any, what: str) -> AvroSchema:
    """The schema of a file or type of ours.

    FormatError: it is none. That of a type may have a default of another type, or a name that Avro
    does not take.
    """
    invalid = next(_invalid_logical_types(schema), None)
    if invalid is not None:
        raise FormatError(f"{what} has no Avro schema: {invalid}")
    try:
        found = _parsed(schema, {})
    except Exception as error:
        # Of several kinds.
        raise FormatError(f"{what} has no Avro schema: {type(error).__name__}: {error}") from error
    for record, field in _fields(found):
        try:
            default_value(found, field["type"], field["default"])
        except ValueError as error:
            raise FormatError(
                f"{what} has no Avro schema: {record}.{field['name']}: {error}"
            ) from None
    return found


def registered_schema(
    schema: Schema, refused: type[DecodeError] | type[EncodeError], what: str
) -> AvroSchema:
    """A schema of the registry, with the types that it refers to; *refused*: it cannot be used."""
    if schema.kind != "AVRO":
        raise refused(f"{what} is no Avro schema, but one of {schema.kind}")
    library = fastavro()
    named: dict[str, Any] = {}
    try:
        for text in schema.texts().values():
            library.parse_schema(
                lenient(_of_text(text)), named_schemas=named, _ignore_default_error=True
            )
        return _parsed(lenient(_of_text(schema.text)), named)
    except Exception as error:
        # The registry's, and anybody's.
        raise refused(
            f"{what} of the registry cannot be used: {type(error).__name__}: {error}"
        ) from error


def lenient(schema: Any) -> Any:
    """A copy in which each logical type that is not valid is left out, so that its data is what the
    type below it says.

    Source: Avro specification, "Logical Types": such a type is ignored.
    """
    if isinstance(schema, list):
        return [lenient(one) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    if isinstance(schema.get("type"), Mapping | list) and "name" not in schema:
        return lenient(schema["type"])
    found = {
        key: value
        for key, value in schema.items()
        if key != "logicalType" or _why_invalid(schema) is None
    }
    for key in ("type", "items", "values"):
        if key in found:
            found[key] = lenient(found[key])
    if isinstance(found.get("fields"), list):
        found["fields"] = [lenient(field) for field in found["fields"]]
    return found


def default_value(schema: AvroSchema, kind: Any, default: Any) -> Any:
    """The value that the JSON of a default stands for, made again by each call.

    In a union, a value of a named type is a pair of the type's full name and the value, as fastavro
    reads and writes it. ValueError: it does not match its type. Source: Avro specification,
    "Complex Types", the table of defaults.
    """
    kind = schema.full(kind)
    name = type_of(kind)
    if name == "union":
        return _default_of_union(schema, kind, default)
    if name in RECORDS and isinstance(default, Mapping):
        return {
            field["name"]: _default_of_field(schema, field, default) for field in kind["fields"]
        }
    if name == "array" and isinstance(default, list):
        return [default_value(schema, kind["items"], one) for one in default]
    if name == "map" and isinstance(default, Mapping):
        return {key: default_value(schema, kind["values"], one) for key, one in default.items()}
    if not _is_plain_default(name, kind, default):
        raise ValueError(f"the default of a field of type {name} does not match it")
    value = _BASES[name](default)
    read = logical_reader(kind)
    return value if read is None else read(value)


def logical_reader(kind: Any) -> Callable[[Any], Any] | None:
    """What makes a value of Python of what the bytes of a logical type hold; None: nothing does."""
    if not isinstance(kind, Mapping) or "logicalType" not in kind:
        return None
    read = fastavro().read.LOGICAL_READERS.get(f"{kind['type']}-{kind['logicalType']}")
    return None if read is None else lambda value: read(value, kind, kind)


def with_default_values(schema: AvroSchema) -> Any:
    """What fastavro is given to write with, so that a field that is missing is written with its
    default.

    fastavro would write a default as it stands in the JSON, where bytes and times are text and
    numbers. A default that does not match its type is left out: the field has to be there then.
    """
    writer: AvroSchema = copy.deepcopy(schema)
    for _, field in _fields(writer):
        try:
            field["default"] = default_value(schema, field["type"], field["default"])
        except ValueError:
            del field["default"]
    return writer.record


def _fields(schema: AvroSchema) -> list[tuple[str, dict[str, Any]]]:
    """The fields that have a default, each with the name of its record."""
    kinds = schema.named.values() if schema.is_wrapped else (schema.record, *schema.named.values())
    found = [
        (kind["name"], field)
        for kind in kinds
        for field in kind.get("fields", ())
        if "default" in field
    ]
    # fastavro has a record twice, with the same fields.
    return list({id(field): (name, field) for name, field in found}.values())


def _parsed(schema: Any, named: dict[str, Any]) -> AvroSchema:
    parse = fastavro().parse_schema
    before = set(named)
    parsed = parse(schema, named_schemas=named, _ignore_default_error=True)
    text = json.dumps(_clean(parsed), separators=(", ", ": "))
    if type_of(parsed) in RECORDS:
        return AvroSchema(parsed, named, text, parsed)
    for name in set(named) - before:
        del named[name]
    fields = [{"name": ONLY, "type": schema}]
    wrapped = {"type": "record", "name": "OnlyOneValue__", "fields": fields}
    record = parse(wrapped, named_schemas=named, _ignore_default_error=True)
    return AvroSchema(record["fields"][0]["type"], named, text, record)


def _of_text(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        # A bare name: some registries store "string" without its quotes.
        return text


def _clean(schema: Any) -> Any:
    """Without what fastavro has added for itself."""
    if isinstance(schema, Mapping):
        return {
            key: _clean(value) for key, value in schema.items() if not str(key).startswith("__")
        }
    return [_clean(one) for one in schema] if isinstance(schema, list) else schema


def _invalid_logical_types(schema: Any) -> Iterator[str]:
    if isinstance(schema, list):
        for one in schema:
            yield from _invalid_logical_types(one)
    elif isinstance(schema, Mapping):
        why = _why_invalid(schema)
        if why is not None:
            yield why
        for key in ("type", "items", "values"):
            yield from _invalid_logical_types(schema.get(key))
        for field in schema.get("fields") or ():
            yield from _invalid_logical_types(field.get("type"))


def _why_invalid(schema: Mapping[str, Any]) -> str | None:
    """Why a logical type is to be ignored. Those that fastavro does not know, it ignores by
    itself.
    """
    if schema.get("logicalType") != "decimal":
        return None
    base = schema.get("type")
    precision = schema.get("precision")
    scale = schema.get("scale", 0)
    if base not in ("bytes", "fixed"):
        return "a decimal is of bytes or fixed"
    if type(precision) is not int or precision < 1:
        return "a decimal needs a precision, an integer above 0"
    if type(scale) is not int or not 0 <= scale <= precision:
        return "the scale of a decimal is an integer from 0 to its precision"
    size = schema.get("size")
    if (
        base == "fixed"
        and type(size) is int
        and precision > math.floor(math.log10(2) * (8 * size - 1))
    ):
        return f"a decimal of precision {precision} does not fit {size} bytes"
    return None


def _default_of_field(
    schema: AvroSchema, field: Mapping[str, Any], given: Mapping[str, Any]
) -> Any:
    """A field inside of a record's default, which may leave it to the field's own default."""
    name = field["name"]
    if name not in given and "default" not in field:
        raise ValueError(f"the default of a record has no {name}")
    return default_value(schema, field["type"], given.get(name, field.get("default")))


def _default_of_union(schema: AvroSchema, union: list[Any], default: Any) -> Any:
    """Of the first branch, says the specification until 1.11; of any of them, since 1.12."""
    for branch in map(schema.full, union):
        try:
            value = default_value(schema, branch, default)
        except ValueError:
            continue
        return (branch["name"], value) if type_of(branch) in NAMED else value
    raise ValueError("the default of a union matches none of its types")


def _is_plain_default(name: str, kind: Any, default: Any) -> bool:
    is_number = isinstance(default, int | float) and not isinstance(default, bool)
    if name == "null":
        return default is None
    if name == "boolean":
        return isinstance(default, bool)
    if name in ("int", "long"):
        return is_number and math.isfinite(default) and default == int(default)
    if name in ("float", "double"):
        return is_number or default in ("NaN", "Infinity", "-Infinity")
    if name == "enum":
        return default in kind["symbols"]
    if name == "fixed" and isinstance(default, str):
        return len(default) == kind["size"] and _is_latin(default)
    return isinstance(default, str) and (
        name == "string" or (name == "bytes" and _is_latin(default))
    )


def _is_latin(text: str) -> bool:
    return all(ord(character) < 256 for character in text)


def _as_bytes(text: str) -> bytes:
    return text.encode("latin-1")


def _as_it_is(value: Any) -> Any:
    return value


_BASES: Mapping[str, Callable[[Any], Any]] = {
    "null": _as_it_is,
    "boolean": _as_it_is,
    "int": int,
    "long": int,
    "float": float,
    "double": float,
    "string": _as_it_is,
    "enum": _as_it_is,
    "bytes": _as_bytes,
    "fixed": _as_bytes,
}
"""Type -> what the JSON of a default becomes before its logical type."""
