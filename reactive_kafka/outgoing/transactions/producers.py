"""The producers of one transactional id, which transactions borrow and give back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from uuid import uuid4

from reactive_kafka.broker.client import BatchRefusedError, Connector, TransactionalProducer
from reactive_kafka.clock import Clock
from reactive_kafka.errors import (
    BrokerError,
    ChannelClosedError,
    RejectedRecordError,
    TransientBrokerError,
)
from reactive_kafka.outgoing.transactions.producer_places import ProducerPlace, ProducerPlaces
from reactive_kafka.outgoing.transactions.transaction import Transaction
from reactive_kafka.tasks import Flag, is_set_within

MOST_PRODUCERS = 16
"""Most transactions at a time: each producer has connections, and further transactions wait. The
last one is for a transaction that has partitions."""


class BorrowedProducer:
    """A transactional producer, and whether its state is known.

    Args:
        failed: Called with each error of the brokers.
    """

    def __init__(
        self, client: TransactionalProducer, failed: Callable[[BrokerError], None]
    ) -> None:
        self.client = client
        # False before it has claimed its id, and after a call that failed or was cancelled.
        self.is_sound = False
        # Of the transaction that has borrowed it.
        self.place = ProducerPlace.ANY
        self._failed = failed

    @contextmanager
    def calling(self) -> Iterator[None]:
        """Wrap a call that leaves the state of the producer unknown unless it returns."""
        self.is_sound = False
        try:
            yield
        except BrokerError as error:
            self._failed(error)
            raise
        self.is_sound = True

    async def claim(self) -> None:
        """Claim the transactional id, unless the producer has it."""
        if not self.is_sound:
            with self.calling():
                await self.client.claim()


class TransactionalProducers:
    """The producers of one ``transactional_id``; they are created when they are needed.

    Each producer has an id of its own, which begins with the ``transactional_id``. The ids contain
    a part that is random for each process, because two processes with the same id would fence each
    other. A process that was frozen cannot commit later all the same: the generation of its
    consumers and the broker's transaction timeout prevent that.
    """

    def __init__(
        self,
        prefix: str,
        connector: Connector,
        clock: Clock,
        name: str,
        properties: Mapping[str, object],
    ) -> None:
        self.prefix = prefix
        self.clock = clock
        self._make = partial(connector.transactional_producer, name=name, properties=properties)
        self._process_id = uuid4().hex[:8]
        self._free: list[BorrowedProducer] = []
        self._all: list[BorrowedProducer] = []
        self._places = ProducerPlaces(MOST_PRODUCERS)
        self._open: set[Transaction] = set()
        self._is_stopping = False
        self._is_closed = False
        self._idle = Flag()
        # Why the last call failed; None: it succeeded.
        self.error: str | None = "connecting"
        # Set when a call has failed, or the state of a producer is unknown: mend() clears it.
        self.trouble = Flag()

    def failed(self, error: BrokerError) -> None:
        """Note that a call of a producer has failed."""
        # With these errors the brokers have answered: they are not away.
        if not isinstance(error, RejectedRecordError | BatchRefusedError):
            self.error = str(error)
        self.trouble.set()

    async def mend(self) -> None:
        """Claim the ids of free producers whose state is unknown; that ends their transactions.

        Without it, a process that sends nothing more would never learn that the brokers are back.

        Raises:
            BrokerError: Try again.
        """
        while broken := [producer for producer in self._free if not producer.is_sound]:
            place = await self._places.take(has_partitions=False)
            # A transaction may have taken it in the meantime.
            if broken[0] not in self._free:
                self._places.give_back(place)
                continue
            self._free.remove(broken[0])
            try:
                await broken[0].claim()
            finally:
                self._free.append(broken[0])
                self._places.give_back(place)
        self.error = None
        self.trouble.clear()

    def begin(self) -> Transaction:
        """Return a new transaction, which the caller closes. It borrows a producer when needed.

        Raises:
            ChannelClosedError: The channel stops.
        """
        if self._is_stopping:
            raise ChannelClosedError(f"the transactions of {self.prefix!r} have stopped")
        transaction = Transaction(self)
        self._open.add(transaction)
        return transaction

    async def partitions(self, topic: str) -> int:
        """As :meth:`Producer.partitions`; a producer claims its id for it."""
        producer = await self.take(has_partitions=False)
        try:
            await producer.claim()
            found = await producer.client.partitions(topic)
            self.error = None
            return found
        finally:
            self.give_back(producer)

    async def check(self) -> None:
        """As :meth:`Producer.check`; does nothing before the first producer exists."""
        if self._all:
            await self._all[0].client.check()

    async def take(self, *, has_partitions: bool) -> BorrowedProducer:
        """Borrow a producer; :meth:`give_back` returns it.

        Args:
            has_partitions: The transaction is the only one of some partitions.

        Raises:
            TransientBrokerError: The channel has stopped.
        """
        place = await self._places.take(has_partitions=has_partitions)
        try:
            if self._is_closed:
                raise TransientBrokerError(f"the transactions of {self.prefix!r} have stopped")
            producer = self._free.pop() if self._free else self._made()
        except BaseException:
            self._places.give_back(place)
            raise
        producer.place = place
        return producer

    def _made(self) -> BorrowedProducer:
        made = self._make(transactional_id=f"{self.prefix}-{self._process_id}-{len(self._all)}")
        producer = BorrowedProducer(made, self.failed)
        self._all.append(producer)
        return producer

    def give_back(self, producer: BorrowedProducer) -> None:
        """Make a producer free for another transaction."""
        if not producer.is_sound:
            self.trouble.set()
        self._free.append(producer)
        self._places.give_back(producer.place)

    def closed(self, transaction: Transaction) -> None:
        """Note that a transaction has ended."""
        self._open.discard(transaction)
        if not self._open:
            self._idle.set()

    async def stop(self, within_s: float) -> None:
        """Wait for open transactions, abort those that are open after *within_s*, and close."""
        self._is_stopping = True
        if self._open:
            self._idle.clear()
            await is_set_within(self._idle, within_s)
        self._is_closed = True
        producers = self._all
        self._all = []
        self._free = []
        for producer in producers:
            # A transaction that still has one learns that it has failed.
            producer.is_sound = False
        # And so do those that wait for one.
        self._places.close()
        await asyncio.gather(*(producer.client.stop() for producer in producers))
