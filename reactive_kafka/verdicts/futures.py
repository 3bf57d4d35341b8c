"""The awaitables that ``ack`` and ``nack`` return.

A future that is done can be shared: no caller can cancel it or change its result. A pending one
belongs to one caller, who may cancel it, for example by a timeout. So a future that others wait for
too is never handed out: the caller gets one of its own that follows it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from asyncio import Future
from collections.abc import Callable, Generator
from contextlib import nullcontext
from contextvars import Context
from typing import Any, TypeVar, cast

from reactive_kafka.tasks import HomeLoop
from reactive_kafka.verdicts.ageing import not_ageing, not_ageing_in_thread

T = TypeVar("T")


class ThreadVerdict:
    """The answer for a caller in another thread.

    ``result(timeout)`` waits in that thread, and any event loop may await it.

    Cancellation:
        Safe. The answer stays for all others who wait for it.

    Args:
        ages: A handler ages while its thread waits for the answer.
    """

    def __init__(self, answer: concurrent.futures.Future[Any], *, ages: bool = False) -> None:
        self._answer = answer
        self._ages = ages

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the answer, up to *timeout* seconds.

        Raises:
            TimeoutError: There is no answer by then.
        """
        if self._ages or self._answer.done():
            return self._answer.result(timeout)
        with not_ageing_in_thread():
            return self._answer.result(timeout)

    def done(self) -> bool:
        """Return whether there is an answer."""
        return self._answer.done()

    def add_done_callback(self, callback: Callable[[Any], object]) -> None:
        """Call *callback* with a future that has the answer, in whichever thread gives it."""
        self._answer.add_done_callback(callback)

    def __await__(self) -> Generator[Any, None, Any]:
        with nullcontext() if self._ages else not_ageing_in_thread():
            return (yield from asyncio.wrap_future(self._answer))


class BrokerAnswer(Future[T]):
    """A future that is done when a broker has answered: no handler ages that waits for it.

    Whatever waits for a future adds a callback to it, such as ``gather()`` and ``wait()``. So the
    wait begins there. Code that does not wait takes :func:`when_done`.
    """

    def __init__(self, *, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        # The callback of each caller that waits, and what has stopped the clocks of its records.
        self._waits: list[tuple[Callable[[Any], object], not_ageing]] = []

    def __await__(self) -> Generator[Any, None, T]:
        if self.done():
            return self.result()
        # The task that steps through a handler adds its callback outside of the handler's context,
        # which has the time of the attempt.
        with not_ageing():
            return (yield from super().__await__())

    def add_done_callback(
        self, callback: Callable[[Any], object], /, *, context: Context | None = None
    ) -> None:
        super().add_done_callback(callback, context=context)
        if not self.done():
            wait = not_ageing()
            wait.__enter__()
            self._waits.append((callback, wait))

    def remove_done_callback(self, callback: Callable[[Any], object], /) -> int:
        self._end_waits(of=callback)
        return super().remove_done_callback(callback)

    def set_result(self, result: T, /) -> None:
        super().set_result(result)
        self._end_waits()

    def set_exception(self, exception: type[BaseException] | BaseException, /) -> None:
        super().set_exception(exception)
        self._end_waits()

    def cancel(self, msg: Any | None = None) -> bool:
        is_cancelled = super().cancel(msg)
        self._end_waits()
        return is_cancelled

    def _end_waits(self, *, of: Callable[[Any], object] | None = None) -> None:
        """End the waits of one callback. None: of all."""
        waits = self._waits
        self._waits = []
        for callback, wait in waits:
            if of is None or callback == of:
                wait.__exit__(None, None, None)
            else:
                self._waits.append((callback, wait))


class AckFutures(HomeLoop):
    """Makes the awaitables of one channel; created on the loop that the channel runs in.

    Attributes:
        yes: A future that is done, with True. All who may get it share it.
        no: The same with False.
    """

    def __init__(self) -> None:
        super().__init__()
        self.yes = self._done(True)
        self.no = self._done(False)

    def _done(self, value: bool) -> Future[bool]:
        future: Future[bool] = self.loop.create_future()
        future.set_result(value)
        return future

    def pending(self) -> Future[Any]:
        """Return a future that is to be completed later, on the loop."""
        return self.loop.create_future()

    def broker_answers(self) -> Future[Any]:
        """Return a future that is to be completed on the loop when a broker has answered."""
        return BrokerAnswer(loop=self.loop)

    def follow(self, verdict: Future[T]) -> Future[T]:
        """Return a future of the caller's own that gets the result of *verdict*."""
        if verdict.done():
            return verdict
        own: Future[T] = self.broker_answers()
        follow(verdict, own)
        return own

    def from_thread(
        self,
        call: Callable[[], Future[T]],
        when_ended: Callable[[], Any] = lambda: False,
        *,
        ages: bool = False,
    ) -> Future[T]:
        """Make *call* on the loop, from another thread; see :class:`ThreadVerdict` for the result.

        Args:
            when_ended: Returns or raises the answer if the loop has ended.
            ages: A handler ages while its thread waits for the answer.
        """
        answer = self.send(
            lambda answer: when_done(call(), lambda done: _copy(done, answer)), when_ended
        )
        return cast("Future[T]", ThreadVerdict(answer, ages=ages))

    def any_of(self, verdicts: list[Future[bool]]) -> Future[bool]:
        """Return a future: once all of these are known, whether one of them is True."""
        if all(verdict.done() for verdict in verdicts):
            return self.yes if any(verdict.result() for verdict in verdicts) else self.no
        whole: Future[bool] = self.broker_answers()
        unknown = {verdict for verdict in verdicts if not verdict.done()}

        def now_known(verdict: Future[bool]) -> None:
            unknown.discard(verdict)
            if not unknown and not whole.done():
                whole.set_result(any(verdict.result() for verdict in verdicts))

        for verdict in list(unknown):
            when_done(verdict, now_known)
        return whole


def when_done(future: Future[T], callback: Callable[[Future[T]], object]) -> None:
    """Have *callback* called once a future is done, without waiting for it: the caller ages on."""
    # Not the method of BrokerAnswer, which takes the caller for one that waits.
    Future.add_done_callback(future, callback)


def follow(verdict: Future[T], future: Future[T]) -> None:
    """Give *future* the result of a verdict, unless it was cancelled."""

    def tell(answered: Future[T]) -> None:
        if not future.done():
            future.set_result(answered.result())

    if verdict.done():
        tell(verdict)
    else:
        when_done(verdict, tell)


def _copy(done: Future[Any], answer: concurrent.futures.Future[Any]) -> None:
    error = done.exception()
    if error is None:
        answer.set_result(done.result())
    else:
        answer.set_exception(error)
