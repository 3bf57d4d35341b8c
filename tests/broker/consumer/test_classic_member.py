"""The rules of a member in the classic protocol, played against a model of the coordinator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
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

from reactive_kafka.broker.consumer.membership.classic_group.assignors.named_assignors import (
    DEFAULT_ASSIGNORS,
    assignors_named,
)
from reactive_kafka.broker.consumer.membership.classic_group.classic_answers import (
    ClassicAnswer,
    ClassicRequest,
)
from reactive_kafka.broker.consumer.membership.classic_group.classic_states import (
    ClassicMemberState,
)
from reactive_kafka.broker.consumer.membership.classic_group.leader_rules import (
    AssignorError,
    partitions_kept,
)
from reactive_kafka.broker.consumer.membership.classic_group.member_rules import (
    AnswerEffect,
    ClassicGroupMember,
    ClassicMemberSettings,
    leave_values,
)
from reactive_kafka.broker.consumer.membership.heartbeat_pace import (
    ALL_OWNED_BEAT_S,
    QUICK_BEAT_S,
    SETTLING_BEAT_S,
    SETTLING_S,
)
from reactive_kafka.broker.consumer.membership.rebalance_steps import (
    AssignStep,
    LoseStep,
    RebalanceStep,
    RevokeStep,
)
from reactive_kafka.broker.wire.codec import encode
from reactive_kafka.broker.wire.definitions import LEAVE_GROUP
from reactive_kafka.broker.wire.schema import versions_of
from reactive_kafka.records import TopicPartition
from tests.broker.consumer.classic_group_model import ClassicGroupModel

State = ClassicMemberState
TOPICS = {"orders": 6, "bills": 4}
WAIT_S = 0.5
COOPERATIVE = ("cooperative-sticky",)


def orders(*numbers: int) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition("orders", number) for number in numbers)


def make_member(
    topics: Sequence[str] = ("orders",),
    assignors: Sequence[str] = DEFAULT_ASSIGNORS,
    instance_id: str | None = None,
) -> ClassicGroupMember:
    member = ClassicGroupMember(
        ClassicMemberSettings(
            group_id="billing",
            assignors=assignors_named(assignors),
            rebalance_timeout_ms=60_000,
            session_timeout_ms=45_000,
            instance_id=instance_id,
        )
    )
    member.subscribe(topics)
    return member


class PlayedMember:
    """A member with the shell around it: one request at a time, and one call of the listener."""

    def __init__(
        self, group: ClassicGroupModel, topics: Mapping[str, int], member: ClassicGroupMember
    ) -> None:
        self.group = group
        self.topics = topics
        self.member = member
        self.step: RebalanceStep | None = None
        self.steps: list[RebalanceStep] = []
        # Of the calls of on_assigned.
        self.generations: list[int] = []
        self.effects: list[AnswerEffect] = []
        self.requests: list[ClassicRequest] = []
        # The number of the request whose answer counts. Answers to earlier ones were lost.
        self._awaited = 0
        self._answers: list[dict[str, Any]] = []

    def send(self, now: float, *, is_lost: bool = False) -> None:
        """Send the request that is due. Its answer may come later."""
        if self.member.due_at() > now:
            return
        request, values = self.member.next_request(now)
        self.requests.append(request)
        self._awaited += 1
        if is_lost:
            return
        number = self._awaited
        if request is ClassicRequest.JOIN:
            self.group.join(values, now, lambda answer: self._answer(number, answer))
        elif request is ClassicRequest.SYNC:
            self.group.sync(values, now, lambda answer: self._answer(number, answer))
        else:
            self._answer(number, self.group.heartbeat(values, now))

    def _answer(self, number: int, answer: dict[str, Any]) -> None:
        if number == self._awaited:
            self._answers.append(answer)

    def receive(self, now: float) -> None:
        """Take in the answer that has come, and lead the group if it says so."""
        if self._answers:
            self.effects.append(self.member.answered(self._answers.pop(), now, WAIT_S))
        if self.member.state is State.LEADING:
            self.member.lead(self.partitions(), {}, now, WAIT_S)

    def lose_answer(self, now: float) -> None:
        """The answer does not come: the request has timed out, or the connection was closed."""
        self._answers.clear()
        self._awaited += 1
        self.member.unanswered(now, WAIT_S)

    def look_at_topics(self) -> None:
        if self.member.topics_to_lead() is None:
            return
        if self.member.wants_kept_partitions():
            kept = partitions_kept(self.group.describe())
            if kept is not None:
                self.member.kept_partitions_seen(kept)
        self.member.partitions_seen(self.partitions())

    def partitions(self) -> dict[str, range]:
        return {topic: range(count) for topic, count in self.topics.items()}

    def begin_step(self) -> None:
        """Call the listener, if there is something to tell it."""
        if self.step is None:
            self.step = self.member.next_step()
            if self.step is not None:
                self.member.begin(self.step)
                self.steps.append(self.step)
                if isinstance(self.step, AssignStep):
                    self.generations.append(self.member.owned.generation)

    def finish_step(self) -> None:
        """Let the listener return."""
        step = self.step
        self.step = None
        if step is not None:
            self.member.done(step)

    def poll(self) -> None:
        member = self.member
        if member.state is State.OVERDUE and self.step is None and not member.owned.partitions:
            member.polled()

    @property
    def is_known(self) -> bool:
        """True if the coordinator takes it for a member, and it takes itself for one."""
        return self.member.member_id in self.group.members and self.member.is_member()


class PlayedGroup:
    """Members and their coordinator, with all requests answered at once."""

    def __init__(self, topics: Mapping[str, int] = TOPICS) -> None:
        self.topics = dict(topics)
        self.group = ClassicGroupModel()
        self.now = 0.0
        self.played: list[PlayedMember] = []

    def start(
        self,
        topics: Sequence[str] = ("orders",),
        assignors: Sequence[str] = DEFAULT_ASSIGNORS,
        instance_id: str | None = None,
    ) -> PlayedMember:
        played = PlayedMember(self.group, self.topics, make_member(topics, assignors, instance_id))
        self.played.append(played)
        return played

    def round(self, seconds: float = 1.0, stuck: PlayedMember | None = None) -> None:
        """Let time pass, and let everyone do once what they have to.

        The listener of the *stuck* member does not return.
        """
        self.now += seconds
        self.group.tick(self.now)
        for played in self.played:
            played.poll()
            played.receive(self.now)
            if played is not stuck:
                played.finish_step()
            played.begin_step()
            played.look_at_topics()
            played.send(self.now)

    def settle(self, rounds: int = 30) -> None:
        for _ in range(rounds):
            self.round()

    def owners(self) -> dict[TopicPartition, list[PlayedMember]]:
        """Partition -> members that own it, without those that the group has removed."""
        found: dict[TopicPartition, list[PlayedMember]] = {}
        for played in self.played:
            if played.is_known:
                for partition in played.member.owned.partitions:
                    found.setdefault(partition, []).append(played)
        return found


def settled_group(
    size: int, assignors: Sequence[str] = DEFAULT_ASSIGNORS
) -> tuple[PlayedGroup, list[PlayedMember]]:
    """A group that has its partitions. What has happened so far is forgotten."""
    group = PlayedGroup()
    members = [group.start(assignors=assignors) for _ in range(size)]
    group.settle()
    for played in members:
        played.receive(group.now)
        assert played.member.state is State.STABLE
        played.steps.clear()
        played.effects.clear()
        played.requests.clear()
    return group, members


class ClassicGroupMachine(RuleBasedStateMachine):
    """Members come, go, freeze and are removed; answers are lost; the coordinator moves."""

    members = Bundle("members")

    @initialize(assignors=st.sampled_from([DEFAULT_ASSIGNORS, COOPERATIVE, ("sticky",)]))
    def begin(self, assignors: Sequence[str]) -> None:
        self.world = PlayedGroup()
        self.assignors = assignors
        self.instances = 0

    @rule(
        target=members,
        topics=st.sampled_from([("orders",), ("bills",), ("bills", "orders")]),
        is_static=st.booleans(),
    )
    def start_member(self, topics: tuple[str, ...], is_static: bool) -> PlayedMember:
        self.instances += 1
        name = f"instance-{self.instances}" if is_static else None
        return self.world.start(topics, self.assignors, name)

    @rule(target=members, topics=st.sampled_from([("orders",), ("bills", "orders")]))
    def start_member_of_any_kind(self, topics: tuple[str, ...]) -> PlayedMember:
        """A member that is being upgraded to cooperative rebalances, or back."""
        both = ("range", "sticky", "cooperative-sticky")
        return self.world.start(topics, both if "sticky" in self.assignors[-1] else self.assignors)

    @rule(played=members)
    def send(self, played: PlayedMember) -> None:
        played.send(self.world.now)

    @rule(played=members)
    def send_and_lose_the_request(self, played: PlayedMember) -> None:
        played.send(self.world.now, is_lost=True)

    @rule(played=members)
    def receive(self, played: PlayedMember) -> None:
        played.receive(self.world.now)

    @rule(played=members)
    def lose_the_answer(self, played: PlayedMember) -> None:
        played.lose_answer(self.world.now)

    @rule(played=members)
    def begin_step(self, played: PlayedMember) -> None:
        played.begin_step()

    @rule(played=members)
    def finish_step(self, played: PlayedMember) -> None:
        played.finish_step()

    @rule(rounds=st.integers(1, 8))
    def go_on(self, rounds: int) -> None:
        for _ in range(rounds):
            self.world.round()

    @rule(played=consumes(members))
    def stop(self, played: PlayedMember) -> None:
        values = played.member.leave()
        if values is not None:
            self.world.group.leave(values, self.world.now)
        self.world.played.remove(played)

    @rule(played=consumes(members))
    def kill(self, played: PlayedMember) -> None:
        self.world.played.remove(played)

    @rule(target=members, played=consumes(members))
    def restart_static(self, played: PlayedMember) -> PlayedMember:
        self.world.played.remove(played)
        settings = played.member.settings
        names = [assignor.name for assignor in settings.assignors]
        return self.world.start(sorted(played.member._topics or ()), names, settings.instance_id)

    @rule(played=members)
    def nobody_polls(self, played: PlayedMember) -> None:
        if played.member.is_member():
            values = played.member.overdue()
            if values is not None:
                self.world.group.leave(values, self.world.now)

    @rule(played=members)
    def remove(self, played: PlayedMember) -> None:
        self.world.group.remove(played.member.member_id, self.world.now)

    @rule(played=members)
    def refuse_a_commit(self, played: PlayedMember) -> None:
        if not played.is_known:
            played.member.removed(self.world.now, played.member.member_id)

    @rule(seconds=st.sampled_from([0.3, 5.0, 44.0, 60.0]))
    def wait(self, seconds: float) -> None:
        self.world.now += seconds
        self.world.group.tick(self.world.now)

    @rule()
    def move_coordinator(self) -> None:
        self.world.group.move_coordinator(self.world.now)

    @rule(count=st.integers(0, 8))
    def change_topics(self, count: int) -> None:
        self.world.topics["orders"] = count

    @rule(played=members, topics=st.sampled_from([("orders",), ("bills", "orders")]))
    def subscribe(self, played: PlayedMember, topics: tuple[str, ...]) -> None:
        played.member.subscribe(topics)

    @invariant()
    def each_partition_has_one_owner(self) -> None:
        """A member that the group has removed, and that does not know it, is not counted."""
        for partition, owners in self.owners().items():
            assert len(owners) == 1, f"{partition} is owned by {len(owners)} members"

    def owners(self) -> dict[TopicPartition, list[PlayedMember]]:
        return self.world.owners() if hasattr(self, "world") else {}

    @invariant()
    def generations_grow(self) -> None:
        for played in self.world.played if hasattr(self, "world") else ():
            assert all(before < after for before, after in pairwise(played.generations))

    def teardown(self) -> None:
        """Once the faults are over, the group is stable and each partition has an owner."""
        if not hasattr(self, "world"):
            return
        world = self.world
        # Requests and sessions of the past are over.
        for played in world.played:
            played.lose_answer(world.now)
        world.settle(200)
        assert world.group.state == ("stable" if world.played else "empty")
        assert len(world.group.members) == len(world.played)
        for played in world.played:
            assert played.member.state is State.STABLE
            assert played.step is None
        read = set().union(*(played.member._topics or () for played in world.played))
        wanted = {
            TopicPartition(topic, number)
            for topic, count in world.topics.items()
            for number in range(count)
            if topic in read
        }
        assert self.owners().keys() == wanted
        for played in world.played:
            assert {it.topic for it in played.member.owned.partitions} <= (
                played.member._topics or frozenset()
            )


TestClassicGroupMachine = ClassicGroupMachine.TestCase
TestClassicGroupMachine.settings = settings(max_examples=200, stateful_step_count=60, deadline=None)


def revoked(played: PlayedMember) -> frozenset[TopicPartition]:
    steps = [step.partitions for step in played.steps if isinstance(step, RevokeStep)]
    return frozenset[TopicPartition]().union(*steps)


def lone_member(**options: Any) -> PlayedMember:
    """A member that is alone in its group, and has its partitions."""
    group = PlayedGroup()
    played = group.start(**options)
    group.settle()
    played.receive(group.now)
    played.steps.clear()
    played.requests.clear()
    return played


def answer_next(played: PlayedMember, answer: dict[str, Any], now: float = 100.0) -> AnswerEffect:
    """Let the member send what is due, and answer that."""
    assert played.member.due_at() <= now
    played.member.next_request(now)
    return played.member.answered(answer, now, WAIT_S)


def test_an_eager_member_gives_up_everything_before_it_joins_again() -> None:
    group, (first, second) = settled_group(2)
    owned = {played: played.member.owned.partitions for played in (first, second)}
    group.start()
    group.settle()
    assert revoked(first) == owned[first]
    assert revoked(second) == owned[second]
    assert [len(it.member.owned.partitions) for it in group.played] == [2, 2, 2]


def test_cooperative_members_give_up_only_what_a_new_member_gets() -> None:
    group, old = settled_group(2, COOPERATIVE)
    new = group.start(assignors=COOPERATIVE)
    group.settle()
    assert len(new.member.owned.partitions) == 2
    assert revoked(old[0]) | revoked(old[1]) == new.member.owned.partitions
    assert revoked(new) == frozenset()


def test_cooperative_members_give_up_nothing_when_one_leaves() -> None:
    group, (gone, *others) = settled_group(3, COOPERATIVE)
    values = gone.member.leave()
    assert values is not None
    group.group.leave(values, group.now)
    group.played.remove(gone)
    group.settle()
    assert [len(it.member.owned.partitions) for it in others] == [3, 3]
    assert [revoked(it) for it in others] == [frozenset(), frozenset()]


def test_a_cooperative_member_learns_of_each_generation_also_if_nothing_changes() -> None:
    group, (first, _) = settled_group(2, COOPERATIVE)
    group.start(topics=("bills",), assignors=COOPERATIVE)
    group.settle()
    steps = [step for step in first.steps if isinstance(step, AssignStep)]
    assert steps
    assert all(step.partitions == frozenset() for step in steps)
    assert first.generations == sorted(set(first.generations))


def test_heartbeats_go_on_while_handlers_finish_their_work() -> None:
    group, (first, second) = settled_group(2)
    group.start()
    first.begin_step()
    for _ in range(5):
        group.now += 3.0
        for played in (second, group.played[2], first):
            played.send(group.now)
            played.receive(group.now)
        first.begin_step()
    assert isinstance(first.step, RevokeStep)
    assert set(first.requests) == {ClassicRequest.HEARTBEAT}
    first.finish_step()
    first.send(group.now)
    assert first.requests[-1] is ClassicRequest.JOIN


def test_a_member_does_not_join_while_it_gives_up_partitions() -> None:
    """It would have to say whether it owns them."""
    group, (first, _) = settled_group(2, COOPERATIVE)
    group.start(assignors=COOPERATIVE)
    while not isinstance(first.step, RevokeStep):
        group.round()
    # Another member comes meanwhile.
    group.start(assignors=COOPERATIVE)
    first.requests.clear()
    for _ in range(10):
        group.round(stuck=first)
    assert first.member.state is State.PREPARING
    assert set(first.requests) == {ClassicRequest.HEARTBEAT}
    group.settle()
    assert sorted(len(it.member.owned.partitions) for it in group.played) == [1, 1, 2, 2]


def test_a_topic_that_is_not_read_any_more_is_given_up_before_the_member_joins() -> None:
    played = lone_member(topics=("orders", "bills"), assignors=COOPERATIVE)
    played.member.subscribe(["orders"])
    assert played.member.due_at() > 0.0
    played.begin_step()
    assert {it.topic for it in revoked(played)} == {"bills"}
    played.finish_step()
    played.send(100.0)
    assert played.requests[-1] is ClassicRequest.JOIN


def test_an_assignment_for_an_older_subscription_is_never_assigned() -> None:
    group = PlayedGroup()
    played = group.start(topics=("orders",))
    while played.member.state is not State.SYNCING:
        played.send(group.now)
        played.receive(group.now)
    played.member.subscribe(["bills"])
    group.settle()
    assigned = [step.partitions for step in played.steps if isinstance(step, AssignStep)]
    assert {it.topic for it in frozenset[TopicPartition]().union(*assigned)} == {"bills"}
    assert len(played.member.owned.partitions) == 4


ERRORS = [
    # request, code, state afterwards, meaning
    (ClassicRequest.JOIN, 14, State.PREPARING, ClassicAnswer.RETRY),
    (ClassicRequest.JOIN, 15, State.PREPARING, ClassicAnswer.FIND_COORDINATOR),
    (ClassicRequest.JOIN, 16, State.PREPARING, ClassicAnswer.FIND_COORDINATOR),
    (ClassicRequest.JOIN, 23, State.PREPARING, ClassicAnswer.OPERATOR),
    (ClassicRequest.JOIN, 24, State.PREPARING, ClassicAnswer.OPERATOR),
    (ClassicRequest.JOIN, 25, State.REMOVED, ClassicAnswer.REMOVED),
    (ClassicRequest.JOIN, 26, State.PREPARING, ClassicAnswer.OPERATOR),
    (ClassicRequest.JOIN, 27, State.PREPARING, ClassicAnswer.RETRY),
    (ClassicRequest.JOIN, 30, State.PREPARING, ClassicAnswer.OPERATOR),
    (ClassicRequest.JOIN, 79, State.PREPARING, ClassicAnswer.NAMED),
    (ClassicRequest.JOIN, 81, State.PREPARING, ClassicAnswer.OPERATOR),
    (ClassicRequest.JOIN, 82, State.FENCED, ClassicAnswer.FENCED),
    (ClassicRequest.SYNC, 14, State.SYNCING, ClassicAnswer.RETRY),
    (ClassicRequest.SYNC, 15, State.SYNCING, ClassicAnswer.FIND_COORDINATOR),
    (ClassicRequest.SYNC, 16, State.SYNCING, ClassicAnswer.FIND_COORDINATOR),
    (ClassicRequest.SYNC, 22, State.REMOVED, ClassicAnswer.OUTDATED),
    (ClassicRequest.SYNC, 23, State.SYNCING, ClassicAnswer.OPERATOR),
    (ClassicRequest.SYNC, 25, State.REMOVED, ClassicAnswer.REMOVED),
    (ClassicRequest.SYNC, 27, State.PREPARING, ClassicAnswer.REBALANCE),
    (ClassicRequest.SYNC, 30, State.SYNCING, ClassicAnswer.OPERATOR),
    (ClassicRequest.SYNC, 82, State.FENCED, ClassicAnswer.FENCED),
    (ClassicRequest.HEARTBEAT, 0, State.STABLE, ClassicAnswer.ACCEPTED),
    (ClassicRequest.HEARTBEAT, 14, State.STABLE, ClassicAnswer.RETRY),
    (ClassicRequest.HEARTBEAT, 15, State.STABLE, ClassicAnswer.FIND_COORDINATOR),
    (ClassicRequest.HEARTBEAT, 16, State.STABLE, ClassicAnswer.FIND_COORDINATOR),
    (ClassicRequest.HEARTBEAT, 22, State.REMOVED, ClassicAnswer.OUTDATED),
    (ClassicRequest.HEARTBEAT, 25, State.REMOVED, ClassicAnswer.REMOVED),
    (ClassicRequest.HEARTBEAT, 27, State.PREPARING, ClassicAnswer.REBALANCE),
    (ClassicRequest.HEARTBEAT, 30, State.STABLE, ClassicAnswer.OPERATOR),
    (ClassicRequest.HEARTBEAT, 82, State.FENCED, ClassicAnswer.FENCED),
    (ClassicRequest.HEARTBEAT, 999, State.STABLE, ClassicAnswer.OPERATOR),
]


@pytest.mark.parametrize(
    ("request_kind", "code", "state", "meaning"), ERRORS, ids=lambda it: str(it)
)
def test_each_error_code_leads_to_a_state(
    request_kind: ClassicRequest, code: int, state: State, meaning: ClassicAnswer
) -> None:
    group = PlayedGroup()
    played = group.start()
    while True:
        played.receive(group.now)
        group.now += 5.0
        member = played.member
        played.begin_step()
        played.finish_step()
        assert member.due_at() <= group.now
        before = group.now
        request, values = member.next_request(group.now)
        if request is request_kind:
            break
        if request is ClassicRequest.JOIN:
            group.group.join(values, group.now, played._answers.append)
        else:
            group.group.sync(values, group.now, played._answers.append)
    effect = member.answered({"error_code": code, "member_id": "given"}, group.now, WAIT_S)
    assert effect.meaning is meaning
    assert member.state is state
    assert (effect.refusal is None) == (meaning is not ClassicAnswer.OPERATOR)
    if meaning in (ClassicAnswer.RETRY, ClassicAnswer.FIND_COORDINATOR, ClassicAnswer.OPERATOR):
        assert member.due_at() == before + WAIT_S


def test_a_group_without_a_common_assignor_says_what_to_set() -> None:
    group, _ = settled_group(1, ("range",))
    late = group.start(assignors=("sticky",))
    group.settle(3)
    refusals = [effect.refusal for effect in late.effects if effect.refusal]
    assert "INCONSISTENT_GROUP_PROTOCOL" in refusals[0]
    assert "set assignors to a list that contains one that all other members offer" in refusals[0]


def test_a_removed_member_loses_everything_at_once_and_joins_under_a_new_id() -> None:
    group, (first, _) = settled_group(2)
    owned = first.member.owned.partitions
    old_id = first.member.member_id
    group.group.remove(old_id, group.now)
    group.settle()
    assert first.steps[0] == LoseStep(owned)
    assert first.member.member_id != old_id
    assert len(first.member.owned.partitions) == 3


def test_a_member_of_an_old_generation_loses_everything_and_keeps_its_id() -> None:
    """The coordinator knows it: under another id it would wait for the old one's session."""
    played = lone_member()
    old_id = played.member.member_id
    owned = played.member.owned.partitions
    answer_next(played, {"error_code": 22})
    played.begin_step()
    assert played.step == LoseStep(owned)
    played.finish_step()
    request, values = played.member.next_request(200.0)
    assert request is ClassicRequest.JOIN
    assert values["member_id"] == old_id


