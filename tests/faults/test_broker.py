"""The broker is away: at the start, and in the middle of the work."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.checker import Disruption, Rules, check, report
from tests.faults.driver import until
from tests.faults.scenario import COMMIT_INTERVAL_S, Scenario, member, playing
from tests.harness.kafka import KafkaCluster

pytestmark = pytest.mark.kafka

LATENCY = ("--latency", "0.001", "0.03")


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    """A broker that these tests may kill."""
    with KafkaCluster() as cluster:
        yield cluster


@pytest.fixture
def broker(cluster: KafkaCluster) -> KafkaCluster:
    """The same, running."""
    if cluster.nodes[1].pid is None:
        cluster.start_node(1)
    return cluster


async def caught_up(scenario: Scenario) -> None:
    await until(scenario.all_is_committed, 30, f"all is committed, now {scenario.observer.latest}")


async def test_a_service_starts_without_its_broker_and_is_ready_once_it_is_there(
    broker: KafkaCluster, tmp_path: Path
) -> None:
    async with playing(broker.bootstrap_servers, tmp_path) as scenario:
        await asyncio.to_thread(broker.kill)
        life = member(
            scenario, "service", options=LATENCY, channel='ordering = "unordered"'
        ).start()
        await life.probe_shows("/health/live", 200, 10)
        # Two seconds in which nothing can change.
        for _ in range(20):
            assert (await life.health("/health/live"))[0] == 200
            assert (await life.health("/health/ready"))[0] == 503
            assert (await life.health("/health/started"))[0] == 503
            await asyncio.sleep(0.1)

        early = member(scenario, "early").start()
        await early.probe_shows("/health/live", 200, 10)
        early.send(signal.SIGTERM)
        # Nothing to drain, nobody to say goodbye to.
        assert await early.exited(5) == 0

        await asyncio.to_thread(broker.start_node, 1)
        await life.ready(15)
        async with scenario.load.flowing(per_second=300):
            await until(lambda: scenario.done() > 300, 15, f"records are handled: {life.tail()}")
        await caught_up(scenario)
        assert report(check(await scenario.evidence(), Rules())) == ""


async def test_a_broker_killed_under_load_costs_readiness_and_no_record(
    broker: KafkaCluster, tmp_path: Path
) -> None:
    """Row A5 of the faults."""
    async with playing(broker.bootstrap_servers, tmp_path) as scenario:
        lives = [
            member(scenario, name, options=LATENCY, channel='ordering = "unordered"').start()
            for name in ("left", "right")
        ]
        async with scenario.load.flowing(per_second=400):
            for life in lives:
                await life.ready()
            await until(lambda: scenario.done() > 1000, 20, "the service is under way")
            killed_at = time.time()
            await asyncio.to_thread(broker.kill)
            for life in lives:
                await life.probe_shows("/health/ready", 503, 15)
                assert (await life.health("/health/live"))[0] == 200
            failures_while_away = scenario.observer.failures

            await asyncio.to_thread(broker.start_node, 1)
            for life in lives:
                await life.ready(30)
            back_at, before = time.time(), scenario.done()
            await until(lambda: scenario.done() > before + 1000, 20, "the work goes on")
            for life in lives:
                assert (await life.health("/health/live"))[0] == 200
        await caught_up(scenario)
        scenario.disruptions += [
            Disruption(life.name, killed_at, back_at + COMMIT_INTERVAL_S) for life in lives
        ]
        evidence = await scenario.evidence()

    assert report(check(evidence, Rules(duplicate_window_s=COMMIT_INTERVAL_S + 0.53))) == ""
    assert failures_while_away > 0, "the observer did not notice that the broker was away"
    assert len(evidence.sent) > 2000


async def test_a_service_stops_in_time_though_its_broker_is_away(
    broker: KafkaCluster, tmp_path: Path
) -> None:
    """Row D1 of the faults."""
    async with playing(broker.bootstrap_servers, tmp_path) as scenario:
        channel = 'ordering = "unordered"\ndrain_timeout = "2s"'
        life = member(scenario, "service", options=LATENCY, channel=channel).start()
        async with scenario.load.flowing(per_second=300):
            await life.ready()
            await until(lambda: life.count("end") > 300, 20, "the service is under way")
        await asyncio.to_thread(broker.kill)
        life.send(signal.SIGTERM)
        assert await life.exited(2 + 5) == 0
        # For the observer, who still wants to know.
        await asyncio.to_thread(broker.start_node, 1)
