"""When a record counts as done: ack modes, the first verdict, threads, and waiting for the
commit.
"""

from __future__ import annotations

import asyncio
import copy
import gc
import pickle
import threading
import weakref
from collections.abc import Awaitable
from typing import Any

import pytest

from reactive_kafka import Batch, ChannelClosedError, Message, NotOwnerError, TransientBrokerError
from reactive_kafka.events import HandlerFailed
from reactive_kafka.testing import NotSettledError
from tests.app.handlers import keep_messages, note_offsets
from tests.app.helpers import (
    Recorder,
    committed,
    facts,
    in_virtual_time,
    make_app,
    running,
    send,
    settle_down,
    tp,
    until,
)

# -- modes


@in_virtual_time
async def test_post_acks_when_the_handler_returns_and_not_before() -> None:
    app = make_app(commit_interval="100ms")

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        await asyncio.sleep(5)

    async with running(app) as test:
        await send(test, b"")
        await asyncio.sleep(4.5)
        assert committed(test) is None
        await asyncio.sleep(1)
        assert committed(test) == 1


@in_virtual_time
async def test_pre_acks_before_the_handler_runs() -> None:
    app = make_app(commit_interval="100ms")

    @app.incoming("orders", ack="pre")
    async def handler(value: bytes) -> None:
        await asyncio.sleep(5)

    async with running(app) as test:
        await send(test, b"")
        await asyncio.sleep(1)
        assert committed(test) == 1
        assert facts(test).partitions[0].in_flight == 0


@pytest.mark.parametrize("shape", ["payload", "message", "batch"])
@pytest.mark.parametrize("mode", ["pre", "none"])
async def test_a_raise_after_a_pre_ack_is_told_and_nothing_more(mode: str, shape: str) -> None:
    recorder = Recorder()
    strategy = {"commit_strategy": "ignore"} if mode == "none" else {}
    app = make_app(recorder, batch_max_wait="10ms", **strategy)
    annotation = {"payload": bytes, "message": Message[bytes], "batch": Batch[bytes]}[shape]

    async def handler(value: Any) -> None:
        raise ValueError("too late")

    handler.__annotations__["value"] = annotation
    app.incoming("orders", ack=mode, retry=3)(handler)
    async with running(app) as test:
        await send(test, b"", b"")
        await until(lambda: len(recorder.of(HandlerFailed)) == 2)
        assert facts(test).totals[tp()].nacked == {mode: 2}
        assert facts(test).retries == 0
        assert app.health().status == "UP"
        await test.settled()
        assert committed(test) == (2 if mode == "pre" else None)


@pytest.mark.parametrize("shape", ["payload", "message", "batch"])
async def test_a_record_that_cannot_be_decoded_is_settled_in_pre_mode_too(shape: str) -> None:
    recorder = Recorder()
    app, seen = make_app(recorder, batch_max_wait="10ms"), []
    annotation = {"payload": int, "message": Message[int], "batch": Batch[int]}[shape]

    async def handler(value: Any) -> None:
        seen.append(value)

    handler.__annotations__["value"] = annotation
    app.incoming("orders", ack="pre")(handler)
    async with running(app) as test:
        await send(test, b"not a number", b"7")
        await test.settled()
        assert committed(test) == 2
    assert len(seen) == 1
    assert "DecodeError" in recorder.of(HandlerFailed)[0].reason


async def test_manual_acks_only_what_the_handler_says() -> None:
    app, kept = make_app(), list[Message[bytes]]()
    keep_messages(app, kept, ack="manual")

    async with running(app) as test:
        await send(test, b"", b"", b"")
        await until(lambda: len(kept) == 3)
        kept[1].ack()
        with pytest.raises(
            NotSettledError, match=r"orders-0 ends at 3, read up to 3, 2 in flight, 0 queued"
        ):
            await test.settled(timeout=0.05)
        assert committed(test) is None
        kept[0].ack()
        kept[2].ack()
        await test.settled()
        assert committed(test) == 3


async def test_manual_may_be_the_way_of_the_channel() -> None:
    app, kept = make_app(ack="manual"), list[Message[bytes]]()
    keep_messages(app, kept)

    async with running(app) as test:
        await send(test, b"")
        await until(lambda: kept)
        assert facts(test).partitions[0].in_flight == 1
        assert await kept[0].ack()


async def test_a_raise_in_manual_mode_is_a_nack() -> None:
    app = make_app(failure_strategy="ignore")

    @app.incoming("orders", ack="manual")
    async def handler(message: Message[bytes]) -> None:
        raise ValueError("no")

    async with running(app) as test:
        await send(test, b"")
        await test.settled()
        assert facts(test).totals[tp()].nacked == {"ignore": 1}


# -- the first verdict stands


async def test_in_post_mode_a_handler_that_settles_itself_wins() -> None:
    app, answers = make_app(failure_strategy="ignore"), list[bool]()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        answers.append(await message.nack(ValueError("no")))

    async with running(app) as test:
        await send(test, b"")
        await test.settled()
        totals = facts(test).totals[tp()]
        assert (totals.acked, totals.nacked) == (0, {"ignore": 1})
    assert answers == [True]


