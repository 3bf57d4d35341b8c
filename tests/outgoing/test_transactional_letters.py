"""The letters of an exactly-once channel that a transaction is to write."""

from __future__ import annotations

import asyncio
from typing import Any

from reactive_kafka.outgoing.queue.record import OutgoingRecord
from reactive_kafka.outgoing.transactions.positions import LOOK_S, TransactionPositions
from reactive_kafka.outgoing.transactions.transactional_letters import TransactionalLetters
from reactive_kafka.records import RecordBytes
from reactive_kafka.tasks import Tasks, log_failure
from reactive_kafka.testing import record
from tests.app.helpers import in_virtual_time
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


@in_virtual_time
async def test_one_task_at_a_time_writes_the_letters_of_a_partition() -> None:
    tasks = Tasks()
    unused: Any = None
    letters = TransactionalLetters(
        unused, TransactionPositions(list), unused, tasks.of(log_failure)
    )
    tracker = tracker_of()
    # The record before each letter stays unsettled, so the task only looks, again and again.
    tracker.deliver(range(30), 30)

    async def nack_and_settle(index: int) -> None:
        """Have a handler's transaction write a letter before the task looks again."""
        delivery = message_of(record(b"bad"), tracker, index)
        outgoing = OutgoingRecord("dead", RecordBytes(b"bad"))
        writing = asyncio.ensure_future(letters.write(delivery, outgoing))
        await asyncio.sleep(LOOK_S / 100)
        (letter,) = letters.before(tracker, index + 1)
        letter.done.set_result(None)
        await writing

    for index in range(1, 21):
        await nack_and_settle(index)
    assert len(tasks._running) == 1
    # It ends when it finds no letters. The next letter gets another one.
    await asyncio.sleep(2 * LOOK_S)
    assert not tasks._running
    await nack_and_settle(21)
    assert len(tasks._running) == 1
    assert await tasks.end(1.0) == []
