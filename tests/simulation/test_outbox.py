"""Outboxes under faults: some hundred seeds."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.outbox import EXPECTED, run_outbox

SEEDS, CHUNK = 100, 25


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_rows_and_events_are_the_same_set_under_the_faults_of_these_seeds(first: int) -> None:
    for seed in range(first, first + CHUNK):
        assert run_outbox(seed).violations == [], (
            f"again: python -m tests.simulation --mode outbox --seed {seed}"
        )


def test_every_kind_of_fault_happens() -> None:
    bites = Counter[str]()
    for seed in range(80):
        bites.update(run_outbox(seed).bites)
    assert [what for what in EXPECTED if not bites[what]] == []
