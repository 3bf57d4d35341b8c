"""``limit``: how many handlers of several channels run at once, in turns, and what does not wait
for them.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import pytest

from reactive_kafka import App, Batch, ConfigError, Message, TopicPartition
from reactive_kafka.events import RecordPoisoned
from reactive_kafka.testing import TestApp
from tests.app.helpers import Recorder, facts, in_virtual_time, make_broker, now, running, until

CHANNELS = ("upload", "recalc", "reports")


def limited_app(
    slots: int = 2, recorder: Recorder | None = None, **channel: Any
) -> tuple[App, Running]:
    """Three channels with the limit database, and what their handlers do."""
    app = App(
        {
            "limits": {"database": {"concurrency": slots}},
            "incoming": {
                name: {
                    "group_id": name,
                    "auto_offset_reset": "earliest",
                    "concurrency": 10,
                    "ordering": "unordered",
                    "limit": "database",
                    **channel,
                }
                for name in CHANNELS
            },
        },
        observer=recorder,
    )
    return app, Running()


class Running:
    """Which handlers run, and which have run."""

    def __init__(self) -> None:
        self.now: Counter[str] = Counter()
        self.most = 0
        self.began: list[str] = []

    async def call(self, name: str, lasts_s: float = 1.0) -> None:
        self.now[name] += 1
        self.most = max(self.most, self.now.total())
        self.began.append(name)
        try:
            await asyncio.sleep(lasts_s)
        finally:
            self.now[name] -= 1


def handle_all(app: App, calls: Running, lasts_s: float = 1.0) -> None:
    """Give each channel a handler that takes *lasts_s*."""
    for name in CHANNELS:

        def add(name: str = name) -> None:
            @app.incoming(name)
            async def handler(message: Message[bytes]) -> None:
                await calls.call(name, lasts_s)

        add()


async def send_all(test: TestApp, count: int, *names: str, partitions: int = 1) -> None:
    for number in range(count):
        for name in names or CHANNELS:
            await test.send(name, b"", partition=number % partitions)


@pytest.mark.parametrize("ordering", ["partition", "key", "unordered"])
@pytest.mark.parametrize("slots", [1, 2, 7, 100])
@in_virtual_time
async def test_no_more_handlers_run_than_the_limit_has_and_all_records_come(
    slots: int, ordering: str
) -> None:
    app, calls = limited_app(slots, ordering=ordering)
    handle_all(app, calls, lasts_s=0.1)
    async with running(app, partitions=4) as test:
        await send_all(test, 40, partitions=4)
        await test.settled(timeout=100)
        assert facts(test, "upload").limited_by is None
    assert Counter(calls.began) == dict.fromkeys(CHANNELS, 40)
    assert calls.most == min(slots, 12 if ordering != "unordered" else 30)


@in_virtual_time
async def test_a_channel_with_many_records_leaves_the_others_their_turns() -> None:
    app, calls = limited_app(2)
    handle_all(app, calls)
    async with running(app) as test:
        await send_all(test, 100, "recalc")
        await until(lambda: len(calls.began) >= 20, within_s=60)
        before = len(calls.began)
        await send_all(test, 2, "upload", "reports")
        await until(lambda: len(calls.began) >= before + 10, within_s=60)
    # Each channel has every third start at least, as long as it has records.
    new = calls.began[before : before + 8]
    assert (new.count("upload"), new.count("reports")) == (2, 2)


@in_virtual_time
async def test_waiting_for_the_limit_is_not_the_handlers_time() -> None:
    recorder = Recorder()
    app, calls = limited_app(1, recorder, unprocessed_record_max_age="5s")
    handle_all(app, calls, lasts_s=4.0)
    async with running(app) as test:
        await send_all(test, 5)
        await until(lambda: calls.began)
        await asyncio.sleep(1)
        waiting = [name for name in CHANNELS if facts(test, name).limited_by is not None]
        # Of the channel whose handler runs, too: it has more records.
        assert len(waiting) == 3
        assert facts(test, "upload").limited_by == "limit = database (1 handlers)"
        health = test.app.health()
        assert health.ready.is_up
        reasons = {check.data["reason"] for check in health.ready.checks}
        assert reasons == {"records wait for limit = database (1 handlers)"}
        await test.settled(timeout=100)
        for name in CHANNELS:
            histogram = facts(test, name).handler_durations
            assert histogram.sum_s == pytest.approx(20.0, abs=0.1)
    assert not recorder.of(RecordPoisoned)
    assert len(calls.began) == 15


@in_virtual_time
async def test_a_handler_that_waits_for_its_next_attempt_leaves_its_slot_to_others() -> None:
    recorder = Recorder()
    app, calls = limited_app(
        1,
        recorder,
        retry={"max_attempts": 2, "backoff": "10s", "jitter": 0},
        unprocessed_record_max_age="5s",
        failure_strategy="ignore",
    )
    attempts: list[tuple[float, int]] = []

    @app.incoming("upload")
    async def failing(message: Message[bytes]) -> None:
        attempts.append((now(), message.attempt))
        await calls.call("upload", 0.0)
        raise ValueError("again")

    for name in ("recalc", "reports"):

        def add(name: str = name) -> None:
            @app.incoming(name)
            async def handler(message: Message[bytes]) -> None:
                await calls.call(name, 4.0)

        add()
    async with running(app) as test:
        await test.send("upload", b"")
        await until(lambda: attempts)
        await send_all(test, 6, "recalc", "reports")
        await test.settled(timeout=100)
    assert calls.most == 1
    # The second attempt waited for its turn behind the running handler and one of each other channel.
    waited_s = attempts[1][0] - attempts[0][0]
    assert 10.0 <= waited_s <= 10.0 + 3 * 4.0 + 0.5
    assert not recorder.of(RecordPoisoned)


@in_virtual_time
async def test_a_batch_is_one_call() -> None:
    app, calls = limited_app(1, batch_max_records=10, batch_max_wait="100ms", concurrency=2)
    sizes: Counter[str] = Counter()
    for name in CHANNELS:

        def add(name: str = name) -> None:
            @app.incoming(name)
            async def handler(batch: Batch[bytes]) -> None:
                sizes[name] += len(batch)
                await calls.call(name)

        add()
    async with running(app, partitions=2) as test:
        await send_all(test, 40, partitions=2)
        await test.settled(timeout=100)
    assert calls.most == 1
    assert sizes == dict.fromkeys(CHANNELS, 40)


@in_virtual_time
async def test_a_stop_and_a_failure_give_the_slots_back() -> None:
    app, calls = limited_app(1, failure_strategy="fail")

    @app.incoming("upload")
    async def failing(message: Message[bytes]) -> None:
        await calls.call("upload")
        raise ValueError("stops the channel")

    for name in ("recalc", "reports"):

        def add(name: str = name) -> None:
            @app.incoming(name)
            async def handler(message: Message[bytes]) -> None:
                await calls.call(name)

        add()
    async with running(app) as test:
        await send_all(test, 5, "upload")
        await until(lambda: facts(test, "upload").state == "failed")
        await send_all(test, 5, "recalc")
        await until(lambda: calls.began.count("recalc") == 2)
        await test.app.channel("recalc").stop()
        await send_all(test, 5, "reports")
        await until(lambda: calls.began.count("reports") == 5)
        await test.app.channel("upload").restart()
        await test.app.channel("recalc").start()
        await until(lambda: calls.began.count("recalc") == 5)
        await until(lambda: calls.began.count("upload") == 2)
    assert calls.most == 1


@in_virtual_time
async def test_a_handler_that_ignores_its_cancellation_does_not_keep_its_slot() -> None:
    app, calls = limited_app(
        1, unprocessed_record_max_age="2s", on_poison="dead-letter-queue", concurrency=1
    )
    release = asyncio.Event()

    @app.incoming("upload")
    async def stuck(message: Message[bytes]) -> None:
        calls.began.append("upload")
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    for name in ("recalc", "reports"):

        def add(name: str = name) -> None:
            @app.incoming(name)
            async def handler(message: Message[bytes]) -> None:
                await calls.call(name)

        add()
    async with running(app) as test:
        await send_all(test, 1, "upload")
        await until(lambda: calls.began)
        await send_all(test, 3, "recalc")
        await until(lambda: calls.began.count("recalc") == 3, within_s=20)
        release.set()
        await test.settled()
    assert calls.most == 1


@in_virtual_time
async def test_a_rate_limit_and_a_shared_limit_both_hold() -> None:
    app, calls = limited_app(2, rate_limit="1/s")
    at: list[float] = []

    @app.incoming("upload")
    async def handler(message: Message[bytes]) -> None:
        at.append(now())
        await calls.call("upload", 5.0)

    for name in ("recalc", "reports"):
        app.incoming(name)(_nothing)
    async with running(app) as test:
        await send_all(test, 6, "upload")
        await test.settled(timeout=100)
    assert calls.most == 2
    assert [round(one - at[0]) for one in at] == [0, 1, 5, 6, 10, 11]


async def _nothing(message: Message[bytes]) -> None:
    """Take a record."""


@in_virtual_time
async def test_an_added_channel_has_the_limit_too() -> None:
    app, calls = limited_app(1)
    handle_all(app, calls)
    broker = make_broker()

    async def handler(message: Message[bytes]) -> None:
        await calls.call("added")

    async with running(app, broker=broker) as test:
        settings = {"group_id": "added", "auto_offset_reset": "earliest", "limit": "database"}
        await test.app.add_channel("added", settings, handler)
        await send_all(test, 3, "added", "upload")
        await test.settled(timeout=20)
        with pytest.raises(ConfigError, match=r"there is no \[limits.databse\].*did you mean"):
            await test.app.add_channel("wrong", settings | {"limit": "databse"}, handler)
    assert calls.most == 1
    assert calls.began.count("added") == 3
    await broker.close()


@pytest.mark.parametrize("seed", range(25))
@in_virtual_time
async def test_whatever_happens_to_the_channels_the_limit_holds_and_no_slot_is_lost(
    seed: int,
) -> None:
    dice = random.Random(f"shared limit {seed}")
    slots = dice.choice((1, 2, 3))
    app, calls = limited_app(
        slots,
        ordering=dice.choice(("partition", "key", "unordered")),
        concurrency=dice.choice((1, 2, 6)),
        retry={"max_attempts": 2, "backoff": dice.choice((0, "100ms", "2s"))},
        failure_strategy=dice.choice(("ignore", "dead-letter-queue")),
        revoke_grace="2s",
        drain_timeout="2s",
    )
    fails = dice.choice((0.0, 0.2))
    handled: dict[str, set[int]] = {name: set() for name in CHANNELS}
    for name in CHANNELS:

        def add(name: str = name) -> None:
            @app.incoming(name)
            async def handler(message: Message[bytes]) -> None:
                handled[name].add(message.offset)
                await calls.call(name, dice.choice((0.0, 0.1, 0.5)))
                if dice.random() < fails:
                    raise ValueError("drawn")

        add()
    async with running(app) as test:
        for _ in range(12):
            await send_all(test, dice.choice((0, 1, 5)))
            name = dice.choice(CHANNELS)
            channel = test.app.channel(name)
            match dice.choice(("pause", "stop", "nothing")):
                case "pause":
                    channel.pause()
                    await asyncio.sleep(dice.uniform(0, 3))
                    channel.resume()
                case "stop":
                    await channel.stop()
                    await asyncio.sleep(dice.uniform(0, 1))
                    await channel.start()
                case _:
                    await asyncio.sleep(dice.uniform(0, 1))
        await test.settled(timeout=200)
        sent = {name: len(test.broker.log(TopicPartition(name, 0))) for name in CHANNELS}
        # All slots are free again: as many handlers as there are slots run at once.
        assert calls.most <= slots
        calls.most = 0
        await send_all(test, 5)
        await test.settled(timeout=60)
    assert calls.most == slots
    assert {name: len(offsets) - 5 for name, offsets in handled.items()} == sent


@in_virtual_time
async def test_a_batch_that_is_paused_as_its_turn_comes_keeps_no_slot() -> None:
    app, calls = limited_app(1, batch_max_wait="100ms")

    @app.incoming("upload")
    async def upload(message: Message[bytes]) -> None:
        await calls.call("upload", 5.0)
        # Its slot is given on at once, and this comes before the worker that is to have it.
        asyncio.get_running_loop().call_soon(app.channel("recalc").pause)

    @app.incoming("recalc")
    async def recalc(batch: Batch[bytes]) -> None:
        await calls.call("recalc")

    @app.incoming("reports")
    async def reports(message: Message[bytes]) -> None:
        await calls.call("reports")

    async with running(app) as test:
        await send_all(test, 1, "upload")
        await until(lambda: calls.now["upload"] == 1)
        await send_all(test, 1, "recalc")
        await asyncio.sleep(10)
        assert calls.began == ["upload"]
        await send_all(test, 1, "reports")
        await until(lambda: "reports" in calls.began, 10)
        test.app.channel("recalc").resume()
        await until(lambda: "recalc" in calls.began, 10)
