"""All that we need from any Kafka client: the protocols that the real one, the in-memory one and
tests share.

A rebalance takes partitions away and gives partitions. ``on_revoked`` is awaited while this member
still owns what it loses and may still commit it; nothing of that is polled any more. Then comes
``on_assigned`` with the next generation. There are two kinds of clients, and a listener need not
know which it has: it goes by the partitions that it is told.

An *eager* client (aiokafka's only kind) loses everything in every rebalance, and is assigned
everything anew, also what it had before. Between the two calls it owns nothing.

A *cooperative* client (KIP-429) promises:

- ``on_revoked`` names only the partitions that go. They are assigned to another member in the
  generation after that one, once this call has returned: a rebalance that moves partitions has two
      rounds.
- ``on_assigned`` names only the partitions that come, perhaps none. It is called in each round,
  also where nothing changes for this member: so it learns of the generation.
- Of all other partitions nothing changes. Their positions, their paused state and what was fetched
  for them stay, and polls bring their records before, between and during the two calls.
- They can be committed all the while, with the new generation or with any in which this member has
  owned them without interruption. A commit that crosses the beginning of a generation may be
  refused: TransientBrokerError, it can be sent again.
- A member that the group has put out loses everything at once, in one call of ``on_revoked``;
  ``is_member`` is False.
"""

from __future__ import annotations

from asyncio import Event, Future
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from reactive_kafka.errors import BrokerError, TransientBrokerError
from reactive_kafka.records import (
    Committed,
    HeaderPairs,
    RawRecord,
    RecordFields,
    TopicIds,
    TopicPartition,
)
from reactive_kafka.subscription import Subscription

if TYPE_CHECKING:
    from reactive_kafka.broker.transactional import TransactionalProducer, TransactionId

# Of a static assignment, its only one.
STATIC_GENERATION = 0
# So it can neither store one nor ask for it.
NO_GROUP = "a consumer without a group_id has no committed positions"
# The state that a broker tells of a group it does not know.
UNKNOWN_GROUP = "Dead"


class GroupHasMembersError(TransientBrokerError):
    """A client that is no member wants to commit for a group that has members: only they may."""


class SomePositionsUnknownError(TransientBrokerError):
    """The broker has told where the group stands in some of the partitions that it was asked for,
    not in all.

    ``found``: partition -> its position, None where nothing is stored. ``unknown``: partition ->
    why.
    """

    def __init__(
        self,
        found: Mapping[TopicPartition, Committed | None],
        unknown: Mapping[TopicPartition, BrokerError],
    ) -> None:
        self.found = dict(found)
        self.unknown = dict(unknown)
        super().__init__(
            "; ".join(f"{partition}: {error}" for partition, error in sorted(self.unknown.items()))
        )


def members_share(group_id: str) -> str:
    """Why a position cannot be stored from outside of a group that has members."""
    return (
        f"group {group_id!r} has members, which share their partitions among themselves: "
        "who is none of them stores positions only in a group without members"
    )


class Chunk(NamedTuple):
    """Consecutive records of one partition, as one poll took them."""

    partition: TopicPartition
    # Ascending offsets, possibly with gaps; may be empty when only markers were read.
    records: Sequence[RawRecord]
    # Position after the chunk: past the last record and past markers behind it.
    next_offset: int
    # End of the log as the fetch saw it (with ``read_committed``, its stable end)
    high_watermark: int


@dataclass(slots=True)
class Poll:
    """What one poll brought: chunks, and errors that concern one partition each and leave the
    others alone.

    CorruptRecordError comes at each poll that would read what cannot be read; ``start_at`` may pass
    over that.
    """

    chunks: list[Chunk] = field(default_factory=list)
    errors: dict[TopicPartition, BrokerError] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sight:
    """What of a consumer's topics and partitions cannot be read at the moment.

    ``silent``: partitions whose leader does not answer -> that node, as ``id at host:port``; None:
    no node leads it. ``held_up``: partitions where an open transaction is all that is left to read
    -> last stable offset, and log end.
    """

    # Topics it was made for that do not exist.
    missing: frozenset[str] = frozenset()
    # Those that it has no right to see.
    forbidden: frozenset[str] = frozenset()
    silent: Mapping[TopicPartition, str | None] = field(default_factory=dict)
    held_up: Mapping[TopicPartition, tuple[int, int]] = field(default_factory=dict)


