"""Records whose producer has a clock of its own: before all time, at its beginning, far in the
future.
"""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from reactive_kafka import App, Message, Record
from tests.app.helpers import (
    committed,
    facts,
    in_virtual_time,
    make_app,
    make_broker,
    running,
    tp,
    until,
)

NOW_MS = 1_700_000_000_000
YEAR_9999_MS = 253_402_300_799_999
ODD = (-1, 0, 1, YEAR_9999_MS, YEAR_9999_MS + 1, 2**63 - 1, NOW_MS)


@pytest.mark.parametrize("strategy", ["dead-letter-queue", "delayed-retry-topic", "ignore"])
@in_virtual_time
async def test_records_of_any_time_are_handled_fail_come_back_and_end_as_letters(
    strategy: str,
) -> None:
    """Row F14 of the faults."""
    broker, seen, times = make_broker(), list[tuple[str, Any]](), list[Any]()
    more: dict[str, Any] = (
        {"delayed_retry": {"topics": ["orders_retry_1000"]}} if "delayed" in strategy else {}
    )
    app = make_app(
        failure_strategy=strategy,
        commit_interval="100ms",
        unprocessed_record_max_age="60s",
        on_poison="warn",
        **more,
    )

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        seen.append((message.topic, message.record.timestamp))
        times.append(message.timestamp)
        raise ValueError("no")

    for timestamp in ODD:
        broker.produce("orders", b"", timestamp_ms=timestamp, partition=0)
    async with running(app, broker=broker) as test:
        await test.settled(timeout=60)
        assert [at for topic, at in seen if topic == "orders"] == list(ODD)
        assert committed(test) == len(ODD)
        assert facts(test).state == "running"
        assert times[-1] is not None
        assert facts(test).totals[tp()].poison == 0
        if "delayed" in strategy:
            await until(lambda: len(seen) == 2 * len(ODD), 60)
        if strategy != "ignore":
            await until(lambda: broker.end(tp(topic="dead-letter-topic-orders")) == len(ODD), 60)
        transport = httpx.ASGITransport(app=app.asgi)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            assert {
                (await client.get(path)).status_code
                for path in ("/", "/health", "/metrics", "/api/facts")
            } <= {
                200,
                404,
            }


async def test_a_timestamp_that_is_passed_on_stays_the_same_to_the_millisecond() -> None:
    # Divided by 1000 and multiplied again, these are a little less.
    times = [1_090_469_273_610, 2_170_288_830_128]
    app = App(
        {
            "incoming": {"orders": {"group_id": "billing", "auto_offset_reset": "earliest"}},
            "outgoing": {"invoices": {}},
            "memory": {"stage": {}},
        }
    )

    @app.incoming("orders")
    @app.outgoing("stage")
    async def orders(message: Message[bytes]) -> Record:
        return Record(b"", timestamp=message.timestamp)

    @app.incoming("stage")
    @app.outgoing("invoices")
    async def stage(message: Message[bytes]) -> Record:
        return Record(b"", timestamp=message.timestamp)

    broker = make_broker()
    for timestamp in times:
        broker.produce("orders", b"", timestamp_ms=timestamp, partition=0)
    async with running(app, broker=broker) as test:
        await test.settled()
        assert [record.timestamp for record in test.records("invoices")] == times
