"""What an incoming channel is made from, the Kafka clients it needs, and what it keeps through its
restarts. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from reactive_kafka.broker.client import Connector
from reactive_kafka.checkpoint.states import Codec
from reactive_kafka.checkpoint.store import CheckpointStore
from reactive_kafka.clock import Clock
from reactive_kafka.commit.strategy import CommitStrategy, Throttled
from reactive_kafka.config.incoming_values import AssignedPartition
from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.config.tables import DelayedRetrySettings
from reactive_kafka.delivery.ages import RecordTimes
from reactive_kafka.delivery.lanes.lane import KeyOf
from reactive_kafka.delivery.lanes.limits import TokenBucket
from reactive_kafka.delivery.lanes.pauses import Pauses
from reactive_kafka.delivery.skipping import Skipping
from reactive_kafka.delivery.workers.interface import (
    ChannelWorkers,
    HandlerTotals,
    WorkerSetup,
    WorkerSignals,
)
from reactive_kafka.failure.headers import delay_of
from reactive_kafka.formats import Schemas
from reactive_kafka.observe.events import Observer
from reactive_kafka.observe.facts import PartitionTotals
from reactive_kafka.outgoing.transactions import TransactionalProducers
from reactive_kafka.partitions.hooks import Hooks
from reactive_kafka.partitions.partition import Choice
from reactive_kafka.partitions.parts import AssignmentFacts, CommitFacts
from reactive_kafka.records import RawRecord, TopicPartition
from reactive_kafka.tasks import Tasks

Decode = Callable[[bytes | None], Any]
DecodeRecord = Callable[[RawRecord], Any]
MakeWorkers = Callable[[WorkerSignals, WorkerSetup], ChannelWorkers]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunServices:
    """What one run of an application gives to all of its channels."""

    connector: Connector
    clock: Clock
    observer: Observer
    # Those of a channel fail that channel.
    tasks: Tasks
    # Called when a handler or a hook asks the process to end.
    exit: Callable[[BaseException], None]


@dataclass(frozen=True, slots=True)
class CheckpointSpec:
    """Where a channel keeps positions and states, with ``commit_strategy = "checkpoint"``; closed
    at the end.
    """

    store: CheckpointStore
    codec: Codec


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelSpec:
    """What one incoming channel is made from."""

    settings: IncomingSettings
    strategy: CommitStrategy
    services: RunServices
    hooks: Hooks = field(default_factory=Hooks)
    # Of each session; None: the application iterates over the channel.
    make_workers: MakeWorkers | None = None
    checkpoint: CheckpointSpec | None = None
    # Exactly once: its positions are part of transactions.
    transactions: TransactionalProducers | None = None
    # For an application that iterates; handlers have theirs. None: payloads are bytes.
    decode: Decode | None = None
    # the same of records with headers, which may be CloudEvents, or name a schema
    decode_record: DecodeRecord | None = None
    decode_key: DecodeRecord | None = None
    # What records are ordered by, with ``ordering = "key"``
    key_of: KeyOf | None = None
    # Makes the clients that read the channel's own topics; None: the run's does.
    connector: Connector | None = None
    # What the formats of its values and keys need.
    schemas: Schemas | None = None
    # What the application does not get; handlers have theirs. None: it gets all.
    skipping: Skipping | None = None
    # Each record goes to several handlers.
    is_shared: bool = False
    # Ranges that an earlier owner has planned are handled as planned.
    keeps_plans: bool = False


MOST_LEFT = 10_000
"""Partitions that are counted one by one though they are not assigned. A pattern's topics may come
and go for ever.
"""
OTHERS = TopicPartition("(others)", -1)
"""What is counted of the partitions beyond those; no topic can have this name."""


@dataclass(slots=True)
class ChannelTotals:
    """What a channel counts, and what it remembers, through all of its sessions."""

    totals: defaultdict[TopicPartition, PartitionTotals] = field(
        default_factory=lambda: defaultdict(PartitionTotals)
    )
    commits: CommitFacts = field(default_factory=CommitFacts)
    history: AssignmentFacts = field(default_factory=AssignmentFacts)
    # Where the last session ended, in partitions that no group assigns. The next one goes on there:
    # at the start that the settings choose it would pass records that were not settled.
    resume: dict[TopicPartition, int] = field(default_factory=dict)
    pauses: Pauses = field(default_factory=Pauses)
    handlers: HandlerTotals = field(default_factory=HandlerTotals)
    # Its ``rate_limit``
    limit: TokenBucket | None = None
    times: RecordTimes = field(default_factory=RecordTimes)

    def totals_of(self, partition: TopicPartition) -> PartitionTotals:
        return self.totals[partition]

    def received(self, partition: TopicPartition, records: int) -> None:
        self.totals_of(partition).received += records

    def bounded(
        self, assigned: Iterable[TopicPartition], most_left: int = MOST_LEFT
    ) -> dict[TopicPartition, PartitionTotals]:
        """The totals now. Too many partitions that are not assigned any more are counted together,
        the oldest first.
        """
        if len(self.totals) > most_left:
            kept = {*assigned, OTHERS}
            left = [one for one in self.totals if one not in kept]
            for one in left[: max(0, len(left) - most_left)]:
                self.totals[OTHERS].add(self.totals.pop(one))
        return dict(self.totals)


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """What one client of a channel is for."""

    # A channel with several clients has a name for each.
    name: str
    # The channel's, as this client has them.
    settings: IncomingSettings
    # Its share of ``max_uncommitted``, or of the default.
    most_uncommitted: int
    strategy: CommitStrategy
    # Frozen.
    hooks: Hooks = Hooks()  # noqa: RUF009
    # Retry topic -> how long after its timestamp a record is due, in ms.
    delays: Mapping[str, int] | None = None

    @property
    def is_for_retries(self) -> bool:
        """Whether it reads the channel's retry topics."""
        return self.delays is not None


