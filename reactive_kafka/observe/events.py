"""What happens, as values: the code reports events, and whoever wants to know observes them.

``level`` is how loud a log line about the event is, ``text()`` one sentence for people. Reasons may hold
anything that a record or a broker brought: an observer that shows them makes them safe.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, Protocol

from reactive_kafka.observe.batches import count_of, progress_text, ranges_text, short_id
from reactive_kafka.observe.facts import SparkBatchFacts
from reactive_kafka.records import TopicPartition

Level = Literal["info", "warning", "error"]
PROGRESS_EVERY_S = 10.0
"""How often a Spark batch that runs is reported by ``SparkBatchProgress``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened, in the application as a whole unless it names a channel."""

    level: ClassVar[Level] = "info"
    identity: ClassVar[tuple[str, ...]] = ()  # fields in which two events of one class differ that are not repeats

    def text(self) -> str:
        """One sentence for people."""
        raise NotImplementedError

    def key(self) -> Hashable:
        """What two events have in common of which the second is a repeat."""
        return (type(self), *(getattr(self, name) for name in self.identity))

    def subject(self) -> str:
        """What a log line begins with, or ""."""
        return ""

    def loudness(self) -> Level:
        """How loud this one is; events of one class may differ."""
        return self.level


class Observer(Protocol):
    """Is told what happens, on the event loop and at once: it must neither block nor raise."""

    def on(self, event: Event) -> None: ...


class Observers:
    """Several observers as one. One that raises disturbs neither the others nor the application."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = tuple(observers)
        self._broken: set[int] = set()

    def on(self, event: Event) -> None:
        """Tell each of them."""
        for index, observer in enumerate(self._observers):
            try:
                observer.on(event)
            except Exception:
                # Records must go on whatever a log sink does. Logging may be what is broken, so the first error
                # of each observer goes to stderr, and the same again each time would be a flood.
                if index not in self._broken:
                    self._broken.add(index)
                    traceback.print_exc(file=sys.stderr)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelEvent(Event):
    """Something that happened in one channel."""

    identity: ClassVar[tuple[str, ...]] = ("channel",)
    channel: str

    def subject(self) -> str:
        return self.channel


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelStateChanged(ChannelEvent):
    """The channel went from one state of its lifecycle to another; ``ChannelFailed`` says why it failed."""

    identity: ClassVar[tuple[str, ...]] = ("channel", "new")
    old: str
    new: str
    reason: str | None = None

    def text(self) -> str:
        return f"{self.new}, was {self.old}{f': {self.reason}' if self.reason else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelPaused(ChannelEvent):
    """The application has paused or resumed the channel or partitions of it, or changed the reasons."""

    identity: ClassVar[tuple[str, ...]] = ("channel", "reasons", "partitions")
    reasons: tuple[str, ...]  # why all of it is paused now; empty: it is not
    partitions: frozenset[TopicPartition] = frozenset()  # those that are paused by themselves

    def text(self) -> str:
        some = f"{', '.join(map(str, sorted(self.partitions)))} paused" if self.partitions else ""
        whole = f"paused: {'; '.join(self.reasons)}" if self.reasons else ""
        return "; ".join(filter(None, (whole, some))) or "resumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelFailed(ChannelEvent):
    """The channel has stopped; ``reason`` says whether it is started again by itself, and when."""

    level: ClassVar[Level] = "error"
    reason: str
    error: BaseException | None = field(default=None, compare=False)  # for its traceback

    def text(self) -> str:
        return f"failed: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerUnavailable(ChannelEvent):
    """The broker cannot be used; the channel tries again by itself."""

    level: ClassVar[Level] = "warning"
    reason: str

    def text(self) -> str:
        return f"the broker is away: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerAvailable(ChannelEvent):
    """The broker can be used again, *away_s* seconds after it was missed first."""

    away_s: float

    def text(self) -> str:
        return f"the broker is back after {self.away_s:.1f} s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebalanced(ChannelEvent):
    """The assignment changed; *partitions* were assigned, revoked or lost, and may be none."""

    identity: ClassVar[tuple[str, ...]] = ("channel", "kind", "generation")
    kind: Literal["assigned", "revoked", "lost"]
    partitions: frozenset[TopicPartition]
    generation: int | None = None

    def text(self) -> str:
        count = len(self.partitions)
        named = ", ".join(map(str, sorted(self.partitions)[:5])) + (", ..." if count > 5 else "")
        return f"{_partitions(self.partitions)} {self.kind}{f': {named}' if count else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumersIdle(ChannelEvent):
    """Some of the channel's connections have no partition: there are more members than partitions."""

    level: ClassVar[Level] = "warning"
    idle: int
    consumers: int

    def text(self) -> str:
        return idle_text(self.idle, self.consumers)


