"""How much of each partition a fetch may bring."""

from __future__ import annotations

from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.broker.aiokafka.fetched.fetch_size import ANSWERS, SMALL, FetchSize

SIZES = st.integers(1, 20_000_000)


def client(
    held: list[int],
    answer: int = 8_000_000,
    nodes: int = 1,
    paused: Collection[int] = (),
    gone: Collection[int] = (),
) -> tuple[Any, Any]:
    """A client's fetcher that holds pieces of these sizes, and the error of another partition; and
    its assignment.
    """
    pieces = [
        SimpleNamespace(_records=SimpleNamespace(size_in_bytes=lambda size=size: size))
        for size in held
    ]
    found = [SimpleNamespace(_partition_records=piece) for piece in pieces]
    cluster = SimpleNamespace(leader_for_partition=lambda number: number % nodes)
    fetcher = SimpleNamespace(
        _records=dict(enumerate([*found, SimpleNamespace()])),
        _fetch_max_bytes=answer,
        _client=SimpleNamespace(cluster=cluster),
    )
    states = {
        number: SimpleNamespace(_paused=number in paused)
        for number in range(len(held) + 1)
        if number not in gone
    }
    return fetcher, SimpleNamespace(_tp_state=states)


@given(
    held=st.lists(SIZES, min_size=ANSWERS, max_size=50),
    whole=SIZES,
    answer=SIZES,
    nodes=st.integers(1, 5),
    batch=SIZES,
    data=st.data(),
)
def test_a_portion_is_whole_where_little_is_held_and_else_small_but_for_batches_that_are_not(
    held: list[int], whole: int, answer: int, nodes: int, batch: int, data: st.DataObject
) -> None:
    fetch_size = FetchSize(whole)
    fetch_size.note_first_batch(batch)
    paused, gone = (data.draw(st.sets(st.integers(0, len(held)))) for _ in range(2))
    counts = {number: size for number, size in enumerate(held) if number not in paused | gone}
    most = ANSWERS * answer * len({number % nodes for number in counts})
    asked = fetch_size.bytes_per_partition(*client(held, answer, nodes, paused, gone))
    assert asked == (whole if sum(counts.values()) <= most else min(whole, max(SMALL, batch)))


def test_a_thousand_partitions_take_no_more_than_a_hundred_megabytes() -> None:
    fetch_size, held = FetchSize(1_048_576), list[int]()
    while len(held) < 1000:
        portion = fetch_size.bytes_per_partition(*client(held))
        # An answer.
        held += [portion] * min(1000 - len(held), max(1, 8_000_000 // portion))
        fetch_size.note_first_batch(16_384)
    assert 32_000_000 < sum(held) < 104_000_000


def test_one_large_batch_among_small_ones_is_forgotten() -> None:
    fetch_size, much = FetchSize(1_048_576), client([1_048_576] * 40)
    fetch_size.note_first_batch(1_000_000)
    assert fetch_size.bytes_per_partition(*much) == 1_000_000
    for _ in range(25):
        fetch_size.note_first_batch(16_384)
    assert fetch_size.bytes_per_partition(*much) == SMALL


@given(whole=SIZES, batch=SIZES, answers=st.integers(0, 3))
def test_where_a_broker_cuts_batches_short_portions_grow_until_they_are_whole(
    whole: int, batch: int, answers: int
) -> None:
    fetch_size, rounds = FetchSize(whole), 0
    much = client([whole] * 9, answer=max(1, whole // 5))
    while (asked := fetch_size.bytes_per_partition(*much)) < batch and fetch_size.enlarge(asked):
        rounds += 1
        # Of other nodes meanwhile.
        for _ in range(answers):
            fetch_size.note_first_batch(1_000)
    assert asked >= min(whole, batch)
    # From 64 kB on, mostly twice as much each time.
    assert rounds <= 30
