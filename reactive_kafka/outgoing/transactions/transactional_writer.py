"""The writer of a transactional channel: a record that is sent alone gets a transaction."""

from __future__ import annotations

import asyncio
from asyncio import Future
from functools import partial

from anyio import CancelScope

from reactive_kafka.backoff import Waits
from reactive_kafka.broker.key_hashes import KeyHash
from reactive_kafka.clock import Clock
from reactive_kafka.errors import (
    BrokerError,
    ChannelClosedError,
    ConfigError,
    EncodeError,
    OutcomeUnknownError,
    RejectedRecordError,
    describe,
)
from reactive_kafka.observe.events import ChannelFailed, Observer, SendFailed
from reactive_kafka.observe.facts import OutgoingFacts
from reactive_kafka.observe.topic_access import TopicAccessReports
from reactive_kafka.outgoing.queue.broker_watch import BrokerWatch
from reactive_kafka.outgoing.queue.receipt import CallbackReceipt, Receipt
from reactive_kafka.outgoing.queue.record import OutgoingRecord, QueuedRecord
from reactive_kafka.outgoing.queue.send_queue import Partitioner
from reactive_kafka.outgoing.queue.writer import BACKOFF, FLUSH_S
from reactive_kafka.outgoing.transactions.producers import TransactionalProducers
from reactive_kafka.outgoing.transactions.transaction import Sender
from reactive_kafka.tasks import Spawn, Work


class TransactionalWriter(Sender):
    """Used like a :class:`~reactive_kafka.outgoing.queue.writer.Writer` by channels and emitters.

    Handlers and emitters that send several records begin transactions of ``producers`` instead.
    """

    # A record is never accepted at once: its caller waits for the end of the transaction.
    has_room = False

    def __init__(
        self,
        name: str,
        producers: TransactionalProducers,
        clock: Clock,
        observer: Observer,
        spawn: Spawn,
        partitioner: KeyHash | Partitioner | None,
    ) -> None:
        super().__init__(partitioner)
        self.name = name
        self.producers = producers
        self._clock = clock
        self._observer = observer
        self._spawn = spawn
        self._scopes: list[CancelScope] = []
        # Why the partitions of the topic could not be looked up; None: they are known.
        self._topic_problem: str | None = None
        self.watch = BrokerWatch(name, producers.check, clock, observer)
        self._failure: str | None = None
        # One for each record that is being sent. The result is True if the channel stopped first.
        self._unfinished: set[Future[bool]] = set()

    def start(self, topic: str) -> None:
        """Claim an id in the background, and claim ids again after errors.

        From now on a missing *topic* is reported.
        """
        self._background(partial(self._find, topic), f"outgoing {self.name}")
        self._background(self._mend, f"transactions of {self.name}")
        self._background(self.watch.run, f"brokers of {self.name}")

    def _background(self, work: Work, name: str) -> None:
        async def run() -> None:
            with CancelScope() as scope:
                self._scopes.append(scope)
                await work()

        self._spawn(run, name)

    async def _find(self, topic: str) -> None:
        waits = Waits(BACKOFF)
        reach = TopicAccessReports(self.name, topic, self._observer)
        while True:
            try:
                await self.producers.partitions(topic)
            except BrokerError as error:
                self._topic_problem = str(error)
                reach.failed(error, self._clock.monotonic())
                await asyncio.sleep(waits.next_s())
            else:
                self._topic_problem = None
                reach.found()
                return

    async def _mend(self) -> None:
        # This is a separate task: transactions of other topics, or of positions alone, need not
        # wait until the topic is found.
        waits = Waits(BACKOFF)
        while True:
            await self.producers.trouble.wait()
            # A transaction that is retried meanwhile claims its id itself.
            await asyncio.sleep(waits.next_s())
            try:
                await self.producers.mend()
            except BrokerError as error:
                self.producers.error = str(error)
            else:
                waits.progressed()

    def fail(self, error: BaseException) -> None:
        """As :meth:`Writer.fail`."""
        self._failure = describe(error)
        self._observer.on(ChannelFailed(channel=self.name, reason=self._failure, error=error))

    async def put(self, outgoing: OutgoingRecord, receipt: CallbackReceipt) -> None:
        """Write a record in a transaction, and retry until the broker has it.

        A record that the broker refuses fails *receipt*.

        Raises:
            ChannelClosedError: The channel stops.
        """
        receipt.expect()
        sending: Future[bool] = asyncio.get_running_loop().create_future()
        self._unfinished.add(sending)
        has_stopped = False
        try:
            waits = Waits(BACKOFF)
            while True:
                if receipt.is_over or await self._attempt(outgoing, receipt):
                    return
                await asyncio.sleep(waits.next_s())
        except ChannelClosedError:
            has_stopped = True
            raise
        finally:
            self._unfinished.remove(sending)
            sending.set_result(has_stopped)

    async def _attempt(self, outgoing: OutgoingRecord, receipt: Receipt) -> bool:
        """Try once; False if it should be tried again."""
        transaction = self.producers.begin()
        try:
            await transaction.put([(self, outgoing)])
            await transaction.write()
            at = transaction.at
            offset = transaction.offset
            # It was written.
            assert at is not None  # noqa: S101
            await transaction.commit()
        except (EncodeError, RejectedRecordError, OutcomeUnknownError) as error:
            # If the outcome is unknown, another attempt might write the record twice.
            receipt.fail(error)
        except BrokerError as error:
            self.send_failed(outgoing.topic, error)
            return False
        else:
            # The receipt is not sealed yet, so it reports later and needs the offset here.
            receipt.at = at
            receipt.offset = offset
            receipt.written(at, offset)
        finally:
            await transaction.close()
        return True

    def send_failed(self, topic: str, error: BrokerError) -> None:
        """Report that a transaction with a record for *topic* has failed."""
        self.sent["failed"] += 1
        self._observer.on(SendFailed(channel=self.name, topic=topic, reason=str(error)))

    def put_now(self, record: QueuedRecord, topic: str, partition: int | None = None) -> None:
        """Refuse: the caller would never learn how the transaction ended.

        Raises:
            ConfigError: Always.
        """
        raise ConfigError(
            f"outgoing channel {self.name!r} is transactional: "
            "send within `async with emitter.transaction()`, or await"
        )

    def accept(self, record: QueuedRecord, topic: str) -> bool:
        """Return False: nothing is accepted at once."""
        return False

    async def flush(self) -> None:
        """Wait for the transaction of every record that is being sent alone.

        Transactions of several records are not waited for: the caller may be inside of one.

        Raises:
            ChannelClosedError: The channel has stopped before that.
        """
        before = list(self._unfinished)
        if not before:
            return
        await asyncio.wait(before)
        if any(sending.result() for sending in before):
            raise ChannelClosedError(f"outgoing channel {self.name!r} has stopped")

    async def stop(self, deadline: float | None = None) -> None:
        """Wait for open transactions, abort those that are still open, and close.

        Args:
            deadline: Monotonic, in seconds; the wait ends after ``FLUSH_S`` at the latest.
        """
        for scope in self._scopes:
            scope.cancel()
        left_s = FLUSH_S if deadline is None else max(0.0, deadline - self._clock.monotonic())
        await self.producers.stop(min(left_s, FLUSH_S))

    def facts(self) -> OutgoingFacts:
        """As :meth:`Writer.facts`."""
        return OutgoingFacts(
            channel=self.name,
            broker_error=self._topic_problem or self.producers.error or self.watch.silence,
            in_flight=len(self._unfinished),
            sent=dict(self.sent),
            send_durations=self.durations,
            failure=self._failure,
        )
