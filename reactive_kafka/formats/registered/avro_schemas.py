"""Parses Avro schemas, for fastavro and for our own code. Only this module imports fastavro.

A writer's schema may come from anywhere. It is read as leniently as Java's library reads it: a
default that does not match its type does not matter to a reader, and an invalid logical type is
ignored. The user's own schema has to be right.

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
"""The only field of the record that a schema is wrapped into if it is not a record itself."""


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """A parsed schema.

    Attributes:
        root: The schema, in the form in which fastavro has parsed it.
        named: The named types that it defines or refers to.
        text: Its JSON.
        record: The schema for fastavro: ``root`` if that is a record, otherwise a record whose only
            field is ``root``. The bytes are the same. A schema that is not a record would be parsed
            again for each value, and fastavro would not find the types that it refers to.
    """

    root: Any
    named: Types
    text: str
    record: Any

    @property
    def is_wrapped(self) -> bool:
        """Whether fastavro's data is a dict with the one key :data:`ONLY`."""
        return self.record is not self.root

    @property
    def name(self) -> str:
        """The full name of the type; empty if it has none."""
        root = self.full(self.root)
        return str(root.get("name", "")) if isinstance(root, Mapping) else ""

    def full(self, schema: Any) -> Any:
        """Return the type that *schema* names, or *schema* itself if it is not a name."""
        return self.named.get(schema, schema) if isinstance(schema, str) else schema


def type_of(schema: Any) -> str:
    """Return ``record``, ``union``, ``long`` and so on, or the full name that it refers to."""
    if isinstance(schema, list):
        return "union"
    if isinstance(schema, Mapping):
        return str(schema["type"])
    return str(schema)


def short_name(full_name: str) -> str:
    """Return a name without its namespace."""
    return full_name.rpartition(".")[2]


def fastavro() -> Any:
    """Return the library.

    Raises:
        MissingExtraError: It is not installed.
    """
    try:
        import fastavro
        import fastavro.read
        import fastavro.schema
    except ImportError as error:
        raise MissingExtraError("the format 'avro'", "avro") from error
    return fastavro


def careful_reader() -> Any:
    """Return fastavro's reader in Python.

    On data that is nested too deeply it raises RecursionError. The compiled reader ends the process
    then.
    """
    from fastavro._read_py import schemaless_reader

    return schemaless_reader


def loaded(file: str) -> Any:
    """Return the JSON of the schema in a file.

    A type that it only names is read from a file of that name in the same folder.

    Raises:
        FormatError: The file cannot be read, or is no Avro schema.
    """
    library = fastavro()
    try:
        if Path(file).suffix != ".avsc":
            return _clean(library.parse_schema(json.loads(Path(file).read_text())))
        return _clean(library.schema.load_schema(file))
    except OSError as error:
        raise FormatError(f"{file} cannot be read: {error.strerror}") from error
    except Exception as error:
        # Fastavro raises anything on text that is not a schema.
        raise FormatError(f"{file} is no Avro schema: {type(error).__name__}: {error}") from error


def own_schema(schema: Any, what: str) -> AvroSchema:
    """Parse the user's own schema, of a file or of a type.

    Args:
        schema: The JSON of the schema.
        what: Its file or type, for errors.

    Raises:
        FormatError: It is not valid. The schema of a type may have a default that does not match
            its field, or a name that Avro does not allow.
    """
    invalid = next(_invalid_logical_types(schema), None)
    if invalid is not None:
        raise FormatError(f"{what} has no Avro schema: {invalid}")
    try:
        parsed = _parsed(schema, {})
    except Exception as error:
        # Fastavro raises errors of several kinds.
        raise FormatError(f"{what} has no Avro schema: {type(error).__name__}: {error}") from error
    for record, field in _fields_with_default(parsed):
        try:
            default_value(parsed, field["type"], field["default"])
        except ValueError as error:
            raise FormatError(
                f"{what} has no Avro schema: {record}.{field['name']}: {error}"
            ) from None
    return parsed


def registered_schema(
    schema: Schema, refused: type[DecodeError] | type[EncodeError], what: str
) -> AvroSchema:
    """Parse a schema of the registry, with the types that it refers to.

    Args:
        schema: The schema.
        refused: The class of the error to raise if it cannot be used.
        what: Names the schema in that error.
    """
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
        # Anybody may have registered it, and fastavro raises anything on it.
        raise refused(
            f"{what} of the registry cannot be used: {type(error).__name__}: {error}"
        ) from error


def lenient(schema: Any) -> Any:
    """Return a copy without invalid logical types, whose data is that of the type below.

    Source: Avro specification, "Logical Types": such a type is ignored.
    """
    if isinstance(schema, list):
        return [lenient(branch) for branch in schema]
    if not isinstance(schema, Mapping):
        return schema
    if isinstance(schema.get("type"), Mapping | list) and "name" not in schema:
        return lenient(schema["type"])
    copied = dict(schema)
    if "logicalType" in copied and _invalid_reason(schema) is not None:
        del copied["logicalType"]
    for key in ("type", "items", "values"):
        if key in copied:
            copied[key] = lenient(copied[key])
    if isinstance(copied.get("fields"), list):
        copied["fields"] = [lenient(field) for field in copied["fields"]]
    return copied


