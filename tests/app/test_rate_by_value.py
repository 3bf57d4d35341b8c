"""``rate_limit = { rate, by }``: each value has its rate, and the others go on as far as the order
allows.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from typing import Any

import pytest

from reactive_kafka import App, Batch, ConfigError, Message
from reactive_kafka.events import RecordPoisoned
from tests.app.helpers import (
    Recorder,
    facts,
    in_virtual_time,
    inside,
    make_app,
    make_broker,
    now,
    positions,
    running,
    tp,
    until,
)

BY_ORG = {"rate": "2/s", "by": "header:org"}


class Starting:
    """An application that notes when the records of each value start, from its first record on."""

    def __init__(self, recorder: Recorder | None = None, **orders: Any) -> None:
        self.at: dict[str, list[float]] = defaultdict(list)
        self.order: list[tuple[int, int]] = []
        self.app: App = make_app(recorder, **orders)
        self.handler_s = 0.0

        @self.app.incoming("orders")
        async def handler(message: Message[bytes]) -> None:
            self.at[message.payload.decode()].append(now())
            self.order.append((message.partition, message.offset))
            await asyncio.sleep(self.handler_s)

    @property
    def started(self) -> int:
        return len(self.order)

    def since_first(self, value: str) -> list[float]:
        return [round(at - self.at[value][0], 2) for at in self.at[value]]


async def send_of(test: Any, *orgs: str, partition: int = 0, key: str | None = None) -> None:
    """Send a record of each organisation, the value saying whose it is; "" has no header."""
    for org in orgs:
        headers = [("org", org.encode())] if org else []
        await test.send(
            "orders", org.encode(), key=key or org or None, headers=headers, partition=partition
        )


@pytest.mark.parametrize("ordering", ["unordered", "key"])
@in_virtual_time
async def test_a_value_that_has_used_up_its_rate_holds_back_no_other(ordering: str) -> None:
    starting = Starting(rate_limit=BY_ORG, ordering=ordering)
    async with running(starting.app) as test:
        await send_of(test, *["big"] * 20, "small", "", *["big"] * 4, "small", "")
        await until(lambda: starting.started >= 6)
        began = now()
        assert {value: len(at) for value, at in starting.at.items()} == {
            "big": 2,
            "small": 2,
            "": 2,
        }
        assert facts(test).limited_by == "rate_limit = 2/s by header:org"
        await test.settled(timeout=30)
        assert facts(test).limited_by is None
    assert now() - began < 13
    # A burst of a second, then one each half second.
    assert starting.since_first("big") == [0.0, *[0.5 * number for number in range(23)]][:24]
    assert starting.since_first("small") == [0.0, 0.0]
    assert starting.since_first("") == [0.0, 0.0]


@in_virtual_time
async def test_with_an_order_by_partition_the_others_wait_behind() -> None:
    starting = Starting(rate_limit=BY_ORG)
    async with running(starting.app, partitions=2) as test:
        await send_of(test, "big", "big", "big", "small")
        await send_of(test, "other", "big", "other", partition=1)
        await test.settled(timeout=30)
    assert starting.since_first("big") == [0.0, 0.0, 0.5, 1.0]
    small = starting.at["small"][0] - starting.at["big"][0]
    assert small == pytest.approx(0.5, abs=0.51)
    for partition in (0, 1):
        offsets = [offset for number, offset in starting.order if number == partition]
        assert offsets == sorted(offsets)


@in_virtual_time
async def test_the_order_of_a_key_holds_over_values() -> None:
    starting = Starting(rate_limit=BY_ORG, ordering="key", concurrency=4)
    async with running(starting.app) as test:
        await send_of(test, *["big"] * 3, "small", key="k")
        await send_of(test, "small", key="other")
        await test.settled(timeout=30)
    offsets = [offset for _, offset in starting.order]
    assert offsets.index(4) < offsets.index(2) < offsets.index(3)
    assert [offset for offset in offsets if offset != 4] == [0, 1, 2, 3]


@pytest.mark.parametrize("by", ["key", "partition"])
@in_virtual_time
async def test_keys_and_partitions_may_have_a_rate_each(by: str) -> None:
    starting = Starting(rate_limit={"rate": "1/s", "by": by}, ordering="unordered")
    async with running(starting.app, partitions=2) as test:
        for partition in (0, 1):
            await send_of(test, *["a"] * 3, *["b"] * 3, partition=partition)
        began = now()
        await test.settled(timeout=30)
    # Six records of a key, or of a partition.
    assert now() - began == pytest.approx(5.0, abs=0.3)
    assert starting.started == 12


@in_virtual_time
async def test_a_rate_holds_through_a_restart_and_what_waits_is_no_poison() -> None:
    recorder = Recorder()
    starting = Starting(
        recorder,
        rate_limit={"rate": "1/m", "by": "header:org"},
        ordering="unordered",
        unprocessed_record_max_age="10s",
    )
    async with running(starting.app) as test:
        await send_of(test, "a", "a", "b")
        await until(lambda: starting.started == 2)
        await test.app.channel("orders").stop()
        await test.app.channel("orders").start()
        await test.settled(timeout=100)
    assert starting.since_first("a")[1] == pytest.approx(60, abs=1)
    assert not recorder.of(RecordPoisoned)


@in_virtual_time
async def test_a_stop_waits_for_no_record_that_is_held_back() -> None:
    broker = make_broker()
    starting = Starting(rate_limit={"rate": "1/h", "by": "key"}, ordering="unordered")
    async with running(starting.app, broker=broker) as test:
        await send_of(test, "a", "a", "b")
        await until(lambda: starting.started == 2)
        began = now()
        await test.app.stop()
        assert now() - began < 1.0
    assert positions(broker)[-1] == 1
    await broker.close()


@in_virtual_time
async def test_a_record_that_is_held_back_may_be_skipped() -> None:
    starting = Starting(rate_limit={"rate": "1/m", "by": "key"}, ordering="unordered")
    async with running(starting.app) as test:
        await send_of(test, "a", "a", "a")
        await until(lambda: facts(test).limited_by is not None and starting.started == 1)
        for offset in (1, 2):
            assert test.app.channel("orders").skip(tp(), offset) == "skipped"
        await send_of(test, "a")
        await test.settled(timeout=100)
    assert [offset for _, offset in starting.order] == [0, 3]
    assert starting.since_first("a") == [0.0, pytest.approx(60, abs=0.5)]


@in_virtual_time
async def test_records_of_a_value_start_in_the_order_in_which_they_were_held_back() -> None:
    starting = Starting(rate_limit={"rate": "1/m", "by": "key"}, ordering="unordered")
    async with running(starting.app, partitions=3) as test:
        await send_of(test, "a", "a")
        await until(lambda: facts(test).limited_by is not None and starting.started == 1)
        await send_of(test, "a", partition=1)
        await until(lambda: facts(test).partitions[1].position == 1)
        # The next record of the value is called, and cannot start: there is a token for others.
        test.app.channel("orders").pause(partitions=[tp(0)])
        await asyncio.sleep(90)
        await send_of(test, "a", partition=2)
        await until(lambda: starting.started == 3, within_s=200)
        test.app.channel("orders").resume(partitions=[tp(0)])
        await test.settled(timeout=200)
    assert [partition for partition, _ in starting.order] == [0, 1, 2, 0]


@pytest.mark.parametrize("ordering", ["unordered", "key", "partition"])
@in_virtual_time
async def test_a_record_that_is_skipped_leaves_its_turn_to_the_next_one_of_its_value(
    ordering: str,
) -> None:
    starting = Starting(
        ordering=ordering,
        concurrency=4,
        rate_limit={"rate": "1/m", "by": "header:org"},
        max_record_age="1h",
    )
    async with running(starting.app) as test:
        for _ in range(100):
            test.broker.produce(
                "orders", b"acme", headers=[("org", b"acme")], partition=0, timestamp_ms=1000
            )
        await send_of(test, "acme", "acme", "other")
        await test.settled(timeout=200)
        assert facts(test).totals[tp()].skipped == {"age": 100}
    assert starting.since_first("acme") == pytest.approx([0, 60], abs=1)
    assert len(starting.at["other"]) == 1


@in_virtual_time
async def test_full_buckets_are_forgotten() -> None:
    starting = Starting(rate_limit={"rate": "10/s", "by": "key"}, ordering="unordered")
    async with running(starting.app) as test:
        for _ in range(20):
            await send_of(test, *(f"{random.random()}" for _ in range(50)))
            await test.settled()
            await asyncio.sleep(1)
        limit = inside(test.app)._totals.value_limit
        assert limit is not None
        assert len(limit) <= 150
    assert starting.started == 1000


@in_virtual_time
async def test_a_retry_in_place_is_no_start_and_keeps_its_key() -> None:
    app = make_app(
        rate_limit={"rate": "1/m", "by": "key"},
        ordering="key",
        retry={"max_attempts": 3, "backoff": "1s"},
    )
    calls: list[tuple[int, int]] = []

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        calls.append((message.offset, message.attempt))
        if message.attempt < 3 and message.offset == 0:
            raise ValueError("again")

    async with running(app) as test:
        await send_of(test, "a", "a")
        await test.settled(timeout=100)
    assert calls == [(0, 1), (0, 2), (0, 3), (1, 1)]


def test_what_takes_batches_or_has_no_handler_takes_no_rate_by_value() -> None:
    app = make_app(rate_limit=BY_ORG)

    @app.incoming("orders")
    async def handler(batch: Batch[bytes]) -> None:
        """Take batches."""

    with pytest.raises(ConfigError, match=r"limits single records, but .* takes batches"):
        app.configure()
    with pytest.raises(ConfigError, match="it needs a handler"):
        make_app(rate_limit=BY_ORG).configure()


@pytest.mark.parametrize("seed", range(30))
@in_virtual_time
async def test_whatever_happens_no_value_is_faster_than_its_rate_and_all_records_come(
    seed: int,
) -> None:
    dice = random.Random(f"rates by value {seed}")
    per_second = dice.choice((1, 5, 20))
    ordering = dice.choice(("partition", "key", "unordered"))
    starting = Starting(
        rate_limit={"rate": f"{per_second}/s", "by": "header:org"},
        ordering=ordering,
        concurrency=dice.choice((1, 4)),
        max_in_flight=dice.choice((4, 20, 1000)),
        revoke_grace="1s",
        drain_timeout="1s",
    )
    sent = 0
    async with running(starting.app, partitions=2) as test:
        for _ in range(8):
            starting.handler_s = dice.choice((0.0, 0.05))
            orgs = [dice.choice(("a", "b", "c", "")) for _ in range(dice.choice((0, 3, 15)))]
            await send_of(test, *orgs, partition=dice.randrange(2))
            sent += len(orgs)
            channel = test.app.channel("orders")
            match dice.choice(("pause", "stop", "nothing")):
                case "pause":
                    channel.pause()
                    await asyncio.sleep(dice.uniform(0, 3))
                    channel.resume()
                case "stop":
                    await channel.stop()
                    await channel.start()
                case _:
                    await asyncio.sleep(dice.uniform(0, 2))
        await test.settled(timeout=400)
    # A stop repeats records that were settled behind one that was not.
    assert len(set(starting.order)) == sent
    for value, at in starting.at.items():
        for first, since in enumerate(at):
            for last in range(first, len(at)):
                most = per_second * (at[last] - since) + per_second
                assert last - first + 1 <= most * 1.001, (value, first, last)
    if ordering == "partition":
        for partition in (0, 1):
            offsets = [offset for number, offset in starting.order if number == partition]
            assert offsets == sorted(offsets)
