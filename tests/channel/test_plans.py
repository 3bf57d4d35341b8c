"""Planned ranges from one owner of a partition to the next: stored before, found after, and dropped
where they must.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from reactive_kafka import Channel, Committed, IncomingSettings
from reactive_kafka.channel.blueprint import ByIteration, ByWorkers, ChannelBlueprint
from reactive_kafka.channel.lifecycle import ChannelLifecycle
from reactive_kafka.channel.run_services import RunServices
from reactive_kafka.errors import NotOwnerError, OutcomeUnknownError, TransientBrokerError
from reactive_kafka.events import CommitFailed, PlanDropped
from reactive_kafka.tasks import Tasks
from reactive_kafka.testing import MemoryBroker, VirtualTimeLoop
from tests.app.helpers import Recorder, in_virtual_time, make_broker, now, tp, until
from tests.commit.engines import strategy_of
from tests.config.values import assigned_partition
from tests.delivery.values import workers_that_do_nothing
from tests.tracking.stored import text_with_plans, without_topic_id
from tests.tracking.values import planned_range

FIRST, SECOND, LAST = planned_range(0, 10), planned_range(10, 20), planned_range(20, 30)


class Owner:
    """A channel that keeps plans, and what it told."""

    def __init__(self, channel: ChannelLifecycle, recorder: Recorder) -> None:
        self.channel = channel
        self.recorder = recorder

    def tracker(self, partition: int = 0) -> Any:
        return next(
            one for one in self.channel.session.clients.trackers() if one.partition == tp(partition)
        )

    @property
    def dropped(self) -> list[PlanDropped]:
        return self.recorder.of(PlanDropped)


@asynccontextmanager
async def owning(
    broker: MemoryBroker, *, keeps_plans: bool = True, **settings: Any
) -> AsyncIterator[Owner]:
    """The channel orders on a broker, from the moment it reads until it has left its group."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    recorder, tasks = Recorder(), Tasks()
    given = {
        "topics": ("orders",),
        "group_id": "billing",
        "auto_offset_reset": "earliest",
        **settings,
    }
    settings = IncomingSettings(name="orders", **given)
    services = RunServices(
        connector=broker.connector(),
        clock=loop.clock,
        observer=recorder,
        tasks=tasks,
        exit=lambda _: None,
    )
    no_workers = ByWorkers(lambda setup: workers_that_do_nothing(), keeps_plans=True)
    consumption = no_workers if keeps_plans else ByIteration()
    channel = ChannelLifecycle(
        ChannelBlueprint(
            settings=settings,
            strategy=strategy_of(settings),
            services=services,
            consumption=consumption,
        )
    )
    channel.start()
    try:
        await until(lambda: channel.is_ready, 30)
        yield Owner(channel, recorder)
    finally:
        await channel.quiesce(now() + 1)
        await channel.finish(now() + 1)
        assert await tasks.end(1) == []


@asynccontextmanager
async def broker_with(
    stored: Committed | None = None, *, partitions: int = 1
) -> AsyncIterator[MemoryBroker]:
    """A broker with 30 records in each partition of orders, and what the group has stored for the
    first one.
    """
    broker = make_broker(partitions)
    for partition in range(partitions):
        for _ in range(30):
            broker.produce("orders", b"", partition=partition)
    if stored is not None:
        broker._state.group("billing").commits[tp()] = stored
    try:
        yield broker
    finally:
        await broker.close()


async def rebalanced(broker: MemoryBroker, owner: Owner) -> None:
    """Make the group rebalance, and wait until the owner reads again."""
    generation = broker.generation("billing")
    broker.rebalance("billing")
    await until(lambda: broker.generation("billing") > generation and owner.channel.is_ready, 60)


def stored_in(broker: MemoryBroker, partition: int = 0) -> Committed | None:
    """What the group has stored, without the topic's id, which stands beside each plan."""
    found = broker.committed("billing").get(tp(partition))
    return None if found is None else without_topic_id(found)


# -- from one owner to the next


@pytest.mark.parametrize(("topic", "is_there"), [("id-1", True), ("", True), ("id-0", False)])
@in_virtual_time
async def test_a_plan_of_the_old_topic_cuts_no_batch_of_the_one_that_was_made_anew(
    topic: str, is_there: bool
) -> None:
    async with (
        broker_with(Committed(10, text_with_plans(10, SECOND, topic=topic))) as broker,
        owning(broker) as owner,
    ):
        tracker = owner.tracker()
        assert (tracker.start, tracker.planned_beyond(0)) == (
            (10, (SECOND,)) if is_there else (0, ())
        )
        expected = [] if is_there else [(SECOND.start, SECOND.until, "reading begins at 0")]
        assert [(one.start, one.until, one.reason) for one in owner.dropped] == expected


