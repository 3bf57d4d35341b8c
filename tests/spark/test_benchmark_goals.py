"""What the benchmark of Spark makes of its figures; measuring itself needs minutes and a quiet
machine.
"""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.spark import figures, goals
from benchmarks.spark.figures import Growth, Light, Overhead, Spread, Trickle
from benchmarks.spark.plan import LIGHT_GETMANY, LIGHT_KAFKA, LIGHT_RANGES, LIGHT_RECORDS


def light(period_s: float) -> Light:
    return Light(
        records=50_000, period_s=[period_s, period_s, 9.0], job_s=[period_s / 2, period_s / 2, 8.0]
    )


def a_round(
    *, records: float = 0.4, ranges: float = 0.42, getmany: float = 0.4, kafka: float = 0.42
) -> dict[str, Light]:
    return {
        LIGHT_RECORDS.name: light(records),
        LIGHT_RANGES.name: light(ranges),
        LIGHT_GETMANY.name: light(getmany),
        LIGHT_KAFKA.name: light(kafka),
    }


def few(more_s: float = 0.01, records: int = 500) -> Overhead:
    return Overhead(
        records=records, ours_s=[0.1 + more_s], by_hand_s=[0.1], before_s=[0.01], after_s=[0.01]
    )


def growth(mb: float = 100.0) -> Growth:
    return Growth(records=200_000, before_mb=150.0, peak_mb=150.0 + mb)


def trickle(p50: float = 200.0, count: int = 6_000) -> Trickle:
    return Trickle(latency_ms=Spread(count=count, p50=p50, p99=2 * p50, max=3 * p50), batches=60)


def missed(**changed: Any) -> list[str]:
    given: dict[str, Any] = {
        "rounds": [a_round()],
        "measured": [few()],
        "growth": growth(),
        "trickle": trickle(),
    } | changed
    return [sentence for met, sentence in goals.verdicts(**given) if not met]


def test_what_a_process_writes_is_read_as_it_was() -> None:
    assert figures.read_light(figures.write(light(0.4))) == light(0.4)
    assert figures.read_growth(figures.write(growth())) == growth()
    assert figures.read_trickle(figures.write(trickle())) == trickle()


def test_goals_are_met_up_to_the_figure_that_they_name() -> None:
    assert missed() == []
    assert missed(rounds=[a_round(records=0.42, ranges=0.441)]) == []
    assert missed(measured=[few(0.0199)]) == []


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"rounds": [a_round(records=0.43)]},
            "takes 1.07 times the better one of both by hand; the goal is at most 1.05",
        ),
        (
            {"rounds": [a_round(records=0.42, kafka=0.38, ranges=0.38)]},
            "takes 1.11 times the better one",
        ),
        ({"rounds": [a_round(ranges=0.5)]}, "`ranges` takes 1.19 times `spark.read"),
        (
            {"measured": [few(0.039)]},
            "500 records takes 39.0 ms more than by hand; the goal is at most 20 ms",
        ),
        (
            {"growth": growth(149)},
            "200,000 records adds 149 MB to our process; the goal is at most 100 MB",
        ),
        (
            {"trickle": trickle(230)},
            "within 230 ms, with `batch_max_wait` = 100ms; the goal is at most 200 ms",
        ),
    ],
)
def test_a_goal_that_is_missed_says_by_how_much(changed: dict[str, Any], said: str) -> None:
    (sentence,) = missed(**changed)
    assert sentence.startswith("MISSED: ")
    assert said in sentence


def test_the_median_of_the_rounds_counts_each_against_its_own_neighbours() -> None:
    rounds = [
        a_round(records=0.4),
        a_round(records=0.8, getmany=0.8, kafka=0.9),
        a_round(records=0.9),
    ]
    assert goals.light_ratios(rounds, LIGHT_RECORDS) == pytest.approx([1.0, 1.0, 2.25])
    assert missed(rounds=rounds) == []


def test_what_was_not_measured_is_not_met() -> None:
    # The other one by hand has failed.
    alone = {LIGHT_RECORDS.name: light(0.4), LIGHT_GETMANY.name: light(0.4)}
    sentences = missed(
        rounds=[alone], measured=[few(records=50_000)], growth=None, trickle=trickle(count=0)
    )
    assert len(sentences) == 5
    assert all(sentence.startswith("NOT MEASURED: ") for sentence in sentences)


def test_the_page_has_a_row_for_each_contender_and_a_line_for_each_figure() -> None:
    page = "\n".join(goals.page([a_round()], growth(), trickle()))
    for contender in (LIGHT_RECORDS, LIGHT_RANGES, LIGHT_GETMANY, LIGHT_KAFKA):
        assert f"| {contender.name} |" in page
    assert "| 400 (400 - 9000) | 200 | 200 |" in page
    assert "from 150 to 250 MB" in page
    assert "200 ms (p50), 400 ms (p99)" in page
    assert goals.page([], None, None) == []
