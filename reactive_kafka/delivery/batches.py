"""The workers that run a handler on batches of the queued records."""

from __future__ import annotations

from typing import Any

from reactive_kafka.delivery.attempts import RetryingPool
from reactive_kafka.delivery.lane import Slice
from reactive_kafka.delivery.worker import Worker
from reactive_kafka.errors import DecodeError
from reactive_kafka.verdicts.delivery import is_open
from reactive_kafka.verdicts.message import Batch, Message, new_message


class BatchDispatcher(RetryingPool):
    """Runs one channel's handler on batches of records from its lanes."""

    takes_batches = True

    def work_is_there(self) -> None:
        """Records were put into the lanes: every worker looks whether a batch is due."""
        self._places.wake_all()

    async def _work(self, worker: Worker) -> None:
        while not self._goes_on_in_another(worker):
            due = self._lanes.batch_due(self._settings.batch_max_records, self._settings.batch_max_wait_s)
            if due is None or (wait := due - self._clock.monotonic()) > 0:
                if not await self._places.rest(worker, None if due is None else wait):
                    return
                continue
            slices = self._lanes.take_batch(self._settings.batch_max_records)
            self._hold(worker, tuple({id(part.lane): part.lane for part in slices}.values()))
            try:
                await self._run_batch(worker, slices)
            finally:
                goes_on = self._turn_away(worker)
            if not goes_on:
                return
            self.work_is_there()
            await self._isolation.let_others_run(worker)

    async def _run_batch(self, worker: Worker, slices: list[Slice]) -> None:
        now = self._clock.monotonic()
        messages: list[Message[Any]] = []
        refused: list[tuple[Message[Any], DecodeError]] = []
        for part in slices:
            tracker = part.lane.tracker
            tracker.start_range(part.first, len(part.records), now)
            if self._settles_first:
                tracker.settle_range(part.first, part.first + len(part.records))
                self._channel.settled(tracker)
            try:
                self._decode(part, messages, refused)
            except (SystemExit, KeyboardInterrupt) as ending:
                self._leave_all(slices, ending)
                return
        for message, error in refused:
            if self._settles_first:
                self._channel.raised_after_ack(message, error)
            else:
                worker.blocked_on.append(self._channel.nack(message, error))
        if messages:
            worker.messages = messages
            messages = self._not_stored(messages)
            failed = await self._attempt(worker, messages) if messages else None
            if failed is not None:
                await self._fail(worker, messages, failed)
            self._totals.durations.observe(self._clock.monotonic() - now)
        await self._wait_blocked(worker)

    def _leave_all(self, slices: list[Slice], ending: BaseException) -> None:
        """A deserializer asks the process to end: leave the records to the next owner, as when a handler does."""
        for part in slices:
            for index in range(part.first, part.first + len(part.records)):
                part.lane.tracker.nack(index)
        self._channel.exit(ending)

    def _decode(
        self, part: Slice, messages: list[Message[Any]], refused: list[tuple[Message[Any], DecodeError]]
    ) -> None:
        """Add the messages of a slice; a record that cannot be decoded is refused alone."""
        decode, refusal, tracker = self._invocation.decode, self._invocation.refusal, part.lane.tracker
        decodes_keys = self._invocation.decodes_keys
        for index, record in enumerate(part.records, part.first):
            try:
                payload = record.value if decode is None else decode(record.value)
                if payload is None and refusal is not None:
                    raise DecodeError(refusal)
                message = new_message(payload, record, tracker, index)
                if decodes_keys:
                    _ = message.key  # kept by the message
            except DecodeError as error:
                refused.append((new_message(None, record, tracker, index), error))
                continue
            messages.append(message)

    def _not_stored(self, messages: list[Message[Any]]) -> list[Message[Any]]:
        return list(self._hook.before_call(messages)) if messages else messages

    async def _call_handler(self, worker: Worker, messages: list[Message[Any]]) -> None:
        await self._isolation.apart(worker, self._invocation.call)(Batch(messages))

    async def _returned(self, worker: Worker, messages: list[Message[Any]]) -> None:
        if self._invocation.ack == "post":
            if self._invocation.awaits_commits:
                await self._isolation.done(worker, [Batch(messages).ack()])
                return
            for message in messages:
                message.tracker.settle(message.index)
        elif self._keeps and self._invocation.ack == "manual":
            for message in messages:
                if is_open(message):
                    self.returned.add(message)