def test_the_answer_to_a_heartbeat_of_an_earlier_membership_changes_nothing() -> None:
    played = lone_member()
    member = played.member
    member.next_request(100.0)
    member.removed(100.0, member.member_id)
    assert member.state is State.REMOVED
    played.begin_step()
    played.finish_step()
    member.answered({"error_code": 22}, 101.0, WAIT_S)
    assert member.state is State.OUT
    assert member.due_at() <= 101.0


def test_a_fenced_member_loses_everything_and_never_joins_again() -> None:
    played = lone_member(instance_id="till-1")
    answer_next(played, {"error_code": 82})
    played.begin_step()
    assert isinstance(played.step, LoseStep)
    played.finish_step()
    assert played.member.due_at() == float("inf")
    assert played.member.next_step() is None


def test_a_static_member_never_says_that_it_leaves() -> None:
    assert lone_member(instance_id="till-1").member.leave() is None
    assert lone_member(instance_id="till-1").member.overdue() is None
    assert lone_member().member.leave() == {
        "group_id": "billing",
        "members": [
            {
                "member_id": "member-1",
                "group_instance_id": None,
                "reason": "the consumer was closed",
            }
        ],
    }


def test_a_member_of_an_old_generation_still_says_that_it_leaves() -> None:
    """The coordinator knows it, and would wait for its session otherwise."""
    played = lone_member()
    answer_next(played, {"error_code": 22})
    assert played.member.leave() is not None


