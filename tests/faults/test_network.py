"""A proxy between two members and a three-node Kafka hurts what passes; the checker judges what
they did.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.cases import Case, assert_kept, play
from tests.faults.nodes import all_but_the_coordinator, away, frozen, rolled, throttled
from tests.faults.wire import (
    ProxiedCluster,
    a_leader,
    cut,
    flapping,
    forgotten,
    refused,
    reset_again_and_again,
    slow,
    the_coordinator,
)

pytestmark = pytest.mark.kafka

QUICK = [
    Case(row="B2", name="answers cut for 3 s", fault=cut(3, requests=False)),
    Case(row="B5", name="cut from one leader for 3 s", fault=cut(3, a_leader), waits_s=3),
    Case(row="B6", name="connections reset for 5 s", fault=reset_again_and_again(5), both=True),
]
CUTS = [
    Case(row="B1", name="cut for 3 s", fault=cut(3), both=True),
    Case(row="B1", name="cut for 15 s", fault=cut(15), outlives_session=True, unready=True),
    Case(
        row="B1",
        name="both cut for 15 s",
        fault=cut(15),
        both=True,
        outlives_session=True,
        unready=True,
    ),
    Case(
        row="B1",
        name="cut for 120 s",
        fault=cut(120),
        outlives_session=True,
        unready=True,
        recovers_s=30,
    ),
    Case(
        row="B2",
        name="answers cut for 15 s",
        fault=cut(15, requests=False),
        outlives_session=None,
        unready=True,
    ),
    Case(
        row="B2",
        name="answers cut for 120 s",
        fault=cut(120, requests=False),
        outlives_session=True,
        unready=True,
        recovers_s=30,
    ),
    Case(row="B3", name="requests cut for 3 s", fault=cut(3, answers=False)),
    Case(
        row="B3",
        name="requests cut for 15 s",
        fault=cut(15, answers=False),
        outlives_session=True,
        unready=True,
    ),
    Case(
        row="B3",
        name="requests cut for 120 s",
        fault=cut(120, answers=False),
        outlives_session=True,
        unready=True,
        recovers_s=30,
    ),
    Case(
        row="B4",
        name="cut from the coordinator for 15 s",
        fault=cut(15, the_coordinator),
        away_from_coordinator=True,
        outlives_session=True,
    ),
    Case(
        row="B4",
        name="both cut from the coordinator for 12 s",
        fault=cut(12, the_coordinator),
        both=True,
        away_from_coordinator=True,
        outlives_session=True,
    ),
    Case(
        row="B5",
        name="cut from one leader for 15 s",
        fault=cut(15, a_leader),
        waits_s=3,
        unready=True,
    ),
]
BAD_WIRES = [
    Case(row="B6", name="connections reset for 20 s", fault=reset_again_and_again(20), both=True),
    Case(
        row="B6",
        name="one node refuses for 20 s",
        fault=refused(20, a_leader, most_a_second=4),
        waits_s=3,
        unready=True,
    ),
    Case(row="B7", name="latency of 0.3 s", fault=slow(15, delay_s=0.3), both=True),
    Case(
        row="B7",
        name="latency of 2 s",
        fault=slow(30, delay_s=2),
        both=True,
        session_s=30,
        recovers_s=30,
    ),
    Case(
        row="B7",
        name="latency over the session",
        fault=slow(20, delay_s=8),
        outlives_session=True,
        recovers_s=40,
    ),
    Case(
        row="B8",
        name="100 KB/s",
        fault=slow(15, bytes_per_s=100_000),
        both=True,
        padded=True,
        recovers_s=30,
    ),
    Case(
        row="B8",
        name="zero window for 4 s",
        fault=cut(4, a_leader, requests=False),
        both=True,
        padded=True,
    ),
    Case(row="J10", name="quotas", fault=throttled(15), both=True, padded=True, recovers_s=40),
    Case(row="B9", name="5 % loss", fault=slow(15, loss=0.05), both=True),
    Case(row="B9", name="half-open connections", fault=forgotten(15), both=True),
    Case(row="B9", name="flapping each second", fault=flapping(8), both=True),
]
NODES_AWAY = [
    Case(row="A3", name="a leader frozen for 2 s", fault=frozen(2), both=True),
    Case(
        row="A3",
        name="a leader frozen for 20 s",
        fault=frozen(20),
        both=True,
        waits_s=8,
        moves_s=12,
    ),
    Case(
        row="A3",
        name="a leader frozen for 90 s",
        fault=frozen(90),
        both=True,
        waits_s=8,
        moves_s=12,
    ),
    Case(
        row="A3",
        name="the coordinator frozen for 20 s",
        fault=frozen(20, the_coordinator),
        both=True,
        session_s=15,
    ),
    Case(
        row="A6",
        name="all nodes away for 60 s",
        fault=away(60, most_cpu=0.25, most_lines=5),
        both=True,
        outlives_session=None,
        unready=True,
        recovers_s=40,
        confirm_s=150,
    ),
    Case(
        row="A8",
        name="two of three nodes away for 20 s",
        fault=away(20, all_but_the_coordinator, most_cpu=0.25, most_lines=8),
        both=True,
        outlives_session=None,
        unready=True,
        recovers_s=40,
        confirm_s=150,
    ),
    Case(
        row="A4",
        name="nodes restarted cleanly, 5 rounds",
        fault=rolled(5, clean=True),
        both=True,
        session_s=15,
    ),
    Case(
        row="A5",
        name="nodes killed in turn, 5 rounds",
        fault=rolled(5, clean=False),
        both=True,
        session_s=15,
    ),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[ProxiedCluster]:
    """Three nodes behind proxies, for tests that hurt them."""
    with ProxiedCluster() as cluster:
        yield cluster


@pytest.fixture
def nodes(cluster: ProxiedCluster) -> ProxiedCluster:
    """The same, all of them running."""
    cluster.revive()
    return cluster


@pytest.mark.parametrize("case", QUICK, ids=str)
async def test_a_short_fault_costs_neither_a_rebalance_nor_a_repeated_record(
    nodes: ProxiedCluster, tmp_path: Path, case: Case
) -> None:
    """Rows B2, B5, B6 of the faults."""
    assert_kept(case, await play(case, nodes, tmp_path))


@pytest.mark.long_faults
@pytest.mark.parametrize("case", CUTS, ids=str)
async def test_a_member_that_is_cut_off_works_until_its_session_ends_and_not_beyond(
    nodes: ProxiedCluster, tmp_path: Path, case: Case
) -> None:
    """Rows B1, B2, B3, B4, B5 of the faults."""
    assert_kept(case, await play(case, nodes, tmp_path))


@pytest.mark.long_faults
@pytest.mark.parametrize("case", BAD_WIRES, ids=str)
async def test_bad_connections_lose_and_repeat_nothing(
    nodes: ProxiedCluster, tmp_path: Path, case: Case
) -> None:
    """Rows B6, B7, B8, B9, J10 of the faults."""
    assert_kept(case, await play(case, nodes, tmp_path))


@pytest.mark.long_faults
@pytest.mark.parametrize("case", NODES_AWAY, ids=str)
async def test_nodes_that_freeze_or_go_are_sat_out(
    nodes: ProxiedCluster, tmp_path: Path, case: Case
) -> None:
    """Rows A3, A4, A5, A6, A8 of the faults."""
    assert_kept(case, await play(case, nodes, tmp_path))
