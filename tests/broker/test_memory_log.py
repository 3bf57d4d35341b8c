"""A partition's log in memory keeps offsets as Kafka does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.broker.memory.log import PartitionLog


def log_with(count: int) -> PartitionLog:
    log = PartitionLog()
    for number in range(count):
        log.append(1, None, str(number).encode())
    return log


def test_reading_stops_at_the_wanted_number_and_says_where_to_go_on() -> None:
    log = log_with(5)
    records, position = log.read(1, 2)
    assert [record.offset for record in records] == [1, 2]
    assert position == 3


def test_the_position_passes_a_gap_behind_the_records_taken() -> None:
    log = log_with(3)
    log.append_markers(2)
    log.append(1, None, b"after")
    assert log.read(0, 3)[1] == 5
    assert log.read(5, 9)[1] == 6


def test_a_compacted_record_leaves_its_offset_as_a_gap() -> None:
    log = log_with(4)
    log.remove([1, 3])
    records, position = log.read(0, 9)
    assert [record.offset for record in records] == [0, 2]
    assert (position, log.end) == (4, 4)


def test_deleting_moves_the_start_and_never_back() -> None:
    log = log_with(4)
    log.delete_before(3)
    log.delete_before(1)
    assert (log.start, [record.offset for record in log.records]) == (3, [3])
    with pytest.raises(ValueError, match="past the end"):
        log.delete_before(5)


def test_truncation_gives_offsets_out_again() -> None:
    log = log_with(4)
    log.truncate(2)
    assert log.append(1, None, b"new").offset == 2


@given(st.lists(st.sampled_from(["record", "marker"])), st.sets(st.integers(0, 30)), st.integers(1, 5))
def test_reading_on_and_on_brings_every_record_once_and_ends_at_the_log_end(
    steps: list[str], compacted: set[int], most: int
) -> None:
    log = PartitionLog()
    for step in steps:
        if step == "record":
            log.append(1, None, b"")
        else:
            log.append_markers(1)
    log.remove(compacted)
    position, seen = 0, []
    while position < log.end:
        records, position = log.read(position, most)
        seen += [record.offset for record in records]
        assert position > (seen[-1] if seen else -1)
    assert seen == [record.offset for record in log.records]
    assert seen == [number for number, step in enumerate(steps) if step == "record" and number not in compacted]


@given(st.lists(st.none() | st.integers(0, 9)), st.integers(0, 10))
def test_the_offset_at_a_time_is_that_of_the_first_record_not_older(times: list[int | None], wanted: int) -> None:
    log = PartitionLog()
    for time in times:
        log.append(time, None, b"")
    found = log.offset_at(wanted)
    young = [offset for offset, time in enumerate(times) if time is not None and time >= wanted]
    assert found == (young[0] if young else None)
