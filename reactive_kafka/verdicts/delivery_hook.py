"""What a checkpoint store, or an exactly-once channel, adds to deliveries and their verdicts."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal, NamedTuple, NoReturn, Protocol

from reactive_kafka.broker.client import Connector
from reactive_kafka.errors import CheckpointError, CommitRefusedError
from reactive_kafka.observe.facts import OutboxFacts
from reactive_kafka.records import Committed, TopicPartition
from reactive_kafka.tracking.tracker import OffsetTracker
from reactive_kafka.verdicts.delivery import D, Delivery

Call = Callable[[Any], Awaitable[Any]]
"""Calls a handler."""


class MessageCheckpoint(Protocol):
    """The state of a message's partition, as that message sees it."""

    def get(self) -> Any:
        """Return the state when this message came, or what was set for the message since.

        None if the partition has no state. Each call returns a new value: changing it has no effect
        before :meth:`set`.

        Raises:
            NotOwnerError: The message's partition is not ours any more.
            DecodeError: The stored text does not fit ``checkpoint.state``.
        """

    def set(self, state: Any) -> None:
        """Set the partition's state from this message on. It takes effect with the message's ack.

        Raises:
            EncodeError: The state cannot be encoded.
            CheckpointError: The message already has its verdict.
            NotOwnerError: The message's partition is not ours any more.
        """


class CallAgain(NamedTuple):
    """A handler raised an error of the store: its open records are delivered again.

    No failure strategy is asked.

    Attributes:
        if_settled: Only if the error settled some of the records. Otherwise it is a failure like
            any other.
        ages: The records age while they wait, so that one that never succeeds becomes poison.
    """

    if_settled: bool
    ages: bool


