"""A Kafka in memory, for tests: topics with gaps in their logs, groups that rebalance, commits, and
faults at will.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import count
from typing import Literal

from reactive_kafka.broker.client import Connector, Written
from reactive_kafka.broker.memory import sessions
from reactive_kafka.broker.memory.member import CooperativeMember, Member
from reactive_kafka.broker.memory.memory_connector import MemoryConnector
from reactive_kafka.broker.memory.memory_state import MemoryState
from reactive_kafka.broker.memory.partition_log import PartitionLog, Spoiled, StoredRecord
from reactive_kafka.broker.memory.scripted_faults import Call, Hold, Request, ScriptedStep
from reactive_kafka.broker.memory.stored_positions import CommitEntry
from reactive_kafka.clock import SYSTEM_CLOCK, Clock
from reactive_kafka.errors import BrokerError, RejectedRecordError, TransientBrokerError
from reactive_kafka.records import Committed, HeaderPairs, RecordBytes, TopicPartition
from reactive_kafka.wire import record_problem

AssignmentKind = Literal["eager", "cooperative"]


class _Topics:
    """Topics and their logs, as a test sees and changes them."""

    def __init__(self, state: MemoryState) -> None:
        self._state = state
        self._turn = count()

    def create_topic(
        self, topic: str, partitions: int, configs: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic, or give it more partitions than it has; groups that read it rebalance.

        Its *configs* (``retention.ms`` and others of Kafka's) are told to commands that ask for
        them. This broker deletes and refuses nothing because of them.
        """
        self._state.create(topic, partitions, configs)

    def delete_topic(self, topic: str) -> None:
        """Drop a topic, its records and what groups have committed for it; its next use creates it
        anew.
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
            RejectedRecordError: A real client would not take it: the value a str, say, or that of a
                header.
            LookupError: The topic has no such partition.
        """
        if problem := record_problem(topic, value, key, headers, partition, timestamp_ms):
            raise RejectedRecordError(f"{topic}: {problem}")
        target = TopicPartition(
            topic, self._state.spread(topic, key, self._turn) if partition is None else partition
        )
        # Raises where there is none.
        self._log(target)
        return self._state.append(target, RecordBytes(value, key, headers, timestamp_ms))

    def append_markers(self, partition: TopicPartition, count: int = 1) -> None:
        """Use up offsets at the log's end that hold no record, as transactions do."""
        self._log(partition).append_markers(count)
        self._state.changed.notify()

    def compact(self, partition: TopicPartition, offsets: Collection[int]) -> None:
        """Take records out of the log; their offsets stay as gaps."""
        self._log(partition).remove(offsets)

    def delete_records(self, partition: TopicPartition, before: int) -> None:
        """Move the log's start to *before*, as retention does: positions below it are out of
        range.
        """
        self._log(partition).delete_before(before)
        self._state.changed.notify()

    def truncate(self, partition: TopicPartition, end: int) -> None:
        """Cut the log off at *end*, as an unclean leader election does: positions above it are out
        of range.
        """
        self._log(partition).truncate(end)
        self._state.changed.notify()

    def log(self, partition: TopicPartition) -> Sequence[StoredRecord]:
        """The records of a partition, oldest first; also those in transactions that are open, or
        were aborted.
        """
        return self._log(partition).records

    def committed_log(self, partition: TopicPartition) -> Sequence[StoredRecord]:
        """The records of a partition that a consumer with ``isolation_level = "read_committed"``
        gets, oldest first.
        """
        log = self._log(partition)
        return log.read(log.start, log.end, True)[0]

    def spoil(
        self, partition: TopicPartition, first: int, last: int, *, tells_end: bool = True
    ) -> None:
        """Let nobody read these offsets, as a batch with a wrong checksum; not *tells_end*: nor
        where it ends.
        """
        self._log(partition).spoiled.append(Spoiled(first, last + 1, tells_end))

    def mend(self, partition: TopicPartition) -> None:
        """Let all of a partition be read again."""
        self._log(partition).spoiled.clear()
        self._state.changed.notify()

    def end(self, partition: TopicPartition) -> int:
        """The offset that the next record gets."""
        return self._log(partition).end

    def topics(self) -> dict[str, int]:
        """topic -> number of partitions."""
        return {topic: len(logs) for topic, logs in self._state.logs.items()}

    def _log(self, partition: TopicPartition) -> PartitionLog:
        partition = TopicPartition(*partition)
        self._state.use(partition.topic)
        if (log := self._state.log(partition)) is None:
            raise LookupError(f"{partition} does not exist")
        return log


