"""A span of each run of a Spark batch, with links to the contexts of its records, where these are
at hand.
"""

from __future__ import annotations

import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode

from tests.app.helpers import in_virtual_time, make_broker, running, tp, until
from tests.app.spark_stage import DEAD, bad_if, letters, spark_app
from tests.tracing.helpers import Spans, context_of, contexts, number_of, producers


@pytest.mark.parametrize(("mode", "links"), [("records", list(range(2, 130))), ("ranges", [])])
@in_virtual_time
async def test_a_run_has_links_to_its_records_as_far_as_they_go(
    mode: str, links: list[int], spans: Spans
) -> None:
    broker, seen = make_broker(), list[int]()
    app, engine = spark_app(broker, spark={"mode": mode, "batch_max_records": 200})
    engine.inside = lambda batch: seen.append(trace.get_current_span().get_span_context().span_id)
    async with running(app, broker=broker) as test:
        for number in range(1, 151):
            await test.send("orders", number, headers=[producers(number)] if number > 1 else [])
        await until(lambda: test.committed("orders").get(tp()) == 150)
    span = spans.only("process orders")
    assert (span.kind, span.parent) == (SpanKind.CONSUMER, None)
    assert [number_of(link.context) for link in span.links] == links
    assert [dict(link.attributes or {})["messaging.kafka.offset"] for link in span.links] == [
        one - 1 for one in links
    ]
    said = dict(span.attributes or {})
    assert (said["messaging.batch.message_count"], said["reactive_kafka.unlinked"]) == (
        150,
        150 - len(links),
    )
    assert said["messaging.destination.name"] == "orders"
    assert seen == [context_of(span).span_id]


@pytest.mark.parametrize("mode", ["records", "ranges"])
@in_virtual_time
async def test_each_run_has_a_span_and_letters_keep_their_contexts(mode: str, spans: Spans) -> None:
    broker = make_broker()
    app, engine = spark_app(
        broker, spark={"mode": mode}, retry={"max_attempts": 2, "backoff": "1s"}, **DEAD
    )
    engine.judge = bad_if(3)
    async with running(app, broker=broker) as test:
        await test.send("orders", 3, headers=[producers(3)])
        await until(lambda: test.committed("orders").get(tp()) == 1, 60)
        assert letters(broker) == [b"3"]
        assert contexts(test.records("dead-letter-topic-orders")[0].headers) == [producers(3)]
    found = spans.of("process orders")
    assert [dict(span.attributes or {})["reactive_kafka.attempt"] for span in found] == [1, 2]
    assert {span.status.status_code for span in found} == {StatusCode.ERROR}
    assert {dict(span.attributes or {})["error.type"] for span in found} == {
        "reactive_kafka.errors.BadDataError"
    }
