"""The tasks of a member of a classic group, in virtual time, against the model of a coordinator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from reactive_kafka.broker.consumer.membership.classic_group.assignors.named_assignors import (
    DEFAULT_ASSIGNORS,
    assignors_named,
)
from reactive_kafka.broker.consumer.membership.classic_group.classic_membership import (
    LOOK_S,
    WAITS,
    ClassicGroupMembership,
)
from reactive_kafka.broker.consumer.membership.classic_group.classic_states import (
    ClassicMemberState,
)
from reactive_kafka.broker.consumer.membership.classic_group.member_rules import (
    ClassicGroupMember,
    ClassicMemberSettings,
)
from reactive_kafka.broker.consumer.membership.group_parts import LEAVE_DEADLINE_S, TopicView
from reactive_kafka.broker.consumer.membership.heartbeat_pace import QUICK_BEAT_S, SETTLING_BEAT_S
from reactive_kafka.broker.consumer.membership.left_behind import MembersLeftBehind
from reactive_kafka.broker.wire.codec import encode
from reactive_kafka.broker.wire.definitions import (
    DESCRIBE_GROUPS,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    SYNC_GROUP,
)
from reactive_kafka.broker.wire.schema import Api, versions_of
from reactive_kafka.errors import FatalBrokerError, FencedError, TransientBrokerError
from reactive_kafka.records import TopicPartition
from tests.broker.consumer.classic_group_model import ClassicGroupModel

pytestmark = pytest.mark.virtual_time

SESSION_S = 45.0
MAX_POLL_INTERVAL_S = 300.0
COOPERATIVE = ("cooperative-sticky",)
ALL = frozenset(TopicPartition("orders", number) for number in range(4))
GROUP_AUTHORIZATION_FAILED = 30


class ModelClassicRequests:
    """Passes requests to the model of a coordinator, unless an outage or a refusal is played."""

    def __init__(self, group: ClassicGroupModel, topics: Mapping[str, int]) -> None:
        self.group = group
        self.topics = topics
        self.asked: list[tuple[float, Api]] = []
        self.is_away = False
        self.are_topics_away = False
        self.describes_no_groups = False
        self.refuses = 0
        self.lookups = 0

    async def ask(
        self,
        api: Api,
        values: Mapping[str, Any] | Callable[[int], Mapping[str, Any]],
        *,
        deadline_s: float = 5.0,
    ) -> Mapping[str, Any]:
        if callable(values):
            values = values(versions_of(api.request.versions).last)
        # Whatever is asked can be sent.
        encode(api.request, versions_of(api.request.versions).last, values)
        self.asked.append((now(), api))
        await asyncio.sleep(0.01)
        if self.is_away:
            raise TransientBrokerError("no answer")
        if self.refuses:
            return {"error_code": self.refuses, "member_id": ""}
        self.group.tick(now())
        answered: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

        def answer(found: dict[str, Any]) -> None:
            # The member may have been stopped meanwhile.
            if not answered.done():
                answered.set_result(found)

        if api is JOIN_GROUP:
            self.group.join(values, now(), answer)
        elif api is SYNC_GROUP:
            self.group.sync(values, now(), answer)
        elif api is HEARTBEAT:
            answered.set_result(self.group.heartbeat(values, now()))
        elif api is DESCRIBE_GROUPS:
            if self.describes_no_groups:
                raise FatalBrokerError("the broker is too old")
            answered.set_result(self.group.describe())
        else:
            assert api is LEAVE_GROUP
            self.group.leave(values, now())
            answered.set_result({"error_code": 0})
        try:
            async with asyncio.timeout(deadline_s):
                return await answered
        except TimeoutError:
            raise TransientBrokerError("no answer in time") from None

    def coordinator_moved(self) -> None:
        self.lookups += 1

    def leave_deadline_s(self) -> float:
        return LEAVE_DEADLINE_S

    async def look_up(self, topics: Collection[str]) -> TopicView:
        await asyncio.sleep(0.01)
        if self.are_topics_away:
            raise TransientBrokerError("no answer")
        return TopicView({topic: range(self.topics[topic]) for topic in topics}, {})

    async def topic_names(self, ids: Collection[bytes]) -> Mapping[bytes, str]:
        raise AssertionError("a classic group names its topics")

    async def session_timeout_s(self) -> float | None:
        raise AssertionError("a classic member names its session timeout itself")


class ReadPartitions:
    """Notes what is read."""

    def __init__(self) -> None:
        self.held: set[TopicPartition] = set()
        self.read: set[TopicPartition] = set()
        self.woken = 0

    def hold(self, partitions: Collection[TopicPartition]) -> None:
        self.held |= set(partitions)
        self.read |= set(partitions)

    def stop_reading(self, partitions: Collection[TopicPartition]) -> None:
        self.read -= set(partitions)

    def release(self, partitions: Collection[TopicPartition]) -> None:
        self.held -= set(partitions)

    def wake(self) -> None:
        self.woken += 1


class ClassicApplication:
    """A listener, and a task that polls."""

    def __init__(
        self,
        group: ClassicGroupModel,
        topics: Mapping[str, int],
        assignors: Sequence[str],
        instance_id: str | None,
    ) -> None:
        self.requests = ModelClassicRequests(group, topics)
        self.reader = ReadPartitions()
        settings = ClassicMemberSettings(
            "billing",
            assignors_named(assignors),
            rebalance_timeout_ms=60_000,
            session_timeout_ms=int(SESSION_S * 1000),
            instance_id=instance_id,
        )
        self.membership = ClassicGroupMembership(
            ClassicGroupMember(settings),
            self.requests,
            self.reader,
            MAX_POLL_INTERVAL_S,
            MembersLeftBehind(),
        )
        self.told: list[tuple[str, frozenset[TopicPartition]]] = []
        self.drain_s = 0.0
        self.polls = True
        self.raises: Exception | None = None

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        assert partitions <= self.reader.held
        assert not partitions & self.reader.read
        await asyncio.sleep(self.drain_s)
        self.told.append(("revoked", partitions))

    async def on_assigned(self, partitions: frozenset[TopicPartition], generation: int) -> None:
        assert partitions <= self.reader.held
        assert generation == self.membership.member.owned.generation
        self.told.append(("assigned", partitions))
        if self.raises is not None:
            raise self.raises

    @property
    def owned(self) -> frozenset[TopicPartition]:
        return self.membership.member.owned.partitions

    @property
    def state(self) -> ClassicMemberState:
        return self.membership.member.state

    @property
    def changes(self) -> list[tuple[str, frozenset[TopicPartition]]]:
        return [(kind, partitions) for kind, partitions in self.told if partitions]

    async def poll(self) -> None:
        while True:
            if self.polls:
                self.membership.note_poll()
            await asyncio.sleep(0.5)

    async def until(self, is_so: Callable[[], bool], within_s: float = 10.0) -> None:
        async with asyncio.timeout(within_s):
            # The time is virtual: nothing really sleeps here.
            while not is_so():  # noqa: ASYNC110
                await asyncio.sleep(0.01)


def now() -> float:
    return asyncio.get_running_loop().time()


@asynccontextmanager
async def running(
    group: ClassicGroupModel,
    assignors: Sequence[str] = DEFAULT_ASSIGNORS,
    instance_id: str | None = None,
    topics: Mapping[str, int] | None = None,
) -> AsyncIterator[ClassicApplication]:
    app = ClassicApplication(group, topics or {"orders": 4}, assignors, instance_id)
    app.membership.start(app, ["orders"])
    polling = asyncio.create_task(app.poll())
    try:
        yield app
    finally:
        polling.cancel()
        await app.membership.close(None)


async def test_a_member_alone_gets_everything_and_leaves_at_its_stop() -> None:
    group = ClassicGroupModel()
    async with running(group) as app:
        await app.until(lambda: app.owned == ALL, 1.0)
        assert app.changes == [("assigned", ALL)]
        assert app.reader.held == ALL
    assert group.members == {}
    assert app.changes == [("assigned", ALL)]


async def test_it_leaves_once_if_it_is_closed_twice_at_the_same_time() -> None:
    async with running(ClassicGroupModel()) as app:
        await app.until(lambda: app.owned == ALL, 1.0)
        await asyncio.gather(app.membership.close(None), app.membership.close(None))
        assert [api for _, api in app.requests.asked].count(LEAVE_GROUP) == 1


async def test_an_eager_group_gives_up_everything_for_a_new_member() -> None:
    group = ClassicGroupModel()
    async with running(group) as one:
        await one.until(lambda: one.owned == ALL)
        async with running(group) as two:
            await two.until(lambda: len(two.owned) == 2, 2 * QUICK_BEAT_S)
            await one.until(lambda: len(one.owned) == 2)
            assert one.changes[1:] == [("revoked", ALL), ("assigned", one.owned)]


async def test_a_cooperative_member_reads_on_what_stays_while_others_join_and_drain() -> None:
    group = ClassicGroupModel()
    async with running(group, COOPERATIVE) as one:
        await one.until(lambda: one.owned == ALL)
        one.drain_s = 20.0
        async with running(group, COOPERATIVE) as two:
            await one.until(lambda: len(one.reader.read) == 2, 2 * QUICK_BEAT_S)
            stays = frozenset(one.reader.read)
            began = now()
            await two.until(lambda: len(two.owned) == 2, 30.0)
            # The second member learns of the next round with its next heartbeat.
            assert now() - began < 20.0 + QUICK_BEAT_S + 0.5
            assert one.changes[1:] == [("revoked", two.owned)]
            assert one.reader.read == one.owned == stays


async def test_what_moves_in_a_cooperative_group_does_not_wait_for_a_heartbeat_interval() -> None:
    group = ClassicGroupModel()
    async with running(group, COOPERATIVE) as one:
        await one.until(lambda: one.owned == ALL)
        await asyncio.sleep(10 * QUICK_BEAT_S)
        async with running(group, COOPERATIVE) as two:
            await one.until(lambda: len(one.owned) == 2, 2 * QUICK_BEAT_S)
            await two.until(lambda: len(two.owned) == 2, SETTLING_BEAT_S + 0.5)


@pytest.mark.parametrize("assignors", [DEFAULT_ASSIGNORS, COOPERATIVE])
async def test_what_a_member_that_leaves_had_has_an_owner_within_a_second(
    assignors: Sequence[str],
) -> None:
    group = ClassicGroupModel()
    async with running(group, assignors) as one:
        await one.until(lambda: one.owned == ALL)
        async with running(group, assignors) as two:
            await two.until(lambda: len(two.owned) == 2)
            # The group has settled.
            await asyncio.sleep(60)
        await one.until(lambda: one.owned == ALL, QUICK_BEAT_S + 0.1)


async def test_heartbeats_go_on_during_a_drain_that_is_longer_than_a_session() -> None:
    group = ClassicGroupModel()
    async with running(group) as one:
        await one.until(lambda: one.owned == ALL)
        one.drain_s = SESSION_S + 10.0
        async with running(group) as two:
            await two.until(lambda: len(two.owned) == 2, 2 * SESSION_S)
            assert one.changes[1] == ("revoked", ALL)
            assert len(group.members) == 2


async def test_an_outage_of_the_coordinator_changes_nothing_and_is_asked_with_growing_pauses() -> (
    None
):
    group = ClassicGroupModel()
    async with running(group) as app:
        await app.until(lambda: app.owned == ALL)
        app.requests.is_away = True
        await asyncio.sleep(20)
        app.requests.asked.clear()
        await asyncio.sleep(20)
        assert len(app.requests.asked) <= 21
        app.requests.is_away = False
        await asyncio.sleep(WAITS.last_s + 1)
        assert app.state is ClassicMemberState.STABLE
        assert app.changes == [("assigned", ALL)]
        assert app.membership.session_ends_at() > now() + SESSION_S - 2 * QUICK_BEAT_S


async def test_a_coordinator_that_has_moved_is_looked_for() -> None:
    group = ClassicGroupModel()
    async with running(group) as app:
        await app.until(lambda: app.owned == ALL)
        app.requests.refuses = 16
        await asyncio.sleep(2 * QUICK_BEAT_S)
        assert app.requests.lookups > 0
        app.requests.refuses = 0
        await asyncio.sleep(2 * QUICK_BEAT_S)
        assert app.state is ClassicMemberState.STABLE
        assert app.changes == [("assigned", ALL)]


async def test_a_refusal_is_raised_by_polls_until_the_group_accepts_the_member() -> None:
    group = ClassicGroupModel()
    async with running(group) as app:
        app.requests.refuses = GROUP_AUTHORIZATION_FAILED
        await asyncio.sleep(5)
        for _ in range(2):
            with pytest.raises(FatalBrokerError, match="the right READ on the group is missing"):
                app.membership.raise_errors()
        assert app.reader.woken > 0
        app.requests.refuses = 0
        await app.until(lambda: app.owned == ALL)
        app.membership.raise_errors()


async def test_a_member_whose_instance_id_is_used_twice_stops_and_says_so() -> None:
    group = ClassicGroupModel()
    async with running(group, instance_id="till-1") as one:
        await one.until(lambda: one.owned == ALL)
        async with running(group, instance_id="till-1") as two:
            await two.until(lambda: two.owned == ALL)
            await one.until(lambda: one.owned == frozenset(), 2 * QUICK_BEAT_S)
            with pytest.raises(FencedError, match="group_instance_id = 'till-1'"):
                one.membership.raise_errors()
            assert one.changes[1:] == [("revoked", ALL)]


async def test_a_static_member_that_stops_keeps_its_place() -> None:
    group = ClassicGroupModel()
    async with running(group, instance_id="till-1") as app:
        await app.until(lambda: app.owned == ALL)
    assert len(group.members) == 1


async def test_a_member_that_nobody_polls_leaves_and_comes_back_with_the_next_poll() -> None:
    group = ClassicGroupModel()
    async with running(group) as app:
        await app.until(lambda: app.owned == ALL)
        app.polls = False
        await app.until(lambda: group.members == {}, MAX_POLL_INTERVAL_S + 1)
        assert app.changes[1:] == [("revoked", ALL)]
        app.polls = True
        await app.until(lambda: app.owned == ALL)


async def test_the_leader_notices_new_partitions() -> None:
    group = ClassicGroupModel()
    topics = {"orders": 4}
    async with running(group, topics=topics) as app:
        await app.until(lambda: app.owned == ALL)
        topics["orders"] = 6
        await app.until(lambda: len(app.owned) == 6, LOOK_S + 2)


async def test_a_static_leader_asks_what_the_group_has_kept_and_has_new_partitions_read() -> None:
    """A topic grows while it is away. The coordinator does not rebalance when it is back."""
    group = ClassicGroupModel()
    async with running(group, instance_id="till-1") as app:
        await app.until(lambda: app.owned == ALL)
    async with running(group, instance_id="till-1", topics={"orders": 6}) as again:
        await again.until(lambda: len(again.owned) == 6, LOOK_S / 2)
        assert [api for _, api in again.requests.asked].count(DESCRIBE_GROUPS) == 1


async def test_a_static_leader_that_nobody_tells_what_was_kept_reads_that() -> None:
    group = ClassicGroupModel()
    async with running(group, instance_id="till-1") as app:
        await app.until(lambda: app.owned == ALL)
    async with running(group, instance_id="till-1") as again:
        again.requests.describes_no_groups = True
        await again.until(lambda: again.owned == ALL)
        again.requests.topics = {"orders": 6}
        await again.until(lambda: len(again.owned) == 6, LOOK_S + 2)


async def test_a_leader_that_cannot_look_up_topics_tries_again_and_stays_a_member() -> None:
    group = ClassicGroupModel()
    async with running(group) as app:
        app.requests.are_topics_away = True
        await asyncio.sleep(20)
        assert app.state is ClassicMemberState.LEADING
        assert len(group.members) == 1
        app.requests.are_topics_away = False
        await app.until(lambda: app.owned == ALL)


async def test_what_the_listener_raises_is_raised_by_the_next_poll() -> None:
    group = ClassicGroupModel()
    async with running(group) as app:
        app.raises = ValueError("a bug")
        await app.until(lambda: app.reader.woken > 0)
        with pytest.raises(ValueError, match="a bug"):
            app.membership.raise_errors()
        app.membership.raise_errors()


async def test_a_commit_that_is_refused_because_the_member_is_unknown_loses_everything_at_once() -> (
    None
):
    group = ClassicGroupModel()
    async with running(group) as app:
        await app.until(lambda: app.owned == ALL)
        identity = app.membership.commit_identity()
        group.remove(identity.member_id, now())
        app.membership.refused_commit(identity, is_member=False)
        await app.until(lambda: ("revoked", ALL) in app.changes, 0.5)
        await app.until(lambda: app.owned == ALL)


async def test_a_commit_of_an_earlier_membership_that_is_refused_late_changes_nothing() -> None:
    group = ClassicGroupModel()
    async with running(group) as app:
        await app.until(lambda: app.owned == ALL)
        old = app.membership.commit_identity()
        group.remove(old.member_id, now())
        await app.until(lambda: len(app.changes) == 3)
        app.membership.refused_commit(old, is_member=False)
        await asyncio.sleep(1.0)
        assert app.state is ClassicMemberState.STABLE
        assert app.changes[1:] == [("revoked", ALL), ("assigned", ALL)]


async def test_before_the_group_has_answered_the_session_lasts_from_the_start() -> None:
    """Whoever watches the session sets a timer for its end, so there must be one."""
    group = ClassicGroupModel()
    async with running(group) as app:
        assert app.membership.session_ends_at() == now() + SESSION_S
        app.requests.is_away = True
        await asyncio.sleep(60)
        assert app.membership.session_ends_at() < now()


async def test_news_of_a_topic_makes_the_leader_look_at_once() -> None:
    group = ClassicGroupModel()
    async with running(group) as app:
        await app.until(lambda: app.owned == ALL)
        app.membership.topics_seen({"orders": range(4)})
        await asyncio.sleep(10.0)
        app.requests.topics = {"orders": 6}
        app.membership.topics_seen({"orders": range(6)})
        await app.until(lambda: len(app.owned) == 6, 0.5)


async def test_a_refused_commit_makes_the_member_hear_of_a_rebalance_at_once() -> None:
    group = ClassicGroupModel()
    async with running(group) as one:
        await one.until(lambda: one.owned == ALL)
        async with running(group) as two:
            await two.until(lambda: group.state == "preparing")
            one.membership.refused_commit(one.membership.commit_identity(), is_member=True)
            await one.until(lambda: ("revoked", ALL) in one.changes, 0.2)


async def test_a_member_that_is_stopped_while_it_joins_leaves_nothing_behind() -> None:
    group = ClassicGroupModel()
    async with running(group) as one:
        await one.until(lambda: one.owned == ALL)
        one.drain_s = 20.0
        async with running(group) as two:
            await two.until(lambda: two.state is ClassicMemberState.JOINING)
            await asyncio.sleep(1.0)
        assert two.changes == []
        assert len(group.members) == 1
        await one.until(lambda: one.state is ClassicMemberState.STABLE, 30.0)
        await one.until(lambda: one.owned == ALL)
