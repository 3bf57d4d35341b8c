"""Every place where a task is started, and what it costs when that task goes wrong: its owner, and
nobody else.
"""

from __future__ import annotations

import ast
import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from reactive_kafka import App, Message, Record
from reactive_kafka.errors import BrokerError
from reactive_kafka.events import ChannelFailed, EndFailed, RecordIgnored
from reactive_kafka.testing import MemoryBroker, TestApp, VirtualTimeLoop
from tests.app.checkpoints import MemoryStore, Rows, app_on, store_of
from tests.app.helpers import Recorder, in_virtual_time, make_broker, now, running, send, until
from tests.app.sabotage import Odd, Sabotage
from tests.app.spark_stage import spark_app

PACKAGE = Path(__file__).parent.parent.parent / "reactive_kafka"
STARTS = {
    "create_task",
    "ensure_future",
    "start_soon",
    "spawn",
    "_spawn",
    "_in_background",
    "Handle",
    "TaskGroup",
}

OWNED = {
    "runtime.run._supervise": ("loop lag",),
    "channel.channel_session.start": ("poison watch of orders",),
    "channel.lifecycle.fail": ("end of orders",),
    "channel.outbox_relay.begin": ("outbox of orders to invoices",),
    "channel.clients.start": ("channel orders", "committer of orders", "delayed retries of orders"),
    "delivery.workers.pool._start_worker": ("worker 1 of orders",),
    "nacks.handling._finish_in_task": ("failure of orders-0 offset 0",),
    "nacks.handling._take_when_store_answers": ("outcome of orders-0 offset 0",),
    "channel.client_connection._beside": ("broker check of orders", "position lookup of orders"),
    "spark.channel.dispatcher.work_is_there": ("spark batches of orders",),
    "spark.channel.dispatcher._start": ("spark batch 1 of orders",),
    "spark.channel.dispatcher._prepare_next": ("Spark plan of orders",),
    "nacks.letter_writer.start": ("topics of failures of orders",),
    "outgoing.queue.writer._background": ("outgoing invoices", "outgoing orders"),
    "outgoing.transactions.transactional_writer._background": (
        "outgoing invoices",
        "transactions of invoices",
        "brokers of invoices",
    ),
    "outgoing.transactions.exactly_once._end_in_a_task": ("transaction of orders",),
    "outgoing.transactions.transactional_letters._start_pump": ("dead letters of orders-0",),
    "outgoing.requests._begin": ("replies of requests",),
    "runtime.readiness.start": ("readiness cache",),
    "runtime.sources.start": ("source of another test",),
    "broker.auto_commit.start": ("auto-commit", "commits to Kafka of orders"),
    "http.server.serve": ("http",),
    "spark.session.spark_engine.open": ("spark-supervisor",),
}
"""Where a task is started for an owner -> its names in the applications below."""

PASSED_ON = {
    "channel.clients._until_closed",
    "nacks.letter_writer._in_background",
    "tasks.start",
}
"""They start what others give them."""

AWAITED = {
    "http.server.serve_handed": "of a worker of --workers; its failure ends the run, as that of serve",
    "delivery.workers.isolation.in_task": "waited for there",
    "broker.aiokafka.kafka_consumer.stop": "whoever disconnects waits for it",
    "broker.consumer.membership.member_tasks.start": "the next poll raises it",
    "tasks._start": "the caller on another loop gets what it raises",
    "control.operator_actions._in_time": "the answer says what it raises",
    "control.replays.start": "the replay's state says what it raises",
    "http.fact_stream.__call__": "waited for there",
    "broker.consumer.fetching.node_fetcher.__init__": "the next poll raises it",
    "broker.consumer.fetching.node_fetcher._start": "the next poll raises it",
    "broker.consumer.membership.static_assignment._pass_on": "the next poll raises it",
    "broker.aiokafka.kafka_client.bootstrap": "it logs what goes wrong, and asks again",
    "broker.aiokafka.cluster_queries.anybody_answers": "waited for there",
    "broker.aiokafka.moved_brokers.answers_soon": "waited for there",
    "broker.aiokafka.moved_brokers.look": "the loop logs what it raises, and the next check looks again",
    "broker.aiokafka.replaceable_client.replace": "who sends waits for it",
    "broker.aiokafka.replaceable_client._retire": "closing a client raises nothing",
    "broker.aiokafka.topic_ids.topic_ids_of_all": "who asks waits for them",
    "broker.aiokafka.closing.finish": "waited for there",
    "broker.ranges._begin_look": "the next poll takes its result",
    "handlers.dependencies.filling.open": "the start waits for what it makes; one that ends later ends the application",
    "channel.clients.store_plans": "a group that waits for them",
    "spark.channel.batch_job.run": "waited for there",
    "spark.channel.frame_ahead.__init__": "its batch waits for it",
    "spark.channel.settle._unless_stopped": "waited for there",
    "runtime.run.start": "whoever stops the application waits for it",
    "runtime.run.wait_asked": "waited for there",
    "spark.session.spark_job.to_its_end": "waited for there",
    "spark.session.supervisor._watch": "looked at with each look at the session",
    "tasks.__init__": "the one way to start a task for an owner",
    "tasks.outcome_of": "waited for there",
}
"""Where a task is started that somebody waits for, who gets what it raises."""

