"""The rules of a member in the classic protocol: joining, syncing, heartbeats, what is owned. Pure.

The members assign. In each generation the coordinator makes one of them the leader, which gets the
subscriptions of all and sends the assignments of all. A change makes everyone join again.

An *eager* member gives up all partitions before it joins. A *cooperative* one (KIP-429) keeps them:
it says what it owns, gives up what its new assignment does not have, and joins once more, so that
the next generation can give that to another member.

How a shell uses :class:`ClassicGroupMember`:

- One task sends requests, one at a time. When :meth:`~ClassicGroupMember.due_at` has come, it takes
  :meth:`~ClassicGroupMember.next_request`, sends that, and calls
  :meth:`~ClassicGroupMember.answered` or :meth:`~ClassicGroupMember.unanswered`. A JoinGroup may
  take as long as the longest rebalance timeout in the group.
- If :meth:`~ClassicGroupMember.topics_to_lead` returns topics, it looks up their partitions and
  calls :meth:`~ClassicGroupMember.lead`. Later it calls
  :meth:`~ClassicGroupMember.partitions_seen` after each look at the metadata of these topics, and
  before that :meth:`~ClassicGroupMember.kept_partitions_seen` if the member wants it.
- Another task takes :meth:`~ClassicGroupMember.next_step`, calls
  :meth:`~ClassicGroupMember.begin`, then the listener, then :meth:`~ClassicGroupMember.done`.
  Requests go on meanwhile, so heartbeats go out while handlers finish their work.

Source: Kafka's ``AbstractCoordinator`` and ``ConsumerCoordinator``, KIP-62, KIP-345, KIP-394,
KIP-429, KIP-800, KIP-814.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple

from reactive_kafka.broker.consumer.membership.classic_group.assignors.assignor import (
    NO_GENERATION,
    Assignor,
    MemberSubscription,
)
from reactive_kafka.broker.consumer.membership.classic_group.assignors.named_assignors import (
    are_cooperative,
)
from reactive_kafka.broker.consumer.membership.classic_group.classic_answers import (
    ClassicAnswer,
    ClassicRequest,
    describe_refusal,
    meaning_of,
)
from reactive_kafka.broker.consumer.membership.classic_group.classic_states import (
    CLASSIC_MEMBER_TRANSITIONS,
    OUT_OF_GROUP,
    ClassicMemberState,
)
from reactive_kafka.broker.consumer.membership.classic_group.leader_rules import (
    AssignorError,
    LedGroup,
    led_group,
)
from reactive_kafka.broker.consumer.membership.classic_group.subscription_codec import (
    MemberDataError,
    decode_assignment,
    encode_subscription,
)
from reactive_kafka.broker.consumer.membership.heartbeat_pace import next_beat_at, usual_beat_s
from reactive_kafka.broker.consumer.membership.owned_since import OwnedSince
from reactive_kafka.broker.consumer.membership.rebalance_steps import (
    AssignStep,
    LoseStep,
    RebalanceStep,
    RevokeStep,
)
from reactive_kafka.records import TopicPartition
from reactive_kafka.state_table import next_state

_S = ClassicMemberState
_WAIT_TO_JOIN = frozenset({_S.OUT, _S.PREPARING})
# A generation has begun, so the group waits for heartbeats.
_IN_GENERATION = frozenset({_S.LEADING, _S.SYNCING, _S.STABLE, _S.PREPARING})
_EXPECTED = {
    ClassicRequest.JOIN: frozenset({_S.JOINING}),
    ClassicRequest.SYNC: frozenset({_S.SYNCING}),
    ClassicRequest.HEARTBEAT: frozenset({_S.LEADING, _S.STABLE, _S.PREPARING}),
}
"""Request -> states in which its answer counts. In others it is about an earlier time."""

ASSIGNOR_PAUSE_S = 1.0
"""After a user's own assignor has raised while the member was about to join."""
PROTOCOL_TYPE = "consumer"
# A member without an id gets one from the coordinator.
NO_MEMBER_ID = ""


