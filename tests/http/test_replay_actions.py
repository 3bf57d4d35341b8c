"""Dead letters sent back over HTTP, by the service that has written them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from reactive_kafka import App, TopicPartition
from reactive_kafka.testing import TestApp
from tests.app.helpers import until

TOKEN = "s3cret-T0ken"
BEARER = {"authorization": f"Bearer {TOKEN}"}
LETTERS = "dead-letter-topic-orders"

pytestmark = pytest.mark.virtual_time


class Shop:
    """A service whose orders fail as long as they are to, and become dead letters."""

    def __init__(self) -> None:
        self.fails = True
        self.handled: list[str] = []
        self.app = App(
            {
                "incoming": {
                    "orders": {
                        "group_id": "g",
                        "auto_offset_reset": "earliest",
                        "value_deserializer": "string",
                        "failure_strategy": "dead-letter-queue",
                    }
                },
                "http": {"token": TOKEN},
            }
        )

        @self.app.incoming("orders")
        async def handle(value: str) -> None:
            if self.fails:
                raise ValueError(value)
            self.handled.append(value)

    @asynccontextmanager
    async def with_letters(self, *values: str) -> AsyncIterator[TestApp]:
        """Run with a dead letter of each value; its handler does not fail any more."""
        transport = httpx.ASGITransport(app=self.app.asgi)
        async with (
            TestApp(self.app) as test,
            httpx.AsyncClient(
                transport=transport, base_url="http://service", headers=BEARER
            ) as self.client,
        ):
            for value in values:
                await test.send("orders", value, partition=0)
            await test.settled()
            self.fails = False
            yield test

    async def replay(self, topic: str = LETTERS, **body: Any) -> httpx.Response:
        return await self.client.post(f"/api/dlq/{topic}/replay", json=body)


async def test_letters_go_back_once() -> None:
    shop = Shop()
    async with shop.with_letters("a", "b", "c") as test:
        first = await shop.replay(limit=2)
        assert first.status_code == 200, first.text
        answer = first.json()
        assert (answer["state"], answer["replayed"]) == ("done", 2)
        assert answer["targets"] == {"orders": 2}
        assert answer["result"] == "2 of 2 records replayed"
        asked = await shop.client.get(f"/api/dlq/replays/{answer['replay']}")
        assert (asked.status_code, asked.json()) == (200, answer)
        assert (answer["replayed_before"], answer["restamped"], answer["refused"]) == (0, 0, 0)
        second = (await shop.replay()).json()
        assert (second["replayed"], second["restamped"]) == (1, 0)
        third = (await shop.replay()).json()
        assert (third["replayed"], third["records"], third["replayed_before"]) == (0, 0, 0)
        await test.settled()
        assert shop.handled == ["a", "b", "c"]


async def test_letters_that_a_replay_to_the_same_topic_by_name_has_sent_are_told_and_left_out() -> (
    None
):
    shop = Shop()
    async with shop.with_letters("a", "b") as test:
        assert (await shop.replay(to="orders")).json()["replayed"] == 2
        answer = (await shop.replay()).json()
        assert (answer["replayed"], answer["replayed_before"]) == (0, 2)
        await test.settled()
        assert sorted(shop.handled) == ["a", "b"]


async def test_one_letter_goes_back_however_often_it_is_asked_for() -> None:
    shop = Shop()
    async with shop.with_letters("a", "b") as test:
        (place,) = [
            {"partition": number, "offset": record.offset}
            for number in range(test.broker.topics()[LETTERS])
            for record in test.broker.log(TopicPartition(LETTERS, number))
            if record.value == b"b"
        ]
        for _ in range(2):
            assert (await shop.replay(**place)).json()["replayed"] == 1
        assert (await shop.replay(partition=0, offset=99)).status_code == 409
        assert (await shop.replay()).json()["replayed"] == 2, "the progress is that of all"
        await test.settled()
        assert sorted(shop.handled) == ["a", "b", "b", "b"]


async def test_what_cannot_be_replayed_is_refused() -> None:
    shop = Shop()
    async with shop.with_letters("a"):
        unknown = await shop.replay("letters-of-others")
        assert unknown.status_code == 404
        assert unknown.json()["error"] == (
            "no channel writes dead letters to 'letters-of-others'; topics of dead letters: "
            f"{LETTERS}"
        )
        assert (await shop.replay(to=LETTERS)).status_code == 400
        assert (await shop.replay(limit=0)).status_code == 400
        assert (await shop.replay(limit=1, partition=0, offset=0)).status_code == 400
        assert (await shop.replay(offset=0)).status_code == 400
        missing = await shop.client.get("/api/dlq/replays/nothing")
        assert missing.status_code == 404
        assert (await shop.client.post("/api/dlq/replays/nothing", json={})).status_code == 405
        assert shop.handled == []


async def test_a_replay_that_takes_long_is_asked_about() -> None:
    shop = Shop()
    async with shop.with_letters("a") as test:
        test.broker.answer_timeout_s = 60
        held = test.broker.hold("topic_configs")
        answer = await shop.replay()
        assert (answer.status_code, answer.json()["state"]) == (202, "counting")
        path = f"/api/dlq/replays/{answer.json()['replay']}"
        assert (await shop.client.get(path)).status_code == 202
        again = await shop.replay()
        assert again.status_code == 409
        assert "is under way" in again.json()["error"]
        held.release()
        await test.settled()
        await until(lambda: shop.handled == ["a"])
        await asyncio.sleep(1)
        asked = await shop.client.get(path)
        assert (asked.status_code, asked.json()["result"]) == (200, "1 of 1 record replayed")


async def test_a_stop_ends_a_replay_and_the_next_one_continues() -> None:
    shop = Shop()
    async with shop.with_letters("a") as test:
        test.broker.answer_timeout_s = 60
        test.broker.hold("topic_configs")
        path = f"/api/dlq/replays/{(await shop.replay()).json()['replay']}"
        await shop.app.stop()
        asked = await shop.client.get(path)
        assert asked.json()["state"] == "failed"
        assert "the application has stopped" in asked.json()["error"]
        refused = await shop.replay()
        assert refused.status_code == 503
    assert not [task for task in asyncio.all_tasks() if "replay" in task.get_name()]


async def test_a_topic_that_does_not_exist_is_named() -> None:
    shop = Shop()
    async with shop.with_letters("a"):
        answer = await shop.replay(to="no-such-topic")
        assert answer.status_code == 404
        assert "unknown topic no-such-topic" in answer.json()["error"]


async def test_the_last_twenty_replays_can_be_asked_about_and_no_earlier_ones() -> None:
    shop = Shop()
    async with shop.with_letters("a"):
        numbers = [(await shop.replay(limit=1)).json()["replay"] for _ in range(23)]
        statuses = [
            (await shop.client.get(f"/api/dlq/replays/{number}")).status_code for number in numbers
        ]
    # The replay that has begun last was not over when the earlier ones were forgotten.
    assert statuses == [404] * 2 + [200] * 21
