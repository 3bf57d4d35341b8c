"""Outputs that cannot be written although their record is settled: they are told, counted, and
warned of.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from prometheus_client import generate_latest

from reactive_kafka import App, Batch, Message
from reactive_kafka.errors import RejectedRecordError
from reactive_kafka.events import OutputLost
from reactive_kafka.testing import TestApp
from reactive_kafka.testing.settlement import NotSettledError
from tests.app.checkpoints import CHECKPOINT, MemoryStore, Rows, app_on
from tests.app.helpers import Recorder, facts, in_virtual_time, make_app, running, send, until

# For so long readiness reports an output that was lost.
LOST_REPORTED_S = 300.0


def lost(test: TestApp) -> int:
    return sum(one.outputs_lost for one in facts(test).totals.values())


def counted(app: App) -> float:
    """What a scrape says."""
    text = generate_latest(app.registry).decode()
    (value,) = re.findall(
        r'^reactive_kafka_outputs_lost_total\{channel="orders"\} (\S+)$', text, re.MULTILINE
    )
    return float(value)


def storing_app(recorder: Recorder, *, waits: bool, **orders: Any) -> App:
    """An application with a store that has transactions, and an outgoing channel that waits for its
    writes, or not.
    """
    app = App(
        {
            "incoming": {
                "orders": {
                    "group_id": "billing",
                    "auto_offset_reset": "earliest",
                    "commit_strategy": "checkpoint",
                    "checkpoint": CHECKPOINT,
                    "batch_max_wait": "100ms",
                    "failure_strategy": "ignore",
                    **orders,
                }
            },
            "outgoing": {"invoices": {"wait_for_write": waits}},
        },
        observer=recorder,
    )
    store = MemoryStore(Rows(), who="a")
    app._stores = lambda _: store
    return app


@pytest.mark.parametrize("fails", ["made", "refused", "yielded"])
@pytest.mark.parametrize("shape", ["message", "batch"])
@pytest.mark.parametrize("waits", [True, False])
@in_virtual_time
async def test_an_output_that_fails_behind_the_transaction_is_told_everywhere(
    waits: bool, shape: str, fails: str
) -> None:
    recorder = Recorder()
    app = storing_app(recorder, waits=waits)

    async def store(given: Any) -> Any:
        async with given.transaction() as connection:
            connection[id(given)] = 1
        return object() if fails == "made" else b"made"

    async def store_one(message: Message[bytes]) -> Any:
        return await store(message)

    async def store_all(batch: Batch[bytes]) -> Any:
        return await store(batch)

    async def yield_one(message: Message[bytes]) -> Any:
        yield await store(message)

    async def yield_all(batch: Batch[bytes]) -> Any:
        yield await store(batch)

    plain, yielding = (store_one, yield_one) if shape == "message" else (store_all, yield_all)
    app.incoming("orders")(app.outgoing("invoices")(yielding if fails == "yielded" else plain))
    async with running(app) as test:
        if fails != "made":
            test.broker.fail_next("send", RejectedRecordError("too large"), of="invoices", times=20)
        await send(test, b"x", b"y", b"z")
        await until(lambda: lost(test) == 3)
        assert sorted(event.offset for event in recorder.of(OutputLost)) == [0, 1, 2]
        assert test.records("invoices") == []
        with pytest.raises(NotSettledError, match="the output of 3 settled records is lost"):
            await test.settled()
        health = app.health()
        assert health.live.is_up and not health.ready.is_up
        assert "outputs of settled records are lost" in str(health)
        assert counted(app) == 3
        await asyncio.sleep(LOST_REPORTED_S)
        assert app.health().ready.is_up
        assert counted(app) == 3


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("ack", ["manual", "pre"])
@in_virtual_time
async def test_so_is_the_output_of_a_record_that_was_acked_before(ack: Any, waits: bool) -> None:
    recorder = Recorder()
    app = App(
        {
            "incoming": {"orders": {"group_id": "billing", "auto_offset_reset": "earliest"}},
            "outgoing": {"invoices": {"wait_for_write": waits}},
        },
        observer=recorder,
    )

    @app.incoming("orders", ack=ack)
    @app.outgoing("invoices")
    async def handler(message: Message[bytes]) -> bytes:
        message.ack()
        return b"made"

    async with running(app) as test:
        test.broker.fail_next("send", RejectedRecordError("too large"), of="invoices", times=20)
        await send(test, b"x")
        await until(lambda: lost(test) == 1)
        assert [event.offset for event in recorder.of(OutputLost)] == [0]


@in_virtual_time
async def test_an_output_that_fails_before_its_record_is_settled_is_not_lost() -> None:
    recorder = Recorder()
    app = make_app(recorder, failure_strategy="dead-letter-queue")

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(order: bytes) -> bytes:
        return b"made"

    async with running(app) as test:
        test.broker.fail_next("send", RejectedRecordError("too large"), of="invoices")
        await send(test, b"x")
        await test.settled()
        assert len(test.records("dead-letter-topic-orders")) == 1
        assert (lost(test), counted(app)) == (0, 0)
        assert recorder.of(OutputLost) == []
        assert app.health().ready.is_up


# -- the warning


async def helper(message: Message[bytes]) -> None:
    async with message.transaction():
        pass


async def stores_and_returns(message: Message[bytes]) -> bytes:
    async with message.transaction():
        return b""


async def stores_all_and_returns(batch: Batch[bytes]) -> bytes:
    async with batch.transaction():
        return b""


async def stores_by_a_helper(message: Message[bytes]) -> bytes:
    await helper(message)
    return b""


async def stores_in_a_function_inside(message: Message[bytes]) -> bytes:
    async def inside() -> None:
        async with message.transaction():
            pass

    await inside()
    return b""


async def only_returns(message: Message[bytes]) -> bytes:
    return b""


def told(app: App, handler: Any, *, sends: bool = True) -> list[str]:
    app.incoming("orders")(app.outgoing("invoices")(handler) if sends else handler)
    app.configure()
    assert app._plan is not None
    return [warning for warning in app._plan.warnings if "transaction()" in warning]


@pytest.mark.parametrize(
    "handler",
    [stores_and_returns, stores_all_and_returns, stores_by_a_helper, stores_in_a_function_inside],
)
def test_a_handler_that_returns_what_is_sent_after_its_transaction_is_warned_of(
    handler: Any,
) -> None:
    (warning,) = told(app_on(Rows()), handler)
    assert (
        'commit_strategy = "checkpoint"' in warning or "commit_strategy = 'checkpoint'" in warning
    )
    assert "@app.outgoing('invoices')" in warning and handler.__name__ in warning
    assert "outbox" in warning


def test_what_has_no_such_pair_is_not_warned_of() -> None:
    assert told(app_on(Rows()), only_returns) == []
    assert told(app_on(Rows()), helper, sends=False) == []
    assert told(make_app(), stores_and_returns) == []
