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
from reactive_kafka.verdicts.acknowledger import Acknowledger
from reactive_kafka.verdicts.delivery_hook import DeliveryHook


@dataclass(slots=True)
class AssignmentFacts:
    """What happened to a channel's assignments, of all of its clients."""

    rebalances: dict[str, int] = field(
        default_factory=lambda: {"assigned": 0, "revoked": 0, "lost": 0}
    )
    resets: dict[str, int] = field(default_factory=lambda: {"earliest": 0, "latest": 0})
    # on_unreadable -> offsets.
    unreadable: dict[str, int] = field(default_factory=dict)
    abandoned: int = 0
    # Records that were not delivered again, because their acks had been kept.
    replays_avoided: int = 0
    duplicates_dropped: int = 0
    # Of the topics that were read.
    incarnations: Incarnations = field(default_factory=Incarnations)

    def dropped(self, records: int) -> None:
        """Records were settled without their handler, because the checkpoint store had them
        already.
        """
        self.duplicates_dropped += records


@dataclass(slots=True)
class CommitFacts:
    """What became of the commit requests of a channel: of all its members, and through its
    restarts.
    """

    outcomes: dict[str, int] = field(default_factory=lambda: {"ok": 0, "failed": 0, "unknown": 0})
    durations: DurationHistogram = field(default_factory=DurationHistogram)
    # How much the broker takes beside a position.
    room: MetadataLimit = field(default_factory=MetadataLimit)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientParts:
    """What one client of a channel works with; but for its settings and hook, all clients of the
    channel share it.
    """

    settings: IncomingSettings
    # Makes the clients that read delayed retries.
    connector: Connector
    # Those that read the channel's own topics.
    reader: Connector
    clock: Clock
    observer: Observer
    outages: OutageReports
    spawn: Spawn
    acknowledger: Acknowledger
    lanes: Lanes
    workers: Workers
    # Set where an application that iterates is to look again.
    arrival: asyncio.Event
    times: RecordTimes
    commits: CommitFacts
    history: AssignmentFacts
    # Where a restarted channel goes on, in partitions that no group assigns.
    resume: Mapping[TopicPartition, int]
    # Not to be fetched, whatever room there is.
    held_back: Callable[[], Iterable[TopicPartition]]
    # Counts records that came from a partition.
    received: Callable[[TopicPartition, int], None]
    # The channel's checkpoint store.
    hook: DeliveryHook
    # A partition that held no record has got some.
    holds: Callable[[], None]
    # Ranges that an earlier owner has planned are handled as planned.
    keeps_plans: bool = False