@in_virtual_time
async def test_the_next_owner_finds_what_was_planned() -> None:
    async with broker_with() as broker:
        async with owning(broker) as owner:
            for planned in (FIRST, SECOND):
                owner.tracker().plan(planned)
            assert await owner.channel.session.clients.store_plans([owner.tracker()])
            assert stored_in(broker) == Committed(0, text_with_plans(0, FIRST, SECOND))
        async with owning(broker) as owner:
            assert owner.tracker().plans == (FIRST, SECOND)
            assert await owner.channel.session.clients.store_plans([owner.tracker()])
            assert owner.dropped == []
        assert len(broker.commits("billing")) == 1


@in_virtual_time
async def test_what_is_done_is_gone_with_the_position_behind_it() -> None:
    async with broker_with(Committed(0, text_with_plans(0, FIRST))) as broker:
        async with owning(broker) as owner:
            await until(lambda: owner.tracker().position == 30)
            owner.tracker().settle_range(0, 10)
            owner.tracker().plan_done(FIRST)
        assert stored_in(broker) == Committed(10, "")


@in_virtual_time
async def test_a_partition_that_comes_straight_back_keeps_its_own_plans() -> None:
    async with (
        broker_with(Committed(0, text_with_plans(0, FIRST))) as broker,
        owning(broker, revoke_grace_s=0.1) as owner,
    ):
        tracker = owner.tracker()
        tracker.plan(SECOND)
        await rebalanced(broker, owner)
        assert owner.tracker() is tracker
        assert tracker.plans == (FIRST, SECOND)
        assert await owner.channel.session.clients.store_plans([tracker])
        assert stored_in(broker) == Committed(0, text_with_plans(0, FIRST, SECOND))


@in_virtual_time
async def test_what_has_gone_from_the_group_meanwhile_is_stored_again() -> None:
    async with (
        broker_with(Committed(0, text_with_plans(0, FIRST))) as broker,
        owning(broker, revoke_grace_s=0.1) as owner,
    ):
        tracker = owner.tracker()
        assert await owner.channel.session.clients.store_plans([tracker])
        broker._state.group("billing").commits[tp()] = Committed(0)
        await rebalanced(broker, owner)
        assert owner.tracker() is tracker
        assert await owner.channel.session.clients.store_plans([tracker])
        assert stored_in(broker) == Committed(0, text_with_plans(0, FIRST))


@in_virtual_time
async def test_each_client_of_a_channel_stores_the_plans_of_its_partitions() -> None:
    async with broker_with(partitions=2) as broker, owning(broker, consumers=2) as owner:
        for partition in (0, 1):
            owner.tracker(partition).plan(SECOND)
        assert await owner.channel.session.clients.store_plans(
            owner.channel.session.clients.trackers()
        )
        assert [stored_in(broker, one) for one in (0, 1)] == [
            Committed(0, text_with_plans(0, SECOND))
        ] * 2


@in_virtual_time
async def test_foreign_text_begins_with_the_position_and_stays_beside_it() -> None:
    async with broker_with(Committed(10, "stage 3")) as broker, owning(broker) as owner:
        assert (owner.tracker().position >= 10, owner.tracker().plans, owner.dropped) == (
            True,
            (),
            [],
        )
        owner.tracker().plan(SECOND)
        assert await owner.channel.session.clients.store_plans([owner.tracker()])
        assert stored_in(broker) == Committed(10, text_with_plans(10, SECOND, user="stage 3"))


# -- what cannot be kept


@in_virtual_time
async def test_a_plan_beyond_the_end_of_the_log_is_dropped_with_a_warning() -> None:
    beyond = planned_range(30, 31)
    async with (
        broker_with(Committed(0, text_with_plans(0, FIRST, LAST, beyond))) as broker,
        owning(broker) as owner,
    ):
        assert owner.tracker().plans == (FIRST, LAST)
        (dropped,) = owner.dropped
        assert (dropped.level, dropped.partition, dropped.start, dropped.until) == (
            "warning",
            tp(),
            30,
            31,
        )
        assert (
            dropped.text() == "orders-0: the planned range [30, 31) is dropped: the log ends at 30"
        )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (text_with_plans(0, FIRST), "it belongs to position 0"),
        (text_with_plans(10, SECOND)[:-1], "it was changed or cut off"),
        (text_with_plans(10, SECOND).replace("rk1", "rk9"), "version 9 is not known"),
    ],
)
@in_virtual_time
async def test_plans_that_cannot_be_read_are_told_and_the_position_is_used(
    text: str, reason: str
) -> None:
    async with broker_with(Committed(10, text)) as broker, owning(broker) as owner:
        assert (owner.tracker().start, owner.tracker().plans) == (10, ())
        (dropped,) = owner.dropped
        assert dropped.text() == f"orders-0: the plan is dropped: {reason}"