def default_value(schema: AvroSchema, kind: Any, default: Any) -> Any:
    """Return a new value for the JSON of a default.

    In a union, a value of a named type is a pair of the type's full name and the value, as fastavro
    reads and writes it.

    Raises:
        ValueError: The default does not match its type.

    Source: Avro specification, "Complex Types", the table of defaults.
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
        return [default_value(schema, kind["items"], item) for item in default]
    if name == "map" and isinstance(default, Mapping):
        return {key: default_value(schema, kind["values"], value) for key, value in default.items()}
    if not _is_plain_default(name, kind, default):
        raise ValueError(f"the default of a field of type {name} does not match it")
    value = _BASES[name](default)
    read = logical_reader(kind)
    if read is None:
        return value
    try:
        return read(value)
    except OverflowError:
        # A time that Python does not have, for example.
        raise ValueError(
            f"the default of a field of type {kind['logicalType']} is too large"
        ) from None


def logical_reader(kind: Any) -> Callable[[Any], Any] | None:
    """Return what makes the Python value of a logical type; None: the type has none."""
    if not isinstance(kind, Mapping) or "logicalType" not in kind:
        return None
    read = fastavro().read.LOGICAL_READERS.get(f"{kind['type']}-{kind['logicalType']}")
    if read is None:
        return None
    return lambda value: read(value, kind, kind)


def with_default_values(schema: AvroSchema) -> Any:
    """Return the record for fastavro to write with, whose defaults are Python values.

    Fastavro writes the default of a missing field as it is in the JSON, where bytes are text
    and times are numbers. A default that does not match its type is left out: its field must not be
    missing.
    """
    writer: AvroSchema = copy.deepcopy(schema)
    for _, field in _fields_with_default(writer):
        try:
            field["default"] = default_value(schema, field["type"], field["default"])
        except ValueError:
            del field["default"]
    return writer.record


def _fields_with_default(schema: AvroSchema) -> list[tuple[str, dict[str, Any]]]:
    """Return the fields that have a default, each with the name of its record."""
    kinds = list(schema.named.values())
    if not schema.is_wrapped:
        kinds.insert(0, schema.record)
    # By their identity, because fastavro keeps a record twice, with the same fields.
    fields: dict[int, tuple[str, dict[str, Any]]] = {}
    for kind in kinds:
        for field in kind.get("fields", ()):
            if "default" in field:
                fields[id(field)] = (kind["name"], field)
    return list(fields.values())


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
        # Some registries store a bare name, such as string, without its quotes.
        return text


def _clean(schema: Any) -> Any:
    """Return a copy without the keys that fastavro has added for itself."""
    if isinstance(schema, Mapping):
        return {
            key: _clean(value) for key, value in schema.items() if not str(key).startswith("__")
        }
    if isinstance(schema, list):
        return [_clean(branch) for branch in schema]
    return schema


def _invalid_logical_types(schema: Any) -> Iterator[str]:
    """Yield why logical types in a schema are not valid."""
    if isinstance(schema, list):
        for branch in schema:
            yield from _invalid_logical_types(branch)
    elif isinstance(schema, Mapping):
        reason = _invalid_reason(schema)
        if reason is not None:
            yield reason
        for key in ("type", "items", "values"):
            yield from _invalid_logical_types(schema.get(key))
        for field in schema.get("fields") or ():
            yield from _invalid_logical_types(field.get("type"))


def _invalid_reason(schema: Mapping[str, Any]) -> str | None:
    """Return why a logical type is not valid. Fastavro itself ignores those it does not know."""
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
    if base == "fixed" and type(size) is int:
        # How many decimal digits a signed integer of that size holds.
        most_digits = math.floor(math.log10(2) * (8 * size - 1))
        if precision > most_digits:
            return f"a decimal of precision {precision} does not fit {size} bytes"
    return None


def _default_of_field(
    schema: AvroSchema, field: Mapping[str, Any], given: Mapping[str, Any]
) -> Any:
    """Return the value of a field in a record's default, or else the field's own default."""
    name = field["name"]
    if name not in given and "default" not in field:
        raise ValueError(f"the default of a record has no {name}")
    return default_value(schema, field["type"], given.get(name, field.get("default")))


def _default_of_union(schema: AvroSchema, union: list[Any], default: Any) -> Any:
    """Return the default of a union, which may be of any branch.

    Until version 1.11 of the specification it had to be of the first branch.
    """
    for branch in map(schema.full, union):
        try:
            value = default_value(schema, branch, default)
        except ValueError:
            continue
        if type_of(branch) in NAMED:
            return (branch["name"], value)
        return value
    raise ValueError("the default of a union matches none of its types")


def _is_plain_default(name: str, kind: Any, default: Any) -> bool:
    is_number = isinstance(default, int | float) and not isinstance(default, bool)
    if name == "null":
        return default is None
    if name == "boolean":
        return isinstance(default, bool)
    if name in _BITS:
        limit = 2 ** (_BITS[name] - 1)
        return is_number and -limit <= default < limit and default == int(default)
    if name in _INFINITE:
        if default in ("NaN", "Infinity", "-Infinity"):
            return True
        return is_number and -_INFINITE[name] < default < _INFINITE[name]
    if name == "enum":
        return default in kind["symbols"]
    if not isinstance(default, str):
        return False
    if name == "string":
        return True
    if name == "bytes":
        return _is_latin(default)
    return name == "fixed" and len(default) == kind["size"] and _is_latin(default)


def _is_latin(text: str) -> bool:
    return all(ord(character) < 256 for character in text)


def _as_bytes(text: str) -> bytes:
    return text.encode("latin-1")


def _unchanged(value: Any) -> Any:
    return value


_BITS = {"int": 32, "long": 64}
_INFINITE = {"float": 2**128 - 2**103, "double": 2**1024 - 2**970}
"""Type -> the smallest number that it rounds to infinity."""
_BASES: Mapping[str, Callable[[Any], Any]] = {
    "null": _unchanged,
    "boolean": _unchanged,
    "int": int,
    "long": int,
    "float": float,
    "double": float,
    "string": _unchanged,
    "enum": _unchanged,
    "bytes": _as_bytes,
    "fixed": _as_bytes,
}
"""Type -> what makes its value from the JSON of a default. The logical type is applied later."""
