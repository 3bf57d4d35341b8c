"""Exactly once between two topics, whatever is killed or frozen; and that this would be noticed if
it were not so.

``python -m tests.faults.exactly_once --records 100000 --kills 20`` is the same for longer.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.exactly_once import CLUSTER, Plan, play
from tests.harness.kafka import KafkaCluster

pytestmark = pytest.mark.kafka

RECORDS_AND_KILLS = [
    (10_000, 4),
    pytest.param(20_000, 10, marks=pytest.mark.long_faults),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    """Three nodes that these tests may kill."""
    with KafkaCluster(3, properties=CLUSTER) as cluster:
        yield cluster


@pytest.mark.parametrize(("records", "kills"), RECORDS_AND_KILLS)
async def test_each_order_has_one_result_though_members_a_broker_and_a_frozen_process_fail(
    cluster: KafkaCluster, tmp_path: Path, records: int, kills: int
) -> None:
    outcome = await play(cluster, tmp_path, Plan(records, kills, seed=time.time_ns() % 1_000_000))
    told = f"\n{outcome}"
    print(told)
    assert outcome.is_exact, told
    assert len(outcome.killed) == kills, told
    assert outcome.cut_off > 0, told
    assert outcome.outages, told
    (frozen,) = outcome.frozen
    assert outcome.aborted[frozen.first.by] > 0, told
    (instead,) = outcome.instead[frozen.first.id]
    assert instead != frozen.first.by, told
    assert "partitions lost" in frozen.told, frozen.told


async def test_without_a_transactional_id_the_same_kills_leave_results_twice_and_lose_none(
    cluster: KafkaCluster, tmp_path: Path
) -> None:
    plan = Plan(5_000, 3, time.time_ns() % 1_000_000, transactional=False, freezes=0)
    outcome = await play(cluster, tmp_path, plan)
    told = f"\n{outcome}"
    print(told)
    assert not outcome.is_exact, told
    assert outcome.repeated, told
    assert not outcome.lost, told
    assert not outcome.unknown, told
    assert not outcome.behind, told
    assert not outcome.aborted, told
