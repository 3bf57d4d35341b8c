"""What one client of a channel works with, and where it counts what happens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from reactive_kafka.broker.client import Connector
from reactive_kafka.clock import Clock
from reactive_kafka.commit.incarnations import Incarnations
from reactive_kafka.commit.metadata.user import MetadataLimit
from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.delivery.ages import RecordTimes
from reactive_kafka.delivery.lanes import Lanes
from reactive_kafka.delivery.workers import Workers
from reactive_kafka.observe.events import Observer
from reactive_kafka.observe.facts import DurationHistogram
from reactive_kafka.observe.outages import OutageReports
from reactive_kafka.records import TopicPartition
from reactive_kafka.tasks import Spawn
from reactive_kafka.verdicts.acknowledge import Acknowledger
from reactive_kafka.verdicts.hook import DeliveryHook


@dataclass(slots=True)
class AssignmentFacts:
    """What happened to a channel's assignments, of all of its clients."""

    rebalances: dict[str, int] = field(default_factory=lambda: {"assigned": 0, "revoked": 0, "lost": 0})
    resets: dict[str, int] = field(default_factory=lambda: {"earliest": 0, "latest": 0})
    unreadable: dict[str, int] = field(default_factory=dict)  # on_unreadable -> offsets
    abandoned: int = 0
    replays_avoided: int = 0  # records that were not delivered again, because their acks had been kept
    duplicates_dropped: int = 0
    incarnations: Incarnations = field(default_factory=Incarnations)  # of the topics that were read

    def dropped(self, records: int) -> None:
        """Records were settled without their handler, because the checkpoint store had them already."""
        self.duplicates_dropped += records


@dataclass(slots=True)
class CommitFacts:
    """What became of the commit requests of a channel: of all its members, and through its restarts."""

    outcomes: dict[str, int] = field(default_factory=lambda: {"ok": 0, "failed": 0, "unknown": 0})
    durations: DurationHistogram = field(default_factory=DurationHistogram)
    room: MetadataLimit = field(default_factory=MetadataLimit)  # how much the broker takes beside a position


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientParts:
    """What one client of a channel works with; but for its settings and hook, all clients of the channel share it."""

    settings: IncomingSettings
    connector: Connector  # makes the clients that read delayed retries
    reader: Connector  # those that read the channel's own topics
    clock: Clock
    observer: Observer
    outages: OutageReports
    spawn: Spawn
    acknowledger: Acknowledger
    lanes: Lanes
    workers: Workers
    arrival: asyncio.Event  # set where an application that iterates is to look again
    times: RecordTimes
    commits: CommitFacts
    history: AssignmentFacts
    resume: Mapping[TopicPartition, int]  # where a restarted channel goes on, in partitions that no group assigns
    held_back: Callable[[], Iterable[TopicPartition]]  # not to be fetched, whatever room there is
    received: Callable[[TopicPartition, int], None]  # counts records that came from a partition
    hook: DeliveryHook  # the channel's checkpoint store
    holds: Callable[[], None]  # a partition that held no record has got some
    keeps_plans: bool = False  # ranges that an earlier owner has planned are handled as planned
