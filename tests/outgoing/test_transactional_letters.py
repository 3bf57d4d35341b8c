"""The letters of an exactly-once channel that a transaction is to write."""

from __future__ import annotations

import asyncio
from typing import Any

from reactive_kafka.outgoing.queue.record import OutgoingRecord
from reactive_kafka.outgoing.transactions.transactional_letters import TransactionalLetters
from reactive_kafka.records import RecordBytes
from reactive_kafka.testing import record
from tests.tracking.values import tracker_of
from tests.verdicts.messages import message_of


async def test_a_letter_that_was_written_does_not_count_as_one_that_is_to_be() -> None:
    unused: Any = None
    letters = TransactionalLetters(unused, unused, unused, lambda work, name, context=None: None)
    tracker = tracker_of()
    tracker.deliver(range(2), 2)
    delivery = message_of(record(b"bad"), tracker)
    writing = asyncio.ensure_future(
        letters.write(delivery, OutgoingRecord("dead", RecordBytes(b"bad")))
    )
    await asyncio.sleep(0)
    (letter,) = letters.before(tracker, 1)
    # Its record is settled from here on, and who waits for it has not had its turn.
    letter.done.set_result(None)
    assert letters.before(tracker, 1) == []
    await writing
