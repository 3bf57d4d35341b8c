"""What all Spark jobs of one channel session share."""

from __future__ import annotations

from dataclasses import dataclass

from reactive_kafka.clock import Clock
from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.delivery.workers import WorkerSignals
from reactive_kafka.observe.events import Observer
from reactive_kafka.spark.batches.runs import RecordRun
from reactive_kafka.spark.channel.refetch import Fetch
from reactive_kafka.spark.channel.runner import SparkRunner


@dataclass(frozen=True, slots=True)
class JobContext:
    """What a job runs with, and whom it tells.

    Attributes:
        fetch: Reads records by their offsets, for the dead letters of records that executors have read.
    """

    settings: IncomingSettings
    runner: SparkRunner
    signals: WorkerSignals
    fetch: Fetch
    clock: Clock
    observer: Observer

    @property
    def group_id(self) -> str:
        """The group that the ids of ranges are made with."""
        return self.settings.group_id or self.settings.name

    def id_of(self, run: RecordRun) -> str:
        """The id of the range that a run is run as."""
        return run.range_of(self.group_id).id

    @property
    def commits(self) -> bool:
        """Whether positions are committed at all."""
        settings = self.settings
        return settings.commit_strategy != "ignore" and bool(settings.group_id or settings.checkpoint)

    @property
    def bisects(self) -> bool:
        """Whether the bad records of a failed batch are searched for."""
        return self.settings.spark.on_failure == "bisect"
