"""Decides what becomes of a partition whose log cannot be read."""

from __future__ import annotations

from collections.abc import Callable

from reactive_kafka.assignment.history import AssignmentReports
from reactive_kafka.assignment.position_lookup import PositionLookup
from reactive_kafka.broker.client import Consumer
from reactive_kafka.errors import BrokerError, CorruptRecordError, OffsetOutOfRangeError, text_of
from reactive_kafka.observe.events import ReadFailed
from reactive_kafka.partitions.client_context import ClientContext
from reactive_kafka.partitions.partition import Partition
from reactive_kafka.partitions.readable_search import UNREADY_S, ReadableSearch, UnreadablePlace
from reactive_kafka.records import TopicPartition
from reactive_kafka.tracking.tracker import OffsetTracker


class ReadFailures:
    """Handles the errors of each poll of one client; the other partitions are read meanwhile.

    A partition that cannot be read waits and is tried again, or passes over the place, or fails the
    channel: ``on_unreadable``.

    Args:
        skipped: Called when a position has passed a place that cannot be read.
    """

    def __init__(
        self,
        context: ClientContext,
        starts: PositionLookup,
        reports: AssignmentReports,
        skipped: Callable[[], None],
    ) -> None:
        self._context = context
        self._clock = context.clock
        self._policy = context.settings.on_unreadable
        self._table = starts.table
        self._starts = starts
        self._reports = reports
        self._skipped = skipped
        # The partitions whose log could not be read lately, in the order in which that was found.
        self._found: dict[Partition, None] = {}
        # The partitions for which :meth:`cannot_read` runs, or is about to. They are not fetched.
        self.deciding: set[TopicPartition] = set()

    def held_back(self, now: float) -> set[TopicPartition]:
        """The partitions that are not fetched now."""
        found = set(self.deciding)
        for partition in self._found:
            place = partition.fetch.unreadable
            if place is not None and now < place.again_at and _is_current(partition):
                found.add(partition.id)
        return found

    @property
    def reasons(self) -> list[str]:
        """Why partitions cannot be read, and have not been for a while."""
        self._forget_others()
        due = self._clock.monotonic() - UNREADY_S
        places = [partition.fetch.unreadable for partition in self._found]
        return [place.reason for place in places if place is not None and place.since <= due]

    def is_over(self, partition: Partition) -> bool:
        """Records of it have come: whether they are to be delivered.

        They are not if its log is searched for a place that can be read.
        """
        place = partition.fetch.unreadable
        if place is None or place.search is None or not _is_current(partition):
            partition.fetch.note_unreadable(None)
            return True
        place.search.succeeded()
        self._search(partition, place, place.search)
        return False

    async def cannot_read(
        self, name: TopicPartition, error: BrokerError, tracker: OffsetTracker | None
    ) -> BrokerError | None:
        """Handle a partition that a poll could not read.

        Args:
            tracker: Of the partition when the poll ended.

        Returns:
            The error that fails the channel. None: it goes on.
        """
        partition = self._table.get(name)
        if partition is None or not partition.is_read or partition.tracker is not tracker:
            # It has gone meanwhile, or is about to. Or it was sought, and the error is about the
            # place before that: the position must not be moved behind it.
            return None
        if isinstance(error, CorruptRecordError):
            return await self._corrupt(partition, error)
        had_search = self._end_search(partition)
        if not isinstance(error, OffsetOutOfRangeError):
            self._wait(partition, error, None, UNREADY_S)
        elif not had_search:
            await self._look_up_again(partition, error)
        return None

    def _end_search(self, partition: Partition) -> bool:
        """Read on at the position if the log is searched; returns whether it was.

        The client is at an attempt of the search. Read from there on, records before it would pass
        for a gap of the log.
        """
        place = partition.fetch.unreadable
        consumer = self._starts.consumer
        tracker = partition.tracker
        if place is None or place.search is None or not _is_current(partition):
            return False
        partition.fetch.note_unreadable(None)
        if consumer is not None and tracker is not None:
            _read_from(consumer, partition, tracker.position)
        return True

    async def _look_up_again(self, partition: Partition, error: OffsetOutOfRangeError) -> None:
        try:
            # First, because auto_offset_reset does not apply to a topic that was recreated.
            await self._starts.look_at_topics()
            await self._starts.reset(partition.id, error.offset)
            partition.log.note_end(None)
        except BrokerError as no_answer:
            self._wait(partition, no_answer, error.offset, UNREADY_S)

    async def _corrupt(self, partition: Partition, error: CorruptRecordError) -> BrokerError | None:
        place = partition.fetch.unreadable
        if self._policy != "skip":
            self._wait(partition, error, error.offset, 0.0)
            return error if self._policy == "fail" else None
        if place is not None and place.search is not None and _is_current(partition):
            place.search.failed(error.until)
            self._search(partition, place, place.search)
        elif error.until is not None:
            self._pass_over(partition, error.offset, error.until, error.reason)
        else:
            await self._begin_search(partition, error)
        return None

    def _wait(
        self, partition: Partition, error: BrokerError, offset: int | None, unready_since_s: float
    ) -> None:
        """Leave a partition alone for a while.

        Args:
            unready_since_s: For how long it counts as unreadable already.
        """
        now = self._clock.monotonic()
        place = partition.fetch.unreadable
        if place is None or not _is_current(partition) or place.offset != offset:
            place = UnreadablePlace(offset, "", now - unready_since_s, partition.tracker, now)
            self._note(partition, place)
            if isinstance(error, CorruptRecordError):
                self._reports.unreadable(self._policy, error.offset, error.until)
        elif now < place.again_at:
            # The answer to a request that was on its way already.
            return
        place.again(text_of(error), now)
        if self._policy == "fail" and isinstance(error, CorruptRecordError):
            # The failure of the channel reports it.
            return
        reason = getattr(error, "reason", None) or text_of(error)
        self._context.observer.on(
            ReadFailed(
                channel=self._context.channel,
                partition=partition.id,
                offset=offset,
                reason=reason,
            )
        )

    def _note(self, partition: Partition, place: UnreadablePlace) -> None:
        partition.fetch.note_unreadable(place)
        self._forget_others()
        self._found[partition] = None

    def _forget_others(self) -> None:
        """Forget the partitions that can be read again."""
        self._found = {partition: None for partition in self._found if _is_current(partition)}

    # -- on_unreadable = "skip"

    async def _begin_search(self, partition: Partition, error: CorruptRecordError) -> None:
        """Search for the next place: neither the batch nor the broker says where it is."""
        consumer = self._starts.consumer
        tracker = partition.tracker
        if consumer is None or tracker is None:
            return
        assignment = partition.assignment
        try:
            end = (await consumer.end_offsets([partition.id]))[partition.id]
        except BrokerError:
            self._wait(partition, error, error.offset, 0.0)
            return
        is_read_on = partition.is_read and partition.assignment == assignment
        if not is_read_on or partition.tracker is not tracker:
            # It was sought or taken away meanwhile. A revoked partition that may be retained keeps
            # its tracker, but the client does not have it.
            return
        search = ReadableSearch(error.offset, end)
        now = self._clock.monotonic()
        place = UnreadablePlace(error.offset, error.reason, now, tracker, now, search)
        self._note(partition, place)
        self._search(partition, place, search)

    def _search(self, partition: Partition, place: UnreadablePlace, search: ReadableSearch) -> None:
        if search.until is not None:
            self._pass_over(partition, search.first, search.until, place.reason)
            return
        consumer = self._starts.consumer
        if consumer is not None:
            _read_from(consumer, partition, search.attempt)

    def _pass_over(self, partition: Partition, offset: int, until: int, reason: str) -> None:
        """Move the position behind a place that cannot be read, as behind a gap of the log."""
        consumer = self._starts.consumer
        tracker = partition.tracker
        if consumer is None or tracker is None or tracker.is_closed:
            return
        partition.fetch.note_unreadable(None)
        _read_from(consumer, partition, until)
        tracker.deliver((), until)
        self._reports.unreadable(self._policy, offset, until)
        self._reports.unreadable_skipped(partition.id, offset, until, reason)
        self._skipped()


def _read_from(consumer: Consumer, partition: Partition, offset: int) -> None:
    consumer.start_at({partition.id: offset})
    consumer.wake()


def _is_current(partition: Partition) -> bool:
    """Whether the place still matters: not if the partition was sought elsewhere meanwhile.

    Nor if it has gone: another partition of the same name may be ours by now.
    """
    place = partition.fetch.unreadable
    return place is not None and place.tracker is partition.tracker and partition.is_ours
