"""``ordering = "key"``: one record of a key at a time, in order, and no key waits for another."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass

import pytest

from reactive_kafka import App, Message
from reactive_kafka.errors import describe
from reactive_kafka.events import RecordIgnored
from reactive_kafka.records import RawRecord
from tests.app.handlers import keep_messages, note_values
from tests.app.helpers import (
    Recorder,
    committed,
    facts,
    in_virtual_time,
    make_app,
    now,
    running,
    send,
    until,
)


def tenant_of(record: RawRecord) -> bytes:
    if record.value == b"no tenant":
        raise LookupError("who is it?")
    return (record.value or b"").partition(b"/")[0]


class Seen:
    """What a handler saw of each key, and how many of them ran at once."""

    def __init__(self) -> None:
        self.order: list[tuple[bytes | None, int]] = []
        self.running: set[bytes | None] = set()
        self.most_at_once = 0

    def begin(self, message: Message[bytes]) -> None:
        assert message.key not in self.running, "two records of a key at once"
        self.running.add(message.key)
        self.most_at_once = max(self.most_at_once, len(self.running))

    def end(self, message: Message[bytes]) -> None:
        self.running.discard(message.key)
        self.order.append((message.key, message.offset))

    def of(self, key: bytes | None) -> list[int]:
        return [offset for seen, offset in self.order if seen == key]


@in_virtual_time
async def test_the_records_of_a_key_are_handled_in_order_and_those_of_others_beside_them() -> None:
    app, seen, chance = make_app(ordering="key", concurrency=20), Seen(), random.Random(7)

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        seen.begin(message)
        await asyncio.sleep(chance.uniform(0, 0.1))
        seen.end(message)

    async with running(app) as test:
        for number in range(300):
            await test.send(
                "orders", b"", key=b"%d" % (number % 20) if number % 21 else None, partition=0
            )
        await test.settled()
        assert committed(test) == 300
    assert seen.most_at_once > 10
    for key in {key for key, _ in seen.order}:
        assert seen.of(key) == sorted(seen.of(key))


@in_virtual_time
async def test_records_without_a_key_keep_the_order_of_their_partition() -> None:
    app, seen = make_app(ordering="key", concurrency=20), Seen()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        seen.begin(message)
        await asyncio.sleep(0.01)
        seen.end(message)

    async with running(app) as test:
        for _ in range(10):
            await test.send("orders", b"", partition=0)
        await test.settled()
    assert seen.of(None) == list(range(10))
    assert seen.most_at_once == 1


@pytest.mark.parametrize("seed", range(5))
@in_virtual_time
async def test_records_without_a_key_run_at_once_where_they_have_no_order_and_those_with_one_keep_it(
    seed: int,
) -> None:
    app, chance = (
        make_app(ordering="key", keyless="unordered", concurrency=8, commit_interval="20ms"),
        random.Random(seed),
    )
    keys = [chance.choice([None, None, None, b"a", b"b"]) for _ in range(200)]
    unsettled, running_now, order, most = set(range(200)), list[bytes | None](), list[int](), 0

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        nonlocal most
        assert message.key is None or message.key not in running_now, "two records of a key at once"
        running_now.append(message.key)
        most = max(most, running_now.count(None))
        await asyncio.sleep(chance.uniform(0, 0.1))
        running_now.remove(message.key)
        order.append(message.offset)
        unsettled.discard(message.offset)

    async with running(app) as test:
        for key in keys:
            await test.send("orders", b"", key=key, partition=0)
        while unsettled:
            assert (committed(test) or 0) <= min(unsettled), (
                "the position has passed an unsettled record"
            )
            await asyncio.sleep(0.005)
        await test.settled()
        assert committed(test) == 200
    assert most > 3
    assert sorted(order) == list(range(200))
    for key in (b"a", b"b"):
        mine = [offset for offset in order if keys[offset] == key]
        assert mine == sorted(mine)
    assert order != sorted(order)


@pytest.mark.parametrize("key", ["header:tenant", "tests.app.test_key_order:nobodys"])
@in_virtual_time
async def test_without_a_header_and_where_a_function_returns_none_a_record_has_no_key(
    key: str,
) -> None:
    app, go_on = (
        make_app(ordering="key", keyless="unordered", key=key, concurrency=4),
        asyncio.Event(),
    )
    inside = 0

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        nonlocal inside
        inside += 1
        await go_on.wait()

    async with running(app) as test:
        for _ in range(6):
            await test.send("orders", b"", key=b"same", partition=0)
        await until(lambda: inside == 4)
        go_on.set()
        await test.settled()
        assert committed(test) == 6


def nobodys(record: RawRecord) -> None:
    """No record has a key."""


@in_virtual_time
async def test_a_record_that_is_tried_again_holds_back_its_own_key_only_even_with_one_worker() -> (
    None
):
    app = make_app(
        ordering="key",
        concurrency=1,
        retry={"max_attempts": 3, "backoff": "10s", "max_backoff": "10s"},
    )
    story: list[tuple[bytes, int, float]] = []

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        story.append((message.key, message.attempt, now()))
        if message.key == b"bad" and message.attempt < 3:
            raise ValueError("not yet")

    async with running(app) as test:
        for key in (b"bad", b"good", b"bad", b"good"):
            await test.send("orders", b"", key=key, partition=0)
        began = now()
        await until(lambda: len([one for one in story if one[0] == b"good"]) == 2)
        assert now() - began < 1
        await test.settled(timeout=60)
        assert committed(test) == 4
    assert [attempt for key, attempt, _ in story if key == b"bad"] == [1, 2, 3] * 2


@in_virtual_time
async def test_a_nack_that_is_being_carried_out_holds_its_own_key_also_while_another_key_is_tried_again() -> (
    None
):
    app = make_app(
        ordering="key",
        concurrency=4,
        failure_strategy="dead-letter-queue",
        retry={"max_attempts": 2, "backoff": "10s", "max_backoff": "10s"},
    )
    seen: list[tuple[bytes, int]] = []

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        seen.append((message.key, message.attempt))
        if message.key == b"again" and message.attempt == 1:
            raise ValueError("not yet")
        if message.key == b"dead" and not [one for one in seen[:-1] if one[0] == b"dead"]:
            message.nack(ValueError("no good"))

    async with running(app) as test:
        test.broker.topic_away("dead-letter-topic-orders")
        for key in (b"again", b"dead", b"dead", b"other"):
            await test.send("orders", b"", key=key, partition=0)
        await asyncio.sleep(5)
        assert sorted(seen) == [(b"again", 1), (b"dead", 1), (b"other", 1)]
        test.broker.topic_back("dead-letter-topic-orders")
        await until(lambda: seen.count((b"dead", 1)) == 2)
        await test.settled(timeout=60)
        assert committed(test) == 4


@in_virtual_time
async def test_waiting_for_another_attempt_never_lets_more_handlers_run_than_concurrency() -> None:
    app = make_app(ordering="key", concurrency=3, retry={"max_attempts": 2, "backoff": "1s"})
    at_once, most = 0, 0

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        try:
            await asyncio.sleep(0.3)
            if message.attempt == 1:
                raise ValueError("once more")
        finally:
            at_once -= 1

    async with running(app) as test:
        for number in range(60):
            await test.send("orders", b"", key=b"%d" % number, partition=0)
        await test.settled(timeout=120)
        assert committed(test) == 60
        assert facts(test).retries == 60
    assert most == 3


@in_virtual_time
async def test_a_hot_key_starves_no_other() -> None:
    """Row F16 of the faults."""
    app, done = make_app(ordering="key", concurrency=2), dict[bytes, float]()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        await asyncio.sleep(0.01)
        done[message.key] = now()

    async with running(app) as test:
        for _ in range(500):
            await test.send("orders", b"", key=b"hot", partition=0)
        for number in range(5):
            await test.send("orders", b"", key=b"%d" % number, partition=0)
        began = now()
        await test.settled(timeout=60)
    assert max(done[b"%d" % number] for number in range(5)) - began < 1 < done[b"hot"] - began


@in_virtual_time
async def test_a_hot_key_with_a_backlog_beyond_max_in_flight_starves_no_other() -> None:
    app, done = make_app(ordering="key", concurrency=4, max_in_flight=100), dict[bytes, float]()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        await asyncio.sleep(0.1)
        done[message.key] = now()

    async with running(app) as test:
        await until(lambda: test.app.channel("orders").is_ready)
        began = now()
        for _ in range(700):
            await test.send("orders", b"", key=b"hot", partition=0)
        for number in range(5):
            await test.send("orders", b"", key=b"%d" % number, partition=0)
        await until(lambda: len(done) == 6, 60)
        assert now() - began < 10
        await test.settled(timeout=100)


@in_virtual_time
async def test_a_hot_key_with_a_backlog_beyond_a_small_window_starves_none_of_many_partitions() -> (
    None
):
    app, done = make_app(ordering="key", concurrency=4, max_in_flight=20), set[int]()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        await asyncio.sleep(0.1)
        done.add(message.partition)

    async with running(app, partitions=30) as test:
        await until(lambda: test.app.channel("orders").is_ready)
        for _ in range(700):
            await test.send("orders", b"", key=b"hot", partition=0)
        # Read in search of other keys.
        await until(lambda: facts(test).partitions[0].queued > 100)
        for partition in range(1, 30):
            await test.send("orders", b"", key=b"%d" % partition, partition=partition)
        await until(lambda: done == set(range(30)), 5)
        assert sum(one.queued for one in facts(test).partitions) <= 200
        await test.settled(timeout=100)


@in_virtual_time
async def test_what_is_read_for_other_keys_is_bounded() -> None:
    app, go_on = make_app(ordering="key", concurrency=4, max_in_flight=100), asyncio.Event()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        await go_on.wait()

    async with running(app, partitions=2) as test:
        for number in range(4000):
            await test.send("orders", b"", key=b"hot", partition=number % 2)
        await asyncio.sleep(60)
        assert sum(one.queued for one in facts(test).partitions) <= 1000
        assert all(one.paused for one in facts(test).partitions)
        go_on.set()
        await test.settled(timeout=100)


@in_virtual_time
async def test_messages_that_nobody_settles_are_bounded_by_max_in_flight_whatever_workers_rest() -> (
    None
):
    app, kept = (
        make_app(ordering="key", concurrency=4, max_in_flight=100, ack="manual"),
        list[Message[bytes]](),
    )
    keep_messages(app, kept)

    async with running(app) as test:
        for number in range(500):
            await test.send("orders", b"", key=b"%d" % (number % 7), partition=0)
        await asyncio.sleep(30)
        assert len(kept) == 100
        for message in kept:
            message.ack()


@in_virtual_time
async def test_a_header_or_a_function_may_be_the_key() -> None:
    for key in ("header:tenant", "tests.app.test_key_order:tenant_of"):
        app, running_now, most, order = (
            make_app(ordering="key", concurrency=9, key=key),
            set[bytes](),
            0,
            list[bytes](),
        )

        @app.incoming("orders")
        async def handler(value: bytes) -> None:
            nonlocal most
            tenant = value.partition(b"/")[0]
            # Used before the next round.
            assert tenant not in running_now  # noqa: B023
            running_now.add(tenant)  # noqa: B023
            most = max(most, len(running_now))  # noqa: B023
            await asyncio.sleep(0.01)
            running_now.discard(tenant)  # noqa: B023
            order.append(value)  # noqa: B023

        async with running(app) as test:
            for number in range(20):
                tenant = b"ab"[number % 2 : number % 2 + 1]
                await test.send(
                    "orders", tenant + b"/%02d" % number, headers=[("tenant", tenant)], partition=0
                )
            await test.settled()
        assert most == 2
        assert [one for one in order if one[:1] == b"a"] == sorted(
            one for one in order if one[:1] == b"a"
        )


@in_virtual_time
async def test_a_record_whose_key_cannot_be_told_meets_the_failure_strategy_alone() -> None:
    app, seen = (
        make_app(
            ordering="key", key="tests.app.test_key_order:tenant_of", failure_strategy="ignore"
        ),
        list[bytes](),
    )
    note_values(app, seen)

    async with running(app) as test:
        for value in (b"a/1", b"no tenant", b"a/2"):
            await test.send("orders", value, partition=0)
        await test.settled()
        assert committed(test) == 3
    assert seen == [b"a/1", b"a/2"]


@dataclass
class NoHash(Exception):
    """As every dataclass that says nothing of its hash."""

    key: str


ODD = {
    "no hash": NoHash("x"),
    "cancelled": asyncio.CancelledError(),
    "base": BaseException("odd"),
    "stop": StopAsyncIteration(),
    "exit": SystemExit(3),
    "interrupt": KeyboardInterrupt(),
}


def odd_key(record: RawRecord) -> bytes | None:
    """Raises what the value names."""
    value = record.value or b""
    if value.decode() in ODD:
        raise ODD[value.decode()]
    return value


@pytest.mark.parametrize("odd", ["no hash", "cancelled", "base", "stop"])
@in_virtual_time
async def test_whatever_a_key_function_raises_is_a_nack_of_that_record_alone(odd: str) -> None:
    recorder = Recorder()
    app, seen = (
        make_app(recorder, ordering="key", key=f"{__name__}:odd_key", failure_strategy="ignore"),
        list[bytes](),
    )
    note_values(app, seen)

    async with running(app) as test:
        await send(test, b"1", odd.encode(), b"2", odd.encode(), b"3")
        await test.settled()
        assert committed(test) == 5
        assert facts(test).state == "running"
    assert seen == [b"1", b"2", b"3"]
    whys = [event.reason for event in recorder.of(RecordIgnored)]
    assert (
        whys
        == [f"DecodeError: the record's ordering key cannot be computed: {describe(ODD[odd])}"] * 2
    )


@pytest.mark.parametrize(("odd", "code"), [("exit", 3), ("interrupt", 0)])
@in_virtual_time
async def test_a_key_function_may_end_the_process_as_a_handler_may(odd: str, code: int) -> None:
    app, seen = make_app(ordering="key", key=f"{__name__}:odd_key", concurrency=1), list[bytes]()
    note_values(app, seen)

    async with running(app) as test:
        await send(test, b"1", odd.encode())
        run = app._run
        assert run is not None
        await run.wait_asked()
        await app.stop()
        assert run.exit_code() == code
        assert committed(test) == 1
    assert seen == [b"1"]


@in_virtual_time
async def test_the_commit_waits_for_the_lowest_record_whatever_other_keys_have_done() -> None:
    app, go_on = make_app(ordering="key", concurrency=4, commit_interval="1s"), asyncio.Event()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        if message.key == b"slow":
            await go_on.wait()

    async with running(app) as test:
        for key in (b"a", b"slow", b"b", b"slow", b"c"):
            await test.send("orders", b"", key=key, partition=0)
        await asyncio.sleep(3)
        assert committed(test) == 1
        go_on.set()
        await test.settled()
        assert committed(test) == 5


@in_virtual_time
async def test_nothing_is_repeated_and_nothing_is_lost_when_the_partition_comes_straight_back() -> (
    None
):
    app, seen, go_on = (
        make_app(ordering="key", concurrency=2, revoke_grace="1s"),
        list[int](),
        asyncio.Event(),
    )

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        seen.append(message.offset)
        if message.key == b"slow":
            await go_on.wait()

    async with running(app) as test:
        for key in (b"slow", b"a", b"slow", b"b", b"a"):
            await test.send("orders", b"", key=key, partition=0)
        await until(lambda: len(seen) == 4)
        test.broker.rebalance("billing")
        await until(lambda: facts(test).rebalances["assigned"] == 2)
        await test.send("orders", b"", key=b"c", partition=0)
        await until(lambda: 5 in seen)
        go_on.set()
        await test.settled()
        assert committed(test) == 6
    assert sorted(seen) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("shape", ["batch", "spark"])
def test_batches_have_no_order_by_key(shape: str) -> None:
    from reactive_kafka import Batch, ConfigError

    app = App({"incoming": {"orders": {"group_id": "billing", "ordering": "key"}}})
    if shape == "batch":

        @app.incoming("orders")
        async def handler(batch: Batch[bytes]) -> None: ...

    else:

        @app.spark("orders")
        def job(df, batch): ...  # type: ignore[no-untyped-def]

    with pytest.raises(ConfigError, match="it orders single records"):
        app.configure()
