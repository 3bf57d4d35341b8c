"""A member in the consumer protocol: sends its heartbeats, and passes rebalances on."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from math import inf
from typing import Any

from reactive_kafka.backoff import Backoff, Waits
from reactive_kafka.broker.client import RebalanceListener
from reactive_kafka.broker.consumer.membership.consumer_group.heartbeat_answers import (
    HeartbeatAnswer,
    describe_refusal,
    meaning_of,
)
from reactive_kafka.broker.consumer.membership.consumer_group.member import (
    JOINS,
    ConsumerGroupMember,
)
from reactive_kafka.broker.consumer.membership.consumer_group.member_states import (
    ConsumerMemberState,
)
from reactive_kafka.broker.consumer.membership.group_parts import (
    CommitIdentity,
    GroupRequests,
    PartitionReader,
)
from reactive_kafka.broker.consumer.membership.left_behind import (
    LeaveRequest,
    MembersLeftBehind,
)
from reactive_kafka.broker.consumer.membership.listener_calls import ListenerCalls
from reactive_kafka.broker.consumer.membership.member_tasks import MemberTasks, fenced
from reactive_kafka.broker.consumer.membership.owned_since import OwnedSince
from reactive_kafka.broker.wire.definitions import CONSUMER_GROUP_HEARTBEAT
from reactive_kafka.errors import (
    BrokerError,
    FatalBrokerError,
    TransientBrokerError,
)
from reactive_kafka.tasks import Flag

WAITS = Backoff(0.1, 2.0)
"""Between heartbeats that are refused or not answered."""
SESSION_S = 45.0
"""How long the broker waits for a heartbeat: the default of group.consumer.session.timeout.ms.

This is assumed until the broker has named the group's own, or where the right to ask is missing.
"""
SESSION_EVERY_S = 300.0
"""How often the broker is asked for the group's session timeout, which operators can change."""


