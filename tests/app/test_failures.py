"""What failures become: retries in place, the strategies fail and ignore, unreadable records, odd
exceptions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any

import pytest

from reactive_kafka import (
    App,
    Batch,
    BrokerError,
    FailedRecord,
    Headers,
    IncomingSettings,
    Message,
    NotOwnerError,
    Progress,
    Write,
)
from reactive_kafka.errors import CommitStrategyError, HandlerError, TransientBrokerError
from reactive_kafka.events import (
    ChannelFailed,
    HandlerFailed,
    HandlerRetried,
    RecordIgnored,
    SendFailed,
)
from reactive_kafka.testing import NotSettledError
from tests.app.handlers import take_all
from tests.app.helpers import (
    Recorder,
    committed,
    facts,
    in_virtual_time,
    make_app,
    now,
    running,
    send,
    tp,
    until,
)

# -- in place


@in_virtual_time
async def test_a_retry_keeps_the_order_counts_attempts_and_doubles_its_wait() -> None:
    """Row E8 of the faults."""
    recorder = Recorder()
    app = make_app(recorder, retry={"max_attempts": 4, "backoff": "1s", "max_backoff": "3s"})
    calls: list[tuple[float, int, int]] = []

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        calls.append((round(now() - began), message.offset, message.attempt))
        if message.offset == 0 and message.attempt < 4:
            raise ValueError("not yet")

    async with running(app) as test:
        began = now()
        await send(test, b"", b"")
        await test.settled(timeout=60)
        assert facts(test).retries == 3
        assert facts(test).totals[tp()].nacked == {}
    assert calls == [(0, 0, 1), (1, 0, 2), (3, 0, 3), (6, 0, 4), (6, 1, 1)]
    told = [
        (event.offset, event.attempt, event.wait_s, event.reason)
        for event in recorder.of(HandlerRetried)
    ]
    assert told == [
        (0, attempt, wait, "ValueError: not yet")
        for attempt, wait in ((1, 1.0), (2, 2.0), (3, 3.0))
    ]


@pytest.mark.parametrize(
    ("channel", "calls", "counted"),
    [
        ({"retry": {"never": ["KeyError"]}}, 1, "ignore"),
        ({"retry": {"only": ["KeyError"]}}, 3, "ignore"),
        ({"retry": {"only": ["ConnectionError"]}}, 1, "ignore"),
        ({"failure_routes": {"LookupError": "dead-letter-queue"}}, 1, "dead-letter-queue"),
        (
            {
                "failure_routes": {
                    "LookupError": {"strategy": "dead-letter-queue", "after_retries": True}
                }
            },
            3,
            "dead-letter-queue",
        ),
        ({"failure_routes": {"ValueError": "dead-letter-queue"}}, 3, "ignore"),
    ],
)
@pytest.mark.parametrize("takes_batches", [False, True])
@in_virtual_time
async def test_the_exception_says_whether_the_handler_is_called_again(
    channel: dict[str, Any], calls: int, counted: str, takes_batches: bool
) -> None:
    keys = {"retry": {}, **channel}
    keys["retry"] = {"max_attempts": 3, "backoff": "1s", "jitter": 0.5, **keys["retry"]}
    app, attempts = make_app(failure_strategy="ignore", **keys), list[int]()

    async def one(message: Message[bytes]) -> None:
        attempts.append(message.attempt)
        raise KeyError("no")

    async def many(batch: Batch[bytes]) -> None:
        await one(batch[0])

    app.incoming("orders")(many if takes_batches else one)
    async with running(app) as test:
        await send(test, b"")
        await test.settled(timeout=60)
        assert facts(test).totals[tp()].nacked == {counted: 1}
    assert attempts == list(range(1, calls + 1))


@in_virtual_time
async def test_a_retry_holds_up_its_own_partition_only() -> None:
    app, seen = (
        make_app(concurrency=2, retry={"max_attempts": 2, "backoff": "10s"}),
        list[tuple[int, int]](),
    )

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        if (message.partition, message.attempt) == (0, 1):
            raise ValueError("not yet")
        seen.append((message.partition, message.offset))

    async with running(app, partitions=2) as test:
        await send(test, b"", partition=0)
        await send(test, b"", b"", partition=1)
        await test.settled(timeout=60)
    assert seen == [(1, 0), (1, 1), (0, 0)]


async def test_a_payload_handler_and_a_blocking_one_are_tried_again_too() -> None:
    app, calls = make_app(), list[bytes]()

    @app.incoming("orders", retry={"max_attempts": 3, "backoff": "1ms"})
    def handler(value: bytes) -> None:
        calls.append(value)
        if len(calls) < 3:
            raise OSError("away")

    async with running(app) as test:
        await send(test, b"a")
        await test.settled()
    assert calls == [b"a"] * 3


async def test_a_batch_is_tried_again_with_what_has_no_verdict() -> None:
    recorder = Recorder()
    app, calls = make_app(recorder, batch_max_wait="10ms"), list[list[tuple[int, int]]]()

    @app.incoming("orders", retry={"max_attempts": 2, "backoff": "1ms"})
    async def handler(batch: Batch[bytes]) -> None:
        calls.append([(message.offset, message.attempt) for message in batch])
        if len(calls) == 1:
            batch[0].ack()
            raise ValueError("not yet")

    async with running(app) as test:
        await send(test, b"", b"", b"")
        await test.settled()
    assert calls == [[(0, 1), (1, 1), (2, 1)], [(1, 2), (2, 2)]]
    assert [event.offset for event in recorder.of(HandlerRetried)] == [0]


async def test_a_record_that_is_settled_during_the_wait_is_not_tried_again() -> None:
    app, calls = make_app(), list[Message[bytes]]()

    @app.incoming("orders", retry={"max_attempts": 5, "backoff": "20ms"})
    async def handler(message: Message[bytes]) -> None:
        calls.append(message)
        asyncio.get_running_loop().call_soon(message.ack)
        raise ValueError("no")

    async with running(app) as test:
        await send(test, b"", b"")
        await test.settled()
    assert [message.offset for message in calls] == [0, 1]


# -- strategies


async def test_fail_stops_the_channel_and_keeps_the_record_uncommitted() -> None:
    """Row E8 of the faults."""
    recorder = Recorder()
    app, seen = make_app(recorder), list[int]()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        seen.append(message.offset)
        if message.offset == 2:
            raise ValueError("the till is\nclosed")

    async with running(app) as test:
        await send(test, *[b""] * 5)
        await until(lambda: not test.broker.members("billing"))
        assert seen == [0, 1, 2]
        assert committed(test) == 2
        health = app.health()
        assert (health.live.status, health.ready.status, health.status) == ("DOWN", "DOWN", "DOWN")
        reason = health.checks[0].data["reason"]
        assert "orders-0 offset 2: ValueError: the till is" in reason
        assert health.checks[0].data["state"] == "failed"
        await send(test, b"")
        await asyncio.sleep(0.05)
    assert seen == [0, 1, 2]
    assert len(recorder.of(ChannelFailed)) == 1
    # After the stop nothing is failing any more.
    assert app.health().live.status == "UP"


async def test_other_channels_go_on_when_one_fails() -> None:
    app = App(
        {
            "kafka": {"auto_offset_reset": "earliest", "group_id": "g"},
            "incoming": {"bad": {}, "good": {}},
        }
    )
    app.configure(overrides={"kafka": {"commit_interval": "20ms"}})
    seen: list[bytes] = []

    @app.incoming("bad")
    async def fails(value: bytes) -> None:
        raise ValueError("no")

    @app.incoming("good")
    async def works(value: bytes) -> None:
        seen.append(value)

    async with running(app) as test:
        await test.send("bad", b"x")
        await until(lambda: app.channel("bad").facts().state == "failed")
        await test.send("good", b"y")
        await until(lambda: test.committed("good"))
    assert seen == [b"y"]


async def test_ignore_logs_counts_and_goes_on() -> None:
    """Row E8 of the faults."""
    recorder = Recorder()
    app = make_app(recorder, failure_strategy="ignore")

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        if message.offset == 1:
            raise ValueError("no")

    async with running(app) as test:
        await send(test, b"", b"", b"")
        await test.settled()
        totals = facts(test).totals[tp()]
        assert (totals.received, totals.acked, totals.nacked) == (3, 2, {"ignore": 1})
        assert committed(test) == 3
    (event,) = recorder.of(RecordIgnored)
    assert (event.offset, event.reason) == (1, "ValueError: no")


async def test_a_batch_that_raises_nacks_what_has_no_verdict() -> None:
    """Row E7 of the faults."""
    app = make_app(failure_strategy="ignore", batch_max_wait="10ms")

    @app.incoming("orders")
    async def handler(batch: Batch[bytes]) -> None:
        batch[1].ack()
        raise ValueError("the rest")

    async with running(app) as test:
        await send(test, b"", b"", b"")
        await test.settled()
        totals = facts(test).totals[tp()]
    assert (totals.acked, totals.nacked) == (1, {"ignore": 2})


# -- records that cannot be read

decoded: list[bytes] = []


def once_only(value: bytes) -> dict[str, bytes]:
    """A deserializer whose registry is away when it is asked again."""
    if value in decoded:
        raise ConnectionError("the registry is away")
    decoded.append(value)
    return {"value": value}


@pytest.mark.parametrize("ordering", ["partition", "key"])
@pytest.mark.parametrize("shape", ["payload", "message", "batch"])
async def test_a_value_is_decoded_once_however_often_its_handler_fails(
    shape: str, ordering: str
) -> None:
    if (shape, ordering) == ("batch", "key"):
        return
    decoded.clear()
    recorder = Recorder()
    app = make_app(
        recorder,
        failure_strategy="ignore",
        value_deserializer=f"{__name__}:once_only",
        retry={"max_attempts": 3, "backoff": "1ms"},
        batch_max_wait="10ms",
        ordering=ordering,
    )
    seen: list[dict[str, bytes]] = []

    async def handler(given: Any) -> None:
        seen.append(
            given
            if shape == "payload"
            else given.payload
            if shape == "message"
            else given[0].payload
        )
        raise KeyError("x")

    handler.__annotations__["given"] = {
        "payload": dict,
        "message": Message[dict],
        "batch": Batch[dict],
    }[shape]
    app.incoming("orders")(handler)
    async with running(app) as test:
        test.broker.produce("orders", b"1", partition=0)
        await test.settled()
        assert facts(test).state == "running"
    assert len(seen) == 3
    assert all(one is seen[0] for one in seen)
    assert [event.reason for event in recorder.of(RecordIgnored)] == ["KeyError: 'x'"]


@pytest.mark.parametrize("shape", ["payload", "message", "batch"])
async def test_a_record_that_cannot_be_decoded_is_nacked_alone_and_never_tried_again(
    shape: str,
) -> None:
    """Row F13 of the faults."""
    recorder = Recorder()
    app, seen = make_app(recorder, failure_strategy="ignore", batch_max_wait="10ms"), list[int]()
    annotation = {"payload": int, "message": Message[int], "batch": Batch[int]}[shape]

    async def handler(value: Any) -> None:
        if shape == "batch":
            seen.extend(value.payloads)
        else:
            seen.append(value.payload if shape == "message" else value)

    handler.__annotations__["value"] = annotation
    app.incoming("orders", retry=5)(handler)
    async with running(app) as test:
        await send(test, b"1", b"not a number", b"3")
        await test.settled()
        assert facts(test).retries == 0
    assert seen == [1, 3]
    (event,) = recorder.of(RecordIgnored)
    assert event.offset == 1
    assert event.reason.startswith("DecodeError: ")
    assert "not a number" not in event.reason


async def test_with_fail_an_undecodable_record_stops_the_channel_and_keeps_its_cause() -> None:
    app = make_app()

    @app.incoming("orders")
    async def handler(value: int) -> None: ...

    async with running(app) as test:
        await send(test, b"1", b"{")
        await until(lambda: committed(test) == 1 and facts(test).state == "failed")
        assert "DecodeError" in (facts(test).reason or "")


@pytest.mark.parametrize("shape", ["payload", "message", "batch"])
async def test_a_tombstone_is_an_undecodable_record_where_bytes_are_asked_for(shape: str) -> None:
    recorder = Recorder()
    app, seen = make_app(recorder, failure_strategy="ignore", batch_max_wait="10ms"), list[object]()
    annotation = {"payload": bytes, "message": Message[bytes], "batch": Batch[bytes]}[shape]

    async def handler(value: Any) -> None:
        seen.append(value)

    handler.__annotations__["value"] = annotation
    app.incoming("orders")(handler)
    async with running(app) as test:
        await send(test, None)
        await test.settled()
    assert seen == []
    (event,) = recorder.of(RecordIgnored)
    assert (
        "DecodeError: no value (a tombstone), but the handler asks for bytes: annotate bytes | None"
        in event.reason
    )


keys_decoded: list[bytes] = []


def counted(key: bytes) -> str:
    """A deserializer of keys that notes what it is asked for."""
    keys_decoded.append(key)
    return key.decode("ascii")


@pytest.mark.parametrize("ordering", ["partition", "key", "unordered"])
@pytest.mark.parametrize("ack", ["post", "manual", "pre"])
@pytest.mark.parametrize("shape", ["payload", "message", "batch"])
@in_virtual_time
async def test_a_record_whose_key_cannot_be_decoded_reaches_no_handler_and_is_nacked_alone(
    shape: str, ack: str, ordering: str
) -> None:
    if (shape, ack) == ("payload", "manual") or (shape, ordering) == ("batch", "key"):
        return
    keys_decoded.clear()
    app = make_app(
        failure_strategy="dead-letter-queue",
        ordering=ordering,
        value_deserializer="bytes",
        key_deserializer=f"{__name__}:counted",
        batch_max_wait="10ms",
        retry={"max_attempts": 2, "backoff": "10ms"},
    )
    seen: list[Any] = []

    def see(message: Message[bytes]) -> None:
        seen.append((message.payload, message.key, message.key))
        if ack == "manual":
            message.ack()

    async def handler(given: Any) -> None:
        if shape == "payload":
            seen.append((given, given.decode(), given.decode()))
        else:
            for message in given if shape == "batch" else [given]:
                see(message)
        if seen[-1][0] == b"2" and len([one for one in seen if one[0] == b"2"]) == 1:
            raise ValueError("once more")

    handler.__annotations__["given"] = {
        "payload": bytes,
        "message": Message[bytes],
        "batch": Batch[bytes],
    }[shape]
    app.incoming("orders", ack=ack)(handler)
    async with running(app) as test:
        for value, key in ((b"1", b"1"), (b"bad", b"\xff"), (b"2", b"2")):
            test.broker.produce("orders", value, key=key, partition=0)
        await test.settled()
        assert committed(test) == 3
        letters = test.records("dead-letter-topic-orders")
    assert {value for value, *_ in seen} == {b"1", b"2"}
    assert all(value.decode() == key == once_more for value, key, once_more in seen)
    # Once each, also where the handler is called again.
    assert sorted(keys_decoded) == [b"1", b"2", b"\xff"]
    if ack == "pre":
        return
    (letter,) = letters
    said = Headers(letter.headers)
    assert (letter.key, letter.value) == (b"\xff", b"bad")
    assert said.get("deserialization-failure-deserializer") == f"{__name__}:counted".encode()
    assert (said.get("dead-letter-reason") or b"").startswith(b"the record's key: ")


async def test_who_iterates_gets_no_message_whose_key_cannot_be_decoded() -> None:
    recorder = Recorder()
    app = make_app(
        recorder, failure_strategy="ignore", key_deserializer="int32", value_deserializer="bytes"
    )
    seen: list[tuple[bytes, int]] = []

    async def consume() -> None:
        async for message in app.channel("orders"):
            seen.append((message.payload, message.key))
            message.ack()

    async with running(app) as test:
        consuming = asyncio.create_task(consume())
        for key in (b"\0\0\0\7", b"bad", b"\0\0\0\10"):
            test.broker.produce("orders", b"", key=key, partition=0)
        await until(lambda: len(seen) == 2)
        await test.settled()
    await consuming
    assert seen == [(b"", 7), (b"", 8)]
    (event,) = recorder.of(RecordIgnored)
    assert event.reason == (
        "DecodeError: the record's key: an integer has 4 or 8 bytes on the wire, this value has 3"
    )


ODD: dict[bytes, BaseException] = {
    b"cancelled": asyncio.CancelledError(),
    b"generator": GeneratorExit(),
    b"base": BaseException("odd"),
    b"stop": StopIteration(),
    b"exit": SystemExit(3),
    b"interrupt": KeyboardInterrupt(),
}


def odd(given: bytes) -> str:
    """A deserializer that raises what it is given."""
    if given in ODD:
        raise ODD[given]
    return given.decode()


@pytest.mark.parametrize("of", ["value", "key"])
@pytest.mark.parametrize("error", [b"cancelled", b"generator", b"base", b"stop"])
@pytest.mark.parametrize("shape", ["payload", "message", "batch"])
async def test_whatever_a_deserializer_raises_is_a_nack_of_that_record(
    shape: str, error: bytes, of: str
) -> None:
    recorder = Recorder()
    app = make_app(
        recorder,
        failure_strategy="ignore",
        batch_max_wait="10ms",
        **{f"{of}_deserializer": f"{__name__}:odd"},
    )
    seen: list[Any] = []

    async def handler(given: Any) -> None:
        seen.extend(
            given.payloads if shape == "batch" else [given.payload if shape == "message" else given]
        )

    handler.__annotations__["given"] = {
        "payload": str,
        "message": Message[str],
        "batch": Batch[str],
    }[shape]
    app.incoming("orders")(handler)
    async with running(app) as test:
        for part in (b"1", error, b"3"):
            test.broker.produce("orders", part, key=part, partition=0)
        await test.settled()
        assert facts(test).state == "running"
    assert seen == ["1", "3"]
    (event,) = recorder.of(RecordIgnored)
    assert (event.offset, event.reason.startswith("DecodeError: ")) == (1, True)


@pytest.mark.parametrize("of", ["value", "key"])
@pytest.mark.parametrize(("error", "code"), [(b"exit", 3), (b"interrupt", 0)])
@pytest.mark.parametrize("shape", ["payload", "message", "batch"])
@in_virtual_time
async def test_a_deserializer_may_end_the_process_as_a_handler_may(
    shape: str, error: bytes, code: int, of: str
) -> None:
    app = make_app(batch_max_records=1, **{f"{of}_deserializer": f"{__name__}:odd"})

    async def handler(given: Any) -> None: ...

    handler.__annotations__["given"] = {
        "payload": str,
        "message": Message[str],
        "batch": Batch[str],
    }[shape]
    app.incoming("orders")(handler)
    async with running(app) as test:
        for part in (b"1", error):
            test.broker.produce("orders", part, key=part, partition=0)
        run = app._run
        assert run is not None
        began = now()
        await run.wait_asked()
        await app.stop()
        assert now() - began < 1, "waited for a record that nobody will settle"
        assert run.exit_code() == code
        assert committed(test) == 1


# -- odd exceptions


class Odd(BaseException):
    """Not an Exception."""


@pytest.mark.parametrize(
    "error",
    [
        Odd("odd"),
        asyncio.CancelledError("own"),
        GeneratorExit(),
        TimeoutError("slow"),
        MemoryError(),
        RecursionError("maximum recursion depth exceeded"),
    ],
)
@pytest.mark.parametrize("shape", ["payload", "batch"])
async def test_whatever_a_handler_raises_by_itself_is_a_nack(
    shape: str, error: BaseException
) -> None:
    """Rows D5, D6 of the faults."""
    app, seen = make_app(failure_strategy="ignore", batch_max_records=1), list[object]()

    async def handler(value: Any) -> None:
        seen.append(value)
        if len(seen) == 1:
            raise error

    handler.__annotations__["value"] = bytes if shape == "payload" else Batch[bytes]
    app.incoming("orders")(handler)
    async with running(app) as test:
        await send(test, b"", b"")
        await test.settled()
        assert facts(test).totals[tp()].nacked == {"ignore": 1}
    assert len(seen) == 2


@pytest.mark.parametrize(
    "error",
    [
        StopIteration(),
        StopAsyncIteration(),
        GeneratorExit(),
        asyncio.CancelledError(),
        Odd(),
        asyncio.InvalidStateError(),
    ],
)
@pytest.mark.parametrize(
    "shape", ["payload", "message", "batch", "async", "async batch", "awaited"]
)
async def test_whatever_a_handler_raises_in_a_thread_or_on_the_loop_is_a_nack(
    shape: str, error: BaseException
) -> None:
    """StopIteration among them, which no coroutine may raise, and no future may hold."""
    app = make_app(failure_strategy="ignore", batch_max_records=1, value_deserializer="bytes")
    seen: list[object] = []

    def blocking(given: Any) -> None:
        seen.append(given)
        if len(seen) == 1:
            raise error

    async def on_the_loop(given: Any) -> None:
        blocking(given)

    def awaited(given: Any) -> Any:
        return on_the_loop(given)

    function: Any = {"async": on_the_loop, "async batch": on_the_loop, "awaited": awaited}.get(
        shape, blocking
    )
    kinds = {"message": Message[bytes], "batch": Batch[bytes], "async batch": Batch[bytes]}
    function.__annotations__["given"] = kinds.get(shape, bytes)
    app.incoming("orders")(function)
    async with running(app) as test:
        await send(test, b"", b"")
        await test.settled()
        assert facts(test).totals[tp()].nacked == {"ignore": 1}
        assert facts(test).state == "running"
    assert len(seen) == 2


@pytest.mark.parametrize(
    "error", [GeneratorExit(), Odd(), asyncio.CancelledError(), asyncio.InvalidStateError()]
)
@pytest.mark.parametrize("shape", ["payload", "batch"])
async def test_it_is_a_nack_too_once_a_handler_has_left_its_task_cancelled(
    shape: str, error: BaseException
) -> None:
    app, seen = make_app(failure_strategy="ignore", batch_max_records=1), list[object]()

    async def handler(value: Any) -> None:
        seen.append(value)
        if len(seen) == 1:
            task = asyncio.current_task()
            assert task is not None
            # From here on every call has a task of its own.
            task.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(1)
        if len(seen) == 2:
            raise error

    handler.__annotations__["value"] = bytes if shape == "payload" else Batch[bytes]
    app.incoming("orders")(handler)
    async with running(app) as test:
        await send(test, b"", b"", b"")
        await test.settled()
        assert facts(test).totals[tp()].nacked == {"ignore": 1}
        assert facts(test).state == "running"
    assert len(seen) == 3


@in_virtual_time
@pytest.mark.parametrize("shape", ["payload", "batch"])
@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
async def test_a_handler_that_ends_the_process_settles_nothing_and_stops_the_application(
    error: BaseException, shape: str
) -> None:
    """Row D5 of the faults."""
    app = make_app(batch_max_records=1, drain_timeout="30s")

    async def handler(value: Any) -> None:
        raise error

    handler.__annotations__["value"] = bytes if shape == "payload" else Batch[bytes]
    app.incoming("orders")(handler)
    async with running(app) as test:
        await send(test, b"", b"")
        run = app._run
        assert run is not None
        began = now()
        await run.wait_asked()
        await app.stop()
        assert now() - began < 1, "waited for a record that nobody will settle"
        assert test.broker.commits("billing") == ()
        assert run.exit_code() == (3 if isinstance(error, SystemExit) else 0)


@in_virtual_time
@pytest.mark.parametrize("shape", ["payload", "batch"])
async def test_a_stop_does_not_wait_for_the_next_attempt(shape: str) -> None:
    app, calls = (
        make_app(batch_max_records=1, retry={"max_attempts": 2, "backoff": "10s"}),
        list[object](),
    )

    async def handler(value: Any) -> None:
        calls.append(value)
        raise ValueError("not yet")

    handler.__annotations__["value"] = bytes if shape == "payload" else Batch[bytes]
    app.incoming("orders")(handler)
    async with running(app) as test:
        await send(test, b"")
        await until(lambda: calls)
        began = now()
        await app.stop()
        assert now() - began < 1
        assert len(calls) == 1
        assert test.broker.commits("billing") == ()


@pytest.mark.parametrize("ack", ["post", "manual"])
@pytest.mark.parametrize("ordering", ["partition", "key", "unordered"])
async def test_a_raise_after_a_verdict_of_its_own_is_told_and_changes_nothing(
    ordering: str, ack: str
) -> None:
    recorder = Recorder()
    app = make_app(
        recorder, failure_strategy="ignore", ordering=ordering, ack=ack, retry={"max_attempts": 3}
    )
    calls: list[int] = []

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        calls.append(message.offset)
        if message.payload == b"nacked":
            message.nack(ValueError("first"))
        else:
            await message.ack()
        raise KeyError("second")

    async with running(app) as test:
        await send(test, b"nacked", b"acked")
        await until(lambda: len(recorder.of(HandlerFailed)) == 2)
        await test.settled()
        totals = facts(test).totals[tp()]
        assert (totals.acked, totals.nacked) == (1, {"ignore": 1})
    assert sorted(calls) == [0, 1]
    assert [event.reason for event in recorder.of(RecordIgnored)] == ["ValueError: first"]
    told = sorted(recorder.of(HandlerFailed), key=lambda event: event.offset)
    assert [(event.offset, event.reason) for event in told] == [
        (0, "KeyError: 'second'"),
        (1, "KeyError: 'second'"),
    ]
    assert isinstance(told[0].error, KeyError)
    assert (
        told[0].text()
        == "orders-0 offset 0: the handler raised after its record had its verdict: KeyError: 'second'"
    )


async def test_a_batch_handler_that_raises_with_everything_settled_is_told_once() -> None:
    recorder = Recorder()
    app = make_app(
        recorder, failure_strategy="ignore", batch_max_records=3, retry={"max_attempts": 3}
    )

    @app.incoming("orders")
    async def handler(batch: Batch[bytes]) -> None:
        batch[0].nack(ValueError("first"))
        batch.ack()
        raise KeyError("second")

    async with running(app) as test:
        await send(test, b"", b"", b"")
        await until(lambda: recorder.of(HandlerFailed))
        await test.settled()
    assert [event.reason for event in recorder.of(HandlerFailed)] == ["KeyError: 'second'"]
    assert [event.reason for event in recorder.of(RecordIgnored)] == ["ValueError: first"]


@in_virtual_time
async def test_a_handler_that_raises_when_its_partition_has_gone_or_its_record_was_poison_tells_nothing() -> (
    None
):
    recorder = Recorder()
    app = make_app(
        recorder,
        unprocessed_record_max_age="5s",
        on_poison="dead-letter-queue",
        revoke_grace="1s",
        drain_timeout="1s",
    )
    ended: list[bytes] = []

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        try:
            if message.payload == b"gone":
                await message.ack()
                await asyncio.sleep(4)
            else:
                await asyncio.sleep(100)
        finally:
            ended.append(message.payload)
            raise KeyError(message.payload)

    async with running(app) as test:
        await send(test, b"poison")
        await until(lambda: ended == [b"poison"])
        await send(test, b"gone")
        await until(lambda: committed(test) == 2, 60)
        await app.channel("orders").seek(tp(), 2)
        await until(lambda: ended == [b"poison", b"gone"])
        await test.settled()
    assert recorder.of(HandlerFailed) == []


@pytest.mark.parametrize(
    ("keys", "counted_by"),
    [
        ({}, ("fail",)),
        (
            {
                "failure_strategy": "ignore",
                "failure_routes": {"KeyError": "fail", "ValueError": "ignore"},
            },
            ("ignore", "fail"),
        ),
        ({"on_poison": "dead-letter-queue"}, ("fail", "dead-letter-queue")),
        ({"ack": "pre"}, ("fail", "pre")),
    ],
)
async def test_facts_name_what_nacks_are_counted_by_before_there_is_one(
    keys: dict[str, Any], counted_by: tuple[str, ...]
) -> None:
    app = make_app(**keys)
    take_all(app)

    async with running(app) as test:
        assert facts(test).failure_strategies == counted_by


# -- who waits when a channel fails


@pytest.mark.parametrize("strategy", ["throttled", "latest"])
@in_virtual_time
async def test_whoever_waits_for_a_channel_that_fails_is_told_why_it_has(strategy: str) -> None:
    app = make_app(
        commit_strategy=strategy, commit_interval="1h", ack="manual", revoke_grace="100ms"
    )
    kept, told = list[Message[bytes]](), list[BaseException]()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        kept.append(message)
        if message.offset == 1:
            raise LookupError("no such order")

    async with running(app) as test:
        channel = app.channel("orders")
        await send(test, b"", b"")
        await until(lambda: kept)
        waiting = kept[0].committed()
        await until(lambda: facts(test).state == "failed")
        calls: list[Awaitable[Any]] = [
            waiting,
            kept[0].committed(),
            channel.commit(),
            channel.commit({tp(): 0}),
            channel.seek(tp(), 0),
            test.settled(),
        ]
        await until(lambda: not channel.assignment)
        for call in calls:
            with pytest.raises((BrokerError, NotSettledError)) as caught:
                await call
            told.append(caught.value)
    assert [type(error) for error in told] == [
        NotOwnerError,
        NotOwnerError,
        TransientBrokerError,
        NotOwnerError,
        NotOwnerError,
        NotSettledError,
    ]
    *of_calls, of_the_test = [error.__cause__ for error in told]
    assert {type(cause) for cause in of_calls} == {HandlerError}
    assert {repr(cause.__cause__) for cause in of_calls if cause} == {
        "LookupError('no such order')"
    }
    # What the test's author has raised, at once.
    assert repr(of_the_test) == "LookupError('no such order')"
    assert str(told[0]) == (
        "channel 'orders' has failed before the record was committed: "
        "channel 'orders': orders-0 offset 1: LookupError: no such order"
    )


@in_virtual_time
async def test_what_was_taken_away_before_a_channel_failed_was_not_taken_away_by_that() -> None:
    app, kept = make_app(ack="manual", revoke_grace="100ms"), list[Message[bytes]]()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        kept.append(message)
        if message.payload == b"bad":
            raise LookupError("no such order")

    async with running(app) as test:
        await send(test, b"")
        await until(lambda: kept)
        (member,) = test.broker.members("billing")
        test.broker.expire("billing", member)
        await until(lambda: len(kept) == 2, 60)
        await send(test, b"bad")
        await until(lambda: facts(test).state == "failed")
        with pytest.raises(NotOwnerError, match="was taken away before") as caught:
            await kept[0].committed()
        assert caught.value.__cause__ is None


@in_virtual_time
async def test_a_test_is_told_of_a_commit_strategy_that_fails_as_of_any_other_failure() -> None:
    app = make_app(commit_strategy=f"{__name__}:Fails")
    take_all(app)

    async with running(app) as test:
        await send(test, b"")
        with pytest.raises(
            NotSettledError, match="channel 'orders' fails: the commit strategy"
        ) as caught:
            await test.settled()
        assert isinstance(caught.value.__cause__, CommitStrategyError)


class Fails:
    """A commit strategy that raises."""

    interval_s = None
    commits_at_ack = False

    def __init__(self, settings: IncomingSettings) -> None: ...

    def position(self, progress: Progress, now: float) -> int | None:
        raise ZeroDivisionError("division by zero")


# -- a strategy of the user's


class Deciding:
    """Writes what no client takes, or raises what is no Exception."""

    def decide(self, failed: FailedRecord) -> Write:
        if failed.value == b"exit":
            raise SystemExit(3)
        # The mistake.
        return Write(topic="t", value=failed.value, key=None, headers=None)  # type: ignore[arg-type]


class DecidingLater(Deciding):
    async def decide(self, failed: FailedRecord) -> Write:  # type: ignore[override]
        await asyncio.sleep(0.1)
        return super().decide(failed)


class DecidingWithATimer:
    """Cancels its task after a while, and swallows that."""

    async def decide(self, failed: FailedRecord) -> Write:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().call_later(0.1, task.cancel)
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(10)
        return Write(topic="letters", value=failed.value, key=None, headers=())


deciding, deciding_later, deciding_with_a_timer = Deciding(), DecidingLater(), DecidingWithATimer()


@in_virtual_time
async def test_a_strategy_that_swallows_its_own_cancellation_is_no_failure_when_its_partition_goes() -> (
    None
):
    recorder = Recorder()
    app = make_app(
        recorder, failure_strategy=f"{__name__}:deciding_with_a_timer", drain_timeout="1s"
    )

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        raise ValueError("no")

    async with running(app) as test:
        test.broker.topic_away("letters")
        await send(test, b"")
        await until(lambda: recorder.of(SendFailed))
        await app.stop()
    assert recorder.of(ChannelFailed) == []


@pytest.mark.parametrize("strategy", ["deciding", "deciding_later"])
@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b"write", "decided a Write that can never be written: headers = None"),
        (b"exit", "SystemExit: 3"),
    ],
)
@in_virtual_time
async def test_a_strategy_that_errs_stops_its_channel_and_no_other(
    strategy: str, value: bytes, said: str
) -> None:
    app = App(
        {
            "incoming": {
                "orders": {
                    "group_id": "billing",
                    "auto_offset_reset": "earliest",
                    "failure_strategy": f"{__name__}:{strategy}",
                },
                "clicks": {"group_id": "counting"},
            }
        }
    )
    clicks = list[bytes]()

    @app.incoming("orders")
    async def order(value: bytes) -> None:
        raise ValueError("no")

    @app.incoming("clicks")
    async def click(value: bytes) -> None:
        clicks.append(value)

    async with running(app) as test:
        await send(test, value)
        await until(lambda: facts(test).state == "failed")
        assert "orders-0 offset 0: " in (reason := str(facts(test).reason))
        assert said in reason
        await test.send("clicks", b"on")
        await until(lambda: clicks == [b"on"])
        assert committed(test) is None
        assert app.health().live.status == "DOWN"
