"""How much of each partition a fetch may bring."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.broker.consumer.fetching.fetch_size import ANSWERS, SMALL, FetchSize
from reactive_kafka.broker.consumer.fetching.read_partition import FetchedPiece, ReadPartition
from tests.broker.consumer.fetching.parts import TextReader, partition

SIZES = st.integers(1, 20_000_000)


def held(sizes: Sequence[int], nodes: int = 1, paused: Collection[int] = ()) -> list[ReadPartition]:
    """Partitions of which pieces of these sizes are held."""
    states = []
    for number, size in enumerate(sizes):
        state = ReadPartition(partition(number), number % nodes)
        state.piece = FetchedPiece(TextReader(0, b""), size, 0.0)
        state.is_paused = number in paused
        states.append(state)
    return states


@given(
    sizes=st.lists(SIZES, min_size=ANSWERS, max_size=50),
    whole=SIZES,
    answer=SIZES,
    nodes=st.integers(1, 5),
    batch=SIZES,
    data=st.data(),
)
def test_a_portion_is_whole_if_little_is_held_and_otherwise_as_small_as_batches_are(
    sizes: list[int], whole: int, answer: int, nodes: int, batch: int, data: st.DataObject
) -> None:
    fetch_size = FetchSize(whole, answer)
    fetch_size.note_first_batch(batch)
    paused = data.draw(st.sets(st.integers(0, len(sizes))))
    counts = {number: size for number, size in enumerate(sizes) if number not in paused}
    most = ANSWERS * answer * len({number % nodes for number in counts})
    asked = fetch_size.bytes_per_partition(held(sizes, nodes, paused))
    assert asked == (whole if sum(counts.values()) <= most else min(whole, max(SMALL, batch)))


def test_a_thousand_partitions_take_no_more_than_a_hundred_megabytes() -> None:
    fetch_size = FetchSize(1_048_576, 8_000_000)
    sizes: list[int] = []
    while len(sizes) < 1000:
        portion = fetch_size.bytes_per_partition(held(sizes))
        # An answer.
        sizes += [portion] * min(1000 - len(sizes), max(1, 8_000_000 // portion))
        fetch_size.note_first_batch(16_384)
    assert 32_000_000 < sum(sizes) < 104_000_000


def test_one_large_batch_among_small_ones_is_forgotten() -> None:
    fetch_size = FetchSize(1_048_576, 8_000_000)
    much = held([1_048_576] * 40)
    fetch_size.note_first_batch(1_000_000)
    assert fetch_size.bytes_per_partition(much) == 1_000_000
    for _ in range(25):
        fetch_size.note_first_batch(16_384)
    assert fetch_size.bytes_per_partition(much) == SMALL


@given(whole=SIZES, batch=SIZES, answers=st.integers(0, 3))
def test_if_a_broker_cuts_batches_short_portions_grow_until_they_are_whole(
    whole: int, batch: int, answers: int
) -> None:
    fetch_size = FetchSize(whole, max(1, whole // 5))
    much = held([whole] * 9)
    rounds = 0
    while (asked := fetch_size.bytes_per_partition(much)) < batch and fetch_size.enlarge(asked):
        rounds += 1
        # Of other nodes meanwhile.
        for _ in range(answers):
            fetch_size.note_first_batch(1_000)
    assert asked >= min(whole, batch)
    # From 64 kB on, mostly twice as much each time.
    assert rounds <= 30
