"""A target for each kind of input: it draws one by chance, feeds the package with it, and judges
what comes of it.

What is allowed to be raised is named by each; all else leaves it, and is a finding. A target is
opened before its first input and closed after its last: what it keeps (a folder, a server) is made
once.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from reactive_kafka import Checkpoint, CloudEvent, TopicPartition
from reactive_kafka.broker.memory.partition_log import StoredRecord
from reactive_kafka.checkpoint.state_codec import codec_of
from reactive_kafka.checkpoint.store import Write
from reactive_kafka.checkpoint.stores.files import FileStore
from reactive_kafka.cli.offsets.export_file import read, written
from reactive_kafka.config.tables import DelayedRetrySettings
from reactive_kafka.dead_letters.letters import letter_of, own_headers, target_of
from reactive_kafka.errors import CorruptCheckpointError, DecodeError, EncodeError
from reactive_kafka.failure import DeadLetterQueue, DelayedRetry
from reactive_kafka.failure import WriteLetter as Letter
from reactive_kafka.failure.headers import LETTER_NAMES, MAX_VALUE_BYTES
from reactive_kafka.formats import (
    Decoder,
    EventDefaults,
    EventWriter,
    decoder_for,
    encoder_for,
    event_of,
    record_decoder_for,
)
from reactive_kafka.formats.cloudevents_write import Mode
from reactive_kafka.observe.safe_text import one_line
from reactive_kafka.tracking.metadata import acks
from reactive_kafka.tracking.metadata.codec import LIMIT, decode, encode, units
from reactive_kafka.tracking.plans import PlannedRange
from reactive_kafka.wire import fields_problem
from tests.failure.samples import NOW_MS, Rude, failed
from tests.formats.types import Colour, OrderData, OrderDict, OrderModel, OrderStruct
from tests.fuzz import inputs
from tests.fuzz.budget import Target
from tests.fuzz.registries import registered, registry_answers, schemas
from tests.fuzz.surfaces import command_line, configuration, http

MOMENT = datetime(2026, 11, 21, tzinfo=UTC)
ORDER = b'{"id": 1, "who": "ada", "at": "2026-11-21T12:00:00Z", "counts": {"a": 1, "b": 2}, "kind": "a"}'
TYPES = (Any, dict, OrderModel, OrderData, OrderStruct, OrderDict, dict[str, int], list[float])
PLAIN = (
    (str, "string"),
    (Colour, "string"),
    (int, "int"),
    (int, "int32"),
    (float, "float"),
    (float, "float64"),
)
EVENT = (
    b'{"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "time": "2026-11-21T12:00:00.5+01:00",'
    b' "datacontenttype": "application/json", "tenant": "a", "data": {"id": 1, "who": "ada"}, "data_base64": null}'
)
BINARY_EVENT = (
    ("ce_specversion", b"1.0"),
    ("ce_id", b"1"),
    ("ce_source", b"/s"),
    ("ce_type", b"t"),
)
ENVELOPE = (("content-type", b"application/cloudevents+json"),)
EVENT_HEADERS = (
    "content-type",
    "ce_time",
    "ce_id",
    "ce_specversion",
    "ce_tenant",
    "ce_datacontenttype",
)
RETRY = "orders_retry_10"
NAMES = (*sorted(LETTER_NAMES), "traceparent", "content-type")
ROW = (
    b'{"version": 1, "group": "g", "topic": "orders", "partition": 0, "token": 1, "position": 5, "state": "1",'
    b' "metadata": ""}'
)


def formats() -> AbstractContextManager[Target]:
    """Bytes into values: DecodeError. Values into bytes: EncodeError."""
    decoders: list[Decoder] = []
    for asked in (*((kind, "json") for kind in TYPES), *PLAIN):
        made = decoder_for(*asked)
        assert made is not None
        decoders.append(made)
    encoders = [
        encoder_for(name)
        for name in (None, "json", "string", "bytes", "int", "int32", "float", "float32")
    ]

    def check(draw: Random) -> None:
        data = inputs.binary(draw, (ORDER, b"[" * 999, b"\0\0\0\0\0\0\0\1", b'"red"'))
        for decoder in decoders:
            with suppress(DecodeError):
                decoder(data)
        value = draw.choice(
            (inputs.value(draw), inputs.number(draw), data, {1: data}, {data}, float("nan"), Rude())
        )
        for encoder in encoders:
            with suppress(EncodeError):
                assert isinstance(encoder(value), bytes | None)

    return nullcontext(check)


def events() -> AbstractContextManager[Target]:
    """Records that say that they are CloudEvents: DecodeError, for what is not. Events that are
    sent: EncodeError.
    """
    asked = [
        (kind, name)
        for kind in (Any, bytes, str, OrderModel | None)
        for name in (None, "cloudevents")
    ]
    readers = [record_decoder_for(*one, decoder_for(*one)) for one in asked]
    modes: tuple[Mode, ...] = ("binary", "structured")
    writers = [
        EventWriter("orders", EventDefaults(mode=mode), encoder_for(None), None) for mode in modes
    ]

    def check(draw: Random) -> None:
        data = inputs.binary(draw, (EVENT, b'{"data": ' + b"[" * 999))
        said = draw.choice((BINARY_EVENT, ENVELOPE, (), (*BINARY_EVENT, *ENVELOPE)))
        record = StoredRecord(0, 0, None, data, (*said, *inputs.headers(draw, EVENT_HEADERS)))
        for reader in readers:
            with suppress(DecodeError):
                reader(record)
        for is_demanded in (True, False):
            with suppress(DecodeError):
                event_of(record, None, is_demanded=is_demanded)
        anything = lambda: draw.choice((inputs.text(draw), inputs.value(draw), MOMENT, "a", data))  # noqa: E731
        extensions = {
            inputs.name(draw, ("tenant", "partitionkey")): anything()
            for _ in range(draw.randrange(3))
        }
        sent = CloudEvent(
            anything(),
            type=anything(),
            source="/s",
            id=anything(),
            time=draw.choice((None, MOMENT, anything())),
            datacontenttype=draw.choice((None, "application/json", anything())),
            extensions=extensions,
        )
        for writer in writers:
            given = inputs.headers(draw, EVENT_HEADERS)
            if fields_problem(None, None, given, None, None) is not None:
                # The channel refuses these before.
                continue
            with suppress(EncodeError):
                made = writer.write(draw.choice((sent, anything())), given, 0.0)
                assert fields_problem(made.value, made.key, tuple(made.headers), None, None) is None

    return nullcontext(check)


def headers() -> AbstractContextManager[Target]:
    """Whatever a record brings, its letter can be written, and what we say of it is short and one
    line.
    """
    letters = DeadLetterQueue("letters", retry_topics=[RETRY])
    settings = DelayedRetrySettings(topics=(RETRY,), max_retries=3, timeout_s=60.0)
    strategies = (letters, DelayedRetry(settings, letters))

    def check(draw: Random) -> None:
        reason = draw.choice((ValueError, KeyError, DecodeError))(inputs.text(draw))
        reason.__cause__ = draw.choice((None, Rude(), ValueError(inputs.text(draw))))
        record = failed(
            partition=TopicPartition(draw.choice(("orders", RETRY)), draw.randrange(9)),
            headers=tuple(
                (name.encode(errors="replace").decode(), one)
                for name, one in inputs.headers(draw, NAMES)
            ),
            key=draw.choice((None, inputs.binary(draw))),
            value=draw.choice((None, inputs.binary(draw))),
            timestamp_ms=draw.choice((None, -1, 0, NOW_MS, 2**63 - 1)),
            reason=draw.choice((reason, Rude())),
        )
        for strategy in strategies:
            written = strategy.decide(record)
            assert isinstance(written, Letter)
            assert (
                fields_problem(written.value, written.key, written.headers, written.partition, None)
                is None
            )
            ours = [
                value or b""
                for name, value in written.headers
                if name.startswith(written.kind.partition("-")[0])
            ]
            assert all(
                len(value) <= MAX_VALUE_BYTES and value.decode().isprintable() for value in ours
            )

    return nullcontext(check)


def metadata() -> AbstractContextManager[Target]:
    """Anybody who can commit may write beside a position: no error at all."""

    def check(draw: Random) -> None:
        position = draw.choice((0, 7, 2**40, 2**62))
        user, kept = (
            inputs.text(draw),
            draw.choice(("", acks.encode([position], position, position + 9, 400)[0])),
        )
        plans = (PlannedRange(position, position + 5),)
        # Only of encode, for what never fits.
        with suppress(ValueError):
            text = encode(
                position, plans, user[:40], inputs.text(draw) if draw.random() < 0.3 else kept
            )
            data = inputs.mutated(draw, text.encode("utf-8", "surrogatepass"))
            user = draw.choice((text, data.decode("utf-8", "replace")))
        found = decode(user, position)
        assert units(found.user) <= max(LIMIT, units(user))
        acks.decode(
            draw.choice(
                (user, kept, inputs.mutated(draw, kept.encode()).decode("utf-8", "replace"))
            ),
            position,
        )
        assert one_line(user).isprintable()

    return nullcontext(check)


@contextmanager
def rows() -> Iterator[Target]:
    """A row of a store, and the state in it: CorruptCheckpointError and DecodeError, which name
    it.
    """
    codecs = [codec_of(None), codec_of("tests.formats.types:OrderModel")]
    partition = TopicPartition("orders", 0)
    with TemporaryDirectory() as folder, asyncio.Runner() as runner:
        store = FileStore(Path(folder))
        runner.run(store.write("g", {partition: Write(0, Checkpoint(1, 5, "1", ""))}))
        path = store.path("g", partition)
        whole = path.read_bytes()

        def check(draw: Random) -> None:
            path.write_bytes(inputs.binary(draw, (whole, ROW)))
            try:
                row = runner.run(store.read("g", [partition])).get(partition)
            except CorruptCheckpointError as error:
                assert str(path) in str(error)
                return
            for codec in codecs if row is not None and row.state is not None else ():
                with suppress(DecodeError):
                    codec.decode(row.state or "")

        yield check


def letters() -> AbstractContextManager[Target]:
    """Letters that anybody may have written are shown on one line, and go nowhere but where they
    may.
    """

    def check(draw: Random) -> None:
        pairs = inputs.headers(draw, NAMES)
        value, key = inputs.binary(draw), draw.choice((None, inputs.binary(draw)))
        record = StoredRecord(draw.getrandbits(40), NOW_MS, key, value, pairs)
        shown = letter_of(TopicPartition("letters", 0), record, with_value=True)
        texts = [
            one
            for one in (*shown.values(), *(shown["origin"] or {}).values())
            if isinstance(one, str)
        ]
        assert all(text.isprintable() and len(text) <= 250 for text in texts)
        json.dumps(shown)
        target = target_of(
            pairs, "letters", {"orders": 2, "payments": 2}, lambda topic: topic == "orders"
        )
        assert target.isprintable() if isinstance(target, str) else target.topic == "orders"
        assert not LETTER_NAMES.intersection(name for name, _ in own_headers(pairs))

    return nullcontext(check)


def offset_files() -> AbstractContextManager[Target]:
    """The file of ``offsets import``: ValueError, and what was read is written and read again."""
    entry = {"topic": "orders", "partition": 0, "position": 5, "metadata": "", "state": "1"}
    file: Mapping[str, Any] = {
        "format": "reactive-kafka offsets",
        "version": 1,
        "positions": [entry],
    }

    def check(draw: Random) -> None:
        changed = {**entry, inputs.name(draw, tuple(entry)): inputs.value(draw, tuple(entry))}
        document = (
            {**file, "positions": [entry, changed]}
            if draw.random() < 0.5
            else {**file, "positions": [changed]}
        )
        data = json.dumps(document).encode()
        text = (data if draw.random() < 0.5 else inputs.mutated(draw, data)).decode(
            "utf-8", "replace"
        )
        try:
            saved = read(text)
        except ValueError:
            return
        assert read(written("g", MOMENT, saved)) == saved

    return nullcontext(check)


TARGETS: dict[str, Callable[[], AbstractContextManager[Target]]] = {
    "configuration": configuration,
    "http": http,
    "formats": formats,
    "events": events,
    "registered": registered,
    "schemas": schemas,
    "registry-answers": registry_answers,
    "headers": headers,
    "metadata": metadata,
    "rows": rows,
    "letters": letters,
    "offset-files": offset_files,
    "command-line": command_line,
}
