"""Who waits until the committed position of one partition has passed a record."""

from __future__ import annotations

from asyncio import Future
from typing import Any, NamedTuple

from reactive_kafka.commit.tracker import OffsetTracker
from reactive_kafka.errors import NotOwnerError, text_of
from reactive_kafka.verdicts.futures import AckFutures


class _Waiter(NamedTuple):
    offset: int
    """The position must be beyond this."""
    future: Future[Any]
    is_ack: bool


class CommitWaiters:
    """The acks and the callers of ``committed()`` that wait for commits of one partition.

    Args:
        channel: The channel's name, for errors.
    """

    def __init__(self, tracker: OffsetTracker, futures: AckFutures, channel: str) -> None:
        self._tracker = tracker
        self._futures = futures
        self._channel = channel
        self._waiters: list[_Waiter] = []
        self._failure: BaseException | None = None  # what the channel had failed for when the partition went

    def ack(self, offset: int) -> Future[bool]:
        """A future for an ack: True once the position has passed *offset*, False if the partition goes first."""
        return self._add(offset, is_ack=True)

    def committed(self, offset: int) -> Future[None]:
        """A future that completes once the position has passed *offset*. From another thread: its future.

        Raises:
            NotOwnerError: When awaited: the partition went first.
        """
        if not self._futures.is_here:
            return self._futures.from_thread(lambda: self.committed(offset), lambda: self._check_stored(offset))
        if not self._is_stored(offset) and not self._tracker.is_closed:
            return self._add(offset, is_ack=False)
        future: Future[None] = self._futures.pending()
        if self._is_stored(offset):
            future.set_result(None)
        else:
            self._refuse(future)
        return future

    def _add(self, offset: int, *, is_ack: bool) -> Future[Any]:
        future: Future[Any] = self._futures.pending()
        self._waiters.append(_Waiter(offset, future, is_ack))
        return future

    def confirmed(self, position: int) -> None:
        """The broker has stored *position*: complete what waits for a record before it."""
        if not self._waiters:
            return
        for waiter in self._waiters:
            if waiter.offset < position and not waiter.future.done():
                waiter.future.set_result(True if waiter.is_ack else None)
        self._waiters = [waiter for waiter in self._waiters if not waiter.future.done()]

    def gone(self, failure: BaseException | None) -> None:
        """The partition is not ours any more, so nothing more of it is committed.

        Args:
            failure: What the channel has failed for, if that is why.
        """
        self._failure = failure or self._failure
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if waiter.future.done():
                continue
            if waiter.is_ack:
                waiter.future.set_result(False)
            else:
                self._refuse(waiter.future)

    def _refuse(self, future: Future[None]) -> None:
        future.set_exception(self._not_owner())
        future.exception()  # marks it as seen: a caller that never awaits it wants no "exception was never retrieved"

    def _is_stored(self, offset: int) -> bool:
        committed = self._tracker.committed
        return committed is not None and committed > offset

    def _check_stored(self, offset: int) -> None:
        if not self._is_stored(offset):
            raise self._not_owner()

    def _not_owner(self) -> NotOwnerError:
        if self._failure is None:
            return NotOwnerError(f"{self._tracker.partition} was taken away before the record was committed")
        why = text_of(self._failure)
        error = NotOwnerError(f"channel {self._channel!r} has failed before the record was committed: {why}")
        error.__cause__ = self._failure
        return error
