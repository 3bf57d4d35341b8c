"""Writes the records of a channel until the broker has them: by partition, in order, in batches."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections import OrderedDict
from functools import partial

from anyio import CancelScope

from reactive_kafka.backoff import Backoff, Waits
from reactive_kafka.broker.client import Producer
from reactive_kafka.broker.key_hashes import KeyHash
from reactive_kafka.clock import Clock
from reactive_kafka.errors import (
    BrokerError,
    ChannelClosedError,
    RejectedRecordError,
    TransientBrokerError,
    UnexpectedEndError,
    describe,
)
from reactive_kafka.observe.events import ChannelFailed, Observer, SendFailed, Unwritten
from reactive_kafka.observe.facts import DurationHistogram, OutgoingFacts
from reactive_kafka.observe.topic_access import TopicAccessReports
from reactive_kafka.outgoing.queue.broker_watch import BrokerWatch
from reactive_kafka.outgoing.queue.receipt import CallbackReceipt, receipted
from reactive_kafka.outgoing.queue.record import OutgoingRecord, QueuedRecord
from reactive_kafka.outgoing.queue.send_queue import Partitioner, PartitionQueue, SendQueue
from reactive_kafka.outgoing.send_watch import SendWatch
from reactive_kafka.records import TopicPartition
from reactive_kafka.tasks import Flag, Spawn, Work, is_set_within

BACKOFF = Backoff(0.25, 5.0)

ENOUGH = 1_000
"""A partition with so many records does not linger for more."""

FLUSH_S = 10.0
"""How long a stop without a deadline waits for what is on its way."""


class Writer:
    """Writes the records of one outgoing channel.

    A write that fails because a broker is away or a topic is missing is repeated for as long as it
    takes.

    Args:
        max_in_flight: How many records may wait for the broker at a time.
        linger_s: How long the first record of a batch waits for others, in seconds.
        watch: Sees each record that is accepted; None: nothing does.
    """

    def __init__(
        self,
        name: str,
        producer: Producer,
        clock: Clock,
        observer: Observer,
        spawn: Spawn,
        *,
        max_in_flight: int,
        linger_s: float = 0.0,
        partitioner: KeyHash | Partitioner | None = None,
        watch: SendWatch | None = None,
    ) -> None:
        self.name = name
        self._producer = producer
        self._watch = watch
        self._clock = clock
        self._observer = observer
        self._spawn = spawn
        self._linger_s = linger_s
        # Set to end the lingering of a partition early.
        self._lingering: dict[TopicPartition, Flag] = {}
        self.why_full = (
            f"outgoing channel {name!r}: "
            f"{max_in_flight} records wait for the broker (max_in_flight)"
        )
        self._queue = SendQueue(
            max_in_flight,
            producer.key_hash,
            self._let_in,
            partitioner,
            self._begin,
            lingers=linger_s > 0,
        )
        # The method itself: a call in between would be a tenth of a record's time.
        self.accept = self._queue.accept
        if watch is not None:
            # The shortcut passes the watch by, so it refuses every record.
            self.accept = _refuse
        # Topics whose partitions are being looked up.
        self._looked_up: set[str] = set()
        # The topic of the channel; "": none.
        self._topic = ""
        # Callers that wait for room, first come, first served.
        self._callers: OrderedDict[Future[None], None] = OrderedDict()
        # Set whenever records have left the queue.
        self._left = Flag()
        self._scopes: set[CancelScope] = set()
        self._broker_error: str | None = "connecting"
        # The error may pass without a write that shows it.
        self._may_pass = False
        # Whether the channel's topic can be written to is being found out.
        self._is_looking = False
        self.watch = BrokerWatch(name, producer.check, clock, observer, self._broker_answered)
        self._failure: str | None = None
        # New records are refused, and accepted ones are still written.
        self._is_stopping = False
        self._is_closed = False
        self._sent = {"ok": 0, "failed": 0}
        self._durations = DurationHistogram()

    def start(self, topic: str = "", *, watches: bool = True) -> None:
        """Connect in the background, and retry while no broker answers.

        Args:
            topic: Report from now on if this topic is missing.
            watches: Ask the brokers from time to time whether they are there. False where another
                writer of the same cluster does that.
        """

        self._topic = topic

        async def connect() -> None:
            waits = Waits(BACKOFF)
            reach = TopicAccessReports(self.name, topic, self._observer)
            while True:
                try:
                    await self._producer.start()
                    if topic:
                        await self._producer.partitions(topic)
                except BrokerError as error:
                    self._broker_error = str(error)
                    if topic:
                        reach.failed(error, self._clock.monotonic())
                    await asyncio.sleep(waits.next_s())
                else:
                    self._broker_error = None
                    reach.found()
                    break
            if watches:
                await self.watch.run()

        self._background(connect, f"outgoing {self.name}")

    def _background(self, work: Work, name: str) -> None:
        async def run() -> None:
            with CancelScope() as scope:
                self._scopes.add(scope)
                try:
                    await work()
                finally:
                    self._scopes.discard(scope)

        self._spawn(run, name)

    def fail(self, error: BaseException) -> None:
        """Report that a task of the writer has ended with a bug: only a restart helps."""
        self._failure = describe(error)
        self._observer.on(ChannelFailed(channel=self.name, reason=self._failure, error=error))

    async def stop(self, deadline: float | None = None) -> None:
        """Write what was accepted, fail what is left at *deadline*, and close.

        Args:
            deadline: Monotonic, in seconds; None: ``FLUSH_S`` from now.
        """
        # Before the wait: callers that keep sending would make it endless.
        self._is_stopping = True
        self._queue.accept_no_more()
        within_s = FLUSH_S if deadline is None else max(0.0, deadline - self._clock.monotonic())
        for more in self._lingering.values():
            more.set()
        try:
            async with asyncio.timeout(within_s):
                while self._queue.in_flight:
                    await _next(self._left)
        except TimeoutError:
            pass
        self._is_closed = True
        self._left.set()
        self._fail_unwritten(self._broker_error or f"no answer within {within_s:g} s")
        for caller in self._callers:
            if not caller.done():
                caller.set_exception(_closed(self.name))
        self._callers.clear()
        for scope in list(self._scopes):
            scope.cancel()
        await self._producer.stop()

    def _fail_unwritten(self, reason: str) -> None:
        unwritten = [record for record in self._queue.unwritten() if not record.is_over]
        if unwritten:
            self._observer.on(Unwritten(channel=self.name, records=len(unwritten), reason=reason))
        for record in unwritten:
            record.fail(_closed(self.name))

    async def flush(self) -> None:
        """Wait until the broker has, or has refused, every record that was accepted before.

        Raises:
            ChannelClosedError: The channel has stopped before that.
        """
        for more in self._lingering.values():
            more.set()
        # The list keeps the records alive, so that no new record gets the id of one of them.
        before = list(self._queue.unwritten())
        missing = set(map(id, before))
        while missing := missing.intersection(map(id, self._queue.unwritten())):
            if self._is_closed:
                raise _closed(self.name)
            await _next(self._left)

    async def write(self, outgoing: OutgoingRecord) -> None:
        """Write a record; returns when the broker has it.

        Raises:
            RejectedRecordError: The broker refuses this record.

        Cancellation:
            The record may be written all the same, if that has begun.
        """
        done: Future[None] = asyncio.get_running_loop().create_future()
        receipt = CallbackReceipt(partial(settle, done))
        try:
            await self.put(outgoing, receipt)
            receipt.seal()
            await done
        finally:
            receipt.void()

    async def put(self, outgoing: OutgoingRecord, receipt: CallbackReceipt) -> None:
        """Accept a record when there is room for it; its outcome goes to *receipt*.

        Raises:
            ChannelClosedError: The channel stops.
        """
        has_waited = not self.has_room
        if has_waited:
            await self._room()
            # _room has counted the record, and put_now counts it again.
            self._queue.in_flight -= 1
        receipt.expect()
        queued = receipted(outgoing, receipt)
        self.put_now(queued, outgoing.topic, outgoing.partition, has_waited=has_waited)

    async def _room(self) -> None:
        """Wait until it is our turn, and count our record.

        Raises:
            ChannelClosedError: The channel stops.
        """
        if self._is_stopping:
            raise _closed(self.name)
        turn: Future[None] = asyncio.get_running_loop().create_future()
        self._callers[turn] = None
        try:
            await turn
        except asyncio.CancelledError:
            self._callers.pop(turn, None)
            if turn.done() and not turn.cancelled():
                # It was our turn already: now it is the next caller's.
                self._queue.leave(1)
            raise

    @property
    def has_room(self) -> bool:
        """Whether a record is accepted at once."""
        return self._queue.room > 0 and not self._callers

    def put_now(
        self,
        record: QueuedRecord,
        topic: str,
        partition: int | None = None,
        *,
        has_waited: bool = False,
    ) -> None:
        """Accept a record, even if there is no room.

        Args:
            has_waited: Its caller waited for room since before the stop, so it is still accepted
                while the channel stops.

        Raises:
            ChannelClosedError: The channel stops.
        """
        if self._is_closed or (self._is_stopping and not has_waited):
            raise _closed(self.name)
        if self._watch is not None:
            record = self._watch.queued(record, topic, partition)
        self._queue.enter()
        queue = self._queue.place(record, topic, partition)
        if queue is None:
            self._look_up(topic)
        else:
            self._begin(queue)

    def _look_up(self, topic: str) -> None:
        if topic not in self._looked_up and self._queue.awaits_partitions(topic):
            self._looked_up.add(topic)
            self._background(partial(self._find, topic), f"look up {topic}")

    def _begin(self, queue: PartitionQueue) -> None:
        if not queue.is_being_written:
            queue.is_being_written = True
            self._background(partial(self._write_all, queue), f"write to {queue.partition}")
        elif queue.partition in self._lingering and self._has_enough(queue):
            self._lingering[queue.partition].set()

    async def _find(self, topic: str) -> None:
        """Look up the partitions of a topic until they are known, or no record waits for them."""
        waits = Waits(BACKOFF)
        try:
            while records := self._queue.awaiting_partitions(topic):
                try:
                    partitions = await self._producer.partitions(topic)
                except BrokerError as error:
                    self._send_failed(topic, error, records)
                    await asyncio.sleep(waits.next_s())
                except BaseException as error:
                    reason = _reason(error, f"look up {topic}", is_closed=self._is_closed)
                    self._queue.partitions_unknown(topic, reason)
                else:
                    for queue in self._queue.partitions_found(topic, partitions):
                        self._begin(queue)
        finally:
            self._looked_up.discard(topic)

    async def _write_all(self, queue: PartitionQueue) -> None:
        """Write the records of a partition, batch by batch, until none is left."""
        waits = Waits(BACKOFF)
        partition = queue.partition
        try:
            if self._linger_s:
                await self._linger(queue)
            while records := queue.next_batch():
                started = self._clock.monotonic()
                try:
                    written = await self._producer.write(partition, records)
                except RejectedRecordError as error:
                    if not self._follow_partitions(queue) and queue.refused(error):
                        self._send_failed(partition.topic, error, 1)
                except BrokerError as error:
                    self._send_failed(partition.topic, error, len(records))
                    await asyncio.sleep(waits.next_s())
                except BaseException as error:
                    # Any other error of the client is about the records that it was given.
                    reason = _reason(error, f"write to {partition}", is_closed=self._is_closed)
                    queue.refused(reason)
                else:
                    waits.progressed()
                    self._broker_error = None
                    self.watch.heard()
                    self._sent["ok"] += written.count
                    took_s = self._clock.monotonic() - started
                    self._durations.observe(took_s, written.count)
                    if self._watch is not None:
                        self._watch.written(records[0], self._durations, took_s)
                    queue.written(written.offset, written.count)
                self._follow_partitions(queue)
        finally:
            queue.is_being_written = False

    def _follow_partitions(self, queue: PartitionQueue) -> bool:
        """Go by the partitions that the topic has now, which may be more or fewer than before.

        Returns:
            Whether the partition is gone, and records of it were placed in others.
        """
        topic = queue.partition.topic
        known = self._producer.known_partitions(topic)
        if not known:
            return False
        self._queue.partitions_found(topic, known)
        return self._queue.place_again(queue)

    async def _linger(self, queue: PartitionQueue) -> None:
        """Wait for more records, unless there are enough."""
        more = Flag()
        self._lingering[queue.partition] = more
        try:
            if not (self._is_stopping or self._has_enough(queue)):
                await is_set_within(more, self._linger_s)
        finally:
            del self._lingering[queue.partition]

    def _has_enough(self, queue: PartitionQueue) -> bool:
        """Whether it is useless to wait for more records of a partition."""
        return len(queue.waiting) >= ENOUGH or self._queue.room <= 0

    def _send_failed(self, topic: str, error: BrokerError, records: int) -> None:
        if not isinstance(error, RejectedRecordError):
            self._broker_error = str(error)
            self._may_pass = isinstance(error, TransientBrokerError)
        self._sent["failed"] += records
        self._observer.on(SendFailed(channel=self.name, topic=topic, reason=str(error)))

    def _broker_answered(self) -> None:
        """Forget the last error if no write will show that it is over."""
        if self._broker_error is None or self._queue.in_flight:
            return
        if self._may_pass or not self._topic:
            self._broker_error = None
        elif not self._is_looking:
            # The failed record may have named another topic. And no write may follow that would
            # show the channel's topic to be fine: an application that is not ready gets no work.
            self._is_looking = True
            self._background(self._look_for_topic, f"look for {self._topic}")

    async def _look_for_topic(self) -> None:
        """Find out whether the channel's topic can be written to."""
        try:
            await self._producer.partitions(self._topic)
        except BrokerError as error:
            self._broker_error = str(error)
        else:
            self._broker_error = None
        finally:
            self._is_looking = False

    def _let_in(self) -> None:
        """Records have left: let in callers that wait for room."""
        while self._callers and self._queue.room > 0:
            turn, _ = self._callers.popitem(last=False)
            if not turn.done():
                # Count the record of this caller now, so that no other takes its place.
                self._queue.enter()
                turn.set_result(None)
        self._left.set()

    def facts(self) -> OutgoingFacts:
        """What health and metrics show of this channel."""
        return OutgoingFacts(
            channel=self.name,
            broker_error=self._broker_error or self.watch.silence,
            in_flight=self._queue.in_flight,
            sent=dict(self._sent),
            send_durations=self._durations,
            failure=self._failure,
        )


def _refuse(record: QueuedRecord, topic_name: str) -> bool:
    """Accept no record, in place of ``SendQueue.accept``."""
    return False


async def _next(flag: Flag) -> None:
    """Wait until *flag* is set again."""
    flag.clear()
    await flag.wait()


def _closed(name: str) -> ChannelClosedError:
    return ChannelClosedError(f"outgoing channel {name!r} has stopped")


def _reason(error: BaseException, task: str, *, is_closed: bool) -> BaseException:
    """Return why records cannot be written, for an error that is no answer of the broker.

    Raises:
        BaseException: *error* itself, where it ends this task or the process.
    """
    if isinstance(error, Exception):
        return error
    if isinstance(error, SystemExit | KeyboardInterrupt) or is_closed or _is_cancelled():
        raise error
    return UnexpectedEndError(task, error)


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def settle(done: Future[None], error: BaseException | None) -> None:
    """Complete a future, unless its caller has cancelled it."""
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
