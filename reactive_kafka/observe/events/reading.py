"""Events about reading: topics and their leaders, start positions, unreadable records."""

from __future__ import annotations

from collections.abc import Hashable

from reactive_kafka.observe.events.base import (
    ChannelEvent,
    Level,
    PartitionEvent,
    Problem,
    event,
)
from reactive_kafka.observe.wording import count_of, first_of
from reactive_kafka.records import TopicPartition

# At most so many partitions, or resets, are named in one line.
MOST_NAMED = 10


@event(identity=("partitions",))
class PositionsUnknown(Problem):
    """The start positions could not be looked up. Reported once for each reason."""

    partitions: frozenset[TopicPartition]

    def what(self) -> str:
        """What is not known, and why."""
        if self.partitions:
            unknown = f"positions of {count_of(len(self.partitions), 'partition')}"
        else:
            unknown = "the topics"
        return f"{unknown} are not known: {self.reason}"

    def text(self) -> str:
        return f"{self.what()}; retrying, nothing is delivered until then"


@event("positions are known, reading begins")
class PositionsKnown(ChannelEvent):
    """The end of :class:`PositionsUnknown`."""


@event("{reason}; it is read as soon as it is available", identity=("topic",))
class TopicMissing(Problem):
    """A topic of the channel does not exist, or may not be read. Reported once."""

    topic: str


@event("the topic {topic!r} was created", identity=("topic",))
class TopicCreated(ChannelEvent):
    """A topic with ``[topics.X] create = true`` was missing, and was created for the channel."""

    topic: str
    partitions: int


@event("the topic {topic!r} is available", identity=("topic",))
class TopicFound(ChannelEvent):
    """The end of :class:`TopicMissing`, or of :class:`NotWritable`."""

    topic: str


@event(
    "a range of {partition} goes up to {until}, but its log ends at {end}: reading ends there",
    level="warning",
    identity=("partition",),
)
class RangeBeyondEnd(ChannelEvent):
    """A range goes past the end of the log. A run that ends by itself reads to the end only."""

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


@event("{reason}", level="warning")
class RackHasNoEffect(ChannelEvent):
    """No broker is in the rack that ``client_rack`` names. Reported when that begins."""

    reason: str


@event("{reason}", identity=("partitions",))
class LeadersAway(Problem):
    """A broker answers, but the leaders of these partitions do not. Reported once."""

    partitions: frozenset[TopicPartition]


@event("every partition has a leader that answers")
class LeadersBack(ChannelEvent):
    """The end of :class:`LeadersAway`."""


@event(
    "the last stable offset of {partition} stays at {stable}, the end is {end}: an open"
    " transaction",
    level="warning",
)
class TransactionHangs(PartitionEvent):
    """An open transaction has kept the records behind it unread for a long time. Reported once."""

    stable: int
    end: int


@event(level="warning")
class OffsetReset(PartitionEvent):
    """``auto_offset_reset`` or ``on_recreated_topic`` chose the position of a partition.

    The first does if no position is committed, or the log no longer has its record. The second
    gives a *reason*.
    """

    # None: nothing was committed.
    from_offset: int | None
    to_offset: int
    # "earliest" or "latest".
    to: str
    # How many records are not read because of it. None: not known.
    skipped: int | None = None
    # Why the committed position is invalid. None: auto_offset_reset chose.
    reason: str | None = None

    def loudness(self) -> Level:
        """Info if a new group starts at offset 0, since no record is skipped; else a warning."""
        is_new_group = self.from_offset is None and self.reason is None
        return "info" if is_new_group and self.to_offset == 0 else self.level

    def kind(self) -> Hashable:
        """A value that is equal for resets that share a log line."""
        return (
            OffsetReset,
            self.channel,
            self.to,
            self.from_offset is None,
            self.reason,
            self.loudness(),
        )

    def move(self) -> str:
        """The old and the new position."""
        start = "nothing committed" if self.from_offset is None else f"offset {self.from_offset}"
        return f"{start} -> offset {self.to_offset}"

    def text(self) -> str:
        skipped = f", {self.skipped} records skipped" if self.skipped else ""
        why = "" if self.reason is None else f"; {self.reason}"
        return f"{self.partition} was reset to {self.to}: {self.move()}{skipped}{why}"


@event(level="warning")
class PartitionsReset(ChannelEvent):
    """Several :class:`OffsetReset` of one kind, in one log line."""

    resets: tuple[OffsetReset, ...]

    def loudness(self) -> Level:
        return self.resets[0].loudness()

    def text(self) -> str:
        first = self.resets[0]
        moves: dict[str, list[TopicPartition]] = {}
        for reset in self.resets:
            moves.setdefault(reset.move(), []).append(reset.partition)
        named = [
            f"{move} ({first_of(sorted(partitions), MOST_NAMED)})"
            for move, partitions in moves.items()
        ]
        text = f"{len(self.resets)} partitions were reset to {first.to}: "
        text += first_of(named, MOST_NAMED)
        skipped = sum(reset.skipped or 0 for reset in self.resets)
        if skipped:
            text += f", {skipped} records skipped"
        if first.reason is not None:
            text += f"; {first.reason}"
        return text


@event(level="error")
class ReadFailed(PartitionEvent):
    """Records of one partition cannot be read. The other partitions continue."""

    offset: int | None
    reason: str

    def text(self) -> str:
        at = "" if self.offset is None else f" at offset {self.offset}"
        return f"{self.partition} cannot be read{at}: {self.reason}"


@event(level="warning", identity=("offset",))
class UnreadableSkipped(PartitionEvent):
    """Unreadable offsets from ``offset`` to before ``until`` were skipped by ``on_unreadable``."""

    offset: int
    until: int
    reason: str

    def text(self) -> str:
        last = self.until - 1
        if last == self.offset:
            what = f"offset {last} cannot be read and was skipped"
        else:
            what = f"offsets {self.offset} to {last} cannot be read and were skipped"
        return f"{self.partition}: {what}: {self.reason}"