FOR_TESTS_AND_COMMANDS = ("broker.memory", "cli.")


def places() -> set[str]:
    """``module.function`` of each call that starts a task."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                found |= {
                    f"{module}.{function.name}"
                    for call in ast.walk(function)
                    if _starts_a_task(call)
                }
    return found


def _starts_a_task(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    called = node.func
    # Of Tasks, in running.py.
    if isinstance(called, ast.Attribute) and called.attr == "start":
        return isinstance(called.value, ast.Name) and called.value.id == "tasks"
    return (
        called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    ) in STARTS


def test_every_place_where_a_task_is_started_is_known_and_its_task_has_an_owner() -> None:
    found = {place for place in places() if not place.startswith(FOR_TESTS_AND_COMMANDS)}
    assert found == OWNED.keys() | PASSED_ON | AWAITED.keys()


# -- applications in which each of these tasks runs


@dataclass
class Scene:
    """An application with the channel orders, whose tasks go wrong, and its neighbour others."""

    app: App
    broker: MemoryBroker
    sabotage: Sabotage
    recorder: Recorder
    handled: list[bytes] = field(default_factory=list)

    async def neighbour_handles(self, value: bytes) -> None:
        self.broker.produce("others", value)
        await until(lambda: value in self.handled, 30)

    @property
    def failed(self) -> list[str]:
        return [event.channel for event in self.recorder.of(ChannelFailed)]


TRANSACTIONAL = ("transaction of orders", "dead letters of orders-0")
"""The tasks that a channel has where its handler's outputs are transactions."""


def app_of(
    scene_handled: list[bytes],
    recorder: Recorder,
    orders: dict[str, Any],
    *,
    emits: bool,
    transactional: bool = False,
    outbox: bool = False,
) -> App:
    tables: dict[str, Any] = {
        "orders": {
            "group_id": "billing",
            "auto_offset_reset": "earliest",
            "drain_timeout": "2s",
            **orders,
        },
        "others": {"group_id": "others", "auto_offset_reset": "earliest", "commit_interval": "1h"},
    }
    invoices: dict[str, Any] = (
        {"transactional_id": "billing"} if transactional else {"wait_for_write": False}
    )
    if outbox:
        invoices = {"outbox": True}
    app = App(
        {"http": {"enabled": False}, "incoming": tables, "outgoing": {"invoices": invoices}},
        observer=recorder,
    )

    async def orders_handler(value: bytes) -> Any:
        if value == b"bad":
            raise ValueError("bad")
        return Record(value) if emits else None

    if emits:
        app.outgoing("invoices")(orders_handler)
    app.incoming("orders")(orders_handler)

    app.readiness("cache")(lambda: None)

    @app.incoming("others")
    async def others_handler(value: bytes) -> None:
        scene_handled.append(value)

    return app


CHECKPOINTS = {"commit_strategy": "checkpoint", "checkpoint": {"store": "memory://unused"}}
LETTERS = {"failure_strategy": "dead-letter-queue"}
RETRIES = {
    "failure_strategy": "delayed-retry-topic",
    "delayed_retry": {"topics": ["orders_retry_1000"]},
}


@asynccontextmanager
async def scene(pattern: str, error: BaseException | None, **orders: Any) -> AsyncIterator[Scene]:
    """The application under way, with one task of it that goes wrong; in the end every promise of
    the neighbour's.
    """
    broker, recorder, handled = make_broker(1), Recorder(), list[bytes]()
    sabotage = Sabotage(pattern, error)
    loop = asyncio.get_running_loop()
    loop.set_task_factory(sabotage)
    transactional = pattern in TRANSACTIONAL
    app = app_of(
        handled,
        recorder,
        orders,
        emits="invoices" in pattern or transactional,
        transactional=transactional,
        outbox=pattern.startswith("outbox"),
    )
    app._connector = broker.connector()
    app._stores = lambda _: MemoryStore(Rows())
    assert isinstance(loop, VirtualTimeLoop)
    app._clock = loop.clock
    broker.produce("orders", b"bad")
    broker.produce("orders", b"good")
    try:
        await app.start()
        here = Scene(app, broker, sabotage, recorder, handled)
        await until(lambda: sabotage.hit is not None, 30)
        yield here
        began = now()
        await app.stop()
        assert now() - began < 30
        committed = [one.offset for one in broker.committed("others").values()]
        assert committed == ([len(handled)] if handled else committed)
    finally:
        loop.set_task_factory(None)
        await broker.close()


