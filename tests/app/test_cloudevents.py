"""CloudEvents through running applications: what handlers get, what they send, and what becomes of
invalid ones.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from cloudevents.core.bindings import kafka
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent as SdkEvent
from pydantic import BaseModel

from reactive_kafka import (
    App,
    Batch,
    CloudEvent,
    ConfigError,
    DecodeError,
    EncodeError,
    Headers,
    Message,
    Record,
)
from reactive_kafka.events import RecordDeadLettered, RecordIgnored
from reactive_kafka.testing import TestApp
from tests.app.brokers import StoredRecord
from tests.app.handlers import take_all
from tests.app.helpers import Recorder, committed, in_virtual_time, make_app, running, send, until

STRUCTURED = [("content-type", b"application/cloudevents+json; charset=UTF-8")]
MOMENT = datetime(2026, 7, 1, 12, tzinfo=UTC)
ATTRIBUTES = {"id": "1", "source": "/shop", "type": "order.placed", "tenant": "a", "time": MOMENT}
LETTERS = "dead-letter-topic-orders"


class Order(BaseModel):
    id: int


def sdk_event(number: int = 1) -> SdkEvent:
    return SdkEvent({**ATTRIBUTES, "datacontenttype": "application/json"}, {"id": number})


async def produce(test: TestApp, message: kafka.KafkaMessage, topic: str = "orders") -> None:
    """Write what the official SDK has made of an event."""
    await test.send(topic, message.value, key=message.key, headers=tuple(message.headers.items()))


def as_sdk(record: StoredRecord) -> Any:
    """What the official SDK reads in a record."""
    headers = {name: value or b"" for name, value in record.headers}
    return kafka.from_kafka(
        kafka.KafkaMessage(headers=headers, key=None, value=record.value or b""), JSONFormat()
    )


def out_app(recorder: Recorder | None = None, *, orders: Any = None, **invoices: Any) -> App:
    incoming = {
        "group_id": "billing",
        "auto_offset_reset": "earliest",
        "failure_strategy": "ignore",
        **(orders or {}),
    }
    return App(
        {"incoming": {"orders": incoming}, "outgoing": {"invoices": invoices}}, observer=recorder
    )


# -- in


@pytest.mark.parametrize("ordering", ["partition", "key", "unordered"])
@pytest.mark.parametrize("write", [kafka.to_binary, kafka.to_structured])
def test_a_handler_gets_the_data_and_the_attributes_of_an_event(write: Any, ordering: str) -> None:
    @in_virtual_time
    async def play() -> None:
        app = make_app(ordering=ordering)
        seen: list[Message[Order]] = []

        @app.incoming("orders")
        async def handler(message: Message[Order]) -> None:
            seen.append(message)

        async with running(app) as test:
            await produce(test, write(sdk_event(), JSONFormat()))
            await test.send("orders", {"id": 2}, headers=[("trace", b"7")])
            await test.send("orders", {"id": 3})
            await test.settled()
            one, *others = sorted(seen, key=lambda message: message.payload.id)
            event = one.cloud_event
            assert event is not None
            assert event is one.cloud_event, "read once"
            assert (event.data, event.id, event.source, event.type) == (
                Order(id=1),
                "1",
                "/shop",
                "order.placed",
            )
            assert (event.datacontenttype, event.extensions) == (
                "application/json",
                {"tenant": "a"},
            )
            assert event.time == MOMENT
            assert [(other.payload.id, other.cloud_event) for other in others] == [
                (2, None),
                (3, None),
            ]

    play()


@in_virtual_time
async def test_a_handler_of_the_payload_a_batch_and_an_iteration_get_the_data() -> None:
    app = App(
        {
            "kafka": {"group_id": "billing", "auto_offset_reset": "earliest"},
            "incoming": {
                name: {"topic": "orders", "group_id": name}
                for name in ("payloads", "batches", "iterated")
            },
        }
    )
    payloads: list[Any] = []
    batches: list[Any] = []

    @app.incoming("payloads")
    async def handler(order: Order) -> None:
        payloads.append(order)

    @app.incoming("batches")
    async def batch_handler(batch: Batch[Order]) -> None:
        batches.extend(
            (message.payload, message.cloud_event and message.cloud_event.type) for message in batch
        )

    async with running(app) as test:
        for number, write in enumerate((kafka.to_binary, kafka.to_structured), 1):
            await produce(test, write(sdk_event(number), JSONFormat()))
        iterated = []
        async for message in app.channel("iterated"):
            event = message.cloud_event
            iterated.append((message.payload, event and event.type))
            message.ack()
            if len(iterated) == 2:
                break
        await until(lambda: len(payloads) == len(batches) == 2)
    assert payloads == [Order(id=1), Order(id=2)]
    assert batches == [(Order(id=1), "order.placed"), (Order(id=2), "order.placed")]
    assert iterated == [({"id": 1}, "order.placed"), ({"id": 2}, "order.placed")]


@in_virtual_time
async def test_a_batch_of_bytes_has_the_data_of_events_among_what_is_none() -> None:
    app = App(
        {
            "kafka": {"group_id": "billing", "auto_offset_reset": "earliest"},
            "incoming": {
                name: {"topic": "orders", "group_id": name} for name in ("payloads", "batches")
            },
        }
    )
    payloads, batched = list[bytes](), list[bytes]()

    @app.incoming("payloads")
    async def handler(payload: bytes) -> None:
        payloads.append(payload)

    @app.incoming("batches")
    async def batch_handler(batch: Batch[bytes]) -> None:
        batched.extend(batch.payloads)

    async with running(app) as test:
        await test.send("orders", b"plain", partition=0)
        message = kafka.to_structured(sdk_event(), JSONFormat())
        await test.send(
            "orders", message.value, headers=tuple(message.headers.items()), partition=0
        )
        await until(lambda: len(payloads) == len(batched) == 2)
    assert batched == payloads == [b"plain", b'{"id": 1}']


@in_virtual_time
async def test_without_detection_a_record_is_its_bytes() -> None:
    app = make_app(cloud_events=False)
    seen: list[Any] = []

    @app.incoming("orders")
    async def handler(message: Message[dict[str, Any]]) -> None:
        seen.append((message.payload, message.cloud_event))

    async with running(app) as test:
        await produce(test, kafka.to_structured(sdk_event(), JSONFormat()))
        await test.send("orders", {"id": 2}, headers=[("ce_specversion", b"0.3")])
        await test.settled()
    assert [payload.get("data") for payload, _ in seen] == [{"id": 1}, None]
    assert [event for _, event in seen] == [None, None]


@in_virtual_time
async def test_tombstones_keep_what_is_in_their_headers() -> None:
    app = make_app()
    seen: list[Any] = []

    @app.incoming("orders")
    async def handler(message: Message[Order | None]) -> None:
        seen.append((message.payload, message.cloud_event and message.cloud_event.type))

    async with running(app) as test:
        message = kafka.to_binary(sdk_event(), JSONFormat())
        await test.send("orders", None, headers=tuple(message.headers.items()))
        await test.send("orders", None, headers=STRUCTURED)
        await test.settled()
    assert seen == [(None, "order.placed"), (None, None)]


INVALID: list[tuple[bytes, Any, str]] = [
    (
        b'{"specversion": "1.0", "type": "t", "source": "/s", "data": {"id": 1}}',
        STRUCTURED,
        "it has no id",
    ),
    (b"[1]", STRUCTURED, "its envelope is not a JSON object"),
    (b'{"id": 1}', [("ce_specversion", b"0.3"), ("ce_id", b"1")], "its specversion is not 1.0"),
    (
        b'{"specversion": "1.0", "id": "1", "type": "t", "source": "/s", "price": 42.42, "data": {"id": 1}}',
        STRUCTURED,
        "its price is a number with a fraction or an exponent: a string, a boolean or an integer of 32 bits is allowed",
    ),
    (
        b'{"id": 1}',
        [("ce_specversion", b"1.0"), ("ce_id", b"1"), ("ce_type", b"t"), ("ce_source", b"my shop")],
        "its source is not a URI reference (RFC 3986)",
    ),
]


@in_virtual_time
async def test_an_invalid_event_becomes_a_dead_letter_with_its_bytes_and_headers() -> None:
    recorder = Recorder()
    app = make_app(recorder, failure_strategy="dead-letter-queue")

    @app.incoming("orders")
    async def handler(order: Order) -> None:
        raise AssertionError("no handler gets it")

    async with running(app) as test:
        for value, headers, _ in INVALID:
            await test.send("orders", value, headers=headers)
        await test.settled()
        assert committed(test) == len(INVALID)
        letters = test.records(LETTERS)
    for letter, (value, headers, said) in zip(letters, INVALID, strict=True):
        assert letter.value == value
        assert set(headers) <= set(letter.headers)
        assert (
            Headers(letter.headers).get("dead-letter-reason")
            == f"not a valid CloudEvent: {said}".encode()
        )
    assert all(isinstance(one.error, DecodeError) for one in recorder.of(RecordDeadLettered))


@in_virtual_time
async def test_a_dead_letter_of_an_event_is_the_whole_event() -> None:
    app = make_app(failure_strategy="dead-letter-queue")

    @app.incoming("orders")
    async def handler(order: Order) -> None:
        raise ValueError("no")

    async with running(app) as test:
        messages = [
            write(sdk_event(), JSONFormat()) for write in (kafka.to_binary, kafka.to_structured)
        ]
        for message in messages:
            await produce(test, message)
        await test.settled()
        for letter, message in zip(test.records(LETTERS), messages, strict=True):
            assert letter.value == message.value
            assert set(message.headers.items()) <= set(letter.headers)


@in_virtual_time
async def test_an_event_is_one_again_when_it_is_retried_later() -> None:
    app = make_app(
        failure_strategy="delayed-retry-topic", delayed_retry={"topics": ["orders_retry_1000"]}
    )
    seen: list[Any] = []

    @app.incoming("orders")
    async def handler(message: Message[Order]) -> None:
        seen.append(
            (message.topic, message.payload, message.cloud_event and message.cloud_event.id)
        )
        if message.topic == "orders":
            raise ValueError("not now")

    async with running(app) as test:
        for write in (kafka.to_binary, kafka.to_structured):
            await produce(test, write(sdk_event(), JSONFormat()))
        await until(lambda: len(seen) == 4, 60)
    assert seen[2:] == [("orders_retry_1000", Order(id=1), "1")] * 2


@in_virtual_time
async def test_a_channel_of_events_takes_nothing_else() -> None:
    recorder = Recorder()
    app = make_app(recorder, value_deserializer="cloudevents", failure_strategy="ignore")
    seen: list[Any] = []

    @app.incoming("orders")
    async def handler(message: Message[Any]) -> None:
        assert message.cloud_event is not None
        seen.append((message.payload, message.cloud_event.type))

    async with running(app) as test:
        await test.send("orders", b'{"id": 1}')
        await test.send(
            "orders", b"text", headers=[("content-type", b"text/plain"), ("trace", b"7")]
        )
        message = kafka.to_structured(sdk_event(), JSONFormat())
        # From a writer that says it in no header.
        await test.send("orders", message.value)
        await produce(test, message)
        await test.send("orders", CloudEvent("text", type="note", source="/s"))
        await test.send(
            "orders", CloudEvent(b"\xff", type="raw", source="/s", datacontenttype="image/png")
        )
        await test.settled()
    assert len(recorder.of(RecordIgnored)) == 2
    assert seen == [({"id": 1}, "order.placed")] * 2 + [("text", "note"), (b"\xff", "raw")]


@pytest.mark.parametrize(
    ("channel", "said"),
    [
        ({"value_deserializer": "cloudevents", "cloud_events": False}, "means CloudEvents only"),
        ({"key_deserializer": "cloudevents"}, "key_deserializer = 'cloudevents': expected one of"),
        (
            {"cloud_events": {"type": "t"}},
            "cloud_events.type = 't': expected true or false, not a table",
        ),
    ],
)
def test_what_an_incoming_channel_does_not_take(channel: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        make_app(**channel).settings  # noqa: B018


# -- out


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("source", "my shop", "is not a URI reference"),
        ("data_schema", "<a>", "is not a URI reference"),
        ("data-content-type", "json", "is not a media type"),
    ],
)
async def test_a_table_with_what_no_event_may_have_is_refused_at_the_start(
    key: str, value: str, said: str
) -> None:
    app = out_app(cloud_events={"type": "t", "source": "/s", key: value})
    name = key.replace("-", "_")
    with pytest.raises(
        ConfigError, match=rf"\[outgoing.invoices.cloud_events\] {name} = '{value}': it {said}"
    ):
        async with running(app):
            raise AssertionError("it must not start")


@pytest.mark.parametrize("mode", ["binary", "structured"])
def test_every_value_becomes_an_event_that_the_official_sdk_reads(mode: str) -> None:
    @in_virtual_time
    async def play() -> None:
        app = out_app(
            cloud_events={"mode": mode, "type": "invoice", "source": "/billing", "subject": "s"}
        )

        @app.incoming("orders")
        @app.outgoing("invoices")
        async def handler(order: Order) -> Any:
            return {"order": order.id}

        async with running(app) as test:
            await send(test, {"id": 1}, {"id": 2})
            await test.settled()
            events = [as_sdk(record) for record in test.records("invoices")]
        assert [event.get_data() for event in events] == [{"order": 1}, {"order": 2}]
        assert {
            (event.get_type(), event.get_source(), event.get_subject()) for event in events
        } == {("invoice", "/billing", "s")}
        assert len({event.get_id() for event in events}) == 2
        assert {event.get_datacontenttype() for event in events} == {"application/json"}

    play()


@in_virtual_time
async def test_by_default_only_values_that_are_events_become_events() -> None:
    app = out_app()
    values = [
        b"bytes",
        {"id": 1},
        sdk_event(),
        CloudEvent({"id": 3}, type="t", source="/s", extensions={"partitionkey": "k"}),
        Record(CloudEvent({"id": 4}, type="t", source="/s"), key=b"own", headers=[("trace", b"7")]),
        [sdk_event(5), Record(b"six")],
    ]

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(number: int) -> Any:
        return values[number]

    async with running(app) as test:
        await send(test, *range(len(values)))
        await test.settled()
        plain, mapping, third, fourth, fifth, sixth, last = test.records("invoices")
    assert [(one.value, tuple(one.headers)) for one in (plain, mapping, last)] == [
        (b"bytes", ()),
        (b'{"id":1}', ()),
        (b"six", ()),
    ]
    assert [as_sdk(one).get_data()["id"] for one in (third, fourth, fifth, sixth)] == [1, 3, 4, 5]
    assert as_sdk(third).get_extension("tenant") == "a"
    assert (fourth.key, fifth.key) == (b"k", b"own")
    assert ("trace", b"7") in fifth.headers


@in_virtual_time
async def test_nothing_of_an_incoming_event_is_passed_on_unasked() -> None:
    app = out_app(cloud_events={"type": "invoice", "source": "/billing"})

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(message: Message[Any]) -> Any:
        assert message.cloud_event is not None
        if message.payload == {"id": 1}:
            return {}
        return replace(message.cloud_event, id="", type="seen")

    async with running(app) as test:
        for number in (1, 2):
            await produce(test, kafka.to_binary(sdk_event(number), JSONFormat()))
        await test.settled()
        fresh, passed_on = map(as_sdk, test.records("invoices"))
    assert (fresh.get_source(), fresh.get_extension("tenant")) == ("/billing", None)
    assert (passed_on.get_source(), passed_on.get_type(), passed_on.get_extension("tenant")) == (
        "/shop",
        "seen",
        "a",
    )
    assert "1" not in (fresh.get_id(), passed_on.get_id())
    assert passed_on.get_data() == {"id": 2}


@pytest.mark.parametrize("waits", [True, False])
def test_an_event_without_type_or_source_is_a_nack_that_says_so(waits: bool) -> None:
    @in_virtual_time
    async def play() -> None:
        recorder = Recorder()
        app = out_app(recorder, cloud_events={"source": "/billing"}, wait_for_write=waits)

        @app.incoming("orders")
        @app.outgoing("invoices")
        async def handler(order: Order) -> Any:
            return {"order": order.id}

        async with running(app) as test:
            await send(test, {"id": 1})
            await test.settled()
            (ignored,) = recorder.of(RecordIgnored)
            assert (
                "it has no type: give it one, or set type in [outgoing.invoices.cloud_events]"
                in ignored.reason
            )
            assert test.records("invoices") == []

    play()


@in_virtual_time
async def test_emitters_send_events_too() -> None:
    app = out_app(cloud_events={"mode": "structured", "type": "t", "source": "/s"})
    emitter = app.emitter("invoices")
    take_all(app)

    async with running(app) as test:
        await emitter.send({"id": 1})
        for number in (2, 3):
            await emitter.send_nowait({"id": number}, key=b"k")
        await emitter.send_nowait(b"\xff")
        await emitter.send(sdk_event(5))
        with pytest.raises(EncodeError, match="its time has no time zone"):
            emitter.send_nowait(CloudEvent(1, time=datetime(2026, 1, 1)))
        events = [as_sdk(record) for record in test.records("invoices")]
    assert [event.get_data() for event in events] == [
        {"id": 1},
        {"id": 2},
        {"id": 3},
        b"\xff",
        {"id": 5},
    ]
    assert [event.get_type() for event in events] == ["t", "t", "t", "t", "order.placed"]


@in_virtual_time
async def test_an_emitters_quick_way_knows_events_from_values() -> None:
    app = out_app()
    emitter = app.emitter("invoices")
    take_all(app)

    async with running(app) as test:
        for value in (
            {"id": 1},
            sdk_event(2),
            b"3",
            Record(b"4"),
            CloudEvent({"id": 5}, type="t", source="/s"),
        ):
            await emitter.send_nowait(value)
        written = test.records("invoices")
    assert [json.loads(record.value or b"") for record in written] == [
        {"id": 1},
        {"id": 2},
        3,
        4,
        {"id": 5},
    ]
    assert [bool(record.headers) for record in written] == [False, True, False, False, True]


@in_virtual_time
async def test_a_tombstone_in_structured_mode_has_no_envelope() -> None:
    app = out_app(cloud_events={"mode": "structured", "type": "t", "source": "/s"})

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(number: int) -> Any:
        return Record(None, key="k")

    async with running(app) as test:
        await send(test, 1)
        await test.settled()
        (tombstone,) = test.records("invoices")
    assert (tombstone.key, tombstone.value, tuple(tombstone.headers)) == (b"k", None, ())


@in_virtual_time
async def test_a_channel_may_write_no_events_at_all() -> None:
    recorder = Recorder()
    app = out_app(recorder, cloud_events=False)

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(number: int) -> Any:
        return sdk_event()

    async with running(app) as test:
        await send(test, 1)
        await test.settled()
    (ignored,) = recorder.of(RecordIgnored)
    assert (
        "writes no CloudEvents (cloud_events = false), and this is a CloudEvent" in ignored.reason
    )


@in_virtual_time
async def test_events_inside_of_a_value_are_no_value() -> None:
    recorder = Recorder()
    app = out_app(recorder)

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(number: int) -> Any:
        return {"event": CloudEvent(1)} if number else [CloudEvent(1), 2]

    async with running(app) as test:
        await send(test, 0, 1)
        await test.settled()
    mixed, inside = (ignored.reason for ignored in recorder.of(RecordIgnored))
    assert "a list of CloudEvents has other values, too" in mixed
    assert "a CloudEvent is inside of a value of type dict" in inside


@in_virtual_time
async def test_a_nack_cannot_replace_a_record_by_an_event() -> None:
    app = make_app(failure_strategy="dead-letter-queue")
    seen: list[str] = []

    @app.incoming("orders", ack="manual")
    async def handler(message: Message[int]) -> None:
        with pytest.raises(EncodeError) as raised:
            message.nack(ValueError("no"), record=Record(CloudEvent(1)))
        seen.append(str(raised.value))
        message.ack()

    async with running(app) as test:
        await send(test, 1)
        await test.settled()
    assert (
        "its value is a CloudEvent: give it the event's data, and headers for its attributes"
        in seen[0]
    )


@in_virtual_time
async def test_requests_and_replies_may_be_events() -> None:
    answers = {"cloud_events": {"mode": "structured", "type": "answer", "source": "/s"}}
    app = App(
        {
            "incoming": {
                "asked": {"topic": "requests", "group_id": "g", "auto_offset_reset": "earliest"}
            },
            "outgoing": {
                "requests": {"cloud_events": {"type": "question", "source": "/s"}},
                "answers": answers,
            },
        }
    )
    emitter = app.emitter("requests")

    @app.incoming("asked")
    @app.outgoing("answers")
    async def double(message: Message[int]) -> int:
        assert message.cloud_event is not None
        assert message.cloud_event.type == "question"
        return message.payload * 2

    async with running(app):
        assert await emitter.request(4, reply_type=int) == 8


@in_virtual_time
async def test_a_memory_channel_hands_events_on_as_objects() -> None:
    app = App({"memory": {"events": {}}})
    emitter = app.emitter("events")
    seen: list[Any] = []

    @app.incoming("events")
    async def handler(message: Message[CloudEvent]) -> None:
        seen.append((message.payload, message.cloud_event))

    async with running(app):
        event = CloudEvent({"id": 1}, type="t", source="/s")
        await emitter.send(event)
    assert seen == [(event, None)]


@in_virtual_time
async def test_events_are_part_of_transactions() -> None:
    app = out_app(
        orders={"auto_offset_reset": "earliest"},
        transactional_id="billing",
        cloud_events={
            "type": "invoice",
            "source": "/billing",
        },
    )

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(number: int) -> Any:
        return {"id": number}

    async with running(app) as test:
        await send(test, 1)
        await test.settled()
        (record,) = test.records("invoices")
    assert as_sdk(record).get_type() == "invoice"
