"""What a membership needs of the client that it lives in, and what the client needs of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from reactive_kafka.broker.client import RebalanceListener
from reactive_kafka.broker.consumer.membership.owned_since import OwnedSince
from reactive_kafka.broker.wire.schema import Api
from reactive_kafka.records import TopicPartition


class CommitIdentity(NamedTuple):
    """In whose name a member commits."""

    member_id: str
    # The generation of the classic protocol, or the member epoch of the consumer protocol.
    generation_or_epoch: int
    instance_id: str | None
    is_epoch: bool = False


LEAVE_DEADLINE_S = 2.0
LOST_LEAVE_DEADLINE_S = 0.5
"""While the coordinator is not known, as in an outage: a stop must not wait long for nothing."""
NOBODY = CommitIdentity("", -1, None)
"""The identity of a commit from outside of the group."""


class GroupMembership(Protocol):
    """A member of a group in one of the protocols: its tasks, and what it owns."""

    @property
    def owned(self) -> OwnedSince: ...

    def start(self, listener: RebalanceListener, topics: Collection[str]) -> None:
        """Join the group. The listener is called when the group has assigned partitions."""

    def subscribe(self, topics: Collection[str]) -> None:
        """Read these topics from now on."""

    def topics_seen(self, partitions: Mapping[str, Collection[int]]) -> None:
        """Note which partitions the topics of this member have, as the client has just heard.

        Args:
            partitions: Topic -> numbers of its partitions, without topics that do not exist.
        """

    def note_poll(self) -> None:
        """Note that somebody polls the consumer, which proves that the application works."""

    def raise_errors(self) -> None:
        """Raise what the listener has raised, or why the group refuses the member.

        Raises:
            FencedError: Another consumer has the ``group_instance_id``.
            FatalBrokerError: The group refuses the member. The requests are tried again.
            TransientBrokerError: One of the tasks has ended, which makes the client useless.
        """

    def is_member(self) -> bool:
        """Return False once the group, or this member, has ended the membership."""

    def session_ends_at(self) -> float:
        """Return the monotonic time at which the group may remove this member."""

    def commit_identity(self) -> CommitIdentity:
        """Return in whose name a commit is to be sent now."""

    def refused_commit(self, identity: CommitIdentity, *, is_member: bool) -> None:
        """A commit was refused because of the member. The group is asked at once what has changed.

        Args:
            identity: In whose name it was sent.
            is_member: False: the group does not know that member any more.
        """

    async def close(self, caller: asyncio.Task[Any] | None) -> None:
        """End the tasks, without the *caller*, and leave the group. Calls no listener.

        Raises nothing but cancellation. A second call does nothing.
        """


class TopicView(NamedTuple):
    """What the leader of a classic group needs to know of topics."""

    # Topic -> its partitions in ascending order. Topics that do not exist are missing.
    partitions: Mapping[str, Sequence[int]]
    # Partition -> racks of its replicas. Empty if the brokers are in no racks.
    replica_racks: Mapping[TopicPartition, frozenset[str]]


class GroupRequests(Protocol):
    """Sends requests to the coordinator of one group, and asks for topics."""

    async def ask(
        self,
        api: Api,
        values: Mapping[str, Any] | Callable[[int], Mapping[str, Any]],
        *,
        deadline_s: float = ...,
    ) -> Mapping[str, Any]:
        """Send one request in one attempt, and return the values of its answer.

        A broker answers the requests of a connection one after the other, and a JoinGroup waits
        until all members have joined. So it needs another connection than commits.

        Args:
            api: From ``broker.wire.definitions``.
            values: The fields of the request, or a function that makes them for a version.
            deadline_s: How long to wait for the answer.

        Raises:
            TransientBrokerError: No coordinator is known, or it has not answered in time.
            FatalBrokerError: The coordinator does not have this API, or is too old for one of the
                values, or refuses the login.
        """

    def coordinator_moved(self) -> None:
        """Look for the coordinator again before the next request."""

    def leave_deadline_s(self) -> float:
        """Return how long a member that stops may try to tell that it leaves."""

    async def session_timeout_s(self) -> float | None:
        """Return the session timeout of members in the consumer protocol, in seconds.

        None: the broker does not name it, for example for want of the right DESCRIBE_CONFIGS.

        Raises:
            BrokerError: No broker has answered.
        """

    async def topic_names(self, ids: Collection[bytes]) -> Mapping[bytes, str]:
        """Return topic id -> name, for those that a broker knows.

        Raises:
            BrokerError: No broker has answered.
        """

    async def look_up(self, topics: Collection[str]) -> TopicView:
        """Return the partitions of these topics, as a broker knows them now.

        Raises:
            BrokerError: No broker has answered.
        """


class PartitionReader(Protocol):
    """Fetches the partitions that the member owns."""

    def hold(self, partitions: Collection[TopicPartition]) -> None:
        """Add partitions. They are not fetched before ``start_at`` has set where each begins."""

    def stop_reading(self, partitions: Collection[TopicPartition]) -> None:
        """Return no more records of these partitions. They are still owned."""

    def release(self, partitions: Collection[TopicPartition]) -> None:
        """Remove partitions, and all that was fetched for them."""

    def wake(self) -> None:
        """End a poll that waits, because the next one has an error to raise."""
