"""What piles up while an answer is awaited has a bound: docs/commits.md names a test of each."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from reactive_kafka import App, Message, TransientBrokerError
from tests.app.handlers import keep_messages
from tests.app.helpers import (
    facts,
    in_virtual_time,
    make_app,
    make_broker,
    running,
    send,
    tp,
    until,
)
from tests.app.test_exactly_once import app_with as exactly_once
from tests.app.test_exactly_once import position

# Most transactions of a channel at a time.
MOST_PRODUCERS = 16


@pytest.mark.parametrize(("incoming", "outgoing"), [(20, 1_000), (1_000, 20)])
@in_virtual_time
async def test_records_whose_output_is_not_written_take_room(incoming: int, outgoing: int) -> None:
    app, handled = (
        App(
            {
                "incoming": {
                    "orders": {
                        "group_id": "billing",
                        "auto_offset_reset": "earliest",
                        "max_in_flight": incoming,
                    }
                },
                "outgoing": {"invoices": {"max_in_flight": outgoing, "wait_for_write": False}},
            }
        ),
        [0],
    )

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(order: bytes) -> bytes:
        handled[0] += 1
        return order

    async with running(app) as test:
        test.broker.fail_next("send", TransientBrokerError("no leader"), times=10)
        await send(test, *[b"x"] * 2_000)
        await asyncio.sleep(0.5)
        assert 20 <= handled[0] <= 21, "one more waits for room"
        await until(lambda: handled[0] == 2_000, 120)
        await test.settled(timeout=60)


@pytest.mark.parametrize("ordering", ["partition", "key", "unordered"])
@in_virtual_time
async def test_records_whose_letters_are_not_written_take_room(ordering: str) -> None:
    orders: dict[str, Any] = {"ordering": ordering, "max_in_flight": 20, "concurrency": 5}
    app, handled = make_app(failure_strategy="dead-letter-queue", **orders), [0]

    @app.incoming("orders")
    async def handler(order: bytes) -> None:
        handled[0] += 1
        raise ValueError("bad")

    broker = make_broker(1)
    for number in range(500):
        broker.produce("orders", b"x", key=b"%d" % number, partition=0)
    broker.fail_next("send", TransientBrokerError("no leader"), times=1_000)
    async with running(app, broker=broker) as test:
        await asyncio.sleep(30)
        most = {"partition": 1, "key": 10 * 20, "unordered": 20}[ordering]
        assert 0 < handled[0] <= most
        assert facts(test).partitions[0].committed in (None, 0)


@in_virtual_time
async def test_verdicts_that_wait_for_an_assignment_are_no_more_than_what_was_in_flight() -> None:
    kept = list[Message[bytes]]()
    app = make_app(
        ack="manual", max_in_flight=20, concurrency=20, ordering="unordered", revoke_grace="100ms"
    )
    keep_messages(app, kept)

    async with running(app) as test:
        await send(test, *[b""] * 200)
        await until(lambda: len(kept) == 20)
        asking = test.broker.hold("committed")
        test.broker.rebalance("billing")
        await asking.arrived()
        answers = [message.ack() for message in list(kept)]
        again = [message.ack() for message in list(kept)]
        await asyncio.sleep(1)
        assert len(kept) == 20, "what they have freed brings no more"
        assert not any(answer.done() for answer in answers)
        assert all(answer.done() for answer in again), "a second verdict waits for nothing"
        asking.release()
        assert all(await asyncio.gather(*answers))
        await until(lambda: len(kept) == 40)


@in_virtual_time
async def test_open_transactions_are_no_more_than_there_are_producers_and_the_others_wait_their_turn() -> (
    None
):
    partitions = MOST_PRODUCERS + 9
    app = exactly_once(concurrency=partitions, max_in_flight=1_000)

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(order: bytes) -> bytes:
        return order

    broker = make_broker(partitions)
    broker.create_topic("invoices", 1)
    for partition in range(partitions):
        broker.produce("orders", b"%d" % partition, partition=partition)
    broker.delay_next("end", seconds=3.0, times=MOST_PRODUCERS)
    async with running(app, broker=broker) as test:
        await until(lambda: broker.end(tp(0, "invoices")) >= MOST_PRODUCERS)
        await asyncio.sleep(1)
        assert broker.end(tp(0, "invoices")) == MOST_PRODUCERS, (
            "so many transactions have a record, and no more"
        )
        assert [position(broker, at) for at in range(partitions)] == [None] * partitions
        await until(lambda: all(position(broker, at) == 1 for at in range(partitions)), 60)
        await test.settled()
        assert len(broker.committed_log(tp(0, "invoices"))) == partitions


@in_virtual_time
async def test_what_a_channel_of_transactions_has_settled_without_an_output_is_bounded_too() -> (
    None
):
    app, handled = exactly_once(max_in_flight=10, max_uncommitted=50), [0]

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(order: bytes) -> None:
        handled[0] += 1

    async with running(app) as test:
        test.broker.fail_next("commit_in", TransientBrokerError("refused"), times=60)
        await send(test, *[b""] * 1_000)
        await asyncio.sleep(30)
        assert 50 <= handled[0] <= 60
        assert "(max_uncommitted = 50)" in str(facts(test).not_ready)
        await until(lambda: handled[0] == 1_000, 600)
        await until(lambda: position(test.broker) == 1_000, 60)


def test_each_row_of_the_page_names_a_test_that_there_is() -> None:
    here = Path(__file__).parent
    page = (here.parent.parent / "docs" / "commits.md").read_text(encoding="utf-8")
    table = page.partition("## What is bounded, and by what")[2].partition("\n## ")[0]
    rows = [
        line
        for line in table.splitlines()
        if line.startswith("| ") and not line.startswith("| what waits")
    ]
    assert len(rows) == 6
    for row in rows:
        named = re.findall(r"`(test_\w+\.py)::(test_\w+)`", row)
        assert named, row
        for file, test in named:
            assert f"def {test}(" in (here / file).read_text(encoding="utf-8"), test
