"""Avro as a registry's clients write it: the id of the writer's schema, then the data in that
schema; by fastavro.
"""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Any

from reactive_kafka.errors import DecodeError, EncodeError
from reactive_kafka.formats.format_names import FormatError
from reactive_kafka.formats.guarded_decoder import Decoder, guarded
from reactive_kafka.formats.models import model_for
from reactive_kafka.formats.payload_type import PayloadType
from reactive_kafka.formats.registered.avro_branches import branch_reader
from reactive_kafka.formats.registered.avro_limits import (
    has_weightless_items,
    is_deep,
    is_recursive,
)
from reactive_kafka.formats.registered.avro_misfits import misfit
from reactive_kafka.formats.registered.avro_resolution import Step, Unresolved, resolver
from reactive_kafka.formats.registered.avro_schemas import (
    ONLY,
    AvroSchema,
    careful_reader,
    fastavro,
    own_schema,
    registered_schema,
    short_name,
    type_of,
    with_default_values,
)
from reactive_kafka.formats.registered.avro_schemas import loaded as loaded
from reactive_kafka.formats.registered.avro_types import schema_of_type
from reactive_kafka.formats.registered.avro_written import preparer
from reactive_kafka.formats.registered.channel_schemas import (
    SchemaSource,
    keep_bounded,
    no_schema_error,
)
from reactive_kafka.formats.registered.plain_data import is_model, plain_inside, plain_maker
from reactive_kafka.formats.registered.schema_questions import IdOf, LatestOf, Schema, SchemaWithId
from reactive_kafka.formats.registered.union_members import named_models
from reactive_kafka.formats.registered.wire_format import (
    HEAD,
    possible_prefix,
    prefix_of,
    schema_named_by,
)

Read = Callable[[BytesIO], Any]
Write = Callable[[bytes, Any], bytes]


def avro_decoder(asked: PayloadType, source: SchemaSource) -> Decoder:
    """Data by the writer's schema, resolved to the reader's where there is one, then into the
    annotation.

    Raises:
        FormatError: The reader's schema cannot be read.
        MissingExtraError: There is no fastavro.
    """
    fastavro()
    file = source.own(loaded)
    reader = None if file is None else own_schema(file, source.file or "the reader's schema")
    schemas = source.schemas
    readers: dict[bytes, tuple[Read, Callable[[Any], object]]] = schemas.cache()
    model = model_for(asked)
    members = named_models(asked)
    takes_all = asked.is_free and asked.base in (Any, object)
    takes_dicts = asked.is_free and asked.base in (dict, dict[str, Any])

    def reader_of(first: bytes) -> tuple[Read, Callable[[Any], object]]:
        named = schema_named_by(first)
        writer = registered_schema(schemas.find(named), DecodeError, str(named))
        if has_weightless_items(writer.root, writer.named):
            raise DecodeError(
                f"{named} of the registry has an array of items that take no bytes, and is not read"
            )
        steps = [] if reader is None else [resolver(writer, reader)]
        steps.append(branch_reader(reader or writer, asked.annotation))
        read = _reader(writer, [step for step in steps if step is not None])
        name = short_name((reader or writer).name)
        return keep_bounded(readers, first, (read, members.get(name, model).from_value))

    def read(value: bytes) -> object:
        first = possible_prefix(value)
        read_data, from_plain = readers.get(first) or reader_of(first)
        data = BytesIO(value)
        data.seek(len(first))
        try:
            plain = read_data(data)
        except Unresolved as error:
            raise DecodeError(
                f"{schema_named_by(first)}, which it was written with, does not resolve to {source.file}: {error}"
            ) from None
        except DecodeError:
            raise
        except RecursionError:
            raise DecodeError("not read: it is nested too deeply") from None
        except Exception as error:
            # Bytes of anybody's; the text may quote them.
            raise DecodeError(
                f"not data of {schema_named_by(first)}: {type(error).__name__} while reading it"
            ) from None
        return (
            plain if takes_all or (takes_dicts and isinstance(plain, dict)) else from_plain(plain)
        )

    return guarded(read, asked, model.explain)


