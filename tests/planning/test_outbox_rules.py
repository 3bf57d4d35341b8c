"""What start-up says of handlers that send to an outbox."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from reactive_kafka import App, ConfigError

ORDERS = {
    "group_id": "billing",
    "commit_strategy": "checkpoint",
    "checkpoint": {"store": "sqlite:///offsets.db"},
}
OUTBOX = {"outbox": True}


def app_with(orders: dict[str, Any] | None = None, **outgoing: Any) -> App:
    """An application that sends what it makes of orders to all of these channels; by default to
    events.
    """
    outgoing = outgoing or {"events": OUTBOX}
    app = App({"incoming": {"orders": {**ORDERS, **(orders or {})}}, "outgoing": outgoing})

    async def handler(order: bytes) -> bytes:
        return order

    for name in outgoing:
        app.outgoing(name)(handler)
    app.incoming("orders")(handler)
    return app


def problems(app: App) -> str:
    with pytest.raises(ConfigError) as caught:
        app.configure()
    return "\n".join(caught.value.problems)


@pytest.mark.parametrize(
    ("orders", "words"),
    [
        (
            {"commit_strategy": "throttled", "checkpoint": {}},
            ['needs commit_strategy = "checkpoint"', "throttled"],
        ),
        ({"ordering": "key"}, ['needs ordering = "partition"', "key"]),
        ({"ack": "pre"}, ['needs ack = "post"', "pre"]),
        (
            {"checkpoint": {"store": "redis://host:6379/0"}},
            ["checkpoint.store", "redis://host", "postgresql:// or sqlite://"],
        ),
        ({"checkpoint": {"store": "file:///var/lib/offsets"}}, ["file:///var/lib/offsets"]),
        ({"failure_strategy": "delayed-retry-topic"}, ["records of retry topics", "use retry"]),
    ],
)
def test_what_cannot_have_an_outbox_is_named(orders: dict[str, Any], words: list[str]) -> None:
    told = problems(app_with(orders))
    for word in ["@app.incoming('orders')", "[outgoing.events]", "outbox = true", *words]:
        assert word in told, told


@pytest.mark.parametrize(
    "store",
    [
        "sqlite:////var/lib/offsets.db",
        "postgresql://user:secret@host/database",
        "postgresql+psycopg://user:secret@host/database",
        "memory://tests",
    ],
)
def test_databases_with_transactions_can_have_an_outbox(store: str) -> None:
    app_with({"checkpoint": {"store": store}}).configure()


def test_all_channels_of_a_handler_have_an_outbox_or_none() -> None:
    told = problems(app_with(events=OUTBOX, audit={}))
    assert "'events', which has an outbox, and to 'audit', which has none" in told
    app_with(events=OUTBOX, audit=OUTBOX).configure()


def test_a_blocking_handler_has_no_transaction() -> None:
    app = App({"incoming": {"orders": ORDERS}, "outgoing": {"events": OUTBOX}})

    @app.incoming("orders")
    @app.outgoing("events")
    def handler(order: bytes) -> bytes:
        return order

    assert "make the handler async" in problems(app)


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ({"transactional_id": "billing"}, ["transactional_id", "keep one"]),
        ({"acks": 0}, ["acks", "it confirms nothing"]),
        ({"outbox": "yes"}, ["outbox", "true or false"]),
        ({"outbox_max_rows": 0}, ["outbox_max_rows"]),
    ],
)
def test_settings_that_contradict_an_outbox_are_named(
    events: dict[str, Any], words: list[str]
) -> None:
    told = problems(app_with(events={**OUTBOX, **events}))
    for word in words:
        assert word in told, told


def test_nothing_but_a_handler_of_kafka_records_sends_to_an_outbox() -> None:
    app = App(
        {"memory": {"orders": {}}, "outgoing": {"events": OUTBOX, "ticks": OUTBOX, "more": OUTBOX}}
    )
    app.emitter("more")
    app.emitter("orders")

    @app.incoming("orders")
    @app.outgoing("events")
    async def handler(order: bytes) -> bytes:
        return order

    @app.outgoing("ticks")
    async def ticks() -> AsyncIterator[bytes]:
        yield b"tick"

    told = problems(app)
    assert "takes values of a memory channel, and [outgoing.events] has outbox" in told
    assert "app.emitter('more'): [outgoing.more] has outbox = true" in told
    assert "ticks: [outgoing.ticks] has outbox = true" in told


def test_an_emitter_that_comes_later_is_refused_too() -> None:
    app = app_with()
    app.configure()
    with pytest.raises(ConfigError, match="rows of a handler's transaction"):
        app.emitter("events")


def test_an_output_behind_a_transaction_is_warned_of_unless_it_has_an_outbox() -> None:
    def warnings(events: dict[str, Any]) -> str:
        app = App({"incoming": {"orders": ORDERS}, "outgoing": {"events": events}})

        @app.incoming("orders")
        @app.outgoing("events")
        async def handler(message: Any) -> bytes:
            async with message.transaction():
                return b"made"

        app.configure()
        return "\n".join(app.plan.warnings)

    assert "set outbox = true in [outgoing.events]" in warnings({})
    assert "outbox" not in warnings(OUTBOX)
