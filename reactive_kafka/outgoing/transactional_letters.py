"""Dead letters and retries of an exactly-once channel: each in a transaction with the position
behind its record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from reactive_kafka.backoff import Waits
from reactive_kafka.errors import BrokerError, RejectedRecordError
from reactive_kafka.outgoing.outbox import Outbound
from reactive_kafka.outgoing.positions import BACKOFF, LOOK_S, Letter, Part, Positions
from reactive_kafka.outgoing.transactions import TransactionalProducers
from reactive_kafka.tasks import Spawn
from reactive_kafka.tracking.tracker import OffsetTracker
from reactive_kafka.verdicts.delivery import Delivery


class TransactionalLetters:
    """The letters of one session of a channel."""

    def __init__(
        self,
        producers: TransactionalProducers,
        positions: Positions,
        aborted: Callable[[BrokerError], None],
        spawn: Spawn,
    ) -> None:
        self._producers = producers
        # Told of each transaction that is to be tried again.
        self._aborted = aborted
        self._positions = positions
        self._spawn = spawn
        self._letters: dict[OffsetTracker, dict[int, Letter]] = {}
        # Set with each.
        self.came = asyncio.Event()

    def before(self, tracker: OffsetTracker, index: int) -> list[Letter]:
        """Those of the records before this one that are still to be written.

        One that was written is here until whoever waits for it has had its turn. Its record is
        settled: counted as well it would stand for another record, whose letter has not come yet,
        and the position would pass that.
        """
        letters = self._letters.get(tracker, {})
        return [letter for at, letter in letters.items() if at < index and not letter.done.done()]

    async def write(self, delivery: Delivery, outbound: Outbound) -> None:
        """Write a record for one that was nacked, in one transaction with the position behind that,
        and settle it.

        Nacked records that follow each other share a transaction; where records between them are
        with a handler, the letters are in the transaction of its call.

        RejectedRecordError: the broker refuses it. Cancellation: It may be written all the same.
        """
        tracker = delivery.tracker
        index = delivery.index
        letter = Letter(delivery, outbound, asyncio.get_running_loop().create_future())
        letters = self._letters.setdefault(tracker, {})
        is_first = not letters
        letters[index] = letter
        self.came.set()
        if is_first:
            self._spawn(lambda: self._pump(tracker), f"dead letters of {tracker.partition}")
        try:
            await letter.done
        finally:
            if letters.get(index) is letter:
                del letters[index]
            # Also where the partition has gone, and no pump looks after it any more.
            if not letters and self._letters.get(tracker) is letters:
                del self._letters[tracker]

    async def _pump(self, tracker: OffsetTracker) -> None:
        """Write the letters of a partition that no handler's call writes, until there are none."""
        waits = Waits(BACKOFF)
        while self._letters.get(tracker) and not tracker.is_closed:
            wait_s = LOOK_S
            await self._positions.until_read(tracker)
            async with self._positions.holding([tracker.partition]):
                if run := self._due_letters(tracker):
                    try:
                        await self._write_run(tracker, run)
                        waits = Waits(BACKOFF)
                        wait_s = 0.0
                    except BrokerError as error:
                        wait_s = 0.0
                        # Which its own writer is told.
                        if not isinstance(error.__cause__, RejectedRecordError):
                            self._aborted(error)
                            # Readiness speaks of what is not written for some time.
                            wait_s = waits.next_s()
            await asyncio.sleep(wait_s)
        if not self._letters.get(tracker):
            self._letters.pop(tracker, None)

    def _due_letters(self, tracker: OffsetTracker) -> list[Letter]:
        """The letters of the first unsettled records, as far as nothing else is unsettled among
        them.
        """
        run: list[Letter] = []
        for index, letter in sorted(self._letters.get(tracker, {}).items()):
            is_gap = tracker.unsettled_up_to(index) != len(run) + 1
            if is_gap or letter.done.done() or (letter.is_alone and run):
                break
            run.append(letter)
            if letter.is_alone:
                break
        return run

    async def _write_run(self, tracker: OffsetTracker, run: list[Letter]) -> None:
        transaction = self._producers.begin()
        try:
            await self._positions.end(transaction, [Part(tracker, [], run)])
        finally:
            await transaction.close()
