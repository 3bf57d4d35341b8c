"""Avro as a registry's clients write it: the id of the writer's schema, then the data in that schema; by fastavro."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

from reactive_kafka.errors import DecodeError, EncodeError, MissingExtraError
from reactive_kafka.formats.models import Decoder, guarded, model_for
from reactive_kafka.formats.names import FormatError
from reactive_kafka.formats.registered.avro_types import schema_of_type
from reactive_kafka.formats.registered.plain import plain_maker
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


def avro_decoder(asked: Wanted, source: Registered) -> Decoder:
    """Data by the writer's schema, resolved to the reader's where there is one, then into the annotation.

    Raises:
        FormatError: The reader's schema cannot be read.
        MissingExtraError: There is no fastavro.
    """
    fastavro = _fastavro()
    reader = source.own(loaded)
    schemas = source.schemas
    readers: dict[bytes, Read] = schemas.cache()
    model = model_for(asked)
    takes_all = asked.is_free and asked.base in (Any, object)
    takes_dicts = asked.is_free and asked.base in (dict, dict[str, Any])

    def reader_of(first: bytes) -> Read:
        named = named_by(first)
        writer = _parsed(schemas.find(named), DecodeError, str(named))

        # Compiled code looks at no limit: data of such a type, nested deeply enough, would end the process.
        with_schema = _careful_reader() if _holds_itself(writer) else fastavro.schemaless_reader

        def read(data: BytesIO) -> Any:
            return with_schema(data, writer, reader)

        return keep(readers, first, read)

    def read(value: bytes) -> object:
        first = head_of(value)
        read_data = readers.get(first) or reader_of(first)
        data = BytesIO(value)
        data.seek(len(first))
        try:
            plain = read_data(data)
        except fastavro.read.SchemaResolutionError:
            raise DecodeError(
                f"{named_by(first)}, which it was written with, does not resolve to {source.file}"
            ) from None
        except Exception as error:  # bytes of anybody's; the text may quote them
            raise DecodeError(f"not data of {named_by(first)}: {type(error).__name__} while reading it") from None
        return plain if takes_all or (takes_dicts and type(plain) is dict) else model.from_value(plain)

    return guarded(read, asked, model.explain)


def avro_encoder(source: Registered) -> Callable[[object], bytes | None]:
    """The id of the schema in ``file``, of the value's own type, or of the subject's latest; then the data.

    Raises:
        FormatError: The schema cannot be read.
        MissingExtraError: There is no fastavro.
    """
    fastavro = _fastavro()
    schemas = source.schemas
    writers: dict[type, tuple[bytes, Any, Callable[[Any], Any]]] = schemas.cache()
    own = None if source.file is None else _writer(loaded(source.file))

    def writer_of(kind: type) -> tuple[bytes, Any, Callable[[Any], Any]]:
        try:
            to_plain = plain_maker(kind)
            found = own or (None if to_plain is None else _writer(schema_of_type(kind)))
        except FormatError as error:
            raise EncodeError(str(error)) from None
        if found is None:
            if source.register or source.subject != "topic":
                raise not_registered(kind.__name__)
            known: Known = schemas.find(Latest(source.subject_of("")))
            id, parsed = known.id, _parsed(known.schema, EncodeError, f"schema {known.id}")
        else:
            name, text, parsed = found
            id = schemas.find(IdOf(source.subject_of(name), Schema("AVRO", text), source.register))
        return keep(writers, kind, (head(id), parsed, to_plain or _as_it_is))

    def write(value: object) -> bytes | None:
        if value is None:
            return None
        kind = type(value)
        first, parsed, to_plain = writers.get(kind) or writer_of(kind)
        data = BytesIO(first)
        data.seek(HEAD)
        try:
            fastavro.schemaless_writer(data, parsed, to_plain(value))
        except Exception as error:  # the text may quote the value
            raise EncodeError(f"{kind.__name__} does not fit the Avro schema: {_why(error)}") from error
        return data.getvalue()

    return write


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


def _writer(schema: Any) -> tuple[str, str, Any]:
    """The name of a schema, its text as it is registered, and what writes with it."""
    fastavro = _fastavro()
    parsed = fastavro.parse_schema(schema)
    name = str(parsed.get("name", "")) if isinstance(parsed, Mapping) else ""
    text = json.dumps(_clean(parsed), separators=(", ", ": "))
    return name, text, parsed


def _clean(schema: Any) -> Any:
    """Without what fastavro has added for itself."""
    if isinstance(schema, Mapping):
        return {key: _clean(value) for key, value in schema.items() if not str(key).startswith("__")}
    return [_clean(one) for one in schema] if isinstance(schema, list) else schema


def _parsed(schema: Schema, refused: type[DecodeError] | type[EncodeError], what: str) -> Any:
    """A registry's schema, with the types that it refers to."""
    fastavro = _fastavro()
    if schema.kind != "AVRO":
        raise refused(f"{what} is no Avro schema, but one of {schema.kind}")
    named: dict[str, Any] = {}
    try:
        for text in schema.texts().values():
            fastavro.parse_schema(_of_text(text), named_schemas=named)
        return fastavro.parse_schema(_of_text(schema.text), named_schemas=named)
    except Exception as error:  # the registry's, and anybody's
        raise refused(f"{what} of the registry cannot be used: {type(error).__name__}: {error}") from error


def _careful_reader() -> Any:
    """Fastavro's reader in Python, which minds how deep it goes."""
    from fastavro._read_py import schemaless_reader

    return schemaless_reader


def _holds_itself(schema: Any) -> bool:
    """Whether data of a parsed schema may be nested without an end, since a type of it leads to itself."""
    named = schema.get("__named_schemas", {}) if isinstance(schema, Mapping) else {}
    inside, done = set[str](), set[str]()

    def leads_back(one: Any) -> bool:
        if isinstance(one, list):
            return any(map(leads_back, one))
        if isinstance(one, str):
            return one in inside or (one in named and one not in done and leads_back(named[one]))
        if not isinstance(one, Mapping):
            return False
        parts = [one.get("type"), one.get("items"), one.get("values"), *(at["type"] for at in one.get("fields", ()))]
        name = str(one.get("name", ""))
        if name not in named:
            return leads_back([part for part in parts if part is not None])
        inside.add(name)
        found = leads_back([part for part in parts if part is not None])
        inside.discard(name)
        done.add(name)
        return found

    return leads_back(schema)


def _of_text(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text  # a bare name: some registries store "string" without its quotes
