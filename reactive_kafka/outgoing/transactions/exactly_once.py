"""Exactly once: what a handler sends and the positions of its records are one transaction.

Everything that commits positions of such a channel is a transaction: the call of a handler, a dead
letter, and the commit on the interval of records that were settled without sending anything. A
plain commit between them might arrive late, and overwrite the position of a transaction. For the
same reason a partition is in one transaction at a time.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial

from reactive_kafka.broker.client import Connector, Consumer
from reactive_kafka.broker.client_wrapper import ClientWrapper
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
from reactive_kafka.outgoing.queue.record import OutgoingRecord
from reactive_kafka.outgoing.transactions.positions import (
    LOOK_S,
    Letter,
    PartitionRecords,
    TransactionClient,
    TransactionPositions,
    aborted,
    check_open,
)
from reactive_kafka.outgoing.transactions.producers import TransactionalProducers
from reactive_kafka.outgoing.transactions.transaction import Transaction
from reactive_kafka.outgoing.transactions.transactional_letters import TransactionalLetters
from reactive_kafka.records import Committed, TopicPartition
from reactive_kafka.subscription import Subscription
from reactive_kafka.tasks import Spawn, is_set_within
from reactive_kafka.tracking.tracker import OffsetTracker
from reactive_kafka.verdicts.acknowledger import verdicts_of
from reactive_kafka.verdicts.ageing import not_ageing
from reactive_kafka.verdicts.delivery import Delivery
from reactive_kafka.verdicts.delivery_hook import CallAgain, NoHook


class ExactlyOnce(NoHook):
    """The transactions of one session of an incoming channel, as a hook of its deliveries.

    See :class:`~reactive_kafka.verdicts.hook.DeliveryHook`.
    """

    covers_retries = True
    runs_in_order = True

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
        self._positions = TransactionPositions(clients)
        self._letters = TransactionalLetters(producers, self._positions, self._aborted, spawn)
        self._observer = observer
        # The records whose transaction is ending -> done when it has ended.
        self._ending: dict[tuple[OffsetTracker, int], Future[None]] = {}

    # The hook: called by the channel.

    def reader(self, connector: Connector) -> Connector:
        return _TransactionalConnector(connector, self)

    def is_in_transaction(self, tracker: OffsetTracker) -> bool:
        return self._positions.is_held(tracker.partition)

    def may_call_again(self, error: BaseException) -> CallAgain | None:
        if isinstance(error, BaseExceptionGroup):
            _, others = error.split(TransactionAbortedError)
            return None if others is not None else self.may_call_again(error.exceptions[0])
        if isinstance(error, TransactionAbortedError):
            return CallAgain(if_settled=False, ages=False)
        return None

    def check(self, tracker: OffsetTracker, index: int) -> None:
        raise CheckpointError(
            f"channel {self._name!r} is exactly once: the transaction of a handler's call acks its "
            "records. Return to have them acked, raise an error to have them nacked"
        )

    check_up_to = check

    def writes_letter(self, delivery: Delivery) -> Callable[[OutgoingRecord], Awaitable[None]]:
        return partial(self._letters.write, delivery)

    def may_have_stored(self, delivery: Delivery) -> bool:
        return (delivery.tracker, delivery.index) in self._ending

    async def find_out(self, delivery: Delivery) -> None:
        done = self._ending.get((delivery.tracker, delivery.index))
        if done is not None:
            await asyncio.wait([done])

    # The transaction of a handler's call.

    async def run(
        self, deliveries: Sequence[Delivery], produce: Callable[[Transaction], Awaitable[None]]
    ) -> None:
        """Commit the records that *produce* sends with the positions of *deliveries*; settle these.

        If *produce* sends nothing, nothing is done.

        Raises:
            RejectedRecordError, EncodeError: A record can never be written.
            TransactionAbortedError: Nothing is stored. It is no fault of the records: handle them
                again.
            BaseException: What *produce* raises. Nothing is stored then.

        Cancellation:
            Once the end of the transaction has begun it continues; :meth:`find_out` waits for it.
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
            partitions = _by_partition(deliveries)
        except BaseException:
            await transaction.close()
            raise
        await self._end_in_a_task(transaction, partitions)

    async def _end_in_a_task(
        self, transaction: Transaction, partitions: list[PartitionRecords]
    ) -> None:
        """End the transaction, even if the call is cancelled: its outcome must be known."""
        done: Future[None] = asyncio.get_running_loop().create_future()
        keys = [
            (records.tracker, delivery.index)
            for records in partitions
            for delivery in records.deliveries
        ]

        async def work() -> None:
            failed: Exception | None = None
            try:
                await self._end(transaction, partitions)
            except Exception as error:
                failed = error
            except BaseException:
                # The application ends.
                done.cancel()
                raise
            finally:
                for key in keys:
                    # If the call was cancelled, another attempt may have begun a transaction of the
                    # same record, which ends after this one.
                    if self._ending.get(key) is done:
                        del self._ending[key]
                try:
                    await transaction.close()
                finally:
                    # Closing may raise, too, which is for the owner of this task. The call must not
                    # wait for ever.
                    _complete(done, failed)

        if self._spawn(work, f"transaction of {self._name}") is None:
            await transaction.close()
            raise ChannelClosedError(f"channel {self._name!r} has stopped")
        self._ending.update(dict.fromkeys(keys, done))
        with not_ageing():
            await asyncio.shield(done)

    async def _end(self, transaction: Transaction, partitions: list[PartitionRecords]) -> None:
        async with self._positions.holding([records.tracker.partition for records in partitions]):
            for records in partitions:
                await self._positions.until_read(records.tracker)
                records.letters = await self._letters_before(records)
            await self._positions.end(transaction, partitions)

    async def _letters_before(self, records: PartitionRecords) -> list[Letter]:
        """Wait for the letters of nacked records before the last one: no position may pass them.

        Raises:
            TransactionAbortedError: A record before the last one is neither ours nor nacked.
        """
        tracker = records.tracker
        last = records.deliveries[-1]
        while True:
            check_open(records)
            letters = self._letters.before(tracker, last.index)
            if tracker.unsettled_up_to(last.index) == len(records.deliveries) + len(letters):
                return letters
            nacks = verdicts_of(tracker).nacks_up_to(last.index)
            if len(nacks) <= len(letters):
                raise aborted(
                    f"a record of {tracker.partition} before offset {last.offset} is unsettled"
                )
            self._letters.came.clear()
            # With a limit: a nack may also be settled without a letter.
            await is_set_within(self._letters.came, LOOK_S)

    # The commit on the interval.

    async def commit(
        self,
        consumer: Consumer,
        group_id: str,
        offsets: Mapping[TopicPartition, Committed],
        generation: int,
    ) -> None:
        """Commit positions in a transaction. Raises as :meth:`Consumer.commit`."""
        for partition in offsets:
            if self._positions.is_held(partition):
                # Its position is a later one, and must not be overwritten.
                raise TransientBrokerError(f"a transaction of {partition} is open")
        async with self._positions.holding(offsets):
            transaction = self._producers.begin()
            transaction.has_partitions = True
            try:
                joined = await transaction.join(group_id)
                refusal: PositionsRefusedError | None = None
                with transaction.joining():
                    try:
                        await consumer.commit_in(joined, offsets, generation)
                    except PositionsRefusedError as error:
                        refusal = error
                if refusal is None or len(refusal.refused) < len(offsets):
                    # Not all were refused: commit the others.
                    await transaction.commit()
                if refusal is not None:
                    raise refusal
            finally:
                await transaction.close()


