"""What ``make bench`` makes of its figures: goals by the Python's build, verdicts, pages."""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace
from itertools import chain, repeat

import pytest

from benchmarks import build, machine, page, plan, report
from benchmarks.__main__ import in_order, rows_on
from benchmarks.build import Build
from benchmarks.contenders.meter import Result
from benchmarks.figures import CPU, RATE, RECORDS, RSS, Figures, medians, percentile, written
from benchmarks.gauges import plan as gauges
from benchmarks.goals import GOALS, Goal
from benchmarks.place import Place
from benchmarks.report import Measured

PLAIN = Build(
    python="/a/python",
    version="3.11.7",
    compiler="GCC 12.2.0",
    flags="-O3",
    is_profiled=False,
    is_lto=False,
    is_debians=False,
    loop_ns=61.0,
)
PROFILED = replace(PLAIN, python="/b/python", is_profiled=True)
DEBIANS = replace(PLAIN, python="/c/python", version="3.11.2", is_debians=True)
NEWER = replace(PLAIN, python="/d/python", version="3.13.0")

FASTER = Goal(row=plan.OURS_BYTES, beside=plan.GETMANY, least=1.5)
UNDER = page.Circumstances(broker="a broker", records=1_000, load=0.1, looks=40, slowed=7)
LIGHT = Goal(row=plan.OURS_BYTES, figure=CPU, most=1.3)


def figures(rate: float, cpu: float = 1.0) -> Figures:
    return {RECORDS: 1_000, RATE: rate, CPU: cpu, RSS: 50.0}


def measured(*ratios: float, on: Build = DEBIANS, cpu: float = 1.0) -> Measured:
    """Rounds in which ours was so many times as fast as the raw client, whose rate differs from
    round to round.
    """
    rounds = [
        {
            plan.GETMANY: figures(100.0 * number),
            plan.OURS_BYTES: figures(100.0 * number * ratio, cpu),
        }
        for number, ratio in enumerate(ratios, 1)
    ]
    return Measured(build=on, rows=frozenset({plan.GETMANY, plan.OURS_BYTES}), rounds=[*rounds])


def sentences(goal: Goal, *of: Measured) -> list[str]:
    return [verdict.sentence for verdict in report.verdicts(of, [goal])]


@pytest.mark.parametrize("on", [PLAIN, PROFILED, DEBIANS, NEWER])
def test_a_goal_is_the_same_on_every_python(on: Build) -> None:
    (met,) = report.verdicts([measured(1.501, on=on)], [FASTER])
    (missed,) = report.verdicts([measured(1.499, on=on)], [FASTER])
    assert (met.met, missed.met) == (True, False)
    assert "at least 1.5 times" in missed.sentence


def test_a_ratio_of_throughputs_is_that_of_the_best_rounds_among_those_that_have_both() -> None:
    # Of 100, 200 and 300.
    of = measured(1.0, 2.0, 1.6)
    of.rounds.append({plan.OURS_BYTES: figures(1e9)})
    (verdict,) = report.verdicts([of], [FASTER])
    assert verdict.value == pytest.approx(480 / 300)
    of = measured(1.0, 2.0, 1.0)
    (verdict,) = report.verdicts([of], [FASTER])
    assert verdict.value == pytest.approx(400 / 300)
    (light,) = report.verdicts(
        [replace(of, rounds=[*of.rounds, *measured(1.0, cpu=0.4).rounds])], [LIGHT]
    )
    assert light.value == 0.4


def test_a_ratio_of_other_figures_is_the_median_of_the_ratios_of_each_round_that_has_both() -> None:
    ours, raw = gauges.OURS_LATENCY[1_000], gauges.RAW_LATENCY[1_000]
    goal = Goal(row=ours, beside=raw, figure=gauges.P50, most=1.1)
    pairs = [(1.0, 1.0), (9.0, 3.0), (2.0, 1.0)]
    rounds = [{ours: {gauges.P50: own}, raw: {gauges.P50: other}} for own, other in pairs]
    assert report.value(goal, [*rounds, {ours: {gauges.P50: 50.0}}]) == 2.0
    assert report.value(replace(goal, beside=None), rounds) == 2.0
    assert report.value(goal, []) is None


def test_a_figure_that_is_to_be_small_is_missed_above_its_goal() -> None:
    assert sentences(LIGHT, measured(1.0, cpu=1.3)) == [
        f"met on 3.11.2, Debian: {plan.OURS_BYTES}: {CPU}: 1.3; the goal is at most 1.3"
    ]
    assert sentences(LIGHT, measured(1.0, cpu=1.4)) == [
        f"MISSED on 3.11.2, Debian: {plan.OURS_BYTES}: {CPU}: 1.4; the goal is at most 1.3"
    ]


