"""The rules of a member in the consumer protocol: heartbeats, epochs, and what is owned. Pure.

The broker assigns. A heartbeat's answer has the partitions that the member should own: its target.
The member gives up what is not in the target, says so with the next heartbeat, and takes what is
new. The broker names a partition only when its last owner has given it up.

Source: KIP-848; Java's ``ConsumerMembershipManager`` and ``ConsumerHeartbeatRequestManager``.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple
from uuid import uuid4

from reactive_kafka.broker.consumer.membership.consumer_group.member_states import (
    CONSUMER_MEMBER_TRANSITIONS,
    ConsumerMemberState,
)
from reactive_kafka.broker.consumer.membership.heartbeat_pace import (
    QUICK_BEAT_S,
    next_beat_at,
    usual_beat_s,
)
from reactive_kafka.broker.consumer.membership.owned_since import OwnedSince
from reactive_kafka.broker.consumer.membership.rebalance_steps import (
    AssignStep,
    LoseStep,
    RebalanceStep,
    RevokeStep,
)
from reactive_kafka.records import TopicPartition
from reactive_kafka.state_table import next_state

_S = ConsumerMemberState

OUT_OF_GROUP = frozenset({_S.REMOVED, _S.OVERDUE, _S.FENCED})
"""In these states the member has lost its partitions, and has to give them up."""

JOINS = 0
LEAVES = -1
STATIC_LEAVES = -2
"""Epochs of heartbeats that ask for something. All other epochs are the broker's."""

UNCHANGED_TIMEOUT = -1
"""In a heartbeat: the rebalance timeout is the same as before."""


def new_member_id() -> str:
    """Return an id for a new member: a UUID in Kafka's spelling, 22 characters of base64."""
    return urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")


class TopicIdPartition(NamedTuple):
    """A partition as the broker names it: by the id of its topic, 16 bytes, and its number."""

    topic_id: bytes
    partition: int


@dataclass(frozen=True, slots=True)
class ConsumerMemberSettings:
    """What a member tells its group when it joins."""

    group_id: str
    # A UUID, made by the member.
    member_id: str
    # How long a revocation may take before the group removes the member.
    rebalance_timeout_ms: int
    instance_id: str | None = None
    rack: str | None = None
    # The broker's assignor, ``uniform`` or ``range``. None: the broker chooses.
    assignor: str | None = None


