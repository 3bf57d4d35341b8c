"""Records left without a verdict: found in time with no other traffic, told once, and what each
``on_poison`` does.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from reactive_kafka import App, Batch, Later, Message, Record, TransientBrokerError
from reactive_kafka.events import HandlerAbandoned, PoisonSettled, RecordPoisoned
from reactive_kafka.testing import TestApp
from tests.app.handlers import keep_messages
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

# A handler that was cancelled for poison has so long to end.
INTERRUPTED_S = 1.0

LIMIT_S = 60.0


class Found(Recorder):
    """Remembers when each poison record was found."""

    def __init__(self) -> None:
        super().__init__()
        self.at: list[float] = []

    def on(self, event: Any) -> None:
        super().on(event)
        if isinstance(event, RecordPoisoned):
            self.at.append(now())


def stuck_app(recorder: Recorder | None, kept: list[Message[bytes]], **orders: Any) -> App:
    """An application that keeps its messages, and settles all but ``stuck`` ones."""
    app = make_app(recorder, ack="manual", unprocessed_record_max_age="60s", **orders)

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        kept.append(message)
        if message.payload != b"stuck":
            message.ack()

    return app


def probes(test: TestApp) -> tuple[str, str, str]:
    """live, ready and the whole."""
    health = test.app.health()
    return health.live.status, health.ready.status, health.status


async def stuck(test: TestApp, kept: list[Message[bytes]], partition: int = 0) -> float:
    """Send a record that is never settled; when its handler got it."""
    # Nothing between takes time.
    began = now()
    await send(test, b"stuck", partition=partition)
    await until(
        lambda: any(
            message.partition == partition and message.payload == b"stuck" for message in kept
        )
    )
    return began


@pytest.mark.parametrize("on_poison", ["fail", "pause-partition", "warn"])
@in_virtual_time
async def test_poison_is_found_within_a_second_of_the_limit_with_no_other_traffic(
    on_poison: str,
) -> None:
    """Row D7 of the faults."""
    recorder, kept = Found(), list[Message[bytes]]()
    async with running(stuck_app(recorder, kept, on_poison=on_poison)) as test:
        await asyncio.sleep(17.3)
        began = await stuck(test, kept)
        await asyncio.sleep(200)
        assert 0 <= recorder.at[0] - began - LIMIT_S < 1
        # Told once.
        assert len(recorder.at) == 1
        assert facts(test).totals[tp()].poison == 1
        (event,) = recorder.of(RecordPoisoned)
        assert (event.partition, event.offset, event.on_poison, event.limit_s) == (
            tp(),
            0,
            on_poison,
            LIMIT_S,
        )
        kept[0].ack()


@in_virtual_time
async def test_fail_stops_the_channel_commits_what_is_before_and_names_the_record() -> None:
    kept: list[Message[bytes]] = []
    async with running(stuck_app(None, kept, on_poison="fail", commit_interval="1000s")) as test:
        await send(test, b"a")
        await stuck(test, kept)
        await send(test, b"b", b"c")
        await asyncio.sleep(LIMIT_S + 1)
        assert probes(test) == ("DOWN", "DOWN", "DOWN")
        data = test.app.health().live.checks[0].data
        assert data["state"] == "failed"
        (named,) = data["poison"]
        assert (named["topic"], named["partition"], named["offset"], named["waiting"]) == (
            "orders",
            0,
            1,
            0,
        )
        assert named["age_seconds"] >= LIMIT_S
        assert "poison: orders-0 offset 1" in data["reason"]
        await until(lambda: not test.broker.members("billing"))
        assert committed(test) == 1


@in_virtual_time
async def test_a_channel_names_all_records_that_it_has_failed_for() -> None:
    """Records that come to the limit together are found together."""
    recorder, kept = Found(), list[Message[bytes]]()
    async with running(stuck_app(recorder, kept, on_poison="fail"), partitions=2) as test:
        for partition in (0, 1):
            test.broker.produce("orders", b"stuck", partition=partition)
        await until(lambda: facts(test).state == "failed", LIMIT_S + 2)
        assert len(recorder.at) == 2
        data = test.app.health().live.checks[0].data
        assert [(one["partition"], one["offset"]) for one in data["poison"]] == [(0, 0), (1, 0)]
        assert "poison: orders-0 offset 0" in data["reason"]


@pytest.mark.parametrize("ordering", ["partition", "key"])
@pytest.mark.parametrize(("ack", "returns"), [("manual", True), ("manual", False), ("post", False)])
@in_virtual_time
async def test_a_forgotten_ack_is_told_from_a_handler_that_hangs(
    ack: str, returns: bool, ordering: str
) -> None:
    recorder, go_on = Recorder(), asyncio.Event()
    orders = {
        "ack": ack,
        "ordering": ordering,
        "on_poison": "warn",
        "unprocessed_record_max_age": "60s",
    }
    app = make_app(recorder, **orders)

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        if not returns:
            await go_on.wait()
        elif message.offset:
            message.ack()

    async with running(app) as test:
        await send(test, b"", b"")
        await until(lambda: recorder.of(RecordPoisoned), LIMIT_S + 5)
        told = recorder.of(RecordPoisoned)[0].text()
        assert told.startswith("poison: orders-0 offset 0 unsettled for 60")
        assert told.endswith("; its handler has returned without ack() or nack()") == returns
        go_on.set()


@in_virtual_time
async def test_pause_partition_stops_that_partition_only_and_recovers() -> None:
    recorder, kept = Found(), list[Message[bytes]]()
    app = stuck_app(recorder, kept, on_poison="pause-partition", commit_interval="1s")
    async with running(app, partitions=2) as test:
        await stuck(test, kept)
        await asyncio.sleep(LIMIT_S + 1)
        assert probes(test) == ("UP", "DOWN", "DOWN")
        assert [known.paused for known in facts(test).partitions] == [True, False]
        await send(test, b"behind", b"behind", partition=0)
        await send(test, b"other", partition=1)
        await asyncio.sleep(5)
        assert [message.payload for message in kept] == [b"stuck", b"other"]
        kept[0].ack()
        await asyncio.sleep(1)
        assert probes(test) == ("UP", "UP", "UP")
        await test.settled()
        assert [message.payload for message in kept][2:] == [b"behind", b"behind"]
        assert facts(test).poison == ()
    (event,) = recorder.of(PoisonSettled)
    assert (event.offset, round(event.age_s)) == (0, 66)


@pytest.mark.parametrize("after_s", [5.0, 5.1, 5.2, 5.3, 5.4])
@in_virtual_time
async def test_a_partition_is_fetched_again_as_soon_as_its_poison_is_settled(
    after_s: float,
) -> None:
    kept = list[Message[bytes]]()
    app = stuck_app(None, kept, on_poison="pause-partition")
    async with running(app) as test:
        await stuck(test, kept)
        await asyncio.sleep(LIMIT_S + after_s)
        await send(test, b"behind")
        await asyncio.sleep(1)
        assert len(kept) == 1
        kept[0].ack()
        settled_at = now()
        await until(lambda: len(kept) == 2, to_the_moment=True)
        assert now() - settled_at < 0.3


@in_virtual_time
async def test_warn_only_reports() -> None:
    recorder, kept = Found(), list[Message[bytes]]()
    async with running(stuck_app(recorder, kept, on_poison="warn")) as test:
        await stuck(test, kept)
        await send(test, b"a", b"b")
        await asyncio.sleep(LIMIT_S + 1)
        assert probes(test) == ("UP", "UP", "UP")
        (named,) = test.app.health().checks[0].data["poison"]
        assert (named["offset"], named["waiting"]) == (0, 0)
        await send(test, b"c")
        await until(lambda: len(kept) == 4)
        kept[0].ack()
        await test.settled()
        await asyncio.sleep(1)
        assert facts(test).poison == ()


@in_virtual_time
async def test_how_many_wait_behind_it_is_told() -> None:
    app, go_on = make_app(unprocessed_record_max_age="60s", on_poison="warn"), asyncio.Event()

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        await go_on.wait()

    async with running(app) as test:
        await send(test, b"", b"", b"")
        await asyncio.sleep(LIMIT_S + 1)
        (named,) = facts(test).poison
        assert (named.offset, named.waiting) == (0, 2)
        go_on.set()
        await test.settled()


@in_virtual_time
async def test_a_record_does_not_age_while_it_waits_for_a_handler() -> None:
    recorder = Found()
    app = make_app(recorder, unprocessed_record_max_age="60s", on_poison="warn", concurrency=1)

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        await asyncio.sleep(40)

    async with running(app) as test:
        # The last one waits 160 seconds for its turn.
        await send(test, *[b""] * 5)
        await asyncio.sleep(201)
        await test.settled()
    assert recorder.of(RecordPoisoned) == []


@in_virtual_time
async def test_waits_between_attempts_are_not_part_of_the_age() -> None:
    recorder = Found()
    retry = {"max_attempts": 10, "backoff": "10s", "max_backoff": "10s", "jitter": 0}
    app = make_app(recorder, unprocessed_record_max_age="30s", retry=retry)

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        if message.attempt < 10:
            raise ValueError("not yet")

    async with running(app) as test:
        await send(test, b"")
        await asyncio.sleep(91)
        await test.settled()
    assert recorder.of(RecordPoisoned) == []


@in_virtual_time
async def test_the_times_of_all_attempts_add_up_to_the_age() -> None:
    recorder = Found()
    retry = {"max_attempts": 10, "backoff": "10s", "max_backoff": "10s", "jitter": 0}
    app = make_app(recorder, unprocessed_record_max_age="60s", on_poison="warn", retry=retry)

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        await asyncio.sleep(25)
        if message.attempt < 4:
            raise ValueError("not yet")

    async with running(app) as test:
        began = now()
        await send(test, b"")
        await asyncio.sleep(135)
        await test.settled()
        # Two whole attempts, 10 s of the third, and two waits before that.
        assert 80 <= recorder.at[0] - began < 81
        (found,) = recorder.of(RecordPoisoned)
        assert 60 <= found.age_s < 61


@in_virtual_time
async def test_a_record_that_is_tried_again_for_long_is_named_by_readiness() -> None:
    retry = {"max_attempts": 1000, "backoff": "1s", "max_backoff": "1s"}
    app = make_app(unprocessed_record_max_age="60s", retry=retry)
    is_away = True

    @app.incoming("orders")
    async def handler(order: bytes) -> None:
        if is_away:
            raise ValueError("the remote is away")

    async with running(app) as test:
        await send(test, b"")
        await asyncio.sleep(50)
        assert test.app.health().ready.status == "UP"
        await asyncio.sleep(350)
        health = test.app.health()
        (check,) = (one for one in health.ready.checks if one.name == "orders")
        assert (health.live.status, check.status) == ("UP", "DOWN")
        assert "orders-0 offset 0 has failed for" in str(check.data["reason"])
        assert "the remote is away" in str(check.data["reason"])
        is_away = False
        await test.settled()
        assert test.app.health().status == "UP"


@in_virtual_time
async def test_a_message_that_is_kept_does_not_age_in_the_next_outage_either() -> None:
    app, held = make_app(ack="manual", unprocessed_record_max_age="60s"), list[Message[bytes]]()
    keep_messages(app, held)
    async with running(app) as test:
        await send(test, b"")
        await until(lambda: held)
        for _ in range(2):
            test.broker.down = True
            await asyncio.sleep(100)
            test.broker.down = False
            await asyncio.sleep(10)
            assert facts(test).poison == ()
            assert facts(test).state == "running"
        # Its clock runs again: it is found.
        await until(lambda: facts(test).poison != (), 60)


@pytest.mark.parametrize(
    "first", [Later("5s"), TransientBrokerError("the broker is away")], ids=["later", "outage"]
)
@in_virtual_time
async def test_why_a_record_waited_at_first_is_not_told_while_it_is_tried_again_for_a_failure(
    first: Exception,
) -> None:
    retry = {"max_attempts": 1000, "backoff": "1s", "max_backoff": "1s"}
    app, calls = make_app(unprocessed_record_max_age="60s", retry=retry), list[bytes]()

    @app.incoming("orders")
    async def handler(order: bytes) -> None:
        calls.append(order)
        raise first if len(calls) == 1 else ValueError("the remote is away")

    async with running(app) as test:
        await send(test, b"")
        await until(lambda: len(calls) >= 10, 60)
        assert test.app.health().ready.status == "UP"
        assert facts(test).postponed == ()
        await asyncio.sleep(350)
        (reason,) = facts(test).not_ready
        assert "orders-0 offset 0 has failed for" in reason


@pytest.mark.parametrize("where", ["after the first value", "after a send", "beside a send"])
@in_virtual_time
async def test_a_handler_that_hangs_beside_its_sends_is_poison(where: str) -> None:
    recorder = Found()
    app = make_app(recorder, unprocessed_record_max_age="30s", on_poison="warn")
    invoices = app.emitter("invoices")
    stuck = asyncio.Event()

    if where == "after the first value":

        @app.incoming("orders")
        @app.outgoing("invoices")
        async def generator(order: bytes) -> AsyncIterator[bytes]:
            yield order
            await stuck.wait()

    else:

        @app.incoming("orders")
        async def handler(order: bytes) -> None:
            send = asyncio.ensure_future(invoices.send(order))
            if where == "after a send":
                await send
            await stuck.wait()

    async with running(app) as test:
        began = now()
        await send(test, b"")
        await until(lambda: recorder.at, 40)
        assert 30 <= recorder.at[0] - began < 31
        stuck.set()
        await test.settled()


@in_virtual_time
async def test_no_attempt_is_made_while_the_channel_is_paused() -> None:
    calls: list[float] = []
    app = make_app(retry={"max_attempts": 1000, "backoff": "1s", "max_backoff": "1s"})

    @app.incoming("orders")
    async def handler(order: bytes) -> None:
        calls.append(now())
        if len(calls) < 6:
            raise ValueError("not yet")

    async with running(app) as test:
        await send(test, b"")
        await until(lambda: len(calls) == 2)
        test.app.channel("orders").pause("the remote is away")
        await asyncio.sleep(60)
        assert len(calls) == 2
        assert test.app.health().live.status == "UP"
        test.app.channel("orders").resume("the remote is away")
        await asyncio.sleep(0)
        await until(lambda: len(calls) == 3, 0.1)
        await test.settled()
        assert committed(test) == 1


@pytest.mark.parametrize("ordering", ["partition", "unordered"])
@in_virtual_time
async def test_a_handler_that_hangs_is_poison_in_every_ordering(ordering: str) -> None:
    recorder, go_on = Found(), asyncio.Event()
    app = make_app(
        recorder,
        unprocessed_record_max_age="60s",
        on_poison="pause-partition",
        ordering=ordering,
        concurrency=3,
    )

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        if message.offset == 2:
            await go_on.wait()

    async with running(app) as test:
        began = now()
        await send(test, *[b""] * 5)
        await asyncio.sleep(70)
        assert [event.offset for event in recorder.of(RecordPoisoned)] == [2]
        assert 60 <= recorder.at[0] - began < 61
        go_on.set()
        await test.settled()


@in_virtual_time
async def test_a_batch_that_hangs_is_poison_at_its_first_record() -> None:
    recorder, go_on = Found(), asyncio.Event()
    app = make_app(
        recorder, unprocessed_record_max_age="60s", on_poison="warn", batch_max_wait="1s"
    )

    @app.incoming("orders")
    async def handler(batch: Batch[bytes]) -> None:
        await go_on.wait()

    async with running(app) as test:
        await send(test, *[b""] * 5)
        await asyncio.sleep(70)
        assert [(event.offset, event.waiting) for event in recorder.of(RecordPoisoned)] == [(0, 4)]
        go_on.set()
        await test.settled()


@in_virtual_time
async def test_poison_that_lives_through_rebalances_is_told_once_and_stays_red() -> None:
    recorder, kept = Found(), list[Message[bytes]]()
    app = stuck_app(recorder, kept, on_poison="pause-partition", revoke_grace="100ms")
    async with running(app) as test:
        began = await stuck(test, kept)
        for at in (30, 59.9, 62, 64):
            await asyncio.sleep(began + at - now())
            test.broker.rebalance("billing")
        await asyncio.sleep(5)
        assert 0 <= recorder.at[0] - began - LIMIT_S < 1
        assert len(recorder.at) == 1
        assert recorder.of(PoisonSettled) == []
        assert facts(test).totals[tp()].poison == 1
        assert probes(test)[1] == "DOWN"
        assert [known.paused for known in facts(test).partitions] == [True]
        kept[0].ack()
        await test.settled()


@in_virtual_time
async def test_a_limit_of_zero_turns_the_watch_off() -> None:
    recorder, go_on = Found(), asyncio.Event()
    app = make_app(recorder, unprocessed_record_max_age=0, on_poison="fail")

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        await go_on.wait()

    async with running(app) as test:
        await send(test, b"")
        await asyncio.sleep(500)
        assert recorder.of(RecordPoisoned) == []
        go_on.set()
        await test.settled()


@in_virtual_time
async def test_poison_of_one_channel_leaves_the_others_alone() -> None:
    app = App(
        {
            "kafka": {
                "group_id": "g",
                "auto_offset_reset": "earliest",
                "unprocessed_record_max_age": "60s",
            },
            "incoming": {"bad": {"drain_timeout": "1s"}, "good": {}},
        }
    )

    @app.incoming("bad")
    async def hangs(value: bytes) -> None:
        await asyncio.Event().wait()

    @app.incoming("good")
    async def works(value: bytes) -> None: ...

    async with running(app) as test:
        await test.send("bad", b"")
        await until(lambda: app.channel("bad").facts().state == "failed", 70)
        await test.send("good", b"")
        await until(lambda: test.committed("good") == {tp(0, "good"): 1})
        by_name = {check.name: check.status for check in app.health().live.checks}
        assert by_name == {"bad": "DOWN", "good": "UP"}


# -- a channel that fails for it does not wait for it


class Hanging:
    """A handler that hangs on ``stuck`` the first time, takes 100 s for ``slow`` ones, and notes
    what ends.
    """

    def __init__(self, when_cancelled: str = "ends", **orders: Any) -> None:
        self.when_cancelled = when_cancelled
        self.ends: list[str] = []
        self.messages: list[Message[bytes]] = []
        self.go_on = asyncio.Event()
        settings = {
            "unprocessed_record_max_age": "60s",
            "on_poison": "fail",
            "drain_timeout": "10m",
            "concurrency": 4,
        }
        self.app = make_app(**{**settings, **orders})
        self.app.incoming("orders")(self.handle)

    async def handle(self, message: Message[bytes]) -> None:
        self.messages.append(message)
        if (
            message.payload == b"stuck"
            and sum(one.payload == b"stuck" for one in self.messages) == 1
        ):
            await self.hang()
        await asyncio.sleep(100 if message.payload == b"slow" else 0)
        self.ends.append(message.payload.decode())

    async def hang(self) -> None:
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.ends.append("cancelled")
            if self.when_cancelled == "cleans up":
                await asyncio.sleep(0.5)
                self.ends.append("cleaned up")
            if self.when_cancelled != "goes on":
                raise
            await self.go_on.wait()

    @property
    def stuck(self) -> Message[bytes]:
        """The record that it hung on."""
        return next(message for message in self.messages if message.payload == b"stuck")


async def failed_for_poison(test: TestApp) -> float:
    """When a channel has failed."""
    await until(lambda: facts(test).state == "failed", 100, to_the_moment=True)
    return now()


@pytest.mark.parametrize("ordering", ["partition", "key", "unordered"])
@pytest.mark.parametrize(
    ("when_cancelled", "takes_s", "ends"),
    [
        ("ends", 0.0, ["a", "cancelled"]),
        ("cleans up", 0.5, ["a", "cancelled", "cleaned up"]),
        ("goes on", INTERRUPTED_S, ["a", "cancelled"]),
    ],
)
@in_virtual_time
async def test_fail_does_not_wait_for_the_handler_that_it_found_stuck(
    when_cancelled: str, takes_s: float, ends: list[str], ordering: str
) -> None:
    hanging = Hanging(when_cancelled, ordering=ordering)
    async with running(hanging.app) as test:
        await send(test, b"a", b"stuck")
        failed_at = await failed_for_poison(test)
        await test.app.channel("orders").restart()
        assert takes_s - 0.01 <= now() - failed_at <= takes_s + 0.1
        # Cancelled once, whatever it did then.
        assert hanging.ends == ends
        assert committed(test) == 1
        await test.settled()
        assert hanging.ends == [*ends, "stuck"]
        assert committed(test) == 2
        hanging.go_on.set()


@pytest.mark.parametrize(
    ("when_cancelled", "takes_s"), [("ends", 0.0), ("cleans up", 0.5), ("goes on", INTERRUPTED_S)]
)
@in_virtual_time
async def test_a_stop_at_that_moment_waits_for_the_healthy_handlers_only(
    when_cancelled: str, takes_s: float
) -> None:
    """From the failure to the end of the application, which is what ``--exit-on-failure`` does."""
    hanging = Hanging(when_cancelled)
    async with running(hanging.app) as test:
        await send(test, b"a", b"stuck")
        failed_at = await failed_for_poison(test)
        await hanging.app.stop()
        # What ignores its cancellation is given up after a second, and after the groups have been
        # left again.
        assert (
            takes_s - 0.01
            <= now() - failed_at
            <= takes_s + 1.1 * (when_cancelled == "goes on") + 0.1
        )
        assert committed(test) == 1
    healthy = Hanging(when_cancelled)
    async with running(healthy.app, partitions=2) as test:
        await send(test, b"stuck")
        await asyncio.sleep(30)
        await send(test, b"slow", partition=1)
        failed_at = await failed_for_poison(test)
        await healthy.app.stop()
        assert 69 < now() - failed_at < 72
        assert committed(test, 1) == 1


@in_virtual_time
async def test_another_member_has_the_partition_as_soon() -> None:
    hanging, others = Hanging("goes on"), list[bytes]()
    async with running(hanging.app) as test:
        await send(test, b"a", b"stuck", b"b")
        other = make_app()

        @other.incoming("orders")
        async def handler(payload: bytes) -> None:
            others.append(payload)

        failed_at = await failed_for_poison(test)
        async with running(other, broker=test.broker):
            await until(lambda: others == [b"stuck", b"b"])
            assert now() - failed_at < INTERRUPTED_S + 0.5
            late = hanging.stuck.ack()
            assert await late is False
            hanging.go_on.set()
            await until(lambda: committed(test) == 3)


@in_virtual_time
async def test_its_late_ack_is_refused_and_nothing_behind_it_is_committed() -> None:
    hanging = Hanging("goes on", ordering="unordered", commit_interval="100ms", concurrency=3)
    async with running(hanging.app) as test:
        await send(test, b"a", b"stuck", b"b", b"c")
        await failed_for_poison(test)
        await until(lambda: not test.broker.members("billing"))
        hanging.go_on.set()
        assert await hanging.stuck.ack() is False
        await asyncio.sleep(5)
        assert hanging.ends == ["a", "b", "c", "cancelled", "stuck"]
        assert committed(test) == 1


@in_virtual_time
async def test_other_handlers_have_the_time_that_a_drain_gives_and_their_records_are_committed() -> (
    None
):
    hanging = Hanging()
    async with running(hanging.app, partitions=2) as test:
        await send(test, b"stuck")
        await asyncio.sleep(30)
        await send(test, b"slow", partition=1)
        failed_at = await failed_for_poison(test)
        await test.app.channel("orders").restart()
        assert 69 < now() - failed_at < 71
        assert hanging.ends == ["cancelled", "slow"]
        assert committed(test, 1) == 1
        await test.settled()
        assert hanging.ends == ["cancelled", "slow", "stuck"]


@in_virtual_time
async def test_a_record_without_a_handler_any_more_is_not_waited_for_either() -> None:
    kept: list[Message[bytes]] = []
    async with running(stuck_app(None, kept, on_poison="fail", revoke_grace="5s")) as test:
        await stuck(test, kept)
        failed_at = await failed_for_poison(test)
        await test.app.channel("orders").restart()
        assert now() - failed_at < 0.1
        assert await kept[0].ack() is False
        await until(lambda: len(kept) == 2)
        assert await kept[1].ack() is True


class FreesHandler(Recorder):
    """Lets a handler go on at the moment at which its record is found to be poison."""

    def __init__(self, go_on: asyncio.Event) -> None:
        super().__init__()
        self._go_on = go_on

    def on(self, event: Any) -> None:
        super().on(event)
        if isinstance(event, RecordPoisoned):
            self._go_on.set()


@in_virtual_time
async def test_a_record_whose_attempt_ends_at_that_moment_is_left_and_counted_once() -> None:
    go_on = asyncio.Event()
    recorder = FreesHandler(go_on)
    app = make_app(
        recorder,
        unprocessed_record_max_age="60s",
        on_poison="fail",
        retry={"max_attempts": 2, "backoff": "1s"},
    )

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        await go_on.wait()
        raise ValueError("no")

    async with running(app) as test:
        await send(test, b"stuck", b"behind it")
        await failed_for_poison(test)
        await until(lambda: not test.broker.members("billing"))
        assert recorder.of(HandlerAbandoned) == []
        assert committed(test) is None


@in_virtual_time
async def test_a_batch_that_hangs_is_not_waited_for_either() -> None:
    app, batches = (
        make_app(batch_max_records=3, on_poison="fail", drain_timeout="10m"),
        list[Batch[bytes]](),
    )

    @app.incoming("orders")
    async def handler(batch: Batch[bytes]) -> None:
        batches.append(batch)
        if len(batches) == 1:
            await batch[0].ack()
            await asyncio.Event().wait()

    async with running(app) as test:
        await send(test, b"a", b"b", b"c")
        failed_at = await failed_for_poison(test)
        await test.app.channel("orders").restart()
        assert now() - failed_at < 0.1
        assert committed(test) == 1
        await test.settled()
        assert [[message.offset for message in batch] for batch in batches] == [[0, 1, 2], [1, 2]]


async def test_a_thread_that_hangs_is_left_behind_at_once() -> None:
    app, go_on, calls = (
        make_app(on_poison="fail", unprocessed_record_max_age="1s"),
        threading.Event(),
        list[int](),
    )

    @app.incoming("orders")
    def handler(message: Message[bytes]) -> None:
        calls.append(message.offset)
        if len(calls) == 1:
            go_on.wait(60)

    try:
        async with running(app) as test:
            await send(test, b"stuck")
            failed_at = await failed_for_poison(test)
            await test.app.channel("orders").restart()
            assert now() - failed_at < INTERRUPTED_S
            await test.settled()
            assert calls == [0, 0]
    finally:
        go_on.set()


@in_virtual_time
async def test_a_handler_that_hangs_behind_one_that_has_sent_to_memory_is_poison() -> None:
    """The first handler's value is settled; the record is still with the second one."""
    recorder = Found()
    stuck = asyncio.Event()
    orders = {"group_id": "billing", "auto_offset_reset": "earliest", "broadcast": True}
    app = App(
        {
            "incoming": {
                "orders": {**orders, "unprocessed_record_max_age": "30s", "on_poison": "warn"}
            },
            "memory": {"checked": {}},
        },
        observer=recorder,
    )

    @app.incoming("orders")
    @app.outgoing("checked")
    async def first(order: bytes) -> bytes:
        return order

    @app.incoming("orders")
    async def second(order: bytes) -> None:
        await stuck.wait()

    @app.incoming("checked")
    async def check(order: bytes) -> None:
        await asyncio.sleep(1)

    async with running(app) as test:
        began = now()
        await send(test, b"")
        await until(lambda: recorder.at, 40)
        assert 30 <= recorder.at[0] - began < 32
        stuck.set()
        await test.settled()


