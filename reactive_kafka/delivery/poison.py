"""Finds records that have been in flight for too long, and does with them what ``on_poison``
says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable

from reactive_kafka.delivery.workers import Workers
from reactive_kafka.errors import PoisonError
from reactive_kafka.observe.events import PoisonSettled, RecordPoisoned
from reactive_kafka.observe.facts import PoisonFacts
from reactive_kafka.records import TopicPartition
from reactive_kafka.tracking.poison_watch import Poison, PoisonWatch
from reactive_kafka.tracking.tracker import OffsetTracker
from reactive_kafka.verdicts.ageing import Held
from reactive_kafka.verdicts.delivery import Delivery
from reactive_kafka.verdicts.nack import VerdictParts
from reactive_kafka.verdicts.partition import verdicts_of


class PoisonGuard:
    """The watch over one session of a channel."""

    def __init__(
        self,
        parts: VerdictParts,
        workers: Workers,
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
        # Writes a record to the dead-letter topic, then settles it.
        self._dead_letter = dead_letter
        # Of the assigned partitions.
        self._trackers = trackers
        # Those, and the trackers of suspended partitions.
        self._all_trackers = all_trackers
        # Whether the channel has failed or is closed.
        self._is_over = is_over
        # Whether the channel waits for its brokers: the application gets no further records then.
        self._is_held_up = is_held_up
        # The records that the application keeps without a verdict, after their handlers have
        # returned.
        self._kept = kept
        self._standing: set[tuple[OffsetTracker, int]] = set()
        self.watch = PoisonWatch(settings.unprocessed_record_max_age_s)
        # The record that the channel has failed for, as it was then.
        self.at_failure: tuple[PoisonFacts, ...] = ()
        self._has_begun = asyncio.Event()
        self.is_resting = False
        # What the channel has failed for.
        self._fatal: list[Poison] = []
        # What their handlers had.
        self._interrupted: list[Delivery] = []

    @property
    def is_wanted(self) -> bool:
        """Whether records can become poison: with ``ignore`` nothing ever waits for one."""
        return (
            bool(self._settings.unprocessed_record_max_age_s)
            and self._settings.commit_strategy != "ignore"
        )

    async def run(self) -> None:
        """Look often enough to find every poison record within a second of its limit; not while
        there is no record.
        """
        while not self._is_over():
            self._has_begun.clear()
            now = self._parts.clock.monotonic()
            self._look_at_kept(now)
            for poison in self.watch.look(self._trackers(), now):
                self._found(poison, now)
            if self._settings.on_poison == "dead-letter-queue":
                self._dead_letter_all()
            for poison in self.watch.settled():
                where = poison.tracker.partition
                age_s = now - poison.since
                event = PoisonSettled(
                    channel=self._settings.name, partition=where, offset=poison.offset, age_s=age_s
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

    def _look_at_kept(self, now: float) -> None:
        """Have the records that the application keeps not age while the channel waits for its
        brokers.
        """
        if self._is_held_up():
            for tracker, indexes in self._kept():
                new = [index for index in indexes if (tracker, index) not in self._standing]
                tracker.stop_clock(new, now)
                self._standing.update((tracker, index) for index in new)
        elif self._standing:
            for tracker, index in self._standing:
                tracker.start_clock((index,), now)
            self._standing.clear()

    def begin(self) -> None:
        """A partition begins to hold records: looks begin again, if they have rested."""
        if self.is_resting and not self._has_begun.is_set():
            self.watch.begin(self._parts.clock.monotonic())
        self._has_begun.set()

    def end(self) -> None:
        """Look no more: the session is over."""
        # The channel itself may go on, with another session.
        self._is_over = lambda: True
        self._has_begun.set()

    def held_back(self) -> set[TopicPartition]:
        """The partitions that are not fetched any further, for they have a poison record."""
        if self._settings.on_poison == "warn":
            return set()
        return {poison.tracker.partition for poison in self.watch.current}

    def facts(self, now: float) -> tuple[PoisonFacts, ...]:
        """The records over the limit at *now*, or those that the channel has failed for."""
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
            self.at_failure = (_facts(poison, now),)
            self._fatal.append(poison)
            self._parts.fail(PoisonError(event.text()))

    def _is_forgotten(self, poison: Poison) -> bool:
        tracker = poison.tracker
        index = poison.index
        is_being_nacked = index in verdicts_of(tracker).nacks
        return (
            self._settings.ack == "manual"
            and not is_being_nacked
            and not self._workers.has(tracker, index)
        )

    def interrupt(self) -> None:
        """Cancel the handlers that the channel has failed for: they are stuck, and nobody waits for
        them.
        """
        for poison in self._fatal:
            self._interrupted += self._workers.interrupt(poison.tracker, poison.index)

    def leave(self) -> None:
        """Leave the records that the channel has failed for to the next owner: a later verdict is
        refused.
        """
        for poison in self._fatal:
            poison.tracker.nack(poison.index)
        for message in self._interrupted:
            message.tracker.nack(message.index)
        # A revocation may be waiting for them.
        self._parts.progress()

    def _dead_letter_all(self) -> None:
        """Also those found earlier: a record may have been out of reach then, in a rebalance."""
        for poison in self.watch.current:
            for message in (
                self._workers.interrupt(poison.tracker, poison.index) if poison.is_open else ()
            ):
                limit_s = self._settings.unprocessed_record_max_age_s
                reason = f"{message.topic_partition} offset {message.offset} had no verdict after {limit_s:g} s"
                self._dead_letter(message, PoisonError(reason))


def _facts(poison: Poison, now: float) -> PoisonFacts:
    return PoisonFacts(
        partition=poison.tracker.partition,
        offset=poison.offset,
        age_s=now - poison.since,
        waiting=poison.waiting,
    )
