"""Judges a run by what was seen from outside: the handlers' histories, the group's commits, the log itself.

Pure, and shares nothing with the code under test. Each rule yields violations; an empty list is a proof
only if the run's faults happened, which the tests check on their own.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf
from typing import NamedTuple

from tests.faults.history import Event, Partition

Place = tuple[Partition, int]  # a record: partition and offset


class Commit(NamedTuple):
    """A committed offset, as it was visible at ``t`` (so it was made at ``t`` or before).

    ``source`` says who saw it: "poll" asked the group, "log" read the commit itself from the group's
    own topic. Offsets are compared within one source only.
    """

    t: float
    tp: Partition
    offset: int
    source: str = "poll"


class Disruption(NamedTuple):
    """A fault that excuses repeated records: those that *process* had ended not long before it, or had not ended."""

    process: str
    start: float
    end: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that is known of one run.

    Attributes:
        events: Of all processes, in any order.
        commits: In the order in which each source saw them.
        log: partition -> offset -> id of every readable record, read back after the run.
        log_end: partition -> end of the log, trailing markers included.
        sent: Confirmed by the broker: place -> id.
        maybe: Ids of sends with unknown outcome.
        disruptions: Faults after which records may be repeated.
    """

    events: Sequence[Event]
    commits: Sequence[Commit]
    log: Mapping[Partition, Mapping[int, str]]
    log_end: Mapping[Partition, int]
    sent: Mapping[Place, str]
    maybe: frozenset[str] = frozenset()
    disruptions: Sequence[Disruption] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the run promises.

    Attributes:
        ordered: Records of a partition run one after the other (I6).
        duplicate_window_s: A record that ended longer than this before a disruption is not repeated. It
            is T + L + the longest handler: what I7's ``H + r (T + L)`` counts, as a time.
        explained: Records that may stay unhandled.
    """

    ordered: bool = False
    duplicate_window_s: float = 0.0
    explained: frozenset[Place] = frozenset()


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken promise; the text names partition, offset, times and processes."""

    invariant: str
    text: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.text}"


@dataclass(slots=True)
class _Record:
    """What happened to one record: its attempts, and when one of them first succeeded."""

    begins: list[Event] = field(default_factory=list)
    ends: list[Event] = field(default_factory=list)

    @property
    def done_at(self) -> float:
        return min((end.t for end in self.ends), default=inf)


def check(evidence: Evidence, rules: Rules) -> list[Violation]:
    """Every violation of the rules that the evidence shows."""
    records = _by_place(evidence.events)
    found = [
        *_safety(evidence, records),
        *_complete(evidence, records, rules),
        *_progress(evidence),
        *_no_going_back(evidence),
        *_duplicates(evidence, records, rules),
    ]
    if rules.ordered:
        found += [*_order(evidence, records), *_one_at_a_time(evidence.events)]
    return found


def report(violations: Sequence[Violation], each: int = 5) -> str:
    """The first few violations of each invariant, one a line, with their number; empty when there are none."""
    lines = []
    for invariant in sorted({violation.invariant for violation in violations}):
        texts = [violation.text for violation in violations if violation.invariant == invariant]
        lines += [f"{invariant}, {len(texts)} times:", *(f"  {text}" for text in texts[:each])]
    return "\n".join(lines)


def duplicates(events: Iterable[Event]) -> int:
    """How many times a record was begun beyond its first time."""
    return sum(len(record.begins) - 1 for record in _by_place(events).values() if record.begins)


def unfinished(events: Iterable[Event], process: str) -> list[Event]:
    """What *process* began and never ended."""
    events = [event for event in events if event.process == process]
    ended = {(event.tp, event.offset) for event in events if event.kind == "end"}
    return [event for event in events if event.kind == "begin" and (event.tp, event.offset) not in ended]


def _by_place(events: Iterable[Event]) -> dict[Place, _Record]:
    records: dict[Place, _Record] = defaultdict(_Record)
    for event in sorted(events, key=lambda event: event.t):
        if event.kind == "begin":
            records[event.tp, event.offset].begins.append(event)
        elif event.kind == "end" and event.outcome == "ok":
            records[event.tp, event.offset].ends.append(event)
    return dict(records)


def _done_up_to(
    evidence: Evidence, records: Mapping[Place, _Record]
) -> dict[Partition, tuple[list[int], list[float], list[float]]]:
    """partition -> its offsets, when each was done, and when all up to and with each were done."""
    result = {}
    for tp, log in evidence.log.items():
        offsets = sorted(log)
        done = [records[tp, offset].done_at if (tp, offset) in records else inf for offset in offsets]
        result[tp] = offsets, done, list(accumulate(done, max))
    return result


def _safety(evidence: Evidence, records: Mapping[Place, _Record]) -> Iterator[Violation]:
    """I1: at each commit seen, every record below it had ended."""
    work = _done_up_to(evidence, records)
    for t, tp, committed, source in evidence.commits:
        offsets, done, all_done = work.get(tp, ([], [], []))
        below = bisect_left(offsets, committed)
        if below and all_done[below - 1] > t:
            first = next(i for i in range(below) if done[i] > t)
            late = "never" if done[first] == inf else f"{done[first] - t:.3f} s later"
            yield Violation(
                "I1", f"{_name(tp)}: {committed} was committed at {t:.3f} ({source}), but {offsets[first]} ended {late}"
            )