def test_what_was_to_be_measured_and_failed_is_not_met() -> None:
    failed = Measured(build=DEBIANS, rows=frozenset({plan.GETMANY, plan.OURS_BYTES}), rounds=[{}])
    (verdict,) = report.verdicts([failed], [FASTER])
    assert not verdict.met
    assert (
        verdict.sentence
        == f"NOT MEASURED on 3.11.2, Debian: {plan.OURS_BYTES} beside {plan.GETMANY}"
    )
    assert "not measured" in report.promises([failed], [FASTER])


def test_what_nobody_asked_to_measure_is_no_miss() -> None:
    alone = Measured(
        build=DEBIANS, rows=frozenset({plan.OURS_BYTES}), rounds=[{plan.OURS_BYTES: figures(1.0)}]
    )
    assert sentences(FASTER, alone) == []
    assert report.promises([alone], [FASTER]) == ""


def test_each_python_has_a_column_beside_each_goal() -> None:
    other = Measured(build=NEWER, rows=frozenset(), rounds=[{}])
    text = report.promises([measured(1.6), measured(1.6, on=PLAIN), other], [FASTER])
    head, _, row = text.splitlines()
    assert head == "| goal | to reach | 3.11.2, Debian | 3.11.7, plain | 3.13.0, plain |"
    assert row.endswith("| at least 1.5 times | 1.60 | 1.60 |  |")


def test_the_python_that_users_are_likely_to_have_comes_first_and_has_all_rows() -> None:
    assert in_order([PLAIN, NEWER, DEBIANS, PROFILED]) == [DEBIANS, PROFILED, PLAIN, NEWER]
    assert in_order([NEWER, PLAIN]) == [NEWER, PLAIN]
    rows = [*plan.CONTENDERS, *gauges.GAUGES]
    assert rows_on(rows, is_first=True) == rows
    elsewhere = rows_on(rows, is_first=False)
    assert {one.name for one in elsewhere} == {
        one.name for one in plan.CONTENDERS if one.everywhere
    }
    assert {plan.GETMANY, plan.OURS_BYTES, plan.OURS_DICT, plan.OURS_BY_KEY[10]} <= {
        one.name for one in elsewhere
    }


def test_goals_and_baselines_name_rows_whose_figures_are_measured() -> None:
    contenders = {one.name for one in plan.CONTENDERS}
    gauged = {one.name for one in gauges.GAUGES}
    assert (
        len(contenders) + len(gauged)
        == len({*contenders, *gauged})
        == len(plan.CONTENDERS) + len(gauges.GAUGES)
    )
    for goal in GOALS:
        assert {goal.row, goal.beside or goal.row} <= (
            contenders if goal.row in contenders else gauged
        )
        assert (goal.least, goal.most) != (None, None)
        assert goal.row in gauged or goal.figure in (RATE, CPU, RSS)
    assert {one.series for one in plan.CONTENDERS} == plan.BASELINES.keys()
    assert contenders >= set(plan.BASELINES.values())


def test_whatever_a_row_is_compared_with_runs_on_the_same_pythons() -> None:
    everywhere = {one.name for one in plan.CONTENDERS if one.everywhere}
    baselines = {plan.BASELINES[one.series] for one in plan.CONTENDERS if one.everywhere}
    assert {plan.GETMANY, plan.GETMANY_JSON, plan.OURS_BY_KEY[10]} <= everywhere
    # A hundred a second on any of them.
    assert baselines - everywhere == {plan.SEQUENTIAL}


@pytest.mark.parametrize("row", [*plan.CONTENDERS, *gauges.GAUGES], ids=lambda row: row.name)
def test_every_row_names_a_function(row: plan.Contender | gauges.Gauge) -> None:
    module, _, function = row.run.partition(":")
    package = "gauges" if isinstance(row, gauges.Gauge) else "contenders"
    # Which are not installed here.
    if module in ("faststream_peer", "kstreams_peer"):
        assert (
            f"\nasync def {function}(job: Job)"
            in (page.ROOT / f"benchmarks/contenders/{module}.py").read_text()
        )
        return
    assert callable(getattr(importlib.import_module(f"benchmarks.{package}.{module}"), function))


def test_a_topic_holds_what_the_one_with_most_records_needs() -> None:
    place = Place(bootstrap="", registry="", records=600_000)
    by_name = {one.name: one for one in plan.CONTENDERS}
    assert place.records_of(by_name[plan.GETMANY]) == 600_000
    assert place.records_of(by_name[plan.OURS_WAITING[256]]) == plan.MANY
    assert place.records_of(by_name[plan.OURS_BY_KEY[10]]) == 600_000


def test_the_results_of_a_run_are_what_tables_show() -> None:
    result = Result(records=2_000_000, wall_s=4.0, cpu_s=3.0, peak_rss_mb=71.5)
    assert result.figures() == {RECORDS: 2_000_000, RATE: 500_000, CPU: 1.5, RSS: 71.5}
    rounds = [{plan.OURS_BYTES: result.figures()}]
    *_, row = report.throughputs(rounds, "no-op").splitlines()
    assert (
        row == f"| {plan.OURS_BYTES} | each second | 2,000,000 | 500,000 (500,000) |  | 1.50 | 72 |"
    )
    assert report.throughputs(rounds, "JSON") == ""