async def test_a_raise_after_an_ack_changes_nothing() -> None:
    app = make_app()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        message.ack()
        raise ValueError("afterwards")

    async with running(app) as test:
        await send(test, b"")
        await test.settled()
        totals = facts(test).totals[tp()]
        assert (totals.acked, totals.nacked) == (1, {})


async def test_every_verdict_but_the_first_answers_false() -> None:
    """Row E1 of the faults."""
    app, kept = make_app(), list[Message[bytes]]()
    keep_messages(app, kept, ack="manual")

    async with running(app) as test:
        await send(test, b"")
        await until(lambda: kept)
        message = kept[0]
        assert [await message.ack(), await message.ack(), await message.nack(ValueError())] == [
            True,
            False,
            False,
        ]
        assert app.health().status == "UP"
        await test.settled()


@pytest.mark.parametrize("first", ["ack", "nack"])
@in_virtual_time
async def test_verdicts_in_any_order_and_number_count_once_and_nothing_grows_with_them(
    first: str,
) -> None:
    """Row E1 of the faults."""
    app, kept = make_app(failure_strategy="ignore", ack="manual"), list[Message[bytes]]()
    keep_messages(app, kept)

    def verdict(which: str) -> Awaitable[bool]:
        return kept[0].ack() if which == "ack" else kept[0].nack(ValueError("no"))

    async with running(app) as test:
        await send(test, b"")
        await until(lambda: kept)
        assert await verdict(first) is True
        await test.settled()
        before = -1
        for number in range(3000):
            assert await verdict("ack" if number % 3 else "nack") is False
            if number == 1000:
                gc.collect()
                before = len(gc.get_objects())
        gc.collect()
        assert len(gc.get_objects()) - before < 100
        totals = facts(test).totals[tp()]
        assert (totals.acked, totals.nacked) == ((1, {}) if first == "ack" else (0, {"ignore": 1}))
        assert committed(test) == 1


async def test_a_verdict_is_complete_at_once() -> None:
    app, kept = make_app(), list[Message[bytes]]()
    keep_messages(app, kept, ack="manual")

    async with running(app) as test:
        await send(test, b"")
        await until(lambda: kept)
        answer = kept[0].ack()
        assert answer.done()
        assert answer.result() is True


async def test_threads_settle_and_are_told_whether_it_took_effect() -> None:
    """Row E2 of the faults."""
    app, answers = make_app(), list[bool]()

    @app.incoming("orders")
    def handler(message: Message[bytes]) -> None:
        answers.append(message.ack().result(5))
        answers.append(message.ack().result(5))
        answers.append(message.nack(ValueError()).result(5))

    async with running(app) as test:
        await send(test, b"")
        await test.settled()
    assert answers == [True, False, False]


async def test_a_nack_takes_an_exception() -> None:
    app, kept = make_app(), list[Message[bytes]]()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        kept.append(message)
        with pytest.raises(TypeError, match="takes an exception, not str"):
            message.nack("no")  # type: ignore[arg-type]

    async with running(app) as test:
        await send(test, b"")
        await test.settled()
    assert kept


# -- committed()


@in_virtual_time
async def test_committed_waits_until_the_group_has_passed_the_record() -> None:
    app, kept = make_app(commit_interval="5s"), list[Message[bytes]]()
    keep_messages(app, kept, ack="manual")

    async with running(app) as test:
        await send(test, b"", b"", b"")
        await until(lambda: len(kept) == 3)
        first, second, last = (message.committed() for message in kept)
        kept[2].ack()
        await asyncio.sleep(20)
        assert not first.done()
        kept[0].ack()
        async with asyncio.timeout(6):
            await first
        assert (committed(test), second.done(), last.done()) == (1, False, False)
        kept[1].ack()
        async with asyncio.timeout(6):
            await last
        assert committed(test) == 3
        # Has been, long ago.
        await kept[0].committed()


@in_virtual_time
async def test_waits_for_a_commit_that_were_given_up_are_let_go_while_nothing_is_committed() -> (
    None
):
    app, kept = make_app(), list[Message[bytes]]()
    keep_messages(app, kept, ack="manual")

    async with running(app) as test:
        await send(test, b"")
        await until(lambda: len(kept) == 1)
        waits = weakref.WeakSet[asyncio.Future[None]]()
        patient = kept[0].committed()
        for _ in range(1000):
            given_up = kept[0].committed()
            waits.add(given_up)
            given_up.cancel()
        del given_up
        await asyncio.sleep(1)
        gc.collect()
        assert len(waits) < 100
        kept[0].ack()
        await patient


async def test_committed_in_a_blocking_handler_waits_in_its_thread() -> None:
    app, done = make_app(commit_interval="50ms"), list[Any]()

    @app.incoming("orders")
    def handler(message: Message[bytes]) -> None:
        message.ack()
        done.append(message.committed().result(5))  # type: ignore[func-returns-value]

    async with running(app) as test:
        await send(test, b"")
        await until(lambda: done)
        assert committed(test) == 1


