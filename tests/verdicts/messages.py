"""Messages of records that are in flight, for tests of the rooms that settle them."""

from __future__ import annotations

from typing import Any

from reactive_kafka import Message
from reactive_kafka.tracking.tracker import OffsetTracker
from reactive_kafka.verdicts.acknowledger import verdicts_of
from reactive_kafka.verdicts.message import new_message
from tests.tracking.values import tracker_of


def message_of(
    record: Any, tracker: OffsetTracker | None = None, index: int = 0, payload: Any = None
) -> Message[Any]:
    """The message of a record, which came to its tracker as number *index*."""
    return new_message(payload, record, tracker or tracker_of(), index)


def kept_of_nacks(tracker: OffsetTracker) -> tuple[int, int]:
    """How many letters are being written, and how many nacks are not carried out."""
    verdicts = verdicts_of(tracker)
    return len(verdicts.writing), len(verdicts.nacks)
