"""Exactly once: what a handler sends, and the position behind its record, are one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from reactive_kafka import (
    App,
    Batch,
    CheckpointError,
    Message,
    Record,
    RejectedRecordError,
    SkipRefusedError,
    TransientBrokerError,
)
from reactive_kafka.events import (
    ChannelFailed,
    CommitFailed,
    RecordDeadLettered,
    RecordIgnored,
    TransactionAborted,
)
from reactive_kafka.testing import MemoryBroker, TestApp
from tests.app.brokers import BatchRefusedError
from tests.app.helpers import (
    Recorder,
    facts,
    in_virtual_time,
    make_broker,
    now,
    running,
    send,
    settle_down,
    tp,
    until,
)

DEAD = "dead-letter-topic-orders"
# So many records of a transaction are collected before any is written.
COLLECTED = 10_000
# So many transactions of a process may have a producer at a time.
MOST_PRODUCERS = 16


def app_with(recorder: Recorder | None = None, **orders: Any) -> App:
    incoming = {
        "group_id": "billing",
        "auto_offset_reset": "earliest",
        "commit_interval": "1s",
        **orders,
    }
    return App(
        {
            "incoming": {"orders": incoming},
            "outgoing": {"invoices": {"transactional_id": "billing"}},
        },
        observer=recorder,
    )


def values(
    broker: MemoryBroker, topic: str = "invoices", partitions: int = 1
) -> list[bytes | None]:
    """What readers of what is committed see."""
    if topic not in broker.topics():
        return []
    return [
        record.value
        for number in range(partitions)
        for record in broker.committed_log(tp(number, topic))
    ]


def written(broker: MemoryBroker, topic: str = "invoices") -> list[bytes | None]:
    """Also what was aborted."""
    return [record.value for record in broker.log(tp(0, topic))]


def position(broker: MemoryBroker, partition: int = 0) -> int | None:
    stored = broker.committed("billing").get(tp(partition))
    return None if stored is None else stored.offset


@in_virtual_time
async def test_what_is_sent_and_the_position_are_stored_at_the_same_moment() -> None:
    app = app_with()

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(order: bytes) -> AsyncIterator[bytes]:
        for number in range(3):
            yield order + str(number).encode()

    async with running(app) as test:
        end = test.broker.hold("end")
        await send(test, b"a")
        await end.arrived()
        assert (values(test.broker), position(test.broker)) == ([], None)
        assert written(test.broker) == [b"a0", b"a1", b"a2"]
        assert test.records("invoices") == []
        end.release()
        await until(lambda: values(test.broker) == [b"a0", b"a1", b"a2"])
        assert position(test.broker) == 1
        assert await app.channel("orders").committed() == {tp(): 1}
        [entry] = test.broker.commits("billing")
        assert entry.offsets[tp()].offset == 1, "one commit, that of the transaction"


@in_virtual_time
async def test_what_a_handler_has_yielded_before_it_raises_is_never_seen() -> None:
    app, calls = app_with(retry={"max_attempts": 3, "backoff": "100ms"}), list[int]()

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(message: Message[bytes]) -> AsyncIterator[bytes]:
        calls.append(message.attempt)
        # More than is gathered before the first is written.
        for number in range(20_000):
            yield b"%d" % number
        if message.attempt < 3:
            raise ValueError("later")
        yield b"end"

    async with running(app) as test:
        await send(test, b"a")
        await until(lambda: position(test.broker) == 1, 60)
        assert calls == [1, 2, 3]
        assert values(test.broker) == [b"%d" % number for number in range(20_000)] + [b"end"]
        assert len(written(test.broker)) > 40_000 - 1, "what was aborted stands in the log"


@in_virtual_time
async def test_a_dead_letter_and_the_position_behind_its_record_are_one_transaction() -> None:
    recorder = Recorder()
    app = app_with(recorder, failure_strategy="dead-letter-queue")

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(order: bytes) -> bytes:
        if order == b"bad":
            raise ValueError("bad")
        return order

    async with running(app) as test:
        await send(test, b"a")
        await until(lambda: position(test.broker) == 1)
        end = test.broker.hold("end")
        await send(test, b"bad", b"b")
        await end.arrived()
        await settle_down()
        assert (values(test.broker, DEAD), position(test.broker)) == ([], 1)
        assert written(test.broker, DEAD) == [b"bad"]
        assert values(test.broker) == [b"a"], "no record overtakes it"
        end.release()
        await until(lambda: position(test.broker) == 3)
        assert (values(test.broker, DEAD), values(test.broker)) == ([b"bad"], [b"a", b"b"])
        assert len(recorder.of(RecordDeadLettered)) == 1
        assert [entry.offsets[tp()].offset for entry in test.broker.commits("billing")] == [1, 2, 3]


@in_virtual_time
async def test_a_dead_letter_that_the_broker_refuses_is_tried_in_another_form_and_holds_its_record() -> (
    None
):
    app = app_with(failure_strategy="dead-letter-queue")

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(order: bytes) -> bytes:
        raise ValueError("x" * 100)

    async with running(app) as test:
        test.broker.fail_next("send", RejectedRecordError("too large"), times=1, of=DEAD)
        await send(test, b"bad")
        await until(lambda: position(test.broker) == 1)
        [letter] = test.broker.committed_log(tp(0, DEAD))
        assert "dead-letter-reason" not in dict(letter.headers)
        assert dict(letter.headers)["dead-letter-offset"] == b"0"


@in_virtual_time
async def test_a_handler_that_sends_nothing_needs_no_transaction_and_a_tick_commits_it() -> None:
    app, calls = app_with(commit_interval="5s"), list[bytes]()

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(order: bytes) -> None:
        calls.append(order)

    async with running(app) as test:
        began = now()
        await send(test, b"a", b"b")
        await until(lambda: calls == [b"a", b"b"])
        assert position(test.broker) is None
        await until(lambda: position(test.broker) == 2)
        assert now() - began >= 4
        assert "invoices" not in test.broker.topics() or written(test.broker) == []


@pytest.mark.parametrize("step", ["send", "add_group", "commit_in", "claim"])
@in_virtual_time
async def test_trouble_of_the_broker_is_no_failure_of_the_handler(step: Any) -> None:
    recorder, attempts = Recorder(), list[int]()
    # Routes are for what handlers raise. What aborts a transaction has none.
    routes = {"reactive_kafka.TransientBrokerError": "ignore"}
    app = app_with(recorder, failure_strategy="ignore", failure_routes=routes)

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(message: Message[bytes]) -> bytes:
        attempts.append(message.attempt)
        if step == "claim" and len(attempts) == 1:
            # The next transaction claims the id again.
            test.broker.fail_next("send", TransientBrokerError("away"))
        return message.payload

    async with running(app) as test:
        await until(lambda: app.health().ready.status == "UP")
        test.broker.fail_next(step, TransientBrokerError("away"), times=2)
        await send(test, b"a")
        await until(lambda: position(test.broker) == 1)
        assert values(test.broker) == [b"a"]
        assert attempts == [1] * len(attempts), (
            "no other attempt: the transaction failed, not the handler"
        )
        assert len(attempts) >= 3
        assert recorder.of(RecordIgnored) == []
        told = recorder.of(TransactionAborted)
        assert len(told) == len(attempts) - 1
        assert {event.reason for event in told} == {"away"}


@pytest.mark.parametrize("is_stored", [True, False])
@in_virtual_time
async def test_the_outcome_of_an_end_without_an_answer_is_found_out(is_stored: bool) -> None:
    app, calls = app_with(), list[bytes]()

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(order: bytes) -> bytes:
        calls.append(order)
        return order

    async with running(app) as test:
        test.broker.fail_next("end", TransientBrokerError("no answer"), stored=is_stored)
        test.broker.fail_next("claim", TransientBrokerError("away"), times=2)
        await send(test, b"a", b"b")
        await until(lambda: position(test.broker) == 2)
        assert values(test.broker) == [b"a", b"b"]
        assert calls == [b"a", b"b"] if is_stored else [b"a", b"a", b"b"]


@pytest.mark.parametrize("is_stored", [True, False])
@in_virtual_time
async def test_an_outcome_that_the_position_cannot_tell_never_loses_an_output(
    is_stored: bool,
) -> None:
    app, calls = app_with(), list[bytes]()

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(order: bytes) -> bytes:
        calls.append(order)
        return b"%s%d" % (order, len(calls))

    async with running(app) as test:
        await send(test, b"a", b"b")
        await until(lambda: position(test.broker) == 2)
        test.broker.fail_next("end", TransientBrokerError("no answer"), stored=is_stored)
        # Where the group stands after it is where it stands already.
        await app.channel("orders").seek(tp(), 1)
        await until(lambda: len(calls) == 4)
        await send(test, b"c")
        await until(lambda: position(test.broker) == 3)
        assert calls == [b"a", b"b", b"b", b"b", b"c"]
        assert values(test.broker) == [b"a1", b"b2", *([b"b3"] if is_stored else []), b"b4", b"c5"]


@in_virtual_time
async def test_an_end_that_lands_late_does_nothing_once_the_id_was_claimed_again() -> None:
    app, calls = app_with(), list[bytes]()

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(order: bytes) -> bytes:
        calls.append(order)
        return order

    async with running(app) as test:
        end = test.broker.hold("end")
        await send(test, b"a")
        await end.arrived()
        # Given up, aborted, and handled again.
        await until(lambda: position(test.broker) == 1, 60)
        assert calls == [b"a", b"a"]
        end.release()
        await settle_down()
        assert (values(test.broker), position(test.broker)) == ([b"a"], 1)
        assert written(test.broker) == [b"a", b"a"]


@in_virtual_time
async def test_a_member_that_was_put_out_stores_nothing_and_another_one_handles_its_record() -> (
    None
):
    broker, begun, going = make_broker(1), list[str](), asyncio.Event()
    apps = {name: app_with() for name in ("first", "second")}

    def declare(name: str, app: App) -> None:
        @app.incoming("orders")
        @app.outgoing("invoices")
        async def handler(order: bytes) -> bytes:
            begun.append(name)
            if len(begun) == 1:
                await going.wait()
            return order + name.encode()

    for name, app in apps.items():
        declare(name, app)
    try:
        async with TestApp(apps["first"], broker=broker):
            [member] = broker.members("billing")
            broker.produce("orders", b"by ")
            await until(lambda: begun == ["first"])
            async with TestApp(apps["second"], broker=broker):
                broker.expire("billing", member, notice_after_s=5)
                await until(lambda: values(broker) == [b"by second"], 60)
                # The first one goes on, and does not know that it is out.
                going.set()
                await asyncio.sleep(60)
                assert (values(broker), position(broker)) == ([b"by second"], 1)
                assert begun == ["first", "second"]
    finally:
        await broker.close()


@in_virtual_time
async def test_a_handler_from_before_a_rebalance_commits_nothing_before_its_partition_is_known_to_be_retained() -> (
    None
):
    """Another member may have gone on meanwhile: what the group has stored is asked for first."""
    broker, going, calls = make_broker(1), asyncio.Event(), list[bytes]()
    app = app_with(revoke_grace="100ms")

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(order: bytes) -> bytes:
        calls.append(order)
        await going.wait()
        return order

    try:
        async with TestApp(app, broker=broker) as test:
            broker.produce("orders", b"a")
            await until(lambda: calls == [b"a"])
            asked = broker.hold("committed")
            broker.rebalance("billing")
            await asked.arrived()
            going.set()
            await asyncio.sleep(1)
            assert written(broker) == [], "not even begun"
            asked.release()
            await until(lambda: position(broker) == 1)
            assert (values(broker), calls) == ([b"a"], [b"a"])
            await test.settled()
    finally:
        await broker.close()


# -- batches


@in_virtual_time
async def test_a_batch_of_several_partitions_is_one_transaction() -> None:
    app = app_with(batch_max_records=4, batch_max_wait="1s")

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(batch: Batch[bytes]) -> list[Record]:
        return [Record(payload) for payload in batch.payloads]

    async with running(app, partitions=2) as test:
        end = test.broker.hold("end")
        await send(test, b"a", b"b")
        await send(test, b"c", b"d", partition=1)
        await end.arrived()
        assert (position(test.broker), position(test.broker, 1)) == (None, None)
        end.release()
        await until(lambda: (position(test.broker), position(test.broker, 1)) == (2, 2))
        assert sorted(value or b"" for value in values(test.broker, partitions=2)) == [
            b"a",
            b"b",
            b"c",
            b"d",
        ]
        assert len(test.broker.commits("billing")) == 1


@in_virtual_time
async def test_letters_of_records_that_cannot_be_read_go_with_the_batch_around_them() -> None:
    app = app_with(batch_max_records=4, batch_max_wait="1s", failure_strategy="dead-letter-queue")
    batches = list[list[int]]()

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(batch: Batch[int]) -> list[Record]:
        batches.append(batch.payloads)
        return [Record(payload) for payload in batch.payloads]

    async with running(app) as test:
        end = test.broker.hold("end")
        await send(test, b"1", b"bad", b"3", b"worse")
        await end.arrived()
        assert (values(test.broker, DEAD), values(test.broker), position(test.broker)) == (
            [],
            [],
            None,
        )
        last = test.broker.hold("end")
        end.release()
        await last.arrived()
        assert (values(test.broker, DEAD), values(test.broker)) == ([b"bad"], [b"1", b"3"]), (
            "with the batch"
        )
        assert position(test.broker) == 3
        last.release()
        await until(lambda: position(test.broker) == 4)
        assert batches == [[1, 3]]
        assert (values(test.broker, DEAD), values(test.broker)) == (
            [b"bad", b"worse"],
            [b"1", b"3"],
        )
        assert [entry.offsets[tp()].offset for entry in test.broker.commits("billing")] == [3, 4]


@in_virtual_time
async def test_a_letter_does_not_pass_the_records_before_it_while_a_handler_has_them() -> None:
    app = app_with(batch_max_records=2, batch_max_wait="1s", failure_strategy="dead-letter-queue")
    going = asyncio.Event()

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(batch: Batch[int]) -> list[Record]:
        await going.wait()
        return [Record(payload) for payload in batch.payloads]

    async with running(app) as test:
        await send(test, b"1", b"bad")
        await asyncio.sleep(5)
        assert (values(test.broker, DEAD), position(test.broker)) == ([], None)
        going.set()
        await until(lambda: position(test.broker) == 2)
        assert (values(test.broker, DEAD), values(test.broker)) == ([b"bad"], [b"1"])
        assert [entry.offsets[tp()].offset for entry in test.broker.commits("billing")] == [1, 2]


@pytest.mark.parametrize("in_batches", [False, True])
@in_virtual_time
async def test_a_retry_that_is_due_before_the_one_in_front_of_it_waits_for_that(
    in_batches: bool,
) -> None:
    """Two processes have written them, and the clock of the first one is ahead."""
    app = app_with(
        failure_strategy="delayed-retry-topic", delayed_retry={"topics": ["orders_retry_20000"]}
    )

    async def single(order: bytes) -> bytes:
        return order

    async def several(orders: Batch[bytes]) -> list[Record]:
        return [Record(order) for order in orders.payloads]

    app.incoming("orders")(app.outgoing("invoices")(several if in_batches else single))
    async with running(app) as test:
        began = now()
        wall_ms = int(asyncio.get_running_loop().clock.wall() * 1000)  # type: ignore[attr-defined]
        for value, age_ms in ((b"first", 5_000), (b"second", 10_000)):
            test.broker.produce(
                "orders_retry_20000", value, partition=0, timestamp_ms=wall_ms - age_ms
            )
        await until(lambda: len(values(test.broker)) == 2, 60)
        assert values(test.broker) == [b"first", b"second"]
        assert 15.0 <= now() - began < 17.0
        await until(lambda: app.health().ready.is_up)


@in_virtual_time
async def test_a_batch_that_raises_leaves_a_letter_for_each_record_in_one_transaction() -> None:
    app = app_with(batch_max_records=3, batch_max_wait="1s", failure_strategy="dead-letter-queue")

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(batch: Batch[bytes]) -> list[Record]:
        raise ValueError("all of it")

    async with running(app) as test:
        await send(test, b"a", b"b", b"c")
        await until(lambda: position(test.broker) == 3)
        assert values(test.broker, DEAD) == [b"a", b"b", b"c"]
        assert values(test.broker) == []
        assert [entry.offsets[tp()].offset for entry in test.broker.commits("billing")][-1] == 3


# -- verdicts


@in_virtual_time
async def test_an_ack_by_hand_is_refused_with_what_to_do_instead() -> None:
    recorder = Recorder()
    app = app_with(recorder, failure_strategy="ignore")

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(message: Message[bytes]) -> bytes:
        if message.payload == b"ack":
            message.ack()
        if message.payload == b"nack":
            message.nack(ValueError("no"))
        return message.payload

    async with running(app) as test:
        await send(test, b"ack", b"nack", b"a")
        await test.settled()
        reasons = [event.error for event in recorder.of(RecordIgnored)]
        assert all(isinstance(error, CheckpointError) for error in reasons)
        assert "raise an error to have them nacked" in str(reasons[0])
        assert values(test.broker) == [b"a"]


@in_virtual_time
async def test_a_record_whose_transaction_ends_cannot_be_skipped() -> None:
    app = app_with()

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(order: bytes) -> bytes:
        return order

    async with running(app) as test:
        end = test.broker.hold("end", answer=True)
        await send(test, b"a")
        await end.arrived()
        with pytest.raises(SkipRefusedError, match="its transaction is being stored"):
            app.channel("orders").skip(tp(), 0)
        end.release()
        await until(lambda: position(test.broker) == 1)
        assert values(test.broker) == [b"a"]


@in_virtual_time
async def test_poison_that_comes_while_a_transaction_ends_is_either_stored_or_dead_lettered_and_never_both() -> (
    None
):
    app = app_with(
        unprocessed_record_max_age="2s",
        on_poison="dead-letter-queue",
        failure_strategy="dead-letter-queue",
    )

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(order: bytes) -> bytes:
        return order

    async with running(app) as test:
        # It is committed, and nobody hears of it.
        end = test.broker.hold("end", answer=True)
        await send(test, b"a")
        await end.arrived()
        await asyncio.sleep(30)
        end.release()
        await until(lambda: position(test.broker) == 1)
        await send(test, b"b")
        await until(lambda: position(test.broker) == 2)
        assert (values(test.broker), values(test.broker, DEAD)) == ([b"a", b"b"], [])


@in_virtual_time
async def test_a_call_that_was_cut_off_while_its_transaction_ends_is_made_again_and_stored_once() -> (
    None
):
    app = app_with(retry={"max_attempts": 3, "backoff": "100ms"})
    calls = list[int]()

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(message: Message[bytes]) -> bytes:
        calls.append(message.attempt)
        task = asyncio.current_task()
        if len(calls) == 1 and task is not None:
            # A time limit that the handler has forgotten to end.
            asyncio.get_running_loop().call_later(1.0, task.cancel)
        return message.payload

    async with running(app) as test:
        end = test.broker.hold("end")
        await send(test, b"a")
        await until(lambda: calls == [1, 2])
        end.release()
        await send(test, b"b")
        await until(lambda: position(test.broker) == 2)
        assert values(test.broker) == [b"a", b"b"]
        assert calls == [1, 2, 1]


@in_virtual_time
async def test_settled_positions_are_committed_while_large_transactions_have_their_producers() -> (
    None
):
    app = app_with(concurrency=17)
    large = list[int]()
    go_on = asyncio.Event()

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(message: Message[bytes]) -> AsyncIterator[bytes]:
        if message.payload == b"large":
            # They are written before the call ends, so it has a producer, and no partition yet.
            for _ in range(COLLECTED):
                yield b""
            large.append(message.partition)
            await go_on.wait()

    def positions() -> set[int | None]:
        return {position(test.broker, partition) for partition in range(17)}

    async with running(app, partitions=17) as test:
        for partition in range(17):
            await test.send("orders", value=b"nothing to send", partition=partition)
            await test.send("orders", value=b"large", partition=partition)
        await until(lambda: len(large) == MOST_PRODUCERS - 1)
        await until(lambda: positions() == {1})
        go_on.set()
        await until(lambda: positions() == {2})
        assert len(large) == 17


@in_virtual_time
async def test_a_seek_while_a_transaction_ends_makes_its_position_void() -> None:
    app, calls = app_with(), list[bytes]()

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(order: bytes) -> bytes:
        calls.append(order)
        return order

    async with running(app) as test:
        await send(test, b"a", b"b")
        await until(lambda: position(test.broker) == 2)
        joining = test.broker.hold("commit_in")
        await send(test, b"c")
        await joining.arrived()
        await app.channel("orders").seek(tp(), 0)
        joining.release()
        await until(lambda: len(calls) == 6 and position(test.broker) == 3, 60)
        assert calls == [b"a", b"b", b"c", b"a", b"b", b"c"]
        assert values(test.broker) == [b"a", b"b", b"a", b"b", b"c"], "that of the seek was aborted"


@in_virtual_time
async def test_a_stop_ends_the_transaction_that_is_under_way() -> None:
    app, going = app_with(), asyncio.Event()

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(order: bytes) -> bytes | None:
        await going.wait()
        return None if order == b"none" else order

    broker = make_broker(1)
    async with TestApp(app, broker=broker) as test:
        broker.produce("orders", b"none")
        broker.produce("orders", b"a")
        await settle_down()
        asyncio.get_running_loop().call_later(3, going.set)
        await test.app.stop()
    assert position(broker) == 1, (
        "the last commit is a transaction, too; the second record was not begun"
    )
    assert values(broker) == []
    await broker.close()


@in_virtual_time
async def test_the_last_commit_does_not_go_over_that_of_a_transaction_which_is_open() -> None:
    recorder = Recorder()
    app = app_with(recorder, revoke_grace="1s", commit_interval="1h")

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(order: bytes) -> bytes | None:
        return None if order == b"none" else order

    async with running(app) as test:
        end = test.broker.hold("end")
        await send(test, b"none", b"a")
        # The transaction has position 2; position 1 is settled and not committed.
        await end.arrived()
        test.broker.rebalance("billing")
        await asyncio.sleep(3)
        assert {event.reason for event in recorder.of(CommitFailed)} == {
            "a transaction of orders-0 is open"
        }
        end.release()
        await until(lambda: position(test.broker) == 2, 60)
        assert values(test.broker) == [b"a"]


@in_virtual_time
async def test_a_record_that_is_sent_alone_has_a_transaction_of_its_own() -> None:
    app = app_with()
    emitter = app.emitter("invoices")
    async with running(app) as test:
        end = test.broker.hold("end")
        sending = asyncio.ensure_future(emitter.send(b"a"))
        await end.arrived()
        assert (values(test.broker), written(test.broker)) == ([], [b"a"])
        end.release()
        assert await sending == ("invoices", 0, 0)
        assert values(test.broker) == [b"a"]
        assert await emitter.send(b"b") == ("invoices", 0, 2), "behind the marker"


# -- topics


@in_virtual_time
async def test_a_missing_topic_is_named_from_the_start_and_its_records_wait() -> None:
    app = app_with()

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(order: bytes) -> bytes:
        return order

    loop = asyncio.get_running_loop()
    broker = MemoryBroker(loop.clock, partitions=1, auto_create=False)  # type: ignore[attr-defined]
    broker.create_topic("orders", 1)
    try:
        async with TestApp(app, broker=broker):
            await until(lambda: "'invoices' does not exist" in str(app.health().ready))
            broker.produce("orders", b"a")
            await asyncio.sleep(5)
            assert position(broker) is None
            broker.create_topic("invoices", 1)
            await until(lambda: position(broker) == 1, 60)
            assert values(broker) == [b"a"]
            await until(lambda: app.health().ready.status == "UP")
    finally:
        await broker.close()


@in_virtual_time
async def test_a_record_that_the_broker_refuses_fails_the_whole_call() -> None:
    recorder = Recorder()
    app = app_with(recorder, failure_strategy="ignore")

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(order: bytes) -> list[Record]:
        return [Record(b"fine"), Record(order, partition=7 if order == b"astray" else 0)]

    async with running(app) as test:
        await send(test, b"astray", b"b")
        await test.settled()
        [ignored] = recorder.of(RecordIgnored)
        assert isinstance(ignored.error, RejectedRecordError)
        assert "invoices-7 does not exist" in ignored.reason
        assert values(test.broker) == [b"fine", b"b"]


@in_virtual_time
async def test_of_several_handlers_each_has_its_own_transaction_or_none() -> None:
    app, seen = app_with(filter="tests.app.test_exactly_once:is_wanted"), list[bytes]()

    @app.incoming("orders", when=lambda message: message.payload == b"silent")
    async def silent(order: bytes) -> None:
        seen.append(order)

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(order: bytes) -> bytes | None:
        return order if order != b"nothing" else None

    async with running(app) as test:
        await send(test, b"a", b"silent", b"nothing", b"unwanted", b"b")
        await until(lambda: position(test.broker) == 5, 60)
        assert values(test.broker) == [b"a", b"b"]
        await send(test, b"silent")
        await until(lambda: position(test.broker) == 6, 60)
    assert seen == [b"silent", b"silent"]


def is_wanted(message: Message[bytes]) -> bool:
    return message.payload != b"unwanted"


@in_virtual_time
async def test_a_commit_by_hand_says_where_an_open_transaction_keeps_it_from_storing_what_is_settled() -> (
    None
):
    app = app_with(commit_interval="1h")

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(order: bytes) -> bytes | None:
        return None if order == b"nothing" else order

    async with running(app) as test:
        await send(test, b"nothing")
        await until(
            lambda: (
                facts(test).partitions[0].position == 1 and facts(test).partitions[0].in_flight == 0
            )
        )
        end = test.broker.hold("end")
        await send(test, b"a")
        await end.arrived()
        with pytest.raises(TransientBrokerError, match="orders-0: a transaction is open"):
            await app.channel("orders").commit()
        end.release()
        await until(lambda: position(test.broker) == 2)
        await app.channel("orders").commit()


def yields_three_records(app: App, calls: list[int]) -> None:
    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(message: Message[bytes]) -> AsyncIterator[Record]:
        calls.append(message.attempt)
        for number in range(3):
            yield Record(b"%d" % number, partition=number)


@in_virtual_time
async def test_a_batch_that_is_too_large_is_written_again_without_another_call_of_the_handler() -> (
    None
):
    recorder = Recorder()
    app, calls = app_with(recorder, retry={"max_attempts": 2}), list[int]()
    yields_three_records(app, calls)
    async with running(app, partitions=3) as test:
        refused = BatchRefusedError("invoices: a batch of 3 records is too large")
        test.broker.fail_next("send", refused, times=3, of="invoices")
        await send(test, b"a")
        await until(lambda: position(test.broker) == 1, 60)
        assert sorted(values(test.broker, partitions=3), key=str) == [b"0", b"1", b"2"]
        assert calls == [1]
        assert not recorder.of(TransactionAborted)


@in_virtual_time
async def test_a_record_that_is_too_large_among_several_outputs_costs_as_many_calls_as_any_failure() -> (
    None
):
    recorder = Recorder()
    app, calls = (
        app_with(recorder, retry={"max_attempts": 2}, failure_strategy="ignore"),
        list[int](),
    )
    yields_three_records(app, calls)
    async with running(app, partitions=3) as test:
        for _ in range(2):
            # What the broker says of the batch, and what the partitions hear whose write comes
            # later.
            for error in (
                BatchRefusedError("invoices: a batch of 3 records is too large"),
                TransientBrokerError("has failed already"),
                TransientBrokerError("has failed already"),
                TransientBrokerError("has failed already"),
                RejectedRecordError("the record is too large"),
                TransientBrokerError("has failed already"),
            ):
                test.broker.fail_next("send", error, of="invoices")
        await send(test, b"a")
        await until(lambda: position(test.broker) == 1, 60)
        assert calls == [1, 2]
        assert [one.reason for one in recorder.of(RecordIgnored)] == [
            "RejectedRecordError: the record is too large"
        ]
        assert not recorder.of(TransactionAborted)


@in_virtual_time
async def test_what_a_transaction_has_written_before_a_refused_batch_is_not_lost() -> None:
    recorder = Recorder()
    app, calls = app_with(recorder), list[int]()

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(message: Message[bytes]) -> AsyncIterator[bytes]:
        calls.append(message.attempt)
        # These are written before the next one.
        for number in range(10_000):
            yield b"%d" % number
        test.broker.fail_next(
            "send", BatchRefusedError("too large"), times=2 - len(calls), of="invoices"
        )
        yield b"end"

    async with running(app) as test:
        await send(test, b"a")
        await until(lambda: position(test.broker) == 1, 60)
        assert values(test.broker) == [b"%d" % number for number in range(10_000)] + [b"end"]
        assert calls == [1, 1], (
            "what is not kept any more the handler makes again, which is no attempt"
        )
        assert [one.reason for one in recorder.of(TransactionAborted)] == ["too large"]


@in_virtual_time
async def test_a_call_hears_that_its_transaction_was_aborted_although_closing_it_fails() -> None:
    recorder = Recorder()
    app = app_with(recorder)
    started = asyncio.Event()

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(order: bytes) -> AsyncIterator[bytes]:
        # So many are written at once, so there is something to abort.
        for _ in range(COLLECTED):
            yield order
        started.set()
        await asyncio.sleep(1)

    async with running(app) as test:
        await send(test, b"a")
        await started.wait()
        # A bug of a client.
        test.broker.fail_next("end", ZeroDivisionError("a bug"))  # type: ignore[arg-type]
        await app.channel("orders").seek(tp(), 1)
        await until(lambda: recorder.of(TransactionAborted), 30)
        (told,) = recorder.of(TransactionAborted)
        assert "is not ours any more" in told.reason
        (failed,) = recorder.of(ChannelFailed)
        assert isinstance(failed.error, ZeroDivisionError)
