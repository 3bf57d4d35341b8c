"""What an incoming channel is made from, and what it keeps through its restarts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from reactive_kafka.broker.client import Connector
from reactive_kafka.checkpoint.codec import Codec
from reactive_kafka.checkpoint.store import CheckpointStore
from reactive_kafka.clock import Clock
from reactive_kafka.commit.strategy import CommitStrategy
from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.delivery.lane import KeyOf
from reactive_kafka.delivery.pauses import Pauses
from reactive_kafka.delivery.workers import HandlerTotals, Workers, WorkerSetup, WorkerSignals
from reactive_kafka.observe.events import Observer
from reactive_kafka.observe.facts import PartitionTotals
from reactive_kafka.partitions.hooks import Hooks
from reactive_kafka.partitions.parts import AssignmentFacts, CommitFacts
from reactive_kafka.records import TopicPartition
from reactive_kafka.tasks import Tasks

Decode = Callable[[bytes | None], Any]
MakeWorkers = Callable[[WorkerSignals, WorkerSetup], Workers]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunServices:
    """What one run of an application gives to all of its channels.

    Attributes:
        connector: Makes Kafka clients.
        tasks: Those of a channel fail that channel.
        exit: Called when a handler or a hook asks the process to end.
    """

    connector: Connector
    clock: Clock
    observer: Observer
    tasks: Tasks
    exit: Callable[[BaseException], None]


@dataclass(frozen=True, slots=True)
class CheckpointSpec:
    """Where a channel keeps positions and states, with ``commit_strategy = "checkpoint"``; closed at the end."""

    store: CheckpointStore
    codec: Codec


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelSpec:
    """What one incoming channel is made from.

    Attributes:
        make_workers: Makes the workers of each session; None: the application iterates over the channel.
        decode: For an application that iterates; handlers have theirs. None: payloads are bytes.
        key_of: What records are ordered by, with ``ordering = "key"``.
        connector: Makes the clients that read the channel's own topics; None: the run's connector does.
        keeps_plans: Ranges that an earlier owner has planned are handled as planned.
    """

    settings: IncomingSettings
    strategy: CommitStrategy
    services: RunServices
    hooks: Hooks = field(default_factory=Hooks)
    make_workers: MakeWorkers | None = None
    checkpoint: CheckpointSpec | None = None
    decode: Decode | None = None
    decode_key: Decode | None = None
    key_of: KeyOf | None = None
    connector: Connector | None = None
    keeps_plans: bool = False


@dataclass(slots=True)
class ChannelTotals:
    """What a channel counts, and what it remembers, through all of its sessions.

    Attributes:
        resume: Where the last session ended, in partitions that no group assigns. The next one goes on there: at the
            start that the settings choose it would pass records that were not settled.
    """

    totals: defaultdict[TopicPartition, PartitionTotals] = field(default_factory=lambda: defaultdict(PartitionTotals))
    commits: CommitFacts = field(default_factory=CommitFacts)
    history: AssignmentFacts = field(default_factory=AssignmentFacts)
    resume: dict[TopicPartition, int] = field(default_factory=dict)
    pauses: Pauses = field(default_factory=Pauses)
    handlers: HandlerTotals = field(default_factory=HandlerTotals)

    def totals_of(self, partition: TopicPartition) -> PartitionTotals:
        return self.totals[partition]

    def received(self, partition: TopicPartition, records: int) -> None:
        self.totals_of(partition).received += records
