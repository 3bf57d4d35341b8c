"""What becomes of a partition whose log cannot be read: it waits, passes over the place, or the
channel fails.
"""

from __future__ import annotations

from reactive_kafka.assignment.client_parts import ClientParts
from reactive_kafka.assignment.position_lookup import PositionLookup
from reactive_kafka.broker.client import Consumer
from reactive_kafka.errors import BrokerError, CorruptRecordError, OffsetOutOfRangeError, text_of
from reactive_kafka.observe.events import ReadFailed, UnreadableSkipped
from reactive_kafka.partitions.partition import Partition
from reactive_kafka.partitions.readable_search import UNREADY_S, ReadableSearch, UnreadablePlace
from reactive_kafka.partitions.table import PartitionTable
from reactive_kafka.records import TopicPartition


class ReadFailures:
    """Hears of each poll's errors, of one client; the other partitions go on whatever it
    decides.
    """

    def __init__(self, parts: ClientParts, table: PartitionTable, starts: PositionLookup) -> None:
        self._parts = parts
        self._policy = parts.settings.on_unreadable
        self._table = table
        self._starts = starts
        self._clock = parts.clock
        # Those of which the log could not be read lately.
        self._found: dict[Partition, None] = {}

    def held_back(self, now: float) -> set[TopicPartition]:
        """Those that are not fetched now."""
        return {
            one.id
            for one in self._found
            if (what := one.unreadable) is not None and now < what.again_at
        }

    @property
    def reasons(self) -> list[str]:
        """Why partitions cannot be read, and have not been for a while."""
        self._forget_others()
        due = self._clock.monotonic() - UNREADY_S
        unready = [one.unreadable for one in self._found if one.is_ours]
        return [what.reason for what in unready if what is not None and what.since <= due]

    def is_over(self, one: Partition) -> bool:
        """Records of it have come: whether they are to be delivered. Where its log is searched they
        are none.
        """
        what = one.unreadable
        if what is None or what.search is None or not _is_valid(one):
            one.unreadable = None
            return True
        what.search.succeeded()
        self._search(one, what, what.search)
        return False

    async def cannot_read(
        self, partition: TopicPartition, error: BrokerError
    ) -> BrokerError | None:
        """A poll could not read a partition. Returns what is to fail the channel, if anything
        is.
        """
        one = self._table.get(partition)
        if isinstance(error, OffsetOutOfRangeError):
            try:
                # A topic made anew is none of auto_offset_reset's.
                await self._starts.look_at_topics()
                await self._starts.reset(partition, error.offset)
                if one is not None:
                    one.end = None
                return None
            except BrokerError as again:
                if one is not None:
                    self._wait(one, again, error.offset, UNREADY_S)
        elif one is not None and isinstance(error, CorruptRecordError):
            return await self._corrupt(one, error)
        elif one is not None:
            self._wait(one, error, None, UNREADY_S)
        return None

    async def _corrupt(self, one: Partition, error: CorruptRecordError) -> BrokerError | None:
        what = one.unreadable
        if self._policy != "skip":
            self._wait(one, error, error.offset, 0.0)
            return error if self._policy == "fail" else None
        if what is not None and what.search is not None and _is_valid(one):
            what.search.failed(error.until)
            self._search(one, what, what.search)
        elif error.until is not None:
            self._pass_over(one, error.offset, error.until, error.reason)
        else:
            await self._begin_search(one, error)
        return None

    def _wait(
        self, one: Partition, error: BrokerError, offset: int | None, unready_since_s: float
    ) -> None:
        now = self._clock.monotonic()
        what = one.unreadable
        if what is None or not _is_valid(one) or what.offset != offset:
            what = one.unreadable = UnreadablePlace(
                offset, "", now - unready_since_s, one.tracker, now
            )
            self._note(one)
            if isinstance(error, CorruptRecordError):
                self._count(error.offset, error.until)
        elif now < what.again_at:
            # The answer to a request that was on its way already.
            return
        what.again(text_of(error), now)
        if self._policy == "fail" and isinstance(error, CorruptRecordError):
            # The channel's failure tells it.
            return
        channel = self._parts.settings.name
        reason = getattr(error, "reason", None) or text_of(error)
        self._parts.observer.on(
            ReadFailed(channel=channel, partition=one.id, offset=offset, reason=reason)
        )

    def _note(self, one: Partition) -> None:
        """The log of a partition cannot be read; those that can be read again are forgotten."""
        self._forget_others()
        self._found[one] = None

    def _forget_others(self) -> None:
        self._found = {one: None for one in self._found if _is_valid(one)}

    async def _begin_search(self, one: Partition, error: CorruptRecordError) -> None:
        """Neither the batch nor the broker says where the next one begins."""
        consumer = self._starts.consumer
        tracker = one.tracker
        if consumer is None or tracker is None:
            return
        try:
            end = (await consumer.end_offsets([one.id]))[one.id]
        except BrokerError:
            self._wait(one, error, error.offset, 0.0)
            return
        if one.tracker is tracker and not tracker.is_closed:
            search = ReadableSearch(error.offset, end)
            now = self._clock.monotonic()
            one.unreadable = UnreadablePlace(error.offset, error.reason, now, tracker, now, search)
            self._note(one)
            self._search(one, one.unreadable, search)

    def _search(self, one: Partition, what: UnreadablePlace, search: ReadableSearch) -> None:
        if search.until is not None:
            self._pass_over(one, search.first, search.until, what.reason)
        elif (consumer := self._starts.consumer) is not None:
            _go_on(consumer, one, search.attempt)

    def _pass_over(self, one: Partition, offset: int, until: int, reason: str) -> None:
        """What cannot be read is a gap of the log to everybody behind here: the position passes
        it.
        """
        consumer = self._starts.consumer
        tracker = one.tracker
        if consumer is None or tracker is None or tracker.is_closed:
            return
        one.unreadable = None
        _go_on(consumer, one, until)
        tracker.deliver((), until)
        self._count(offset, until)
        channel = self._parts.settings.name
        told = UnreadableSkipped(
            channel=channel, partition=one.id, offset=offset, until=until, reason=reason
        )
        self._parts.observer.on(told)
        self._parts.arrival.set()

    def _count(self, offset: int, until: int | None) -> None:
        counts = self._parts.history.unreadable
        counts[self._policy] = counts.get(self._policy, 0) + (until or offset + 1) - offset


def _go_on(consumer: Consumer, one: Partition, offset: int) -> None:
    consumer.start_at({one.id: offset})
    consumer.wake()


def _is_valid(one: Partition) -> bool:
    """Whether what was found still stands: not if the partition was sought to another place
    meanwhile.
    """
    return one.unreadable is not None and one.unreadable.tracker is one.tracker
