"""Dead letters and retries of an exactly-once channel.

Each is written in one transaction with the position after its record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from reactive_kafka.backoff import Waits
from reactive_kafka.errors import BrokerError, RejectedRecordError
from reactive_kafka.outgoing.queue.record import OutgoingRecord
from reactive_kafka.outgoing.transactions.positions import (
    BACKOFF,
    LOOK_S,
    Letter,
    PartitionRecords,
    TransactionPositions,
)
from reactive_kafka.outgoing.transactions.producers import TransactionalProducers
from reactive_kafka.tasks import Flag, Spawn
from reactive_kafka.tracking.tracker import OffsetTracker
from reactive_kafka.verdicts.delivery import Delivery


class TransactionalLetters:
    """The letters of one session of a channel.

    Attributes:
        came: Set with each new letter.

    Args:
        aborted: Called with the error of each transaction that is to be tried again.
    """

    def __init__(
        self,
        producers: TransactionalProducers,
        positions: TransactionPositions,
        aborted: Callable[[BrokerError], None],
        spawn: Spawn,
    ) -> None:
        self._producers = producers
        self._aborted = aborted
        self._positions = positions
        self._spawn = spawn
        # Tracker of a partition -> arrival number of the nacked record -> its letter.
        self._letters: dict[OffsetTracker, dict[int, Letter]] = {}
        # The partitions for which a task writes letters.
        self._pumped: set[OffsetTracker] = set()
        self.came = Flag()

    def before(self, tracker: OffsetTracker, index: int) -> list[Letter]:
        """Return the letters of the records before this one that are still to be written.

        A letter that was written stays in the table until the task that waits for it has had its
        turn. It must not be counted: its record is settled, so it would stand for another record,
        whose letter has not come yet, and the position would pass that record.
        """
        letters = self._letters.get(tracker, {})
        return [
            letter
            for nacked, letter in letters.items()
            if nacked < index and not letter.done.done()
        ]

    async def write(self, delivery: Delivery, outgoing: OutgoingRecord) -> None:
        """Write the letter of a nacked record and the position after it in one transaction.

        That settles the record. Nacked records that follow each other share a transaction. If a
        handler has records between them, the letters are in the transaction of its call.

        Raises:
            RejectedRecordError: The broker refuses the letter.

        Cancellation:
            The letter may be written all the same.
        """
        tracker = delivery.tracker
        index = delivery.index
        letter = Letter(delivery, outgoing, asyncio.get_running_loop().create_future())
        letters = self._letters.setdefault(tracker, {})
        letters[index] = letter
        self.came.set()
        self._start_pump(tracker)
        try:
            await letter.done
        finally:
            if letters.get(index) is letter:
                del letters[index]
            # If the partition has gone, there is no task for its letters any more that would do
            # this.
            if not letters and self._letters.get(tracker) is letters:
                del self._letters[tracker]

    def _start_pump(self, tracker: OffsetTracker) -> None:
        """Start the task that writes the partition's letters, unless it runs.

        It may still run although all its letters are written: a handler's call has written them,
        and the task has not looked since.
        """
        if tracker in self._pumped:
            return

        async def pump() -> None:
            try:
                await self._pump(tracker)
            finally:
                self._pumped.discard(tracker)

        self._pumped.add(tracker)
        if self._spawn(pump, f"dead letters of {tracker.partition}") is None:
            self._pumped.discard(tracker)

    async def _pump(self, tracker: OffsetTracker) -> None:
        """Write the letters of a partition that no handler's call writes, until there are none.

        It looks again every LOOK_S seconds while records before the letters are unsettled.
        """
        waits = Waits(BACKOFF)
        while self._letters.get(tracker) and not tracker.is_closed:
            wait_s = LOOK_S
            await self._positions.until_read(tracker)
            async with self._positions.holding([tracker.partition]):
                due = self._due_letters(tracker)
                if due:
                    wait_s = 0.0
                    try:
                        await self._write_due(tracker, due)
                        waits = Waits(BACKOFF)
                    except BrokerError as error:
                        # A refused letter is the business of the caller that waits for it in
                        # write().
                        if not isinstance(error.__cause__, RejectedRecordError):
                            self._aborted(error)
                            # Readiness reports a letter that is not written for some time.
                            wait_s = waits.next_s()
            await asyncio.sleep(wait_s)
        if not self._letters.get(tracker):
            self._letters.pop(tracker, None)

    def _due_letters(self, tracker: OffsetTracker) -> list[Letter]:
        """Return the letters of the partition's first unsettled records.

        They end before the first record that is unsettled and has no letter, for the position may
        not pass that.
        """
        due: list[Letter] = []
        for index, letter in sorted(self._letters.get(tracker, {}).items()):
            is_another_unsettled = tracker.unsettled_up_to(index) != len(due) + 1
            if is_another_unsettled or letter.done.done():
                break
            # A letter that was refused together with others goes alone.
            if letter.is_alone and due:
                break
            due.append(letter)
            if letter.is_alone:
                break
        return due

    async def _write_due(self, tracker: OffsetTracker, due: list[Letter]) -> None:
        transaction = self._producers.begin()
        try:
            await self._positions.end(transaction, [PartitionRecords(tracker, [], due)])
        finally:
            await transaction.close()
