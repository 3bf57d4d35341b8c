"""Some acts of the soak, and the mistakes that it must find in a service that makes them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.checker import Commit, report
from tests.faults.driver import until
from tests.faults.slopes import GROWTHS, Growth
from tests.faults.soak import SESSION_S, Plan, play
from tests.faults.soak_ground import staged
from tests.faults.soak_service import BUGS
from tests.faults.wire import ProxiedCluster

pytestmark = pytest.mark.kafka

# A process that has just begun makes many things for the first time.
YOUNG = {what: Growth(30, 0) for what in GROWTHS}
SHORT = ("kill -9", "member frozen", "cut briefly")
QUICK = (*SHORT, "coordinator killed", "connections reset")


@pytest.fixture(scope="module")
def cluster() -> Iterator[ProxiedCluster]:
    """Three nodes behind proxies, for tests that hurt them."""
    with ProxiedCluster() as cluster:
        yield cluster


@pytest.mark.parametrize(
    ("acts", "seconds"), [(SHORT, 30), pytest.param(QUICK, 50, marks=pytest.mark.long_faults)]
)
async def test_quick_acts_of_the_soak_break_no_promise(
    cluster: ProxiedCluster, tmp_path: Path, acts: tuple[str, ...], seconds: int
) -> None:
    """Rows A2, B1, B6, C3, C4 of the faults."""
    plan = Plan(seconds=seconds, seed=1, per_second=150, pause_s=(0, 1), acts=acts, growths=YOUNG)
    outcome = await play(cluster, tmp_path, plan)
    assert report(outcome.violations) == ""
    assert {act.name for act in outcome.acts} == set(acts)
    summary = outcome.summary()
    assert summary["records"] > 100 * seconds
    assert summary["repeated"] > 0, "neither the kill nor the frozen member cost anything"
    assert summary["dead letters"] > 0
    assert outcome.asked > 100
    assert sum(isinstance(entry, Commit) for entry in outcome.verdict.group) > 100
    assert summary["rebalances"] > len(("three members join", "a kill", "a frozen member"))


async def test_a_service_tells_its_tasks_also_while_there_is_nothing_to_handle(
    cluster: ProxiedCluster, tmp_path: Path
) -> None:
    """Else one that waits for a dead member's session shows too little of a short window."""
    async with staged(cluster.past_the_proxies, tmp_path, SESSION_S, len(cluster.nodes)) as ground:
        life = ground.member("idle", ground.bootstrap).start()
        await life.ready(60)
        await until(
            lambda: sum(event.kind == "tasks" for event in life.events) > 1,
            10,
            "it tells them each second",
        )


async def test_a_service_that_commits_ahead_loses_and_leaks_is_condemned(
    cluster: ProxiedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row C3 of the faults."""
    monkeypatch.setenv(BUGS, "ahead,lose,leak")
    outcome = await play(
        cluster, tmp_path, Plan(seconds=15, seed=1, per_second=300, acts=(), growths=YOUNG)
    )
    found = {violation.invariant: violation.text for violation in outcome.violations}
    assert {"I1", "I2", "I8", "I9"} <= found.keys(), report(outcome.violations)
    assert "was never handled" in found["I2"]
    texts = report(outcome.violations, each=100)
    assert all(f"{what} grew by" in texts for what in ("memory_mb", "descriptors", "tasks")), texts
    assert found.keys() <= {"I1", "I2", "I6", "I8", "I9"}, (
        "it is accused of something that it has not done"
    )
