"""Members of the consumer protocol against the in-memory coordinator, with faults in between."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    rule,
)

from reactive_kafka.broker.consumer.membership.consumer_group.heartbeat_answers import (
    HeartbeatAnswer,
    meaning_of,
)
from reactive_kafka.broker.consumer.membership.consumer_group.member import (
    ConsumerGroupMember,
    ConsumerMemberSettings,
)
from reactive_kafka.broker.consumer.membership.consumer_group.member_states import (
    ConsumerMemberState,
)
from reactive_kafka.broker.consumer.membership.heartbeat_pace import (
    ALL_OWNED_BEAT_S,
    QUICK_BEAT_S,
    SETTLING_BEAT_S,
)
from reactive_kafka.broker.consumer.membership.rebalance_steps import (
    AssignStep,
    LoseStep,
    RebalanceStep,
    RevokeStep,
)
from reactive_kafka.broker.memory.consumer_coordinator import ConsumerCoordinator, KnownMember
from reactive_kafka.errors import NotOwnerError
from reactive_kafka.records import TopicPartition

ORDERS = b"orders-topic-id."
BILLS = b"bills-topic-id.."
TOPICS = {"orders": (ORDERS, 4), "bills": (BILLS, 3)}
NAMES = {ORDERS: "orders", BILLS: "bills"}
WAIT_S = 0.1


def make_member(
    name: str = "one", topics: Iterable[str] = ("orders",), **settings: Any
) -> ConsumerGroupMember:
    member = ConsumerGroupMember(ConsumerMemberSettings("group", name, 60_000, **settings))
    member.subscribe(topics)
    return member


class Played:
    """One member, its coordinator, and what its listener was told."""

    def __init__(self, group: ConsumerCoordinator, member: ConsumerGroupMember) -> None:
        self.group = group
        self.member = member
        self.steps: list[RebalanceStep] = []
        self.step: RebalanceStep | None = None
        self.generation = -1
        # Partition -> the generation in which it was assigned last.
        self.owned_before: dict[TopicPartition, int] = {}

    def beat(self, now: float, *, request_lost: bool = False, answer_lost: bool = False) -> Any:
        """Send a heartbeat if one is due; it may not arrive, or its answer may not."""
        member = self.member
        if member.due_at() == inf:
            return None
        values = member.heartbeat()
        if request_lost:
            member.refused(now, WAIT_S)
            return None
        answer = self.group.heartbeat(values, now)
        if answer_lost:
            member.refused(now, WAIT_S)
            return None
        meaning = meaning_of(answer["error_code"], is_join=values["member_epoch"] == 0)
        if meaning is HeartbeatAnswer.ACCEPTED:
            had_step = self.step is not None or member.next_step() is not None
            may_have_step = member.answered(answer, now)
            # The listener is only called after such an answer.
            assert may_have_step or had_step or member.next_step() is None
        elif meaning is HeartbeatAnswer.REMOVED:
            member.removed(now, WAIT_S)
        elif meaning is HeartbeatAnswer.FENCED:
            member.fenced()
        else:
            member.refused(now, WAIT_S)
        known = {topic_id: name for name, (topic_id, _) in self.group.topics.items()}
        member.learn({one: known[one] for one in member.unknown_topic_ids() if one in known})
        return answer

    def begin_step(self) -> None:
        """Call the listener, if there is something to tell it."""
        if self.step is None:
            self.step = self.member.next_step()
            if self.step is not None:
                self.member.begin(self.step)
                self.steps.append(self.step)
                if isinstance(self.step, AssignStep):
                    self._check_generation(self.step.partitions)

    def _check_generation(self, partitions: frozenset[TopicPartition]) -> None:
        """Generations never go back, and grow until a partition that went comes back."""
        generation = self.member.owned.generation
        assert generation >= self.generation
        self.generation = generation
        for partition in partitions:
            assert generation > self.owned_before.get(partition, -1)
            self.owned_before[partition] = generation

    def finish_step(self) -> None:
        """Let the listener return."""
        step = self.step
        self.step = None
        if step is not None:
            self.member.done(step)

    def settle(self, now: float = 0.0) -> None:
        """Send heartbeats and call the listener until nothing is left to do."""
        for _ in range(20):
            self.beat(now)
            for _ in range(5):
                self.begin_step()
                self.finish_step()

    @property
    def is_known(self) -> bool:
        """True if the coordinator takes it for a member, and it takes itself for one."""
        return (
            self.member.settings.member_id in self.group.members
            and self.member.state is ConsumerMemberState.MEMBER
        )


class GroupMachine(RuleBasedStateMachine):
    """Members come, go, freeze and are removed; requests and answers are lost; topics change."""

    members = Bundle("members")

    @initialize()
    def begin(self) -> None:
        self.now = 0.0
        self.group = ConsumerCoordinator(dict(TOPICS))
        self.played: list[Played] = []
        self.count = 0

    @rule(target=members, topics=st.sampled_from([("orders",), ("bills",), ("bills", "orders")]))
    def start_member(self, topics: tuple[str, ...]) -> Played:
        return self.start(topics)

    def start(self, topics: tuple[str, ...] = ("orders",)) -> Played:
        """Start one more member."""
        self.count += 1
        played = Played(self.group, make_member(f"member-{self.count}", topics))
        self.played.append(played)
        return played

    @rule(played=members)
    def beat(self, played: Played) -> None:
        played.beat(self.now)

    @rule(played=members)
    def request_lost(self, played: Played) -> None:
        played.beat(self.now, request_lost=True)

    @rule(played=members)
    def answer_lost(self, played: Played) -> None:
        played.beat(self.now, answer_lost=True)

    @rule(played=members)
    def begin_step(self, played: Played) -> None:
        played.begin_step()

    @rule(played=members)
    def finish_step(self, played: Played) -> None:
        played.finish_step()

    @rule(played=consumes(members))
    def stop(self, played: Played) -> None:
        last = played.member.leave()
        if last is not None:
            self.group.heartbeat(last, self.now)
        self.played.remove(played)

    @rule(played=consumes(members))
    def kill(self, played: Played) -> None:
        self.played.remove(played)

    @rule(played=members)
    def nobody_polls(self, played: Played) -> None:
        member = played.member
        if member.state in (ConsumerMemberState.OUT, ConsumerMemberState.MEMBER):
            last = member.overdue()
            if last is not None:
                self.group.heartbeat(last, self.now)

    @rule(played=members)
    def poll(self, played: Played) -> None:
        member = played.member
        is_over = member.state is ConsumerMemberState.OVERDUE and played.step is None
        if is_over and not member.owned.partitions:
            member.polled()

    @rule(played=members)
    def remove(self, played: Played) -> None:
        self.group.remove(played.member.settings.member_id)

    @rule(seconds=st.sampled_from([0.3, 5.0, 44.0, 60.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.group.expire(self.now)

    @rule(orders=st.integers(1, 6), is_new=st.booleans())
    def change_topics(self, orders: int, is_new: bool) -> None:
        topic_id = b"orders-new-id..." if is_new else ORDERS
        self.group.change_topics({**TOPICS, "orders": (topic_id, orders)})

    @rule(played=members, topics=st.sampled_from([("orders",), ("bills", "orders")]))
    def subscribe(self, played: Played, topics: tuple[str, ...]) -> None:
        played.member.subscribe(topics)

    @invariant()
    def each_partition_has_one_owner(self) -> None:
        """A member that the group has removed, and that does not know it, is not counted."""
        owners: dict[Any, str] = {}
        for played in getattr(self, "played", ()):
            if not played.is_known:
                continue
            name = played.member.settings.member_id
            for one in played.member._ids.values():
                assert one not in owners, f"{one} is owned by {owners[one]} and {name}"
                owners[one] = name

    def teardown(self) -> None:
        """Once the faults are over, each partition has an owner again."""
        self.now += 100.0
        for _ in range(60):
            self.now += SETTLING_BEAT_S
            self.group.expire(self.now)
            for played in self.played:
                member = played.member
                if member.state is ConsumerMemberState.OVERDUE and not member.owned.partitions:
                    member.polled()
                played.beat(self.now)
                played.finish_step()
                played.begin_step()
                played.finish_step()
        assert self.group.is_stable()
        for topic, (topic_id, count) in self.group.topics.items():
            owned = [
                one.partition
                for played in self.played
                for one in played.member._ids.values()
                if one.topic_id == topic_id
            ]
            has_readers = any(topic in played.member._topics for played in self.played)
            assert sorted(owned) == (list(range(count)) if has_readers else [])


TestGroupMachine = GroupMachine.TestCase
TestGroupMachine.settings = settings(max_examples=200, stateful_step_count=60, deadline=None)


def joined(**settings: Any) -> Played:
    played = Played(ConsumerCoordinator(dict(TOPICS)), make_member(**settings))
    played.settle()
    return played


def partitions(topic: str, *numbers: int) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic, number) for number in numbers)


def test_the_first_heartbeat_tells_all_and_the_next_one_only_that_it_lives() -> None:
    played = Played(ConsumerCoordinator(dict(TOPICS)), make_member(rack="a", assignor="range"))
    first = played.member.heartbeat()
    assert first["member_epoch"] == 0
    assert first["subscribed_topic_names"] == ["orders"]
    assert first["topic_partitions"] == []
    assert (first["rack_id"], first["server_assignor"]) == ("a", "range")
    assert first["rebalance_timeout_ms"] == 60_000

    played.member.answered(played.group.heartbeat(first, 0.0), 0.0)
    second = played.member.heartbeat()
    told = ("rack_id", "subscribed_topic_names", "server_assignor", "topic_partitions")
    assert [second[name] for name in told] == [None] * 4
    assert second["member_epoch"] == 1
    assert second["rebalance_timeout_ms"] == -1


def test_after_a_lost_answer_the_heartbeat_tells_all_again() -> None:
    played = joined()
    played.beat(1.0, answer_lost=True)
    again = played.member.heartbeat()
    assert again["subscribed_topic_names"] == ["orders"]
    assert again["topic_partitions"] == [{"topic_id": ORDERS, "partitions": [0, 1, 2, 3]}]


def test_only_what_moves_is_revoked_and_what_stays_is_not_named() -> None:
    first = joined()
    second = Played(first.group, make_member("two"))
    before = len(first.steps)
    second.settle()
    first.settle()
    second.settle()
    revoked = [step for step in first.steps[before:] if isinstance(step, RevokeStep)]
    assert revoked == [RevokeStep(partitions("orders", 2, 3))]
    assert first.member.owned.partitions == partitions("orders", 0, 1)
    assert second.member.owned.partitions == partitions("orders", 2, 3)


def test_what_goes_is_not_given_to_another_before_the_listener_has_returned() -> None:
    first = joined()
    second = Played(first.group, make_member("two"))
    second.settle()
    first.beat(1.0)
    first.begin_step()
    assert isinstance(first.step, RevokeStep)
    for _ in range(10):
        first.beat(1.0)
        second.settle()
    assert second.member.owned.partitions == frozenset()
    first.finish_step()
    first.beat(1.0)
    second.settle()
    assert second.member.owned.partitions == first.steps[-1].partitions


def test_a_heartbeat_is_due_at_once_after_a_revocation_and_after_an_assignment() -> None:
    first = joined()
    Played(first.group, make_member("two")).settle()
    first.beat(1.0)
    first.begin_step()
    assert first.member.due_at() > 1.0
    first.finish_step()
    assert first.member.due_at() == -inf


def test_heartbeats_are_close_together_after_a_change_and_then_less_so() -> None:
    played = joined()
    played.beat(3.0)
    assert played.member.due_at() == 3.0 + SETTLING_BEAT_S
    played.beat(50.0)
    assert 50.0 < played.member.due_at() <= 50.0 + QUICK_BEAT_S


@pytest.mark.parametrize(
    ("known", "is_last"),
    [
        ({}, False),
        ({"orders": range(4)}, True),
        # A topic has grown, and the group has not assigned its new partition.
        ({"orders": range(5)}, False),
        ({"bills": range(3)}, False),
    ],
)
def test_heartbeats_are_rarer_while_no_other_member_has_a_partition(
    known: dict[str, range], is_last: bool
) -> None:
    played = joined()
    played.member.topics_seen(known)
    played.beat(3.0)
    assert played.member.due_at() == 3.0 + SETTLING_BEAT_S
    played.beat(50.1)
    assert (played.member.due_at() > 50.1 + QUICK_BEAT_S) is is_last
    assert played.member.due_at() <= 50.1 + ALL_OWNED_BEAT_S
    other = Played(played.group, make_member("two"))
    other.settle(51.0)
    played.settle(51.0)
    played.beat(60.1)
    assert played.member.due_at() <= 60.1 + QUICK_BEAT_S


def test_only_an_answer_with_news_has_the_listener_called() -> None:
    played = Played(ConsumerCoordinator(dict(TOPICS)), make_member())
    member = played.member
    assert member.answered(played.group.heartbeat(member.heartbeat(), 0.0), 0.0)
    # The name of the topic is missing: it has to be asked for again.
    assert member.answered(played.group.heartbeat(member.heartbeat(), 0.0), 0.0)
    played.settle()
    assert not member.answered(played.group.heartbeat(member.heartbeat(), 1.0), 1.0)


@pytest.mark.parametrize("now", [50.0, 50.01, 50.2499, 50.25, 50.3, 12_345.678])
def test_members_of_a_process_send_their_heartbeats_together(now: float) -> None:
    one, other = joined(), joined()
    one.beat(now)
    other.beat(now + 1e-3)
    gap_s = other.member.due_at() - one.member.due_at()
    assert gap_s in (0.0, pytest.approx(QUICK_BEAT_S))
    one.beat(one.member.due_at() + 1e-3)
    other.beat(other.member.due_at() + 1e-3 - gap_s)
    assert one.member.due_at() == other.member.due_at()


def test_a_member_that_was_removed_loses_everything_at_once_and_joins_again() -> None:
    played = joined()
    generation = played.member.owned.generation
    played.group.remove("one")
    played.beat(1.0)
    assert not played.member.is_member()
    assert played.member.next_step() == LoseStep(partitions("orders", 0, 1, 2, 3))
    assert played.member.due_at() == inf
    played.settle(1.0)
    assert played.member.is_member()
    assert played.member.owned.partitions == partitions("orders", 0, 1, 2, 3)
    assert played.member.owned.generation > generation


def test_a_member_whose_epoch_is_fenced_loses_everything_and_joins_again() -> None:
    played = joined()
    owned = played.member.owned.partitions
    known = played.group.members["one"]
    known.previous_epoch = known.epoch + 1
    known.epoch += 2
    played.settle()
    kinds = [type(step) for step in played.steps if step.partitions]
    assert kinds == [AssignStep, LoseStep, AssignStep]
    assert played.is_known
    assert played.member.owned.partitions == owned


def test_a_partition_that_comes_back_is_not_committed_with_the_generation_of_before() -> None:
    played = joined()
    generation = played.member.owned.generation
    played.group.remove("one")
    played.settle(1.0)
    [first, *_] = sorted(played.member.owned.partitions)
    with pytest.raises(NotOwnerError, match=f"assigned after generation {generation}: orders-0"):
        played.member.owned.check([first], generation)
    played.member.owned.check([first], played.member.owned.generation)


def test_the_generation_grows_although_the_group_was_deleted_and_begins_at_one() -> None:
    played = joined()
    played.group.begin_epoch()
    played.group.begin_epoch()
    played.settle()
    generation = played.member.owned.generation
    played.group = ConsumerCoordinator(dict(TOPICS))
    played.settle()
    assert played.member.epoch < generation < played.member.owned.generation


def test_a_pattern_without_a_topic_owns_nothing_and_asks_for_nothing_until_one_appears() -> None:
    played = Played(ConsumerCoordinator(dict(TOPICS)), make_member(topics=()))
    played.settle()
    assert played.steps == [AssignStep(frozenset())]
    assert played.group.members == {}
    played.member.subscribe(["orders"])
    played.settle()
    assert played.member.owned.partitions == partitions("orders", 0, 1, 2, 3)


def test_a_pattern_whose_last_topic_is_deleted_stays_a_member_until_another_one_appears() -> None:
    played = joined()
    played.group.change_topics({"bills": (BILLS, 3)})
    played.member.subscribe(())
    played.settle(1.0)
    assert played.member.owned.partitions == frozenset()
    assert played.member.state is ConsumerMemberState.MEMBER
    assert played.member.due_at() < inf
    played.member.subscribe(["bills"])
    played.settle(10.0)
    assert played.member.owned.partitions == partitions("bills", 0, 1, 2)
    assert not [step for step in played.steps if isinstance(step, LoseStep)]


def test_a_topic_that_was_created_again_is_revoked_and_assigned() -> None:
    played = joined()
    played.group.change_topics({**TOPICS, "orders": (b"another-topic-id", 1)})
    before = len(played.steps)
    played.settle(1.0)
    revoked, *others = [step for step in played.steps[before:] if step.partitions]
    assert revoked == RevokeStep(partitions("orders", 0, 1, 2, 3))
    assert [step.partitions for step in others] == [partitions("orders", 0)]


def test_a_topic_whose_name_is_not_known_yet_waits_and_the_others_come() -> None:
    group = ConsumerCoordinator(dict(TOPICS))
    member = make_member(topics=("bills", "orders"))
    member.answered(group.heartbeat(member.heartbeat(), 0.0), 0.0)
    assert member.unknown_topic_ids() == {ORDERS, BILLS}
    assert member.next_step() == AssignStep(frozenset())
    member.learn({BILLS: "bills"})
    assert member.next_step() == AssignStep(partitions("bills", 0, 1, 2))
    assert member.unknown_topic_ids() == {ORDERS}


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, -1), ("shop-1", -2)])
def test_a_stop_leaves_the_group_and_a_static_member_says_that_it_may_come_back(
    instance_id: str | None, epoch: int
) -> None:
    played = joined(instance_id=instance_id)
    last = played.member.leave()
    assert last is not None
    assert (last["member_epoch"], last["instance_id"]) == (epoch, instance_id)
    assert played.member.next_step() is None
    assert played.member.due_at() == inf


def test_a_member_that_never_joined_has_nothing_to_say_when_it_stops() -> None:
    assert make_member().leave() is None


def test_a_static_member_that_comes_back_gets_its_partitions_without_a_rebalance() -> None:
    first = joined(instance_id="shop-1")
    other = Played(first.group, make_member("two"))
    for _ in range(3):
        other.settle()
        first.settle()
    theirs = first.member.owned.partitions
    before = len(other.steps)
    last = first.member.leave()
    assert last is not None
    first.group.heartbeat(last, 2.0)
    again = Played(first.group, make_member("one-again", instance_id="shop-1"))
    again.settle(3.0)
    other.settle(3.0)
    assert again.member.owned.partitions == theirs
    assert [step.partitions for step in other.steps[before:] if step.partitions] == []


def test_a_second_member_with_the_same_instance_id_waits_until_the_first_one_has_left() -> None:
    first = joined(instance_id="shop-1")
    second = Played(first.group, make_member("two", instance_id="shop-1"))
    answer = second.beat(1.0)
    assert meaning_of(answer["error_code"], is_join=True) is HeartbeatAnswer.OPERATOR
    assert second.member.due_at() == 1.0 + WAIT_S
    first.group.expire(100.0)
    second.settle(100.0)
    assert second.member.owned.partitions == partitions("orders", 0, 1, 2, 3)


def test_a_fenced_member_loses_everything_and_never_joins_again() -> None:
    played = joined(instance_id="shop-1")
    played.member.fenced()
    assert isinstance(played.member.next_step(), LoseStep)
    played.begin_step()
    played.finish_step()
    assert played.member.next_step() is None
    assert played.member.due_at() == inf


def test_a_member_that_nobody_polls_leaves_and_comes_back_with_the_next_poll() -> None:
    played = joined()
    last = played.member.overdue()
    assert last is not None
    played.group.heartbeat(last, 1.0)
    assert played.group.members == {}
    played.begin_step()
    assert played.step == LoseStep(partitions("orders", 0, 1, 2, 3))
    played.finish_step()
    assert played.member.due_at() == inf
    played.member.polled()
    played.settle(2.0)
    assert played.member.owned.partitions == partitions("orders", 0, 1, 2, 3)


def test_a_static_member_that_nobody_polls_does_not_keep_its_partitions() -> None:
    played = joined(instance_id="shop-1")
    last = played.member.overdue()
    assert last is not None
    assert last["member_epoch"] == -1


def test_an_answer_that_comes_after_the_stop_changes_nothing() -> None:
    member = make_member()
    group = ConsumerCoordinator(dict(TOPICS))
    answer = group.heartbeat(member.heartbeat(), 0.0)
    member.leave()
    member.answered(answer, 0.0)
    assert member.state is ConsumerMemberState.LEFT
    assert member.next_step() is None


def test_the_model_does_not_give_a_partition_to_two_members() -> None:
    """The judge of the state machine notices two owners."""
    machine = GroupMachine()
    machine.begin()
    first = machine.start()
    first.settle()
    second = machine.start()
    second.member._ids = dict(first.member._ids)
    second.member.state = ConsumerMemberState.MEMBER
    machine.group.members["member-2"] = KnownMember("member-2")
    with pytest.raises(AssertionError, match="is owned by"):
        machine.each_partition_has_one_owner()
