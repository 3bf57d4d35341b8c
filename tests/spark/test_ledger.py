from reactive_kafka.records import TopicPartition
from reactive_kafka.spark.batches.batch import spark_range
from reactive_kafka.spark.batches.ledger import KEPT_BATCHES, BatchRun, JobProgress, Ledger


def run_of(start: int = 0, attempt: int = 1) -> BatchRun:
    return BatchRun((spark_range("g", TopicPartition("clicks", 0), start, start + 10),), 10, attempt, timeout_s=60.0)


def ledger() -> Ledger:
    return Ledger("clicks", "ranges")


def test_a_running_batch_is_shown_with_its_ranges_its_tasks_and_how_long_it_runs() -> None:
    kept, run = ledger(), run_of(attempt=2)
    kept.begin(run, is_part=False)
    (waiting,) = kept.facts(100.0, ready=False, reason="starting").running
    assert waiting.since_s == 0.0  # it waits for Spark
    run.started = 103.0
    run.progress = JobProgress(stages=3, stages_done=1, tasks=8, tasks_done=5, tasks_active=2, tasks_failed=1)
    facts = kept.facts(110.0, ready=True, reason=None)
    (running,) = facts.running
    assert (running.id, running.ranges, running.records, running.attempt) == (run.id, ("clicks-0 [0, 10)",), 10, 2)
    assert (running.since_s, running.timeout_s, running.outcome) == (7.0, 60.0, None)
    assert (running.stages, running.stages_done, running.tasks, running.tasks_done) == (3, 1, 8, 5)
    assert (running.tasks_active, running.tasks_failed) == (2, 1)
    assert facts.tasks == {"active": 2, "completed": 5, "failed": 1}
    assert (facts.mode, facts.batch_records, facts.last) == ("ranges", 10, ())


def test_tasks_are_those_of_all_running_batches() -> None:
    kept, one, other = ledger(), run_of(0), run_of(10)
    for run in (one, other):
        kept.begin(run, is_part=False)
        run.started = 0.0
        run.progress = JobProgress(tasks=8, tasks_done=5, tasks_active=2)
    assert kept.facts(1.0, ready=True, reason=None).tasks == {"active": 4, "completed": 10, "failed": 0}
    kept.end(one, "ok", 1.0, 0.0)
    assert kept.facts(1.0, ready=True, reason=None).tasks == {"active": 2, "completed": 5, "failed": 0}


def test_a_batch_that_has_ended_is_kept_with_its_outcome_and_counted() -> None:
    kept, run = ledger(), run_of()
    kept.begin(run, is_part=True)
    run.started = 5.0
    run.progress = JobProgress(tasks=8, tasks_done=8, tasks_active=1)  # the last look was a moment before the end
    run.rejected = 3
    ended = kept.end(run, "ok", 7.5, 1_700_000_000.0)
    facts = kept.facts(99.0, ready=True, reason=None)
    assert facts.last == (ended,)
    assert ended is not None
    assert (ended.outcome, ended.since_s, ended.ended_at, ended.rejected) == ("ok", 2.5, 1_700_000_000.0, 3)
    assert ended.tasks_active == 0
    assert (facts.jobs["ok"], facts.rejected, facts.bisection_jobs, facts.running) == (1, 3, 1, ())
    assert facts.job_durations.sum_s == 2.5


def test_a_look_at_its_tasks_that_comes_after_its_end_counts() -> None:
    kept, run = ledger(), run_of()
    kept.begin(run, is_part=False)
    run.started = 0.0
    kept.end(run, "ok", 1.0, 0.0)
    run.progress = JobProgress(tasks=8, tasks_done=8)
    (ended,) = kept.facts(50.0, ready=True, reason=None).last
    assert (ended.tasks_done, ended.since_s) == (8, 1.0)


def test_a_failure_says_why() -> None:
    kept, run = ledger(), run_of()
    kept.begin(run, is_part=False)
    run.reason = "the driver has gone"
    kept.end(run, "lost", 1.0, 0.0)  # before its function was called
    (ended,) = kept.facts(2.0, ready=False, reason="gone").last
    assert (ended.outcome, ended.reason) == ("lost", "the driver has gone")


def test_what_was_cancelled_while_it_waited_was_no_batch() -> None:
    kept, run = ledger(), run_of()
    kept.begin(run, is_part=False)
    assert kept.end(run, "cancelled", 1.0, 0.0) is None
    facts = kept.facts(2.0, ready=True, reason=None)
    assert (facts.running, facts.last, sum(facts.jobs.values()), sum(facts.job_durations.counts)) == ((), (), 0, 0)


def test_the_last_twenty_batches_are_kept_the_newest_last() -> None:
    kept = ledger()
    for start in range(0, 250, 10):
        run = run_of(start)
        kept.begin(run, is_part=False)
        run.started = 0.0
        kept.end(run, "ok", 1.0, 0.0)
    last = kept.facts(2.0, ready=True, reason=None).last
    assert len(last) == KEPT_BATCHES == 20
    assert [one.ranges[0] for one in (last[0], last[-1])] == ["clicks-0 [50, 60)", "clicks-0 [240, 250)"]
