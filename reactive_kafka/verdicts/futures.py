"""The awaitables that ``ack`` and ``nack`` return: shared if they are done, otherwise the caller's
own.

A future that is done can be shared: no caller can cancel it or change its result. A pending one
belongs to one caller, who may cancel it, for example by a timeout. What others wait for too is
followed, never handed out.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from asyncio import Future
from collections.abc import Callable, Generator
from typing import Any, TypeVar, cast

from reactive_kafka.tasks import HomeLoop

T = TypeVar("T")


class ThreadVerdict:
    """What a caller in another thread gets: ``result(timeout)`` waits in that thread, and any loop
    may await it.

    Cancellation:
        Safe. The answer stays for all others who wait for it.
    """

    def __init__(self, answer: concurrent.futures.Future[Any]) -> None:
        self._answer = answer

    def result(self, timeout: float | None = None) -> Any:
        """The answer, waited for up to *timeout* seconds.

        Raises:
            TimeoutError: There is no answer by then.
        """
        return self._answer.result(timeout)

    def done(self) -> bool:
        """Whether there is an answer."""
        return self._answer.done()

    def __await__(self) -> Generator[Any, None, Any]:
        return asyncio.wrap_future(self._answer).__await__()


class AckFutures(HomeLoop):
    """Makes the awaitables of one channel; created on the loop that the channel runs in."""

    def __init__(self) -> None:
        super().__init__()
        self.yes = self._done(True)
        self.no = self._done(False)

    def _done(self, value: bool) -> Future[bool]:
        future: Future[bool] = self.loop.create_future()
        future.set_result(value)
        return future

    def pending(self) -> Future[Any]:
        """A future to be completed later, on the loop."""
        return self.loop.create_future()

    def follow(self, verdict: Future[T]) -> Future[T]:
        """A future of the caller's own, for a verdict that others wait for too. It gets the same
        result.
        """
        if verdict.done():
            return verdict
        own: Future[T] = self.loop.create_future()
        follow(verdict, own)
        return own

    def from_thread(
        self, call: Callable[[], Future[T]], when_ended: Callable[[], Any] = lambda: False
    ) -> Future[T]:
        """Make *call* on the loop, from another thread. The result can be waited for in threads and
        on loops.

        Once the loop has ended *when_ended* returns, or raises, the answer.
        """
        answer = self.send(
            lambda answer: call().add_done_callback(lambda done: _copy(done, answer)), when_ended
        )
        return cast("Future[T]", ThreadVerdict(answer))

    def any_of(self, verdicts: list[Future[bool]]) -> Future[bool]:
        """Whether at least one of these is True, once all of them are known."""
        if all(verdict.done() for verdict in verdicts):
            return self.yes if any(verdict.result() for verdict in verdicts) else self.no
        whole: Future[bool] = self.loop.create_future()
        rest = {verdict for verdict in verdicts if not verdict.done()}

        def one_is_known(verdict: Future[bool]) -> None:
            rest.discard(verdict)
            if not rest and not whole.done():
                whole.set_result(any(one.result() for one in verdicts))

        for verdict in list(rest):
            verdict.add_done_callback(one_is_known)
        return whole


def follow(verdict: Future[T], future: Future[T]) -> None:
    """Give *future* the result of a verdict, unless it was cancelled."""

    def tell(answered: Future[T]) -> None:
        if not future.done():
            future.set_result(answered.result())

    if verdict.done():
        tell(verdict)
    else:
        verdict.add_done_callback(tell)


def _copy(done: Future[Any], answer: concurrent.futures.Future[Any]) -> None:
    error = done.exception()
    if error is None:
        answer.set_result(done.result())
    else:
        answer.set_exception(error)
