"""Writes records until the broker has them: by partition, in their order, in batches."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections import OrderedDict
from functools import partial

from anyio import CancelScope

from reactive_kafka.backoff import Backoff, Waits
from reactive_kafka.broker.client import Producer
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
from reactive_kafka.outgoing.outbox import Gathering, Line, Outbound, Outbox, Partitioner, part_of
from reactive_kafka.outgoing.waiting import Waiting
from reactive_kafka.outgoing.watch import BrokerWatch
from reactive_kafka.records import TopicPartition
from reactive_kafka.tasks import Spawn, Work, is_set_within

BACKOFF = Backoff(0.25, 5.0)
ENOUGH = 1_000
"""With so many records for a partition none waits for more."""
FLUSH_S = 10.0
"""How long a stop without a deadline waits for what is on its way."""


class Writer:
    """Writes the records of one channel. At most *max_in_flight* of them wait for the broker at a
    time.

    A broker that is away, or a topic that is missing, is tried again for as long as it takes.
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
        partitioner: Partitioner | None = None,
    ) -> None:
        self.name = name
        self._producer = producer
        self._clock = clock
        self._observer = observer
        self._spawn = spawn
        self._linger_s = linger_s
        # Set when there is no need to wait any longer.
        self._lingering: dict[TopicPartition, asyncio.Event] = {}
        self.why_full = f"outgoing channel {name!r}: {max_in_flight} records wait for the broker (max_in_flight)"
        self._outbox = Outbox(
            max_in_flight,
            producer.key_hash,
            self._released,
            partitioner,
            self._begin,
            lingers=linger_s > 0,
        )
        # itself: a call in between would be a tenth of a record's way.
        self.take = self._outbox.accept
        # Topics whose partitions are being looked up.
        self._asked: set[str] = set()
        # For room, in the order in which they came.
        self._waiting: OrderedDict[Future[None], None] = OrderedDict()
        # Set when records have left, for whoever waits for an end of them.
        self._left = asyncio.Event()
        self._scopes: set[CancelScope] = set()
        self._broker_error: str | None = "connecting"
        # What stands there may be over without a write that says so.
        self._may_pass = False
        self.watch = BrokerWatch(name, producer.check, clock, observer, self._answered)
        self._failure: str | None = None
        # What is new is refused, and what was accepted is written.
        self._is_stopping = False
        self._is_closed = False
        self._sent = {"ok": 0, "failed": 0}
        self._durations = DurationHistogram()

    def start(self, topic: str = "", *, watches: bool = True) -> None:
        """Connect in the background, and go on trying where no broker answers; a missing *topic* is
        told from then.

        Args:
            watches: Whether the brokers are asked, from then on, if they are there. Not needed
                where others ask them.
        """

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
        """What connects or writes has ended with what is no answer of the broker's: a bug, and only
        a restart helps.
        """
        self._failure = describe(error)
        self._observer.on(ChannelFailed(channel=self.name, reason=self._failure, error=error))

    async def stop(self, deadline: float | None = None) -> None:
        """Write what was accepted, until *deadline* (monotonic; None: for some seconds), tell what
        is left, close.
        """
        # Or who goes on sending would keep it from its end.
        self._is_stopping = True
        self._outbox.accept_no_more()
        within_s = FLUSH_S if deadline is None else max(0.0, deadline - self._clock.monotonic())
        for more in self._lingering.values():
            more.set()
        try:
            async with asyncio.timeout(within_s):
                while self._outbox.in_flight:
                    await _next(self._left)
        except TimeoutError:
            pass
        self._is_closed = True
        self._left.set()
        wanted = [one for one in self._outbox.left() if not one.is_over]
        if wanted:
            reason = self._broker_error or f"no answer within {within_s:g} s"
            self._observer.on(Unwritten(channel=self.name, records=len(wanted), reason=reason))
        for one in wanted:
            one.fail(_closed(self.name))
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_exception(_closed(self.name))
        self._waiting.clear()
        for scope in list(self._scopes):
            scope.cancel()
        await self._producer.stop()

    async def flush(self) -> None:
        """Wait until the broker has, or has refused, all that was accepted before.

        ChannelClosedError: the channel has stopped before that.
        """
        for more in self._lingering.values():
            more.set()
        # Held here, so that no other record gets the id of one of them.
        before = list(self._outbox.left())
        waiting = set(map(id, before))
        while waiting := waiting.intersection(map(id, self._outbox.left())):
            if self._is_closed:
                raise _closed(self.name)
            await _next(self._left)

    async def write(self, outbound: Outbound) -> None:
        """Write a record; returns when the broker has it. RejectedRecordError: it refuses this
        record.

        Cancellation: The record may be written all the same, if that has begun.
        """
        done: Future[None] = asyncio.get_running_loop().create_future()
        receipt = Gathering(partial(settle, done))
        try:
            await self.put(outbound, receipt)
            receipt.seal()
            await done
        finally:
            receipt.void()

    async def put(self, outbound: Outbound, receipt: Gathering) -> None:
        """Accept a record when there is room for it; *receipt* is told what becomes of it.

        ChannelClosedError: the channel stops.
        """
        has_waited = not self.has_room
        if has_waited:
            await self._room()
            # put_now counts it itself.
            self._outbox.in_flight -= 1
        receipt.expect()
        self.put_now(
            part_of(outbound, receipt), outbound.topic, outbound.partition, has_waited=has_waited
        )

    async def _room(self) -> None:
        """Wait for our turn, and enter. ChannelClosedError: the channel stops."""
        if self._is_stopping:
            raise _closed(self.name)
        here: Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[here] = None
        try:
            await here
        except asyncio.CancelledError:
            self._waiting.pop(here, None)
            if here.done() and not here.cancelled():
                # It was our turn already, and is the next one's now.
                self._outbox.leave(1)
            raise

    @property
    def has_room(self) -> bool:
        """Whether a record is accepted at once."""
        return self._outbox.room > 0 and not self._waiting

    def put_now(
        self,
        waiting: Waiting,
        topic: str,
        partition: int | None = None,
        *,
        has_waited: bool = False,
    ) -> None:
        """Accept a record, whether or not there is room.

        ChannelClosedError: the channel stops; what *has_waited* since before that is still taken
        while it writes.
        """
        if self._is_closed or (self._is_stopping and not has_waited):
            raise _closed(self.name)
        self._outbox.enter()
        line = self._outbox.place(waiting, topic, partition)
        if line is None:
            self._look_up(topic)
        else:
            self._begin(line)

    def _look_up(self, topic: str) -> None:
        if topic not in self._asked and self._outbox.waits_for(topic):
            self._asked.add(topic)
            self._background(partial(self._find, topic), f"look up {topic}")

    def _begin(self, line: Line) -> None:
        if not line.is_worked:
            line.is_worked = True
            self._background(partial(self._work, line), f"write to {line.to}")
        elif line.to in self._lingering and _is_enough(line, self._outbox):
            self._lingering[line.to].set()

    async def _find(self, topic: str) -> None:
        """Ask for the partitions of a topic until they are known, or nobody waits for that any
        more.
        """
        waits = Waits(BACKOFF)
        try:
            while records := self._outbox.waits(topic):
                try:
                    partitions = await self._producer.partitions(topic)
                except BrokerError as error:
                    self._tell(topic, error, records)
                    await asyncio.sleep(waits.next_s())
                except BaseException as error:
                    self._outbox.unknown(
                        topic, _reason(error, f"look up {topic}", is_closed=self._is_closed)
                    )
                else:
                    for line in self._outbox.found(topic, partitions):
                        self._begin(line)
        finally:
            self._asked.discard(topic)

    async def _work(self, line: Line) -> None:
        """Write what stands in a line, batch by batch, until it is empty."""
        waits = Waits(BACKOFF)
        topic = line.to.topic
        try:
            if self._linger_s:
                await self._linger(line)
            while records := line.batch():
                started = self._clock.monotonic()
                try:
                    written = await self._producer.write(line.to, records)
                except RejectedRecordError as error:
                    if line.refused(error):
                        self._tell(topic, error, 1)
                except BrokerError as error:
                    self._tell(topic, error, len(records))
                    await asyncio.sleep(waits.next_s())
                except BaseException as error:
                    # Whatever else the client says is about what it was given.
                    line.refused(_reason(error, f"write to {line.to}", is_closed=self._is_closed))
                else:
                    waits.progressed()
                    self._broker_error = None
                    self.watch.heard()
                    self._sent["ok"] += written.count
                    self._durations.observe(self._clock.monotonic() - started, written.count)
                    line.written(written.offset, written.count)
                # It may have got more of them; or it was made anew with fewer, and refuses what
                # goes to the others.
                if known := self._producer.known_partitions(topic):
                    self._outbox.found(topic, known)
        finally:
            line.is_worked = False

    async def _linger(self, line: Line) -> None:
        """Wait for more records, unless there are enough."""
        more = self._lingering[line.to] = asyncio.Event()
        try:
            if not (self._is_stopping or _is_enough(line, self._outbox)):
                await is_set_within(more, self._linger_s)
        finally:
            del self._lingering[line.to]

    def _tell(self, topic: str, error: BrokerError, records: int) -> None:
        if not isinstance(error, RejectedRecordError):
            self._broker_error = str(error)
            self._may_pass = isinstance(error, TransientBrokerError)
        self._sent["failed"] += records
        self._observer.on(SendFailed(channel=self.name, topic=topic, reason=str(error)))

    def _answered(self) -> None:
        """A broker answers. Where nothing waits to be written any more no write will say that the
        trouble is over.
        """
        if self._may_pass and not self._outbox.in_flight:
            self._broker_error = None

    def _released(self) -> None:
        """Records have left: there may be room for others."""
        while self._waiting and self._outbox.room > 0:
            here, _ = self._waiting.popitem(last=False)
            if not here.done():
                # On behalf of whoever waits there, so that nobody comes before.
                self._outbox.enter()
                here.set_result(None)
        self._left.set()

    def facts(self) -> OutgoingFacts:
        """What is known about the writing now."""
        return OutgoingFacts(
            channel=self.name,
            broker_error=self._broker_error or self.watch.silence,
            in_flight=self._outbox.in_flight,
            sent=dict(self._sent),
            send_durations=self._durations,
            failure=self._failure,
        )


def _is_enough(line: Line, outbox: Outbox) -> bool:
    return len(line.waiting) >= ENOUGH or outbox.room <= 0


async def _next(event: asyncio.Event) -> None:
    """Wait until it is set again."""
    event.clear()
    await event.wait()


def _closed(name: str) -> ChannelClosedError:
    return ChannelClosedError(f"outgoing channel {name!r} has stopped")


def _reason(error: BaseException, task: str, *, is_closed: bool) -> BaseException:
    """Why records are not written, of what is no answer of the broker's; raises what means us, and
    not them.
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
    """Complete a future, which its caller may have cancelled."""
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
