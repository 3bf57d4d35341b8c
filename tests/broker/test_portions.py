"""How much of each partition a fetch may bring."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.broker.aiokafka.fetched.portions import ANSWERS, SMALL, Portions

SIZES = st.integers(1, 20_000_000)


def client(held: list[int], whole: int = 1_048_576, answer: int = 8_000_000) -> Any:
    """A client's fetcher that holds pieces of these sizes, and the error of another partition."""
    pieces = [SimpleNamespace(_records=SimpleNamespace(size_in_bytes=lambda size=size: size)) for size in held]
    found = [SimpleNamespace(_partition_records=piece) for piece in pieces]
    return SimpleNamespace(
        _records=dict(enumerate([*found, SimpleNamespace()])), _max_partition_fetch_bytes=whole, _fetch_max_bytes=answer
    )


@given(held=st.lists(SIZES, max_size=50), whole=SIZES, answer=SIZES, batches=st.lists(SIZES))
def test_a_portion_is_whole_where_little_is_held_and_else_small_but_for_batches_that_are_not(
    held: list[int], whole: int, answer: int, batches: list[int]
) -> None:
    portions = Portions()
    for size in batches:
        portions.came(size)
    pieces = [min(size, max([whole, *batches])) for size in held]  # none is larger
    asked = portions.of(client(pieces, whole, answer))
    if sum(pieces) <= ANSWERS * answer:
        assert asked == whole
    else:
        assert asked == min(whole, max([SMALL, *batches]))


def test_a_thousand_partitions_take_no_more_than_a_hundred_megabytes() -> None:
    portions, held = Portions(), list[int]()
    portions.came(16_384)
    while len(held) < 1000:
        portion = portions.of(client(held))
        held += [portion] * min(1000 - len(held), max(1, 8_000_000 // portion))  # an answer
    assert 32_000_000 < sum(held) < 104_000_000


@given(whole=SIZES, batch=SIZES)
def test_where_a_broker_cuts_batches_short_portions_grow_until_they_are_whole(whole: int, batch: int) -> None:
    portions, rounds = Portions(), 0
    much = client([whole] * 9, whole, answer=max(1, whole // 5))
    while (asked := portions.of(much)) < batch and portions.was_too_small(asked):
        rounds += 1
    assert asked >= min(whole, batch)
    assert rounds <= 10  # from 64 kB on twice as much each time
