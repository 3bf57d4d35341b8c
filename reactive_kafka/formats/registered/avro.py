"""Avro as a registry's clients write it: the id of the writer's schema, then the data in that schema; by fastavro."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Any

from reactive_kafka.errors import DecodeError, EncodeError
from reactive_kafka.formats.guarding import Decoder, guarded
from reactive_kafka.formats.models import model_for
from reactive_kafka.formats.names import FormatError
from reactive_kafka.formats.registered.avro_branches import branch_reader
from reactive_kafka.formats.registered.avro_limits import has_weightless_items, is_deep, is_recursive
from reactive_kafka.formats.registered.avro_resolution import Step, Unresolved, resolver
from reactive_kafka.formats.registered.avro_schemas import (
    ONLY,
    AvroSchema,
    careful_reader,
    fastavro,
    own_schema,
    registered_schema,
    short_name,
    with_default_values,
)
from reactive_kafka.formats.registered.avro_schemas import loaded as loaded
from reactive_kafka.formats.registered.avro_types import schema_of_type
from reactive_kafka.formats.registered.avro_written import preparer
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
    fastavro()
    file = source.own(loaded)
    reader = None if file is None else own_schema(file, source.file or "the reader's schema")
    schemas = source.schemas
    readers: dict[bytes, tuple[Read, Callable[[Any], object]]] = schemas.cache()
    model, members = model_for(asked), named_models(asked)
    takes_all = asked.is_free and asked.base in (Any, object)
    takes_dicts = asked.is_free and asked.base in (dict, dict[str, Any])

    def reader_of(first: bytes) -> tuple[Read, Callable[[Any], object]]:
        named = named_by(first)
        writer = registered_schema(schemas.find(named), DecodeError, str(named))
        if has_weightless_items(writer.root, writer.named):
            raise DecodeError(f"{named} of the registry has an array of items that take no bytes, and is not read")
        steps = [] if reader is None else [resolver(writer, reader)]
        steps.append(branch_reader(reader or writer, asked.annotation))
        read = _reader(writer, [step for step in steps if step is not None])
        name = short_name((reader or writer).name)
        return keep(readers, first, (read, members.get(name, model).from_value))

    def read(value: bytes) -> object:
        first = head_of(value)
        read_data, from_plain = readers.get(first) or reader_of(first)
        data = BytesIO(value)
        data.seek(len(first))
        try:
            plain = read_data(data)
        except Unresolved as error:
            raise DecodeError(
                f"{named_by(first)}, which it was written with, does not resolve to {source.file}: {error}"
            ) from None
        except DecodeError:
            raise
        except RecursionError:
            raise DecodeError("not read: it is nested too deeply") from None
        except Exception as error:  # bytes of anybody's; the text may quote them
            raise DecodeError(f"not data of {named_by(first)}: {type(error).__name__} while reading it") from None
        return plain if takes_all or (takes_dicts and isinstance(plain, dict)) else from_plain(plain)

    return guarded(read, asked, model.explain)


def _reader(writer: AvroSchema, steps: list[Step]) -> Read:
    """What reads data of the writer's schema, and takes it through the *steps*."""
    read = careful_reader() if is_recursive(writer.root, writer.named) else fastavro().schemaless_reader
    record = writer.record
    is_wrapped = writer.is_wrapped

    def read_data(data: BytesIO) -> Any:
        plain = read(data, record, None, return_named_type=True)
        if is_wrapped:
            plain = plain[ONLY]
        for step in steps:
            plain = step(plain)
        return plain

    return read_data


def avro_encoder(source: Registered) -> Callable[[object], bytes | None]:
    """The id of the schema in ``file``, of the value's own type, or of the subject's latest; then the data.

    Raises:
        FormatError: The schema cannot be read.
        MissingExtraError: There is no fastavro.
    """
    fastavro()
    schemas = source.schemas
    writers: dict[type, tuple[bytes, Write]] = schemas.cache()
    own = None if source.file is None else own_schema(loaded(source.file), source.file)

    def writer_of(kind: type) -> tuple[bytes, Write]:
        try:
            to_plain = plain_maker(kind)
            found = own or (None if to_plain is None else own_schema(schema_of_type(kind), kind.__name__))
        except FormatError as error:
            raise EncodeError(str(error)) from None
        if found is None:
            if source.register or source.subject != "topic":
                raise not_registered(kind.__name__)
            known: Known = schemas.find(Latest(source.subject_of("")))
            id = known.id
            found = registered_schema(known.schema, EncodeError, f"schema {id}")
        else:
            subject = source.subject_of(found.name)
            id = schemas.find(IdOf(subject, Schema("AVRO", found.text), source.register))
        try:
            writer = _writer(found, to_plain or _as_it_is)
        except Exception as error:  # fastavro parses much that is no schema, and the registry has anybody's
            raise EncodeError(f"schema {id} cannot be used: {type(error).__name__}: {error}") from error
        return keep(writers, kind, (head(id), writer))

    def write(value: object) -> bytes | None:
        if value is None:
            return None
        kind = type(value)
        first, write_data = writers.get(kind) or writer_of(kind)
        data = BytesIO(first)
        data.seek(HEAD)
        try:
            write_data(data, value)
        except EncodeError as error:
            raise EncodeError(f"{kind.__name__} does not fit the Avro schema: {error}") from None
        except Exception as error:  # the text may quote the value
            raise EncodeError(f"{kind.__name__} does not fit the Avro schema: {_why(error)}") from error
        return data.getvalue()

    return write


def _writer(schema: AvroSchema, to_plain: Callable[[Any], Any]) -> Write:
    """What writes values in a schema."""
    record = with_default_values(schema)
    is_wrapped = schema.is_wrapped
    may_be_deep = is_recursive(schema.root, schema.named)
    prepare = preparer(schema)
    write = fastavro().schemaless_writer

    def write_data(data: BytesIO, value: Any) -> None:
        plain = to_plain(value)
        if may_be_deep and is_deep(plain):
            raise RecursionError
        if prepare is not None:
            plain = prepare(plain, value)
        write(data, record, {ONLY: plain} if is_wrapped else plain)

    return write_data


def check_written(kind: Any) -> None:
    """Check that the schema of a model, dataclass or struct can be made of it; other types have none.

    Raises:
        FormatError: It cannot; the text names class and field.
    """
    if not is_model(kind):
        return
    try:
        own_schema(schema_of_type(kind), kind.__name__)
    except (NameError, TypeError) as error:  # of annotations that cannot be resolved
        raise FormatError(f"{kind.__name__} has no Avro schema: {type(error).__name__}: {error}") from error


def _as_it_is(value: Any) -> Any:
    return value


def _why(error: Exception) -> str:
    return "a field is missing" if isinstance(error, KeyError) else type(error).__name__
