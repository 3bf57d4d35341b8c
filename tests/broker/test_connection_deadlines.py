"""A consumer closes a connection whose node does not answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from reactive_kafka.broker.aiokafka import connection_deadlines
from reactive_kafka.broker.aiokafka.connection_deadlines import ConnectionDeadlines
from reactive_kafka.broker.aiokafka.connections.broker_connection import ClosedBecause
from reactive_kafka.broker.wire.definitions import FETCH
from tests.broker.consumer.fetching.test_idle_fetch import fetch_again_and_again, says
from tests.broker.test_broker_connection import PATIENCE_S, Node, frame

VERSION = 4


async def test_a_fetch_that_was_sent_again_is_watched_after_its_caller_has_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_deadlines, "SLOW_S", 0.1)
    deadlines = ConnectionDeadlines(
        request_timeout_s=PATIENCE_S,
        session_s=0.3,
        rebalance_s=PATIENCE_S,
        fetch_wait_s=0.0,
        follows_leaders=False,
    )
    nothing = says(VERSION, {}, {})
    is_sent_again = asyncio.Event()

    def answer(number: int) -> bytes | None:
        # 1 asks for the versions, 2 is the fetch, 3 is the same fetch with its watch.
        if number <= 3:
            return frame(number, nothing)
        is_sent_again.set()
        return None

    async with Node(answer) as node:
        node.connection._versions = {FETCH.key: (0, VERSION)}
        fetch = fetch_again_and_again(0)
        await node.connection.send(fetch)
        # It is needed for fetches of moved partitions only.
        client: Any = None
        caller = asyncio.ensure_future(deadlines.send(client, node.connection, fetch))
        async with asyncio.timeout(PATIENCE_S):
            await is_sent_again.wait()
            caller.cancel()
            await node.connection.wait_closed()
        assert node.closed == [ClosedBecause.TIMED_OUT]
