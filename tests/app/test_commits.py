"""What is committed, and when: at every interval, never past an unsettled record, and tried again
by itself.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from reactive_kafka import Message, TransientBrokerError
from reactive_kafka.errors import OutcomeUnknownError
from reactive_kafka.events import CommitFailed, OffsetReset
from reactive_kafka.testing import MemoryBroker
from tests.app.brokers import ScriptedFault
from tests.app.handlers import keep_messages, note_offsets, note_places, take_all
from tests.app.helpers import (
    Recorder,
    committed,
    facts,
    in_virtual_time,
    make_app,
    make_broker,
    now,
    positions,
    running,
    send,
    tp,
    until,
)


def lag(test: object, partition: int = 0) -> int | None:
    return facts(test).partitions[partition].lag  # type: ignore[arg-type]


@in_virtual_time
async def test_commits_come_at_every_interval_and_none_without_something_new() -> None:
    app = make_app(commit_interval="5s")
    take_all(app)

    async with running(app) as test:
        began = now()
        await send(test, b"")
        await asyncio.sleep(12)
        await send(test, b"", b"")
        await asyncio.sleep(30)
        times = [round(entry.at - began) for entry in test.broker.commits("billing")]
        assert (times, positions(test.broker)) == ([5, 15], [1, 3])
        assert facts(test).commits == {"ok": 2, "failed": 0, "unknown": 0}


@in_virtual_time
async def test_one_request_carries_all_partitions_that_moved_and_no_other() -> None:
    app = make_app(commit_interval="1s")
    take_all(app)

    async with running(app, partitions=3) as test:
        await send(test, b"", partition=0)
        await send(test, b"", partition=2)
        await asyncio.sleep(3)
        (entry,) = test.broker.commits("billing")
        assert {partition: at.offset for partition, at in entry.offsets.items()} == {
            tp(0): 1,
            tp(2): 1,
        }


@in_virtual_time
async def test_whatever_the_order_of_acks_no_commit_passes_an_unsettled_record() -> None:
    """Row E4 of the faults."""
    app, shuffle = (
        make_app(ordering="unordered", concurrency=20, commit_interval="100ms"),
        random.Random(7),
    )
    unsettled = set(range(100))

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        await asyncio.sleep(shuffle.random())
        unsettled.discard(message.offset)

    async with running(app) as test:
        test.broker.watch_commits(
            "billing", lambda entry: checks.append((entry.offsets[tp()].offset, min_open()))
        )
        checks: list[tuple[int, int]] = []

        def min_open() -> int:
            return min(unsettled, default=100)

        await send(test, *[b""] * 100)
        await test.settled(timeout=60)
        assert len(checks) > 10
        assert all(position <= lowest for position, lowest in checks)
        assert positions(test.broker) == sorted(positions(test.broker))


@in_virtual_time
async def test_gaps_and_trailing_markers_block_nothing_and_lag_reaches_zero() -> None:
    """Row F1 of the faults."""
    app, seen, broker = make_app(commit_interval="1s"), list[int](), make_broker()
    note_offsets(app, seen)

    for _ in range(6):
        broker.produce("orders", b"")
    broker.compact(tp(), [0, 3])
    broker.append_markers(tp(), 2)
    async with running(app, broker=broker) as test:
        await asyncio.sleep(3)
        assert seen == [1, 2, 4, 5]
        assert (committed(test), lag(test)) == (8, 0)
        broker.append_markers(tp())
        await asyncio.sleep(3)
        assert (committed(test), lag(test)) == (9, 0)


@in_virtual_time
async def test_markers_behind_an_unsettled_record_wait_for_it() -> None:
    app, kept = make_app(commit_interval="1s"), list[Message[bytes]]()
    keep_messages(app, kept, ack="manual")

    async with running(app) as test:
        await send(test, b"")
        test.broker.append_markers(tp())
        await asyncio.sleep(3)
        assert committed(test) is None
        kept[0].ack()
        await asyncio.sleep(1.5)
        assert committed(test) == 2


@in_virtual_time
async def test_a_failed_commit_is_tried_again_at_the_next_tick_by_itself() -> None:
    """Row E6 of the faults."""
    recorder = Recorder()
    app = make_app(recorder, commit_interval="5s")
    take_all(app)

    async with running(app) as test:
        began = now()
        test.broker.fail_next("commit", TransientBrokerError("coordinator moved"), times=2)
        await send(test, b"")
        await asyncio.sleep(11)
        assert committed(test) is None
        assert app.health().ready.status == "DOWN"
        assert "coordinator moved" in app.health().ready.checks[0].data["reason"]
        assert app.health().live.status == "UP"
        await asyncio.sleep(5)
        assert [round(entry.at - began) for entry in test.broker.commits("billing")] == [15]
        assert app.health().status == "UP"
        assert facts(test).commits == {"ok": 1, "failed": 2, "unknown": 0}
    assert [event.outcome for event in recorder.of(CommitFailed)] == ["failed", "failed"]


@in_virtual_time
async def test_what_is_acked_while_a_commit_is_on_its_way_that_fails_is_in_the_next_one() -> None:
    """Row E6 of the faults."""
    app, seen = make_app(commit_interval="1s"), list[int]()
    note_offsets(app, seen)

    async with running(app) as test:
        failing = ScriptedFault(error=TransientBrokerError("coordinator moved"), delay_s=2.5)
        test.broker._state.faults.add("commit", None, [failing])
        await send(test, b"")
        await asyncio.sleep(2)
        assert facts(test).commits == {"ok": 0, "failed": 0, "unknown": 0}, "it is on its way"
        await send(test, b"", b"")
        await until(lambda: facts(test).commits["failed"] == 1)
        assert (seen, positions(test.broker)) == ([0, 1, 2], [])
        await asyncio.sleep(2)
        assert positions(test.broker) == [3]


@in_virtual_time
async def test_a_commit_whose_answer_was_lost_is_unknown_and_sent_again() -> None:
    """Row B2 of the faults."""
    app = make_app(commit_interval="5s")
    take_all(app)

    async with running(app) as test:
        test.broker.fail_next("commit", OutcomeUnknownError("no answer"), stored=True)
        await send(test, b"")
        await asyncio.sleep(11.5)
        # Once more after the answer: the first might land late.
        assert positions(test.broker) == [1, 1, 1]
        assert facts(test).commits == {"ok": 2, "failed": 0, "unknown": 1}


@in_virtual_time
async def test_one_commit_is_in_flight_at_most_and_a_slow_one_holds_up_no_handler() -> None:
    """Row B7 of the faults."""
    app, seen = make_app(commit_interval="1s"), list[int]()
    note_offsets(app, seen)

    async with running(app) as test:
        slow = test.broker.hold("commit")
        await send(test, b"")
        await slow.arrived()
        await send(test, b"")
        await asyncio.sleep(4)
        assert (seen, positions(test.broker)) == ([0, 1], [])
        slow.release()
        await asyncio.sleep(2)
        assert positions(test.broker) == [1, 2]


@in_virtual_time
async def test_while_the_broker_is_away_nothing_is_lost_and_the_channel_is_not_ready_but_alive() -> (
    None
):
    app, seen = make_app(commit_interval="1s"), list[int]()
    note_offsets(app, seen)

    async with running(app) as test:
        await send(test, b"")
        await until(lambda: seen)
        test.broker.down = True
        await asyncio.sleep(20)
        assert (app.health().ready.status, app.health().live.status) == ("DOWN", "UP")
        await send(test, b"")
        await asyncio.sleep(20)
        test.broker.down = False
        await asyncio.sleep(5)
        assert app.health().status == "UP"
        assert (seen, committed(test)) == ([0, 1], 2)


@in_virtual_time
async def test_an_ignoring_channel_commits_nothing() -> None:
    app = make_app(commit_strategy="ignore", commit_interval="1s")
    take_all(app)

    async with running(app) as test:
        await send(test, b"", b"")
        await asyncio.sleep(5)
        assert facts(test).partitions[0].in_flight == 0
    assert test.broker.commits("billing") == ()


# -- where reading begins


def filled(count: int, *, stored: int | None = None) -> MemoryBroker:
    """A broker with so many orders, and perhaps a position of the group."""
    broker = make_broker()
    for number in range(count):
        broker.produce("orders", b"%d" % number)
    if stored is not None:
        from reactive_kafka import Committed

        broker._state.group("billing").commits[tp()] = Committed(stored)
    return broker


@in_virtual_time
async def test_a_start_at_the_latest_record_is_committed_before_anything_is_read() -> None:
    recorder = Recorder()
    app, seen = make_app(recorder, auto_offset_reset="latest", commit_interval="1s"), list[int]()
    note_offsets(app, seen)

    async with running(app, broker=filled(3)) as test:
        await asyncio.sleep(2)
        assert (committed(test), lag(test), seen) == (3, 0, [])
        await send(test, b"")
        await test.settled()
        assert seen == [3]
        assert facts(test).resets == {"earliest": 0, "latest": 1}
    (event,) = recorder.of(OffsetReset)
    assert (event.from_offset, event.to_offset, event.to) == (None, 3, "latest")


@in_virtual_time
async def test_a_start_at_the_beginning_reads_everything() -> None:
    app, seen = make_app(), list[int]()
    note_offsets(app, seen)

    async with running(app, broker=filled(3)) as test:
        await test.settled()
        assert facts(test).resets == {"earliest": 1, "latest": 0}
    assert seen == [0, 1, 2]


@in_virtual_time
async def test_a_stored_position_is_gone_on_from_and_not_committed_again() -> None:
    app, seen = make_app(auto_offset_reset="none", commit_interval="1s"), list[int]()
    note_offsets(app, seen)

    async with running(app, broker=filled(3, stored=2)) as test:
        await asyncio.sleep(3)
        assert (seen, positions(test.broker)) == ([2], [3])
        assert facts(test).resets == {"earliest": 0, "latest": 0}


@in_virtual_time
async def test_without_a_position_and_a_policy_the_channel_stops_and_says_what_to_do() -> None:
    """Row C14 of the faults."""
    app = make_app(auto_offset_reset="none")
    take_all(app)

    async with running(app, broker=filled(3)):
        await until(lambda: app.health().live.status == "DOWN")
        reason = app.health().live.checks[0].data["reason"]
    assert "orders-0 has no committed position, its log goes from 0 to 3" in reason
    assert "auto_offset_reset = 'earliest' or 'latest'" in reason


@pytest.mark.parametrize(("policy", "then"), [("earliest", [4, 5]), ("latest", [])])
@in_virtual_time
async def test_a_position_that_retention_has_passed_is_reset_counted_and_told(
    policy: str, then: list[int]
) -> None:
    """Row F4 of the faults."""
    recorder = Recorder()
    app, seen, broker = (
        make_app(recorder, auto_offset_reset=policy, commit_interval="1s"),
        list[int](),
        filled(6, stored=1),
    )
    broker.delete_records(tp(), 4)
    note_offsets(app, seen)

    async with running(app, broker=broker) as test:
        await asyncio.sleep(3)
        assert (seen, committed(test), lag(test)) == (then, 6, 0)
        assert facts(test).resets[policy] == 1
    (event,) = recorder.of(OffsetReset)
    assert (event.from_offset, event.skipped) == (1, 3 if policy == "earliest" else 5)


@pytest.mark.parametrize("policy", ["earliest", "latest"])
@in_virtual_time
async def test_a_log_that_is_deleted_under_a_paused_reader_is_reset_while_it_runs(
    policy: str,
) -> None:
    app, seen = (
        make_app(auto_offset_reset=policy, max_in_flight=2, commit_interval="1s"),
        list[int](),
    )
    go_on = asyncio.Event()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        await go_on.wait()
        seen.append(message.offset)

    async with running(app, broker=filled(0)) as test:
        await send(test, *[b""] * 10)
        await asyncio.sleep(2)
        test.broker.delete_records(tp(), 8)
        go_on.set()
        await asyncio.sleep(5)
        await send(test, b"")
        await test.settled()
        assert seen == ([0, 1, 8, 9, 10] if policy == "earliest" else [0, 1, 10])
        assert facts(test).resets[policy] == 2
        assert (committed(test), lag(test)) == (11, 0)


@in_virtual_time
async def test_a_log_that_was_cut_off_below_the_position_is_reset_and_read_on() -> None:
    """Row A9 of the faults."""
    app, seen = make_app(auto_offset_reset="latest", commit_interval="1s"), list[int]()
    note_offsets(app, seen)

    async with running(app, broker=filled(5)) as test:
        await send(test, b"", b"")
        await asyncio.sleep(2)
        assert committed(test) == 7
        test.broker.truncate(tp(), 3)
        await asyncio.sleep(3)
        assert committed(test) == facts(test).partitions[0].committed == 3
        await send(test, b"new")
        await asyncio.sleep(2)
        assert seen == [5, 6, 3]
        assert committed(test) == facts(test).partitions[0].committed == 4
        assert lag(test) == 0


@in_virtual_time
async def test_what_a_cut_off_log_still_has_of_the_unsettled_records_is_read_again_and_no_policy_passes_it() -> (
    None
):
    app, kept = make_app(auto_offset_reset="latest", commit_interval="1s"), list[Message[bytes]]()
    keep_messages(app, kept, ack="manual")

    async with running(app, broker=filled(5, stored=2)) as test:
        await until(lambda: len(kept) == 3)
        test.broker.truncate(tp(), 4)
        await until(lambda: len(kept) == 5)
        await asyncio.sleep(3)
        assert committed(test) == 2
        assert [message.offset for message in kept[3:]] == [2, 3]
        for message in kept[3:]:
            message.ack()
        await asyncio.sleep(2)
        assert committed(test) == 4


@in_virtual_time
async def test_committed_of_a_record_in_a_log_that_was_cut_off_waits_for_the_new_position() -> None:
    app, kept = make_app(auto_offset_reset="latest", commit_interval="100s"), list[Message[bytes]]()
    keep_messages(app, kept, ack="manual")

    async with running(app, broker=filled(5, stored=5)) as test:
        test.broker.truncate(tp(), 3)
        await until(lambda: facts(test).resets["latest"])
        await send(test, b"new")
        await until(lambda: kept)
        waiting = kept[0].committed()
        assert not waiting.done()
        kept[0].ack()
        await test.settled()
        await waiting


@in_virtual_time
async def test_positions_that_cannot_be_asked_for_are_asked_for_again() -> None:
    app, seen = make_app(), list[int]()
    note_offsets(app, seen)

    broker = filled(2)
    broker.fail_next("committed", TransientBrokerError("coordinator moved"), times=3)
    async with running(app, broker=broker) as test:
        await test.settled()
    assert seen == [0, 1]


@in_virtual_time
async def test_partitions_that_appear_later_are_read_from_their_beginning() -> None:
    """Row C12 of the faults."""
    app, seen = make_app(auto_offset_reset="latest"), list[tuple[int, int]]()
    note_places(app, seen)

    async with running(app, broker=filled(2)) as test:
        hold = test.broker.hold("topics")
        test.broker.create_topic("orders", 2)
        await send(test, b"early bird", partition=1)
        hold.release()
        await test.settled()
    assert seen == [(1, 0)]
