"""Chains under faults: some hundred seeds, and what the checker says of chains that are broken by
hand.
"""

from __future__ import annotations

from collections import Counter

import pytest

from reactive_kafka import Committed, TopicPartition
from reactive_kafka.broker.memory.memory_positions import CommitEntry
from reactive_kafka.testing import FakeClock, MemoryBroker
from tests.simulation.chain import EXPECTED, Chain, run_chain

SEEDS, CHUNK = 200, 25


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_every_promise_of_a_chain_is_kept_under_the_faults_of_these_seeds(first: int) -> None:
    for seed in range(first, first + CHUNK):
        assert run_chain(seed).violations == [], (
            f"again: python -m tests.simulation --mode chain --seed {seed}"
        )


def test_every_kind_of_fault_happens() -> None:
    bites = Counter[str]()
    for seed in range(60):
        bites.update(run_chain(seed).bites)
    assert [what for what in EXPECTED if not bites[what]] == []


def test_the_same_seed_is_the_same_run() -> None:
    first, second = run_chain(5), run_chain(5)
    assert (first.bites, first.calls) == (second.bites, second.calls)


def chain_with(*results: bytes, dead: tuple[bytes, ...] = (), is_exact: bool = True) -> Chain:
    """A chain that is over, in which the records 1 and 2 of one key have these results."""
    chain = Chain(0)
    chain.kind, chain.is_exact, chain.keys = "records", is_exact, {b"1": b"k", b"2": b"k"}
    chain.broker = MemoryBroker(FakeClock(), partitions=1)
    for topic, values in (("orders", (b"1", b"2")), ("invoices", results), ("dead", dead)):
        chain.broker.create_topic(topic, 1)
        for value in values:
            chain.broker.produce(topic, value, key=b"k")
    chain._judge()
    return chain


@pytest.mark.parametrize(
    ("results", "dead", "is_exact", "rules"),
    [
        ((b"1", b"2"), (), True, []),
        ((b"1", b"2", b"2"), (), False, []),
        ((b"1",), (b"2",), True, []),
        ((b"1",), (), True, ["C2"]),
        ((b"1",), (), False, ["C2"]),
        ((b"1", b"2", b"2"), (), True, ["C2"]),
        ((b"1", b"2", b"5"), (), True, ["C2"]),
        ((b"2", b"1"), (), True, ["C3"]),
        ((b"2", b"1"), (), False, ["C3"]),
        ((b"1", b"2", b"1"), (), True, ["C2", "C3"]),
        ((b"1", b"2"), (b"2",), True, ["C4"]),
        ((b"1",), (b"2", b"2"), True, ["C4"]),
        ((b"1",), (b"2", b"2"), False, []),
    ],
)
def test_the_checker_finds_what_is_broken(
    results: tuple[bytes, ...], dead: tuple[bytes, ...], is_exact: bool, rules: list[str]
) -> None:
    violations = chain_with(*results, dead=dead, is_exact=is_exact).violations
    assert sorted({one.partition(",")[0] for one in violations}) == rules


@pytest.mark.parametrize(
    ("dead", "rules"),
    [((b"5",), []), ((), ["C6"]), ((b"5", b"2"), ["C6"])],
)
def test_the_checker_finds_a_refused_output_that_fails_no_message_or_its_neighbour(
    dead: tuple[bytes, ...], rules: list[str]
) -> None:
    chain = chain_with(b"1", b"2", is_exact=False)
    chain.kind, chain.names_origins, chain.raises = "batch", True, 0.0
    chain.keys[b"5"] = b"k"
    for value in dead:
        chain.broker.produce("dead", value, key=b"k")
    chain.violations.clear()
    chain._judge()
    assert sorted({one.partition(",")[0] for one in chain.violations}) == rules


def test_the_checker_finds_a_position_that_passes_a_record_without_its_results() -> None:
    chain = chain_with(b"1", is_exact=False)
    chain.violations.clear()
    for position, broken in ((1, 0), (2, 1)):
        chain._committed(
            CommitEntry(0.0, "member", 1, {TopicPartition("orders", 0): Committed(position)})
        )
        assert len(chain.violations) == broken
    assert [one[:2] for one in chain.violations] == ["C1"]