def test_a_member_of_any_version_of_kafka_can_be_told_that_it_leaves() -> None:
    values = lone_member().member.leave()
    assert values is not None
    for version in versions_of(LEAVE_GROUP.request.versions):
        content = encode(LEAVE_GROUP.request, version, leave_values(values, version))
        assert b"member-1" in content


def test_a_static_member_that_is_started_again_gets_its_partitions_and_nobody_else_notices() -> (
    None
):
    group = PlayedGroup()
    stays, goes = (group.start(instance_id=name) for name in ("till-1", "till-2"))
    group.settle()
    owned = goes.member.owned.partitions
    stays.steps.clear()
    group.played.remove(goes)
    again = group.start(instance_id="till-2")
    group.settle()
    assert again.member.owned.partitions == owned
    assert stays.steps == []


@pytest.mark.parametrize("assignors", [DEFAULT_ASSIGNORS, COOPERATIVE, ("sticky",)])
@pytest.mark.parametrize("name", ["till-1", "till-2"], ids=["leader", "follower"])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (("orders",), ("bills", "orders")),
        (("bills", "orders"), ("orders",)),
        (("bills",), ("orders",)),
    ],
    ids=["more", "fewer", "others"],
)
def test_a_static_member_that_is_started_again_with_other_topics_reads_those(
    before: Sequence[str], after: Sequence[str], name: str, assignors: Sequence[str]
) -> None:
    """The coordinator answers with the assignment of the last run, and does not rebalance."""
    group = PlayedGroup()
    played = {one: group.start(before, assignors, instance_id=one) for one in ("till-1", "till-2")}
    group.settle()
    assert group.group.leader == played["till-1"].member.member_id
    group.played.remove(played[name])
    played[name] = group.start(after, assignors, instance_id=name)
    group.settle()
    owned = {one: it.member.owned.partitions for one, it in played.items()}
    (stays,) = owned.keys() - {name}
    assert {it.topic for it in owned[name]} == {*after}
    assert {it.topic for it in owned[stays]} == {*before}
    read = {*before, *after}
    assert len(owned[name] | owned[stays]) == sum(TOPICS[topic] for topic in read)


