"""What happened to a record: what ``GET /api/record`` says of a running application."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from reactive_kafka import App, Message
from reactive_kafka.testing import TestApp
from tests.app.helpers import make_broker, running

pytestmark = pytest.mark.virtual_time


class Service:
    """A channel whose records do what their values say: ok, bad, stuck, later."""

    def __init__(self, **channel: Any) -> None:
        self.go_on = asyncio.Event()
        table = {
            "group_id": "billing",
            "auto_offset_reset": "earliest",
            "value_deserializer": "string",
            "failure_strategy": "dead-letter-queue",
            "commit_interval": "100ms",
            "ordering": "unordered",
            "concurrency": 8,
            **channel,
        }
        self.app = App({"incoming": {"orders": table}, "http": {"token": "t"}})

        @self.app.incoming("orders")
        async def handle(message: Message[str]) -> None:
            if message.payload == "stuck":
                await self.go_on.wait()
            if message.payload == "bad":
                raise ValueError("no amount")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[TestApp]:
        transport = httpx.ASGITransport(app=self.app.asgi)
        async with (
            running(self.app, broker=make_broker(partitions=2)) as test,
            httpx.AsyncClient(
                transport=transport,
                base_url="http://service",
                headers={"authorization": "Bearer t"},
            ) as self.client,
        ):
            yield test
            self.go_on.set()

    async def ask(self, offset: int, partition: int = 0, **query: Any) -> dict[str, Any]:
        query = {"topic": "orders", "partition": partition, "offset": offset, **query}
        answer = await self.client.get("/api/record", params=query)
        assert answer.status_code == 200, answer.text
        (found,) = answer.json()["channels"]
        return dict(found)


async def send(test: TestApp, *values: str) -> None:
    for value in values:
        await test.send("orders", value, partition=0)
    await asyncio.sleep(1)


async def test_a_record_is_followed_from_the_log_to_its_commit() -> None:
    service = Service(concurrency=1)
    async with service.running() as test:
        assert (await service.ask(0))["place"] in ("not-read", "not-written")
        await send(test, "stuck", "next")
        found = await service.ask(0)
        assert found["place"] == "in-flight"
        assert found["age_seconds"] == pytest.approx(1.0, abs=0.2)
        assert "handle has it, for" in found["text"][0]
        assert ", attempt 1." in found["text"][0]
        assert (await service.ask(1))["place"] == "queued"
        service.go_on.set()
        await asyncio.sleep(1)
        found = await service.ask(1)
        assert (found["place"], found["ending"]) == ("committed", None)
        assert found["text"][1] == (
            "It was acked, or skipped by a filter: this process remembers no failure of it."
        )


async def test_a_dead_letter_says_why_and_where_it_is() -> None:
    service = Service(retry={"max_attempts": 2, "backoff": "100ms"})
    async with service.running() as test:
        await send(test, "bad")
        found = await service.ask(0)
        assert (found["place"], found["ending"]) == ("committed", "dead-letter")
        assert found["dead_letter_topic"] == "dead-letter-topic-orders"
        texts = [one["text"] for one in found["past"]]
        assert texts[0].startswith("attempt 1 failed, the next one came in")
        assert texts[-1] == (
            "it was nacked, and became a dead letter in dead-letter-topic-orders: "
            "ValueError: no amount"
        )


async def test_the_attempt_of_a_record_that_is_retried_is_known() -> None:
    service = Service(retry={"max_attempts": 5, "backoff": "20s", "max_backoff": "20s"})
    async with service.running() as test:
        await send(test, "bad")
        found = await service.ask(0)
        assert found["place"] in ("in-flight", "failing")
        assert found["past"][0]["text"].startswith("attempt 1 failed")


async def test_a_skipped_record_says_so() -> None:
    service = Service()
    async with service.running() as test:
        await send(test, "stuck", "ok")
        body = {"topic": "orders", "partition": 0, "offset": 0}
        skipped = await service.client.post("/api/channels/orders/skip", json=body)
        assert skipped.status_code == 200
        await asyncio.sleep(1)
        found = await service.ask(0)
        assert (found["place"], found["ending"]) == ("committed", "skipped")
        await service.client.post("/api/channels/orders/skip", json={**body, "offset": 7})
        later = await service.ask(7)
        assert "It is skipped when it comes." in later["text"]
        assert later["can_skip"]


async def test_a_channel_that_has_failed_still_knows_its_record() -> None:
    service = Service(failure_strategy="fail", restart={"max_attempts": 0})
    async with service.running() as test:
        await send(test, "ok", "bad", "ok")
        found = await service.ask(1)
        assert found["past"][-1]["text"].startswith("the channel stopped for it")


async def test_records_that_a_failed_channel_has_not_committed_come_again_and_can_be_skipped() -> (
    None
):
    service = Service(failure_strategy="fail", ordering="partition", concurrency=1)
    async with service.running() as test:
        await send(test, "ok", "bad", "ok")
        found = [await service.ask(offset) for offset in range(3)]
        assert [one["place"] for one in found] == ["committed", "not-read", "not-read"]
        assert found[1]["text"] == [
            "It is not settled: the channel has failed, and reads orders-0 from offset 1 on after "
            "a restart."
        ]
        assert found[1]["can_skip"]
        body = {"topic": "orders", "partition": 0, "offset": 1}
        await service.client.post("/api/channels/orders/skip", json=body)
        await service.client.post("/api/channels/orders/restart", json={})
        await asyncio.sleep(2)
        found = [await service.ask(offset) for offset in range(3)]
        assert [one["place"] for one in found] == ["committed"] * 3
        assert [one["ending"] for one in found] == [None, "skipped", None]


async def test_a_skip_that_came_too_late_changes_no_ending() -> None:
    service = Service()
    async with service.running() as test:
        await send(test, "ok", "bad")
        for offset in range(2):
            body = {"topic": "orders", "partition": 0, "offset": offset}
            late = await service.client.post("/api/channels/orders/skip", json=body)
            assert late.json()["result"].endswith("was settled before: nothing has changed")
        found = [await service.ask(offset) for offset in range(2)]
        assert [one["ending"] for one in found] == [None, "dead-letter"]
        assert found[1]["dead_letter_topic"] == "dead-letter-topic-orders"


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        ({"topic": "payments", "partition": 0, "offset": 0}, 404, "reads the topic 'payments'"),
        ({"topic": "orders", "partition": 0}, 400, '"offset" is missing'),
        ({"topic": "orders", "partition": -1, "offset": 0}, 400, "\"partition\" = '-1'"),
        ({"topic": "orders", "partition": 0, "offset": "9" * 5000}, 400, '"offset"'),
        ({"topic": "orders", "partition": 0, "offset": 2**63}, 400, '"offset"'),
        ({"topic": "", "partition": 0, "offset": 1}, 400, '"topic"'),
        (
            {"topic": "orders", "partition": 0, "offset": 0, "colour": "red"},
            400,
            "unknown argument",
        ),
        ({"topic": "orders", "partition": 0, "offset": 0, "channel": "x"}, 404, "channel 'x'"),
    ],
)
async def test_a_wrong_question_says_what_is_allowed(
    query: dict[str, Any], status: int, words: str
) -> None:
    service = Service()
    async with service.running():
        answer = await service.client.get("/api/record", params=query)
        assert answer.status_code == status, answer.text
        assert words in answer.json()["error"]
        assert len(answer.text) < 600


async def test_an_application_that_does_not_run_knows_of_no_record() -> None:
    service = Service()
    async with service.running():
        await service.app.stop()
        query = {"topic": "orders", "partition": 0, "offset": 0}
        answer = await service.client.get("/api/record", params=query)
        assert answer.status_code == 503
        assert "does not run" in answer.json()["error"]


async def test_another_partition_is_elsewhere() -> None:
    service = Service()
    async with service.running():
        found = await service.ask(0, partition=9)
        assert found["place"] == "elsewhere"
        assert "another member of group billing" in found["text"][0]
