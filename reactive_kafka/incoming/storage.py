"""The checkpoint store in one life of a channel: what it asks of the channel's clients, and what they ask of it."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from reactive_kafka.broker.client import Connector
from reactive_kafka.checkpoint.codec import Codec
from reactive_kafka.checkpoint.consumer import CheckpointConnector
from reactive_kafka.checkpoint.keeper import Keeper
from reactive_kafka.checkpoint.store import CheckpointStore
from reactive_kafka.checkpoint.transaction import Transactions
from reactive_kafka.clock import Clock
from reactive_kafka.commit.beside import Due
from reactive_kafka.commit.offsets import OffsetTracker
from reactive_kafka.commit.strategy import Checkpointed, CommitStrategy
from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.errors import CheckpointError
from reactive_kafka.incoming.member import Member
from reactive_kafka.incoming.message import Message, MessageCheckpoint
from reactive_kafka.incoming.settlement import Settlements
from reactive_kafka.observe.events import Observer
from reactive_kafka.records import TopicPartition


class Storage:
    """Ties the keeper of one life to its clients.

    Args:
        members: The clients of the channel, by the time they are asked for.
        duplicates: Counts records that the store had already.
    """

    def __init__(
        self,
        settings: IncomingSettings,
        store: CheckpointStore,
        codec: Codec,
        clock: Clock,
        observer: Observer,
        settlements: Settlements,
        members: Callable[[], Sequence[Member]],
        duplicates: Callable[[int], None],
    ) -> None:
        assert settings.checkpoint is not None  # noqa: S101  # for the type checker
        self.keeper = Keeper(settings, store, codec, self, clock, observer)
        self.strategy: CommitStrategy = Checkpointed(settings.commit_interval_s, self.keeper.is_in_transaction)
        self.duplicates_dropped = duplicates
        self._kafka_interval_s = settings.checkpoint.kafka_commit_interval_s
        self._transactions = Transactions(self.keeper)
        self._settlements = settlements
        self._members = members
        settlements.storage = self

    def reader(self, connector: Connector) -> Connector:
        """Makes clients whose positions are in the store."""
        return CheckpointConnector(connector, self.keeper, self._kafka_interval_s)

    # -- what messages ask

    def begin_call(self, messages: Sequence[Message[Any]]) -> Sequence[Message[Any]]:
        """Those that a handler is to get; what the store has already is settled."""
        new = [message for message in messages if not self.keeper.has_stored(message)]
        if len(new) < len(messages):
            self.duplicates_dropped(len(messages) - len(new))
            for message in messages:
                if self.keeper.has_stored(message):
                    self._settlements.ack(message._tracker, message._index)
        self.keeper.begin_call(new)
        return new

    def checkpoint(self, message: Message[Any]) -> MessageCheckpoint:
        """See :attr:`reactive_kafka.Message.checkpoint`."""
        return self.keeper.checkpoint(message, self._settlements.on_loop)

    def transaction(self, messages: Sequence[Message[Any]]) -> AbstractAsyncContextManager[Any]:
        """See :meth:`reactive_kafka.Message.transaction`."""
        if not self._settlements.is_here:
            raise CheckpointError(
                f"channel {self.keeper.channel!r}: a transaction needs the event loop, and a blocking handler runs in "
                "a thread: make the handler async"
            )
        return self._transactions.of(messages)

    # -- what the keeper asks

    def fenced(self, partition: TopicPartition) -> None:
        """Another owner has a row: give the partition up, and begin anew if it is ours."""
        for member in self._members():
            member.begin_anew(partition)

    def give_up(self, partition: TopicPartition) -> None:
        """What waits to know whether it came straight back did not."""
        for member in self._members():
            member.holdings.give_up(partition)

    def is_ours(self, tracker: OffsetTracker) -> bool:
        """Whether the partition of a tracker is ours, and is not being let go."""
        return any(one.engine.has(tracker) and not one.assignment.is_letting_go for one in self._members())

    def carrying_out(self, tracker: OffsetTracker, until: int) -> list[Future[bool]]:
        """What nacks come to that are being carried out."""
        return self._settlements.nacks_up_to(tracker, until)

    def due(self, tracker: OffsetTracker, position: int) -> Due:
        """What a transaction is to store for a position."""
        for member in self._members():
            if member.engine.has(tracker):
                return member.engine.due_with(tracker, position)
        return Due(tracker, position, is_new=True)

    def stored(self, due: Due) -> None:
        """A transaction has stored it: that counts as a commit."""
        for member in self._members():
            if due.tracker in member.engine.all_trackers():
                member.engine.stored_with(due)
        self._settlements.stored(due.tracker, due.position)
