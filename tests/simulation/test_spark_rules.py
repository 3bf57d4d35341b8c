"""Hand-made histories of a Spark channel: a good one, and for each promise one that breaks it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.simulation.checker import Case, Folder, Promise, check
from tests.simulation.history import Event
from tests.simulation.test_checker import LOG, TP, assigned, broken, case, commit

SPARK = Promise(window_s=1.0, spark=True)
ALL = (0, 3)


def planned(start: int, until: int, position: int, call: int = 90) -> list[Event]:
    stored = commit(position, call)
    return [*stored[:2], Event(0.0, "planned", "", TP, start, call=call, until=until), stored[2]]


def run(
    start: int, until: int, call: int = 1, who: str = "A1", ids: tuple[str, ...] = ()
) -> list[Event]:
    began = Event(0.0, "run", who, TP, start, f"id{start}-{until}", call, 1, until=until, ids=ids)
    return [
        began,
        *(
            Event(0.0, "begin", who, TP, at, LOG[TP][at].id, call, 1)
            for at in range(start, min(until, 3))
        ),
    ]


def over(
    start: int, until: int, call: int = 1, who: str = "A1", outcome: str = "ok"
) -> list[Event]:
    note = outcome if outcome in ("ok", "cancelled") else "raised"
    ends = [
        Event(0.0, "end", who, TP, offset, note, call, 1) for offset in range(start, min(until, 3))
    ]
    return [Event(0.0, "over", who, note=outcome, call=call), *ends]


def letters(*offsets: int) -> list[Event]:
    return [Event(0.0, "letter", "", TP, offset) for offset in offsets]


def sink(*spans: tuple[int, int], call: int = 1) -> dict[str, Folder]:
    return {
        f"id{start}-{until}": Folder(
            frozenset((TP, at) for at in range(start, min(until, 3))), call
        )
        for start, until in spans
    }


def spark(
    *events: list[Event] | Event, promise: Promise = SPARK, folders: dict[str, Folder] | None = None
) -> Case:
    made = case(assigned(), *events, promise=promise)
    return replace(made, sink=sink(ALL) if folders is None else folders, innocent=frozenset("abc"))


WORKED = [*run(0, 3), *over(0, 3)]
GOOD = spark(planned(0, 3, 0), WORKED, commit(3))


def test_a_good_history_breaks_nothing() -> None:
    assert check(GOOD) == []


def test_of_two_clients_of_an_application_either_may_have_begun_a_run() -> None:
    """One of them does not know that it is out, and its run goes on when the other lets the
    partition go.
    """
    both = [assigned()._replace(client=2), assigned("A1", 2)._replace(client=3)]
    let_go = Event(0.0, "revoked", "A1", TP, client=3)
    assert "S1" not in broken(spark(both, run(0, 3), let_go, over(0, 3)))
    alone = [assigned("A1", 2)._replace(client=3)]
    assert "S1" in broken(case(alone, run(0, 3), let_go, over(0, 3), promise=SPARK))


def test_a_run_that_a_crash_has_cut_off_is_run_again_in_the_same_range() -> None:
    crash = [Event(3.0, "fault", note="crash #1"), Event(3.0, "member", "A1", note="crash")]
    again = [assigned("A2", 2), *run(0, 3, 2, "A2"), *over(0, 3, 2, "A2"), *commit(3, who="A2")]
    assert (
        broken(spark(planned(0, 3, 0), run(0, 3), crash, again, folders=sink(ALL, call=2))) == set()
    )


def test_a_run_that_nobody_could_end_may_overwrite_what_one_beside_it_has_written() -> None:
    mine, other = run(0, 3), [assigned("A2", 2), *run(0, 3, 2, "A2")]
    ended = [*over(0, 3, outcome="cancelled"), *over(0, 3, 2, "A2"), *commit(3, who="A2")]
    beside = spark(planned(0, 3, 0), mine, other, ended, folders=sink((0, 1)))
    assert "S2" not in broken(beside)
    before = spark(
        planned(0, 3, 0),
        mine,
        over(0, 3, outcome="cancelled"),
        other,
        ended[4:],
        folders=sink((0, 1)),
    )
    assert "S2" in broken(before)


def test_a_run_of_a_member_that_has_not_heard_that_it_is_out_may_overwrite_what_the_owner_wrote() -> (
    None
):
    crash = [Event(3.0, "fault", note="crash #1"), Event(3.0, "member", "A1", note="crash")]
    owner = [assigned("A2", 2), *run(0, 3, 2, "A2"), *over(0, 3, 2, "A2"), *commit(3, who="A2")]
    late = [*run(0, 3, 3), *crash]
    empty = sink((0, 0), call=3)
    assert "S2" not in broken(spark(planned(0, 3, 0), owner, late, folders=empty))
    # The owner itself may not.
    back = [assigned("A1", 3)]
    assert "S2" in broken(spark(planned(0, 3, 0), owner, back, late, folders=empty))


def test_a_record_that_is_run_again_after_its_ack_and_nacked_need_not_stand_in_the_sink() -> None:
    crash = [Event(3.0, "fault", note="crash #1"), Event(3.0, "member", "A1", note="crash")]
    again = [assigned("A2", 2), *run(0, 3, 2, "A2"), *over(0, 3, 2, "A2", "bad")]
    events = planned(0, 3, 0), WORKED, crash, again
    empty = sink((0, 0), call=2)
    nacked = spark(*events, letters(0, 1, 2), commit(3, who="A2"), folders=empty)
    assert "S2" not in broken(nacked)
    # Nothing but a nack excuses it.
    assert "S2" in broken(spark(*events, commit(3, who="A2"), folders=empty))
    assert "S2" in broken(spark(planned(0, 3, 0), WORKED, letters(0, 1, 2), folders=sink((0, 0))))


def test_a_commit_of_a_member_that_is_gone_may_replace_a_plan() -> None:
    asked, *landed = planned(0, 2, 0, 91)[:3]
    crash = [Event(3.0, "fault", note="crash #1"), Event(3.0, "member", "A1", note="crash")]
    taken = [*planned(0, 3, 0), assigned("A2", 2), *run(0, 3, 2, "A2")]
    again = [*over(0, 3, 2, "A2", "bad"), *run(0, 2, 3, "A2"), *over(0, 2, 3, "A2")]
    folders = sink(ALL, call=2)
    assert "S3" not in broken(spark(asked, crash, taken, landed, again, folders=folders))
    assert "S3" in broken(spark(crash, taken, landed, again, folders=folders))


def test_what_is_left_of_a_range_that_the_log_has_lost_a_part_of_is_dead_lettered_whole() -> None:
    lost = Event(0.0, "compacted", "", TP, 0, "retention")
    events = [
        planned(0, 3, 0),
        run(0, 3),
        over(0, 3, outcome="worker"),
        lost,
        letters(1, 2),
        commit(3),
    ]
    bisects = replace(SPARK, bisects=True)
    assert "S7" not in broken(spark(*events, folders={}, promise=bisects))
    assert "S7" in broken(
        spark(*[one for one in events if one is not lost], folders={}, promise=bisects)
    )


def test_the_parts_of_a_range_that_failed_are_run_instead_of_it() -> None:
    assert check(spark(*SPLIT, folders=PARTS)) == []


SPLIT = [
    planned(0, 3, 0),
    run(0, 3),
    over(0, 3, outcome="bad"),
    [*planned(0, 1, 0, 91), Event(0.0, "planned", "", TP, 1, call=91, until=3)],
    run(0, 1, 2, ids=("id0-3",)),
    over(0, 1, 2),
    run(1, 3, 3, ids=("id0-3",)),
    over(1, 3, 3),
    commit(3),
]
PARTS = {**sink((0, 1), call=2), **sink((1, 3), call=3)}

BAD: dict[str, tuple[str, Case]] = {
    "a range is run again while a job of it goes on": (
        "S1",
        spark(planned(0, 3, 0), run(0, 3), run(0, 3, 2), over(0, 3), over(0, 3, 2), commit(3)),
    ),
    "a partition is let go while a job of it goes on": (
        "S1",
        spark(planned(0, 3, 0), run(0, 3), Event(0.0, "revoked", "A1", TP), over(0, 3), commit(3)),
    ),
    "a member leaves while a job of its goes on": (
        "S1",
        spark(planned(0, 3, 0), run(0, 3), Event(0.0, "left", "A1"), over(0, 3), commit(3)),
    ),
    "a record is dead-lettered while its job goes on": (
        "S1",
        spark(planned(0, 3, 0), run(0, 3), letters(1), over(0, 3), commit(3)),
    ),
    "a record is poison while its job goes on": (
        "S1",
        spark(
            planned(0, 3, 0), run(0, 3), Event(0.0, "poison", "A1", TP, 1), over(0, 3), commit(3)
        ),
    ),
    "the sink does not have a record that was acked": (
        "S2",
        spark(planned(0, 3, 0), WORKED, commit(3), folders=sink((0, 2))),
    ),
    "the sink has a record twice": (
        "S2",
        spark(planned(0, 3, 0), WORKED, commit(3), folders={**sink(ALL), **sink((1, 2))}),
    ),
    "the sink has a record that was rejected": (
        "S2",
        spark(
            planned(0, 3, 0),
            run(0, 3),
            Event(0.0, "over", "A1", note="ok", call=1),
            [one._replace(note="failed") if one.offset == 2 else one for one in over(0, 3)[1:]],
            letters(2),
            commit(3),
        ),
    ),
    "a range is cut otherwise after a crash": (
        "S3",
        spark(
            planned(0, 2, 0),
            planned(0, 3, 0, 91),
            run(0, 2),
            Event(3.0, "member", "A1", note="crash"),
            assigned("A2", 2),
            run(0, 3, 2, "A2"),
            over(0, 3, 2, "A2"),
            commit(3, who="A2"),
            folders=sink(ALL, call=2),
        ),
    ),
    "a part of a range is run, and does not supersede it": (
        "S3",
        spark(*[[one._replace(ids=()) for one in part] for part in SPLIT], folders=PARTS),
    ),
    "a part of a range is run that has not failed": (
        "S3",
        spark(
            *[
                [one._replace(note="cluster") if one.note == "bad" else one for one in part]
                for part in SPLIT
            ],
            folders=PARTS,
        ),
    ),
    "a position inside of a range is committed": (
        "S4",
        spark(planned(0, 3, 0), WORKED, commit(2), commit(3, 2)),
    ),
    "a function runs before its plan is stored": ("S5", spark(WORKED, planned(0, 3, 0), commit(3))),
    "a range is run a third time after two drivers": (
        "S6",
        spark(
            planned(0, 3, 0),
            run(0, 3),
            over(0, 3, outcome="lost alone"),
            run(0, 3, 2),
            over(0, 3, 2, outcome="lost alone"),
            run(0, 3, 3),
            over(0, 3, 3),
            commit(3),
        ),
    ),
    "records are dead-lettered because the executors were away": (
        "S7",
        spark(
            planned(0, 3, 0),
            run(0, 3),
            over(0, 3, outcome="cluster"),
            letters(0, 1, 2),
            commit(3),
            folders={},
        ),
    ),
    "a record is dead-lettered that never failed alone": (
        "S7",
        spark(
            planned(0, 3, 0),
            run(0, 3),
            over(0, 3, outcome="bad"),
            letters(0, 1, 2),
            commit(3),
            folders={},
            promise=replace(SPARK, bisects=True),
        ),
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_broken_promise_is_seen(name: str) -> None:
    invariant, bad = BAD[name]
    assert invariant in broken(bad)


def test_a_part_that_failed_alone_is_dead_lettered() -> None:
    alone = [*run(0, 1, 2, ids=("id0-3",)), *over(0, 1, 2, outcome="bad"), *letters(0)]
    events = [*SPLIT[:4], alone, *SPLIT[6:]]
    assert (
        broken(spark(*events, promise=replace(SPARK, bisects=True), folders=sink((1, 3), call=3)))
        == set()
    )