def test_what_a_group_has_kept_is_told_of_a_stable_group_only() -> None:
    group, members = settled_group(2)
    answer = group.group.describe()
    owned = [played.member.owned.partitions for played in members]
    assert partitions_kept(answer) == owned[0] | owned[1]
    (described,) = answer["groups"]
    described["members"][0]["member_assignment"] = b"\xff"
    assert partitions_kept(answer) in owned
    described["group_state"] = "PreparingRebalance"
    assert partitions_kept(answer) is None
    assert partitions_kept({"groups": [{**described, "error_code": 30}]}) is None


@pytest.mark.parametrize("members", [2, 3])
def test_a_static_member_without_partitions_of_a_topic_has_the_others_join_again_once(
    members: int,
) -> None:
    group = PlayedGroup({"orders": members - 1})
    *_, last = (group.start(instance_id=f"till-{number}") for number in range(members))
    group.settle()
    (spare,) = (one for one in group.played if not one.member.owned.partitions)
    name = spare.member.settings.instance_id
    group.played.remove(spare)
    generation = last.member.generation
    group.start(instance_id=name)
    group.settle(100)
    assert {one.member.generation for one in group.played} == {generation + 1}


def test_a_static_leader_that_is_started_again_keeps_watching_the_topics() -> None:
    group = PlayedGroup()
    leader, other = (group.start(instance_id=name) for name in ("till-1", "till-2"))
    group.settle()
    assert group.group.leader == leader.member.member_id
    group.played.remove(leader)
    again = group.start(instance_id="till-1")
    group.settle()
    assert len(again.member.owned.partitions) == 3
    group.topics["orders"] = 8
    group.settle()
    assert len(again.member.owned.partitions) == len(other.member.owned.partitions) == 4


