"""Dead letters read over HTTP, by the service that has written them."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from reactive_kafka import TopicPartition
from tests.app.helpers import until
from tests.http.test_replay_actions import LETTERS, Shop

pytestmark = pytest.mark.virtual_time


async def look(shop: Shop, letters: str = LETTERS, /, **query: object) -> httpx.Response:
    return await shop.client.get(
        f"/api/dlq/{letters}", params={k: str(v) for k, v in query.items()}
    )


async def test_the_newest_letters_come_first_with_their_origin_reason_and_value() -> None:
    shop = Shop()
    async with shop.with_letters("a") as test:
        shop.fails = True
        for value in ("b", "c"):
            await asyncio.sleep(1)
            await test.send("orders", value, partition=0)
            await test.settled()
        answer = await look(shop, last=2)
        assert answer.status_code == 200, answer.text
        body = answer.json()
        assert [letter["value"] for letter in body["letters"]] == ["c", "b"]
        assert body["offsets"] == 3
        assert body["result"] == "2 records of dead-letter-topic-orders, the newest first"
        newest = body["letters"][0]
        assert newest["origin"]["topic"] == "orders"
        assert newest["origin"]["offset"] == 2
        assert newest["exception"] == "builtins.ValueError"


async def test_the_letter_of_one_record_is_found() -> None:
    shop = Shop()
    async with shop.with_letters("a", "b", "c"):
        found = (await look(shop, topic="orders", partition=0, offset=1)).json()["letters"]
        assert [letter["value"] for letter in found] == ["b"]
        nothing = (await look(shop, topic="orders", partition=1, offset=1)).json()["letters"]
        assert nothing == []


async def test_a_topic_that_no_record_has_reached_is_empty() -> None:
    shop = Shop()
    async with shop.with_letters():
        answer = await look(shop)
        assert (answer.status_code, answer.json()["letters"]) == (200, [])
        assert "no record became a dead letter" in answer.json()["result"]


@pytest.mark.parametrize(
    "query",
    [
        {"last": 0},
        {"last": 1001},
        {"last": "many"},
        {"last": "9" * 5000},
        {"topic": "orders"},
        {"topic": "orders", "partition": 0},
        {"partition": 0, "offset": 1},
        {"offset": -1, "topic": "orders", "partition": 0},
        {"colour": "red"},
    ],
)
async def test_a_wrong_question_says_what_is_allowed(query: dict[str, object]) -> None:
    shop = Shop()
    async with shop.with_letters():
        answer = await look(shop, **query)
        assert answer.status_code == 400, answer.text
        assert len(answer.json()["error"]) < 400


async def test_topics_of_others_are_not_read() -> None:
    shop = Shop()
    async with shop.with_letters("a"):
        answer = await look(shop, "orders")
        assert answer.status_code == 404
        assert "no channel writes dead letters to 'orders'" in answer.json()["error"]


async def test_letters_of_strangers_are_texts_on_one_line() -> None:
    shop = Shop()
    async with shop.with_letters("a") as test:
        bytes_of_strangers = b"\xff\x00\x1b[2J\n<b>" * 100
        await test.send(
            LETTERS,
            bytes_of_strangers,
            headers=[("dead-letter-reason", "\u2028<script>".encode())],
        )
        (letter, _) = (await look(shop)).json()["letters"]
        for text in (letter["value"], letter["reason"]):
            assert not set(text) & {"\n", "\x1b", "\u2028"}
        assert len(letter["value"]) <= 200
        assert letter["origin"] is None


async def test_a_broker_that_does_not_answer_is_given_up_after_ten_seconds() -> None:
    shop = Shop()
    async with shop.with_letters("a") as test:
        test.broker.answer_timeout_s = 60
        held = test.broker.hold("topics")
        answer = await look(shop)
        assert answer.status_code == 503
        assert "within 10 s" in answer.json()["error"]
        held.release()
        await until(lambda: test.broker.log(TopicPartition(LETTERS, 0)) is not None)
        assert (await look(shop)).status_code == 200
