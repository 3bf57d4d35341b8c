"""Events about records and Spark batches: failures, poison records, skipped records, stops."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import field
from typing import Literal

from reactive_kafka.observe.events.base import (
    ChannelEvent,
    Event,
    Level,
    PartitionEvent,
    Problem,
    event,
)
from reactive_kafka.observe.facts import SparkBatchFacts
from reactive_kafka.observe.wording import (
    count_of,
    first_of,
    progress_text,
    ranges_text,
    short_id,
)

PROGRESS_EVERY_S = 10.0
"""Seconds between two ``SparkBatchProgress`` of a running batch."""

# Words of the templates below that depend on the number of records.
_SINGULAR = {"was": "was", "stays": "stays", "its_record_had_its": "its record had its"}
_PLURAL = {"was": "were", "stays": "stay", "its_record_had_its": "the records had their"}


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
    # The handler has returned, and neither ack() nor nack() was called.
    is_forgotten: bool = False

    def text(self) -> str:
        text = self._filled()
        if self.is_forgotten:
            text += "; its handler has returned without ack() or nack()"
        return text


@event("no longer poison: {partition} offset {offset} was settled after {age_s:.1f} s")
class PoisonSettled(PartitionEvent):
    """The end of :class:`RecordPoisoned`: the record was settled, by an ack or a nack."""

    offset: int
    age_s: float


@event(level="warning")
class FailureEvent(PartitionEvent):
    """A record failed with *error*, which *reason* describes."""

    offset: int
    reason: str
    # A log line shows its traceback.
    error: BaseException | None = field(default=None, compare=False)

    def kind(self) -> str:
        """The name of the error's class. Failures of one kind share a log line in a flood."""
        if self.error is None:
            return self.reason.partition(":")[0]
        return type(self.error).__qualname__

    def key(self) -> Hashable:
        return (Event.key(self), self.kind())


@event()
class RecordFailed(FailureEvent):
    """A record failed for good. Its offset appears in the log, even in a flood."""

    def text(self) -> str:
        records = f"{self.partition} offset {self.offset}"
        return f"{self._filled(records=records, **_SINGULAR)}: {self.reason}"

    def text_of(self, offsets: str, count: int) -> str:
        """One sentence for *count* such events of one partition; this is the last of them."""
        records = f"{self.partition} offsets {offsets}"
        return f"{self._filled(records=records, **_PLURAL)}: {self.reason} (the last of {count})"


@event("{records} {was} nacked and ignored")
class RecordIgnored(RecordFailed):
    """A nacked record counts as settled, because the failure strategy is ``ignore``."""


@event(identity=("to",))
class RecordWritten(RecordFailed):
    """A nacked record was written to the topic *to*, and counts as settled."""

    to: str


@event("{records} {was} nacked and written to {to}")
class RecordDeadLettered(RecordWritten):
    """A nacked record was written to the dead-letter topic, and counts as settled."""


@event("{records} {was} nacked, next try in {delay_s:g} s through {to}")
class RecordDelayed(RecordWritten):
    """A nacked record was written to a retry topic, and will be delivered again from there."""

    delay_s: float


@event("{records} {was} put off, next call in {delay_s:g} s through {to}", level="info")
class RecordPutOff(RecordDelayed):
    """A handler called ``retry_later``, and its record was written to a retry topic."""


@event("{records} {was} nacked and {stays} uncommitted", level="error")
class RecordLeft(RecordFailed):
    """A record was nacked while its channel was stopping or had failed."""


@event("{records} {was} nacked back to the sender")
class RecordHandedBack(RecordFailed):
    """The handler of a memory channel nacked a value, so the record behind it is nacked, too."""


@event("{records}: the handler raised after {its_record_had_its} verdict")
class HandlerFailed(RecordFailed):
    """A handler raised after its record had been acked or nacked. That verdict counts."""


@event("{records} {was} settled, and the output is lost", level="error")
class OutputLost(RecordFailed):
    """An output could not be written, but its record had been acked already.

    The handler or a checkpoint transaction had acked it, so the record is not handled again. Replay
    its offset to produce the output.
    """


@event("{records}: another handler of the broadcast failed, too")
class AlsoFailed(RecordFailed):
    """A second handler of a broadcast record failed. The record is nacked for the first error."""


@event("{partition} offset {offset}: attempt {attempt} failed, next in {wait_s:g} s: {reason}")
class HandlerRetried(FailureEvent):
    """A handler failed and is called again in *wait_s* seconds. Attempts are counted from 1."""

    attempt: int
    wait_s: float


