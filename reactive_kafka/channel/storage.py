"""What the checkpoint store asks of one client of the channel."""

from __future__ import annotations

from reactive_kafka.channel.consumer import ChannelConsumer
from reactive_kafka.commit.tracker import OffsetTracker


class StoreClient:
    """A :class:`~reactive_kafka.checkpoint.clients.Client`: its answers come from several parts of a client."""

    def __init__(self, consumer: ChannelConsumer) -> None:
        self._consumer = consumer
        self.name = consumer.name
        self.is_for_retries = consumer.is_for_retries
        self.reads_with = consumer.table.has
        self.start_over = consumer.start_anew
        self.give_up = consumer.give_up
        self.retains = consumer.starts.is_retained
        self.due = consumer.engine.due_with
        self.stored = consumer.engine.stored_with

    def knows(self, tracker: OffsetTracker) -> bool:
        """Whether it reads with the tracker, or may retain its partition."""
        return self._consumer.table.of(tracker) is not None

    def keeps(self, tracker: OffsetTracker) -> bool:
        """Whether it reads with the tracker, and the partition is not being released."""
        return self._consumer.table.has(tracker) and self._consumer.assignment.has(tracker.partition)
