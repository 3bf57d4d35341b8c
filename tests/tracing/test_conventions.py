"""Every name in our spans and metrics is one that the conventions define, in the sense they give it.

One application does everything that makes spans and measurements. What the conventions ask of
single spans, which the generated package does not have, is the table ``ASKED``.
Source: "Semantic conventions for Kafka" and "for messaging client metrics", 1.44.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind

from reactive_kafka import App, Batch, Message, Record
from reactive_kafka.testing import FakeClock, run_in_virtual_time
from reactive_kafka.tracing.attributes import OWN, SCHEMA_URL
from tests.app.helpers import running, settle_down
from tests.tracing import conventions
from tests.tracing.helpers import Measures, Spans, measured, producers, provided, said


@dataclass(frozen=True)
class Asked:
    """What the conventions ask of the spans of one operation."""

    operation_type: str
    kind: SpanKind
    # Besides the system, the operation and its type.
    attributes: frozenset[str]


ALL = frozenset(
    {"messaging.system", "messaging.operation.name", "messaging.operation.type", "server.address"}
)
RECORD = frozenset(
    {
        "messaging.destination.name",
        "messaging.destination.partition.id",
        "messaging.kafka.offset",
    }
)
GROUP = frozenset({"messaging.consumer.group.name"})
ASKED = {
    "send": Asked("send", SpanKind.PRODUCER, RECORD | {"messaging.kafka.message.key"}),
    "receive": Asked("receive", SpanKind.CLIENT, GROUP | RECORD | {"messaging.kafka.message.key"}),
    "process": Asked(
        "process", SpanKind.CONSUMER, GROUP | RECORD | {"messaging.kafka.message.key"}
    ),
    "ack": Asked("settle", SpanKind.CLIENT, GROUP | RECORD),
    "nack": Asked("settle", SpanKind.CLIENT, GROUP | RECORD),
    "commit": Asked("settle", SpanKind.CLIENT, GROUP | {"messaging.destination.name"}),
}
METRIC_ATTRIBUTES = {
    "messaging.client.operation.duration": {
        "error.type",
        "messaging.consumer.group.name",
        "messaging.destination.name",
        "messaging.destination.partition.id",
        "messaging.operation.name",
        "messaging.operation.type",
        "messaging.system",
        "server.address",
        "server.port",
    },
    "messaging.client.sent.messages": {
        "error.type",
        "messaging.destination.name",
        "messaging.destination.partition.id",
        "messaging.operation.name",
        "messaging.system",
        "server.address",
        "server.port",
    },
}
METRIC_ATTRIBUTES["messaging.client.consumed.messages"] = {
    *METRIC_ATTRIBUTES["messaging.client.sent.messages"],
    "messaging.consumer.group.name",
}
METRIC_ATTRIBUTES["messaging.process.duration"] = METRIC_ATTRIBUTES[
    "messaging.client.consumed.messages"
]


def doing_everything() -> App:
    """An application that sends, receives, processes, acks, nacks and commits, and that fails."""
    read = {"group_id": "g", "auto_offset_reset": "earliest"}
    app = App(
        {
            "incoming": {
                "orders": {**read, "client.id": "shop-1", "failure_strategy": "ignore"},
                "taken": read,
                "batches": {**read, "batch_max_wait": "1s"},
            },
            "outgoing": {"invoices": {}},
            "memory": {"stage": {}},
        }
    )

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def bill(message: Message[int]) -> Record:
        if message.payload == 2:
            raise ValueError("bad")
        return Record(message.payload, key=message.key)

    @app.incoming("batches")
    async def all_at_once(batch: Batch[int]) -> None: ...

    @app.incoming("stage")
    async def inside(value: int) -> None: ...

    app.emitter("stage")
    return app


async def play(clock: FakeClock) -> None:
    app = doing_everything()
    async with running(app) as test:
        for value in (1, 2):
            await test.send("orders", value, key=b"ada", headers=[producers(value)])
        await test.send("batches", 1, headers=[producers(3)])
        await test.send("taken", 1, key=b"ada", headers=[producers(4)])
        await app.emitter("stage").send(1)
        async for message in app.channel("taken"):
            await message.ack()
            break
        await settle_down()
        await asyncio.sleep(20)


@pytest.fixture(scope="module")
def everything() -> Iterator[tuple[Spans, Mapping[str, object], Measures]]:
    """The spans and the metrics of the application."""
    with provided() as spans, measured() as measures:
        run_in_virtual_time(play)
        yield spans, measures.metrics(), measures


Everything = tuple[Spans, Mapping[str, object], Measures]


def kafka_spans(spans: Spans, operation: str) -> list[ReadableSpan]:
    return [
        span
        for span in spans.all()
        if said(span)["messaging.operation.name"] == operation
        and said(span)["messaging.system"] == conventions.KAFKA
    ]


def test_the_schema_is_that_of_the_package_that_is_pinned() -> None:
    assert conventions.NEWEST_SCHEMA == SCHEMA_URL


def test_each_attribute_of_a_span_is_defined_and_not_deprecated(everything: Everything) -> None:
    spans = everything[0]
    names = {name for span in spans.all() for name in said(span)}
    names |= {name for span in spans.all() for link in span.links for name in link.attributes or {}}
    ours = {name for name in names if name in OWN}
    defined = {name for name, each in conventions.ATTRIBUTES.items() if not each.is_deprecated}
    assert names - ours - defined == set()
    # The scenario is rich enough to say so.
    assert {"messaging.batch.message_count", "error.type", "messaging.client.id"} <= names


@pytest.mark.parametrize("operation", ASKED)
def test_a_span_has_the_name_the_kind_and_the_attributes_that_are_asked_for(
    operation: str, everything: Everything
) -> None:
    found = kafka_spans(everything[0], operation)
    assert found
    asked = ASKED[operation]
    assert asked.operation_type in conventions.OPERATION_TYPES
    for span in found:
        attributes = said(span)
        assert attributes["messaging.operation.type"] == asked.operation_type
        assert span.kind is asked.kind
        assert set(attributes) >= ALL
        topic = attributes.get("messaging.destination.name")
        assert span.name == (operation if topic is None else f"{operation} {topic}")
        if "error.type" in attributes:
            assert not span.status.is_ok
        assert span.instrumentation_scope is not None
        assert span.instrumentation_scope.schema_url == SCHEMA_URL
    together = {name for span in found for name in said(span)}
    assert together >= asked.attributes


def test_the_types_of_values_are_those_of_the_registry(everything: Everything) -> None:
    numbers = {"messaging.kafka.offset", "server.port", "messaging.batch.message_count"}
    flags = {"messaging.kafka.message.tombstone"}
    for span in everything[0].all():
        for name, value in said(span).items():
            if name in OWN:
                continue
            expected = int if name in numbers else bool if name in flags else str
            assert type(value) is expected, name


def test_each_metric_is_the_one_that_the_conventions_create(everything: Everything) -> None:
    ours = everything[1]
    defined = conventions.defined_metrics()
    assert set(ours) == set(defined) == set(METRIC_ATTRIBUTES)
    for name, metric in defined.items():
        assert not conventions.METRICS[name].is_deprecated
        mine = ours[name]
        assert (mine.unit, mine.description) == (metric.unit, metric.description)  # type: ignore[attr-defined]
        assert type(mine.data) is type(metric.data)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", METRIC_ATTRIBUTES)
def test_the_points_of_a_metric_have_no_attributes_but_its_own(
    name: str, everything: Everything
) -> None:
    points = everything[2].of(name)
    assert points
    for point in points:
        assert set(point.attributes) <= METRIC_ATTRIBUTES[name]
        assert {"messaging.system", "messaging.operation.name"} <= set(point.attributes)
