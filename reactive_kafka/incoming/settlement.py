"""What a verdict does: the awaitables of ack, nack and committed, and carrying out the failure strategy."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable
from typing import Any

from reactive_kafka.commit.engine import CommitEngine
from reactive_kafka.commit.offsets import OffsetTracker
from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.errors import ChannelClosedError, HandlerError, NotOwnerError
from reactive_kafka.failure.decision import Stop, after_nack
from reactive_kafka.incoming.message import Message
from reactive_kafka.incoming.verdicts import Verdicts
from reactive_kafka.observe.events import HandlerFailed, Observer, RecordIgnored, RecordLeft
from reactive_kafka.observe.facts import PartitionTotals
from reactive_kafka.records import TopicPartition


class Settlements:
    """Takes the verdicts of one channel's messages; the ``owner`` of each of its trackers.

    Args:
        fail: Stops the channel, for the reason given; False if it was stopping or had failed before.
        progress: Called after an ack while somebody waits for room, or for the last acks of a drain.
    """

    def __init__(
        self,
        settings: IncomingSettings,
        engine: CommitEngine,
        observer: Observer,
        totals: Callable[[TopicPartition], PartitionTotals],
        fail: Callable[[BaseException], bool],
        progress: Callable[[], None],
    ) -> None:
        self.name = settings.name
        self.decode_key: Callable[[bytes | None], Any] | None = None
        self.is_awaited = False  # somebody waits for progress: acks tell
        self._settings = settings
        self._engine = engine
        self._observer = observer
        self._totals = totals
        self._fail = fail
        self._progress = progress
        self._verdicts = Verdicts()
        self._between: dict[OffsetTracker, list[Callable[[bool], None]]] = {}
        self._waiters: dict[OffsetTracker, list[tuple[int, Future[None]]]] = {}

    # -- verdicts

    def ack(self, tracker: OffsetTracker, index: int) -> Future[bool]:
        """Settle a record; see :meth:`reactive_kafka.Message.ack`."""
        if not self._verdicts.is_here:
            return self._verdicts.from_thread(lambda: self.ack(tracker, index))
        if not tracker.settle(index):
            return self._verdicts.no
        if self.is_awaited:
            self._progress()
        if self._is_between(tracker):
            return self._answer_later(tracker, lambda: None)
        return self._verdicts.yes

    def nack(self, message: Message[Any], reason: BaseException) -> Future[bool]:
        """Give a record over to the failure strategy; see :meth:`reactive_kafka.Message.nack`."""
        if not isinstance(reason, BaseException):
            raise TypeError(f"nack() takes an exception, not {type(reason).__name__}")
        if not self._verdicts.is_here:
            return self._verdicts.from_thread(lambda: self.nack(message, reason))
        tracker, index = message._tracker, message._index
        if not tracker.nack(index):
            return self._verdicts.no
        if self.is_awaited:
            self._progress()
        if self._is_between(tracker):
            return self._answer_later(tracker, lambda: self._carry_out(message, reason))
        self._carry_out(message, reason)
        return self._verdicts.yes

    def any_of(self, settle: Callable[[], list[Future[bool]]]) -> Future[bool]:
        """Whether at least one of several verdicts, given together, took effect."""
        if not self._verdicts.is_here:
            return self._verdicts.from_thread(lambda: self.any_of(settle))
        return self._verdicts.any_of(settle())

    def raised_after_ack(self, message: Message[Any], reason: BaseException) -> None:
        """A handler raised whose record was settled before it ran: that is told, and nothing more."""
        self._count_nack(message, self._settings.ack)
        self._observer.on(
            HandlerFailed(
                channel=self.name,
                partition=message.topic_partition,
                offset=message.offset,
                reason=f"{type(reason).__name__}: {reason}",
                error=reason,
            )
        )

    def _carry_out(self, message: Message[Any], reason: BaseException) -> None:
        strategy = self._settings.failure_strategy
        self._count_nack(message, strategy)
        if isinstance(after_nack(strategy), Stop):
            error = HandlerError(self.name, message.topic_partition, message.offset, reason)
            error.__cause__ = reason
            if not self._fail(error):
                self._observer.on(
                    RecordLeft(
                        channel=self.name,
                        partition=message.topic_partition,
                        offset=message.offset,
                        reason=f"{type(reason).__name__}: {reason}",
                        error=reason,
                    )
                )
            return
        message._tracker.settle_nacked(message._index)
        if self.is_awaited:
            self._progress()
        self._observer.on(
            RecordIgnored(
                channel=self.name,
                partition=message.topic_partition,
                offset=message.offset,
                reason=f"{type(reason).__name__}: {reason}",
                error=reason,
            )
        )

    def _count_nack(self, message: Message[Any], strategy: str) -> None:
        nacked = self._totals(message.topic_partition).nacked
        nacked[strategy] = nacked.get(strategy, 0) + 1

    def count_acks(self, tracker: OffsetTracker) -> None:
        """Add the acks since the last count to the partition's totals; nothing is counted as they come."""
        self._totals(tracker.partition).acked += tracker.newly_acked()

    # -- between a revocation and the next assignment

    def hold_answers(self, trackers: list[OffsetTracker]) -> None:
        """These partitions were revoked: verdicts on their records are answered at the next assignment."""
        for tracker in trackers:
            self._between.setdefault(tracker, [])

    def answer(self, tracker: OffsetTracker, *, came_back: bool) -> None:
        """The next assignment has come: verdicts given meanwhile count if the partition came straight back."""
        for tell in self._between.pop(tracker, []):
            tell(came_back)
        if not came_back:
            self.gone(tracker)

    def _is_between(self, tracker: OffsetTracker) -> bool:
        return bool(self._between) and tracker in self._between

    def _answer_later(self, tracker: OffsetTracker, if_it_counts: Callable[[], None]) -> Future[bool]:
        future: Future[bool] = self._verdicts.pending()

        def tell(came_back: bool) -> None:
            if came_back:
                if_it_counts()
            if not future.done():
                future.set_result(came_back)

        self._between[tracker].append(tell)
        return future

    # -- committed()

    def committed(self, tracker: OffsetTracker, offset: int) -> Future[None]:
        """See :meth:`reactive_kafka.Message.committed`."""
        if self._settings.commit_strategy == "ignore":
            raise ChannelClosedError(
                f"channel {self.name!r} commits nothing (commit_strategy = 'ignore'): committed() would wait for ever"
            )
        if not self._verdicts.is_here:
            return self._verdicts.from_thread(lambda: self.committed(tracker, offset))
        future: Future[None] = self._verdicts.pending()
        if tracker.committed is not None and tracker.committed > offset:
            future.set_result(None)
        elif tracker.is_closed:
            future.set_exception(_not_owner(tracker))
        else:
            self._waiters.setdefault(tracker, []).append((offset, future))
        return future

    def confirmed(self, tracker: OffsetTracker, position: int) -> None:
        """The broker has stored *position*: who waits for a record before it goes on."""
        waiters = self._waiters.get(tracker)
        if not waiters:
            return
        for offset, future in waiters:
            if offset < position and not future.done():
                future.set_result(None)
        still = [(offset, future) for offset, future in waiters if not future.done()]
        if still:
            self._waiters[tracker] = still
        else:
            del self._waiters[tracker]

    def gone(self, tracker: OffsetTracker) -> None:
        """The partition is not ours any more: nobody need wait for its commits."""
        self.count_acks(tracker)
        for _, future in self._waiters.pop(tracker, []):
            if not future.done():
                future.set_exception(_not_owner(tracker))


def _not_owner(tracker: OffsetTracker) -> NotOwnerError:
    return NotOwnerError(f"{tracker.partition} was taken away before the record was committed")
