"""Events about what a channel reads: topics and their leaders, where reading begins, what cannot be
read.
"""

from __future__ import annotations

from collections.abc import Hashable

from reactive_kafka.observe.batches import count_of
from reactive_kafka.observe.events.base import (
    ChannelEvent,
    Level,
    PartitionEvent,
    Problem,
    event,
)
from reactive_kafka.observe.text import first_of
from reactive_kafka.records import TopicPartition

# Partitions, or moves of them, in one line.
MOST_NAMED = 10


@event()
class PositionsUnknown(Problem):
    """The group or the log could not be asked where to start; reported once for each reason."""

    partitions: frozenset[TopicPartition]

    def what(self) -> str:
        """What is not known, and why."""
        what = (
            f"positions of {count_of(len(self.partitions), 'partition')}"
            if self.partitions
            else "the topics"
        )
        return f"{what} are not known: {self.reason}"

    def text(self) -> str:
        return f"{self.what()}; retrying, nothing is delivered until then"


@event("positions are known, reading begins")
class PositionsKnown(ChannelEvent):
    """The end of :class:`PositionsUnknown`."""


@event("{reason}; it is read as soon as it is available", apart=("topic",))
class TopicMissing(Problem):
    """A topic of the channel does not exist, or we are not authorised to read it; reported once."""

    topic: str


@event("the topic {topic!r} is available", apart=("topic",))
class TopicFound(ChannelEvent):
    """The end of :class:`TopicMissing`, or of :class:`NotWritable`."""

    topic: str


@event(
    "a range of {partition} goes up to {until}, and its log ends at {end}: that is the end here",
    level="warning",
)
class RangeBeyondEnd(ChannelEvent):
    """A run that ends by itself cannot wait for records that nobody has written."""

    partition: TopicPartition
    until: int
    end: int


@event(
    "no topic matches the pattern {pattern!r} yet; topics that appear later are read",
    level="warning",
)
class NothingMatches(ChannelEvent):
    """No topic matches the channel's pattern yet; topics that appear later are read."""

    pattern: str


@event("{reason}")
class LeadersAway(Problem):
    """A broker answers, but the leaders of these partitions do not; reported once."""

    partitions: frozenset[TopicPartition]


@event("every partition has a leader that answers")
class LeadersBack(ChannelEvent):
    """The end of :class:`LeadersAway`."""


@event(
    "the last stable offset of {partition} stands at {stable}, the end is {end}: an open transaction",
    level="warning",
)
class TransactionHangs(PartitionEvent):
    """A partition whose committed records are read gives none for long, although there are more;
    reported once.
    """

    stable: int
    end: int


@event(level="warning")
class OffsetReset(PartitionEvent):
    """``auto_offset_reset`` chose the position: nothing was committed, or the log no longer holds
    it.

    Or ``on_recreated_topic`` did: then there is a *reason*.
    """

    # None: nothing was committed.
    from_offset: int | None
    to_offset: int
    # Earliest, latest.
    to: str
    # Records passed over unread; None: not known.
    skipped: int | None = None
    # Why what was committed is void; None: auto_offset_reset chose.
    reason: str | None = None

    def loudness(self) -> Level:
        """A warning, but where a group begins with a log: it passes nothing over, and has lost
        nothing.
        """
        return (
            "info"
            if self.from_offset is None and self.reason is None and self.to_offset == 0
            else self.level
        )

    def kind(self) -> Hashable:
        """Equal for resets that one line tells of."""
        return (
            OffsetReset,
            self.channel,
            self.to,
            self.from_offset is None,
            self.reason,
            self.loudness(),
        )

    def move(self) -> str:
        """From where to where."""
        start = "nothing committed" if self.from_offset is None else f"offset {self.from_offset}"
        return f"{start} -> offset {self.to_offset}"

    def text(self) -> str:
        skipped = f", {self.skipped} records skipped" if self.skipped else ""
        why = "" if self.reason is None else f"; {self.reason}"
        return f"{self.partition} was reset to {self.to}: {self.move()}{skipped}{why}"


@event(level="warning")
class PartitionsReset(ChannelEvent):
    """Several :class:`OffsetReset` of one kind, as the log tells them."""

    resets: tuple[OffsetReset, ...]

    def loudness(self) -> Level:
        return self.resets[0].loudness()

    def text(self) -> str:
        first = self.resets[0]
        moves: dict[str, list[TopicPartition]] = {}
        for reset in self.resets:
            moves.setdefault(reset.move(), []).append(reset.partition)
        places = [
            f"{move} ({first_of(sorted(those), MOST_NAMED)})" for move, those in moves.items()
        ]
        lost = sum(reset.skipped or 0 for reset in self.resets)
        skipped = f", {lost} records skipped" if lost else ""
        why = "" if first.reason is None else f"; {first.reason}"
        named = first_of(places, MOST_NAMED)
        return f"{len(self.resets)} partitions were reset to {first.to}: {named}{skipped}{why}"


@event(level="error")
class ReadFailed(PartitionEvent):
    """Records of one partition cannot be read; the other partitions go on."""

    offset: int | None
    reason: str

    def text(self) -> str:
        at = "" if self.offset is None else f" at offset {self.offset}"
        return f"{self.partition} cannot be read{at}: {self.reason}"


@event(level="warning", apart=("offset",))
class UnreadableSkipped(PartitionEvent):
    """Offsets from ``offset`` up to ``until`` (exclusive) cannot be read and were passed over, by
    ``on_unreadable``.
    """

    offset: int
    until: int
    reason: str

    def text(self) -> str:
        last = self.until - 1
        one = f"offset {last} cannot be read and was"
        several = f"offsets {self.offset} to {last} cannot be read and were"
        return f"{self.partition}: {one if last == self.offset else several} skipped: {self.reason}"
