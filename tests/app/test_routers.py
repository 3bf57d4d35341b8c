"""Routers: what modules of handlers declare without an application, and the application that
includes them.
"""

from __future__ import annotations

from typing import Any

import pytest

from reactive_kafka import (
    App,
    ChannelClosedError,
    ConfigError,
    Message,
    Record,
    Router,
    TopicPartition,
)
from tests.app.handlers import take_all
from tests.app.helpers import in_virtual_time, make_app, running, send


@in_virtual_time
async def test_handlers_hooks_and_emitters_of_a_router_are_the_applications() -> None:
    router, told = Router(), list[Any]()
    emitter = router.emitter("invoices")

    @router.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        told.append(message.payload)
        await emitter.send({"from": "emitter"})

    @router.on_start
    async def begins() -> None:
        told.append("start")

    @router.before_stop
    async def ends() -> None:
        told.append("stop")

    @router.on_assigned("orders")
    async def assigned(partitions: frozenset[TopicPartition]) -> None:
        told.append("assigned")

    @router.on_revoked("orders")
    async def revoked(partitions: frozenset[TopicPartition]) -> None:
        told.append("revoked")

    app = make_app()
    app.include(router)
    async with running(app) as test:
        await send(test, b"x")
        await test.settled()
        assert len(test.records("invoices")) == 1
    assert told == ["start", "assigned", b"x", "stop", "revoked"]


@in_virtual_time
async def test_one_function_may_be_declared_by_a_router_and_by_what_includes_it() -> None:
    app, outer, inner = make_app(), Router(), Router()
    # What comes later counts, too.
    app.include(outer)
    outer.include(inner)

    @app.outgoing("invoices")
    @inner.incoming("orders")
    async def handler(value: bytes) -> Record:
        return Record({"of": value.decode()})

    before = app.emitter("invoices")
    assert inner.emitter("invoices") is outer.emitter("invoices") is before
    async with running(app) as test:
        await send(test, b"x")
        await test.settled()
        (invoice,) = test.records("invoices")
        assert invoice.value == b'{"of":"x"}'


@in_virtual_time
async def test_emitters_that_were_asked_for_apart_send_to_the_same_channel_in_each_run() -> None:
    app, router = make_app(), Router()
    theirs, ours = router.emitter("invoices"), app.emitter("invoices")
    with pytest.raises(
        ChannelClosedError, match="no application includes the router of this emitter"
    ):
        await theirs.send({})
    app.include(router)

    @router.incoming("orders")
    async def handler(value: bytes) -> None: ...

    for _ in range(2):
        with pytest.raises(ChannelClosedError, match="the application is not running"):
            await theirs.send({})
        async with running(app) as test:
            await theirs.send({"n": 1})
            await ours.send({"n": 2})
            assert len(test.records("invoices")) == 2


def test_a_router_is_included_once_and_not_by_itself() -> None:
    app, router, other = make_app(), Router(), Router()
    app.include(router)
    for include in (app.include, make_app().include, other.include, router.include):
        with pytest.raises(ConfigError, match="the router is included already"):
            include(router)
    router.include(other)
    with pytest.raises(ConfigError, match="the router is included already"):
        other.include(router)
    with pytest.raises(ConfigError, match=r"app.include\(5\): expected a Router"):
        app.include(5)  # type: ignore[arg-type]


def test_two_handlers_of_a_channel_are_a_problem_wherever_they_stand() -> None:
    app, router = make_app(), Router()
    take_all(app)

    @router.incoming("orders")
    async def second(value: bytes) -> None: ...

    app.include(router)
    with pytest.raises(ConfigError, match="channel 'orders' has two handlers"):
        app.configure()


def test_a_channel_has_one_spark_function_wherever_it_stands() -> None:
    app, router = make_app(), Router()

    @app.spark("orders")
    def first(df: Any, batch: Any) -> None: ...

    @router.spark("returns")
    def second(df: Any, batch: Any) -> None: ...

    @router.spark("orders")
    def third(df: Any, batch: Any) -> None: ...

    with pytest.raises(ConfigError, match="channel 'orders' has two Spark functions"):
        app.include(router)
    # Nothing of the router.
    assert list(app.declared.functions.spark) == ["orders"]


def test_a_router_names_no_channel_that_is_not_configured() -> None:
    app, router, late = make_app(), Router(), Router()
    router.emitter("nowhere")
    app.include(router)
    with pytest.raises(ConfigError, match=r"app.emitter\('nowhere'\)"):
        app.configure()
    known = make_app()
    # As a plain function.
    known.incoming("orders")(lambda value: None)
    known.configure()
    late.emitter("nowhere")
    with pytest.raises(ConfigError, match=r"app.emitter\('nowhere'\)"):
        known.include(late)


@in_virtual_time
async def test_nothing_is_declared_on_a_router_while_its_application_runs() -> None:
    app, router = make_app(), Router()
    app.include(router)

    @router.incoming("orders")
    async def handler(value: bytes) -> None: ...

    async with running(app):
        with pytest.raises(
            RuntimeError, match=r"@app.incoming\('orders'\) while the application is running"
        ):
            router.incoming("orders")
        with pytest.raises(RuntimeError, match=r"@app\.include while the application is running"):
            app.include(Router())
    assert isinstance(app, App)