def test_a_static_leader_that_is_started_again_sees_that_a_topic_has_grown_meanwhile() -> None:
    group = PlayedGroup()
    leader, other = (group.start(instance_id=name) for name in ("till-1", "till-2"))
    group.settle()
    assert group.group.leader == leader.member.member_id
    group.played.remove(leader)
    group.topics["orders"] = 8
    again = group.start(instance_id="till-1")
    group.settle()
    assert len(again.member.owned.partitions) == len(other.member.owned.partitions) == 4


def test_the_leader_makes_all_join_again_when_a_topic_has_more_partitions() -> None:
    group, members = settled_group(2)
    group.topics["orders"] = 8
    group.settle()
    assert [len(it.member.owned.partitions) for it in members] == [4, 4]


def test_a_member_that_nobody_polls_leaves_and_joins_again_when_it_is_polled() -> None:
    group, (slow, other) = settled_group(2)
    owned = slow.member.owned.partitions
    values = slow.member.overdue()
    assert values is not None
    group.group.leave(values, group.now)
    slow.begin_step()
    assert slow.step == LoseStep(owned)
    slow.finish_step()
    assert slow.member.due_at() == float("inf")
    group.settle()
    assert [len(it.member.owned.partitions) for it in (slow, other)] == [3, 3]


def test_metadata_that_cannot_be_read_stops_nobody_else_and_names_its_member() -> None:
    group, (first, second) = settled_group(2)
    group.group.members[second.member.member_id].protocols["range"] = b"\x00\x01nonsense"
    first.member._rejoin("a test")
    first.send(group.now)
    problems: list[str] = []
    for _ in range(10):
        group.now += 1.0
        for played in group.played:
            played.begin_step()
            played.finish_step()
            if played is first:
                played.send(group.now)
        if first._answers:
            first.member.answered(first._answers.pop(), group.now, WAIT_S)
        group.group.tick(group.now)
        # The second member joins with bytes of its own.
        waiting = group.group.members[second.member.member_id]
        if group.group.state == "preparing" and waiting.joining is None:
            waiting.joining = lambda answer: None
            group.group._complete_if_all_joined(group.now)
        if first.member.state is State.LEADING:
            problems += first.member.lead(first.partitions(), {}, group.now, WAIT_S)
    assert first.member.owned.partitions == orders(*range(6))
    assert len(problems) == 1
    assert problems[0].startswith(
        f"member {second.member.member_id!r} of the group has joined with metadata that is no "
        "subscription of a consumer"
    )


