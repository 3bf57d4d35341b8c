"""How a handler is called, what is done around the call, and what keeps its traces from the
handlers after it.

Workers call handlers inline, in their own task and context. What a handler does to either would
reach the handlers after it, so once a handler has done something to them its channel calls it in a
context or in a task of its own.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextvars import Context
from dataclasses import dataclass
from types import CoroutineType, coroutine
from typing import Any, Protocol

from reactive_kafka.config.settings import AckMode
from reactive_kafka.delivery.returned import ReturnedUnsettled
from reactive_kafka.delivery.workers import Worker
from reactive_kafka.errors import DecodeError, describe
from reactive_kafka.records import RawRecord
from reactive_kafka.tracking.tracker import OffsetTracker
from reactive_kafka.verdicts.batch import Batch
from reactive_kafka.verdicts.delivery import is_open
from reactive_kafka.verdicts.delivery_hook import Call, DeliveryHook
from reactive_kafka.verdicts.message import Message


class Sends(Protocol):
    """Sends what a handler has made."""

    @property
    def is_quick(self) -> bool:
        """Whether most of what it sends takes no wait."""

    def at_once(self, result: Any, record: RawRecord, tracker: OffsetTracker, index: int) -> bool:
        """Send what was made of a record where that takes no wait, and settle the record later.

        False: nothing was done. Raises as :meth:`answer`.
        """

    async def answer(self, result: Any, message: Message[Any]) -> None:
        """Send it, and settle the message. Raises why something cannot be sent."""

    async def answer_batch(self, result: Any, batch: Batch[Any]) -> None:
        """Send it; the call settles what is still open then. Raises as :meth:`answer`."""

    async def write(self, result: Any, source: RawRecord | None = None) -> None:
        """Send what was made of a record, and settle nothing; returns when it is written. Raises as
        :meth:`answer`.
        """


@dataclass(frozen=True, slots=True)
class Invocation:
    """How a handler is called."""

    # Takes the payload, the message or the batch; a blocking handler is already wrapped.
    call: Call
    # Value bytes to payload, raising DecodeError; None: bytes as they are.
    decode: Callable[[bytes | None], Any] | None
    # The handler takes a Message; else it takes the payload.
    wants_message: bool
    ack: AckMode
    # None: nothing is sent.
    emit: Sends | None = None
    # The same of records with headers; None: as all others.
    decode_record: Callable[[RawRecord], Any] | None = None
    # Without ``decode``: what is wrong without a value; None if the handler takes None.
    refusal: str | None = None
    # The channel has a ``key_deserializer``: what does not fit it never reaches the handler.
    decodes_keys: bool = False
    # It runs in a thread.
    is_blocking: bool = False
    # Which goes on when the call is cancelled, and ends.
    leaves_threads: bool = False
    # Of each attempt, and what it sends; the call takes messages.
    around: Callable[[Call], Call] | None = None
    # The next record of a lane waits until the ack's commit is confirmed (``latest``)
    awaits_commits: bool = False


def record_call(
    invocation: Invocation, returned: ReturnedUnsettled | None, hook: DeliveryHook
) -> tuple[Call, bool, bool]:
    """The handler's own call where that is all there is, which costs nothing; else one with what is
    around it.

    Then whether it takes the message (else the payload), and whether a return counts as an ack,
    which the worker gives (else the call settles the message). *returned* keeps messages that the
    handler leaves without a verdict.
    """
    is_plain = invocation.emit is None and (
        (invocation.ack == "post" and not invocation.awaits_commits)
        or (invocation.ack == "manual" and returned is None)
    )
    call = invocation.call if is_plain else _around(invocation, returned)
    wants_message = invocation.wants_message or not is_plain
    if invocation.around is not None:
        call = invocation.around(_of_message(call, wants_message=wants_message))
        wants_message = True
    if invocation.wants_message:
        call = hook.around(call)
    if invocation.decodes_keys:
        call = with_key(call, wants_message=wants_message)
        wants_message = True
    return call, wants_message, is_plain and invocation.ack == "post"


def quick_call(
    invocation: Invocation, returned: ReturnedUnsettled | None, hook: DeliveryHook
) -> tuple[Call, Sends] | None:
    """The handler's own call, and what sends its results at once; None: what is around it takes
    more than that.

    A worker that does both itself spares a message, a coroutine and its calls, which is half of a
    fast chain.
    """
    emit = invocation.emit
    is_short = (
        emit is not None
        and emit.is_quick
        and invocation.ack == "post"
        and returned is None
        and not invocation.decodes_keys
        and invocation.around is None
        and not (invocation.wants_message and hook.around(invocation.call) is not invocation.call)
    )
    return (invocation.call, emit) if is_short and emit is not None else None


def _around(invocation: Invocation, returned: ReturnedUnsettled | None) -> Call:
    """Settle before the handler runs, or send what it returns."""
    emit = invocation.emit

    async def called(message: Message[Any]) -> None:
        if invocation.ack in ("pre", "none"):
            message.ack()
        result = await invocation.call(message if invocation.wants_message else message.payload)
        if (task := asyncio.current_task()) is not None and task.cancelling():
            # A cancellation that the handler has asked for, and not awaited, comes first.
            await asyncio.sleep(0)
        if emit is not None:
            if not emit.at_once(result, message.record, message.tracker, message.index):
                await emit.answer(result, message)
        elif invocation.ack == "post":
            await message.ack()
        if returned is not None and is_open(message):
            returned.add(message)

    return called


def batch_call(invocation: Invocation) -> Call:
    """The handler's own call, or one that sends what it made of the batch before it returns, with
    what is around it.
    """
    call = (
        invocation.call if invocation.emit is None else _answering(invocation.call, invocation.emit)
    )
    return call if invocation.around is None else invocation.around(call)


def _answering(call: Call, emit: Sends) -> Call:

    async def called(batch: Batch[Any]) -> None:
        result = await call(batch)
        await deliver_cancellation()
        await emit.answer_batch(result, batch)

    return called


async def deliver_cancellation() -> None:
    """Let a cancellation that a handler has asked for, and not awaited, come before anything is
    done for its return.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        await asyncio.sleep(0)


