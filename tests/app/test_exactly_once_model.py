"""Exactly once against whatever goes wrong: two members, faults at any step, rebalances, members that vanish.

A seed draws all of it. At the end each record has exactly one result that readers of what is committed see, in the
order of its key, and the group's positions are at the ends.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import pytest

from reactive_kafka import App, Batch, Message, Record
from reactive_kafka.broker.memory.state import Request
from reactive_kafka.errors import OutcomeUnknownError, TransientBrokerError
from reactive_kafka.testing import FakeClock, MemoryBroker, TestApp, run_in_virtual_time
from tests.app.helpers import make_broker, tp, until

PARTITIONS, RECORDS = 2, 40
STEPS: tuple[Request, ...] = ("claim", "send", "add_group", "commit_in", "end", "committed", "partitions")
CALM_S = 400.0  # within that all is handled, once nothing fails any more


def member(dice: random.Random, kind: str, calls: Counter[bytes]) -> App:
    """An application that answers each order with results, fails now and then, and takes its time."""
    channel: dict[str, Any] = {
        "group_id": "billing", "auto_offset_reset": "earliest", "commit_interval": "1s", "concurrency": 2,
        "unprocessed_record_max_age": 0, "failure_strategy": "dead-letter-queue", "retry": {"max_attempts": 2},
        "batch_max_records": 5, "batch_max_wait": "100ms", "revoke_grace": "1s", "session_timeout_ms": 6000,
        "heartbeat_interval_ms": 1000, "dead_letter_queue": {"topic": "dead"},
    }  # fmt: skip
    app = App(
        {
            "incoming": {"orders": channel},
            "outgoing": {"invoices": {"transactional_id": "billing", "send_timeout": "5s"}},
        }
    )

    async def work(value: bytes) -> None:
        calls[value] += 1
        if dice.random() < 0.3:
            await asyncio.sleep(dice.choice((0.01, 0.5, 3.0)))
        if dice.random() < 0.15:
            raise ValueError("this time")

    if kind == "batch":

        @app.incoming("orders")
        @app.outgoing("invoices")
        async def in_batches(batch: Batch[bytes]) -> list[Record]:
            for message in batch:
                await work(message.payload)
            return [Record(message.payload, key=message.key) for message in batch]

    elif kind == "yields":

        @app.incoming("orders")
        @app.outgoing("invoices")
        async def yielding(message: Message[bytes]) -> Any:
            yield Record(message.payload, key=message.key)
            await work(message.payload)
            yield Record(message.payload + b"!", key=message.key)

    else:

        @app.incoming("orders")
        @app.outgoing("invoices")
        async def one_by_one(message: Message[bytes]) -> Record | None:
            await work(message.payload)
            return None if int(message.payload) % 7 == 3 else Record(message.payload, key=message.key)

    return app


async def disturb(dice: random.Random, broker: MemoryBroker) -> None:
    """One thing that goes wrong."""
    what = dice.random()
    members = list(broker.members("billing"))
    if what < 0.5:
        step = dice.choice(STEPS)
        error = dice.choice((TransientBrokerError("away"), OutcomeUnknownError("no answer")))
        stored = step in ("send", "commit_in", "end", "add_group", "claim") and dice.random() < 0.5
        broker.fail_next(step, error, dice.randint(1, 2), stored=stored)
    elif what < 0.7:
        broker.delay_next(dice.choice(STEPS), dice.choice((0.5, 8.0, 15.0)), answer=dice.random() < 0.5)
    elif what < 0.8:
        broker.rebalance("billing")
    elif what < 0.9 and members:
        broker.expire("billing", dice.choice(members), notice_after_s=dice.choice((0.0, 2.0, 8.0)))
    else:
        broker.down = True
        await asyncio.sleep(dice.choice((0.2, 3.0, 12.0)))
        broker.down = False


async def play(seed: int, kind: str) -> None:
    dice = random.Random(f"{seed} {kind}")
    broker = make_broker(PARTITIONS)
    broker.create_topic("invoices", 2)
    sent: dict[bytes, bytes] = {}
    for number in range(RECORDS):
        value, key = b"%d" % number, b"%d" % (number % 5)
        sent[value] = key
        broker.produce("orders", value, key=key, partition=number % 5 % PARTITIONS)
    calls: Counter[bytes] = Counter()
    async with TestApp(member(dice, kind, calls), broker=broker):
        async with TestApp(member(dice, kind, calls), broker=broker):
            for _ in range(dice.randint(1, 12)):
                await asyncio.sleep(dice.choice((0.0, 0.05, 0.3, 1.0)))
                await disturb(dice, broker)
        await until(lambda: done(broker), CALM_S)
        await asyncio.sleep(60)  # what is late comes by then
    dead = [record.value for at in range(4) for record in log_of(broker, "dead", at)]
    results = [record for at in range(2) for record in log_of(broker, "invoices", at)]
    found = Counter(record.value for record in results)
    expected = Counter(of_kind(kind, [value for value in sent if value not in dead]))
    assert found == expected, (found - expected, expected - found)
    assert max(Counter(dead).values(), default=1) == 1
    for key in set(sent.values()):
        mine = [int((record.value or b"").rstrip(b"!")) for record in results if record.key == key]
        assert mine == sorted(mine)
    await broker.close()


def of_kind(kind: str, values: list[bytes]) -> list[bytes]:
    if kind == "yields":
        return values + [value + b"!" for value in values]
    return values if kind == "batch" else [value for value in values if int(value) % 7 != 3]


def log_of(broker: MemoryBroker, topic: str, partition: int) -> Any:
    if topic not in broker.topics() or partition >= broker.topics()[topic]:
        return ()
    return broker.committed_log(tp(partition, topic))


def done(broker: MemoryBroker) -> bool:
    position_of = {one: where.offset for one, where in broker.committed("billing").items()}
    return all(position_of.get(tp(at), 0) >= broker.end(tp(at)) for at in range(PARTITIONS))


@pytest.mark.parametrize("kind", ["records", "yields", "batch"])
@pytest.mark.parametrize("seed", range(30))
def test_each_record_has_one_result(seed: int, kind: str) -> None:
    async def main(clock: FakeClock) -> None:
        await play(seed, kind)

    run_in_virtual_time(main)
