"""Judges a run by its history, the broker's logs and what the group has committed.

Pure, and shares nothing with the code under test. The place of an event in the history is its time.
Each rule yields violations that name the event at which the promise was broken, so that a report
can show what was around it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain
from typing import Any, Literal, NamedTuple

from tests.simulation.history import Event, Partition

NEVER = 10**12
REPEATS_S = 3.0
"""After a commit of unknown outcome the next one is sent again this soon, and then ever later."""
_OF_A_RECORD = frozenset(
    {"begin", "end", "aside", "ack", "ignored", "letter", "copy", "compacted", "skipped", "row"}
)
Place = tuple[Partition, int]
Headers = tuple[tuple[str, bytes | None], ...]


class Stored(NamedTuple):
    """A record as it was produced."""

    id: str
    key: str | None
    # Its bytes can be decoded.
    readable: bool = True
    value: bytes | None = b""
    headers: Headers = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """What the run's settings promise.

    Attributes:
        ordering: Which records run one after the other.
        out_of_order: Topics whose records may overtake each other: those of delayed retries.
        commits: Positions are committed at all.
        safe: No commit passes an unsettled record (else ``latest`` without its rule).
        ends: What ends a record, for a commit: ``handled``: its handler returned; ``begun``: it was
            called (acked before); ``acked``: the application acked it; ``written``: a transaction
            has written it.
        passes_gaps: The committed position reaches the log's end, past markers there.
        reaches_end: All is committed at the end of the run.
        window_s: How long after a record's end its commit may take, without a fault.
        tick_s: How often is committed what is due.
        poison_is_fatal: A record that takes too long stops the channel.
        spark: Records are handled by Spark jobs, in ranges.
        bisects: Failing ranges are split, until the bad records are alone.
        patience_s: How long a cancelled Spark job is waited for at least, before its partition is
            let go.
        counts_offsets: What the application counts as records may hold none.
        store: Positions live in a store, and each owner of a partition has a token of its own
            there.
        states: Each handler folds its record into the state of the partition.
        strings: The strategy that says which string goes with a position; None: none is supplied.
        keeps: What was acked above the position is not delivered again either.
        concurrency: So many handlers of an application run at once; 0: nobody counts them.
        rate: So many records of it start in a second, after a burst of as many; 0: nobody counts
            them.
        rate_by: What has that rate: each "key" or "partition", or "" for all records together.
        rate_held: So many records may have counted against the rate and not have started: each
            waits for a place in a limit that channels share.
        per_partition: So many of them of one partition; 0: nobody counts them.
        jobs: So many Spark jobs of it; 0: nobody counts them.
        window: So many records one of its clients has fetched and not settled; 0: nobody counts
            them.
        reads_ahead: Records of one key may wait beyond that, in search of others.
        poison_cancels: A handler that takes too long is cancelled, and its place is another's.
        latest: Where nothing is committed, reading begins at the end of the log.
        incremental: A rebalance moves some partitions and leaves the others.
        fenced: The broker refuses commits of an assignment that is over; false where the settings
            name the partitions.
        in_tasks: A call may get a task of its own. It begins a turn of the loop after a worker has
            taken its record, and the worker hears of its end a turn later.
        broadcast: Each record has a second handler, which is to be through with it, too.
        filters: Some records are skipped: see several_draw.py.
        selects_headers: They are skipped by their headers, before anything can note it.
        limits_attempts: An attempt that takes too long is cancelled and has failed.
        max_age_s: How long a handler may have a record; 0: as long as it likes.
        backoff_s: The longest wait before another attempt.
        drain_s: How long a stop waits for handlers.
        grace_s: How long a revocation does.
        graceful: There are no faults, and every handler ends within the time that a leave or a
            rebalance gives it.
    """

    ordering: Literal["partition", "key", "unordered"] = "partition"
    out_of_order: frozenset[str] = frozenset()
    commits: bool = True
    safe: bool = True
    ends: Literal["handled", "begun", "acked", "written"] = "handled"
    passes_gaps: bool = True
    reaches_end: bool = True
    window_s: float = 1.0
    tick_s: float = 1.0
    poison_is_fatal: bool = False
    spark: bool = False
    bisects: bool = False
    counts_offsets: bool = False
    patience_s: float = 0.0
    store: bool = False
    states: bool = False
    strings: Literal["current", "exact"] | None = None
    keeps: bool = False
    concurrency: int = 0
    rate: float = 0.0
    rate_by: str = ""
    rate_held: int = 0
    per_partition: int = 0
    jobs: int = 0
    window: int = 0
    reads_ahead: bool = False
    poison_cancels: bool = False
    latest: bool = False
    graceful: bool = False
    incremental: bool = False
    fenced: bool = True
    in_tasks: bool = False
    broadcast: bool = False
    filters: bool = False
    selects_headers: bool = False
    limits_attempts: bool = False
    max_age_s: float = 0.0
    backoff_s: float = 0.0
    drain_s: float = 0.0
    grace_s: float = 0.0

    def settles(self, event: Event) -> bool:
        """Whether a commit may pass the record of this event from then on."""
        if event.kind in ("ignored", "letter", "copy"):
            return True
        if self.ends == "begun":
            return event.kind == "begin"
        if self.ends == "acked":
            return event.kind == "ack"
        if self.ends == "written":
            return event.kind == "row"
        return (event.kind == "end" and event.note == "ok") or event.kind == "aside"


class Letter(NamedTuple):
    """A record in a dead-letter or retry topic, and what it was made of; ``at`` is its place in the
    history.
    """

    at: int
    ended: Place
    # Of the headers that name where it stood first.
    prefix: str
    value: bytes | None
    key: bytes | None
    headers: Headers


class Folder(NamedTuple):
    """What a Spark sink holds under one range id: records of that range, written by a run."""

    places: frozenset[tuple[Partition, int]]
    call: int


class Said(NamedTuple):
    """An event of an application's, as its observers got it.

    Attributes:
        at: Virtual time, in seconds, as the history has it.
        until: Its place in the history.
        who: The application.
        name: The class of the event.
        fields: Its fields, by name; partitions are tuples.
    """

    at: float
    until: int
    who: str
    name: str
    fields: Mapping[str, Any]


class Tally(NamedTuple):
    """What an application said of itself; ``until`` is the place in the history when it did."""

    who: str
    until: int
    in_flight: int
    queued: int
    acked: int
    nacked: int
    received: int
    live: bool
    ready: bool
    why: str = ""
    skipped: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """All that is known of one run.

    Attributes:
        log: partition -> offset -> record, all that were ever produced, compacted ones too.
        log_end: partition -> end of its log, trailing markers included.
        committed: partition -> what the group has at last.
        tallies: Of the applications that still ran at the end.
        leaks: Names of tasks and timers that were left behind.
        sink: range id -> what Spark jobs have written there.
        innocent: Ids of records with which no Spark job ever fails.
        beside: partition -> what Kafka has at last, where the position lives in a store.
        user: place -> how often transactions have written its record.
        letters: What was written to dead-letter and retry topics.
        said: The events of all applications.
    """

    events: Sequence[Event]
    log: Mapping[Partition, Mapping[int, Stored]]
    log_end: Mapping[Partition, int]
    committed: Mapping[Partition, int]
    promise: Promise
    tallies: Sequence[Tally] = ()
    leaks: Sequence[str] = ()
    sink: Mapping[str, Folder] = field(default_factory=dict)
    innocent: frozenset[str] = frozenset()
    beside: Mapping[Partition, int] = field(default_factory=dict)
    user: Mapping[Place, int] = field(default_factory=dict)
    letters: Sequence[Letter] = ()
    said: Sequence[Said] = ()


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken promise, and the place in the history where it shows."""

    invariant: str
    text: str
    index: int = -1

    def __str__(self) -> str:
        return f"{self.invariant}: {self.text}"


