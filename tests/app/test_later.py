"""``Later``: a handler asks for another call after a delay, which is no attempt and no failure."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from reactive_kafka import App, Batch, Later, Message
from reactive_kafka.events import (
    HandlerFailed,
    HandlerRetried,
    RecordDeadLettered,
    RecordPoisoned,
    RecordPostponed,
)
from reactive_kafka.testing import TestApp
from tests.app.checkpoints import Rows, app_on
from tests.app.helpers import (
    Recorder,
    committed,
    facts,
    in_virtual_time,
    make_app,
    make_broker,
    now,
    rebalanced,
    running,
    send,
    tp,
    until,
)
from tests.app.test_incremental import cooperative, joining

LETTERS = "dead-letter-topic-orders"
AGED_S = 5.0


def later_app(recorder: Recorder | None = None, **orders: Any) -> App:
    """An application whose records are poison after five seconds, and whose failures are letters."""
    return make_app(
        recorder,
        **{
            "commit_interval": "100ms",
            "unprocessed_record_max_age": AGED_S,
            "failure_strategy": "dead-letter-queue",
            **orders,
        },
    )


class Asking:
    """A handler that asks for a delay at its first call with each record that says so."""

    def __init__(self, later: Later, recorder: Recorder | None = None, **orders: Any) -> None:
        self.calls: list[tuple[float, str]] = []
        self.attempts: set[int] = set()
        self.app = later_app(recorder, value_deserializer="string", **orders)
        self._asked: set[str] = set()

        @self.app.incoming("orders")
        async def handler(message: Message[str]) -> None:
            self.calls.append((now(), message.payload))
            self.attempts.add(message.attempt)
            if message.payload.startswith("later") and message.payload not in self._asked:
                self._asked.add(message.payload)
                raise later

    @property
    def order(self) -> list[str]:
        return [value for _, value in self.calls]

    def at(self, value: str) -> list[float]:
        return [at for at, called in self.calls if called == value]

    def waited_s(self, value: str) -> float:
        first, second = self.at(value)
        return second - first


def no_failure(test: TestApp, recorder: Recorder) -> bool:
    """Nothing was counted or told as a failure or a retry."""
    totals = facts(test).totals.values()
    told = [HandlerRetried, HandlerFailed, RecordDeadLettered, RecordPoisoned]
    return (
        facts(test).retries == 0
        and not any(sum(one.nacked.values()) or one.poison for one in totals)
        and not any(recorder.of(kind) for kind in told)
        and test.records(LETTERS) == []
    )


@in_virtual_time
async def test_the_record_keeps_its_place_and_does_not_age() -> None:
    recorder = Recorder()
    asking = Asking(Later("200s"), recorder)
    async with running(asking.app) as test:
        await send(test, "first", "later", "behind")
        await until(lambda: committed(test) == 1)
        await asyncio.sleep(150)
        assert (asking.order, committed(test)) == (["first", "later"], 1)
        await test.settled(timeout=100)
        assert no_failure(test, recorder)
        assert committed(test) == 3
    assert asking.order == ["first", "later", "later", "behind"]
    assert asking.waited_s("later") == pytest.approx(200, abs=0.01)
    assert asking.attempts == {1}
    (told,) = recorder.of(RecordPostponed)
    assert (told.offset, told.wait_s, told.scope) == (1, 200.0, "record")


@in_virtual_time
async def test_it_uses_up_no_retry() -> None:
    app = later_app(retry={"max_attempts": 2, "backoff": "1s"})
    attempts: list[int] = []

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        attempts.append(message.attempt)
        if len(attempts) in (1, 2, 4):
            raise Later(10)
        raise ValueError("for good")

    async with running(app) as test:
        await send(test, b"1")
        await test.settled(timeout=100)
        assert [letter.value for letter in test.records(LETTERS)] == [b"1"]
        assert facts(test).retries == 1
    assert attempts == [1, 1, 1, 2, 2]


@pytest.mark.parametrize("ordering", ["key", "unordered"])
@in_virtual_time
async def test_only_what_the_order_puts_behind_it_waits(ordering: str) -> None:
    asking = Asking(Later("60s"), ordering=ordering)
    async with running(asking.app) as test:
        await test.send("orders", "later", key=b"a", partition=0)
        await test.send("orders", "same key", key=b"a", partition=0)
        await test.send("orders", "other key", key=b"b", partition=0)
        await asyncio.sleep(30)
        waits_for_it = {"same key"} if ordering == "key" else set()
        assert set(asking.order) == {"later", "same key", "other key"} - waits_for_it
        # The only place is free, and nothing behind the record is committed.
        assert committed(test) in (None, 0)
        await test.settled(timeout=60)
        assert committed(test) == 3


@pytest.mark.parametrize("ordering", ["partition", "key", "unordered"])
@pytest.mark.parametrize("concurrency", [1, 4])
@in_virtual_time
async def test_with_the_scope_of_a_partition_no_other_record_of_it_starts(
    ordering: str, concurrency: int
) -> None:
    asking = Asking(Later("60s", scope="partition"), ordering=ordering, concurrency=concurrency)
    async with running(asking.app, partitions=2) as test:
        await test.send("orders", "later", key=b"a", partition=0)
        await until(lambda: asking.order == ["later"])
        for number in range(3):
            await test.send("orders", f"here {number}", key=b"%d" % number, partition=0)
            await test.send("orders", f"there {number}", key=b"%d" % number, partition=1)
        await asyncio.sleep(50)
        assert asking.order == ["later", "there 0", "there 1", "there 2"]
        assert committed(test, 1) == 3
        await test.settled(timeout=60)
    assert asking.waited_s("later") == pytest.approx(60, abs=0.01)
    assert (
        min(at for at, value in asking.calls if "here" in value and "t" not in value[:1])
        >= (asking.at("later")[1])
    )


@in_virtual_time
async def test_with_the_scope_of_the_channel_none_of_it_starts() -> None:
    asking = Asking(Later("60s", scope="channel"), ordering="unordered", concurrency=4)
    async with running(asking.app, partitions=2) as test:
        channel = test.app.channel("orders")
        await test.send("orders", "later", partition=0)
        await until(lambda: asking.order == ["later"])
        await send(test, "here", "and here")
        await test.send("orders", "there", partition=1)
        await asyncio.sleep(59)
        assert asking.order == ["later"]
        # A hold is no pause of the application's.
        assert (channel.paused, facts(test).state, facts(test).paused_by) == (False, "running", ())
        await test.settled(timeout=60)
        assert (committed(test, 0), committed(test, 1)) == (3, 1)
    assert asking.order[:2] == ["later", "later"]


@in_virtual_time
async def test_a_retry_waits_for_the_scope_of_another_record() -> None:
    app = later_app(ordering="unordered", retry={"max_attempts": 2, "backoff": "1s"})
    calls: list[tuple[float, bytes, int]] = []

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        calls.append((now(), message.payload, message.attempt))
        if len(calls) == 2:
            raise Later("30s", "channel")
        if message.payload == b"fails" and message.attempt == 1:
            raise ValueError("not yet")

    async with running(app) as test:
        await send(test, b"fails", b"later")
        await test.settled(timeout=60)
    assert sorted(call[1:] for call in calls[2:]) == [(b"fails", 2), (b"later", 1)]
    assert all(at - calls[1][0] >= 29.99 for at, _, _ in calls[2:])


@in_virtual_time
async def test_the_longer_of_two_holds_counts_for_both() -> None:
    app = later_app(ordering="unordered", concurrency=2)
    calls: list[tuple[float, bytes]] = []

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        calls.append((now(), value))
        if len(calls) <= 2:
            await asyncio.sleep(1)
            raise Later(10 if value == b"short" else 40, "partition")

    async with running(app) as test:
        await send(test, b"short", b"long")
        await until(lambda: len(calls) == 2)
        await send(test, b"new")
        await test.settled(timeout=60)
        assert committed(test) == 3
    began = calls[0][0]
    assert [round(at - began) for at, _ in calls[2:]] == [41, 41, 41]


@in_virtual_time
async def test_a_batch_waits_as_a_whole_with_what_is_open() -> None:
    recorder = Recorder()
    app = later_app(recorder, batch_max_wait="1s")
    batches: list[list[bytes]] = []

    @app.incoming("orders")
    async def handler(batch: Batch[bytes]) -> None:
        batches.append(list(batch.payloads))
        if len(batches) == 1:
            batch[0].ack()
            raise Later("100s", scope="partition")

    async with running(app) as test:
        await send(test, b"done", b"open", b"open too")
        await until(lambda: len(batches) == 1)
        await send(test, b"behind")
        await asyncio.sleep(90)
        assert committed(test) == 1
        await test.settled(timeout=60)
        assert no_failure(test, recorder)
    assert batches == [[b"done", b"open", b"open too"], [b"open", b"open too"], [b"behind"]]


@pytest.mark.parametrize("scope", ["record", "partition", "channel"])
@in_virtual_time
async def test_a_stop_does_not_wait_and_the_position_stays_before_the_record(scope: Any) -> None:
    asking = Asking(Later("1h", scope))
    async with running(asking.app) as test:
        await send(test, "first", "later", "behind")
        await until(lambda: committed(test) == 1)
        began = now()
        await asking.app.stop()
        assert now() - began < 1
        assert committed(test) == 1
    assert asking.order == ["first", "later"]


@pytest.mark.parametrize("scope", ["record", "partition", "channel"])
@in_virtual_time
async def test_a_revocation_ends_the_wait_and_the_hold(scope: Any) -> None:
    asking = Asking(Later("1h", scope))
    async with running(asking.app, partitions=2) as test:
        await send(test, "first", "later", "behind")
        await until(lambda: asking.order == ["first", "later"])
        began = now()
        await rebalanced(test)
        assert now() - began < 60
        await send(test, "there", partition=1)
        await test.settled(timeout=30)
        assert (committed(test, 0), committed(test, 1)) == (3, 1)
        assert facts(test).postponed == ()
    assert [value for value in asking.order if value != "there"] == [
        "first",
        "later",
        "later",
        "behind",
    ]


@pytest.mark.parametrize("scope", ["record", "partition", "channel"])
@in_virtual_time
async def test_a_seek_past_the_record_ends_the_wait_and_the_hold(scope: Any) -> None:
    asking = Asking(Later("1h", scope))
    async with running(asking.app, partitions=2) as test:
        await send(test, "later", "behind")
        await until(lambda: asking.order == ["later"])
        await test.app.channel("orders").seek(tp(0), 1)
        await send(test, "there", partition=1)
        await test.settled(timeout=10)
        assert (committed(test, 0), committed(test, 1)) == (2, 1)
        assert facts(test).postponed == ()
    assert sorted(asking.order) == ["behind", "later", "there"]


class AskingForBatches:
    """A handler of batches that asks for a delay at its first calls with the record ``here``."""

    def __init__(self, later: Later, times: int, **orders: Any) -> None:
        self.calls: list[tuple[float, list[str]]] = []
        self.go_on = asyncio.Event()
        self.app = later_app(value_deserializer="string", batch_max_wait="1s", **orders)

        @self.app.incoming("orders")
        async def handler(batch: Batch[str]) -> None:
            self.calls.append((now(), sorted(batch.payloads)))
            await self.go_on.wait()
            if "here" in batch.payloads and len(self.at_here) <= times:
                raise later

    @property
    def at_here(self) -> list[float]:
        return [at for at, payloads in self.calls if "here" in payloads]


@in_virtual_time
async def test_a_seek_in_one_partition_of_a_batch_ends_its_wait_and_the_next_one_is_kept() -> None:
    asking = AskingForBatches(Later("60s", "partition"), times=2)
    asking.go_on.set()
    async with running(asking.app, partitions=2) as test:
        await send(test, "here", partition=0)
        await send(test, "there", partition=1)
        await until(lambda: len(asking.calls) == 1)
        await asyncio.sleep(20)
        await test.app.channel("orders").seek(tp(1), 1)
        await until(lambda: len(asking.calls) == 2)
        await send(test, "after", partition=1)
        await until(lambda: committed(test, 1) == 2)
        await test.settled(timeout=100)
        assert committed(test, 0) == 1
    began, second, third = asking.at_here
    assert [round(second - began), round(third - second)] == [20, 60]


@pytest.mark.parametrize("scope", ["record", "partition", "channel"])
@in_virtual_time
async def test_a_batch_that_asks_after_a_seek_in_one_partition_waits_with_the_others(
    scope: Any,
) -> None:
    asking = AskingForBatches(Later("60s", scope), times=1)
    async with running(asking.app, partitions=2) as test:
        await send(test, "here", partition=0)
        await send(test, "there", partition=1)
        await until(lambda: len(asking.calls) == 1)
        await test.app.channel("orders").seek(tp(1), 1)
        asking.go_on.set()
        await until(lambda: committed(test, 0) == 1, 100)
    assert [payloads for _, payloads in asking.calls] == [["here", "there"], ["here"]]
    assert asking.at_here[1] - asking.at_here[0] == pytest.approx(60, abs=1)


@pytest.mark.parametrize("scope", ["record", "partition", "channel"])
@pytest.mark.parametrize("asks", ["before", "meanwhile"])
@in_virtual_time
async def test_a_rebalance_that_takes_one_partition_of_a_batch_ends_the_wait_of_the_others(
    asks: str, scope: Any
) -> None:
    broker = cooperative(2)
    asking = AskingForBatches(Later("1h", scope), times=1)
    other = AskingForBatches(Later("1h"), times=0)
    other.go_on.set()
    if asks == "before":
        asking.go_on.set()
    async with running(asking.app, broker=broker) as test:
        await send(test, "here", partition=0)
        await send(test, "there", partition=1)
        await until(lambda: len(asking.calls) == 1)
        async with joining(other.app, broker):
            # The rebalance waits for the call, if that still runs.
            await asyncio.sleep(2)
            asking.go_on.set()
            await until(lambda: committed(test, 0) == 1 and committed(test, 1) == 1)
    assert [payloads for _, payloads in asking.calls] == [["here", "there"], ["here"]]
    assert [payloads for _, payloads in other.calls] == [["there"]]
    await broker.close()


@in_virtual_time
async def test_a_channel_that_stops_and_starts_meanwhile_has_no_hold_left() -> None:
    asking = Asking(Later("1h", "channel"))
    async with running(asking.app) as test:
        await send(test, "later", "behind")
        await until(lambda: asking.order == ["later"])
        channel = test.app.channel("orders")
        await channel.stop()
        await channel.start()
        await test.settled(timeout=30)
    assert asking.order == ["later", "later", "behind"]


@in_virtual_time
async def test_a_pause_holds_it_too() -> None:
    recorder = Recorder()
    asking = Asking(Later("10s", "partition"), recorder)
    async with running(asking.app) as test:
        await send(test, "later")
        await until(lambda: asking.order == ["later"])
        test.app.channel("orders").pause("lunch")
        await asyncio.sleep(60)
        assert asking.order == ["later"]
        test.app.channel("orders").resume("lunch")
        await test.settled(timeout=10)
        assert no_failure(test, recorder)
    assert asking.waited_s("later") == pytest.approx(60, abs=1)


@in_virtual_time
async def test_health_says_why_it_waits_and_the_channel_is_ready() -> None:
    asking = Asking(Later("200s", "channel"), unprocessed_record_max_age=0)
    async with running(asking.app) as test:
        await send(test, "later")
        await until(lambda: asking.order == ["later"])
        await asyncio.sleep(150)
        health = test.app.health()
        assert (health.ready.status, health.live.status) == ("UP", "UP")
        (check,) = [check for check in health.checks if check.name == "orders"]
        (why,) = check.data["postponed"]
        assert why == (
            "orders-0 offset 0 is handled again in 50 s, as its handler asked; "
            "no record of the channel starts before that"
        )
        await test.settled(timeout=60)
        assert facts(test).postponed == ()


@in_virtual_time
async def test_a_failure_after_a_long_wait_is_no_long_trouble() -> None:
    app = later_app(
        unprocessed_record_max_age=0, retry={"max_attempts": 9, "backoff": "9s", "jitter": 0}
    )
    calls: list[float] = []

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        calls.append(now())
        if len(calls) == 1:
            raise Later("5m")
        if len(calls) == 2:
            raise ValueError("once")

    async with running(app) as test:
        await send(test, b"1")
        await until(lambda: len(calls) == 2, 320)
        await asyncio.sleep(5)
        assert test.app.health().ready.status == "UP"
        await until(lambda: committed(test) == 1, 60)


@in_virtual_time
async def test_what_it_has_raised_in_a_task_group_counts_if_all_of_it_asks() -> None:
    app = later_app()
    calls: list[float] = []

    async def ask(delay: float) -> None:
        raise Later(delay)

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        calls.append(now())
        if len(calls) == 1:
            raise ExceptionGroup("both", [Later(5), ExceptionGroup("inner", [Later(20)])])
        if len(calls) == 2:
            async with asyncio.TaskGroup() as group:
                group.create_task(ask(30))
        if len(calls) == 3:
            raise ExceptionGroup("mixed", [Later(5), ValueError("a failure")])

    async with running(app) as test:
        await send(test, b"1")
        await test.settled(timeout=100)
        assert [letter.value for letter in test.records(LETTERS)] == [b"1"]
    assert [round(at - calls[0]) for at in calls] == [0, 20, 50]


@in_virtual_time
async def test_of_several_in_a_task_group_the_longest_delay_and_the_widest_scope_count() -> None:
    app = later_app()
    calls: list[tuple[bytes, int]] = []
    began = now()

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        calls.append((value, round(now() - began)))
        if len(calls) == 1:
            raise ExceptionGroup("both", [Later(5, "channel"), Later(20), Later(1, "partition")])

    async with running(app, partitions=2) as test:
        await send(test, b"1")
        await until(lambda: len(calls) == 1)
        await send(test, b"2", partition=1)
        await test.settled(timeout=100)
    assert sorted(calls) == [(b"1", 0), (b"1", 20), (b"2", 20)]


class Busy(Later):
    """Does not call the __init__ of Later."""

    def __init__(self, *, delay_s: float | None = None) -> None:
        self.args = ("busy",)
        if delay_s is not None:
            self.delay_s = delay_s


@pytest.mark.parametrize("error", [Busy(), Busy(delay_s=5), ExceptionGroup("all", [Busy()])])
@in_virtual_time
async def test_a_subclass_without_a_delay_is_a_failure_of_its_record_alone(
    error: Exception,
) -> None:
    recorder = Recorder()
    app = later_app(recorder)

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        if value == b"1":
            raise error

    async with running(app) as test:
        await send(test, b"1", b"2")
        await test.settled(timeout=10)
    (letter,) = recorder.of(RecordDeadLettered)
    if isinstance(error, Busy):
        assert "Busy has no delay: its __init__ has to call Later's" in letter.reason


@in_virtual_time
async def test_a_broadcast_goes_on_with_the_handler_that_asked() -> None:
    app = later_app(broadcast=True)
    calls: list[str] = []

    @app.incoming("orders")
    async def first(value: bytes) -> None:
        calls.append("first")

    @app.incoming("orders")
    async def second(value: bytes) -> None:
        calls.append("second")
        if len(calls) == 2:
            raise Later("30s")

    async with running(app) as test:
        await send(test, b"1")
        await test.settled(timeout=60)
        assert committed(test) == 1
    assert calls == ["first", "second", "second"]


@in_virtual_time
async def test_a_record_with_its_verdict_does_not_come_again() -> None:
    recorder = Recorder()
    app = later_app(recorder)
    calls: list[bytes] = []

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        calls.append(message.payload)
        message.ack()
        raise Later("1h")

    async with running(app) as test:
        await send(test, b"1", b"2")
        await test.settled(timeout=10)
        assert committed(test) == 2
    assert (calls, recorder.of(RecordPostponed)) == ([b"1", b"2"], [])
    assert [event.offset for event in recorder.of(HandlerFailed)] == [0, 1]


@in_virtual_time
async def test_a_transaction_that_asks_stores_nothing() -> None:
    stored = Rows()
    app = app_on(stored, commit_interval="100ms")
    calls: list[float] = []

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        calls.append(now())
        async with message.transaction() as rows:
            rows[message.offset] = len(calls)
            if len(calls) == 1:
                raise Later("30s")

    async with running(app) as test:
        await send(test, b"1")
        await asyncio.sleep(20)
        assert stored.data == {}
        await until(lambda: len(calls) == 2, 60)
        await test.settled(timeout=10)
    assert stored.data == {0: 2}
    assert round(calls[1] - calls[0]) == 30


async def test_a_blocking_handler_may_ask_too() -> None:
    app = later_app()
    calls: list[bytes] = []

    @app.incoming("orders")
    def handler(value: bytes) -> None:
        calls.append(value)
        if len(calls) == 1:
            raise Later("50ms")

    async with running(app) as test:
        await send(test, b"1", b"2")
        await test.settled(timeout=10)
    assert calls == [b"1", b"1", b"2"]


@pytest.mark.parametrize(
    ("delay", "seconds"),
    [
        ("200s", 200.0),
        ("500ms", 0.5),
        ("120", 120.0),
        (" 7 ", 7.0),
        (3, 3.0),
        (0.25, 0.25),
        (timedelta(minutes=2), 120.0),
    ],
)
def test_a_delay_is_what_durations_are_elsewhere(delay: Any, seconds: float) -> None:
    assert Later(delay).delay_s == seconds


@pytest.mark.parametrize(
    "delay", [0, "0s", 0.001, -1, -0.0, float("-inf"), timedelta(0), timedelta(days=-1)]
)
def test_a_time_that_has_passed_is_a_short_delay(delay: Any) -> None:
    assert Later(delay).delay_s == 0.1


@pytest.mark.parametrize(
    "delay",
    [
        "-5s",
        "soon",
        "",
        " ",
        "²",
        "-5",
        "1" * 5000,
        None,
        True,
        float("nan"),
        float("inf"),
        timedelta.max,
        b"5s",
    ],
)
@in_virtual_time
async def test_a_delay_that_is_none_becomes_a_nack_that_says_so(delay: Any) -> None:
    recorder = Recorder()
    app = later_app(recorder)

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        raise Later(delay)

    async with running(app) as test:
        await send(test, b"1")
        await test.settled(timeout=10)
    (nacked,) = recorder.of(RecordDeadLettered)
    assert f"Later: delay = {delay!r}: expected seconds, a timedelta" in nacked.reason


@in_virtual_time
async def test_a_scope_that_is_none_becomes_a_nack_that_says_so() -> None:
    recorder = Recorder()
    app = later_app(recorder)
    wrong: Any = "topic"

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        raise Later("1s", scope=wrong)

    async with running(app) as test:
        await send(test, b"1")
        await test.settled(timeout=10)
    (nacked,) = recorder.of(RecordDeadLettered)
    assert "scope = 'topic': expected one of record, partition, channel" in nacked.reason


@in_virtual_time
async def test_many_records_may_wait_at_once() -> None:
    recorder = Recorder()
    asking = Asking(Later("60s"), recorder, ordering="unordered", concurrency=2)
    async with running(asking.app) as test:
        await send(test, *(f"later {number}" for number in range(50)))
        await until(lambda: len(asking.calls) == 50)
        assert facts(test).postponed[-1] == "47 more records like these"
        await asyncio.sleep(30)
        assert len(asking.calls) == 50
        await test.settled(timeout=60)
        assert no_failure(test, recorder)
        assert committed(test) == 50


CALL_S = 0.5
# What a channel needs for handlers that work at the same time as others of the channel.
SHAPES: list[dict[str, Any]] = [
    {},
    {"ordering": "key", "concurrency": 3},
    {"ordering": "unordered", "concurrency": 3},
    {"batch_max_records": 1, "batch_max_wait": "10ms"},
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("raises", [Later("20s"), Later("20s", scope="channel"), ValueError("no")])
@in_virtual_time
async def test_the_wait_for_the_next_call_is_no_duration_of_a_call(
    shape: dict[str, Any], raises: Exception
) -> None:
    retry = {"max_attempts": 2, "backoff": "20s", "max_backoff": "20s", "jitter": 0}
    app = later_app(value_deserializer="string", retry=retry, **shape)
    called: list[str] = []

    async def handle(value: str) -> None:
        called.append(value)
        await asyncio.sleep(CALL_S)
        if value == "again" and called.count("again") == 1:
            raise raises

    if "batch_max_records" in shape:

        @app.incoming("orders")
        async def handle_batch(batch: Batch[str]) -> None:
            (value,) = batch.payloads
            await handle(value)
    else:
        app.incoming("orders")(handle)

    async with running(app) as test:
        began = now()
        await send(test, "again", "other", "more")
        await test.settled(timeout=100)
        assert now() - began > 20.0
        durations = facts(test).handler_durations
    # Each call is counted, the second one for the same record, too.
    assert len(called) == sum(durations.counts) == 4
    assert durations.sum_s == pytest.approx(4 * CALL_S, abs=0.01)


@in_virtual_time
async def test_the_wait_for_a_verdict_of_a_nack_is_no_duration_of_a_call() -> None:
    app = later_app(value_deserializer="string", max_in_flight=10)

    @app.incoming("orders")
    async def handler(value: str) -> None:
        await asyncio.sleep(CALL_S)
        if value == "bad":
            raise ValueError("no")

    broker = make_broker()
    broker.create_topic(LETTERS, 1)
    broker.topic_away(LETTERS)
    async with running(app, broker=broker) as test:
        await send(test, "bad", "good")
        await asyncio.sleep(20)
        broker.topic_back(LETTERS)
        await test.settled(timeout=100)
        durations = facts(test).handler_durations
    assert (sum(durations.counts), durations.sum_s) == (2, pytest.approx(2 * CALL_S, abs=0.01))
    await broker.close()
