"""Decides where one partition starts, and tracks it from there. Awaits nothing."""

from __future__ import annotations

from collections.abc import Callable

from reactive_kafka.assignment.handover import Handover
from reactive_kafka.assignment.history import AssignmentReports
from reactive_kafka.assignment.log_ends import LogEnds
from reactive_kafka.assignment.start_policy import (
    NoPositionError,
    Start,
    no_position,
    recreated_topic,
    start_in_ranges,
    start_position,
)
from reactive_kafka.config.settings import IncomingSettings
from reactive_kafka.partitions.client_partitions import ClientPartitions
from reactive_kafka.partitions.partition import Partition
from reactive_kafka.partitions.start_choice import StartChoice, chosen_position
from reactive_kafka.records import Committed, TopicPartition
from reactive_kafka.tracking.metadata.codec import decode
from reactive_kafka.tracking.tracker import OffsetTracker


class PartitionStarter:
    """Starts the partitions of one client.

    Args:
        fail: Called with the error if the settings allow no position: the channel stops.
        forget_skips: Called with a partition whose topic was recreated, or whose log was cut off:
            the records that an operator had skipped are gone.
    """

    def __init__(
        self,
        settings: IncomingSettings,
        owned: ClientPartitions,
        reports: AssignmentReports,
        handover: Handover,
        fail: Callable[[BaseException], bool],
        forget_skips: Callable[[TopicPartition], None],
    ) -> None:
        self._settings = settings
        self._owned = owned
        self._reports = reports
        self._incarnations = reports.history.incarnations
        self._handover = handover
        self._fail = fail
        self._forget_skips = forget_skips

    # -- starts

    def start_found(
        self,
        partition: Partition,
        found: Committed | None,
        choice: StartChoice | None,
        log: LogEnds,
        *,
        is_new: bool,
    ) -> Start | None:
        """Track a partition from a start that was chosen, or from the position of the group.

        Returns:
            None if the settings allow no start.
        """
        stored = None if found is None else found.offset
        void = self._why_void(partition.id, found) if choice is None else choice.void
        if void is not None:
            start = self.start_recreated(partition, void, log, stored)
        elif choice is not None:
            start = self.start_where_chosen(partition, stored, choice, log, is_new=is_new)
        else:
            start = self._start(partition, stored, stored, log, is_new=is_new)
        if start is None or partition.tracker is None:
            return None
        partition.commits.metadata.found(partition.live, found)
        if choice is None or choice.is_resumed:
            self._handover.take_over(
                partition.tracker,
                found,
                log.end,
                was_reset=start.reset is not None,
                is_resumed=choice is not None,
            )
        return start

    def start_again(self, partition: Partition, old: OffsetTracker, log: LogEnds) -> Start | None:
        """Track a partition again whose position is not in the log any more.

        Returns:
            None if the settings allow no start.
        """
        if log.end < old.position:
            # Other records will have the offsets of those that an operator has skipped.
            self._forget_skips(partition.id)
        # The acks that were kept are of records that are gone.
        if old.kept is not None and old.kept.until > old.position:
            self._reports.acks_dropped(old.partition, f"the log goes from {log.start} to {log.end}")
        # Unsettled records are read again if the log still has them.
        wanted = old.outside_plans(old.safe)
        is_there = log.start <= wanted <= log.end
        if not is_there or self._settings.auto_offset_reset == "none":
            wanted = old.position
        return self._start(partition, old.committed, wanted, log)

    def _start(
        self,
        partition: Partition,
        stored: int | None,
        wanted: int | None,
        log: LogEnds,
        *,
        is_new: bool = False,
    ) -> Start | None:
        start = self._decide(partition, wanted, log, is_new=is_new)
        if start is not None:
            committed = _if_not_behind(stored, start.position)
            tracker = OffsetTracker(
                partition.id, start.position, committed=committed, commit_start=start.commit
            )
            self._track(partition, tracker)
        return start

    def start_where_chosen(
        self,
        partition: Partition,
        stored: int | None,
        choice: StartChoice,
        log: LogEnds,
        *,
        is_new: bool = False,
    ) -> Start | None:
        """Track a partition from a start that was chosen; that alone commits nothing, unless a
        restarted channel cannot continue from its old position.

        Returns:
            None if the settings allow no start.
        """

        def position() -> int:
            if partition.live is not None:
                return partition.live.safe
            return self._by_policy(partition, stored, log, is_new=is_new).position

        wanted: int | None
        try:
            if choice.is_resumed and isinstance(choice.where, int):
                # This is not a seek: a seek to offset 0 means the first record in the log.
                wanted = choice.where
            else:
                wanted = chosen_position(choice.where, log.start, log.end, log.at_time, position)
        except NoPositionError:
            # The choice counts from the position, and there is none that it may count from. Report
            # that as for any start.
            wanted = stored
        start = self._decide(partition, wanted, log)
        is_sought = choice is not partition.start.configured
        # The choice does not hold for a later client, nor for a later assignment.
        partition.start.carried_out()
        if start is None:
            return None
        # The first commit follows the first record that is settled, even if that moves the group
        # back. What the group has is kept with the partition, so that a rebalance before that
        # commit does not undo the seek.
        #
        # Two kinds of start never move a group back. A replay that is given the group of a stream
        # must not rewind the stream. And a restarted channel with static partitions may read
        # again below the group's position, where ``latest`` has committed past a waiting record.

        # Where reading continues is committed if the log does not have the old position any more.
        commits_start = choice.is_resumed and start.commit
        goes_back = partition.ranges is None and (commits_start or not choice.is_resumed)
        committed = _if_not_behind(stored, start.position) if goes_back else stored
        tracker = OffsetTracker(
            partition.id, start.position, committed=committed, commit_start=commits_start
        )
        if not choice.is_resumed:
            tracker.uncommitted_from = start.position
        if not goes_back and stored is not None:
            # What a restarted channel has settled and not stored is worth a commit at once.
            tracker.uncommitted_from = stored
            if partition.ranges is not None:
                tracker.uncommitted_from = max(start.position, stored)
        self._track(partition, tracker, stored=stored)
        # What lies before the place that was sought is no hole between ranges.
        if partition.ranges is not None and is_sought:
            tracker.limit = partition.ranges.until(start.position)
        return start

    def start_recreated(
        self,
        partition: Partition,
        why: str,
        log: LogEnds,
        was_at: int | None = None,
        *,
        is_there: bool = True,
    ) -> Start | None:
        """Track a partition of a recreated topic from its beginning.

        Args:
            is_there: False: the topic does not have this partition any more. Nothing is committed
                before it has.

        Returns:
            None if the channel is to fail instead.
        """
        self._forget_skips(partition.id)
        if self._settings.on_recreated_topic == "fail":
            self._incarnations.failed(partition.id)
            self._fail(recreated_topic(self._settings.name, partition.id, why))
            return None
        if partition.tracker is not None:
            was_at = partition.tracker.position
        position = log.start
        if partition.ranges is not None:
            position = partition.ranges.after(log.start)
        start = Start(position, "earliest", commit=is_there, fetched_from=min(position, log.end))
        partition.start.carried_out()
        partition.log.note_run_end(None)
        # The start is committed at once, even if that moves the group back: after a crash the next
        # owner would continue at a position of the old topic.
        self._track(
            partition, OffsetTracker(partition.id, start.position, commit_start=start.commit)
        )
        self._reports.reset(partition.id, was_at, start, reason=why)
        return start

    def _track(
        self, partition: Partition, tracker: OffsetTracker, *, stored: int | None = None
    ) -> None:
        if partition.ranges is not None:
            tracker.limit = partition.ranges.until(partition.ranges.start)
        self._owned.start(partition, tracker, stored=stored)
        partition.commits.metadata.reads_topic(self._incarnations.reads(partition.id))

    # -- the policy

    def _decide(
        self, partition: Partition, wanted: int | None, log: LogEnds, *, is_new: bool = False
    ) -> Start | None:
        try:
            start = self._by_policy(partition, wanted, log, is_new=is_new)
        except NoPositionError:
            ends = (log.start, log.end)
            self._fail(no_position(self._settings.name, partition.id, wanted, ends))
            return None
        self._reports.reset(partition.id, wanted, start)
        return start

    def _by_policy(
        self, partition: Partition, wanted: int | None, log: LogEnds, *, is_new: bool
    ) -> Start:
        policy = self._settings.auto_offset_reset
        if partition.ranges is not None:
            return start_in_ranges(wanted, partition.ranges, log.start, log.end, policy)
        return start_position(wanted, log.start, log.end, policy, is_new=is_new)

    # -- recreated topics

    def _why_void(self, name: TopicPartition, found: Committed | None) -> str | None:
        """Why the position of the group does not apply: its topic was recreated. None: it does."""
        known = self._incarnations
        if found is None:
            if known.has_failed(name) and self._settings.commit_strategy != "ignore":
                # The channel has failed for this. A restart alone chooses nothing.
                return known.why_void(name.topic, known.last_read(name))
            return None
        if not found.metadata:
            return None
        topic = decode(found.metadata, found.offset).topic
        return known.why_void(name.topic, topic or None)

    def why_void(self, partition: Partition) -> str | None:
        """Why the state of a partition does not apply: its topic was recreated. None: it does."""
        known = self._incarnations
        name = partition.id
        choice = partition.start.choice
        if choice is not None:
            if not choice.is_resumed:
                return None
            if known.has_failed(name):
                # The channel has failed for this, and was restarted: from here on the group says
                # where it continues.
                partition.start.forget_configured()
                return None
            return known.why_void(name.topic, known.last_read(name))
        metadata = partition.commits.metadata
        if metadata.topic_id is None and partition.tracker is not None:
            # No broker had told the id when reading began.
            metadata.reads_topic(known.reads(name))
        return known.why_void(name.topic, metadata.topic_id)


def _if_not_behind(stored: int | None, start: int) -> int | None:
    """The group's position, unless it lies behind records that are read from *start* on."""
    return stored if stored is not None and stored <= start else None
