"""Rewrites records of formats with schemas, and CloudEvents, as JSON of the same meaning.

Spark makes columns of that JSON. Its executors run this with what the driver has sent them: they
read no file, and ask no registry.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

from reactive_kafka.errors import DecodeError, text_of
from reactive_kafka.formats.cloudevents_read import Content, ValueAndHeaders, record_decoder
from reactive_kafka.formats.decoders import framed_decoder, record_decoder_for
from reactive_kafka.formats.format_names import EVENTS
from reactive_kafka.formats.guarded_decoder import Decoder
from reactive_kafka.formats.payload_type import payload_type_of
from reactive_kafka.formats.registered.channel_schemas import (
    ChannelSchemas,
    SchemaMissing,
    SchemaSource,
)
from reactive_kafka.formats.registered.codecs import load_file, registered_decoder
from reactive_kafka.formats.registered.schema_questions import ByGuid, ById, SchemaQuestion
from reactive_kafka.records import HeaderPairs

TextReader = Callable[[Content], str | None]
"""Record -> its JSON, None if it has none. It raises DecodeError and SchemaMissing."""


@dataclass(frozen=True, slots=True)
class TextSource:
    """All that is needed to rewrite a channel's records as JSON. It can be pickled.

    Attributes:
        format: The format of the records.
        finds_events: Return the data of CloudEvents.
        file: Path of the reader's schema, for people.
        loaded: The content of that file.
    """

    format: str
    finds_events: bool = True
    file: str | None = None
    loaded: Any = None

    @property
    def is_binary(self) -> bool:
        """Whether bytes in values become base64, because the format itself is not JSON."""
        return self.format in ("avro", "protobuf")

    def reader(self, answers: Mapping[SchemaQuestion, Any]) -> TextReader:
        """Return what reads records.

        Args:
            answers: The answers of a registry that are known.

        Raises:
            MissingExtraError: A package is not installed.
        """
        schemas = ChannelSchemas("")
        for question, answer in answers.items():
            schemas.answered(question, answer)
        read = self._reader(schemas)

        def text(record: Content) -> str | None:
            found: Any = read(record)
            if not isinstance(found, bytes):
                return found  # type: ignore[no-any-return]
            try:
                return found.decode("utf-8")
            except UnicodeDecodeError as error:
                raise DecodeError(f"not valid JSON: {error.reason} at byte {error.start}") from None

        return text

    def remarks(self) -> list[str]:
        """Return problems of the reader's schema with which it can still be used, as sentences.

        Raises:
            FormatError: It cannot be used.
            MissingExtraError: A package is not installed.
        """
        schemas = ChannelSchemas("")
        self._reader(schemas)
        return schemas.remarks

    def _reader(self, schemas: ChannelSchemas) -> Callable[[Content], object]:
        if self.format == EVENTS:
            return record_decoder(_unchanged, dict[str, Any] | None, EVENTS)
        decode = self._decoder(SchemaSource(schemas, "", file=self.file, loaded=self.loaded))
        if self.finds_events:
            return record_decoder_for(Any, self.format, decode)
        return framed_decoder(decode)

    def _decoder(self, source: SchemaSource) -> Decoder:
        if self.format == "json-schema":
            from reactive_kafka.formats.registered.json_schema import json_schema_text

            return json_schema_text(source)
        decode = registered_decoder(self.format, payload_type_of(Any), source)

        def text(value: bytes | None) -> str | None:
            if value is None:
                return None
            plain = decode(value)
            try:
                return json.dumps(plain, default=_as_json)
            except (RecursionError, TypeError, ValueError) as error:
                raise DecodeError(f"it cannot be written as JSON: {type(error).__name__}") from None

        return text


def text_source(name: str, source: SchemaSource, finds_events: bool) -> TextSource:
    """Return what rewrites records of a format as JSON, with the reader's schema in it.

    Args:
        name: The format.
        source: Where its schemas come from.
        finds_events: Return the data of CloudEvents.

    Raises:
        FormatError: The reader's schema cannot be read.
        MissingExtraError: A package is not installed.
    """
    loaded = None
    if source.file is not None and name != EVENTS:
        loaded = load_file(name, source.file)
    made = TextSource(name, finds_events, source.file, loaded)
    for remark in made.remarks():
        source.schemas.remark(remark)
    return made


class JsonTexts(NamedTuple):
    """The results of several records, one item for each in every list.

    Attributes:
        texts: The JSON.
        problems: Why the record cannot be read.
        missing: The name of the schema that the record waits for.
    """

    texts: list[str | None]
    problems: list[str | None]
    missing: list[str | None]


def read_texts(read: TextReader, records: Iterable[tuple[bytes | None, HeaderPairs]]) -> JsonTexts:
    """Read records.

    The first record that needs a missing schema names it. Later ones have ``""`` in its place.
    """
    results = JsonTexts([], [], [])
    named = set[str]()
    for value, headers in records:
        text = None
        problem = None
        missing = None
        try:
            text = read(ValueAndHeaders(value, headers))
        except SchemaMissing as error:
            name = schema_name(error.ask)
            missing = "" if name in named else name
            named.add(name)
        except DecodeError as error:
            problem = text_of(error)
        results.texts.append(text)
        results.problems.append(problem)
        results.missing.append(missing)
    return results


def schema_name(question: SchemaQuestion) -> str:
    """Return the id or GUID of a schema that a record names, as text."""
    if isinstance(question, ById):
        return str(question.id)
    if isinstance(question, ByGuid):
        return question.guid
    return ""


def question_of(name: str) -> ById | ByGuid:
    """Return the question for the schema that :func:`schema_name` has named."""
    return ById(int(name)) if name.isdigit() else ByGuid(name)


def _unchanged(value: bytes | None) -> bytes | None:
    return value


def _as_json(value: Any) -> Any:
    """Return what JSON cannot hold in the form that Spark reads."""
    if isinstance(value, bytes | bytearray):
        return base64.standard_b64encode(value).decode()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if hasattr(value, "isoformat"):
        return value.isoformat()
    # UUID and Decimal.
    return str(value)
