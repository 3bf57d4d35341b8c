"""Our codecs and Confluent's on one registry in memory, without an application around them: for
matrices of cells.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from confluent_kafka.schema_registry import Schema as TheirSchema
from confluent_kafka.schema_registry import SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.json_format import ParseDict

from reactive_kafka.formats import (
    ChannelSchemas,
    SchemaMissing,
    SchemaSource,
    decoder_for,
    encoder_for,
)
from reactive_kafka.formats.registered.proto_files import class_of, compiled, messages_of
from reactive_kafka.formats.registered.schema_questions import (
    ById,
    IdOf,
    Reference,
    Schema,
    SchemaQuestion,
)

SHAPES = Path(__file__).parent / "shapes"
CONTEXT = SerializationContext("orders", MessageField.VALUE)
KINDS = {"avro": "AVRO", "json-schema": "JSON", "protobuf": "PROTOBUF"}


class World:
    """A registry of Confluent's, in memory, that both sides ask.

    Attributes:
        client: Confluent's, for serialisers.
    """

    def __init__(self) -> None:
        self.client = SchemaRegistryClient.new_client({"url": "mock://matrix"})

    def register(self, subject: str, kind: str, text: str, references: tuple[str, ...] = ()) -> int:
        """The id of a schema; references are names that are subjects."""
        named = [SchemaReference(name, name, 1) for name in references]
        return int(self.client.register_schema(subject, TheirSchema(text, kind, named)))

    def decode(
        self, annotation: Any, format: str, value: bytes | None, file: str | None = None
    ) -> Any:
        """What a handler with this annotation gets; *file* is the reader's schema."""
        source = SchemaSource(ChannelSchemas("orders"), "orders", file=file)
        decode = decoder_for(annotation, format, source)
        assert decode is not None
        return self._answering(source, decode, value)

    def encode(self, format: str, value: Any, file: str | None = None) -> bytes:
        """What is written of a value by the schema of a file; None: by that of its type."""
        source = SchemaSource(ChannelSchemas("orders"), "orders", file=file)
        found = self._answering(source, encoder_for(format, source), value)
        assert isinstance(found, bytes)
        return found

    def _answering(self, source: SchemaSource, call: Any, value: Any) -> Any:
        while True:
            try:
                return call(value)
            except SchemaMissing as missing:
                source.schemas.answered(missing.ask, self._answer(missing.ask))

    def _answer(self, ask: SchemaQuestion) -> Any:
        if isinstance(ask, IdOf):
            return self._registered(ask.subject, ask.schema)
        assert isinstance(ask, ById)
        return self._ours(self.client.get_schema(ask.id))

    def _registered(self, subject: str, schema: Schema) -> int:
        for reference in schema.references:
            self._registered(reference.subject, reference.schema)
        named = [SchemaReference(one.name, one.subject, 1) for one in schema.references]
        return int(
            self.client.register_schema(subject, TheirSchema(schema.text, schema.kind, named))
        )

    def _ours(self, schema: Any) -> Schema:
        references = []
        for one in schema.references or []:
            found = self.client.get_version(one.subject, one.version)
            references.append(
                Reference(one.name, one.subject, one.version, self._ours(found.schema))
            )
        return Schema(schema.schema_type or "AVRO", schema.schema_str, tuple(references))

    # -- Confluent's side

    def their_bytes(self, format: str, file: str, references: tuple[str, ...], value: Any) -> bytes:
        """What Confluent's serialiser makes of plain data, with the schema of a file of ours."""
        data: bytes
        if format == "protobuf":
            message = ParseDict(value, message_of(file)())
            data = ProtobufSerializer(type(message), self.client, {"use.deprecated.format": False})(
                message, CONTEXT
            )
            return data
        for name in references:
            self.register(
                name, KINDS[format], text_of(name if "." in name[-5:] else f"{name}.avsc")
            )
        named = [SchemaReference(name, name, 1) for name in references]
        schema = TheirSchema(text_of(file), KINDS[format], named)
        serialize = (
            AvroSerializer(self.client, schema)
            if format == "avro"
            else JSONSerializer(schema, self.client)
        )
        data = serialize(value, CONTEXT)
        return data

    def their_value(self, format: str, file: str, data: bytes) -> Any:
        """What Confluent's deserialiser makes of a record; a message of Protobuf stays one."""
        if format == "avro":
            return AvroDeserializer(self.client)(data, CONTEXT)
        if format == "json-schema":
            return JSONDeserializer(None, schema_registry_client=self.client)(data, CONTEXT)
        return ProtobufDeserializer(
            message_of(file), {"use.deprecated.format": False}, self.client
        )(data, CONTEXT)


def text_of(file: str) -> str:
    """The text of a shape."""
    return (SHAPES / file).read_text()


def path_of(file: str) -> str:
    """Where a shape is, as `schema.file` of a channel."""
    return str(SHAPES / file)


@cache
def message_of(file: str) -> Any:
    """The class of the first message of a `.proto` file."""
    return class_of(next(messages_of(compiled(path_of(file)))))
