"""What transactions need of a Kafka client: a producer that writes in them, and the name by which
positions join one.

A reader with ``isolation_level = "read_committed"`` sees the records of a transaction when that is
committed, and those of an aborted one never. The markers that end a transaction use up an offset of
each of its partitions. Such a reader gets no further than the *last stable offset*: the first
record of the oldest transaction that is still open.

Positions take part, too: they are stored when the transaction is committed. While it is open,
whoever asks for one of these positions is told to wait, so nobody begins to read at a position that
may be void.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from reactive_kafka.broker.client import WrittenBatch
from reactive_kafka.errors import TransientBrokerError
from reactive_kafka.records import RecordFields, TopicPartition

TRANSACTION_TIMEOUT_MS = 10_000
"""After so long the broker aborts a transaction by itself. A process that dies leaves one open for
that time.
"""


class TransactionId(NamedTuple):
    """Whose transaction it is. The broker refuses what comes with an epoch that is over."""

    transactional_id: str
    producer_id: int
    epoch: int


class BatchRefusedError(TransientBrokerError):
    """A batch of several records is too large for its topic. Its transaction has failed; the next
    batch is smaller.
    """


class TransactionalProducer(Protocol):
    """Writes in transactions, one at a time.

    After an error of :meth:`write`, :meth:`add_group`, :meth:`commit` or :meth:`abort`, and after a
    call of theirs that was cancelled, nobody knows what is still on its way: only :meth:`claim` and
    :meth:`stop` may follow.

    Every awaitable has a deadline and raises as :class:`~reactive_kafka.broker.client.Producer`
    does.
    """

    async def claim(self) -> None:
        """Connect, and claim the transactional id with a new epoch: the first call, and the one
        after an error.

        An open transaction of an earlier epoch is aborted, unless its commit had begun: then that
        is carried out. When this returns it has ended, and no request of an earlier epoch that is
        still on its way takes effect any more.

        Raises:
            TransientBrokerError: No answer in time; call it again.
            FatalBrokerError: No right to the transactional id, or the brokers have no transactions.
        """

    async def check(self) -> None:
        """As :meth:`Producer.check`, of one that has claimed its id; also while it writes, and in
        doubt.
        """

    def key_hash(self, key: bytes) -> int:
        """As :meth:`Producer.key_hash`."""

    async def partitions(self, topic: str) -> int:
        """As :meth:`Producer.partitions`."""

    def known_partitions(self, topic: str) -> int:
        """As :meth:`Producer.known_partitions`."""

    def begin(self) -> None:
        """Begin a transaction. The broker hears of it with the first write."""

    async def write(self, to: TopicPartition, records: Sequence[RecordFields]) -> WrittenBatch:
        """As :meth:`Producer.write`, in the transaction. Writes to several partitions may be under
        way at once.

        Raises:
            BatchRefusedError: A batch of several records is too large. Each next one for its topic
                has at most half the bytes, so in the end a record that is too large is refused
                alone.
        """

    async def add_group(self, group_id: str) -> TransactionId:
        """Have positions of a group take part, which :meth:`Consumer.commit_in` then sends."""

    async def commit(self) -> None:
        """Commit what was written, and the positions. Nothing may be on its way.

        Raises:
            OutcomeUnknownError: It may be committed, now or until :meth:`claim` has returned.
        """

    async def abort(self) -> None:
        """Abort it. Nothing may be on its way."""

    async def stop(self) -> None:
        """Abort what is open, as far as that can be done within a deadline, and close. Raises only
        cancellation.
        """
