"""The application under test: ready when its block begins, settled when it says so, and honest when
it is not.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from reactive_kafka import App, EncodeError, Message, Record, TopicPartition, TransientBrokerError
from reactive_kafka.errors import RejectedRecordError
from reactive_kafka.testing import (
    FakeClock,
    MemoryBroker,
    NotSettledError,
    TestApp,
    record,
    run_in_virtual_time,
)

CONFIG = {
    "incoming": {"orders": {"group_id": "billing"}},
    "outgoing": {"invoices": {"topic": "invoices-v1"}},
}


@dataclass
class Order:
    id: int


class Invoice(BaseModel):
    order: int


def billing(config: Any = CONFIG) -> App:
    app = App(config)

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def invoice(order: Order) -> Invoice:
        return Invoice(order=order.id)

    return app


async def test_it_runs_the_handlers_and_shows_what_was_produced_and_committed() -> None:
    async with TestApp(billing()) as test:
        written = await test.send("orders", Order(7), key="k", partition=2)
        assert written == (TopicPartition("orders", 2), 0)
        await test.settled()
        assert [record.value for record in test.records("invoices")] == [b'{"order":7}']
        assert test.records("invoices") == test.records("invoices-v1")
        assert test.committed("orders")[TopicPartition("orders", 2)] == 1
        assert test.records("nothing") == []


@pytest.mark.parametrize("own", [None, {"outgoing": {"invoices": {"topic": "invoices-v2"}}}])
async def test_what_was_produced_and_committed_is_shown_after_the_block_too(own: Any) -> None:
    async with TestApp(billing(own), config=CONFIG) as test:
        await test.send("orders", Order(7), partition=2)
        await until_called(test)
    assert [record.value for record in test.records("invoices")] == [b'{"order":7}']
    assert test.committed("orders")[TopicPartition("orders", 2)] == 1


async def until_called(test: TestApp) -> None:
    async with asyncio.timeout(10):
        # The broker has no event that could be awaited.
        while not test.records("invoices"):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_what_is_sent_in_the_block_is_read_though_the_channel_starts_at_the_latest_record() -> (
    None
):
    test = TestApp(billing())
    # Before it runs.
    test.broker.produce("orders", b'{"id": 1}')
    async with test:
        await test.send("orders", {"id": 2})
        await test.settled()
        assert [record.value for record in test.records("invoices")] == [b'{"order":2}']


async def test_what_a_real_client_would_not_take_is_not_sent() -> None:
    async with TestApp(billing()) as test:
        with pytest.raises(
            RejectedRecordError,
            match=r"orders: headers: \('trace', 'abc'\) is no pair of a str and bytes",
        ):
            await test.send("orders", Order(7), headers=[("trace", "abc")])  # type: ignore[list-item]
        with pytest.raises(RejectedRecordError, match="key = 5: expected bytes or None"):
            test.broker.produce("orders", b"", key=5)  # type: ignore[arg-type]
        assert test.records("orders") == []


@pytest.mark.parametrize("value", [Record(1), {"order": Record(1)}, (n for n in range(3))])
async def test_what_no_application_would_send_as_a_value_is_not_sent(value: object) -> None:
    async with TestApp(billing()) as test:
        with pytest.raises(EncodeError):
            await test.send("orders", value)
        assert test.records("orders") == []


@pytest.mark.parametrize("app", [None, "billing:app", App])
def test_what_is_no_application_is_refused(app: Any) -> None:
    with pytest.raises(TypeError, match=r"TestApp\(.*\): expected an App"):
        TestApp(app)


async def test_http_is_off() -> None:
    async with TestApp(billing()) as test:
        assert test.app.http is None


async def test_an_application_is_given_back_as_it_was() -> None:
    app = billing()
    app.configure(overrides={"kafka": {"commit_interval": "7s"}})
    async with TestApp(app, overrides={"incoming": {"orders": {"drain_timeout": "3s"}}}) as test:
        settings = test.app.settings.incoming["orders"]
        assert (settings.commit_interval_s, settings.drain_timeout_s) == (7.0, 3.0)
        assert not test.app.settings.http.enabled
    assert app.settings.http.enabled
    assert app.settings.incoming["orders"].commit_interval_s == 7.0
    assert app.settings.incoming["orders"].drain_timeout_s == 30.0
    assert app._connector is None


async def test_another_configuration_takes_the_place_of_the_applications_own(
    tmp_path: Path,
) -> None:
    app = billing()
    other = {
        "incoming": {"orders": {"group_id": "other"}},
        "outgoing": {"invoices": {"topic": "invoices-v2"}},
    }
    async with TestApp(app, config=other, overrides={"kafka": {"commit_interval": "7s"}}) as test:
        await test.send("orders", Order(7))
        await test.settled()
        assert len(test.records("invoices-v2")) == 1
        assert sum(test.committed("orders").values()) == 1
        assert test.app.settings.incoming["orders"].commit_interval_s == 7.0
        assert test.broker.committed("other")
    assert app.settings.incoming["orders"].group_id == "billing"
    file = tmp_path / "of-tests.toml"
    file.write_text('[incoming.orders]\ngroup_id = "of-a-file"\n[outgoing.invoices]\n')
    async with TestApp(app, config=file) as test:
        assert test.app.settings.incoming["orders"].group_id == "of-a-file"


@pytest.mark.virtual_time
async def test_what_is_not_settled_has_the_handlers_own_exception_as_its_cause() -> None:
    app, raised = App(CONFIG), ValueError("no")

    @app.incoming("orders", retry={"max_attempts": 9, "backoff": "5s"})
    async def fails(value: bytes) -> None:
        raise raised

    async with TestApp(app) as test:
        await test.send("orders", b"")
        with pytest.raises(NotSettledError, match="1 in flight") as waiting:
            await test.settled(timeout=0.05)
        assert waiting.value.__cause__ is raised
    failing = App(CONFIG)
    failing.incoming("orders")(fails)
    async with TestApp(failing) as test:
        await test.send("orders", b"")
        with pytest.raises(NotSettledError, match="has failed") as failed:
            await test.settled()
        assert failed.value.__cause__ is raised


@pytest.mark.virtual_time
async def test_a_failure_that_is_over_is_no_cause() -> None:
    app = App({"incoming": {"orders": {"group_id": "g", "failure_strategy": "ignore"}}})

    @app.incoming("orders", ack="manual")
    async def forgets(message: Message[str]) -> None:
        if message.payload == "bad":
            message.nack(ValueError("bad"))

    async with TestApp(app, overrides={"kafka": {"drain_timeout": "50ms"}}) as test:
        await test.send("orders", "bad", partition=0)
        await test.settled()
        await test.send("orders", "forgotten", partition=0)
        with pytest.raises(NotSettledError, match="1 in flight") as waiting:
            await test.settled(timeout=0.05)
        assert waiting.value.__cause__ is None


@pytest.mark.virtual_time
async def test_the_failure_of_another_channel_that_reads_the_topic_is_no_cause() -> None:
    table = {"topic": "orders", "failure_strategy": "ignore"}
    app = App(
        {"incoming": {"bills": {**table, "group_id": "b"}, "mails": {**table, "group_id": "m"}}}
    )

    @app.incoming("bills")
    async def fails(value: str) -> None:
        raise ValueError("no amount")

    @app.incoming("mails", ack="manual")
    async def forgets(message: Message[str]) -> None: ...

    async with TestApp(app, overrides={"kafka": {"drain_timeout": "50ms"}}) as test:
        await test.send("orders", "x")
        with pytest.raises(NotSettledError, match="channel 'mails'") as waiting:
            await test.settled(timeout=0.05)
        assert waiting.value.__cause__ is None


RETRIED = {"group_id": "g", "failure_strategy": "delayed-retry-topic"}


@pytest.mark.virtual_time
async def test_delayed_retries_are_waited_for() -> None:
    app = App({"incoming": {"orders": RETRIED}})

    @app.incoming("orders")
    async def third_time(value: str) -> None:
        if len(test.handler(third_time).calls) < 3:
            raise ConnectionError("not yet")

    async with TestApp(app) as test:
        await test.send("orders", "x")
        await test.settled(timeout=1, retries=False)
        assert len(test.records("orders_retry_10000")) == len(test.handler(third_time).calls) == 1
        await test.settled(timeout=1)
        assert [type(call.error) for call in test.handler(third_time).calls] == [
            ConnectionError
        ] * 2 + [type(None)]
        assert asyncio.get_running_loop().time() == pytest.approx(30, abs=2)
        assert test.records("dead-letter-topic-orders") == []
        await test.send("orders", "y")
        await test.settled(timeout=1)
        assert asyncio.get_running_loop().time() == pytest.approx(30, abs=2)


@pytest.mark.virtual_time
async def test_a_delayed_retry_that_hangs_is_named_with_what_it_was_delayed_for() -> None:
    table = {**RETRIED, "delayed_retry": {"topics": ["orders_retry_20000"]}}
    app, raised = App({"incoming": {"orders": table}}), ConnectionError("closed")

    @app.incoming("orders", ack="manual")
    async def hangs(message: Message[str]) -> None:
        if message.topic == "orders":
            message.nack(raised)

    async with TestApp(app, overrides={"kafka": {"drain_timeout": "1s"}}) as test:
        await test.send("orders", "x")
        with pytest.raises(
            NotSettledError, match=r"delayed retries of channel 'orders': .*1 in flight"
        ) as waiting:
            await test.settled(timeout=1)
        assert waiting.value.__cause__ is raised
        assert asyncio.get_running_loop().time() == pytest.approx(21, abs=2)


async def test_a_test_in_which_nothing_is_wrong_has_no_warning_in_its_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = App(
        {
            "incoming": {
                "orders": {"group_id": "g"},
                "early": {"group_id": "h", "auto_offset_reset": "earliest"},
            },
            "outgoing": {"invoices": {}, "unfed": {}},
        }
    )

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def invoice(order: Order) -> Invoice:
        return Invoice(order=order.id)

    @app.incoming("early")
    async def early(value: str) -> None: ...

    with caplog.at_level(logging.INFO):
        async with TestApp(app) as test:
            await test.send("orders", Order(7))
            await test.send("early", "x")
            await test.settled()
    assert [record.getMessage() for record in caplog.records if record.levelno > logging.INFO] == []
    assert "partitions were reset to earliest: nothing committed -> offset 0 (" in caplog.text


async def test_what_was_passed_over_is_still_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    test = TestApp(billing())
    test.broker.produce("orders", b'{"id": 1}', partition=0)
    async with test:
        pass
    (told,) = [record.getMessage() for record in caplog.records if record.levelno > logging.INFO]
    assert "orders-0 was reset to latest: nothing committed -> offset 1" in told


def test_a_test_app_of_another_loop_says_so() -> None:
    test = TestApp(billing())

    async def goes_on() -> None:
        with pytest.raises(
            RuntimeError, match=r"on another event loop: .*Open TestApp in the test"
        ):
            await test.settled()
        with pytest.raises(RuntimeError, match="on another event loop"):
            await test.send("orders", b"")

    with asyncio.Runner() as fixture, asyncio.Runner() as runner:
        fixture.run(test.__aenter__())
        runner.run(goes_on())
        fixture.run(test.__aexit__(None, None, None))


@pytest.mark.parametrize("is_same", [True, False])
async def test_a_block_inside_of_another_one_is_refused_and_that_goes_on(is_same: bool) -> None:
    app = billing()
    async with TestApp(app) as test:
        inner = test if is_same else TestApp(app)
        with pytest.raises(RuntimeError, match="the application is running"):
            async with inner:
                pass
        await test.send("orders", Order(7))
        await test.settled()
        assert [record.value for record in test.records("invoices")] == [b'{"order":7}']


async def test_before_its_block_there_is_nothing_that_could_be_settled() -> None:
    test = TestApp(App({"incoming": {"orders": {"group_id": "billing"}}}))
    with pytest.raises(RuntimeError, match=r"settled\(\) before `async with TestApp"):
        await test.settled()


async def test_two_applications_share_a_group_on_one_broker() -> None:
    async with TestApp(billing()) as one, TestApp(billing(), broker=one.broker) as two:
        shares = [frozenset(test.app.channel("orders").assignment) for test in (one, two)]
        assert [len(share) for share in shares] == [2, 2]
        assert len(frozenset.union(*shares)) == 4


async def test_what_is_not_settled_is_named() -> None:
    app, kept = App(CONFIG), list[Message[bytes]]()

    @app.incoming("orders", ack="manual")
    async def keep(message: Message[bytes]) -> None:
        kept.append(message)

    async with TestApp(app) as test:
        await test.send("orders", b"", partition=1)
        with pytest.raises(
            NotSettledError,
            match=r"after 0.05 s: channel 'orders': orders-1 ends at 1, read up to 1, 1 in flight, 0 queued$",
        ):
            await test.settled(timeout=0.05)
        kept[0].ack()
        test.broker.fail_next("commit", TransientBrokerError("no"), times=15)
        with pytest.raises(NotSettledError, match="orders-1 ends at 1, committed is 0"):
            await test.settled(timeout=0.05)


async def test_a_channel_that_has_failed_will_not_settle_and_says_why_at_once() -> None:
    async with TestApp(billing()) as test:
        await test.send("orders", b"no order")
        began = asyncio.get_running_loop().time()
        with pytest.raises(NotSettledError, match=r"channel 'orders' has failed: .*DecodeError"):
            await test.settled()
        assert asyncio.get_running_loop().time() - began < 2


async def test_a_start_that_does_not_get_its_partitions_says_so() -> None:
    broker = MemoryBroker()
    broker.down = True
    with pytest.raises(NotSettledError, match="channel 'orders' has no partitions yet"):
        async with TestApp(billing(), broker=broker, start_timeout_s=0.05):
            pass
    # For what is ending.
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) == 1


async def test_a_block_that_raises_ends_at_once_whatever_is_in_flight() -> None:
    app = App(CONFIG)

    @app.incoming("orders")
    async def hangs(value: bytes) -> None:
        await asyncio.Event().wait()

    began = asyncio.get_running_loop().time()
    with pytest.raises(ZeroDivisionError):
        async with TestApp(app) as test:
            await test.send("orders", b"")
            await asyncio.sleep(0.01)
            raise ZeroDivisionError
    assert asyncio.get_running_loop().time() - began < 2
    # For what is ending.
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) == 1


def test_it_runs_in_virtual_time() -> None:
    async def main(clock: FakeClock) -> None:
        app = App(CONFIG)

        @app.incoming("orders")
        async def slow(value: bytes) -> None:
            await asyncio.sleep(50)

        async with TestApp(app) as test:
            await test.send("orders", b"")
            await asyncio.sleep(51)
            await test.settled()
            assert clock.monotonic() > 50

    run_in_virtual_time(main)


async def test_a_channel_of_several_topics_asks_which_one_is_meant() -> None:
    app = App({"incoming": {"orders": {"group_id": "g", "topics": ["a", "b"]}}})

    @app.incoming("orders")
    async def handler(value: str) -> None: ...

    async with TestApp(app) as test:
        with pytest.raises(ValueError, match="'orders' reads a, b: name one of its topics"):
            await test.send("orders", "x")
        await test.send("b", "x")
        await test.settled()
        assert sum(test.committed("orders").values()) == 1


@pytest.mark.parametrize(
    ("deserializer", "value", "raw"),
    [
        (None, b"raw", b"raw"),
        (None, None, None),
        (None, "text", b"text"),
        (None, {"a": 1}, b'{"a":1}'),
        (None, Invoice(order=1), b'{"order":1}'),
        ("json", "text", b'"text"'),
        ("int", 1, b"\0\0\0\0\0\0\0\1"),
        ("string", "text", b"text"),
        ("json:loads", "text", b"text"),
    ],
)
async def test_values_are_written_in_the_format_that_the_channel_reads(
    deserializer: str | None, value: object, raw: bytes | None
) -> None:
    table = {"group_id": "g", **({"value_deserializer": deserializer} if deserializer else {})}
    async with TestApp(App({"incoming": {"orders": table}})) as test:
        await test.send("orders", value)
        assert [record.value for record in test.records("orders")] == [raw]


def test_values_and_keys_become_bytes() -> None:
    assert record({"id": 1}, key="k", offset=7).value == b'{"id": 1}'
    assert record("ü", key="k").key == b"k"
    assert record("ü").value == "ü".encode()
    assert record(b"raw").value == b"raw"


def test_a_tombstone_and_a_missing_key_stay_none() -> None:
    built = record(None, headers=[("a", None)], timestamp=None)
    assert (built.key, built.value, built.timestamp, built.headers) == (
        None,
        None,
        None,
        (("a", None),),
    )
