"""Avro as a registry's clients write it: the id of the writer's schema, then the data in that schema; by fastavro."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

from reactive_kafka.errors import DecodeError, EncodeError, MissingExtraError
from reactive_kafka.formats.guarding import Decoder, guarded
from reactive_kafka.formats.models import model_for
from reactive_kafka.formats.names import FormatError
from reactive_kafka.formats.registered.avro_limits import Types, has_weightless_items, is_deep, is_recursive
from reactive_kafka.formats.registered.avro_types import schema_of_type
from reactive_kafka.formats.registered.members import named_models
from reactive_kafka.formats.registered.plain import is_model, plain_maker
from reactive_kafka.formats.registered.schemas import (
    HEAD,
    IdOf,
    Known,
    Latest,
    Registered,
    Schema,
    head,
    head_of,
    keep,
    named_by,
    not_registered,
)
from reactive_kafka.formats.wanted import Wanted

Read = Callable[[BytesIO], Any]
Write = Callable[[BytesIO, Any], None]


def avro_decoder(asked: Wanted, source: Registered) -> Decoder:
    """Data by the writer's schema, resolved to the reader's where there is one, then into the annotation.

    Raises:
        FormatError: The reader's schema cannot be read.
        MissingExtraError: There is no fastavro.
    """
    fastavro = _fastavro()
    reader = source.own(loaded)
    schemas = source.schemas
    readers: dict[bytes, tuple[Read, Callable[[Any], object]]] = schemas.cache()
    model, members = model_for(asked), named_models(asked)
    takes_all = asked.is_free and asked.base in (Any, object)
    takes_dicts = asked.is_free and asked.base in (dict, dict[str, Any])

    def reader_of(first: bytes) -> tuple[Read, Callable[[Any], object]]:
        named = named_by(first)
        writer, types = _parsed(schemas.find(named), DecodeError, str(named))
        if has_weightless_items(writer, types):
            raise DecodeError(f"{named} of the registry has an array of items that take no bytes, and is not read")
        read_data = _read_by_python() if is_recursive(writer, types) else fastavro.schemaless_reader

        def read(data: BytesIO) -> Any:
            return read_data(data, writer, reader)

        name = _name_of(writer if reader is None else reader).rpartition(".")[2]
        return keep(readers, first, (read, members.get(name, model).from_value))

    def read(value: bytes) -> object:
        first = head_of(value)
        read_data, from_plain = readers.get(first) or reader_of(first)
        data = BytesIO(value)
        data.seek(len(first))
        try:
            plain = read_data(data)
        except fastavro.read.SchemaResolutionError:
            raise DecodeError(
                f"{named_by(first)}, which it was written with, does not resolve to {source.file}"
            ) from None
        except RecursionError:
            raise DecodeError("not read: it is nested too deeply") from None
        except Exception as error:  # bytes of anybody's; the text may quote them
            raise DecodeError(f"not data of {named_by(first)}: {type(error).__name__} while reading it") from None
        return plain if takes_all or (takes_dicts and type(plain) is dict) else from_plain(plain)

    return guarded(read, asked, model.explain)


def avro_encoder(source: Registered) -> Callable[[object], bytes | None]:
    """The id of the schema in ``file``, of the value's own type, or of the subject's latest; then the data.

    Raises:
        FormatError: The schema cannot be read.
        MissingExtraError: There is no fastavro.
    """
    fastavro = _fastavro()
    schemas = source.schemas
    writers: dict[type, tuple[bytes, Write, Callable[[Any], Any]]] = schemas.cache()
    own = None if source.file is None else _writer(loaded(source.file), source.file)

    def write_with(parsed: Any, types: Types) -> Write:
        may_be_deep = is_recursive(parsed, types)

        def write(data: BytesIO, value: Any) -> None:
            if may_be_deep and is_deep(value):
                raise RecursionError
            fastavro.schemaless_writer(data, parsed, value)

        return write

    def writer_of(kind: type) -> tuple[bytes, Write, Callable[[Any], Any]]:
        try:
            to_plain = plain_maker(kind)
            found = own or (None if to_plain is None else _writer(schema_of_type(kind), kind.__name__))
        except FormatError as error:
            raise EncodeError(str(error)) from None
        if found is None:
            if source.register or source.subject != "topic":
                raise not_registered(kind.__name__)
            known: Known = schemas.find(Latest(source.subject_of("")))
            id, (parsed, types) = known.id, _parsed(known.schema, EncodeError, f"schema {known.id}")
        else:
            name, text, parsed, types = found
            id = schemas.find(IdOf(source.subject_of(name), Schema("AVRO", text), source.register))
        return keep(writers, kind, (head(id), write_with(parsed, types), to_plain or _as_it_is))

    def write(value: object) -> bytes | None:
        if value is None:
            return None
        kind = type(value)
        first, write_data, to_plain = writers.get(kind) or writer_of(kind)
        data = BytesIO(first)
        data.seek(HEAD)
        try:
            write_data(data, to_plain(value))
        except Exception as error:  # the text may quote the value
            raise EncodeError(f"{kind.__name__} does not fit the Avro schema: {_why(error)}") from error
        return data.getvalue()

    return write


def check_written(kind: Any) -> None:
    """Check that the schema of a model, dataclass or struct can be made of it; other types have none.

    Raises:
        FormatError: It cannot; the text names class and field.
    """
    if not is_model(kind):
        return
    try:
        _writer(schema_of_type(kind), kind.__name__)
    except (NameError, TypeError) as error:  # of annotations that cannot be resolved
        raise FormatError(f"{kind.__name__} has no Avro schema: {type(error).__name__}: {error}") from error


def _as_it_is(value: Any) -> Any:
    return value


def _why(error: Exception) -> str:
    return "a field is missing" if isinstance(error, KeyError) else type(error).__name__


def _fastavro() -> Any:
    try:
        import fastavro
        import fastavro.read
        import fastavro.schema
    except ImportError as error:
        raise MissingExtraError("the format 'avro'", "avro") from error
    return fastavro


def _read_by_python() -> Any:
    """The part of fastavro that is not compiled: Python counts how deep it is, where the other ends the process."""
    from fastavro._read_py import schemaless_reader

    return schemaless_reader


def loaded(file: str) -> Any:
    """The schema of a file; types that it only names are read from files of that name beside it."""
    fastavro = _fastavro()
    try:
        if Path(file).suffix != ".avsc":
            return fastavro.parse_schema(json.loads(Path(file).read_text()))
        return fastavro.schema.load_schema(file)
    except OSError as error:
        raise FormatError(f"{file} cannot be read: {error.strerror}") from error
    except Exception as error:  # whatever a library makes of text that is no schema
        raise FormatError(f"{file} is no Avro schema: {type(error).__name__}: {error}") from error


def _writer(schema: Any, what: str) -> tuple[str, str, Any, Types]:
    """The name of a schema, its text as it is registered, and what writes with it.

    FormatError: it is none. That of a type may have a default of another type, or a name that Avro does not take.
    """
    fastavro = _fastavro()
    named: dict[str, Any] = {}
    try:
        parsed = fastavro.parse_schema(schema, named_schemas=named)
    except Exception as error:  # of several kinds
        raise FormatError(f"{what} has no Avro schema: {type(error).__name__}: {error}") from error
    name = _name_of(parsed)
    text = json.dumps(_clean(parsed), separators=(", ", ": "))
    return name, text, parsed, named


def _name_of(schema: Any) -> str:
    return str(schema.get("name", "")) if isinstance(schema, Mapping) else ""


def _clean(schema: Any) -> Any:
    """Without what fastavro has added for itself."""
    if isinstance(schema, Mapping):
        return {key: _clean(value) for key, value in schema.items() if not str(key).startswith("__")}
    return [_clean(one) for one in schema] if isinstance(schema, list) else schema


def _parsed(schema: Schema, refused: type[DecodeError] | type[EncodeError], what: str) -> tuple[Any, Types]:
    """A registry's schema, and the types of it and of what it refers to."""
    fastavro = _fastavro()
    if schema.kind != "AVRO":
        raise refused(f"{what} is no Avro schema, but one of {schema.kind}")
    named: dict[str, Any] = {}
    try:
        for text in schema.texts().values():
            fastavro.parse_schema(_of_text(text), named_schemas=named)
        return fastavro.parse_schema(_of_text(schema.text), named_schemas=named), named
    except Exception as error:  # the registry's, and anybody's
        raise refused(f"{what} of the registry cannot be used: {type(error).__name__}: {error}") from error


def _of_text(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text  # a bare name: some registries store "string" without its quotes
