"""The workers that run handlers record by record: by partition, by key, or as workers are free."""

from __future__ import annotations

from collections.abc import Awaitable
from contextvars import Context
from math import inf
from typing import Any

from reactive_kafka.delivery.keyed import KeyedLane
from reactive_kafka.delivery.lane import Lane
from reactive_kafka.delivery.pool import STRETCH_S
from reactive_kafka.delivery.shared import SharedRuns, message_of
from reactive_kafka.delivery.workers import Worker
from reactive_kafka.errors import DecodeError
from reactive_kafka.observe.facts import DURATION_BUCKETS_S
from reactive_kafka.verdicts.message import Message


class Dispatcher(SharedRuns):
    """Runs one channel's handler on the records of its lanes."""

    async def _work(self, context: Context) -> None:
        worker = self._new_worker(context)
        worker.stretch_end = self._clock.monotonic() + STRETCH_S
        while not self._goes_on_in_another(worker):
            self._is_waking = False
            lane = self._lanes.take()
            if lane is None:
                if not await self._rest(worker):
                    return
                worker.stretch_end = self._clock.monotonic() + STRETCH_S
                continue
            if self._lanes.ready:
                self.work_is_there()
            self._hold(worker, (lane,))
            try:
                now = await self._run(
                    worker, lane, -inf if self._lanes.is_limited else worker.stretch_end
                )
            finally:
                goes_on = self._turn_away(worker)
            if not goes_on:
                return
            if now >= worker.stretch_end:
                await self._let_others_run(worker)
                worker.stretch_end = self._clock.monotonic() + STRETCH_S

    def _run(self, worker: Worker, lane: Lane, stretch_end: float) -> Awaitable[float]:
        """Run handlers on a lane's records, one at least, until it is empty or the stretch is over;
        the time then.
        """
        # The loop is written three times, for each kind of lane (the others are in shared.py): what
        # the three have in common would cost a call per record, a tenth of what a record costs.
        # While a handler waits the lane may be suspended, so each goes on with the piece that it
        # reads only while that is the lane's own (see Lane.cut).
        if isinstance(lane, KeyedLane):
            if self._acks and lane.begin_alone(worker):
                return self._run_alone(worker, lane, stretch_end, lane)
            return self._run_key(worker, lane, stretch_end)
        if self._lanes.shared or not self._acks:
            return self._run_each(worker, lane, stretch_end)
        return self._run_alone(worker, lane, stretch_end, None)

    async def _run_alone(
        self, worker: Worker, lane: Lane, stretch_end: float, keyed: KeyedLane | None
    ) -> float:
        """The same by a worker that has the lane to itself, where the handler's return is the
        ack.
        """
        # So it notes only where it stands, which the tracker knows as a run: all before ``run_at``
        # are settled, and that one has been open since ``run_since``.
        call = self._isolation.apart(worker, self._call)
        wants_message = self._wants_message
        decode = self._invocation.decode
        refusal = self._invocation.refusal
        decode_record = self._invocation.decode_record
        monotonic = self._clock.monotonic
        tracker = lane.tracker
        task = worker.task
        context = worker.context
        clean = worker.clean
        short_limit = DURATION_BUCKETS_S[0]
        started_at = monotonic()
        count = 0
        long_count = 0
        long_s = 0.0
        now = started_at
        failed = None
        while (
            (now < stretch_end or not count)
            and (keyed is None or keyed.sole is worker)
            and lane.advance()
        ):
            records = lane.records
            cursor = lane.cursor
            before = lane.taken
            tracker.begin_run(before + 1, now)
            worker.piece = records
            worker.first = lane.first
            # A call that begins after now and ends before that was short.
            look_at = min(stretch_end, now + short_limit)
            for index, record in enumerate(records[cursor:] if cursor else records, before + 1):
                lane.taken = index
                tracker.run_at = index
                tracker.run_since = now
                given = None
                try:
                    if decode_record is not None and record.headers:
                        given = decode_record(record)
                    else:
                        given = record.value if decode is None else decode(record.value)
                    if given is None and refusal is not None:
                        raise DecodeError(refusal)
                    if wants_message:
                        message: Message[Any] = Message()
                        message.payload = given
                        message.record = record
                        message.tracker = tracker
                        message.index = index
                        given = message
                    await call(given)
                    try:
                        is_clean = context == clean and not task.cancelling()
                    except BaseException:
                        # The values of context variables are anybody's, and so is how they compare.
                        is_clean = False
                    if not is_clean:
                        look_at = stretch_end = -inf
                        await self._isolation.call_returned(worker)
                except BaseException as error:
                    failed = error
                # Not in the except block: this is not to become the context of a later error.
                if failed is not None:
                    if not worker.is_abandoned:
                        # Not "now": its clock may have stood meanwhile.
                        tracker.end_run(index, tracker.run_since)
                    await self._failed(worker, message_of(given, record, tracker, index), failed)
                    failed = None
                    if worker.is_spent:
                        look_at = stretch_end = -inf
                    if not worker.is_abandoned:
                        tracker.begin_run(index + 1, self._clock.monotonic())
                began = now
                now = monotonic()
                if now >= look_at:
                    if now - began > short_limit:
                        self._totals.durations.observe(now - began)
                        long_count += 1
                        long_s += now - began
                    if now >= stretch_end:
                        break
                    look_at = min(stretch_end, now + short_limit)
                if lane.records is not records:
                    break
            count += index - before
            if worker.is_abandoned:
                break
            tracker.end_run(index + 1)
            if worker.blocked_on:
                await self._wait_blocked(worker)
                now = monotonic()
        self._totals.durations.observe_many_short(count - long_count, now - started_at - long_s)
        return now
