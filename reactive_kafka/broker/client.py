"""The seam to Kafka: the protocols of a client, shared by aiokafka, the memory broker and tests.

A rebalance takes partitions away and assigns partitions. ``on_revoked`` is awaited first. This
member still owns the partitions that it loses and may commit them, but polls no longer return
their records. Then ``on_assigned`` is awaited with the next generation. There are two kinds of
clients. A listener need not know which one it has: it acts on the partitions that it is passed.

An *eager* client (the only kind that aiokafka has) loses all of its partitions in every rebalance,
and is assigned all of them again, also those that it had before. Between the two calls it owns
nothing.

A *cooperative* client (KIP-429) promises:

- ``on_revoked`` names only the partitions that go. They are assigned to another member in the
  generation after this one, once the call has returned: a rebalance that moves partitions takes
  two rounds.
- ``on_assigned`` names only the partitions that come, perhaps none. It is called in each round,
  also if nothing changes for this member, so that the member learns of the generation.
- Nothing changes for all other partitions. Their positions, their paused state and what was
  fetched for them stay. Polls return their records before, between and during the two calls.
- They can be committed at any time, with the new generation or with any in which this member has
  owned them without interruption. A commit that crosses the start of a generation may be refused
  with TransientBrokerError: send it again.
- A member that the group has removed loses everything at once, in one call of ``on_revoked``;
  ``is_member`` is False.
"""

from __future__ import annotations

import sys
from asyncio import Event, Future
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple, Protocol

from reactive_kafka.broker.client_metrics import MetricsReceiver
from reactive_kafka.errors import BrokerError, TransientBrokerError
from reactive_kafka.records import (
    Committed,
    HeaderPairs,
    RawRecord,
    RecordFields,
    TopicIds,
    TopicPartition,
    size_of,
)
from reactive_kafka.subscription import Subscription

# A static assignment has only this generation.
STATIC_GENERATION = 0
NO_GROUP = "a consumer without a group_id has no committed positions"
TRANSACTION_TIMEOUT_MS = 10_000
"""The broker aborts a transaction that is open for so long, for example after its process died."""
NO_CONFIG: Mapping[str, str] = MappingProxyType({})
# Kafka's name for the state of a group that the broker does not know.
UNKNOWN_GROUP = "Dead"


class GroupHasMembersError(TransientBrokerError):
    """A client outside a group wants to commit, but only the members of the group may."""


