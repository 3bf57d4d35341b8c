"""Acks, who waits for them, and what takes the nacks: of one channel, and of each partition."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from reactive_kafka.errors import ChannelClosedError, NotOwnerError, text_of
from reactive_kafka.formats.format_names import EVENTS
from reactive_kafka.observe.events import HandlerFailed, OutputLost
from reactive_kafka.records import RawRecord, Record
from reactive_kafka.tracking.metadata.user import check_metadata
from reactive_kafka.tracking.tracker import OffsetTracker
from reactive_kafka.verdicts.channel_context import ChannelContext
from reactive_kafka.verdicts.delivery import D, Delivery, failure_of
from reactive_kafka.verdicts.delivery_hook import DeliveryHook, NoHook
from reactive_kafka.verdicts.futures import AckFutures, follow
from reactive_kafka.verdicts.skips import Skips

if TYPE_CHECKING:
    from reactive_kafka.verdicts.value_origins import ValueOrigin

FIRST_WAITERS = 64
"""How many may wait for a commit before those that were given up are looked for."""
LOST_REPORTED_S = 300.0
"""For how many seconds readiness reports an output that was lost.

Nothing but a replay brings the output back, so only time can end the report.
"""


class Nacks(Protocol):
    """Takes the nacks of one channel.

    A Kafka channel asks its failure strategies; a memory channel hands the value back to its
    sender.
    """

    @property
    def not_ready(self) -> tuple[str, ...]:
        """What keeps nacked records from being settled, for people."""

    def nack(
        self, delivery: Delivery, reason: BaseException, record: Record | None = None
    ) -> Future[bool]:
        """The application nacks a record, from any thread. Raises as ``Message.nack`` does."""

    def retry_later(self, delivery: Delivery, delay: float | str | timedelta) -> Future[bool]:
        """The application puts a record off, from any thread. Raises as ``Message.retry_later``."""

    def failed(self, delivery: Delivery, reason: BaseException) -> Future[bool]:
        """The handler failed for good; only reported if the record already has its verdict."""

    def left(self, delivery: Delivery, why: BaseException) -> None:
        """The application ends: the record stays unsettled, and its next owner handles it."""


class Acknowledger:
    """What the verdicts of one channel have in common, for all of its partitions.

    Attributes:
        awaits_commits: An ack is complete when its commit is.
        awaited_by: Those who wait for room or for the end of a drain. Verdicts are reported to the
            channel only while there is one.
        failure: What the channel has failed for.
        watch: Sees the verdicts; None: nothing does.
        skips: Settles records that no handler gets.

    Args:
        nacks: Takes the nacks. Acks are taken by :class:`PartitionVerdicts`.
        request_commit: Asks for a commit of a tracker's partition, and returns the position that
            would be committed. None: acks ask for no commit, a tick makes it.
        decode_key: What ``key_deserializer`` makes of a record's key; None: keys stay bytes.
        has_events: Records may be CloudEvents.
        not_started: Called with each record that is skipped instead of handled.
    """

    def __init__(
        self,
        channel: ChannelContext,
        nacks: Nacks,
        hook: DeliveryHook,
        *,
        request_commit: Callable[[OffsetTracker], int] | None = None,
        decode_key: Callable[[RawRecord], Any] | None = None,
        has_events: bool = False,
        not_started: Callable[[Delivery], None] | None = None,
    ) -> None:
        settings = channel.settings
        self.name = settings.name
        self.nacks = nacks
        self.hook = hook
        self.request_commit = request_commit
        self.decode_key = decode_key
        self.watch = channel.watch
        self.has_events = has_events
        self.has_events_only = settings.value_deserializer == EVENTS
        self.awaits_commits = settings.commit_strategy == "latest"
        self.commits_nothing = settings.commit_strategy == "ignore"
        self.futures = AckFutures()
        self.awaited_by: set[object] = set()
        self.failure: BaseException | None = None
        self.skips = Skips(channel, self.settled_without_ack, not_started)
        self._channel = channel
        # The monotonic time of the last lost output, in seconds, and the event that reported it.
        self._last_lost: tuple[float, OutputLost] | None = None

    def begins(self, tracker: OffsetTracker, owner: str) -> None:
        """The client *owner* reads a partition with this tracker from now on."""
        tracker.owner = PartitionVerdicts(tracker, self)
        self.hook.begins(tracker, owner)

    def made_progress(self) -> None:
        """A record was settled or nacked: tell the channel, if that is awaited."""
        if self.awaited_by:
            self._channel.progress()

    def settled(self, tracker: OffsetTracker) -> None:
        """Workers have settled records of a partition by themselves: ask for their commit."""
        if self.request_commit is not None and not tracker.is_closed:
            self.request_commit(tracker)

    def settled_without_ack(self, tracker: OffsetTracker) -> None:
        """A failure strategy or a filter settled a record: tell who waits, and ask for a commit."""
        self.made_progress()
        self.settled(tracker)

    def count_acks(self, tracker: OffsetTracker) -> None:
        """Add the acks since the last call to the partition's totals.

        Acks are not counted one by one: that would cost time for each record.
        """
        self._channel.totals(tracker.partition).acked += tracker.newly_acked()

    def same_verdict(
        self, deliveries: Sequence[D], settle: Callable[[D], Future[bool]]
    ) -> Future[bool]:
        """Give each delivery the same verdict, or none of them; True if at least one took effect.

        Raises:
            CheckpointError: One of them is in an open transaction.
        """
        if not self.futures.is_here:
            return self.futures.from_thread(lambda: self.same_verdict(deliveries, settle))
        for delivery in deliveries:
            self.hook.check(delivery.tracker, delivery.index)
        return self.futures.any_of([settle(delivery) for delivery in deliveries])

    def verdict_of(self, delivery: Delivery) -> Future[bool] | None:
        """The answer of a nack that is being carried out; None if there is none."""
        return verdicts_of(delivery.tracker).nacks.get(delivery.index)

    def raised_after_ack(self, delivery: Delivery, reason: BaseException) -> None:
        """A handler raised for a record that was settled before the call (``ack = "pre"``)."""
        ack_mode = self._channel.settings.ack
        nacked = self._channel.totals(delivery.topic_partition).nacked
        nacked[ack_mode] = nacked.get(ack_mode, 0) + 1
        self.report_late_failure(delivery, reason)

    def report_late_failure(self, delivery: Delivery, reason: BaseException) -> None:
        """Report a failure that changes nothing: the record has its verdict."""
        self._channel.observer.on(HandlerFailed(**failure_of(self.name, delivery, reason)))

    def output_lost(self, delivery: Delivery, reason: BaseException) -> None:
        """What a handler made of a record was not written. Report it if the record is settled.

        A settled record is not handled again, so its output is lost. It is settled before by a
        transaction with a checkpoint store, by an ack by hand, or by an ack before the handler.
        """
        tracker = delivery.tracker
        if tracker.is_closed or not tracker.is_settled(delivery.index):
            return
        self._channel.totals(tracker.partition).outputs_lost += 1
        event = OutputLost(**failure_of(self.name, delivery, reason))
        self._last_lost = (self._channel.clock.monotonic(), event)
        self._channel.observer.on(event)

    @property
    def not_ready(self) -> tuple[str, ...]:
        """What keeps nacked records from being settled, and which outputs were lost; for people."""
        return (*self.nacks.not_ready, *self._lost_lately())

    def _lost_lately(self) -> Iterator[str]:
        if self._last_lost is None:
            return
        lost_at, event = self._last_lost
        ago_s = self._channel.clock.monotonic() - lost_at
        if ago_s < LOST_REPORTED_S:
            yield (
                f"outputs of settled records are lost: the last one {ago_s:.0f} s ago, "
                f"of {event.partition} offset {event.offset}: {event.reason}"
            )


class _Waiter(NamedTuple):
    """A caller that waits until the committed position is beyond *offset*."""

    offset: int
    future: Future[Any]
    # An ack's answer is True or False; ``committed()`` gets None or an error.
    is_ack: bool


class PartitionVerdicts:
    """Takes the acks of one partition's records in one assignment; the ``owner`` of its tracker.

    Between a revocation and the next assignment a verdict counts, but its answer is held back: it
    is True only if the partition is retained.

    Attributes:
        channel: What the partitions of the channel share. It has what takes the nacks.
        nacks: Arrival number -> the answer of a nack that is being carried out.
        writing: Arrival number -> the task that carries out that nack.
        origins: Arrival number -> a record that values in memory channels were made of.
        row: What the checkpoint store keeps for the partition.
    """

    def __init__(self, tracker: OffsetTracker, channel: Acknowledger) -> None:
        self.channel = channel
        self.nacks: dict[int, Future[bool]] = {}
        self.writing: dict[int, asyncio.Task[object]] = {}
        self.origins: dict[int, ValueOrigin] = {}
        self.row: Any = None
        self._tracker = tracker
        self._futures = channel.futures
        # Each is called with whether the partition was retained. None: answers are not held.
        self._held_answers: list[Callable[[bool], None]] | None = None
        self._waiters: list[_Waiter] = []
        # With this many waiters, the cancelled ones are removed. A commit removes them too, but in
        # an outage there is none.
        self._most_waiters = FIRST_WAITERS
        # What the channel had failed for when the partition went.
        self._failure: BaseException | None = None

    def ack(self, index: int, metadata: str | None = None) -> Future[bool]:
        """Settle a record, from any thread. Raises as ``Message.ack`` does."""
        if metadata is not None:
            check_metadata(metadata)
        if not self._futures.is_here:
            return self._futures.from_thread(lambda: self.ack(index, metadata))
        self.channel.hook.check(self._tracker, index)
        if not self._tracker.settle(index):
            return self._futures.no
        return self._acked(index, metadata)

    def ack_up_to(self, index: int, metadata: str | None = None) -> Future[bool]:
        """Settle a record and those before it, from any thread. Raises as ``Channel.ack_up_to``."""
        if metadata is not None:
            check_metadata(metadata)
        if not self._futures.is_here:
            return self._futures.from_thread(lambda: self.ack_up_to(index, metadata))
        self.channel.hook.check_up_to(self._tracker, index)
        if not self._tracker.settle_up_to(index):
            return self._futures.no
        return self._acked(index, metadata)

    def settle(self, index: int, stop: int | None = None) -> Future[bool]:
        """Settle a record that is not acked by hand, or those up to *stop* (exclusive).

        The answer is that of an ack.
        """
        if stop is None:
            has_settled = self._tracker.settle(index)
        else:
            has_settled = self._tracker.settle_range(index, stop) > 0
        return self._acked(index) if has_settled else self._futures.no

    def _acked(self, index: int, metadata: str | None = None) -> Future[bool]:
        if metadata is not None:
            self._tracker.texts.supply(self._tracker.offset_of(index), metadata)
        if self._held_answers is not None:
            self.channel.made_progress()
            return self.answer_later(self._settled)
        return self._settled()

    def _settled(self) -> Future[bool]:
        """Return the answer of an ack that counts.

        It is True at once, or with ``latest`` when the position that can be committed now is.
        """
        self.channel.made_progress()
        request_commit = self.channel.request_commit
        if request_commit is None or self._tracker.is_closed:
            return self._futures.yes
        position = request_commit(self._tracker)
        if not self.channel.awaits_commits or position <= self._tracker.uncommitted_from:
            # A record before it is unsettled, so there is no commit to wait for.
            return self._futures.yes
        return self._wait(position - 1, is_ack=True)

    @property
    def is_held(self) -> bool:
        """Whether answers are held back until the next assignment."""
        return self._held_answers is not None

    def hold_answers(self) -> None:
        """The partition was revoked: hold back the answers of verdicts."""
        if self._held_answers is None:
            self._held_answers = []

    def answer_later(self, if_it_counts: Callable[[], Future[bool]]) -> Future[bool]:
        """Return the answer of a verdict that was given while answers are held back.

        Args:
            if_it_counts: Called if the partition is retained; its result is the answer.
        """
        # For the type checker.
        assert self._held_answers is not None  # noqa: S101
        future: Future[bool] = self._futures.broker_answers()

        def tell(is_retained: bool) -> None:
            if is_retained:
                follow(if_it_counts(), future)
            elif not future.done():
                future.set_result(False)

        self._held_answers.append(tell)
        return future

    def answer(self, *, is_retained: bool) -> None:
        """The next assignment has come: give the answers that were held back."""
        held_answers = self._held_answers or ()
        self._held_answers = None
        for tell in held_answers:
            tell(is_retained)
        if not is_retained:
            self.gone()

    def gone(self) -> None:
        """The partition is not ours any more: another owner settles and commits its records."""
        self.channel.count_acks(self._tracker)
        for task in self.writing.values():
            task.cancel()
        for watcher in {one for origin in self.origins.values() for one in origin.watchers}:
            watcher.partition_gone()
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
        """Return the answers of nacks that are being carried out, of records up to this one."""
        return [answer for nacked, answer in self.nacks.items() if nacked <= index]

    def committed(self, offset: int) -> Future[None]:
        """Return a future that completes once the committed position is beyond *offset*.

        Raises as ``Message.committed``.
        """
        if self.channel.commits_nothing:
            raise ChannelClosedError(
                f"channel {self.channel.name!r} commits nothing (commit_strategy = 'ignore'): "
                "committed() would wait for ever"
            )
        if offset >= self._tracker.limit and not self._tracker.is_closed:
            raise ChannelClosedError(
                f"channel {self.channel.name!r} commits nothing beyond offset "
                f"{self._tracker.limit}, because a range of offsets after it is not read: "
                "committed() would wait for ever"
            )
        if not self._futures.is_here:
            return self._futures.from_thread(
                lambda: self.committed(offset), lambda: self._check_stored(offset), ages=True
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
        """Return a future that completes once the committed position is beyond *offset*."""
        if len(self._waiters) >= self._most_waiters:
            self._drop_answered()
            self._most_waiters = max(2 * len(self._waiters), FIRST_WAITERS)
        # A caller of committed() may wait for its own handler. That wait counts, or such a handler
        # would never be found.
        future = self._futures.broker_answers() if is_ack else self._futures.pending()
        self._waiters.append(_Waiter(offset, future, is_ack))
        return future

    def _drop_answered(self) -> None:
        self._waiters = [waiter for waiter in self._waiters if not waiter.future.done()]

    def confirmed(self, position: int) -> None:
        """The broker has stored *position*: answer those who wait for a record before it."""
        if not self._waiters:
            return
        for waiter in self._waiters:
            if waiter.offset < position and not waiter.future.done():
                waiter.future.set_result(True if waiter.is_ack else None)
        self._drop_answered()

    def committed_by_transaction(self, position: int) -> None:
        """A transaction has settled records, and stored the position after them."""
        self.channel.made_progress()
        self.confirmed(position)

    def _refuse(self, future: Future[None]) -> None:
        future.set_exception(self._not_owner())
        # Reading the error marks it as seen. Otherwise asyncio would log "exception was never
        # retrieved" for a caller who does not await the future.
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
        error = NotOwnerError(
            f"channel {self.channel.name!r} has failed before the record was committed: "
            f"{text_of(self._failure)}"
        )
        error.__cause__ = self._failure
        return error


def verdicts_of(tracker: OffsetTracker) -> PartitionVerdicts:
    """Return the owner that :meth:`Acknowledger.begins` gave to a tracker."""
    return cast(PartitionVerdicts, tracker.owner)


def ack_range(tracker: OffsetTracker, start: int, stop: int) -> None:
    """Ack the records *start* up to *stop* (exclusive), on the loop; the answer is not wanted.

    Raises as ``Message.ack`` does; then none of them is acked.
    """
    verdicts = verdicts_of(tracker)
    hook = verdicts.channel.hook
    # A channel without a store has nothing to check, and a call for each record would cost more
    # than a fast handler.
    if not isinstance(hook, NoHook):
        for index in range(start, stop):
            hook.check(tracker, index)
    verdicts.settle(start, stop)
