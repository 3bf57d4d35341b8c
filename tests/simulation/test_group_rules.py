"""Hand-made histories of outages, starts and ends: good ones, and for each promise some that break
it.
"""

from __future__ import annotations

import pytest

from tests.simulation.checker import Case, Promise
from tests.simulation.history import Event
from tests.simulation.test_checker import TP, assigned, begin, broken, case, commit, end, handled

LATEST = Promise(latest=True)
GRACEFUL = Promise(graceful=True, ordering="unordered")


def at(seconds: float, *events: Event) -> list[Event]:
    return [event._replace(at=seconds) for event in events]


def ready(note: str = "UP", who: str = "A1") -> Event:
    return Event(0.0, "ready", who, note=note)


def reset(
    offset: int, since: int | None = None, to: str = "earliest", count: int | None = None
) -> Event:
    told = -1 if since is None else offset - since if count is None else count
    return Event(0.0, "reset", "A1", TP, offset, f"from {since}", text=to, count=told)


DOWN, BACK = Event(0.0, "fault", note="broker-down #1"), Event(0.0, "calm", note="broker-down #1")
WHY = "DOWN: why"
REVOKED, LEFT = Event(0.0, "revoked", "A1", TP), Event(0.0, "left", "A1")
GONE = [Event(0.0, "compacted", "", TP, offset, "retention") for offset in (0, 1)]
TRIMMED = Event(0.0, "trimmed", "", TP, 2)


def sought(offset: int) -> Event:
    """A seek begins; or has ended, if it has begun."""
    return Event(0.0, "reset", "A1", TP, offset, "seek")


def of_unknown_outcome(offset: int, call: int = 1) -> list[Event]:
    """A commit that is sent, and nobody knows whether it was stored."""
    return [
        Event(0.0, "send", "A1", TP, offset, call=call),
        Event(0.0, "answer", "A1", note="unknown", call=call),
    ]


def outage(*events: list[Event]) -> Case:
    """From 10 s to 20 s; a fault of the broker is noted to its end a second later."""
    whole = [
        *at(1.0, ready()),
        *at(10.0, DOWN),
        *at(21.0, BACK),
        *[one for some in events for one in some],
    ]
    whole = sorted(
        [*whole, *at(90.0, Event(0.0, "member", "A1", note="gone"))], key=lambda event: event.at
    )
    return case(
        [Event(0.5, "member", "A1", note="start"), *whole], log={}, log_end={}, committed={}
    )


def lost(*events: Event | list[Event], promise: Promise | None = None) -> Case:
    """Retention takes 0 and 1."""
    return case(assigned(), GONE, TRIMMED, *events, promise=promise or Promise())


