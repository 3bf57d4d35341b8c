"""Where a record is, and what became of it, as far as this process can know. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from reactive_kafka.observe.facts import ChannelState
from reactive_kafka.observe.record_pasts import MOST_RECORDS, Ending, PastEvent
from reactive_kafka.observe.wording import count_of
from reactive_kafka.records import TopicPartition

Stage = Literal["queued", "handling", "failing", "settled", "absent"]
"""What a record in the window of its partition does: it waits for a handler; a handler has it; it
was nacked and its failure strategy is under way; it is settled; no such record came."""

Place = Literal[
    "elsewhere",
    "starting",
    "not-written",
    "not-read",
    "queued",
    "in-flight",
    "failing",
    "settled",
    "committed",
    "no-record",
    "unknown",
]
"""Where a record is.

- ``elsewhere``: this process does not have its partition.
- ``starting``: reading of its partition has not begun.
- ``not-written``: the log ends before it.
- ``not-read``: it is in the log, and was not read, or is read again after a restart.
- ``queued``: it was read, and waits for a handler.
- ``in-flight``: a handler has it.
- ``failing``: it was nacked, and its failure strategy is under way.
- ``settled``: it is settled, and the committed position is not behind it.
- ``committed``: the committed position is behind it.
- ``no-record``: no record came from this offset.
- ``unknown``: reading began behind it, and the group has committed nothing behind it.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFacts:
    """What one channel knows of a record now."""

    channel: str
    state: ChannelState
    partition: TopicPartition
    offset: int
    group_id: str | None
    handlers: tuple[str, ...]
    # The partition is assigned to this process, or was when the channel failed.
    is_assigned: bool
    # Offset of the next record to read: of a channel that has failed, after a restart. None: it is
    # not known, or reading has not begun.
    position: int | None = None
    # Where reading began in this assignment. None: not known.
    began: int | None = None
    # None: nothing is committed.
    committed: int | None = None
    # Whether the channel commits positions.
    commits: bool = True
    # The first offset that is not settled, or the position. None: not known.
    first_unsettled: int | None = None
    # None: not known.
    log_end: int | None = None
    # None: the window does not have it.
    stage: Stage | None = None
    # For how long a handler has had it.
    age_s: float | None = None
    attempt: int | None = None
    # It will be skipped when it comes.
    is_skipped_later: bool = False
    dead_letter_topic: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Whereabouts:
    """Where a record is, for one channel.

    Attributes:
        ending: What became of it. None: it has not ended, or it is not known.
        text: Sentences for people.
        letters: The topic that may have its dead letter. None: none does.
        can_skip: A skip would change something.
    """

    place: Place
    ending: Ending | None
    text: tuple[str, ...]
    letters: str | None
    can_skip: bool


def whereabouts(
    facts: RecordFacts, past: Sequence[PastEvent], *, has_forgotten: bool
) -> Whereabouts:
    """Return where a record is.

    Args:
        past: What is remembered of it, the oldest first.
        has_forgotten: There were failed records that are not remembered any more.
    """
    place = _place(facts)
    # A record that is handled again has not ended.
    has_ended = place in ("settled", "committed", "elsewhere", "no-record", "unknown")
    endings = [event for event in past if event.ending is not None]
    ending = endings[-1].ending if endings and has_ended else None
    text = [_sentence(place, facts)]
    if place == "no-record" and ending == "skipped":
        text = ["An operator had it skipped: it was not handled."]
    if ending is None and place in ("settled", "committed"):
        text.append(_unremembered(facts, has_forgotten=has_forgotten))
    if ending in ("delayed", "put-off"):
        text.append(
            f"It goes on in {endings[-1].to}, at an offset that this process does not note."
        )
    if facts.is_skipped_later:
        text.append("It is skipped when it comes.")
    letters = None
    if ending == "dead-letter":
        letters = endings[-1].to
    elif ending is None and has_ended and (has_forgotten or not _was_here(facts)):
        letters = facts.dead_letter_topic
    return Whereabouts(
        place=place,
        ending=ending,
        text=tuple(text),
        letters=letters,
        can_skip=place in ("not-read", "not-written", "queued", "in-flight"),
    )


