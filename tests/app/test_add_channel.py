"""``app.add_channel``: an incoming channel more, while the application runs."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from typing import Annotated, Any

import httpx
import pytest

from reactive_kafka import (
    App,
    Batch,
    CallNext,
    ChannelClosedError,
    ConfigError,
    Depends,
    Message,
    Record,
    Router,
)
from tests.app.helpers import in_virtual_time, make_broker, running, tp, until

AUDIT = {"auto_offset_reset": "earliest", "commit_interval": "1s"}


def make(**incoming: Any) -> App:
    tables = {
        "kafka": {"group_id": "billing", "value_deserializer": "json"},
        "incoming": {"orders": {}, **incoming},
        "outgoing": {"invoices": {}, "bills": {}},
        "memory": {"inside": {}},
    }
    app = App(tables)
    app.emitter("inside")

    @app.incoming("orders")
    async def orders(payload: Any) -> None: ...

    @app.incoming("inside")
    async def inside(payload: Any) -> None: ...

    return app


@in_virtual_time
async def test_a_channel_that_is_added_is_one_like_any_other() -> None:
    app, seen = make(), list[Any]()

    async def audit(payload: Any) -> None:
        seen.append(payload)

    async with running(app) as test:
        channel = await app.add_channel("audit", {**AUDIT, "topic": "events"}, audit)
        assert channel is app.channel("audit")
        await test.send("audit", {"id": 1})
        await test.settled()
        assert seen == [{"id": 1}]
        assert test.committed("audit") == {tp(topic="events"): 1}
        assert [one.channel for one in app.facts().channels] == ["orders", "audit"]
        assert [check.name for check in app.health().ready.checks] == ["orders", "audit", "inside"]
        assert app.health().status == "UP"
        transport = httpx.ASGITransport(app=app.asgi)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            metrics = (await client.get("/metrics")).text
        assert (
            'reactive_kafka_records_acked_total{channel="audit",partition="0",topic="events"} 1.0'
            in metrics
        )
        await channel.stop()
        await channel.start()
        await test.send("events", {"id": 2})
        await test.settled()
        assert (
            seen == [call.payload for call in test.handler(audit).calls] == [{"id": 1}, {"id": 2}]
        )
    assert test.broker.members("billing") == {}


@in_virtual_time
async def test_it_ends_with_the_application_and_the_next_run_knows_nothing_of_it() -> None:
    app, broker = make(), make_broker()

    async def audit(payload: Any) -> None: ...

    for _ in range(2):
        async with running(app, broker=broker):
            await app.add_channel("audit", AUDIT, audit)
        assert "audit" not in app.settings.incoming
        with pytest.raises(
            ChannelClosedError, match=r"add_channel\('audit'\): the application is not running"
        ):
            await app.add_channel("audit", AUDIT, audit)
    async with running(app, broker=broker):
        with pytest.raises(ConfigError, match=r"no \[incoming.audit\]"):
            app.channel("audit")
    await broker.close()


@in_virtual_time
async def test_its_results_are_sent_where_it_is_decorated_for_and_told_to() -> None:
    app = make(orders2={})

    @app.outgoing("invoices")
    @app.incoming("orders2")
    async def bill(payload: Any) -> Any:
        return payload

    async def other(message: Message[Any]) -> Any:
        return message.payload

    async with running(app) as test:
        await app.add_channel("more", AUDIT, bill)
        await app.add_channel("other", AUDIT, other, outgoing=["bills", "inside"])
        await test.send("more", 1)
        await test.send("other", 2)
        await test.settled()
        assert [record.value for record in test.records("invoices")] == [b"1"]
        assert [record.value for record in test.records("bills")] == [b"2"]


@in_virtual_time
async def test_middleware_is_around_its_calls_and_its_sends() -> None:
    app, router, seen = make(orders2={}), Router(), list[str]()

    @app.middleware
    async def around(message: Message[Any], call_next: CallNext) -> Any:
        seen.append(f"call {message.channel}")
        return await call_next(message)

    @app.send_middleware
    async def around_send(record: Record, call_next: CallNext) -> Any:
        seen.append(f"send {record.channel}")
        return await call_next(record)

    @router.middleware
    async def inner(message: Message[Any], call_next: CallNext) -> Any:
        seen.append(f"router's call {message.channel}")
        return await call_next(message)

    @router.incoming("orders2")
    async def of_router(payload: Any) -> None: ...

    async def plain(payload: Any) -> Any:
        return payload

    app.include(router)
    async with running(app) as test:
        await app.add_channel("plain", AUDIT, plain, outgoing="bills")
        await test.send("plain", 1)
        await test.settled()
        assert seen == ["call plain", "send bills"]
        seen.clear()
        await app.add_channel("routed", AUDIT, of_router)
        await test.send("routed", 1)
        await test.settled()
        assert seen == ["call routed", "router's call routed"]


@in_virtual_time
async def test_ack_and_retry_are_those_of_a_decorator() -> None:
    app, seen = make(), list[Message[Any]]()

    async def audit(message: Message[Any]) -> None:
        seen.append(message)
        if len(seen) == 1:
            raise ValueError("no")

    async with running(app) as test:
        await app.add_channel("audit", AUDIT, audit, ack="manual", retry=3)
        await test.send("audit", 1)
        await until(lambda: len(seen) == 2)
        assert app.channel("audit").in_flight == 1
        assert await seen[1].ack()
        await test.settled()


async def needs(payload: Any, seen: Annotated[list[Any], Depends(list)]) -> None: ...


@pytest.mark.parametrize(
    ("settings", "arguments", "said"),
    [
        (
            {"concurency": 2},
            {},
            "add_channel('audit'): [incoming.audit] concurency = 2: unknown key; did you mean",
        ),
        (
            {"concurrency": "many"},
            {},
            "add_channel('audit'): [incoming.audit] concurrency = 'many': ",
        ),
        ({"topic": "a", "pattern": "b"}, {}, "topic and pattern exclude each other"),
        ({"commit_strategy": "no:such"}, {}, "no:such"),
        (
            17,
            {},
            "add_channel('audit'): expected a mapping like [incoming.NAME], not 17",
        ),
        ({}, {"outgoing": "invoice"}, "no [outgoing.invoice] is configured"),
        ({}, {"ack": "mannual"}, "add_channel(ack='mannual')"),
        ({}, {"retry": "often"}, "add_channel('audit', retry='often')"),
        ({}, {"handler": 17}, "17"),
        ({}, {"handler": lambda: None}, "lambda"),
        ({"ordering": "key"}, {"handler": "batch"}, "it orders single records"),
        ({}, {"handler": needs}, "it has dependencies, which are made at the start"),
        ({"value_deserializer": "nothing"}, {}, "nothing"),
    ],
)
@in_virtual_time
async def test_what_is_wrong_is_told_as_of_a_configuration_and_nothing_is_added(
    settings: Any, arguments: dict[str, Any], said: str
) -> None:
    async def audit(payload: Any) -> None: ...

    async def batch(payload: Batch[Any]) -> None: ...

    app = make()
    handler = arguments.pop("handler", audit)
    async with running(app) as test:
        with pytest.raises(ConfigError) as caught:
            await app.add_channel(
                "audit", settings, batch if handler == "batch" else handler, **arguments
            )
        assert said in str(caught.value)
        assert "audit" not in app.settings.incoming
        await app.add_channel("audit", {}, audit)
        await test.settled()


@pytest.mark.parametrize("name", ["orders", "inside", "audit"])
@in_virtual_time
async def test_a_name_that_is_taken_is_an_error(name: str) -> None:
    async def audit(payload: Any) -> None: ...

    app = make()
    async with running(app):
        await app.add_channel("audit", {}, audit)
        with pytest.raises(
            ConfigError, match=rf"add_channel\('{name}'\): there is a channel with this name"
        ):
            await app.add_channel(name, {}, audit)


@pytest.mark.parametrize("name", ["", " ", ".", "..", "a\nb", "a\0"])
@in_virtual_time
async def test_a_name_that_no_configuration_can_have_is_refused(name: str) -> None:
    async def audit(payload: Any) -> None: ...

    app = make()
    async with running(app):
        with pytest.raises(ConfigError, match="a channel cannot have the name"):
            await app.add_channel(name, {}, audit)
        assert name not in app.settings.incoming


@in_virtual_time
async def test_a_name_is_a_string() -> None:
    async def audit(payload: Any) -> None: ...

    app = make()
    async with running(app):
        with pytest.raises(ConfigError, match="expected the name of a channel, a string, not None"):
            await app.add_channel(None, {}, audit)  # type: ignore[arg-type]


@in_virtual_time
async def test_what_is_odd_is_a_warning_and_only_what_is_new_of_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def audit(payload: Any) -> Any:
        return payload

    app = make()
    async with running(app):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            await app.add_channel("audit", {"key": "header:a"}, audit)
        text = "\n".join(record.message for record in caplog.records)
        assert (
            "channels 'orders' and 'audit' are members of one group and read different topics"
            in text
        )
        assert "add_channel('audit'): [incoming.audit] key = 'header:a': has no effect" in text
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            await app.add_channel("more", {"group_id": "own"}, audit, outgoing="bills")
        assert caplog.records == []


@in_virtual_time
async def test_members_of_one_group_that_were_warned_of_are_not_warned_of_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def audit(payload: Any) -> None: ...

    app = make(refunds={})
    refunds_of(app)
    async with running(app):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            await app.add_channel("audit", {"group_id": "own"}, audit)
        assert caplog.records == []


def refunds_of(app: App) -> None:
    @app.incoming("refunds")
    async def refunds(payload: Any) -> None: ...


@in_virtual_time
async def test_a_channel_that_is_not_enabled_is_added_and_waits() -> None:
    app, seen = make(), list[Any]()

    async def audit(payload: Any) -> None:
        seen.append(payload)

    async with running(app) as test:
        channel = await app.add_channel("audit", {**AUDIT, "enabled": False}, audit)
        await test.send("audit", 1)
        await asyncio.sleep(10)
        assert (seen, channel.is_stopped) == ([], True)
        await channel.start()
        await test.settled()
        assert seen == [1]


@in_virtual_time
async def test_a_handler_may_add_a_channel_whose_handlers_know_nothing_of_its_context() -> None:
    app, added, mine = (
        make(first=AUDIT),
        list[Any](),
        contextvars.ContextVar("mine", default="nobody's"),
    )

    async def audit(payload: Any) -> None:
        added.append(mine.get())

    @app.incoming("first")
    async def first(payload: Any) -> None:
        mine.set("first's")
        await app.add_channel("audit", AUDIT, audit)

    async with running(app) as test:
        await test.send("first", 1)
        await test.settled()
        await test.send("audit", 1)
        await test.settled()
        assert added == ["nobody's"]


@in_virtual_time
async def test_while_the_application_stops_nothing_is_added() -> None:
    app, errors = make(), list[BaseException]()

    async def audit(payload: Any) -> None: ...

    @app.before_stop
    async def add() -> None:
        try:
            await app.add_channel("audit", AUDIT, audit)
        except ChannelClosedError as error:
            errors.append(error)

    async with running(app):
        pass
    assert [str(error) for error in errors] == [
        "channel 'audit' cannot be added: the application is stopping"
    ]
