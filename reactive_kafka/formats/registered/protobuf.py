"""Protobuf as a registry's clients write it: a schema's id, the message's place in its file, then
the message.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reactive_kafka.errors import DecodeError, EncodeError
from reactive_kafka.formats.format_names import FormatError
from reactive_kafka.formats.guarded_decoder import Decoder, guarded
from reactive_kafka.formats.models import model_for
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


def protobuf_decoder(asked: PayloadType, source: SchemaSource) -> Decoder:
    """A message of the generated class, or its plain data in the annotation.

    The schema says which message it is. It is read as the generated class, else as the message of
    that name in the reader's file, else as the writer's.

    Raises:
        FormatError: The reader's file cannot be read.
        MissingExtraError: A package is not installed.
    """
    errors = protobuf().message
    schemas = source.schemas
    readers: dict[tuple[bytes, tuple[int, ...]], tuple[Any, FromPlain | None]] = schemas.cache()
    file = source.own(loaded)
    own = None if file is None else {one.full_name: one for one in messages_of(file_of(file))}
    kinds = members_of(asked)
    generated = (
        {one.DESCRIPTOR.full_name: one for one in kinds}
        if all(is_message(one) for one in kinds)
        else None
    )
    model = None if generated is not None else model_for(asked)
    members = {} if generated is not None else named_models(asked)
    is_plain = asked.is_free and asked.base in (Any, object, dict, dict[str, Any])

    def reader_of(first: bytes, indexes: tuple[int, ...]) -> tuple[Any, FromPlain | None]:
        id = schema_named_by(first)
        written = _message(schemas.find(id), indexes, DecodeError, str(id))
        name = written.full_name
        if generated is not None:
            if name not in generated:
                raise DecodeError(
                    f"{id} has a message {name}, but the handler asks for {asked.name}"
                )
            return keep_bounded(readers, (first, indexes), (generated[name], None))
        if own is not None and name not in own:
            raise DecodeError(f"{id} has a message {name}, which {source.file} does not have")
        kind = class_of(written if own is None else own[name])
        found = members.get(written.name, model)
        return keep_bounded(
            readers, (first, indexes), (kind, None if found is None else found.from_value)
        )

    def read(value: bytes) -> object:
        first = possible_prefix(value)
        at = len(first)
        try:
            indexes, at = ((0,), at + 1) if value[at] == 0 else read_indexes(value, at)
        except (IndexError, ValueError):
            schema_named_by(first)
            raise DecodeError(
                "it names no message: its place in the schema is to follow the id"
            ) from None
        kind, from_plain = readers.get((first, indexes)) or reader_of(first, indexes)
        try:
            message = kind.FromString(value[at:])
        except errors.DecodeError:
            raise DecodeError(
                f"not a message {kind.DESCRIPTOR.full_name} of {schema_named_by(first)}"
            ) from None
        return message if from_plain is None else from_plain(to_plain(message, is_plain))

    def explain(error: Exception) -> DecodeError:
        if model is not None and not isinstance(error, DecodeError):
            return model.explain(error)
        known = isinstance(error, DecodeError)
        return error if known else DecodeError(f"{type(error).__name__} while reading it")  # type: ignore[return-value]

    return guarded(read, asked, explain)


def protobuf_encoder(source: SchemaSource) -> Callable[[object], bytes | None]:
    """Messages of generated classes with their own schema; models and dicts by that of ``file``, or
    the latest.

    Raises:
        FormatError: The schema cannot be read.
        MissingExtraError: A package is not installed.
    """
    protobuf()
    schemas = source.schemas
    writers: dict[type, tuple[bytes, Write]] = schemas.cache()
    file = None if source.file is None else compiled(source.file)

    def registered(descriptor: Any) -> bytes:
        ask = IdOf(
            source.subject_of(descriptor.full_name),
            schema_of_file(descriptor.file),
            source.register,
        )
        return prefix_of(schemas.find(ask)) + write_indexes(indexes_of(descriptor))

    def writer_of(kind: type) -> tuple[bytes, Write]:
        if is_message(kind):
            return keep_bounded(writers, kind, (registered(kind.DESCRIPTOR), _serialize))  # type: ignore[attr-defined]
        try:
            to_dict = plain_maker(kind)
        except FormatError as error:
            raise EncodeError(str(error)) from None
        if file is not None:
            descriptor = _called(file, kind.__name__)
            first = registered(descriptor)
        elif source.register or source.subject != "topic":
            raise no_schema_error(kind.__name__)
        else:
            known: SchemaWithId = schemas.find(LatestOf(source.subject_of("")))
            whole = _file(known.schema, EncodeError, f"schema {known.id}")
            descriptor = _called(whole, kind.__name__)
            first = prefix_of(known.id) + write_indexes(indexes_of(descriptor))
        message = class_of(descriptor)

        def write_plain(value: Any) -> bytes:
            made = message()
            fill(made, value if to_dict is None else to_dict(value))
            return _serialize(made)

        return keep_bounded(writers, kind, (first, write_plain))

    def write(value: object) -> bytes | None:
        if value is None:
            return None
        kind = type(value)
        first, write_message = writers.get(kind) or writer_of(kind)
        try:
            return first + write_message(value)
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
    """The schema of a ``.proto`` file, compiled.

    FormatError: protoc does not take it, or it needs another content of a file that is built in.
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
        # The registry's, and anybody's.
        raise refused(
            f"{what} of the registry cannot be used: {type(error).__name__}: {error}"
        ) from error


def _message(schema: Schema, indexes: tuple[int, ...], refused: type[Exception], what: str) -> Any:
    file = _file(schema, refused, what)
    try:
        return message_at(file, indexes)
    except IndexError:
        raise refused(f"{what} has no message at {list(indexes)}") from None


def _called(file: Any, name: str) -> Any:
    """The message of that name, else the first of all."""
    messages = list(messages_of(file))
    if not messages:
        raise EncodeError("the schema has no message")
    return next((one for one in messages if one.name == name), messages[0])