def _place(facts: RecordFacts) -> Place:
    if not facts.is_assigned:
        return "elsewhere"
    if facts.position is None:
        return "starting"
    if facts.offset >= facts.position:
        is_in_log = facts.log_end is None or facts.offset < facts.log_end
        return "not-read" if is_in_log else "not-written"
    if facts.stage == "queued":
        return "queued"
    if facts.stage == "handling":
        return "in-flight"
    if facts.stage == "failing":
        return "failing"
    if facts.committed is not None and facts.offset < facts.committed:
        return "committed"
    if facts.stage == "absent":
        return "no-record"
    if facts.began is not None and facts.offset < facts.began:
        return "unknown"
    return "settled"


def _sentence(place: Place, facts: RecordFacts) -> str:
    partition = facts.partition
    if place == "elsewhere":
        members = "another member of its group"
        if facts.group_id is not None:
            members = f"another member of group {facts.group_id}"
        return (
            f"This process does not have {partition}. Ask the page of {members} that has it: only "
            "that one knows."
        )
    if place == "starting":
        return f"Reading of {partition} has not begun: the channel is {facts.state}."
    if place == "not-written":
        return f"The log of {partition} ends at {facts.log_end}: no such record was written yet."
    if place == "not-read":
        return _unread(facts)
    if place == "queued":
        return "It was read, and waits for a handler."
    if place == "in-flight":
        return _in_flight(facts)
    if place == "failing":
        return "It was nacked. Its failure strategy is under way: the record is not settled yet."
    if place == "no-record":
        return (
            f"No record came from this offset of {partition}: compaction removed it, it is the "
            "marker of a transaction, or its ack was kept from an earlier assignment."
        )
    if place == "unknown":
        return (
            f"Reading began at offset {facts.began}, behind it, and nothing behind it is "
            "committed. This process has not read it."
        )
    if place == "committed":
        return _committed(facts)
    return _settled(facts)


def _unread(facts: RecordFacts) -> str:
    position = facts.position or 0
    if facts.state == "failed" and facts.began is None:
        # It has left the group.
        return (
            f"It is not settled: the channel has failed, and reads {facts.partition} from offset "
            f"{position} on after a restart."
        )
    before = facts.offset - position
    text = f"It was not read yet: {facts.partition} is read up to offset {position}, "
    text += "and it comes next" if not before else f"at most {count_of(before)} before it"
    if facts.state != "running":
        text += f"; the channel is {facts.state}"
    return f"{text}."


def _in_flight(facts: RecordFacts) -> str:
    text = f"Handler {', '.join(facts.handlers)} has it" if facts.handlers else "It was handed out"
    if facts.age_s is not None:
        text += f", for {facts.age_s:.1f} s"
    if facts.attempt is not None:
        text += f", attempt {facts.attempt}"
    return f"{text}."


def _settled(facts: RecordFacts) -> str:
    if not facts.commits:
        return "It is settled. This channel commits no positions."
    position = "nothing is committed"
    if facts.committed is not None:
        position = f"the committed position is {facts.committed}"
    first = facts.first_unsettled
    if first is not None and first <= facts.offset:
        return (
            f"It is settled, and {position}: that waits for offset {first}, which is not settled. "
            "After a crash the record may be handled again."
        )
    return f"It is settled, and {position}: the next commit passes it."


def _committed(facts: RecordFacts) -> str:
    text = f"The committed position {facts.committed} is behind it"
    if facts.began is not None and facts.offset < facts.began:
        return (
            f"{text}, and this process began to read at {facts.began}: the record was settled "
            "before that, or jumped over by a seek."
        )
    return f"{text}: it is settled, and does not come again."


def _was_here(facts: RecordFacts) -> bool:
    """Return whether the record was read in this assignment."""
    return facts.began is not None and facts.began <= facts.offset < (facts.position or 0)


def _unremembered(facts: RecordFacts, *, has_forgotten: bool) -> str:
    if not _was_here(facts):
        return "How it ended is not known here."
    if has_forgotten:
        return (
            "It was acked, or skipped by a filter, or it failed longer ago than this process "
            f"remembers: it keeps the last {MOST_RECORDS:,} records that failed."
        )
    return "It was acked, or skipped by a filter: this process remembers no failure of it."
