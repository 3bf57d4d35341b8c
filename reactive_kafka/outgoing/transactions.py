"""Writes in transactions: the producers of one transactional id, and a transaction of one of
them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from uuid import uuid4

from reactive_kafka.broker.client import (
    BatchRefusedError,
    Connector,
    TransactionalProducer,
    TransactionId,
)
from reactive_kafka.clock import Clock
from reactive_kafka.errors import (
    BrokerError,
    ChannelClosedError,
    OutcomeUnknownError,
    RejectedRecordError,
    TransientBrokerError,
    text_of,
)
from reactive_kafka.observe.facts import DurationHistogram
from reactive_kafka.outgoing.outbox import Line, Outbound, Outbox, Partitioner, Receipt
from reactive_kafka.records import TopicPartition
from reactive_kafka.tasks import is_set_within

MOST_PRODUCERS = 16
"""Each has connections of its own: more transactions at a time wait for one of them."""
GATHERED = 10_000
"""So many records of a transaction are kept before any is written: most transactions last no longer
than their writing takes, however long their handler runs, and a handler that raises has written
nothing."""


class Sender:
    """For whom records of a transaction are written: an outgoing channel, or the failures of an
    incoming one.
    """

    def __init__(self, partitioner: Partitioner | None = None) -> None:
        self.partitioner = partitioner
        self.sent = {"ok": 0, "failed": 0}
        self.durations = DurationHistogram()

    def committed(self, records: int, seconds: float) -> None:
        """So many of its records are, so long after their writing began."""
        self.sent["ok"] += records
        self.durations.observe(seconds, records)


class _Producer:
    """A producer, and whether it can be used as it is."""

    def __init__(
        self, client: TransactionalProducer, failed: Callable[[BrokerError], None]
    ) -> None:
        self.client = client
        # Not before it has claimed its id, nor once a call has failed or was cancelled.
        self.is_sound = False
        self._failed = failed

    @contextmanager
    def calling(self) -> Iterator[None]:
        """A call that leaves the producer in doubt unless it returns."""
        self.is_sound = False
        try:
            yield
        except BrokerError as error:
            self._failed(error)
            raise
        self.is_sound = True

    async def claim(self) -> None:
        """Claim its id, unless it is its own."""
        if not self.is_sound:
            with self.calling():
                await self.client.claim()


class TransactionalProducers:
    """The producers of one ``transactional_id``, which is the beginning of their own ids: made when
    there is need.

    Their ids have a part of their own in each process, because two that share one would put each
    other out. What keeps a process that was frozen from ending its transaction is the generation of
    its consumers, and the broker's timeout.
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
        self._own = uuid4().hex[:8]
        self._free: list[_Producer] = []
        self._all: list[_Producer] = []
        self._places = asyncio.Semaphore(MOST_PRODUCERS)
        self._open: set[Transaction] = set()
        self._is_stopping = self._is_closed = False
        self._idle = asyncio.Event()
        # Why the last call failed; None: it has not.
        self.error: str | None = "connecting"
        # A call has failed, or a producer is in doubt, since :meth:`mend`
        self.trouble = asyncio.Event()

    def failed(self, error: BrokerError) -> None:
        """A call of a producer's has failed."""
        # The brokers have answered.
        if not isinstance(error, RejectedRecordError | BatchRefusedError):
            self.error = str(error)
        self.trouble.set()

    async def mend(self) -> None:
        """Claim the ids of producers that are in doubt and that nobody uses: which also ends what
        they have left open.

        Without it a process that has nothing more to send would never hear that the brokers are
        back. BrokerError: try again.
        """
        while broken := [producer for producer in self._free if not producer.is_sound]:
            await self._places.acquire()
            # Somebody has taken it meanwhile.
            if broken[0] not in self._free:
                self._places.release()
                continue
            self._free.remove(broken[0])
            try:
                await broken[0].claim()
            finally:
                self._free.append(broken[0])
                self._places.release()
        self.error = None
        self.trouble.clear()

    def begin(self) -> Transaction:
        """A transaction, which is to be closed. It takes a producer when it needs one."""
        if self._is_stopping:
            raise ChannelClosedError(f"the transactions of {self.prefix!r} have stopped")
        transaction = Transaction(self)
        self._open.add(transaction)
        return transaction

    async def partitions(self, topic: str) -> int:
        """As :meth:`Producer.partitions`; an id is claimed for it."""
        producer = await self.take()
        try:
            await producer.claim()
            found = await producer.client.partitions(topic)
            self.error = None
            return found
        finally:
            self.give_back(producer)

    async def check(self) -> None:
        """Ask any broker for anything. As :meth:`Producer.check`; nothing is asked before a
        producer has been made.
        """
        if self._all:
            await self._all[0].client.check()

    async def take(self) -> _Producer:
        """A producer of its own, for whoever gives it back."""
        await self._places.acquire()
        try:
            if self._is_closed:
                raise TransientBrokerError(f"the transactions of {self.prefix!r} have stopped")
            if not self._free:
                made = self._make(transactional_id=f"{self.prefix}-{self._own}-{len(self._all)}")
                self._free.append(_Producer(made, self.failed))
                self._all += self._free
            return self._free.pop()
        except BaseException:
            self._places.release()
            raise

    def give_back(self, producer: _Producer) -> None:
        """It is free for another transaction."""
        if not producer.is_sound:
            self.trouble.set()
        self._free.append(producer)
        self._places.release()

    def closed(self, transaction: Transaction) -> None:
        """A transaction has ended."""
        self._open.discard(transaction)
        if not self._open:
            self._idle.set()

    async def stop(self, within_s: float) -> None:
        """Begin nothing more, wait for what is open, and close; what is open then is aborted."""
        self._is_stopping = True
        if self._open:
            self._idle.clear()
            await is_set_within(self._idle, within_s)
        self._is_closed = True
        producers = self._all
        self._all = []
        self._free = []
        for producer in producers:
            # Who still has one hears that its transaction has failed.
            producer.is_sound = False
        # And so does who waits for one: each passes the place on.
        self._places.release()
        await asyncio.gather(*(producer.client.stop() for producer in producers))