def idle_text(idle: int, consumers: int) -> str:
    """What somebody should know of *idle* of so many consumers that have no partition."""
    have = "1 has" if idle == 1 else f"{idle} have"
    return f"of {consumers} consumers {have} no partition: the group has more members than there are partitions"


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionsUnknown(ChannelEvent):
    """Where reading begins could not be asked of the group or the log; told once a reason."""

    level: ClassVar[Level] = "warning"
    partitions: frozenset[TopicPartition]
    reason: str

    def what(self) -> str:
        """What is not known, and why."""
        what = f"positions of {_partitions(self.partitions)}" if self.partitions else "the topics"
        return f"{what} are not known: {self.reason}"

    def text(self) -> str:
        return f"{self.what()}; nothing is delivered until they are, and it is tried again"


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionsKnown(ChannelEvent):
    """What :class:`PositionsUnknown` told of is over."""

    def text(self) -> str:
        return "positions are known, and reading begins"


def _partitions(partitions: frozenset[TopicPartition]) -> str:
    return f"{len(partitions)} partition{'s' * (len(partitions) != 1)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMissing(ChannelEvent):
    """A topic that the channel is to read is not there, or not for us; told once, until it is."""

    level: ClassVar[Level] = "warning"
    identity: ClassVar[tuple[str, ...]] = ("channel", "topic")
    topic: str
    reason: str

    def text(self) -> str:
        return f"{self.reason}; it is read as soon as it is there"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFound(ChannelEvent):
    """What :class:`TopicMissing` told of is over."""

    identity: ClassVar[tuple[str, ...]] = ("channel", "topic")
    topic: str

    def text(self) -> str:
        return f"the topic {self.topic!r} is there"


