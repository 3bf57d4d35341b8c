"""The verdicts on the records of one partition, in one assignment, and who waits for its committed
position.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from reactive_kafka.errors import ChannelClosedError, NotOwnerError, text_of
from reactive_kafka.tracking.metadata.user import check_metadata
from reactive_kafka.tracking.tracker import OffsetTracker
from reactive_kafka.verdicts.ageing import Held, Origin
from reactive_kafka.verdicts.futures import follow
from reactive_kafka.verdicts.hook import NoHook

if TYPE_CHECKING:
    from reactive_kafka.verdicts.acknowledge import Acknowledger


class _Waiter(NamedTuple):
    # The position must be beyond this.
    offset: int
    future: Future[Any]
    is_ack: bool


class PartitionVerdicts:
    """Takes the acks of one partition's records; the ``owner`` of its tracker.

    Between a revocation and the next assignment a verdict stands, and its answer is held: it is
    True only if the partition is retained.
    """

    def __init__(self, tracker: OffsetTracker, channel: Acknowledger) -> None:
        # Takes the nacks, and verdicts on records of several partitions.
        self.channel = channel
        # Arrival number -> what a nack that is being carried out will come to.
        self.nacks: dict[int, Future[bool]] = {}
        # The tasks that carry out those nacks.
        self.writing: set[asyncio.Task[object]] = set()
        # Arrival number -> a record of which values are in memory channels.
        self.origins: dict[int, Origin] = {}
        # What the checkpoint store keeps for the partition.
        self.row: Any = None
        self._tracker = tracker
        self._futures = channel.futures
        # None: answers are not held.
        self._held: list[Callable[[bool], None]] | None = None
        self._waiters: list[_Waiter] = []
        # What the channel had failed for when the partition went.
        self._failure: BaseException | None = None

    def ack(self, index: int, metadata: str | None = None) -> Future[bool]:
        """Settle a record, from any thread. Raises as ``Message.ack`` does."""
        if metadata is not None:
            check_metadata(metadata)
        if not self._futures.is_here:
            return self._futures.from_thread(lambda: self.ack(index, metadata))
        self.channel.hook.check(self._tracker, index)
        return self._acked(index, metadata) if self._tracker.settle(index) else self._futures.no

    def ack_up_to(self, index: int, metadata: str | None = None) -> Future[bool]:
        """Settle a record and those before it, from any thread. Raises as ``Channel.ack_up_to``
        does.
        """
        if metadata is not None:
            check_metadata(metadata)
        if not self._futures.is_here:
            return self._futures.from_thread(lambda: self.ack_up_to(index, metadata))
        self.channel.hook.check_up_to(self._tracker, index)
        return (
            self._acked(index, metadata) if self._tracker.settle_up_to(index) else self._futures.no
        )

    def settle(self, index: int, stop: int | None = None) -> Future[bool]:
        """Settle a record that nobody acks by hand, or those up to *stop* (exclusive). The answer
        is that of an ack.
        """
        if self._tracker.settle(index) if stop is None else self._tracker.settle_range(index, stop):
            return self._acked(index)
        return self._futures.no

    def _acked(self, index: int, metadata: str | None = None) -> Future[bool]:
        if metadata is not None:
            self._tracker.texts.supply(self._tracker.offset_of(index), metadata)
        if self._held is not None:
            self.channel.tell()
            return self.answer_later(self._settled)
        return self._settled()

    def _settled(self) -> Future[bool]:
        """A record has been settled. True at once, or with ``latest`` when what can be committed
        now is.
        """
        self.channel.tell()
        if not self.channel.commits_at_ack or self._tracker.is_closed:
            return self._futures.yes
        position = self.channel.request_commit(self._tracker)
        if not self.channel.awaits_commits or position <= self._tracker.uncommitted_from:
            # A record before it is unsettled, so there is no commit to wait for.
            return self._futures.yes
        return self._wait(position - 1, is_ack=True)

    @property
    def is_held(self) -> bool:
        """Whether answers are held until the next assignment."""
        return self._held is not None

    def hold_answers(self) -> None:
        """The partition was revoked: hold the answers of verdicts until the next assignment."""
        if self._held is None:
            self._held = []

    def answer_later(self, if_it_counts: Callable[[], Future[bool]]) -> Future[bool]:
        """The answer of a verdict that was given while answers are held."""
        # For the type checker.
        assert self._held is not None  # noqa: S101
        future: Future[bool] = self._futures.pending()

        def tell(is_retained: bool) -> None:
            if is_retained:
                follow(if_it_counts(), future)
            elif not future.done():
                future.set_result(False)

        self._held.append(tell)
        return future

    def answer(self, *, is_retained: bool) -> None:
        """The next assignment has come: give the held answers."""
        held = self._held or ()
        self._held = None
        for tell in held:
            tell(is_retained)
        if not is_retained:
            self.gone()

    def gone(self) -> None:
        """The partition is not ours any more: its records are another owner's to settle and
        commit.
        """
        self.channel.count_acks(self._tracker)
        for task in self.writing:
            task.cancel()
        self._failure = self.channel.failure or self._failure
        waiters = self._waiters
        self._waiters = []
        for waiter in waiters:
            if waiter.future.done():
                continue
            if waiter.is_ack:
                waiter.future.set_result(False)
            else:
                self._refuse(waiter.future)

    def nacks_up_to(self, index: int) -> list[Future[bool]]:
        """The nacks of records up to this one that are being carried out."""
        return [verdict for at, verdict in self.nacks.items() if at <= index]

    def committed(self, offset: int) -> Future[None]:
        """A future that completes once the committed position has passed *offset*. Raises as
        ``Message.committed``.
        """
        if self.channel.commits_nothing:
            raise ChannelClosedError(
                f"channel {self.channel.name!r} commits nothing (commit_strategy = 'ignore'): "
                "committed() would wait for ever"
            )
        if offset >= self._tracker.limit and not self._tracker.is_closed:
            raise ChannelClosedError(
                f"channel {self.channel.name!r} commits nothing from offset {self._tracker.limit} on, behind which "
                "offsets are not read: committed() would wait for ever"
            )
        if not self._futures.is_here:
            return self._futures.from_thread(
                lambda: self.committed(offset), lambda: self._check_stored(offset)
            )
        if not self._is_stored(offset) and not self._tracker.is_closed:
            return self._wait(offset, is_ack=False)
        future: Future[None] = self._futures.pending()
        if self._is_stored(offset):
            future.set_result(None)
        else:
            self._refuse(future)
        return future

    def _wait(self, offset: int, *, is_ack: bool) -> Future[Any]:
        """A future of who waits until the committed position has passed *offset*: an ack, or
        ``committed()``.
        """
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

    def committed_by_transaction(self, position: int) -> None:
        """A transaction has settled records, and stored the position behind them."""
        self.channel.tell()
        self.confirmed(position)

    def _refuse(self, future: Future[None]) -> None:
        future.set_exception(self._not_owner())
        # Marks it as seen: a caller that never awaits it wants no "exception was never retrieved"
        future.exception()

    def _is_stored(self, offset: int) -> bool:
        committed = self._tracker.committed
        return committed is not None and committed > offset

    def _check_stored(self, offset: int) -> None:
        if not self._is_stored(offset):
            raise self._not_owner()

    def _not_owner(self) -> NotOwnerError:
        if self._failure is None:
            return NotOwnerError(
                f"{self._tracker.partition} was taken away before the record was committed"
            )
        why = text_of(self._failure)
        error = NotOwnerError(
            f"channel {self.channel.name!r} has failed before the record was committed: {why}"
        )
        error.__cause__ = self._failure
        return error


def verdicts_of(tracker: OffsetTracker) -> PartitionVerdicts:
    """The owner that :meth:`Acknowledger.begins` gave a tracker."""
    return cast(PartitionVerdicts, tracker.owner)


def origins_of(held: Iterable[Held]) -> list[Origin]:
    """The origins of a value that is made of these records."""
    found: list[Origin] = []
    for tracker, indexes in held:
        origins = verdicts_of(tracker).origins
        for index in indexes:
            origin = origins.get(index)
            if origin is None:
                origin = origins[index] = Origin(tracker, index)
            found.append(origin)
    return found


def value_settled(origin: Origin) -> None:
    """One of the values that were made of a record has its verdict."""
    origin.values -= 1
    if not origin.values:
        tracker, index = origin.place
        verdicts_of(tracker).origins.pop(index, None)


def handler_done(held: Iterable[Held], now: float) -> None:
    """The handler of these records has returned: they age only while another handler has a value
    made of them.
    """
    for tracker, indexes in held:
        origins = verdicts_of(tracker).origins
        for index in indexes:
            origin = origins.get(index)
            if origin is None:
                tracker.hand_over(index)
            else:
                origin.handler_done(now)


@contextmanager
def with_other_handlers(held: Iterable[Held], time: Callable[[], float]) -> Iterator[None]:
    """Around a wait of these records' handler for values that it has made: they age while another
    handler has one.

    Args:
        time: The monotonic clock, in seconds.
    """
    now = time()
    origins: list[Origin] = []
    settled: list[tuple[OffsetTracker, int]] = []
    for tracker, indexes in held:
        known = verdicts_of(tracker).origins
        for index in indexes:
            if index in known:
                origins.append(known[index])
            else:
                settled.append((tracker, index))
    for origin in origins:
        origin.handler_done(now)
    for tracker, index in settled:
        tracker.stop_clock((index,), now)
    try:
        yield
    finally:
        now = time()
        for origin in origins:
            origin.handler_back(now)
        for tracker, index in settled:
            tracker.start_clock((index,), now)


def ack_range(tracker: OffsetTracker, start: int, stop: int) -> None:
    """Ack the records *start* up to *stop* (exclusive), on the loop, for whoever wants no answer.

    Raises as ``Message.ack`` does, and has acked none of them then.
    """
    verdicts = verdicts_of(tracker)
    # A call for each is more than a fast chain can afford.
    if not isinstance(verdicts.channel.hook, NoHook):
        for index in range(start, stop):
            verdicts.channel.hook.check(tracker, index)
    verdicts.settle(start, stop)
