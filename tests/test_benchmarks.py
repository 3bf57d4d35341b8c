"""What the benchmarks measure and make of their figures; measuring itself needs minutes and a quiet
machine.
"""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys

import fastavro
import pytest

from benchmarks import at_rest, orders, plan, runs, serialisers, tracing
from benchmarks.contenders import ours_formats
from benchmarks.growth.model import Quantity, fitted, row
from benchmarks.memory import peak_mb
from benchmarks.spark import figures, report
from benchmarks.spark.figures import Beside, Overhead, Phase, Spread, Throughput
from benchmarks.spark.plan import (
    BATCH_RECORDS,
    BY_HAND,
    MAX_POLL_INTERVAL_S,
    RANGES,
    RECORDS,
    VALUE_BYTES,
)
from benchmarks.spark.work import Laps, click
from reactive_kafka.formats import decoder_for

LITTLE = Spread(count=3, p50=0.25, p99=1.0, max=2.0)


def throughput(rate: float, **more: Spread) -> Throughput:
    return Throughput(
        records=1_000,
        wall_s=1_000 / rate,
        batch_s=[0.5],
        peak_rss_mb=200.0,
        driver_mb=800.0,
        **more,
    )


def a_round(
    *, by_hand: float = 100.0, records: float = 100.0, ranges: float = 100.0
) -> dict[str, Throughput]:
    meanwhile = {"lag_ms": LITTLE, "rss_mb": LITTLE}
    return {
        BY_HAND.name: throughput(by_hand),
        RECORDS.name: throughput(records, **meanwhile),
        RANGES.name: throughput(ranges, **meanwhile),
    }


def overhead(ours: float = 1.0, by_hand: float = 1.0, records: int = BATCH_RECORDS) -> Overhead:
    return Overhead(
        records=records, ours_s=[ours], by_hand_s=[by_hand], before_s=[0.1], after_s=[0.01]
    )


def plain(*, rebalances: int = 0, longest_job_s: float = MAX_POLL_INTERVAL_S + 4) -> Beside:
    phases = [Phase(name="nothing", latency_ms=LITTLE, lag_ms=LITTLE)]
    return Beside(
        phases=phases,
        batches=12,
        ticks_per_s=1_000.0,
        longest_job_s=longest_job_s,
        rebalances=rebalances,
    )


def missed(*args: object) -> list[str]:
    return [sentence for met, sentence in report.verdicts(*args) if not met]  # type: ignore[arg-type]


def test_a_percentile_is_the_least_sample_that_so_many_do_not_exceed() -> None:
    assert Spread.of([float(number) for number in range(200, 0, -1)]) == Spread(
        count=200, p50=100, p99=198, max=200
    )
    assert Spread.of([7.0]) == Spread(count=1, p50=7, p99=7, max=7)
    assert Spread.of([]) == Spread(count=0, p50=0, p99=0, max=0)


def test_a_line_is_found_again_and_what_is_off_it_is_told() -> None:
    line = fitted([(10, 25.0), (20, 45.0), (40, 85.0)])
    assert (round(line.constant, 6), round(line.each, 6), round(line.at(1_000))) == (5, 2, 2_005)
    quantity = Quantity("tick", "ms", "partitions", (10, 20, 40), 1_000, float)
    assert row(quantity, [25.0, 45.0, 85.0]).startswith(
        "| tick, ms | 10; 20; 40 partitions | 25, 45, 85 | +0% |"
    )
    assert "| -50% |" in row(quantity, [25.0, 45.0, 170.0])


def test_what_a_process_writes_is_read_as_it_was() -> None:
    for run in (throughput(100), throughput(100, lag_ms=LITTLE, rss_mb=LITTLE)):
        assert figures.read_throughput(figures.write(run)) == run
    assert figures.read_overhead(figures.write(overhead())) == overhead()
    assert figures.read_beside(figures.write(plain())) == plain()


def test_all_goals_are_met_where_ours_is_as_good_as_by_hand() -> None:
    assert missed([a_round()], [overhead()], plain()) == []


@pytest.mark.parametrize("ours", ["records", "ranges"])
def test_less_than_four_fifths_of_the_throughput_by_hand_is_a_miss(ours: str) -> None:
    assert missed([a_round(**{ours: 80.1})], [overhead()], plain()) == []
    (sentence,) = missed([a_round(**{ours: 79.9})], [overhead()], plain())
    assert sentence.startswith(f"MISSED: reactive_kafka, `{ours}` is 0.80 times")


def test_a_ratio_is_the_median_of_the_ratios_of_each_round_that_has_both() -> None:
    rounds = [a_round(records=50), a_round(by_hand=10, records=9), a_round(records=100), {}]
    assert report.ratios(rounds, RECORDS) == pytest.approx([0.5, 0.9, 1.0])
    assert "0.90 (0.50 - 1.00)" in report.throughputs(rounds)
    rounds = [a_round(records=70), a_round(records=75), a_round(records=100)]
    (sentence,) = missed(rounds, [overhead()], plain())
    assert "`records` is 0.75 times" in sentence


def test_five_percent_over_by_hand_is_a_miss_for_large_batches_only() -> None:
    small = overhead(ours=2.0, records=500)
    assert missed([a_round()], [overhead(ours=1.049), small], plain()) == []
    (sentence,) = missed([a_round()], [overhead(ours=1.06), small], plain())
    assert "takes 6.0% more" in sentence


def test_what_a_batch_takes_more_is_the_median_over_neighbours() -> None:
    measured = Overhead(
        records=500,
        ours_s=[1.1, 3.3, 9.0],
        by_hand_s=[1.0, 3.0, 5.0],
        before_s=[0.1] * 3,
        after_s=[0.1] * 3,
    )
    assert measured.over == pytest.approx(0.1)
    assert measured.over_ms == pytest.approx(300)


