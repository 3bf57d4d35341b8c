"""What a transactional channel has in the place of a writer: each record that is sent by itself has
a transaction.
"""

from __future__ import annotations

import asyncio
from functools import partial

from anyio import CancelScope

from reactive_kafka.backoff import Waits
from reactive_kafka.clock import Clock
from reactive_kafka.errors import (
    BrokerError,
    ConfigError,
    EncodeError,
    OutcomeUnknownError,
    RejectedRecordError,
    describe,
)
from reactive_kafka.observe.events import ChannelFailed, Observer, SendFailed
from reactive_kafka.observe.facts import OutgoingFacts
from reactive_kafka.observe.topic_access import TopicAccessReports
from reactive_kafka.outgoing.outbox import Gathering, Outbound, Partitioner, Receipt
from reactive_kafka.outgoing.transactions import Sender, TransactionalProducers
from reactive_kafka.outgoing.waiting import Waiting
from reactive_kafka.outgoing.watch import BrokerWatch
from reactive_kafka.outgoing.writer import BACKOFF, FLUSH_S
from reactive_kafka.tasks import Spawn, Work


class TransactionalWriter(Sender):
    """Has the face of a :class:`~reactive_kafka.outgoing.writer.Writer`; handlers and emitters
    begin transactions.
    """

    # Nothing is accepted at once.
    has_room = False

    def __init__(
        self,
        name: str,
        producers: TransactionalProducers,
        clock: Clock,
        observer: Observer,
        spawn: Spawn,
        partitioner: Partitioner | None,
    ) -> None:
        super().__init__(partitioner)
        self.name = name
        self.producers = producers
        self._clock = clock
        self._observer = observer
        self._spawn = spawn
        self._scopes: list[CancelScope] = []
        # Why nobody can say how many partitions the topic has.
        self._not_found: str | None = None
        self.watch = BrokerWatch(name, producers.check, clock, observer)
        self._failure: str | None = None
        self._waiting = 0

    def start(self, topic: str) -> None:
        """Claim an id in the background, and again after each trouble; a missing *topic* is told
        from now on.
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
                self._not_found = str(error)
                reach.failed(error, self._clock.monotonic())
                await asyncio.sleep(waits.next_s())
            else:
                self._not_found = None
                reach.found()
                return

    async def _mend(self) -> None:
        # Beside the search for the topic: transactions of other topics, or of positions alone, do
        # not wait for that.
        waits = Waits(BACKOFF)
        while True:
            await self.producers.trouble.wait()
            # A transaction that is tried again does it by itself.
            await asyncio.sleep(waits.next_s())
            try:
                await self.producers.mend()
            except BrokerError as error:
                self.producers.error = str(error)
            else:
                waits.progressed()

    def fail(self, error: BaseException) -> None:
        """As a writer's."""
        self._failure = describe(error)
        self._observer.on(ChannelFailed(channel=self.name, reason=self._failure, error=error))

    async def put(self, outbound: Outbound, receipt: Gathering) -> None:
        """Write a record in a transaction of its own; tried until the broker has it, or the
        application stops.

        Raises as :meth:`Writer.put`, and RejectedRecordError.
        """
        receipt.expect()
        self._waiting += 1
        try:
            waits = Waits(BACKOFF)
            while True:
                if receipt.is_over or await self._put(outbound, receipt):
                    return
                await asyncio.sleep(waits.next_s())
        finally:
            self._waiting -= 1

    async def _put(self, outbound: Outbound, receipt: Receipt) -> bool:
        """One attempt; False: it may be tried again."""
        transaction = self.producers.begin()
        try:
            await transaction.put([(self, outbound)])
            await transaction.write()
            at = transaction.at
            offset = transaction.offset
            # It was written.
            assert at is not None  # noqa: S101
            await transaction.commit()
        except (EncodeError, RejectedRecordError, OutcomeUnknownError) as error:
            # Of unknown outcome: sent again, it might stand there twice.
            receipt.fail(error)
        except BrokerError as error:
            self.tell(outbound.topic, error)
            return False
        else:
            # It is not sealed yet, so this is not its end.
            receipt.at = at
            receipt.offset = offset
            receipt.written(at, offset)
        finally:
            await transaction.close()
        return True

    def tell(self, topic: str, error: BrokerError) -> None:
        """A transaction with a record for *topic* has failed."""
        self.sent["failed"] += 1
        self._observer.on(SendFailed(channel=self.name, topic=topic, reason=str(error)))

    def put_now(self, waiting: Waiting, topic: str, partition: int | None = None) -> None:
        """Refused: nobody would hear how its transaction ends. ConfigError."""
        raise ConfigError(
            f"outgoing channel {self.name!r} is transactional: send within `async with emitter.transaction()`, or await"
        )

    def take(self, waiting: Waiting, topic: str) -> bool:
        """Nothing is accepted at once."""
        return False

    async def flush(self) -> None:
        """Nothing waits here: whoever sends waits for the end of the transaction."""

    async def stop(self, deadline: float | None = None) -> None:
        """Wait some seconds for open transactions, not beyond *deadline* (monotonic), abort the
        others, and close.
        """
        for scope in self._scopes:
            scope.cancel()
        left_s = FLUSH_S if deadline is None else max(0.0, deadline - self._clock.monotonic())
        await self.producers.stop(min(left_s, FLUSH_S))

    def facts(self) -> OutgoingFacts:
        """As a writer's."""
        return OutgoingFacts(
            channel=self.name,
            broker_error=self._not_found or self.producers.error or self.watch.silence,
            in_flight=self._waiting,
            sent=dict(self.sent),
            send_durations=self.durations,
            failure=self._failure,
        )
