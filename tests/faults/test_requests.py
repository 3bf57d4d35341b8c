"""Requests and replies on a real Kafka, with two members that answer."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from reactive_kafka import App
from tests.faults.driver import create_topic, until

pytestmark = pytest.mark.kafka

REQUESTS = 100


def member(bootstrap: str, answered: list[int]) -> App:
    app = App(
        {
            "kafka": {"bootstrap_servers": bootstrap},
            "http": {"enabled": False},
            "incoming": {"asked": {"group_id": "answering", "auto_offset_reset": "earliest"}},
            "outgoing": {"answers": {"wait_for_write": False}},
        }
    )

    @app.incoming("asked")
    @app.outgoing("answers")
    async def double(number: int) -> int:
        answered.append(number)
        return number * 2

    return app


async def test_100_requests_at_once_get_each_its_reply_from_two_members(kafka: str) -> None:
    await create_topic(kafka, "asked", 4)
    asking = App(
        {
            "kafka": {"bootstrap_servers": kafka},
            "http": {"enabled": False},
            # Which no reader of replies takes.
            "outgoing": {"asked": {"compression": "gzip", "acks": "all"}},
        }
    )
    emitter, answered = asking.emitter("asked"), (list[int](), list[int]())
    async with AsyncExitStack() as stack:
        apps = [member(kafka, numbers) for numbers in answered]
        for app in (*apps, asking):
            await stack.enter_async_context(app)
        await until(
            lambda: [len(app.facts().channels[0].partitions) for app in apps] == [2, 2],
            60,
            "two partitions each",
        )
        sending = [
            emitter.request(n, key=str(n), timeout="60s", reply_type=int) for n in range(REQUESTS)
        ]
        assert await asyncio.gather(*sending) == [2 * number for number in range(REQUESTS)]
    left = {task.get_name() for task in asyncio.all_tasks()} - {asyncio.current_task().get_name()}
    assert not left, "every client is closed"
    assert all(answered)
    assert sorted(answered[0] + answered[1]) == list(range(REQUESTS))
