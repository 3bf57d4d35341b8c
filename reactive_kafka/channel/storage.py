"""The checkpoint store in one life of a channel: what it asks of the channel's clients, and what they ask of it."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from reactive_kafka.broker.client import Connector
from reactive_kafka.channel.consumer import ChannelConsumer
from reactive_kafka.checkpoint.codec import Codec
from reactive_kafka.checkpoint.consumer import CheckpointConnector
from reactive_kafka.checkpoint.message_states import MessageStates
from reactive_kafka.checkpoint.rows import CheckpointRows
from reactive_kafka.checkpoint.store import CheckpointStore
from reactive_kafka.checkpoint.transaction import Transactions
from reactive_kafka.clock import Clock
from reactive_kafka.commit.metadata.pending import PendingCommit
from reactive_kafka.commit.strategy import Checkpointed, CommitStrategy
from reactive_kafka.commit.tracker import OffsetTracker
from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.errors import CheckpointError
from reactive_kafka.observe.events import Observer
from reactive_kafka.records import TopicPartition
from reactive_kafka.verdicts.acknowledge import Acknowledger
from reactive_kafka.verdicts.delivery import D, Delivery
from reactive_kafka.verdicts.message import MessageCheckpoint


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
        acknowledger: Acknowledger,
        members: Callable[[], Sequence[ChannelConsumer]],
        duplicates: Callable[[int], None],
    ) -> None:
        assert settings.checkpoint is not None  # noqa: S101  # for the type checker
        self.rows = CheckpointRows(settings, store, self, clock, observer)
        self.strategy: CommitStrategy = Checkpointed(settings.commit_interval_s, self.rows.is_in_transaction)
        self.states = MessageStates(settings, self.rows, codec)
        self.duplicates_dropped = duplicates
        self._kafka_interval_s = settings.checkpoint.kafka_commit_interval_s
        self._transactions = Transactions(self.rows, acknowledger.fail)
        self._acknowledger = acknowledger
        self._members = members
        acknowledger.storage = self
        acknowledger.blocks = self._transactions.blocks

    def reader(self, connector: Connector) -> Connector:
        """Makes clients whose positions are in the store."""
        return CheckpointConnector(connector, self.rows, self._kafka_interval_s)

    # -- what messages and their verdicts ask

    def begins(self, tracker: OffsetTracker, owner: str) -> None:
        """A partition is read with this tracker from here on, by the client of this name."""
        self.rows.begin(tracker, owner)

    def nacked(self, tracker: OffsetTracker, offset: int) -> None:
        """A record has set no state."""
        self.states.nacked(tracker, offset)

    def begin_call(self, messages: Sequence[D]) -> Sequence[D]:
        """Those that a handler is to get; what the store has already is settled."""
        new = [message for message in messages if not self.states.has_stored(message)]
        if len(new) < len(messages):
            self.duplicates_dropped(len(messages) - len(new))
            for message in messages:
                if self.states.has_stored(message):
                    self._acknowledger.was_stored(message)
        self.states.begin_call(new)
        return new

    def checkpoint(self, message: Delivery) -> MessageCheckpoint:
        """See :attr:`reactive_kafka.Message.checkpoint`."""
        return self.states.checkpoint(message, self._acknowledger.on_loop)

    def transaction(self, messages: Sequence[Delivery]) -> AbstractAsyncContextManager[Any]:
        """See :meth:`reactive_kafka.Message.transaction`."""
        if not self._acknowledger.is_here:
            raise CheckpointError(
                f"channel {self.rows.channel!r}: a transaction needs the event loop, and a blocking handler runs in "
                "a thread: make the handler async"
            )
        for message in messages:
            if self._is_of_retries(message.tracker):
                raise CheckpointError(
                    f"channel {self.rows.channel!r}: {message.topic_partition} is none of its partitions in the "
                    "checkpoint store: records of retry topics have no transaction"
                )
        return self._transactions.of(messages)

    def _is_of_retries(self, tracker: OffsetTracker) -> bool:
        return any(one.is_for_retries and tracker in one.table.all_trackers() for one in self._members())

    def has_stored(self, message: Delivery) -> bool:
        """Whether a transaction has stored a message, which is settled since."""
        return not message.tracker.is_open(message.index) and self.states.has_stored(message)

    def refuse(self, message: Delivery) -> None:
        """A message that may be in an open transaction gets another verdict."""
        self._transactions.refuse(message)

    def may_have_stored(self, message: Delivery) -> bool:
        """Whether a transaction has tried to store a message that is without a verdict."""
        return self._transactions.may_have_stored(message)

    async def find_out(self, message: Delivery) -> None:
        """Have it told whether it has; see :meth:`Transactions.find_out`."""
        await self._transactions.find_out(message)

    # -- what the keeper asks

    def fenced(self, partition: TopicPartition, owner: str) -> None:
        """Another owner has a row: the client gives the partition up, and begins anew if it is its own."""
        for member in self._members():
            if member.name == owner:
                member.start_anew(partition)

    def give_up(self, partition: TopicPartition) -> None:
        """What waits to know whether it came straight back did not."""
        for member in self._members():
            member.give_up(partition)

    def is_tracked(self, tracker: OffsetTracker) -> bool:
        """Whether it is the tracker of a partition of the assignment."""
        return any(member.table.has(tracker) for member in self._members())

    def is_ours(self, tracker: OffsetTracker) -> bool:
        """Whether the partition of a tracker is ours, and is not being let go."""
        return any(one.table.has(tracker) and one.assignment.has(tracker.partition) for one in self._members())

    def goes_on(self, partition: TopicPartition, position: int | None) -> bool:
        """Whether a partition that was let go is taken up where it stood, with this position in the store."""
        return any(member.starts.is_retained(partition, position) for member in self._members())

    def carrying_out(self, tracker: OffsetTracker, until: int) -> list[Future[bool]]:
        """What nacks come to that are being carried out."""
        return self._acknowledger.nacks_up_to(tracker, until)

    def due(self, tracker: OffsetTracker, position: int) -> PendingCommit:
        """What a transaction is to store for a position."""
        for member in self._members():
            if tracker in member.table.all_trackers():  # also one that is let go: the row is ours until it is claimed
                return member.engine.due_with(tracker, position)
        return PendingCommit(tracker, position, is_new=True)

    def stored(self, due: PendingCommit) -> None:
        """A transaction has stored it: that counts as a commit."""
        for member in self._members():
            if due.tracker in member.table.all_trackers():
                member.engine.stored_with(due)
        self._acknowledger.stored(due.tracker, due.position)