def with_key(call: Call, *, wants_message: bool) -> Call:
    """Decode the key of a message first, whether or not the handler looks at it: what does not fit
    is its failure.
    """

    async def called(message: Message[Any]) -> Any:
        # Kept by the message.
        _ = message.key
        return await call(message if wants_message else message.payload)

    return called


def _of_message(call: Call, *, wants_message: bool) -> Call:
    """The same call, which takes the message."""
    return call if wants_message else lambda message: call(message.payload)


def no_key(error: BaseException) -> BaseException:
    """What to raise for a record whose ordering key cannot be told."""
    if isinstance(error, SystemExit | KeyboardInterrupt):
        return error
    refused = DecodeError(f"the record's ordering key cannot be told: {describe(error)}")
    refused.part = "ordering key"
    refused.__cause__ = error
    return refused


MOST_STRAYS = 16
"""After so many cancellations that nobody awaits a worker ends: whoever sends them means it."""


class Isolation:
    """What the workers of one channel know about the habits of its handlers."""

    def __init__(self, is_ending: Callable[[], bool]) -> None:
        # Whether every task is being cancelled, before the workers are closed.
        self._is_ending = is_ending
        # A call gets a task of its own, too: a handler leaves its task cancelled.
        self._in_tasks = False
        # Each call gets a context of its own: a handler sets context variables.
        self.in_contexts = False
        # That context says what the call has: a handler's task or thread has asked.
        self._tells = False
        # No work will come any more; who cancels a worker from now on is the application.
        self.is_closed = False

    @property
    def _is_over(self) -> bool:
        return self.is_closed or self._is_ending()

    def apart(self, worker: Worker, call: Call) -> Call:
        """*call* as this worker makes it in its next stretch.

        That is *call* as it is, until a handler has left something for those after it. In the first
        stretch of a worker each call has a context that says what it has.
        """
        if self._in_tasks:
            return lambda argument: in_task(call, argument, worker.fresh_context(tells=True))
        if self.in_contexts:
            return lambda argument: in_context(
                call, argument, worker.fresh_context(tells=self._tells)
            )
        if worker.is_new:
            # A task or a thread of its first calls that asks for their message has it. If none
            # does, later calls save the 2 µs.
            worker.is_new = False
            return lambda argument: in_context(call, argument, worker.fresh_context(tells=True))
        return call

    def tell_calls(self) -> None:
        """Give each call from now on a context of its own that says what it has."""
        self.in_contexts = self._tells = True

    async def call_returned(self, worker: Worker) -> None:
        """A call has returned, and may have left something.

        Raises:
            CancelledError: It had cancelled its own task, and returned before that could reach it.
                A task of its own would have counted as cancelled.
        """
        # Also where it has ignored our interrupt.
        worker.handler_ended()
        await self._look(worker)

    async def call_raised(self, worker: Worker, error: BaseException) -> bool:
        """A call has raised; whether it was interrupted for poison.

        Raises:
            CancelledError: The application ends, and has cancelled the worker.
        """
        if isinstance(error, asyncio.CancelledError) and self._is_over and worker.is_cancelled:
            raise error
        try:
            await self._look(worker)
        except asyncio.CancelledError:
            if self._is_over:
                raise
        return worker.handler_ended()

    async def _look(self, worker: Worker) -> None:
        """Make sure that nothing a call has left reaches the next one."""
        if worker.has_strange_values:
            self.in_contexts = worker.is_spent = True
        if worker.is_cancelled and not self._is_over:
            self.in_contexts = self._in_tasks = worker.is_spent = True
            try:
                # A cancellation that is still to come, comes here.
                await asyncio.sleep(0)
            finally:
                if not self._is_over:
                    worker.take_off_cancellation()

    async def done(self, worker: Worker, awaited: Sequence[Future[Any]]) -> None:
        """Wait until all of these are done, even if an earlier handler's late cancellation arrives
        meanwhile.

        Cancellation:
            Only when the application ends; none of the futures is cancelled by it.
        """
        while pending := [one for one in awaited if not one.done()]:
            try:
                await asyncio.wait(pending)
            except asyncio.CancelledError as error:
                self.stray(worker, error)

    async def let_others_run(self, worker: Worker) -> None:
        """Give the loop to whatever else is ready."""
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError as error:
            self.stray(worker, error)

    def stray(self, worker: Worker, error: asyncio.CancelledError) -> None:
        """A worker was cancelled, and no handler runs in it.

        Raises:
            CancelledError: It is meant: the application ends, or somebody insists. Or its task was
                not cancelled at all, and something that it waits for was.
        """
        worker.strays += 1
        if self._is_over or worker.strays > MOST_STRAYS or not worker.is_cancelled:
            raise error
        self.in_contexts = self._in_tasks = worker.is_spent = True
        worker.take_off_cancellation()


