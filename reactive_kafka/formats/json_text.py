"""Records of formats with schemas, and CloudEvents, as JSON that says the same: for Spark, which
makes columns of it.

Executors do that, with what the driver has sent them: they read no file, and ask no registry.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

from reactive_kafka.errors import DecodeError, text_of
from reactive_kafka.formats.cloudevents_read import Content, Parts, record_decoder
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
"""Record -> its JSON, None if it has none; raises DecodeError and SchemaMissing."""


@dataclass(frozen=True, slots=True)
class TextSource:
    """What makes JSON of a channel's records; it is complete, so that it can be sent elsewhere."""

    format: str
    finds_events: bool = True
    # Of the reader's schema; for people.
    file: str | None = None
    # What is in it.
    loaded: Any = None

    @property
    def is_binary(self) -> bool:
        """Whether bytes inside of values have no form in the format's own JSON: they become
        base64.
        """
        return self.format in ("avro", "protobuf")

    def reader(self, answers: Mapping[SchemaQuestion, Any]) -> TextReader:
        """What reads records, knowing these answers of a registry.

        MissingExtraError: a package is not installed.
        """
        schemas = ChannelSchemas("")
        for ask, answer in answers.items():
            schemas.answered(ask, answer)
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
        """Problems of the reader's schema that do not keep it from being used, as sentences.

        Raises:
            FormatError: It cannot be used.
            MissingExtraError: A package is not installed.
        """
        schemas = ChannelSchemas("")
        self._reader(schemas)
        return schemas.remarks

    def _reader(self, schemas: ChannelSchemas) -> Callable[[Content], object]:
        if self.format == EVENTS:
            return record_decoder(_passed_on, dict[str, Any] | None, EVENTS)
        decode = self._decoder(SchemaSource(schemas, "", file=self.file, loaded=self.loaded))
        return (
            record_decoder_for(Any, self.format, decode)
            if self.finds_events
            else framed_decoder(decode)
        )

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
                return json.dumps(plain, default=_plain)
            except (RecursionError, TypeError, ValueError) as error:
                raise DecodeError(f"it cannot be written as JSON: {type(error).__name__}") from None

        return text


def text_source(name: str, source: SchemaSource, finds_events: bool) -> TextSource:
    """What makes JSON of records of this format, with the reader's schema; a CloudEvent's data if
    it *finds_events*.

    Raises:
        FormatError: That schema cannot be read.
        MissingExtraError: A package is not installed.
    """
    loaded = None if source.file is None or name == EVENTS else load_file(name, source.file)
    made = TextSource(name, finds_events, source.file, loaded)
    for remark in made.remarks():
        source.schemas.remark(remark)
    return made


class JsonTexts(NamedTuple):
    """What was made of records: for each of them its JSON, what is wrong with it, the schema that
    it waits for.
    """

    texts: list[str | None]
    problems: list[str | None]
    missing: list[str | None]


def read_texts(read: TextReader, records: Iterable[tuple[bytes | None, HeaderPairs]]) -> JsonTexts:
    """Read records. A schema that is missing is named by the first record that needs it; other ones
    have ``""``.
    """
    found = JsonTexts([], [], [])
    named = set[str]()
    for value, headers in records:
        text = problem = missing = None
        try:
            text = read(Parts(value, headers))
        except SchemaMissing as error:
            name = name_of(error.ask)
            missing = "" if name in named else name
            named.add(name)
        except DecodeError as error:
            problem = text_of(error)
        found.texts.append(text)
        found.problems.append(problem)
        found.missing.append(missing)
    return found


def name_of(ask: SchemaQuestion) -> str:
    """A schema that a record names, as text."""
    return str(ask.id) if isinstance(ask, ById) else ask.guid if isinstance(ask, ByGuid) else ""


def ask_of(name: str) -> ById | ByGuid:
    """What :func:`name_of` has named."""
    return ById(int(name)) if name.isdigit() else ByGuid(name)


def _passed_on(value: bytes | None) -> bytes | None:
    return value


def _plain(value: Any) -> Any:
    """What JSON has no form for, as Spark reads it."""
    if isinstance(value, bytes | bytearray):
        return base64.standard_b64encode(value).decode()
    if isinstance(value, timedelta):
        return value.total_seconds()
    # Times; UUID, Decimal.
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