def _complete(evidence: Evidence, records: Mapping[Place, _Record], rules: Rules) -> Iterator[Violation]:
    """I2: what was confirmed is handled, and nothing else. I12: nothing that is in the log was skipped."""
    for (tp, offset), sent_id in evidence.sent.items():
        if evidence.log.get(tp, {}).get(offset) != sent_id:
            yield Violation("I2", f"{_name(tp)}: {sent_id} was confirmed at {offset} and is not in the log there")
        if (tp, offset) not in rules.explained and not _is_done(records, (tp, offset)):
            yield Violation("I2", f"{_name(tp)}: {sent_id}, confirmed at {offset}, was never handled")
    for tp, log in evidence.log.items():
        for offset, id in log.items():
            place = tp, offset
            if place not in evidence.sent and place not in rules.explained and not _is_done(records, place):
                yield Violation("I12", f"{_name(tp)}: offset {offset} ({id}) was skipped without a reason")
    known = set(evidence.sent.values()) | evidence.maybe
    for (tp, offset), record in records.items():
        for event in (*record.begins, *record.ends):
            if event.id not in known or evidence.log.get(tp, {}).get(offset) != event.id:
                yield Violation(
                    "I2", f"{_name(tp)}: {event.process} handled {event.id!r} at {offset}: nobody sent that"
                )


def _is_done(records: Mapping[Place, _Record], place: Place) -> bool:
    return place in records and records[place].done_at < inf


def _progress(evidence: Evidence) -> Iterator[Violation]:
    """I3: at the end everything is committed."""
    last = {commit.tp: commit.offset for commit in evidence.commits if commit.source == "poll"}
    for tp, end in evidence.log_end.items():
        if last.get(tp, 0) != end:
            yield Violation("I3", f"{_name(tp)}: committed {last.get(tp)} at last, the log ends at {end}")


def _no_going_back(evidence: Evidence) -> Iterator[Violation]:
    """I5: no source ever saw a committed offset go down."""
    highest: dict[tuple[str, Partition], int] = {}
    for t, tp, committed, source in evidence.commits:
        before = highest.get((source, tp), -1)
        if committed < before:
            yield Violation(
                "I5", f"{_name(tp)}: committed went from {before} back to {committed} at {t:.3f} ({source})"
            )
        highest[source, tp] = max(before, committed)


def _order(evidence: Evidence, records: Mapping[Place, _Record]) -> Iterator[Violation]:
    """I6: a record begins only when all lower ones of its partition have ended, and none else runs in its process."""
    for tp, (offsets, done, all_done) in _done_up_to(evidence, records).items():
        for i, offset in enumerate(offsets):
            for begin in records[tp, offset].begins if (tp, offset) in records else ():
                if i and all_done[i - 1] > begin.t:
                    open_one = next(offsets[j] for j in range(i) if done[j] > begin.t)
                    yield Violation(
                        "I6", f"{_name(tp)}: {begin.process} began {offset} at {begin.t:.3f}, {open_one} had not ended"
                    )


def _one_at_a_time(events: Iterable[Event]) -> Iterator[Violation]:
    """I6, for repeated records too: a process runs one record of a partition at a time."""
    running: dict[tuple[str, Partition], Event] = {}
    for event in sorted(events, key=lambda event: event.t):
        lane = event.process, event.tp
        if event.kind == "end":
            running.pop(lane, None)
        elif event.kind == "begin":
            if lane in running:
                both = f"{running[lane].offset} and {event.offset}"
                yield Violation("I6", f"{_name(event.tp)}: {event.process} ran {both} at once, at {event.t:.3f}")
            running[lane] = event


def _duplicates(evidence: Evidence, records: Mapping[Place, _Record], rules: Rules) -> Iterator[Violation]:
    """I7: a record is repeated only after a disruption of its process, and only if it had ended shortly before."""
    for (tp, offset), record in records.items():
        for earlier, later in zip(record.begins, record.begins[1:], strict=False):
            ended = min((end.t for end in record.ends if end.process == earlier.process), default=inf)
            if not any(_excuses(cut, earlier, ended, rules) for cut in evidence.disruptions):
                end = "did not end" if ended == inf else f"ended at {ended:.3f}"
                yield Violation(
                    "I7",
                    f"{_name(tp)}: {offset} was begun by {earlier.process} at {earlier.t:.3f} ({end}) "
                    f"and again by {later.process} at {later.t:.3f}",
                )


def _excuses(cut: Disruption, earlier: Event, ended: float, rules: Rules) -> bool:
    if cut.process != earlier.process:
        return False
    if ended == inf:
        return earlier.t <= cut.end
    return cut.start - rules.duplicate_window_s <= ended <= cut.end


def _name(tp: Partition) -> str:
    return f"{tp[0]}-{tp[1]}"
