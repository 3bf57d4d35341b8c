"""The letters of an exactly-once channel that a transaction is to write."""

from __future__ import annotations

import asyncio
from typing import Any

from reactive_kafka import TopicPartition
from reactive_kafka.outgoing.queue.record import OutgoingRecord
from reactive_kafka.outgoing.transactions.transactional_letters import TransactionalLetters
from reactive_kafka.records import RecordBytes
from reactive_kafka.testing import record
from reactive_kafka.tracking.tracker import OffsetTracker
from reactive_kafka.verdicts.message import new_message


async def test_a_letter_that_was_written_does_not_count_as_one_that_is_to_be() -> None:
    unused: Any = None
    letters = TransactionalLetters(unused, unused, unused, lambda work, name, context=None: None)
    tracker = OffsetTracker(TopicPartition("orders", 0), 0)
    tracker.deliver(range(2), 2)
    delivery = new_message(b"bad", record(b"bad"), tracker, 0)
    writing = asyncio.ensure_future(
        letters.write(delivery, OutgoingRecord("dead", RecordBytes(b"bad")))
    )
    await asyncio.sleep(0)
    (letter,) = letters.before(tracker, 1)
    # Its record is settled from here on, and who waits for it has not had its turn.
    letter.done.set_result(None)
    assert letters.before(tracker, 1) == []
    await writing