@dataclass(frozen=True, slots=True, kw_only=True)
class NothingMatches(ChannelEvent):
    """No topic fits the channel's pattern, as yet."""

    level: ClassVar[Level] = "warning"
    pattern: str

    def text(self) -> str:
        return f"no topic fits the pattern {self.pattern!r}; those that appear are read"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadersAway(ChannelEvent):
    """Partitions cannot be read, though a broker answers: the nodes that lead them do not; told once."""

    level: ClassVar[Level] = "warning"
    partitions: frozenset[TopicPartition]
    reason: str

    def text(self) -> str:
        return self.reason


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadersBack(ChannelEvent):
    """What :class:`LeadersAway` told of is over."""

    def text(self) -> str:
        return "every partition has a leader that answers"


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetReset(ChannelEvent):
    """The position was set by ``auto_offset_reset``: nothing was committed, or the log does not hold it any more."""

    level: ClassVar[Level] = "warning"
    identity: ClassVar[tuple[str, ...]] = ("channel", "partition")
    partition: TopicPartition
    from_offset: int | None  # None: nothing was committed
    to_offset: int
    to: str  # earliest, latest
    skipped: int | None = None  # records passed over unread; None: not known
    reason: str | None = None

    def text(self) -> str:
        start = "nothing committed" if self.from_offset is None else f"offset {self.from_offset}"
        skipped = f", {self.skipped} records skipped" if self.skipped else ""
        reason = f": {self.reason}" if self.reason else ""
        return f"{self.partition} was reset to {self.to}: {start} -> offset {self.to_offset}{skipped}{reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFenced(ChannelEvent):
    """Another owner has taken a partition over in the checkpoint store: what this one had of it is given up."""

    level: ClassVar[Level] = "warning"
    identity: ClassVar[tuple[str, ...]] = ("channel", "partition", "token")
    partition: TopicPartition
    token: int  # of this owner
    found: int | None  # the one that stands there; None: the row is gone

    def text(self) -> str:
        there = "its row is gone from" if self.found is None else f"another owner (token {self.found}) has it in"
        return f"{self.partition}: {there} the checkpoint store (ours was {self.token}); it begins anew if still ours"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreUnavailable(ChannelEvent):
    """The checkpoint store cannot be used; the channel tries again by itself."""

    level: ClassVar[Level] = "warning"
    reason: str

    def text(self) -> str:
        return f"the checkpoint store cannot be used: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreAvailable(ChannelEvent):
    """The checkpoint store can be used again, *away_s* seconds after it was missed first."""

    away_s: float

    def text(self) -> str:
        return f"the checkpoint store is back after {self.away_s:.1f} s"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFound(ChannelEvent):
    """The checkpoint store and Kafka have different positions: the store's counts."""

    identity: ClassVar[tuple[str, ...]] = ("channel", "partition")
    partition: TopicPartition
    position: int
    in_kafka: int

    def text(self) -> str:
        return f"{self.partition} goes on at {self.position}, as the checkpoint store has it; Kafka has {self.in_kafka}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StateDropped(ChannelEvent):
    """Reading goes back before what the checkpoint store has: the state of there is not one of here."""

    level: ClassVar[Level] = "warning"
    identity: ClassVar[tuple[str, ...]] = ("channel", "partition")
    partition: TopicPartition
    from_offset: int
    to_offset: int

    def text(self) -> str:
        return f"{self.partition} goes back from {self.from_offset} to {self.to_offset}: its state begins anew"


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaCommitFailed(ChannelEvent):
    """The positions of the checkpoint store could not be committed to Kafka as well; it is tried again."""

    level: ClassVar[Level] = "warning"
    reason: str

    def text(self) -> str:
        return f"the store's positions were not committed to Kafka: {self.reason}; it is tried again"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanDropped(ChannelEvent):
    """A range that was planned beside the group's position is not kept to: its records are cut anew.

    What an earlier owner has written of it may be written once more, under other ids. Without a range it is not
    known what was planned.
    """

    level: ClassVar[Level] = "warning"
    identity: ClassVar[tuple[str, ...]] = ("channel", "partition", "start")
    partition: TopicPartition
    start: int | None = None
    until: int | None = None
    reason: str

    def text(self) -> str:
        planned = "what was planned" if self.start is None else f"the planned range [{self.start}, {self.until})"
        return f"{self.partition}: {planned} is dropped: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptAcksDropped(ChannelEvent):
    """What is stored beside the group's position of records that were acked above it is not used: they come again."""

    level: ClassVar[Level] = "warning"
    identity: ClassVar[tuple[str, ...]] = ("channel", "partition")
    partition: TopicPartition
    reason: str

    def text(self) -> str:
        return f"{self.partition}: acks that were kept are dropped, their records are handled again: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFailed(ChannelEvent):
    """Records of one partition cannot be read; the other partitions go on."""

    level: ClassVar[Level] = "error"
    identity: ClassVar[tuple[str, ...]] = ("channel", "partition")
    partition: TopicPartition
    offset: int | None
    reason: str

    def text(self) -> str:
        at = "" if self.offset is None else f" at offset {self.offset}"
        return f"{self.partition} cannot be read{at}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitFailed(ChannelEvent):
    """A commit request did not succeed; what it would have stored is committed again at the next tick."""

    level: ClassVar[Level] = "warning"
    outcome: Literal["failed", "unknown"]
    partitions: frozenset[TopicPartition]
    reason: str

    def text(self) -> str:
        return f"commit {self.outcome} for {_partitions(self.partitions)}, tried again: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledNotStored(ChannelEvent):
    """Partitions were let go, and the positions behind their settled records could not be stored before."""

    level: ClassVar[Level] = "warning"
    during: Literal["revocation", "stop"]
    partitions: frozenset[TopicPartition]
    records: int  # at most: offsets between the stored positions and the settled ones
    reason: str

    def text(self) -> str:
        records = f"{self.records} record{'s' * (self.records != 1)} at most"
        left = f"what was settled of {_partitions(self.partitions)} ({records})"
        return f"{self.during}: {left} was not stored and may be delivered again: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordPoisoned(ChannelEvent):
    """A record has been unsettled for longer than the limit."""

    level: ClassVar[Level] = "error"
    identity: ClassVar[tuple[str, ...]] = ("channel", "partition")
    partition: TopicPartition
    offset: int
    age_s: float
    limit_s: float
    waiting: int  # records received behind it and not settled
    on_poison: str

    def text(self) -> str:
        return (
            f"poison: {self.partition} offset {self.offset} unsettled for {self.age_s:.1f} s "
            f"(limit {self.limit_s:g} s), {self.waiting} waiting behind it; on_poison is {self.on_poison!r}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PoisonSettled(ChannelEvent):
    """A record that was poison has been settled after all."""

    identity: ClassVar[tuple[str, ...]] = ("channel", "partition")
    partition: TopicPartition
    offset: int
    age_s: float

    def text(self) -> str:
        return f"no longer poison: {self.partition} offset {self.offset} was settled after {self.age_s:.1f} s"


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureEvent(ChannelEvent):
    """Something that a failure of one record led to; *error* is what it failed with, *reason* says so."""

    level: ClassVar[Level] = "warning"
    identity: ClassVar[tuple[str, ...]] = ("channel", "partition")
    partition: TopicPartition
    offset: int
    reason: str
    error: BaseException | None = field(default=None, compare=False)  # for its traceback

    def kind(self) -> str:
        """The class of the error: failures of one kind are alike."""
        return self.reason.partition(":")[0] if self.error is None else type(self.error).__qualname__

    def key(self) -> Hashable:
        return (type(self), self.channel, self.partition, self.kind())


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFailed(FailureEvent):
    """What became of a record that has failed for good: each has to be found in the log by its offset."""

    def said(self, records: str, *, several: bool) -> str:
        """What became of *records*, in words that stand before the reason."""
        raise NotImplementedError

    def text(self) -> str:
        return f"{self.said(f'{self.partition} offset {self.offset}', several=False)}: {self.reason}"

    def text_of(self, offsets: str, count: int) -> str:
        """One sentence for this one and others like it before, *count* in all."""
        return f"{self.said(f'{self.partition} offsets {offsets}', several=True)}: {self.reason} (the last of {count})"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordIgnored(RecordFailed):
    """A nacked record counts as settled, because the failure strategy is ``ignore``."""

    def said(self, records: str, *, several: bool) -> str:
        return f"{records} {_was(several)} nacked and ignored"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordDeadLettered(RecordFailed):
    """A nacked record stands in the dead-letter topic *to*, and counts as settled."""

    to: str

    def key(self) -> Hashable:
        return (type(self), self.channel, self.partition, self.kind(), self.to)

    def said(self, records: str, *, several: bool) -> str:
        return f"{records} {_was(several)} nacked and written to {self.to}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordDelayed(RecordFailed):
    """A nacked record stands in the retry topic *to*, counts as settled, and is tried again in *delay_s* seconds."""

    to: str
    delay_s: float

    def key(self) -> Hashable:
        return (type(self), self.channel, self.partition, self.kind(), self.to)

    def said(self, records: str, *, several: bool) -> str:
        return f"{records} {_was(several)} nacked, next try in {self.delay_s:g} s through {self.to}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordLeft(RecordFailed):
    """A record was nacked while its channel was stopping or had failed: it stays uncommitted."""

    level: ClassVar[Level] = "error"

    def said(self, records: str, *, several: bool) -> str:
        return f"{records} {_was(several)} nacked and stay{'s' * (not several)} uncommitted"


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerFailed(RecordFailed):
    """A handler raised after its record had its verdict: that stands, and nothing more comes of it."""

    def said(self, records: str, *, several: bool) -> str:
        whose = "the records had their" if several else "its record had its"
        return f"{records}: the handler raised after {whose} verdict"


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerRetried(FailureEvent):
    """A handler failed and is called again in *wait_s* seconds; *attempt* is the call that failed, from 1."""

    attempt: int
    wait_s: float

    def text(self) -> str:
        return (
            f"{self.partition} offset {self.offset}: attempt {self.attempt} failed, "
            f"next in {self.wait_s:g} s: {self.reason}"
        )


def _was(several: bool) -> str:
    return "were" if several else "was"


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerAbandoned(ChannelEvent):
    """A revocation or a stop did not wait any longer: *records* are unsettled and will be delivered again."""

    level: ClassVar[Level] = "warning"
    during: Literal["revocation", "stop"]
    records: int
    waited_s: float

    def text(self) -> str:
        what, were = (
            ("1 record", "was left behind; it")
            if self.records == 1
            else (f"{self.records} records", "were left behind; they")
        )
        return f"{self.during}: {what} not settled after {self.waited_s:.1f} s {were} will be delivered again"


@dataclass(frozen=True, slots=True, kw_only=True)
class EndFailed(ChannelEvent):
    """A step of the end of a channel (``*``: of the application) has failed; the others are taken all the same."""

    level: ClassVar[Level] = "error"
    doing: str
    reason: str
    error: BaseException | None = field(default=None, compare=False)  # for its traceback

    def text(self) -> str:
        return f"{self.doing} failed: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HookFailed(ChannelEvent):
    """A hook of the user raised; what it was told about goes on."""

    level: ClassVar[Level] = "error"
    hook: str
    reason: str
    error: BaseException | None = field(default=None, compare=False)  # for its traceback

    def text(self) -> str:
        return f"the hook {self.hook} raised: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SendFailed(ChannelEvent):
    """A record could not be written: that of an outgoing channel, a dead letter or a delayed retry."""

    level: ClassVar[Level] = "warning"
    topic: str
    reason: str

    def text(self) -> str:
        return f"a record could not be written to {self.topic}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkBatchEvent(ChannelEvent):
    """Something that happened to one Spark batch."""

    id: str = ""

    def subject(self) -> str:
        return f"{self.channel} {short_id(self.id)}" if self.id else self.channel


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkBatchEnded(SparkBatchEvent):
    """A Spark batch is over; of those that ended well *rejected* records were no use to the job."""

    identity: ClassVar[tuple[str, ...]] = ("channel", "outcome")
    outcome: Literal["ok", "failed", "cancelled", "lost"]
    records: int
    duration_s: float
    ranges: tuple[str, ...] = ()
    attempt: int = 1
    rejected: int = 0
    reason: str | None = None

    def loudness(self) -> Level:
        return "info" if self.outcome == "ok" else "warning"

    def text(self) -> str:
        again = f", attempt {self.attempt}" if self.attempt > 1 else ""
        rejected = f", {self.rejected} rejected" if self.rejected else ""
        reason = f": {self.reason}" if self.reason else ""
        which = f" of {ranges_text(self.ranges)}" if self.ranges else ""
        took = f"{self.duration_s:.2f} s"
        return f"spark batch {self.outcome}: {count_of(self.records)}{which} in {took}{rejected}{again}{reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkBatchProgress(SparkBatchEvent):
    """A Spark batch runs, and has come so far; told each ``PROGRESS_EVERY_S``."""

    identity: ClassVar[tuple[str, ...]] = ("channel", "id")
    batch: SparkBatchFacts

    def text(self) -> str:
        return progress_text(self.batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkBatchSplit(SparkBatchEvent):
    """A Spark batch of *records* failed on some of them, as ``SparkBatchEnded`` has told: it runs again as *parts*."""

    records: int
    parts: int
    reason: str

    def text(self) -> str:
        return f"spark batch split: its {count_of(self.records)} run again in {self.parts} parts"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopBlocked(Event):
    """The event loop stood still for *lag_s* seconds; *stack* shows what held it, where that is known."""

    level: ClassVar[Level] = "warning"
    lag_s: float
    stack: str | None = None

    def text(self) -> str:
        return f"the event loop was blocked for {self.lag_s:.2f} s{f' by {self.stack}' if self.stack else ''}"