def test_a_rebalance_is_a_miss_and_so_is_a_job_that_was_too_short_to_cause_one() -> None:
    (sentence,) = missed([a_round()], [overhead()], plain(rebalances=1))
    assert sentence.startswith("MISSED: 1 rebalances")
    (sentence,) = missed([a_round()], [overhead()], plain(longest_job_s=MAX_POLL_INTERVAL_S))
    assert sentence.startswith("NOT MEASURED")


def test_what_was_not_measured_is_not_met() -> None:
    assert len(missed([], [overhead(records=500)], None)) == 4


def test_the_clock_runs_from_the_last_warm_batch_to_the_last_one_that_counts() -> None:
    said: list[object] = []
    laps = Laps(2, 3, lambda: said.append("began"), lambda: said.append("ended"))
    for number in range(1, 8):
        laps.batch_ended(number)
        said.append(number)
    assert said == [1, "began", 2, 3, 4, "ended", 5, 6, 7]
    assert laps.records == 3 + 4 + 5
    assert len(laps.batch_s) == 3
    assert laps.wall_s == pytest.approx(sum(laps.batch_s))


def test_every_value_has_the_size_that_the_table_says() -> None:
    assert {len(click(number)) for number in (0, 7, 99, 100, 12_345_678)} == {VALUE_BYTES}


def test_the_peak_of_a_small_process_is_not_that_of_the_large_one_that_has_started_it() -> None:
    ballast = b"x" * 300_000_000
    code = "from benchmarks.memory import peak_mb; print(peak_mb())"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert peak_mb() >= len(ballast) / 1e6
    assert 1 < float(child.stdout) < 100


def test_every_order_is_the_same_in_both_formats() -> None:
    schema = fastavro.parse_schema(json.loads(orders.SCHEMA))
    as_avro = orders.as_avro(258)
    for number in (0, 7, 1_999_999):
        written = as_avro(number)
        assert written[:5] == b"\0\0\0\1\2"
        assert json.loads(orders.as_json(number)) == orders.order(number)
        assert fastavro.schemaless_reader(io.BytesIO(written[5:]), schema, None) == orders.order(
            number
        )


@pytest.mark.parametrize(
    "kind", [ours_formats.OrderData, ours_formats.OrderModel, ours_formats.OrderStruct]
)
def test_every_type_that_is_measured_reads_an_order(kind: type) -> None:
    decode = decoder_for(kind, "json")
    assert decode is not None
    assert decode(orders.as_json(7)) == kind(**orders.order(7))


def test_who_decodes_reads_a_topic_of_orders() -> None:
    for one in plan.CONTENDERS:
        assert one.values == (one.series if one.series in ("JSON", "Avro") else "plain")


def test_a_run_starts_from_bytecode_as_an_installed_package_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    assert (
        runs._last_line([sys.executable, "-c", "import sys; print(sys.dont_write_bytecode)"])
        == "False"
    )


def test_each_stage_of_a_start_can_be_imported_and_together_they_are_most_of_the_memory() -> None:
    stages = at_rest.imported()
    assert stages.keys() == at_rest.STAGES.keys()
    assert all(megabytes >= 0 for megabytes in stages.values())
    assert 30 < sum(stages.values()) < 100


def test_the_comparison_of_serialisers_measures_both_in_each_format_and_with_the_registry_away(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert serialisers.main(["--records", "5", "--runs", "1", "--limit", "0.2"]) == 0
    needed, speed, away, at_once = capsys.readouterr().out.strip().split("\n\n")
    assert "confluent-kafka" in needed
    assert "confluent-kafka" not in needed.splitlines()[2], "ours does not need it"
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in speed.splitlines()[2:]
    ]
    assert {tuple(row[:3]) for row in rows} == {
        (name, kind, doing)
        for name in serialisers.FORMATS
        for kind in serialisers.KINDS
        for doing in ("decode", "encode")
    }
    assert all(float(ours) > 0 and float(theirs) > 0 for _, _, _, ours, theirs, _ in rows)
    assert away.count("SchemaMissing; the record waits") == 2
    assert away.count("by itself") == 2
    assert "| ours | 1 | 1 |" in at_once


def test_the_cost_of_a_span_is_shown_beside_a_handler_that_does_something() -> None:
    assert tracing.table({"nothing": 10.0, "spans": 100.0}) == [
        "| set up | µs more | of 1 ms | of 10 ms | under 3 % from |",
        "|---|---|---|---|---|",
        "| nothing | 0.0 | 0.0 % | 0.0 % | 0.0 ms |",
        "| spans | 90.0 | 9.0 % | 0.9 % | 3.0 ms |",
    ]


@pytest.mark.parametrize("way", tracing.WAYS)
def test_each_way_of_tracing_is_measured(way: str) -> None:
    assert tracing.measured(way, 20) > 0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--only", "nobody"], r"--only nobody: no row has this in .*: .*, ours:chain, .*"),
        (["--partitions", "7"], r"--partitions 7: such rows read topics of 1, 4, .* partitions"),
        (
            ["--only", "ours:chain", "--partitions", "100"],
            r"--partitions 100: such rows read topics of 4 partitions",
        ),
    ],
)
def test_a_choice_without_a_row_says_what_there_is_and_starts_no_kafka(
    arguments: list[str], text: str
) -> None:
    child = subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments], capture_output=True, text=True
    )
    assert child.returncode == 2
    assert re.fullmatch(text, child.stderr.strip())
