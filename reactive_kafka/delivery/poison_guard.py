"""Finds records that have been in flight for too long, and does what ``on_poison`` says.

A stop or a failure of the channel does not wait for such records. Their handlers are cancelled
after the waits between attempts have ended, and the records are left to the next owner after the
drain, so an ack in time still counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable

from reactive_kafka.delivery.workers.interface import ChannelWorkers
from reactive_kafka.errors import PoisonError
from reactive_kafka.observe.events import PoisonSettled, RecordPoisoned
from reactive_kafka.observe.facts import PoisonFacts
from reactive_kafka.records import TopicPartition
from reactive_kafka.tasks import Flag
from reactive_kafka.tracking.poison_watch import Poison, PoisonWatch
from reactive_kafka.tracking.tracker import OffsetTracker
from reactive_kafka.verdicts.acknowledger import verdicts_of
from reactive_kafka.verdicts.ageing import Held
from reactive_kafka.verdicts.channel_context import ChannelContext
from reactive_kafka.verdicts.delivery import Delivery


class PoisonGuard:
    """Watches the records of one session of a channel.

    Args:
        dead_letter: Writes a record to the dead-letter topic, then settles it.
        trackers: Returns the trackers of the assigned partitions.
        all_trackers: Returns those, and the trackers of suspended partitions.
        is_over: Returns whether the channel has failed or is closed.
        is_held_up: Returns whether the channel waits for its brokers. The application gets no
            further records then.
        kept: Returns the records that the application keeps without a verdict, after their handlers
            have returned.
    """

    def __init__(
        self,
        parts: ChannelContext,
        workers: ChannelWorkers,
        dead_letter: Callable[[Delivery, BaseException], object],
        trackers: Callable[[], Iterable[OffsetTracker]],
        all_trackers: Callable[[], Collection[OffsetTracker]],
        is_over: Callable[[], bool],
        *,
        is_held_up: Callable[[], bool] = lambda: False,
        kept: Callable[[], Iterable[Held]] = tuple,
    ) -> None:
        self._settings = settings = parts.settings
        self._parts = parts
        self._workers = workers
        self._dead_letter = dead_letter
        self._trackers = trackers
        self._all_trackers = all_trackers
        self._is_over = is_over
        self._is_held_up = is_held_up
        self._kept = kept
        # The kept records whose clocks are stopped.
        self._stopped_clocks: set[tuple[OffsetTracker, int]] = set()
        self.watch = PoisonWatch(settings.unprocessed_record_max_age_s)
        # The records that the channel has failed for, as they were at that time.
        self.at_failure: tuple[PoisonFacts, ...] = ()
        self._has_begun = Flag()
        self.is_resting = False
        # The records that the channel has failed for.
        self._fatal: list[Poison] = []
        # The messages of their handlers.
        self._interrupted: list[Delivery] = []

    @property
    def is_wanted(self) -> bool:
        """Whether records can become poison. With ``ignore`` nothing ever waits for a record."""
        return (
            bool(self._settings.unprocessed_record_max_age_s)
            and self._settings.commit_strategy != "ignore"
        )

    async def run(self) -> None:
        """Look often enough to find every poison record within a second of its limit.

        While there is no record at all, rest until :meth:`begin`.
        """
        while not self._is_over():
            self._has_begun.clear()
            now = self._parts.clock.monotonic()
            self._stop_clocks_of_kept(now)
            for poison in self.watch.look(self._trackers(), now):
                self._found(poison, now)
            if self._settings.on_poison == "dead-letter-queue":
                self._dead_letter_all()
            for poison in self.watch.settled():
                event = PoisonSettled(
                    channel=self._settings.name,
                    partition=poison.tracker.partition,
                    offset=poison.offset,
                    age_s=now - poison.since,
                )
                self._parts.observer.on(event)
                self._parts.progress()
            held = self._all_trackers()
            due = self.watch.next_look(held, now)
            if held or not self.watch.rest():
                await asyncio.sleep(max(0.001, (due or now) - now))
            else:
                self.is_resting = True
                await self._has_begun.wait()
                self.is_resting = False

    def _stop_clocks_of_kept(self, now: float) -> None:
        """Have the records that the application keeps not age while the channel is held up.

        The application may be waiting for records that do not come meanwhile.
        """
        if self._is_held_up():
            for tracker, indexes in self._kept():
                new = [index for index in indexes if (tracker, index) not in self._stopped_clocks]
                tracker.stop_clock(new, now)
                self._stopped_clocks.update((tracker, index) for index in new)
        elif self._stopped_clocks:
            for tracker, index in self._stopped_clocks:
                tracker.start_clock((index,), now)
            self._stopped_clocks.clear()

    def begin(self) -> None:
        """Look again, if that has rested: a partition begins to hold records."""
        if self.is_resting and not self._has_begun.is_set():
            self.watch.begin(self._parts.clock.monotonic())
        self._has_begun.set()

    def end(self) -> None:
        """Look no more: the session is over. The channel may have another one."""
        self._is_over = lambda: True
        self._has_begun.set()

    def held_back(self) -> set[TopicPartition]:
        """Return the partitions that are not fetched any more because they have a poison record."""
        if self._settings.on_poison == "warn":
            return set()
        return {poison.tracker.partition for poison in self.watch.current}

    def facts(self, now: float) -> tuple[PoisonFacts, ...]:
        """Return the records over the limit at *now*, or those that the channel has failed for."""
        return self.at_failure or tuple(_facts(poison, now) for poison in self.watch.current)

    def _found(self, poison: Poison, now: float) -> None:
        self._parts.totals(poison.tracker.partition).poison += 1
        event = RecordPoisoned(
            channel=self._settings.name,
            partition=poison.tracker.partition,
            offset=poison.offset,
            age_s=now - poison.since,
            limit_s=self._settings.unprocessed_record_max_age_s,
            waiting=poison.waiting,
            on_poison=self._settings.on_poison,
            is_forgotten=self._is_forgotten(poison),
        )
        self._parts.observer.on(event)
        if self._settings.on_poison == "fail":
            self.at_failure += (_facts(poison, now),)
            self._fatal.append(poison)
            self._parts.fail(PoisonError(event.text()))

    def _is_forgotten(self, poison: Poison) -> bool:
        """Return whether a handler has returned and left its record without a verdict."""
        tracker = poison.tracker
        index = poison.index
        is_being_nacked = index in verdicts_of(tracker).nacks
        return (
            self._settings.ack == "manual"
            and not is_being_nacked
            and not self._workers.has(tracker, index)
        )

    def interrupt(self) -> None:
        """Cancel the handlers of the records that the channel has failed for. They are stuck."""
        for poison in self._fatal:
            self._interrupted += self._workers.interrupt(poison.tracker, poison.index)

    def leave(self) -> None:
        """Leave the records that the channel has failed for to the next owner.

        A later verdict on them is refused.
        """
        for poison in self._fatal:
            poison.tracker.nack(poison.index)
        for message in self._interrupted:
            message.tracker.nack(message.index)
        # A revocation may be waiting for them.
        self._parts.progress()

    def _dead_letter_all(self) -> None:
        """Write the dead letters of all poison records without a verdict.

        Also of those found earlier: such a record may have been out of reach then, in a rebalance.
        """
        limit_s = self._settings.unprocessed_record_max_age_s
        for poison in self.watch.current:
            if not poison.is_open:
                continue
            for message in self._workers.interrupt(poison.tracker, poison.index):
                place = f"{message.topic_partition} offset {message.offset}"
                reason = PoisonError(f"{place} had no verdict after {limit_s:g} s")
                self._dead_letter(message, reason)


def _facts(poison: Poison, now: float) -> PoisonFacts:
    return PoisonFacts(
        partition=poison.tracker.partition,
        offset=poison.offset,
        age_s=now - poison.since,
        waiting=poison.waiting,
    )