def test_an_assignment_that_cannot_be_read_names_the_leader() -> None:
    group = PlayedGroup()
    played = group.start()
    while played.member.state is not State.SYNCING:
        played.send(group.now)
        played.receive(group.now)
    effect = answer_next(played, {"error_code": 0, "assignment": b"\x00\x00\x7f"})
    assert effect.refusal is not None
    assert "the leader 'member-1' of the group has sent an assignment" in effect.refusal
    assert played.member.state is State.PREPARING


class BadAssignor:
    """A user's own assignor that does not what it should."""

    name = "bad"
    is_cooperative = True

    def __init__(self, mistake: str) -> None:
        self.mistake = mistake

    def assign(self, members: Any, partitions: Any, replica_racks: Any) -> Any:
        everything = {
            TopicPartition(topic, number)
            for topic, numbers in partitions.items()
            for number in numbers
        }
        if self.mistake == "raises":
            raise KeyError("no such tenant")
        if self.mistake == "twice":
            return dict.fromkeys(members, everything)
        if self.mistake == "stranger":
            return {"who": everything}
        if self.mistake == "text for a number":
            return {member_id: {TopicPartition("orders", "0")} for member_id in members}
        if self.mistake == "no partitions":
            return {member_id: {"orders"} for member_id in members}
        newest = max(members, key=lambda it: int(it.partition("-")[2]))
        return {member_id: everything if member_id == newest else set() for member_id in members}

    def user_data(self, owned: frozenset[TopicPartition], generation: int) -> Any:
        if self.mistake == "no user data":
            raise ValueError("not ready")
        if self.mistake == "text for user data":
            return "tenant"
        return b""


