import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka import TopicPartition
from reactive_kafka.spark.batches.ledger import (
    KEPT_BATCHES,
    BatchRun,
    JobProgress,
    Ledger,
    share_after,
)
from reactive_kafka.spark.batches.spark_batch import spark_range
from tests.cli.bars import share_of_bar


def run_of(start: int = 0, attempt: int = 1) -> BatchRun:
    return BatchRun(
        (spark_range("g", TopicPartition("clicks", 0), start, start + 10),),
        10,
        attempt,
        timeout_s=60.0,
    )


def ledger() -> Ledger:
    return Ledger("clicks", "ranges")


def test_a_running_batch_is_shown_with_its_ranges_its_tasks_and_how_long_it_runs() -> None:
    kept, run = ledger(), run_of(attempt=2)
    kept.begin(run, is_part=False)
    (waiting,) = kept.facts(100.0, ready=False, reason="starting").running
    # It waits for Spark.
    assert waiting.since_s == 0.0
    run.started = 103.0
    run.look(
        JobProgress(stages=3, stages_done=1, tasks=8, tasks_done=5, tasks_active=2, tasks_failed=1)
    )
    facts = kept.facts(110.0, ready=True, reason=None)
    (running,) = facts.running
    assert (running.id, running.ranges, running.records, running.attempt) == (
        run.id,
        ("clicks-0 [0, 10)",),
        10,
        2,
    )
    assert (running.since_s, running.timeout_s, running.outcome) == (7.0, 60.0, None)
    assert (running.stages, running.stages_done, running.tasks, running.tasks_done) == (3, 1, 8, 5)
    assert (running.tasks_active, running.tasks_failed) == (2, 1)
    assert facts.tasks == {"active": 2, "completed": 5, "failed": 1}
    assert (facts.mode, facts.batch_records, facts.last) == ("ranges", 10, ())
    assert facts.bisection_jobs == 0, "it is a whole batch"


def test_tasks_are_those_of_all_running_batches() -> None:
    kept, one, other = ledger(), run_of(0), run_of(10)
    for run in (one, other):
        kept.begin(run, is_part=False)
        run.started = 0.0
        run.look(JobProgress(tasks=8, tasks_done=5, tasks_active=2))
    assert kept.facts(1.0, ready=True, reason=None).tasks == {
        "active": 4,
        "completed": 10,
        "failed": 0,
    }
    kept.end(one, "ok", 1.0, 0.0)
    assert kept.facts(1.0, ready=True, reason=None).tasks == {
        "active": 2,
        "completed": 5,
        "failed": 0,
    }


def test_a_batch_that_has_ended_is_kept_with_its_outcome_and_counted() -> None:
    kept, run = ledger(), run_of()
    kept.begin(run, is_part=True)
    run.started = 5.0
    # The last look was a moment before the end.
    run.look(JobProgress(tasks=8, tasks_done=8, tasks_active=1))
    run.rejected = 3
    ended = kept.end(run, "ok", 7.5, 1_700_000_000.0)
    facts = kept.facts(99.0, ready=True, reason=None)
    assert ended is not None
    assert ended.ended_ago_s == 0.0
    assert facts.last == (dataclasses.replace(ended, ended_ago_s=91.5),)
    assert (ended.outcome, ended.since_s, ended.ended_at, ended.rejected) == (
        "ok",
        2.5,
        1_700_000_000.0,
        3,
    )
    assert ended.tasks_active == 0
    assert (facts.jobs["ok"], facts.rejected, facts.bisection_jobs, facts.running) == (1, 3, 1, ())
    assert facts.job_durations.sum_s == 2.5


def test_a_look_at_its_tasks_that_comes_after_its_end_counts() -> None:
    kept, run = ledger(), run_of()
    kept.begin(run, is_part=False)
    run.started = 0.0
    kept.end(run, "ok", 1.0, 0.0)
    run.look(JobProgress(tasks=8, tasks_done=8))
    (ended,) = kept.facts(50.0, ready=True, reason=None).last
    assert (ended.tasks_done, ended.since_s) == (8, 1.0)


def test_a_failure_says_why() -> None:
    kept, run = ledger(), run_of()
    kept.begin(run, is_part=False)
    run.reason = "the driver has gone"
    # Before its function was called.
    kept.end(run, "lost", 1.0, 0.0)
    (ended,) = kept.facts(2.0, ready=False, reason="gone").last
    assert (ended.outcome, ended.reason) == ("lost", "the driver has gone")


def test_what_was_cancelled_while_it_waited_was_no_batch() -> None:
    kept, run = ledger(), run_of()
    kept.begin(run, is_part=False)
    assert kept.end(run, "cancelled", 1.0, 0.0) is None
    facts = kept.facts(2.0, ready=True, reason=None)
    assert (
        facts.running,
        facts.last,
        sum(facts.jobs.values()),
        sum(facts.job_durations.counts),
    ) == ((), (), 0, 0)


def test_the_last_twenty_batches_are_kept_the_newest_last() -> None:
    kept = ledger()
    for start in range(0, 250, 10):
        run = run_of(start)
        kept.begin(run, is_part=False)
        run.started = 0.0
        kept.end(run, "ok", 1.0, 0.0)
    last = kept.facts(2.0, ready=True, reason=None).last
    assert len(last) == KEPT_BATCHES == 20
    assert [one.ranges[0] for one in (last[0], last[-1])] == [
        "clicks-0 [50, 60)",
        "clicks-0 [240, 250)",
    ]


# -- the share that bars show

