"""What start-up says of handlers that send to transactional channels."""

from __future__ import annotations

from typing import Any

import pytest

from reactive_kafka import App, ConfigError

ORDERS = {"group_id": "billing"}
INVOICES = {"transactional_id": "billing"}


def app_with(
    orders: dict[str, Any] | None = None, *, kafka: dict[str, Any] | None = None, **outgoing: Any
) -> App:
    """An application that sends what it makes of orders to all of these channels; by default to
    invoices.
    """
    outgoing = outgoing or {"invoices": INVOICES}
    app = App(
        {
            "kafka": kafka or {},
            "incoming": {"orders": {**ORDERS, **(orders or {})}},
            "outgoing": outgoing,
        }
    )

    async def handler(order: bytes) -> bytes:
        return order

    for name in outgoing:
        app.outgoing(name)(handler)
    app.incoming("orders")(handler)
    return app


def problem(app: App) -> str:
    with pytest.raises(ConfigError) as caught:
        app.configure()
    assert len(caught.value.problems) == 1, caught.value.problems
    return caught.value.problems[0]


@pytest.mark.parametrize(
    ("orders", "words"),
    [
        ({"commit_strategy": "latest"}, ["needs commit_strategy", '"throttled"', "latest"]),
        ({"commit_strategy": "ignore"}, ["needs commit_strategy", '"throttled"']),
        ({"ordering": "key"}, ["needs ordering", '"partition"', "key"]),
        ({"ordering": "unordered"}, ["needs ordering", '"partition"']),
        ({"ack": "pre"}, ["needs ack", '"post"', "pre"]),
        ({"assign": ["orders:0"]}, ["not assign", "fences"]),
        ({"bootstrap_servers": "elsewhere:9092"}, ["one cluster's", "elsewhere:9092"]),
        ({"keep_out_of_order_acks": True}, ["needs keep_out_of_order_acks", "false"]),
    ],
)
def test_what_cannot_be_part_of_a_transaction_is_named(
    orders: dict[str, Any], words: list[str]
) -> None:
    told = problem(app_with(orders))
    for word in ["@app.incoming('orders')", "transactional_id = 'billing'", *words]:
        assert word in told


def test_all_channels_of_a_handler_have_the_same_id() -> None:
    told = problem(app_with(invoices=INVOICES, audit={}))
    assert "'invoices' has billing" in told
    assert "'audit' has none" in told
    other = problem(app_with(invoices=INVOICES, audit={"transactional_id": "audit"}))
    assert "give all of them the same one, or none" in other
    assert (
        app_with(invoices=INVOICES, audit=INVOICES).plan.incoming["orders"].transactional_id
        == "billing"
    )


@pytest.mark.parametrize("other", [{"request.timeout.ms": 1000}, {"send_timeout": "7s"}], ids=str)
def test_channels_with_the_same_id_have_the_same_client(other: dict[str, Any]) -> None:
    told = problem(app_with(invoices=INVOICES, audit={**INVOICES, **other}))
    assert "[outgoing.audit] transactional_id = 'billing'" in told
    assert "channel 'invoices' has the same id, but other client properties" in told


def test_the_embedded_broker_has_no_transactions() -> None:
    told = problem(app_with(kafka={"bootstrap_servers": "embedded"}))
    assert (
        "[outgoing.invoices] transactional_id = 'billing': the embedded broker has no transactions"
        in told
    )


@pytest.mark.parametrize(
    ("given", "word"),
    [({"acks": 1}, "acks = 1"), ({"enable.idempotence": False}, "enable.idempotence = false")],
)
def test_a_transactional_channel_is_confirmed_by_all_and_idempotent(
    given: dict[str, Any], word: str
) -> None:
    told = problem(app_with(invoices={**INVOICES, **given}))
    assert word in told
    assert "transactional.id needs" in told


def test_a_memory_channel_is_no_part_of_a_transaction() -> None:
    app = App(
        {
            "incoming": {"orders": ORDERS},
            "outgoing": {"invoices": INVOICES},
            "memory": {"stage": {}},
        }
    )

    @app.incoming("orders")
    @app.outgoing("invoices")
    @app.outgoing("stage")
    async def handler(order: bytes) -> bytes:
        return order

    @app.incoming("stage")
    async def staged(order: bytes) -> None: ...

    assert "sends to a memory channel, too" in problem(app)


def test_what_comes_through_a_memory_channel_has_no_position() -> None:
    app = App(
        {
            "incoming": {"orders": ORDERS},
            "outgoing": {"invoices": INVOICES},
            "memory": {"stage": {}},
        }
    )

    @app.incoming("orders")
    @app.outgoing("stage")
    async def handler(order: bytes) -> bytes:
        return order

    @app.incoming("stage")
    @app.outgoing("invoices")
    async def staged(order: bytes) -> bytes:
        return order

    assert "a transaction goes with the position of a record" in problem(app)


def isolation(app: App, channel: str) -> object:
    return app.plan.incoming[channel].settings.client.get("isolation_level")


def test_an_exactly_once_channel_and_its_retries_read_what_is_committed() -> None:
    retries = {
        "failure_strategy": "delayed-retry-topic",
        "delayed_retry": {"topics": ["orders_retry_1000"]},
    }
    app = app_with(retries)
    assert isolation(app, "orders") == "read_committed"
    delayed = app.plan.incoming["orders"].settings.delayed_retry
    assert delayed is not None
    assert delayed.client["isolation_level"] == "read_committed"


def test_who_reads_a_topic_that_the_application_writes_in_transactions_reads_what_is_committed() -> (
    None
):
    app = App(
        {
            "incoming": {
                "mine": {**ORDERS, "topic": "bills"},
                "fitting": {**ORDERS, "pattern": "bil.*"},
                "chosen": {**ORDERS, "assign": ["bills:0"]},
                "others": ORDERS,
                "said": {**ORDERS, "topic": "bills", "isolation_level": "read_uncommitted"},
            },
            "outgoing": {"invoices": {**INVOICES, "topic": "bills"}},
        }
    )
    assert {isolation(app, name) for name in ("mine", "fitting", "chosen")} == {"read_committed"}
    assert isolation(app, "others") is None
    assert isolation(app, "said") == "read_uncommitted"


def test_the_channel_may_say_otherwise() -> None:
    assert (
        isolation(app_with({"isolation_level": "read_uncommitted"}), "orders") == "read_uncommitted"
    )
    assert isolation(app_with(invoices={}), "orders") is None


def test_the_timeout_of_transactions_is_a_property() -> None:
    app = app_with(invoices={**INVOICES, "transaction.timeout.ms": 5000})
    assert app.settings.outgoing["invoices"].client["transaction_timeout_ms"] == 5000
