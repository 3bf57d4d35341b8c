"""What a call of a handler that failed becomes: another attempt in place, or nacks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reactive_kafka.delivery.invocation import Invocation
from reactive_kafka.delivery.pool import WorkerPool
from reactive_kafka.delivery.worker import Worker
from reactive_kafka.delivery.workers import WorkerSetup, WorkerSignals
from reactive_kafka.errors import DecodeError
from reactive_kafka.failure.decision import after_attempt
from reactive_kafka.verdicts.delivery import is_open
from reactive_kafka.verdicts.message import Message

STORE_RETRY_S = 0.25
"""How soon a handler is called again whose transaction was not stored; there it waits while the store is away."""


class RetryingPool(WorkerPool):
    """Workers that call a handler with one message, or with the messages of a batch, and again where that fails."""

    def __init__(self, setup: WorkerSetup, invocation: Invocation, channel: WorkerSignals) -> None:
        super().__init__(setup, channel)
        self._invocation = invocation
        self._keeps = setup.settings.on_poison == "dead-letter-queue"
        self._settles_first = invocation.ack in ("pre", "none")

    async def _call_handler(self, worker: Worker, messages: list[Message[Any]]) -> None:
        raise NotImplementedError

    async def _returned(self, worker: Worker, messages: list[Message[Any]]) -> None:
        """The handler has returned from a call with these messages."""
        raise NotImplementedError

    def _not_stored(self, messages: list[Message[Any]]) -> list[Message[Any]]:
        """Of messages that the handler is about to be called with, those that the checkpoint store does not have."""
        return messages

    async def _attempt(self, worker: Worker, messages: list[Message[Any]]) -> BaseException | None:
        """Call the handler; what it raised, or None if that is nothing, or its verdict has been given."""
        # Nothing is called inside of an except block, or Python would make the error of one attempt the context of
        # what the next one raises.
        try:
            await self._call_handler(worker, messages)
            await self._isolation.call_returned(worker)
        except BaseException as error:
            failed = error
        else:
            await self._returned(worker, messages)
            return None
        return await self._raised(worker, failed)

    async def _raised(self, worker: Worker, error: BaseException) -> BaseException | None:
        """A call has raised; None if it was interrupted for poison: its verdict has been given, and is waited for."""
        if not await self._isolation.call_raised(worker, error):
            return error
        if self._invocation.is_blocking:
            self._totals.abandoned += 1  # its thread goes on
        await self._wait_blocked(worker)
        return None

    async def _fail(self, worker: Worker, messages: list[Message[Any]], error: BaseException) -> None:
        """A first call has failed: try again in place as often as the channel says, then nack."""
        attempt, failed = 1, error
        while True:
            if isinstance(failed, SystemExit | KeyboardInterrupt):
                self._leave(messages, failed)
                return
            if self._settles_first:
                for message in messages:
                    message.tracker.settle(message.index)  # not yet, where its bytes could not be decoded
                    self._channel.raised_after_ack(message, failed)
                return
            following = await self._next_attempt(worker, messages, failed, attempt)
            if following is None:
                return
            attempt = following
            messages = self._not_stored([message for message in messages if is_open(message)])
            for message in messages:
                message.attempt = attempt
            worker.messages = messages
            raised = await self._attempt(worker, messages) if messages else None
            if raised is None:
                return
            failed = raised

    def _leave(self, messages: Sequence[Message[Any]], ending: BaseException) -> None:
        """The process is asked to end: the records are the next owner's, and a stop need not wait for them."""
        for message in messages:
            message.tracker.nack(message.index)
        self._channel.exit(ending)

    async def _next_attempt(
        self, worker: Worker, messages: list[Message[Any]], error: BaseException, attempt: int
    ) -> int | None:
        """Wait for the next call, and return its number; None if there is none: all is nacked, settled or put back."""
        still = [message for message in messages if is_open(message)]
        again = self._hook.may_call_again(error)
        if again is None or (again.if_settled and len(still) == len(messages)):
            is_last = not still or (isinstance(error, DecodeError) and not self.takes_batches)
            wait_s = None if is_last else after_attempt(attempt, self._settings.retry)
            if wait_s is None:
                # Where every message has its verdict the error is told of one of them, if that is still ours.
                told = still or [message for message in messages if not message.tracker.is_closed][:1]
                worker.blocked_on += [self._channel.nack(message, error) for message in told]
                return None
            self._channel.will_retry(messages[0], error, attempt, wait_s)
            if not await self._wait_for_attempt(worker, messages, wait_s):
                return None
            self._totals.retries += 1
            return attempt + 1
        # The checkpoint store answers for the error: the handler is called again, and that is no other attempt.
        ageless = () if again.ages else still
        for message in ageless:
            message.tracker.stop_clock((message.index,))
        if not still or not await self._wait_for_attempt(worker, still, STORE_RETRY_S):
            return None
        now = self._clock.monotonic()
        for message in ageless:
            message.tracker.start_clock((message.index,), now)
        return attempt