class RebalanceListener(Protocol):
    """Told about assignments. It must not raise; a partition set may be empty (the first join
    revokes nothing).
    """

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        """These are about to go, and no others; commits for them are still accepted until this
        returns.
        """

    async def on_assigned(self, partitions: frozenset[TopicPartition], generation: int) -> None:
        """These are ours from now on, too. They are not polled before ``start_at`` has said where
        each begins.

        ``generation`` grows with each assignment of the group.
        """


class Questions(Protocol):
    """What a consumer and an inspector ask the brokers for."""

    async def topics(self, names: Collection[str] | None = None) -> dict[str, list[TopicPartition]]:
        """topic -> its partitions, as the cluster knows them now; asking creates none.

        Args:
            names: Of these, if they exist; None: of all that there are, which may be thousands.
        """

    async def topic_ids(self, topics: Collection[str], *, of_all: bool = False) -> list[TopicIds]:
        """The ids of topics as one broker knows them, or *of_all* brokers that answer soon.

        A topic that was deleted and created again has another id, and brokers learn that one after
        the other. Empty where the brokers have no ids (Kafka before 2.8), and where none can have
        changed since this client asked last. Asking creates no topic.

        Raises:
            TransientBrokerError: No broker has answered.
        """

    async def beginning_offsets(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """partition -> offset of the first record still in the log.

        Raises:
            TransientBrokerError: One of them does not exist (yet): :meth:`topics` tells which do.
                The two methods that follow raise it, too.
        """

    async def end_offsets(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """partition -> end of the log (with ``read_committed``, its stable end)."""

    async def offsets_for_times(
        self, times_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        """partition -> offset of the first record at or after the time (ms since the epoch); None:
        no such record.
        """


class Consumer(Questions, Protocol):
    """One member of a group (or a static assignment).

    ``max_unpacked_bytes`` among its properties bounds what a batch unpacks to: a larger one cannot
    be read.

    With ``enable_auto_commit`` among its properties, it commits by itself the positions of what its
    polls have handed out: every ``auto_commit_interval_ms``, at a revocation, and at the end.

    Every awaitable has a deadline of its own and raises :class:`TransientBrokerError` past it.
    Cancelling any of them is safe. Errors are those of :mod:`reactive_kafka.errors`; the client's
    is ``__cause__``.
    """

    async def start(self, listener: RebalanceListener) -> None:
        """Connect and subscribe; does not wait for an assignment.

        Raises:
            TransientBrokerError: No broker could be reached, or it closed the connection; the text
                says what is known.
            FatalBrokerError: Credentials or rights are missing.
        """

    async def poll(
        self, budgets: Mapping[TopicPartition, int], timeout_s: float, most: int | None = None
    ) -> Poll:
        """Take what is there for the partitions in *budgets* (partition -> most records to take).

        With *most* it takes no more than so many of all of them together, and partitions take
        turns: those that it took from come last at the next poll.

        Waits up to *timeout_s* for the first record. Partitions left out keep what was fetched for
        them. It must be called at least every few seconds, with empty budgets too: it proves that
        this member is alive.

        Raises:
            FatalBrokerError: Rights were withdrawn; polling again tries again.
            FencedError: Another consumer goes by this one's ``group_instance_id``; polling again is
                of no use.
            TransientBrokerError: The client is broken beyond repair: make a new one.
        """

    def wake(self) -> None:
        """Make a poll that waits return at once, and the next one not wait; for budgets that have
        changed meanwhile.
        """

    def start_at(self, positions: Mapping[TopicPartition, int]) -> None:
        """Set where partitions are read from next; what was fetched for them is dropped. Also a
        seek.

        Raises:
            NotOwnerError: One of them is not assigned.
        """

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Stop fetching them. Those that are not assigned are passed over."""

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Fetch them again. Those that are not assigned are passed over."""

    def positions(self) -> dict[TopicPartition, int]:
        """partition -> offset of the next record that a poll would take, for those that have
        started.
        """

    def is_member(self) -> bool:
        """False once the group has put this client out, and told it so: what it had is lost. Asks
        nobody.
        """

    def session_ends_at(self) -> float:
        """When the group may give this member up, by the monotonic clock, as far as it has heard
        from the group.

        It moves on with each answer. Infinite where it is in no group.
        """

    async def commit(self, offsets: Mapping[TopicPartition, Committed], generation: int) -> None:
        """Store positions in the group: one attempt, for partitions that have been ours since
        *generation*.

        Raises:
            NotOwnerError: One of them is not, or *generation* is over; nothing was sent, or the
                broker refused it.
            OutcomeUnknownError: Sent, not answered in time: it may have been stored.
            TransientBrokerError: Not stored; try later. Also where a static assignment's group has
                members.
            MetadataTooLargeError: Not stored where the metadata is too long; what else was sent is.
            PositionsRefusedError: Not stored where it says so, with the reason of each partition
                (its topic does not exist, or may not be read); what else was sent is.
            FatalBrokerError: No right to commit, or no group.
        """

    async def commit_in(
        self,
        transaction: TransactionId,
        offsets: Mapping[TopicPartition, Committed],
        generation: int,
    ) -> None:
        """Have positions take part in a transaction of a producer's, which has added the group: one
        attempt.

        They are stored when it is committed. Raises as :meth:`commit` does. After any error but
        NotOwnerError, MetadataTooLargeError and PositionsRefusedError the request may still be on
        its way.
        """

    async def committed(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, Committed | None]:
        """partition -> what the group has stored, None where nothing is.

        Raises:
            SomePositionsUnknownError: The broker has told the positions of some of the partitions
                only.
            TransientBrokerError: A position is part of a transaction that is still open.
            FatalBrokerError: There is no right to ask, or no group.
        """

    async def check(self) -> None:
        """Ask any broker for anything: TransientBrokerError if none answers in time."""

    async def look(self, partitions: Collection[TopicPartition]) -> Sight:
        """What cannot be read: of its topics, as the last :meth:`check` was told; of these, by
        asking their leaders.

        A topic that does not exist is the reason for its partitions, which are not named.
        """

    async def stop(self) -> None:
        """Leave the group and close. Calls no listener, raises nothing but cancellation.

        It commits nothing, except with ``enable_auto_commit``.
        """


class Written(NamedTuple):
    """Where the broker stored a record that was sent; with ``acks = 0`` it does not tell, and both
    numbers are -1.
    """

    partition: TopicPartition
    offset: int


class WrittenBatch(NamedTuple):
    """What of the records that were handed over the broker has stored."""

    # Of the first record; -1 with ``acks = 0``
    offset: int
    # How many of the records, from the first on.
    count: int  # type: ignore[assignment]


class Producer(Protocol):
    """Writes records, confirmed by the broker: each by itself, or batches that the caller makes by
    partition.
    """

    async def start(self) -> None:
        """Connect. Raises as :meth:`Consumer.start`."""

    async def check(self) -> None:
        """Ask any broker for anything: TransientBrokerError if none answers within 2.5 s. After a
        start.
        """

    def key_hash(self, key: bytes) -> int:
        """A number of a key, the same in every process.

        Its remainder by the number of partitions is the key's partition.
        """

    async def partitions(self, topic: str) -> int:
        """How many partitions a topic has, as far as is known; asked of the brokers if nothing is.

        Raises:
            RejectedRecordError: No topic can be called so.
            FatalBrokerError: Rights are missing, or it does not exist and the broker does not
                create it.
            TransientBrokerError: No answer in time.
        """

    def known_partitions(self, topic: str) -> int:
        """The same without asking anybody; 0: not known."""

    async def write(self, to: TopicPartition, records: Sequence[RecordFields]) -> WrittenBatch:
        """Write as one batch the first of *records* that fit into one, in their order; returns when
        that is confirmed.

        At least one is given, and one is taken. A record that Kafka takes none like ends the batch
        before it.

        Raises:
            RejectedRecordError: Nothing was written. The first record can never be, or the broker
                refuses the batch: any record of it may be the reason. Its size is none, unless of
                    one record: less would be taken.
            TransientBrokerError: Not confirmed in time: it may be written all the same.
            FatalBrokerError: Rights are missing, or the topic is, and the broker does not create
                it.

        Cancellation: It may be written all the same.
        """

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: HeaderPairs = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Future[Written]:
        """Queue a record, waiting for room in the client's buffer; the future completes when the
        broker has confirmed.

        It fails with RejectedRecordError where the broker refuses this record, or Kafka takes none
        like it (:func:`reactive_kafka.wire.record_problem`), with TransientBrokerError where it
        could not be written in time (it may be written all the same), with FatalBrokerError where
        rights are missing, or the topic still is then.
        """

    async def stop(self) -> None:
        """Flush what is queued within a deadline, and close."""


class Connector(Protocol):
    """Makes clients of one kind, for channels given by their raw client properties (aiokafka's
    names).
    """

    def consumer(
        self,
        *,
        name: str,
        subscription: Subscription,
        group_id: str | None,
        properties: Mapping[str, object],
    ) -> Consumer:
        """A consumer; *name* is the channel's, for the client id and logs.

        With ``Topics`` and ``Pattern`` it is a member of the group; a topic that is created later
        and matches the pattern is found after ``metadata_max_age_ms`` at most. With ``Partitions``
        it joins no group: one assignment of generation 0 comes by itself, and nothing is ever
        revoked. Of whole topics, partitions that appear later are found by :meth:`Consumer.check`
        and come alone, in generation 0, too. Commits go to *group_id* all the same; without one,
        ``commit`` and ``committed`` raise. A partition that does not exist yet is assigned as well,
        and brings nothing until it does. ValueError: there is neither a group nor partitions.
        """

    def producer(self, *, name: str, properties: Mapping[str, object]) -> Producer:
        """A producer; *name* is the channel's, for the client id and logs."""

    def transactional_producer(
        self, *, name: str, transactional_id: str, properties: Mapping[str, object]
    ) -> TransactionalProducer:
        """A producer that writes in transactions only.

        Raises:
            FatalBrokerError: The broker has no transactions (the embedded one).
        """

    def inspector(self, *, properties: Mapping[str, object]) -> Inspector:
        """Looks at the cluster that these properties lead to, and creates topics there."""

    async def close(self) -> None:
        """Release what the connector itself holds (an embedded broker)."""


class GroupMember(NamedTuple):
    """One member of a group, as the broker knows it."""

    member_id: str
    client_id: str
    host: str


class GroupDescription(NamedTuple):
    """What a broker says about a group.

    Its state is in Kafka's words: ``Stable``, ``PreparingRebalance``, ``CompletingRebalance``,
    ``Empty``, and ``Dead`` for a group that the broker does not know. None where the broker does
    not tell (the embedded one).
    """

    state: str | None
    # ``consumer`` once it has had a member; else empty.
    protocol_type: str
    members: tuple[GroupMember, ...]

    @property
    def exists(self) -> bool | None:
        """Whether it has members or positions; None where the broker does not tell."""
        return None if self.state is None else self.state != UNKNOWN_GROUP


class Inspector(Questions, Protocol):
    """Looks at a cluster from outside: topics, ends of logs, and groups, whose positions it can
    set. Joins no group.

    Every awaitable has a deadline and raises as :meth:`Consumer.start` does.
    """

    async def start(self) -> None:
        """Connect. Raises as :meth:`Consumer.start`."""

    async def committed(
        self, group_id: str, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, Committed]:
        """partition -> what the group has stored, of *partitions* or of all; without those where
        nothing is.
        """

    async def describe_group(self, group_id: str) -> GroupDescription:
        """What the broker says about a group; one that it does not know is described, too."""

    async def commit(self, group_id: str, offsets: Mapping[TopicPartition, Committed]) -> None:
        """Store positions of a group that has no members, in one attempt; lower ones, too.

        Raises:
            TransientBrokerError: The group has members.
            OutcomeUnknownError: Sent, not answered in time: it may have been stored.
            MetadataTooLargeError: That of a partition is; the others are stored.
            FatalBrokerError: No right to commit.
        """

    async def topic_configs(
        self, topics: Collection[str], names: Collection[str]
    ) -> dict[str, dict[str, str | None]]:
        """topic -> the configs of these names that the broker knows, with their values, defaults
        included.

        A topic is left out where the broker does not tell: it does not exist, the right
        DESCRIBE_CONFIGS on it is missing, or the broker is the embedded one.
        """

    async def create_topic(self, topic: str, partitions: int) -> None:
        """Create a topic, replicated to three brokers or as many as there are. BrokerError: it
        exists or is refused.
        """

    async def stop(self) -> None:
        """Close."""


@asynccontextmanager
async def inspecting(
    connector: Connector, properties: Mapping[str, object]
) -> AsyncIterator[Inspector]:
    """A started inspector; stopped at the end."""
    inspector = connector.inspector(properties=properties)
    try:
        await inspector.start()
        yield inspector
    finally:
        await inspector.stop()


class _Assigned:
    """Waits for the one assignment of a client without a group; nothing is ever revoked."""

    def __init__(self) -> None:
        self.event = Event()

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        pass

    async def on_assigned(self, partitions: frozenset[TopicPartition], generation: int) -> None:
        self.event.set()


async def start_without_group(consumer: Consumer) -> None:
    """Start a client of fixed partitions that is in no group; they may be read when this
    returns.
    """
    assigned = _Assigned()
    await consumer.start(assigned)
    await assigned.event.wait()
