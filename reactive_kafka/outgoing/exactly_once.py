"""Exactly once: what a handler sends, and the positions behind what it was called with, are one
transaction.

Everything that commits positions of such a channel is a transaction: a handler's call, a dead
letter, and the commit at a tick of what was settled without sending anything. One at a time has a
partition, so that no position is stored over a later one. A plain commit among them might land
late, over the position of a transaction.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial

from reactive_kafka.broker.client import Connector, Consumer
from reactive_kafka.broker.passing import Passing
from reactive_kafka.commit.tracker import OffsetTracker
from reactive_kafka.errors import (
    BrokerError,
    ChannelClosedError,
    CheckpointError,
    PositionsRefusedError,
    TransactionAbortedError,
    TransientBrokerError,
    text_of,
)
from reactive_kafka.observe.events import Observer, TransactionAborted
from reactive_kafka.outgoing.outbox import Outbound
from reactive_kafka.outgoing.positions import (
    LOOK_S,
    Letter,
    Part,
    Positions,
    TransactionClient,
    aborted,
    check_open,
)
from reactive_kafka.outgoing.transactional_letters import TransactionalLetters
from reactive_kafka.outgoing.transactions import Transaction, TransactionalProducers
from reactive_kafka.records import Committed, TopicPartition
from reactive_kafka.subscription import Subscription
from reactive_kafka.tasks import Spawn, is_set_within
from reactive_kafka.verdicts.acknowledger import verdicts_of
from reactive_kafka.verdicts.ageing import not_ageing
from reactive_kafka.verdicts.delivery import Delivery
from reactive_kafka.verdicts.delivery_hook import CallAgain, NoHook


class ExactlyOnce(NoHook):
    """The transactions of one session of an incoming channel; a
    :class:`~reactive_kafka.verdicts.delivery_hook.DeliveryHook`.
    """

    covers_retries = True

    def __init__(
        self,
        channel: str,
        producers: TransactionalProducers,
        observer: Observer,
        clients: Callable[[], Iterable[TransactionClient]],
        spawn: Spawn,
    ) -> None:
        super().__init__(channel)
        self._name = channel
        self._producers = producers
        self._spawn = spawn
        self._positions = Positions(clients)
        self._letters = TransactionalLetters(producers, self._positions, self._aborted, spawn)
        self._observer = observer
        # Records whose transaction is being ended.
        self._ending: dict[tuple[OffsetTracker, int], Future[None]] = {}

    # What the channel asks.

    def reader(self, connector: Connector) -> Connector:
        return _Connector(connector, self)

    def is_in_transaction(self, tracker: OffsetTracker) -> bool:
        return self._positions.is_held(tracker.partition)

    def may_call_again(self, error: BaseException) -> CallAgain | None:
        if isinstance(error, BaseExceptionGroup):
            _, others = error.split(TransactionAbortedError)
            return None if others is not None else self.may_call_again(error.exceptions[0])
        return (
            CallAgain(if_settled=False, ages=False)
            if isinstance(error, TransactionAbortedError)
            else None
        )

    def check(self, tracker: OffsetTracker, index: int) -> None:
        raise CheckpointError(
            f"channel {self._name!r} is exactly once: the transaction of a handler's call acks its records. Return to "
            "have them acked, raise an error to have them nacked"
        )

    check_up_to = check

    def writes_letter(self, delivery: Delivery) -> Callable[[Outbound], Awaitable[None]]:
        return partial(self._letters.write, delivery)

    def may_have_stored(self, delivery: Delivery) -> bool:
        return (delivery.tracker, delivery.index) in self._ending

    async def find_out(self, delivery: Delivery) -> None:
        done = self._ending.get((delivery.tracker, delivery.index))
        if done is not None:
            await asyncio.wait([done])

    # A handler's call.

    async def run(
        self, deliveries: Sequence[Delivery], produce: Callable[[Transaction], Awaitable[None]]
    ) -> None:
        """Commit what *produce* puts into a transaction, with the positions behind *deliveries*,
        which it settles.

        Where nothing is put, nothing is done.

        Raises what *produce* raises; nothing is stored then.
        RejectedRecordError, EncodeError: a record can never be written.
        TransactionAbortedError: Nothing is stored, through no fault of the records: they are to be
        handled again.
        Cancellation: The end of the transaction goes on, once it has begun; :meth:`find_out` waits
        for it.
        """
        try:
            await self._run(deliveries, produce)
        except TransactionAbortedError as error:
            self._aborted(error)
            raise

    def _aborted(self, error: BrokerError) -> None:
        self._observer.on(
            TransactionAborted(channel=self._name, reason=text_of(error.__cause__ or error))
        )

    async def _run(
        self, deliveries: Sequence[Delivery], produce: Callable[[Transaction], Awaitable[None]]
    ) -> None:
        transaction = self._producers.begin()
        try:
            await produce(transaction)
            if transaction.is_empty:
                await transaction.close()
                return
            parts = self._parts(deliveries)
        except BaseException:
            await transaction.close()
            raise
        await self._in_a_task(transaction, parts)

    def _parts(self, deliveries: Sequence[Delivery]) -> list[Part]:
        found: dict[OffsetTracker, Part] = {}
        for delivery in deliveries:
            if delivery.tracker not in found:
                found[delivery.tracker] = Part(delivery.tracker, [])
            found[delivery.tracker].deliveries.append(delivery)
        return sorted(found.values(), key=lambda part: part.tracker.partition)

    async def _in_a_task(self, transaction: Transaction, parts: list[Part]) -> None:
        """End it, whether or not the handler's call is cancelled meanwhile: its outcome must not be
        left unknown.
        """
        done: Future[None] = asyncio.get_running_loop().create_future()
        keys = [(part.tracker, delivery.index) for part in parts for delivery in part.deliveries]

        async def work() -> None:
            failed: Exception | None = None
            try:
                await self._end(transaction, parts)
            except Exception as error:
                failed = error
            except BaseException:
                # The application ends.
                done.cancel()
                raise
            finally:
                for key in keys:
                    del self._ending[key]
                await transaction.close()
            if failed is None:
                done.set_result(None)
            else:
                done.set_exception(failed)
                # Looked at: the call may have been cancelled.
                done.exception()

        if self._spawn(work, f"transaction of {self._name}") is None:
            await transaction.close()
            raise ChannelClosedError(f"channel {self._name!r} has stopped")
        self._ending.update(dict.fromkeys(keys, done))
        with not_ageing():
            await asyncio.shield(done)

    async def _end(self, transaction: Transaction, parts: list[Part]) -> None:
        async with self._positions.holding([part.tracker.partition for part in parts]):
            for part in parts:
                await self._positions.until_read(part.tracker)
                part.letters = await self._letters_before(part)
            await self._positions.end(transaction, parts)

    async def _letters_before(self, part: Part) -> list[Letter]:
        """The letters of nacked records among those of a part, once there are all: no position may
        pass them.
        """
        tracker = part.tracker
        last = part.deliveries[-1].index
        while True:
            check_open(part)
            letters = self._letters.before(tracker, last)
            if tracker.unsettled_up_to(last) == len(part.deliveries) + len(letters):
                return letters
            nacks = verdicts_of(tracker).nacks_up_to(last)
            if len(nacks) <= len(letters):
                raise aborted(
                    f"a record of {tracker.partition} before offset {part.deliveries[-1].offset} is unsettled"
                )
            self._letters.came.clear()
            # Or the nack is carried out without a letter.
            await is_set_within(self._letters.came, LOOK_S)

    # Commits at a tick.

    async def commit(
        self,
        consumer: Consumer,
        group_id: str,
        offsets: Mapping[TopicPartition, Committed],
        generation: int,
    ) -> None:
        """Commit positions in a transaction of their own. Raises as :meth:`Consumer.commit`."""
        for partition in offsets:
            if self._positions.is_held(partition):
                # Its position is a later one: this one must not be stored over it.
                raise TransientBrokerError(f"a transaction of {partition} is open")
        async with self._positions.holding(offsets):
            transaction = self._producers.begin()
            try:
                joined = await transaction.join(group_id)
                refusal: PositionsRefusedError | None = None
                with transaction.joining():
                    try:
                        await consumer.commit_in(joined, offsets, generation)
                    except PositionsRefusedError as error:
                        refusal = error
                if refusal is None or len(refusal.refused) < len(offsets):
                    # The others take part in it.
                    await transaction.commit()
                if refusal is not None:
                    raise refusal
            finally:
                await transaction.close()


class _Connector(Passing[Connector]):
    """Makes consumers that commit in transactions."""

    def __init__(self, inner: Connector, transactions: ExactlyOnce) -> None:
        super().__init__(inner)
        self._transactions = transactions

    def consumer(
        self,
        *,
        name: str,
        subscription: Subscription,
        group_id: str | None,
        properties: Mapping[str, object],
    ) -> Consumer:
        inner = self._inner.consumer(
            name=name, subscription=subscription, group_id=group_id, properties=properties
        )
        # Start-up has seen to it.
        assert group_id is not None  # noqa: S101
        return _Consumer(inner, self._transactions, group_id)


class _Consumer(Passing[Consumer]):
    """Commits in transactions."""

    def __init__(self, inner: Consumer, transactions: ExactlyOnce, group_id: str) -> None:
        super().__init__(inner)
        self._transactions = transactions
        self._group_id = group_id

    async def commit(self, offsets: Mapping[TopicPartition, Committed], generation: int) -> None:
        await self._transactions.commit(self._inner, self._group_id, offsets, generation)
