"""The Protobuf codec. A record is a schema's id, the message's place in its file, and the message.

Source: Confluent's Protobuf serialiser, which writes records in this form.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reactive_kafka.errors import DecodeError, EncodeError
from reactive_kafka.formats.format_names import FormatError
from reactive_kafka.formats.guarded_decoder import Decoder, guarded
from reactive_kafka.formats.models import Model, model_for
from reactive_kafka.formats.payload_type import PayloadType
from reactive_kafka.formats.registered.channel_schemas import (
    SchemaSource,
    keep_bounded,
    no_schema_error,
)
from reactive_kafka.formats.registered.plain_data import plain_maker
from reactive_kafka.formats.registered.proto_files import (
    class_of,
    compiled,
    file_of,
    indexes_of,
    is_message,
    message_at,
    messages_of,
    protobuf,
    read_indexes,
    schema_of_file,
    write_indexes,
)
from reactive_kafka.formats.registered.proto_plain import fill, to_plain
from reactive_kafka.formats.registered.schema_questions import IdOf, LatestOf, Schema, SchemaWithId
from reactive_kafka.formats.registered.union_members import members_of, named_models
from reactive_kafka.formats.registered.wire_format import (
    possible_prefix,
    prefix_of,
    schema_named_by,
)

Write = Callable[[Any], bytes]
FromPlain = Callable[[Any], object]


def protobuf_decoder(payload_type: PayloadType, source: SchemaSource) -> Decoder:
    """Return a decoder that yields messages of generated classes, or their data in the annotation.

    The schema says which message a record is. It is read as the generated class, or as the message
    of that name in the reader's file, or as the writer's message.

    Raises:
        FormatError: The reader's file cannot be read.
        MissingExtraError: A package is not installed.
    """
    errors = protobuf().message
    schemas = source.schemas
    readers: dict[tuple[bytes, tuple[int, ...]], tuple[Any, FromPlain | None]] = schemas.cache()
    file = source.own(loaded)
    own: dict[str, Any] | None = None
    if file is not None:
        own = {message.full_name: message for message in messages_of(file_of(file))}
    classes = members_of(payload_type)
    generated: dict[str, Any] | None = None
    model: Model | None = None
    models_by_name: dict[str, Model] = {}
    if all(is_message(kind) for kind in classes):
        generated = {kind.DESCRIPTOR.full_name: kind for kind in classes}
    else:
        model = model_for(payload_type)
        models_by_name = named_models(payload_type)
    is_plain = payload_type.is_free and payload_type.base in (Any, object, dict, dict[str, Any])

    def make_reader(prefix: bytes, indexes: tuple[int, ...]) -> tuple[Any, FromPlain | None]:
        question = schema_named_by(prefix)
        written = _message(schemas.find(question), indexes, DecodeError, str(question))
        name = written.full_name
        if generated is not None:
            if name not in generated:
                raise DecodeError(
                    f"{question} has a message {name}, but the handler asks for {payload_type.name}"
                )
            return keep_bounded(readers, (prefix, indexes), (generated[name], None))
        if own is not None and name not in own:
            raise DecodeError(f"{question} has a message {name}, which {source.file} does not have")
        message_class = class_of(written if own is None else own[name])
        message_model = models_by_name.get(written.name, model)
        from_plain = None if message_model is None else message_model.from_value
        return keep_bounded(readers, (prefix, indexes), (message_class, from_plain))

    def read(value: bytes) -> object:
        prefix = possible_prefix(value)
        start = len(prefix)
        try:
            if value[start] == 0:
                # The first message of the file, which nearly all records are.
                indexes: tuple[int, ...] = (0,)
                start += 1
            else:
                indexes, start = read_indexes(value, start)
        except (IndexError, ValueError):
            # Without a prefix that is the reason, and this raises it.
            schema_named_by(prefix)
            raise DecodeError(
                "it names no message: its place in the schema is to follow the id"
            ) from None
        message_class, from_plain = readers.get((prefix, indexes)) or make_reader(prefix, indexes)
        try:
            message = message_class.FromString(value[start:])
        except errors.DecodeError:
            raise DecodeError(
                f"not a message {message_class.DESCRIPTOR.full_name} of {schema_named_by(prefix)}"
            ) from None
        if from_plain is None:
            return message
        return from_plain(to_plain(message, is_plain))

    def explain(error: Exception) -> DecodeError:
        if isinstance(error, DecodeError):
            return error
        if model is not None:
            return model.explain(error)
        return DecodeError(f"{type(error).__name__} while reading it")

    return guarded(read, payload_type, explain)


def protobuf_encoder(source: SchemaSource) -> Callable[[object], bytes | None]:
    """Return an encoder of messages, models and dicts.

    A message has the schema of its generated class. Models and dicts are written by the schema in
    ``file``, or by the latest of the subject.

    Raises:
        FormatError: The schema cannot be read.
        MissingExtraError: A package is not installed.
    """
    protobuf()
    schemas = source.schemas
    writers: dict[type, tuple[bytes, Write]] = schemas.cache()
    file = None if source.file is None else compiled(source.file)

    def full_prefix(descriptor: Any) -> bytes:
        """Return the prefix of a message's records, with its place in the file."""
        question = IdOf(
            source.subject_of(descriptor.full_name),
            schema_of_file(descriptor.file),
            source.register,
        )
        return prefix_of(schemas.find(question)) + write_indexes(indexes_of(descriptor))

    def make_writer(kind: type) -> tuple[bytes, Write]:
        if is_message(kind):
            message_kind: Any = kind
            return keep_bounded(writers, kind, (full_prefix(message_kind.DESCRIPTOR), _serialize))
        try:
            to_dict = plain_maker(kind)
        except FormatError as error:
            raise EncodeError(str(error)) from None
        if file is not None:
            descriptor = _message_named(file, kind.__name__)
            prefix = full_prefix(descriptor)
        elif source.register or source.subject != "topic":
            raise no_schema_error(kind.__name__)
        else:
            latest: SchemaWithId = schemas.find(LatestOf(source.subject_of("")))
            latest_file = _file(latest.schema, EncodeError, f"schema {latest.id}")
            descriptor = _message_named(latest_file, kind.__name__)
            prefix = prefix_of(latest.id) + write_indexes(indexes_of(descriptor))
        message_class = class_of(descriptor)

        def write_plain(value: Any) -> bytes:
            message = message_class()
            fill(message, value if to_dict is None else to_dict(value))
            return _serialize(message)

        return keep_bounded(writers, kind, (prefix, write_plain))

    def write(value: object) -> bytes | None:
        if value is None:
            return None
        kind = type(value)
        prefix, write_message = writers.get(kind) or make_writer(kind)
        try:
            return prefix + write_message(value)
        except EncodeError as error:
            raise EncodeError(
                f"{kind.__name__} does not fit the Protobuf message: {error}"
            ) from None
        except Exception as error:
            # The text may quote the value.
            raise EncodeError(
                f"{kind.__name__} does not fit the Protobuf message: {type(error).__name__}"
            ) from error

    return write


