"""Judges a run by what was seen from outside: the handlers' histories, the group's commits, the log
itself.

Pure, and shares nothing with the code under test. Each rule yields violations; an empty list is a
proof only if the run's faults happened, which the tests check on their own.
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

# A record: partition and offset.
Place = tuple[Partition, int]
OK = frozenset({"ok"})


class Commit(NamedTuple):
    """A committed offset, as it was visible at ``t`` (so it was made at ``t`` or before).

    ``source`` says who saw it: "poll" asked the group, "log" read the commit itself from the
    group's own topic. Offsets are compared within one source only.
    """

    t: float
    tp: Partition
    offset: int
    source: str = "poll"


class Disruption(NamedTuple):
    """A fault that excuses repeated records: those that *process* had ended not long before it, or
    had not ended.

    A process that was ``frozen`` learns only when it has woken up that its partitions are somebody
    else's: it may begin until *end* what others have done meanwhile.
    """

    process: str
    start: float
    end: float
    frozen: bool = False


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
        letters: place -> when the record had been written to another topic (dead letter, delayed
            retry): it is settled from then on. -inf where only that, and not when, is known.
        lanes: place -> what orders it within its partition, such as its key; without one, its
            partition does.
    """

    events: Sequence[Event]
    commits: Sequence[Commit]
    log: Mapping[Partition, Mapping[int, str]]
    log_end: Mapping[Partition, int]
    sent: Mapping[Place, str]
    maybe: frozenset[str] = frozenset()
    disruptions: Sequence[Disruption] = ()
    letters: Mapping[Place, float] = field(default_factory=dict)
    lanes: Mapping[Place, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the run promises.

    Attributes:
        safe: Nothing is committed ahead of the work (I1), and nothing lost (I2, I12). The client's
            own commits promise neither.
        ordered: Records of a lane (a partition, or a key of it) run one after the other (I6).
        settles: Outcomes of a handler after which the position may pass the record.
        releases: Outcomes after which the next record of its lane may begin.
        duplicate_window_s: A record that ended longer than this before a disruption is not
            repeated. It is T + L + the longest handler: what I7's ``H + r (T + L)`` counts, as a
            time.
        explained: Records that may stay unhandled, and that the position may pass at any time.
        by_key: Records run in the order of their keys: one may be done before a lower one of
            another key has begun.
    """

    safe: bool = True
    ordered: bool = False
    settles: frozenset[str] = OK
    releases: frozenset[str] = OK
    duplicate_window_s: float = 0.0
    explained: frozenset[Place] = frozenset()
    by_key: bool = False


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken promise; the text names partition, offset, times and processes."""

    invariant: str
    text: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.text}"


@dataclass(slots=True)
class _Record:
    """What happened to one record: its attempts, and those of them that ended as asked for, or
    otherwise.
    """

    begins: list[Event] = field(default_factory=list)
    ends: list[Event] = field(default_factory=list)
    others: list[Event] = field(default_factory=list)

    @property
    def done_at(self) -> float:
        return min((end.t for end in self.ends), default=inf)

    @property
    def deliveries(self) -> list[Event]:
        """Its begins without in-place retries: those repeat nothing."""
        return [begin for begin in self.begins if begin.attempt == 1]

    def was_left_failed(self, begin: Event, later: Event) -> bool:
        """Between two deliveries, nothing came of it but a failure: it is not repeated, it is still
        to be done.
        """
        between = [one for one in (*self.ends, *self.others) if begin.t <= one.t <= later.t]
        outcomes = {one.outcome for one in between if one.process == begin.process}
        return outcomes == {"failed"} and not any(one in self.ends for one in between)


_Records = Mapping[Place, _Record]


def check(evidence: Evidence, rules: Rules) -> list[Violation]:
    """Every violation of the rules that the evidence shows."""
    settled = _by_place(evidence.events, rules.settles)
    released = _by_place(evidence.events, rules.releases)
    found = [
        *_only_what_was_sent(evidence, released),
        *_progress(evidence),
        *_no_going_back(evidence),
        *_duplicates(evidence, released, rules),
    ]
    if rules.safe:
        found += [*_safety(evidence, settled, rules), *_complete(evidence, settled, rules)]
    if rules.ordered:
        found += [*_order(evidence, released, rules), *_one_at_a_time(evidence)]
    return found


def report(violations: Sequence[Violation], each: int = 5) -> str:
    """The first few violations of each invariant, one a line, with their number; empty when there
    are none.
    """
    lines = []
    for invariant in sorted({violation.invariant for violation in violations}):
        texts = [violation.text for violation in violations if violation.invariant == invariant]
        lines += [f"{invariant}, {len(texts)} times:", *(f"  {text}" for text in texts[:each])]
    return "\n".join(lines)