class _Noted(Receipt):
    """The receipt of a transaction's records: what is wrong with one, which fails the whole."""

    __slots__ = ("error",)

    def __init__(self) -> None:
        super().__init__()
        self.error: BaseException | None = None

    def told(self, error: BaseException | None) -> None:
        self.error = error

    def written(self, at: TopicPartition, offset: int) -> None:
        self.at = at
        self.offset = offset


class Transaction:
    """One transaction: records of one or several channels, and positions of groups. Made by a pool
    of producers.

    Its steps raise as those of :class:`TransactionalProducer` do; after an error only :meth:`close`
    may follow, and :meth:`settle_doubt`.
    """

    def __init__(self, producers: TransactionalProducers) -> None:
        self._producers = producers
        self._producer: _Producer | None = None
        self._outboxes: dict[Sender, Outbox] = {}
        self._gathered: list[tuple[Sender, Outbound]] = []
        self._is_begun = False
        self._is_closed = False
        # What was gathered may have got lost: nothing of it may be committed.
        self._has_failed = False
        # The brokers have parts of it that are not kept here: records that were written, or
        # positions. Without these it can be written in another transaction.
        self._has_more = False
        # Several tasks may send in one block of an emitter's.
        self._one_at_a_time = asyncio.Lock()
        self._began_at = 0.0
        self._records = Counter[Sender]()
        # Where the record that was written last stands.
        self.at: TopicPartition | None = None
        self.offset = -1

    @property
    def is_empty(self) -> bool:
        """Whether no record was put into it."""
        return not self._records

    async def put(self, outbounds: Iterable[tuple[Sender, Outbound]]) -> None:
        """Take records, each with whom it is for; they are written now, or together with others
        that come.
        """
        is_enough = False
        for target, outbound in outbounds:
            is_enough = self.gather(target, outbound)
        if is_enough:
            await self.write()

    def gather(self, target: Sender, outbound: Outbound) -> bool:
        """Take a record; whether there are so many now that :meth:`write` is to be called."""
        self._gathered.append((target, outbound))
        self._records[target] += 1
        return len(self._gathered) >= GATHERED

    async def write(self) -> None:
        """Write what was put; returns when the brokers have it.

        RejectedRecordError, EncodeError: one of the records can never be.
        """
        try:
            async with self._one_at_a_time:
                if self._gathered or self._has_failed:
                    producer = await self._begun()
                    # Until it has returned.
                    self._has_failed = True
                    await self._write_gathered(producer)
                    self._has_failed = self._is_closed
        finally:
            self._let_go()

    async def _write_gathered(self, producer: _Producer) -> None:
        gathered = self._gathered
        self._gathered = []
        while True:
            try:
                await self._write_all(gathered, producer.client)
            except BatchRefusedError:
                if self._has_more or self._is_closed:
                    raise
            else:
                self._has_more = True
                return
            # All of the transaction is here, so it can be written again without another call of the
            # handler. Each round makes the batches smaller, so it ends: all of them fit, or a
            # record that is alone in its batch is refused. The claim aborts the transaction that
            # was refused, before the next one begins.
            await producer.claim()
            with producer.calling():
                producer.client.begin()
            # Their lines still hold what was refused.
            self._outboxes.clear()

    async def _write_all(
        self, gathered: Sequence[tuple[Sender, Outbound]], client: TransactionalProducer
    ) -> None:
        noted = _Noted()
        lines = dict[Line, None]()
        for target, outbound in gathered:
            outbox = self._outbox(target, client)
            line = outbox.add(outbound, noted)
            if line is None and outbox.waits_for(outbound.topic):
                lines.update(
                    dict.fromkeys(
                        outbox.found(outbound.topic, await client.partitions(outbound.topic))
                    )
                )
            elif line is not None:
                lines[line] = None
            if noted.error is not None:
                raise noted.error
        await self._write(client, list(lines))
        self.at = noted.at
        self.offset = noted.offset

    def _outbox(self, target: Sender, client: TransactionalProducer) -> Outbox:
        if target not in self._outboxes:
            # How much waits is bounded by what is gathered.
            self._outboxes[target] = Outbox(0, client.key_hash, lambda: None, target.partitioner)
        return self._outboxes[target]

    async def _write(self, client: TransactionalProducer, lines: list[Line]) -> None:
        # It has begun.
        assert self._producer is not None  # noqa: S101
        with self._producer.calling():
            if len(lines) == 1:
                await _write_line(client, lines[0])
                return
            # All are waited for, whatever one of them raises: nothing is to be on its way when the
            # end is sent.
            ends = await asyncio.gather(
                *(_write_line(client, line) for line in lines), return_exceptions=True
            )
            errors = [end for end in ends if isinstance(end, BaseException)]
            if errors:
                raise min(errors, key=_says_little)

    async def _begun(self) -> _Producer:
        producer = self._producer
        if (
            self._has_failed
            or self._is_closed
            or (self._is_begun and producer is not None and not producer.is_sound)
        ):
            raise TransientBrokerError(
                f"the transaction of {self._producers.prefix!r} has failed already"
            )
        if producer is None:
            producer = self._producer = await self._producers.take()
        if not self._is_begun:
            await producer.claim()
            with producer.calling():
                producer.client.begin()
            self._is_begun = True
            self._began_at = self._producers.clock.monotonic()
        return producer

    async def join(self, group_id: str) -> TransactionId:
        """Have positions of a group take part; they are sent by its consumer, within
        :meth:`joining`.
        """
        producer = await self._begun()
        self._has_more = True
        with producer.calling():
            return await producer.client.add_group(group_id)

    @contextmanager
    def joining(self) -> Iterator[None]:
        """Around what a consumer sends: what does not return may still be on its way."""
        # It has begun.
        assert self._producer is not None  # noqa: S101
        self._producer.is_sound = False
        yield
        self._producer.is_sound = True

    async def commit(self) -> None:
        """Commit all of it. OutcomeUnknownError: see :meth:`settle_doubt`."""
        if not (self._is_begun or self._has_failed):
            return
        producer = await self._begun()
        try:
            with producer.calling():
                await producer.client.commit()
        except OutcomeUnknownError:
            raise
        except BrokerError as error:
            # Whatever it says, the request was sent.
            raise OutcomeUnknownError(text_of(error)) from error
        self.is_committed()

    def is_committed(self) -> None:
        """It is known to be committed."""
        self._is_begun = False
        self._producers.error = None
        seconds = self._producers.clock.monotonic() - self._began_at
        for target, records in self._records.items():
            target.committed(records, seconds)

    async def settle_doubt(self) -> None:
        """Claim the id anew: when this returns the transaction has ended, and nothing of it that is
        late has an effect.

        BrokerError: try again.
        """
        if self._producer is not None and self._is_begun:
            with self._producer.calling():
                await self._producer.client.claim()
            self._is_begun = False

    async def close(self) -> None:
        """End it, where :meth:`commit` has not: nothing of it is seen by anybody who reads what is
        committed.
        """
        self._is_closed = True
        try:
            # A task may still write for a block that has ended.
            async with self._one_at_a_time:
                if self._producer is not None and self._is_begun and self._producer.is_sound:
                    with self._producer.calling():
                        await self._producer.client.abort()
                    self._is_begun = False
        except BrokerError:
            # The next claim of the id aborts it, or the broker when its time is over.
            pass
        finally:
            self._let_go()

    def _let_go(self) -> None:
        """Give the producer back once nobody uses it: whoever closes does, or who writes, where
        that was cancelled.
        """
        if self._is_closed and not self._one_at_a_time.locked():
            producer = self._producer
            self._producer = None
            if producer is not None:
                producer.is_sound = producer.is_sound and not self._is_begun
                self._producers.give_back(producer)
            self._producers.closed(self)


def _says_little(error: BaseException) -> int:
    """A sort key: 0 for the error of a partition that says why the transaction has failed.

    The first refusal ends the transaction for every partition, and the others only hear that it has
    failed. A refused batch says less than a refused record: the record is refused in smaller
    batches, too.
    """
    if isinstance(error, BatchRefusedError):
        return 1
    if isinstance(error, TransientBrokerError):
        return 2
    return 0


async def _write_line(client: TransactionalProducer, line: Line) -> None:
    while records := line.batch():
        written = await client.write(line.to, records)
        line.written(written.offset, written.count)
