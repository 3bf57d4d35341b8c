"""Events about records and Spark batches: what failed and what became of it, poison, and what was
left behind.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import field
from typing import Literal

from reactive_kafka.observe.batches import count_of, progress_text, ranges_text, short_id
from reactive_kafka.observe.events.base import (
    ChannelEvent,
    Event,
    Level,
    PartitionEvent,
    Problem,
    event,
)
from reactive_kafka.observe.facts import SparkBatchFacts
from reactive_kafka.observe.text import first_of

PROGRESS_EVERY_S = 10.0
"""How often a running Spark batch is reported by ``SparkBatchProgress``."""

_ONE = {"was": "was", "stays": "stays", "its_record_had_its": "its record had its"}
_SEVERAL = {"was": "were", "stays": "stay", "its_record_had_its": "the records had their"}


@event(
    "poison: {partition} offset {offset} unsettled for {age_s:.1f} s (limit {limit_s:g} s), "
    "{waiting} waiting behind it; on_poison is {on_poison!r}",
    level="error",
)
class RecordPoisoned(PartitionEvent):
    """A record has been unsettled for longer than ``unprocessed_record_max_age``."""

    offset: int
    age_s: float
    limit_s: float
    # Records received behind it and not settled.
    waiting: int
    on_poison: str
    # Its handler has returned, and acks are by hand.
    is_forgotten: bool = False

    def text(self) -> str:
        return self._filled() + (
            "; its handler has returned without ack() or nack()" if self.is_forgotten else ""
        )


@event("no longer poison: {partition} offset {offset} was settled after {age_s:.1f} s")
class PoisonSettled(PartitionEvent):
    """The end of :class:`RecordPoisoned`: the record was settled, in whichever way."""

    offset: int
    age_s: float


@event(level="warning")
class FailureEvent(PartitionEvent):
    """A record failed with *error*, which *reason* describes."""

    offset: int
    reason: str
    # For its traceback.
    error: BaseException | None = field(default=None, compare=False)

    def kind(self) -> str:
        """The class of the error: failures of one kind are alike."""
        return (
            self.reason.partition(":")[0] if self.error is None else type(self.error).__qualname__
        )

    def key(self) -> Hashable:
        return (Event.key(self), self.kind())


@event()
class RecordFailed(FailureEvent):
    """What became of a record that has failed for good. Its offset has to appear in the log, even
    in a flood.
    """

    def text(self) -> str:
        records = f"{self.partition} offset {self.offset}"
        return f"{self._filled(records=records, **_ONE)}: {self.reason}"

    def text_of(self, offsets: str, count: int) -> str:
        """One sentence for *count* records that met the same; this is the last of them."""
        records = f"{self.partition} offsets {offsets}"
        return f"{self._filled(records=records, **_SEVERAL)}: {self.reason} (the last of {count})"


@event("{records} {was} nacked and ignored")
class RecordIgnored(RecordFailed):
    """A nacked record counts as settled, because the failure strategy is ``ignore``."""


@event(apart=("to",))
class RecordWritten(RecordFailed):
    """A nacked record was written to the topic *to*, and counts as settled."""

    to: str


@event("{records} {was} nacked and written to {to}")
class RecordDeadLettered(RecordWritten):
    """A nacked record was written to the dead-letter topic, and counts as settled."""


@event("{records} {was} nacked, next try in {delay_s:g} s through {to}")
class RecordDelayed(RecordWritten):
    """A nacked record was written to a retry topic, and comes again from there."""

    delay_s: float


@event("{records} {was} put off, next call in {delay_s:g} s through {to}", level="info")
class RecordPutOff(RecordDelayed):
    """A handler has called ``retry_later``: its record was written to a retry topic. Nothing has
    failed.
    """


@event("{records} {was} nacked and {stays} uncommitted", level="error")
class RecordLeft(RecordFailed):
    """A record was nacked while its channel was stopping or had failed."""


@event("{records} {was} nacked back to the sender")
class RecordHandedBack(RecordFailed):
    """The handler of a memory channel has nacked a value: what it was made of is nacked, too, for
    the same reason.
    """


@event("{records}: the handler raised after {its_record_had_its} verdict")
class HandlerFailed(RecordFailed):
    """A handler raised after its record had been acked or nacked: that verdict stands."""


@event("{records} {was} settled, and the output is lost", level="error")
class OutputLost(RecordFailed):
    """An output could not be written, and its record had been acked: by hand, or by a checkpoint
    transaction.

    The record is not handled again. A replay of its offset makes the output once more.
    """


@event("{records}: another handler of the broadcast failed, too")
class AlsoFailed(RecordFailed):
    """A record goes to several handlers, and will be nacked for what the first of them raised."""


@event("{partition} offset {offset}: attempt {attempt} failed, next in {wait_s:g} s: {reason}")
class HandlerRetried(FailureEvent):
    """A handler failed and is called again in *wait_s* seconds; *attempt* is the call that failed,
    from 1.
    """

    attempt: int
    wait_s: float


SKIPPED = {
    "filter": "skipped by the channel's filter",
    "age": "skipped: older than max_record_age",
    "unmatched": "skipped: no handler takes such a record",
}


@event(apart=("why",))
class RecordsSkipped(ChannelEvent):
    """So many *records* were settled without a call of a handler since the last such event of the
    channel.
    """

    why: Literal["filter", "age", "unmatched"]
    records: int

    def text(self) -> str:
        return f"{count_of(self.records)} {SKIPPED[self.why]}"


@event(level="warning")
class HandlerAbandoned(ChannelEvent):
    """A revocation or a stop stopped waiting: *records* are unsettled and will be delivered
    again.
    """

    during: Literal["revocation", "stop"]
    records: int
    waited_s: float

    def text(self) -> str:
        were = "was left behind; it" if self.records == 1 else "were left behind; they"
        waited = f"not settled after {self.waited_s:.1f} s"
        return f"{self.during}: {count_of(self.records)} {waited} {were} will be delivered again"


@event()
class StopWaits(ChannelEvent):
    """A stop waits for *records* that run or are not settled, for at most *left_s* more; reported
    once.
    """

    records: int
    oldest: tuple[str, ...]
    left_s: float

    def text(self) -> str:
        where = f" ({first_of(self.oldest, 5)})" if self.oldest else ""
        return f"stop: waits for {count_of(self.records)} without a verdict{where}, for at most {self.left_s:.1f} s more"


@event()
class Unwritten(Problem):
    """A channel stopped, and these records it had accepted are not known to be written, or settled
    by a handler.
    """

    records: int

    def text(self) -> str:
        return f"stop: {count_of(self.records)} could not be written: {self.reason}"


@event("a record could not be written to {topic}: {reason}")
class SendFailed(Problem):
    """The record is an outgoing one, a dead letter or a delayed retry."""

    topic: str


@event("a transaction was aborted and is tried again: {reason}")
class TransactionAborted(Problem):
    """Of an incoming channel that is exactly once; its records are not to blame."""


@event()
class SparkBatchEvent(ChannelEvent):
    """Something that happened to one Spark batch."""

    id: str = ""

    def subject(self) -> str:
        return f"{self.channel} {short_id(self.id)}" if self.id else self.channel


@event(apart=("outcome",))
class SparkBatchEnded(SparkBatchEvent):
    """A Spark batch has ended. Where the outcome is ``ok``, the job could not use *rejected* of its
    records.
    """

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


@event(apart=("id",))
class SparkBatchProgress(SparkBatchEvent):
    """How far a running Spark batch has come, every ``PROGRESS_EVERY_S``."""

    batch: SparkBatchFacts

    def text(self) -> str:
        return progress_text(self.batch)


@event()
class SparkBatchSplit(SparkBatchEvent):
    """A Spark batch failed on some of its *records*, as ``SparkBatchEnded`` said, and runs again in
    *parts*.
    """

    records: int
    parts: int
    reason: str

    def text(self) -> str:
        return f"spark batch split: its {count_of(self.records)} run again in {self.parts} parts"
