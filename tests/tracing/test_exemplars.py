"""The histograms of ``/metrics`` name the trace of a duration, while its span is recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import format_span_id, format_trace_id
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from reactive_kafka import App, Batch, IncomingSettings
from reactive_kafka.testing import TestApp
from reactive_kafka.tracing.attributes import LinkedRecord
from reactive_kafka.tracing.call_spans import CallSpans
from reactive_kafka.tracing.channel_watch import CallWatch
from reactive_kafka.tracing.clusters import ClusterAttributes
from reactive_kafka.tracing.tracer import Tracing
from tests.app.helpers import in_virtual_time, make_app, running, send, until
from tests.observe.samples import DurationHistogram
from tests.tracing.helpers import Spans, context_of, provided


def exemplars(test: TestApp, metric: str) -> list[Sample]:
    """The buckets of a metric that name a trace."""
    text = generate_latest(test.app.registry).decode()
    return [
        sample
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == f"reactive_kafka_{metric}_bucket" and sample.exemplar is not None
    ]


def ids(span: ReadableSpan) -> dict[str, str]:
    context = context_of(span)
    return {
        "trace_id": format_trace_id(context.trace_id),
        "span_id": format_span_id(context.span_id),
    }


@pytest.mark.parametrize("shape", ["message", "batch"])
@in_virtual_time
async def test_a_slow_call_is_found_by_its_bucket(shape: str, spans: Spans) -> None:
    app = make_app()

    async def message(value: int) -> None:
        await asyncio.sleep(value)

    async def batch(batch: Batch[int]) -> None:
        await asyncio.sleep(batch.payloads[0])

    app.incoming("orders")(message if shape == "message" else batch)
    async with running(app) as test:
        for seconds in (2, 45):
            await send(test, seconds)
            await test.settled(60)
        short, long = exemplars(test, "handler_duration_seconds")
    calls = spans.of("process orders")
    assert [(one.labels["le"], one.exemplar.value) for one in (short, long)] == [
        ("2.5", 2.0),
        ("60.0", 45.0),
    ]
    assert [one.exemplar.labels for one in (short, long)] == [ids(call) for call in calls]


@in_virtual_time
async def test_a_late_record_is_found_by_its_delay_and_its_age(spans: Spans) -> None:
    app = make_app()

    @app.incoming("orders")
    async def handler(value: int) -> None:
        await asyncio.sleep(20)

    async with running(app) as test:
        await send(test, 1, 2)
        await test.settled(60)
        *_, delay = exemplars(test, "delivery_delay_seconds")
        ages = exemplars(test, "record_age_seconds")
    calls = spans.of("process orders")
    assert (delay.labels["le"], delay.exemplar.labels) == ("30.0", ids(calls[1]))
    assert delay.exemplar.value == pytest.approx(20, abs=1)
    assert [(age.labels["le"], age.exemplar.labels) for age in ages] == [
        ("30.0", ids(calls[0])),
        ("60.0", ids(calls[1])),
    ]


@in_virtual_time
async def test_a_batch_is_found_by_the_age_of_its_first_record(spans: Spans) -> None:
    app = make_app(batch_max_wait="1s")

    @app.incoming("orders")
    async def handler(batch: Batch[int]) -> None:
        await asyncio.sleep(20)

    async with running(app) as test:
        await send(test, 1)
        await asyncio.sleep(0.5)
        await send(test, 2)
        await test.settled(60)
        (age,) = exemplars(test, "record_age_seconds")
    assert age.exemplar.labels == ids(spans.only("process orders"))
    assert age.exemplar.value == pytest.approx(21, abs=0.2)


@in_virtual_time
async def test_a_call_that_fails_is_found_too(spans: Spans) -> None:
    app = make_app(failure_strategy="ignore")

    @app.incoming("orders")
    async def handler(value: int) -> None:
        raise ValueError("bad")

    async with running(app) as test:
        await send(test, 1)
        await test.settled()
        (found,) = exemplars(test, "handler_duration_seconds")
        assert exemplars(test, "record_age_seconds") == []
    assert found.exemplar.labels == ids(spans.only("process orders"))


def test_a_spark_batch_is_found_by_how_long_it_took(spans: Spans) -> None:
    settings = IncomingSettings(name="clicks", topics=("clicks",), group_id="billing")
    watch = CallWatch(
        CallSpans(Tracing(spans.tracer), settings, ClusterAttributes("localhost:9092"))
    )
    durations = DurationHistogram()
    records: list[LinkedRecord] = []
    with watch.of_many(["clicks"], 5, records, 1, durations, lambda: 45.0):
        assert durations.exemplars == {}
    with (
        pytest.raises(ValueError, match="bad"),
        watch.of_many(["clicks"], 5, records, 1, durations, lambda: 0.7),
    ):
        raise ValueError("bad")
    kept = [durations.exemplars[bucket] for bucket in sorted(durations.exemplars)]
    calls = spans.of("process clicks")
    assert [(one.duration_s, one.span_id) for one in kept] == [
        (0.7, context_of(calls[1]).span_id),
        (45.0, context_of(calls[0]).span_id),
    ]


@in_virtual_time
async def test_sends_and_commits_have_their_traces(spans: Spans) -> None:
    app = make_app()

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(value: int) -> int:
        return value

    async with running(app) as test:
        await send(test, 1)
        await test.settled()
        await until(lambda: spans.of("commit orders"))
        (sent,) = exemplars(test, "send_duration_seconds")
        (committed,) = exemplars(test, "commit_duration_seconds")
    assert sent.exemplar.labels == ids(spans.only("send invoices"))
    assert committed.exemplar.labels == ids(spans.of("commit orders")[0])


@pytest.fixture
def unsampled() -> Iterator[Spans]:
    """A provider that samples nothing."""
    with provided(TracerProvider(ALWAYS_OFF, shutdown_on_exit=False)) as spans:
        yield spans


@in_virtual_time
async def test_a_trace_that_nobody_keeps_is_not_named(unsampled: Spans) -> None:
    await no_exemplars(make_app())


@in_virtual_time
async def test_without_spans_no_trace_is_named() -> None:
    await no_exemplars(make_app())


async def no_exemplars(app: App) -> None:
    @app.incoming("orders")
    async def handler(value: int) -> None: ...

    async with running(app) as test:
        await send(test, 1)
        await test.settled()
        assert exemplars(test, "handler_duration_seconds") == []