def loaded(file: str) -> Schema:
    """Compile a ``.proto`` file, and return its schema.

    Raises:
        FormatError: Protoc refuses it, or it does not fit the built-in files that it imports.
    """
    schema = schema_of_file(compiled(file))
    try:
        file_of(schema)
    except TypeError as error:
        raise FormatError(
            f"{file} does not fit the files that are built in and that it imports: {error}"
        ) from error
    return schema


def _serialize(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return data


def _file(schema: Schema, refused: type[Exception], what: str) -> Any:
    if schema.kind != "PROTOBUF":
        raise refused(f"{what} is no Protobuf schema, but one of {schema.kind}")
    try:
        return file_of(schema)
    except FormatError as error:
        raise refused(f"{what} of the registry cannot be used: {error}") from None
    except Exception as error:
        # Anybody may have registered it, and protobuf raises anything on it.
        raise refused(
            f"{what} of the registry cannot be used: {type(error).__name__}: {error}"
        ) from error


def _message(schema: Schema, indexes: tuple[int, ...], refused: type[Exception], what: str) -> Any:
    file = _file(schema, refused, what)
    try:
        return message_at(file, indexes)
    except IndexError:
        raise refused(f"{what} has no message at {list(indexes)}") from None


def _message_named(file: Any, name: str) -> Any:
    """Return the message of that name in a file, or else the file's first message."""
    messages = list(messages_of(file))
    if not messages:
        raise EncodeError("the schema has no message")
    for message in messages:
        if message.name == name:
            return message
    return messages[0]
