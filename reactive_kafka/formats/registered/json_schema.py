"""The JSON Schema codec. A record is the id of its schema, and JSON that fits the schema.

Source: Confluent's JSON Schema serialiser, which writes records in this form.
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
from reactive_kafka.formats.registered.json_check import Check, CompiledJsonSchema
from reactive_kafka.formats.registered.json_documents import (
    invalid_reason,
    jsonschema_or_why,
    loaded,
)
from reactive_kafka.formats.registered.plain_data import is_model, is_struct
from reactive_kafka.formats.registered.schema_questions import IdOf, LatestOf, Schema, SchemaWithId
from reactive_kafka.formats.registered.union_members import named_models
from reactive_kafka.formats.registered.wire_format import (
    possible_prefix,
    prefix_of,
    schema_named_by,
)


def json_schema_decoder(payload_type: PayloadType, source: SchemaSource) -> Decoder:
    """Return a decoder of JSON.

    It checks the JSON against the reader's schema, if there is one. Otherwise the annotation
    decides what fits, and if that asks for nothing, the schema that the record was written with.

    Raises:
        FormatError: The reader's schema cannot be read.
        MissingExtraError: There is no jsonschema.
    """
    check_of = _check_finder(source, checks_writers=payload_type.is_free)
    model = model_for(payload_type)
    models_by_name = named_models(payload_type)
    readers: dict[bytes, Read] = source.schemas.cache()
    read_model = model.from_json()

    def make_reader(prefix: bytes) -> Read:
        """Return the reader of the model that has the schema's title as its name."""
        schema: Schema = source.schemas.find(schema_named_by(prefix))
        title = str(_document(schema.text).get("title", ""))
        return keep_bounded(readers, prefix, models_by_name.get(title, model).from_json())

    def read(value: bytes) -> object:
        prefix = possible_prefix(value)
        check = check_of(prefix)
        data = value[len(prefix) :]
        read_json = read_model
        if models_by_name:
            read_json = readers.get(prefix) or make_reader(prefix)
        if check is _fits:
            return read_json(data)
        document = from_json(data)
        reason = check(document)
        if reason:
            which = source.file or schema_named_by(prefix)
            raise DecodeError(f"does not fit the JSON Schema, {which}: {reason}")
        if payload_type.base in (Any, object):
            return document
        return read_json(data)

    return guarded(read, payload_type, model.explain)


def json_schema_text(source: SchemaSource) -> Decoder:
    """Return a decoder that passes on the JSON of a record, if it fits the reader's schema.

    It is for readers that parse the JSON themselves.

    Raises:
        FormatError: The reader's schema cannot be read.
        MissingExtraError: There is no jsonschema.
    """
    check_of = _check_finder(source, checks_writers=False)

    def text(value: bytes | None) -> bytes | None:
        if value is None:
            return None
        prefix = possible_prefix(value)
        check = check_of(prefix)
        data = value[len(prefix) :]
        if check is _fits:
            return data
        try:
            document = from_json(data)
        except ValueError:
            # The reader of the text finds out itself that it is not JSON.
            return data
        reason = check(document)
        if reason:
            raise DecodeError(f"does not fit the JSON Schema, {source.file}: {reason}")
        return data

    return text


def _check_finder(source: SchemaSource, *, checks_writers: bool) -> Callable[[bytes], Check]:
    """Return what finds the check for a record by its prefix.

    Args:
        source: Where schemas come from.
        checks_writers: Check against the writer's schema if there is no reader's schema.

    Raises:
        FormatError: The reader's schema cannot be read.
        MissingExtraError: There is no jsonschema.
    """
    jsonschema_or_why()
    checks: dict[bytes, Check] = source.schemas.cache()
    reader = source.own(loaded)
    own = None
    if reader is not None:
        own = _check_for(reader, FormatError, str(source.file), source.schemas)

    def check_of(prefix: bytes) -> Check:
        known = checks.get(prefix)
        if known is not None:
            return known
        question = schema_named_by(prefix)
        schema: Schema = source.schemas.find(question)
        if schema.kind != "JSON":
            raise DecodeError(f"{question} is no JSON Schema, but one of {schema.kind}")
        if own is not None:
            check = own
        elif checks_writers:
            what = f"{question} of the registry"
            check = _check_for(schema, DecodeError, what, source.schemas)
        else:
            check = _fits
        return keep_bounded(checks, prefix, check)

    return check_of


def json_schema_encoder(source: SchemaSource) -> Callable[[object], bytes | None]:
    """Return an encoder that writes the id of a schema, and JSON.

    The schema is that in ``file``, or that of the value's type, or the latest of the subject.

    Raises:
        FormatError: The schema cannot be read.
        MissingExtraError: There is no jsonschema.
    """
    jsonschema_or_why()
    schemas = source.schemas
    writers: dict[type, tuple[bytes, Check]] = schemas.cache()
    own = None
    check_own: Check = _fits
    if source.file is not None:
        own = loaded(source.file)
        check_own = _check_for(own, FormatError, str(source.file), schemas)

    def make_writer(kind: type) -> tuple[bytes, Check]:
        schema = own
        if schema is None and is_model(kind):
            try:
                schema = _schema_of_type(kind)
            except FormatError as error:
                raise EncodeError(str(error)) from None
        if schema is not None:
            subject = source.subject_of(str(_document(schema.text).get("title", "")))
            id = schemas.find(IdOf(subject, schema, source.register))
            return keep_bounded(writers, kind, (prefix_of(id), check_own))
        if source.register or source.subject != "topic":
            raise no_schema_error(kind.__name__)
        latest: SchemaWithId = schemas.find(LatestOf(source.subject_of("")))
        what = f"schema {latest.id} of the registry"
        check = _check_for(latest.schema, EncodeError, what, schemas)
        return keep_bounded(writers, kind, (prefix_of(latest.id), check))

    def write(value: object) -> bytes | None:
        if value is None:
            return None
        kind = type(value)
        prefix, check = writers.get(kind) or make_writer(kind)
        data = write_json(value) or b""
        if check is not _fits:
            reason = check(from_json(data))
            if reason:
                raise EncodeError(f"{kind.__name__} does not fit the JSON Schema: {reason}")
        return prefix + data

    return write


def _fits(_: Any) -> None:
    """Return None: the check of a record that needs none."""


def _document(text: str) -> Any:
    document = json.loads(text)
    return document if isinstance(document, Mapping) else {}


def _check_for(
    schema: Schema, refused: type[Exception], what: str, schemas: ChannelSchemas
) -> Check:
    """Compile the check of a schema. The schema may refer only to schemas of the registry.

    Args:
        schema: The schema.
        refused: The class of the error to raise if it cannot be used.
        what: Names the schema, for people.
        schemas: Takes remarks about patterns that cannot be checked.
    """
    try:
        compiled = CompiledJsonSchema(schema)
    except Exception as error:
        # Jsonschema raises anything on text that is not a schema.
        raise refused(
            f"{what} is no JSON Schema that can be used: {invalid_reason(error)}"
        ) from error
    # The user's file is refused at the start. A schema of the registry is not: its data may never
    # need that reference.
    if compiled.nowhere and refused is FormatError:
        raise refused(f"{what} refers to {compiled.nowhere[0]!r}, which leads nowhere")
    for pattern, path, reason in compiled.unchecked:
        schemas.remark(f"{what}: the pattern '{pattern}' at {path} is not checked: {reason}")
    return compiled.check


def _schema_of_type(kind: Any) -> Schema:
    """Return the schema of the JSON that a model is written as."""
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
