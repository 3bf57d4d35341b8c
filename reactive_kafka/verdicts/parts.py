"""What a channel gives to the objects that take its verdicts."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from reactive_kafka.clock import Clock
from reactive_kafka.commit.tracker import OffsetTracker
from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.observe.events import Observer
from reactive_kafka.observe.facts import PartitionTotals
from reactive_kafka.records import TopicPartition
from reactive_kafka.tasks import Spawn
from reactive_kafka.verdicts.hook import DeliveryHook

BlocksOn = Callable[[OffsetTracker, int, Future[bool]], None]
"""Told of each nack that takes time: the record, and a future that is True if the nack took effect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictParts:
    """What a channel gives to the objects that take its verdicts.

    Attributes:
        fail: Stops the channel, for the reason given; False if it was stopping or had failed before.
        progress: Called after a verdict while somebody waits for room, or for the last verdicts of a drain.
        request_commit: Asks for a commit of a tracker's partition; returns the position that would be committed.
        commits_at_ack: An ack is complete when what could be committed by then is (``latest``).
        decode_key: Of ``key_deserializer``; None: keys stay bytes.
    """

    settings: IncomingSettings
    clock: Clock
    observer: Observer
    totals: Callable[[TopicPartition], PartitionTotals]
    spawn: Spawn
    hook: DeliveryHook
    fail: Callable[[BaseException], bool]
    progress: Callable[[], None]
    request_commit: Callable[[OffsetTracker], int]
    blocks_on: BlocksOn
    commits_at_ack: bool = False
    decode_key: Callable[[bytes | None], Any] | None = None
