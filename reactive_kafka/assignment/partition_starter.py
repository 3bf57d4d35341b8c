"""Starts to read one partition: what its log is like, and what its last owner has left beside the
group's position.
"""

from __future__ import annotations

from collections.abc import Callable

from reactive_kafka.assignment.client_parts import ClientParts
from reactive_kafka.assignment.handover import take_over, tell_acks_dropped
from reactive_kafka.assignment.log_ends import LogEnds
from reactive_kafka.assignment.start_policy import (
    NoPositionError,
    Start,
    no_position,
    recreated_topic,
    start_in_ranges,
    start_position,
)
from reactive_kafka.observe.events import OffsetReset
from reactive_kafka.partitions.client_partitions import ClientPartitions
from reactive_kafka.partitions.partition import Partition
from reactive_kafka.partitions.start_choice import StartChoice, chosen_position
from reactive_kafka.records import Committed, TopicPartition
from reactive_kafka.tracking.metadata.codec import decode
from reactive_kafka.tracking.tracker import OffsetTracker


class PartitionStarter:
    """Decides where one partition starts, and tracks it from there. Awaits nothing."""

    def __init__(
        self, parts: ClientParts, owned: ClientPartitions, fail: Callable[[BaseException], bool]
    ) -> None:
        self._parts = parts
        self._settings = parts.settings
        self._owned = owned
        # Nobody may choose a position: the channel stops.
        self._fail = fail

    def start_found(
        self,
        one: Partition,
        found: Committed | None,
        choice: StartChoice | None,
        log: LogEnds,
        *,
        is_new: bool,
    ) -> Start | None:
        """Track a partition from where somebody chose, or from what the group has; None: nobody may
        choose.
        """
        stored = None if found is None else found.offset
        void = self._why_left_void(one.id, found) if choice is None else choice.void
        if void is not None:
            start = self.start_anew(one, void, log, stored)
        elif choice is not None:
            start = self.start_where_chosen(one, stored, choice, log, is_new=is_new)
        else:
            start = self._start(one, stored, stored, log, is_new=is_new)
        if start is None or one.tracker is None:
            return None
        one.metadata.found(one.live, found)
        if choice is None or choice.is_resumed:
            was_reset = start.reset is not None
            take_over(
                self._parts,
                one.tracker,
                found,
                log.end,
                was_reset=was_reset,
                is_resumed=choice is not None,
            )
        return start

    def _why_left_void(self, partition: TopicPartition, found: Committed | None) -> str | None:
        """Why a position that the last owner has left says nothing of the topic as it is now, if
        so.
        """
        known = self._parts.history.incarnations
        if (
            found is None
            and known.has_failed(partition)
            and self._settings.commit_strategy != "ignore"
        ):
            # A restart alone chooses nothing.
            return known.why_void(partition.topic, known.last_read(partition))
        if found is None or not found.metadata:
            return None
        topic = decode(found.metadata, found.offset).topic
        return known.why_void(partition.topic, topic or None)

    def start_again(self, one: Partition, old: OffsetTracker, log: LogEnds) -> Start | None:
        """Track a partition anew whose position is not in the log any more; None: nobody may choose
        where.
        """
        # What was known of the records behind it is void.
        if old.kept is not None and old.kept.until > old.position:
            tell_acks_dropped(
                self._parts, old.partition, f"the log goes from {log.start} to {log.end}"
            )
        # Read again where the log still has it.
        unsettled = old.outside_plans(old.safe)
        is_there = log.start <= unsettled <= log.end and self._settings.auto_offset_reset != "none"
        return self._start(one, old.committed, unsettled if is_there else old.position, log)

    def _start(
        self,
        one: Partition,
        stored: int | None,
        wanted: int | None,
        log: LogEnds,
        *,
        is_new: bool = False,
    ) -> Start | None:
        start = self._decide(one, wanted, log, is_new=is_new)
        if start is not None:
            committed = _passed(stored, start.position)
            tracker = OffsetTracker(
                one.id, start.position, committed=committed, commit_start=start.commit
            )
            self._track(one, tracker)
        return start

    def _track(self, one: Partition, tracker: OffsetTracker, *, stored: int | None = None) -> None:
        if one.ranges is not None:
            tracker.limit = one.ranges.until(one.ranges.start)
        self._owned.start(one, tracker, stored=stored)
        one.metadata.topic_id = self._parts.history.incarnations.reads(one.id)

    def why_void(self, one: Partition) -> str | None:
        """Why what is known of a partition, or where a restart goes on, is none of its topic as it
        is now, if so.
        """
        known = self._parts.history.incarnations
        choice = one.choice
        if choice is not None and choice.is_resumed and known.has_failed(one.id):
            # Where it goes on is the group's to say from here on.
            one.chosen = None
            return None
        if choice is not None:
            return (
                known.why_void(one.id.topic, known.last_read(one.id)) if choice.is_resumed else None
            )
        # No broker had told it when reading began.
        if one.metadata.topic_id is None and one.tracker is not None:
            one.metadata.topic_id = known.reads(one.id)
        return known.why_void(one.id.topic, one.metadata.topic_id)

    def start_anew(
        self, one: Partition, why: str, log: LogEnds, was_at: int | None = None
    ) -> Start | None:
        """Track a partition of a topic that was made anew, from its beginning; None: the channel is
        to fail.
        """
        if self._settings.on_recreated_topic == "fail":
            self._parts.history.incarnations.failed(one.id)
            self._fail(recreated_topic(self._settings.name, one.id, why))
            return None
        was_at = was_at if one.tracker is None else one.tracker.position
        position = log.start if one.ranges is None else one.ranges.after(log.start)
        start = Start(position, "earliest", commit=True, fetched_from=min(position, log.end))
        one.sought = one.chosen = one.noted_end = None
        # Committed at once, and back: whoever comes after a crash would read on at a position of
        # the old incarnation.
        self._track(one, OffsetTracker(one.id, start.position, commit_start=True))
        self._tell_reset(one.id, was_at, start, reason=why)
        return start

    def start_where_chosen(
        self,
        one: Partition,
        stored: int | None,
        choice: StartChoice,
        log: LogEnds,
        *,
        is_new: bool = False,
    ) -> Start | None:
        """Track a partition from a start that somebody chose; that alone moves no committed
        position.
        """

        def position() -> int:
            return (
                self._by_policy(one, stored, log, is_new=is_new).position
                if one.live is None
                else one.live.safe
            )

        wanted: int | None
        try:
            wanted = chosen_position(choice.where, log.start, log.end, log.at_time, position)
        except NoPositionError:
            # Which nobody may choose: told as of any start.
            wanted = stored
        start = self._decide(one, wanted, log)
        is_sought = choice is not one.chosen
        # Nothing of that holds for a later client, or a later assignment.
        one.sought = one.chosen = None
        if start is not None:
            # The first commit follows the first record that is settled, back too: the seek alone
            # commits nothing. What the group has is kept beside the tracker, so that a rebalance
            # before that commit does not undo the seek. Ranges move no group back at all: a replay
            # that is given the group of a stream must not rewind the stream.
            goes_back = one.ranges is None
            committed = _passed(stored, start.position) if goes_back else stored
            tracker = OffsetTracker(one.id, start.position, committed=committed)
            tracker.uncommitted_from = start.position
            if not goes_back and stored is not None:
                tracker.uncommitted_from = max(start.position, stored)
            self._track(one, tracker, stored=stored)
            # What lies before the place is no hole.
            if one.ranges is not None and is_sought:
                tracker.limit = one.ranges.until(start.position)
        return start

    def _decide(
        self, one: Partition, wanted: int | None, log: LogEnds, *, is_new: bool = False
    ) -> Start | None:
        try:
            start = self._by_policy(one, wanted, log, is_new=is_new)
        except NoPositionError:
            self._fail(no_position(self._settings.name, one.id, wanted, (log.start, log.end)))
            return None
        self._tell_reset(one.id, wanted, start)
        return start

    def _by_policy(
        self, one: Partition, wanted: int | None, log: LogEnds, *, is_new: bool
    ) -> Start:
        policy = self._settings.auto_offset_reset
        if one.ranges is not None:
            return start_in_ranges(wanted, one.ranges, log.start, log.end, policy)
        return start_position(wanted, log.start, log.end, policy, is_new=is_new)

    def _tell_reset(
        self, partition: TopicPartition, wanted: int | None, start: Start, reason: str | None = None
    ) -> None:
        if start.reset is None:
            return
        self._parts.history.resets[start.reset] += 1
        self._parts.observer.on(
            OffsetReset(
                channel=self._settings.name,
                partition=partition,
                from_offset=wanted,
                to_offset=start.position,
                to=start.reset,
                skipped=start.lost if wanted is not None else None,
                reason=reason,
            )
        )


def _passed(stored: int | None, start: int) -> int | None:
    """What the group has, as long as it has passed none of the records that are read from *start*
    on.
    """
    return stored if stored is not None and stored <= start else None
