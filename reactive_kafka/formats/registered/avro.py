"""The Avro codec. A record is the id of its writer's schema, and data in that schema.

Source: Confluent's Avro serialiser, which writes records in this form.
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


def avro_decoder(payload_type: PayloadType, source: SchemaSource) -> Decoder:
    """Return a decoder that reads data by the writer's schema, into the annotation.

    If there is a reader's schema, the data is resolved to it in between.

    Raises:
        FormatError: The reader's schema cannot be read.
        MissingExtraError: There is no fastavro.
    """
    fastavro()
    file = source.own(loaded)
    reader = None if file is None else own_schema(file, source.file or "the reader's schema")
    schemas = source.schemas
    readers: dict[bytes, tuple[Read, Callable[[Any], object]]] = schemas.cache()
    model = model_for(payload_type)
    models_by_name = named_models(payload_type)
    takes_all = payload_type.is_free and payload_type.base in (Any, object)
    takes_dicts = payload_type.is_free and payload_type.base in (dict, dict[str, Any])

    def make_reader(prefix: bytes) -> tuple[Read, Callable[[Any], object]]:
        question = schema_named_by(prefix)
        writer = registered_schema(schemas.find(question), DecodeError, str(question))
        if has_weightless_items(writer.root, writer.named):
            raise DecodeError(
                f"{question} of the registry has an array of items that take no bytes, and is not "
                "read"
            )
        steps = [] if reader is None else [resolver(writer, reader)]
        steps.append(branch_reader(reader or writer, payload_type.annotation))
        read = _reader(writer, [step for step in steps if step is not None])
        name = short_name((reader or writer).name)
        from_plain = models_by_name.get(name, model).from_value
        return keep_bounded(readers, prefix, (read, from_plain))

    def read(value: bytes) -> object:
        prefix = possible_prefix(value)
        read_data, from_plain = readers.get(prefix) or make_reader(prefix)
        data = BytesIO(value)
        data.seek(len(prefix))
        try:
            plain = read_data(data)
        except Unresolved as error:
            raise DecodeError(
                f"{schema_named_by(prefix)}, which it was written with, does not resolve to "
                f"{source.file}: {error}"
            ) from None
        except DecodeError:
            raise
        except RecursionError:
            raise DecodeError("not read: it is nested too deeply") from None
        except Exception as error:
            # Fastavro raises anything on bytes that do not fit, and its text may quote them.
            raise DecodeError(
                f"not data of {schema_named_by(prefix)}: {type(error).__name__} while reading it"
            ) from None
        if takes_all or (takes_dicts and isinstance(plain, dict)):
            return plain
        return from_plain(plain)

    return guarded(read, payload_type, model.explain)


def _reader(writer: AvroSchema, steps: list[Step]) -> Read:
    """Return what reads data of the writer's schema, and then takes each of the steps."""
    read = fastavro().schemaless_reader
    if is_recursive(writer.root, writer.named):
        read = careful_reader()
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
    """Return the rest of *data* with its length before it, as Avro writes bytes.

    If a schema is nothing but bytes, Confluent's serialisers leave out the length.
    """
    with_length = BytesIO()
    fastavro().schemaless_writer(with_length, "bytes", data.read())
    with_length.seek(0)
    return with_length


def avro_encoder(source: SchemaSource) -> Callable[[object], bytes | None]:
    """Return an encoder that writes the id of a schema, and data in that schema.

    The schema is that in ``file``, or that of the value's type, or the latest of the subject.

    Raises:
        FormatError: The schema cannot be read.
        MissingExtraError: There is no fastavro.
    """
    fastavro()
    schemas = source.schemas
    writers: dict[type, tuple[bytes, Write]] = schemas.cache()
    own = None if source.file is None else own_schema(loaded(source.file), source.file)

    def make_writer(kind: type) -> tuple[bytes, Write]:
        schema = own
        try:
            to_plain = plain_maker(kind)
            if schema is None and to_plain is not None:
                schema = own_schema(schema_of_type(kind), kind.__name__)
        except FormatError as error:
            raise EncodeError(str(error)) from None
        if schema is None:
            if source.register or source.subject != "topic":
                raise no_schema_error(kind.__name__)
            latest: SchemaWithId = schemas.find(LatestOf(source.subject_of("")))
            id = latest.id
            schema = registered_schema(latest.schema, EncodeError, f"schema {id}")
        else:
            subject = source.subject_of(schema.name)
            id = schemas.find(IdOf(subject, Schema("AVRO", schema.text), source.register))
        try:
            writer = _writer(schema, to_plain or _unchanged)
        except Exception as error:
            # Fastavro parses much that is not a schema, and anybody may register it.
            raise EncodeError(
                f"schema {id} cannot be used: {type(error).__name__}: {error}"
            ) from error
        return keep_bounded(writers, kind, (prefix_of(id), writer))

    def write(value: object) -> bytes | None:
        if value is None:
            return None
        kind = type(value)
        prefix, write_data = writers.get(kind) or make_writer(kind)
        try:
            return write_data(prefix, value)
        except EncodeError as error:
            raise EncodeError(f"{kind.__name__} does not fit the Avro schema: {error}") from None
        except Exception as error:
            # The text may quote the value.
            raise EncodeError(
                f"{kind.__name__} does not fit the Avro schema: {type(error).__name__}"
            ) from error

    return write


def _writer(schema: AvroSchema, to_plain: Callable[[Any], Any]) -> Write:
    """Return what writes values in a schema, after the prefix that names it."""
    record = with_default_values(schema)
    is_wrapped = schema.is_wrapped
    is_bytes = type_of(schema.root) == "bytes"
    may_be_deep = is_recursive(schema.root, schema.named)
    prepare = preparer(schema)
    library = fastavro()
    write = library.schemaless_writer

    def encoded(prefix: bytes, plain: Any, value: Any) -> bytes:
        if may_be_deep and is_deep(plain):
            raise RecursionError
        ready = plain if prepare is None else prepare(plain, value)
        data = BytesIO(prefix)
        data.seek(HEAD)
        write(data, record, {ONLY: ready} if is_wrapped else ready)
        if is_bytes:
            # Read the bytes back without their length, which Confluent's serialisers leave out.
            data.seek(HEAD)
            return prefix + bytes(library.schemaless_reader(data, "bytes"))
        return data.getvalue()

    def write_data(prefix: bytes, value: Any) -> bytes:
        plain = to_plain(value)
        try:
            return encoded(prefix, plain, value)
        except RecursionError:
            raise
        except Exception as error:
            # A list or dict may contain models and enums. To look for them takes as long as to
            # write the value, so it is done only after a failure.
            plainer = plain_inside(plain)
            if plainer != plain:
                return encoded(prefix, plainer, value)
            if isinstance(error, EncodeError):
                raise
            reason = misfit(schema, plain)
            if reason is None:
                raise
            raise EncodeError(reason) from error

    return write_data


def check_written(kind: Any) -> None:
    """Check that a model, dataclass or struct has an Avro schema. Other types need none.

    Raises:
        FormatError: It has none. The text names class and field.
    """
    if not is_model(kind):
        return
    try:
        own_schema(schema_of_type(kind), kind.__name__)
    except (NameError, TypeError) as error:
        # An annotation cannot be resolved.
        raise FormatError(
            f"{kind.__name__} has no Avro schema: {type(error).__name__}: {error}"
        ) from error


def _unchanged(value: Any) -> Any:
    return value
