"""What a verdict does: the awaitables of ack, nack and committed."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple

from reactive_kafka.clock import Clock
from reactive_kafka.commit.metadata.user import check_metadata
from reactive_kafka.commit.tracker import OffsetTracker
from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.errors import BrokerError, ChannelClosedError, CheckpointError, NotOwnerError, describe, text_of
from reactive_kafka.failure.strategies import check_replacement
from reactive_kafka.observe.events import HandlerFailed, Observer
from reactive_kafka.observe.facts import PartitionTotals
from reactive_kafka.records import Record, TopicPartition
from reactive_kafka.tasks import Spawn
from reactive_kafka.verdicts.delivery import D, Delivery
from reactive_kafka.verdicts.futures import AckFutures, follow
from reactive_kafka.verdicts.hook import OpenTransactions, Stored
from reactive_kafka.verdicts.message import MessageCheckpoint
from reactive_kafka.verdicts.nack import FailureRunner, Owes, Strategies


class Acknowledger:
    """Takes the verdicts of one channel's messages; the ``owner`` of each of its trackers.

    Args:
        commits_at_ack: An ack is complete when what could be committed by then is (``latest``).
        fail: Stops the channel, for the reason given; False if it was stopping or had failed before.
        progress: Called after an ack while somebody waits for room, or for the last acks of a drain.
    """

    def __init__(
        self,
        settings: IncomingSettings,
        strategies: Strategies,
        clock: Clock,
        observer: Observer,
        totals: Callable[[TopicPartition], PartitionTotals],
        spawn: Spawn,
        fail: Callable[[BaseException], bool],
        progress: Callable[[], None],
        *,
        commits_at_ack: bool = False,
    ) -> None:
        self.name = settings.name
        self.decode_key: Callable[[bytes | None], Any] | None = None
        self.awaited_by: set[object] = set()  # who waits for progress: acks tell them
        self.request_commit: Callable[[OffsetTracker], int] = _nobody_commits  # what position that is about
        self.storage: Stored | None = None  # with commit_strategy = "checkpoint"
        self.blocks: OpenTransactions | None = None  # its transactions that are open
        self.fail = fail
        self.failure: BaseException | None = None  # what the channel has failed for
        self._spawn = spawn
        self._settings = settings
        self._observer = observer
        self._totals = totals
        self._progress = progress
        self._commits_at_ack = commits_at_ack
        self._verdicts = AckFutures()
        self._nacks = FailureRunner(
            settings, strategies, self._verdicts, clock, observer, totals, spawn,
            fail=fail, settled=self._settled_by_strategy,
        )  # fmt: skip
        self._between: dict[OffsetTracker, list[Callable[[bool], None]]] = {}
        self._waiters: dict[OffsetTracker, list[_Waiter]] = {}
        self._failed: list[OffsetTracker] = []  # let go because the channel has failed
        self._asking: dict[tuple[OffsetTracker, int], Future[bool]] = {}

    # -- verdicts

    def ack(self, tracker: OffsetTracker, index: int, metadata: str | None = None) -> Future[bool]:
        """Settle a record; see :meth:`reactive_kafka.Message.ack`."""
        if metadata is not None:
            check_metadata(metadata)
        if not self._verdicts.is_here:
            return self._verdicts.from_thread(lambda: self.ack(tracker, index, metadata))
        if self.blocks:
            self.blocks.check(tracker, index)
        if not tracker.settle(index):
            return self._verdicts.no
        if metadata is not None:
            tracker.texts.supply(tracker.offset_of(index), metadata)
        return self._acked(tracker)

    def ack_up_to(self, tracker: OffsetTracker, index: int, metadata: str | None = None) -> Future[bool]:
        """Settle a record and those before it; see :meth:`reactive_kafka.Channel.ack_up_to`."""
        if metadata is not None:
            check_metadata(metadata)
        if not self._verdicts.is_here:
            return self._verdicts.from_thread(lambda: self.ack_up_to(tracker, index, metadata))
        if self.blocks:
            self.blocks.check_up_to(tracker, index)
        if not tracker.settle_up_to(index):
            return self._verdicts.no
        if metadata is not None:
            tracker.texts.supply(tracker.offset_of(index), metadata)
        return self._acked(tracker)

    def _acked(self, tracker: OffsetTracker) -> Future[bool]:
        if self._between and tracker in self._between:
            self._tell()
            return self._answer_later(tracker, lambda: self._settled(tracker))
        return self._settled(tracker)

    def was_stored(self, message: Delivery) -> None:
        """A record is settled, for a transaction of before has stored it."""
        if message.tracker.settle(message.index):
            self._acked(message.tracker)

    def nack(self, message: Delivery, reason: BaseException, record: Record | None = None) -> Future[bool]:
        """Give a record over to the failure strategy; see :meth:`reactive_kafka.Message.nack`."""
        if not isinstance(reason, BaseException):
            raise TypeError(f"nack() takes an exception, not {type(reason).__name__}")
        if record is not None:
            check_replacement(self.name, record)
        verdict = self._nack(message, lambda: self._nacks.carry_out(message, reason, record), is_by_hand=True)
        return self._verdicts.follow(verdict) if self._verdicts.is_here else verdict

    def failed(self, message: Delivery, reason: BaseException) -> Future[bool]:
        """The handler of a message failed for good: a transaction of it that is still open comes too late.

        A verdict of before stands, also where a transaction has stored the message: the failure is told then, and
        nothing more. Not even that where the partition has gone, for the record is another's to handle.
        """
        had_its_verdict = not (message.tracker.is_open(message.index) or message.tracker.is_closed)
        if had_its_verdict or (self.storage is not None and self.storage.has_stored(message)):
            self._raised_too_late(message, reason)
            return self._verdicts.no
        return self._nack(message, lambda: self._nacks.carry_out(message, reason, None))

    def dead_letter(self, message: Delivery, reason: BaseException) -> Future[bool]:
        """A record is poison, and goes to the dead letters: whatever its handler says comes too late."""
        return self._nack(message, lambda: self._nacks.dead_letter(message, reason))

    def _nack(
        self, message: Delivery, carry_out: Callable[[], Future[bool]], *, is_by_hand: bool = False
    ) -> Future[bool]:
        if not self._verdicts.is_here:
            return self._verdicts.from_thread(lambda: self._nack(message, carry_out, is_by_hand=is_by_hand))
        tracker = message.tracker
        if self.blocks and is_by_hand:
            self.blocks.check(tracker, message.index)
        elif self.blocks and self.storage is not None:
            self.storage.refuse(message)
        if self.storage is not None and tracker.is_open(message.index) and self.storage.may_have_stored(message):
            return self._nack_when_told(self.storage, message, carry_out)
        return self._nack_now(message, carry_out)

    def _nack_now(self, message: Delivery, carry_out: Callable[[], Future[bool]]) -> Future[bool]:
        tracker = message.tracker
        if not tracker.nack(message.index):
            return self._verdicts.no
        if self.storage is not None:
            self.storage.nacked(tracker, message.offset)
        self._tell()
        if self._between and tracker in self._between:
            verdict = self._answer_later(tracker, carry_out)
            self._nacks.owes(tracker, message.index, verdict)  # also before it is known whether it counts
            return verdict
        verdict = carry_out()
        if not verdict.done():
            verdict.add_done_callback(lambda _: self._tell())  # a drain waits for what is being carried out
        return verdict

    def _nack_when_told(
        self, storage: Stored, message: Delivery, carry_out: Callable[[], Future[bool]]
    ) -> Future[bool]:
        """Nack a record when the store has told that no transaction has stored it, nor will: it is never both."""
        at = message.tracker, message.index
        if at in self._asking:
            return self._asking[at]
        answer = self._asking[at] = self._verdicts.pending()

        async def run() -> None:
            verdict = self._verdicts.no
            try:
                await storage.find_out(message)
                del self._asking[at]
                verdict = self._nack_now(message, carry_out)
            except BrokerError:
                pass  # the partition or the channel goes: the record is left, and the row tells who comes next
            finally:
                self._asking.pop(at, None)
                follow(verdict, answer)

        self._nacks.owes(*at, answer)
        self._spawn(run, f"outcome of {message.topic_partition} offset {message.offset}")
        return answer

    def carrying_out(self, tracker: OffsetTracker) -> int:
        """How many nacks of a partition's records are being carried out: dead letters on their way, for one."""
        return self._nacks.carrying_out(tracker) + sum(at[0] is tracker for at in self._asking)

    def settled(self, tracker: OffsetTracker) -> None:
        """Workers have settled records of a partition by themselves."""
        if self._commits_at_ack and not tracker.is_closed:
            self.request_commit(tracker)

    def tell_owed(self, owes: Owes) -> None:
        """Have *owes* called with each nack that takes its time."""
        self._nacks.owes = owes

    def verdict_of(self, message: Delivery) -> Future[bool] | None:
        """What a nack that is being carried out will come to; None if there is none."""
        asking = self._asking.get((message.tracker, message.index))
        return asking or self._nacks.pending(message.tracker, message.index)

    @property
    def not_ready(self) -> tuple[str, ...]:
        """What keeps nacked records from being settled."""
        return self._nacks.not_ready

    @property
    def is_awaited(self) -> bool:
        """Whether somebody waits for progress."""
        return bool(self.awaited_by)

    def _tell(self) -> None:
        if self.awaited_by:
            self._progress()

    def _settled(self, tracker: OffsetTracker) -> Future[bool]:
        """A record has been settled. True at once, or when what can be committed now is."""
        self._tell()
        if not self._commits_at_ack or tracker.is_closed:
            return self._verdicts.yes
        position = self.request_commit(tracker)
        if self._settings.commit_strategy != "latest" or position <= tracker.uncommitted_from:
            return self._verdicts.yes  # else one before it is unsettled, and nothing can be confirmed now
        future: Future[bool] = self._verdicts.pending()
        self._waiters.setdefault(tracker, []).append(_Waiter(position - 1, future, is_ack=True))
        return future

    def _settled_by_strategy(self, tracker: OffsetTracker) -> None:
        self._tell()
        self.settled(tracker)

    def each(self, messages: Sequence[D], settle: Callable[[D], Future[bool]]) -> Future[bool]:
        """Give each message the same verdict, or none of them; whether at least one took effect."""
        if not self._verdicts.is_here:
            return self._verdicts.from_thread(lambda: self.each(messages, settle))
        if self.blocks:
            for message in messages:
                self.blocks.check(message.tracker, message.index)
        return self._verdicts.any_of([settle(message) for message in messages])

    def raised_after_ack(self, message: Delivery, reason: BaseException) -> None:
        """A handler raised whose record was settled before it ran: that is told, and nothing more."""
        nacked = self._totals(message.topic_partition).nacked
        nacked[self._settings.ack] = nacked.get(self._settings.ack, 0) + 1
        self._raised_too_late(message, reason)

    def _raised_too_late(self, message: Delivery, reason: BaseException) -> None:
        self._observer.on(
            HandlerFailed(
                channel=self.name,
                partition=message.topic_partition,
                offset=message.offset,
                reason=describe(reason),
                error=reason,
            )
        )

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

    def _answer_later(self, tracker: OffsetTracker, if_it_counts: Callable[[], Future[bool]]) -> Future[bool]:
        future: Future[bool] = self._verdicts.pending()

        def tell(came_back: bool) -> None:
            if came_back:
                follow(if_it_counts(), future)
            elif not future.done():
                future.set_result(False)

        self._between[tracker].append(tell)
        return future

    # -- in the checkpoint store

    def checkpoint(self, message: Delivery) -> MessageCheckpoint:
        """See :attr:`reactive_kafka.Message.checkpoint`."""
        return self._storage_for("a state").checkpoint(message)

    def transaction(self, messages: Sequence[Delivery]) -> AbstractAsyncContextManager[Any]:
        """See :meth:`reactive_kafka.Message.transaction`."""
        return self._storage_for("a transaction").transaction(messages)

    def _storage_for(self, what: str) -> Stored:
        if self.storage is None:
            raise CheckpointError(
                f'channel {self.name!r} has no checkpoint store: {what} needs commit_strategy = "checkpoint"'
            )
        return self.storage

    @property
    def is_here(self) -> bool:
        """Whether the caller is on the loop's thread."""
        return self._verdicts.is_here

    def on_loop(self, call: Callable[[], Any]) -> Any:
        """What *call* answers on the loop, from whichever thread.

        Raises:
            NotOwnerError: The loop has ended.
        """
        if self._verdicts.is_here:
            return call()
        return self._verdicts.from_thread(lambda: self._made(call), self._raise_ended).result()

    def _raise_ended(self) -> None:
        raise NotOwnerError(f"channel {self.name!r} has ended: no partition is its own any more")

    def _made(self, call: Callable[[], Any]) -> Future[Any]:
        future = self._verdicts.pending()
        future.set_result(call())
        return future

    def begins(self, tracker: OffsetTracker, owner: str) -> None:
        """A partition is read with this tracker from here on, by the client of this name."""
        if self.storage is not None:
            self.storage.begins(tracker, owner)

    def begin_call(self, messages: Sequence[D]) -> Sequence[D]:
        """A handler is to be called with these messages, once or once more; those that it is to get."""
        return messages if self.storage is None else self.storage.begin_call(messages)

    def nacks_up_to(self, tracker: OffsetTracker, index: int) -> list[Future[bool]]:
        """What the nacks come to that are being carried out, of records up to this one."""
        asking = [answer for (its, at), answer in self._asking.items() if its is tracker and at <= index]
        return [*asking, *self._nacks.pending_up_to(tracker, index)]

    def stored(self, tracker: OffsetTracker, position: int) -> None:
        """A transaction has settled records, and stored the position behind them."""
        self._tell()
        self.confirmed(tracker, position)

    # -- committed()

    def committed(self, tracker: OffsetTracker, offset: int) -> Future[None]:
        """See :meth:`reactive_kafka.Message.committed`."""
        if self._settings.commit_strategy == "ignore":
            raise ChannelClosedError(
                f"channel {self.name!r} commits nothing (commit_strategy = 'ignore'): committed() would wait for ever"
            )
        if not self._verdicts.is_here:
            return self._verdicts.from_thread(
                lambda: self.committed(tracker, offset), lambda: self._check_stored(tracker, offset)
            )
        future: Future[None] = self._verdicts.pending()
        if _is_stored(tracker, offset):
            future.set_result(None)
        elif tracker.is_closed:
            self._refuse(future, tracker)
        else:
            self._waiters.setdefault(tracker, []).append(_Waiter(offset, future, is_ack=False))
        return future

    def confirmed(self, tracker: OffsetTracker, position: int) -> None:
        """The broker has stored *position*: who waits for a record before it goes on."""
        waiters = self._waiters.get(tracker)
        if not waiters:
            return
        for waiter in waiters:
            if waiter.offset < position and not waiter.future.done():
                waiter.future.set_result(True if waiter.is_ack else None)
        still = [waiter for waiter in waiters if not waiter.future.done()]
        if still:
            self._waiters[tracker] = still
        else:
            del self._waiters[tracker]

    def gone(self, tracker: OffsetTracker) -> None:
        """The partition is not ours any more: nobody need wait for its commits."""
        self.count_acks(tracker)
        self._nacks.gone(tracker)
        if self.failure is not None:
            self._failed.append(tracker)
        for waiter in self._waiters.pop(tracker, []):
            if waiter.future.done():
                continue
            if waiter.is_ack:
                waiter.future.set_result(False)
            else:
                self._refuse(waiter.future, tracker)

    def _refuse(self, future: Future[None], tracker: OffsetTracker) -> None:
        future.set_exception(self._not_owner(tracker))
        future.exception()  # whoever awaits it gets it; who does not need not read of it in the log

    def _check_stored(self, tracker: OffsetTracker, offset: int) -> None:
        if not _is_stored(tracker, offset):
            raise self._not_owner(tracker)

    def _not_owner(self, tracker: OffsetTracker) -> NotOwnerError:
        if self.failure is None or tracker not in self._failed:
            return NotOwnerError(f"{tracker.partition} was taken away before the record was committed")
        why = text_of(self.failure)
        error = NotOwnerError(f"channel {self.name!r} has failed before the record was committed: {why}")
        error.__cause__ = self.failure
        return error


class _Waiter(NamedTuple):
    offset: int
    """The position must be beyond this."""
    future: Future[Any]
    is_ack: bool


def _nobody_commits(tracker: OffsetTracker) -> int:
    """Where no member has the tracker."""
    return tracker.committable


def _is_stored(tracker: OffsetTracker, offset: int) -> bool:
    return tracker.committed is not None and tracker.committed > offset
