"""What the broker does not tell of one partition keeps no other from its start (neighbours of
N29).
"""

from __future__ import annotations

from typing import Any

import pytest

from reactive_kafka import Committed, Message
from reactive_kafka.errors import FatalBrokerError, TransientBrokerError
from reactive_kafka.events import PositionsKnown, PositionsUnknown
from tests.app.brokers import SomePositionsUnknownError
from tests.app.checkpoints import Rows, app_on
from tests.app.helpers import (
    Recorder,
    in_virtual_time,
    make_app,
    make_broker,
    now,
    running,
    send,
    tp,
    until,
)

TOLD, NOT_TOLD = 0, 1
REASONS = [
    TransientBrokerError("it is part of an open transaction"),
    FatalBrokerError("the right DESCRIBE is missing"),
]


def reason(test: Any) -> str:
    """What readiness says of the channel."""
    (check,) = [one for one in test.app.health().ready.checks if one.name == "orders"]
    return str(check.data["reason"])


@pytest.mark.parametrize("why", REASONS, ids=["transient", "fatal"])
@in_virtual_time
async def test_a_partition_whose_position_is_not_told_keeps_no_other_from_its_start(
    why: Any,
) -> None:
    recorder = Recorder()
    app, seen = make_app(recorder), list[tuple[int, bytes]]()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        seen.append((message.partition, message.payload))

    async with running(app, partitions=2) as test:
        await until(lambda: app.channel("orders").is_ready)
        for partition in (TOLD, NOT_TOLD):
            await send(test, b"before", partition=partition)
        await until(lambda: len(seen) == 2)
        in_part = SomePositionsUnknownError({tp(TOLD): Committed(1)}, {tp(NOT_TOLD): why})
        test.broker.fail_next("committed", in_part)
        test.broker.fail_next("committed", why, times=20)
        test.broker.rebalance("billing")
        await until(lambda: bool(recorder.of(PositionsUnknown)))
        for partition in (TOLD, NOT_TOLD):
            await send(test, b"after", partition=partition)
        await until(lambda: (TOLD, b"after") in seen, 1)
        assert (NOT_TOLD, b"after") not in seen
        assert f"{tp(NOT_TOLD)}: {why}" in reason(test)
        assert {told.partitions for told in recorder.of(PositionsUnknown)} == {
            frozenset({tp(NOT_TOLD)})
        }
        await until(lambda: (NOT_TOLD, b"after") in seen, 120)
        assert len(recorder.of(PositionsKnown)) == 1
        assert len(seen) == 4, "nothing is handled twice"
        await until(lambda: app.health().ready.status == "UP")


@pytest.mark.parametrize("question", ["beginning_offsets", "end_offsets"])
@pytest.mark.parametrize("why", REASONS, ids=["transient", "fatal"])
@in_virtual_time
async def test_a_topic_whose_log_is_not_told_keeps_no_other_topic_from_its_start(
    question: Any, why: Any
) -> None:
    recorder = Recorder()
    app, seen, broker = (
        make_app(recorder, topics=["told", "untold"]),
        list[tuple[str, float]](),
        make_broker(),
    )

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        seen.append((message.topic, now()))

    for topic in ("told", "untold"):
        broker.produce(topic, b"", partition=0)
    broker.fail_next(question, why)
    broker.fail_next(question, why, times=4, of="untold")
    began = now()
    async with running(app, broker=broker):
        await until(lambda: len(seen) == 2)
    (first, first_at), (last, last_at) = seen
    assert (first, last) == ("told", "untold")
    assert first_at - began < 1
    assert last_at - began > 3
    told = recorder.of(PositionsUnknown)
    assert {one.partitions for one in told} == {frozenset({tp(0, "untold")})}
    assert f"untold-0: {why}" in told[0].reason
    await broker.close()


@in_virtual_time
async def test_what_kafka_tells_in_part_does_not_pass_for_the_positions_of_a_store() -> None:
    rows, seen = Rows(), list[tuple[int, int]]()
    app = app_on(rows)

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        seen.append((message.partition, message.offset))

    broker = make_broker(2)
    async with running(app, broker=broker) as test:
        for partition in (TOLD, NOT_TOLD):
            await send(test, b"", b"", partition=partition)
    assert len(seen) == 4
    again = app_on(rows, who="b")
    again.incoming("orders")(handler)
    in_part = SomePositionsUnknownError({tp(TOLD): Committed(0)}, {tp(NOT_TOLD): REASONS[0]})
    broker.fail_next("committed", in_part, times=2)
    async with running(again, broker=broker) as test:
        for partition in (TOLD, NOT_TOLD):
            await send(test, b"", partition=partition)
        await until(lambda: len(seen) == 6)
    assert sorted(seen[4:]) == [(TOLD, 2), (NOT_TOLD, 2)]
    await broker.close()