class DeliveryHook(Protocol):
    """The points at which a store, or exactly-once transactions, have a say in a channel.

    The answers here are those of a channel that has neither.

    Attributes:
        covers_retries: The client of delayed retries reads and commits by it, too.
        runs_in_order: A call stores the position behind its records. So it may not begin before the
            records before them in their partition, also in a retry topic.
        keeps_positions: The store has the channel's positions, also without a group.
    """

    covers_retries: bool = False
    runs_in_order: bool = False
    keeps_positions: bool = False

    def reader(self, connector: Connector) -> Connector:
        """Return what makes the clients that read the channel's own topics."""
        return connector

    def is_in_transaction(self, tracker: OffsetTracker) -> bool:
        """Return whether an open transaction is to store the position of this partition.

        No commit stores it then, except the last one.
        """
        return False

    def begins(self, tracker: OffsetTracker, owner: str) -> None:
        """The client *owner* reads a partition with this tracker from now on."""

    def around(self, call: Call) -> Call:
        """Return *call*, which takes one delivery, with :meth:`before_call` before it.

        Without a store it is *call* itself.
        """
        return call

    def before_call(self, deliveries: Sequence[D]) -> Sequence[D]:
        """A handler is about to be called: return the deliveries to pass to it.

        The others are stored already, and are settled here.
        """
        return deliveries

    def may_call_again(self, error: BaseException) -> CallAgain | None:
        """Return how to call again if the store is to blame for what a handler raised.

        None: the failure is the handler's own.
        """
        return None

    def check(self, tracker: OffsetTracker, index: int) -> None:
        """A record is about to be acked or nacked by hand.

        Raises:
            CheckpointError: It is in an open transaction.
        """

    def check_up_to(self, tracker: OffsetTracker, index: int) -> None:
        """A record and those before it are about to be acked. Raises as :meth:`check` for each."""

    def refuse(self, delivery: Delivery) -> None:
        """A delivery fails: its open transaction, if it has one, must store nothing."""

    def on_nack(self, delivery: Delivery) -> None:
        """A delivery was nacked: the state it set does not count."""

    def has_stored(self, delivery: Delivery) -> bool:
        """Return whether a transaction has stored a delivery, and settled it since."""
        return False

    def may_have_stored(self, delivery: Delivery) -> bool:
        """Return whether a transaction has tried to store a delivery that has no verdict."""
        return False

    async def find_out(self, delivery: Delivery) -> None:
        """Wait until the store says whether a transaction has stored a delivery; then settle it.

        It stays open if no transaction has stored it.

        Raises:
            BrokerError: The partition or the channel went before the store answered.
        """

    def writes_letter(self, delivery: Delivery) -> Callable[[Any], Awaitable[None]] | None:
        """Return what writes the letter of a nacked delivery and settles it, as one transaction.

        None: the letter is just written.
        """
        return None

    def checkpoint(self, delivery: Delivery) -> MessageCheckpoint:
        """Return the state of the delivery's partition. Raises as ``Message.checkpoint`` does."""

    def transaction(
        self, deliveries: Sequence[Delivery], *, is_batch: bool = False
    ) -> AbstractAsyncContextManager[Any]:
        """Return a transaction that settles these deliveries. Raises as ``Message.transaction``.

        A transaction of a batch takes nacks of single deliveries (:meth:`nack_at_end`).
        """

    def nack_at_end(
        self, delivery: Delivery, carry_out: Callable[[], Future[bool]]
    ) -> Literal["taken", "twice"] | None:
        """Call *carry_out* at the end of the batch transaction that a delivery is in.

        It is called before the transaction is stored. ``"twice"``: the delivery has been nacked
        there before. None: it is in no batch transaction, and nothing will be called.
        """
        return None

    def unstored(
        self, trackers: Callable[[], Iterable[OffsetTracker]]
    ) -> Mapping[TopicPartition, int]:
        """Return partition -> its records that take up room, also settled ones.

        It is empty unless the store is away.
        """
        return {}

    async def stored_positions(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, Committed | None] | None:
        """Return partition -> its position in the store, also of those that others own.

        None: Kafka keeps the positions.

        Raises:
            BrokerError: The store did not answer.
        """
        return None

    def behind_s(self) -> float | None:
        """Return for how many seconds a settled record has not been stored.

        None: all are stored, or there is no store.
        """
        return None

    def not_ready(self) -> list[str]:
        """Return what keeps positions from being stored, for people."""
        return []

    def outbox(self) -> OutboxFacts | None:
        """Return what waits in the outbox; None: there is none."""
        return None

    def is_relayed(self) -> bool:
        """Return whether no event of the outbox waits for Kafka, as far as is known."""
        return True

    async def flush(self, deadline: float) -> None:
        """Wait until the outbox is relayed, or until *deadline* (monotonic)."""

    def close(self) -> None:
        """The session has ended: relay nothing more."""


class NoHook(DeliveryHook):
    """A channel without a checkpoint store."""

    def __init__(self, channel: str) -> None:
        self._channel = channel

    def begins(self, tracker: OffsetTracker, owner: str) -> None:
        pass

    def check(self, tracker: OffsetTracker, index: int) -> None:
        pass

    check_up_to = check

    def refuse(self, delivery: Delivery) -> None:
        pass

    on_nack = refuse

    async def flush(self, deadline: float) -> None:
        pass

    def close(self) -> None:
        pass

    async def find_out(self, delivery: Delivery) -> None:
        pass

    def checkpoint(self, delivery: Delivery) -> MessageCheckpoint:
        self._no_store("a state")

    def transaction(
        self, deliveries: Sequence[Delivery], *, is_batch: bool = False
    ) -> AbstractAsyncContextManager[Any]:
        self._no_store("a transaction")

    def _no_store(self, what: str) -> NoReturn:
        raise CheckpointError(
            f"channel {self._channel!r} has no checkpoint store: "
            f'{what} needs commit_strategy = "checkpoint"'
        )


class SharedHook(NoHook):
    """A broadcast channel: each record goes to several handlers, and none settles it alone."""

    def check(self, tracker: OffsetTracker, index: int) -> None:
        raise CommitRefusedError(
            f"channel {self._channel!r}: that would settle a record for all of its handlers, "
            "with broadcast = true: return when this one is done, or raise"
        )

    check_up_to = check
