"""What the checker holds about offsets that are the user's: rows of a store, states, strings, kept
acks. Pure.

The formats are read here once more, so that a wrong writer is seen.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

from tests.simulation.checker import (
    NEVER,
    History,
    Promise,
    Rule,
    Violation,
    _eras,
    _name,
    _spans,
    unaware,
)
from tests.simulation.history import Event, Partition

_ENVELOPE = re.compile(r"rk1 [0-9a-f]{4} (\d+) (\d+) (\d+) ")
_ACKS = re.compile(r"r(\d+):(\d+)/(\d+):([A-Za-z0-9+/]*)")


def rules_for(promise: Promise) -> list[Rule]:
    """Those that the settings of a run call for."""
    rules: list[Rule] = [_kept_safely, _kept_for_good] if promise.keeps else []
    if promise.strings:
        rules += [_strings, *([_strings_in_time] if promise.strings == "current" else [])]
    if promise.store:
        rules += [_by_token, _claims, _beside, _written_once]
    return [*rules, _folds] if promise.states else rules


# -- what is read


class Beside(NamedTuple):
    """What stands beside a position: the user's string, and what is kept: up to where, and what is
    open before.
    """

    user: str
    until: int = 0
    open: frozenset[int] = frozenset()


def beside(text: str, position: int) -> Beside:
    """Read metadata, of which only we are the writer here."""
    header = _ENVELOPE.match(text)
    if header is None:
        return Beside(text)
    plans, length = int(header[2]), int(header[3])
    start = header.end() + plans + 1
    user, rest = text[start : start + length], text[start + length + 1 :]
    found = _ACKS.fullmatch(rest)
    if found is None or int(header[1]) != position:
        return Beside(user)
    return Beside(
        user,
        position + int(found[3]),
        frozenset(_rice(int(found[1]), int(found[2]), found[4], position)),
    )


def _rice(k: int, count: int, characters: str, base: int) -> Iterator[int]:
    """The open offsets: for each, how many lie before it since the last one, in unary and k
    bits.
    """
    raw = b64decode(characters + "=" * (-len(characters) % 4))
    bits = iter("".join(f"{byte:08b}" for byte in raw))
    at = base - 1
    for _ in range(count):
        high = 0
        while next(bits) == "1":
            high += 1
        low = int("".join(next(bits) for _ in range(k)) or "0", 2)
        at += (high << k) + low + 1
        yield at


class Fold(NamedTuple):
    """A state: which records are in it, as ranges, and the first one that it began with."""

    base: int
    ranges: tuple[tuple[int, int], ...] = ()

    @property
    def value(self) -> dict[str, Any]:
        """As handlers have it."""
        return {"from": self.base, "done": [list(one) for one in self.ranges]}

    @property
    def done(self) -> tuple[int, ...]:
        """The records in it."""
        return tuple(offset for start, stop in self.ranges for offset in range(start, stop))

    def plus(self, offset: int) -> Fold:
        """With one more record."""
        if self.ranges and self.ranges[-1][1] == offset:
            return Fold(self.base, (*self.ranges[:-1], (self.ranges[-1][0], offset + 1)))
        return Fold(self.base, (*self.ranges, (offset, offset + 1)))


def fold_of(value: Any) -> Fold | None:
    """What a handler has got."""
    return (
        None
        if value is None
        else Fold(value["from"], tuple((start, stop) for start, stop in value["done"]))
    )


# -- kept acks


def _kept_safely(history: History) -> Iterator[Violation]:
    """O1: whatever is kept as done had ended."""
    for index, event in history.of("commit"):
        kept = beside(event.text, event.offset)
        for offset in _between(history.offsets.get(event.tp, []), event.offset, kept.until):
            if offset not in kept.open and history.ended(event.tp, offset) > index:
                text = f"{_name(event.tp)}: {offset} was kept as done beside {event.offset}, and had not ended"
                yield Violation("O1", text, index)


def _kept_for_good(history: History) -> Iterator[Violation]:
    """O2: who is assigned a partition begins nothing that was kept as done, seeks and resets
    aside.
    """
    moved = [(index, event.tp) for index, event in history.of("reset")]

    def has_moved(tp: Partition, since: int, until: int) -> bool:
        return any(since < at < until and other == tp for at, other in moved)

    stored: dict[Partition, list[tuple[int, Event]]] = defaultdict(list)
    for index, event in history.of("commit"):
        stored[event.tp].append((index, event))
    twice = unaware(history)
    for tp, eras in _eras(history).items():
        for number, era in enumerate(eras):
            after = eras[number + 1].start if number + 1 < len(eras) else NEVER
            begins = [
                (index, event)
                for index, event in history.of("begin")
                if event.tp == tp and era.start < index < after and event.who == era.who
                if (event.who, tp) not in twice.get(index, ())
            ]
            kept = _kept_at(stored[tp], era.start, begins[0][0] if begins else era.start)
            for index, event in begins:
                if event.offset in kept and not any(
                    at < index and other == tp for at, other in moved if at > era.start
                ):
                    text = f"{_name(tp)}: {event.who} began {event.offset}, whose ack had been kept"
                    yield Violation("O2", text, index)


def _kept_at(stored: Sequence[tuple[int, Event]], start: int, first: int) -> frozenset[int]:
    """The offsets that were done by all that a new owner can have read between its assignment and
    its first record.
    """
    before = [event for index, event in stored if index < start][-1:]
    meanwhile = [event for index, event in stored if start < index < first]
    sets = []
    for event in (*before, *meanwhile):
        kept = beside(event.text, event.offset)
        sets.append(frozenset(range(event.offset, kept.until)) - kept.open)
    return frozenset.intersection(*sets) if sets else frozenset()


def _between(offsets: Sequence[int], start: int, stop: int) -> Sequence[int]:
    return offsets[bisect_left(offsets, start) : bisect_left(offsets, stop)]


# -- strings


class _Said(NamedTuple):
    # Its place in the history.
    at: int
    # Of the record whose ack brought it; -1: of none.
    offset: int
    text: str


class _Sent(NamedTuple):
    at: int
    offset: int
    user: str
    is_new: bool
    # Nobody knows where this assignment began.
    may_be_old: bool
    # When; NEVER.
    confirmed: int
    # When this assignment began.
    since: int
    # When a seek or a reset was last before it; -1.
    moved: int


def _strings(history: History) -> Iterator[Violation]:
    """O3: with a new position goes the string that the strategy says; with the old one, what is
    there or is due.

    A seek drops the strings of acks from before. What the group has then may be sent again, and
    nobody knows whether as a position of before the seek or as one that has been reached anew.
    "exact" asks for the last record that this assignment knows: one that the log has lost, or whose
    ack an earlier owner had kept, may be none.
    """
    late = _late_ones(history)
    moves = [(index, event.tp) for index, event in history.of("reset")]
    for tp, said, sent, before in _told(history):
        used, surely, passed, there = -1, -1, -1, before
        for one in sent:
            allowed = {user for index, other, user in late if other == tp and index < one.at}
            for since in {used, surely}:
                unused = [other for other in said if since < other.at < one.at]
                allowed |= _allowed(history, tp, said, unused, one, there)
                # Those of records before the position have had their turn.
                if history.promise.strings == "exact":
                    ahead = [
                        other for other in unused if other.offset < 0 or other.offset >= passed
                    ]
                    allowed |= _allowed(history, tp, said, ahead, one, there)
            if one.user not in allowed:
                what = "the new" if one.is_new else "the same"
                text = f"{_name(tp)}: with {what} position {one.offset} went {one.user!r}, not {sorted(allowed)}"
                yield Violation("O3", text, one.at)
            there = there | {one.user} if one.confirmed == NEVER else frozenset({one.user})
            if one.is_new and one.confirmed != NEVER:
                carried = [
                    other.at for other in said if other.at < one.at and other.text == one.user
                ]
                used = max([used, *carried])
                # whether a string went that waited before a seek is not known when the answer comes
                # after that
                is_unsure = one.may_be_old or any(
                    tp == other and one.at < at < one.confirmed for at, other in moves
                )
                surely = surely if is_unsure else max([surely, *carried])
                passed = one.offset


def _late_ones(history: History) -> list[tuple[int, Partition, str]]:
    """What requests have stored that had been given up: an assignment may find it."""
    answered: set[int] = set()
    found = []
    for index, event in history.of("answer", "commit"):
        if event.kind == "answer":
            answered.add(event.call)
        elif event.call in answered:
            found.append((index, event.tp, beside(event.text, event.offset).user))
    return found


def _allowed(
    history: History,
    tp: Partition,
    said: Sequence[_Said],
    unused: Sequence[_Said],
    one: _Sent,
    there: frozenset[str],
) -> set[str]:
    if not one.is_new:
        return {*there, *(other.text for other in unused)}
    if one.may_be_old:
        new = one._replace(may_be_old=False)
        return _allowed(history, tp, said, unused, new, there) | {
            *there,
            *(other.text for other in unused),
        }
    newest = {unused[-1].text if unused else ""}
    # What a row carries was chosen a while before it is sent.
    if history.promise.store:
        newest = {*(other.text for other in unused[-3:]), *(() if unused[:1] else ("",))}
    if any(event.kind == "reset" and event.tp == tp for event in history.events):
        # A seek has dropped those of records.
        of_none = [other.text for other in unused if other.offset < 0]
        newest |= {of_none[-1] if of_none else ""}
    if history.promise.strings != "exact":
        return newest
    allowed = set()
    for known in _known(history, tp, one):
        last = bisect_left(known, one.offset) - 1
        own = [
            other
            for other in said
            if last >= 0 and other.offset == known[last] and other.at < one.at
        ]
        allowed |= {own[-1].text} if own else newest
        allowed |= newest if own and own[-1].at < one.moved else set()
    return allowed


def _known(history: History, tp: Partition, one: _Sent) -> Iterator[Sequence[int]]:
    """What the sender may take for the records of the log."""
    offsets = history.offsets.get(tp, [])
    yield offsets
    yield [offset for offset in offsets if history.records[tp, offset].compacted == NEVER]
    if history.promise.keeps:
        begins = ((offset, history.records[tp, offset].begins) for offset in offsets)
        yield [
            offset for offset, begun in begins if any(one.since < index < one.at for index in begun)
        ]


def _strings_in_time(history: History) -> Iterator[Violation]:
    """O4: a string that an ack has brought is stored soon, be the position what it may, unless a
    newer one comes. A request that crosses a new epoch is refused, and sent again a tick later.
    """
    tick, late, faults = history.promise.tick_s + 0.1, history.promise.window_s, _spans(history)
    refused = _refused_sends(history) if history.promise.incremental else {}
    stored = [
        (event.at, index, event.tp, beside(event.text, event.offset).user)
        for index, event in history.of("commit")
    ]
    calm = [
        (event.at, event)
        for _, event in history.of("assigned", "revoked", "failed", "reset", "left")
    ]
    for tp, said, _, _ in _told(history):
        for one, newer in zip_longest(said, said[1:]):
            at = history.events[one.at].at
            was_refused = any(at <= when <= at + tick for when in refused.get(tp, ()))
            window = 2 * tick if was_refused else tick
            if one.offset < 0 or (newer is not None and history.events[newer.at].at <= at + window):
                continue
            if any(start - late <= at + window and at <= end + late for start, end in faults):
                continue
            if any(
                at <= when <= at + window and event.tp in (tp, ("", -1)) for when, event in calm
            ):
                continue
            if not any(
                index > one.at and when <= at + window and (tp, one.text) == (other, user)
                for when, index, other, user in stored
            ):
                yield Violation("O4", f"{_name(tp)}: {one.text!r} was not stored in time", one.at)


def _refused_sends(history: History) -> dict[Partition, list[float]]:
    """Partition -> when requests with its position were refused."""
    sent: dict[int, list[Partition]] = defaultdict(list)
    found: dict[Partition, list[float]] = defaultdict(list)
    for _, event in history.of("send", "answer"):
        if event.kind == "send":
            sent[event.call].append(event.tp)
        elif event.note == "failed":
            for tp in sent[event.call]:
                found[tp].append(event.at)
    return found


def _told(history: History) -> Iterator[tuple[Partition, list[_Said], list[_Sent], frozenset[str]]]:
    """For each assignment of a partition: what was supplied, what was sent, and what may have been
    there before.
    """
    by_hand = any(
        event.note.startswith(("commit-now", "commit-at")) for _, event in history.of("calm")
    )  # they take strings along
    answered = {event.call: index for index, event in history.of("answer") if event.note == "ok"}
    for tp, eras in _eras(history).items():
        for number, era in enumerate(eras):
            end = eras[number + 1].start if number + 1 < len(eras) else NEVER
            sends = [
                event
                for index, event in history.of("send")
                if era.start < index < end and event.tp == tp
            ]
            if number and eras[number - 1].who == era.who:
                # Its client was built anew: what waited may have come straight back.
                continue
            if {(event.who, event.client) for event in sends} - {(era.who, era.client)}:
                # Somebody does not know that it is out.
                continue
            said, sent, there, at, had_one, moved = [], [], frozenset({""}), 0, False, -1
            # What the group has when somebody goes on elsewhere: that may be sent once more.
            before = -1
            for index, event in enumerate(history.events):
                if event.tp != tp:
                    continue
                if event.kind == "commit" and index < era.start:
                    there, at, had_one = (
                        there | {beside(event.text, event.offset).user},
                        event.offset,
                        True,
                    )
                elif not era.start < index < end or event.who != era.who:
                    continue
                elif event.kind == "said":
                    said.append(_Said(index, event.offset, event.text))
                elif event.kind == "reset":
                    before = at if at >= 0 else before
                    at, moved = event.offset if event.note == "from None" else -1, index
                elif event.kind == "send" and event.client == era.client:
                    confirmed = answered.get(event.call, NEVER)
                    user = beside(event.text, event.offset).user
                    may_be_old = at < 0 or (event.offset == at and (by_hand or not had_one))
                    is_new = event.offset > at or may_be_old
                    sent.append(
                        _Sent(
                            index,
                            event.offset,
                            user,
                            is_new,
                            may_be_old,
                            confirmed,
                            since=era.start,
                            moved=moved,
                        )
                    )
                    is_told = confirmed != NEVER and not (at < 0 and event.offset == before)
                    at = event.offset if is_told else at
                    had_one = had_one or confirmed != NEVER
            yield tp, said, sent, there


# -- rows of a store


def _by_token(history: History) -> Iterator[Violation]:
    """O5: a row is written by the last one who has claimed it, with the token that it got there."""
    owners: dict[Partition, tuple[str, int]] = {}
    for index, event in history.of("claim", "commit"):
        if event.kind == "claim":
            before = owners.get(event.tp, ("", 0))[1]
            if event.token <= before:
                text = f"{_name(event.tp)}: {event.who} claimed with token {event.token}, after {before}"
                yield Violation("O5", text, index)
            owners[event.tp] = event.who, event.token
        elif event.token and owners.get(event.tp) != (event.who, event.token):
            text = f"{_name(event.tp)}: {event.who} wrote {event.offset} with token {event.token}, not its own"
            yield Violation("O5", text, index)


def _claims(history: History) -> Iterator[Violation]:
    """O6: who claims a row leaves what it says as it is; a seek and a reset aside, until what
    follows them is stored.

    What was sent before a seek may land after it, and ends nothing; nor does other metadata at the
    position of before.
    """
    rows: dict[Partition, Event] = {}
    # The position before the last claim.
    stood: dict[Partition, int] = {}
    moved: dict[Partition, int] = {}
    sent: dict[int, int] = {}
    for index, event in history.of("claim", "commit", "reset", "send"):
        before = rows.get(event.tp)
        if event.kind == "reset":
            moved[event.tp] = index
            continue
        if event.kind == "send":
            sent[event.call] = index
            continue
        if before is not None and event.kind == "claim":
            stood[event.tp] = before.offset
            if event.tp not in moved and (before.offset, before.state) != (
                event.offset,
                event.state,
            ):
                text = f"{_name(event.tp)}: {event.who} claimed {before.offset} and made it {event.offset}"
                yield Violation("O6", f"{text}, or changed its state", index)
        elif before is not None and event.token == before.token:
            is_later = sent.get(event.call, -1) > moved.get(event.tp, NEVER)
            if is_later and event.offset != stood.get(event.tp):
                del moved[event.tp]
        if event.token:
            rows[event.tp] = event


def _beside(history: History) -> Iterator[Violation]:
    """O7: what Kafka has is never ahead of the store, and goes back with a seek only, or by a
    request that is late.
    """
    rows: dict[Partition, int] = {}
    there: dict[Partition, int] = {}
    may_go_back: set[Partition] = set()
    is_late = False
    for index, event in history.of("claim", "commit", "beside", "reset", "fault"):
        if event.kind == "fault":
            is_late = is_late or event.note.startswith("commit-late")
        elif event.kind == "reset":
            may_go_back.add(event.tp)
        elif event.kind != "beside":
            # A seek may have taken the row back meanwhile.
            rows[event.tp] = max(event.offset, rows.get(event.tp, -1))
        elif event.offset > rows.get(event.tp, -1):
            text = f"{_name(event.tp)}: Kafka has {event.offset}, the store {rows.get(event.tp, 'nothing')}"
            yield Violation("O7", text, index)
        elif event.offset < there.get(event.tp, -1) and not is_late and event.tp not in may_go_back:
            text = f"{_name(event.tp)}: Kafka's position went from {there[event.tp]} back to {event.offset}"
            yield Violation("O7", text, index)
        if event.kind == "beside":
            there[event.tp] = event.offset


def _written_once(history: History) -> Iterator[Violation]:
    """O8: every record is in the user's table once, and none is there that was read again by
    nobody's will.
    """
    if history.promise.ends != "written":
        return
    seeks = {event.tp for _, event in history.of("reset")}
    for (tp, offset), times in sorted(history.case.user.items()):
        if times > 1 and tp not in seeks:
            last = max(
                i for i, event in history.of("row") if (event.tp, event.offset) == (tp, offset)
            )
            yield Violation(
                "O8", f"{_name(tp)}: {offset} is {times} times in the user's table", last
            )
    for tp, offsets in history.offsets.items():
        for offset in offsets:
            if not history.case.user.get((tp, offset)) and not _is_excused(history, tp, offset):
                yield Violation("O8", f"{_name(tp)}: {offset} is not in the user's table")


# -- states


def _is_excused(history: History, tp: Partition, offset: int) -> bool:
    """Whether a record may be missing in a state: it was lost, skipped, or settled without its
    handler.
    """
    return (tp, offset) in _excused(history)


def _excused(history: History) -> frozenset[tuple[Partition, int]]:
    found: frozenset[tuple[Partition, int]] | None = history.memo.get("excused")
    if found is None:
        kinds = ("compacted", "skipped", "letter", "copy", "ignored")
        found = frozenset((event.tp, event.offset) for _, event in history.of(*kinds))
        history.memo["excused"] = found
    return found


def _folds(history: History) -> Iterator[Violation]:
    """O9: a state is the fold of exactly the records below its position, or below the record that
    got it.
    """
    sought: dict[Partition, list[int]] = defaultdict(lambda: [0])
    moved: dict[Partition, int] = {}
    handled = {(event.tp, event.offset) for _, event in history.of("end") if event.note == "ok"}
    handled |= {(event.tp, event.offset) for _, event in history.of("row")}
    for index, event in history.of("claim", "commit", "got", "reset"):
        if event.kind == "reset":
            sought[event.tp].append(event.offset)
            moved[event.tp] = index
        elif event.kind == "got" and history.began(event.call) < moved.get(event.tp, -1):
            # Of a record that is not ours any more since a seek.
            continue
        elif event.tp[0] in history.promise.out_of_order or (
            event.kind != "got" and not event.token
        ):
            continue
        elif (wrong := _wrong_in(history, event, sought[event.tp], handled)) is not None:
            what = "got" if event.kind == "got" else "the store has"
            text = f"{_name(event.tp)}: {event.who} {what} {event.state} at {event.offset}: {wrong}"
            yield Violation("O9", text, index)


def _wrong_in(
    history: History, event: Event, starts: Sequence[int], handled: set[tuple[Partition, int]]
) -> str | None:
    state, position = fold_of(json.loads(event.state or "null")), event.offset
    if position < 0:
        return None if state is None else "there is a state, and no position"
    done = () if state is None else state.done
    if any(offset >= position for offset in done):
        return f"it is ahead, {max(done)} is in it"
    if list(done) != sorted(set(done)):
        return "a record is in it twice"
    own = (
        {offset for _, offset in history.of_run.get((event.call, event.tp), [])}
        if event.kind == "got"
        else set()
    )
    for offset in done:
        if (event.tp, offset) not in handled and offset not in own:
            return f"{offset} is in it, which no handler was through with"
    offsets, base = history.offsets.get(event.tp, []), position if state is None else state.base
    missing = [one for one in _between(offsets, base, position) if one not in set(done)]
    if wrong := [one for one in missing if not _is_excused(history, event.tp, one)]:
        return f"{wrong[0]} is missing"
    if not any(
        all(_is_excused(history, event.tp, one) for one in _between(offsets, start, base))
        for start in starts
    ):
        return f"it begins at {base}"
    return None


# -- what a seek passes


def done_since_seeks(
    events: Sequence[Event], promise: Promise, tp: Partition, who: str
) -> set[int]:
    """The records of a partition that *who* has for settled, and that no seek went back to since.

    A handler that had begun before such a seek settles nothing any more. Who claims a row begins
    where that stands: what a member that was killed had settled behind it is not done. From then on
    it has its own for done: what others settle, as one that has lost the row and does not know it,
    never gets into the row. An assignment begins at the row, too, before its claim is answered.
    """
    done: set[int] = set()
    # Where the row stands; None: there is no row, as positions are in Kafka.
    row: int | None = None
    # Which call has which record.
    begun: set[tuple[int, int]] = set()
    # Of a broadcast: whose handlers are done with it.
    halves: dict[tuple[str, int], set[str]] = defaultdict(set)
    claims = [
        index
        for index, event in enumerate(events)
        if (event.kind, event.tp, event.who) == ("claim", tp, who)
    ]
    for index, event in enumerate(events):
        if event.tp != tp or (claims and index > claims[-1] and event.who not in ("", who)):
            continue
        if event.kind in ("claim", "commit") and event.token:
            row = event.offset
        starts_at = event.offset if event.kind in ("reset", "claim") else None
        if event.kind == "assigned":
            starts_at = row
        if starts_at is not None:
            done = {offset for offset in done if offset < starts_at}
            begun = {(call, offset) for call, offset in begun if offset < starts_at}
            halves.clear()
        elif event.kind == "begin":
            begun.add((event.call, event.offset))
        if promise.settles(event) and (event.kind != "end" or (event.call, event.offset) in begun):
            if promise.broadcast and event.kind in ("aside", "end"):
                halves[event.who, event.offset].add(event.kind)
                if len(halves[event.who, event.offset]) < 2:
                    continue
            done.add(event.offset)
    return done
