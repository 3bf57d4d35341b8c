"""An outbox: what a handler sends is a row of its transaction, and is relayed to Kafka."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from reactive_kafka import App, Batch, Message, Record
from reactive_kafka.errors import RejectedRecordError
from reactive_kafka.records import RecordBytes, TopicPartition
from reactive_kafka.testing import MemoryBroker, TestApp
from tests.app.checkpoints import CHECKPOINT, MemoryStore, Rows, row, store_of
from tests.app.helpers import (
    Recorder,
    facts,
    in_virtual_time,
    make_broker,
    now,
    running,
    send,
    tp,
    until,
)
from tests.app.test_incremental import cooperative
from tests.observe.samples import outbox
from tests.verdicts.events import OutboxEvent

EVENT_ID = "reactive-kafka-event-id"


def outbox_app(
    rows: Rows,
    recorder: Recorder | None = None,
    *,
    who: str = "a",
    outbox_max_rows: int = 1000,
    max_in_flight: int = 1024,
    propagate_headers: Sequence[str] = (),
    outboxes: Sequence[str] = ("events",),
    **orders: Any,
) -> App:
    """An application whose channels *outboxes* have an outbox in *rows*."""
    app = App(
        {
            "incoming": {
                "orders": {
                    "group_id": "billing",
                    "auto_offset_reset": "earliest",
                    "commit_strategy": "checkpoint",
                    "checkpoint": CHECKPOINT,
                    "batch_max_wait": "100ms",
                    **orders,
                }
            },
            "outgoing": {
                name: {
                    "outbox": True,
                    "outbox_max_rows": outbox_max_rows,
                    "max_in_flight": max_in_flight,
                    **({"propagate_headers": propagate_headers} if propagate_headers else {}),
                }
                for name in outboxes
            },
        },
        observer=recorder,
    )
    store = MemoryStore(rows, who=who)
    app._stores = lambda _: store
    return app


def values(test: TestApp) -> list[bytes | None]:
    return [record.value for record in test.records("events")]


def ids(test: TestApp) -> list[str]:
    return [
        value.decode()
        for record in test.records("events")
        for name, value in record.headers
        if name == EVENT_ID and value is not None
    ]


def outbox_rows(test: TestApp) -> int | None:
    """How many events wait."""
    found = facts(test).outbox
    return None if found is None else found.rows


@in_virtual_time
async def test_what_a_handler_sends_and_returns_is_stored_with_its_rows_and_relayed_in_order() -> (
    None
):
    rows = Rows()
    app = outbox_app(rows)

    @app.incoming("orders")
    @app.outgoing("events")
    async def handler(message: Message[bytes]) -> bytes:
        async with message.transaction() as tx:
            tx[message.offset] = message.payload
            await tx.send(b"sent " + message.payload)
        # It is committed with what is returned.
        assert message.offset not in rows.data
        return b"returned " + message.payload

    async with running(app) as test:
        await send(test, b"x", b"y")
        await test.settled()
        assert values(test) == [b"sent x", b"returned x", b"sent y", b"returned y"]
        assert len(set(ids(test))) == 4
        assert rows.data == {0: b"x", 1: b"y"}
        assert rows.events == []
        assert row(rows).position == 2
        assert outbox_rows(test) == 0


@pytest.mark.parametrize("shape", ["message", "batch"])
@in_virtual_time
async def test_what_is_returned_without_a_block_gets_a_transaction(shape: str) -> None:
    rows = Rows()
    app = outbox_app(rows)

    @app.incoming("orders")
    @app.outgoing("events")
    async def one(message: Message[bytes]) -> bytes | None:
        return message.payload if message.payload != b"nothing" else None

    @app.incoming("orders")
    @app.outgoing("events")
    async def many(batch: Batch[bytes]) -> list[Record]:
        return [Record(message.payload) for message in batch if message.payload != b"nothing"]

    app = outbox_app(rows)
    app.incoming("orders")(app.outgoing("events")(one if shape == "message" else many))
    async with running(app) as test:
        await send(test, b"x", b"nothing", b"y")
        await test.settled()
        assert values(test) == [b"x", b"y"]
        assert [attempt.stored for attempt in rows.history if attempt.write.checkpoint.position]
        assert facts(test).partitions[0].committed == 3


@in_virtual_time
async def test_each_value_that_a_generator_yields_is_an_event_of_its_transaction() -> None:
    rows = Rows()
    app = outbox_app(rows)

    @app.incoming("orders")
    @app.outgoing("events")
    async def handler(message: Message[bytes]) -> AsyncIterator[bytes]:
        yield b"before"
        async with message.transaction() as tx:
            tx[message.offset] = 1
            yield b"inside"
        yield b"behind"
        assert rows.data == {}

    async with running(app) as test:
        await send(test, b"x")
        await test.settled()
        assert values(test) == [b"before", b"inside", b"behind"]
        assert rows.data == {0: 1}


@pytest.mark.parametrize("how", ["sent", "returned", "yielded", "too large"])
@in_virtual_time
async def test_a_value_that_cannot_be_sent_rolls_everything_back(how: str) -> None:
    rows = Rows()
    app = outbox_app(rows, failure_strategy="dead-letter-queue")

    async def store(message: Message[bytes]) -> Any:
        async with message.transaction() as tx:
            tx[message.offset] = 1
            if how == "sent" and message.payload == b"bad":
                await tx.send(object())
            await tx.send(b"fine")
        if how == "too large" and message.payload == b"bad":
            return b"x" * 1_048_576
        return object() if how == "returned" and message.payload == b"bad" else None

    async def store_and_yield(message: Message[bytes]) -> AsyncIterator[Any]:
        await store(message)
        yield object() if message.payload == b"bad" else b"yielded"

    handler = store_and_yield if how == "yielded" else store
    app.incoming("orders")(app.outgoing("events")(handler))
    async with running(app) as test:
        await send(test, b"bad", b"good")
        await test.settled()
        assert rows.data == {1: 1}
        assert values(test) == ([b"fine", b"yielded"] if how == "yielded" else [b"fine"])
        (letter,) = test.records("dead-letter-topic-orders")
        assert letter.value == b"bad"
        assert facts(test).totals[tp()].outputs_lost == 0


@in_virtual_time
async def test_an_error_behind_the_block_rolls_it_back_too() -> None:
    rows = Rows()
    app = outbox_app(rows, failure_strategy="ignore")

    @app.incoming("orders")
    @app.outgoing("events")
    async def handler(message: Message[bytes]) -> None:
        async with message.transaction() as tx:
            tx[message.offset] = 1
            await tx.send(message.payload)
        if message.payload == b"bad":
            raise ValueError("bad")

    async with running(app) as test:
        await send(test, b"bad", b"good")
        await test.settled()
        assert rows.data == {1: 1}
        assert values(test) == [b"good"]


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@in_virtual_time
async def test_a_send_that_is_not_awaited_or_comes_behind_its_block_is_an_error() -> None:
    rows, recorder = Rows(), Recorder()
    app = outbox_app(rows, recorder, failure_strategy="dead-letter-queue")

    @app.incoming("orders")
    @app.outgoing("events")
    async def handler(message: Message[bytes]) -> None:
        async with message.transaction() as tx:
            if message.payload == b"not awaited":
                tx.send(b"x")
        if message.payload == b"late":
            await tx.send(b"x")

    async with running(app) as test:
        await send(test, b"not awaited", b"late")
        await test.settled()
        reasons = [
            dict(letter.headers)["dead-letter-reason"]
            for letter in test.records("dead-letter-topic-orders")
        ]
        assert b"tx.send() without await" in reasons[0]
        assert b"after the block" in reasons[1]
        assert values(test) == []


@in_virtual_time
async def test_a_batch_may_have_a_transaction_for_each_message() -> None:
    rows = Rows()
    app = outbox_app(rows)

    @app.incoming("orders")
    @app.outgoing("events")
    async def handler(batch: Batch[bytes]) -> bytes:
        for message in batch:
            async with message.transaction() as tx:
                tx[message.offset] = 1
                await tx.send(message.payload)
        return b"last"

    async with running(app) as test:
        await send(test, b"x", b"y", b"z")
        await test.settled()
        assert values(test)[:3] == [b"x", b"y", b"z"]
        assert set(values(test)[3:]) == {b"last"}
        assert rows.data == {0: 1, 1: 1, 2: 1}


@pytest.mark.parametrize("records", [1, 2])
@in_virtual_time
async def test_a_batch_replies_to_no_request_and_passes_no_header_on_however_small_it_is(
    records: int,
) -> None:
    rows = Rows()
    app = outbox_app(rows, propagate_headers=["trace"])

    @app.incoming("orders")
    @app.outgoing("events")
    async def handler(batch: Batch[bytes]) -> bytes:
        async with batch.transaction() as tx:
            await tx.send(b"sent")
        return b"returned"

    request = [("REPLY_CORRELATION_ID", b"1"), ("REPLY_TOPIC", b"replies"), ("trace", b"t")]
    async with running(app) as test:
        for _ in range(records):
            await test.send("orders", b"x", headers=request, partition=0)
        await until(lambda: values(test) == [b"sent", b"returned"])
        names = {name for record in test.records("events") for name, _ in record.headers}
        assert names == {EVENT_ID}
        assert test.records("replies") == []


@in_virtual_time
async def test_during_an_outage_records_are_acked_and_all_is_relayed_within_10_s_of_its_end() -> (
    None
):
    """Row G8 of the faults."""
    rows = Rows()
    app = outbox_app(rows)

    @app.incoming("orders")
    @app.outgoing("events")
    async def handler(message: Message[bytes]) -> bytes:
        return message.payload

    async with running(app) as test:
        await send(test, b"0")
        await test.settled()
        test.broker.topic_away("events")
        for number in range(1, 50):
            await send(test, b"%d" % number)
        await until(lambda: facts(test).partitions[0].committed == 50)
        await until(lambda: not app.health().ready.is_up, 5)
        assert "events" in str(app.health())
        assert app.health().live.is_up
        await asyncio.sleep(500)
        assert len(rows.events) == 49
        found = facts(test).outbox
        assert found is not None
        assert (found.rows, found.relayed) == (49, 1)
        assert found.oldest_s == pytest.approx(500, abs=10)
        assert found.text() == f"49 events of the outbox wait, the first for {found.oldest_s:.0f} s"
        assert values(test) == [b"0"]
        test.broker.topic_back("events")
        await until(lambda: len(values(test)) == 50, 10)
        await until(lambda: app.health().ready.is_up, 10)
        await until(lambda: rows.events == [])
        assert values(test) == [b"%d" % number for number in range(50)]
        await until(lambda: facts(test).outbox == outbox(0, relayed=50))
        # Counters continue when the channel starts again.
        await app.channel("orders").stop()
        await app.channel("orders").start()
        await send(test, b"50")
        await until(lambda: facts(test).outbox == outbox(0, relayed=51), 30)


@in_virtual_time
async def test_at_outbox_max_rows_no_record_is_handled_until_there_is_room() -> None:
    rows, handled = Rows(), list[bytes]()
    app = outbox_app(rows, outbox_max_rows=3)

    @app.incoming("orders")
    @app.outgoing("events")
    async def handler(message: Message[bytes]) -> None:
        async with message.transaction() as tx:
            handled.append(message.payload)
            await tx.send(message.payload)

    async with running(app) as test:
        test.broker.topic_away("events")
        await send(test, *(b"%d" % number for number in range(10)))
        await until(lambda: len(handled) == 3)
        await asyncio.sleep(100)
        assert handled == [b"0", b"1", b"2"]
        assert "outbox_max_rows = 3" in str(app.health())
        assert facts(test).poison == ()
        test.broker.topic_back("events")
        await until(lambda: len(values(test)) == 10, 20)
        assert values(test) == [b"%d" % number for number in range(10)]
        await until(lambda: app.health().ready.is_up, 10)


@in_virtual_time
async def test_rows_that_were_left_are_relayed_at_the_start_with_their_ids() -> None:
    rows = Rows()
    broker = make_broker()

    def make(who: str) -> App:
        app = outbox_app(rows, who=who)

        @app.incoming("orders")
        @app.outgoing("events")
        async def handler(message: Message[bytes]) -> bytes:
            return message.payload

        return app

    async with running(make("a"), broker=broker) as test:
        broker.topic_away("events")
        await send(test, b"x", b"y")
        await until(lambda: facts(test).partitions[0].committed == 2)
    left = [stored.event.id for _, stored in rows.events]
    assert len(left) == 2
    broker.topic_back("events")
    async with running(make("b"), broker=broker) as test:
        await test.settled()
        assert values(test) == [b"x", b"y"]
        assert ids(test) == left
        assert rows.events == []
    await broker.close()


@in_virtual_time
async def test_an_event_that_the_broker_refuses_stays_is_told_and_holds_up_no_other() -> None:
    rows = Rows()
    app = outbox_app(rows)

    @app.incoming("orders")
    @app.outgoing("events")
    async def handler(message: Message[bytes]) -> bytes:
        return message.payload

    async with running(app) as test:
        test.broker.fail_next("send", RejectedRecordError("the broker's limit"), of="events")
        await send(test, b"x")
        await until(lambda: not app.health().ready.is_up)
        assert "the broker's limit" in str(app.health())
        await send(test, b"y")
        await until(lambda: values(test) == [b"y"])
        # It is tried again, as somebody may have raised the limit.
        await until(lambda: values(test) == [b"y", b"x"], 20)
        await until(lambda: app.health().ready.is_up, 20)


@in_virtual_time
async def test_events_behind_as_many_refused_ones_as_are_sent_at_once_are_relayed() -> None:
    app = outbox_app(Rows(), max_in_flight=2)

    @app.incoming("orders")
    @app.outgoing("events")
    async def handler(message: Message[bytes]) -> bytes:
        return message.payload

    async with running(app) as test:
        refusal = RejectedRecordError("the broker's limit")
        test.broker.fail_next("send", refusal, times=2, of="events")
        await send(test, b"x", b"y")
        await until(lambda: "refuses 2 events" in str(app.health()))
        await send(test, b"z")
        await until(lambda: values(test) == [b"z"], 5)


@in_virtual_time
async def test_an_answer_of_the_store_that_is_lost_neither_loses_nor_doubles_an_event() -> None:
    rows = Rows()
    app = outbox_app(rows)

    @app.incoming("orders")
    @app.outgoing("events")
    async def handler(message: Message[bytes]) -> bytes:
        async with message.transaction() as tx:
            tx[message.offset] = message.payload
        return message.payload

    async with running(app) as test:
        store_of(app).faults.script("exit", "lost", "away", "late", "ok", "lost")
        await send(test, *(b"%d" % number for number in range(6)))
        await until(lambda: facts(test).partitions[0].committed == 6, 60)
        rows.land()
        await until(lambda: rows.events == [], 30)
        assert sorted(set(values(test)), key=str) == [b"%d" % number for number in range(6)]
        assert len(ids(test)) == len(set(ids(test))) == 6


@in_virtual_time
async def test_an_answer_of_the_store_that_is_lost_at_a_delete_sends_no_event_again() -> None:
    rows = Rows()
    app = outbox_app(rows)

    @app.incoming("orders")
    @app.outgoing("events")
    async def handler(message: Message[bytes]) -> bytes:
        return message.payload

    async with running(app) as test:
        store_of(app).faults.script("write", "ok", "away", "away", "lost")
        await send(test, b"x")
        await until(lambda: values(test) == [b"x"])
        await until(lambda: rows.events == [], 30)
        assert values(test) == [b"x"]


@pytest.mark.parametrize("kind", [make_broker, cooperative])
@in_virtual_time
async def test_after_a_revocation_the_new_owner_relays_the_rows_and_the_old_one_stops(
    kind: Callable[[int], MemoryBroker],
) -> None:
    rows = Rows()
    broker = kind(2)

    def make(who: str) -> App:
        app = outbox_app(rows, who=who)

        @app.incoming("orders")
        @app.outgoing("events")
        async def handler(message: Message[bytes]) -> bytes:
            return message.payload

        return app

    async with running(make("a"), broker=broker) as first:
        broker.topic_away("events")
        # This one is tried all the time. It is of the partition that b gets.
        await send(first, b"0", partition=1)
        await until(lambda: outbox_rows(first) == 1)
        for number in range(1, 6):
            await send(first, b"%d" % number, partition=(number + 1) % 2)
        await until(lambda: outbox_rows(first) == 6)
        async with running(make("b"), broker=broker) as second:
            await until(lambda: outbox_rows(first) == outbox_rows(second) == 3, 30)
            await asyncio.sleep(30)
            broker.topic_back("events")
            await until(lambda: rows.events == [], 30)
            # What a had read of the partition of b is not written by a, too.
            await asyncio.sleep(30)
            assert len(ids(first)) == len(set(ids(first))) == 6
            assert outbox_rows(first) == outbox_rows(second) == 0
    await broker.close()


@in_virtual_time
async def test_a_run_that_ends_by_itself_relays_the_outbox_first() -> None:
    rows = Rows()
    broker = make_broker()

    def make(who: str) -> App:
        app = outbox_app(rows, who=who)

        @app.incoming("orders")
        @app.outgoing("events")
        async def handler(message: Message[bytes]) -> bytes:
            return message.payload

        return app

    async with running(make("a"), broker=broker) as test:
        broker.topic_away("events")
        await send(test, b"x", b"y")
        await until(lambda: facts(test).partitions[0].committed == 2)
    assert len(rows.events) == 2
    app = make("b")
    app.configure(overrides={"http": {"enabled": False}})
    app._connector, app._clock = broker.connector(), broker._state.clock
    run = app._new_run(until_end=True)
    await app._start(run)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(run.wait_asked(), 60)
    broker.topic_back("events")
    await asyncio.wait_for(run.wait_asked(), 20)
    await app.stop()
    assert run.exit_code() == 0
    assert rows.events == []
    await broker.close()


@in_virtual_time
async def test_a_stop_relays_what_was_stored_last() -> None:
    rows = Rows()
    broker = make_broker()
    app = outbox_app(rows)

    @app.incoming("orders")
    @app.outgoing("events")
    async def handler(batch: Batch[bytes]) -> list[Record]:
        return [Record(b"x" * 100) for _ in range(300)]

    async with running(app, broker=broker) as test:
        await send(test, b"x")
        await until(lambda: rows.history and rows.history[-1].write.checkpoint.position == 1)
    assert rows.events == []
    assert len(broker.log(tp(0, "events"))) == 300
    await broker.close()


class ClosingSlowly(MemoryStore):
    """Its first question takes long. If that is cancelled, a connection is closed, which takes a
    moment.
    """

    cancellations = 0
    is_asked = False

    async def count_events(self, *arguments: Any, **options: Any) -> Any:
        if self.is_asked:
            return await super().count_events(*arguments, **options)
        self.is_asked = True
        try:
            await asyncio.sleep(3600)
        finally:
            closing = asyncio.ensure_future(asyncio.sleep(0.1))
            while not closing.done() and self.cancellations < 100:
                self.cancellations += 1
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.shield(closing)


@in_virtual_time
async def test_a_stop_cancels_a_question_to_the_store_once() -> None:
    """SQLAlchemy leaves a connection behind that never ends if its closing is cancelled, too."""
    app = outbox_app(Rows())
    store = ClosingSlowly(Rows())
    app._stores = lambda _: store

    @app.incoming("orders")
    @app.outgoing("events")
    async def handler(message: Message[bytes]) -> bytes:
        return message.payload

    async with running(app):
        await until(lambda: store.is_asked)
    assert store.cancellations == 1


async def test_in_a_file_of_sqlite_rows_and_events_are_the_same_set(tmp_path: Path) -> None:
    app = App(
        {
            "incoming": {
                "orders": {
                    "group_id": "billing",
                    "commit_strategy": "checkpoint",
                    "failure_strategy": "ignore",
                    "checkpoint": {"store": f"sqlite:///{tmp_path / 'shop.db'}"},
                }
            },
            "outgoing": {"events": {"outbox": True}},
        }
    )

    @app.incoming("orders")
    @app.outgoing("events")
    async def handler(message: Message[dict[str, Any]]) -> Record | object:
        number = message.payload["number"]
        async with message.transaction() as tx:
            await tx.execute(text("CREATE TABLE IF NOT EXISTS booked (number INTEGER)"))
            await tx.execute(text("INSERT INTO booked VALUES (:number)"), {"number": number})
            await tx.send({"sent": number})
        if number % 5 == 3:
            raise ValueError(number)
        return object() if number % 5 == 4 else {"returned": number}

    async with TestApp(app) as test:
        for number in range(15):
            await test.send("orders", {"number": number}, partition=number % 3)
        # A file takes its time.
        await test.settled(timeout=60)
        events = [json.loads(record.value or b"") for record in test.records("events")]
    with sqlite3.connect(tmp_path / "shop.db") as database:
        booked = {number for (number,) in database.execute("SELECT number FROM booked")}
        assert database.execute("SELECT count(*) FROM reactive_kafka_outbox").fetchone() == (0,)
    assert booked == {number for number in range(15) if number % 5 < 3}
    assert len(events) == 2 * len(booked)
    assert {event["sent"] for event in events if "sent" in event} == booked
    assert {event["returned"] for event in events if "returned" in event} == booked


@pytest.mark.parametrize("nothing", [None, [], Record(None, channel="audit")])
async def test_nothing_to_send_in_a_block_is_no_row(nothing: Any, tmp_path: Path) -> None:
    app = App(
        {
            "incoming": {
                "orders": {
                    "group_id": "billing",
                    "commit_strategy": "checkpoint",
                    "checkpoint": {"store": f"sqlite:///{tmp_path / 'shop.db'}"},
                }
            },
            "outgoing": {"events": {"outbox": True}, "audit": {"outbox": True}},
        }
    )

    @app.incoming("orders")
    @app.outgoing("events")
    @app.outgoing("audit")
    async def handler(message: Message[bytes]) -> list[Record]:
        async with message.transaction() as tx:
            await tx.send(nothing)
        return []

    async with TestApp(app) as test:
        await test.send("orders", b"x")
        await test.settled(timeout=60)
        assert values(test) == []
        assert len(test.records("audit")) == isinstance(nothing, Record)


@in_virtual_time
async def test_rows_of_a_channel_without_a_handler_are_named_until_they_are_deleted() -> None:
    rows = Rows()
    record = RecordBytes(b"x")
    rows.add_events("billing", [(tp(), OutboxEvent("1", "bills", "bills", None, record))])
    app = outbox_app(rows)

    @app.incoming("orders")
    @app.outgoing("events")
    async def handler(message: Message[bytes]) -> bytes:
        return message.payload

    async with running(app):
        await until(lambda: "the outbox has 1 rows for channel 'bills'" in str(app.health()))
        rows.events.clear()
        await until(lambda: app.health().ready.is_up, 30)


@in_virtual_time
async def test_a_member_that_has_lost_its_partitions_is_ready_though_the_broker_refuses_their_events() -> (
    None
):
    rows = Rows()
    broker = cooperative(1)

    def make(who: str) -> App:
        app = outbox_app(rows, who=who)

        @app.incoming("orders")
        @app.outgoing("events")
        async def handler(message: Message[bytes]) -> bytes:
            return message.payload

        return app

    async with (
        running(make("a"), broker=broker) as first,
        running(make("b"), broker=broker) as second,
    ):
        refusal = RejectedRecordError("the broker's limit")
        broker.fail_next("send", refusal, times=1000, of="events")
        await send(first, b"x")
        await until(lambda: facts(first).partitions or facts(second).partitions, 60)
        owner, other = (first, second) if facts(first).partitions else (second, first)
        await until(lambda: "refuses 1 events" in str(owner.app.health()))
        members = broker.members("billing")
        (member,) = [one for one, partitions in members.items() if partitions]
        broker.expire("billing", member, notice_after_s=1)
        await until(lambda: "refuses 1 events" in str(other.app.health()), 60)
        await until(lambda: not facts(owner).partitions, 60)
        await until(lambda: owner.app.health().ready.is_up, 60)
    await broker.close()


@pytest.mark.parametrize(
    ("damage", "repair", "named"),
    [
        ("headers = 'none'", "headers = '[]'", "row 2 of"),
        ("headers = '[1]'", "headers = '[]'", "row 2 of"),
        ("""headers = '[["a", "x"]]'""", "headers = '[]'", "row 2 of"),
        # As a text, and not as x'79'.
        ("value = 'y'", "value = x'79'", "row 2 of"),
        ("created_at = 'once'", "created_at = CURRENT_TIMESTAMP", "a row of"),
    ],
)
async def test_a_row_that_somebody_has_damaged_is_named_until_it_is_repaired(
    damage: str, repair: str, named: str, tmp_path: Path
) -> None:
    file = tmp_path / "shop.db"

    def make() -> App:
        app = App(
            {
                "incoming": {
                    "orders": {
                        "group_id": "billing",
                        "auto_offset_reset": "earliest",
                        "commit_strategy": "checkpoint",
                        "checkpoint": {"store": f"sqlite:///{file}"},
                    }
                },
                "outgoing": {"events": {"outbox": True}},
            }
        )

        @app.incoming("orders")
        @app.outgoing("events")
        async def handler(message: Message[bytes]) -> bytes:
            return message.payload

        return app

    async with TestApp(make()) as test:
        await test.send("orders", b"x")
        await test.settled(timeout=60)
    with sqlite3.connect(file) as database:
        database.execute(
            "INSERT INTO reactive_kafka_outbox (event_id, group_id, source_topic, source_partition,"
            " channel, topic, value, headers)"
            " VALUES ('1', 'billing', 'orders', 0, 'events', 'events', x'79', '[]')"
        )
        database.execute(f"UPDATE reactive_kafka_outbox SET {damage}")
    app = make()
    async with TestApp(app) as test:
        told = f"{named} reactive_kafka_outbox cannot be read"
        await until(lambda: told in str(app.health()), 60)
        assert facts(test).state == "running"
        with sqlite3.connect(file) as database:
            database.execute(f"UPDATE reactive_kafka_outbox SET {repair}")
        await until(lambda: values(test) == [b"y"], 60)
        await until(lambda: app.health().ready.is_up, 60)


@in_virtual_time
async def test_an_event_whose_topic_is_away_holds_up_none_of_another_topic() -> None:
    rows = Rows()
    app = outbox_app(rows)

    @app.incoming("orders")
    @app.outgoing("events")
    async def handler(message: Message[bytes]) -> Record:
        return Record(message.payload, topic="gone" if message.payload == b"x" else None)

    async with running(app) as test:
        test.broker.topic_away("gone")
        await send(test, b"x")
        await until(lambda: outbox_rows(test) == 1)
        await asyncio.sleep(1)
        await send(test, b"y", b"z")
        await until(lambda: values(test) == [b"y", b"z"], 10)
        await until(lambda: outbox_rows(test) == 1)
        test.broker.topic_back("gone")
        await until(lambda: rows.events == [], 30)
        assert [record.value for record in test.records("gone")] == [b"x"]
        assert values(test) == [b"y", b"z"]


@in_virtual_time
async def test_while_a_partition_is_away_the_others_get_their_events_and_its_own_keep_their_order() -> (
    None
):
    rows = Rows()
    app = outbox_app(rows, max_in_flight=10)

    @app.incoming("orders")
    @app.outgoing("events")
    async def handler(message: Message[bytes]) -> Record:
        return Record(message.payload, partition=int(message.payload) % 2)

    def sent(test: TestApp, partition: int) -> list[int]:
        log = test.broker.log(tp(partition, "events"))
        return [int(record.value or b"") for record in log]

    async with running(app, partitions=2) as test:
        test.broker.leader_away(tp(0, "events"))
        for number in range(18):
            await send(test, b"%d" % number)
            await asyncio.sleep(0.1)
        await until(lambda: sent(test, 1) == list(range(1, 18, 2)), 20)
        assert sent(test, 0) == []
        await until(lambda: outbox_rows(test) == 9)
        test.broker.leader_back(tp(0, "events"))
        await until(lambda: rows.events == [], 30)
        assert sent(test, 0) == list(range(0, 18, 2))
        assert sent(test, 1) == list(range(1, 18, 2))


@in_virtual_time
async def test_all_rows_of_two_outboxes_are_told_and_their_handler_is_not_missed() -> None:
    # Fewer rows are read at once than there are.
    app = outbox_app(Rows(), outboxes=("events", "audit"), max_in_flight=1)

    @app.incoming("orders")
    @app.outgoing("events")
    @app.outgoing("audit")
    async def handler(message: Message[bytes]) -> list[Record]:
        names = message.payload.decode().split()
        return [Record(b"made", channel=name) for name in names]

    async with running(app) as test:
        test.broker.topic_away("events")
        test.broker.topic_away("audit")
        await send(test, b"audit audit audit")
        await until(lambda: outbox_rows(test) == 3)
        await asyncio.sleep(100)
        await send(test, b"events events audit")
        await until(lambda: outbox_rows(test) == 6)
        await asyncio.sleep(20)
        found = facts(test).outbox
        assert found is not None
        assert found.rows == 6
        assert found.oldest_s == pytest.approx(120, abs=1)
        # They are counted again when the channel starts.
        await app.channel("orders").stop()
        await app.channel("orders").start()
        await until(lambda: outbox_rows(test) == 6, 30)
        assert "no handler of" not in str(app.health())
        test.broker.topic_back("events")
        test.broker.topic_back("audit")
        await until(lambda: facts(test).outbox == outbox(0, relayed=6), 30)


@in_virtual_time
async def test_rows_that_an_operator_deletes_are_not_counted_any_more() -> None:
    rows = Rows()
    app = outbox_app(rows)

    @app.incoming("orders")
    @app.outgoing("events")
    async def handler(message: Message[bytes]) -> bytes:
        return message.payload

    async with running(app) as test:
        test.broker.topic_away("events")
        await send(test, b"x", b"y")
        await until(lambda: outbox_rows(test) == 2)
        # By now they are being sent.
        await asyncio.sleep(1)
        rows.events.clear()
        await until(lambda: outbox_rows(test) == 0, 15)


def large(number: int) -> tuple[TopicPartition, OutboxEvent]:
    """An event so large that two of them are read at once, and not three."""
    record = RecordBytes(b"%d" % number + bytes(3 * 2**20))
    return tp(), OutboxEvent(f"{number}", "events", "events", None, record)


@in_virtual_time
async def test_rows_that_are_too_large_to_be_read_at_once_are_all_told() -> None:
    rows = Rows()
    rows.add_events("billing", [large(number) for number in range(3)])
    broker = make_broker()
    broker.topic_away("events")
    app = outbox_app(rows)

    @app.incoming("orders")
    @app.outgoing("events")
    async def handler(message: Message[bytes]) -> bytes:
        return message.payload

    async with running(app, broker=broker) as test:
        await until(lambda: outbox_rows(test) is not None)
        await asyncio.sleep(30)
        assert outbox_rows(test) == 3
    await broker.close()


@in_virtual_time
async def test_large_events_that_the_broker_refuses_hold_up_none_behind_them() -> None:
    rows = Rows()
    rows.add_events("billing", [large(number) for number in range(2)])
    broker = make_broker()
    refusal = RejectedRecordError("the broker's limit")
    broker.fail_next("send", refusal, times=2, of="events")
    app = outbox_app(rows)

    @app.incoming("orders")
    @app.outgoing("events")
    async def handler(message: Message[bytes]) -> bytes:
        return message.payload

    async with running(app, broker=broker) as test:
        await until(lambda: "refuses 2 events" in str(app.health()))
        await send(test, b"x")
        await until(lambda: values(test) == [b"x"], 5)
    await broker.close()


@in_virtual_time
async def test_a_stop_does_not_wait_for_events_that_the_broker_refuses() -> None:
    rows = Rows()
    broker = make_broker()
    app = outbox_app(rows)

    @app.incoming("orders")
    @app.outgoing("events")
    async def handler(message: Message[bytes]) -> bytes:
        return message.payload

    async with running(app, broker=broker) as test:
        refusal = RejectedRecordError("the broker's limit")
        broker.fail_next("send", refusal, times=1000, of="events")
        await send(test, b"x")
        await until(lambda: "refuses 1 events" in str(app.health()))
        began = now()
    assert len(rows.events) == 1
    assert now() - began < 1
    await broker.close()