@event("{partition} offset {offset}: handled again in {wait_s:g} s, as its handler asked ({scope})")
class RecordPostponed(PartitionEvent):
    """A handler raised ``Later``, and is called again with the record in *wait_s* seconds.

    *scope* says what waits: the record, its partition or the channel.
    """

    offset: int
    wait_s: float
    scope: str


SKIPPED = {
    "filter": "skipped by the channel's filter",
    "age": "skipped: older than max_record_age",
    "unmatched": "skipped: no handler takes such a record",
    "operator": "skipped by hand",
}


@event(identity=("why",))
class RecordsSkipped(ChannelEvent):
    """*records* were settled without a handler call since the last such event of the channel."""

    why: Literal["filter", "age", "unmatched", "operator"]
    records: int

    def text(self) -> str:
        return f"{count_of(self.records)} {SKIPPED[self.why]}"


@event(level="warning")
class HandlerAbandoned(ChannelEvent):
    """A revocation or a stop gave up waiting for unsettled *records*. They come again."""

    during: Literal["revocation", "stop"]
    records: int
    waited_s: float

    def text(self) -> str:
        were = "was left behind; it" if self.records == 1 else "were left behind; they"
        waited = f"not settled after {self.waited_s:.1f} s"
        return f"{self.during}: {count_of(self.records)} {waited} {were} will be delivered again"


@event(
    "a handler call took {took_s:.1f} s, and a revocation waits {grace_s:g} s: a rebalance leaves "
    "such calls behind, and their records are handled again; raise revoke_grace, or make the calls "
    "shorter",
    level="warning",
)
class HandlerSlow(ChannelEvent):
    """A call of a handler took longer than ``revoke_grace``. Reported once in ten minutes."""

    took_s: float
    grace_s: float


@event("{partition} offset {offset}: its handler returned after the partition was gone; not sent")
class StaleResultDropped(PartitionEvent):
    """What a handler returned was not sent, because of ``stale_results = "drop"``.

    The next owner of the partition handles the record again.
    """

    offset: int


@event()
class StopWaits(ChannelEvent):
    """A stop waits for unsettled *records*, for at most *left_s* seconds more. Reported once."""

    records: int
    oldest: tuple[str, ...]
    left_s: float

    def text(self) -> str:
        where = f" ({first_of(self.oldest, 5)})" if self.oldest else ""
        return (
            f"stop: waits for {count_of(self.records)} without a verdict{where},"
            f" for at most {self.left_s:.1f} s more"
        )


@event()
class Unwritten(Problem):
    """A channel stopped, and records that it had accepted were not written, as far as it knows.

    Of a memory channel: they were not settled by a handler.
    """

    records: int

    def text(self) -> str:
        return f"stop: {count_of(self.records)} could not be written: {self.reason}"


@event("a record could not be written to {topic}: {reason}")
class SendFailed(Problem):
    """An outgoing record, a dead letter or a delayed retry could not be written."""

    topic: str


@event("a transaction was aborted and is tried again: {reason}")
class TransactionAborted(Problem):
    """A transaction of an exactly-once channel was aborted. Its records are not to blame."""


@event()
class SparkBatchEvent(ChannelEvent):
    """Something that happened to one Spark batch."""

    id: str = ""

    def subject(self) -> str:
        return f"{self.channel} {short_id(self.id)}" if self.id else self.channel


@event(identity=("outcome",))
class SparkBatchEnded(SparkBatchEvent):
    """A Spark batch has ended. If it is ``ok``, *rejected* records of it could not be used."""

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
        text = f"spark batch {self.outcome}: {count_of(self.records)}"
        if self.ranges:
            text += f" of {ranges_text(self.ranges)}"
        text += f" in {self.duration_s:.2f} s"
        if self.rejected:
            text += f", {self.rejected} rejected"
        if self.attempt > 1:
            text += f", attempt {self.attempt}"
        if self.reason:
            text += f": {self.reason}"
        return text


@event(identity=("id",))
class SparkBatchProgress(SparkBatchEvent):
    """The progress of a running Spark batch, reported every ten seconds."""

    batch: SparkBatchFacts

    def text(self) -> str:
        return progress_text(self.batch)


@event()
class SparkBatchSplit(SparkBatchEvent):
    """A Spark batch failed, and its *records* run again in *parts*, to find the bad ones.

    ``SparkBatchEnded`` was reported before.
    """

    records: int
    parts: int
    reason: str

    def text(self) -> str:
        return f"spark batch split: its {count_of(self.records)} run again in {self.parts} parts"