class _TransactionalConnector(ClientWrapper[Connector]):
    """Creates consumers that commit in transactions."""

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
        # Start-up refuses exactly once without a group.
        assert group_id is not None  # noqa: S101
        return _TransactionalConsumer(inner, self._transactions, group_id)


class _TransactionalConsumer(ClientWrapper[Consumer]):
    """A consumer whose commits are transactions."""

    def __init__(self, inner: Consumer, transactions: ExactlyOnce, group_id: str) -> None:
        super().__init__(inner)
        self._transactions = transactions
        self._group_id = group_id

    async def commit(self, offsets: Mapping[TopicPartition, Committed], generation: int) -> None:
        await self._transactions.commit(self._inner, self._group_id, offsets, generation)


def _complete(done: Future[None], failed: Exception | None) -> None:
    """Tell the outcome of a transaction, unless its task was cancelled."""
    if done.done():
        return
    if failed is None:
        done.set_result(None)
        return
    done.set_exception(failed)
    # If the call was cancelled the error is not looked at, which asyncio would log.
    done.exception()


def _by_partition(deliveries: Sequence[Delivery]) -> list[PartitionRecords]:
    found: dict[OffsetTracker, PartitionRecords] = {}
    for delivery in deliveries:
        if delivery.tracker not in found:
            found[delivery.tracker] = PartitionRecords(delivery.tracker, [])
        found[delivery.tracker].deliveries.append(delivery)
    return sorted(found.values(), key=lambda records: records.tracker.partition)