GOOD: dict[str, Case] = {
    "not ready in an outage, and ready after it": outage(at(12.5, ready(WHY)), at(21.0, ready())),
    "another fault keeps it from being ready": outage(
        at(12.5, ready(WHY)),
        at(30.0, Event(0.0, "fault", note="expire #2")),
        at(60.0, ready()),
    ),
    "the group waits for the session of a member that left in an outage": outage(
        at(12.5, ready(WHY)), at(15.0, Event(0.0, "left", "A2")), at(60.0, ready())
    ),
    "a channel is stopped by hand in an outage": outage(
        at(11.0, Event(0.0, "calm", note="stop-start #2"))
    ),
    "what was refused is sent again": case(
        assigned(),
        handled(0, 1, 2),
        commit(3)[0],
        Event(0.0, "answer", "A1", note="failed", call=1),
        commit(3, 2),
        promise=GRACEFUL,
    ),
    "what was lost is told": lost(reset(2, 0), commit(2), handled(2), commit(3, 2)),
    "what is lost behind a seek to the log's beginning": case(
        assigned(),
        Event(0.0, "reset", "A1", TP, 0, note="seek"),
        GONE,
        TRIMMED,
        Event(0.0, "fetched", "A1", TP, 2, until=3),
        handled(2),
        commit(3, 2),
    ),
    "what is lost before a seek to the log's beginning": lost(
        Event(0.0, "reset", "A1", TP, 0, note="seek"),
        Event(0.0, "fetched", "A1", TP, 2, until=3),
        handled(2),
        commit(3, 2),
    ),
    "what was lost before anybody came": lost(reset(2), handled(2), commit(3, 2)),
    "what the latest passes is told": case(
        assigned(),
        GONE[:1],
        Event(0.0, "trimmed", "", TP, 1),
        Event(0.0, "skipped", "A1", TP, 1),
        reset(2, 0, "latest"),
        commit(2),
        handled(2),
        commit(3, 2),
    ),
    "a start at the latest": case(
        assigned(),
        reset(2, to="latest"),
        *[Event(0.0, "skipped", "A1", TP, one) for one in (0, 1)],
        commit(2),
        handled(2),
        commit(3, 2),
        promise=LATEST,
    ),
    "a start at the latest that a fault kept from being committed": case(
        assigned(),
        at(2.0, Event(0.0, "fault", note="commit-fails #1")),
        reset(0, to="latest"),
        commit(0, 9)[0],
        Event(0.0, "answer", "A1", note="failed", call=9),
        handled(0, 1),
        reset(2, to="latest"),
        commit(2, 8),
        handled(2),
        commit(3),
        promise=LATEST,
    ),
    "a start behind what was sought and is lost": lost(
        Event(0.0, "reset", "A1", TP, 1, "seek"),
        reset(2, 1),
        Event(0.0, "fetched", "A1", TP, 2, until=3),
        handled(2),
        commit(3),
    ),
    "a start behind what was sought, while a fetch of before comes in": lost(
        sought(1),
        Event(0.0, "fetched", "A1", TP, 2, until=3),
        reset(2, 1),
        Event(0.0, "fetched", "A1", TP, 2, until=3),
        handled(2),
        commit(3),
    ),
    "a start behind the first of two places that were sought at once": lost(
        sought(1),
        sought(0),
        reset(2, 1),
        Event(0.0, "fetched", "A1", TP, 2, until=3),
        handled(2),
        commit(3),
    ),
    "a start behind what was sought, while another member still reads": lost(
        Event(0.0, "reset", "A1", TP, 1, "seek"),
        Event(0.0, "fetched", "A2", TP, 2, until=3),
        reset(2, 1),
        Event(0.0, "fetched", "A1", TP, 2, until=3),
        handled(2),
        commit(3),
    ),
    "a start behind what was lost, while the row in the store is not known": lost(
        of_unknown_outcome(0),
        reset(2, 0),
        handled(2),
        commit(2, 2),
        commit(3, 3),
        promise=Promise(store=True),
    ),
    "all is committed at the end": case(
        assigned(),
        handled(0, 1),
        commit(2),
        REVOKED,
        assigned("A2", 2),
        handled(2, who="A2"),
        commit(3, 2, "A2"),
        LEFT,
    ),
    "what ends at that moment may be too late": case(
        assigned(),
        handled(0),
        commit(1),
        at(3.0, *handled(1), REVOKED),
        assigned("A2", 2),
        handled(1, 2, who="A2", call=10),
        commit(3, 2, "A2"),
    ),
    "what began before a seek is for the place of before": case(
        assigned(),
        handled(0),
        begin(1),
        begin(2),
        commit(1),
        Event(0.0, "reset", "A1", TP, 1, "seek"),
        end(1),
        end(2),
        REVOKED,
        assigned("A2", 2),
        handled(1, 2, who="A2", call=10),
        commit(3, 2, "A2"),
    ),
    "a letter that may have failed for its writer": case(
        Event(0.0, "calm", note="send-fails #1"),
        assigned(),
        handled(0),
        commit(1),
        begin(1),
        end(1, "failed"),
        Event(0.0, "letter", "", TP, 1),
        REVOKED,
        assigned("A2", 2),
        handled(1, 2, who="A2", call=10),
        commit(3, 2, "A2"),
    ),
    "what runs holds up what is behind it, though another seeks past that later": case(
        assigned(),
        handled(0),
        commit(1),
        begin(1),
        handled(2),
        REVOKED,
        assigned("A2", 2),
        Event(0.0, "skipped", "A2", TP, 1),
        handled(2, who="A2", call=10),
        commit(3, 2, "A2"),
    ),
    "a record that nobody was through with comes again": case(
        assigned(),
        handled(0, 1),
        begin(2),
        end(2, "cancelled"),
        commit(2),
        REVOKED,
        assigned("A2", 2),
        handled(2, who="A2", call=10),
        commit(3, 2, "A2"),
        promise=GRACEFUL,
    ),
}

OF_HERE = {"I17", "I19", "I20", "I21", "I22", "I24"}


@pytest.mark.parametrize("name", GOOD)
def test_a_good_history_breaks_nothing(name: str) -> None:
    assert not OF_HERE & broken(GOOD[name])