@in_virtual_time
async def test_a_batch_that_hangs_when_it_is_called_again_is_poison() -> None:
    """A value of the first call was nacked in a memory channel."""
    recorder = Found()
    stuck = asyncio.Event()
    calls: list[int] = []
    orders = {
        "group_id": "billing",
        "auto_offset_reset": "earliest",
        "retry": {"max_attempts": 2, "backoff": "1s"},
    }
    app = App(
        {
            "incoming": {
                "orders": {**orders, "unprocessed_record_max_age": "30s", "on_poison": "warn"}
            },
            "memory": {"checked": {}},
        },
        observer=recorder,
    )

    @app.incoming("orders")
    @app.outgoing("checked")
    async def handle(batch: Batch[bytes]) -> list[Record]:
        calls.append(len(batch))
        if len(calls) == 2:
            await stuck.wait()
        return [Record(payload) for payload in batch.payloads]

    @app.incoming("checked")
    async def check(order: bytes) -> None:
        if len(calls) == 1:
            raise ValueError("not yet")

    async with running(app) as test:
        await send(test, b"")
        await until(lambda: len(calls) == 2)
        began = now()
        await until(lambda: recorder.at, 40)
        assert 28 <= recorder.at[0] - began < 31
        stuck.set()
        await test.settled()
