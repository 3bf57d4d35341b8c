"""The workers that run a handler on batches of what waits in the lanes."""

from __future__ import annotations

import asyncio
from typing import Any

from reactive_kafka.delivery.lane import Slice
from reactive_kafka.delivery.records import Dispatcher
from reactive_kafka.delivery.worker import Worker
from reactive_kafka.errors import DecodeError
from reactive_kafka.failure.decision import after_attempt
from reactive_kafka.verdicts.delivery import is_open
from reactive_kafka.verdicts.message import Batch, Message, new_message


class BatchDispatcher(Dispatcher):
    """Runs one channel's handler on batches of what waits in its lanes."""

    takes_batches = True

    def work_is_there(self) -> None:
        """Records were put into the lanes: every worker looks whether a batch is due."""
        for waiter in self._idle:
            if not waiter.done():
                waiter.set_result(True)
        if self._places < self._settings.concurrency:
            self._start_worker()

    async def _work(self, worker: Worker) -> None:
        while not self._goes_on_in_another(worker):
            due = self._lanes.batch_due(self._settings.batch_max_records, self._settings.batch_max_wait_s)
            if due is None or (wait := due - self._clock.monotonic()) > 0:
                if not await self._rest(worker, None if due is None else wait):
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
            await self._let_others_run(worker)

    async def _run_batch(self, worker: Worker, slices: list[Slice]) -> None:
        now = self._clock.monotonic()
        messages: list[Message[Any]] = []
        refused: list[tuple[Message[Any], DecodeError]] = []
        for part in slices:
            tracker = part.lane.tracker
            tracker.start_range(part.first, len(part.records), now)
            if self._invocation.ack in ("pre", "none"):
                tracker.settle_range(part.first, part.first + len(part.records))
                self._host.settled(tracker)
            try:
                self._decode(part, messages, refused)
            except (SystemExit, KeyboardInterrupt) as ending:
                self._leave(slices, ending)
                return
        verdicts = [self._refuse(message, error) for message, error in refused]
        if messages:
            worker.messages = messages
            await self._call_with(worker, messages)
            self._totals.durations.observe(self._clock.monotonic() - now)
        worker.blocked_on += [verdict for verdict in verdicts if verdict is not None]
        await self._wait_blocked(worker)

    def _leave(self, slices: list[Slice], ending: BaseException) -> None:
        """A deserializer asks for the end of the process: the records are the next owner's, as where a handler does."""
        for part in slices:
            for index in range(part.first, part.first + len(part.records)):
                part.lane.tracker.nack(index)
        self._host.exit(ending)

    def _decode(
        self, part: Slice, messages: list[Message[Any]], refused: list[tuple[Message[Any], DecodeError]]
    ) -> None:
        """The messages of a part; a record that cannot be decoded is refused alone."""
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

    def _refuse(self, message: Message[Any], error: BaseException) -> asyncio.Future[bool] | None:
        if self._invocation.ack in ("pre", "none"):
            self._host.raised_after_ack(message, error)
            return None
        return self._host.nack(message, error)

    async def _call_with(self, worker: Worker, messages: list[Message[Any]]) -> None:
        attempt = 1
        while True:
            messages = list(self._hook.before_call(messages))
            if not messages:
                return
            error = await self._error_of(worker, Batch(messages))
            if error is None:
                await self._returned(worker, messages)
                return
            if worker.comes_to_rest():
                await self._was_interrupted(worker)
                return
            again = await self._may_again(worker, messages, error)
            if again is False:
                return
            if again is None:
                if not await self._may_try_again(worker, messages, error, attempt):
                    return
                attempt += 1
                self._totals.retries += 1
            messages = [message for message in messages if is_open(message)]
            for message in messages:
                message.attempt = attempt
            if not messages:
                return
            worker.messages = messages

    async def _error_of(self, worker: Worker, batch: Batch[Any]) -> BaseException | None:
        """Call the handler; what it raised."""
        try:
            await self._apart(worker, self._invocation.call)(batch)
            await self._call_returned(worker)
        except BaseException as error:
            failed = error
        else:
            return None
        await self._call_raised(worker, failed)
        return failed

    async def _may_try_again(
        self, worker: Worker, messages: list[Message[Any]], error: BaseException, attempt: int
    ) -> bool:
        """Wait for the next attempt; False if there is none, and what becomes of the records has been seen to."""
        if isinstance(error, SystemExit | KeyboardInterrupt):
            for message in messages:
                message.tracker.nack(message.index)
            self._host.exit(error)
            return False
        is_settled = self._invocation.ack in ("pre", "none")
        still = messages if is_settled else [one for one in messages if is_open(one)]
        retry = after_attempt(attempt, self._settings.retry) if still and not is_settled else None
        if retry is None:
            verdicts = [self._refuse(message, error) for message in still or self._to_tell_of(messages)]
            worker.blocked_on += [verdict for verdict in verdicts if verdict is not None]
            return False
        self._host.will_retry(messages[0], error, attempt, retry.after_s)
        if await self._waited(worker, retry.after_s):
            return True
        self._give_back(worker, messages)
        return False

    def _to_tell_of(self, messages: list[Message[Any]]) -> list[Message[Any]]:
        """By what an error is told where every message has its verdict: by one of them that is still ours."""
        return [message for message in messages if not message.tracker.is_closed][:1]

    async def _returned(self, worker: Worker, messages: list[Message[Any]]) -> None:
        """The handler is done with the batch."""
        if self._invocation.ack == "post":
            if self._invocation.awaits_commits:
                await self._done(worker, [Batch(messages).ack()])
                return
            for message in messages:
                message.tracker.settle(message.index)
        elif self._keeps and self._invocation.ack == "manual":
            for message in messages:
                if is_open(message):
                    self.returned.add(message)
