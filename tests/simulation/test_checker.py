"""Hand-made histories: a good one, and for each promise one that breaks it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.simulation.checker import Case, Promise, Stored, Tally, check
from tests.simulation.history import Event, Partition

TP: Partition = ("orders", 0)
LOG = {TP: {0: Stored("a", "k1"), 1: Stored("b", "k2"), 2: Stored("c", "k1")}}


def assigned(who: str = "A1", generation: int = 1, note: str = "") -> Event:
    return Event(0.0, "assigned", who, TP, generation, note)


def begin(
    offset: int, id: str | None = None, who: str = "A1", call: int | None = None, attempt: int = 1
) -> Event:
    id = LOG[TP][offset].id if id is None else id
    return Event(0.0, "begin", who, TP, offset, id, offset if call is None else call, attempt)


def end(offset: int, note: str = "ok", who: str = "A1", call: int | None = None) -> Event:
    return Event(0.0, "end", who, TP, offset, note, offset if call is None else call)


def handled(*offsets: int, who: str = "A1", call: int = 0) -> list[Event]:
    return [
        event
        for offset in offsets
        for event in (
            begin(offset, who=who, call=call + offset),
            end(offset, who=who, call=call + offset),
        )
    ]


def commit(offset: int, call: int = 1, who: str = "A1") -> list[Event]:
    return [
        Event(0.0, "send", who, TP, offset, call=call),
        Event(0.0, "commit", "", TP, offset, call=call),
        Event(0.0, "answer", who, note="ok", call=call),
    ]


def case(*events: Event | list[Event], **changed: Any) -> Case:
    flat = [one for event in events for one in (event if isinstance(event, list) else [event])]
    timed = [
        event._replace(at=float(at)) if not event.at else event for at, event in enumerate(flat)
    ]
    whole: dict[str, Any] = {
        "events": timed,
        "log": LOG,
        "log_end": {TP: 3},
        "committed": {TP: 3},
        "promise": Promise(window_s=1.0),
    }
    return Case(**{**whole, **changed})


GOOD = case(assigned(), handled(0, 1), commit(2, 1), handled(2), commit(3, 2))


def broken(bad: Case) -> set[str]:
    return {violation.invariant for violation in check(bad)}


def tally(**changed: Any) -> Tally:
    values: dict[str, Any] = {
        "who": "A1",
        "until": 99,
        "in_flight": 0,
        "queued": 0,
        "acked": 3,
        "nacked": 0,
        "received": 3,
        "live": True,
        "ready": True,
    }
    return Tally(**{**values, **changed})


def test_a_good_history_breaks_nothing() -> None:
    assert check(replace(GOOD, tallies=[tally()])) == []


TWO_ATTEMPTS = [begin(1), end(1, "raised"), begin(1, call=8, attempt=2), end(1, call=8)]


BAD: dict[str, tuple[str, Case]] = {
    "a commit passes a record that has not ended": (
        "I1",
        case(assigned(), begin(0), commit(1), end(0), handled(1, 2), commit(3, 2)),
    ),
    "a commit passes a record that failed": (
        "I1",
        case(
            assigned(),
            begin(0),
            end(0, "failed"),
            commit(1),
            handled(0, 1, 2, call=10),
            commit(3, 2),
        ),
    ),
    "a commit passes the log's end": ("I1", case(assigned(), handled(0, 1, 2), commit(4))),
    "a commit passes a record whose dead letter is not there yet": (
        "I1",
        case(
            assigned(),
            begin(0),
            end(0, "failed"),
            commit(1),
            Event(0.0, "letter", "", TP, 0),
            handled(1, 2),
            commit(3, 2),
            promise=Promise(),
        ),
    ),
    "a record is never handled": ("I2", case(assigned(), handled(0, 2), commit(1))),
    "a handler gets another payload": (
        "I2",
        case(assigned(), begin(0, "b"), end(0), handled(1, 2), commit(3)),
    ),
    "a handler gets a record that nobody produced": (
        "I2",
        case(assigned(), handled(0, 1, 2), begin(7, "x"), end(7), commit(3)),
    ),
    "the last record is never committed": (
        "I3",
        case(assigned(), handled(0, 1, 2), commit(2), committed={TP: 2}),
    ),
    "a gap at the end is never committed": (
        "I3",
        case(assigned(), handled(0, 1, 2), commit(3), log_end={TP: 5}),
    ),
    "a commit comes from one whose partition has gone": (
        "I4",
        case(assigned(), handled(0, 1, 2), assigned("A2", 2), commit(3)),
    ),
    "two requests are on their way": (
        "I5",
        case(
            assigned(),
            handled(0, 1, 2),
            Event(0.0, "send", "A1", TP, 2, call=1),
            Event(0.0, "send", "A1", TP, 3, call=2),
            commit(3, 3),
        ),
    ),
    "a position goes back": (
        "I5",
        case(assigned(), handled(0, 1, 2), commit(3, 1), commit(2, 2), commit(3, 3)),
    ),
    "a record begins before the one before it": (
        "I6",
        case(assigned(), begin(1), end(1), handled(0, 2), commit(3)),
    ),
    "two records of a partition run at once": (
        "I6",
        case(assigned(), begin(0), begin(1), end(0), end(1), handled(2), commit(3)),
    ),
    "two records of a key run at once": (
        "I6",
        case(
            assigned(),
            begin(0),
            begin(1),
            begin(2),
            end(0),
            end(1),
            end(2),
            commit(3),
            promise=Promise(ordering="key"),
        ),
    ),
    "a record begins before the letter of the one before it is written": (
        "I6",
        case(
            assigned(),
            begin(0),
            end(0, "failed"),
            begin(1),
            Event(0.0, "letter", "", TP, 0),
            end(1),
            handled(2),
        ),
    ),
    "a record overtakes the one of its key that is tried again": (
        "I6",
        case(
            assigned(),
            begin(0),
            end(0, "raised"),
            handled(1),
            handled(2),
            begin(0, call=9, attempt=2),
            end(0, call=9),
            commit(3),
            promise=Promise(ordering="key"),
        ),
    ),
    "a record is begun twice in one assignment": (
        "I7",
        case(assigned(), handled(0, 1, 2), handled(2, call=10), commit(3)),
    ),
    "a record is begun again that a second attempt has done": (
        "I7",
        case(assigned(), handled(0), TWO_ATTEMPTS, handled(1, 2, call=10), commit(3)),
    ),
    "the next owner begins what could have been committed": (
        "I7",
        case(
            assigned(),
            handled(0, 1),
            assigned("A2", 2),
            handled(1, 2, who="A2", call=10),
            commit(3, who="A2"),
        ),
    ),
    "records count as in flight when all is done": (
        "I8",
        replace(GOOD, tallies=[tally(in_flight=1)]),
    ),
    "records count as queued when all is done": ("I8", replace(GOOD, tallies=[tally(queued=1)])),
    "a task is left behind": ("I9", replace(GOOD, leaks=["worker 1 of orders"])),
    "an application stays not ready": ("I10", replace(GOOD, tallies=[tally(ready=False)])),
    "more records count as acked than were": ("I10", replace(GOOD, tallies=[tally(acked=4)])),
    "fewer records count as acked than were": ("I10", replace(GOOD, tallies=[tally(acked=2)])),
    "an application says that it is dead without a reason": (
        "I10",
        replace(GOOD, events=[*GOOD.events, Event(30.0, "health", "A1", note="live DOWN")]),
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_broken_promise_is_seen(name: str) -> None:
    invariant, bad = BAD[name]
    assert invariant in broken(bad)


def test_records_of_different_keys_may_run_at_once() -> None:
    events = [assigned(), begin(0), begin(1), end(1), end(0), *handled(2), *commit(3)]
    assert broken(case(events, promise=Promise(ordering="key"))) == set()


def test_a_batch_may_hold_records_of_one_lane() -> None:
    batch = [
        *(begin(offset, call=5) for offset in range(3)),
        *(end(offset, call=5) for offset in range(3)),
    ]
    assert broken(case(assigned(), batch, commit(3))) == set()


def test_a_compacted_record_need_not_be_handled() -> None:
    gone = Event(0.0, "compacted", "", TP, 1)
    assert broken(case(assigned(), gone, handled(0, 2), commit(3))) == set()


def test_a_record_that_is_lost_while_it_is_in_hand_holds_back_those_behind_it() -> None:
    gone, let_go = Event(0.0, "compacted", "", TP, 0), Event(0.0, "revoked", "A1", TP)
    again = handled(1, 2, who="A2", call=10)
    in_hand = case(
        assigned(),
        begin(0),
        gone,
        handled(1),
        let_go,
        assigned("A2", 2),
        again,
        commit(3, who="A2"),
        promise=Promise(ordering="unordered"),
    )
    assert broken(in_hand) == set()
    before = case(
        assigned("A3"),
        gone,
        assigned(),
        handled(1),
        let_go,
        assigned("A2", 2),
        again,
        commit(3, who="A2"),
    )
    assert broken(before) == {"I7", "I20"}


def test_a_letter_whose_writer_was_told_that_it_failed_need_not_count() -> None:
    failed = [begin(2), end(2, "failed"), Event(0.0, "letter", "", TP, 2)]
    moved = [assigned("A2", 2), *handled(2, who="A2", call=10), *commit(3, 2, who="A2")]
    told = case(
        Event(0.0, "calm", note="send-fails #1"),
        assigned(),
        handled(0, 1),
        commit(2),
        failed,
        moved,
    )
    assert broken(told) == set()
    assert broken(case(assigned(), handled(0, 1), commit(2), failed, moved)) == {"I7"}


def test_a_record_behind_such_a_letter_need_not_count_either() -> None:
    failed = [begin(1), end(1, "failed"), Event(0.0, "letter", "", TP, 1)]
    moved = [assigned("A2", 2), *handled(1, 2, who="A2", call=10), *commit(3, 1, who="A2")]
    rest = [assigned(), handled(0), commit(1), failed, handled(2), moved]
    assert broken(case(Event(0.0, "calm", note="send-fails #1"), *rest)) == set()
    assert broken(case(*rest)) == {"I7"}


def test_what_was_settled_before_a_seek_counts_no_more() -> None:
    sought = Event(0.0, "reset", "A1", TP, 1, "seek")
    again = [begin(1, call=20), end(1, "failed", call=20), *handled(2, call=21)]
    moved = [assigned("A2", 2), *handled(1, 2, who="A2", call=30), *commit(3, 1, who="A2")]
    events = [assigned(), handled(0, 1), commit(1)]
    assert "I7" not in broken(case(*events, sought, again, moved))
    assert "I7" in broken(case(*events, again, moved))


def test_acks_are_kept_behind_a_seek_once_its_first_record_is_settled() -> None:
    keeps = Promise(keeps=True)
    sought = Event(0.0, "reset", "A1", TP, 1, "seek")
    moved = [assigned("A2", 2), *handled(1, 2, who="A2", call=30), *commit(3, 1, who="A2")]
    events = [assigned(), handled(0), commit(1)]
    assert "I7" not in broken(case(*events, sought, begin(1), handled(2), moved, promise=keeps))
    assert "I7" in broken(case(*events, begin(1), handled(2), moved, promise=keeps))


def test_a_late_request_from_behind_a_seek_back_need_not_be_put_right() -> None:
    asked, landed, told = commit(3, call=91)
    back = Event(0.0, "reset", "A1", TP, 0, "seek")
    late, lands, unknown = commit(1, call=92)
    events = [assigned(), handled(0, 1, 2), asked, landed, told]
    again = [begin(0, call=40), end(0, call=40)]
    rest = [unknown._replace(note="unknown"), lands._replace(at=8.0)]
    end_of_it = Event(60.0, "healed")
    assert "I5" not in broken(case(*events, back, again, late, *rest, end_of_it))
    assert "I5" in broken(case(*events, late, *rest, end_of_it))


@pytest.mark.parametrize("gone", ["left", "crashed", ""])
def test_a_late_request_of_an_application_that_is_gone_need_not_be_put_right(gone: str) -> None:
    late, lands, unknown = commit(1, call=92)
    asked, landed, told = commit(3, call=91)
    events = [assigned(), handled(0, 1, 2), late, unknown._replace(note="unknown")]
    ends = {
        "left": [Event(0.0, "left", "A1", client=1)],
        "crashed": [Event(0.0, "member", "A1", note="crash")],
        "": [],
    }
    end_of_it = Event(60.0, "healed")
    found = broken(
        case(*events, asked, landed, told, *ends[gone], lands._replace(at=8.0), end_of_it)
    )
    assert ("I5" in found) == (not gone)


def test_what_the_next_owner_skips_had_held_up_the_one_before() -> None:
    waits = [begin(1), end(1, "later")._replace(text="record 60"), *handled(2)]
    skips = [Event(0.0, "skipped", "A2", TP, 1), *handled(2, who="A2", call=10)]
    moved = [assigned("A2", 2), *skips, *commit(3, 1, who="A2")]
    assert "I7" not in broken(case(assigned(), handled(0), commit(1), waits, moved))


def test_what_was_skipped_before_a_seek_back_to_it_holds_up_those_behind_it() -> None:
    skipped = [assigned(), Event(0.0, "skipped", "A1", TP, 0), *handled(1, 2), *commit(3)]
    sought = [Event(0.0, "reset", "A1", TP, 0, "seek"), *commit(0, 2)]
    moved = [assigned("A2", 2), *handled(0, 1, 2, who="A2", call=30), *commit(3, 3, who="A2")]
    again = handled(1, 2, call=20)
    assert "I7" not in broken(case(skipped, sought, begin(0, call=10), again, moved))
    skipped_again = Event(0.0, "skipped", "A1", TP, 0)
    assert "I7" in broken(case(skipped, sought, skipped_again, again, moved))
    assert "I7" in broken(case(skipped, sought, handled(0, call=10), again, moved))


def test_what_ends_after_its_client_has_left_need_not_count() -> None:
    """A stop whose time is over leaves without a revocation, and calls run on."""
    begun, left = [assigned(), *handled(0), begin(1), *commit(1)], Event(0.0, "left", "A1")
    moved = [assigned("A2", 2), *handled(1, 2, who="A2", call=10), *commit(3, 2, who="A2")]
    assert broken(case(begun, left, end(1), moved)) == set()
    assert "I7" in broken(case(begun, end(1), left, moved))


@pytest.mark.parametrize(("begun_at", "found"), [(20.0, set()), (20.5, {"I6"})])
def test_a_call_that_a_worker_had_taken_begins_at_the_moment_of_a_reset(
    begun_at: float, found: set[str]
) -> None:
    gone, reset = (
        Event(0.5, "compacted", "", TP, 0),
        Event(20.0, "reset", "A1", TP, 1, note="from 0"),
    )
    both = [event._replace(at=begun_at) for event in (begin(0), begin(1), end(0), end(1))]
    assert broken(case(assigned(), gone, reset, both, handled(2), commit(3))) & {"I6"} == found


def test_an_attempt_belongs_to_the_assignment_in_which_its_record_was_begun() -> None:
    failed, again = TWO_ATTEMPTS[:2], TWO_ATTEMPTS[2:]
    late = case(
        assigned(),
        handled(0),
        commit(1),
        failed,
        assigned("A1", 2),
        again,
        handled(1, 2, call=10),
        commit(3, 2),
    )
    assert broken(late) == set()
    retained = assigned("A1", 2, "back")
    bad = case(
        assigned(),
        handled(0),
        commit(1),
        failed,
        retained,
        again,
        handled(1, 2, call=10),
        commit(3, 2),
    )
    assert broken(bad) == {"I7"}


def test_verdicts_of_a_client_that_has_left_need_not_count() -> None:
    left = case(
        assigned(), handled(0, 1), commit(2, 1), handled(2), Event(0.0, "left", "A1"), commit(3, 2)
    )
    assert "I10" not in broken(replace(left, tallies=[tally(acked=2)]))
    assert "I10" in broken(replace(left, tallies=[tally(acked=4)]))


def test_a_request_that_was_given_up_may_come_late() -> None:
    late = [
        Event(0.0, "send", "A1", TP, 2, call=1),
        Event(0.0, "answer", "A1", note="unknown", call=1),
        *commit(3, 2),
        Event(0.0, "commit", "", TP, 2, call=1),
        *commit(3, 3),
    ]
    assert broken(case(assigned(), handled(0, 1, 2), late)) == set()


@pytest.mark.parametrize(("again_at", "found"), [(20.0, set()), (30.0, {"I5"})])
def test_a_late_request_that_moves_the_position_back_is_followed_by_the_newest_one_again(
    again_at: float, found: set[str]
) -> None:
    late = [
        Event(8.0, "send", "A1", TP, 2, call=1),
        Event(10.0, "answer", "A1", note="unknown", call=1),
        *(event._replace(at=11.0) for event in commit(3, 2)),
        Event(12.0, "commit", "", TP, 2, call=1),
        *(event._replace(at=again_at) for event in commit(3, 3)),
        Event(40.0, "healed"),
    ]
    assert broken(case(assigned(), handled(0, 1, 2), late)) == found


@pytest.mark.parametrize("gone", ["left", "crashed", ""])
@pytest.mark.parametrize("fenced", [True, False])
def test_without_a_group_nobody_refuses_what_comes_late_from_a_client_that_is_gone(
    fenced: bool, gone: str
) -> None:
    ends = {
        "left": [Event(0.0, "left", "A1", client=1)],
        "crashed": [Event(0.0, "member", "A1", note="crash")],
        "": [],
    }
    late = [
        Event(0.0, "send", "A1", TP, 2, call=1, client=1),
        Event(0.0, "answer", "A1", note="unknown", call=1),
        *ends[gone],
        assigned("A2", 2),
        Event(0.0, "commit", "", TP, 2, call=1),
        *handled(2, who="A2"),
        *commit(3, 3, who="A2"),
    ]
    first = assigned()._replace(client=1)
    found = broken(case(first, handled(0, 1), late, promise=Promise(fenced=fenced)))
    assert ("I4" in found) == (fenced or not gone)


@pytest.mark.parametrize(
    ("generation", "at", "is_red"), [(1, 5.0, False), (3, 5.0, True), (1, 6.0, True)]
)
def test_an_assignment_that_is_over_when_it_is_noted_makes_no_owner(
    generation: int, at: float, is_red: bool
) -> None:
    both = [assigned("A1", 2)._replace(at=5.0), assigned("A2", generation)._replace(at=at)]
    rest = [event._replace(at=7.0) for event in [*handled(0), *commit(1)]]
    found = broken(case(both, rest))
    assert ("I4" in found) == is_red


@pytest.mark.parametrize(
    ("answer", "has_new_epoch", "incremental", "is_allowed"),
    [
        ("unknown", False, True, True),
        ("unknown", True, True, False),
        ("unknown", False, False, False),
        ("ok", False, True, False),
    ],
)
def test_what_comes_late_is_stored_for_a_partition_that_went_in_the_same_epoch(
    answer: str, has_new_epoch: bool, incremental: bool, is_allowed: bool
) -> None:
    late = [
        Event(0.0, "send", "A1", TP, 2, call=1),
        Event(0.0, "answer", "A1", note=answer, call=1),
        *([Event(0.0, "rebalanced", "A1")] if has_new_epoch else []),
        assigned("A2", 2),
        Event(0.0, "commit", "", TP, 2, call=1),
        *handled(2, who="A2"),
        *commit(3, 3, who="A2"),
    ]
    found = broken(case(assigned(), handled(0, 1), late, promise=Promise(incremental=incremental)))
    assert ("I4" not in found) == is_allowed


@pytest.mark.parametrize(("seeks", "found"), [(True, set()), (False, {"I5"})])
def test_a_request_of_before_a_seek_may_land_after_the_first_position_that_is_lower(
    seeks: bool, found: set[str]
) -> None:
    late = [
        commit(2),
        Event(0.0, "send", "A1", TP, 3, call=2),
        Event(0.0, "answer", "A1", note="unknown", call=2),
        *([Event(0.0, "reset", "A1", TP, 0, "seek")] if seeks else []),
        handled(0, call=10),
        commit(1, 3) if seeks else [],
        Event(0.0, "commit", "", TP, 3, call=2),
        handled(1, call=20),
        commit(2, 4),
        handled(2, call=30),
        commit(3, 5),
    ]
    assert broken(case(assigned(), handled(0, 1, 2), *late)) & {"I5"} == found


@pytest.mark.parametrize(("seeks", "found"), [(True, set()), (False, {"I5"})])
def test_a_request_of_before_a_seek_that_lands_after_it_does_not_stand_for_the_seek(
    seeks: bool, found: set[str]
) -> None:
    late = [
        Event(0.0, "send", "A1", TP, 2, call=1),
        Event(0.0, "answer", "A1", note="unknown", call=1),
        commit(3, 2),
        *([Event(0.0, "reset", "A1", TP, 0, "seek")] if seeks else []),
        Event(0.0, "commit", "", TP, 2, call=1),
        handled(0, call=10),
        commit(1, 3),
        handled(1, 2, call=20),
        commit(3, 4),
    ]
    assert broken(case(assigned(), handled(0, 1, 2), *late)) & {"I5"} == found


def test_a_fault_excuses_what_could_not_be_committed() -> None:
    crash = [Event(5.0, "fault", note="crash #1"), Event(7.0, "calm", note="crash #1")]
    again = handled(1, 2, who="A2", call=10)
    assert (
        broken(
            case(assigned(), handled(0, 1), crash, assigned("A2", 2), again, commit(3, who="A2"))
        )
        == set()
    )


def test_a_fault_long_after_excuses_nothing() -> None:
    crash = [Event(50.0, "fault", note="crash #1"), Event(51.0, "calm", note="crash #1")]
    again = [
        event._replace(at=52.0) for event in (assigned("A2", 2), *handled(1, 2, who="A2", call=10))
    ]
    assert broken(case(assigned(), handled(0, 1), crash, again, commit(3, who="A2"))) == {"I7"}