@in_virtual_time
async def test_a_position_that_was_reset_has_no_plans_and_says_so() -> None:
    async with (
        broker_with(Committed(500, text_with_plans(500, planned_range(500, 510)))) as broker,
        owning(broker) as owner,
    ):
        assert (owner.tracker().start, owner.tracker().plans) == (0, ())
        (dropped,) = owner.dropped
        assert (dropped.start, dropped.until, dropped.reason) == (500, 510, "reading begins at 0")


@in_virtual_time
async def test_a_place_that_was_sought_has_no_plans() -> None:
    async with (
        broker_with(Committed(0, text_with_plans(0, FIRST))) as broker,
        owning(broker) as owner,
    ):
        await Channel(owner.channel).seek(tp(), 0)
        assert owner.tracker().plans == ()
        owner.tracker().plan(planned_range(0, 5))
        assert await owner.channel.session.clients.store_plans([owner.tracker()])
        assert stored_in(broker) == Committed(0, text_with_plans(0, planned_range(0, 5)))


@in_virtual_time
async def test_after_two_seeks_plans_are_stored_where_the_group_is() -> None:
    async with broker_with(Committed(20)) as broker, owning(broker) as owner:
        await Channel(owner.channel).seek(tp(), 5)
        await Channel(owner.channel).seek(tp(), 25)
        owner.tracker().plan(planned_range(25, 30))
        assert await owner.channel.session.clients.store_plans([owner.tracker()])
        assert stored_in(broker) == Committed(20, text_with_plans(20, planned_range(25, 30)))


@in_virtual_time
async def test_a_chosen_start_has_no_plans() -> None:
    async with broker_with(Committed(0, text_with_plans(0, FIRST))) as broker:
        chosen = (assigned_partition(tp(), start=0),)
        async with owning(broker, topics=(), assign=chosen) as owner:
            assert owner.tracker().plans == ()
        async with owning(
            broker, topics=(), assign=(assigned_partition(tp(), start=None),)
        ) as owner:
            assert owner.tracker().plans == (FIRST,)


@in_virtual_time
async def test_a_channel_that_is_restarted_finds_its_plans_where_no_group_assigns() -> None:
    async with (
        broker_with() as broker,
        owning(broker, topics=(), assign=(assigned_partition(tp(), start=5),)) as owner,
    ):
        first = owner.tracker()
        first.plan(planned_range(5, 15))
        assert await owner.channel.session.clients.store_plans([first])
        owner.channel.fail(RuntimeError("no"))
        await owner.channel.restart()
        await until(lambda: owner.channel.is_ready, 30)
        assert owner.tracker() is not first
        assert owner.tracker().plans == (planned_range(5, 15),)


@in_virtual_time
async def test_a_channel_that_keeps_no_plans_begins_without_them() -> None:
    async with (
        broker_with(Committed(0, text_with_plans(0, FIRST))) as broker,
        owning(broker, keeps_plans=False) as owner,
    ):
        assert (owner.tracker().plans, owner.dropped) == ((), [])


# -- a broker that fails


@pytest.mark.parametrize("error", [TransientBrokerError("away"), OutcomeUnknownError("no answer")])
@pytest.mark.parametrize("stored", [False, True])
@in_virtual_time
async def test_plans_are_stored_in_spite_of_commits_that_fail(error: Any, stored: bool) -> None:
    async with broker_with() as broker, owning(broker) as owner:
        broker.fail_next("commit", error, times=4, stored=stored)
        owner.tracker().plan(FIRST)
        assert await owner.channel.session.clients.store_plans([owner.tracker()])
        assert len(owner.recorder.of(CommitFailed)) == 4
        assert stored_in(broker) == Committed(0, text_with_plans(0, FIRST))


@in_virtual_time
async def test_who_is_no_owner_any_more_cannot_store_plans() -> None:
    async with broker_with(partitions=2) as broker, owning(broker) as owner:
        one, other = owner.tracker(0), owner.tracker(1)
        broker.fail_next("commit", NotOwnerError("gone"))
        one.plan(FIRST)
        assert not await owner.channel.session.clients.store_plans([one, other])
        next(iter(owner.channel.session.clients)).owned.revoke()
        assert not await owner.channel.session.clients.store_plans([one])