def duplicates(events: Iterable[Event]) -> int:
    """How many times a record was begun beyond its first time."""
    return sum(
        len(record.deliveries) - 1 for record in _by_place(events, OK).values() if record.deliveries
    )


def lost(evidence: Evidence, rules: Rules) -> list[Place]:
    """What the broker had confirmed and nobody settled."""
    records = _by_place(evidence.events, rules.settles)
    return [
        place
        for place in evidence.sent
        if place not in rules.explained and _settled_at(evidence, records, place) == inf
    ]


def unfinished(events: Iterable[Event], process: str) -> list[Event]:
    """What *process* began and never ended."""
    events = [event for event in events if event.process == process]
    ended = {(event.tp, event.offset) for event in events if event.kind == "end"}
    return [
        event for event in events if event.kind == "begin" and (event.tp, event.offset) not in ended
    ]


def _by_place(events: Iterable[Event], outcomes: frozenset[str]) -> dict[Place, _Record]:
    records: dict[Place, _Record] = defaultdict(_Record)
    for event in sorted(events, key=lambda event: event.t):
        if event.kind == "begin":
            records[event.tp, event.offset].begins.append(event)
        elif event.kind == "end" and event.outcome in outcomes:
            records[event.tp, event.offset].ends.append(event)
        elif event.kind == "end":
            records[event.tp, event.offset].others.append(event)
    return dict(records)


def _settled_at(evidence: Evidence, records: _Records, place: Place) -> float:
    """When a record's handler was done with it, or it was in another topic."""
    handled = records[place].done_at if place in records else inf
    return min(handled, evidence.letters.get(place, inf))


def _safety(evidence: Evidence, records: _Records, rules: Rules) -> Iterator[Violation]:
    """I1: at each commit seen, every record below it was settled."""
    work = {}
    for tp, log in evidence.log.items():
        offsets = sorted(offset for offset in log if (tp, offset) not in rules.explained)
        done = [_settled_at(evidence, records, (tp, offset)) for offset in offsets]
        work[tp] = offsets, done, list(accumulate(done, max))
    for t, tp, committed, source in evidence.commits:
        offsets, done, all_done = work.get(tp, ([], [], []))
        below = bisect_left(offsets, committed)
        if below and all_done[below - 1] > t:
            first = next(i for i in range(below) if done[i] > t)
            late = "never" if done[first] == inf else f"{done[first] - t:.3f} s later"
            yield Violation(
                "I1",
                f"{_name(tp)}: {committed} was committed at {t:.3f} ({source}), but {offsets[first]} ended {late}",
            )


def _complete(evidence: Evidence, records: _Records, rules: Rules) -> Iterator[Violation]:
    """I2: what was confirmed is settled. I12: nothing that is in the log was skipped."""
    for (tp, offset), sent_id in evidence.sent.items():
        if evidence.log.get(tp, {}).get(offset) != sent_id:
            yield Violation(
                "I2",
                f"{_name(tp)}: {sent_id} was confirmed at {offset} and is not in the log there",
            )
    for tp, offset in lost(evidence, rules):
        id = evidence.sent[tp, offset]
        yield Violation("I2", f"{_name(tp)}: {id}, confirmed at {offset}, was never handled")
    for tp, log in evidence.log.items():
        for offset, id in log.items():
            place = tp, offset
            known = place in evidence.sent or place in rules.explained
            if not known and _settled_at(evidence, records, place) == inf:
                yield Violation(
                    "I12", f"{_name(tp)}: offset {offset} ({id}) was skipped without a reason"
                )


def _only_what_was_sent(evidence: Evidence, records: _Records) -> Iterator[Violation]:
    """I2: nothing is handled but what was sent, where it is in the log."""
    known = set(evidence.sent.values()) | evidence.maybe
    for (tp, offset), record in records.items():
        for event in (*record.begins, *record.ends):
            if event.id not in known or evidence.log.get(tp, {}).get(offset) != event.id:
                yield Violation(
                    "I2",
                    f"{_name(tp)}: {event.process} handled {event.id!r} at {offset}: nobody sent that",
                )


def _progress(evidence: Evidence) -> Iterator[Violation]:
    """I3: at the end everything is committed."""
    last = {commit.tp: commit.offset for commit in evidence.commits if commit.source == "poll"}
    for tp, end in evidence.log_end.items():
        if last.get(tp, 0) != end:
            yield Violation(
                "I3", f"{_name(tp)}: committed {last.get(tp)} at last, the log ends at {end}"
            )


