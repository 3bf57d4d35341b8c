"""What one client of a channel works with, and where it counts what happens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from reactive_kafka.assignment.history import AssignmentHistory
from reactive_kafka.broker.client import Connector
from reactive_kafka.clock import Clock
from reactive_kafka.commit.outcomes import CommitOutcomes
from reactive_kafka.config.settings import IncomingSettings
from reactive_kafka.delivery.ages import RecordTimes
from reactive_kafka.delivery.lanes.queue import LaneQueue
from reactive_kafka.delivery.workers.interface import ChannelWorkers
from reactive_kafka.observe.events import Observer
from reactive_kafka.observe.outages import OutageReports
from reactive_kafka.records import TopicPartition
from reactive_kafka.tasks import Spawn
from reactive_kafka.verdicts.acknowledger import Acknowledger
from reactive_kafka.verdicts.delivery_hook import DeliveryHook


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
    lanes: LaneQueue
    workers: ChannelWorkers
    # Set where an application that iterates is to look again.
    arrival: asyncio.Event
    times: RecordTimes
    commits: CommitOutcomes
    history: AssignmentHistory
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
