"""What an engine plans while some of its partitions are about to go and the others stay."""

from __future__ import annotations

from reactive_kafka import TopicPartition
from reactive_kafka.commit.commit_engine import CommitEngine
from reactive_kafka.commit.strategy import Progress, ThrottledCommits
from reactive_kafka.partitions.partition import Partition
from reactive_kafka.partitions.table import PartitionTable
from reactive_kafka.tracking.tracker import OffsetTracker
from reactive_kafka.tracking.unknown_commits import REPEAT_AFTER_S

NOW = 100.0

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Asked(ThrottledCommits):
    """Remembers which partitions it was told to be the last commit of."""

    def __init__(self) -> None:
        super().__init__(5.0)
        self.is_last: dict[TopicPartition, bool] = {}

    def position(self, progress: Progress, now: float) -> int | None:
        self.is_last[progress.partition] = progress.is_last
        return super().position(progress, now)


def engine_with(*names: TopicPartition, strategy: ThrottledCommits | None = None) -> CommitEngine:
    """An engine of partitions that are read, each with one record that is settled."""
    table = PartitionTable()
    table.assign(1, names)
    for one in table:
        tracker = OffsetTracker(one.id, 0)
        table.start(one, tracker)
        table.move(one, "read")
        tracker.deliver(range(1), 1)
        assert tracker.settle(0)
    return CommitEngine(
        ThrottledCommits(5.0) if strategy is None else strategy, table, lambda partition: False
    )


def of(engine: CommitEngine, name: TopicPartition) -> Partition:
    one = engine.table.get(name)
    assert one is not None
    return one


def test_a_commit_is_the_last_of_the_partitions_that_go_only() -> None:
    strategy = Asked()
    engine = engine_with(A, B, strategy=strategy)
    plan = engine.plan(NOW, is_last=True, going=[A])
    assert plan is not None
    assert plan.offsets.keys() == {A, B}
    assert strategy.is_last == {A: True, B: False}


def test_a_last_commit_repeats_before_its_time_what_goes_only() -> None:
    engine = engine_with(A, B)
    lost = engine.plan(NOW)
    assert lost is not None
    engine.fail(lost, is_unknown=True)
    stored = engine.plan(NOW)
    assert stored is not None
    engine.confirm(stored, NOW)
    assert engine.plan(NOW) is None
    last = engine.plan(NOW, is_last=True, going=[A])
    assert last is not None
    assert last.repeated == last.offsets.keys() == {A}
    engine.confirm(last, NOW)
    assert engine.repeat_at == NOW + REPEAT_AFTER_S


def test_an_answer_is_void_for_the_request_that_was_in_flight_only() -> None:
    engine = engine_with(A)
    one = of(engine, A)
    before = engine.plan(NOW)
    assert before is not None
    # Another member's row.
    engine.table.drop(one)
    tracker = OffsetTracker(A, 0)
    engine.table.start(one, tracker)
    engine.table.move(one, "read")
    assert engine.confirm(before, NOW) == []
    assert one.commits.stored is None
    tracker.deliver(range(1), 1)
    assert tracker.settle(0)
    after = engine.plan(NOW)
    assert after is not None
    assert engine.confirm(after, NOW) == [(tracker, 1)]
    assert one.user_metadata == after.offsets[A]
