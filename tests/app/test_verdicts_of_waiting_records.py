"""A record that waits for another call gets its verdict from elsewhere: it is not called again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from reactive_kafka import App, Batch, Later, Message, TransientBrokerError
from reactive_kafka.testing import TestApp
from tests.app.helpers import (
    committed,
    facts,
    in_virtual_time,
    make_app,
    now,
    rebalanced,
    running,
    send,
    settle_down,
    tp,
    until,
)
from tests.schemas.outage import RegistryOutage

HOUR = {"max_attempts": 9, "backoff": "1h", "max_backoff": "1h", "jitter": 0}

FAILURES: dict[str, Callable[[], BaseException]] = {
    "retry": ValueError,
    "later": lambda: Later("1h"),
    "later of the partition": lambda: Later("1h", "partition"),
    "later of the channel": lambda: Later("1h", "channel"),
}
"""What the handler raises, and what the record waits for after that, for an hour."""

VERDICTS: dict[str, Callable[[App, Message[bytes]], object]] = {
    "ack": lambda app, message: message.ack(),
    "nack": lambda app, message: message.nack(ValueError("bad")),
    "ack_up_to": lambda app, message: app.channel("orders").ack_up_to(message),
    "skip": lambda app, message: app.channel("orders").skip(tp(), message.offset),
}


class Failing:
    """Its handler fails at each call with an offset of *at*, and keeps all messages."""

    def __init__(self, at: set[int], failure: Callable[[], BaseException], **orders: Any) -> None:
        self.kept: list[Message[bytes]] = []
        self.app = make_app(
            None,
            **{
                "commit_interval": "100ms",
                "revoke_grace": "50ms",
                "failure_strategy": "ignore",
                "retry": HOUR,
                **orders,
            },
        )

        @self.app.incoming("orders", ack="manual")
        async def handler(message: Message[bytes]) -> None:
            self.kept.append(message)
            if message.offset in at:
                raise failure()

    @property
    def offsets(self) -> list[int]:
        return [message.offset for message in self.kept]


@pytest.mark.parametrize("verdict", VERDICTS)
@pytest.mark.parametrize("failure", FAILURES)
@in_virtual_time
async def test_a_verdict_ends_the_wait_and_the_next_attempt(failure: str, verdict: str) -> None:
    failing = Failing({0}, FAILURES[failure])
    async with running(failing.app) as test:
        await send(test, b"waits", b"behind")
        await until(lambda: failing.kept)
        await asyncio.sleep(30)
        began = now()
        VERDICTS[verdict](failing.app, failing.kept[0])
        await until(lambda: 1 in failing.offsets)
        assert now() - began < 0.1
        await failing.kept[1].ack()
        await until(lambda: committed(test) == 2)
        assert facts(test).postponed == ()
        assert facts(test).retries == 0
    assert failing.offsets == [0, 1]


@pytest.mark.parametrize("verdict", ["ack", "nack", "ack_up_to"])
@in_virtual_time
async def test_a_verdict_ends_the_wait_for_a_broker(verdict: str) -> None:
    failing = Failing({0}, lambda: TransientBrokerError("away"))
    async with running(failing.app) as test:
        await send(test, b"waits", b"behind")
        # By now an attempt comes every 5 s.
        await asyncio.sleep(60)
        calls = len(failing.kept)
        await until(lambda: len(failing.kept) > calls, to_the_moment=True)
        began = now()
        VERDICTS[verdict](failing.app, failing.kept[0])
        await until(lambda: 1 in failing.offsets)
        assert now() - began < 0.1
    assert failing.offsets.count(0) == calls + 1


@pytest.mark.parametrize("ordering", ["key", "unordered"])
@in_virtual_time
async def test_an_ack_up_to_a_later_record_ends_the_waits_before_it(ordering: str) -> None:
    failing = Failing({0, 1}, FAILURES["later"], ordering=ordering)
    async with running(failing.app) as test:
        for key in ("a", "b", "c"):
            await test.send("orders", b"", key=key, partition=0)
        await until(lambda: sorted(failing.offsets) == [0, 1, 2])
        assert await failing.app.channel("orders").ack_up_to(max(failing.kept, key=_offset))
        await until(lambda: committed(test) == 3)
        await asyncio.sleep(60)
    assert sorted(failing.offsets) == [0, 1, 2]


def _offset(message: Message[bytes]) -> int:
    return message.offset


@in_virtual_time
async def test_a_batch_waits_as_long_as_one_of_its_records_has_no_verdict() -> None:
    app = make_app(
        None, commit_interval="100ms", batch_max_records=3, batch_max_wait="1s", retry=HOUR
    )
    calls: list[list[int]] = []
    kept: list[Message[bytes]] = []

    @app.incoming("orders", ack="manual")
    async def handler(batch: Batch[bytes]) -> None:
        calls.append([message.offset for message in batch])
        kept.extend(batch)
        if calls[-1][0] < 3:
            raise ValueError
        batch.ack()

    async with running(app) as test:
        await send(test, *[b""] * 4)
        await until(lambda: kept)
        await kept[1].ack()
        app.channel("orders").skip(tp(), 0)
        await asyncio.sleep(60)
        assert calls == [[0, 1, 2]]
        began = now()
        await kept[2].ack()
        await until(lambda: committed(test) == 4)
        assert now() - began < 2
    assert calls == [[0, 1, 2], [3]]


@in_virtual_time
async def test_the_lane_of_a_nacked_record_waits_until_its_letter_is_written() -> None:
    failing = Failing({0}, FAILURES["later"], failure_strategy="dead-letter-queue")
    async with running(failing.app) as test:
        test.broker.topic_away("dead-letter-topic-orders")
        await send(test, b"waits", b"behind")
        await until(lambda: failing.kept)
        failing.kept[0].nack(ValueError("bad"))
        await asyncio.sleep(10)
        assert failing.offsets == [0]
        test.broker.topic_back("dead-letter-topic-orders")
        await until(lambda: failing.offsets == [0, 1])


async def put_back(test: TestApp, failing: Failing) -> None:
    """Have the record that waits for its next attempt put back into its lane, and stay there."""
    test.app.channel("orders").pause()
    await rebalanced(test)
    await settle_down()


@pytest.mark.parametrize("ordering", ["partition", "key", "unordered"])
@pytest.mark.parametrize("verdict", VERDICTS)
@in_virtual_time
async def test_a_record_that_was_put_back_takes_its_verdict_and_is_not_called_again(
    verdict: str, ordering: str
) -> None:
    failing = Failing({0}, FAILURES["later"], ordering=ordering)
    async with running(failing.app) as test:
        await send(test, b"waits")
        await until(lambda: failing.kept)
        await put_back(test, failing)
        VERDICTS[verdict](failing.app, failing.kept[0])
        await settle_down()
        test.app.channel("orders").resume()
        await send(test, b"behind")
        await until(lambda: 1 in failing.offsets)
        await failing.kept[-1].ack()
        await until(lambda: committed(test) == 2)
    assert failing.offsets == [0, 1]


@in_virtual_time
async def test_an_ack_up_to_a_later_record_settles_those_that_were_put_back_and_no_others() -> None:
    failing = Failing({0, 1}, FAILURES["later"], ordering="key", concurrency=2)
    async with running(failing.app) as test:
        # The third waits behind the first, and no handler has had it.
        for key in ("a", "b", "a"):
            await test.send("orders", b"", key=key, partition=0)
        await until(lambda: sorted(failing.offsets) == [0, 1])
        await put_back(test, failing)
        assert await test.app.channel("orders").ack_up_to(max(failing.kept, key=_offset))
        test.app.channel("orders").resume()
        await until(lambda: sorted(failing.offsets) == [0, 1, 2])
        await until(lambda: committed(test) == 2)


def schema_app(kept: list[Message[Any]], **given: Any) -> App:
    """An application that keeps its messages, and whose values have schemas."""
    orders = {
        "group_id": "billing",
        "auto_offset_reset": "earliest",
        "commit_interval": "100ms",
        "revoke_grace": "50ms",
        "ordering": "key",
        "value_deserializer": "avro",
        **given,
    }
    app = App({"schema_registry": {"url": "memory://"}, "incoming": {"orders": orders}})

    @app.incoming("orders", ack="manual")
    async def handler(message: Message[Any]) -> None:
        kept.append(message)

    return app


def of_schema(schema_id: int) -> bytes:
    """The Avro value b"x", with the id of a schema before it."""
    return b"\0" + schema_id.to_bytes(4, "big") + b"\x02x"


@pytest.mark.parametrize("ordering", ["key", "unordered"])
@pytest.mark.parametrize("is_put_back", [False, True], ids=["at-a-worker", "put-back"])
@in_virtual_time
async def test_an_ack_up_to_a_later_record_is_not_for_one_that_waits_for_its_schema(
    is_put_back: bool, ordering: str
) -> None:
    kept: list[Message[Any]] = []
    app = schema_app(kept, ordering=ordering)
    async with running(app) as test:
        outage = RegistryOutage(app)
        await outage.register_bytes("orders-value")
        assert await outage.register("orders-value", '"string"') == 2
        await test.send("orders", of_schema(1), key="a", partition=0)
        await until(lambda: kept)
        outage.begin()
        await test.send("orders", of_schema(2), key="b", partition=0)
        await test.send("orders", of_schema(1), key="c", partition=0)
        await until(lambda: len(kept) == 2)
        if is_put_back:
            app.channel("orders").pause()
            await rebalanced(test)
        assert await app.channel("orders").ack_up_to(kept[1])
        outage.end()
        app.channel("orders").resume()
        await until(lambda: len(kept) == 3, 60)
        assert kept[2].offset == 1
        assert committed(test) in (None, 1)
        await kept[2].ack()
        await until(lambda: committed(test) == 3)


@in_virtual_time
async def test_a_record_that_has_waited_for_its_schema_hides_no_older_one_that_is_poison() -> None:
    kept: list[Message[Any]] = []
    app = schema_app(kept, ordering="unordered", unprocessed_record_max_age="30s", on_poison="warn")
    async with running(app) as test:
        outage = RegistryOutage(app)
        await outage.register_bytes("orders-value")
        assert await outage.register("orders-value", '"string"') == 2
        await test.send("orders", of_schema(1), key="a", partition=0)
        await until(lambda: kept)
        await kept[0].ack()
        outage.begin()
        await test.send("orders", of_schema(2), key="b", partition=0)
        await test.send("orders", of_schema(1), key="c", partition=0)
        await until(lambda: len(kept) == 2)
        began = now()
        await asyncio.sleep(20)
        outage.end()
        await until(lambda: facts(test).poison, 40)
        assert [poison.offset for poison in facts(test).poison] == [2]
        assert 30 <= now() - began < 31
        assert [message.offset for message in kept] == [0, 2, 1], "it was handled by then"
        for message in kept:
            message.ack()


@in_virtual_time
async def test_a_record_that_is_skipped_while_it_waits_for_its_schema_is_not_handled() -> None:
    kept: list[Message[Any]] = []
    app = schema_app(kept)
    async with running(app) as test:
        outage = RegistryOutage(app)
        await outage.register_bytes("orders-value")
        outage.begin()
        await test.send("orders", of_schema(1), key="a", partition=0)
        await asyncio.sleep(1)
        app.channel("orders").skip(tp(), 0)
        await until(lambda: committed(test) == 1)
        outage.end()
        await asyncio.sleep(60)
    assert kept == []
