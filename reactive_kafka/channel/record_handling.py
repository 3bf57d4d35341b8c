"""Where the clients of a channel put the records that they bring."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from reactive_kafka.delivery.lanes.queue import LaneQueue
from reactive_kafka.delivery.workers.interface import ChannelWorkers
from reactive_kafka.records import TopicPartition
from reactive_kafka.tasks import Flag
from reactive_kafka.verdicts.acknowledger import Acknowledger


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordHandling:
    """What handles the records of all clients of a session."""

    lanes: LaneQueue
    workers: ChannelWorkers
    acknowledger: Acknowledger
    # Set when an application that iterates has to look again.
    arrival: Flag
    # Returns the partitions that are not fetched, whatever room they have.
    held_back: Callable[[], Iterable[TopicPartition]]
    # Called when a partition that held no record has got some.
    holds: Callable[[], None]
    # Ranges that an earlier owner has planned are handled as planned.
    keeps_plans: bool = False

    def skipped(self, partition: TopicPartition, records: int) -> None:
        """Records were skipped by hand as they came."""
        self.acknowledger.skips.count(partition, "operator", records)

    def filtered(self, partition: TopicPartition, records: int) -> None:
        """Records were skipped as they came, because of their headers."""
        self.acknowledger.skips.count(partition, "filter", records)

    def arrived(self) -> None:
        """Records can be handled: wake workers, and the application that iterates."""
        self.workers.work_is_there()
        self.arrival.set()
