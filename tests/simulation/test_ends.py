"""Ends of reading under faults: some hundred seeds, and what the checker says of histories that are
broken by hand.
"""

from __future__ import annotations

from collections import Counter

import pytest

from reactive_kafka import Committed, TopicPartition
from reactive_kafka.broker.memory.memory_positions import CommitEntry
from reactive_kafka.testing import FakeClock, MemoryBroker
from tests.simulation.ends import EXPECTED, Ends, run_ends

SEEDS, CHUNK = 200, 25


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_every_promise_of_an_end_is_kept_under_the_faults_of_these_seeds(first: int) -> None:
    for seed in range(first, first + CHUNK):
        assert run_ends(seed).violations == [], (
            f"again: python -m tests.simulation --mode ends --seed {seed}"
        )


def test_every_kind_of_end_and_fault_happens() -> None:
    bites = Counter[str]()
    for seed in range(100):
        bites.update(run_ends(seed).bites)
    assert [what for what in EXPECTED if not bites[what]] == []


def test_the_same_seed_is_the_same_run() -> None:
    first, second = run_ends(5), run_ends(5)
    assert (first.bites, first.handled) == (second.bites, second.handled)


def ends_with(kind: str, *pairs: tuple[int, int]) -> Ends:
    """A run that is over, of a log with the offsets 0 to 9, of which the handler is through with 0
    to 4.
    """
    ends = Ends(0)
    ends.kind, ends.strategy = kind, "dead-letter-queue"
    ends.broker = MemoryBroker(FakeClock(), partitions=3)
    ends.broker.create_topic("orders", 3)
    for number in range(10):
        ends.broker.produce("orders", b"0-%d" % number, partition=0)
    ends.ends = {0: 10}
    if pairs:
        ends.pairs[0] = list(pairs)
    ends.wanted = {(0, offset) for offset in range(10) if ends.reads(0, offset)}
    ends.settled = {(0, offset) for offset in range(5)}
    return ends


def commit(ends: Ends, position: int) -> None:
    partition = TopicPartition("orders", 0)
    ends._committed(CommitEntry(0.0, "member", 1, {partition: Committed(position)}))
    ends.broker._state.group("billing").positions.stored[partition] = Committed(position)


@pytest.mark.parametrize(
    ("kind", "pairs", "position", "rules"),
    [
        ("group", (), 5, {"E1", "E5"}),
        ("group", (), 6, {"E1", "E3", "E5"}),
        ("ranges", ((0, 3),), 3, set()),
        ("ranges", ((0, 3),), 2, {"E5"}),
        ("ranges", ((0, 2), (3, 5)), 2, set()),
        ("ranges", ((0, 2), (2, 5)), 5, set()),
        ("ranges", ((0, 2), (3, 5)), 4, {"E4"}),
        ("ranges", ((0, 2), (6, 7)), 2, {"E1"}),
        ("ranges without a group", ((0, 2), (6, 7)), 0, {"E1"}),
    ],
)
def test_the_checker_finds_what_is_broken(
    kind: str, pairs: tuple[tuple[int, int], ...], position: int, rules: set[str]
) -> None:
    ends = ends_with(kind, *pairs)
    commit(ends, position)
    ends.judge()
    assert {one.partition(",")[0] for one in ends.violations} == rules


async def test_the_checker_finds_a_record_outside_of_the_ranges() -> None:
    ends = ends_with("ranges", (0, 3))

    class Outside:
        payload, topic = b"0-3", "orders"

    await ends._work(Outside())  # type: ignore[arg-type]
    assert [one[:2] for one in ends.violations] == ["E2"]
