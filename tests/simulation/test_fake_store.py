"""What the simulation's store does to requests: each of its faults really happens."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from reactive_kafka.checkpoint.store import Checkpoint, Write
from reactive_kafka.errors import CheckpointRefusedError, StoreAwayError
from reactive_kafka.records import TopicPartition
from tests.simulation.fake_store import LATE_S, STORE_TIMEOUT_S, Database, StoreClient
from tests.simulation.loop import run_seeded

TP = TopicPartition("orders", 0)
NEW = {TP: Write(0, Checkpoint(1))}


class Stand:
    """A database, and what it needs of a run."""

    def __init__(self) -> None:
        self.kinds: list[str] = []
        self.bites: Counter[str] = Counter()
        self.tasks: set[asyncio.Task[Any]] = set()
        self.database = Database(self)  # type: ignore[arg-type]

    def client(self, who: str = "A1") -> StoreClient:
        member = SimpleNamespace(
            who=who, world=self, seam=SimpleNamespace(is_cut=False), note=self.note
        )
        return StoreClient(self.database, member)  # type: ignore[arg-type]

    def note(self, kind: str, who: str = "", **_: Any) -> None:
        self.kinds.append(kind)

    def bite(self, what: str) -> None:
        self.bites[what] += 1

    def note_plans(self, *_: Any) -> None:
        pass

    def next_request(self) -> int:
        return 1

    def called(self) -> None:
        pass

    def keep(self, task: asyncio.Task[Any]) -> None:
        self.tasks.add(task)

    def spawn(self, job: Any) -> None:
        self.keep(asyncio.create_task(job))


def on(story: Callable[[Stand], Coroutine[Any, Any, None]]) -> None:
    async def main(_: Any) -> None:
        stand = Stand()
        await story(stand)
        await asyncio.gather(*stand.tasks)

    run_seeded(main, 1)


def moved(before: int | None, position: int, token: int = 1) -> dict[TopicPartition, Write]:
    return {TP: Write(token, Checkpoint(token, position), before)}


def test_a_row_is_claimed_written_and_refused_to_whoever_was_overtaken() -> None:
    async def story(stand: Stand) -> None:
        client, other = stand.client(), stand.client("A2")
        assert await client.write("g", NEW) == frozenset()
        assert await client.write("g", moved(None, 5)) == frozenset()
        assert await other.write("g", {TP: Write(1, Checkpoint(2, 5), 5)}) == frozenset()
        assert await client.write("g", moved(5, 6)) == {TP}
        assert await client.read("g", [TP, TopicPartition("orders", 1)]) == {TP: Checkpoint(2, 5)}
        applied = [kind for kind in stand.kinds if kind in ("claim", "commit", "refused")]
        assert applied == ["claim", "commit", "claim", "refused"]

    on(story)


def test_a_store_that_is_away_takes_nothing() -> None:
    async def story(stand: Stand) -> None:
        stand.database.away = True
        for call in (stand.client().read("g", [TP]), stand.client().write("g", NEW)):
            with pytest.raises(StoreAwayError):
                await call
        assert stand.database.rows == {}

    on(story)


def test_a_lost_answer_is_of_a_write_that_was_stored() -> None:
    async def story(stand: Stand) -> None:
        stand.database.lost = 1
        with pytest.raises(StoreAwayError):
            await stand.client().write("g", NEW)
        assert stand.database.rows == {TP: Checkpoint(1)}
        assert await stand.client().write("g", moved(None, 3)) == frozenset()

    on(story)


def test_a_slow_store_answers_too_late_and_stores_all_the_same() -> None:
    async def story(stand: Stand) -> None:
        stand.database.slow_s = 1.5 * STORE_TIMEOUT_S
        with pytest.raises(StoreAwayError):
            await stand.client().write("g", NEW)
        assert stand.database.rows == {}
        await asyncio.sleep(STORE_TIMEOUT_S)
        assert stand.database.rows == {TP: Checkpoint(1)}

    on(story)


def test_what_is_held_up_lands_after_newer_writes_and_is_refused() -> None:
    async def story(stand: Stand) -> None:
        zombie, owner = stand.client(), stand.client("A2")
        await zombie.write("g", NEW)
        stand.database.hold("A1")
        with pytest.raises(StoreAwayError):
            await zombie.write("g", moved(None, 9))
        await owner.write("g", {TP: Write(1, Checkpoint(2, 4), None)})
        stand.database.release("A1")
        await asyncio.gather(*stand.tasks)
        assert stand.database.rows == {TP: Checkpoint(2, 4)}
        assert stand.kinds.count("refused") == 1

    on(story)


def test_a_request_that_the_network_repeats_lands_twice() -> None:
    async def story(stand: Stand) -> None:
        await stand.client().write("g", NEW)
        stand.database.twice = 1
        await stand.client().write("g", moved(None, 4))
        await stand.client().write("g", moved(4, 6))
        await asyncio.sleep(LATE_S + 1.0)
        assert stand.database.rows == {TP: Checkpoint(1, 6)}
        assert stand.kinds.count("refused") == 1

    on(story)


def test_a_request_whose_caller_gave_up_is_still_on_its_way() -> None:
    async def story(stand: Stand) -> None:
        stand.database.slow_s = 0.5
        call = asyncio.create_task(stand.client().write("g", NEW))
        await asyncio.sleep(0.1)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await asyncio.gather(*stand.tasks)
        assert stand.database.rows == {TP: Checkpoint(1)}

    on(story)


def test_a_transaction_writes_the_records_and_the_row_or_neither() -> None:
    async def story(stand: Stand) -> None:
        client = stand.client()
        await client.write("g", NEW)
        async with client.transaction("g", moved(None, 1)) as connection:
            connection.insert(TP, 0)
        assert stand.database.user == {(TP, 0): 1}
        with pytest.raises(ZeroDivisionError):
            async with client.transaction("g", moved(1, 2)) as connection:
                connection.insert(TP, 1)
                raise ZeroDivisionError
        with pytest.raises(CheckpointRefusedError):
            async with client.transaction("g", moved(1, 2)) as connection:
                connection.insert(TP, 1)
                await stand.client("A2").write("g", {TP: Write(1, Checkpoint(2, 1), 1)})
        assert stand.database.user == {(TP, 0): 1}
        assert stand.database.rows == {TP: Checkpoint(2, 1)}

    on(story)
