"""The in-memory broker as tests see it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import count
from typing import Literal

from reactive_kafka.broker.client import Connector, Written
from reactive_kafka.broker.memory.heartbeat_member import HeartbeatMember
from reactive_kafka.broker.memory.member import CooperativeMember, Member
from reactive_kafka.broker.memory.memory_connector import MemoryConnector
from reactive_kafka.broker.memory.memory_positions import CommitEntry
from reactive_kafka.broker.memory.memory_state import MemoryState
from reactive_kafka.broker.memory.partition_log import PartitionLog, Spoiled, StoredRecord
from reactive_kafka.broker.memory.scripted_faults import Call, Hold, Request, ScriptedFault
from reactive_kafka.clock import SYSTEM_CLOCK, Clock
from reactive_kafka.errors import BrokerError, RejectedRecordError, TransientBrokerError
from reactive_kafka.records import Committed, HeaderPairs, RecordBytes, TopicPartition
from reactive_kafka.wire import record_problem

AssignmentKind = Literal["eager", "cooperative", "consumer"]
_MEMBERS: Mapping[AssignmentKind, type[Member] | type[HeartbeatMember]] = {
    "eager": Member,
    "cooperative": CooperativeMember,
    "consumer": HeartbeatMember,
}


class MemoryBroker:
    """A broker inside the process: nothing is on disk, no port is opened, and no thread runs.

    It waits only on the event loop's time, so tests can run it in virtual time. It belongs to the
    loop in which its clients run. No call is safe from other threads.

    Args:
        clock: For the timestamps of records and the times of commits.
        partitions: How many partitions a topic gets that is created by its first use.
        auto_create: Whether topics are created by their first use.
    """

    def __init__(
        self, clock: Clock = SYSTEM_CLOCK, *, partitions: int = 4, auto_create: bool = True
    ) -> None:
        self._state = MemoryState(clock, partitions, auto_create=auto_create)
        # Counts records without a key, which go to the partitions in turn.
        self._turn = count()

    def connector(self, *, assignment: AssignmentKind = "eager") -> Connector:
        """Return a connector to this broker.

        ``cooperative`` clients keep the partitions that stay theirs in a rebalance, and so do
        ``consumer`` clients, whose groups have the consumer protocol (KIP-848). A client whose
        properties name a ``group_protocol`` has that one.
        """
        return MemoryConnector(self._state, _MEMBERS[assignment])

    async def close(self) -> None:
        """End the broker's own tasks, for tests that count what is left behind."""
        self._state.transactions.close()
        await self._state.faults.close()
        await asyncio.gather(*(group.close() for group in self._state.groups.values()))

    # Topics and their logs, as a test sees and changes them.

    def create_topic(
        self, topic: str, partitions: int, configs: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic, or give it more partitions than it has. Groups that read it rebalance.

        Clients can read its *configs* (Kafka's ``retention.ms`` and others). This broker does not
        act on them.
        """
        self._state.create(topic, partitions, configs)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic, its records, and what groups have committed for it.

        Its next use creates it again.
        """
        self._state.delete(topic)

    def produce(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: HeaderPairs = (),
        timestamp_ms: int | None = None,
    ) -> Written:
        """Store a record at once, whatever faults are set. Without a key, partitions take turns.

        Raises:
            RejectedRecordError: A real client would refuse it, for example because a value is a
                str.
            LookupError: The topic has no such partition.
        """
        if problem := record_problem(topic, value, key, headers, partition, timestamp_ms):
            raise RejectedRecordError(f"{topic}: {problem}")
        if partition is None:
            partition = self._state.spread(topic, key, self._turn)
        target = TopicPartition(topic, partition)
        # Raises LookupError if there is no such partition.
        self._log(target)
        return self._state.append(target, RecordBytes(value, key, headers, timestamp_ms))

    def append_markers(self, partition: TopicPartition, count: int = 1) -> None:
        """Use up offsets at the end of the log without records, as transactions do."""
        self._log(partition).append_markers(count)
        self._state.changed.notify()

    def compact(self, partition: TopicPartition, offsets: Collection[int]) -> None:
        """Remove records from the log. Their offsets stay as gaps."""
        self._log(partition).remove(offsets)

    def delete_records(self, partition: TopicPartition, before: int) -> None:
        """Move the log's start to *before*, as retention does. Lower positions are out of range."""
        self._log(partition).delete_before(before)
        self._state.changed.notify()

    def truncate(self, partition: TopicPartition, end: int) -> None:
        """Cut the log off at *end*, as an unclean leader election does.

        Higher positions are out of range.
        """
        self._log(partition).truncate(end)
        self._state.changed.notify()

    def log(self, partition: TopicPartition) -> Sequence[StoredRecord]:
        """Return the records of a partition, oldest first, also uncommitted and aborted ones."""
        return self._log(partition).records

    def committed_log(self, partition: TopicPartition) -> Sequence[StoredRecord]:
        """Return the records that a consumer with ``isolation_level = "read_committed"`` gets."""
        log = self._log(partition)
        return log.read(log.start, log.end, True)[0]

    def spoil(
        self, partition: TopicPartition, first: int, last: int, *, tells_end: bool = True
    ) -> None:
        """Make offsets unreadable, like a batch with a wrong checksum.

        *tells_end*: whether the bytes still say where the batch ends.
        """
        self._log(partition).spoiled.append(Spoiled(first, last + 1, tells_end))

    def mend(self, partition: TopicPartition) -> None:
        """Make all offsets of a partition readable again."""
        self._log(partition).spoiled.clear()
        self._state.changed.notify()

    def end(self, partition: TopicPartition) -> int:
        """Return the offset that the next record gets."""
        return self._log(partition).end

    def topics(self) -> dict[str, int]:
        """Return topic -> number of partitions."""
        return {topic: len(logs) for topic, logs in self._state.logs.items()}

    # Groups, as a test sees and disturbs them.

    def committed(self, group: str) -> dict[TopicPartition, Committed]:
        """Return partition -> the position that the group has stored."""
        return dict(self._state.group(group).commits)

    def commits(self, group: str) -> Sequence[CommitEntry]:
        """Return every commit that the group has accepted, oldest first."""
        return tuple(self._state.group(group).history)

    def limit_metadata(self, group: str, units: int) -> None:
        """Set how much metadata a position may have, in UTF-16 units, like a broker's own limit."""
        self._state.group(group).metadata_limit = units

    def watch_commits(self, group: str, watcher: Callable[[CommitEntry], None]) -> None:
        """Call *watcher* at each commit that the group accepts. Its errors fail the commit."""
        self._state.group(group).watchers.append(watcher)

    def members(self, group: str) -> dict[str, frozenset[TopicPartition]]:
        """Return member id -> its assigned partitions, in the order of joining.

        Ids are the consumer's name and a number.
        """
        members = self._state.group(group).members
        return {member_id: member.assignment.partitions for member_id, member in members.items()}

    def generation(self, group: str) -> int:
        """Return how many assignments the group has made; in the consumer protocol its epoch."""
        return self._state.group(group).assignments

    def rebalance(self, group: str) -> None:
        """Make a group rebalance with the members that it has."""
        self._state.group(group).rebalance()

    def expire(self, group: str, member_id: str, *, notice_after_s: float = 0.0) -> None:
        """End a member's session: it is out at once, its partitions move, and its commits fail.

        It notices (``on_revoked``) after *notice_after_s*, or when one of its commits was refused.
        Until then it continues to read, like a member that was frozen. Then it joins again with
        another id.
        KeyError: the group has no such member.
        """
        self._state.group(group).expire(member_id, notice_after_s)

    def cut_off(self, group: str, member_id: str) -> None:
        """Cut a member off from its group: heartbeats and commits are lost, but its polls continue.

        When its ``session_timeout_ms`` is over it is out, and its partitions move. It is not told.
        KeyError: the group has no such member.
        """
        self._state.group(group).cut_off(member_id, self._state.clock.monotonic())

    def heal(self, group: str) -> None:
        """End what :meth:`cut_off` has done. A member whose session has ended rejoins."""
        self._state.group(group).heal()

    def crash(self, group: str, member_id: str, *, session_s: float | None = None) -> None:
        """Let a member vanish without leaving the group, like a killed process.

        Its client raises from then on, and calls no listener. Requests that it has sent still
        arrive. The group keeps it as a member until its session ends, and a rebalance waits until
        then. The session lasts *session_s*, or if that is None, the member's
        ``session_timeout_ms``. KeyError: the group has no such member.
        """
        self._state.group(group).crash(member_id, session_s)

    # Faults: what the next calls of clients meet.

    @property
    def down(self) -> bool:
        """While True, calls raise TransientBrokerError, and polls return nothing.

        Members stay members, also those that stop meanwhile, because the group cannot hear of it.
        Their sessions end after the outage, or when the same application joins again: its new
        member says that the old one has left.
        """
        return self._state.faults.is_down

    @down.setter
    def down(self, down: bool) -> None:
        if down and not self.down:
            self._state.faults.went_down_at = self._state.clock.monotonic()
        elif self.down and not down:
            for group in self._state.groups.values():
                group.broker_is_back()
        self._state.faults.is_down = down
        self._state.changed.notify()

    @property
    def answer_timeout_s(self) -> float:
        """How long a client waits for an answer that is held up, in seconds; 10 by default."""
        return self._state.faults.answer_timeout_s

    @answer_timeout_s.setter
    def answer_timeout_s(self, seconds: float) -> None:
        self._state.faults.answer_timeout_s = seconds

    def topic_away(self, topic: str, error: BrokerError | None = None) -> None:
        """Refuse every send to a topic with *error*, until :meth:`topic_back`.

        By default that is a TransientBrokerError. A FatalBrokerError simulates a withdrawn right.
        """
        away = TransientBrokerError(f"topic {topic!r} of the in-memory broker is away")
        self._state.faults.topics_away[topic] = away if error is None else error

    def topic_back(self, topic: str) -> None:
        """Let a topic be written to again."""
        self._state.faults.topics_away.pop(topic, None)

    def leader_away(self, partition: TopicPartition, node: str | None = None) -> None:
        """Make a partition unreadable and unwritable until :meth:`leader_back`.

        *node* does not answer; None: no node leads the partition. Everything else continues, also
        groups and their commits, as if one of several nodes was away.
        """
        self._state.faults.leaders_away[TopicPartition(*partition)] = node

    def leader_back(self, partition: TopicPartition) -> None:
        """Let a partition be read and written again."""
        self._state.faults.leaders_away.pop(TopicPartition(*partition), None)
        self._state.changed.notify()

    def refuse_positions(self, partition: TopicPartition, error: BrokerError) -> None:
        """Refuse the positions of a partition until :meth:`accept_positions`.

        Those of other partitions in the same request are stored. A broker acts like this when the
        right to read the topic was withdrawn.
        """
        self._state.faults.refused_positions[TopicPartition(*partition)] = error

    def accept_positions(self, partition: TopicPartition) -> None:
        """Store the positions of a partition again."""
        self._state.faults.refused_positions.pop(TopicPartition(*partition), None)

    def asked(self, call: Call) -> int:
        """Return how many calls of one kind clients have made, failed ones too.

        Sends are counted only if a fault waits for them.
        """
        return self._state.faults.counts[call]

    # Of the following three methods, *of* selects calls: by the topic of a "send", the group of a
    # "commit", "commit_in" or "add_group", the transactional id of a "claim" or an "end". None
    # selects all calls of the kind.

    def fail_next(
        self,
        call: Call,
        error: BrokerError,
        times: int = 1,
        *,
        stored: bool = False,
        of: str | None = None,
    ) -> None:
        """Let the next calls of one kind raise *error*. With *stored* they take effect before."""
        self._state.faults.add(call, of, [ScriptedFault(error=error, after=stored)] * times)

    def delay_next(
        self,
        call: Request,
        seconds: float,
        times: int = 1,
        *,
        answer: bool = False,
        of: str | None = None,
    ) -> None:
        """Delay the next calls of one kind on their way, or their *answer* on its way back.

        After ``answer_timeout_s`` the caller gives up, but the call still takes effect.
        """
        self._state.faults.add(call, of, [ScriptedFault(delay_s=seconds, after=answer)] * times)

    def hold(self, call: Request, *, answer: bool = False, of: str | None = None) -> Hold:
        """Hold up the next call of one kind on its way there, or its *answer* on the way back.

        A held call continues when it is released, even if its caller has given up.
        """
        hold = Hold()
        self._state.faults.add(call, of, [ScriptedFault(hold=hold, after=answer)])
        return hold

    def _log(self, partition: TopicPartition) -> PartitionLog:
        partition = TopicPartition(*partition)
        self._state.use(partition.topic)
        if (log := self._state.log(partition)) is None:
            raise LookupError(f"{partition} does not exist")
        return log
