"""What one client of a channel works with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from reactive_kafka.broker.client import Connector
from reactive_kafka.clock import Clock
from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.delivery.lanes import Lanes
from reactive_kafka.delivery.workers import Workers
from reactive_kafka.observe.events import Observer
from reactive_kafka.partitions.facts import AssignmentFacts, CommitFacts
from reactive_kafka.records import TopicPartition
from reactive_kafka.tasks import Spawn
from reactive_kafka.verdicts.acknowledge import Acknowledger
from reactive_kafka.verdicts.hook import DeliveryHook


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientParts:
    """What one client of a channel works with; but for its settings and hook, all clients of the channel share it.

    Attributes:
        reader: Makes the clients that read the channel's own topics; the connector those of delayed retries.
        arrival: Set where an application that iterates is to look again.
        resume: Where a channel that is restarted goes on, in partitions that no group assigns.
        held_back: The partitions that are not to be fetched, whatever room there is.
        received: Counts records that came from a partition.
        keeps_plans: Ranges that an earlier owner has planned beyond the group's position are handled as planned.
        hook: The channel's checkpoint store.
    """

    settings: IncomingSettings
    connector: Connector
    reader: Connector
    clock: Clock
    observer: Observer
    spawn: Spawn
    acknowledger: Acknowledger
    lanes: Lanes
    workers: Workers
    arrival: asyncio.Event
    commits: CommitFacts
    history: AssignmentFacts
    resume: Mapping[TopicPartition, int]
    held_back: Callable[[], Iterable[TopicPartition]]
    received: Callable[[TopicPartition, int], None]
    hook: DeliveryHook
    keeps_plans: bool = False