def test_a_thread_that_outlives_the_application_is_told_what_was_committed_and_what_is_not_ours_any_more() -> (
    None
):
    app, kept, told = make_app(drain_timeout="100ms"), list[Message[bytes]](), list[Any]()
    keep_messages(app, kept, ack="manual")

    async def main() -> None:
        async with running(app) as test:
            await send(test, b"", b"")
            await until(lambda: len(kept) == 2)
            kept[0].ack()

    def thread() -> None:
        told.append(kept[0].committed().result(5))  # type: ignore[call-arg, func-returns-value]
        told.append(kept[1].ack().result(5))  # type: ignore[call-arg]
        try:
            kept[1].committed().result(5)  # type: ignore[call-arg]
        except NotOwnerError as error:
            told.append(str(error))

    asyncio.run(main())
    asker = threading.Thread(target=thread)
    asker.start()
    asker.join()
    assert told == [None, False, "orders-0 was taken away before the record was committed"]


@in_virtual_time
async def test_committed_raises_when_the_partition_is_taken_away_first() -> None:
    app, kept = make_app(revoke_grace="1s"), list[Message[bytes]]()
    keep_messages(app, kept, ack="manual")

    async with running(app) as test:
        await send(test, b"")
        await until(lambda: kept)
        waiting = kept[0].committed()
        (member,) = test.broker.members("billing")
        test.broker.expire("billing", member)
        with pytest.raises(NotOwnerError, match="orders-0 was taken away before"):
            await waiting
        assert not await kept[0].ack()
        with pytest.raises(NotOwnerError):
            await kept[0].committed()
        # Delivered again.
        await until(lambda: len(kept) == 2)
        kept[1].ack()


async def test_committed_raises_at_a_stop_that_cannot_commit() -> None:
    app, kept = make_app(drain_timeout="50ms"), list[Message[bytes]]()
    keep_messages(app, kept, ack="manual")

    async with running(app) as test:
        await send(test, b"")
        await until(lambda: kept)
        waiting = kept[0].committed()
    with pytest.raises(NotOwnerError):
        await waiting
    assert not await kept[0].ack()


async def test_where_nothing_is_committed_committed_is_an_error_at_the_call() -> None:
    app, errors = make_app(commit_strategy="ignore"), list[str]()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        try:
            message.committed()
        except ChannelClosedError as error:
            errors.append(str(error))

    async with running(app) as test:
        await send(test, b"")
        await test.settled()
        assert test.broker.commits("billing") == ()
    assert errors == [
        "channel 'orders' commits nothing (commit_strategy = 'ignore'): committed() would wait for ever"
    ]


# -- between a revocation and the next assignment


@in_virtual_time
async def test_an_ack_while_nobody_has_the_partition_is_answered_at_the_next_assignment() -> None:
    app, kept = make_app(revoke_grace="1s"), list[Message[bytes]]()
    keep_messages(app, kept, ack="manual")

    async with running(app) as test:
        await send(test, b"")
        await until(lambda: kept)
        await asyncio.sleep(0.5)
        test.broker.fail_next("committed", TransientBrokerError("later"))
        hold = test.broker.hold("committed")
        test.broker.rebalance("billing")
        await hold.arrived()
        answer = kept[0].ack()
        await settle_down()
        assert not answer.done()
        hold.release()
        assert await answer is True
        await test.settled()
        assert len(kept) == 1


@in_virtual_time
async def test_a_message_that_was_forged_or_is_to_leave_the_process_settles_nothing() -> None:
    """Row E5 of the faults: copies are the message itself, and nothing else is one."""
    app, kept = make_app(ack="manual", commit_interval="100ms"), list[Message[bytes]]()
    keep_messages(app, kept)

    async with running(app) as test:
        await send(test, b"a", b"b")
        await until(lambda: len(kept) == 2)
        for leave in (pickle.dumps, copy.deepcopy):
            with pytest.raises((TypeError, AttributeError), match="pickle"):
                leave(kept[0])
        forged = Message[bytes]()
        for settle in (
            forged.ack,
            lambda: forged.nack(ValueError()),
            lambda: app.channel("orders").ack_up_to(forged),
        ):
            with pytest.raises(AttributeError):
                settle()
        with pytest.raises(TypeError):
            Message(kept[0].record)  # type: ignore[call-arg]
        await asyncio.sleep(1)
        assert committed(test) is None
        assert facts(test).partitions[0].in_flight == 2
        assert await copy.copy(kept[0]).ack() is True
        assert await kept[0].ack() is False
        await until(lambda: committed(test) == 1)


@in_virtual_time
async def test_acks_count_though_their_partition_is_read_from_elsewhere_before_anybody_asks() -> (
    None
):
    app, seen = make_app(), list[int]()
    note_offsets(app, seen)
    async with running(app) as test:
        await send(test, *[b""] * 5)
        await until(lambda: len(seen) == 5)
        await app.channel("orders").seek(tp(), "end")
        assert facts(test).totals[tp()].acked == 5
