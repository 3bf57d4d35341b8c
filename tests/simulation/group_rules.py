"""What the checker holds about outages, starts and ends: readiness, told skips, last commits,
nothing twice. Pure.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise

from tests.simulation.checker import (
    NEVER,
    History,
    Rule,
    Violation,
    _after_seeks,
    _done_in,
    _Era,
    _eras,
    _kept_back,
    _name,
    _spans,
    unsure_sends,
)
from tests.simulation.history import Event, Partition

NOTICED_S = 5.0
"""A broker that is away for longer shows in readiness: it is asked every 2 s, and its answer is
waited for.
"""
BACK_S = 25.0
"""And so long after it is back the application is ready again: clients wait between attempts."""
STALLED_S = 15.0
"""How long a process is stopped at most."""
BY_HAND_S = 15.0
"""How long a channel is stopped by hand at most: it drains first."""
FIRST_LOOK = "from None"


# -- readiness


def _outages(history: History) -> Iterator[Violation]:
    """I17: who is up while the broker is away says that it is not ready, and why; and is ready when
    that is over.

    Another fault in that time may keep it from being ready, and so may poison, and a channel that
    has failed. So may a member that leaves meanwhile: its group does not hear of that, and waits for
    the end of its session. A process that is stopped meanwhile says nothing. A channel that is stopped by hand
    is ready, whatever its broker does.
    """
    stalls = [
        event.at for _, event in history.of("fault", "calm") if event.note.startswith("stall")
    ]
    stops = [event.at for _, event in history.of("calm") if event.note.startswith("stop-start")]
    for start, end in _away(history):
        if any(start - STALLED_S <= at <= end + STALLED_S for at in stalls):
            continue
        for who, (since, until) in _lives(history).items():
            is_by_hand = any(start - BY_HAND_S <= at <= end for at in stops)
            if since < start and end < until and end - start > NOTICED_S and not is_by_hand:
                yield from _looks(history, who, start + NOTICED_S, end)
            if (
                since < start
                and end + BACK_S < until
                and not _has_other_troubles(history, who, start, end + BACK_S)
                and not any(start <= event.at <= end for _, event in history.of("left"))
            ):
                was_ready = _was(history, who, end)
                came = [
                    index for index, event in _said(history, who) if end < event.at <= end + BACK_S
                ]
                if not was_ready and not any(history.events[index].note == "UP" for index in came):
                    yield Violation(
                        "I17",
                        f"{who} is not ready {BACK_S:g} s after the broker was back",
                        _at(history, end),
                    )


def _away(history: History) -> list[tuple[float, float]]:
    """When the broker was away: it is back when the first of several such faults is over."""
    found: list[tuple[float, float]] = []
    since: float | None = None
    for _, event in history.of("fault", "calm", "healed"):
        if event.kind == "fault" and event.note.startswith("broker-down"):
            since = event.at if since is None else since
        elif since is not None and (event.kind == "healed" or event.note.startswith("broker-down")):
            found.append((since, max(since, event.at - 1.0) if event.kind == "calm" else event.at))
            since = None
    return found


def _lives(history: History) -> dict[str, tuple[float, float]]:
    """who -> from when on it was ready for the first time, and until when it was there."""
    since: dict[str, float] = {}
    until: dict[str, float] = {}
    for _, event in history.of("ready", "member", "left", "failed"):
        if event.kind == "ready" and event.note == "UP":
            since.setdefault(event.who, event.at)
        elif event.kind in ("left", "failed") or (event.kind == "member" and event.note != "start"):
            until.setdefault(event.who, event.at)
    last = history.events[-1].at if history.events else 0.0
    return {who: (at, until.get(who, last)) for who, at in since.items()}


def _said(history: History, who: str) -> Iterator[tuple[int, Event]]:
    return ((index, event) for index, event in history.of("ready") if event.who == who)


def _was(history: History, who: str, at: float) -> bool:
    """Whether an application was ready then."""
    before = [event.note for _, event in _said(history, who) if event.at <= at]
    return before[-1:] == ["UP"]


def _looks(history: History, who: str, start: float, end: float) -> Iterator[Violation]:
    if _was(history, who, start):
        yield Violation(
            "I17", f"{who} is ready at {start:.1f} s, and the broker is away", _at(history, start)
        )
    for index, event in _said(history, who):
        if start < event.at < end and event.note == "UP":
            yield Violation("I17", f"{who} says that it is ready while the broker is away", index)
        elif event.at < end and event.note == "DOWN":
            yield Violation("I17", f"{who} says that it is not ready, and not why", index)


def _at(history: History, at: float) -> int:
    return next((index for index, event in enumerate(history.events) if event.at >= at), -1)


def _has_other_troubles(history: History, who: str, start: float, end: float) -> bool:
    if any(
        event.note.startswith("send-fails") and event.at <= end for _, event in history.of("calm")
    ):
        # Letters that cannot be written are a reason for long.
        return True
    kinds = ("fault", "poison", "failed", "abandoned")
    return history.promise.spark or any(
        start <= event.at <= end
        and event.who in ("", who)
        and not event.note.startswith("broker-down")
        for _, event in history.of(*kinds)
    )


# -- starts


def _told(history: History) -> Iterator[Violation]:
    """I19: what a reset passes is told: so many offsets as lie between, and none that the log still
    has, but by latest.

    And what retention has taken from before anybody's eyes is told by a reset, or passed by a seek.
    """
    resets = [(index, event) for index, event in history.of("reset") if event.note != "seek"]
    for index, event in resets:
        if event.note == FIRST_LOOK:
            continue
        since = int(event.note.removeprefix("from "))
        if event.count != max(0, event.offset - since):
            text = (
                f"{event.who} says that {event.count} were skipped from {since} to {event.offset}"
            )
            yield Violation("I19", f"{_name(event.tp)}: {text}", index)
        if event.text == "earliest":
            for offset in history.offsets.get(event.tp, []):
                if (
                    since <= offset < event.offset
                    and history.records[event.tp, offset].compacted > index
                ):
                    yield Violation(
                        "I19", f"{_name(event.tp)}: {offset} was skipped, and the log has it", index
                    )
    yield from _untold(history, [event for _, event in resets])


def _untold(history: History, resets: list[Event]) -> Iterator[Violation]:
    if history.promise.counts_offsets or not history.promise.safe:
        # What is fetched elsewhere is not in the history.
        return
    seen: dict[Partition, list[tuple[int, int]]] = defaultdict(list)
    for _, event in history.of("fetched"):
        seen[event.tp].append((event.offset, event.until))
    for _, event in history.of("reset"):
        first = 0 if event.note in (FIRST_LOOK, "seek") else int(event.note.removeprefix("from "))
        seen[event.tp].append((first, event.offset))
    sought = _before_the_beginning_was_read(history)
    for index, event in history.of("compacted"):
        is_passed = event.note == "retention" and event.offset < history.case.committed.get(
            event.tp, 0
        )
        if (
            is_passed
            and index not in sought
            and not any(first <= event.offset < until for first, until in seen[event.tp])
        ):
            yield Violation(
                "I19",
                f"{_name(event.tp)}: {event.offset} was lost unread, and nobody said so",
                index,
            )


def _before_the_beginning_was_read(history: History) -> set[int]:
    """What retention took around a seek to offset 0, which is the log's beginning wherever that is
    when it is read: until the next fetch, and since the last one that came from behind it.
    """
    waiting: set[Partition] = set()
    unread: dict[Partition, dict[int, int]] = defaultdict(dict)
    found = set()
    for index, event in enumerate(history.events):
        if event.kind == "reset" and event.note == "seek" and event.offset == 0:
            waiting.add(event.tp)
            found.update(unread.pop(event.tp, {}))
        elif event.kind == "fetched":
            waiting.discard(event.tp)
            # Who reads behind it had to tell that it is gone: a later seek does not excuse that.
            unread[event.tp] = {
                taken: offset
                for taken, offset in unread[event.tp].items()
                if offset >= event.offset
            }
        elif event.kind == "compacted":
            if event.tp in waiting:
                found.add(index)
            unread[event.tp][index] = event.offset
    return found


def _starts(history: History) -> Iterator[Violation]:
    """I21: a start that a policy chose is sent before anything is read, where it passes records.

    ``latest`` passes those only that were there when the group had its first look: not those of a
    retry topic, of a partition that appeared later, or of one in which the group had begun. Unless
    a fault kept the commit back; and not where the log does not have what somebody sought: a start
    that somebody chose moves no committed position. Nor if the row in the store has to be read
    first, see :func:`_is_row_unsure`.
    """
    spans = _spans(history, harmless="retention")
    # When a partition was begun by policy.
    first: dict[Partition, int] = {}
    committed: dict[Partition, int] = {}
    looked: dict[str, int] = {}
    appeared: dict[Partition, int] = {}
    # By who has sought: the offset, and how often it was noted, when a seek began and when it ended.
    # Nothing was read since its end. Another member may read on for a while, and so may the fetch
    # that was under way.
    sought: dict[tuple[str, Partition], Counter[int]] = defaultdict(Counter)
    for index, event in enumerate(history.events):
        if event.kind == "commit":
            committed.setdefault(event.tp, index)
        elif event.kind == "appeared":
            appeared[event.tp] = index
        elif event.kind == "reset" and event.note == "seek":
            sought[event.who, event.tp][event.offset] += 1
        elif event.kind == "fetched":
            places = sought[event.who, event.tp]
            for ended in [offset for offset, noted in places.items() if noted % 2 == 0]:
                del places[ended]
        elif event.kind in ("restarted", "failed"):
            looked.pop(event.who, None)
        elif event.kind == "ready" and event.note == "UP":
            looked.setdefault(event.who, index)
        elif event.kind == "reset":
            if event.note == FIRST_LOOK and event.text == "latest":
                is_new = looked.get(event.who, NEVER) < appeared.get(event.tp, -1)
                wrong = _latest(history, event, index, first, committed, is_new=is_new)
                if wrong and not _is_in_a_fault(history, spans, first.get(event.tp, index), index):
                    yield Violation(
                        "I21",
                        f"{_name(event.tp)}: {event.who} began at the latest, and {wrong}",
                        index,
                    )
            first.setdefault(event.tp, index)
            passes = event.text == "latest" or event.note != FIRST_LOOK
            is_chosen = event.note in [f"from {offset}" for offset in sought[event.who, event.tp]]
            if history.promise.commits and passes and not is_chosen:
                yield from _committed_first(history, event, index)


def _is_in_a_fault(
    history: History, spans: list[tuple[float, float]], since: int, until: int
) -> bool:
    window = history.promise.window_s
    began, ended = history.events[since].at, history.events[until].at
    return any(start - window <= ended and began <= end + window for start, end in spans)


def _latest(
    history: History,
    event: Event,
    index: int,
    first: dict[Partition, int],
    committed: dict[Partition, int],
    *,
    is_new: bool,
) -> str:
    if event.tp[0] in history.promise.out_of_order:
        return "it is a retry topic"
    if is_new:
        return "it had appeared later"
    if committed.get(event.tp, NEVER) < index:
        return "the group had a position"
    begun = first.get(event.tp, NEVER)
    if history.promise.commits and any(
        begun < one < index
        for (tp, _), record in history.records.items()
        if tp == event.tp
        for one in record.begins
    ):
        return "the group had begun there"
    return ""


def _committed_first(history: History, reset: Event, index: int) -> Iterator[Violation]:
    for later in range(index + 1, len(history.events)):
        event = history.events[later]
        if event.tp != reset.tp:
            continue
        if event.kind in ("send", "assigned", "reset", "revoked"):
            return
        if event.kind in ("begin", "fetched") and event.who == reset.who:
            if history.promise.store and _is_row_unsure(history, reset, index):
                return
            text = f"{event.who} read {event.offset}, and its start at {reset.offset} was not sent"
            yield Violation("I21", f"{_name(event.tp)}: {text}", later)
            return


def _is_row_unsure(history: History, reset: Event, index: int) -> bool:
    """Whether the last write of the row before a reset failed with an unknown outcome.

    Then the application reads the row before it writes the start, and reading records does not wait
    for the answer: the store may be away.
    """
    is_unsure = False
    last_write: int | None = None
    for at, event in history.of("send", "answer"):
        if at > index:
            break
        if event.kind == "send" and event.tp == reset.tp and event.who == reset.who:
            last_write = event.call
            is_unsure = False
        elif event.kind == "answer" and event.call == last_write:
            is_unsure = event.note == "unknown"
    return is_unsure


# -- ends


def _last_commits(history: History) -> Iterator[Violation]:
    """I20: who lets go of a partition, or leaves, has committed what it was through with; unless a
    fault prevents it.

    What it is through with at that very moment may be too late. Once its channel has failed, what
    it does may be for a life of the channel that is over; after a seek what it does may be for the
    place of before.
    """
    if not history.promise.commits or history.promise.keeps:
        return
    faults, eras = _spans(history), _eras(history)
    commits: dict[Partition, list[tuple[int, int]]] = defaultdict(list)
    for index, event in history.of("commit"):
        commits[event.tp].append((index, event.offset))
    for tp, of_tp in eras.items():
        for era, after in pairwise([*of_tp, None]):
            # For the type checker.
            assert era is not None
            for index in _ends_of(history, tp, era, NEVER if after is None else after.start):
                event = history.events[index]
                stored = max((offset for at, offset in commits[tp] if at < index), default=0)
                for offset, ended in _through_with(history, tp, era, index):
                    in_time = ended < index and history.events[ended].at < event.at
                    if (
                        in_time
                        and offset >= stored
                        and not _kept_back(history, faults, ended, index)
                    ):
                        what = "left" if event.kind == "left" else "let go"
                        text = f"{era.who} {what}, {offset} was done, and {stored} is committed"
                        yield Violation("I20", f"{_name(tp)}: {text}", index)
                        break


def _through_with(
    history: History, tp: Partition, era: _Era, until: int
) -> Iterator[tuple[int, int]]:
    """What an owner could commit, and from when on: nothing that it began before the last seek.

    A letter that stands in its topic is none where the writer may have been told that it failed.
    """
    era = _after_seeks(history, tp, era, until)
    unsure = unsure_sends(history)
    for offset, _, ended, _ in _done_in(history, tp, era, until):
        settled = [
            index for index, _ in history.records[tp, offset].settled if era.start < index < until
        ]
        if unsure < until and all(
            history.events[index].kind in ("letter", "copy") for index in settled
        ):
            return
        yield offset, ended


def _ends_of(history: History, tp: Partition, era: _Era, until: int) -> list[int]:
    """When the owner of a partition let it go, or left."""
    return [
        index
        for index, event in history.of("revoked", "left")
        if era.start < index < until
        if (event.who, event.client) == (era.who, era.client) and event.tp in (tp, ("", -1))
        if not any(
            failed < index and other.who == era.who for failed, other in history.of("failed")
        )
    ]


def _nothing_twice(history: History) -> Iterator[Violation]:
    """I22: where everything is graceful no record is handled again that was settled."""
    if not history.promise.graceful:
        return
    for (tp, offset), record in history.records.items():
        for begin in record.begins:
            event = history.events[begin]
            if event.attempt <= 1 and record.ended < begin:
                yield Violation(
                    "I22",
                    f"{_name(tp)}: {event.who} began {offset} again, and nothing went wrong",
                    begin,
                )


def _nothing_sent_twice(history: History) -> Iterator[Violation]:
    """I24: where everything is graceful nothing is sent that the sender knows to be stored already.

    A request that was refused is sent again: of an incremental rebalance's those that cross a new
    generation.
    """
    if not history.promise.graceful or history.promise.store:
        # What stands beside a row is not in what is noted of a request.
        return
    sent: dict[Partition, tuple[str, int, int, str]] = {}
    calls: dict[int, list[Partition]] = defaultdict(list)
    for index, event in history.of("send", "assigned", "answer"):
        what = event.who, event.client, event.offset, event.text
        if event.kind == "assigned":
            sent.pop(event.tp, None)
        elif event.kind == "answer":
            for tp in calls.pop(event.call, ()) if event.note == "failed" else ():
                sent.pop(tp, None)
        elif event.kind == "send":
            if sent.get(event.tp) == what:
                yield Violation(
                    "I24",
                    f"{_name(event.tp)}: {event.who} sent {event.offset} again, and has it",
                    index,
                )
            sent[event.tp] = what
            calls[event.call].append(event.tp)


GROUP_RULES: list[Rule] = [
    _outages,
    _told,
    _starts,
    _last_commits,
    _nothing_twice,
    _nothing_sent_twice,
]
