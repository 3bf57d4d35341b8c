"""What workers are made with, for tests in which no handler fails."""

from __future__ import annotations

from typing import Any, cast

from reactive_kafka import IncomingSettings
from reactive_kafka.clock import Clock
from reactive_kafka.delivery.lanes.queue import LaneQueue
from reactive_kafka.delivery.runners.record_runner import CallDurations
from reactive_kafka.delivery.workers.interface import WorkerSetup
from reactive_kafka.observe.facts import DurationHistogram, PartitionTotals
from reactive_kafka.tasks import Spawn
from reactive_kafka.verdicts.acknowledger import Acknowledger
from reactive_kafka.verdicts.call_waits import CallWaits
from reactive_kafka.verdicts.channel_context import ChannelContext
from reactive_kafka.verdicts.delivery_hook import NoHook


class Unexpected:
    """Fails the test if anything is asked of it."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)


def worker_setup(
    settings: IncomingSettings, lanes: LaneQueue, clock: Clock, spawn: Spawn
) -> WorkerSetup:
    """Return a setup whose channel expects no failure, no event and no end."""
    unexpected = cast(Any, Unexpected())
    totals = PartitionTotals()
    channel = ChannelContext(
        settings=settings,
        clock=clock,
        observer=unexpected,
        totals=lambda _: totals,
        spawn=spawn,
        fail=lambda error: unexpected.fail(error),
        progress=lambda: None,
    )
    return WorkerSetup(
        channel=channel,
        acknowledger=Acknowledger(channel, unexpected, NoHook(settings.name)),
        lanes=lanes,
        exit=lambda error: unexpected.exit(error),
        store_plans=lambda trackers: unexpected.store_plans(trackers),
    )


class TimedCalls:
    """The durations and the waits of one worker's calls, none of which skips its record."""

    def __init__(self) -> None:
        self.histogram = DurationHistogram()
        self.waits = CallWaits()
        self.durations = CallDurations(self.histogram, self.waits, lambda most: 0, 0.0)