@dataclass(slots=True)
class _Record:
    """Where in the history things happened to one record."""

    begins: list[int] = field(default_factory=list)
    # Each time, and by whom.
    settled: list[tuple[int, str]] = field(default_factory=list)
    # settled: a commit may pass it.
    ended: int = NEVER
    # Its lane may go on.
    turned: int = NEVER
    compacted: int = NEVER
    # Each time that it was passed without being handled.
    skipped: list[int] = field(default_factory=list)
    # Of a broadcast: by member, which of the two handlers are through with it this time.
    by: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))


Rule = Callable[["History"], Iterator["Violation"]]


def check(case: Case) -> list[Violation]:
    """Every violation that the history shows; those of the safety rules first."""
    history = History(case)
    rules: list[Rule] = [
        _safety,
        _owner,
        _one_request,
        _no_going_back,
        _put_right,
        _identity,
        _order,
        _complete,
        _progress,
        _duplicates,
        _leaks,
        _truth,
    ]
    if case.promise.spark:
        from tests.simulation.spark_rules import SPARK_RULES

        rules += SPARK_RULES
    from tests.simulation.event_rules import EVENT_RULES
    from tests.simulation.flow_rules import FLOW_RULES
    from tests.simulation.group_rules import GROUP_RULES
    from tests.simulation.letter_rules import LETTER_RULES
    from tests.simulation.offset_rules import rules_for

    rules += [*EVENT_RULES, *FLOW_RULES, *GROUP_RULES, *LETTER_RULES, *rules_for(case.promise)]
    return [violation for rule in rules for violation in rule(history)]


