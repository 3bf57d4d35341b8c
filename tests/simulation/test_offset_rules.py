"""Hand-made histories of offsets that are the user's: good ones, and for each promise some that
break it.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from reactive_kafka.tracking.metadata import acks as ackmap
from reactive_kafka.tracking.metadata.codec import encode
from tests.simulation.checker import Case, Promise, Stored, check
from tests.simulation.history import Event
from tests.simulation.offset_rules import Beside, beside, done_since_seeks
from tests.simulation.test_checker import (
    LOG,
    TP,
    assigned,
    begin,
    broken,
    case,
    commit,
    end,
    handled,
)

KEEPS = Promise(window_s=1.0, ordering="unordered", keeps=True)
STRINGS = Promise(window_s=1.0, tick_s=10.0, strings="current")
EXACT = Promise(window_s=1.0, tick_s=10.0, ordering="unordered", strings="exact")
STORE = Promise(window_s=1.0, store=True)
STATES = Promise(window_s=1.0, store=True, states=True)
WRITTEN = Promise(window_s=1.0, store=True, ends="written")


def kept(
    position: int, until: int, *still_open: int, call: int = 1, who: str = "A1"
) -> list[Event]:
    """A commit beside which is kept what is done up to *until*."""
    acks, _ = ackmap.encode(still_open, position, until, 1000)
    return stored(position, encode(position, (), "", acks), call, who)


def stored(position: int, text: str, call: int = 1, who: str = "A1") -> list[Event]:
    """A commit with what stands beside it."""
    return [
        one._replace(text=text) if one.kind != "answer" else one
        for one in commit(position, call, who)
    ]


def said(text: str, offset: int = -1, who: str = "A1") -> Event:
    return Event(0.0, "said", who, TP, offset, text=text)


def state(*offsets: int) -> str | None:
    return (
        json.dumps({"from": offsets[0], "done": [[one, one + 1] for one in offsets]})
        if offsets
        else None
    )


def claim(token: int = 1, position: int = -1, has: str | None = None, who: str = "A1") -> Event:
    return Event(0.0, "claim", who, TP, position, token=token, state=has)


def row(
    position: int, has: str | None = None, token: int = 1, call: int = 1, who: str = "A1"
) -> list[Event]:
    return [
        Event(0.0, "send", who, TP, position, call=call, token=token),
        Event(0.0, "commit", who, TP, position, call=call, token=token, state=has),
        Event(0.0, "answer", who, note="ok", call=call),
    ]


def folded(*offsets: int, had: tuple[int, ...] = (), who: str = "A1", call: int = 0) -> list[Event]:
    """Handlers that fold their records into the state."""
    events = []
    for offset in offsets:
        got = Event(0.0, "got", who, TP, offset, state=state(*had))
        had = (*had, offset)
        events += [
            begin(offset, who=who, call=call + offset),
            got,
            end(offset, who=who, call=call + offset),
        ]
    return events


def written(*offsets: int, who: str = "A1", call: int = 0) -> list[Event]:
    """Transactions that write their records."""
    events = []
    for offset in offsets:
        events += [begin(offset, who=who, call=call + offset), Event(0.0, "row", who, TP, offset)]
        events += [
            *row(offset + 1, call=100 + call + offset, who=who)[1:2],
            end(offset, who=who, call=call + offset),
        ]
    return events


def store(*events: Event | list[Event], promise: Promise = STORE, **more: Any) -> Case:
    made = case(assigned(), *events, promise=promise, **more)
    return replace(
        made, user=Counter((event.tp, event.offset) for event in made.events if event.kind == "row")
    )


CRASH = [Event(50.0, "fault", note="crash #1"), Event(50.0, "calm", note="crash #1")]
"""Whatever was not committed may be handled again after it."""


def later(*events: Event | list[Event]) -> list[Event]:
    flat = [one for event in events for one in (event if isinstance(event, list) else [event])]
    return [one._replace(at=50.5) for one in flat]


FAULT = [Event(0.0, "fault", note="store-zombie #1")]
FETCHED = [Event(0.0, "fetched", "A1", TP, 0, until=3, count=3)]


ACROSS_EPOCHS = Promise(window_s=1.0, tick_s=10.0, strings="current", incremental=True)


def refused(position: int) -> list[Event]:
    return [
        Event(15.0, "send", "A1", TP, position, call=2),
        Event(15.0, "answer", "A1", note="failed", call=2),
    ]


GOOD: dict[str, Case] = {
    "a string that a new epoch has refused is stored a tick later": case(
        assigned(),
        handled(0, 1, 2),
        commit(3),
        said("a", 2),
        refused(3),
        [event._replace(at=25.0) for event in stored(3, "a", 3)],
        promise=ACROSS_EPOCHS,
    ),
    "what was kept is passed over by the next owner": case(
        assigned(),
        begin(0),
        handled(1, 2),
        kept(0, 3, 0),
        CRASH,
        later(assigned("A2", 2), handled(0, who="A2", call=10), commit(3, 2, "A2")),
        promise=KEEPS,
    ),
    "what was kept is handled again after a seek": case(
        assigned(),
        begin(0),
        handled(1, 2),
        kept(0, 3, 0),
        CRASH,
        later(
            assigned("A2", 2),
            Event(0.0, "reset", "A2", TP, 0, "seek"),
            handled(0, 1, 2, who="A2", call=10),
            commit(3, 2, "A2"),
        ),
        promise=KEEPS,
    ),
    "a string goes with the next position, and once": case(
        assigned(),
        handled(0),
        said("a"),
        handled(1),
        stored(2, "a"),
        handled(2),
        stored(3, "", 2),
        promise=STRINGS,
    ),
    "a string goes with the same position, and with the next": case(
        assigned(),
        handled(0, 1),
        commit(2, 1),
        said("a", 2),
        stored(2, "a", 2),
        handled(2),
        stored(3, "a", 3),
        promise=STRINGS,
    ),
    "the newest of two strings": case(
        assigned(),
        handled(0),
        said("a", 0),
        handled(1, 2),
        said("b", 2),
        stored(3, "b"),
        promise=STRINGS,
    ),
    "exactly the string of the last record": case(
        assigned(),
        handled(0),
        said("a", 0),
        handled(2),
        said("b", 2),
        stored(1, "a"),
        handled(1),
        stored(3, "b", 2),
        promise=EXACT,
    ),
    "used up by a position before the one that the group had at a seek, and that was sent again": case(
        assigned(),
        handled(0, 1, 2),
        stored(3, ""),
        Event(0.0, "reset", "A1", TP, 0, "seek"),
        stored(3, "", 2),
        said("a"),
        handled(0, call=10),
        stored(1, "a", 3),
        handled(1, 2, call=20),
        stored(2, "", 4),
        stored(3, "", 5),
        promise=EXACT,
    ),
    "no string of a record from before a seek": case(
        assigned(),
        handled(0),
        said("a", 0),
        stored(1, "a"),
        Event(0.0, "reset", "A1", TP, 1, "seek"),
        stored(2, "", 2),
        handled(2),
        stored(3, "", 3),
        promise=EXACT,
        log={TP: {0: Stored("a", "k1"), 2: Stored("c", "k1")}},
    ),
    "the string of the last record that was not left out": case(
        assigned(),
        begin(0),
        handled(1),
        kept(0, 2, 0),
        CRASH,
        later(
            assigned("A2", 2),
            begin(2, who="A2", call=12),
            handled(0, who="A2", call=10),
            said("z", 0, "A2"),
            begin(3, "d", "A2", 13),
            end(3, who="A2", call=13),
            said("y", 3, "A2"),
            stored(2, "z", 2, "A2"),
            end(2, who="A2", call=12),
            stored(4, "y", 3, "A2"),
        ),
        promise=replace(EXACT, keeps=True),
        log={TP: {**LOG[TP], 3: Stored("d", "k1")}},
        log_end={TP: 4},
        committed={TP: 4},
    ),
    "a row that was claimed, and claimed again": store(
        claim(),
        handled(0, 1),
        row(2),
        Event(0.0, "beside", "", TP, 2),
        Event(0.0, "revoked", "A1", TP),
        assigned("A2", 2),
        claim(2, 2, who="A2"),
        handled(2, who="A2"),
        row(3, token=2, call=2, who="A2"),
    ),
    "a row that a late claim took away in a fault, and that is read again": store(
        claim(),
        FAULT,
        handled(0, 1),
        claim(2),
        claim(3),
        FETCHED,
        handled(0, 1, 2, call=10),
        row(3, token=3),
    ),
    "a row goes back with a seek": store(
        claim(),
        handled(0, 1, 2),
        row(3),
        Event(0.0, "reset", "A1", TP, 1, "seek"),
        handled(1, call=10),
        claim(2, 2),
        row(2, token=2, call=2),
        handled(2, call=20),
        row(3, token=2, call=3),
    ),
    "a row is stated again after a seek, and goes back then": store(
        claim(),
        handled(0, 1, 2),
        row(3),
        Event(0.0, "reset", "A1", TP, 1, "seek"),
        claim(2, 3),
        row(3, token=2, call=2),
        handled(1, call=10),
        claim(3, 2),
        row(2, token=3, call=3),
        handled(2, call=20),
        row(3, token=3, call=4),
    ),
    "a row of before a seek lands after it, and goes back all the same": store(
        claim(),
        handled(0, 1, 2),
        row(3)[0],
        Event(0.0, "reset", "A1", TP, 1, "seek"),
        handled(1, call=10),
        row(3)[1],
        row(2, token=2, call=2)[0],
        claim(2, 2),
        row(2, token=2, call=2)[1:],
        handled(2, call=20),
        row(3, token=2, call=3),
    ),
    "a state of all records": store(
        claim(),
        folded(0, 1),
        row(2, state(0, 1)),
        folded(2, had=(0, 1)),
        row(3, state(0, 1, 2), call=2),
        promise=STATES,
    ),
    "a state without the record that was dead-lettered": store(
        claim(),
        folded(0),
        begin(1),
        end(1, "failed"),
        Event(0.0, "letter", "", TP, 1),
        folded(2, had=(0,)),
        row(3, state(0, 2)),
        promise=Promise(window_s=1.0, store=True, states=True),
    ),
    "records that were written once": store(claim(), written(0, 1, 2), promise=WRITTEN),
}


@pytest.mark.parametrize("name", GOOD)
def test_a_good_history_breaks_nothing(name: str) -> None:
    assert check(GOOD[name]) == []


BAD: dict[str, tuple[str, Case]] = {
    "an open record is kept as done": (
        "O1",
        case(
            assigned(),
            begin(0),
            begin(1),
            handled(2),
            kept(0, 3, 0),
            end(0),
            end(1),
            commit(3, 2),
            promise=KEEPS,
        ),
    ),
    "a record whose ack was kept is begun again": (
        "O2",
        case(
            assigned(),
            begin(0),
            handled(1, 2),
            kept(0, 3, 0),
            CRASH,
            later(assigned("A2", 2), handled(0, 1, who="A2", call=10), commit(3, 2, "A2")),
            promise=KEEPS,
        ),
    ),
    "an ack above the position is not kept at a revocation": (
        "I7",
        case(
            assigned(),
            begin(0),
            handled(1, 2),
            Event(0.0, "revoked", "A1", TP),
            later(assigned("A2", 2), handled(0, 1, 2, who="A2", call=10), commit(3, 2, "A2")),
            promise=KEEPS,
        ),
    ),
    "a string is left out": (
        "O3",
        case(assigned(), handled(0, 1, 2), said("a"), stored(3, ""), promise=STRINGS),
    ),
    "an older string goes": (
        "O3",
        case(
            assigned(),
            handled(0, 1),
            said("a", 0),
            said("b", 1),
            handled(2),
            stored(3, "a"),
            promise=STRINGS,
        ),
    ),
    "a string goes twice": (
        "O3",
        case(
            assigned(),
            handled(0, 1),
            said("a"),
            stored(2, "a"),
            handled(2),
            stored(3, "a", 2),
            promise=STRINGS,
        ),
    ),
    "a string is used up by a commit that failed": (
        "O3",
        case(
            assigned(),
            handled(0, 1),
            said("a"),
            Event(0.0, "send", "A1", TP, 2, call=1, text="a"),
            Event(0.0, "answer", "A1", note="failed", call=1),
            handled(2),
            stored(3, "", 2),
            promise=STRINGS,
        ),
    ),
    "the string of another record goes": (
        "O3",
        case(
            assigned(),
            handled(0),
            said("a", 0),
            handled(2),
            said("b", 2),
            stored(1, "b"),
            handled(1),
            stored(3, "b", 2),
            promise=EXACT,
        ),
    ),
    "a string that waits for the next position is lost by a seek": (
        "O3",
        case(
            assigned(),
            handled(0),
            said("z"),
            stored(1, "z"),
            said("a"),
            Event(0.0, "reset", "A1", TP, 1, "seek"),
            handled(1),
            stored(2, "", 2),
            handled(2),
            stored(3, "a", 3),
            promise=STRINGS,
        ),
    ),
    "a record without a string after a seek gets one of before": (
        "O3",
        case(
            assigned(),
            handled(0),
            said("a", 0),
            stored(1, "a"),
            Event(0.0, "reset", "A1", TP, 1, "seek"),
            handled(1),
            stored(2, "a", 2),
            handled(2),
            stored(3, "a", 3),
            promise=EXACT,
        ),
    ),
    "a string that a new epoch has refused is not sent again": (
        "O4",
        case(
            assigned(),
            handled(0, 1, 2),
            commit(3),
            said("a", 2),
            refused(3),
            Event(50.0, "calm", note="the end"),
            promise=ACROSS_EPOCHS,
        ),
    ),
    "a string that nobody has refused is stored too late": (
        "O4",
        case(
            assigned(),
            handled(0, 1, 2),
            commit(3),
            said("a", 2),
            [event._replace(at=25.0) for event in stored(3, "a", 3)],
            promise=ACROSS_EPOCHS,
        ),
    ),
    "a string that moves no position is never stored": (
        "O4",
        case(assigned(), handled(0, 1, 2), commit(3), said("a", 2), promise=STRINGS),
    ),
    "a zombie writes a row": (
        "O5",
        store(
            claim(),
            handled(0, 1),
            assigned("A2", 2),
            claim(2, who="A2"),
            row(2),
            handled(0, 1, 2, who="A2", call=10),
            row(3, token=2, call=2, who="A2"),
        ),
    ),
    "a claim takes no new token": (
        "O5",
        store(claim(), handled(0, 1, 2), row(3), assigned("A2", 2), claim(1, 3, who="A2")),
    ),
    "a claim loses the state": (
        "O6",
        store(claim(), handled(0, 1, 2), row(3, state(0)), claim(2, 3)),
    ),
    "a claim moves the position": (
        "O6",
        store(claim(), handled(0, 1, 2), row(3), claim(2, 2), row(3, token=2, call=2)),
    ),
    "a claim moves the position, long after a seek": (
        "O6",
        store(
            claim(),
            handled(0, 1, 2),
            row(3),
            Event(0.0, "reset", "A1", TP, 1, "seek"),
            handled(1, call=10),
            claim(2, 2),
            row(2, token=2, call=2),
            handled(2, call=20),
            row(3, token=2, call=3),
            claim(3, 2),
            row(3, token=3, call=4),
        ),
    ),
    "Kafka is ahead of the store": (
        "O7",
        store(claim(), handled(0, 1, 2), row(2), Event(0.0, "beside", "", TP, 3), row(3, call=2)),
    ),
    "Kafka's position goes back": (
        "O7",
        store(
            claim(),
            handled(0, 1, 2),
            row(3),
            Event(0.0, "beside", "", TP, 3),
            Event(0.0, "beside", "", TP, 2),
        ),
    ),
    "a row goes back without a seek": (
        "I5",
        store(claim(), handled(0, 1, 2), row(3), row(2, call=2), row(3, call=3)),
    ),
    "a row passes a record that has not ended": (
        "I1",
        store(claim(), begin(0), row(1), end(0), handled(1, 2), row(3)),
    ),
    "the store is behind a revocation": (
        "I7",
        store(
            claim(),
            handled(0, 1, 2),
            row(1),
            Event(0.0, "revoked", "A1", TP),
            assigned("A2", 2),
            claim(2, 1, who="A2"),
            handled(1, 2, who="A2", call=10),
            row(3, token=2, call=2, who="A2"),
        ),
    ),
    "a row is claimed and read again without a fault": (
        "I7",
        store(
            claim(), handled(0, 1), claim(2), FETCHED, handled(0, 1, 2, call=10), row(3, token=2)
        ),
    ),
    "a row only gets another token, and its records are begun again": (
        "I7",
        store(
            claim(),
            FAULT,
            FETCHED,
            handled(0, 1),
            claim(2),
            handled(0, 1, 2, call=10),
            row(3, token=2),
        ),
    ),
    "a record is written twice": (
        "O8",
        store(claim(), written(0, 1, 2), written(2, call=10), promise=WRITTEN),
    ),
    "a record is acked and not written": (
        "O8",
        store(claim(), written(0, 1), handled(2), row(3), promise=WRITTEN),
    ),
    "a state is ahead of its position": (
        "O9",
        store(
            claim(),
            folded(0, 1, 2),
            row(2, state(0, 1, 2)),
            row(3, state(0, 1, 2), call=2),
            promise=STATES,
        ),
    ),
    "a state is behind its position": (
        "O9",
        store(claim(), folded(0, 1, 2), row(3, state(0, 1)), promise=STATES),
    ),
    "a position is written without its state": (
        "O9",
        store(claim(), folded(0, 1, 2), row(3), promise=STATES),
    ),
    "a handler gets what its own failed attempt has set": (
        "O9",
        store(
            claim(), folded(0, 1), folded(2, had=(0, 1, 2)), row(3, state(0, 1, 2)), promise=STATES
        ),
    ),
    "the next owner gets no state": (
        "O9",
        store(
            claim(),
            folded(0, 1),
            row(2, state(0, 1)),
            Event(0.0, "revoked", "A1", TP),
            assigned("A2", 2),
            claim(2, 2, state(0, 1), who="A2"),
            folded(2, who="A2", call=10),
            row(3, state(0, 1, 2), token=2, call=2, who="A2"),
            promise=STATES,
        ),
    ),
    "a state holds a record that was nacked": (
        "O9",
        store(
            claim(),
            folded(0),
            begin(1),
            end(1, "failed"),
            Event(0.0, "letter", "", TP, 1),
            folded(2, had=(0, 1)),
            row(3, state(0, 1, 2)),
            promise=Promise(window_s=1.0, store=True, states=True),
        ),
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_broken_promise_is_seen(name: str) -> None:
    invariant, bad = BAD[name]
    assert invariant in broken(bad)


@pytest.mark.parametrize(
    ("still_open", "until"),
    [((100,), 103), ((101, 102, 180), 200), ((150,), 5000), ((), 101), ((100, 4000), 9000)],
)
def test_what_is_kept_is_read_as_it_was_written(still_open: tuple[int, ...], until: int) -> None:
    acks, end = ackmap.encode(still_open, 100, until, 1000)
    text = encode(100, (), "a b", acks)
    assert beside(text, 100) == Beside("a b", end, frozenset(still_open))


def test_a_string_is_read_in_and_without_an_envelope() -> None:
    assert beside("plain", 7).user == "plain"
    assert beside(encode(7, (), "rk1 own"), 7).user == "rk1 own"
    # It was copied: what is kept is of elsewhere.
    assert beside(encode(7, (), "rk1 own"), 8) == Beside("rk1 own")


def test_what_a_seek_went_back_to_is_done_when_it_was_handled_again() -> None:
    seek = Event(0.0, "reset", "A1", TP, 1, "seek")
    # Its verdict changes nothing any more.
    begun_before = [begin(2), seek, end(2)]
    assert done_since_seeks([*handled(0, 1), *begun_before], STATES, TP, "A1") == {0}
    assert done_since_seeks(
        [*handled(0, 1), *begun_before, *handled(1, 2, call=10)], STATES, TP, "A1"
    ) == {0, 1, 2}
    killed = [*handled(0, 1, 2), claim(2, 1, who="A2")]
    assert done_since_seeks(killed, STATES, TP, "A2") == {0}


def test_what_another_member_settles_after_a_claim_is_not_done_for_who_has_claimed() -> None:
    zombie = [claim(), *handled(0), *row(1), begin(1), claim(2, 1, who="A2"), end(1)]
    own = [*zombie, *handled(1, who="A2", call=10)]
    assert done_since_seeks(zombie, STATES, TP, "A2") == {0}
    assert done_since_seeks(own, STATES, TP, "A2") == {0, 1}
    assert done_since_seeks([*own, Event(0.0, "reset", "A1", TP, 0, "seek")], STATES, TP, "A2") == {
        0,
        1,
    }
    # Nobody knows whose.
    letter = Event(0.0, "letter", "", TP, 1)
    assert done_since_seeks([*zombie, letter], STATES, TP, "A2") == {0, 1}


def test_an_assignment_whose_claim_has_no_answer_yet_begins_at_the_row() -> None:
    again = Event(0.0, "assigned", "A1", TP)
    stored = [claim(), *handled(0), *row(1), *handled(1, 2)]
    assert done_since_seeks(stored, STATES, TP, "A1") == {0, 1, 2}
    assert done_since_seeks([*stored, again], STATES, TP, "A1") == {0}
    assert done_since_seeks([*stored, again, *handled(1)], STATES, TP, "A1") == {0, 1}
    # Kafka has the position, and what was handled stays handled.
    in_kafka = [*handled(0, 1), Event(0.0, "commit", "A1", TP, 1), again]
    assert done_since_seeks(in_kafka, STATES, TP, "A1") == {0, 1}


def test_who_has_lost_a_row_and_does_not_know_it_has_what_it_has_settled_itself() -> None:
    zombie = [
        claim(),
        *handled(0),
        claim(2, who="A2"),
        *handled(0, 1, 2, who="A2", call=10),
        *handled(1, call=20),
    ]
    assert done_since_seeks(zombie, STATES, TP, "A1") == {0, 1}


def test_without_a_store_a_record_is_done_whoever_has_settled_it() -> None:
    assert done_since_seeks([assigned(), assigned("A2", 2), *handled(0)], Promise(), TP, "A2") == {
        0
    }