@dataclass(frozen=True, slots=True)
class ClassicMemberSettings:
    """What a member tells its group when it joins."""

    group_id: str
    # The preferred one first. One of them must be offered by all other members, too.
    assignors: Sequence[Assignor]
    # How long a revocation may take before the group removes the member.
    rebalance_timeout_ms: int
    # After so long without a heartbeat the group removes the member.
    session_timeout_ms: int
    # None: as often as the group needs it.
    heartbeat_interval_ms: int | None = None
    instance_id: str | None = None
    rack: str | None = None


def leave_values(values: Mapping[str, Any], version: int) -> Mapping[str, Any]:
    """Return the values of a LeaveGroup in a version: before version 3 it names one member only."""
    if version >= 3:
        return values
    [member] = values["members"]
    return {"group_id": values["group_id"], "member_id": member["member_id"]}


class AnswerEffect(NamedTuple):
    """What the shell does about an answer, besides sending the next request."""

    meaning: ClassicAnswer
    # For the operator: why the group refuses the member. None if it does not.
    refusal: str | None = None


class ClassicGroupMember:
    """One member of a group.

    Attributes:
        member_id: From the coordinator; empty as long as there is none.
        generation: The generation that the member has joined last, -1 if there is none. A commit
            names it.
        owned: The partitions that it owns, and since when.
    """

    def __init__(self, settings: ClassicMemberSettings) -> None:
        self.settings = settings
        self.is_cooperative = are_cooperative(settings.assignors)
        self.state = ClassicMemberState.OUT
        self.member_id = NO_MEMBER_ID
        self.generation = NO_GENERATION
        self.owned = OwnedSince()
        self._topics: frozenset[str] | None = None
        # Topic -> its partitions, as far as the client knows them.
        self._partitions: Mapping[str, Collection[int]] = {}
        # The topics of the subscription that was sent last.
        self._joined_topics: frozenset[str] = frozenset()
        # What the last assignment had, and in which generation: an eager member, which owns nothing
        # when it joins, tells this to sticky assignors.
        self._last_assigned: frozenset[TopicPartition] = frozenset()
        self._last_generation = NO_GENERATION
        # The assignment of this generation; None: the listener has got all of it.
        self._assigned: frozenset[TopicPartition] | None = None
        self._leader_id = ""
        self._protocol_name = ""
        # As the leader: the group, and the partitions that were distributed.
        self._led: LedGroup | None = None
        self._distributed: Mapping[str, Sequence[int]] | None = None
        self._assignments: list[dict[str, Any]] = []
        # The group does not rebalance when a static member is started again. It answers with the
        # assignment of the last run, even if that has read other topics.
        self._may_be_of_last_run = settings.instance_id is not None
        # Why the members have to join again, once this generation has begun.
        self._rejoin_reason: str | None = None
        self._reason: str | None = None
        # The listener gives up partitions. The member must not say that it owns them.
        self._is_revoking = False
        self._asked: ClassicRequest | None = None
        self._asked_at = -inf
        self._accepted_at = inf
        self._try_at = -inf
        self._beat_at = -inf
        self._changed_at = -inf

    # What the application does.

    def subscribe(self, topics: Iterable[str]) -> None:
        """Set the topics to read. A change makes all members join again."""
        topics = frozenset(topics)
        if topics != self._topics:
            self._topics = topics
            if topics != self._joined_topics:
                self._rejoin("the subscription has changed")

    def topics_seen(self, partitions: Mapping[str, Collection[int]]) -> None:
        """Note which partitions the topics have, without topics that do not exist."""
        self._partitions = dict(partitions)

    def leave(self) -> dict[str, Any] | None:
        """Leave for good. Returns the values of LeaveGroup; None: there is nothing to say.

        A static member does not say that it leaves: its partitions wait for it until its session
        is over.
        """
        values = self._leaving("the consumer was closed")
        self._move("leave")
        return values

    def overdue(self) -> dict[str, Any] | None:
        """Leave because nobody polls. Returns the values of LeaveGroup, as :meth:`leave` does."""
        values = self._leaving("nobody has polled the consumer for max_poll_interval_ms")
        self._move("overdue")
        self._forget_generation()
        if values is not None:
            self.member_id = NO_MEMBER_ID
        return values

    def polled(self) -> None:
        """Join again after :meth:`overdue`. Its partitions are given up by then."""
        self._move("polled")
        self._try_at = -inf

    def is_member(self) -> bool:
        """Return False once the group, or this member, has ended the membership."""
        return self.state not in OUT_OF_GROUP

    # Requests and their answers.

    def due_at(self) -> float:
        """Return when the next request is to be sent; infinite if none is."""
        if self._asked is not None or self._topics is None:
            return inf
        if self.state in _WAIT_TO_JOIN and not self._has_to_give_up():
            return self._try_at
        if self.state is _S.SYNCING:
            return self._try_at
        if self.state in _IN_GENERATION and self.generation != NO_GENERATION:
            return self._beat_at
        return inf

    def next_request(self, now: float) -> tuple[ClassicRequest, dict[str, Any]]:
        """Return the request that is due, and its values for the wire.

        Raises:
            AssignorError: A user's own assignor cannot tell the group what it wants to. It is asked
                again after a pause.
        """
        self._asked_at = now
        if self.state in _WAIT_TO_JOIN and not self._has_to_give_up():
            self._try_at = now + ASSIGNOR_PAUSE_S
            values = self._join_values()
            self._move("join")
            self._asked = ClassicRequest.JOIN
            return self._asked, values
        if self.state is _S.SYNCING:
            self._asked = ClassicRequest.SYNC
            return self._asked, self._sync_values()
        self._asked = ClassicRequest.HEARTBEAT
        return self._asked, self._identity()

    def unanswered(self, now: float, wait_s: float) -> None:
        """Send the last request again after *wait_s*: there was no answer.

        The coordinator may have got it. It takes a repeated request like the first one.
        """
        asked = self._asked
        self._asked = None
        if asked is not None and self.state in _EXPECTED[asked]:
            self._again(asked, now, wait_s)

    def unreadable(self, now: float, wait_s: float) -> None:
        """Join again after *wait_s*, or send the request again: its answer cannot be read.

        The coordinator would answer a SyncGroup of this generation in the same way again.
        """
        is_syncing = self._asked is ClassicRequest.SYNC and self.state is _S.SYNCING
        self.unanswered(now, wait_s)
        if is_syncing:
            self._prepare("the answer to SyncGroup cannot be read")
            self._try_at = now + wait_s

    def answered(self, answer: Mapping[str, Any], now: float, wait_s: float) -> AnswerEffect:
        """Take in the answer to the last request.

        Args:
            answer: Its values.
            now: The time.
            wait_s: If the request was refused: how long to wait before it is sent again.
        """
        asked = self._asked
        self._asked = None
        if asked is None or self.state not in _EXPECTED[asked]:
            # It was removed, or stopped, while the request was on its way.
            return AnswerEffect(ClassicAnswer.ACCEPTED)
        code = answer["error_code"]
        meaning = meaning_of(asked, code)
        refusal = None
        if meaning is ClassicAnswer.ACCEPTED:
            self._accepted_at = self._asked_at
            if asked is ClassicRequest.SYNC:
                self._changed_at = now
            self._beat_at = self._next_beat_at(now)
            refusal = self._accept(asked, answer, now, wait_s)
        elif meaning is ClassicAnswer.NAMED:
            self.member_id = answer["member_id"]
            self._again(asked, now, 0.0)
        elif meaning is ClassicAnswer.REBALANCE:
            self._accepted_at = self._asked_at
            self._beat_at = self._next_beat_at(now)
            self._prepare("the group rebalances")
        elif meaning is ClassicAnswer.OUTDATED:
            self._remove(now, wait_s)
        elif meaning is ClassicAnswer.REMOVED:
            self.member_id = NO_MEMBER_ID
            self._remove(now, wait_s)
        elif meaning is ClassicAnswer.FENCED:
            self._move("fence")
            self._forget_generation()
        else:
            self._again(asked, now, wait_s)
            if meaning is ClassicAnswer.OPERATOR:
                refusal = describe_refusal(self.settings.group_id, code)
        return AnswerEffect(meaning, refusal)

    def session_ends_at(self) -> float:
        """Return the time at which the group may remove this member."""
        return self._accepted_at + self.settings.session_timeout_ms / 1000

    def beat_soon(self) -> None:
        """Send the next heartbeat at once: a commit was refused because of the generation."""
        self._beat_at = -inf

    def removed(self, now: float, member_id: str) -> None:
        """A commit of *member_id* was refused because the group does not know that member any more.

        The commit may be of an earlier membership, under another id. While the member joins, the
        answer to that tells what it needs to know.
        """
        if self.state in _IN_GENERATION and member_id == self.member_id:
            self.member_id = NO_MEMBER_ID
            self._remove(now, 0.0)

    # The leader.

    def topics_to_lead(self) -> frozenset[str] | None:
        """Return the topics whose partitions the leader needs to know; None: it is no leader.

        It needs them for :meth:`lead` in the state ``leading``, else for :meth:`partitions_seen`.
        """
        if self._led is None or self.state not in _IN_GENERATION:
            return None
        return self._led.topics

    def lead(
        self,
        partitions: Mapping[str, Sequence[int]],
        replica_racks: Mapping[TopicPartition, frozenset[str]],
        now: float,
        wait_s: float,
    ) -> Sequence[str]:
        """Distribute the partitions, in the state ``leading``.

        Args:
            partitions: Topic -> its partitions, in ascending order, for the topics that exist.
            replica_racks: Partition -> racks of its replicas, empty if unknown.
            now: The time.
            wait_s: If the assignor fails, the member joins again after so long.

        Returns:
            What is wrong, for the operator: a text for each member whose metadata cannot be read,
            and one if the assignor has failed.
        """
        if self.state is not _S.LEADING or self._led is None:
            return ()
        problems = list(self._led.problems)
        try:
            self._assignments = self._led.plan(partitions, replica_racks)
        except AssignorError as error:
            problems.append(str(error))
            self._prepare("the assignor of the leader has failed")
            self._try_at = now + wait_s
            return problems
        self._distributed = self._of_group(partitions)
        self._move("plan")
        self._try_at = -inf
        return problems

    def partitions_seen(self, partitions: Mapping[str, Sequence[int]]) -> None:
        """Take in the partitions of the group's topics, as the leader.

        If they are not those that were distributed, the members have to join again. Topics that
        are missing do not exist.
        """
        if self._led is None or self.state not in (_S.SYNCING, _S.STABLE):
            return
        seen = self._of_group(partitions)
        if self._distributed is None:
            # What the group has kept is not known: see :meth:`kept_partitions_seen`.
            self._distributed = seen
        elif seen != self._distributed:
            self._distributed = seen
            self._rejoin("the partitions of a topic have changed")

    def wants_kept_partitions(self) -> bool:
        """Return True if this leader does not know which partitions are distributed.

        The coordinator keeps the assignment when a static leader is started again (KIP-814). A
        topic may have got more partitions since then, which nobody reads.
        """
        is_led = self._led is not None and self.state in (_S.SYNCING, _S.STABLE)
        return is_led and self._distributed is None

    def kept_partitions_seen(self, kept: Iterable[TopicPartition]) -> None:
        """Take in which partitions the members of the group have."""
        if self.wants_kept_partitions():
            numbers: dict[str, list[int]] = {}
            for topic, number in sorted(kept):
                numbers.setdefault(topic, []).append(number)
            self._distributed = self._of_group(numbers)

    # The listener.

    def next_step(self) -> RebalanceStep | None:
        """Return what the listener must do next; None if nothing."""
        owned = self.owned.partitions
        if self.state in OUT_OF_GROUP:
            return LoseStep(owned) if owned or self.state is _S.REMOVED else None
        if self.state is _S.PREPARING:
            gone = self._before_joining()
            return RevokeStep(gone) if gone else None
        if self.state is not _S.STABLE or self._assigned is None:
            return None
        gone = owned - self._assigned
        if gone:
            return RevokeStep(gone)
        return AssignStep(self._assigned - owned)

    def begin(self, step: RebalanceStep) -> None:
        """Take in that the listener is called for a step."""
        if isinstance(step, AssignStep):
            self._assigned = None
            self.owned.assign(step.partitions, self.generation)
            self._rejoin_if_needed()
        else:
            self._is_revoking = True

    def done(self, step: RebalanceStep) -> None:
        """Take in that the listener has returned from a step."""
        if isinstance(step, AssignStep):
            return
        self._is_revoking = False
        self.owned.release(step.partitions)
        if isinstance(step, LoseStep):
            if self.state is _S.REMOVED:
                self._move("lost")
        elif self.state is _S.STABLE:
            # The next generation gives to other members what was given up here.
            self._rejoin_reason = "partitions were given up, and can be assigned to others"

    # Everything else.

    @property
    def beat_interval_s(self) -> float:
        """Seconds between two heartbeats in a settled group."""
        settings = self.settings
        if settings.heartbeat_interval_ms is not None:
            return settings.heartbeat_interval_ms / 1000
        usual_s = usual_beat_s(self.owned.partitions, self._topics or (), self._partitions)
        return min(usual_s, settings.session_timeout_ms / 3000)

    def _next_beat_at(self, now: float) -> float:
        return next_beat_at(now, self._changed_at, self.beat_interval_s)

    def _has_to_give_up(self) -> bool:
        """Return whether the listener must give up partitions before the member may join."""
        return self._is_revoking or bool(self._before_joining())

    def _before_joining(self) -> frozenset[TopicPartition]:
        """Return the partitions that the member must not own when it joins."""
        owned = self.owned.partitions
        if not self.is_cooperative:
            return owned
        return frozenset(it for it in owned if it.topic not in (self._topics or ()))

    def _accept(
        self, asked: ClassicRequest, answer: Mapping[str, Any], now: float, wait_s: float
    ) -> str | None:
        """Take in an answer without an error. Returns what is wrong with it, for the operator."""
        if asked is ClassicRequest.JOIN:
            self._begin_generation(answer)
        elif asked is ClassicRequest.SYNC:
            return self._take_assignment(answer, now, wait_s)
        return None

    def _begin_generation(self, answer: Mapping[str, Any]) -> None:
        self.member_id = answer["member_id"]
        self.generation = answer["generation_id"]
        self._leader_id = answer["leader"]
        self._protocol_name = answer["protocol_name"]
        self._assigned = None
        self._assignments = []
        self._distributed = None
        self._led = None
        self._try_at = -inf
        # A partition may go and come back within one generation of Kafka, if nothing has changed
        # for the coordinator. A commit from before must not be taken for one of now.
        self.owned.begin_membership()
        if self._leader_id != self.member_id:
            self._move("follow")
            return
        self._led = led_group(answer, self.settings.assignors)
        self._move("lead")
        if answer["skip_assignment"]:
            self._move("plan")

    def _take_assignment(self, answer: Mapping[str, Any], now: float, wait_s: float) -> str | None:
        try:
            assigned = decode_assignment(
                bytes(answer["assignment"]), f"the leader {self._leader_id!r} of the group"
            )
        except MemberDataError as error:
            self._prepare("the assignment cannot be read")
            self._try_at = now + wait_s
            return str(error)
        if self._may_be_of_last_run:
            self._may_be_of_last_run = False
            if {it.topic for it in assigned} != self._joined_topics:
                self._rejoin_reason = (
                    "the last run of this static member may have read other topics"
                )
        # Java's clients do not take topics either that they have not subscribed to.
        assigned = frozenset(it for it in assigned if it.topic in self._joined_topics)
        self._assigned = assigned
        self._last_assigned = assigned
        self._last_generation = self.generation
        self._move("assign")
        # If this assignment is out of date already, the listener does not hear of it.
        self._rejoin_if_needed()
        return None

    def _rejoin(self, reason: str) -> None:
        """Make all members join again, as soon as this member has an assignment."""
        self._rejoin_reason = reason
        if self.state is _S.STABLE:
            self._prepare(reason)

    def _rejoin_if_needed(self) -> None:
        if self._rejoin_reason is not None and self.state is _S.STABLE:
            self._prepare(self._rejoin_reason)

    def _prepare(self, reason: str) -> None:
        """Give up what has to go, and then join again."""
        self._reason = reason
        self._move("rebalance")
        self._try_at = -inf

    def _again(self, asked: ClassicRequest, now: float, wait_s: float) -> None:
        """Send a request again after a pause."""
        if asked is ClassicRequest.JOIN:
            self._move("refuse")
        self._try_at = now + wait_s
        self._beat_at = now + min(wait_s, self.settings.session_timeout_ms / 3000)

    def _remove(self, now: float, wait_s: float) -> None:
        """Lose everything. The member joins again after *wait_s*."""
        self._move("remove")
        self._forget_generation()
        self._try_at = now + wait_s

    def _forget_generation(self) -> None:
        self.generation = NO_GENERATION
        self._assigned = None
        self._led = None
        self._last_assigned = frozenset()
        self._last_generation = NO_GENERATION

    def _of_group(self, partitions: Mapping[str, Sequence[int]]) -> dict[str, Sequence[int]]:
        """Return the partitions of topics that a member of the group reads."""
        topics: Collection[str] = () if self._led is None else self._led.topics
        return {topic: tuple(partitions[topic]) for topic in topics if partitions.get(topic)}

    def _identity(self) -> dict[str, Any]:
        """Return the values of a heartbeat, which all requests of a generation have."""
        return {
            "group_id": self.settings.group_id,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.settings.instance_id,
        }

    def _join_values(self) -> dict[str, Any]:
        settings = self.settings
        self._joined_topics = self._topics or frozenset()
        self._rejoin_reason = None
        return {
            "group_id": settings.group_id,
            "session_timeout_ms": settings.session_timeout_ms,
            "rebalance_timeout_ms": settings.rebalance_timeout_ms,
            "member_id": self.member_id,
            "group_instance_id": settings.instance_id,
            "protocol_type": PROTOCOL_TYPE,
            "protocols": [
                {"name": assignor.name, "metadata": self._metadata(assignor)}
                for assignor in settings.assignors
            ],
            "reason": self._reason,
        }

    def _metadata(self, assignor: Assignor) -> bytes:
        """Return what an assignor is told of this member."""
        owned = self.owned.partitions
        told = (owned, self.generation)
        if not self.is_cooperative:
            told = (self._last_assigned, self._last_generation)
        try:
            user_data = assignor.user_data(*told)
        except Exception as error:
            # The user's own assignor may raise anything.
            raise AssignorError(
                f"the assignor {assignor.name!r} has raised {type(error).__name__}: {error}"
            ) from error
        if not isinstance(user_data or b"", bytes | bytearray | memoryview):
            raise AssignorError(
                f"the assignor {assignor.name!r} has returned {user_data!r} as user data, "
                "which is no bytes"
            )
        return encode_subscription(
            MemberSubscription(
                self._joined_topics, user_data, owned, self.generation, self.settings.rack
            )
        )

    def _sync_values(self) -> dict[str, Any]:
        return {
            **self._identity(),
            "protocol_type": PROTOCOL_TYPE,
            "protocol_name": self._protocol_name,
            "assignments": self._assignments,
        }

    def _leaving(self, reason: str) -> dict[str, Any] | None:
        """Return the values of LeaveGroup; older versions need :func:`leave_values`."""
        is_static = self.settings.instance_id is not None
        if is_static or not self.member_id:
            return None
        member = {"member_id": self.member_id, "group_instance_id": None, "reason": reason}
        return {"group_id": self.settings.group_id, "members": [member]}

    def _move(self, event: str) -> None:
        self.state = next_state(CLASSIC_MEMBER_TRANSITIONS, self.state, event)