def _reader(writer: AvroSchema, steps: list[Step]) -> Read:
    """What reads data of the writer's schema, and takes it through the *steps*."""
    read = (
        careful_reader()
        if is_recursive(writer.root, writer.named)
        else fastavro().schemaless_reader
    )
    record = writer.record
    is_wrapped = writer.is_wrapped
    is_bytes = type_of(writer.root) == "bytes"

    def read_data(data: BytesIO) -> Any:
        plain = read(_with_length(data) if is_bytes else data, record, None, return_named_type=True)
        if is_wrapped:
            plain = plain[ONLY]
        for step in steps:
            plain = step(plain)
        return plain

    return read_data


def _with_length(data: BytesIO) -> BytesIO:
    """The rest of *data* as bytes of Avro.

    Where a schema is nothing but bytes, Confluent's serialisers write them without their length.
    """
    found = BytesIO()
    fastavro().schemaless_writer(found, "bytes", data.read())
    found.seek(0)
    return found


def avro_encoder(source: SchemaSource) -> Callable[[object], bytes | None]:
    """The id of the schema in ``file``, of the value's own type, or of the subject's latest; then
    the data.

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
            found = own or (
                None if to_plain is None else own_schema(schema_of_type(kind), kind.__name__)
            )
        except FormatError as error:
            raise EncodeError(str(error)) from None
        if found is None:
            if source.register or source.subject != "topic":
                raise no_schema_error(kind.__name__)
            known: SchemaWithId = schemas.find(LatestOf(source.subject_of("")))
            id = known.id
            found = registered_schema(known.schema, EncodeError, f"schema {id}")
        else:
            subject = source.subject_of(found.name)
            id = schemas.find(IdOf(subject, Schema("AVRO", found.text), source.register))
        try:
            writer = _writer(found, to_plain or _as_it_is)
        except Exception as error:
            # Fastavro parses much that is no schema, and the registry has anybody's.
            raise EncodeError(
                f"schema {id} cannot be used: {type(error).__name__}: {error}"
            ) from error
        return keep_bounded(writers, kind, (prefix_of(id), writer))

    def write(value: object) -> bytes | None:
        if value is None:
            return None
        kind = type(value)
        first, write_data = writers.get(kind) or writer_of(kind)
        try:
            return write_data(first, value)
        except EncodeError as error:
            raise EncodeError(f"{kind.__name__} does not fit the Avro schema: {error}") from None
        except Exception as error:
            # The text may quote the value.
            raise EncodeError(
                f"{kind.__name__} does not fit the Avro schema: {type(error).__name__}"
            ) from error

    return write


def _writer(schema: AvroSchema, to_plain: Callable[[Any], Any]) -> Write:
    """What writes values in a schema, behind the head that names it."""
    record = with_default_values(schema)
    is_wrapped = schema.is_wrapped
    is_bytes = type_of(schema.root) == "bytes"
    may_be_deep = is_recursive(schema.root, schema.named)
    prepare = preparer(schema)
    library = fastavro()
    write = library.schemaless_writer

    def encoded(first: bytes, plain: Any, value: Any) -> bytes:
        if may_be_deep and is_deep(plain):
            raise RecursionError
        ready = plain if prepare is None else prepare(plain, value)
        data = BytesIO(first)
        data.seek(HEAD)
        write(data, record, {ONLY: ready} if is_wrapped else ready)
        if is_bytes:
            data.seek(HEAD)
            return first + bytes(library.schemaless_reader(data, "bytes"))
        return data.getvalue()

    def write_data(first: bytes, value: Any) -> bytes:
        plain = to_plain(value)
        try:
            return encoded(first, plain, value)
        except RecursionError:
            raise
        except Exception as error:
            # Models and enums may stand in lists and dicts of no model. To look for them costs what
            # writing does.
            plainer = plain_inside(plain)
            if plainer != plain:
                return encoded(first, plainer, value)
            why = None if isinstance(error, EncodeError) else misfit(schema, plain)
            if why is None:
                raise
            raise EncodeError(why) from error

    return write_data


def check_written(kind: Any) -> None:
    """Check that the schema of a model, dataclass or struct can be made of it; other types have
    none.

    Raises:
        FormatError: It cannot; the text names class and field.
    """
    if not is_model(kind):
        return
    try:
        own_schema(schema_of_type(kind), kind.__name__)
    except (NameError, TypeError) as error:
        # Of annotations that cannot be resolved.
        raise FormatError(
            f"{kind.__name__} has no Avro schema: {type(error).__name__}: {error}"
        ) from error


def _as_it_is(value: Any) -> Any:
    return value
