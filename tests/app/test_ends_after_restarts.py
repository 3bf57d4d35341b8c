"""What was reported to be wrong is reported to be over, also if it ended while the channel was down
between its failure and its restart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from reactive_kafka import App, Message, TopicPartition, TransientBrokerError
from reactive_kafka.events import (
    BrokerAvailable,
    BrokerUnavailable,
    Event,
    LeadersAway,
    LeadersBack,
    PositionsKnown,
    PositionsUnknown,
    SessionOver,
    SessionUp,
    StoreAvailable,
    StoreUnavailable,
    TopicFound,
    TopicMissing,
)
from reactive_kafka.testing import TestApp
from tests.app.brokers import SomePositionsUnknownError
from tests.app.checkpoints import Rows, app_on, store_of
from tests.app.helpers import (
    Recorder,
    facts,
    in_virtual_time,
    make_app,
    make_broker,
    running,
    tp,
    until,
)

RESTART = {"restart": {"backoff": "2m", "max_backoff": "2m", "max_attempts": 1}}


@dataclass(frozen=True)
class Problem:
    """A problem, and the events that it is told with."""

    begin: Callable[[TestApp], None]
    end: Callable[[TestApp], None]
    begun: type[Event]
    over: type[Event]


def broker_away(test: TestApp) -> None:
    test.broker.down = True


def broker_back(test: TestApp) -> None:
    test.broker.down = False


def topic_gone(test: TestApp) -> None:
    test.broker.delete_topic("others")


def topic_there(test: TestApp) -> None:
    test.broker.create_topic("others", 1)


def leader_away(test: TestApp) -> None:
    test.broker.leader_away(tp(1), "2 at host:9092")


def leader_back(test: TestApp) -> None:
    test.broker.leader_back(tp(1))


def store_away(test: TestApp) -> None:
    store_of(test.app).faults.away = True


def store_back(test: TestApp) -> None:
    store_of(test.app).faults.away = False


def position_unknown(test: TestApp) -> None:
    known = {tp(0): None, TopicPartition("others", 0): None}
    unknown = SomePositionsUnknownError(known, {tp(1): TransientBrokerError("no answer")})
    test.broker.fail_next("committed", unknown)
    test.broker.rebalance("billing")


def position_known(test: TestApp) -> None:
    """The next answer has it."""


PROBLEMS = {
    "broker": Problem(broker_away, broker_back, BrokerUnavailable, BrokerAvailable),
    "session": Problem(broker_away, broker_back, SessionOver, SessionUp),
    "topic": Problem(topic_gone, topic_there, TopicMissing, TopicFound),
    "leader": Problem(leader_away, leader_back, LeadersAway, LeadersBack),
    "store": Problem(store_away, store_back, StoreUnavailable, StoreAvailable),
    "position": Problem(position_unknown, position_known, PositionsUnknown, PositionsKnown),
}


def failing_app(name: str, recorder: Recorder, fails: asyncio.Event, seen: list[int]) -> App:
    """An application whose first call lasts until *fails* is set, and raises then."""
    orders: dict[str, Any] = {"topics": ["orders", "others"], **RESTART}
    app = app_on(Rows(), recorder, **orders) if name == "store" else make_app(recorder, **orders)

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        seen.append(message.offset)
        if len(seen) == 1:
            await fails.wait()
            raise ValueError("no")

    return app


@pytest.mark.parametrize("name", PROBLEMS)
@in_virtual_time
async def test_a_problem_that_ends_before_the_restart_is_told_to_be_over(name: str) -> None:
    problem = PROBLEMS[name]
    recorder, fails, seen = Recorder(), asyncio.Event(), list[int]()
    broker = make_broker(2)
    broker.create_topic("others", 1)
    app = failing_app(name, recorder, fails, seen)
    async with running(app, broker=broker) as test:
        broker.produce("orders", b"", partition=0)
        await until(lambda: seen)
        problem.begin(test)
        await until(lambda: recorder.of(problem.begun), 100)
        fails.set()
        await until(lambda: facts(test).state == "failed")
        problem.end(test)
        assert recorder.of(problem.over) == []
        await until(lambda: len(seen) == 2, 200)
        await until(lambda: app.health().ready.status == "UP", 20)
        assert len(recorder.of(problem.begun)) == len(recorder.of(problem.over)) == 1
    await broker.close()
