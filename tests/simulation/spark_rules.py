"""What Spark channels promise beside the rest, judged by the history and by what stands in the sink
at last.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.simulation.checker import NEVER, History, Place, Rule, Violation, unaware
from tests.simulation.history import Event, Partition

_NAMED = "{0[0]}-{0[1]}"
BLAMING = frozenset({"bad", "code", "timeout", "worker", "lost alone"})
"""Ends of a run for which its records may be nacked."""
FIRST_LOOK = "from None"
"""The note of a reset where nothing was committed: all records are still to come."""
MOST_LOST = 2
"""A batch that was alone when its driver ended is not run again after so many times."""

Span = tuple[int, int]


@dataclass(slots=True)
class _Run:
    """One run of a Spark function."""

    call: int
    who: str
    began: int
    spans: list[tuple[Partition, Span]] = field(default_factory=list)
    outcome: str = ""
    ended: int = NEVER

    def holds(self, tp: Partition, offset: int) -> bool:
        return any(one == tp and start <= offset < until for one, (start, until) in self.spans)


def _runs(history: History) -> dict[int, _Run]:
    """call -> run; a run ends with its application."""
    runs: dict[int, _Run] = {}
    for index, event in history.of("run", "over", "member"):
        if event.kind == "run":
            run = runs.setdefault(event.call, _Run(event.call, event.who, index))
            run.spans.append((event.tp, (event.offset, event.until)))
        elif event.kind == "over":
            runs[event.call].outcome, runs[event.call].ended = event.note, index
        elif event.note == "crash":
            for run in runs.values():
                if run.who == event.who and run.ended == NEVER:
                    run.outcome, run.ended = "crash", index
    return runs


def _alone_at_last(history: History) -> Iterator[Violation]:
    """S1: what a job does is over before its records are nacked, its partition is let go, or it is
    run again.

    An application that does not know that it has lost a partition runs on; and a job that does not
    end is told of: when its cancel limit is over, or the time that letting go may take.
    """
    runs, active = _runs(history), dict[int, _Run]()
    by_two, given_up = unaware(history), set[int]()
    clients: dict[tuple[str, Partition], int] = {}
    # The client that had the partition when the run began.
    of_run: dict[tuple[int, Partition], int] = {}
    for index, event in enumerate(history.events):
        for call in [call for call, run in active.items() if run.ended <= index]:
            del active[call]
        mine = [run for run in active.values() if run.who == event.who]
        if (
            event.kind == "abandoned"
            and float(event.note.split()[0]) >= history.promise.patience_s - 0.01
        ):
            given_up |= {run.call for run in mine}
        elif event.kind == "assigned":
            clients[event.who, event.tp] = event.client
        elif event.kind == "run":
            if (event.who, event.tp) not in by_two.get(index, ()):
                for run in mine:
                    if run.call != event.call and run.call not in given_up and _overlap(run, event):
                        yield Violation(
                            "S1", f"{_of(event)} began while run {run.call} of it went on", index
                        )
            active[event.call] = runs[event.call]
            # Else it may be either's.
            if (event.who, event.tp) not in by_two.get(index, ()):
                of_run[event.call, event.tp] = clients.get((event.who, event.tp), event.client)
        elif event.kind in ("revoked", "left"):
            for run in mine:
                for tp, span in run.spans:
                    is_there = clients.get((event.who, tp)) == event.client and event.tp in (
                        tp,
                        ("", -1),
                    )
                    own = is_there and of_run.get((run.call, tp)) == event.client
                    if own and run.outcome != "stuck" and run.call not in given_up:
                        text = f"{_NAMED.format(tp)} {span} was let go while run {run.call} of it went on"
                        yield Violation("S1", text, index)
        elif event.kind in ("ignored", "letter", "copy", "poison"):
            for run in active.values():
                if run.holds(event.tp, event.offset) and not _of_another(runs, run, event, index):
                    text = f"{_NAMED.format(event.tp)}@{event.offset}: {event.kind} while run {run.call} of it went on"
                    yield Violation("S1", text, index)


def _overlap(run: _Run, event: Event) -> bool:
    return any(
        tp == event.tp and start < event.until and event.offset < until
        for tp, (start, until) in run.spans
    )


def _of_another(runs: dict[int, _Run], run: _Run, event: Event, index: int) -> bool:
    """Whether what became of a record may be the work of another application that had it before."""
    if event.who:
        return event.who != run.who
    return any(
        one.who != run.who and one.began < index and one.holds(event.tp, event.offset)
        for one in runs.values()
    )


def _exactly_once(history: History) -> Iterator[Violation]:
    """S2: the sink holds each record that was acked once, and none that was rejected by a run that
    worked.
    """
    if not history.promise.commits:
        return
    runs, excused = _runs(history), _repeated(history)
    found: Counter[Place] = Counter(
        place for folder in history.case.sink.values() for place in folder.places
    )
    worked = {
        place
        for folder in history.case.sink.values()
        if runs[folder.call].outcome == "ok"
        for place in folder.places
    }
    for place, record in sorted(history.records.items()):
        (tp, offset), who = place, _NAMED.format(place[0])
        handled = [index for index, _ in record.settled if history.events[index].kind == "end"]
        if (
            handled
            and not found[place]
            and record.compacted == NEVER
            and not _overwritten(history, runs, place, handled)
            and not _has_failed_since(history, place, handled[-1])
        ):
            yield Violation(
                "S2", f"{who}@{offset} was acked, and the sink does not have it", handled[-1]
            )
        if found[place] > 1 and tp not in excused:
            ids = sorted(id for id, folder in history.case.sink.items() if place in folder.places)
            last = handled[-1:] or record.begins[-1:] or [-1]
            yield Violation(
                "S2",
                f"{who}@{offset} stands in the sink {found[place]} times: {', '.join(ids)}",
                last[0],
            )
        if not handled and place in worked:
            text = f"{who}@{offset} was not acked, and the sink has it of a run that worked"
            yield Violation("S2", text, record.begins[-1])


def _has_failed_since(history: History, place: Place, acked: int) -> bool:
    """Whether the record was run again after its ack, because its position was not committed, and
    was nacked then: the run that failed has replaced what stood in the sink.
    """
    record = history.records[place]
    settled = max(index for index, _ in record.settled)
    return any(acked < begun < settled for begun in record.begins)


def _overwritten(history: History, runs: dict[int, _Run], place: Place, handled: list[int]) -> bool:
    """Whether a run that another application could not end in time has overwritten what the next
    owner wrote: it went on beside the run whose end acked the record, or began in an application
    that had not heard yet that its partition is another's.
    """
    last = [
        runs[folder.call]
        for folder in history.case.sink.values()
        if runs[folder.call].holds(*place)
    ]
    acking = [
        max(
            (run for run in runs.values() if run.ended <= index and run.holds(*place)),
            key=lambda run: run.ended,
        )
        for index in handled
    ]
    return any(
        run.outcome != "ok"
        and run.who != other.who
        and (
            (run.began < other.ended and other.began < run.ended)
            or _last_assigned(history, place[0], run.began) != run.who
        )
        for run in last
        for other in acking
    )


def _last_assigned(history: History, tp: Partition, before: int) -> str:
    """The application that was the last one to be assigned a partition before an event."""
    owners = [
        event.who for index, event in history.of("assigned") if event.tp == tp and index < before
    ]
    return owners[-1] if owners else ""


def _repeated(history: History) -> set[Partition]:
    """Partitions whose position was set by policy, or moved back by a commit that came late: its
    sender had given it up, or was gone.
    """
    late: set[int] = set()
    sent: dict[str, set[int]] = defaultdict(set)
    found: set[Partition] = set()
    for _, event in history.of("send", "answer", "member", "commit", "reset"):
        if event.kind == "send":
            sent[event.who].add(event.call)
        elif event.kind == "answer":
            late.add(event.call)
        elif event.kind == "member" and event.note == "crash":
            late |= sent[event.who]
        elif event.kind == "commit":
            found |= {event.tp} if event.call in late else set()
        elif event.kind == "reset" and event.note != FIRST_LOOK:
            found.add(event.tp)
    return found


def _same_ranges(history: History) -> Iterator[Violation]:
    """S3: records are run again in the same ranges, or in parts of one that failed, whose id they
    supersede.
    """
    if not history.promise.commits:
        return
    runs, excused = _runs(history), _repeated(history)
    earlier: dict[Partition, dict[Span, tuple[str, list[_Run]]]] = defaultdict(dict)
    for index, event in history.of("run"):
        if event.tp in excused:
            continue
        of_tp, span = earlier[event.tp], (event.offset, event.until)
        for other, (id, of_other) in of_tp.items():
            if other == span or other[1] <= span[0] or span[1] <= other[0]:
                continue
            if not (other[0] <= span[0] and span[1] <= other[1]):
                yield Violation("S3", f"{_of(event)} was run, and {other} of it before", index)
            elif id not in event.ids:
                yield Violation(
                    "S3",
                    f"{_of(event)} was run, a part of {other}, and does not supersede that",
                    index,
                )
            elif not any(run.outcome in BLAMING and run.ended < index for run in of_other):
                yield Violation(
                    "S3", f"{_of(event)} was run as a part of {other}, which has not failed", index
                )
        known = of_tp.setdefault(span, (event.note, []))
        known[1].append(runs[event.call])
        if known[0] != event.note:
            yield Violation(
                "S3", f"{_of(event)} has the id {event.note} now, and {known[0]} before", index
            )


def _positions(history: History) -> Iterator[Violation]:
    """S4: no position that is committed lies inside of a range, unless that was split there."""
    known: dict[Partition, set[Span]] = defaultdict(set)
    # Plans that a commit brought along.
    beside: dict[tuple[int, Partition], set[Span]] = defaultdict(set)
    for _, event in history.of("planned"):
        beside[event.call, event.tp].add((event.offset, event.until))
    excused = _repeated(history)
    # By policy, where the log begins later than the range.
    chosen: set[tuple[Partition, int]] = set()
    for index, event in history.of("run", "planned", "commit", "reset"):
        if event.kind == "reset":
            chosen.add((event.tp, event.offset))
        elif event.kind != "commit":
            known[event.tp].add((event.offset, event.until))
        if event.kind != "commit" or event.tp in excused or (event.tp, event.offset) in chosen:
            continue
        spans = known[event.tp] | beside[event.call, event.tp]
        for start, until in spans:
            if start < event.offset < until and not any(
                start <= one < two <= until and event.offset in (one, two) for one, two in spans
            ):
                text = f"{_NAMED.format(event.tp)}: {event.offset} was committed, inside of [{start}, {until})"
                yield Violation("S4", text, index)


def _stored_first(history: History) -> Iterator[Violation]:
    """S5: the group has the plan of a range before its function runs."""
    if not history.promise.commits:
        return
    stored: dict[Partition, set[Span]] = defaultdict(set)
    for index, event in history.of("planned", "run"):
        if event.kind == "planned":
            stored[event.tp].add((event.offset, event.until))
        elif (event.offset, event.until) not in stored[event.tp]:
            yield Violation("S5", f"{_of(event)} was run, and its plan was never stored", index)


def _killers(history: History) -> Iterator[Violation]:
    """S6: what was alone twice when the driver ended is not run a third time, as it is, by the same
    application.
    """
    runs = _runs(history)
    lost: Counter[tuple[str, tuple[tuple[Partition, Span], ...]]] = Counter()
    for index, event in history.of("run", "over", "assigned", "failed"):
        if event.kind in ("assigned", "failed"):
            lost = Counter({key: count for key, count in lost.items() if key[0] != event.who})
            continue
        run = runs[event.call]
        key = run.who, tuple(run.spans)
        if event.kind == "run" and run.began == index and lost[key] >= MOST_LOST:
            yield Violation(
                "S6", f"{_of(event)} was run again by {event.who} after {lost[key]} drivers", index
            )
        elif event.kind == "over" and event.note == "lost alone":
            lost[key] += 1
        elif event.kind == "over" and event.note in BLAMING | {"ok"}:
            lost[key] = 0


def _blame(history: History) -> Iterator[Violation]:
    """S7: a record is nacked only for a run that failed over it; after a bisection only if it was
    alone there.

    Not for a cluster that was away, another job's driver, a cancellation, or one worker. What is
    left of a range that the log has lost a part of is nacked before a function sees it.
    """
    runs = list(_runs(history).values())
    # Nacked before a function sees it.
    lossy = any("retention" in event.note for _, event in history.of("fault"))
    rejected = {
        (event.tp, event.offset) for _, event in history.of("end") if event.note == "failed"
    }
    for index, event in history.of("ignored", "letter", "copy"):
        place = event.tp, event.offset
        stored = history.case.log.get(event.tp, {}).get(event.offset)
        if stored is None or place in rejected:
            continue
        over = [
            run
            for run in runs
            if run.ended < index and run.holds(*place) and run.outcome in BLAMING
        ]
        if not over and not lossy:
            yield Violation(
                "S7",
                f"{_NAMED.format(event.tp)}@{event.offset}: {event.kind}, and no run failed over it",
                index,
            )
        elif _has_lost_some(history, over, index):
            continue
        elif (
            over
            and stored.id in history.case.innocent
            and _is_blamed_for_others(history, over, place)
        ):
            text = (
                f"{_NAMED.format(event.tp)}@{event.offset}: {event.kind}, and it never failed alone"
            )
            yield Violation("S7", text, index)


def _is_blamed_for_others(history: History, over: list[_Run], place: Place) -> bool:
    if not history.promise.bisects or any(run.outcome not in ("bad", "worker") for run in over):
        return False
    return not any(_records_in(history, run) == 1 for run in over)


def _has_lost_some(history: History, runs: list[_Run], until: int) -> bool:
    lost = [(event.tp, event.offset) for index, event in history.of("compacted") if index < until]
    return any(run.holds(*place) for run in runs for place in lost)


def _records_in(history: History, run: _Run) -> int:
    offsets = history.offsets
    return sum(
        bisect_left(offsets.get(tp, []), until) - bisect_left(offsets.get(tp, []), start)
        for tp, (start, until) in run.spans
    )


def _of(event: Event) -> str:
    return f"{_NAMED.format(event.tp)} [{event.offset}, {event.until})"


SPARK_RULES: list[Rule] = [
    _alone_at_last,
    _exactly_once,
    _same_ranges,
    _positions,
    _stored_first,
    _killers,
    _blame,
]