class _Groups:
    """Groups, as a test sees them and disturbs them."""

    _state: MemoryState

    def committed(self, group: str) -> dict[TopicPartition, Committed]:
        """partition -> what the group has stored."""
        return dict(self._state.group(group).commits)

    def commits(self, group: str) -> Sequence[CommitEntry]:
        """Every commit that the group has accepted, oldest first."""
        return tuple(self._state.group(group).history)

    def limit_metadata(self, group: str, units: int) -> None:
        """Let the group take so much metadata with a position, in UTF-16 units; as a broker set up
        to take less.
        """
        self._state.group(group).metadata_limit = units

    def watch_commits(self, group: str, watcher: Callable[[CommitEntry], None]) -> None:
        """Call *watcher* at each commit that the group accepts; what it raises, the member's commit
        raises.
        """
        self._state.group(group).watchers.append(watcher)

    def members(self, group: str) -> dict[str, frozenset[TopicPartition]]:
        """member id -> what is assigned to it now, by order of joining. Ids are the consumer's name
        and a number.
        """
        members = self._state.group(group).members
        return {member_id: member.assignment.partitions for member_id, member in members.items()}

    def generation(self, group: str) -> int:
        """How many assignments the group has seen."""
        return self._state.group(group).generation

    def rebalance(self, group: str) -> None:
        """Make a group rebalance, with the members it has."""
        self._state.group(group).rebalance()

    def expire(self, group: str, member_id: str, *, notice_after_s: float = 0.0) -> None:
        """Let a member's session end: it is out at once, its partitions move, its commits fail.

        It is told (``on_revoked``) after *notice_after_s*, or when a commit of its was refused;
        until then it reads on like any member that was frozen and woke up. Then it joins again,
        under another id. KeyError: the group has no such member.
        """
        self._state.group(group).expire(member_id, notice_after_s)

    def cut_off(self, group: str, member_id: str) -> None:
        """Cut a member off from its group: its heartbeats and commits reach nobody, and its polls
        go on.

        When its ``session_timeout_ms`` is over it is out, and its partitions move; it is not told.
        KeyError: the group has no such member.
        """
        sessions.cut_off(self._state.group(group), member_id, self._state.clock.monotonic())

    def heal(self, group: str) -> None:
        """End what :meth:`cut_off` has done: a member whose session has ended is told, and joins
        again.
        """
        sessions.heal(self._state.group(group))

    def crash(self, group: str, member_id: str, *, session_s: float | None = None) -> None:
        """Let a member vanish without leaving, as a killed process does.

        Its client raises from then on, and tells its listener nothing. What it had sent still
        lands. The group takes it for a member until its session has ended, and a rebalance waits
        for it until then: *session_s*, or, where that is None, the member's ``session_timeout_ms``.
        KeyError: the group has no such member.
        """
        self._state.group(group).crash(member_id, session_s)


