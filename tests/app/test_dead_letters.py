"""``failure_strategy = "dead-letter-queue"``: a record is settled once its dead letter stands in
the broker.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from reactive_kafka import Batch, FailedRecord, Headers, Message, Record, Skip, Stop, Write
from reactive_kafka.errors import TransientBrokerError
from reactive_kafka.events import RecordDeadLettered
from reactive_kafka.testing import TestApp
from tests.app.brokers import StoredRecord
from tests.app.helpers import (
    Recorder,
    committed,
    facts,
    in_virtual_time,
    make_app,
    running,
    send,
    until,
)

LETTERS = "dead-letter-topic-orders"


def letters(test: TestApp, topic: str = LETTERS) -> list[StoredRecord]:
    return sorted(test.records(topic), key=lambda record: record.timestamp or 0)


def header(record: StoredRecord, name: str) -> str:
    value = Headers(record.headers).get(name)
    assert value is not None, f"no header {name}"
    return value.decode()


@in_virtual_time
async def test_a_dead_letter_is_the_record_as_it_was_with_headers_that_say_why() -> None:
    recorder = Recorder()
    app = make_app(recorder, failure_strategy="dead-letter-queue")

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        try:
            raise LookupError("no such customer")
        except LookupError as cause:
            raise ValueError("cannot be billed") from cause

    async with running(app) as test:
        test.broker.produce(
            "orders",
            b"\xff\x00",
            key=b"k",
            partition=0,
            headers=[("trace", b"7")],
            timestamp_ms=1234,
        )
        await test.settled()
        assert committed(test) == 1
        (letter,) = letters(test)
        assert (letter.value, letter.key) == (b"\xff\x00", b"k")
        assert Headers(letter.headers).get("trace") == b"7"
        said = {
            name: header(letter, f"dead-letter-{name}")
            for name in (
                "reason",
                "exception-class-name",
                "cause",
                "cause-class-name",
                "topic",
                "partition",
                "offset",
                "timestamp",
            )
        }
        assert said == {
            "reason": "cannot be billed",
            "exception-class-name": "builtins.ValueError",
            "cause": "no such customer",
            "cause-class-name": "builtins.LookupError",
            "topic": "orders",
            "partition": "0",
            "offset": "0",
            "timestamp": "1234",
        }
        totals = facts(test).totals[letter_of(recorder).partition]
        assert (totals.nacked, totals.dead_lettered, totals.acked) == (
            {"dead-letter-queue": 1},
            1,
            0,
        )


def letter_of(recorder: Recorder) -> RecordDeadLettered:
    (event,) = recorder.of(RecordDeadLettered)
    return event


@in_virtual_time
async def test_a_record_that_cannot_be_decoded_is_dead_lettered_with_its_bytes() -> None:
    app, seen = (
        make_app(failure_strategy="dead-letter-queue", value_deserializer="json"),
        list[Any](),
    )

    @app.incoming("orders")
    async def handler(value: dict[str, int]) -> None:
        seen.append(value)

    async with running(app) as test:
        await send(test, {"a": 1})
        test.broker.produce("orders", b"{not json", partition=0)
        await send(test, {"a": 2})
        await test.settled()
        assert [letter.value for letter in letters(test)] == [b"{not json"]
        assert committed(test) == 3
    assert seen == [{"a": 1}, {"a": 2}]


@in_virtual_time
async def test_the_record_is_settled_only_when_the_broker_has_the_letter_and_its_lane_waits_for_that() -> (
    None
):
    app, seen = (
        make_app(failure_strategy="dead-letter-queue", commit_interval="100ms"),
        list[tuple[int, int]](),
    )

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        seen.append((message.partition, message.offset))
        if message.payload == b"bad":
            raise ValueError("bad")

    async with running(app, partitions=2) as test:
        hold = test.broker.hold("send", answer=True)
        await send(test, b"good", b"bad", b"good")
        await send(test, b"good", b"good", partition=1)
        await until(lambda: committed(test, 1) == 2)
        await asyncio.sleep(2)
        assert committed(test) == 1
        assert (0, 2) not in seen
        hold.release()
        await test.settled()
        assert committed(test) == 3


@in_virtual_time
async def test_while_no_letter_can_be_written_the_record_stays_unsettled_and_readiness_says_so() -> (
    None
):
    app = make_app(failure_strategy="dead-letter-queue", commit_interval="100ms")

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        if value == b"bad":
            raise ValueError("bad")

    async with running(app) as test:
        await until(lambda: test.app.health().ready.is_up)
        test.broker.fail_next("send", TransientBrokerError("no leader"), times=5)
        await send(test, b"good", b"bad", b"good")
        await until(lambda: not test.app.health().ready.is_up)
        health = test.app.health()
        assert health.live.is_up
        assert LETTERS in str(health) and "no leader" in str(health)
        await asyncio.sleep(0.2)
        assert committed(test) == 1
        await until(lambda: committed(test) == 3, 60)
        await until(lambda: test.app.health().ready.is_up)
        assert [letter.value for letter in letters(test)] == [b"bad"]


@in_virtual_time
async def test_a_nack_may_say_what_is_dead_lettered() -> None:
    app = make_app(failure_strategy="dead-letter-queue")
    answers: list[bool] = []

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        record = Record({"seen": message.offset}, key="other", headers=[("why", b"x")])
        answers.append(await message.nack(ValueError("bad"), record=record))
        answers.append(await message.ack())

    async with running(app) as test:
        test.broker.produce("orders", b"original", key=b"k", partition=0, headers=[("trace", b"7")])
        await test.settled()
        (letter,) = letters(test)
        assert (letter.value, letter.key) == (b'{"seen":0}', b"other")
        assert Headers(letter.headers).get("why") == b"x"
        assert Headers(letter.headers).get("trace") == b"7"
    assert answers == [True, False]


@pytest.mark.parametrize(
    ("replacement", "error_class"),
    [
        (Record(b"", key=object()), "EncodeError"),  # type: ignore[arg-type]
        (Record(Record(b"inner")), "EncodeError"),
        (Record({"inner": [Record(b"inner")]}), "EncodeError"),
        (Record(iter([1])), "EncodeError"),
        (Record(b"", channel="invoices"), "EncodeError"),
        ({"value": "no record"}, "TypeError"),
        (b"no record", "TypeError"),
    ],
)
@in_virtual_time
async def test_a_replacement_that_cannot_be_written_is_an_error_of_the_handler(
    replacement: Any, error_class: str
) -> None:
    app = make_app(failure_strategy="dead-letter-queue")

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        message.nack(ValueError("bad"), record=replacement)

    async with running(app) as test:
        await send(test, b"original")
        await test.settled()
        (letter,) = letters(test)
        assert letter.value == b"original"
        assert header(letter, "dead-letter-exception-class-name").endswith(error_class)


@pytest.mark.parametrize("ordering", ["partition", "key", "unordered"])
@pytest.mark.parametrize("shape", ["single", "batch"])
@in_virtual_time
async def test_a_nack_that_nobody_awaits_holds_its_lane_too(ordering: str, shape: str) -> None:
    if shape == "batch" and ordering == "key":
        return
    app, seen = (
        make_app(failure_strategy="dead-letter-queue", ordering=ordering, batch_max_wait="0s"),
        list[bytes](),
    )

    def handle(message: Message[bytes]) -> None:
        seen.append(message.payload)
        if message.payload == b"bad":
            message.nack(ValueError("bad"))

    if shape == "batch":

        @app.incoming("orders")
        async def of_batches(batch: Batch[bytes]) -> None:
            for message in batch:
                handle(message)
    else:

        @app.incoming("orders")
        async def of_one(message: Message[bytes]) -> None:
            handle(message)

    async with running(app) as test:
        hold = test.broker.hold("send", of=LETTERS)
        await send(test, b"bad")
        await hold.arrived()
        await send(test, b"next")
        await asyncio.sleep(3)
        assert (b"next" in seen) is (ordering == "unordered")
        hold.release()
        await test.settled()
        assert seen == [b"bad", b"next"]


@in_virtual_time
async def test_of_a_batch_only_what_has_no_verdict_is_dead_lettered() -> None:
    app = make_app(
        failure_strategy="dead-letter-queue", batch_max_wait="10ms", value_deserializer="json"
    )

    @app.incoming("orders")
    async def handler(batch: Batch[int]) -> None:
        for message in batch:
            if message.payload % 2:
                message.ack()
        raise ValueError("the rest")

    async with running(app) as test:
        await send(test, *range(6))
        test.broker.produce("orders", b"{", partition=0)
        await test.settled()
        assert sorted(letter.value or b"" for letter in letters(test)) == [b"0", b"2", b"4", b"{"]
        assert committed(test) == 7


@in_virtual_time
async def test_routes_send_each_exception_to_the_strategy_of_its_nearest_class() -> None:
    app = make_app(
        failure_strategy="fail",
        failure_routes={
            "LookupError": "ignore",
            "KeyError": "dead-letter-queue",
            "builtins.OSError": "ignore",
        },
    )
    errors = [KeyError("a"), IndexError("b"), FileNotFoundError("c")]

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        raise errors[message.offset]

    async with running(app) as test:
        await send(test, b"0", b"1", b"2")
        await test.settled()
        assert [letter.value for letter in letters(test)] == [b"0"]
        assert committed(test) == 3
        (totals,) = facts(test).totals.values()
        assert totals.nacked == {"dead-letter-queue": 1, "ignore": 2}
        errors.append(ValueError("no route"))  # type: ignore[arg-type]
        await send(test, b"3")
        await until(lambda: facts(test).state == "failed")
        assert "no route" in (facts(test).reason or "")


@in_virtual_time
async def test_a_retried_record_is_dead_lettered_after_its_last_attempt() -> None:
    app = make_app(failure_strategy="dead-letter-queue", retry={"max_attempts": 3, "backoff": "1s"})
    attempts: list[int] = []

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        attempts.append(message.attempt)
        raise ValueError("never")

    async with running(app) as test:
        await send(test, b"x")
        await test.settled(timeout=30)
        assert len(letters(test)) == 1
    assert attempts == [1, 2, 3]


@pytest.mark.parametrize("ordering", ["partition", "key"])
@in_virtual_time
async def test_the_error_of_the_last_attempt_has_nothing_to_do_with_those_before(
    ordering: str,
) -> None:
    recorder = Recorder()
    retry = {"max_attempts": 3, "backoff": "10ms"}
    app = make_app(recorder, failure_strategy="dead-letter-queue", ordering=ordering, retry=retry)
    errors: list[BaseException] = [TimeoutError(), KeyError("second"), ValueError("bad iban")]

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        raise errors[message.attempt - 1]

    async with running(app) as test:
        await send(test, b"")
        await test.settled()
        (letter,) = letters(test)
    assert header(letter, "dead-letter-reason") == "bad iban"
    assert [name for name, _ in letter.headers if "cause" in name] == []
    assert [error.__context__ for error in errors] == [None] * 3
    assert letter_of(recorder).error is errors[2]


class ByValue:
    """A strategy of an application: what a record holds decides what becomes of it."""

    def decide(self, failed: FailedRecord) -> Any:
        if failed.value == b"skip":
            return Skip()
        if failed.value == b"write":
            return Write(topic="elsewhere", value=failed.value, key=failed.key)
        if failed.value == b"later":
            return self._later(failed)
        return Stop()

    async def _later(self, failed: FailedRecord) -> Write:
        await asyncio.sleep(1)
        return Write(topic="elsewhere", value=b"late", key=None)


by_value = ByValue()


@in_virtual_time
async def test_a_strategy_of_the_application_decides_as_the_built_in_ones_do() -> None:
    app = make_app(failure_strategy="tests.app.test_dead_letters:by_value", commit_interval="100ms")

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        raise ValueError("bad")

    async with running(app) as test:
        await send(test, b"skip", b"write", b"later")
        await test.settled(timeout=30)
        assert sorted(record.value or b"" for record in test.records("elsewhere")) == [
            b"late",
            b"write",
        ]
        assert committed(test) == 3
        await send(test, b"stop")
        await until(lambda: facts(test).state == "failed")
        assert committed(test) == 3


# -- poison


@in_virtual_time
async def test_poison_goes_to_the_dead_letters_under_its_handler_and_the_partition_goes_on() -> (
    None
):
    app = make_app(
        on_poison="dead-letter-queue", unprocessed_record_max_age="5s", commit_interval="100ms"
    )
    story: list[str] = []

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        try:
            if value == b"stuck":
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            story.append("cancelled")
            raise
        story.append(value.decode())

    async with running(app) as test:
        await send(test, b"one", b"stuck", b"two")
        await until(lambda: committed(test) == 3, 30)
        assert [letter.value for letter in letters(test)] == [b"stuck"]
        assert header(letters(test)[0], "dead-letter-exception-class-name").endswith("PoisonError")
        assert facts(test).state == "running"
        await until(lambda: test.app.health().ready.is_up)
        assert facts(test).totals[next(iter(facts(test).totals))].poison == 1
    assert story == ["one", "cancelled", "two"]


@pytest.mark.parametrize("ordering", ["partition", "key", "unordered"])
@in_virtual_time
async def test_a_handler_that_ignores_its_cancellation_is_left_to_itself(ordering: str) -> None:
    app = make_app(
        on_poison="dead-letter-queue",
        unprocessed_record_max_age="5s",
        commit_interval="100ms",
        ordering=ordering,
    )
    seen, go_on = list[bytes](), asyncio.Event()

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        while value == b"stuck" and not go_on.is_set():
            try:
                await go_on.wait()
            except asyncio.CancelledError:
                continue
        seen.append(value)

    async with running(app) as test:
        await send(test, b"one", b"stuck", b"two", b"three")
        await until(lambda: committed(test) == 4, 30)
        assert facts(test).abandoned_handlers == 1
        assert seen == [b"one", b"two", b"three"]
        go_on.set()
        await send(test, b"four")
        await until(lambda: committed(test) == 5)
        assert len(letters(test)) == 1
        assert sorted(seen) == [b"four", b"one", b"stuck", b"three", b"two"]


@pytest.mark.parametrize("ordering", ["partition", "key"])
@in_virtual_time
async def test_a_handler_that_returns_when_it_is_cancelled_is_not_abandoned_while_its_dead_letter_is_written(
    ordering: str,
) -> None:
    app = make_app(
        on_poison="dead-letter-queue", unprocessed_record_max_age="5s", ordering=ordering
    )
    seen = list[bytes]()

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        if value == b"stuck":
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return
        seen.append(value)

    async with running(app) as test:
        hold = test.broker.hold("send", of=LETTERS)
        await send(test, b"stuck")
        await hold.arrived()
        await send(test, b"next")
        # Its worker would be abandoned after one second.
        await asyncio.sleep(3)
        assert (facts(test).abandoned_handlers, seen) == (0, [])
        hold.release()
        await test.settled()
        assert (facts(test).abandoned_handlers, seen) == (0, [b"next"])


@in_virtual_time
async def test_it_is_the_stuck_record_that_is_dead_lettered_and_not_one_that_came_meanwhile() -> (
    None
):
    app, seen = (
        make_app(on_poison="dead-letter-queue", unprocessed_record_max_age="5s"),
        list[bytes](),
    )

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        if value == b"stuck":
            await asyncio.Event().wait()
        seen.append(value)

    async with running(app) as test:
        await send(test, b"stuck")
        await asyncio.sleep(1)
        # A new piece, while the handler has the last record of the one before.
        await send(test, b"next", b"last")
        await test.settled(timeout=30)
        assert [letter.value for letter in letters(test)] == [b"stuck"]
    assert seen == [b"next", b"last"]


@in_virtual_time
async def test_a_message_that_a_manual_handler_left_is_dead_lettered_when_it_is_poison() -> None:
    app = make_app(
        on_poison="dead-letter-queue", unprocessed_record_max_age="5s", commit_interval="100ms"
    )

    @app.incoming("orders", ack="manual")
    async def handler(message: Message[bytes]) -> None:
        if message.payload != b"forgotten":
            message.ack()

    async with running(app) as test:
        await send(test, b"one", b"forgotten", b"two")
        await until(lambda: committed(test) == 3, 30)
        assert [letter.value for letter in letters(test)] == [b"forgotten"]


@in_virtual_time
async def test_the_messages_of_a_stuck_batch_are_dead_lettered_but_for_those_that_are_settled() -> (
    None
):
    app = make_app(
        on_poison="dead-letter-queue",
        unprocessed_record_max_age="5s",
        commit_interval="100ms",
        batch_max_wait="10ms",
    )

    @app.incoming("orders")
    async def handler(batch: Batch[bytes]) -> None:
        if batch[0].payload == b"0":
            batch[1].ack()
            await asyncio.Event().wait()

    async with running(app) as test:
        await send(test, b"0", b"1", b"2")
        await asyncio.sleep(1)
        await send(test, b"3")
        await until(lambda: committed(test) == 4, 30)
        assert sorted(letter.value or b"" for letter in letters(test)) == [b"0", b"2"]


@in_virtual_time
async def test_health_is_down_until_the_letter_of_a_poison_record_is_written() -> None:
    app = make_app(
        on_poison="dead-letter-queue", unprocessed_record_max_age="5s", commit_interval="100ms"
    )

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        await asyncio.Event().wait()

    async with running(app) as test:
        await until(lambda: test.app.health().ready.is_up)
        hold = test.broker.hold("send")
        await send(test, b"stuck")
        await until(lambda: not test.app.health().ready.is_up, 10)
        await asyncio.sleep(3)
        health = test.app.health()
        assert health.live.is_up
        assert not health.ready.is_up
        assert "orders-0 offset 0" in str(health)
        hold.release()
        await until(lambda: committed(test) == 1, 30)
        await until(lambda: test.app.health().ready.is_up)
