"""Memory channels: values go from handler to handler as objects, and acks travel back to where they
came from.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from reactive_kafka import (
    App,
    Batch,
    BufferFullError,
    ChannelClosedError,
    ConfigError,
    Later,
    Message,
    Record,
    RejectedRecordError,
    Sending,
    TransientBrokerError,
)
from reactive_kafka.events import (
    ChannelFailed,
    HandlerFailed,
    OutputLost,
    RecordHandedBack,
    RecordIgnored,
    Unwritten,
)
from reactive_kafka.testing import TestApp
from tests.app.helpers import (
    Recorder,
    committed,
    facts,
    in_virtual_time,
    now,
    positions,
    rebalanced,
    running,
    send,
    settle_down,
    tp,
    until,
)
from tests.simulation.held import timers


@dataclass
class Order:
    number: int


def staged(
    recorder: Recorder | None = None, *, stage: dict[str, Any] | None = None, **orders: Any
) -> App:
    """An application with the incoming channel orders, the outgoing one invoices, and the memory
    channel stage.
    """
    return App(
        {
            "incoming": {
                "orders": {"group_id": "billing", "auto_offset_reset": "earliest", **orders}
            },
            "outgoing": {"invoices": {}},
            "memory": {"stage": stage or {}},
        },
        observer=recorder,
    )


def passing(app: App) -> None:
    """Orders go to stage as they are."""

    @app.incoming("orders")
    @app.outgoing("stage")
    async def upstream(order: int) -> int:
        return order


def of_stage(test: TestApp) -> Any:
    """What is known about the channel stage."""
    return next(one for one in test.app.facts().outgoing if one.channel == "stage")


# -- what goes through


async def test_an_object_comes_out_as_the_one_that_went_in() -> None:
    app, sent, seen = staged(), list[object](), list[object]()

    @app.incoming("orders")
    @app.outgoing("stage")
    async def upstream(order: int) -> Order:
        sent.append(Order(order))
        return sent[-1]  # type: ignore[return-value]

    @app.incoming("stage")
    async def downstream(order: Order) -> None:
        seen.append(order)

    async with running(app) as test:
        await send(test, 1, 2)
        await test.settled()
        assert list(map(id, seen)) == list(map(id, sent))
        assert committed(test) == 2


async def test_a_record_keeps_its_key_headers_and_time_and_a_plain_value_has_none() -> None:
    app, at, seen = staged(), datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), list[Message[object]]()

    @app.incoming("orders")
    @app.outgoing("stage")
    async def upstream(order: int) -> AsyncIterator[object]:
        yield Record(
            Order(order),
            key="k",
            headers=[("h", b"1")],
            timestamp=at,
            partition=7,
            topic="elsewhere",
        )
        yield Order(order)

    @app.incoming("stage")
    async def downstream(message: Message[object]) -> None:
        seen.append(message)

    async with running(app) as test:
        await send(test, 1)
        await test.settled()
    first, second = seen
    assert (first.payload, first.key, first.headers, first.timestamp) == (
        Order(1),
        b"k",
        [("h", b"1")],
        at,
    )
    assert (second.payload, second.key, second.headers) == (Order(1), None, [])
    assert [(one.channel, one.topic, one.partition, one.offset) for one in seen] == [
        ("stage", "stage", 0, 0),
        ("stage", "stage", 0, 1),
    ]


async def test_a_batch_and_a_blocking_handler_take_them_too() -> None:
    app, seen = staged(stage={"max_in_flight": 2}), list[list[int]]()
    passing(app)

    @app.incoming("stage")
    def downstream(batch: Batch[int]) -> None:
        seen.append(batch.payloads)

    async with running(app) as test:
        await send(test, 1, 2, 3, 4)
        await test.settled()
    # No batch waits for more than there is room for.
    assert seen == [[1, 2], [3, 4]]


async def test_what_does_not_fit_the_annotation_is_validated_or_nacked() -> None:
    recorder = Recorder()
    app, seen = staged(recorder, failure_strategy="ignore"), list[Order]()

    @app.incoming("orders")
    @app.outgoing("stage")
    async def upstream(order: int) -> object:
        return {"number": order} if order < 2 else "no order"

    @app.incoming("stage", retry={"max_attempts": 3})
    async def downstream(order: Order) -> None:
        seen.append(order)

    async with running(app) as test:
        await send(test, 1, 2)
        await test.settled()
    assert seen == [Order(1)]
    (ignored,) = recorder.of(RecordIgnored)
    assert ignored.offset == 1
    assert ignored.reason.startswith(
        "DecodeError: does not fit Order: Input should be a dictionary or an instance of"
    )


# -- acks travel back


@in_virtual_time
async def test_the_order_is_acked_when_its_handler_downstream_has_acked_and_at_once_then() -> None:
    app, go_on, acked = staged(commit_strategy="latest"), asyncio.Event(), list[float]()
    passing(app)

    @app.incoming("stage")
    async def downstream(order: int) -> None:
        await go_on.wait()
        acked.append(now())

    async with running(app) as test:
        test.broker.watch_commits("billing", lambda entry: acked.append(entry.at))
        await send(test, 1)
        await asyncio.sleep(30)
        assert (committed(test), facts(test).partitions[0].in_flight, of_stage(test).in_flight) == (
            None,
            1,
            1,
        )
        go_on.set()
        await until(lambda: committed(test) == 1)
        assert acked[1] - acked[0] < 0.01
        assert of_stage(test).sent == {"ok": 1, "failed": 0}


@in_virtual_time
async def test_through_two_memory_channels_it_is_acked_when_the_broker_has_what_came_of_it() -> (
    None
):
    app = App(
        {
            "incoming": {
                "orders": {
                    "group_id": "billing",
                    "auto_offset_reset": "earliest",
                    "commit_interval": "1s",
                }
            },
            "outgoing": {"invoices": {}},
            "memory": {"stage": {}, "last": {}},
        }
    )
    passing(app)

    @app.incoming("stage")
    @app.outgoing("last")
    async def fan_out(order: int) -> AsyncIterator[Record]:
        yield Record(order, key="a")
        yield Record(-order, key="b")

    @app.incoming("last")
    @app.outgoing("invoices")
    async def invoice(message: Message[int]) -> Record:
        return Record(message.payload, key=message.key)

    async with running(app) as test:
        confirmation = test.broker.hold("send", answer=True)
        await send(test, 7)
        await confirmation.arrived()
        await asyncio.sleep(5)
        assert committed(test) is None
        confirmation.release()
        await test.settled()
        assert {(one.key, one.value) for one in test.records("invoices")} == {
            (b"a", b"7"),
            (b"b", b"-7"),
        }
        assert committed(test) == 1


@in_virtual_time
async def test_after_the_handlers_own_retries_the_failure_strategy_of_the_order_decides() -> None:
    recorder, calls = Recorder(), list[tuple[int, int]]()
    app = staged(recorder, failure_strategy="dead-letter-queue", retry={"max_attempts": 5})
    passing(app)

    @app.incoming("stage", retry={"max_attempts": 3, "backoff": "1s"})
    async def downstream(message: Message[int]) -> None:
        calls.append((message.payload, message.attempt))
        if message.payload == 1 or message.attempt == 1:
            raise ValueError(f"no {message.payload}")

    async with running(app) as test:
        await send(test, 1, 2)
        await test.settled(timeout=30)
        (letter,) = test.records("dead-letter-topic-orders")
        headers = {name: value for name, value in letter.headers if value is not None}
        assert letter.value == b"1"
        assert headers["dead-letter-reason"] == b"no 1"
        assert committed(test) == 2
    # In their order, and upstream is not called again.
    assert calls == [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2)]
    (event,) = recorder.of(RecordHandedBack)
    assert event.text() == "stage-0 offset 0 was nacked back to the sender: ValueError: no 1"


async def test_with_the_strategy_fail_the_channel_of_the_order_stops_and_the_memory_channel_does_not() -> (
    None
):
    app, by_hand = staged(), list[int]()
    emitter = app.emitter("stage")
    passing(app)

    @app.incoming("stage")
    async def downstream(order: int) -> None:
        if order == 1:
            raise ValueError("no")
        by_hand.append(order)

    async with running(app) as test:
        await send(test, 1)
        await until(lambda: facts(test).state == "failed")
        assert facts(test).reason == "channel 'orders': orders-0 offset 0: ValueError: no"
        await emitter.send(2)
        assert by_hand == [2]
        assert {one.name: one.status for one in app.health().checks} == {
            "orders": "DOWN",
            "stage": "UP",
        }


@pytest.mark.parametrize("wait_for_write", [True, False])
async def test_who_sends_to_kafka_too_is_acked_when_both_are_done(wait_for_write: bool) -> None:
    app, go_on = staged(), asyncio.Event()

    @app.incoming("orders")
    @app.outgoing("invoices")
    @app.outgoing("stage")
    async def upstream(order: int) -> int:
        return order

    @app.incoming("stage")
    async def downstream(order: int) -> None:
        await go_on.wait()

    overrides = {"outgoing": {"invoices": {"wait_for_write": wait_for_write}}}
    async with TestApp(app, overrides=overrides) as test:
        await send(test, 1)
        await until(lambda: test.records("invoices"))
        await settle_down()
        assert facts(test).partitions[0].in_flight == 1
        go_on.set()
        await test.settled()
        assert committed(test) == 1


async def test_a_batch_upstream_is_acked_or_nacked_with_all_that_it_led_to() -> None:
    recorder = Recorder()
    app = staged(recorder, failure_strategy="ignore", batch_max_wait="1ms", batch_max_records=2)

    @app.incoming("orders")
    @app.outgoing("stage")
    async def upstream(batch: Batch[int]) -> list[Record]:
        return [Record(order) for order in batch.payloads]

    @app.incoming("stage")
    async def downstream(order: int) -> None:
        if order == 3:
            raise ValueError("no 3")

    async with running(app) as test:
        await send(test, 1, 2, 3, 4)
        await test.settled()
        assert committed(test) == 4
    assert [(one.offset, one.reason) for one in recorder.of(RecordIgnored)] == [
        (2, "ValueError: no 3"),
        (3, "ValueError: no 3"),
    ]


@pytest.mark.parametrize("takes", [int, Batch[int]])
@pytest.mark.parametrize("ack", ["pre", "none"])
async def test_what_is_acked_before_its_handler_runs_is_acked_upstream_too(
    ack: Any, takes: Any
) -> None:
    recorder, go_on = Recorder(), asyncio.Event()
    app = staged(recorder, stage={"max_in_flight": 1})
    passing(app)

    async def downstream(given: Any) -> None:
        await go_on.wait()
        raise ValueError("too late")

    downstream.__annotations__["given"] = takes
    app.incoming("stage", ack=ack)(downstream)

    async with running(app) as test:
        await send(test, 1)
        await test.settled()
        assert committed(test) == 1
        go_on.set()
        await until(lambda: recorder.of(HandlerFailed))
    (event,) = recorder.of(HandlerFailed)
    assert (event.channel, event.reason) == ("stage", "ValueError: too late")


async def test_an_ack_and_a_nack_by_hand_count_whenever_they_come_and_once() -> None:
    recorder, kept = Recorder(), list[Message[int]]()
    app = staged(recorder, failure_strategy="ignore")
    passing(app)

    @app.incoming("stage", ack="manual")
    async def downstream(message: Message[int]) -> None:
        kept.append(message)

    async with running(app) as test:
        await send(test, 1, 2, 3)
        await until(lambda: len(kept) == 3)
        await settle_down()
        assert facts(test).partitions[0].in_flight == 3
        assert await kept[2].ack() is True
        assert await kept[0].nack(ValueError("no")) is True
        assert await kept[0].ack() is False
        assert await asyncio.to_thread(lambda: kept[1].ack().result(5)) is True  # type: ignore[call-arg]
        await test.settled()
        assert committed(test) == 3
        with pytest.raises(ValueError, match="goes back to the sender"):
            kept[1].nack(ValueError("no"), record=Record(b""))
    assert [(one.offset, one.reason) for one in recorder.of(RecordIgnored)] == [
        (0, "ValueError: no")
    ]


async def test_a_handler_that_acks_and_then_raises_has_acked() -> None:
    recorder = Recorder()
    app = staged(recorder)
    passing(app)

    @app.incoming("stage")
    async def downstream(message: Message[int]) -> None:
        message.ack()
        raise ValueError("too late")

    async with running(app) as test:
        await send(test, 1)
        await test.settled()
        assert committed(test) == 1
    assert [(one.channel, one.reason) for one in recorder.of(HandlerFailed)] == [
        ("stage", "ValueError: too late")
    ]
    assert recorder.of(RecordHandedBack) == []


@pytest.mark.parametrize("ordering", ["partition", "key", "unordered"])
async def test_the_order_of_upstream_is_kept_whatever_its_concurrency(ordering: str) -> None:
    app, seen = staged(ordering=ordering, concurrency=4, commit_interval="20ms"), list[int]()
    running_now = 0
    passing(app)

    @app.incoming("stage")
    async def downstream(order: int) -> None:
        nonlocal running_now
        running_now += 1
        assert running_now == 1
        await asyncio.sleep(0)
        running_now -= 1
        seen.append(order)

    async with running(app) as test:
        await send(test, *range(200))
        await test.settled()
        assert sorted(seen) == list(range(200))
        assert ordering != "partition" or seen == list(range(200))
        assert committed(test) == 200


# -- emitters and sources


@in_virtual_time
async def test_a_send_is_complete_when_its_value_is_acked_and_raises_why_it_is_nacked() -> None:
    app = staged()
    emitter = app.emitter("stage")

    @app.incoming("stage")
    async def downstream(order: int) -> None:
        await asyncio.sleep(order)
        if order == 2:
            raise KeyError("two")

    async with running(app):
        began = now()
        assert await emitter.send(1, key="k") == ("stage", 0, 0)
        assert round(now() - began, 2) == 1
        with pytest.raises(KeyError, match="two"):
            await emitter.send(2)
        waiting = emitter.send_nowait(40)
        # No send_timeout: how long it takes is the handler's matter.
        await emitter.flush()
        assert (await waiting).offset == 2


async def test_a_full_channel_refuses_send_nowait_and_a_source_waits() -> None:
    app, go_on, most = staged(stage={"max_in_flight": 3}), asyncio.Event(), 0
    emitter, pulled, seen = app.emitter("stage"), list[int](), list[int]()

    @app.outgoing("stage")
    async def source() -> AsyncIterator[int]:
        for number in range(50):
            pulled.append(number)
            yield number

    @app.incoming("stage")
    async def downstream(order: int) -> None:
        nonlocal most
        await go_on.wait()
        most = max(
            most, next(one.in_flight for one in app.facts().outgoing if one.channel == "stage")
        )
        seen.append(order)

    async with running(app) as test:
        await until(lambda: len(pulled) == 4)
        await settle_down()
        assert (len(pulled), of_stage(test).in_flight) == (4, 3)
        with pytest.raises(
            BufferFullError,
            match=r"memory channel 'stage': 3 values are not settled \(max_in_flight\)",
        ):
            emitter.send_nowait(99)
        gives_up = asyncio.ensure_future(emitter.send(98))
        await settle_down()
        gives_up.cancel()
        go_on.set()
        await emitter.send(100)
        await until(lambda: len(seen) == 51)
    assert sorted(seen) == [*range(50), 100]
    assert most == 3


async def test_a_send_that_is_cancelled_in_the_moment_in_which_room_comes_is_cancelled() -> None:
    app, go_on, seen = staged(stage={"max_in_flight": 1}), asyncio.Event(), list[Message[int]]()
    emitter = app.emitter("stage")

    @app.incoming("stage")
    async def downstream(message: Message[int]) -> None:
        seen.append(message)
        await go_on.wait()

    async with running(app):
        first = asyncio.ensure_future(emitter.send(1))
        second = asyncio.ensure_future(emitter.send(2))
        await until(lambda: len(seen) == 1)
        second.cancel()
        seen[0].ack()
        with pytest.raises(asyncio.CancelledError):
            await second
        await first
        go_on.set()
        await emitter.send(3)
    assert [message.payload for message in seen] == [1, 3]


async def test_a_nacked_value_of_a_source_is_told_and_the_next_one_follows() -> None:
    recorder, seen = Recorder(), list[int]()
    app = staged(recorder)

    @app.outgoing("stage")
    async def source() -> AsyncIterator[int]:
        yield 1
        yield 2

    @app.incoming("stage")
    async def downstream(order: int) -> None:
        if order == 1:
            raise ValueError("no")
        seen.append(order)

    async with running(app) as test:
        await until(lambda: seen == [2])
        assert of_stage(test).sent == {"ok": 1, "failed": 1}
    assert [one.reason for one in recorder.of(RecordHandedBack)] == ["ValueError: no"]


async def test_what_is_no_record_is_refused_at_once() -> None:
    app = staged()
    emitter = app.emitter("stage")

    @app.incoming("stage")
    async def downstream(order: object) -> None: ...

    async with running(app) as test:
        with pytest.raises(ConfigError, match="is sent to the channel 'stage'"):
            await emitter.send(Record(1, channel="invoices"))
        with pytest.raises((TypeError, RejectedRecordError), match="headers: "):
            await emitter.send(1, headers=[("h", "text")])  # type: ignore[list-item]
        with pytest.raises(ValueError, match="has no time zone"):
            await emitter.send(1, timestamp=datetime(2026, 1, 1))
        with pytest.raises(ValueError, match=r"'stage' is a memory channel, no topic"):
            await test.send("stage", 1)
        with pytest.raises(ConfigError, match=r"\[memory.stage\] is a memory channel"):
            app.channel("stage")


# -- the end, rebalances and poison


@in_virtual_time
async def test_a_stop_waits_for_what_is_in_memory_and_commits_what_came_of_it() -> None:
    app, seen = staged(drain_timeout="30s", commit_interval="100s"), list[int]()
    passing(app)

    @app.incoming("stage")
    @app.outgoing("invoices")
    async def downstream(order: int) -> int:
        await asyncio.sleep(1)
        seen.append(order)
        return order

    @app.before_stop
    async def hook() -> None:
        seen.append(-1)

    async with running(app) as test:
        await send(test, *range(5))
        await until(lambda: of_stage(test).in_flight == 5)
        await app.stop()
        assert seen == [0, 1, 2, 3, 4, -1]
        assert positions(test.broker) == [5]
        assert len(test.records("invoices")) == 5


@in_virtual_time
async def test_a_stop_leaves_what_takes_too_long_to_the_next_owner_whatever_the_strategy() -> None:
    recorder, calls = Recorder(), list[int]()
    app = staged(recorder, drain_timeout="3s", failure_strategy="ignore", commit_interval="100s")
    emitter = app.emitter("stage")
    passing(app)

    @app.incoming("stage")
    async def downstream(order: int) -> None:
        calls.append(order)
        if order:
            await asyncio.Event().wait()

    async with running(app) as test:
        await send(test, 0, 1, 2)
        await until(lambda: len(calls) == 2)
        waiting = asyncio.ensure_future(emitter.send(3))
        await settle_down()
        began = now()
        await app.stop()
        assert 3 <= now() - began < 6
        assert positions(test.broker) == [1]
        with pytest.raises(ChannelClosedError, match="memory channel 'stage' has stopped"):
            await waiting
    assert calls == [0, 1]
    assert recorder.of(RecordIgnored) == []
    (event,) = recorder.of(Unwritten)
    assert (
        event.text()
        == "stop: 3 records could not be written: the handler had not settled them in time"
    )


@in_virtual_time
async def test_without_a_drain_nobody_waits() -> None:
    app, calls = staged(), list[int]()
    passing(app)

    @app.incoming("stage")
    async def downstream(order: int) -> None:
        calls.append(order)
        await asyncio.Event().wait()

    async with running(app) as test:
        await send(test, 0, 1)
        await until(lambda: calls)
        began = now()
        await app.stop(drain=False)
        assert now() - began < 3
        assert positions(test.broker) == []


@in_virtual_time
async def test_after_the_drain_no_handler_is_called_and_what_is_sent_then_is_told_at_the_end() -> (
    None
):
    app, calls, kept = staged(drain_timeout="2s"), list[int](), list[Message[int]]()
    emitter = app.emitter("stage")
    passing(app)

    @app.incoming("stage")
    async def downstream(message: Message[int]) -> None:
        calls.append(message.payload)
        kept.append(message)
        await asyncio.sleep(4)

    @app.before_stop
    async def hook() -> None:
        sent.append(emitter.send_nowait(9))
        late.append(await kept[0].ack())
        await asyncio.sleep(0.9)

    sent, late = list[Sending](), list[bool]()
    async with running(app) as test:
        await send(test, 1, 2)
        await until(lambda: calls)
        await asyncio.sleep(1.5)
        await app.stop()
        assert positions(test.broker) == []
    assert (calls, late) == ([1], [False])
    with pytest.raises(ChannelClosedError):
        await sent[0]


@pytest.mark.parametrize("upstream_takes", ["payload", "batch", "another memory channel"])
@in_virtual_time
async def test_a_handler_that_asks_the_process_to_end_leaves_its_value_and_those_behind_it(
    upstream_takes: str,
) -> None:
    recorder, calls = Recorder(), list[int]()
    app = App(
        {
            "incoming": {
                "orders": {
                    "group_id": "billing",
                    "auto_offset_reset": "earliest",
                    "failure_strategy": "ignore",
                    "batch_max_wait": "0s",
                    "batch_max_records": 1,
                }
            },
            "memory": {"stage": {}, "before": {}},
        },
        observer=recorder,
    )
    app.emitter("before")

    @app.incoming("before")
    @app.outgoing("stage")
    async def between(order: int) -> int:
        return order

    if upstream_takes == "payload":
        passing(app)
    elif upstream_takes == "another memory channel":

        @app.incoming("orders")
        @app.outgoing("before")
        async def first(order: int) -> int:
            return order
    else:

        @app.incoming("orders")
        @app.outgoing("stage")
        async def upstream(batch: Batch[int]) -> int:
            return batch.payloads[0]

    @app.incoming("stage")
    async def downstream(order: int) -> None:
        calls.append(order)
        # Those behind 0 wait in line, and would run in one stretch.
        await asyncio.sleep(0 if order else 1)
        if order == 1:
            raise SystemExit(3)

    async with running(app) as test:
        run = app._run
        assert run is not None
        began = now()
        await send(test, 0, 1, 2, 3)
        await run.wait_asked()
        await app.stop()
        assert now() - began < 3.5, "waited for a value that nobody will settle"
        assert run.exit_code() == 3
        assert positions(test.broker)[-1:] == [1]
    assert calls == [0, 1]
    assert recorder.of(RecordIgnored) == []
    assert recorder.of(ChannelFailed) == [], "a worker went on in what had ended"


@in_virtual_time
async def test_a_rebalance_waits_for_what_is_in_memory_and_its_acks_count_if_the_partition_comes_back() -> (
    None
):
    app, go_on, calls = staged(revoke_grace="3s"), asyncio.Event(), list[int]()
    passing(app)

    @app.incoming("stage")
    async def downstream(order: int) -> None:
        calls.append(order)
        await go_on.wait()

    async with running(app) as test:
        await send(test, 1)
        await until(lambda: calls)
        began = now()
        await rebalanced(test)
        assert 3 <= now() - began < 3.5
        go_on.set()
        await test.settled()
        assert calls == [1]
        assert committed(test) == 1


@pytest.mark.parametrize("verdict", ["ack", "nack"])
@in_virtual_time
async def test_a_late_verdict_on_a_value_whose_partition_has_gone_changes_nothing(
    verdict: str,
) -> None:
    app, kept = staged(revoke_grace="100ms", commit_interval="100ms"), list[Message[int]]()
    passing(app)

    @app.incoming("stage", ack="manual")
    async def downstream(message: Message[int]) -> None:
        kept.append(message)

    async with running(app) as test:
        await send(test, 1)
        await until(lambda: kept)
        (member,) = test.broker.members("billing")
        test.broker.expire("billing", member, notice_after_s=0.5)
        # Delivered again: nobody knows what became of it in between.
        await until(lambda: len(kept) == 2)
        if verdict == "ack":
            kept[0].ack()
        else:
            kept[0].nack(ValueError("late"))
        await asyncio.sleep(5)
        assert (committed(test), facts(test).state) == (None, "running")
        kept[1].ack()
        await test.settled()
        assert positions(test.broker) == [1]


@in_virtual_time
async def test_an_order_whose_value_hangs_downstream_is_poison_where_it_came_from() -> None:
    app = staged(unprocessed_record_max_age="5s", on_poison="dead-letter-queue")
    calls: list[int] = []
    cancelled: list[int] = []
    passing(app)

    @app.incoming("stage")
    async def downstream(order: int) -> None:
        calls.append(order)
        if order == 1:
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.append(order)

    async with running(app) as test:
        began = now()
        await send(test, 1, 2, 3)
        await until(lambda: test.records("dead-letter-topic-orders"), 60)
        assert 5 <= now() - began < 7
        await test.settled()
        assert [letter.value for letter in test.records("dead-letter-topic-orders")] == [b"1"]
        assert of_stage(test).in_flight == 0
    assert (calls, cancelled) == ([1, 2, 3], [1])


@in_virtual_time
async def test_a_handler_that_ignores_its_cancellation_keeps_no_other_value_waiting() -> None:
    app = staged(unprocessed_record_max_age="5s", on_poison="dead-letter-queue")
    calls: list[int] = []
    is_over = asyncio.Event()
    passing(app)

    @app.incoming("stage")
    async def downstream(order: int) -> None:
        calls.append(order)
        while order == 1 and not is_over.is_set():
            with suppress(asyncio.CancelledError):
                await is_over.wait()

    async with running(app) as test:
        await send(test, 1, 2)
        await until(lambda: calls == [1, 2], 60)
        await test.settled()
        is_over.set()
        await settle_down()
        assert len(test.records("dead-letter-topic-orders")) == 1


@in_virtual_time
async def test_no_stage_keeps_a_value_of_an_order_that_is_poison_at_a_later_stage() -> None:
    app = App(
        {
            "incoming": {
                "orders": {
                    "group_id": "billing",
                    "auto_offset_reset": "earliest",
                    "unprocessed_record_max_age": "5s",
                    "on_poison": "dead-letter-queue",
                }
            },
            "memory": {"stage": {"max_in_flight": 1}, "last": {}},
        }
    )
    calls: list[int] = []
    passing(app)

    @app.incoming("stage")
    @app.outgoing("last")
    async def between(order: int) -> int:
        return order

    @app.incoming("last")
    async def downstream(order: int) -> None:
        calls.append(order)
        if order == 1:
            await asyncio.Event().wait()

    async with running(app) as test:
        await send(test, 1, 2)
        await until(lambda: committed(test) == 2, 60)
        assert calls == [1, 2]
        assert [one.in_flight for one in app.facts().outgoing] == [0, 0]


@in_virtual_time
async def test_other_values_of_a_poison_order_are_not_handled_any_more() -> None:
    app = staged(unprocessed_record_max_age="5s", on_poison="dead-letter-queue")
    calls: list[str] = []

    @app.incoming("orders")
    @app.outgoing("stage")
    async def upstream(order: int) -> AsyncIterator[str]:
        for part in "abc":
            yield f"{order}{part}"

    @app.incoming("stage")
    async def downstream(part: str) -> None:
        calls.append(part)
        if part.startswith("1"):
            await asyncio.Event().wait()

    async with running(app) as test:
        await send(test, 1, 2)
        await until(lambda: committed(test) == 2, 60)
        assert calls == ["1a", "2a", "2b", "2c"]


@in_virtual_time
async def test_a_batch_is_cancelled_when_all_orders_that_its_values_were_made_of_are_poison() -> (
    None
):
    app = staged(unprocessed_record_max_age="5s", on_poison="dead-letter-queue")
    calls: list[list[int]] = []
    passing(app)

    @app.incoming("stage")
    async def downstream(orders: Batch[int]) -> None:
        calls.append(orders.payloads)
        if 1 in orders.payloads:
            await asyncio.Event().wait()

    async with running(app) as test:
        await send(test, 1, 2)
        await until(lambda: calls == [[1, 2]])
        await send(test, 3)
        await until(lambda: committed(test) == 3, 60)
        letters = [letter.value for letter in test.records("dead-letter-topic-orders")]
    assert (calls, letters) == ([[1, 2], [3]], [b"1", b"2"])


@pytest.mark.parametrize("is_batch", [False, True])
@in_virtual_time
async def test_after_a_failure_for_poison_and_a_restart_the_stage_handles_values_again(
    is_batch: bool,
) -> None:
    app = staged(unprocessed_record_max_age="5s", restart={"max_attempts": 1, "backoff": "1s"})
    calls: list[int] = []
    passing(app)

    async def one(order: int) -> None:
        calls.append(order)
        if calls == [1]:
            await asyncio.Event().wait()

    async def several(orders: Batch[int]) -> None:
        calls.extend(orders.payloads)
        if calls == [1, 2]:
            await asyncio.Event().wait()

    app.incoming("stage")(several if is_batch else one)
    async with running(app) as test:
        await send(test, 1, 2)
        await until(lambda: committed(test) == 2, 100)
        assert calls[-2:] == [1, 2]
        assert of_stage(test).in_flight == 0


@in_virtual_time
async def test_the_handler_of_the_values_of_a_skipped_order_is_cancelled() -> None:
    recorder = Recorder()
    app = staged(recorder)
    calls: list[int] = []
    passing(app)

    @app.incoming("stage")
    async def downstream(order: int) -> None:
        calls.append(order)
        if order == 1:
            await asyncio.Event().wait()

    async with running(app) as test:
        await send(test, 1, 2)
        await until(lambda: calls == [1])
        assert app.channel("orders").skip(tp(), 0) == "skipped"
        await until(lambda: calls == [1, 2])
        await test.settled()
        assert recorder.of(OutputLost) == []


@pytest.mark.parametrize("how", ["seek", "stop and start"])
@in_virtual_time
async def test_a_handler_that_hangs_in_values_of_a_partition_that_is_gone_holds_up_no_others(
    how: str,
) -> None:
    app = staged(drain_timeout="1s")
    calls: list[int] = []
    is_over = asyncio.Event()
    ended: list[int] = []
    passing(app)

    @app.incoming("stage")
    async def downstream(order: int) -> None:
        calls.append(order)
        if calls == [1]:
            await is_over.wait()
            ended.append(order)

    async with running(app) as test:
        await send(test, 1)
        await until(lambda: calls == [1])
        if how == "seek":
            await app.channel("orders").seek(tp(), 1)
        else:
            await app.channel("orders").stop()
            await app.channel("orders").start()
        await send(test, 2)
        await until(lambda: 2 in calls, 60)
        await until(lambda: committed(test) == 2, 60)
        assert of_stage(test).in_flight == 0
        is_over.set()
        await until(lambda: ended == [1])


@in_virtual_time
async def test_values_that_wait_behind_those_of_a_partition_that_is_gone_are_handled() -> None:
    """No other value has to come, and those that are gone may begin only afterwards."""
    app = staged()
    calls: list[int] = []
    is_over = asyncio.Event()
    ended: list[int] = []
    passing(app)

    @app.incoming("stage")
    async def downstream(order: int) -> None:
        calls.append(order)
        if order != 3:
            await is_over.wait()
            ended.append(order)

    async with running(app, partitions=2) as test:
        await send(test, 1, 2)
        await send(test, 3, partition=1)
        await until(lambda: of_stage(test).in_flight == 3)
        assert calls == [1]
        await app.channel("orders").seek(tp(), 2)
        await until(lambda: committed(test, partition=1) == 1, 60)
        assert calls == [1, 2, 3]
        is_over.set()
        await until(lambda: ended == [1, 2])
        await until(lambda: of_stage(test).in_flight == 0)


@in_virtual_time
async def test_values_of_a_partition_that_is_gone_are_handled_after_a_skip_too() -> None:
    app = staged()
    calls: list[int] = []
    is_over = asyncio.Event()
    passing(app)

    @app.incoming("stage")
    async def downstream(order: int) -> None:
        calls.append(order)
        await is_over.wait()

    async with running(app) as test:
        await send(test, 1, 2, 3)
        await until(lambda: calls == [1])
        assert app.channel("orders").skip(tp(), 0) == "skipped"
        await until(lambda: calls == [1, 2])
        await app.channel("orders").seek(tp(), 3)
        await until(lambda: calls == [1, 2, 3], 60)
        is_over.set()
        await until(lambda: of_stage(test).in_flight == 0)


@in_virtual_time
async def test_a_skip_leaves_the_values_of_other_orders_to_the_application() -> None:
    recorder = Recorder()
    app = staged(recorder)
    kept: list[Message[int]] = []
    passing(app)

    @app.incoming("stage", ack="manual")
    async def downstream(message: Message[int]) -> None:
        kept.append(message)

    async with running(app) as test:
        await send(test, 1, 2)
        await until(lambda: len(kept) == 2)
        assert app.channel("orders").skip(tp(), 0) == "skipped"
        await until(lambda: of_stage(test).in_flight == 1)
        assert kept[1].ack()
        await test.settled()
        assert committed(test) == 2
    assert recorder.of(RecordHandedBack) == []


@in_virtual_time
async def test_a_value_that_was_made_of_two_orders_is_wanted_if_the_partition_of_one_is_gone() -> (
    None
):
    recorder = Recorder()
    app = staged(recorder, batch_max_records=2, batch_max_wait="1s")
    calls: list[int] = []
    is_over = asyncio.Event()

    @app.incoming("orders")
    @app.outgoing("stage")
    async def upstream(batch: Batch[int]) -> int:
        return sum(batch.payloads)

    @app.incoming("stage")
    async def downstream(order: int) -> None:
        calls.append(order)
        await is_over.wait()

    async with running(app, partitions=2) as test:
        await send(test, 1)
        await send(test, 2, partition=1)
        await until(lambda: calls == [3])
        await app.channel("orders").seek(tp(), 1)
        await asyncio.sleep(30)
        assert of_stage(test).in_flight == 1
        is_over.set()
        await until(lambda: committed(test, partition=1) == 1)
    assert recorder.of(RecordHandedBack) == []


@pytest.mark.parametrize("second", ["stage", "other"])
@in_virtual_time
async def test_an_order_is_poison_though_one_of_its_values_is_done(second: str) -> None:
    """The other value hangs: after the first one in the same stage, or beside it in another."""
    app = App(
        {
            "incoming": {
                "orders": {
                    "group_id": "billing",
                    "auto_offset_reset": "earliest",
                    "unprocessed_record_max_age": "5s",
                    "on_poison": "dead-letter-queue",
                }
            },
            "memory": {"stage": {}, second: {}},
        }
    )

    @app.incoming("orders")
    @app.outgoing("stage")
    @app.outgoing(second)
    async def upstream(order: int) -> list[Record]:
        return [Record("quick", channel="stage"), Record("stuck", channel=second)]

    async def downstream(value: str) -> None:
        if value == "quick":
            await asyncio.sleep(1)
        else:
            await asyncio.Event().wait()

    for name in {"stage", second}:
        app.incoming(name)(downstream)

    async with running(app) as test:
        await send(test, 1)
        await until(lambda: committed(test) == 1, 60)
        assert [letter.value for letter in test.records("dead-letter-topic-orders")] == [b"1"]


@in_virtual_time
async def test_no_timer_is_left_when_an_application_stops_right_after_a_partition_has_gone() -> (
    None
):
    app = staged(drain_timeout="100ms")
    calls: list[int] = []
    passing(app)

    @app.incoming("stage")
    async def downstream(order: int) -> None:
        calls.append(order)
        await asyncio.Event().wait()

    async with running(app) as test:
        await send(test, 1, 2)
        await until(lambda: calls == [1])
        await app.channel("orders").seek(tp(), 1)
        await app.channel("orders").seek(tp(), 2)
    assert [name for name in timers(asyncio.get_running_loop()) if "give_up" in name] == []


@in_virtual_time
async def test_an_order_whose_value_gets_no_verdict_by_hand_is_poison_too() -> None:
    app = staged(unprocessed_record_max_age="5s", on_poison="dead-letter-queue")
    kept: list[Message[int]] = []
    passing(app)

    @app.incoming("stage", ack="manual")
    async def downstream(message: Message[int]) -> None:
        kept.append(message)

    async with running(app) as test:
        await send(test, 1, 2)
        await until(lambda: len(kept) == 2)
        await asyncio.sleep(4)
        kept[1].ack()
        await until(lambda: committed(test) == 2, 10)
        assert [letter.value for letter in test.records("dead-letter-topic-orders")] == [b"1"]
        assert of_stage(test).in_flight == 0
        assert not await kept[0].ack()


@in_virtual_time
async def test_health_names_what_a_stage_has_tried_for_long_and_what_it_waits_for() -> None:
    app = staged()
    passing(app)
    error: Exception = ValueError("no")

    @app.incoming("stage", retry={"max_attempts": 1000, "backoff": "1s", "max_backoff": "1s"})
    async def downstream(order: int) -> None:
        raise error

    def stage() -> Any:
        return next(check for check in app.health().ready.checks if check.name == "stage")

    async with running(app) as test:
        await send(test, 1)
        await asyncio.sleep(50)
        assert stage().status == "UP"
        await asyncio.sleep(20)
        assert stage().status == "DOWN"
        assert "stage-0 offset 0 has failed for 70 s" in stage().data["reason"]
        error = Later("100s")
        await asyncio.sleep(2)
        assert stage().status == "UP"
        [postponed] = stage().data["postponed"]
        assert postponed.startswith("stage-0 offset 0 is handled again in")
        error = TransientBrokerError("the store is away")
        await asyncio.sleep(105)
        assert stage().status == "DOWN"
        assert (
            "when a service is back: TransientBrokerError: the store is away"
            in (stage().data["reason"])
        )
        assert app.health().live.is_up


async def test_a_bug_of_ours_that_ends_a_worker_is_told_and_turns_liveness_down() -> None:
    recorder = Recorder()
    app = staged(recorder)
    passing(app)

    @app.incoming("stage")
    async def downstream(order: int) -> None: ...

    async with running(app) as test:
        assert app._run is not None
        assert app._run.channels is not None
        app._run.channels.outgoing["stage"].writer.fail(RuntimeError("a bug"))
        (failed,) = recorder.of(ChannelFailed)
        assert (failed.channel, failed.reason) == ("stage", "RuntimeError: a bug")
        health = app.health()
        (check,) = [one for one in health.live.checks if one.name == "stage"]
        assert check.status == "DOWN"
        assert check.data == {
            "direction": "memory",
            "state": "failed",
            "reason": "it has failed: RuntimeError: a bug",
            "in_flight": 0,
            "postponed": [],
        }
        assert of_stage(test).failure == "RuntimeError: a bug"
