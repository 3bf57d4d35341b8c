"""The tasks of a member of the consumer protocol, in virtual time, and the rules of its group."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from reactive_kafka.broker.consumer.membership.consumer_group.heartbeat_answers import (
    GROUP_ID_NOT_FOUND,
)
from reactive_kafka.broker.consumer.membership.consumer_group.member import (
    ConsumerGroupMember,
    ConsumerMemberSettings,
)
from reactive_kafka.broker.consumer.membership.consumer_group.membership import (
    SESSION_EVERY_S,
    SESSION_S,
    WAITS,
    ConsumerGroupMembership,
)
from reactive_kafka.broker.consumer.membership.group_parts import LEAVE_DEADLINE_S, TopicView
from reactive_kafka.broker.consumer.membership.heartbeat_pace import ALL_OWNED_BEAT_S, QUICK_BEAT_S
from reactive_kafka.broker.consumer.membership.left_behind import MembersLeftBehind
from reactive_kafka.broker.memory.consumer_coordinator import (
    FENCED_INSTANCE_ID,
    ConsumerCoordinator,
)
from reactive_kafka.broker.wire.definitions import CONSUMER_GROUP_HEARTBEAT
from reactive_kafka.broker.wire.schema import Api
from reactive_kafka.errors import FatalBrokerError, FencedError, TransientBrokerError
from reactive_kafka.records import TopicPartition
from tests.broker.consumer.test_consumer_group_member import NAMES, TOPICS, partitions

pytestmark = pytest.mark.virtual_time

MAX_POLL_INTERVAL_S = 300.0
ALL = partitions("orders", 0, 1, 2, 3)
GROUP_AUTHORIZATION_FAILED = 30


class ModelRequests:
    """Passes requests to the rules of a group, unless an outage or a refusal is played."""

    def __init__(self, group: ConsumerCoordinator) -> None:
        self.group = group
        self.asked: list[tuple[float, Mapping[str, Any]]] = []
        self.is_away = False
        self.names_away = 0
        self.refuses = 0
        self.takes_s = 0.01
        self.lookups = 0
        self.session_s: float | None = None
        self.session_error: Exception | None = None
        self.asked_for_session = 0

    async def session_timeout_s(self) -> float | None:
        self.asked_for_session += 1
        if self.session_error is not None:
            raise self.session_error
        return self.session_s

    async def ask(
        self,
        api: Api,
        values: Mapping[str, Any] | Callable[[int], Mapping[str, Any]],
        *,
        deadline_s: float = 5.0,
    ) -> Mapping[str, Any]:
        assert api is CONSUMER_GROUP_HEARTBEAT
        assert not callable(values)
        now = asyncio.get_running_loop().time()
        self.asked.append((now, values))
        await asyncio.sleep(self.takes_s)
        if self.is_away:
            raise TransientBrokerError("no answer")
        if self.refuses:
            return {"error_code": self.refuses, "error_message": "because"}
        self.group.expire(now)
        return self.group.heartbeat(values, now)

    def coordinator_moved(self) -> None:
        self.lookups += 1

    def leave_deadline_s(self) -> float:
        return LEAVE_DEADLINE_S

    async def topic_names(self, ids: Collection[bytes]) -> Mapping[bytes, str]:
        if self.names_away:
            self.names_away -= 1
            raise TransientBrokerError("no answer")
        return {one: NAMES[one] for one in ids if one in NAMES}

    async def look_up(self, topics: Collection[str]) -> TopicView:
        raise AssertionError("no member assigns in the consumer protocol")


class Reader:
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


class Application:
    """A listener, and a task that polls."""

    def __init__(
        self,
        name: str,
        group: ConsumerCoordinator,
        rebalance_timeout_s: float = 60.0,
        **settings: Any,
    ) -> None:
        self.requests = ModelRequests(group)
        self.reader = Reader()
        self.membership = ConsumerGroupMembership(
            ConsumerGroupMember(
                ConsumerMemberSettings("group", name, int(rebalance_timeout_s * 1000), **settings)
            ),
            self.requests,
            self.reader,
            MAX_POLL_INTERVAL_S,
            MembersLeftBehind(),
        )
        self.told: list[tuple[str, frozenset[TopicPartition]]] = []
        self.told_at: list[float] = []
        self.generation = -1
        self.drain_s = 0.0
        self.polls = True
        self.raises: Exception | None = None
        self.while_revoked: Callable[[], None] = lambda: None

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        assert partitions <= self.reader.held
        assert not partitions & self.reader.read
        self.while_revoked()
        await asyncio.sleep(self.drain_s)
        self._note("revoked", partitions)

    async def on_assigned(self, partitions: frozenset[TopicPartition], generation: int) -> None:
        assert partitions <= self.reader.held
        self._note("assigned", partitions)
        self.generation = generation
        if self.raises is not None:
            raise self.raises

    @property
    def owned(self) -> frozenset[TopicPartition]:
        return self.membership.member.owned.partitions

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

    def _note(self, kind: str, partitions: frozenset[TopicPartition]) -> None:
        self.told.append((kind, partitions))
        self.told_at.append(now())


def now() -> float:
    return asyncio.get_running_loop().time()


@asynccontextmanager
async def running(
    name: str, group: ConsumerCoordinator, **settings: Any
) -> AsyncIterator[Application]:
    async with run(Application(name, group, **settings)) as app:
        yield app


@asynccontextmanager
async def run(app: Application) -> AsyncIterator[Application]:
    app.membership.start(app, ["orders"])
    polling = asyncio.create_task(app.poll())
    try:
        yield app
    finally:
        polling.cancel()
        await app.membership.close(None)


async def test_a_member_alone_gets_everything_and_leaves_at_its_stop() -> None:
    group = ConsumerCoordinator(dict(TOPICS))
    async with running("one", group) as app:
        await app.until(lambda: app.owned == ALL, 1.0)
        assert app.changes == [("assigned", ALL)]
        assert app.reader.held == ALL
    assert group.members == {}
    assert app.changes == [("assigned", ALL)]


async def test_a_partition_that_moves_comes_soon_after_the_drain_and_the_others_are_not_touched() -> (
    None
):
    group = ConsumerCoordinator(dict(TOPICS))
    async with running("one", group) as one:
        await one.until(lambda: one.owned == ALL)
        one.membership.topics_seen({"orders": range(4)})
        await asyncio.sleep(60)
        one.drain_s = 20.0
        began = now()
        async with running("two", group) as two:
            await two.until(lambda: len(two.owned) == 2, 30.0)
            # The first member learns of it with its next heartbeat, the second one with its next
            # after the drain.
            assert now() - began < 20.0 + ALL_OWNED_BEAT_S + QUICK_BEAT_S
            assert one.changes[1:] == [("revoked", two.owned)]
            assert one.owned == ALL - two.owned


async def test_heartbeats_go_on_during_a_drain_that_is_longer_than_a_session() -> None:
    group = ConsumerCoordinator(dict(TOPICS))
    async with running("one", group, rebalance_timeout_s=3 * SESSION_S) as one:
        await one.until(lambda: one.owned == ALL)
        one.drain_s = 2 * SESSION_S
        async with running("two", group) as two:
            await two.until(lambda: len(two.owned) == 2, 3 * SESSION_S)
            assert one.membership.member.is_member()
            assert [kind for kind, _ in one.changes] == ["assigned", "revoked"]


async def test_a_member_that_does_not_give_up_in_its_rebalance_timeout_is_removed_and_joins_again() -> (
    None
):
    group = ConsumerCoordinator(dict(TOPICS))
    async with running("one", group, rebalance_timeout_s=5.0) as one:
        await one.until(lambda: one.owned == ALL)
        one.drain_s = 20.0
        async with running("two", group) as two:
            await two.until(lambda: two.owned == ALL)
            assert not one.membership.member.is_member()
            assert one.changes == [("assigned", ALL)]
            await one.until(lambda: one.changes[-1][0] == "assigned" and len(one.changes) > 1, 60.0)
            (_, asked), (_, rest) = one.changes[1:3]
            assert (asked | rest, len(one.owned)) == (ALL, 2)


async def test_a_member_that_was_frozen_loses_everything_and_joins_again() -> None:
    group = ConsumerCoordinator(dict(TOPICS))
    async with running("one", group) as app:
        await app.until(lambda: app.owned == ALL)
        group.remove("one")
        seen = []
        app.while_revoked = lambda: seen.append(app.membership.member.is_member())
        await app.until(lambda: len(app.changes) == 3)
        assert app.changes[1:] == [("revoked", ALL), ("assigned", ALL)]
        assert seen == [False]


@pytest.mark.parametrize("outage_s", [1.0, 30.0, 3600.0])
async def test_an_outage_of_any_length_ends_with_all_partitions_owned(outage_s: float) -> None:
    group = ConsumerCoordinator(dict(TOPICS))
    async with running("one", group) as app:
        await app.until(lambda: app.owned == ALL)
        app.requests.is_away = True
        before = len(app.requests.asked)
        await asyncio.sleep(outage_s)
        attempts = len(app.requests.asked) - before
        assert attempts <= 10 + outage_s / (WAITS.last_s * 0.8)
        app.requests.is_away = False
        await app.until(lambda: app.membership.session_ends_at() > now() + 40.0, 5.0)
        await app.until(lambda: app.owned == ALL, 5.0)
        lost = outage_s > SESSION_S
        assert [kind for kind, _ in app.changes[1:]] == (["revoked", "assigned"] if lost else [])


async def test_a_refusal_is_raised_by_each_poll_until_the_group_accepts() -> None:
    group = ConsumerCoordinator(dict(TOPICS))
    async with running("one", group) as app:
        app.requests.refuses = GROUP_AUTHORIZATION_FAILED
        await app.until(lambda: app.reader.woken > 0)
        for _ in range(2):
            with pytest.raises(FatalBrokerError, match="the right READ on the group is missing"):
                app.membership.raise_errors()
        app.requests.refuses = 0
        await app.until(lambda: app.owned == ALL, 5.0)
        app.membership.raise_errors()


async def test_a_moved_coordinator_is_looked_up_and_nothing_is_lost() -> None:
    group = ConsumerCoordinator(dict(TOPICS))
    async with running("one", group) as app:
        await app.until(lambda: app.owned == ALL)
        app.requests.refuses = 16
        await app.until(lambda: app.requests.lookups > 1)
        app.requests.refuses = 0
        await asyncio.sleep(5.0)
        assert app.changes == [("assigned", ALL)]
        app.membership.raise_errors()


async def test_a_member_whose_group_became_classic_without_it_loses_everything_and_joins_again() -> (
    None
):
    group = ConsumerCoordinator(dict(TOPICS))
    async with running("one", group) as app:
        await app.until(lambda: app.owned == ALL)
        app.requests.refuses = GROUP_ID_NOT_FOUND
        await app.until(lambda: not app.owned)
        app.membership.raise_errors()
        app.requests.refuses = 0
        await app.until(lambda: app.owned == ALL, 5.0)
        assert app.changes == [("assigned", ALL), ("revoked", ALL), ("assigned", ALL)]


async def test_a_member_that_a_classic_group_does_not_take_in_says_what_an_operator_can_do() -> (
    None
):
    app = Application("one", ConsumerCoordinator(dict(TOPICS)))
    app.requests.refuses = GROUP_ID_NOT_FOUND
    async with run(app):
        await asyncio.sleep(5.0)
        with pytest.raises(FatalBrokerError, match=r"group\.consumer\.migration\.policy"):
            app.membership.raise_errors()


async def test_a_fenced_member_gives_up_everything_and_says_so_for_ever() -> None:
    group = ConsumerCoordinator(dict(TOPICS))
    async with running("one", group, instance_id="shop-1") as app:
        await app.until(lambda: app.owned == ALL)
        app.requests.refuses = FENCED_INSTANCE_ID
        await app.until(lambda: not app.owned)
        app.requests.refuses = 0
        asked = len(app.requests.asked)
        await asyncio.sleep(600)
        assert len(app.requests.asked) == asked
        with pytest.raises(FencedError, match="shop-1"):
            app.membership.raise_errors()


async def test_a_member_that_nobody_polls_leaves_and_comes_back_with_the_next_poll() -> None:
    group = ConsumerCoordinator(dict(TOPICS))
    async with running("one", group) as app:
        await app.until(lambda: app.owned == ALL)
        app.polls = False
        await app.until(lambda: not group.members, MAX_POLL_INTERVAL_S + 1)
        await asyncio.sleep(1000)
        assert app.changes == [("assigned", ALL), ("revoked", ALL)]
        asked = len(app.requests.asked)
        await asyncio.sleep(1000)
        assert len(app.requests.asked) == asked
        app.polls = True
        await app.until(lambda: app.owned == ALL, 5.0)


async def test_what_the_listener_raises_comes_out_of_the_next_poll_once() -> None:
    group = ConsumerCoordinator(dict(TOPICS))
    async with running("one", group) as app:
        app.raises = RuntimeError("a hook")
        await app.until(lambda: app.reader.woken > 0)
        with pytest.raises(RuntimeError, match="a hook"):
            app.membership.raise_errors()
        app.membership.raise_errors()


async def test_names_that_cannot_be_asked_for_are_asked_for_again() -> None:
    group = ConsumerCoordinator(dict(TOPICS))
    async with running("one", group) as app:
        app.requests.names_away = 3
        await app.until(lambda: app.owned == ALL, 5.0)


async def test_it_leaves_once_if_it_is_closed_twice_at_the_same_time() -> None:
    group = ConsumerCoordinator(dict(TOPICS))
    async with running("one", group) as app:
        await app.until(lambda: app.owned == ALL)
        app.requests.asked.clear()
        await asyncio.gather(app.membership.close(None), app.membership.close(None))
        assert [values["member_epoch"] for _, values in app.requests.asked] == [-1]


async def test_a_stop_during_a_revocation_leaves_at_once() -> None:
    group = ConsumerCoordinator(dict(TOPICS))
    async with running("one", group) as one:
        await one.until(lambda: one.owned == ALL)
        one.drain_s = 1000.0
        async with running("two", group) as two:
            await one.until(lambda: one.reader.held > one.reader.read)
            await one.membership.close(None)
            await two.until(lambda: two.owned == ALL, 2.0)


async def test_a_quiet_member_sends_a_heartbeat_a_second_and_half_of_that_if_it_owns_all() -> None:
    group = ConsumerCoordinator(dict(TOPICS))
    async with running("one", group) as app:
        await app.until(lambda: app.owned == ALL)
        await asyncio.sleep(60)
        before = len(app.requests.asked)
        await asyncio.sleep(600)
        sent = len(app.requests.asked) - before
        assert 600 / QUICK_BEAT_S * 0.95 <= sent <= 600 / QUICK_BEAT_S
        app.membership.topics_seen({"orders": range(4)})
        before = len(app.requests.asked)
        await asyncio.sleep(600)
        sent = len(app.requests.asked) - before
        assert 600 / ALL_OWNED_BEAT_S * 0.95 <= sent <= 600 / ALL_OWNED_BEAT_S + 1


async def test_a_change_of_topics_is_told_at_once() -> None:
    group = ConsumerCoordinator(dict(TOPICS))
    async with running("one", group) as app:
        await app.until(lambda: app.owned == ALL)
        await asyncio.sleep(20.0)
        app.membership.subscribe(["orders", "bills"])
        await app.until(lambda: len(app.owned) == 7, 0.1)
        assert app.changes[-1] == ("assigned", partitions("bills", 0, 1, 2))


async def test_the_session_lasts_as_long_as_the_group_says() -> None:
    app = Application("one", ConsumerCoordinator(dict(TOPICS)))
    app.requests.session_s = 6.0
    app.requests.session_error = TransientBrokerError("no answer")
    async with run(app):
        await app.until(lambda: app.requests.asked_for_session > 3, 30.0)
        assert app.membership.session_ends_at() > now() + SESSION_S - 2
        app.requests.session_error = None
        await app.until(lambda: app.membership.session_ends_at() <= now() + 6.0, 5.0)
        # An operator changes it.
        app.requests.session_s = 90.0
        await app.until(
            lambda: app.membership.session_ends_at() > now() + 80.0, SESSION_EVERY_S + 1
        )
        asked = app.requests.asked_for_session
        await asyncio.sleep(SESSION_EVERY_S)
        assert app.requests.asked_for_session == asked + 1


@pytest.mark.parametrize("error", [None, FatalBrokerError("no such resource")])
async def test_where_the_group_does_not_say_how_long_a_session_is_kafkas_default_is_taken(
    error: Exception | None,
) -> None:
    app = Application("one", ConsumerCoordinator(dict(TOPICS)))
    app.requests.session_error = error
    async with run(app):
        await app.until(lambda: app.requests.asked_for_session > 0, 5.0)
        await asyncio.sleep(10.0)
        assert app.membership.session_ends_at() > now() + SESSION_S - 2
        assert app.requests.asked_for_session == 1


async def test_before_the_group_has_answered_the_session_lasts_from_the_start() -> None:
    """Whoever watches the session sets a timer for its end, so there must be one."""
    group = ConsumerCoordinator(dict(TOPICS))
    async with running("one", group) as app:
        assert app.membership.session_ends_at() == now() + SESSION_S
        app.requests.is_away = True
        await asyncio.sleep(60)
        assert app.membership.session_ends_at() < now()


async def test_the_session_begins_when_the_heartbeat_is_sent_and_not_when_it_is_answered() -> None:
    group = ConsumerCoordinator(dict(TOPICS))
    async with running("one", group) as app:
        await app.until(lambda: app.owned == ALL)
        app.requests.takes_s = 2.0
        before = len(app.requests.asked)
        await app.until(lambda: len(app.requests.asked) == before + 2)
        sent_at, _ = app.requests.asked[before]
        assert app.membership.session_ends_at() == sent_at + SESSION_S


async def test_a_commit_that_was_refused_as_stale_makes_the_next_heartbeat_due() -> None:
    group = ConsumerCoordinator(dict(TOPICS))
    async with running("one", group) as app:
        await app.until(lambda: app.owned == ALL)
        await asyncio.sleep(20.1)
        asked = len(app.requests.asked)
        app.membership.refused_commit(app.membership.commit_identity(), is_member=True)
        await asyncio.sleep(0.02)
        assert len(app.requests.asked) == asked + 1
        app.membership.refused_commit(app.membership.commit_identity(), is_member=False)
        await app.until(lambda: len(app.changes) == 3, 1.0)
        assert app.changes[1:] == [("revoked", ALL), ("assigned", ALL)]
