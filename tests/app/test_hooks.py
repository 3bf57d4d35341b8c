"""The application's hooks: when they run, on what, and that a broken one holds nothing up."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from reactive_kafka import ConfigError, Message, TopicPartition, TransientBrokerError
from reactive_kafka.errors import ChannelClosedError
from reactive_kafka.events import CommitFailed, HookFailed, Rebalanced
from reactive_kafka.testing import TestApp
from tests.app.handlers import keep_messages, note_values, take_all
from tests.app.helpers import (
    Recorder,
    in_virtual_time,
    make_app,
    make_broker,
    now,
    rebalanced,
    running,
    send,
    tp,
    until,
)

Partitions = frozenset[TopicPartition]


async def test_hooks_come_in_their_order_around_the_records() -> None:
    app, story = make_app(), list[str]()

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        story.append("record")

    @app.on_start
    async def start() -> None:
        story.append("start")

    @app.on_assigned("orders")
    async def assigned(partitions: Partitions) -> None:
        await asyncio.sleep(0.01)
        story.append(f"assigned {sorted(partitions)}")

    @app.on_revoked("orders")
    async def revoked(partitions: Partitions) -> None:
        story.append(f"revoked {sorted(partitions)}")

    @app.before_stop
    async def stop() -> None:
        story.append("before stop")

    broker = make_broker(2)
    broker.produce("orders", b"", partition=0)
    async with running(app, broker=broker) as test:
        await test.settled()
    both = [tp(0), tp(1)]
    assert story == ["start", f"assigned {both}", "record", "before stop", f"revoked {both}"]


async def test_blocking_hooks_run_in_threads() -> None:
    app, threads = make_app(), dict[str, int]()
    take_all(app)

    app.on_start(lambda: threads.setdefault("start", threading.get_ident()))
    app.before_stop(lambda: threads.setdefault("stop", threading.get_ident()))
    app.on_assigned("orders")(
        lambda partitions: threads.setdefault("assigned", threading.get_ident())
    )
    app.on_revoked("orders")(
        lambda partitions: threads.setdefault("revoked", threading.get_ident())
    )
    async with running(app):
        pass
    assert set(threads) == {"start", "stop", "assigned", "revoked"}
    assert threading.get_ident() not in threads.values()


@in_virtual_time
async def test_reading_begins_when_the_assigned_hooks_have_ended_however_long_they_take() -> None:
    app, began = make_app(), list[float]()

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        began.append(now())

    @app.on_assigned("orders")
    async def assigned(partitions: Partitions) -> None:
        await asyncio.sleep(20)

    broker = make_broker()
    broker.produce("orders", b"")
    async with TestApp(app, broker=broker, start_timeout_s=60) as test:
        await test.settled()
    assert began[0] > 19.9


async def test_several_hooks_of_a_kind_run_one_after_the_other() -> None:
    app, story = make_app(), list[int]()
    take_all(app)

    for number in range(3):

        async def hook(partitions: Partitions, number: int = number) -> None:
            await asyncio.sleep(0.01 * (3 - number))
            story.append(number)

        app.on_assigned("orders")(hook)
    async with running(app):
        assert story == [0, 1, 2]


@in_virtual_time
async def test_hooks_are_told_at_every_rebalance_and_never_of_nothing() -> None:
    app, story, broker = make_app(), list[tuple[str, int]](), make_broker(2)

    @app.incoming("orders")
    async def handler(value: bytes) -> None: ...

    @app.on_assigned("orders")
    async def assigned(partitions: Partitions) -> None:
        assert isinstance(partitions, frozenset)
        story.append(("assigned", len(partitions)))

    @app.on_revoked("orders")
    async def revoked(partitions: Partitions) -> None:
        story.append(("revoked", len(partitions)))

    async with running(app, broker=broker):
        others = [make_app() for _ in range(2)]
        for other in others:
            other.incoming("orders")(handler)
        async with TestApp(others[0], broker=broker), TestApp(others[1], broker=broker):
            await until(lambda: len(app.channel("orders").assignment) == 1)
        await until(lambda: len(app.channel("orders").assignment) == 2)
    assert story[:4] == [("assigned", 2), ("revoked", 2), ("assigned", 1), ("revoked", 1)]
    assert story[-2:] == [("assigned", 2), ("revoked", 2)]
    assert all(count for _, count in story)


@in_virtual_time
async def test_an_ack_in_a_revoked_hook_is_in_the_last_commit() -> None:
    app, kept = (
        make_app(ack="manual", commit_interval="100s", revoke_grace="30s"),
        list[Message[bytes]](),
    )
    keep_messages(app, kept)

    @app.on_revoked("orders")
    async def flush(partitions: Partitions) -> None:
        for message in kept:
            await message.ack()

    async with running(app) as test:
        await send(test, b"", b"")
        await until(lambda: len(kept) == 2)
        began = now()
        test.broker.rebalance("billing")
        await until(lambda: test.broker.commits("billing"))
        assert now() - began < 1
        assert test.broker.committed("billing")[tp()].offset == 2


@in_virtual_time
async def test_a_hook_of_a_rebalance_that_raises_or_hangs_is_told_and_the_rebalance_goes_on() -> (
    None
):
    recorder = Recorder()
    app, seen = make_app(recorder), list[bytes]()
    note_values(app, seen)

    @app.on_assigned("orders")
    async def raises(partitions: Partitions) -> None:
        raise ValueError("no")

    @app.on_assigned("orders")
    async def hangs(partitions: Partitions) -> None:
        await asyncio.Event().wait()

    broker = make_broker()
    broker.produce("orders", b"one")
    test = TestApp(app, broker=broker, start_timeout_s=60)
    async with test:
        await test.settled()
    first, second = recorder.of(HookFailed)
    assert (first.hook, first.reason) == ("on_assigned", "ValueError: no")
    assert second.reason == "no end within 30 s"


async def cancelled_child() -> None:
    child = asyncio.create_task(asyncio.sleep(100))
    child.cancel()
    await child


async def cancels_itself() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


async def cancels_itself_at_the_end() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


async def times_out_by_hand() -> None:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().call_later(1, task.cancel)
    try:
        await asyncio.sleep(100)
    except asyncio.CancelledError:
        raise TimeoutError("its own") from None


class OddError(BaseException):
    """No Exception."""


async def raises_oddly() -> None:
    raise OddError("no")


async def ends_like_a_generator() -> None:
    raise GeneratorExit


ODD = [
    cancelled_child,
    cancels_itself,
    cancels_itself_at_the_end,
    times_out_by_hand,
    raises_oddly,
    ends_like_a_generator,
]


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("kind", ["on_assigned", "on_revoked"])
@in_virtual_time
async def test_whatever_a_hook_of_a_rebalance_raises_is_told_and_the_rebalance_goes_on(
    kind: str, odd: Any
) -> None:
    recorder, kept, after = Recorder(), list[Message[bytes]](), list[Partitions]()
    app = make_app(recorder, ack="manual", commit_interval="100s")
    keep_messages(app, kept)

    @getattr(app, kind)("orders")
    async def hook(partitions: Partitions) -> None:
        for message in kept:
            message.ack()
        await odd()

    @getattr(app, kind)("orders")
    async def next_one(partitions: Partitions) -> None:
        after.append(partitions)

    async with running(app) as test:
        await send(test, b"")
        await until(lambda: kept)
        await rebalanced(test)
        await send(test, b"")
        await until(lambda: len(kept) == 2)
        kept[-1].ack()
        assert test.app.health().status == "UP"
    told = recorder.of(HookFailed)
    assert [event.hook for event in told] == [kind] * 2
    assert len(after) == 2
    expected = {times_out_by_hand: "TimeoutError: its own", raises_oddly: "OddError: no"}
    assert told[0].reason.startswith(
        expected.get(odd, "GeneratorExit" if odd is ends_like_a_generator else "Cancelled")
    )
    assert test.broker.committed("billing")[tp()].offset == 2


@pytest.mark.parametrize("in_thread", [False, True])
@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
@pytest.mark.parametrize("kind", ["on_assigned", "on_revoked"])
async def test_a_hook_that_ends_the_process_is_told_and_the_application_stops_in_order(
    kind: str, error: BaseException, in_thread: bool
) -> None:
    recorder, kept = Recorder(), list[Message[bytes]]()
    app = make_app(recorder, ack="manual", commit_interval="100s")

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        kept.append(message)
        message.ack()

    def ends(partitions: Partitions) -> None:
        if kept:
            raise error

    async def ends_at_once(partitions: Partitions) -> None:
        ends(partitions)

    getattr(app, kind)("orders")(ends if in_thread else ends_at_once)
    async with running(app) as test:
        await send(test, b"")
        await until(lambda: kept)
        run = app._run
        assert run is not None
        test.broker.rebalance("billing")
        await asyncio.wait_for(run.wait_asked(), 10)
        await app.stop()
        assert test.broker.committed("billing")[tp()].offset == 1
        assert test.broker.members("billing") == {}
        assert run.exit_code() == (3 if isinstance(error, SystemExit) else 0)
    assert recorder.of(HookFailed)[0].hook == kind


@in_virtual_time
async def test_a_hook_that_ends_the_process_at_the_stop_keeps_nothing_from_its_last_commit() -> (
    None
):
    app, kept = make_app(ack="manual", commit_interval="100s"), list[Message[bytes]]()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        kept.append(message)
        message.ack()

    @app.on_revoked("orders")
    async def ends(partitions: Partitions) -> None:
        raise SystemExit(4)

    async with running(app) as test:
        await send(test, b"")
        await until(lambda: kept)
        run = app._run
        assert run is not None
        await app.stop()
        assert test.broker.committed("billing")[tp()].offset == 1
        assert test.broker.members("billing") == {}
        assert run.exit_code() == 4


@in_virtual_time
async def test_a_hook_that_is_too_late_gets_a_moment_for_its_cleanup_and_one_that_ignores_that_is_left_behind() -> (
    None
):
    """Together they have what a session goes on for without heartbeats, 42 s of 45: the first one
    at most half.
    """
    recorder, cleaned = Recorder(), list[float]()
    app = make_app(recorder)
    take_all(app)

    @app.on_assigned("orders")
    async def cleans(partitions: Partitions) -> None:
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(1)
            cleaned.append(now())

    @app.on_assigned("orders")
    async def ignores(partitions: Partitions) -> None:
        for _ in range(100):
            try:
                await asyncio.sleep(50)
            except asyncio.CancelledError:
                continue
            break

    began = now()
    async with TestApp(app, broker=make_broker(), start_timeout_s=100) as test:
        assert now() - began == pytest.approx(19 + 1 + 20 + 2, abs=0.5)
        assert test.app.health().status == "UP"
    assert [event.reason for event in recorder.of(HookFailed)] == [
        "no end within 19 s",
        "no end within 20 s",
    ]
    assert len(cleaned) == 1


@in_virtual_time
async def test_a_member_that_ends_in_the_middle_of_a_hook_ends_the_hook() -> None:
    app, ended, entered = make_app(Recorder()), list[BaseException](), asyncio.Event()
    take_all(app)

    @app.on_assigned("orders")
    async def waits(partitions: Partitions) -> None:
        entered.set()
        try:
            await asyncio.sleep(20)
        except BaseException as error:
            ended.append(error)
            raise

    broker = make_broker()
    starting = asyncio.ensure_future(TestApp(app, broker=broker).__aenter__())
    await entered.wait()
    await app.stop()
    await asyncio.wait([starting])
    starting.exception()
    assert [type(error) for error in ended] == [asyncio.CancelledError]


# -- lost, or revoked


def told_app(story: list[tuple[int, bool]], recorder: Recorder | None = None, **orders: Any) -> Any:
    app = make_app(recorder, **{"commit_interval": "100ms", **orders})
    take_all(app)

    @app.on_revoked("orders")
    async def revoked(partitions: Partitions, lost: bool) -> None:
        story.append((len(partitions), lost))

    return app


@in_virtual_time
async def test_a_revoked_hook_that_asks_is_told_that_nothing_was_lost_in_a_rebalance_and_at_the_stop() -> (
    None
):
    story: list[tuple[int, bool]] = []
    async with running(told_app(story), partitions=2) as test:
        await rebalanced(test)
        assert story == [(2, False)]
    assert story == [(2, False), (2, False)]


@pytest.mark.parametrize("notice_after_s", [0, 3])
@in_virtual_time
async def test_it_is_told_that_they_are_lost_where_the_group_has_put_the_member_out(
    notice_after_s: float,
) -> None:
    story, recorder = list[tuple[int, bool]](), Recorder()
    async with running(told_app(story, recorder)) as test:
        (member,) = test.broker.members("billing")
        test.broker.expire("billing", member, notice_after_s=notice_after_s)
        await until(lambda: story)
        await until(lambda: test.app.channel("orders").is_ready)
        assert story == [(1, True)]
        assert [event.kind for event in recorder.of(Rebalanced)] == ["assigned", "lost", "assigned"]
        await rebalanced(test)
        assert story == [(1, True), (1, False)]


@in_virtual_time
async def test_it_is_told_that_they_are_lost_where_a_commit_was_refused() -> None:
    story: list[tuple[int, bool]] = []
    async with running(told_app(story)) as test:
        (member,) = test.broker.members("billing")
        test.broker.expire("billing", member, notice_after_s=100)
        await send(test, b"")
        await until(lambda: story)
        assert story == [(1, True)]


@in_virtual_time
async def test_a_late_refusal_of_a_commit_of_the_last_assignment_loses_nothing_of_this_one() -> (
    None
):
    story: list[tuple[int, bool]] = []
    recorder = Recorder()
    async with running(told_app(story, recorder, commit_interval="10s")) as test:
        held = test.broker.hold("commit")
        await send(test, b"")
        await held.arrived()
        await rebalanced(test)
        held.release()
        await until(lambda: recorder.of(CommitFailed))
        # Before the next tick commits again.
        await rebalanced(test)
        assert story == [(1, False), (1, False)]
        assert test.committed("orders") == {tp(0): 1}


@pytest.mark.parametrize("assign", [None, ["orders:0"]])
@in_virtual_time
async def test_it_is_told_that_they_are_lost_where_the_client_broke(
    assign: list[str] | None,
) -> None:
    story: list[tuple[int, bool]] = []
    async with running(told_app(story, **({"assign": assign} if assign else {}))) as test:
        test.broker.fail_next("poll", TransientBrokerError("broken"))
        await until(lambda: story)
        assert story == [(1, True)]


async def test_hooks_with_one_parameter_or_with_any_number_get_the_partitions_alone() -> None:
    app, story = make_app(), list[Any]()
    take_all(app)

    @app.on_revoked("orders")
    def one(partitions: Partitions) -> None:
        story.append((partitions,))

    @app.on_revoked("orders")
    async def any_number(*arguments: Any) -> None:
        story.append(arguments)

    @app.on_revoked("orders")
    def two(partitions: Partitions, lost: bool = True) -> None:
        story.append((partitions, lost))

    async with running(app):
        pass
    here = frozenset({tp()})
    assert story == [(here,), (here,), (here, False)]


def test_a_hook_with_three_parameters_and_an_assigned_one_with_two_are_found_at_start_up() -> None:
    app = make_app()
    app.on_revoked("orders")(lambda partitions, lost, why: None)
    app.on_assigned("orders")(lambda partitions, lost: None)
    with pytest.raises(ConfigError) as raised:
        app.configure()
    text = str(raised.value)
    assert "is called with two arguments, the partitions and whether they are lost" in text
    assert "is called with one argument, the partitions:" in text


async def test_a_start_hook_that_raises_stops_the_start() -> None:
    app, calls = make_app(), list[Any]()
    note_values(app, calls)

    @app.on_start
    async def hook() -> None:
        raise LookupError("no database")

    broker = make_broker()
    broker.produce("orders", b"")
    with pytest.raises(LookupError, match="no database"):
        async with TestApp(app, broker=broker):
            pass
    assert calls == []


@in_virtual_time
async def test_a_channel_that_is_asked_for_before_it_is_made_is_not_called_unknown() -> None:
    app = make_app()

    @app.on_start
    async def hook() -> None:
        app.channel("orders")

    with pytest.raises(
        ChannelClosedError, match="'orders' is made when all on_start hooks have returned"
    ):
        async with TestApp(app, broker=make_broker()):
            pass


@in_virtual_time
@pytest.mark.parametrize("before", [0, 2])
async def test_a_task_that_the_last_start_hook_has_started_finds_the_channels_in_its_first_line(
    before: int,
) -> None:
    app, handled, watching = make_app(), list[bytes](), list[asyncio.Task[None]]()
    note_values(app, handled)

    async def watch() -> None:
        app.channel("orders").pause(reason="not yet")

    async def wait() -> None:
        await asyncio.sleep(1)

    for _ in range(before):
        app.on_start(wait)

    @app.on_start
    async def hook() -> None:
        watching.append(asyncio.create_task(watch()))

    broker = make_broker()
    broker.produce("orders", b"first")
    async with TestApp(app, broker=broker):
        await asyncio.gather(*watching)
        await asyncio.sleep(100)
        assert handled == []
        app.channel("orders").resume(reason="not yet")
        await until(lambda: handled == [b"first"])


def test_a_hook_of_an_unknown_channel_is_found_at_start_up() -> None:
    app = make_app()
    app.on_revoked("oders")(lambda partitions: None)
    with pytest.raises(ConfigError, match="'oders'"):
        app.configure()
