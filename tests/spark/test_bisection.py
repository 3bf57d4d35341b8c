"""Bisection: exactly the bad records are found, each record gets one verdict, and the number of
jobs is bounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from operator import itemgetter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka import TopicPartition
from reactive_kafka.errors import BadDataError, JobTimeoutError, OffloadError
from reactive_kafka.spark.batches.bisection import Bisection, jobs_for
from reactive_kafka.spark.batches.runs import RecordRun, run_of
from tests.delivery.values import lane_with
from tests.tracking.values import planned_range, tracker_of

A, B = TopicPartition("clicks", 0), TopicPartition("clicks", 1)
BAD = BadDataError("bad data")


def run_with(partition: TopicPartition, offsets: Sequence[int], planned: Any) -> RecordRun:
    """The records with these offsets, taken out of a lane as a range."""
    tracker = tracker_of(partition, planned.start)
    tracker.deliver(offsets, 0)
    lane = lane_with(tracker, range(len(offsets)))
    return run_of(lane.take(len(offsets)), planned)


def whole(
    partition: TopicPartition, offsets: Sequence[int], failed: tuple[tuple[int, int], ...] = ()
) -> RecordRun:
    return run_with(partition, offsets, planned_range(offsets[0], offsets[-1] + 1, failed))


def ranges(pieces: Sequence[RecordRun]) -> list[tuple[int, int]]:
    return [piece.planned[:2] for piece in pieces]


def found(bisection: Bisection) -> list[tuple[tuple[int, int], OffloadError]]:
    """What has been found bad or given up since the last look, with its reason."""
    return [(piece.planned[:2], reason) for piece, reason in bisection.take_found()]


def test_one_partition_is_halved_before_anything_runs() -> None:
    bisection = Bisection([whole(A, range(100, 110))], BAD)
    assert [(piece.planned, piece.first, piece.end) for piece in bisection.first_split] == [
        (planned_range(100, 105, ((100, 110),)), 0, 5),
        (planned_range(105, 110, ((100, 110),)), 5, 10),
    ]
    assert bisection.left == bisection.first_split
    assert bisection.next() == bisection.next() == bisection.first_split[0]


def test_several_partitions_run_alone_first_under_the_ranges_that_they_have() -> None:
    bisection = Bisection([whole(A, range(10)), whole(B, range(20))], BAD)
    assert bisection.first_split == ()
    assert [piece.planned for piece in bisection.left] == [
        planned_range(0, 10),
        planned_range(0, 20),
    ]
    assert bisection.worked().tracker.partition == A
    parts = bisection.failed(BAD, is_data_error=True)
    assert [part.planned for part in parts] == [
        planned_range(0, 10, ((0, 20),)),
        planned_range(10, 20, ((0, 20),)),
    ]
    assert bisection.left == parts


def test_a_partition_that_is_all_bad_is_searched_when_the_others_had_their_turn() -> None:
    c = TopicPartition("clicks", 2)
    bisection = Bisection(
        [whole(A, range(5_000)), whole(B, range(5_000)), whole(c, range(5_000))], BAD
    )
    ran, acked = play(bisection, {A: set(range(5_000)), c: {17}})
    assert [piece.tracker.partition for piece in ran[:3]] == [A, B, c]
    assert B in {piece.tracker.partition for piece in acked}
    assert bisection.jobs <= jobs_for(15_000, 3)[1]
    assert {piece.tracker.partition for piece, _ in bisection.take_found()} == {A, c}


def test_what_is_left_of_each_partition_stands_in_the_order_of_its_offsets() -> None:
    bisection = Bisection(
        [whole(A, range(4)), whole(B, range(4)), whole(TopicPartition("clicks", 2), range(4))], BAD
    )
    bisection.failed(BAD, is_data_error=True)
    assert ranges(bisection.left) == [(0, 4), (0, 4), (0, 2), (2, 4)]
    bisection.failed(BAD, is_data_error=True)
    bisection.failed(BAD, is_data_error=True)
    assert ranges(bisection.left) == [(0, 2), (2, 4)] * 3
    assert [piece.tracker.partition.partition for piece in bisection.left] == [0, 0, 1, 1, 2, 2]


def test_a_batch_of_one_record_needs_no_job() -> None:
    bisection = Bisection([whole(A, [7])], BAD)
    assert bisection.next() is None
    assert found(bisection) == [((7, 8), BAD)]
    assert (bisection.first_split, bisection.jobs, bisection.left) == ((), 0, ())


def test_a_cut_lies_at_a_record_and_gaps_belong_to_the_part_before_them() -> None:
    bisection = Bisection([run_with(A, [5, 9, 30, 31], planned_range(5, 50))], BAD)
    assert ranges(bisection.first_split) == [(5, 30), (30, 50)]


def test_what_failed_before_goes_on_holding_the_parts() -> None:
    bisection = Bisection([whole(A, range(4), ((0, 16), (0, 8)))], BAD)
    assert bisection.first_split[0].planned.failed == ((0, 16), (0, 8), (0, 4))


def test_an_error_that_is_not_the_datas_gives_its_part_up_and_goes_on_with_the_others() -> None:
    bisection = Bisection([whole(A, range(8))], BAD)
    timeout = JobTimeoutError("late")
    assert bisection.failed(timeout, is_data_error=False) == ()
    assert found(bisection) == [((0, 4), timeout)]
    assert ranges(bisection.left) == [(4, 8)]
    assert ranges([bisection.worked()]) == [(4, 8)]
    assert bisection.next() is None


def test_a_single_record_is_nacked_with_its_own_error_the_datas_or_not() -> None:
    bisection, timeout = Bisection([whole(A, range(2))], BAD), JobTimeoutError("late")
    bisection.failed(timeout, is_data_error=False)
    bisection.failed(BAD, is_data_error=True)
    assert found(bisection) == [((0, 1), timeout), ((1, 2), BAD)]


def test_where_no_job_is_left_the_rest_is_given_up_with_what_held_it_failed_with() -> None:
    bisection = Bisection([whole(A, range(8))], BAD, max_jobs=2)
    first, second = BadDataError("first"), BadDataError("second")
    assert ranges(bisection.failed(first, is_data_error=True)) == [(0, 2), (2, 4)]
    # No job is left for parts of it.
    assert bisection.failed(second, is_data_error=True) == ()
    assert found(bisection) == [((0, 2), second), ((2, 4), first), ((4, 8), BAD)]
    assert (bisection.next(), bisection.left) == (None, ())


def test_the_last_job_may_find_a_bad_record() -> None:
    bisection = Bisection([whole(A, range(2))], BAD, max_jobs=2)
    bisection.worked()
    bisection.failed(BAD, is_data_error=True)
    assert found(bisection) == [((1, 2), BAD)]


def test_verdicts_are_taken_once() -> None:
    bisection = Bisection([whole(A, range(2))], BAD)
    assert found(bisection) == []
    bisection.failed(BAD, is_data_error=True)
    assert found(bisection) == [((0, 1), BAD)]
    assert found(bisection) == []
    bisection.worked()
    assert found(bisection) == []


@pytest.mark.parametrize(
    ("records", "jobs"),
    [(1, (64, 64)), (50_000, (64, 320)), (65_537, (68, 340)), (1_000_000, (80, 400))],
)
def test_the_number_of_jobs_is_bounded(records: int, jobs: tuple[int, int]) -> None:
    assert jobs_for(records) == jobs
    assert Bisection([whole(A, range(records))], BAD).max_jobs == jobs[0]


def test_several_partitions_have_a_job_each_besides() -> None:
    assert jobs_for(50_000, partitions=1) == (64, 320)
    assert jobs_for(50_000, partitions=3) == (64, 323)


def test_more_jobs_are_granted_only_while_more_records_have_worked_than_were_found_bad() -> None:
    bisection = Bisection([whole(A, range(1_024))], BAD)
    few, many = jobs_for(1_024)
    assert bisection.max_jobs == few
    bisection.worked()
    assert bisection.max_jobs == many == 200
    play(bisection, {A: set(range(512, 1_024))})
    # The good half has worked, so that as many bad ones as there are jobs for were found alone.
    assert bisection.jobs == many
    assert 50 < sum(piece.records == 1 for piece, _ in bisection.take_found()) < many


def test_one_bad_record_in_50_000_takes_two_jobs_a_halving() -> None:
    bisection = Bisection([whole(A, range(50_000))], BAD)
    play(bisection, {A: {31_415}})
    assert found(bisection) == [((31_415, 31_416), BAD)]
    assert bisection.jobs <= 32


@pytest.mark.parametrize("bad", [[1_234, 5_678, 9_012], [0, 5_000, 9_999], [9_997, 9_998, 9_999]])
def test_three_bad_records_in_10_000_are_the_only_ones_that_are_found(bad: list[int]) -> None:
    bisection = Bisection([whole(A, range(10_000))], BAD)
    play(bisection, {A: set(bad)})
    assert found(bisection) == [((one, one + 1), BAD) for one in bad]
    assert bisection.jobs <= 2 * 3 * 14


def test_ten_bad_records_as_far_apart_as_can_be_are_found_in_50_000() -> None:
    bisection = Bisection([whole(A, range(50_000))], BAD)
    bad = [5_000 * number + 2_500 for number in range(10)]
    play(bisection, {A: set(bad)})
    assert found(bisection) == [((one, one + 1), BAD) for one in bad]
    assert jobs_for(50_000)[0] < bisection.jobs <= jobs_for(50_000)[1]


@st.composite
def few_bad(draw: st.DrawFn) -> tuple[list[RecordRun], dict[TopicPartition, set[int]]]:
    """Up to 50,000 records of one to four partitions, with one to ten bad ones anywhere, or close
    together.
    """
    sizes = draw(st.lists(st.integers(1, 12_500), min_size=1, max_size=4))
    if len(sizes) == 1:
        sizes = [draw(st.integers(1, 50_000))]
    total = sum(sizes)
    near = draw(st.integers(0, total - 1))
    anywhere = st.integers(0, total - 1)
    close = st.integers(near, min(near + 20, total - 1))
    at_bad = draw(st.sets(anywhere | close, min_size=1, max_size=10))
    wholes, bad, base = [], dict[TopicPartition, set[int]](), 0
    for number, size in enumerate(sizes):
        partition = TopicPartition("clicks", number)
        wholes.append(whole(partition, range(size)))
        bad[partition] = {at - base for at in at_bad if base <= at < base + size}
        base += size
    return wholes, bad


@given(few_bad())
def test_up_to_ten_bad_records_in_50_000_are_found_alone_within_the_bound(
    batch: tuple[list[RecordRun], dict[TopicPartition, set[int]]],
) -> None:
    wholes, bad = batch
    bisection = Bisection(wholes, BAD)
    play(bisection, bad)
    blamed = [(piece.tracker.partition, *piece.planned[:2]) for piece, _ in bisection.take_found()]
    # In the order of their offsets within a partition. One that is a single bad record is found as
    # a whole, before another that is searched. The sort is stable.
    blamed.sort(key=itemgetter(0))
    expected = [
        (partition, one, one + 1) for partition in sorted(bad) for one in sorted(bad[partition])
    ]
    assert blamed == expected
    assert bisection.jobs <= jobs_for(sum(one.records for one in wholes), len(wholes))[1]


@given(st.lists(st.integers(1, 10_000), min_size=1, max_size=5))
def test_a_batch_that_is_all_bad_ends_with_the_fewest_jobs(sizes: list[int]) -> None:
    wholes = [
        whole(TopicPartition("clicks", number), range(size)) for number, size in enumerate(sizes)
    ]
    bisection = Bisection(wholes, BAD)
    while bisection.next() is not None:
        bisection.failed(BAD, is_data_error=True)
    assert bisection.jobs <= jobs_for(sum(sizes))[0]
    assert sum(piece.records for piece, _ in bisection.take_found()) == sum(sizes)


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[RecordRun], dict[TopicPartition, set[int]]]:
    """Records of some partitions, with gaps, and which of them are bad: at least one."""
    wholes, bad = [], {}
    for number in range(draw(st.integers(1, 3))):
        at, offsets = draw(st.integers(0, 1000)), []
        for gap in draw(st.lists(st.sampled_from([0, 0, 0, 3]), min_size=1, max_size=40)):
            offsets.append(at + gap)
            at += gap + 1
        partition = TopicPartition("clicks", number)
        wholes.append(whole(partition, offsets))
        bad[partition] = draw(st.sets(st.sampled_from(offsets), max_size=6))
    if not any(bad.values()):
        bad[wholes[0].tracker.partition].add(wholes[0].offsets[0])
    return wholes, bad


def play(
    bisection: Bisection, bad: dict[TopicPartition, set[int]], hopeless: Sequence[int] = ()
) -> tuple[list[RecordRun], list[RecordRun]]:
    """Run it to the end: what holds a bad record fails, but the jobs numbered *hopeless* for
    another reason.

    Returns:
        The parts that ran, and those of them that worked.
    """
    ran, acked = [], []
    while (piece := bisection.next()) is not None:
        ran.append(piece)
        start, until, _ = piece.planned
        if bisection.jobs in hopeless:
            assert bisection.failed(JobTimeoutError("late"), is_data_error=False) == ()
        elif any(start <= offset < until for offset in bad.get(piece.tracker.partition, ())):
            bisection.failed(BAD, is_data_error=True)
        else:
            assert bisection.worked() == piece
            acked.append(piece)
    return ran, acked


@given(batches())
def test_with_enough_jobs_exactly_the_bad_records_are_found(
    batch: tuple[list[RecordRun], dict[TopicPartition, set[int]]],
) -> None:
    wholes, bad = batch
    bisection = Bisection(wholes, BAD, max_jobs=10_000)
    play(bisection, bad)
    nacked: dict[TopicPartition, set[int]] = {one.tracker.partition: set() for one in wholes}
    for piece, reason in bisection.take_found():
        assert (piece.records, reason) == (1, BAD)
        offsets = next(
            one.offsets for one in wholes if one.tracker.partition == piece.tracker.partition
        )
        nacked[piece.tracker.partition].add(offsets[piece.first])
    assert nacked == bad


@given(batches(), st.integers(0, 12), st.sets(st.integers(0, 12), max_size=3))
def test_each_record_gets_one_verdict_within_the_bound_and_in_order(
    batch: tuple[list[RecordRun], dict[TopicPartition, set[int]]], max_jobs: int, hopeless: set[int]
) -> None:
    wholes, bad = batch
    bisection = Bisection(wholes, BAD, max_jobs=max_jobs)
    ran, acked = play(bisection, bad, sorted(hopeless))
    assert bisection.jobs == len(ran) <= max_jobs
    given_up = [piece for piece, _ in bisection.take_found()]
    for one in wholes:
        judged = sorted(
            (
                piece
                for piece in (*acked, *given_up)
                if piece.tracker.partition == one.tracker.partition
            ),
            key=lambda piece: piece.first,
        )
        assert [judged[0].first, judged[-1].end] == [0, len(one.offsets)]
        assert [judged[0].planned.start, judged[-1].planned.until] == [*one.planned[:2]]
        for before, after in pairwise(judged):
            assert (before.end, before.planned.until) == (after.first, after.planned.start)
        for piece in judged:
            # It can be planned.
            assert planned_range(*piece.planned) == piece.planned
            assert set(one.offsets[piece.first : piece.end]) == {
                offset
                for offset in one.offsets
                if piece.planned.start <= offset < piece.planned.until
            }
        mine = [piece for piece in ran if piece.tracker.partition == one.tracker.partition]
        for before, after in pairwise(mine):
            is_inside = before.first <= after.first < after.end <= before.end
            assert is_inside or before.end <= after.first, "not in the order of the offsets"
            assert is_inside == (before.planned[:2] in after.planned.failed)
