"""A record on its way to a verdict, as the package itself passes it around. Pure."""

from __future__ import annotations

from typing import Any, TypeVar

from reactive_kafka.errors import describe
from reactive_kafka.records import RawRecord, TopicPartition
from reactive_kafka.tracking.tracker import OffsetTracker

D = TypeVar("D", bound="Delivery")


class Delivery:
    """A record of one partition during one assignment.

    :class:`Message` extends it: a handler's message is its own delivery. So the hot path makes one
    object per record, and reads ``tracker`` and ``index`` as slots. A message that held a delivery
    would cost a second object for each record. ``Message.__dir__`` leaves out the slots that are
    not public.

    There is no ``__init__``, here and in Message, for the reason that ``new_message`` gives.

    Attributes:
        tracker: The tracker of its partition in this assignment.
        index: Its arrival number in that tracker.
    """

    __slots__ = ("_trace", "index", "record", "tracker")

    tracker: OffsetTracker
    index: int
    record: RawRecord
    # What the channel's watch keeps with it. It is unset where nothing watches.
    _trace: object

    @property
    def topic_partition(self) -> TopicPartition:
        """Topic and partition together."""
        return self.tracker.partition

    @property
    def offset(self) -> int:
        """Its offset in the partition."""
        return self.record.offset


def keep_trace(delivery: Delivery, trace: object) -> None:
    """Keep with a delivery what the channel's watch asks for at its verdict."""
    delivery._trace = trace


def trace_of(delivery: Delivery) -> object:
    """Return what ``keep_trace`` has kept; None: nothing."""
    return getattr(delivery, "_trace", None)


def is_open(delivery: Delivery) -> bool:
    """Return whether a verdict on it would still count."""
    return delivery.tracker.is_open(delivery.index)


def is_called_again(delivery: Delivery) -> bool:
    """Return whether a handler has had a message in an earlier call, whatever its number was.

    Not every further call has a higher number: ``Later`` and an outage use up no attempt.
    """
    # Each further call sets the number of the message's attempt, and the first one does not.
    return hasattr(delivery, "_attempt")


def failure_of(channel: str, delivery: Delivery, reason: BaseException) -> dict[str, Any]:
    """Return the fields of a :class:`~reactive_kafka.observe.events.FailureEvent`."""
    return {
        "channel": channel,
        "partition": delivery.topic_partition,
        "offset": delivery.offset,
        "reason": describe(reason),
        "error": reason,
    }
