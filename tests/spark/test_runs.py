"""Runs of records that go through Spark as one range: where they are, and how they come back with
their bytes.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Sequence
from typing import Any

from reactive_kafka import TopicPartition
from reactive_kafka.records import RawRecord
from reactive_kafka.spark.batches.columns import record_batch
from reactive_kafka.spark.batches.runs import RecordRun, give_back, run_of
from reactive_kafka.spark.channel import refetch as raw
from tests.delivery.values import lane_with
from tests.tracking.values import planned_range, tracker_of

from .records import CLICKS_0, Raw


def run_with(*pieces: Any, offsets: Sequence[int]) -> RecordRun:
    """A run of all records of a lane that has these pieces."""
    tracker = tracker_of(CLICKS_0, offsets[0])
    tracker.deliver(list(offsets), 0)
    return run_of(lane_with(tracker, *pieces).take(len(offsets)))


def columns(*offsets: int) -> Any:
    return record_batch(CLICKS_0, [Raw(offset, value=b"%d" % offset) for offset in offsets])


async def no_fetch(
    partition: TopicPartition, offsets: Collection[int]
) -> AsyncGenerator[Sequence[RawRecord]]:
    raise AssertionError("nothing is to be fetched")
    yield ()


async def found(
    run: RecordRun, indexes: Collection[int], fetch: raw.Fetch = no_fetch
) -> list[tuple[int, int]]:
    pieces = [piece async for piece in raw.raw_records(run, indexes, fetch)]
    return [(index, record.offset) for piece in pieces for index, record in piece]


def test_a_new_run_is_planned_up_to_its_last_record() -> None:
    run = run_with(columns(3, 5), columns(9), offsets=[3, 5, 9])
    assert (run.planned, run.records, list(run.offsets)) == (planned_range(3, 10), 3, [3, 5, 9])
    assert isinstance(run_with(range(3, 6), offsets=[3, 4, 5]).offsets, range)


def test_a_record_is_found_by_its_offset_unless_there_is_none_or_it_is_settled_and_forgotten() -> (
    None
):
    run = run_with(columns(3, 5), columns(9), offsets=[3, 5, 9])
    assert [run.index_of(offset) for offset in (2, 3, 4, 5, 9, 10)] == [None, 0, None, 1, 2, None]
    run.tracker.settle_range(0, 2)
    assert run.index_of(9) == 2


def test_a_part_of_a_run_has_the_slices_between_its_bounds() -> None:
    run = run_with(columns(3, 5), columns(9, 10), offsets=[3, 5, 9, 10])
    part = run.between(1, 3, planned_range(5, 10))
    assert (list(part.offsets), part.first, part.end) == ([5, 9], 1, 3)
    assert part.range_of("billing").id != run.range_of("billing").id


def test_a_run_that_is_given_back_is_taken_again_as_it_was() -> None:
    run = run_with(columns(3, 5), columns(9), offsets=[3, 5, 9])
    give_back(run.slices)
    assert run_of(run.lane.take(3)).slices == run.slices


async def test_records_come_out_of_the_columns_with_their_arrival_numbers() -> None:
    run = run_with(columns(3, 5), columns(9), offsets=[3, 5, 9])
    assert await found(run, [0, 1, 2]) == [(0, 3), (1, 5), (2, 9)]
    assert await found(run, [1, 2]) == [(1, 5), (2, 9)]


async def test_records_that_executors_have_read_are_fetched_and_those_that_are_gone_are_left_out() -> (
    None
):
    async def fetch(
        partition: TopicPartition, offsets: Collection[int]
    ) -> AsyncGenerator[Sequence[RawRecord]]:
        yield [Raw(offset) for offset in sorted(offsets) if offset != 5]

    run = run_with(range(3, 7), columns(7), offsets=[3, 4, 5, 6, 7])
    assert await found(run, [1, 2, 3, 4], fetch) == [(4, 7), (1, 4), (3, 6)]


async def test_many_records_come_in_pieces() -> None:
    many = range(raw.PIECE_RECORDS + 1)
    run = run_with(columns(*many), offsets=many)
    sizes = [len(piece) async for piece in raw.raw_records(run, range(run.records), no_fetch)]
    assert sizes == [raw.PIECE_RECORDS, 1]
