import dataclasses
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.observe.events import SparkBatchEnded, SparkBatchProgress, SparkBatchSplit
from reactive_kafka.observe.wording import current_stage, progress_text, short_id, whole_seconds
from tests.observe.samples import batch
from tests.observe.test_logs import Bench

ID = batch().id


def test_the_line_of_a_batch_that_runs_says_how_far_it_is() -> None:
    bench = Bench()
    bench.observer.on(SparkBatchProgress(channel="clicks", id=ID, batch=batch()))
    (record,) = bench.sink.records
    assert record.getMessage() == (
        "clicks 7f3a: 50000 records, stage 1/2, tasks 5/8 (2 running, 0 failed), 12s of 10m, attempt 1"
    )
    assert record.levelno == logging.INFO
    extra = vars(record)
    assert (extra["id"], extra["tasks_done"], extra["ranges"]) == (ID, 5, ["clicks-0 [100, 50100)"])
    assert "outcome" not in extra


def test_the_line_of_a_batch_names_a_bounded_number_of_ranges() -> None:
    bench = Bench()
    many = batch(ranges=tuple(f"clicks-{number} [0, 1)" for number in range(1000)))
    bench.observer.on(SparkBatchProgress(channel="clicks", id=ID, batch=many))
    assert len(vars(bench.sink.records[0])["ranges"]) == 20


@pytest.mark.parametrize(
    ("outcome", "level"),
    [("ok", "INFO"), ("failed", "WARNING"), ("cancelled", "WARNING"), ("lost", "WARNING")],
)
def test_only_a_batch_that_ended_well_is_no_warning(outcome: str, level: str) -> None:
    bench = Bench()
    plain = SparkBatchEnded(channel="clicks", id=ID, outcome="ok", records=500, duration_s=1.234)
    bench.observer.on(dataclasses.replace(plain, outcome=outcome))
    assert bench.sink.records[0].levelname == level
    assert bench.sink.messages == [f"clicks 7f3a: spark batch {outcome}: 500 records in 1.23 s"]


def test_the_end_of_a_batch_says_reason_attempt_and_what_was_rejected_on_one_line() -> None:
    bench = Bench()
    bench.observer.on(
        SparkBatchEnded(
            channel="clicks",
            id=ID,
            outcome="lost",
            records=5,
            duration_s=1,
            attempt=2,
            rejected=3,
            reason="a\nb",
        )
    )
    assert bench.sink.messages == [
        r"clicks 7f3a: spark batch lost: 5 records in 1.00 s, 3 rejected, attempt 2: a\nb"
    ]


def test_many_batches_that_end_well_do_not_hide_one_that_failed() -> None:
    bench = Bench()
    for outcome in ("ok", "ok", "failed", "ok"):
        bench.observer.on(
            SparkBatchEnded(channel="clicks", id=ID, outcome=outcome, records=1, duration_s=0)  # type: ignore[arg-type]
        )
    assert [record.levelname for record in bench.sink.records] == ["INFO", "WARNING"]


def test_two_batches_that_run_have_a_line_each() -> None:
    bench = Bench()
    for name in ("aaaa", "bbbb"):
        bench.observer.on(SparkBatchProgress(channel="clicks", id=name, batch=batch(id=name)))
    assert len(bench.sink.records) == 2


def test_a_batch_that_failed_is_one_line_with_its_ranges_and_its_split_no_warning_without_the_reason() -> (
    None
):
    bench = Bench()
    ranges, reason = ("clicks-0 [0, 500)",), "ValueError: x"
    bench.observer.on(
        SparkBatchEnded(
            channel="clicks",
            id=ID,
            outcome="failed",
            records=500,
            duration_s=1,
            ranges=ranges,
            reason=reason,
        )
    )
    bench.observer.on(SparkBatchSplit(channel="clicks", id=ID, records=500, parts=2, reason=reason))
    assert bench.sink.messages == [
        "clicks 7f3a: spark batch failed: 500 records of clicks-0 [0, 500) in 1.00 s: ValueError: x",
        "clicks 7f3a: spark batch split: its 500 records run again in 2 parts",
    ]
    assert [record.levelname for record in bench.sink.records] == ["WARNING", "INFO"]


def test_one_record_is_one_and_of_many_ranges_the_first_are_named() -> None:
    bench = Bench()
    ranges = tuple(f"clicks-{number} [0, 1)" for number in range(100))
    bench.observer.on(
        SparkBatchEnded(
            channel="clicks", id=ID, outcome="ok", records=1, duration_s=1, ranges=ranges
        )
    )
    assert bench.sink.messages == [
        "clicks 7f3a: spark batch ok: 1 record of clicks-0 [0, 1), clicks-1 [0, 1), clicks-2 [0, 1), ... in 1.00 s"
    ]
    assert len(vars(bench.sink.records[0])["ranges"]) == 20


def test_a_batch_that_has_run_for_longer_than_it_may_is_being_cancelled() -> None:
    assert "10s of 4s, being cancelled, attempt 1" in progress_text(
        batch(since_s=10.2, timeout_s=4.0)
    )
    assert "cancelled" not in progress_text(batch(since_s=4.0, timeout_s=4.0))


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.0, "0s"),
        (12.9, "12s"),
        (59.99, "59s"),
        (60, "1m"),
        (185, "3m05s"),
        (600, "10m"),
        (3600, "1h"),
        (3661, "1h01m"),
        (90_000, "25h"),
    ],
)
def test_how_long_is_said_short(seconds: float, said: str) -> None:
    assert whole_seconds(seconds) == said


@given(st.integers(0, 100), st.integers(0, 100))
def test_the_stage_that_runs_is_one_of_those_there_are(stages: int, done: int) -> None:
    shown = current_stage(batch(stages=stages, stages_done=min(done, stages)))
    assert (1 if stages else 0) <= shown <= stages


def test_a_batch_that_spark_knows_nothing_of_yet_has_no_stage() -> None:
    waiting = batch(stages=0, tasks=0, tasks_done=0, tasks_active=0, since_s=0.2, attempt=2)
    assert progress_text(waiting) == (
        "50000 records, stage 0/0, tasks 0/0 (0 running, 0 failed), 0s of 10m, attempt 2"
    )


def test_the_short_id_of_a_batch_is_its_first_digits() -> None:
    assert short_id("7f3a0123-aa") == "7f3a"