def _no_going_back(evidence: Evidence) -> Iterator[Violation]:
    """I5: no source ever saw a committed offset go down."""
    highest: dict[tuple[str, Partition], int] = {}
    for t, tp, committed, source in evidence.commits:
        before = highest.get((source, tp), -1)
        if committed < before:
            yield Violation(
                "I5",
                f"{_name(tp)}: committed went from {before} back to {committed} at {t:.3f} ({source})",
            )
        highest[source, tp] = max(before, committed)


def _order(evidence: Evidence, records: _Records, rules: Rules) -> Iterator[Violation]:
    """I6: a record begins only when all lower ones of its lane have ended.

    One that no handler ever got (it could not be read, and is a dead letter or explained; or it was
    lost where that is allowed) holds up nobody.
    """
    absent = set(evidence.letters) | rules.explained
    lanes: dict[tuple[Partition, str], list[int]] = defaultdict(list)
    for tp, log in evidence.log.items():
        for offset in sorted(log):
            begun = (tp, offset) in records
            if not rules.safe and not (begun and records[tp, offset].ends):
                continue
            if begun or (tp, offset) not in absent:
                lanes[tp, evidence.lanes.get((tp, offset), "")].append(offset)
    for (tp, _), offsets in lanes.items():
        done = [
            records[tp, offset].done_at if (tp, offset) in records else inf for offset in offsets
        ]
        all_done = list(accumulate(done, max))
        for i, offset in enumerate(offsets):
            for begin in records[tp, offset].begins if (tp, offset) in records else ():
                if i and all_done[i - 1] > begin.t:
                    open_one = next(offsets[j] for j in range(i) if done[j] > begin.t)
                    yield Violation(
                        "I6",
                        f"{_name(tp)}: {begin.process} began {offset} at {begin.t:.3f}, {open_one} had not ended",
                    )


def _one_at_a_time(evidence: Evidence) -> Iterator[Violation]:
    """I6, for repeated records too: a process runs one record of a lane at a time."""
    running: dict[tuple[str, Partition, str], Event] = {}
    for event in sorted(evidence.events, key=lambda event: event.t):
        lane = event.process, event.tp, evidence.lanes.get((event.tp, event.offset), "")
        if event.kind == "end":
            running.pop(lane, None)
        elif event.kind == "begin":
            if lane in running:
                both = f"{running[lane].offset} and {event.offset}"
                yield Violation(
                    "I6", f"{_name(event.tp)}: {event.process} ran {both} at once, at {event.t:.3f}"
                )
            running[lane] = event


def _duplicates(evidence: Evidence, records: _Records, rules: Rules) -> Iterator[Violation]:
    """I7: a record is repeated only after a disruption of its process, and only if it had ended
    shortly before.

    One that failed, and was neither settled nor done, is delivered again by right; so is one that
    was done ahead of a lower one of another key, which its process had not begun when it let go.
    """
    cuts: dict[str, list[Disruption]] = defaultdict(list)
    for cut in evidence.disruptions:
        cuts[cut.process].append(cut)
    for (tp, offset), record in records.items():
        for earlier, later in zip(record.deliveries, record.deliveries[1:], strict=False):
            if record.was_left_failed(earlier, later):
                continue
            ended = min(
                (end.t for end in record.ends if end.process == earlier.process), default=inf
            )
            if rules.by_key and _was_ahead(records, tp, offset, earlier, later):
                continue
            if not any(
                _excuses(cut, earlier, ended, rules) for cut in cuts[earlier.process]
            ) and not any(
                cut.frozen and cut.start <= later.t <= cut.end for cut in cuts[later.process]
            ):
                end = "did not end" if ended == inf else f"ended at {ended:.3f}"
                yield Violation(
                    "I7",
                    f"{_name(tp)}: {offset} was begun by {earlier.process} at {earlier.t:.3f} ({end}) "
                    f"and again by {later.process} at {later.t:.3f}",
                )


def _was_ahead(records: _Records, tp: Partition, offset: int, earlier: Event, later: Event) -> bool:
    """Whether a lower record of the partition was not begun by the process that had this one first,
    but by the next.
    """
    below = (record.begins for (its, at), record in records.items() if its == tp and at < offset)
    return any(
        all(begin.process != earlier.process for begin in begins)
        and begins[0].process == later.process
        for begins in below
        if begins and begins[0].t > earlier.t
    )


def _excuses(cut: Disruption, earlier: Event, ended: float, rules: Rules) -> bool:
    if ended == inf:
        return earlier.t <= cut.end
    return cut.start - rules.duplicate_window_s <= ended <= cut.end


def _name(tp: Partition) -> str:
    return f"{tp[0]}-{tp[1]}"
