"""A delivery: a record on its way to a verdict, as the package itself passes it around. Pure."""

from __future__ import annotations

from typing import Any, TypeVar

from reactive_kafka.errors import describe
from reactive_kafka.records import RawRecord, TopicPartition
from reactive_kafka.tracking.tracker import OffsetTracker

D = TypeVar("D", bound="Delivery")


class Delivery:
    """A record of one partition during one assignment.

    :class:`Message` extends it: a handler's message is its own delivery, so the hot path makes one
    object per record, and reads ``tracker`` and ``index`` as slots. A message that held a delivery
    would cost a second object, and a function that looks one up a call. ``Message.__dir__`` leaves
    out the two, which are no part of its public face.
    """

    __slots__ = ("index", "record", "tracker")

    # Of its partition in this assignment.
    tracker: OffsetTracker
    # Its arrival number in that tracker.
    index: int
    record: RawRecord

    # No __init__, here and in Message: see new_message.

    @property
    def topic_partition(self) -> TopicPartition:
        """Topic and partition together."""
        return self.tracker.partition

    @property
    def offset(self) -> int:
        """Its offset in the partition."""
        return self.record.offset


def is_open(delivery: Delivery) -> bool:
    """Whether a verdict on it would still count."""
    return delivery.tracker.is_open(delivery.index)


def failure_of(channel: str, delivery: Delivery, reason: BaseException) -> dict[str, Any]:
    """What a :class:`~reactive_kafka.observe.events.FailureEvent` says of a delivery."""
    place = {"partition": delivery.topic_partition, "offset": delivery.offset}
    return {"channel": channel, **place, "reason": describe(reason), "error": reason}
