"""A member in the classic protocol: sends its requests, and passes rebalances on."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from contextlib import suppress
from functools import partial
from math import inf
from typing import Any

from reactive_kafka.backoff import Backoff, Waits
from reactive_kafka.broker.client import RebalanceListener
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
    ClassicGroupMember,
    leave_values,
)
from reactive_kafka.broker.consumer.membership.group_parts import (
    CommitIdentity,
    GroupRequests,
    PartitionReader,
    TopicView,
)
from reactive_kafka.broker.consumer.membership.left_behind import (
    LeaveRequest,
    MembersLeftBehind,
)
from reactive_kafka.broker.consumer.membership.listener_calls import ListenerCalls
from reactive_kafka.broker.consumer.membership.member_tasks import MemberTasks, fenced
from reactive_kafka.broker.consumer.membership.owned_since import OwnedSince
from reactive_kafka.broker.wire.definitions import (
    DESCRIBE_GROUPS,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    SYNC_GROUP,
)
from reactive_kafka.broker.wire.errors import MessageDecodeError
from reactive_kafka.errors import (
    BrokerError,
    FatalBrokerError,
)
from reactive_kafka.records import TopicPartition
from reactive_kafka.tasks import Flag

WAITS = Backoff(0.1, 2.0)
"""Between requests that are refused or not answered."""
JOIN_SLACK_S = 5.0
"""The answer to a JoinGroup may come so much later than the rebalance timeout. As in Java."""
SYNC_DEADLINE_S = 30.0
TOPICS_DEADLINE_S = 5.0
LOOK_S = 30.0
"""How often the leader looks whether topics of the group have other partitions than before."""

APIS = {
    ClassicRequest.JOIN: JOIN_GROUP,
    ClassicRequest.SYNC: SYNC_GROUP,
    ClassicRequest.HEARTBEAT: HEARTBEAT,
}


class ClassicGroupMembership:
    """The tasks of one member: one sends requests, the other one calls the listener.

    So heartbeats go on while a listener waits for handlers to finish.

    Args:
        member: The rules.
        requests: Reach the group's coordinator.
        reader: Fetches what the member owns.
        max_poll_interval_s: The member leaves if nobody has polled for so long.
        left_behind: Members before this one that the group still counts. It is told of them.
    """

    def __init__(
        self,
        member: ClassicGroupMember,
        requests: GroupRequests,
        reader: PartitionReader,
        max_poll_interval_s: float,
        left_behind: MembersLeftBehind,
    ) -> None:
        self.member = member
        self._left_behind = left_behind
        self._requests = requests
        self._reader = reader
        self._max_poll_interval_s = max_poll_interval_s
        self._waits = Waits(WAITS)
        self._send_now = Flag()
        self._calls = ListenerCalls(member, reader, self._send_now.set)
        self._tasks = MemberTasks()
        self._polled_at = inf
        self._started_at = inf
        self._topics_seen: Mapping[str, frozenset[int]] = {}
        # When the leader looks at the topics of the group next.
        self._look_at = -inf
        # What the next poll raises, once.
        self._problem: BrokerError | None = None
        # What the group refuses. It is raised by each poll until the group accepts the member.
        self._refusal: BrokerError | None = None

    def start(self, listener: RebalanceListener, topics: Collection[str]) -> None:
        """Join the group. The listener is called when the group has assigned partitions."""
        self._polled_at = self._now()
        self._started_at = self._now()
        self.member.subscribe(topics)
        self._tasks.start(self._send(), "send group requests")
        self._tasks.start(self._calls.run(listener), "pass on rebalances")
        if self._left_behind:
            telling = self._left_behind.tell(self._requests)
            self._tasks.start(telling, "say which members have left")

    def subscribe(self, topics: Collection[str]) -> None:
        """Read these topics from now on."""
        self.member.subscribe(topics)
        self._changed()

    def topics_seen(self, partitions: Mapping[str, Collection[int]]) -> None:
        """Look at the topics at once if this is news. The leader looks every 30 s otherwise."""
        self.member.topics_seen(partitions)
        seen = {topic: frozenset(numbers) for topic, numbers in partitions.items()}
        if seen != self._topics_seen:
            self._topics_seen = seen
            self._look_at = -inf
            self._send_now.set()

    def note_poll(self) -> None:
        """Note that somebody polls the consumer, which proves that the application works."""
        self._polled_at = self._now()
        member = self.member
        if member.state is ClassicMemberState.OVERDUE and not member.owned.partitions:
            member.polled()
            self._changed()

    def raise_errors(self) -> None:
        """Raise what the listener has raised, or why the group refuses the member.

        Raises:
            FencedError: Another consumer has the ``group_instance_id``.
            FatalBrokerError: The group refuses the member, or the leader cannot read the metadata
                of another one. The requests are tried again.
            TransientBrokerError: One of the tasks has ended, which makes the client useless.
        """
        raised = self._calls.take_error()
        if raised is not None:
            raise raised
        self._tasks.raise_ended()
        problem = self._problem
        self._problem = None
        if problem is not None:
            raise problem
        if self._refusal is not None:
            raise self._refusal

    def session_ends_at(self) -> float:
        """Return the monotonic time at which the group may remove this member."""
        ends_at = self.member.session_ends_at()
        if ends_at == inf:
            # The group has accepted nothing yet.
            return self._started_at + self.member.settings.session_timeout_ms / 1000
        return ends_at

    def is_member(self) -> bool:
        return self.member.is_member()

    @property
    def owned(self) -> OwnedSince:
        return self.member.owned

    def commit_identity(self) -> CommitIdentity:
        member = self.member
        return CommitIdentity(member.member_id, member.generation, member.settings.instance_id)

    def refused_commit(self, identity: CommitIdentity, *, is_member: bool) -> None:
        """A commit was refused because of the member's generation. A heartbeat is sent at once.

        It tells whether a rebalance has begun, which the member has not heard of, or whether the
        group has gone on without it. Until then the same commit may be sent again.
        """
        if not is_member:
            self.member.removed(self._now(), identity.member_id)
        self.member.beat_soon()
        self._changed()

    async def close(self, caller: asyncio.Task[Any] | None) -> None:
        """End the tasks, without the *caller*, and leave the group. Calls no listener.

        Raises nothing but cancellation. A second call does nothing.
        """
        if self._has_left():
            return
        await self._tasks.end(caller)
        if self._has_left():
            # Another call has left meanwhile.
            return
        await self._say(self.member.leave())

    def _has_left(self) -> bool:
        return self.member.state is ClassicMemberState.LEFT

    async def _send(self) -> None:
        """Send what is due, one request after the other."""
        while True:
            await self._until_due()
            member = self.member
            now = self._now()
            if member.is_member() and now >= self._polled_at + self._max_poll_interval_s:
                last = member.overdue()
                self._changed()
                await self._say(last)
            elif self._leads() and now >= self._look_at:
                await self._look_at_topics()
            elif member.due_at() <= now:
                await self._send_one()

    async def _send_one(self) -> None:
        """Send the request that is due, and take in its answer."""
        member = self.member
        try:
            request, values = member.next_request(self._now())
        except AssignorError as error:
            self._refuse(FatalBrokerError(str(error)))
            return
        try:
            answer = await self._requests.ask(
                APIS[request], values, deadline_s=self._deadline_s(request)
            )
        except MessageDecodeError as error:
            member.unreadable(self._now(), self._waits.next_s())
            self._refuse(FatalBrokerError(str(error)))
            self._calls.wake()
            return
        except BrokerError as error:
            member.unanswered(self._now(), self._waits.next_s())
            if isinstance(error, FatalBrokerError):
                self._refuse(error)
            return
        effect = member.answered(answer, self._now(), self._waits.next_s())
        if effect.meaning is ClassicAnswer.FENCED:
            self._refuse(fenced(member.settings.instance_id))
        elif effect.refusal is not None:
            self._refuse(FatalBrokerError(effect.refusal))
        elif effect.meaning is ClassicAnswer.FIND_COORDINATOR:
            self._requests.coordinator_moved()
        elif effect.meaning is ClassicAnswer.ACCEPTED and member.state is ClassicMemberState.STABLE:
            self._waits.progressed()
            self._refusal = None
        if member.state is ClassicMemberState.LEADING:
            self._look_at = -inf
        self._calls.wake()

    async def _look_at_topics(self) -> None:
        """Look up the topics of the group, and distribute their partitions if that is due."""
        member = self.member
        try:
            async with asyncio.timeout(TOPICS_DEADLINE_S):
                view = await self._requests.look_up(member.topics_to_lead() or ())
            if member.wants_kept_partitions():
                member.kept_partitions_seen(await self._kept_partitions(view))
        except (BrokerError, TimeoutError):
            self._look_at = self._now() + self._waits.next_s()
            return
        self._look_at = self._now() + LOOK_S
        if member.state is ClassicMemberState.LEADING:
            self._lead(view)
        else:
            member.partitions_seen(view.partitions)
            self._calls.wake()

    async def _kept_partitions(self, view: TopicView) -> Collection[TopicPartition]:
        """Return the assigned partitions, or all of the view if the coordinator does not say.

        Raises:
            TransientBrokerError: No answer.
        """
        kept: Collection[TopicPartition] | None = None
        values = {"groups": [self.member.settings.group_id]}
        with suppress(FatalBrokerError):
            answer = await self._requests.ask(DESCRIBE_GROUPS, values, deadline_s=TOPICS_DEADLINE_S)
            kept = partitions_kept(answer)
        if kept is not None:
            return kept
        return [
            TopicPartition(topic, number)
            for topic, numbers in view.partitions.items()
            for number in numbers
        ]

    def _lead(self, view: TopicView) -> None:
        """Distribute the partitions, and report what is wrong with members or the assignor."""
        member = self.member
        problems = member.lead(
            view.partitions, view.replica_racks, self._now(), self._waits.next_s()
        )
        if problems:
            error = FatalBrokerError("; ".join(problems))
            if member.state is ClassicMemberState.SYNCING:
                # The other members have their partitions.
                self._problem = error
                self._reader.wake()
            else:
                self._refuse(error)

    def _leads(self) -> bool:
        return self.member.topics_to_lead() is not None

    def _deadline_s(self, request: ClassicRequest) -> float:
        settings = self.member.settings
        if request is ClassicRequest.JOIN:
            return settings.rebalance_timeout_ms / 1000 + JOIN_SLACK_S
        if request is ClassicRequest.SYNC:
            return SYNC_DEADLINE_S
        # Longer than the silence after which a connection is taken for dead, a third of a session.
        return settings.session_timeout_ms / 2000

    async def _say(self, leaving: Mapping[str, Any] | None) -> None:
        """Tell the group that this member leaves, if there is anything to tell."""
        if leaving is not None:
            request = LeaveRequest(LEAVE_GROUP, partial(leave_values, leaving))
            await self._left_behind.leave(request, self._requests)

    async def _until_due(self) -> None:
        """Wait until something is to be sent, or nobody has polled for too long."""
        self._send_now.clear()
        member = self.member
        due_at = member.due_at()
        if member.is_member():
            due_at = min(due_at, self._polled_at + self._max_poll_interval_s)
        if self._leads():
            due_at = min(due_at, self._look_at)
        wait_s = due_at - self._now()
        if wait_s <= 0:
            # Let other tasks run, in a loop that has always something to send.
            await asyncio.sleep(0)
            return
        try:
            async with asyncio.timeout(None if wait_s == inf else wait_s):
                await self._send_now.wait()
        except TimeoutError:
            return

    def _changed(self) -> None:
        """Let both tasks look whether they have something to do."""
        self._send_now.set()
        self._calls.wake()

    def _refuse(self, error: BrokerError) -> None:
        self._refusal = error
        self._reader.wake()

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