class ConsumerGroupMember:
    """One member of a group.

    Whoever sends heartbeats calls :meth:`heartbeat` when :meth:`due_at` has come, and then one of
    :meth:`answered`, :meth:`refused`, :meth:`removed`, :meth:`fenced`. Whoever calls the
    listener takes :meth:`next_step`, calls :meth:`begin` before the listener, and :meth:`done` when
    it has returned. Heartbeats go on meanwhile.

    Attributes:
        epoch: The member epoch of the broker's latest answer.
        owned: The partitions that it owns, and since when.
    """

    def __init__(self, settings: ConsumerMemberSettings) -> None:
        self.settings = settings
        self.state = ConsumerMemberState.OUT
        self.epoch = JOINS
        self.owned = OwnedSince()
        self._topics: frozenset[str] = frozenset()
        # Topic -> its partitions, as far as the client knows them.
        self._partitions: Mapping[str, Collection[int]] = {}
        # Topic id -> name, for all topics of targets so far.
        self._names: dict[bytes, str] = {}
        # Owned partition -> the broker's name for it.
        self._ids: dict[TopicPartition, TopicIdPartition] = {}
        self._target: frozenset[TopicIdPartition] | None = None
        # The epoch that the listener was told of last. None: of none of this membership.
        self._announced_epoch: int | None = None
        # What the broker was told last; None: tell it all again.
        self._told_topics: frozenset[str] | None = None
        self._told_owned: frozenset[TopicPartition] | None = None
        self._sent: tuple[frozenset[str], frozenset[TopicPartition]] | None = None
        self._interval_s = QUICK_BEAT_S
        # The next heartbeat goes out at once; else at _next_at.
        self._is_due = True
        self._next_at = -inf
        self._changed_at = -inf

    def subscribe(self, topics: Iterable[str]) -> None:
        """Set the topics to read. The group learns of a change with the next heartbeat, at once."""
        topics = frozenset(topics)
        if topics != self._topics:
            self._topics = topics
            self._is_due = True

    def topics_seen(self, partitions: Mapping[str, Collection[int]]) -> None:
        """Note which partitions the topics have, without topics that do not exist."""
        self._partitions = dict(partitions)

    def due_at(self) -> float:
        """Return when the next heartbeat is to be sent; infinite if none is."""
        if self.state not in (_S.OUT, _S.MEMBER):
            return inf
        if self.state is _S.OUT and not self._topics:
            # The group takes no member without a topic. It keeps one whose last topic is gone.
            return inf
        return -inf if self._is_due else self._next_at

    def heartbeat(self) -> dict[str, Any]:
        """Return the next heartbeat: values of ``ConsumerGroupHeartbeatRequest``.

        Fields that the group knows are left out, as null.
        """
        settings = self.settings
        if self.state is _S.OUT:
            self._move("join")
        is_join = self.state is _S.JOINING
        owned = self.owned.partitions
        self._is_due = False
        self._sent = (self._topics, owned)
        tells_all = is_join or self._told_topics is None
        values: dict[str, Any] = {
            "group_id": settings.group_id,
            "member_id": settings.member_id,
            "member_epoch": JOINS if is_join else self.epoch,
            "instance_id": settings.instance_id,
            "rack_id": settings.rack if tells_all else None,
            "rebalance_timeout_ms": (
                settings.rebalance_timeout_ms if tells_all else UNCHANGED_TIMEOUT
            ),
            "subscribed_topic_names": None,
            "subscribed_topic_regex": None,
            "server_assignor": settings.assignor if tells_all else None,
            "topic_partitions": None,
        }
        if tells_all or self._topics != self._told_topics:
            values["subscribed_topic_names"] = sorted(self._topics)
        if tells_all or owned != self._told_owned:
            values["topic_partitions"] = self._by_topic_id(owned)
        return values

    def leave(self) -> dict[str, Any] | None:
        """Leave for good. Returns the heartbeat that says so; None: there is nothing to say."""
        was_known = self.state in (_S.JOINING, _S.MEMBER)
        self._move("leave")
        return self._leaving() if was_known else None

    def overdue(self) -> dict[str, Any] | None:
        """Leave because nobody polls. Returns the heartbeat that says so, as :meth:`leave` does.

        A static member says that it will not come back, too: its partitions must not wait for it.
        """
        was_known = self.state is _S.MEMBER
        self._move("overdue")
        return {**self._leaving(), "member_epoch": LEAVES} if was_known else None

    def polled(self) -> None:
        """Join again after :meth:`overdue`. Its partitions are given up by then."""
        self._move("polled")
        self._start_again()

    def answered(self, answer: Mapping[str, Any], now: float) -> bool:
        """Take in an answer to a heartbeat that has no error.

        Returns:
            True if the answer has changed something, or names of topics are missing: there may be
            a next step.
        """
        if self.state not in (_S.JOINING, _S.MEMBER):
            # It was removed or stopped while the heartbeat was on its way.
            return False
        epoch = answer["member_epoch"]
        assignment = answer["assignment"]
        is_change = epoch != self.epoch or assignment is not None
        if self.state is _S.JOINING:
            self._move("admit")
        self.epoch = epoch
        if self._sent is not None:
            topics, owned = self._sent
            self._told_topics = topics
            self._told_owned = owned
        if assignment is not None:
            self._target = frozenset(
                TopicIdPartition(topic["topic_id"], number)
                for topic in assignment["topic_partitions"]
                for number in topic["partitions"]
            )
            self._forget_names()
        if is_change:
            self._changed_at = now
        self._interval_s = answer["heartbeat_interval_ms"] / 1000
        self._plan_next(now)
        return is_change or bool(self.unknown_topic_ids())

    def refused(self, now: float, wait_s: float) -> None:
        """Send the heartbeat again after *wait_s*: it was refused, or it was not answered."""
        if self.state is _S.JOINING:
            self._move("refuse")
        # The broker may have taken it in, or not.
        self._tell_all_again()
        self._is_due = False
        self._next_at = now + wait_s

    def removed(self, now: float, wait_s: float) -> None:
        """The group does not know this member any more. All of its partitions are lost.

        A member that has just asked to join owns nothing, and asks again after *wait_s*.
        """
        if self.state is _S.JOINING:
            self._start_again()
            self.refused(now, wait_s)
        elif self.state is _S.MEMBER:
            self._move("remove")

    def fenced(self) -> None:
        """Another consumer has the ``group_instance_id``. It never joins again."""
        if self.state in (_S.JOINING, _S.MEMBER):
            self._move("fence")

    def beat_soon(self) -> None:
        """Send the next heartbeat at once: the broker has said that the epoch is over."""
        self._is_due = True

    def is_member(self) -> bool:
        """Return False once the group, or this member, has ended the membership."""
        return self.state not in OUT_OF_GROUP

    def unknown_topic_ids(self) -> frozenset[bytes]:
        """Return the ids of topics in the target whose names are not known yet."""
        wanted = self._target or frozenset()
        return frozenset(one.topic_id for one in wanted if one.topic_id not in self._names)

    def learn(self, names: Mapping[bytes, str]) -> None:
        """Take in the names of topics, by their ids."""
        self._names.update(names)

    def next_step(self) -> RebalanceStep | None:
        """Return what the listener must do next; None if nothing.

        What goes is given up before anything is taken, so that its next owner gets it soon.
        """
        owned = self.owned.partitions
        if self.state in OUT_OF_GROUP:
            return LoseStep(owned) if owned or self.state is _S.REMOVED else None
        if self.state is _S.OUT and not self._topics and self._announced_epoch is None:
            # A pattern that fits no topic. The group takes no member without a topic.
            return AssignStep(frozenset())
        if self.state is not _S.MEMBER or self._target is None:
            return None
        gone = frozenset(one for one in owned if self._ids[one] not in self._target)
        if gone:
            return RevokeStep(gone)
        come = self._known_target() - owned
        if come or self.epoch != self._announced_epoch:
            return AssignStep(frozenset(come))
        return None

    def begin(self, step: RebalanceStep) -> None:
        """Take in what a step assigns.

        It has to be called right after :meth:`next_step`: the target and the epoch are those that
        the step was made of.
        """
        if not isinstance(step, AssignStep):
            return
        self._announced_epoch = self.epoch
        for assigned in self._target or ():
            if assigned.topic_id in self._names:
                name = self._named(assigned)
                if name in step.partitions:
                    self._ids[name] = assigned
        self.owned.assign(step.partitions, self.epoch)
        if step.partitions:
            # Tell the broker at once that this member has them.
            self._is_due = True

    def done(self, step: RebalanceStep) -> None:
        """Take in that the listener has returned from a step that takes partitions away."""
        if isinstance(step, AssignStep):
            return
        self.owned.release(step.partitions)
        for partition in step.partitions:
            self._ids.pop(partition, None)
        self._is_due = True
        if isinstance(step, LoseStep) and self.state is _S.REMOVED:
            self._move("lost")
            self._start_again()

    def _forget_names(self) -> None:
        """Forget the names of topics of which nothing is owned or assigned any more."""
        used = {one.topic_id for one in (*(self._target or ()), *self._ids.values())}
        self._names = {topic_id: name for topic_id, name in self._names.items() if topic_id in used}

    def _known_target(self) -> set[TopicPartition]:
        """Return the target without partitions of topics whose names are not known yet."""
        return {self._named(one) for one in self._target or () if one.topic_id in self._names}

    def _named(self, partition: TopicIdPartition) -> TopicPartition:
        return TopicPartition(self._names[partition.topic_id], partition.partition)

    def _by_topic_id(self, partitions: Collection[TopicPartition]) -> list[dict[str, Any]]:
        numbers: dict[bytes, list[int]] = {}
        for partition in sorted(partitions):
            topic_id, number = self._ids[partition]
            numbers.setdefault(topic_id, []).append(number)
        return [
            {"topic_id": topic_id, "partitions": of_topic} for topic_id, of_topic in numbers.items()
        ]

    def _leaving(self) -> dict[str, Any]:
        settings = self.settings
        is_static = settings.instance_id is not None
        return {
            "group_id": settings.group_id,
            "member_id": settings.member_id,
            "member_epoch": STATIC_LEAVES if is_static else LEAVES,
            "instance_id": settings.instance_id,
            "rack_id": None,
            "rebalance_timeout_ms": UNCHANGED_TIMEOUT,
            "subscribed_topic_names": None,
            "subscribed_topic_regex": None,
            "server_assignor": None,
            "topic_partitions": None,
        }

    def _start_again(self) -> None:
        """Forget what the group has said: the next heartbeat joins as a new member."""
        self.epoch = JOINS
        self._announced_epoch = None
        self._target = None
        self.owned.begin_membership()
        self._tell_all_again()
        self._is_due = True

    def _tell_all_again(self) -> None:
        self._told_topics = None
        self._told_owned = None
        self._sent = None

    @property
    def beat_interval_s(self) -> float:
        """Seconds between two heartbeats in a settled group: no more than the broker asks for."""
        usual_s = usual_beat_s(self.owned.partitions, self._topics, self._partitions)
        return min(self._interval_s, usual_s)

    def _plan_next(self, now: float) -> None:
        self._next_at = next_beat_at(now, self._changed_at, self.beat_interval_s)

    def _move(self, event: str) -> None:
        self.state = next_state(CONSUMER_MEMBER_TRANSITIONS, self.state, event)