class History:
    """The case, with what the rules look up again and again."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.events = case.events
        self.promise = case.promise
        self.records: dict[Place, _Record] = defaultdict(_Record)
        self._of_kind: dict[str, list[int]] = defaultdict(list)
        for index, event in enumerate(self.events):
            self._of_kind[event.kind].append(index)
            self._note(index, event)
        self.of_run: dict[tuple[int, Partition], list[Place]] = defaultdict(list)
        """The records of one partition that one call had."""
        for event in self.events:
            if event.kind == "begin":
                self.of_run[event.call, event.tp].append((event.tp, event.offset))
        self.offsets = {tp: sorted(log) for tp, log in case.log.items()}
        self.memo: dict[str, Any] = {}
        """What a rule has found out for all its questions."""

    def _note(self, index: int, event: Event) -> None:
        if event.kind not in _OF_A_RECORD:
            return
        record = self.records[event.tp, event.offset]
        if event.kind == "begin":
            record.begins.append(index)
        elif event.kind in ("compacted", "skipped"):
            record.compacted = min(record.compacted, index)
            if event.kind == "skipped":
                record.skipped.append(index)
        if self.promise.broadcast and self._is_half(record, event):
            return
        if self.promise.settles(event):
            record.settled.append(
                (index, event.who if event.kind not in ("letter", "copy") else "")
            )
            record.ended = min(record.ended, index)
        if self._frees_its_lane(event):
            record.turned = min(record.turned, index)

    def _is_half(self, record: _Record, event: Event) -> bool:
        """Whether the record waits for its other handler."""
        if event.kind == "aside" or (event.kind == "end" and event.note == "ok"):
            through = record.by[event.who]
            through.add(event.kind)
            if len(through) < 2:
                return True
            # After a seek the record is for both again.
            through.clear()
        return False

    def _frees_its_lane(self, event: Event) -> bool:
        if event.kind == "end":
            if self.promise.ends == "begun":
                return event.note != "raised"
            return event.note == "ok"
        return event.kind in ("ignored", "letter", "copy", "row", "aside")

    def of(self, *kinds: str) -> Iterator[tuple[int, Event]]:
        places = (
            self._of_kind[kinds[0]]
            if len(kinds) == 1
            else sorted(chain(*(self._of_kind[one] for one in kinds)))
        )
        return ((index, self.events[index]) for index in places)

    def ended(self, tp: Partition, offset: int) -> int:
        record = self.records.get((tp, offset))
        return NEVER if record is None else min(record.ended, record.compacted)

    def began(self, call: int) -> int:
        """When a call of a handler began."""
        return next((index for index, event in self.of("begin") if event.call == call), -1)

    def ended_up_to(self, tp: Partition) -> list[int]:
        """For each record of the partition: when it and all before it had ended."""
        return list(
            accumulate((self.ended(tp, offset) for offset in self.offsets.get(tp, [])), max)
        )


def _name(tp: Partition) -> str:
    return f"{tp[0]}-{tp[1]}"


def _safety(history: History) -> Iterator[Violation]:
    """I1: at each commit, every record below it had ended."""
    if not history.promise.safe:
        return
    ended = {tp: history.ended_up_to(tp) for tp in history.offsets}
    for index, event in history.of("commit"):
        below = bisect_left(history.offsets.get(event.tp, []), event.offset)
        if below and ended[event.tp][below - 1] > index:
            first = next(one for one in range(below) if ended[event.tp][one] > index)
            offset = history.offsets[event.tp][first]
            yield Violation(
                "I1",
                f"{_name(event.tp)}: {event.offset} was committed, and {offset} had not ended",
                index,
            )
        if event.offset > history.case.log_end.get(event.tp, 0):
            yield Violation(
                "I1", f"{_name(event.tp)}: {event.offset} was committed, past the log's end", index
            )


def _owner(history: History) -> Iterator[Violation]:
    """I4: what is stored was sent by the application that had the partition last; in a store its
    token says that.

    Without a group no broker refuses what a client has sent that is gone since. No client can take
    that back, but the next one can send its own again: that is :func:`_put_right`. A broker of the
    consumer protocol looks at the epoch of the member only, which stays the same until the member
    has given up all that it has to give up: it may store what comes late for a partition that went
    first. The position goes back by that, which repeats records and loses none.
    """
    if history.promise.store:
        return
    owners: dict[Partition, tuple[str, int]] = {}
    # Partition -> its last assignment.
    assignments: dict[Partition, Event] = {}
    senders: dict[int, tuple[str, int]] = {}
    # Requests for partitions that were the sender's, and whose sender has had no new epoch since.
    of_this_epoch: set[tuple[int, Partition]] = set()
    given_up: set[int] = set()
    left: set[tuple[str, int]] = set()
    crashed: set[str] = set()
    for index, event in enumerate(history.events):
        client = event.who, event.client
        if event.kind == "member" and event.note == "crash":
            crashed.add(event.who)
        elif event.kind == "left":
            left.add(client)
        elif event.kind == "assigned":
            last = assignments.get(event.tp)
            # Of two members that are told at the same moment, the one that has lost the partition
            # already may be the second to note it.
            if last is not None and last.at == event.at and event.offset < last.offset:
                continue
            assignments[event.tp] = event
            owners[event.tp] = client
        elif event.kind == "rebalanced":
            of_this_epoch = {
                (call, tp) for call, tp in of_this_epoch if senders.get(call) != client
            }
        elif event.kind == "send":
            senders[event.call] = client
            if history.promise.incremental and owners.get(event.tp) == client:
                of_this_epoch.add((event.call, event.tp))
        elif event.kind == "answer" and event.note == "unknown":
            given_up.add(event.call)
        elif event.kind == "commit":
            sender = senders.get(event.call, ("nobody", 0))
            had = owners.get(event.tp, ("nobody", 0))
            is_gone = sender in left or sender[0] in crashed
            is_late = event.call in given_up and (event.call, event.tp) in of_this_epoch
            if is_late and not is_gone:
                continue
            if had != sender and (history.promise.fenced or not is_gone):
                yield Violation(
                    "I4",
                    f"{_name(event.tp)}: {_client(*sender)} committed {event.offset}, {_client(*had)} has it",
                    index,
                )


def _client(who: str, number: int) -> str:
    return f"{who} (client {number})"


def _one_request(history: History) -> Iterator[Violation]:
    """I5: a partition's position is in one request at a time; in a store each is compared with the
    row.
    """
    if history.promise.store:
        return
    open_ones: dict[tuple[str, int, Partition], int] = {}
    for index, event in history.of("send", "answer"):
        if event.kind == "answer":
            open_ones = {key: call for key, call in open_ones.items() if call != event.call}
            continue
        key = event.who, event.client, event.tp
        if open_ones.get(key, event.call) != event.call:
            yield Violation(
                "I5", f"{_name(event.tp)}: {event.who} had two commit requests on their way", index
            )
        open_ones[key] = event.call


def _no_going_back(history: History) -> Iterator[Violation]:
    """I5: no position is stored that is lower than one stored before; a request that was given up
    may come late.
    """
    stored: dict[Partition, int] = {}
    late: set[int] = set()
    sent: dict[int, int] = {}
    # Those that may go back once.
    restarted: set[Partition] = set()
    moved: dict[Partition, int] = {}
    for index, event in history.of("send", "commit", "answer", "reset"):
        if event.kind == "send":
            sent[event.call] = index
        elif event.kind == "reset":
            restarted.add(event.tp)
            moved[event.tp] = index
        elif event.kind == "answer":
            late.add(event.call)
        else:
            before = stored.get(event.tp, -1)
            if event.offset < before and event.call not in late and event.tp not in restarted:
                yield Violation(
                    "I5",
                    f"{_name(event.tp)}: stored went from {before} back to {event.offset}",
                    index,
                )
            stored[event.tp] = event.offset
            # Then what follows goes back behind it.
            was_sent_before_seek = sent.get(event.call, index) < moved.get(event.tp, -1)
            if event.call in late and was_sent_before_seek:
                if event.offset >= before:
                    restarted.add(event.tp)
            elif event.offset < before:
                restarted.discard(event.tp)


def _put_right(history: History) -> Iterator[Violation]:
    """I5: a request that was given up comes late and moves the position back, and the application
    that has sent it sends the newest one again; so it does through all of its clients.

    It waits no longer for that than has passed since it has sent the first one. Whatever disturbs
    the commits meanwhile excuses it, and so does that no client of it was left.
    """
    sent: dict[int, Event] = {}
    given_up: set[int] = set()
    owners: dict[Partition, tuple[str, int]] = {}
    stored: dict[Partition, int] = {}
    # Those that were sought since their position was stored.
    sought: set[Partition] = set()
    # Requests with a position behind a seek back: it goes back on purpose.
    on_purpose: set[tuple[int, Partition]] = set()
    faults = _spans(history, harmless="commit-late")
    for index, event in history.of(
        "send", "answer", "assigned", "commit", "reset", "left", "member"
    ):
        if event.kind == "send":
            sent[event.call] = event
            if event.tp in sought:
                on_purpose.add((event.call, event.tp))
        elif event.kind == "reset":
            sought.add(event.tp)
        elif event.kind == "answer":
            given_up.add(event.call)
        elif event.kind == "assigned":
            owners[event.tp] = event.who, event.client
        elif event.kind == "left":
            gone = event.who, event.client
            owners = {tp: owner for tp, owner in owners.items() if owner != gone}
        elif event.kind == "member":
            # It starts without partitions, and a crash takes them without a word.
            if event.note in ("start", "crash"):
                owners = {tp: owner for tp, owner in owners.items() if owner[0] != event.who}
        else:
            before = stored.get(event.tp, -1)
            stored[event.tp] = event.offset
            sought.discard(event.tp)
            request = sent.get(event.call)
            if (event.call, event.tp) in on_purpose:
                continue
            if event.offset >= before or event.call not in given_up or request is None:
                continue
            if request.who != owners.get(event.tp, ("nobody", 0))[0]:
                continue
            until = event.at + (event.at - request.at) + history.promise.tick_s + REPEATS_S
            if not _is_left_alone(history, event, request.at, until, faults):
                continue
            if not any(
                event.at <= other.at <= until and other.tp == event.tp and other.offset >= before
                for at, other in history.of("commit")
                if at > index
            ):
                text = f"{_name(event.tp)}: a late request moved {before} back to {event.offset}"
                yield Violation("I5", f"{text}, and nobody put that right", index)


def _is_left_alone(
    history: History,
    landed: Event,
    since: float,
    until: float,
    faults: Sequence[tuple[float, float]],
) -> bool:
    """Whether an application could commit a partition all the time after a late request landed, and
    had no reason to go back in it.
    """
    if history.events[-1].at <= until or any(
        start <= until and landed.at <= end for start, end in faults
    ):
        return False
    for _, event in history.of("assigned", "revoked", "left", "failed", "reset", "member"):
        of_it = event.tp in (landed.tp, ("", -1))
        start = since if event.kind == "reset" else landed.at
        if of_it and start <= event.at <= until:
            return False
    return True


def _identity(history: History) -> Iterator[Violation]:
    """I2: what a handler got is what was produced there."""
    for index, event in history.of("begin"):
        stored = history.case.log.get(event.tp, {}).get(event.offset)
        if stored is None or stored.id != event.note or not stored.readable:
            what = "no record" if stored is None else f"{stored.id!r}"
            text = f"{_name(event.tp)}: a handler got {event.note!r} at {event.offset}, where there is {what}"
            yield Violation("I2", text, index)


def _lane(history: History, tp: Partition, offset: int) -> object:
    if history.promise.ordering == "partition":
        return tp
    return tp, history.case.log[tp][offset].key


def _order(history: History) -> Iterator[Violation]:
    """I6: a record begins when all before it in its lane are through, and runs alone there in its
    application.

    One that failed is through when it is ignored, or its letter or its copy is written.
    """
    if history.promise.ordering == "unordered":
        return
    lanes: dict[object, list[Place]] = defaultdict(list)
    for tp, offsets in history.offsets.items():
        for offset in offsets:
            if history.case.log[tp][offset].readable and tp[0] not in history.promise.out_of_order:
                lanes[_lane(history, tp, offset)].append((tp, offset))
    # What was acked before it ran may still run elsewhere, and an unsafe commit passes what has
    # not.
    if history.promise.ends != "begun" and history.promise.safe:
        for places in lanes.values():
            yield from _lower_ones_first(history, places)
    yield from _one_at_a_time(history)


def _lower_ones_first(history: History, places: Sequence[Place]) -> Iterator[Violation]:
    # When all before were through, and which of them was last.
    latest, slowest = -1, -1
    for tp, offset in places:
        record = history.records.get((tp, offset)) or _Record()
        for begin in record.begins:
            if latest > begin and not _in_one_call(history, tp, slowest, begin):
                event = history.events[begin]
                text = f"{_name(tp)}: {event.who} began {offset} before {slowest} of its lane was through"
                yield Violation("I6", text, begin)
        through = min(record.turned, record.compacted)
        if through > latest:
            latest, slowest = through, offset


def _in_one_call(history: History, tp: Partition, offset: int, begin: int) -> bool:
    """Whether a record was in the call that begins then, or in that of its first attempt."""
    place = tp, history.events[begin].offset
    first = _first_attempt(history, history.records[place], begin)
    calls = {history.events[one].call for one in (first, begin)}
    return any(history.events[other].call in calls for other in history.records[tp, offset].begins)


def _was_taken_before(begin: Event, reset: Event | None) -> bool:
    """Whether a call begins at the moment of a reset with a record from before the new start.

    A worker had taken it, and its first step came later in the same turn of the loop.
    """
    return reset is not None and begin.at == reset.at and begin.offset < reset.offset


def _one_at_a_time(history: History) -> Iterator[Violation]:
    running: dict[tuple[str, object], Event] = {}
    resets: dict[Partition, Event] = {}
    twice = unaware(history)
    by_two: set[tuple[str, Partition]] = (
        set()
    )  # a record may run by both of an application's clients, as by two processes
    for index, event in enumerate(history.events):
        by_two |= twice.get(index, frozenset())
        if event.kind in ("assigned", "reset", "claim"):
            # What an earlier assignment left running is nobody's any more.
            if event.note != "back":
                gone = [key for key, one in running.items() if one.tp == event.tp]
                for key in gone:
                    del running[key]
            if event.kind == "reset":
                resets[event.tp] = event
        elif event.kind == "begin" and _was_taken_before(event, resets.get(event.tp)):
            continue
        elif event.kind in (
            "begin",
            "end",
            "letter",
            "copy",
        ) and event.offset in history.case.log.get(event.tp, {}):
            key = event.who, _lane(history, event.tp, event.offset)
            before = running.get(key)
            if event.kind == "begin":
                if (
                    before is not None
                    and before.call != event.call
                    and (event.who, event.tp) not in by_two
                ):
                    text = f"{_name(event.tp)}: {event.who} ran {before.offset} and {event.offset} at once"
                    yield Violation("I6", text, index)
                running[key] = event
            elif event.kind in ("letter", "copy"):
                for other in [
                    other for other, one in running.items() if (one.tp, one.offset) == event[3:5]
                ]:
                    # Dead-lettered under its handler.
                    del running[other]
            elif before is not None and before.call == event.call:
                del running[key]


def _complete(history: History) -> Iterator[Violation]:
    """I2, I12: at the end each record was handled, dead-lettered, copied or ignored; or an event
    says why not.
    """
    if not history.promise.safe:
        return
    for tp, offsets in history.offsets.items():
        for offset in offsets:
            if history.ended(tp, offset) == NEVER:
                stored = history.case.log[tp][offset]
                last = history.records[tp, offset].begins[-1:] or [-1]
                yield Violation(
                    "I2",
                    f"{_name(tp)}: {stored.id}, produced at {offset}, never came to an end",
                    last[0],
                )


def _progress(history: History) -> Iterator[Violation]:
    """I3: at the end, everything is committed."""
    if not (history.promise.commits and history.promise.reaches_end):
        return
    for tp, end in history.case.log_end.items():
        committed = history.case.committed.get(tp, 0)
        offsets = [
            offset
            for offset in history.offsets.get(tp, [])
            if history.records[tp, offset].compacted == NEVER
        ]
        wanted = end if history.promise.passes_gaps else (offsets[-1] + 1 if offsets else 0)
        if not wanted <= committed <= end:
            yield Violation(
                "I3", f"{_name(tp)}: committed is {committed} at last, the log ends at {end}"
            )


def _duplicates(history: History) -> Iterator[Violation]:
    """I7: what an owner could commit is not begun again; unless a fault kept the commit back.

    A record that is lost from the log while its owner may have it in hand holds back those behind
    it until it ends. What ends at the very moment at which its owner lets go may be too late. Whose
    row another owner has taken over, or a claim of its own that came late, claims and reads it
    again, without an assignment.
    """
    if not history.promise.commits:
        return
    faults, twice, unsure = _spans(history), unaware(history), unsure_sends(history)
    let_go = {(event.who, event.at) for _, event in history.of("revoked", "left")}
    for tp, eras in _eras(history).items():
        resets = [index for index, event in history.of("reset") if event.tp == tp]
        assigned: dict[str, list[int]] = defaultdict(list)
        for index, event in history.of("assigned"):
            if event.tp == tp:
                assigned[event.who].append(index)
        for whole_era in eras:
            era = _after_seeks(history, tp, whole_era)
            for offset, begun, done, has_letters in _done_in(history, tp, era):
                for begin in history.records[tp, offset].begins:
                    event = history.events[begin]
                    if begin <= done or event.attempt > 1 or _was_dropped(history, event):
                        continue
                    since = max((one for one in assigned[event.who] if one <= begin), default=-1)
                    if since < era.start or (event.who, tp) in twice.get(begin, ()):
                        # It has not noticed that another has the partition.
                        continue
                    if _is_of_an_earlier_life(history, era.who, event.who, begin):
                        continue
                    if any(begun < one < begin for one in resets):
                        continue
                    if (era.who, history.events[done].at) in let_go:
                        continue
                    if unsure < begin and has_letters:
                        # The writer of one may have been told that it failed.
                        continue
                    since = _last_claim(history, begin, since)
                    if since <= done or not _kept_back(history, faults, done, since):
                        text = f"{_name(tp)}: {event.who} began {offset} again, which {era.who} had done, without a fault"
                        yield Violation("I7", text, begin)


def unsure_sends(history: History) -> int:
    """From when on nobody knows of a letter or a copy whether its writer was told that it stands in
    its topic.
    """
    return next(
        (index for index, event in history.of("calm") if event.note.startswith("send-fails")), NEVER
    )


def _last_claim(history: History, begin: int, since: int) -> int:
    """When the row was claimed out of which a record was read that began then; else *since*."""
    event = history.events[begin]
    own = [
        (i, one)
        for i, one in history.of("claim", "fetched")
        if i < begin and one[2:4] == (event.who, event.tp)
    ]
    fetched = [
        i for i, one in own if one.kind == "fetched" and one.offset <= event.offset < one.until
    ]
    return max(
        [since, *(i for i, one in own if one.kind == "claim" and fetched and i < fetched[-1])]
    )


def _was_dropped(history: History, begin: Event) -> bool:
    """Whether a transaction found that its record had been written already: how often they are is
    another rule.
    """
    if history.promise.ends != "written":
        return False
    return not any(
        event.call == begin.call and event.note == "ok" for _, event in history.of("end")
    )


def _is_of_an_earlier_life(history: History, who: str, again: str, begin: int) -> bool:
    """Whether what *who* did may have been for a channel, or a client of it, that was over by then.

    The history does not tell the records of a channel that failed from those of the one that was
    started after it, nor those of two clients of one application, one of which has lost its
    session.
    """
    if any(event.who == who and index < begin for index, event in history.of("failed")):
        return True
    return who == again and any(
        "expire" in event.note and index < begin for index, event in history.of("fault")
    )


class _Era(NamedTuple):
    """A partition belongs to an application, through all rebalances that bring it straight back.

    Attributes:
        is_sought: It begins with a seek. Nothing is stored of it before its first record is settled.
    """

    who: str
    client: int
    start: int
    end: int
    committed: int
    is_sought: bool = False


def _eras(history: History) -> dict[Partition, list[_Era]]:
    """Each ends when its owner has let go, or when its channel has failed: what is done later need
    not count.
    """
    eras: dict[Partition, list[_Era]] = defaultdict(list)
    committed: dict[Partition, int] = defaultdict(int)
    for index, event in history.of("assigned", "revoked", "left", "commit", "failed"):
        of_tp = eras[event.tp]
        if event.kind == "commit":
            committed[event.tp] = event.offset
        elif event.kind == "failed":
            for other in eras.values():
                if other and other[-1].who == event.who:
                    other[-1] = other[-1]._replace(end=min(index, other[-1].end))
        elif event.kind == "left":
            # A stop whose time is over leaves without a revocation, and calls may run on.
            for other in eras.values():
                if other and (other[-1].who, other[-1].client) == (event.who, event.client):
                    other[-1] = other[-1]._replace(end=min(index, other[-1].end))
        elif event.kind == "revoked":
            if of_tp and (of_tp[-1].who, of_tp[-1].client) == (event.who, event.client):
                of_tp[-1] = of_tp[-1]._replace(end=min(index, of_tp[-1].end))
        elif event.note == "back" and of_tp:
            of_tp[-1] = of_tp[-1]._replace(end=NEVER)
        else:
            if of_tp:
                of_tp[-1] = of_tp[-1]._replace(end=min(index, of_tp[-1].end))
            of_tp.append(_Era(event.who, event.client, index, NEVER, committed[event.tp]))
    return eras


def _after_seeks(history: History, tp: Partition, era: _Era, until: int = NEVER) -> _Era:
    """What is left of an era behind the last seek in it: what was settled before counts no more."""
    for index, event in history.of("reset"):
        if event.tp == tp and event.who == era.who and era.start < index < min(era.end, until):
            era = era._replace(start=index, committed=event.offset, is_sought=True)
    return era


def _done_in(
    history: History, tp: Partition, era: _Era, until: int = NEVER
) -> Iterator[tuple[int, int, int, bool]]:
    """The records that their owner of then could commit, when it began them, from when on it
    could, and whether it or one before it ended with a letter or a copy.

    What was gone *until* then, and before the owner let go, holds up none.
    """
    offsets = history.offsets.get(tp, [])
    latest = era.start
    until = min(until, era.end)
    has_letters = False
    keeps = history.promise.keeps and not era.is_sought
    for offset in offsets[bisect_left(offsets, era.committed) :]:
        record = history.records.get((tp, offset))
        if record is None:
            if keeps:
                continue
            return
        if _gone_since(history, record, era) < until and not _may_be_in_hand(history, record, era):
            continue
        begun = [
            one
            for one in record.begins
            if history.events[one].who == era.who
            and _first_attempt(history, record, one) > era.start
        ]
        calls = {history.events[one].call for one in begun}
        own = [
            index
            for index, who in record.settled
            if who in ("", era.who) and era.start < index < era.end and begun and begun[0] <= index
            if history.events[index].kind not in ("end", "ack")
            or history.events[index].call in calls | {0}
        ]
        if not own and keeps:
            continue
        if not own or (
            history.promise.spark
            and not _whole_range_ended(history, tp, history.events[own[0]].call, era)
        ):
            return
        latest = max(latest, own[0])
        settled = history.events[own[0]]
        has_letters |= settled.kind in ("letter", "copy")
        # Of others it is a request's.
        call = settled.call if settled.kind in ("end", "ack") else 0
        of_call = [one for one in begun if call and history.events[one].call == call]
        first = of_call[0] if of_call else max(one for one in begun if one <= own[0])
        yield offset, first, latest, has_letters
        keeps = history.promise.keeps


def _first_attempt(history: History, record: _Record, begin: int) -> int:
    """When the record was begun of which this is a later attempt: it may have been in an earlier
    assignment.
    """
    who = history.events[begin].who
    own = (one for one in record.begins if one <= begin and history.events[one].who == who)
    return max((one for one in own if history.events[one].attempt == 1), default=begin)


def _gone_since(history: History, record: _Record, era: _Era) -> int:
    """Since when a record holds up none; a seek back to it has made up for an earlier skip."""
    if era.is_sought and record.compacted in record.skipped and record.compacted < era.start:
        return next((index for index in record.skipped if index > era.start), NEVER)
    return record.compacted


def _may_be_in_hand(history: History, record: _Record, era: _Era) -> bool:
    """Whether its owner may have fetched a record before it was lost; what it went past on purpose
    it let go.
    """
    return history.events[record.compacted].kind == "compacted" and record.compacted > era.start


def _whole_range_ended(history: History, tp: Partition, call: int, era: _Era) -> bool:
    """A Spark range is committed as a whole: while a dead letter of its is missing, none of it can
    be.
    """
    places = history.of_run.get((call, tp), [])
    return all(
        any(era.start < index < era.end for index, _ in history.records[place].settled)
        for place in places
    )


def unaware(history: History) -> dict[int, frozenset[tuple[str, Partition]]]:
    """For each begin: which applications have a partition by two clients, one of which does not
    know that it is out.
    """
    clients: dict[tuple[str, Partition], set[int]] = defaultdict(set)
    found: dict[int, frozenset[tuple[str, Partition]]] = {}
    now: frozenset[tuple[str, Partition]] = frozenset()
    for index, event in history.of("assigned", "revoked", "begin", "run"):
        if event.kind in ("begin", "run"):
            if now:
                found[index] = now
            continue
        (
            clients[event.who, event.tp].add
            if event.kind == "assigned"
            else clients[event.who, event.tp].discard
        )(event.client)
        now = frozenset(key for key, numbers in clients.items() if len(numbers) > 1)
    return found


def _spans(history: History, harmless: str = "nothing") -> list[tuple[float, float]]:
    """When faults kept commits back, but for one kind of them; spans that nearly touch are one."""
    spans: list[tuple[float, float]] = []
    open_since: dict[str, float] = {}
    last = history.events[-1].at if history.events else 0.0
    for _, event in history.of("fault", "calm"):
        if event.kind == "fault" and not event.note.startswith(harmless):
            open_since.setdefault(event.note, event.at)
        elif event.note in open_since:
            spans.append((open_since.pop(event.note), event.at))
    spans += [(since, last) for since in open_since.values()]
    window = history.promise.window_s
    whole: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if whole and start <= whole[-1][1] + window:
            whole[-1] = whole[-1][0], max(end, whole[-1][1])
        else:
            whole.append((start, end))
    return whole


def _kept_back(
    history: History, faults: Sequence[tuple[float, float]], ended: int, since: int
) -> bool:
    done, came = history.events[ended].at, history.events[since].at
    window = history.promise.window_s
    return any(start - window <= done <= end + window and came >= start for start, end in faults)


def _leaks(history: History) -> Iterator[Violation]:
    """I8, I9: nothing is left behind, and nothing counts as in flight when all is done."""
    for task in history.case.leaks:
        yield Violation("I9", f"a task was left behind: {task}")
    for tally in history.case.tallies:
        if tally.in_flight or tally.queued:
            text = f"{tally.who} says that {tally.in_flight} records are in flight and {tally.queued} queued"
            yield Violation("I8", f"{text}, and nothing is")


def _truth(history: History) -> Iterator[Violation]:
    """I10: what an application says of itself is what happened."""
    kinds = {
        "handled": ("end", "ok"),
        "begun": ("begin", None),
        "acked": ("ack", ""),
        "written": ("row", None),
    }
    for tally in history.case.tallies:
        own = [event for event in history.events[: tally.until] if event.who == tally.who]
        kind, note = kinds[history.promise.ends]
        done = sum(event.kind == kind and note in (None, event.note) for event in own)
        failures = sum(event.kind == "end" and event.note == "failed" for event in own)
        if not (tally.live and tally.ready):
            yield Violation(
                "I10",
                f"{tally.who} is not {'ready' if tally.live else 'alive'} at the end: {tally.why}",
            )
        # Rows of an earlier life.
        counts_others = history.promise.counts_offsets or history.promise.ends == "written"
        skips = sum(event.kind == "skipped" for event in own)
        if tally.skipped > skips and not history.promise.selects_headers:
            yield Violation(
                "I10",
                f"{tally.who} counts {tally.skipped} skipped records, and passed over {skips}",
            )
        if tally.acked > done and not counts_others:
            yield Violation(
                "I10", f"{tally.who} counts {tally.acked} acked records, {done} were done"
            )
        if (
            _kept_its_partitions(own)
            and history.promise.ends == "handled"
            and not _took_some_back(history, own)
        ):
            # The other handler of a broadcast may have failed over it.
            nacked = {
                event[3:5]
                for event in history.events
                if event.kind in ("letter", "copy", "ignored")
            }
            sure = sum(
                event.kind == "end" and event.note == "ok" and event[3:5] not in nacked
                for event in own
            )
            if tally.acked < sure:
                yield Violation(
                    "I10",
                    f"{tally.who} kept its partitions, counts {tally.acked} acked, {done} were done",
                )
            if tally.nacked < failures:
                yield Violation(
                    "I10", f"{tally.who} counts {tally.nacked} nacked records, {failures} failed"
                )
    yield from _alive(history)


def _alive(history: History) -> Iterator[Violation]:
    """I10: an application is not alive only where a channel of it failed, or a record is poison and
    that is fatal.
    """
    excused: set[str] = set()
    for index, event in enumerate(history.events):
        if event.kind == "failed" or (event.kind == "poison" and history.promise.poison_is_fatal):
            excused.add(event.who)
        elif event.kind == "restarted":
            excused.discard(event.who)
        elif event.kind == "health" and event.note.startswith("live") and event.who not in excused:
            yield Violation(
                "I10",
                f"{event.who} said that it is not alive, without a reason: {event.note}",
                index,
            )


def _kept_its_partitions(own: Sequence[Event]) -> bool:
    """Whether an application had one assignment only, and took every verdict."""
    generations = {event.offset for event in own if event.kind == "assigned"}
    return len(generations) == 1 and not any(
        event.kind in ("revoked", "left", "failed") for event in own
    )


def _took_some_back(history: History, own: Sequence[Event]) -> bool:
    """Whether records that a handler was through with may count for nothing: by their batch, or
    lost from the log.
    """
    calls = [event.call for event in own if event.kind == "begin"]
    if any(event.kind == "reset" and event.note == "seek" for event in own):
        return True
    return len(set(calls)) < len(calls) or any(
        "retention" in event.note for _, event in history.of("fault")
    )


def between(events: Sequence[Event], index: int, around: int = 15) -> list[str]:
    """The events around a place, as lines."""
    if index < 0:
        return [str(event) for event in events[-around:]]
    first = max(0, index - around)
    return [
        f"{'>' if at == index else ' '} {events[at]}"
        for at in range(first, min(len(events), index + 6))
    ]