class ConsumerGroupMembership:
    """The tasks of one member.

    One sends heartbeats, and another one calls the listener, so heartbeats go on while a listener
    waits for handlers to finish. The third one asks for the session timeout.

    Args:
        member: The rules.
        requests: Reach the group's coordinator.
        reader: Fetches what the member owns.
        max_poll_interval_s: The member leaves if nobody has polled for so long.
        left_behind: Members before this one that the group still counts. It is told of them.
    """

    def __init__(
        self,
        member: ConsumerGroupMember,
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
        self._beat_now = Flag()
        self._calls = ListenerCalls(member, reader, self._beat_now.set, self._learn_names)
        self._tasks = MemberTasks()
        self._polled_at = inf
        # When the last heartbeat was sent that the group has accepted; at first the start.
        self._accepted_at = inf
        self._session_s = SESSION_S
        # What the group refuses. It is raised by each poll until the group accepts a heartbeat.
        self._refusal: BrokerError | None = None

    def start(self, listener: RebalanceListener, topics: Collection[str]) -> None:
        """Join the group. The listener is called when the group has assigned partitions."""
        self._polled_at = self._now()
        self._accepted_at = self._now()
        self.member.subscribe(topics)
        self._calls.wake()
        self._tasks.start(self._beat(), "send heartbeats")
        self._tasks.start(self._calls.run(listener), "pass on rebalances")
        self._tasks.start(self._follow_session(), "ask for the session timeout")
        if self._left_behind:
            telling = self._left_behind.tell(self._requests)
            self._tasks.start(telling, "say which members have left")

    def subscribe(self, topics: Collection[str]) -> None:
        """Read these topics from now on."""
        self.member.subscribe(topics)
        self._beat_now.set()

    def topics_seen(self, partitions: Mapping[str, Collection[int]]) -> None:
        """Tell the member. The broker itself watches the topics of its groups."""
        self.member.topics_seen(partitions)

    def note_poll(self) -> None:
        """Note that somebody polls the consumer, which proves that the application works."""
        self._polled_at = self._now()
        member = self.member
        if member.state is ConsumerMemberState.OVERDUE and not member.owned.partitions:
            member.polled()
            self._beat_now.set()

    def raise_errors(self) -> None:
        """Raise what the listener has raised, or why the group refuses the member.

        Raises:
            FencedError: Another consumer has the ``group_instance_id``.
            FatalBrokerError: The group refuses the member. The heartbeats are tried again.
            TransientBrokerError: One of the tasks has ended, which makes the client useless.
        """
        raised = self._calls.take_error()
        if raised is not None:
            raise raised
        self._tasks.raise_ended()
        if self._refusal is not None:
            raise self._refusal

    def session_ends_at(self) -> float:
        """Return the monotonic time at which the group may remove this member."""
        return self._accepted_at + self._session_s

    def is_member(self) -> bool:
        return self.member.is_member()

    @property
    def owned(self) -> OwnedSince:
        return self.member.owned

    def commit_identity(self) -> CommitIdentity:
        settings = self.member.settings
        epoch = self.member.epoch
        return CommitIdentity(settings.member_id, epoch, settings.instance_id, is_epoch=True)

    def refused_commit(self, identity: CommitIdentity, *, is_member: bool) -> None:
        """A commit was refused because of the member's epoch: ask for the current one at once."""
        if not is_member:
            self.member.removed(self._now(), 0.0)
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
        return self.member.state is ConsumerMemberState.LEFT

    async def _beat(self) -> None:
        while True:
            await self._until_due()
            member = self.member
            if member.is_member() and self._is_overdue():
                await self._leave_overdue()
                continue
            sent_at = self._now()
            if member.due_at() > sent_at:
                continue
            values = member.heartbeat()
            try:
                answer = await self._requests.ask(CONSUMER_GROUP_HEARTBEAT, values)
            except BrokerError as error:
                member.refused(self._now(), self._waits.next_s())
                if isinstance(error, FatalBrokerError):
                    self._refuse(error)
                continue
            self._take(answer, sent_at, is_join=values["member_epoch"] == JOINS)

    def _take(self, answer: Any, sent_at: float, *, is_join: bool) -> None:
        """Take in an answer, and have the listener called if there may be a next step."""
        member = self.member
        code = answer["error_code"]
        meaning = meaning_of(code, is_join=is_join)
        may_have_step = True
        if meaning is HeartbeatAnswer.ACCEPTED:
            may_have_step = member.answered(answer, self._now())
            self._waits.progressed()
            self._accepted_at = sent_at
            self._refusal = None
        elif meaning is HeartbeatAnswer.REMOVED:
            member.removed(self._now(), self._waits.next_s())
        elif meaning is HeartbeatAnswer.FENCED:
            member.fenced()
            self._refuse(fenced(member.settings.instance_id))
        else:
            if meaning is HeartbeatAnswer.FIND_COORDINATOR:
                self._requests.coordinator_moved()
            member.refused(self._now(), self._waits.next_s())
            if meaning is HeartbeatAnswer.OPERATOR:
                group_id = member.settings.group_id
                refusal = describe_refusal(group_id, code, answer["error_message"])
                self._refuse(FatalBrokerError(refusal))
        if may_have_step:
            self._calls.wake()

    async def _leave_overdue(self) -> None:
        """Leave, because nobody polls: other members handle the partitions meanwhile."""
        last = self.member.overdue()
        self._calls.wake()
        await self._say(last)

    async def _say(self, leaving: Mapping[str, Any] | None) -> None:
        """Tell the group that this member leaves, if there is anything to tell."""
        if leaving is not None:
            request = LeaveRequest(CONSUMER_GROUP_HEARTBEAT, leaving)
            await self._left_behind.leave(request, self._requests)

    async def _follow_session(self) -> None:
        """Learn after how long a silence the group removes a member."""
        waits = Waits(WAITS)
        while True:
            try:
                self._session_s = await self._requests.session_timeout_s() or SESSION_S
            except TransientBrokerError:
                await asyncio.sleep(waits.next_s())
                continue
            except FatalBrokerError:
                # For example a broker that names no settings of groups.
                pass
            waits.progressed()
            await asyncio.sleep(SESSION_EVERY_S)

    async def _learn_names(self) -> None:
        """Ask for the names of topics that are new in the target.

        A broker may learn of a new topic later than the coordinator: the next answer to a
        heartbeat leads here again.
        """
        unknown = self.member.unknown_topic_ids()
        if not unknown:
            return
        try:
            self.member.learn(await self._requests.topic_names(unknown))
        except BrokerError:
            # The next heartbeat's answer leads here again.
            pass

    async def _until_due(self) -> None:
        """Wait until a heartbeat is due, or nobody has polled for too long."""
        self._beat_now.clear()
        overdue_at = inf
        if self.member.is_member():
            overdue_at = self._polled_at + self._max_poll_interval_s
        wait_s = min(self.member.due_at(), overdue_at) - self._now()
        if wait_s <= 0:
            # Let other tasks run, in a loop that has always something to send.
            await asyncio.sleep(0)
            return
        try:
            async with asyncio.timeout(None if wait_s == inf else wait_s):
                await self._beat_now.wait()
        except TimeoutError:
            return

    def _is_overdue(self) -> bool:
        return self._now() >= self._polled_at + self._max_poll_interval_s

    def _changed(self) -> None:
        """Let both tasks look whether they have something to do."""
        self._beat_now.set()
        self._calls.wake()

    def _refuse(self, error: BrokerError) -> None:
        self._refusal = error
        self._reader.wake()

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
