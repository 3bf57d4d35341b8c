"""Runs that end by themselves, when what was there at their start is handled and committed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest

from reactive_kafka import (
    App,
    Batch,
    Committed,
    Message,
    Progress,
    TopicPartition,
    TransientBrokerError,
)
from reactive_kafka.events import RangeBeyondEnd
from reactive_kafka.testing import MemoryBroker
from tests.app.checkpoints import Rows, app_on, row
from tests.app.helpers import (
    Recorder,
    in_virtual_time,
    make_app,
    make_broker,
    now,
    running,
    tp,
    until,
)

LETTERS = "dead-letter-topic-orders"
RETRIES = {
    "failure_strategy": "delayed-retry-topic",
    "delayed_retry": {"topics": ["orders_retry_1000", "orders_retry_60000"]},
}


AssignmentKind = Literal["eager", "cooperative"]


async def run_to_its_end(
    app: App,
    broker: MemoryBroker,
    *,
    within_s: float = 300.0,
    meanwhile: Callable[[], object] | None = None,
    assignment: AssignmentKind = "eager",
) -> int:
    """Run until the application ends by itself; its exit code."""
    app.configure(overrides={"http": {"enabled": False}})
    app._connector = broker.connector(assignment=assignment)
    app._clock = broker._state.clock
    run = app._new_run(until_end=True)
    await app._start(run)
    if meanwhile is not None:
        meanwhile()
    await asyncio.wait_for(run.wait_asked(), within_s)
    await app.stop()
    return run.exit_code()


def broker_with(*records: int, topic: str = "orders") -> MemoryBroker:
    broker = make_broker(len(records))
    broker.create_topic(topic, len(records))
    for partition, count in enumerate(records):
        for number in range(count):
            broker.produce(topic, b"%d" % number, partition=partition)
    return broker


def noting(app: App, *, takes_s: float = 0.0) -> list[tuple[int, int]]:
    seen: list[tuple[int, int]] = []

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        await asyncio.sleep(takes_s)
        seen.append((message.partition, message.offset))

    return seen


@in_virtual_time
async def test_what_was_there_is_handled_and_committed_and_the_run_ends_with_0() -> None:
    broker = broker_with(7, 0, 3)
    app = make_app(commit_interval="1h")
    seen = noting(app, takes_s=1.0)
    assert await run_to_its_end(app, broker) == 0
    assert sorted(seen) == [
        *((0, offset) for offset in range(7)),
        *((2, offset) for offset in range(3)),
    ]
    assert {one.partition: kept.offset for one, kept in broker.committed("billing").items()} == {
        0: 7,
        2: 3,
    }
    assert broker.members("billing") == {}
    # Nothing is left.
    assert await run_to_its_end(app, broker) == 0
    assert len(seen) == 10
    await broker.close()


@in_virtual_time
async def test_a_topic_that_is_empty_is_at_its_end_at_once() -> None:
    broker, began = broker_with(0), now()
    app = make_app()
    seen = noting(app)
    assert (await run_to_its_end(app, broker), seen) == (0, [])
    assert now() - began < 2
    await broker.close()


@in_virtual_time
async def test_a_topic_that_goes_on_is_not_followed() -> None:
    broker = broker_with(3)
    app = make_app(max_in_flight=1)
    seen = noting(app, takes_s=1.0)
    done = False

    def produce_on() -> None:
        async def run() -> None:
            while not done:
                broker.produce("orders", b"", partition=0)
                await asyncio.sleep(0.2)

        tasks.append(asyncio.create_task(run()))

    tasks: list[asyncio.Task[None]] = []
    assert await run_to_its_end(app, broker, meanwhile=produce_on) == 0
    done = True
    assert 3 <= len(seen) < 8
    await asyncio.gather(*tasks)
    await broker.close()


@in_virtual_time
async def test_markers_and_aborted_records_at_the_end_are_passed() -> None:
    broker = broker_with(3)
    broker.append_markers(tp(), 2)
    broker.compact(tp(), [2])
    app = make_app(**{"isolation.level": "read_committed"})
    seen = noting(app)
    assert (await run_to_its_end(app, broker), seen) == (0, [(0, 0), (0, 1)])
    assert broker.committed("billing")[tp()].offset == 5
    await broker.close()


@in_virtual_time
async def test_delayed_retries_and_their_dead_letters_are_waited_for() -> None:
    broker = broker_with(2)
    app = make_app(**RETRIES)
    topics = list[str]()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        topics.append(message.topic)
        if message.payload == b"1":
            raise ValueError("never")

    assert await run_to_its_end(app, broker) == 0
    assert topics == ["orders", "orders", "orders_retry_1000", "orders_retry_60000"]
    assert [record.value for record in broker.log(tp(topic=LETTERS))] == [b"1"]
    await broker.close()


@in_virtual_time
async def test_a_batch_runs_at_once_when_the_end_is_reached() -> None:
    broker, sizes, began = broker_with(12), list[int](), now()
    app = make_app(batch_max_records=5, batch_max_wait="10m")

    @app.incoming("orders")
    async def handler(batch: Batch[bytes]) -> None:
        sizes.append(len(batch))

    assert (await run_to_its_end(app, broker), sizes) == (0, [5, 5, 2])
    assert now() - began < 5
    await broker.close()


@in_virtual_time
async def test_ranges_end_where_the_log_does_and_that_is_told() -> None:
    recorder, broker = Recorder(), broker_with(10, 10)
    app = App(
        {
            "incoming": {
                "orders": {
                    "assign": ["orders:0:7..9", "orders:0:20..30", "orders:1:8..12"],
                    "group_id": "billing",
                }
            }
        },
        observer=recorder,
    )
    seen = noting(app)
    assert await run_to_its_end(app, broker) == 0
    assert sorted(seen) == [(0, 7), (0, 8), (1, 8), (1, 9)]
    told = {(one.partition.partition, one.until, one.end) for one in recorder.of(RangeBeyondEnd)}
    assert told == {(0, 30, 10), (1, 12, 10)}
    assert {one.partition: kept.offset for one, kept in broker.committed("billing").items()} == {
        0: 9,
        1: 10,
    }
    await broker.close()


@pytest.mark.parametrize("attempts", [0, 2])
@in_virtual_time
async def test_a_channel_that_fails_for_good_is_1_when_the_others_are_at_their_end(
    attempts: int, caplog: pytest.LogCaptureFixture
) -> None:
    broker = broker_with(3)
    for number in range(4):
        broker.produce("refunds", b"%d" % number, partition=0)
    app = App(
        {
            "kafka": {"group_id": "a", "auto_offset_reset": "earliest"},
            "incoming": {
                "orders": {"restart": {"max_attempts": attempts}},
                "refunds": {"group_id": "b"},
            },
        }
    )
    refunds, calls = list[int](), list[int]()

    @app.incoming("orders")
    async def fails(message: Message[bytes]) -> None:
        calls.append(message.offset)
        if message.offset == 1:
            raise ValueError("no")

    @app.incoming("refunds")
    async def slow(message: Message[bytes]) -> None:
        await asyncio.sleep(10)
        refunds.append(message.offset)

    with caplog.at_level(logging.ERROR, "reactive_kafka"):
        assert await run_to_its_end(app, broker) == 1
    assert refunds == [0, 1, 2, 3]
    assert calls == [0, *[1] * (attempts + 1)]
    assert (
        "is handled and committed: channel 'orders': orders-0 offset 1: ValueError: no"
        in caplog.text
    )
    assert broker.committed("a")[tp()].offset == 1
    await broker.close()


@in_virtual_time
async def test_a_channel_that_restarts_goes_on_to_its_end() -> None:
    broker, failing = broker_with(4), [2]
    app = make_app(restart={"max_attempts": 1})
    seen = list[int]()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        if message.offset in failing:
            failing.clear()
            raise ValueError("once")
        seen.append(message.offset)

    assert (await run_to_its_end(app, broker), seen) == (0, [0, 1, 2, 3])
    await broker.close()


@pytest.mark.parametrize("records", [0, 3])
@in_virtual_time
async def test_hooks_that_are_called_at_the_end_are_waited_for(records: int) -> None:
    broker = broker_with(records)
    app = make_app()
    told, seen = list[str](), noting(app)

    @app.on_caught_up("orders")
    async def caught_up(partitions: frozenset[TopicPartition]) -> None:
        told.append(f"begins after {len(seen)}")
        await asyncio.sleep(10)
        told.append("ends")

    assert (await run_to_its_end(app, broker), told) == (0, [f"begins after {records}", "ends"])
    await broker.close()


@pytest.mark.parametrize("stops_at", [1, None])
@in_virtual_time
async def test_a_channel_that_the_application_stops_before_its_end_is_1(
    stops_at: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    broker, seen = broker_with(4), list[int]()
    app = make_app()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        seen.append(message.offset)
        if message.offset == stops_at:
            await app.channel("orders").stop()

    @app.on_caught_up("orders")
    async def caught_up(partitions: frozenset[TopicPartition]) -> None:
        # At the end.
        await app.channel("orders").stop()

    with caplog.at_level(logging.ERROR, "reactive_kafka"):
        assert await run_to_its_end(app, broker) == (0 if stops_at is None else 1)
    assert len(seen) == broker.committed("billing")[tp()].offset == (4 if stops_at is None else 2)
    assert ("'orders' was stopped by the application before its end" in caplog.text) == (
        stops_at is not None
    )
    await broker.close()


@pytest.mark.parametrize("how", ["added", "started", "stopped and started"])
@in_virtual_time
async def test_channels_that_begin_meanwhile_come_to_their_end_too(how: str) -> None:
    broker, late = broker_with(3), list[int]()
    for number in range(5):
        broker.produce("late", b"%d" % number, partition=0)
    table = {
        "group_id": "late",
        "auto_offset_reset": "earliest",
        "enabled": how == "stopped and started",
    }
    orders = {"group_id": "billing", "auto_offset_reset": "earliest"}
    app = App({"incoming": {"orders": orders, **({} if how == "added" else {"late": table})}})

    async def handle(message: Message[bytes]) -> None:
        await asyncio.sleep(1)
        late.append(message.offset)

    if how != "added":
        app.incoming("late")(handle)

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        if how == "stopped and started" and message.offset == 0:
            await asyncio.sleep(1.5)
            await app.channel("late").stop()
        await asyncio.sleep(5)
        if message.offset == 2:
            match how:
                case "added":
                    await app.add_channel("late", {**table, "enabled": True}, handle)
                case _:
                    await app.channel("late").start()

    assert await run_to_its_end(app, broker) == 0
    assert late == [0, 1, 2, 3, 4]
    assert broker.committed("late")[tp(topic="late")].offset == 5
    await broker.close()


@in_virtual_time
async def test_a_channel_that_is_stopped_at_its_end_and_whose_last_commit_is_not_stored_is_1() -> (
    None
):
    broker = broker_with(3)
    app = make_app(commit_interval="1h", drain_timeout="2s")
    noting(app)

    @app.on_caught_up("orders")
    async def caught_up(partitions: frozenset[TopicPartition]) -> None:
        broker.fail_next("commit", TransientBrokerError("no"), times=1000)
        await app.channel("orders").stop()

    assert await run_to_its_end(app, broker) == 1
    assert broker.committed("billing") == {}
    await broker.close()


@in_virtual_time
async def test_a_topic_that_is_missing_is_no_end() -> None:
    broker = MemoryBroker(broker_with(0)._state.clock, auto_create=False)
    app = make_app()
    noting(app)
    assert await run_to_its_end(app, broker) == 1
    await broker.close()


@in_virtual_time
async def test_a_stop_before_the_end_is_1() -> None:
    broker = broker_with(20)
    app = make_app(max_in_flight=1)
    noting(app, takes_s=1.0)
    app.configure(overrides={"http": {"enabled": False}})
    app._connector, app._clock = broker.connector(), broker._state.clock
    run = app._new_run(until_end=True)
    await app._start(run)
    await asyncio.sleep(3)
    run.ask_to_stop()
    await app.stop()
    assert run.exit_code() == 1
    await broker.close()


@in_virtual_time
async def test_the_commit_is_waited_for_as_long_as_it_fails() -> None:
    broker, began = broker_with(3), now()
    app = make_app(commit_interval="1h", drain_timeout="2s")
    noting(app)
    broker.fail_next("commit", TransientBrokerError("no"), times=50)
    assert await run_to_its_end(app, broker) == 0
    assert now() - began > 40
    assert broker.committed("billing")[tp()].offset == 3
    await broker.close()


class AtTheEnd:
    """A strategy that commits when the partition goes, and not before."""

    interval_s = 1.0
    commits_at_ack = False

    def position(self, progress: Progress, now: float) -> int | None:
        return progress.safe if progress.is_last else None


AT_THE_END = AtTheEnd()


@pytest.mark.parametrize("stored", [True, False])
@in_virtual_time
async def test_a_last_commit_that_only_the_stop_makes_and_that_is_not_stored_is_1(
    stored: bool,
) -> None:
    broker = broker_with(3)
    app = make_app(commit_strategy="tests.app.test_until_end:AT_THE_END", drain_timeout="2s")
    noting(app)
    if not stored:
        broker.fail_next("commit", TransientBrokerError("no"), times=1000)
    assert await run_to_its_end(app, broker) == (0 if stored else 1)
    assert broker.committed("billing").keys() == ({tp()} if stored else set())
    await broker.close()


@in_virtual_time
async def test_a_broker_that_is_away_for_a_while_is_waited_for() -> None:
    broker = broker_with(5)
    app = make_app(commit_interval="100ms")
    seen = noting(app, takes_s=1.0)

    def outage() -> None:
        broker.down = True
        asyncio.get_running_loop().call_later(30, setattr, broker, "down", False)

    assert (await run_to_its_end(app, broker, meanwhile=outage), len(seen)) == (0, 5)
    assert broker.committed("billing")[tp()].offset == 5
    await broker.close()


@pytest.mark.parametrize("flushes", [True, False])
@in_virtual_time
async def test_what_the_application_holds_back_is_settled_by_its_hook_before_the_stop_or_is_1(
    flushes: bool,
) -> None:
    broker, held = broker_with(5), list[Message[bytes]]()
    app = make_app(ack="manual", unprocessed_record_max_age="0s")

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        held.append(message)
        if len(held) == 3:
            flush()

    def flush() -> None:
        while held:
            held.pop(0).ack()

    if flushes:
        app.before_stop(flush)
    assert await run_to_its_end(app, broker) == (0 if flushes else 1)
    assert broker.committed("billing")[tp()].offset == (5 if flushes else 3)
    await broker.close()


@in_virtual_time
async def test_acks_that_come_later_are_waited_for_as_long_as_they_come() -> None:
    broker, tasks = broker_with(5), list[asyncio.Task[None]]()
    app = make_app(ack="manual", unprocessed_record_max_age="0s")

    async def ack_later(message: Message[bytes]) -> None:
        await asyncio.sleep(25.0 * (message.offset + 1))
        await message.ack()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        tasks.append(asyncio.create_task(ack_later(message)))

    assert await run_to_its_end(app, broker) == 0
    assert broker.committed("billing")[tp()].offset == 5
    await broker.close()


@in_virtual_time
async def test_a_handler_that_runs_while_messages_are_held_is_waited_for_however_long_they_are() -> (
    None
):
    broker, tasks = broker_with(2), list[asyncio.Task[None]]()
    app = make_app(ack="manual", unprocessed_record_max_age="0s", drain_timeout="10s", **RETRIES)

    async def settle_later(message: Message[bytes]) -> None:
        await asyncio.sleep(5 if message.offset == 0 else 40)
        if message.offset == 0:
            await message.nack(ValueError("again"))
        else:
            await message.ack()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        if message.topic == "orders":
            tasks.append(asyncio.create_task(settle_later(message)))
        else:
            # The retry, when both messages have been held for a while.
            await asyncio.sleep(30)
            await message.ack()

    assert await run_to_its_end(app, broker) == 0
    assert broker.committed("billing")[tp()].offset == 2
    await broker.close()


@in_virtual_time
async def test_a_channel_without_a_handler_is_told_and_not_waited_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = broker_with(3)
    app = App(
        {
            "kafka": {"group_id": "billing", "auto_offset_reset": "earliest"},
            "incoming": {
                "orders": {},
                "refunds": {"group_id": "b"},
            },
        }
    )
    seen = noting(app)
    with caplog.at_level(logging.WARNING, "reactive_kafka"):
        assert await run_to_its_end(app, broker) == 0
    assert len(seen) == 3
    assert "channel 'refunds' has no handler: the run does not wait for its end" in caplog.text
    await broker.close()


@in_virtual_time
async def test_members_of_one_group_each_come_to_the_end_of_what_they_have() -> None:
    broker = broker_with(20, 20, 20)
    apps = [make_app(max_in_flight=3) for _ in range(2)]
    seen = [noting(app, takes_s=0.5) for app in apps]
    codes = await asyncio.gather(*(run_to_its_end(app, broker) for app in apps))
    assert codes == [0, 0]
    every = [(partition, offset) for partition in range(3) for offset in range(20)]
    assert sorted(set(seen[0] + seen[1])) == every
    assert {one.partition: kept.offset for one, kept in broker.committed("billing").items()} == {
        0: 20,
        1: 20,
        2: 20,
    }
    await broker.close()


@in_virtual_time
async def test_results_are_written_before_the_run_ends() -> None:
    broker = broker_with(5)
    app = make_app()

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(value: bytes) -> bytes:
        return value + b"!"

    broker.delay_next("send", 5.0)
    assert await run_to_its_end(app, broker) == 0
    await until(lambda: len(broker.log(tp(topic="invoices"))) == 5)
    await broker.close()


@in_virtual_time
async def test_a_topic_that_is_made_anew_meanwhile_has_another_end() -> None:
    recorder, broker = Recorder(), broker_with(50)
    app = make_app(recorder)
    seen = noting(app, takes_s=0.1)

    async def recreate() -> None:
        await until(lambda: len(seen) > 3)
        broker.delete_topic("orders")
        await asyncio.sleep(0.1)
        broker.create_topic("orders", 1)
        for _ in range(5):
            broker.produce("orders", b"new", partition=0)

    tasks: list[asyncio.Task[None]] = []
    code = await run_to_its_end(
        app, broker, meanwhile=lambda: tasks.append(asyncio.create_task(recreate()))
    )
    assert (code, seen[-1]) == (0, (0, 4))
    await broker.close()


def replay_of(folder: Path, replay: str) -> App:
    """An application with the configuration of a service, and one on top of it that reads a part of
    the topic again.
    """
    base, on_top = folder / "base.toml", folder / "replay.toml"
    base.write_text('[incoming.orders]\ngroup_id = "billing"\nauto_offset_reset = "earliest"\n')
    on_top.write_text(f"[incoming.orders]\n{replay}\n")
    app = App()
    app.configure([base, on_top])
    return app


@pytest.mark.parametrize("is_live", [False, True])
@in_virtual_time
async def test_a_replay_on_top_of_a_services_configuration_leaves_its_group_alone(
    is_live: bool, tmp_path: Path
) -> None:
    broker = broker_with(150)
    service = make_app()
    noting(service)
    async with running(service, broker=broker) as test:
        await test.settled()
        if not is_live:
            await test.app.stop()
        replay = replay_of(tmp_path, 'assign = ["orders:0:20..120"]')
        seen, before = noting(replay), len(broker.commits("billing"))
        assert await run_to_its_end(replay, broker, within_s=10) == 0
        assert seen == [(0, offset) for offset in range(20, 120)]
        assert len(broker.commits("billing")) == before
        assert broker.committed("billing")[tp()].offset == 150
    await broker.close()


@pytest.mark.parametrize(("handled", "code"), [(150, 0), (10, 1)])
@in_virtual_time
async def test_ranges_in_the_group_of_live_members_come_to_an_end(
    handled: int, code: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker, service = broker_with(150), make_app(commit_interval="100ms")

    @service.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        if message.offset >= handled:
            await asyncio.sleep(500)

    async with running(service, broker=broker) as test:
        await until(lambda: broker.committed("billing").get(tp()) == Committed(handled))
        replay = replay_of(tmp_path, 'assign = ["orders:0:20..120"]\ngroup_id = "billing"')
        seen = noting(replay)
        with caplog.at_level(logging.INFO):
            assert await run_to_its_end(replay, broker, within_s=60) == code
        assert len(seen) == 100
        assert broker.committed("billing")[tp()].offset == handled
        assert ("has members" in caplog.text) is bool(code)
        assert test.app.health().live.is_up
    await broker.close()


@pytest.mark.parametrize("takes_batches", [False, True])
@in_virtual_time
async def test_it_ends_where_what_comes_last_is_skipped_by_its_headers(takes_batches: bool) -> None:
    app = make_app(filter_headers={"service": "ours"}, batch_max_wait="10s")
    seen: list[int] = []

    async def one(message: Message[bytes]) -> None:
        seen.append(message.offset)

    async def many(batch: Batch[bytes]) -> None:
        seen.extend(message.offset for message in batch)

    app.incoming("orders")(many if takes_batches else one)
    broker = make_broker(1)
    for number in range(100):
        service = b"ours" if number % 10 == 0 else b"theirs"
        broker.produce("orders", b"", partition=0, headers=[("service", service)])
    assert await run_to_its_end(app, broker, within_s=30) == 0
    assert seen == list(range(0, 100, 10))
    assert broker.committed("billing")[tp()].offset == 100
    await broker.close()


@in_virtual_time
async def test_it_ends_where_each_record_is_larger_than_the_bytes_in_flight() -> None:
    app = make_app(max_in_flight_bytes=1, concurrency=3)
    seen = noting(app, takes_s=0.01)
    broker = broker_with(50, 50)
    assert await run_to_its_end(app, broker, within_s=30) == 0
    assert sorted(seen) == [(partition, offset) for partition in (0, 1) for offset in range(50)]
    await broker.close()


@pytest.mark.parametrize("assignment", ["eager", "cooperative"])
@pytest.mark.parametrize("vanishes", [True, False])
@in_virtual_time
async def test_a_member_without_partitions_waits_until_the_group_has_handled_everything(
    vanishes: bool, assignment: AssignmentKind
) -> None:
    broker = broker_with(20)
    owner = make_app(commit_interval="1s")
    handled = noting(owner, takes_s=1.0)
    standby = make_app()
    taken_over = noting(standby)

    async def first_run() -> None:
        # Its crash ends its channel, or its run ends as it should.
        await run_to_its_end(owner, broker, assignment=assignment)

    ending = asyncio.ensure_future(first_run())
    await until(lambda: handled)
    (member,) = broker.members("billing")
    run = asyncio.ensure_future(run_to_its_end(standby, broker, assignment=assignment))
    # Far longer than a rebalance takes, and far shorter than the owner needs.
    await asyncio.sleep(10)
    assert not run.done()
    if vanishes:
        broker.crash("billing", member, session_s=45.0)
    assert await run == 0
    assert broker.committed("billing")[tp()].offset == 20
    assert {offset for _, offset in handled + taken_over} == set(range(20))
    assert bool(taken_over) is vanishes
    ending.cancel()
    await asyncio.wait({ending})
    await owner.stop(drain=False)
    await broker.close()


@pytest.mark.parametrize("vanishes", [True, False])
@in_virtual_time
async def test_a_member_without_partitions_waits_until_the_store_of_the_group_has_everything(
    vanishes: bool,
) -> None:
    broker, rows = broker_with(20), Rows()
    owner = app_on(rows)
    handled = noting(owner, takes_s=1.0)
    standby = app_on(rows, who="b")
    taken_over = noting(standby)
    ending = asyncio.ensure_future(run_to_its_end(owner, broker))
    await until(lambda: handled)
    (member,) = broker.members("billing")
    run = asyncio.ensure_future(run_to_its_end(standby, broker))
    # Far longer than a rebalance takes, and far shorter than the owner needs.
    await asyncio.sleep(10)
    assert not run.done()
    if vanishes:
        broker.crash("billing", member, session_s=45.0)
    assert await run == 0
    assert row(rows).position == 20
    assert {offset for _, offset in handled + taken_over} == set(range(20))
    assert bool(taken_over) is vanishes
    ending.cancel()
    await asyncio.wait({ending})
    await owner.stop(drain=False)
    await broker.close()


@in_virtual_time
async def test_a_member_without_partitions_ends_beside_a_service_whose_store_has_everything() -> (
    None
):
    broker, rows = broker_with(3), Rows()
    service = app_on(rows, commit_interval="100ms")
    noting(service)
    async with running(service, broker=broker):
        await until(lambda: rows.row("billing", tp()) is not None and row(rows).position == 3)
        token = row(rows).token
        run = app_on(rows, who="b")
        assert (noting(run), await run_to_its_end(run, broker, within_s=20)) == ([], 0)
        assert row(rows).token == token, "the run has claimed no row"
    await broker.close()


@in_virtual_time
async def test_a_member_without_partitions_and_positions_ends_after_a_while() -> None:
    broker = broker_with(20)
    owner = make_app(commit_strategy="ignore")
    handled = noting(owner, takes_s=1.0)
    standby = make_app(commit_strategy="ignore")
    async with running(owner, broker=broker):
        await until(lambda: handled)
        assert (noting(standby), await run_to_its_end(standby, broker, within_s=20)) == ([], 0)
    await broker.close()


@in_virtual_time
async def test_a_member_without_partitions_ends_beside_a_service_that_is_up_to_date() -> None:
    broker = broker_with(3)
    service = make_app(commit_interval="100ms")
    noting(service)
    async with running(service, broker=broker):
        await until(lambda: broker.committed("billing").get(tp()) == Committed(3))
        run = make_app()
        assert (noting(run), await run_to_its_end(run, broker, within_s=20)) == ([], 0)
    await broker.close()


@in_virtual_time
async def test_a_member_without_partitions_does_not_wait_for_a_topic_that_is_deleted() -> None:
    broker = broker_with(20)
    service = make_app(pattern="ord.*")
    noting(service, takes_s=100.0)
    async with running(service, broker=broker):
        run = make_app(pattern="ord.*")
        noting(run)
        ending = asyncio.ensure_future(run_to_its_end(run, broker, within_s=60))
        await asyncio.sleep(10)
        assert not ending.done()
        broker.delete_topic("orders")
        assert await ending == 0
    await broker.close()
