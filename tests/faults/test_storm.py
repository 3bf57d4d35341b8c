"""Twenty members of one group come at once and go, on a real broker, while records are written."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from reactive_kafka import App, Message
from tests.faults.driver import until
from tests.faults.observer import read_commits
from tests.faults.scenario import Scenario, playing

pytestmark = [pytest.mark.kafka, pytest.mark.long_faults]

MEMBERS, PARTITIONS = 20, 40
Handled = Counter[tuple[int, int]]


@asynccontextmanager
async def member(scenario: Scenario, handled: Handled) -> AsyncIterator[App]:
    """One of them; all run in this process, which has room for twenty clients and not for twenty
    interpreters.
    """
    app = App(
        {
            "kafka": {"bootstrap_servers": scenario.bootstrap, "heartbeat_interval_ms": 500},
            "incoming": {
                "orders": {
                    "topic": scenario.topic,
                    "group_id": scenario.topic,
                    "auto_offset_reset": "earliest",
                    "value_deserializer": "bytes",
                    "commit_interval": "300ms",
                    "session_timeout_ms": 20_000,
                }
            },
            "http": {"enabled": False},
        }
    )

    @app.incoming("orders")
    async def handle(message: Message[bytes]) -> None:
        await asyncio.sleep(0.01)
        handled[message.partition, message.offset] += 1

    async with app:
        yield app


def shares(apps: list[App]) -> list[int]:
    return [len(app.channel("orders").assignment) for app in apps]


async def test_twenty_members_that_come_at_once_and_go_repeat_nothing_and_commits_go_on(
    kafka: str, tmp_path: Path
) -> None:
    """Row C2 of the faults."""
    handled: Handled = Counter()
    async with playing(kafka, tmp_path, PARTITIONS) as scenario, member(scenario, handled) as first:
        async with scenario.load.flowing(100):
            await until(lambda: shares([first]) == [PARTITIONS], 40, "the first has all")
            for _ in range(2):
                async with AsyncExitStack() as stack:
                    coming = [
                        stack.enter_async_context(member(scenario, handled))
                        for _ in range(MEMBERS - 1)
                    ]
                    apps = [first, *await asyncio.gather(*coming)]
                    await until(
                        lambda: shares(apps) == [PARTITIONS // MEMBERS] * MEMBERS,  # noqa: B023
                        90,
                        "each has its share",
                    )  # noqa: B023, RUF100
                    before = dict(scenario.observer.latest)
                    await until(
                        lambda: all(
                            scenario.observer.committed(tp) > before.get(tp, 0)  # noqa: B023
                            for tp in scenario.partitions
                        ),  # noqa: B023, RUF100
                        40,
                        "commits go on in each partition",
                    )
                await until(lambda: shares([first]) == [PARTITIONS], 60, "the first has all again")
        await until(scenario.all_is_committed, 60, "all is committed")
        sent = {(tp[1], offset) for tp, offset in scenario.load.sent}
        commits = await read_commits(kafka, scenario.topic)
    assert sent == handled.keys()
    assert set(handled.values()) == {1}, "all of them left gracefully"
    highest: Counter[int] = Counter()
    for commit in commits:
        assert commit.offset >= highest[commit.tp[1]], "a position went back"
        highest[commit.tp[1]] = commit.offset