@pytest.mark.parametrize(
    ("mistake", "text"),
    [
        ("raises", "the assignor 'bad' has raised KeyError: 'no such tenant'"),
        ("twice", "the assignor 'bad' has given orders-"),
        ("stranger", "the assignor 'bad' has given partitions to 'who', which is no member"),
        ("steals", "the assignor 'bad' has given orders-"),
        ("text for a number", "the assignor 'bad' has given what is no set of partitions"),
        ("no partitions", "the assignor 'bad' has given what is no set of partitions"),
    ],
)
def test_the_mistakes_of_an_own_assignor_are_reported_and_do_no_harm(
    mistake: str, text: str
) -> None:
    group = PlayedGroup()
    first, second = (group.start() for _ in range(2))
    problems: list[str] = []
    for played in (first, second):
        played.member.settings = ClassicMemberSettings(
            "billing", (BadAssignor(mistake),), 60_000, 45_000, 3_000
        )
        played.member.is_cooperative = True
        lead = played.member.lead
        played.member.lead = lambda *args, lead=lead: problems.extend(lead(*args)) or ()  # type: ignore[method-assign]
    group.played = [first]
    group.settle(10)
    group.played = [first, second]
    for _ in range(30):
        group.round()
        for owners in group.owners().values():
            assert len(owners) == 1
    assert problems[0].startswith(text)


def test_an_own_assignor_that_cannot_describe_its_member_is_asked_again_after_a_pause() -> None:
    member = make_member()
    member.settings = ClassicMemberSettings(
        "billing", (BadAssignor("no user data"),), 60_000, 45_000, 3_000
    )
    with pytest.raises(ValueError, match="the assignor 'bad' has raised ValueError: not ready"):
        member.next_request(10.0)
    assert member.state is State.OUT
    assert member.due_at() == 11.0


def test_an_own_assignor_that_describes_its_member_with_text_is_named() -> None:
    member = make_member()
    member.settings = ClassicMemberSettings(
        "billing", (BadAssignor("text for user data"),), 60_000, 45_000, 3_000
    )
    text = "the assignor 'bad' has returned 'tenant' as user data, which is no bytes"
    with pytest.raises(AssignorError, match=text):
        member.next_request(10.0)
    assert member.state is State.OUT
    assert member.due_at() == 11.0


