"""JSON with a schema, as a registry's clients write it: the id of the schema, then the JSON;
checked by jsonschema.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import TypeAdapter
from pydantic.errors import PydanticUserError
from pydantic_core import from_json

from reactive_kafka.errors import DecodeError, EncodeError
from reactive_kafka.formats.encoders import write_json
from reactive_kafka.formats.format_names import FormatError
from reactive_kafka.formats.guarded_decoder import Decoder, Read, guarded
from reactive_kafka.formats.models import model_for
from reactive_kafka.formats.payload_type import PayloadType
from reactive_kafka.formats.registered.channel_schemas import (
    ChannelSchemas,
    SchemaSource,
    keep_bounded,
    no_schema_error,
)
from reactive_kafka.formats.registered.json_check import Check, Compiled
from reactive_kafka.formats.registered.json_documents import jsonschema_or_why, loaded, why_not
from reactive_kafka.formats.registered.plain_data import is_model, is_struct
from reactive_kafka.formats.registered.schema_questions import IdOf, LatestOf, Schema, SchemaWithId
from reactive_kafka.formats.registered.union_members import named_models
from reactive_kafka.formats.registered.wire_format import (
    possible_prefix,
    prefix_of,
    schema_named_by,
)


def json_schema_decoder(asked: PayloadType, source: SchemaSource) -> Decoder:
    """JSON that fits the reader's schema, if there is one; else the model; else the schema that it
    was written with.

    Raises:
        FormatError: The reader's schema cannot be read.
        MissingExtraError: There is no jsonschema.
    """
    # Else the model says what it is to be.
    check_of = _check_finder(source, is_asked=asked.is_free)
    model = model_for(asked)
    members = named_models(asked)
    readers: dict[bytes, Read] = source.schemas.cache()
    read_model = model.from_json()

    def reader_of(first: bytes) -> Read:
        """That of the model which the schema is called after."""
        schema: Schema = source.schemas.find(schema_named_by(first))
        title = str(_document(schema.text).get("title", ""))
        return keep_bounded(readers, first, members.get(title, model).from_json())

    def read(value: bytes) -> object:
        first = possible_prefix(value)
        check = check_of(first)
        data = value[len(first) :]
        read_json = (readers.get(first) or reader_of(first)) if members else read_model
        if check is _fits:
            return read_json(data)
        document = from_json(data)
        if why := check(document):
            raise DecodeError(
                f"does not fit the JSON Schema, {source.file or schema_named_by(first)}: {why}"
            )
        return document if asked.base in (Any, object) else read_json(data)

    return guarded(read, asked, model.explain)


def json_schema_text(source: SchemaSource) -> Decoder:
    """The JSON of a record as it stands there, if it fits the reader's schema: for readers that
    check for themselves.

    Raises:
        FormatError: The reader's schema cannot be read.
        MissingExtraError: There is no jsonschema.
    """
    check_of = _check_finder(source, is_asked=False)

    def text(value: bytes | None) -> bytes | None:
        if value is None:
            return None
        first = possible_prefix(value)
        check = check_of(first)
        data = value[len(first) :]
        if check is _fits:
            return data
        try:
            document = from_json(data)
        except ValueError:
            # Which whoever reads it will see.
            return data
        if why := check(document):
            raise DecodeError(f"does not fit the JSON Schema, {source.file}: {why}")
        return data

    return text


def _check_finder(source: SchemaSource, *, is_asked: bool) -> Callable[[bytes], Check]:
    """What finds the check of a record by its head: that of the reader's schema, or of the writer's
    if it *is_asked*.

    Raises:
        FormatError: The reader's schema cannot be read.
        MissingExtraError: There is no jsonschema.
    """
    jsonschema_or_why()
    checks: dict[bytes, Check] = source.schemas.cache()
    reader = source.own(loaded)
    own = (
        None if reader is None else _checked(reader, FormatError, str(source.file), source.schemas)
    )

    def check_of(first: bytes) -> Check:
        if (known := checks.get(first)) is not None:
            return known
        id = schema_named_by(first)
        schema: Schema = source.schemas.find(id)
        if schema.kind != "JSON":
            raise DecodeError(f"{id} is no JSON Schema, but one of {schema.kind}")
        if own is None and not is_asked:
            return keep_bounded(checks, first, _fits)
        check = own or _checked(schema, DecodeError, f"{id} of the registry", source.schemas)
        return keep_bounded(checks, first, check)

    return check_of


def json_schema_encoder(source: SchemaSource) -> Callable[[object], bytes | None]:
    """The id of the schema in ``file``, of the value's own type, or of the subject's latest; then
    the JSON.

    Raises:
        FormatError: The schema cannot be read.
        MissingExtraError: There is no jsonschema.
    """
    jsonschema_or_why()
    schemas = source.schemas
    writers: dict[type, tuple[bytes, Check]] = schemas.cache()
    own = None if source.file is None else loaded(source.file)
    check_own = None if own is None else _checked(own, FormatError, str(source.file), schemas)

    def writer_of(kind: type) -> tuple[bytes, Check]:
        try:
            schema = own or (_of_type(kind) if is_model(kind) else None)
        except FormatError as error:
            raise EncodeError(str(error)) from None
        if schema is not None:
            subject = source.subject_of(str(_document(schema.text).get("title", "")))
            id = schemas.find(IdOf(subject, schema, source.register))
            return keep_bounded(writers, kind, (prefix_of(id), check_own or _fits))
        if source.register or source.subject != "topic":
            raise no_schema_error(kind.__name__)
        known: SchemaWithId = schemas.find(LatestOf(source.subject_of("")))
        check = _checked(known.schema, EncodeError, f"schema {known.id} of the registry", schemas)
        return keep_bounded(writers, kind, (prefix_of(known.id), check))

    def write(value: object) -> bytes | None:
        if value is None:
            return None
        kind = type(value)
        first, check = writers.get(kind) or writer_of(kind)
        data = write_json(value) or b""
        if check is not _fits and (why := check(from_json(data))):
            raise EncodeError(f"{kind.__name__} does not fit the JSON Schema: {why}")
        return first + data

    return write


def _fits(_: Any) -> None:
    """Nothing is left to check."""


def _document(text: str) -> Any:
    document = json.loads(text)
    return document if isinstance(document, Mapping) else {}


def _checked(schema: Schema, refused: type[Exception], what: str, told: ChannelSchemas) -> Check:
    """The check of a schema. What it refers to is taken from the registry, and never fetched from
    elsewhere.
    """
    try:
        compiled = Compiled(schema)
    except Exception as error:
        # Whatever a library makes of text that is no schema.
        raise refused(f"{what} is no JSON Schema that can be used: {why_not(error)}") from error
    # a file is refused at the start; of the registry's schemas, data may never come by that
    # reference
    if compiled.nowhere and refused is FormatError:
        raise refused(f"{what} refers to {compiled.nowhere[0]!r}, which leads nowhere")
    for pattern, path, why in compiled.unchecked:
        told.remark(f"{what}: the pattern '{pattern}' at {path} is not checked: {why}")
    return compiled.check


def _of_type(kind: Any) -> Schema:
    """The schema of what a model is written as."""
    try:
        if is_struct(kind):
            import msgspec

            document = msgspec.json.schema(kind)
            name = document.get("$ref", "").rpartition("/")[2]
            document = {**document["$defs"][name], "$defs": document["$defs"]}
        else:
            adapter: TypeAdapter[Any] = TypeAdapter(kind)
            document = adapter.json_schema(mode="serialization", by_alias=True)
    except (PydanticUserError, TypeError, KeyError) as error:
        raise FormatError(f"{kind.__name__} has no JSON Schema: {error}") from error
    return Schema("JSON", json.dumps(document))
