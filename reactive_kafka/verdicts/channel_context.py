"""What a channel gives to the objects that take verdicts on its records, and watch them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from reactive_kafka.clock import Clock
from reactive_kafka.config.settings import IncomingSettings
from reactive_kafka.observe.events import Observer
from reactive_kafka.observe.facts import PartitionTotals
from reactive_kafka.records import TopicPartition
from reactive_kafka.tasks import Spawn
from reactive_kafka.verdicts.message_watch import VerdictWatch


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelContext:
    """One session of a channel, as its acknowledger, failure handling and poison guard see it.

    Attributes:
        totals: The counters of a partition, over all its assignments.
        fail: Stops the channel; False if it was stopping or had failed before.
        progress: Called when a verdict may have made room, or may have ended a drain.
        watch: Sees each verdict; None: nothing does.
    """

    settings: IncomingSettings
    clock: Clock
    observer: Observer
    totals: Callable[[TopicPartition], PartitionTotals]
    spawn: Spawn
    fail: Callable[[BaseException], bool]
    progress: Callable[[], None]
    watch: VerdictWatch | None = None
