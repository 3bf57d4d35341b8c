"""What ``make bench-peers`` makes of its figures and journals; measuring itself needs minutes and a
quiet machine.
"""

from __future__ import annotations

import ast
import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.peers import front_page, homes, page, plan
from benchmarks.peers.__main__ import _turns as turns
from benchmarks.peers.jar_hashes import SHA256
from benchmarks.peers.journal import LINE_BYTES, VALUE_BYTES, Position, counted, lines, value
from benchmarks.peers.judge import Verdict, judged
from benchmarks.peers.processes import FailedError, Member, lifeline, output
from benchmarks.peers.state import Figures, State, figures

ROOT = Path(__file__).parents[1]
PLACES = st.tuples(st.integers(0, 3), st.integers(0, 9))


def ran(records: int = 1_000, rate: float = 500.0) -> Figures:
    return Figures(records=records, wall_s=records / rate, cpu_s=0.5, peak_rss_mb=64.0)


def a_state(**more: object) -> State:
    return dataclasses.replace(State(commit="commit 123", day="2026-01-02"), **more)


@given(st.lists(PLACES))
def test_a_journal_is_read_as_it_was_written(places: list[Position]) -> None:
    content = b"".join(value(*place)[: LINE_BYTES - 1] + b"\n" for place in places)
    assert list(lines(content)) == places
    assert counted([len(content)]) == len(places)
    # Killed in the middle of a line.
    assert list(lines(content + b"0:00")) == places


def test_a_value_has_the_size_that_the_page_names() -> None:
    assert len(value(3, 123_456_789)) == VALUE_BYTES


def test_what_is_no_journal_is_not_taken_for_one() -> None:
    with pytest.raises(ValueError, match="byte 12 of a journal: b'garbage more' is no line of it"):
        list(lines(b"0:000000001\ngarbage more"))


@given(st.lists(PLACES), st.lists(PLACES), st.dictionaries(st.integers(0, 3), st.integers(0, 10)))
def test_every_record_is_handled_lost_or_unread_and_every_other_call_is_a_repetition(
    first: list[Position], second: list[Position], committed: dict[int, int]
) -> None:
    verdict = judged(dict.fromkeys(range(4), 10), first, second, committed)
    handled = len({*first, *second})
    assert verdict.sent == 40 == handled + verdict.lost + verdict.unread
    assert len(first) + len(second) == handled + verdict.repeated_kills + verdict.repeated_restarts
    assert verdict.repeated_kills == len(first) - len(set(first))
    if not any(committed.values()):
        assert verdict.lost == 0


CASES = {
    "all handled once": ([(0, 0), (0, 1)], [(0, 2)], 3, (0, 0, 0, 0)),
    "committed, and handled by nobody": ([(0, 0)], [(0, 2)], 3, (1, 0, 0, 0)),
    "not committed, and handled by nobody": ([(0, 0)], [(0, 1)], 2, (0, 1, 0, 0)),
    "again after a kill": ([(0, 0), (0, 1), (0, 1)], [(0, 2)], 3, (0, 0, 1, 0)),
    "again in a restart": ([(0, 0), (0, 1)], [(0, 1), (0, 2), (0, 2)], 3, (0, 0, 0, 2)),
}


@pytest.mark.parametrize("case", CASES)
def test_the_judge(case: str) -> None:
    first, second, position, (lost, unread, kills, restarts) = CASES[case]
    assert judged({0: 3}, first, second, {0: position}) == Verdict(
        sent=3, lost=lost, unread=unread, repeated_kills=kills, repeated_restarts=restarts
    )


def test_a_record_that_nobody_sent_is_an_error_of_the_harness() -> None:
    with pytest.raises(ValueError, match="names record 3 of partition 0, which was never sent"):
        judged({0: 3}, [(0, 3)], [], {})


def test_a_result_is_found_among_what_a_peer_writes_around_it() -> None:
    line = '{"records": 1000, "wall_s": 2.0, "cpu_s": 0.5, "peak_rss_mb": 64.0, "more": 1}'
    assert figures(f"hello\n{line}\n\x1b[?25h") == ran()
    assert figures(f"hello\n\x1b[?25l\b\x1b[?25h{line}\n\x1b[?25h") == ran()
    assert figures("hello\n") is None


def test_a_run_that_was_cut_short_goes_on_where_it_stopped(tmp_path: Path) -> None:
    rows = plan.SPEEDS[:3]
    names = [row.name for row in rows]
    state = a_state(
        rounds=[{names[0]: ran()}, {names[2]: ran()}],
        verdicts={"a": Verdict(sent=1, lost=0, unread=0, repeated_kills=2, repeated_restarts=3)},
        loads=[0.5],
    )
    state.save(tmp_path / "new" / "kept.json")
    read = State.load(tmp_path / "new" / "kept.json")
    assert read == state
    left = [(0, names[1]), (0, names[2]), (1, names[1]), (1, names[0])]
    assert [(number, row.name) for number, row in turns(read, rows, 2)] == left


def test_a_ratio_is_to_the_raw_client_of_the_same_round() -> None:
    rounds = [
        {plan.RAW: ran(rate=100), "x": ran(rate=50)},
        {plan.RAW: ran(rate=10), "x": ran(rate=20)},
        {"x": ran()},
    ]
    assert page.ratios(rounds, "x", plan.RAW) == pytest.approx([0.5, 2.0])