def test_a_table_of_gauges_has_a_column_for_each_figure_that_one_of_its_rows_has() -> None:
    rounds = [
        {
            gauges.RAW_START: {gauges.FIRST_S: 0.2},
            gauges.START[1]: {gauges.FIRST_S: 0.4, gauges.LAST_S: 0.5},
        },
        {gauges.RAW_START: {gauges.FIRST_S: 0.3}},
    ]
    assert report.gauged(rounds, gauges.START_UP).splitlines() == [
        f"| {gauges.START_UP}: median (lowest - highest) | {gauges.FIRST_S} | {gauges.LAST_S} |",
        "|---|---:|---:|",
        f"| {gauges.RAW_START} | 0.250 (0.200 - 0.300) |  |",
        f"| {gauges.START[1]} | 0.400 (0.400 - 0.400) | 0.500 (0.500 - 0.500) |",
    ]


def test_the_page_names_each_build_and_what_it_measured() -> None:
    text = page.results([measured(1.6), measured(2.0, on=PLAIN)], UNDER)
    assert (
        "| 3.11.2 | package of the distribution, built with a profile | GCC 12.2.0 | `-O3` | 61 |"
        in text
    )
    assert (
        "| 3.11.7 | neither --enable-optimizations nor --with-lto | GCC 12.2.0 | `-O3` | 61 |"
        in text
    )
    head, ours, plain = text.split("\n## CPython ")
    assert f"| {plan.OURS_BYTES} | 160 (1.6) | 200 (2) |" in head
    assert "| 160 (160) | 1.6 |" in ours
    assert "| 200 (200) | 2 |" in plain
    assert "7 of 40 waited in vain" in text.replace("\n  ", " ")
    assert [
        line for line in text.splitlines() if len(line) > report.WIDTH and line[0] not in "|#"
    ] == []


def test_tables_of_what_was_not_measured_are_left_out() -> None:
    rounds = [
        {
            plan.RAW_SEND: figures(1.0),
            plan.GETMANY: figures(1.0),
            gauges.START[1]: {gauges.FIRST_S: 0.4},
        }
    ]
    of = Measured(build=DEBIANS, rows=frozenset(), rounds=[*rounds])
    heads = [text.split("|")[1].split(":")[0].strip() for text in report.tables(of)]
    assert heads == ["handler", "handler", gauges.START_UP]
    assert [text.split("|")[1].strip() for text in report.tables(of, ["sending"])] == [
        "handler: sending"
    ]


def test_flags_are_those_that_make_code_faster_or_slower_each_once() -> None:
    given = "-Wsign-compare -DNDEBUG -g -fwrapv -O3 -Wall -DNDEBUG -fprofile-use '-I/a b' -flto"
    assert build.optimising(given) == "-DNDEBUG -fwrapv -O3 -fprofile-use -flto"


def test_a_python_says_of_itself_what_another_one_reads() -> None:
    said = build.of(sys.executable)
    assert replace(said, loop_ns=0.0) == replace(build.mine(), loop_ns=0.0)
    assert said.loop_ns > 1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1_234_567.8, "1,234,568"),
        (2, "2"),
        (0.0, "0"),
        (0.04567, "0.0457"),
        (1.678, "1.68"),
        (67.84, "67.8"),
        (999.4, "999"),
    ],
)
def test_a_figure_is_written_with_three_digits_that_count(value: float, text: str) -> None:
    assert written(value) == text


def test_a_row_waits_until_nobody_slows_the_loop_down_and_says_where_that_was_in_vain() -> None:
    slept: list[float] = []
    took = iter([60.0, 50.0, 54.9, 55.1, 90.0, 50.0])
    pace = machine.Pace(took.__next__, slept.append)
    # The first cannot know; the last waits twice.
    for _ in range(4):
        pace.wait()
    assert (len(slept), pace.slowed, pace.looks) == (2, 0, 4)
    busy = machine.Pace(chain([50.0], repeat(56.0)).__next__, slept.append)
    busy.wait()
    slept.clear()
    busy.wait()
    assert (sum(slept), busy.slowed, busy.looks) == (machine.WAIT_S, 1, 2)


def test_figures_of_several_runs_are_their_medians() -> None:
    assert medians([{"a": 1.0, "b": 5.0}, {"a": 9.0, "b": 4.0}, {"a": 2.0, "b": 6.0}]) == {
        "a": 2.0,
        "b": 5.0,
    }
    assert percentile([float(number) for number in range(200, 0, -1)], 0.99) == 198
    assert percentile([7.0], 0.5) == 7.0