def test_a_group_becomes_cooperative_in_two_rolling_restarts_without_a_stop() -> None:
    group = PlayedGroup()
    for assignors in (("range",), ("range", "cooperative-sticky"), COOPERATIVE):
        for place in range(3):
            if len(group.played) == 3:
                values = group.played[0].member.leave()
                assert values is not None
                group.group.leave(values, group.now)
                del group.played[0]
            group.start(assignors=assignors)
            for _ in range(20):
                group.round()
                for owners in group.owners().values():
                    assert len(owners) == 1
            assert len(group.owners()) == 6, (assignors, place)
    for played in group.played:
        played.steps.clear()
    group.start(assignors=COOPERATIVE)
    group.settle()
    assert sum(len(revoked(played)) for played in group.played) == 1


@pytest.mark.parametrize(
    "others",
    [("range", "cooperative-sticky"), ("range", "roundrobin"), ("roundrobin",), ("range",)],
    ids=["Java", "librdkafka and kafka-python", "aiokafka", "the oldest clients"],
)
def test_a_member_with_the_default_list_joins_groups_of_other_clients(
    others: Sequence[str],
) -> None:
    group, _ = settled_group(2, others)
    late = group.start()
    group.settle()
    assert len(late.member.owned.partitions) == 2
    assert [effect.refusal for effect in late.effects if effect.refusal] == []


def test_the_session_ends_after_the_last_request_that_was_accepted() -> None:
    played = lone_member()
    member = played.member
    answer_next(played, {"error_code": 0}, now=100.0)
    assert member.session_ends_at() == 145.0
    assert 100.0 < member.due_at() <= 100.0 + QUICK_BEAT_S
    answer_next(played, {"error_code": 16}, now=103.0)
    assert member.session_ends_at() == 145.0
    assert member.due_at() == 103.5


@pytest.mark.parametrize("interval_s", [0.1, 0.25, 3.0, 10.0])
def test_heartbeats_are_close_together_while_the_group_settles(interval_s: float) -> None:
    group = PlayedGroup()
    played = group.start()
    member = played.member
    member.settings = replace(member.settings, heartbeat_interval_ms=round(1000 * interval_s))
    while member.state is not State.STABLE:
        played.send(0.0)
        played.receive(0.0)
    beats = [0.0]
    while beats[-1] < SETTLING_S:
        beats.append(member.due_at())
        answer_next(played, {"error_code": 0}, now=beats[-1])
    between = [later - earlier for earlier, later in pairwise(beats)]
    assert max(between) <= SETTLING_BEAT_S
    assert min(between) == pytest.approx(min(interval_s, SETTLING_BEAT_S))
    assert beats[-1] < member.due_at() <= beats[-1] + interval_s + 1e-6


@pytest.mark.parametrize(
    ("known", "is_last"),
    [
        ({}, False),
        ({"orders": range(6)}, True),
        # A topic has grown, and the group has not assigned its new partition.
        ({"orders": range(7)}, False),
        ({"bills": range(3)}, False),
    ],
)
def test_heartbeats_are_rarer_while_no_other_member_has_a_partition(
    known: dict[str, range], is_last: bool
) -> None:
    played = lone_member(assignors=COOPERATIVE)
    played.member.topics_seen(known)
    answer_next(played, {"error_code": 0}, now=50.1)
    assert (played.member.due_at() > 50.1 + QUICK_BEAT_S) is is_last
    assert played.member.due_at() <= 50.1 + ALL_OWNED_BEAT_S


@pytest.mark.parametrize("session_s", [0.3, 1.2, 6.0])
def test_a_short_session_has_three_heartbeats(session_s: float) -> None:
    played = lone_member()
    member = played.member
    member.topics_seen({"orders": range(6)})
    member.settings = replace(member.settings, session_timeout_ms=round(1000 * session_s))
    answer_next(played, {"error_code": 0}, now=50.1)
    assert 50.1 < member.due_at() <= 50.1 + session_s / 3


def test_a_refused_commit_sends_a_heartbeat_at_once() -> None:
    played = lone_member()
    assert played.member.due_at() > 0.0
    played.member.beat_soon()
    assert played.member.due_at() < 0.0


def test_an_answer_that_cannot_be_read_makes_a_syncing_member_join_again_after_a_pause() -> None:
    group = PlayedGroup()
    played = group.start()
    while played.member.state is not State.SYNCING:
        played.send(group.now)
        played.receive(group.now)
    request, _ = played.member.next_request(1.0)
    assert request is ClassicRequest.SYNC
    played.member.unreadable(1.0, WAIT_S)
    assert played.member.state is State.PREPARING
    assert played.member.due_at() == 1.0 + WAIT_S


def test_a_heartbeat_whose_answer_cannot_be_read_is_sent_again() -> None:
    member = lone_member().member
    request, _ = member.next_request(100.0)
    assert request is ClassicRequest.HEARTBEAT
    member.unreadable(100.0, WAIT_S)
    assert member.state is State.STABLE
    assert member.due_at() == 100.0 + WAIT_S