@coroutine
def in_context(call: Call, argument: Any, context: Context) -> Generator[Any, Any, Any]:
    """Make a call in the task that awaits this, and in *context*: each of its steps runs there."""
    run = context.run
    made = run(call, argument)
    steps = made if isinstance(made, CoroutineType) else _awaited(made)
    step: Callable[[Any], Any] = steps.send
    given: Any = None
    while True:
        try:
            awaited = run(step, given)
        except StopIteration as end:
            return end.value
        try:
            given = yield awaited
            step = steps.send
        except GeneratorExit:
            run(steps.close)
            raise
        except BaseException as error:
            # What was awaited has raised, or we are cancelled.
            here = error.__traceback__
            # Without this frame of ours.
            given = error.with_traceback(here and here.tb_next)
            step = steps.throw


async def in_task(call: Call, argument: Any, context: Context) -> Any:
    """Make a call in *context* and in a task of its own, so that cancelling that task cancels this
    call only.

    Cancellation:
        The call is cancelled, once; it returns or raises what the call does after that.
    """
    task = asyncio.get_running_loop().create_task(
        _outcome(call, argument), context=context, name="handler"
    )
    result, ending = await task
    if ending is not None:
        raise ending
    return result


async def _awaited(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


async def _outcome(call: Call, argument: Any) -> tuple[Any, BaseException | None]:
    """What a call returned, and what it raised if that would end the loop or close the coroutine
    awaiting the task.
    """
    try:
        return await call(argument), None
    except (SystemExit, KeyboardInterrupt, GeneratorExit) as ending:
        return None, ending
