"""Every commit and failure strategy under every fault, judged from outside; ``-s`` prints what each
went through.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.matrix import ONE_NODE, THREE_NODES, Rows, table, verdict
from tests.faults.strategies import STRATEGIES
from tests.harness.kafka import KafkaCluster

pytestmark = pytest.mark.kafka

GRACEFUL = ("SIGTERM", "a member joins and leaves")
REPEATS = ("kill -9",)
# A broker that is killed and away costs more than one that is restarted.
LONG = ("broker restarted", "broker away for 30 s")
READS_ALL_AGAIN = "never"
DELIVERS_FAILED_AGAIN = ("failing", "retrying")


@pytest.fixture(scope="module")
def one_node() -> Iterator[KafkaCluster]:
    """A broker that these tests may kill."""
    with KafkaCluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def three_nodes() -> Iterator[KafkaCluster]:
    """Three of them."""
    with KafkaCluster(3) as cluster:
        yield cluster


def assert_promises_held(fault: str, rows: Rows) -> None:
    """No strategy broke a promise, and each had something to keep it with."""
    print(f"\n{table({fault: rows})}")
    assert verdict(rows) == ""
    assert {row.strategy for row in rows} == set(STRATEGIES)
    for row in rows:
        strategy = STRATEGIES[row.strategy]
        assert row.sent > 100, row
        assert row.lost == 0 or not strategy.safe, row
        assert row.letters > 0 or not strategy.dead_letters, row


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(fault, marks=pytest.mark.long_faults) if fault in LONG else fault
        for fault in ONE_NODE
    ],
)
async def test_every_strategy_keeps_its_promises(
    one_node: KafkaCluster, tmp_path: Path, fault: str
) -> None:
    """Rows A6, C1, C3, E8, H-3 of the faults."""
    # A failed test has left it dead.
    if one_node.nodes[1].pid is None:
        one_node.start_node(1)
    rows = await ONE_NODE[fault](one_node, tmp_path, STRATEGIES)
    assert_promises_held(fault, rows)
    for row in rows:
        if fault in GRACEFUL and row.strategy not in (READS_ALL_AGAIN, *DELIVERS_FAILED_AGAIN):
            assert row.repeated == 0 or not STRATEGIES[row.strategy].safe, row
    # One alone may be killed just after it has committed.
    if fault in REPEATS:
        assert any(row.repeated for row in rows if row.strategy != READS_ALL_AGAIN), rows
        assert all(row.repeated for row in rows if row.strategy == READS_ALL_AGAIN), rows


@pytest.mark.parametrize("fault", THREE_NODES)
async def test_every_strategy_outlives_a_node(
    three_nodes: KafkaCluster, tmp_path: Path, fault: str
) -> None:
    """Rows A1, A2 of the faults."""
    for number, node in three_nodes.nodes.items():
        if node.pid is None:
            three_nodes.start_node(number)
    assert_promises_held(fault, await THREE_NODES[fault](three_nodes, tmp_path, STRATEGIES))
