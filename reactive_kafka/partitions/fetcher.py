"""How records come in: what each partition may bring, and what becomes of what a poll brought."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from math import inf

from reactive_kafka.broker.client import Chunk, Consumer, Poll
from reactive_kafka.commit.tracker import OffsetTracker
from reactive_kafka.commit.uncommitted import UncommittedBound
from reactive_kafka.delivery.ages import Ages
from reactive_kafka.delivery.lanes.lane import Lane
from reactive_kafka.partitions import budget
from reactive_kafka.partitions.budget import NOTHING, Asked, Pace, Room, Shares, Valves
from reactive_kafka.partitions.delayed import DelayedRecords, is_long
from reactive_kafka.partitions.locate import StartPositions
from reactive_kafka.partitions.partition import Partition
from reactive_kafka.partitions.parts import ClientParts
from reactive_kafka.partitions.read_failures import ReadFailures
from reactive_kafka.partitions.start import from_position, in_ranges, without_done
from reactive_kafka.partitions.starting import tell_acks_dropped
from reactive_kafka.partitions.table import PartitionTable
from reactive_kafka.records import TopicPartition


class Fetcher:
    """The way from the client into the lanes of one channel, under back-pressure.

    A record that is not due is held; when such records fill their partition's room it is paused
    until then.
    """

    def __init__(
        self,
        parts: ClientParts,
        table: PartitionTable,
        starts: StartPositions,
        uncommitted: UncommittedBound,
        delays: Mapping[str, int],
    ) -> None:
        self._parts = parts
        self._settings = parts.settings
        self._table = table
        self._lanes = parts.lanes
        self._workers = parts.workers
        self._clock = parts.clock
        self._valves = Valves()
        self._pace = Pace()
        self._shares = Shares()
        self.room = Room()
        # Those that were read when all room was free, and that poll.
        self._free: tuple[object, Asked] = None, NOTHING
        # The last: room, at the last look at it.
        self._turned_at = -inf
        self._brought = 0
        self._taken = 0
        # Those that may hold records: no others can.
        self._holding: list[Partition] = []
        self._starts = starts
        self._uncommitted = uncommitted
        # Reading may end.
        self._ends = bool(table.ranges)
        self.failures = ReadFailures(parts, table, starts)
        self.delayed = DelayedRecords(parts, table, delays, self._arrived)

    def asks(self, consumer: Consumer) -> Asked:
        """What a poll may bring now; whoever is left out is woken for when there is room."""
        now = self._clock.monotonic()
        if self.looks_later and self.room.is_taken(self._brought):
            # The look before may have left nobody out.
            self._parts.acknowledger.awaited_by.add(self)
            return Asked({}, again_s=max(0.0, self.room.until - now))
        self._uncommitted.look(self._brought, now)
        # Also those that are about to go, or may be retained: what they hold takes room, so they
        # have a share of it.
        partitions = len(self._table)
        room = self._settings.max_in_flight
        stopped = self.stopped(now)
        batch = (
            self._settings.batch_max_records // self._settings.consumers
            if self._workers.takes_batches
            else 0
        )
        takes_turns = budget.take_turns(
            partitions, room, batch=batch, concurrency=self._settings.concurrency
        )
        if takes_turns and not self._workers.works_elsewhere:
            room = budget.window(room, partitions, is_set=self._settings.max_in_flight_is_set)
            # Together they fill a batch.
            asked = self._in_turns(room, partitions, stopped, now, batch // partitions)
        else:
            asked = self._at_once(room, stopped)
        left_out = [one for name in asked.left_out if (one := self._read(name)) is not None]
        # A partition is asked for again when an eighth of its share is free, or nothing waits in
        # its lane. While it is left out its lane has a low-water mark, and the worker that gets
        # there wakes the poll, if it is time to look again. Without the mark the poll would sleep
        # while workers run dry; with a wake for each record it would run all the time.
        for lane in [one.lane for one in left_out if one.lane is not None]:
            low = min(lane.waiting // 2, self._settings.concurrency)
            lane.low_water = lane.waiting if self._workers.takes_batches else low
        awaited_by = self._parts.acknowledger.awaited_by
        (awaited_by.add if left_out else awaited_by.discard)(self)
        if self._workers.takes_batches and self._is_out_of_room(left_out, stopped):
            self._lanes.out_of_room.add(self)
            self._workers.work_is_there()
        else:
            self._lanes.out_of_room.discard(self)
        to_pause, to_resume = self._valves.update(left_out, asked.budgets, stopped, now)
        consumer.pause(to_pause)
        consumer.resume(to_resume)
        return asked

    def _is_out_of_room(self, left_out: Iterable[Partition], stopped: set[TopicPartition]) -> bool:
        """Whether a worker waits in vain for a batch to fill: of a partition that waits nothing
        more may come.
        """
        if not (self._workers.idle or self._workers.works_elsewhere):
            return False
        ready = [lane for lane in self._lanes.takeable_lanes() if lane.waiting]
        if {one.lane for one in left_out if one.id not in stopped}.isdisjoint(ready):
            return False
        # Jobs take long, and small ones cost as much: not while one is running.
        if self._workers.works_elsewhere:
            return (
                sum(lane.waiting for one in self._holding if (lane := one.lane) is not None)
                == self._taken
            )
        return sum(lane.waiting for lane in ready) < self._settings.batch_max_records

    def _at_once(self, room: int, stopped: set[TopicPartition]) -> Asked:
        """Few partitions: each poll may bring something of every one of them."""
        # Also of partitions that are about to go, or may be retained.
        trackers = self._table.all_trackers()
        unstored = dict(self._parts.hook.unstored(lambda: trackers))
        reading = self._table.reading
        is_free = not (stopped or self.holding() or unstored or self._workers.works_elsewhere)
        # As most polls find it where few records come at a time.
        if is_free and self._free[0] is reading:
            return self._free[1]
        held = {tracker.partition: tracker.unsettled for tracker in trackers} | unstored
        self._taken = sum(held.values())
        # Where batches run elsewhere the next one is full before its turn, though that takes the
        # last bit of the room.
        enough = 1 if self._workers.works_elsewhere else max(1, room // (8 * max(1, len(held))))
        wanted: dict[TopicPartition, int] = {}
        allowed = budget.budgets(held, room)
        for one in reading:
            lane = one.lane
            if lane is None or one.id in stopped or is_long(lane):
                continue
            records = allowed.get(one.id, 0)
            if wants := self._workers.wants(
                lane, records if records >= enough or not lane.waiting else 0
            ):
                wanted[one.id] = wants
        self._read_ahead(wanted, held, stopped, room)
        asked = Asked(wanted, None, [partition for partition in held if partition not in wanted])
        self._free = reading if is_free else None, asked
        return asked

    def _in_turns(
        self, room: int, partitions: int, stopped: set[TopicPartition], now: float, least: int
    ) -> Asked:
        """Many partitions: a poll brings pieces of some, and only those that hold something are
        looked at for it.
        """
        held = self._held()
        self._taken = sum(held.values())
        workers = self._settings.concurrency
        is_keyed = self._lanes.is_keyed
        is_shared = self._lanes.shared and not is_keyed
        piece = max(least, self._pace.look(self._brought - self._taken, now, partitions))
        look_s = budget.look_s(len(held))
        is_urgent = now - self._turned_at >= look_s or self._runs_dry(held)
        turn = partial(budget.turn, held, partitions, room, piece=piece, is_urgent=is_urgent)
        if workers == 1 or is_shared or self._workers.takes_batches:
            this = turn(spread=1 if is_shared else workers)
        else:
            alone = self._pace.most_waiting(min(workers // self._settings.consumers, len(held)))
            waiting = {lane.tracker.partition: lane.waiting for lane in self._lanes_of(held)}
            busy = 1 if is_keyed else max(1, workers - self._workers.idle)
            this = turn(waiting=waiting, spread=busy, most_waiting=room if is_keyed else alone)
        if this.most:
            self._turned_at = now
        most = this.most or (self._settings.concurrency if self._is_behind_keys(held) else 0)
        wanted: dict[TopicPartition, int] = self._shares if most else {}
        changed = [partition for partition in stopped if self._read(partition) is not None]
        if most:
            self._shares.reset(self._table.read_names, max(1, this.each))
        left_out = list(changed)
        for partition in left_out:
            wanted.pop(partition, None)
        for partition in held.keys() - stopped:
            if (one := self._read(partition)) is None:
                continue
            changed.append(partition)
            records = this.held.get(partition, 0)
            lane = one.lane
            if records and wanted and lane is not None and not is_long(lane):
                wanted[partition] = records
            else:
                wanted.pop(partition, None)
                left_out.append(partition)
        more = self._read_ahead(wanted, held, stopped, room)
        left_out = (
            [partition for partition in left_out if partition not in wanted] if more else left_out
        )
        if most:
            self._shares.changed(changed)
        # A worker may look for other keys at any moment. Else a verdict wakes the poll where there
        # is no room.
        is_idle = is_urgent and not (is_keyed and self._lanes.ready)
        # Which may wait for a poll to find that no more can come.
        if not self._workers.takes_batches:
            self.room.taken(self._brought + this.most, now + look_s, enough=workers)
        return Asked(wanted, most + more, left_out, None if wanted or is_idle else look_s)

    @property
    def looks_later(self) -> bool:
        """Whether workers have enough to do until room is looked for again."""
        return self.room.is_early(self._lanes.ready, self._clock.monotonic())

    def _runs_dry(self, held: Iterable[TopicPartition]) -> bool:
        """Whether all that came is with workers, and one of them has nothing, or all will soon."""
        # One that is woken wakes the next, so lanes may be ready that somebody is on the way to.
        # Handlers that do not wait are all run by one worker, whatever is ready: that the others
        # are idle says nothing then.
        idle = self._workers.idle
        ready = self._lanes.ready
        if ready and ready >= min(idle, self._settings.concurrency - idle):
            return False
        return bool(idle) or not any(lane.waiting for lane in self._lanes_of(held))

    def _lanes_of(self, partitions: Iterable[TopicPartition]) -> Iterator[Lane]:
        for partition in partitions:
            one = self._read(partition)
            if one is not None and one.lane is not None:
                yield one.lane

    def _read(self, partition: TopicPartition) -> Partition | None:
        """The partition, if it is read."""
        one = self._table.get(partition)
        return one if one is not None and one.is_read else None

    def _held(self) -> Mapping[TopicPartition, int]:
        """Partition -> its records that take room, where there are any."""
        found = {}
        for one in self.holding():
            if one.tracker is not None and (records := one.tracker.unsettled):
                found[one.id] = records
            elif one.tracker is not None:
                # The next time it is not there.
                one.tracker.compact()
        unstored = self._parts.hook.unstored(self._table.all_trackers)
        return found | {partition: records for partition, records in unstored.items() if records}

    def holding(self) -> list[Partition]:
        """Those with a record in their window: none, where nothing comes. The settled ones of
        others were let go of.
        """
        for one in self._holding:
            one.holds = one.tracker is not None and bool(one.tracker.flags)
        self._holding = [one for one in self._holding if one.holds]
        return self._holding

    def _read_ahead(
        self,
        wanted: dict[TopicPartition, int],
        held: Mapping[TopicPartition, int],
        stopped: set[TopicPartition],
        room: int,
    ) -> int:
        """Look for other keys where these are busy; how many records more."""
        if not self._is_behind_keys(held):
            return 0
        records = budget.read_ahead(held, room)
        found = 0
        for partition in held.keys() - wanted.keys() - stopped if records else ():
            for lane in self._lanes_of((partition,)):
                if (
                    lane.waiting
                    and lane.tracker.window < budget.MAX_WINDOW_RECORDS
                    and not self._lanes.is_full(lane)
                ):
                    wanted[partition] = records
                    found += records
        return found

    def _is_behind_keys(self, held: Iterable[TopicPartition]) -> bool:
        """Whether workers have nothing to do, because all that was read waits behind keys that are
        busy.
        """
        if not (self._lanes.is_keyed and self._workers.idle) or self._lanes.ready:
            return False
        return any(lane.waiting for lane in self._lanes_of(held))

    def stopped(self, now: float) -> set[TopicPartition]:
        """Those not to be fetched whatever room there is."""
        if self._uncommitted.is_reached:
            return set(self._table.read_names)
        read_out = {one.id for one in self._table.reading if one.is_read_out} if self._ends else ()
        held_back = (self._parts.held_back(), self._uncommitted.held_back(), read_out)
        return self.failures.held_back(now).union(*held_back)

    def take(self, poll: Poll) -> None:
        """Put what a poll brought into the lanes, and tell who works on them."""
        now = self._clock.monotonic()
        for chunk in poll.chunks:
            one = self._read(chunk.partition)
            if one is None or one.tracker is None or one.lane is None:
                continue
            one.end = chunk.high_watermark
            if one.unreadable is not None and not self.failures.is_over(one):
                continue
            self._deliver(chunk, one, one.tracker, one.lane, now)
        if poll.chunks:
            self._lanes.is_at_end |= self._ends and all(one.is_read_out for one in self._table)
            self._arrived()

    def _arrived(self) -> None:
        self._workers.work_is_there()
        self._parts.arrival.set()

    def _deliver(
        self, chunk: Chunk, one: Partition, tracker: OffsetTracker, lane: Lane, now: float
    ) -> None:
        if one.ranges is not None:
            chunk, go_on_at = in_ranges(chunk, one.ranges, tracker.position)
            if go_on_at is not None and self._starts.consumer is not None:
                self._starts.consumer.start_at({chunk.partition: go_on_at})
        records, offsets = from_position(chunk.records, tracker.position)
        # What an earlier owner knew as done is left out before the tracker sees it: to everything
        # behind here it is a gap of the log. The tracker keeps the map until its position has
        # passed it, because the next map is made of its window and of what was left out.
        if records and (kept := tracker.kept) is not None and offsets[0] < kept.until:
            if chunk.high_watermark < kept.until:
                # the log has been cut off below what was acked: what stands there by now are other
                # records
                tracker.kept = None
                reason = f"they go up to {kept.until}, and the log ends at {chunk.high_watermark}"
                tell_acks_dropped(self._parts, chunk.partition, reason)
            else:
                all_there = len(records)
                records, offsets = without_done(kept, records, offsets)
                self._parts.history.replays_avoided += all_there - len(records)
        if not records:
            tracker.deliver((), chunk.next_offset)
            return
        first = tracker.deliver(offsets, chunk.next_offset)
        # Of offsets, which executors read.
        if not isinstance(records, range):
            tracker.ages = tracker.ages or Ages(self._parts.times, self._clock)
            tracker.ages.came(first, records)
        if not one.holds:
            one.holds = True
            self._holding.append(one)
            self._parts.holds()
        self._brought += len(records)
        self._parts.received(chunk.partition, len(records))
        delay_ms = self.delayed.delays.get(chunk.partition.topic)
        if delay_ms is None:
            self._lanes.add(lane, self._workers.keep(chunk.partition, records), first, now)
        else:
            self.delayed.hold(lane, records, first, now, delay_ms)