def test_the_page_has_every_contender_and_says_what_was_not_measured() -> None:
    verdict = Verdict(sent=10, lost=2, unread=1, repeated_kills=3_000, repeated_restarts=4)
    state = a_state(
        rounds=[{plan.RAW: ran(rate=1_000), "Quix Streams": ran(rate=200)}],
        verdicts={"Quix Streams": verdict},
        failures={"round 1: Faust": "exit code 1: oh", "kills: Faust": page.TIME_OVER},
        missing={"arroyo": "pip ended with code 1: no wheel"},
        loads=[0.25, 3.0],
    )
    text = page.page(state, ["a machine"])
    for row in (*plan.SPEEDS, *plan.SAFETIES):
        assert f"| {row.name} | {row.guarantee} |" in text
    assert "| Quix Streams | at least once | 1,000 | 200 (200 - 200) | 0.2 | 500 | 64 |" in text
    assert (
        "| Quix Streams | at least once | each second | 1,000 | 10 | **2**, and 1 not read | 3,000 | 4 |"
        in text
    )
    assert "| Faust | at least once on crashes only | failed | | | | |" in text
    assert f"| Arroyo `RunTask` | at least once | {page.NOT_INSTALLED} | | | | |" in text
    assert f"| kstreams, default | none | {'not measured'} | | | | |" in text
    assert "- Not installed: arroyo: pip ended with code 1: no wheel" in text
    assert (
        "| Faust | at least once on crashes only | each second | 1,000 | not measured | | | |"
        in text
    )
    assert "- round 1: Faust: exit code 1: oh" in text
    assert "- Left out, as time was over: kills: Faust" in text
    assert "0.2 to 3.0, median 1.6" in text


def test_a_page_without_a_measured_run_is_a_page() -> None:
    assert "not measured" in page.page(a_state(), [])


def test_rows_have_names_of_their_own_and_baselines_are_rows() -> None:
    for rows in (plan.SPEEDS, plan.SAFETIES):
        assert len({row.name for row in rows}) == len(rows)
    names = {(row.series, row.name) for row in plan.SPEEDS}
    assert names.issuperset(plan.BASELINES.items())
    assert all(row.records + row.warm <= plan.TOPIC_RECORDS for row in plan.SPEEDS)
    assert all(row.warm > 0 for row in plan.SPEEDS if row.family in plan.JVM)


def test_what_a_row_runs_is_there() -> None:
    for row in (*plan.SPEEDS, *plan.SAFETIES):
        place, _, function = row.run.partition(":")
        if row.family in plan.JVM:
            assert (homes.SOURCES / "peers" / f"{place}.java").exists()
            continue
        tree = ast.parse(
            (ROOT / "benchmarks" / place.replace(".", "/")).with_suffix(".py").read_text()
        )
        defined = {
            node.name
            for node in tree.body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        assert function in defined, row.run


def test_homes_are_pinned() -> None:
    for family, packages in plan.OWN.items():
        said = homes.version(family)
        assert all(f"{package} " in said for package in packages)
    assert {artifact.jar for jars in homes.JARS.values() for artifact in jars} <= SHA256.keys()


def test_both_languages_write_the_same_line() -> None:
    assert f"int LINE = {LINE_BYTES};" in (homes.SOURCES / "peers" / "Work.java").read_text()


def test_a_process_that_fails_or_takes_too_long_says_how_it_ended() -> None:
    with pytest.raises(FailedError, match="exit code 3: oh"):
        output([sys.executable, "-c", "import sys; print('oh', file=sys.stderr); sys.exit(3)"], 30)
    with pytest.raises(FailedError, match="not done after 0 s"):
        output([sys.executable, "-c", "input()"], 0.3)
    assert output([sys.executable, "-c", "print('done')"], 30) == "done\n"


def test_a_member_ends_with_the_process_that_has_started_it(tmp_path: Path) -> None:
    waits = "import os, sys; os.read(0, 1)"
    with lifeline() as stdin:
        member = Member("a", [sys.executable, "-c", waits], tmp_path, stdin)
        member.start()
        member.check()
    assert member._process is not None
    assert member._process.wait(timeout=30) == 0
    with pytest.raises(FailedError, match="a ended with code 0: no output"):
        member.check()


def test_a_contender_ends_when_its_standard_input_does() -> None:
    code = "from benchmarks.peers.contenders.__main__ import _end_with_parent; _end_with_parent()"
    theirs, ours = os.pipe()
    process = subprocess.Popen([sys.executable, "-c", code], stdin=theirs, cwd=ROOT)
    os.close(theirs)
    os.close(ours)
    assert process.wait(timeout=30) == 1


# -- the front page


def test_the_readme_shows_what_was_measured_of_every_peer() -> None:
    readme = front_page.README.read_text()
    assert front_page.with_tables(readme, front_page.RESULTS.read_text()) == readme


def test_a_new_result_changes_its_line_and_no_other() -> None:
    results = front_page.RESULTS.read_text()
    killed = front_page.table_of(results, front_page.SAFETY)["Faust"]
    old = f"| {killed['lost']} | {killed['repeated after 3 kills']} |"
    changed = results.replace(old, "| **7** | 12,345 |")
    lines = zip(front_page.safety(results), front_page.safety(changed), strict=True)
    (line,) = [new for before, new in lines if before != new]
    assert line.startswith("| Faust | ")
    assert "| **7** | 12,345 |" in line
    assert front_page.speed(changed) == front_page.speed(results)


def test_a_page_without_the_table_is_refused() -> None:
    with pytest.raises(LookupError, match="has no heading 'Lost and repeated'"):
        front_page.safety("# Peers\n")