def roles(settings: IncomingSettings, strategy: CommitStrategy, hooks: Hooks) -> list[Role]:
    """The clients that a channel needs: its consumers, and one more where records are retried with
    a delay.
    """
    share = replace(settings, max_in_flight=max(1, settings.max_in_flight // settings.consumers))
    most = max(1, settings.most_uncommitted // settings.consumers)
    found = [
        Role(
            name=settings.name if number == 1 else f"{settings.name}-{number}",
            settings=replace(share, client=_own_instance(settings.client, number)),
            most_uncommitted=most,
            strategy=strategy,
            hooks=hooks,
        )
        for number in range(1, settings.consumers + 1)
    ]
    if settings.delayed_retry is not None:
        found.append(_for_retries(share, most, settings.delayed_retry))
    return found


def _own_instance(client: Mapping[str, object], number: int) -> Mapping[str, object]:
    instance = client.get("group_instance_id")
    return (
        client
        if instance is None or number == 1
        else {**client, "group_instance_id": f"{instance}-{number}"}
    )


def group_of_retries(settings: IncomingSettings) -> str:
    """The group that reads a channel's retry topics. Source: SmallRye's name for it."""
    return f"kafka-delayed-retry-topic-{settings.group_id or settings.name}"


def _for_retries(settings: IncomingSettings, most: int, delayed: DelayedRetrySettings) -> Role:
    return Role(
        name=f"{settings.name}-delayed-retry",
        settings=replace(
            settings,
            topics=delayed.topics,
            pattern=None,
            assign=(),
            group_id=group_of_retries(settings),
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            client=delayed.client,
        ),
        most_uncommitted=most,
        strategy=Throttled(settings.commit_interval_s),
        delays={topic: delay_of(topic) or 0 for topic in delayed.topics},
    )


def is_exact(settings: IncomingSettings) -> bool:
    """Whether records' own strings are kept apart: in order, the newest is always that of the last
    record.
    """
    is_ordered = settings.ordering == "partition" or settings.commit_strategy == "ignore"
    return settings.offset_metadata_strategy == "exact" and not is_ordered


def starts_of(
    settings: IncomingSettings, resume: Mapping[TopicPartition, int]
) -> dict[TopicPartition, Choice]:
    """Where the settings, or the end of the session before, have the first reading of a partition
    start.
    """
    named = [
        one
        for one in settings.assign
        if isinstance(one, AssignedPartition) and one.start is not None
    ]
    # The first range's.
    given = {one.partition: Choice(one.start) for one in reversed(named) if one.start is not None}
    return given | {one: Choice(where, is_resumed=True) for one, where in resume.items()}