STAGES = {
    "jobs that begin while others run": [
        (0, 0),
        (1, 5),
        (5, 5),
        (5, 10),
        (9, 10),
        (10, 110),
        (110, 110),
    ],
    "stages that count until their job has ended, and were skipped": [
        (0, 4),
        (3, 4),
        (4, 12),
        (8, 12),
        (8, 8),
    ],
    "a stage that failed and begins again": [(8, 10), (3, 10), (0, 10), (9, 10)],
    "an executor that is lost with what it had": [(8, 8), (8, 16), (12, 16), (5, 16), (16, 16)],
    "stages that Spark has forgotten": [(900, 1000), (400, 500), (10, 100)],
    "a session that knows nothing yet, after a wait for a schema": [(2, 2), (0, 0), (1, 2)],
}


def look_of(done: int, tasks: int) -> JobProgress:
    return JobProgress(tasks=tasks, tasks_done=done)


@pytest.mark.parametrize("looks", STAGES.values(), ids=STAGES.keys())
def test_the_share_of_a_run_never_falls_and_is_full_only_when_it_has_ended_well(
    looks: list[tuple[int, int]],
) -> None:
    kept, run = ledger(), run_of()
    kept.begin(run, is_part=False)
    run.started = 0.0
    shares = []
    for done, tasks in looks:
        run.look(look_of(done, tasks))
        shares.append(shown(kept, run))
    assert shares == sorted(shares)
    assert 0.0 < shares[-1] < 1.0
    ended = kept.end(run, "ok", 1.0, 0.0)
    assert ended is not None
    assert ended.share == 1.0


def shown(kept: Ledger, run: BatchRun) -> float:
    """The share of a running batch, as its bar in the terminal has it."""
    facts = kept.facts(1.0, ready=True, reason=None)
    at = [one.id for one in facts.running].index(run.id)
    return share_of_bar(facts, at)


_looks = st.builds(
    JobProgress,
    stages=st.integers(0, 9),
    stages_done=st.integers(0, 9),
    tasks=st.integers(0, 100),
    tasks_done=st.integers(0, 120),
    tasks_active=st.integers(0, 9),
    tasks_failed=st.integers(0, 9),
)


@given(st.lists(_looks))
def test_no_sequence_of_looks_makes_a_share_fall_or_fills_a_bar_before_the_end(
    looks: list[JobProgress],
) -> None:
    share = 0.0
    for look in looks:
        after = share_after(share, look)
        assert share <= after < 1.0
        assert after >= min(look.tasks_done, look.tasks) / (look.tasks + 1)
        share = after


class Runs:
    """Two batches at once, each of which may be run again, or split into parts that run one after
    the other.
    """

    def __init__(self) -> None:
        self.kept = ledger()
        self.current: list[BatchRun] = []
        self.attempts = 0
        for _ in range(2):
            self.start()

    def start(self) -> None:
        self.attempts += 1
        run = run_of(10 * self.attempts, self.attempts)
        self.kept.begin(run, is_part=False)
        run.started = 0.0
        self.current.append(run)

    def end(self, at: int, outcome: Any) -> None:
        self.kept.end(self.current.pop(at), outcome, 1.0, 0.0)
        self.start()


_steps = st.tuples(
    st.integers(0, 1), st.one_of(_looks, st.sampled_from(["ok", "failed", "cancelled", "lost"]))
)


@given(st.lists(_steps, max_size=40))
def test_several_batches_and_their_attempts_and_parts_each_have_a_share_that_never_falls(
    steps: list[tuple[int, Any]],
) -> None:
    runs, before = Runs(), dict[str, float]()
    for at, step in steps:
        if isinstance(step, JobProgress):
            runs.current[at].look(step)
        else:
            runs.end(at, step)
        facts = runs.kept.facts(1.0, ready=True, reason=None)
        for one in facts.running:
            assert one.share is not None
            assert before.get(one.id, 0.0) <= one.share < 1.0
            before[one.id] = one.share
        for one in facts.last:
            assert (one.share == 1.0) == (one.outcome == "ok")
            if one.outcome == "ok":
                assert (one.tasks_done, one.stages_done) == (one.tasks, one.stages)


def test_another_attempt_begins_with_an_empty_bar() -> None:
    kept, first, second = ledger(), run_of(), run_of(attempt=2)
    kept.begin(first, is_part=False)
    first.look(look_of(9, 10))
    failed = kept.end(first, "lost", 1.0, 0.0)
    assert failed is None or failed.share != 1.0
    kept.begin(second, is_part=False)
    assert shown(kept, second) == 0.0


def test_a_batch_that_ended_well_has_all_its_tasks_done_though_the_last_look_missed_some() -> None:
    kept, run = ledger(), run_of()
    kept.begin(run, is_part=False)
    run.started = 0.0
    run.look(JobProgress(stages=2, stages_done=1, tasks=5, tasks_done=4, tasks_active=1))
    ended = kept.end(run, "ok", 1.0, 0.0)
    assert ended is not None
    assert (ended.tasks_done, ended.tasks, ended.stages_done, ended.tasks_active) == (5, 5, 2, 0)
    # A look that comes late.
    run.look(JobProgress(stages=3, stages_done=1, tasks=10, tasks_done=4))
    (later,) = kept.facts(2.0, ready=True, reason=None).last
    assert (later.tasks_done, later.tasks, later.share) == (10, 10, 1.0)


@pytest.mark.parametrize("outcome", ["failed", "cancelled", "lost"])
def test_a_batch_that_did_not_end_well_keeps_what_was_done(outcome: Any) -> None:
    kept, run = ledger(), run_of()
    kept.begin(run, is_part=False)
    run.started = 0.0
    run.look(look_of(4, 7))
    ended = kept.end(run, outcome, 1.0, 0.0)
    assert ended is not None
    assert (ended.tasks_done, ended.tasks, ended.share) == (4, 7, 0.5)
