"""Decides before each poll what it may bring of each partition: the back-pressure of a client."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from math import inf
from typing import NamedTuple

from reactive_kafka.broker.client import Consumer
from reactive_kafka.delivery.lanes.lane import Lane
from reactive_kafka.delivery.lanes.queue import LaneQueue
from reactive_kafka.delivery.workers.interface import ChannelWorkers
from reactive_kafka.fetching import budget
from reactive_kafka.fetching.budget import EMPTY_POLL, Pace, PollRequest, Room, Shares, Turn
from reactive_kafka.fetching.byte_budget import byte_room, rest_of_plan
from reactive_kafka.fetching.delayed_records import awaits_plans
from reactive_kafka.fetching.fetch_pauses import FetchPauses
from reactive_kafka.fetching.intake import RecordIntake
from reactive_kafka.fetching.stops import FetchStops
from reactive_kafka.partitions.client_context import ClientContext
from reactive_kafka.partitions.partition import Partition
from reactive_kafka.partitions.table import PartitionTable
from reactive_kafka.records import TopicPartition
from reactive_kafka.verdicts.acknowledger import Acknowledger
from reactive_kafka.verdicts.delivery_hook import DeliveryHook


class _Pieces(NamedTuple):
    """What each of many partitions may bring in its turn."""

    # partition -> most records of it.
    wanted: dict[TopicPartition, int]
    left_out: list[TopicPartition]
    # The partitions that do not have the number of records that most have.
    changed: list[TopicPartition]


class Fetcher:
    """Divides the room of one client among its partitions.

    A record that is not due takes room; when such records fill their partition's room, the
    partition is paused until then.

    Args:
        acknowledger: Wakes the poll when there is room for partitions that were left out.
        hook: Knows which settled records take room all the same, because they are not stored.
    """

    def __init__(
        self,
        context: ClientContext,
        table: PartitionTable,
        lanes: LaneQueue,
        workers: ChannelWorkers,
        acknowledger: Acknowledger,
        stops: FetchStops,
        intake: RecordIntake,
        hook: DeliveryHook,
    ) -> None:
        self._settings = context.settings
        self._clock = context.clock
        self._table = table
        self._lanes = lanes
        self._workers = workers
        self._awaited_by = acknowledger.awaited_by
        self.stops = stops
        self.intake = intake
        self._hook = hook
        self._pauses = FetchPauses()
        self._pace = Pace()
        self._shares = Shares()
        self.room = Room()
        # The partitions that were read when all room was free, and what a poll may bring then. With
        # nothing held and nothing stopped that depends on which partitions are read, and on nothing
        # else: it holds as long as the table's list of these is the same object.
        self._all_free: tuple[object, PollRequest] = (None, EMPTY_POLL)
        # When a turn was given last.
        self._turned_at = -inf
        # Records that took room at the last look.
        self._taken = 0

    def plan_poll(self, consumer: Consumer) -> PollRequest:
        """Return what a poll may bring now.

        The poll is woken when there is room for the partitions that were left out.
        """
        now = self._clock.monotonic()
        brought = self.intake.brought
        if self.looks_later and self.room.is_taken(brought):
            # The look before may have left nothing out, so that nothing would wake the poll.
            self._awaited_by.add(self)
            return PollRequest({}, again_s=max(0.0, self.room.until - now))
        self.stops.uncommitted.look(brought, now)
        stopped = self.stops.now(now)
        request = self._divide(stopped, now)
        if self._settings.max_in_flight_bytes is not None:
            request = self._within_bytes(request, self._settings.max_in_flight_bytes)
        left_out = [
            partition for name in request.left_out if (partition := self._read(name)) is not None
        ]
        self._wake_when_there_is_room(left_out, stopped)
        to_pause, to_resume = self._pauses.update(left_out, request.budgets, stopped, now)
        consumer.pause(to_pause)
        consumer.resume(to_resume)
        return request

    def _divide(self, stopped: set[TopicPartition], now: float) -> PollRequest:
        settings = self._settings
        # Partitions that are about to go, or may be retained, count too: what they hold takes room,
        # so they have a share of it.
        partitions = len(self._table)
        room = settings.max_in_flight
        batch = 0
        if self._workers.takes_batches:
            batch = settings.batch_max_records // settings.consumers
        takes_turns = budget.take_turns(
            partitions, room, batch=batch, concurrency=settings.concurrency
        )
        if not takes_turns or self._workers.works_elsewhere:
            return self._at_once(room, stopped)
        room = budget.window(room, partitions, is_set=settings.max_in_flight_is_set)
        # Together their pieces fill a batch.
        return self._in_turns(room, partitions, stopped, now, batch // partitions)

    def _within_bytes(self, request: PollRequest, most: int) -> PollRequest:
        """Leave out the partitions that have no room for more bytes, but for planned ranges."""
        held = {
            tracker.partition: tracker.unsettled_bytes() for tracker in self._table.all_trackers()
        }
        room = byte_room(held, most)
        budgets: dict[TopicPartition, int] = {}
        left_out = list(request.left_out)
        for name, records in request.budgets.items():
            if room.left(name) > 0:
                budgets[name] = records
                continue
            partition = self._read(name)
            rest = 0
            if partition is not None and partition.lane is not None:
                rest = rest_of_plan(partition.lane)
            if rest:
                budgets[name] = min(records, rest)
                room.lift(name)
            else:
                left_out.append(name)
        return request._replace(budgets=budgets, left_out=left_out, byte_room=room)

    def _wake_when_there_is_room(
        self, left_out: list[Partition], stopped: set[TopicPartition]
    ) -> None:
        # A partition is asked for again when an eighth of its share is free, or nothing waits in
        # its lane. While it is left out its lane has a low-water mark, and the worker that gets
        # there wakes the poll, if it is time to look again. Without the mark the poll would sleep
        # while workers run dry; with a wake for each record it would run all the time.
        takes_batches = self._workers.takes_batches
        for partition in left_out:
            lane = partition.lane
            if lane is not None and takes_batches:
                lane.low_water = lane.waiting
            elif lane is not None:
                lane.low_water = min(lane.waiting // 2, self._settings.concurrency)
        if left_out:
            self._awaited_by.add(self)
        else:
            self._awaited_by.discard(self)
        if takes_batches and self._waits_in_vain(left_out, stopped):
            self._lanes.out_of_room.add(self)
            self._workers.work_is_there()
        else:
            self._lanes.out_of_room.discard(self)

    def _waits_in_vain(self, left_out: Iterable[Partition], stopped: set[TopicPartition]) -> bool:
        """Whether a worker waits for a batch to fill of which nothing more may come."""
        workers = self._workers
        if not (workers.idle or workers.works_elsewhere):
            return False
        ready = [lane for lane in self._lanes.takeable_lanes() if lane.waiting]
        out_of_room = {partition.lane for partition in left_out if partition.id not in stopped}
        if out_of_room.isdisjoint(ready):
            return False
        if workers.works_elsewhere:
            # Jobs take long, and small ones cost as much: not while one is running.
            waiting = sum(
                partition.lane.waiting
                for partition in self.intake.holding()
                if partition.lane is not None
            )
            return waiting == self._taken
        return sum(lane.waiting for lane in ready) < self._settings.batch_max_records

    # -- few partitions

    def _at_once(self, room: int, stopped: set[TopicPartition]) -> PollRequest:
        """Few partitions: each poll may bring something of every one of them."""
        # Also of partitions that are about to go, or may be retained.
        trackers = self._table.all_trackers()
        unstored = dict(self._hook.unstored(lambda: trackers))
        reading = self._table.reading
        works_elsewhere = self._workers.works_elsewhere
        is_free = not (stopped or self.intake.holding() or unstored or works_elsewhere)
        # Most polls find it so where few records come at a time.
        if is_free and self._all_free[0] is reading:
            return self._all_free[1]
        held = {tracker.partition: tracker.unsettled for tracker in trackers} | unstored
        self._taken = sum(held.values())
        # Where batches run elsewhere the next one is full before its turn, even if that takes the
        # last bit of the room.
        enough = 1 if works_elsewhere else max(1, room // (8 * max(1, len(held))))
        wanted: dict[TopicPartition, int] = {}
        allowed = budget.budgets(held, room)
        for partition in reading:
            lane = partition.lane
            if lane is None or partition.id in stopped or is_long(lane):
                continue
            records = allowed.get(partition.id, 0)
            if records < enough and lane.waiting:
                # Too few to ask for, while something waits.
                records = 0
            wants = self._workers.wants(lane, records)
            if wants:
                wanted[partition.id] = wants
        self._read_ahead(wanted, held, stopped, room)
        left_out = [name for name in held if name not in wanted]
        request = PollRequest(wanted, None, left_out)
        self._all_free = (reading if is_free else None, request)
        return request

    # -- many partitions

    def _in_turns(
        self, room: int, partitions: int, stopped: set[TopicPartition], now: float, least: int
    ) -> PollRequest:
        """Return what a poll may bring if there are many partitions: a piece of some of them.

        A look at every partition would cost more than the records. So only those that hold records
        are looked at; all others may bring a piece.

        Args:
            partitions: How many partitions share the room.
            least: The fewest records of a piece.
        """
        held = self._held()
        self._taken = sum(held.values())
        piece = max(least, self._pace.look(self.intake.brought - self._taken, now, partitions))
        look_s = budget.look_s(len(held))
        # Otherwise nothing is asked for until a good part of the room is free.
        is_urgent = now - self._turned_at >= look_s or self._runs_dry(held)
        turn = self._turn(held, partitions, room, piece, is_urgent=is_urgent)
        if turn.most:
            self._turned_at = now
        self._note_room(turn, now + look_s)

        most = turn.most
        if not most and self._is_behind_keys(held):
            # No room is left, and all that takes it waits for keys that are busy. One record for
            # each worker may come from the partitions that hold nothing, because it may have
            # another key.
            most = self._settings.concurrency
        pieces = self._pieces(turn, held, stopped, has_room=most > 0)
        ahead = self._read_ahead(pieces.wanted, held, stopped, room)
        if most:
            self._shares.changed(pieces.changed)
        left_out = [name for name in pieces.left_out if not ahead or name not in pieces.wanted]
        is_woken = bool(pieces.wanted) or self._waits_for_verdict(is_urgent=is_urgent)
        again_s = None if is_woken else look_s
        return PollRequest(pieces.wanted, most + ahead, left_out, again_s)

    def _note_room(self, turn: Turn, look_at: float) -> None:
        """Note that there is no room after this turn, so that no poll looks before *look_at*."""
        if self._workers.takes_batches:
            # These workers may wait for a poll to find that no more can come.
            return
        brought = self.intake.brought + turn.most
        self.room.taken(brought, look_at, enough=self._settings.concurrency)

    def _waits_for_verdict(self, *, is_urgent: bool) -> bool:
        """Whether only a verdict can make room, if nothing may be fetched now.

        A verdict wakes the poll, so no timer is needed. But if keys wait, a worker may find one at
        any moment, which wakes no poll.
        """
        return is_urgent and not (self._lanes.is_keyed and self._lanes.ready)

    def _turn(
        self,
        held: Mapping[TopicPartition, int],
        partitions: int,
        room: int,
        piece: int,
        *,
        is_urgent: bool,
    ) -> Turn:
        workers = self._settings.concurrency
        is_keyed = self._lanes.is_keyed
        is_shared = self._lanes.shared and not is_keyed
        turn = partial(budget.turn, held, partitions, room, piece=piece, is_urgent=is_urgent)
        if workers == 1 or is_shared or self._workers.takes_batches:
            return turn(spread=1 if is_shared else workers)
        waiting = {lane.tracker.partition: lane.waiting for lane in self._lanes_of(held)}
        in_own_partitions = min(workers // self._settings.consumers, len(held))
        most_waiting = self._pace.most_waiting(in_own_partitions)
        busy = max(1, workers - self._workers.idle)
        if is_keyed:
            busy = 1
            most_waiting = room
        return turn(waiting=waiting, spread=busy, most_waiting=most_waiting)

    def _pieces(
        self,
        turn: Turn,
        held: Mapping[TopicPartition, int],
        stopped: set[TopicPartition],
        *,
        has_room: bool,
    ) -> _Pieces:
        """Return what each partition may bring in its turn."""
        wanted: dict[TopicPartition, int] = {}
        if has_room:
            self._shares.reset(self._table.read_names, max(1, turn.each))
            wanted = self._shares
        changed = [name for name in stopped if self._read(name) is not None]
        left_out = list(changed)
        for name in left_out:
            wanted.pop(name, None)
        for name in held.keys() - stopped:
            partition = self._read(name)
            if partition is None:
                continue
            changed.append(name)
            records = turn.held.get(name, 0)
            lane = partition.lane
            if records and wanted and lane is not None and not is_long(lane):
                wanted[name] = records
            else:
                wanted.pop(name, None)
                left_out.append(name)
        return _Pieces(wanted, left_out, changed)

    @property
    def looks_later(self) -> bool:
        """Whether workers have enough to do until room is looked for again."""
        return self.room.is_early(self._lanes.ready, self._clock.monotonic())

    def _runs_dry(self, held: Iterable[TopicPartition]) -> bool:
        """Whether a worker has nothing to do, or all of them will have nothing soon."""
        # A worker that is woken wakes the next one, so a worker may be on its way to a lane that
        # is ready. Handlers that do not wait are all run by one worker, however many lanes are
        # ready: that the others are idle says nothing then.
        idle = self._workers.idle
        ready = self._lanes.ready
        if ready and ready >= min(idle, self._settings.concurrency - idle):
            return False
        return bool(idle) or not any(lane.waiting for lane in self._lanes_of(held))

    def _lanes_of(self, names: Iterable[TopicPartition]) -> Iterator[Lane]:
        for name in names:
            partition = self._read(name)
            if partition is not None and partition.lane is not None:
                yield partition.lane

    def _read(self, name: TopicPartition) -> Partition | None:
        """The partition, if it is read."""
        partition = self._table.get(name)
        return partition if partition is not None and partition.is_read else None

    def _held(self) -> Mapping[TopicPartition, int]:
        """Return partition -> its records that take room, where there are any.

        The windows of trackers without any are emptied, so that the intake need not look at them
        again.
        """
        found = {}
        for partition in self.intake.holding():
            tracker = partition.tracker
            if tracker is None:
                continue
            records = tracker.unsettled
            if records:
                found[partition.id] = records
            else:
                tracker.compact()
        # While a store is away, it counts the unsettled records and those that are not stored: its
        # numbers replace the others.
        unstored = self._hook.unstored(self._table.all_trackers)
        return found | {name: records for name, records in unstored.items() if records}

    # -- keys that are busy

    def _read_ahead(
        self,
        wanted: dict[TopicPartition, int],
        held: Mapping[TopicPartition, int],
        stopped: set[TopicPartition],
        room: int,
    ) -> int:
        """Ask for more records in search of keys that are not busy; returns how many."""
        if not self._is_behind_keys(held):
            return 0
        records = budget.read_ahead(held, room)
        if not records:
            return 0
        found = 0
        for name in held.keys() - wanted.keys() - stopped:
            for lane in self._lanes_of((name,)):
                is_short = lane.tracker.window < budget.MAX_WINDOW_RECORDS
                if lane.waiting and is_short and not self._lanes.is_full(lane):
                    wanted[name] = records
                    found += records
        return found

    def _is_behind_keys(self, held: Iterable[TopicPartition]) -> bool:
        """Whether workers have nothing to do because all that was read waits behind busy keys."""
        if not (self._lanes.is_keyed and self._workers.idle) or self._lanes.ready:
            return False
        return any(lane.waiting for lane in self._lanes_of(held))


def is_long(lane: Lane) -> bool:
    """Whether a partition waits for its oldest record. A planned range is read to its end first."""
    return lane.tracker.window >= budget.MAX_WINDOW_RECORDS and not awaits_plans(lane)