BAD: dict[str, tuple[str, Case]] = {
    "ready in an outage": ("I17", outage()),
    "ready for 6 s of an outage": ("I17", outage(at(16.0, ready(WHY)), at(21.0, ready()))),
    "ready again in the middle of an outage": (
        "I17",
        outage(at(12.5, ready(WHY)), at(18.5, ready()), at(19.0, ready(WHY)), at(21.0, ready())),
    ),
    "not ready, and nobody knows why": ("I17", outage(at(12.5, ready("DOWN")), at(21.0, ready()))),
    "not ready long after an outage before which a member left": (
        "I17",
        outage(at(5.0, Event(0.0, "left", "A2")), at(12.5, ready(WHY)), at(80.0, ready())),
    ),
    "not ready long after an outage": ("I17", outage(at(12.5, ready(WHY)), at(80.0, ready()))),
    "what was lost is told as nothing": (
        "I19",
        lost(reset(2, 0, count=0), commit(2), handled(2), commit(3, 2)),
    ),
    "less than what was lost is told": (
        "I19",
        lost(reset(2, 0, count=1), commit(2), handled(2), commit(3, 2)),
    ),
    "what is there is skipped": (
        "I19",
        case(assigned(), handled(0), reset(2, 1), commit(2), handled(2), commit(3, 2)),
    ),
    "what is lost behind a seek to an offset": (
        "I19",
        case(
            assigned(),
            Event(0.0, "reset", "A1", TP, 1, note="seek"),
            GONE,
            TRIMMED,
            Event(0.0, "fetched", "A1", TP, 2, until=3),
            handled(2),
            commit(3, 2),
        ),
    ),
    "what was lost is not told, and long after that there is a seek to the beginning": (
        "I19",
        lost(
            Event(0.0, "fetched", "A1", TP, 2, until=3),
            Event(0.0, "reset", "A1", TP, 0, note="seek"),
            Event(0.0, "fetched", "A1", TP, 2, until=3),
            handled(2),
            commit(3, 2),
        ),
    ),
    "what was lost is not told": (
        "I19",
        lost(Event(0.0, "fetched", "A1", TP, 2, until=3), handled(2), commit(3, 2)),
    ),
    "a start at the latest is not committed": (
        "I21",
        case(assigned(), reset(0, to="latest"), handled(0, 1, 2), commit(3)),
    ),
    "a start behind what was lost is not committed": (
        "I21",
        lost(reset(2, 0), handled(2), commit(3, 2)),
    ),
    "a start is not committed after a commit to Kafka of unknown outcome": (
        "I21",
        lost(of_unknown_outcome(0), reset(2, 0), handled(2), commit(3, 2)),
    ),
    "a start is not committed although the row in the store is known again": (
        "I21",
        lost(
            of_unknown_outcome(0),
            commit(0, 2),
            reset(2, 0),
            handled(2),
            commit(3, 3),
            promise=Promise(store=True),
        ),
    ),
    "a start is not committed, and only the write after it is of unknown outcome": (
        "I21",
        lost(
            reset(2, 0),
            handled(2),
            of_unknown_outcome(3),
            commit(3, 2),
            promise=Promise(store=True),
        ),
    ),
    "a start is not committed after a write of unknown outcome by another owner": (
        "I21",
        lost(
            [event._replace(who="A2") for event in of_unknown_outcome(0)],
            reset(2, 0),
            handled(2),
            commit(3, 2),
            promise=Promise(store=True),
        ),
    ),
    "a start behind what is lost long after a seek is not committed": (
        "I21",
        lost(
            sought(0),
            sought(0),
            Event(0.0, "fetched", "A1", TP, 0, until=0),
            reset(2, 0),
            handled(2),
            commit(3),
        ),
    ),
    "the latest where the group had a position": (
        "I21",
        case(
            assigned(),
            handled(0),
            commit(1),
            reset(2, to="latest"),
            commit(2, 2),
            handled(2),
            commit(3, 3),
        ),
    ),
    "the latest where the group had begun": (
        "I21",
        case(
            assigned(),
            reset(0),
            begin(0),
            reset(2, to="latest"),
            commit(2, 2),
            handled(2),
            commit(3, 3),
        ),
    ),
    "the latest of a partition that came later": (
        "I21",
        case(
            ready(),
            Event(0.0, "appeared", "", TP),
            assigned(),
            reset(2, to="latest"),
            commit(2),
            handled(2),
            commit(3, 2),
        ),
    ),
    "the latest of a retry topic": (
        "I21",
        case(
            assigned(),
            reset(2, to="latest"),
            commit(2),
            handled(2),
            commit(3, 2),
            promise=Promise(out_of_order=frozenset({TP[0]})),
        ),
    ),
    "who lets go leaves something uncommitted after a seek": (
        "I20",
        case(
            assigned(),
            Event(0.0, "reset", "A1", TP, 1, "seek"),
            handled(1),
            REVOKED,
            assigned("A2", 2),
            handled(0, 1, 2, who="A2", call=10),
            commit(3, 2, "A2"),
        ),
    ),
    "who lets go leaves something uncommitted": (
        "I20",
        case(
            assigned(), handled(0, 1), commit(1), REVOKED, assigned("A2", 2), handled(2, who="A2")
        ),
    ),
    "who leaves leaves something uncommitted": (
        "I20",
        case(assigned(), handled(0, 1, 2), commit(2), LEFT),
    ),
    "a record that was done comes again": (
        "I22",
        case(
            assigned(),
            begin(0),
            handled(1),
            commit(0),
            REVOKED,
            assigned("A2", 2),
            handled(0, 1, 2, who="A2", call=10),
            commit(3, 2, "A2"),
            promise=GRACEFUL,
        ),
    ),
    "what is stored is sent again": (
        "I24",
        case(assigned(), handled(0, 1, 2), commit(3), commit(3, 2), promise=GRACEFUL),
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_broken_promise_is_seen(name: str) -> None:
    invariant, bad = BAD[name]
    assert invariant in broken(bad)