HOWS: dict[str, Callable[[], BaseException]] = {
    "raises": lambda: ZeroDivisionError("sabotage"),
    "is cancelled": asyncio.CancelledError,
    "ends oddly": lambda: Odd("sabotage"),
}
OF_ORDERS: dict[str, dict[str, Any]] = {
    "channel orders": {},
    "committer of orders": {},
    "poison watch of orders": {},
    "worker 1 of orders": {"failure_strategy": "ignore"},
    "broker check of orders": {},
    "delayed retries of orders": RETRIES,
    "topics of failures of orders": LETTERS,
    "failure of orders-0 offset 0": LETTERS,
    "outgoing orders": LETTERS,
    "dead letters of orders-0": LETTERS,
    "auto-commit": {"commit_strategy": "ignore", "enable_auto_commit": True},
    "commits to Kafka of orders": CHECKPOINTS,
    "outbox of orders to invoices": CHECKPOINTS,
}
"""The tasks of the channel orders -> settings with which it has them."""


ALL_OF_ORDERS = [(name, how) for name in OF_ORDERS for how in HOWS]
# By a handler that has left something behind: it goes on.
ALL_OF_ORDERS.remove(("worker 1 of orders", "is cancelled"))


@pytest.mark.parametrize(("name", "how"), ALL_OF_ORDERS)
@in_virtual_time
async def test_a_task_of_a_channel_that_goes_wrong_fails_its_channel_with_a_reason_and_no_other(
    name: str, how: str
) -> None:
    async with scene(name, HOWS[how](), **OF_ORDERS[name]) as here:
        await until(lambda: "orders" in here.failed, 30)
        (failed, *_) = here.recorder.of(ChannelFailed)
        assert failed.error is not None
        assert "sabotage" in failed.reason or "CancelledError" in failed.reason
        health = here.app.health()
        assert (health.live.status, health.ready.status) == ("DOWN", "DOWN")
        assert set(here.failed) == {"orders"}
        await here.neighbour_handles(b"goes on")
        (neighbour,) = (check for check in here.app.health().live.checks if check.name == "others")
        assert neighbour.status == "UP"


OF_WRITING = {
    name: {"failure_strategy": "ignore"}
    for name in ("write to invoices-0", "transaction of orders")
}


@pytest.mark.parametrize("how", HOWS)
@in_virtual_time
async def test_a_write_that_goes_wrong_is_the_failure_of_its_record_and_of_nothing_else(
    how: str,
) -> None:
    async with scene("write to invoices-0", HOWS[how](), failure_strategy="ignore") as here:
        await until(lambda: len(here.recorder.of(RecordIgnored)) == 2, 30)
        reason = here.recorder.of(RecordIgnored)[1].reason
        assert "sabotage" in reason or "CancelledError" in reason
        await here.neighbour_handles(b"goes on")
        assert here.failed == []


@in_virtual_time
async def test_the_end_of_a_transaction_that_goes_wrong_is_the_failure_of_its_record_and_of_nothing_else() -> (
    None
):
    async with scene(
        "transaction of orders", ZeroDivisionError("sabotage"), failure_strategy="ignore"
    ) as here:
        await until(lambda: len(here.recorder.of(RecordIgnored)) == 2, 30)
        assert "sabotage" in here.recorder.of(RecordIgnored)[1].reason
        await here.neighbour_handles(b"goes on")
        assert here.failed == []


@pytest.mark.parametrize("how", ["is cancelled", "ends oddly"])
@in_virtual_time
async def test_the_end_of_a_transaction_that_is_ended_by_something_else_fails_its_channel(
    how: str,
) -> None:
    async with scene("transaction of orders", HOWS[how](), failure_strategy="ignore") as here:
        await until(lambda: here.failed == ["orders"], 30)
        await here.neighbour_handles(b"goes on")


