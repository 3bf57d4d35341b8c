"""What the checker holds about records on their way to handlers: how many at once, and which must
wait. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.simulation.checker import History, Place, Rule, Violation, _name, unaware
from tests.simulation.history import Event, Kind, Partition
from tests.simulation.several_draw import ASIDE_S, is_filtered

READ_AHEAD = 10
"""How many windows may wait where one key holds them up."""
WHOLE = ("", -1)
"""The partition of an event that is about none."""


def _concurrency(history: History) -> Iterator[Violation]:
    """I15: no more handlers run at once than ``concurrency`` says, and of a partition
    ``concurrency_per_partition``.

    What waits for another attempt or for its letter does not run. A handler counts no longer when
    its client has left the group, when its partition was let go, is read from elsewhere, is claimed
    anew, or is another's by the row in the store, when it was cancelled for poison, and when its
    channel has failed. Whose row it is, an application learns when it is refused, and when it reads
    the row again because it does not know what became of its write: at the latest before its next
    one. Nothing is said of a partition that two clients of an application have, while one of them
    has not heard that the group has put it out: it goes on in its own lane until it hears. A call in
    a task of its own may begin right after its partition was let go, and counts as little as one
    that has begun before.
    """
    limit, most = history.promise.concurrency, history.promise.per_partition
    if not limit:
        return
    running: dict[str, dict[int, set[Place]]] = defaultdict(dict)
    twice = unaware(history)
    # Application, record -> when it was fetched first. A seek back may fetch it again before the
    # call begins that a worker has taken it for.
    fetched: dict[tuple[str, Place], int] = {}
    # Application, partition -> when it was let go last.
    let_go: dict[tuple[str, Partition], int] = {}
    # Application, call: a partition of it was let go right before it began.
    left_behind: set[tuple[str, int]] = set()
    # Application, call -> the client that has fetched its records.
    clients: dict[tuple[str, int], int] = {}
    # Who claimed the row of a partition last.
    owners: dict[Partition, str] = {}
    # Do not know what became of their last write, and read the rows before they write again.
    unknown: set[str] = set()
    kinds = (
        "answer",
        "send",
        "begin",
        "fetched",
        "end",
        "assigned",
        "revoked",
        "left",
        "reset",
        "claim",
        "refused",
        "poison",
        "failed",
        "restarted",
    )
    for index, event in history.of(*kinds):
        if event.kind == "fetched":
            for offset in range(event.offset, event.until):
                fetched.setdefault((event.who, (event.tp, offset)), index)
        elif event.kind == "begin":
            gone = let_go.get((event.who, event.tp), 0)
            is_of_before = fetched.get((event.who, (event.tp, event.offset)), index) < gone
            is_at_once = event.at == history.events[gone].at
            if history.promise.in_tasks and is_of_before and is_at_once:
                left_behind.add((event.who, event.call))
            if (event.who, event.call) in left_behind:
                continue
            calls = running[event.who]
            is_more = event.call not in calls
            calls.setdefault(event.call, set()).add((event.tp, event.offset))
            clients[event.who, event.call] = event.client
            if is_more and len(calls) > limit:
                yield Violation(
                    "I15", f"{event.who} runs {len(calls)} handlers at once, and may {limit}", index
                )
            here = sum(any(place[0] == event.tp for place in places) for places in calls.values())
            is_by_two = (event.who, event.tp) in twice.get(index, ())
            if is_more and most and here > most and not is_by_two:
                yield Violation(
                    "I15",
                    f"{event.who} runs {here} handlers of {_name(event.tp)}, and may {most}",
                    index,
                )
        elif event.kind == "end":
            running[event.who].pop(event.call, None)
        elif event.kind in ("failed", "restarted"):
            running[event.who].clear()
        elif event.kind == "left":
            running[event.who] = {
                call: places
                for call, places in running[event.who].items()
                if clients[event.who, call] != event.client
            }
        elif event.kind == "answer":
            (unknown.add if event.note == "unknown" else unknown.discard)(event.who)
            if event.note == "unknown":
                _leave_rows_of_others(running[event.who], event.who, owners)
        elif event.kind == "send":
            if event.who in unknown:
                _leave_rows_of_others(running[event.who], event.who, owners)
        elif event.kind != "poison" or history.promise.poison_cancels:
            if event.kind in ("revoked", "reset"):
                let_go[event.who, event.tp] = index
            elif event.kind == "claim":
                owners[event.tp] = event.who
            _leave_behind(running, event)


def _rates(history: History) -> Iterator[Violation]:
    """I25: no more records start in any time than ``rate_limit`` and its burst allow.

    Another attempt in place is no start, nor is a call that a handler has asked for, or one that
    repeats a transaction whose outcome nobody knows. What starts as
    a whole may be more than the burst; it begins with none left over from before. What has counted
    and waits for a place in a shared limit starts late, next to those of its time.
    """
    rate = history.promise.rate
    if not rate:
        return
    # Application, and what has the rate -> how many have come too early for the rate, and when.
    over: dict[tuple[str, object], tuple[float, float]] = {}
    # Of the calls.
    sizes: dict[tuple[str, int], int] = defaultdict(int)
    starts = [
        (index, event)
        for index, event in history.of("begin")
        if event.attempt == 1 and not _goes_on(history, index)
    ]
    for _, event in starts:
        sizes[event.who, event.call] += 1
    for index, event in starts:
        # Of a batch with its first record.
        size = sizes.pop((event.who, event.call), 0)
        if not size:
            continue
        value: object = None
        if history.promise.rate_by == "partition":
            value = event.tp
        elif history.promise.rate_by == "key":
            value = history.case.log[event.tp][event.offset].key
        early, since = over.get((event.who, value), (0.0, event.at))
        early = max(0.0, early - (event.at - since) * rate) + size
        over[event.who, value] = early, event.at
        held = history.promise.rate_held * size
        if early > max(1.0, rate, size) + held + 0.01:
            yield Violation(
                "I25", f"{event.who} starts {early:g} records at once at {rate:g} a second", index
            )


def _leave_behind(running: dict[str, dict[int, set[Place]]], event: Event) -> None:
    if event.kind == "assigned" and event.note == "back":
        return
    for who, calls in running.items():
        if event.kind != "assigned" and who != event.who:
            continue
        for call in [
            call
            for call, places in calls.items()
            if any(_is_meant(event, place) for place in places)
        ]:
            del calls[call]


def _leave_rows_of_others(
    calls: dict[int, set[Place]], who: str, owners: dict[Partition, str]
) -> None:
    for call, places in list(calls.items()):
        if any(owners.get(tp, who) != who for tp, _ in places):
            del calls[call]


def _is_meant(event: Event, place: Place) -> bool:
    return event.tp == place[0] and (event.kind != "poison" or event.offset == place[1])


def _filtered(history: History) -> Iterator[Violation]:
    """I26: no handler gets a record that the filter skips."""
    if not history.promise.filters:
        return
    for index, event in history.of("begin"):
        if is_filtered(event.note):
            yield Violation(
                "I26", f"{_name(event.tp)}: a handler got {event.offset}, which is filtered", index
            )


def _jobs(history: History) -> Iterator[Violation]:
    """S8: no more Spark jobs run at once than ``max_concurrent_jobs`` says; one that was given up
    counts no longer.
    """
    limit = history.promise.jobs
    if not limit:
        return
    running: dict[str, set[int]] = defaultdict(set)
    kinds = ("run", "over", "abandoned", "failed", "restarted", "revoked", "assigned")
    for index, event in history.of(*kinds):
        if event.kind == "over":
            running[event.who].discard(event.call)
        elif event.kind != "run":
            # Of some it is not known whether they count on.
            running[event.who].clear()
        elif event.call not in running[event.who]:
            running[event.who].add(event.call)
            if len(running[event.who]) > limit:
                text = f"{event.who} runs {len(running[event.who])} jobs at once, and may {limit}"
                yield Violation("S8", text, index)


@dataclass(slots=True)
class _Client:
    """What one client of an application has fetched and not settled.

    Attributes:
        own: The partitions of its assignment.
        begun: Those that have brought something in it.
        carried: Those that brought what they hold when there were others.
    """

    held: dict[Partition, set[int]] = field(default_factory=dict)
    generation: int = -1
    own: set[Partition] = field(default_factory=set)
    begun: set[Partition] = field(default_factory=set)
    carried: set[Partition] = field(default_factory=set)

    def assigned(self, generation: int, tp: Partition, *, is_incremental: bool) -> None:
        if self.generation != generation:
            self.generation, self.carried = generation, set(self.held)
            self.own = self.own if is_incremental else set()
            self.begun &= self.own
        self.own.add(tp)

    def revoked(self, tp: Partition) -> None:
        self.own.discard(tp)

    def fetches(self, tp: Partition, offset: int) -> set[int]:
        """What of the partition it holds, where it goes on from this offset."""
        if tp not in self.begun:
            self.begun.add(tp)
            self.carried.update(self.held)
        self.carried.discard(tp)
        of_tp = self.held.setdefault(tp, set())
        if of_tp and offset <= max(of_tp):
            # It is read again from there.
            of_tp.clear()
        return of_tp

    @property
    def count(self) -> int:
        return sum(len(offsets) for tp, offsets in self.held.items() if tp in self.own)


def _windows(history: History) -> Iterator[Violation]:
    """I16: no client has fetched and not settled more than its share of ``max_in_flight``.

    Each partition may have one record all the same; where the order is by key ten times as many may
    be read in search of other keys, and beside that, too, each other partition may have one. What
    was fetched before another partition began may come on top, for that has its part of its own,
    half of all together at most.
    """
    if not history.promise.window:
        return
    clients: dict[tuple[str, int], _Client] = defaultdict(_Client)
    # Of the rows in a store.
    owners: dict[Partition, str] = {}
    for index, event in enumerate(history.events):
        if event.kind == "assigned":
            is_incremental = history.promise.incremental
            clients[event.who, event.client].assigned(
                event.offset, event.tp, is_incremental=is_incremental
            )
            if event.note != "back":
                for client in clients.values():
                    client.held.pop(event.tp, None)
        elif event.kind == "revoked":
            clients[event.who, event.client].revoked(event.tp)
        elif event.kind == "fetched":
            yield from _fetched(history, index, clients[event.who, event.client])
        elif event.kind == "claim":
            owners[event.tp] = event.who
            for (who, _), client in clients.items():
                # Which has lost the row, and is told when it writes.
                if who != event.who:
                    client.held.pop(event.tp, None)
        elif (
            event.kind == "refused" or (event.kind == "end" and event.note == "cancelled")
        ) and owners.get(event.tp, event.who) != event.who:
            for (who, _), client in clients.items():
                # It was told, and lets go of all that it has fetched since.
                if who == event.who:
                    client.held.pop(event.tp, None)
        elif event.kind in ("reset", "skipped") or history.promise.settles(event):
            for client in (one for (who, _), one in clients.items() if event.who in ("", who)):
                if event.kind == "reset":
                    client.held.pop(event.tp, None)
                else:
                    client.held.get(event.tp, set()).discard(event.offset)


def _fetched(history: History, index: int, client: _Client) -> Iterator[Violation]:
    event, promise = history.events[index], history.promise
    there = history.case.log.get(event.tp, {})
    client.fetches(event.tp, event.offset).update(
        offset
        for offset in range(event.offset, event.until)
        if offset in there and history.records[event.tp, offset].compacted > index
    )
    limit = max(promise.window, len(client.own))
    if promise.reads_ahead:
        limit = READ_AHEAD * limit + max(0, len(client.own) - 1)
    if any(client.held.get(tp) for tp in client.carried):
        limit += promise.window // 2
    if client.count > limit:
        text = f"{event.who} (client {event.client}) has {client.count} records that are not settled, and may {limit}"
        yield Violation("I16", f"{_name(event.tp)}: {text}", index)


def _pauses(history: History) -> Iterator[Violation]:
    """I18: no handler starts a record of a paused partition, and no attempt starts; one that runs
    goes on.

    Spark starts what it had taken as a batch before, and the second handler of a broadcast a record
    that the first one had before. A call in a task of its own begins a turn of the loop after its
    record was taken, and a pause may come in that turn.
    """
    fetched: dict[Place, int] = {}
    paused: dict[str, set[tuple[str, Partition]]] = defaultdict(set)
    since: dict[str, int] = {}
    for index, event in history.of("paused", "resumed", "begin", "fetched"):
        if event.kind == "fetched":
            fetched.update(
                ((event.tp, offset), index) for offset in range(event.offset, event.until)
            )
        elif event.kind == "paused":
            paused[event.who].add((event.note, event.tp))
            since[event.who] = index
        elif event.kind == "resumed":
            paused[event.who] = {
                (reason, tp)
                for reason, tp in paused[event.who]
                if reason != event.note or (event.tp not in (tp, WHOLE) and tp != WHOLE)
            }
        elif any(tp in (WHOLE, event.tp) for _, tp in paused[event.who]):
            had_it = history.promise.spark or history.promise.broadcast
            if had_it and fetched.get((event.tp, event.offset), -1) < since[event.who]:
                continue
            if history.promise.in_tasks and event.at == history.events[since[event.who]].at:
                continue
            yield Violation(
                "I18",
                f"{_name(event.tp)}: {event.who} began {event.offset}, and it is paused",
                index,
            )


def _goes_on(history: History, index: int) -> bool:
    """Whether a call goes on with a record whose turn it is already: the last call for it has asked
    for another one, or was cancelled while the client kept the partition.
    """
    event = history.events[index]
    ends = _ends_of(history).get((event.who, event.tp, event.offset), ())
    before = [end for end in ends if end < index]
    if not before:
        return False
    last = history.events[before[-1]]
    return last.note == "later" or (last.note == "cancelled" and last.client == event.client)


def _ends_of(history: History) -> dict[tuple[str, Partition, int], list[int]]:
    """Application and record -> when calls for it have ended."""
    if "ends" not in history.memo:
        found: dict[tuple[str, Partition, int], list[int]] = defaultdict(list)
        for index, event in history.of("end"):
            found[event.who, event.tp, event.offset].append(index)
        history.memo["ends"] = found
    ends: dict[tuple[str, Partition, int], list[int]] = history.memo["ends"]
    return ends


@dataclass(frozen=True)
class _Postponed:
    """A record whose handler has asked for another call.

    Attributes:
        since: When it asked.
        until: When it is to be called again.
        call: The call that has asked; a batch is one.
        client: The client that has fetched the record.
    """

    since: float
    until: float
    place: Place
    scope: str
    call: int
    client: int

    @classmethod
    def of(cls, end: Event) -> _Postponed:
        """As the end of the call says."""
        scope, _, delay = end.text.partition(" ")
        until = end.at + float(delay)
        return cls(end.at, until, (end.tp, end.offset), scope, end.call, end.client)

    def holds(self, begin: Event) -> bool:
        """Whether what begins is to wait with it."""
        if self.scope == "channel":
            return True
        if begin.tp != self.place[0]:
            return False
        return self.scope == "partition" or begin.offset == self.place[1]


_OF_DELAYS: tuple[Kind, ...] = (
    "begin",
    "end",
    "assigned",
    "revoking",
    "rebalanced",
    "left",
    "reset",
    "failed",
    "restarted",
    "claim",
)


def _postponed(history: History) -> Iterator[Violation]:
    """I27: what a handler has put off begins no sooner than it asked, and what is to wait with it
    does not begin before that; unless its partition is to go, or is read from elsewhere. A batch
    waits as a whole, and no longer than until one of its partitions is to go. A call that began
    before that asks for nothing any more. Neither does a call that ends while a rebalance takes one
    of its partitions; such a rebalance lasts until the client has taken in its next assignment.

    An attempt that had waited for the end of another delay may be on its way to the handler when
    the next one is asked for. So may a record that a worker has taken, where calls have tasks of
    their own. Where the records are broadcast, the first handler may have had a record before, and
    the second one gets it. While one of an application's clients has not heard that another one has
    its partition, each calls the handler with records of its own: what waits with one of them alone
    does not hold the same record of the other.
    """
    # Sums of seconds are not exact.
    had_it_s = ASIDE_S + 0.001 if history.promise.broadcast else -1.0
    twice = unaware(history)
    # Application -> what waits there.
    waiting: dict[str, list[_Postponed]] = defaultdict(list)
    # Application, call -> when it began.
    begun: dict[tuple[str, int], int] = {}
    # Application, call -> of which clients' partitions it has records.
    partitions: dict[tuple[str, int], set[tuple[int, Partition]]] = defaultdict(set)
    # Application, partition -> when its records there were given up last.
    given_up: dict[tuple[str, Partition | None], int] = {}
    # Application -> from which clients a rebalance takes which partitions. It is not over.
    going: dict[str, set[tuple[int, Partition]]] = defaultdict(set)
    for index, event in history.of(*_OF_DELAYS):
        if event.kind == "end":
            call = event.who, event.call
            is_of_before = begun.get(call, index) < max(
                given_up.get((event.who, event.tp), -1), given_up.get((event.who, None), -1)
            )
            is_in_rebalance = bool(going[event.who] & partitions[call])
            if event.note == "later" and not is_of_before and not is_in_rebalance:
                waiting[event.who].append(_Postponed.of(event))
        elif event.kind == "begin":
            begun[event.who, event.call] = index
            partitions[event.who, event.call].add((event.client, event.tp))
            is_by_two = (event.who, event.tp) in twice.get(index, ())
            for one in waiting[event.who]:
                if event.at == one.since and (event.attempt > 1 or history.promise.in_tasks):
                    continue
                if event.at <= one.since + had_it_s:
                    continue
                if is_by_two and one.scope == "record" and one.client != event.client:
                    continue
                if one.holds(event) and event.at < one.until - 0.001:
                    name = f"{_name(one.place[0])} {one.place[1]}"
                    text = f"{name} waits until {one.until:.3f} ({one.scope})"
                    yield Violation(
                        "I27",
                        f"{event.who} began {_name(event.tp)} {event.offset}, and {text}",
                        index,
                    )
        elif event.kind == "rebalanced":
            going[event.who] = {one for one in going[event.who] if one[0] != event.client}
        elif event.kind in ("failed", "restarted", "left"):
            waiting[event.who].clear()
            given_up[event.who, None] = index
        elif event.kind == "claim":
            for waits in waiting.values():
                waits[:] = [one for one in waits if one.place[0] != event.tp]
            given_up.update({(who, event.tp): index for who, _ in begun})
        else:
            if event.kind == "revoking":
                going[event.who].add((event.client, event.tp))
            given_up[event.who, event.tp] = index
            waits = waiting[event.who]
            over = {one.call for one in waits if one.place[0] == event.tp}
            waits[:] = [one for one in waits if one.call not in over]


def _contexts(history: History) -> Iterator[Violation]:
    """I23: no handler finds in its context what another one has set."""
    for index, event in history.of("begin"):
        if event.text:
            text = f"{_name(event.tp)}: {event.who} began {event.offset} in the context of {event.text}"
            yield Violation("I23", text, index)


FLOW_RULES: list[Rule] = [
    _concurrency,
    _rates,
    _filtered,
    _jobs,
    _windows,
    _pauses,
    _postponed,
    _contexts,
]