class SomePositionsUnknownError(TransientBrokerError):
    """The broker has returned the group's positions for some of the requested partitions only.

    ``found``: partition -> its position, None if nothing is stored. ``unknown``: partition -> the
    reason.
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


class BatchRefusedError(TransientBrokerError):
    """A batch of several records is too large for its topic. The next batch is smaller.

    Its transaction has failed.
    """


def members_share(group_id: str) -> str:
    """Return the error text for a commit from outside to a group that has members."""
    return (
        f"group {group_id!r} has members, and only they may commit: "
        "positions are stored from outside only while a group has no members"
    )


class ByteRoom:
    """How many bytes a poll may bring, where a channel bounds the bytes in flight.

    A partition may bring records as long as something is left for it. So the last one may be
    larger than what is left: a bound that is smaller than a record stops nothing for ever.

    Args:
        own: Partition -> the bytes that are its alone.
        shared: The bytes that any of them may use after its own.
    """

    def __init__(self, own: Mapping[TopicPartition, int], shared: int) -> None:
        self._own = dict(own)
        self._shared = shared

    def lift(self, partition: TopicPartition) -> None:
        """Let a partition bring records of any size."""
        self._own[partition] = sys.maxsize

    def left(self, partition: TopicPartition) -> int:
        """Return how many bytes a partition may bring at the moment."""
        return self._own.get(partition, 0) + self._shared

    def fitting(self, partition: TopicPartition, records: Iterable[RawRecord]) -> int:
        """Return how many of these records a partition may bring."""
        left = self.left(partition)
        count = 0
        for record in records:
            if left <= 0:
                break
            left -= size_of(record)
            count += 1
        return count

    def take(self, partition: TopicPartition, records: Iterable[RawRecord]) -> None:
        """Note that a partition has brought these records."""
        size = sum(map(size_of, records))
        own = min(size, self._own.get(partition, 0))
        if own:
            self._own[partition] -= own
        self._shared = max(0, self._shared - (size - own))


class Chunk(NamedTuple):
    """Consecutive records of one partition, returned by one poll."""

    partition: TopicPartition
    # Offsets ascend and may have gaps. Empty if the poll read only transaction markers.
    records: Sequence[RawRecord]
    # The position after the chunk: past the last record and past the markers behind it.
    next_offset: int
    # The end of the log when it was fetched (with ``read_committed``, the last stable offset).
    high_watermark: int


@dataclass(slots=True)
class Poll:
    """The result of one poll: chunks, and errors of single partitions that leave others alone.

    CorruptRecordError is repeated by each poll that reaches the unreadable batch. ``start_at`` may
    move the position past it.
    """

    chunks: list[Chunk] = field(default_factory=list)
    errors: dict[TopicPartition, BrokerError] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sight:
    """The topics and partitions of a consumer that cannot be read at the moment.

    ``silent``: partition whose leader does not answer -> that node, as ``id at host:port``; None:
    the partition has no leader. ``held_up``: partition in which only an open transaction is left to
    read -> last stable offset, and log end. ``rack_problem``: why ``client_rack`` has no effect;
    None: it is not set, or a broker is in that rack.
    """

    # Topics of the subscription that do not exist.
    missing: frozenset[str] = frozenset()
    # Topics that the client is not authorised to see.
    forbidden: frozenset[str] = frozenset()
    silent: Mapping[TopicPartition, str | None] = field(default_factory=dict)
    held_up: Mapping[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    rack_problem: str | None = None


class RebalanceListener(Protocol):
    """Is called for assignments and revocations.

    It must not raise. The set of partitions may be empty: the first join revokes nothing.
    """

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        """The member is about to lose these partitions, and no others.

        Commits for them are accepted until this returns.
        """

    async def on_assigned(self, partitions: frozenset[TopicPartition], generation: int) -> None:
        """The member owns these partitions now, in addition to those that it has.

        They are not polled before ``start_at`` has set where each begins. ``generation`` grows with
        each assignment of the group.
        """


class ClusterQueries(Protocol):
    """The questions about topics and logs that both a consumer and an inspector can ask."""

    async def topics(self, names: Collection[str] | None = None) -> dict[str, list[TopicPartition]]:
        """Return topic -> its partitions, as the cluster knows them now. Creates no topic.

        Args:
            names: The topics to return, if they exist. None: all topics, which may be thousands.
        """

    async def topic_ids(self, topics: Collection[str], *, of_all: bool = False) -> list[TopicIds]:
        """Return the ids of topics as one broker knows them, or *of_all* brokers that answer soon.

        A topic that was deleted and created again has another id. Brokers learn the new id one
        after the other. Returns an empty list if the brokers have no ids (Kafka before 2.8), and if
        none can have changed since this client asked last. Creates no topic.

        Raises:
            TransientBrokerError: No broker has answered.
        """

    async def beginning_offsets(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return partition -> offset of the first record that is still in the log.

        Raises:
            TransientBrokerError: A partition does not exist (yet). :meth:`topics` returns those
                that do. :meth:`end_offsets` and :meth:`offsets_for_times` raise it, too.
        """

    async def end_offsets(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return partition -> end of the log (with ``read_committed``, the last stable offset)."""

    async def offsets_for_times(
        self, times_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        """Return partition -> offset of the first record at or after a time in ms since the epoch.

        None: no record is that late.
        """


class TransactionId(NamedTuple):
    """The owner of a transaction. The broker refuses requests with an epoch that is over."""

    transactional_id: str
    producer_id: int
    epoch: int


class Consumer(ClusterQueries, Protocol):
    """One member of a group, or a static assignment.

    Two of its properties are not aiokafka's. ``max_unpacked_bytes`` limits the size of a batch
    after decompression: a larger batch cannot be read. With ``enable_auto_commit`` the consumer
    commits the positions of the records that its polls have returned, every
    ``auto_commit_interval_ms``, at a revocation, and at the end.

    Every awaitable has its own deadline and raises :class:`TransientBrokerError` when it passes.
    Cancelling any of them is safe. Errors are those of :mod:`reactive_kafka.errors`, with the error
    of the Kafka client as ``__cause__``.
    """

    async def start(self, listener: RebalanceListener) -> None:
        """Connect and subscribe. Does not wait for an assignment.

        Raises:
            TransientBrokerError: No broker could be reached, or it closed the connection. The text
                has the reason, as far as it is known.
            FatalBrokerError: Credentials or rights are missing.
        """

    async def poll(
        self,
        budgets: Mapping[TopicPartition, int],
        timeout_s: float,
        most: int | None = None,
        byte_room: ByteRoom | None = None,
    ) -> Poll:
        """Take fetched records of the partitions in *budgets* (partition -> most records to take).

        With *most* it takes no more than that many records in total, and with *byte_room* no more
        than has room there, which it notes there. Partitions take turns: those
        that records were taken from come last at the next poll.

        Waits up to *timeout_s* for the first record. Partitions that are not in *budgets* keep what
        was fetched for them. It must be called at least every few seconds, also with empty budgets:
        the calls prove that this member is alive.

        Raises:
            FatalBrokerError: Rights were withdrawn. The next poll tries again.
            FencedError: Another consumer uses the same ``group_instance_id``. Polling again is
                useless.
            TransientBrokerError: The client is broken beyond repair: create a new one.
        """

    def wake(self) -> None:
        """End a waiting poll at once, or keep the next one from waiting. For changed budgets."""

    def start_at(self, positions: Mapping[TopicPartition, int]) -> None:
        """Set the positions to read from next, and drop what was fetched for these partitions.

        It starts newly assigned partitions, and is also a seek.

        Raises:
            NotOwnerError: One of them is not assigned.
        """

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Stop fetching these partitions. Ignores those that are not assigned."""

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Fetch these partitions again. Ignores those that are not assigned."""

    def positions(self) -> dict[TopicPartition, int]:
        """Return partition -> offset of the next record that a poll returns, if it has started."""

    def is_member(self) -> bool:
        """Return False once the group has told this client that it is out: its partitions are lost.

        Sends no request.
        """

    def group_protocol(self) -> str | None:
        """Return the protocol of its group, ``classic`` or ``consumer``; None without a group.

        With ``group_protocol = "auto"`` it is known once the consumer has started.
        """

    def session_ends_at(self) -> float:
        """Return the monotonic time at which the group may remove this member.

        It moves forward with each answer of the group. Infinite without a group.
        """

    async def commit(self, offsets: Mapping[TopicPartition, Committed], generation: int) -> None:
        """Store positions in the group, in one attempt, for partitions owned since *generation*.

        Raises:
            NotOwnerError: A partition is not owned, or *generation* is over. Nothing was sent, or
                the broker refused it.
            OutcomeUnknownError: Sent, but not answered in time: it may have been stored.
            TransientBrokerError: Not stored; try later. Also raised for a static assignment if its
                group has members.
            MetadataTooLargeError: Positions with too long metadata were not stored, the others
                were.
            PositionsRefusedError: Has the positions that were not stored, each with its reason (the
                topic does not exist, or may not be read). The others were stored.
            FatalBrokerError: No right to commit, or no group.
        """

    async def commit_in(
        self,
        transaction: TransactionId,
        offsets: Mapping[TopicPartition, Committed],
        generation: int,
    ) -> None:
        """Add positions to a transaction whose producer has added the group, in one attempt.

        They are stored when the transaction is committed. Raises as :meth:`commit` does. After any
        error except NotOwnerError, MetadataTooLargeError and PositionsRefusedError the request may
        still be on its way.
        """

    async def committed(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, Committed | None]:
        """Return partition -> the position that the group has stored, None if it has none.

        Raises:
            SomePositionsUnknownError: The broker has returned only some of the positions.
            TransientBrokerError: A position is part of a transaction that is still open.
            FatalBrokerError: No right to ask, or no group.
        """

    def metrics_receiver(self) -> MetricsReceiver | None:
        """Return what takes the metrics of this client, once it has started; None: nothing does."""

    async def check(self) -> None:
        """Send a request to any broker. Raises TransientBrokerError if none answers in time."""

    async def look(self, partitions: Collection[TopicPartition]) -> Sight:
        """Return what cannot be read of the subscribed topics, and of these partitions.

        The topics are those of the last :meth:`check`. The leaders of *partitions* are asked now.
        If a topic does not exist, only the topic is returned and not its partitions.
        """

    async def stop(self) -> None:
        """Leave the group and close. Calls no listener, and raises nothing but cancellation.

        Commits nothing, except with ``enable_auto_commit``.
        """


class Written(NamedTuple):
    """Where the broker stored a record. With ``acks = 0`` it does not say: both numbers are -1."""

    partition: TopicPartition
    offset: int


class WrittenBatch(NamedTuple):
    """The first records of a batch, which the broker has stored."""

    # The offset of the first record; -1 with ``acks = 0``.
    offset: int
    # The number of records, from the first one on.
    count: int  # type: ignore[assignment]


class Producer(Protocol):
    """Writes records, and has the broker confirm them: single ones, or batches of one partition."""

    async def start(self) -> None:
        """Connect. Raises as :meth:`Consumer.start` does."""

    async def check(self) -> None:
        """Send a request to any broker. Raises TransientBrokerError if none answers within 2.5 s.

        The producer must have been started.
        """

    def key_hash(self, key: bytes) -> int:
        """Return a hash of a key that is the same in every process.

        The key's partition is this number modulo the number of partitions.
        """

    async def partitions(self, topic: str) -> int:
        """Return the number of partitions of a topic. Asks the brokers if it is not known yet.

        Raises:
            RejectedRecordError: No topic can have this name.
            FatalBrokerError: Rights are missing, or the topic does not exist and the broker does
                not create it.
            TransientBrokerError: No answer in time.
        """

    def known_partitions(self, topic: str) -> int:
        """Return the number of partitions of a topic without a request; 0 if it is not known."""

    async def write(self, to: TopicPartition, records: Sequence[RecordFields]) -> WrittenBatch:
        """Write the first of *records* that fit into one batch. Returns when they are confirmed.

        Their order is kept. *records* has at least one record, and at least one is taken. A record
        that Kafka never accepts ends the batch before it.

        Raises:
            RejectedRecordError: Nothing was written. Either Kafka never accepts the first record,
                or the broker refuses the batch because of any of its records. The size of a batch
                with several records is never the reason: fewer records would be taken.
            TransientBrokerError: Not confirmed in time. The batch may have been written all the
                same.
            FatalBrokerError: Rights are missing, or the topic does not exist and the broker does
                not create it.

        Cancellation: The batch may be written all the same.
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
        """Queue a record, waiting for room in the client's buffer.

        The future completes when the broker has confirmed the record. It fails with

        - RejectedRecordError if the broker refuses this record, or Kafka accepts no record like it
          (:func:`reactive_kafka.wire.record_problem`);
        - TransientBrokerError if it could not be written in time (it may be written all the same);
        - FatalBrokerError if rights are missing, or the topic still does not exist by then.
        """

    async def stop(self) -> None:
        """Flush the queue within a deadline, and close."""


class TransactionalProducer(Protocol):
    """Writes in transactions, one at a time.

    A reader with ``isolation_level = "read_committed"`` sees the records of a transaction when it
    is committed, and those of an aborted one never. The markers that end a transaction use up an
    offset of each of its partitions. Such a reader gets no further than the *last stable offset*:
    the first record of the oldest open transaction.

    Positions take part, too: they are stored when the transaction is committed. A client that
    asks for one of these positions while it is open has to wait, so none starts to read at a
    position that may never be stored.

    If :meth:`write`, :meth:`add_group`, :meth:`commit` or :meth:`abort` fails, or is cancelled,
    requests of it may still be on their way: only :meth:`claim` and :meth:`stop` may follow.

    Every awaitable has a deadline and raises as :class:`Producer` does.
    """

    async def claim(self) -> None:
        """Connect, and claim the transactional id with a new epoch. First, and after each error.

        An open transaction of an earlier epoch is aborted, unless its commit had begun: then it is
        completed. When this returns, that transaction has ended, and no request of an earlier epoch
        that is still on its way takes effect.

        Raises:
            TransientBrokerError: No answer in time; call it again.
            FatalBrokerError: No right to the transactional id, or the brokers have no transactions.
        """

    async def check(self) -> None:
        """As :meth:`Producer.check`, once the id is claimed. Also while writing or in doubt."""

    def key_hash(self, key: bytes) -> int:
        """As :meth:`Producer.key_hash`."""

    async def partitions(self, topic: str) -> int:
        """As :meth:`Producer.partitions`."""

    def known_partitions(self, topic: str) -> int:
        """As :meth:`Producer.known_partitions`."""

    def begin(self) -> None:
        """Begin a transaction. The broker learns of it with the first write."""

    async def write(self, to: TopicPartition, records: Sequence[RecordFields]) -> WrittenBatch:
        """As :meth:`Producer.write`, in the transaction. Several partitions can be written at once.

        Raises:
            BatchRefusedError: A batch of several records is too large. Each next one for its topic
                has at most half the bytes, so in the end a record that is too large is refused
                alone.
        """

    async def add_group(self, group_id: str) -> TransactionId:
        """Add a group to the transaction. :meth:`Consumer.commit_in` then sends its positions."""

    async def commit(self) -> None:
        """Commit the records and the positions. No call may be on its way.

        Raises:
            OutcomeUnknownError: It may be committed, now or until :meth:`claim` has returned.
        """

    async def abort(self) -> None:
        """Abort the transaction. No call may be on its way."""

    async def stop(self) -> None:
        """Abort what is open and close, within a deadline. Raises only cancellation."""


class Connector(Protocol):
    """Creates clients of one kind from raw client properties (with aiokafka's names)."""

    def consumer(
        self,
        *,
        name: str,
        subscription: Subscription,
        group_id: str | None,
        properties: Mapping[str, object],
    ) -> Consumer:
        """Create a consumer. *name* is the name of the channel, for the client id and the log.

        With ``Topics`` and ``Pattern`` it is a member of the group. A topic that is created later
        and matches the pattern is found after at most ``metadata_max_age_ms``.

        With ``Partitions`` it joins no group. One assignment of generation 0 follows by itself, and
        nothing is ever revoked. A partition that does not exist yet is assigned, too, and has no
        records until it does. If whole topics are read, :meth:`Consumer.check` finds partitions
        that appear later. They are assigned alone, also in generation 0. Commits go to *group_id*;
        without one, ``commit`` and ``committed`` raise.

        Raises:
            ValueError: There is neither a group nor a ``Partitions`` subscription.
        """

    def producer(self, *, name: str, properties: Mapping[str, object]) -> Producer:
        """Create a producer. *name* is the name of the channel, for the client id and the log."""

    def transactional_producer(
        self, *, name: str, transactional_id: str, properties: Mapping[str, object]
    ) -> TransactionalProducer:
        """Create a producer that writes only in transactions.

        Raises:
            FatalBrokerError: The broker has no transactions (the embedded one).
        """

    def inspector(self, *, properties: Mapping[str, object]) -> Inspector:
        """Create a client that looks at the cluster from outside, and creates topics there."""

    async def close(self) -> None:
        """Release what the connector itself holds (an embedded broker)."""


class GroupMember(NamedTuple):
    """One member of a group, as the broker describes it."""

    member_id: str
    client_id: str
    host: str
    # What it has been assigned. Empty also if the broker does not say.
    partitions: tuple[TopicPartition, ...] = ()


class GroupListing(NamedTuple):
    """A group in the list of all groups."""

    group_id: str
    # ``consumer``, ``share``, ``connect`` and others; empty for a group that only has positions.
    protocol_type: str
    # As in :class:`GroupDescription`. None if the broker is too old to say.
    state: str | None
    # How members are assigned partitions: ``classic``, ``consumer`` (KIP-848), ``share``.
    kind: str = "classic"


class GroupDescription(NamedTuple):
    """What a broker says about a group.

    ``state`` is one of Kafka's: ``Stable``, ``PreparingRebalance``, ``CompletingRebalance``,
    ``Empty``, and ``Dead`` if the broker does not know the group. None if the broker does not say
    (the embedded one).
    """

    state: str | None
    # ``consumer`` once it has had a member; else empty.
    protocol_type: str
    members: tuple[GroupMember, ...]

    @property
    def exists(self) -> bool | None:
        """True if the group has members or positions; None if the broker does not say."""
        return None if self.state is None else self.state != UNKNOWN_GROUP


class Inspector(ClusterQueries, Protocol):
    """Looks at a cluster from outside: topics, ends of logs, and groups. Joins no group.

    It can also set the positions of a group. Every awaitable has a deadline and raises as
    :meth:`Consumer.start` does.
    """

    async def start(self) -> None:
        """Connect. Raises as :meth:`Consumer.start` does."""

    async def committed(
        self, group_id: str, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, Committed]:
        """Return partition -> the position that the group has stored.

        Args:
            group_id: The group.
            partitions: The partitions to return, None for all. Those without a position are left
                out.
        """

    async def describe_group(self, group_id: str) -> GroupDescription:
        """Return what the broker says about a group, also if it does not know the group."""

    async def list_groups(self) -> list[GroupListing]:
        """Return all groups of the cluster, sorted by name.

        Raises:
            FatalBrokerError: The broker does not list groups (the embedded one).
        """

    async def commit(self, group_id: str, offsets: Mapping[TopicPartition, Committed]) -> None:
        """Store positions of a group without members, in one attempt. Lower ones are stored, too.

        Raises:
            TransientBrokerError: The group has members.
            OutcomeUnknownError: Sent, but not answered in time: it may have been stored.
            MetadataTooLargeError: The metadata of a partition is too long. The others are stored.
            FatalBrokerError: No right to commit.
        """

    async def topic_configs(
        self, topics: Collection[str], names: Collection[str]
    ) -> dict[str, dict[str, str | None]]:
        """Return topic -> those of the configs in *names* that the broker knows, defaults included.

        A topic is left out if the broker does not say: it does not exist, the right
        DESCRIBE_CONFIGS on it is missing, or the broker is the embedded one.
        """

    async def create_topic(
        self,
        topic: str,
        partitions: int,
        replication_factor: int | None = None,
        config: Mapping[str, str] = NO_CONFIG,
        *,
        only_checks: bool = False,
    ) -> None:
        """Create a topic.

        Args:
            topic: Its name.
            partitions: The number of partitions.
            replication_factor: The number of replicas. None: three, or as many as there are
                brokers.
            config: Its configs, under Kafka's names. The embedded broker takes none.
            only_checks: Ask whether the topic would be created, and do not create it.

        Raises:
            BrokerError: The topic exists, or is refused.
        """

    async def add_partitions(self, topic: str, total: int) -> None:
        """Give a topic *total* partitions, which must be more than it has.

        Raises:
            BrokerError: The topic does not exist, or the number is refused.
            FatalBrokerError: A right is missing, or the broker is the embedded one.
        """

    async def set_topic_config(self, topic: str, config: Mapping[str, str]) -> None:
        """Set configs of a topic. Those that are not named stay as they are.

        Raises:
            BrokerError: The topic or a config does not exist, or a value is refused.
            FatalBrokerError: A right is missing, or the broker is the embedded one.
        """

    async def replication_factors(self, topics: Collection[str]) -> dict[str, int]:
        """Return topic -> the smallest number of replicas of one of its partitions."""

    async def stop(self) -> None:
        """Close the connections."""


@asynccontextmanager
async def inspecting(
    connector: Connector, properties: Mapping[str, object]
) -> AsyncIterator[Inspector]:
    """Yield a started inspector, and stop it at the end."""
    inspector = connector.inspector(properties=properties)
    try:
        await inspector.start()
        yield inspector
    finally:
        await inspector.stop()


class _Assigned:
    """Waits for the one assignment of a client without a group. Nothing is ever revoked."""

    def __init__(self) -> None:
        self.event = Event()

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        pass

    async def on_assigned(self, partitions: frozenset[TopicPartition], generation: int) -> None:
        self.event.set()


async def start_without_group(consumer: Consumer) -> None:
    """Start a client with fixed partitions and no group. They can be read when this returns."""
    assigned = _Assigned()
    await consumer.start(assigned)
    await assigned.event.wait()