@pytest.mark.parametrize("name", [*OF_ORDERS, *OF_WRITING, "end of orders"])
@in_virtual_time
async def test_a_task_of_a_channel_that_hangs_holds_up_neither_its_neighbour_nor_the_stop(
    name: str,
) -> None:
    async with scene(
        name, None, **(OF_ORDERS | OF_WRITING).get(name, {"failure_strategy": "fail"})
    ) as here:
        await here.neighbour_handles(b"goes on")


@pytest.mark.parametrize("how", HOWS)
@in_virtual_time
async def test_what_goes_wrong_while_a_failed_channel_lets_go_is_told_and_costs_no_other(
    how: str,
) -> None:
    async with scene("end of orders", HOWS[how](), failure_strategy="fail") as here:
        await until(lambda: here.recorder.of(EndFailed) or len(here.failed) > 1, 30)
        await here.neighbour_handles(b"goes on")
        await until(lambda: here.broker.members("billing") == {}, 30)


@pytest.mark.parametrize("how", HOWS)
@in_virtual_time
async def test_an_outgoing_channel_whose_task_goes_wrong_has_failed_and_its_neighbours_go_on(
    how: str,
) -> None:
    async with scene("outgoing invoices", HOWS[how](), failure_strategy="ignore") as here:
        await until(lambda: here.failed == ["invoices"], 30)
        (check,) = (check for check in here.app.health().live.checks if check.name == "invoices")
        assert (check.status, check.data["state"]) == ("DOWN", "failed")
        await here.neighbour_handles(b"goes on")


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("name", ["loop lag", "readiness cache"])
@in_virtual_time
async def test_a_task_of_the_application_that_goes_wrong_ends_it_in_order_and_every_probe_says_down(
    name: str, how: str
) -> None:
    async with scene(name, HOWS[how]()) as here:
        here.broker.produce("others", b"one")
        run = here.app._run
        assert run is not None
        await until(lambda: run.has_ended, 60)
        health = here.app.health()
        assert {health.live.status, health.ready.status, health.started.status, health.status} == {
            "DOWN"
        }
        (application,) = (check for check in health.live.checks if check.name == "application")
        assert "the application has failed: " in application.data["reason"]
        assert here.broker.members("billing") == here.broker.members("others") == {}
        assert run.exit_code() == 1


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("name", ["spark batches of orders", "spark batch 1 of orders"])
@in_virtual_time
async def test_a_task_of_a_spark_channel_that_goes_wrong_fails_its_channel(
    name: str, how: str
) -> None:
    broker, recorder = make_broker(1), Recorder()
    app, _ = spark_app(broker, recorder)
    sabotage = Sabotage(name, HOWS[how]())
    loop = asyncio.get_running_loop()
    loop.set_task_factory(sabotage)
    broker.produce("orders", b"1")
    try:
        async with TestApp(app, broker=broker):
            await until(lambda: recorder.of(ChannelFailed), 60)
            assert sabotage.hit == name
            assert app.channel("orders").facts().state == "failed"
    finally:
        loop.set_task_factory(None)
        await broker.close()


@pytest.mark.parametrize("how", HOWS)
async def test_the_http_server_whose_task_goes_wrong_ends_the_application_in_order(
    how: str,
) -> None:
    broker, loop = make_broker(1), asyncio.get_running_loop()
    app = App({"http": {"port": 0}, "incoming": {"orders": {"group_id": "billing"}}})
    app.incoming("orders")(_nothing)
    app._connector = broker.connector()
    loop.set_task_factory(Sabotage("http", HOWS[how]()))
    try:
        await app.start()
        run = app._run
        assert run is not None
        await until(lambda: run.has_ended)
        assert run.exit_code() == 1
        assert app.health().live.status == "DOWN"
        await app.stop()
    finally:
        loop.set_task_factory(None)
        await broker.close()


async def _nothing(value: bytes) -> None: ...


@pytest.mark.parametrize("how", HOWS)
@in_virtual_time
async def test_asking_a_store_for_an_outcome_that_goes_wrong_fails_its_channel(how: str) -> None:
    rows, recorder, loop = Rows(), Recorder(), asyncio.get_running_loop()
    app = app_on(rows, recorder, failure_strategy="ignore")
    sabotage = Sabotage("outcome of orders-0 offset 0", HOWS[how]())
    loop.set_task_factory(sabotage)

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        with suppress(BrokerError):
            async with message.transaction():
                pass
        raise ValueError("whether it was stored is not known")

    try:
        async with running(app) as test:
            store_of(app).faults.script("exit", "late")
            await send(test, b"x")
            await until(lambda: recorder.of(ChannelFailed), 60)
            assert sabotage.hit is not None
    finally:
        loop.set_task_factory(None)
