"""The partitions that a consumer owns: which are read, and where."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.errors import FatalBrokerError, NotOwnerError
from tests.broker.consumer.fetching.parts import ONE, OTHER, Reads, partition

NUMBERS = st.sets(st.integers(0, 3), max_size=4)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["hold", "start_at", "pause", "resume", "stop_reading", "release"]), NUMBERS
    ),
    max_size=12,
)


@given(STEPS)
def test_only_started_partitions_that_are_neither_paused_nor_leaving_are_read(
    steps: list[tuple[str, set[int]]],
) -> None:
    reads = Reads()
    owned: set[int] = set()
    started: set[int] = set()
    paused: set[int] = set()
    leaving: set[int] = set()
    for step, numbers in steps:
        partitions = [partition(number) for number in numbers]
        before = reads.version
        match step:
            case "hold":
                reads.hold(partitions)
                owned |= numbers
            case "start_at" if numbers <= owned:
                reads.start_at(dict.fromkeys(partitions, 5))
                started |= numbers
            case "start_at":
                with pytest.raises(NotOwnerError, match="not assigned"):
                    reads.start_at(dict.fromkeys(partitions, 5))
                continue
            case "pause":
                reads.pause(partitions)
                paused |= numbers & started
            case "resume":
                reads.resume(partitions)
                paused -= numbers
            case "stop_reading":
                reads.stop_reading(partitions)
                leaving |= numbers & owned
            case "release":
                reads.release(partitions)
                for kept in (owned, started, paused, leaving):
                    kept -= numbers
        read = {one.partition for one, state in reads.states.items() if state.is_flowing}
        assert read == started - paused - leaving
        assert {one.partition for one in reads.positions()} == started
        assert reads.version > before or step in ("pause", "resume")


def test_owning_a_partition_again_changes_nothing_of_it() -> None:
    reads = Reads(1)
    reads.keep_some(0)
    state = reads.state(0)
    reads.hold([partition(0), partition(1)])
    assert reads.state(0) is state
    assert state.piece is not None


@pytest.mark.parametrize("change", ["start_at", "release"])
def test_a_seek_and_a_release_drop_what_was_fetched_of_the_partition_alone(change: str) -> None:
    reads = Reads(3)
    reads.keep_some(0)
    reads.keep_some(1)
    reads.fail(reads.state(2), FatalBrokerError("no right"))
    partitions = [partition(0), partition(2)]
    if change == "start_at":
        reads.start_at(dict.fromkeys(partitions, 9))
    else:
        reads.release(partitions)
    assert list(reads.held) == [partition(1)]
    assert not reads.failed


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9)), max_size=12))
def test_what_is_left_is_known_without_asking_each_reader(takes: list[tuple[int, int]]) -> None:
    reads = Reads(3)
    for number in range(3):
        reads.keep_some(number, content=bytes(5 + number))
    for number, count in takes:
        state = reads.state(number)
        if state.piece is None:
            continue
        state.piece.reader.take(count)
        reads.note_taken(state.piece)
        if count == 9:
            reads.drop(state)
        pieces = [held.piece for held in reads.held.values() if held.piece is not None]
        assert reads.left_bytes == sum(piece.reader.left_bytes for piece in pieces)


def test_a_pause_keeps_what_was_fetched() -> None:
    reads = Reads(1)
    reads.keep_some(0)
    reads.pause([partition(0)])
    reads.resume([partition(0)])
    assert list(reads.held) == [partition(0)]


def test_each_change_makes_the_fetcher_look_and_a_pause_of_a_paused_partition_is_none() -> None:
    reads = Reads(1)
    reads.pause([partition(0)])
    before = reads.changes
    reads.pause([partition(0)])
    assert reads.changes == before
    reads.resume([partition(0)])
    assert reads.changes == before + 1


def test_new_metadata_moves_partitions_to_their_leaders_and_away_from_nodes_that_are_gone() -> None:
    reads = Reads(2)
    for number in range(2):
        reads.state(number).replica = OTHER
        reads.state(number).replica_until = 9.0
    reads.leaders[partition(0)] = 3
    reads.find_leaders(lambda node: node != OTHER)
    assert [reads.state(number).node(0.0) for number in range(2)] == [3, ONE]


@pytest.mark.parametrize(
    ("stable", "position", "is_held_up"),
    [(7, 7, True), (7, 9, True), (8, 7, False), (-1, 7, False), (None, 7, False)],
)
def test_a_partition_is_held_up_if_only_an_open_transaction_is_left_to_read(
    stable: int | None, position: int, is_held_up: bool
) -> None:
    reads = Reads(1)
    state = reads.state(0)
    state.position = position
    state.last_stable_offset = stable
    state.high_watermark = 10
    assert reads.held_up() == ({partition(0): (stable, 10)} if is_held_up else {})
    # Its offsets may be of any age.
    reads.pause([partition(0)])
    assert reads.held_up() == {}


def test_nothing_is_owned_after_the_end() -> None:
    reads = Reads(2)
    reads.keep_some(0)
    reads.let_go()
    assert not reads.states
    assert not reads.held
    with pytest.raises(NotOwnerError):
        reads.check_owned([partition(0)])