class _Faults:
    """What the next calls of clients meet."""

    _state: MemoryState

    @property
    def down(self) -> bool:
        """While True, calls raise TransientBrokerError and polls bring nothing.

        Members stay members, also those that stop meanwhile: nobody hears of that. Their sessions
        end after it.
        """
        return self._state.faults.down

    @down.setter
    def down(self, down: bool) -> None:
        if down and not self.down:
            self._state.faults.down_since = self._state.clock.monotonic()
        self._state.faults.down = down
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

        Without *error* that is a TransientBrokerError; a FatalBrokerError stands for a right that
        was withdrawn.
        """
        away = TransientBrokerError(f"topic {topic!r} of the in-memory broker is away")
        self._state.faults.away[topic] = away if error is None else error

    def topic_back(self, topic: str) -> None:
        """Let a topic be written to again."""
        self._state.faults.away.pop(topic, None)

    def leader_away(self, partition: TopicPartition, node: str | None = None) -> None:
        """Let nobody read or write a partition until :meth:`leader_back`: *node* does not answer;
        None: none leads it.

        Everything else goes on, groups and their commits among it, as where one of several nodes is
        away.
        """
        self._state.faults.leaders_away[TopicPartition(*partition)] = node

    def leader_back(self, partition: TopicPartition) -> None:
        """Let a partition be read and written again."""
        self._state.faults.leaders_away.pop(TopicPartition(*partition), None)
        self._state.changed.notify()

    def refuse_positions(self, partition: TopicPartition, error: BrokerError) -> None:
        """Store no position of a partition, until :meth:`accept_positions`; those of others in one
        request are stored.

        As a broker does whose right to read the topic was withdrawn.
        """
        self._state.faults.unstorable[TopicPartition(*partition)] = error

    def accept_positions(self, partition: TopicPartition) -> None:
        """Store positions of a partition again."""
        self._state.faults.unstorable.pop(TopicPartition(*partition), None)

    def asked(self, call: Call) -> int:
        """How many calls of one kind clients have made, failed ones too. Sends that no fault meets
        are not counted.
        """
        return self._state.faults.asked[call]

    # Of the three that follow, *of* picks the calls, None all of the kind: the topic of a "send",
    # the group of a "commit", "commit_in" or "add_group", the transactional id of a "claim" or an
    # "end".

    def fail_next(
        self,
        call: Call,
        error: BrokerError,
        times: int = 1,
        *,
        stored: bool = False,
        of: str | None = None,
    ) -> None:
        """Let the next calls of one kind raise *error*; with *stored* they take effect first (a
        lost answer).
        """
        self._state.faults.add(call, of, [ScriptedStep(error=error, after=stored)] * times)

    def delay_next(
        self,
        call: Request,
        seconds: float,
        times: int = 1,
        *,
        answer: bool = False,
        of: str | None = None,
    ) -> None:
        """Let the next calls of one kind take long on their way, or their *answer* on the way back.

        Beyond ``answer_timeout_s`` the caller gives up, and the call takes effect all the same.
        """
        self._state.faults.add(call, of, [ScriptedStep(delay_s=seconds, after=answer)] * times)

    def hold(self, call: Request, *, answer: bool = False, of: str | None = None) -> Hold:
        """Hold up the next call of one kind on its way to the broker, or its *answer* on the way
        back.

        What is held goes on when released, even if its caller has given up meanwhile.
        """
        hold = Hold()
        self._state.faults.add(call, of, [ScriptedStep(hold=hold, after=answer)])
        return hold


class MemoryBroker(_Topics, _Groups, _Faults):
    """A broker inside the process, in plain asyncio: nothing is on disk, no port is opened, no
    thread runs.

    It sleeps on nothing but the event loop's time, so a loop with virtual time turns it, too.
    Everything here belongs to the loop that the clients run in; no call is safe from other threads.

    Args:
        clock: Where timestamps of records and the times of commits come from.
        partitions: How many partitions a topic gets that is created by its first use.
        auto_create: Whether topics are created by their first use at all.
    """

    def __init__(
        self, clock: Clock = SYSTEM_CLOCK, *, partitions: int = 4, auto_create: bool = True
    ) -> None:
        super().__init__(MemoryState(clock, partitions, auto_create=auto_create))

    def connector(self, *, assignment: AssignmentKind = "eager") -> Connector:
        """Makes clients of this broker; ``cooperative`` ones keep what stays their own in a
        rebalance.
        """
        return MemoryConnector(
            self._state, CooperativeMember if assignment == "cooperative" else Member
        )

    async def close(self) -> None:
        """End the broker's own tasks, for tests that count what is left behind."""
        self._state.transactions.close()
        await self._state.faults.close()
        await asyncio.gather(*(group.close() for group in self._state.groups.values()))
