"""Each rule of the checker fails on a hand-made bad history, and all hold on a good one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.faults.checker import (
    Commit,
    Disruption,
    Evidence,
    Rules,
    check,
    duplicates,
    lost,
    report,
    unfinished,
)
from tests.faults.history import Event

TP = ("orders", 0)
OTHER = ("orders", 1)


def begin(t: float, offset: int, process: str = "a.1", tp: tuple[str, int] = TP) -> Event:
    return Event(
        t=t, process=process, kind="begin", tp=tp, offset=offset, id=f"id-{tp[1]}-{offset}"
    )


def end(
    t: float, offset: int, process: str = "a.1", tp: tuple[str, int] = TP, outcome: str = "ok"
) -> Event:
    id = f"id-{tp[1]}-{offset}"
    return Event(t=t, process=process, kind="end", tp=tp, offset=offset, id=id, outcome=outcome)


def good_run() -> Evidence:
    """Records 0, 1 and 3 (2 is a transaction marker, as is 4), handled in turn and committed."""
    events = [begin(1.0, 0), end(1.1, 0), begin(1.2, 1), end(1.3, 1), begin(1.4, 3), end(1.5, 3)]
    commits = [Commit(1.15, TP, 1), Commit(1.35, TP, 3), Commit(1.6, TP, 5)]
    log = {TP: {offset: f"id-0-{offset}" for offset in (0, 1, 3)}}
    sent = {(TP, offset): f"id-0-{offset}" for offset in (0, 1, 3)}
    return Evidence(events=events, commits=commits, log=log, log_end={TP: 5}, sent=sent)


def broken(evidence: Evidence, **rules: object) -> list[str]:
    """The invariants that *evidence* violates, each once."""
    return sorted({violation.invariant for violation in check(evidence, Rules(**rules))})  # type: ignore[arg-type]


def with_events(*events: Event) -> Evidence:
    """The good run, with *events* too."""
    run = good_run()
    return replace(run, events=[*run.events, *events])


def without(offset: int, *kinds: str) -> Evidence:
    """The good run, with some events of one record missing."""
    run = good_run()
    return replace(
        run,
        events=[
            event for event in run.events if not (event.offset == offset and event.kind in kinds)
        ],
    )


def test_a_good_run_breaks_nothing() -> None:
    assert check(good_run(), Rules(ordered=True)) == []


def test_a_report_counts_what_it_does_not_show() -> None:
    run = without(0, "end")
    assert report(check(good_run(), Rules())) == ""
    assert report(check(run, Rules()), each=1).splitlines() == [
        "I1, 3 times:",
        "  orders-0: 1 was committed at 1.150 (poll), but 0 ended never",
        "I2, 1 times:",
        "  orders-0: id-0-0, confirmed at 0, was never handled",
    ]


@pytest.mark.parametrize("source", ["poll", "log"])
def test_a_commit_above_a_record_that_ends_later_is_unsafe(source: str) -> None:
    run = good_run()
    # Record 3 ends at 1.5.
    early = Commit(1.45, TP, 4, source)
    found = check(replace(run, commits=[*run.commits[:2], early, run.commits[2]]), Rules())
    assert [str(violation) for violation in found] == [
        f"I1: orders-0: 4 was committed at 1.450 ({source}), but 3 ended 0.050 s later"
    ]


def test_a_commit_above_a_record_that_never_ends_is_unsafe() -> None:
    assert broken(without(1, "end")) == ["I1", "I2"]


def test_a_record_that_ended_without_success_does_not_make_a_commit_safe() -> None:
    run = without(1, "end")
    assert "I1" in broken(replace(run, events=[*run.events, end(1.3, 1, outcome="cancelled")]))


def test_a_commit_behind_a_gap_of_markers_is_safe() -> None:
    run = good_run()
    assert broken(replace(run, commits=[Commit(1.31, TP, 3), *run.commits[2:]])) == []


def test_a_commit_at_the_very_moment_of_the_end_is_safe() -> None:
    run = good_run()
    assert broken(replace(run, commits=[Commit(1.1, TP, 1), *run.commits[1:]])) == []


def test_a_confirmed_record_that_nobody_handled_is_lost() -> None:
    run = without(3, "begin", "end")
    assert broken(replace(run, commits=[], log_end={})) == ["I2"]


def test_a_confirmed_record_that_the_log_does_not_hold_is_lost() -> None:
    run = good_run()
    assert "I2" in broken(replace(run, sent={**run.sent, (TP, 9): "id-0-9"}))


def test_a_record_that_nobody_sent_must_not_be_handled() -> None:
    assert broken(with_events(begin(1.6, 7), end(1.7, 7))) == ["I2"]


def test_a_record_handled_under_a_wrong_offset_is_found() -> None:
    run = good_run()
    swapped = [replace(event, id="id-0-1") if event.offset == 3 else event for event in run.events]
    assert broken(replace(run, events=swapped)) == ["I2"]


def test_a_send_with_unknown_outcome_may_be_handled() -> None:
    run = good_run()
    sent = {place: id for place, id in run.sent.items() if id != "id-0-3"}
    assert broken(replace(run, sent=sent, maybe=frozenset({"id-0-3"}))) == []


def test_a_readable_record_with_unknown_outcome_must_not_be_skipped() -> None:
    run = without(3, "begin", "end")
    sent = {place: id for place, id in run.sent.items() if id != "id-0-3"}
    run = replace(
        run, sent=sent, maybe=frozenset({"id-0-3"}), commits=run.commits[:2], log_end={TP: 3}
    )
    assert broken(run) == ["I12"]
    assert broken(run, explained=frozenset({(TP, 3)})) == []


def test_a_run_that_ends_with_lag_made_no_progress() -> None:
    run = good_run()
    assert broken(replace(run, commits=run.commits[:2])) == ["I3"]
    # A partition never committed.
    assert broken(replace(run, log_end={TP: 5, OTHER: 1})) == ["I3"]


def test_markers_at_the_end_of_the_log_count_as_lag() -> None:
    run = good_run()
    assert broken(replace(run, commits=[*run.commits[:2], Commit(1.6, TP, 4)])) == ["I3"]


@pytest.mark.parametrize("lower", [3, -1])
def test_a_committed_offset_that_goes_down_is_found(lower: int) -> None:
    run = good_run()
    assert broken(
        replace(run, commits=[*run.commits, Commit(1.7, TP, lower), Commit(1.8, TP, 5)])
    ) == ["I5"]


def test_two_sources_are_not_compared_with_each_other() -> None:
    run = good_run()
    assert (
        broken(
            replace(
                run, commits=[*run.commits, Commit(1.15, TP, 1, "log"), Commit(1.6, TP, 5, "log")]
            )
        )
        == []
    )


def test_a_record_that_begins_before_a_lower_one_has_ended_is_out_of_order() -> None:
    run = good_run()
    early = [
        replace(event, t=1.25) if event.kind == "begin" and event.offset == 3 else event
        for event in run.events
    ]
    assert broken(replace(run, events=early), ordered=True) == ["I6"]
    assert broken(replace(run, events=early), ordered=False) == []


def test_two_repeated_records_at_once_are_out_of_order() -> None:
    repeats = [begin(2.0, 0, "b.1"), begin(2.1, 1, "b.1"), end(2.2, 0, "b.1"), end(2.3, 1, "b.1")]
    run = replace(with_events(*repeats), disruptions=[Disruption("a.1", 1.6, 1.6)])
    assert broken(run, ordered=True, duplicate_window_s=1.0) == ["I6"]


def test_another_partition_may_run_at_the_same_time() -> None:
    run = with_events(begin(1.05, 0, tp=OTHER), end(1.35, 0, tp=OTHER))
    run = replace(
        run, log={**run.log, OTHER: {0: "id-1-0"}}, sent={**run.sent, (OTHER, 0): "id-1-0"}
    )
    assert broken(run, ordered=True) == []


def test_a_repeated_record_without_a_fault_is_a_duplicate() -> None:
    run = with_events(begin(2.0, 3, "b.1"), end(2.1, 3, "b.1"))
    assert broken(run) == ["I7"]
    assert duplicates(run.events) == 1


def test_a_record_begun_twice_is_a_duplicate_even_if_only_one_ended() -> None:
    assert broken(with_events(begin(1.45, 3, "b.1"))) == ["I7"]


def test_what_was_done_ahead_of_a_lower_record_of_another_key_comes_again_where_keys_order() -> (
    None
):
    ahead = [
        begin(1.4, 3),
        end(1.5, 3),
        begin(2.0, 1, "b.1"),
        end(2.1, 1, "b.1"),
        begin(2.2, 3, "b.1"),
    ]
    events = [begin(1.0, 0), end(1.1, 0), *ahead, end(2.3, 3, "b.1")]
    moved = replace(good_run(), events=events, commits=[Commit(1.15, TP, 1), Commit(2.5, TP, 5)])
    assert broken(moved, by_key=True) == []
    assert broken(moved) == ["I7"]
    assert broken(with_events(begin(1.45, 3, "b.1")), by_key=True) == ["I7"]


def test_a_kill_excuses_what_ended_shortly_before_it_and_nothing_older() -> None:
    killed = [Disruption("a.1", 2.0, 2.0)]
    # 3 ended at 1.5.
    young = replace(with_events(begin(3.0, 3, "b.1"), end(3.1, 3, "b.1")), disruptions=killed)
    assert broken(young, duplicate_window_s=0.6) == []
    assert broken(young, duplicate_window_s=0.4) == ["I7"]


def test_a_kill_excuses_no_other_process() -> None:
    run = with_events(begin(3.0, 3, "b.1"), end(3.1, 3, "b.1"))
    assert broken(
        replace(run, disruptions=[Disruption("c.1", 1.6, 1.6)]), duplicate_window_s=9.0
    ) == ["I7"]


def test_a_process_that_was_frozen_may_begin_on_waking_what_others_have_done_and_nothing_later() -> (
    None
):
    # a.1 has done 3 while b.1 was frozen.
    woken = with_events(begin(3.0, 3, "b.1"), end(3.1, 3, "b.1"))
    frozen = Disruption("b.1", 1.3, 3.05, frozen=True)
    assert broken(replace(woken, disruptions=[frozen])) == []
    assert broken(replace(woken, disruptions=[frozen._replace(frozen=False)])) == ["I7"]
    assert broken(replace(woken, disruptions=[frozen._replace(end=2.9)])) == ["I7"]
    assert broken(replace(woken, disruptions=[frozen._replace(process="c.1")])) == ["I7"]


def test_a_record_cut_off_by_a_kill_may_begin_again() -> None:
    run = without(3, "end")
    run = replace(run, events=[*run.events, begin(1.45, 3, "b.1"), end(1.5, 3, "b.1")])
    assert broken(replace(run, disruptions=[Disruption("a.1", 1.42, 1.42)])) == []
    assert [event.offset for event in unfinished(run.events, "a.1")] == [3]
    assert unfinished(run.events, "b.1") == []


def test_another_member_that_begins_before_a_lower_record_has_ended_is_out_of_order() -> None:
    run = good_run()
    moved = [replace(event, process="b.1") if event.offset == 3 else event for event in run.events]
    assert broken(replace(run, events=moved), ordered=True) == []
    early = [
        replace(event, t=1.25) if event.kind == "begin" and event.offset == 3 else event
        for event in moved
    ]
    assert broken(replace(run, events=early), ordered=True) == ["I6"]


def test_a_record_may_begin_at_the_very_moment_when_the_lower_one_ends() -> None:
    run = good_run()
    tight = [
        replace(event, t=1.3) if event.kind == "begin" and event.offset == 3 else event
        for event in run.events
    ]
    assert broken(replace(run, events=tight), ordered=True) == []


def test_an_old_owner_may_still_run_a_record_while_the_new_one_repeats_another() -> None:
    run = with_events(begin(1.41, 0, "b.1"), end(1.49, 0, "b.1"))
    assert (
        broken(
            replace(run, disruptions=[Disruption("a.1", 1.4, 1.4)]),
            ordered=True,
            duplicate_window_s=1.0,
        )
        == []
    )


def test_a_disruption_excuses_nothing_that_begins_or_ends_after_it() -> None:
    over = [Disruption("a.1", 1.0, 1.2)]
    # 3: from 1.4 to 1.5.
    ended_later = with_events(begin(2.0, 3, "b.1"), end(2.1, 3, "b.1"))
    assert broken(replace(ended_later, disruptions=over), duplicate_window_s=9.0) == ["I7"]
    never_ended = without(3, "end")
    never_ended = replace(
        never_ended, events=[*never_ended.events, begin(1.45, 3, "b.1"), end(1.5, 3, "b.1")]
    )
    assert broken(replace(never_ended, disruptions=over), duplicate_window_s=9.0) == ["I7"]
    assert duplicates(never_ended.events) == 1


def test_a_record_that_a_stranger_wrote_is_not_ours_to_handle() -> None:
    run = good_run()
    sent = {place: id for place, id in run.sent.items() if id != "id-0-3"}
    assert [violation.text for violation in check(replace(run, sent=sent), Rules())] == [
        "orders-0: a.1 handled 'id-0-3' at 3: nobody sent that",
        "orders-0: a.1 handled 'id-0-3' at 3: nobody sent that",
    ]


def test_a_confirmed_record_that_is_gone_from_the_log_is_named() -> None:
    run = good_run()
    log = {TP: {offset: id for offset, id in run.log[TP].items() if offset != 3}}
    assert "orders-0: id-0-3 was confirmed at 3 and is not in the log there" in report(
        check(replace(run, log=log), Rules())
    )


def test_only_what_the_group_itself_answers_counts_as_progress() -> None:
    run = good_run()
    assert broken(replace(run, commits=[*run.commits[:2], Commit(1.6, TP, 5, "log")])) == ["I3"]
    assert broken(replace(run, commits=[*run.commits, Commit(1.2, TP, 1, "log")])) == []


def test_every_step_below_the_highest_committed_offset_is_counted() -> None:
    run = good_run()
    dip = [Commit(1.7, TP, 1), Commit(1.8, TP, 3), Commit(1.9, TP, 5)]
    found = check(replace(run, commits=[Commit(0.9, TP, -1), *run.commits, *dip]), Rules())
    assert [violation.invariant for violation in found] == ["I5", "I5"]


def failed(offset: int = 1) -> Evidence:
    """The good run, in which the handler of one record failed."""
    run = good_run()
    return replace(
        run,
        events=[
            replace(event, outcome="failed")
            if event.kind == "end" and event.offset == offset
            else event
            for event in run.events
        ],
    )


def test_a_failed_record_counts_as_done_only_where_failures_are_ignored() -> None:
    assert broken(failed()) == ["I1", "I2"]
    assert broken(failed(), settles=frozenset({"ok", "failed"})) == []


def test_a_letter_settles_a_failed_record_from_the_moment_when_it_is_written() -> None:
    # 3 is committed at 1.35.
    in_time = replace(failed(), letters={(TP, 1): 1.34})
    assert broken(in_time) == []
    late = check(replace(in_time, letters={(TP, 1): 1.36}), Rules())
    assert [str(violation) for violation in late] == [
        "I1: orders-0: 3 was committed at 1.350 (poll), but 1 ended 0.010 s later"
    ]


def test_a_letter_of_another_record_settles_nothing() -> None:
    assert broken(replace(failed(), letters={(TP, 0): 1.0, (OTHER, 1): 1.0})) == ["I1", "I2"]


def test_a_record_that_no_handler_got_is_lost_unless_there_is_a_letter_of_it() -> None:
    run = without(1, "begin", "end")
    assert broken(run, ordered=True) == ["I1", "I2", "I6"]
    assert broken(replace(run, letters={(TP, 1): 1.3}), ordered=True) == []
    assert broken(run, ordered=True, explained=frozenset({(TP, 1)})) == []


def test_a_failed_record_lets_the_next_one_begin_only_where_its_strategy_says_so() -> None:
    run = replace(failed(), letters={(TP, 1): 1.3})
    assert broken(run, ordered=True) == ["I6"]
    assert broken(run, ordered=True, releases=frozenset({"ok", "failed"})) == []


def test_a_client_that_commits_by_itself_may_lose_and_still_must_not_invent_or_go_back() -> None:
    assert broken(without(1, "begin", "end"), safe=False) == []
    assert broken(
        replace(good_run(), commits=[*good_run().commits, Commit(1.7, TP, 4)]), safe=False
    ) == ["I3", "I5"]
    assert broken(with_events(begin(1.6, 7), end(1.7, 7)), safe=False) == ["I2"]


def test_what_was_lost_is_told_record_by_record() -> None:
    assert lost(without(1, "end"), Rules()) == [(TP, 1)]
    assert lost(good_run(), Rules()) == []
    assert lost(failed(), Rules(settles=frozenset({"ok", "failed"}))) == []
    assert lost(without(1, "end"), Rules(explained=frozenset({(TP, 1)}))) == []


def test_order_by_key_holds_within_a_key_only() -> None:
    run = good_run()
    early = [
        replace(event, t=1.25) if event.kind == "begin" and event.offset == 3 else event
        for event in run.events
    ]
    # While 1 runs.
    run = replace(run, events=early)
    apart = {(TP, 0): "x", (TP, 1): "x", (TP, 3): "y"}
    assert broken(replace(run, lanes=apart), ordered=True) == []
    assert broken(replace(run, lanes={**apart, (TP, 3): "x"}), ordered=True) == ["I6"]


def test_two_records_of_a_key_never_run_at_once_in_a_process() -> None:
    run = with_events(begin(2.0, 0), begin(2.1, 1), end(2.2, 0), end(2.3, 1))
    run = replace(run, disruptions=[Disruption("a.1", 1.9, 1.9)])
    lanes = {(TP, 0): "x", (TP, 1): "y", (TP, 3): "y"}
    rules = {"ordered": True, "duplicate_window_s": 9.0}
    assert broken(replace(run, lanes=lanes), **rules) == []
    assert broken(replace(run, lanes={**lanes, (TP, 1): "x"}), **rules) == ["I6"]


def test_a_retry_in_place_repeats_nothing() -> None:
    run = with_events(replace(begin(1.55, 3), attempt=2), end(1.58, 3))
    assert broken(run) == []
    assert duplicates(run.events) == 0


def test_what_failed_and_nothing_else_is_delivered_again_by_right() -> None:
    run = failed()
    run = replace(run, events=[*run.events, begin(1.34, 1), end(1.345, 1)])
    assert broken(run) == []
    both = {"ok", "failed"}
    # There, a failure ends the matter.
    assert broken(run, releases=frozenset(both)) == ["I7"]
    done = with_events(begin(1.34, 1), end(1.345, 1))
    assert broken(done) == ["I7"]


def test_a_failure_after_a_success_excuses_no_further_delivery() -> None:
    run = with_events(begin(2.0, 1), end(2.1, 1, outcome="failed"), begin(3.0, 1), end(3.1, 1))
    assert [violation.invariant for violation in check(run, Rules())] == ["I7"]


def test_what_was_lost_where_that_is_allowed_holds_up_nobody_and_what_runs_does() -> None:
    assert broken(without(1, "begin", "end"), safe=False, ordered=True) == []
    # In this process it still runs.
    assert broken(without(1, "end"), safe=False, ordered=True) == ["I6"]
    killed = [
        replace(event, process="b.1") if event.offset == 3 else event
        for event in without(1, "end").events
    ]
    assert broken(replace(good_run(), events=killed), safe=False, ordered=True) == []
    run = good_run()
    early = [
        replace(event, t=1.25) if event.kind == "begin" and event.offset == 3 else event
        for event in run.events
    ]
    assert broken(replace(run, events=early), safe=False, ordered=True) == ["I6"]
