"""Every commit and failure strategy under every fault, on real Kafka: ``python -m
tests.faults.matrix``.

One process runs a channel for each strategy (:mod:`tests.faults.strategies`), so that one fault
hits all of them. Each scenario shows that its fault happened, and returns what every strategy went
through.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Literal, NamedTuple

from aiokafka.admin import AIOKafkaAdminClient

from tests.faults.checker import Disruption, report
from tests.faults.driver import Life, until
from tests.faults.observer import read_group_logs
from tests.faults.owners import rebalances
from tests.faults.stage import COMMIT_TAKES_S, PER_CHANNEL, Row, not_sooner_than, ready, staged
from tests.faults.strategies import COMMIT_INTERVAL_S, STRATEGIES, Strategy
from tests.harness.kafka import KafkaCluster

LATE_S = COMMIT_INTERVAL_S + COMMIT_TAKES_S
Rows = list[Row]


def rate(strategies: Mapping[str, Strategy]) -> float:
    return PER_CHANNEL * len(strategies)


async def killed(
    cluster: KafkaCluster, folder: Path, strategies: Mapping[str, Strategy] = STRATEGIES
) -> Rows:
    """kill -9 of the only member, and another start."""
    async with staged(cluster.bootstrap_servers, folder, strategies) as stage:
        service = stage.member("service")
        async with stage.load.flowing(rate(strategies)):
            first = service.start()
            await ready(first)
            await stage.busy()
            await until(first.freezes_at_work, 10, "handlers are at work")
            stage.fault_at = first.send(signal.SIGKILL)
            assert await first.exited(5) == -signal.SIGKILL
            assert first.in_flight, "the kill hit nobody"
            stage.cuts.append(Disruption(first.name, stage.fault_at, time.time()))
            second = service.start()
            await ready(second)
            await stage.busy(since=stage.fault_at)
        await stage.finish()
        return await stage.verdicts()


async def stopped(
    cluster: KafkaCluster, folder: Path, strategies: Mapping[str, Strategy] = STRATEGIES
) -> Rows:
    """SIGTERM of the only member under load, and another start."""
    async with staged(cluster.bootstrap_servers, folder, strategies) as stage:
        service = stage.member("service")
        async with stage.load.flowing(rate(strategies)):
            first = service.start()
            await ready(first)
            await stage.busy()
            await until(first.freezes_at_work, 10, "handlers are at work")
            stage.fault_at = first.send(signal.SIGTERM)
            first.send(signal.SIGCONT)
            assert await first.exited(15) == 0, first.tail()
            ended = [
                event for event in first.events if event.kind == "end" and event.t > stage.fault_at
            ]
            assert ended, "it had nothing to drain"
            second = service.start()
            await ready(second)
            await stage.busy(since=stage.fault_at)
        await stage.finish()
        return await stage.verdicts()


async def joined(
    cluster: KafkaCluster, folder: Path, strategies: Mapping[str, Strategy] = STRATEGIES
) -> Rows:
    """A second member joins under load, works, and leaves with SIGTERM."""
    async with staged(cluster.bootstrap_servers, folder, strategies) as stage:
        left, right = stage.member("left"), stage.member("right")
        async with stage.load.flowing(rate(strategies)):
            await ready(left.start())
            await stage.busy()
            stage.fault_at = time.time()
            await ready(right.start())
            for strategy in strategies.values():
                await _works_on(right.life, strategy.topic(stage.run))
            left_at = right.life.send(signal.SIGTERM)
            assert await right.life.exited(15) == 0, right.life.tail()
            await stage.busy(since=left_at)
        await stage.finish()
        rows = await stage.verdicts()
        for strategy in strategies.values():
            _assert_moved(left.life, right.life, strategy.topic(stage.run))
        return rows


async def _works_on(life: Life, topic: str) -> None:
    await until(
        lambda: any(event.kind == "end" and event.tp[0] == topic for event in life.events),
        40,
        f"{life.name} works on {topic}: {life.tail()}",
    )


def _assert_moved(left: Life, right: Life, topic: str) -> None:
    """Partitions of *topic* went from the one to the other."""
    revoked = {
        tp
        for event in left.events
        if event.kind == "revoked"
        for tp in event.partitions
        if tp[0] == topic
    }
    given = {
        tp
        for event in right.events
        if event.kind == "assigned"
        for tp in event.partitions
        if tp[0] == topic
    }
    assert revoked & given, f"no partition of {topic} moved"


async def restarted(
    cluster: KafkaCluster, folder: Path, strategies: Mapping[str, Strategy] = STRATEGIES
) -> Rows:
    """The broker is stopped with SIGTERM and started again."""
    return await _broker_gone(cluster, folder, strategies, away_s=0.0)


async def briefly_away(
    cluster: KafkaCluster, folder: Path, strategies: Mapping[str, Strategy] = STRATEGIES
) -> Rows:
    """The broker is killed, and is away for 8 s."""
    return await _broker_gone(cluster, folder, strategies, away_s=8.0)


async def long_away(
    cluster: KafkaCluster, folder: Path, strategies: Mapping[str, Strategy] = STRATEGIES
) -> Rows:
    """The broker is killed, and is away for 30 s."""
    return await _broker_gone(cluster, folder, strategies, away_s=30.0)


async def _broker_gone(
    cluster: KafkaCluster, folder: Path, strategies: Mapping[str, Strategy], away_s: float
) -> Rows:
    async with staged(cluster.bootstrap_servers, folder, strategies) as stage:
        service = stage.member("service")
        async with stage.load.flowing(rate(strategies)):
            life = service.start()
            await ready(life)
            await stage.busy()
            stage.fault_at = time.time()
            await asyncio.to_thread(cluster.kill if away_s else cluster.terminate)
            # Or there would be a mountain to work off.
            stage.load.is_paused = bool(away_s)
            assert cluster.nodes[1].pid is None
            if away_s:
                await life.probe_shows("/health/ready", 503, 15)
                await not_sooner_than(stage.fault_at + away_s)
            await life.probe_shows("/health/live", 200, 15)
            unanswered = {name: observer.failures for name, observer in stage.observers.items()}
            failed = await commits(life, "failed") + await commits(life, "unknown")
            await asyncio.to_thread(cluster.start_node, 1)
            stage.load.is_paused = False
            back_at = time.time()
            await stage.busy(since=back_at)
            stage.cuts.append(Disruption(life.name, stage.fault_at, time.time() + LATE_S))
        await stage.finish()
        assert all(unanswered.values()), (
            f"some observer did not notice that the broker was away: {unanswered}"
        )
        assert failed or not away_s, "no commit failed while the broker was away"
        return await stage.verdicts()


async def leader_killed(
    cluster: KafkaCluster, folder: Path, strategies: Mapping[str, Strategy] = STRATEGIES
) -> Rows:
    """Three nodes: one that leads partitions of every topic gets SIGKILL, and comes back."""
    return await _node_killed(cluster, folder, strategies, coordinators=False)


async def coordinator_killed(
    cluster: KafkaCluster, folder: Path, strategies: Mapping[str, Strategy] = STRATEGIES
) -> Rows:
    """Three nodes: the one that coordinates most of the groups gets SIGKILL, and comes back."""
    return await _node_killed(cluster, folder, strategies, coordinators=True)


async def _node_killed(
    cluster: KafkaCluster, folder: Path, strategies: Mapping[str, Strategy], coordinators: bool
) -> Rows:
    async with staged(
        cluster.bootstrap_servers, folder, strategies, replicas=3, session_ms=10_000
    ) as stage:
        service = stage.member("service")
        topics = [strategy.topic(stage.run) for strategy in strategies.values()]
        async with stage.load.flowing(rate(strategies)):
            life = service.start()
            await ready(life)
            await stage.busy()
            before = await cluster_view(stage.bootstrap, topics, topics)
            victim = _busiest(before.coordinators if coordinators else before.leaders)
            stage.fault_at = time.time()
            await asyncio.to_thread(cluster.kill, victim)
            assert cluster.nodes[victim].pid is None
            await stage.busy(since=stage.fault_at + 1.0)
            after = await cluster_view(stage.bootstrap, topics, topics)
            stage.outages.append(Disruption(life.name, stage.fault_at, time.time()))
            await asyncio.to_thread(cluster.start_node, victim)
            back_at = time.time()
            await stage.busy(since=back_at)
            worked_at = time.time()
        await stage.finish()
        moved = (
            _moved(before.coordinators, after.coordinators)
            if coordinators
            else _moved(before.leaders, after.leaders)
        )
        assert moved, f"node {victim} had nothing that could move: {before}"
        assert victim not in (after.coordinators if coordinators else after.leaders).values()
        logs = await read_group_logs(stage.bootstrap)
        for strategy in (one for one in strategies.values() if not one.restarts):
            assert rebalances(logs[strategy.topic(stage.run)], stage.fault_at, worked_at) == 0, (
                strategy.name
            )
        return await stage.verdicts()


class ClusterView(NamedTuple):
    """Who leads which partition and coordinates which group: its name -> node id."""

    leaders: Mapping[str, int]
    coordinators: Mapping[str, int]


async def cluster_view(bootstrap: str, topics: Sequence[str], groups: Sequence[str]) -> ClusterView:
    """As the cluster itself tells it."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        described = await admin.describe_topics(list(topics))
        leaders = {
            f"{topic['topic']}-{one['partition']}": one["leader"]
            for topic in described
            for one in topic["partitions"]
        }
        coordinators = {group: await admin.find_coordinator(group) for group in groups}
    finally:
        await admin.close()
    return ClusterView(leaders, coordinators)


def _busiest(held: Mapping[str, int]) -> int:
    nodes = list(held.values())
    return max(set(nodes), key=nodes.count)


def _moved(before: Mapping[str, int], after: Mapping[str, int]) -> list[str]:
    return [what for what, node in before.items() if after[what] != node]


async def commits(life: Life, outcome: str) -> float:
    """How many commit requests of all channels ended so, by the service's own metrics."""
    text = await life.metrics()
    wanted = [
        line
        for line in text.splitlines()
        if line.startswith("reactive_kafka_commits_total{") and f'outcome="{outcome}"' in line
    ]
    return sum(float(line.rpartition(" ")[2]) for line in wanted)


Scenario = Callable[[KafkaCluster, Path, Mapping[str, Strategy]], Awaitable[Rows]]
ONE_NODE: dict[str, Scenario] = {
    "kill -9": killed,
    "SIGTERM": stopped,
    "a member joins and leaves": joined,
    "broker restarted": restarted,
    "broker away for 8 s": briefly_away,
    "broker away for 30 s": long_away,
}
THREE_NODES: dict[str, Scenario] = {
    "partition leader killed": leader_killed,
    "group coordinator killed": coordinator_killed,
}


def table(seen: Mapping[str, Rows]) -> str:
    """What was seen, as Markdown: scenario by strategy."""
    lines = [
        "| fault | strategy | records | lost | repeated | dead letters | longest silence | next commit after |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for fault, rows in seen.items():
        for row in rows:
            counts = f"{row.sent} | {row.lost} | {row.repeated} | {row.letters or '-'}"
            lines.append(
                f"| {fault} | {row.strategy} | {counts} | {_s(row.silent_s)} | {_s(row.committed_s)} |"
            )
    return "\n".join(lines)


def _s(seconds: float) -> str:
    return "-" if seconds == inf else f"{seconds:.1f} s"


def verdict(rows: Rows) -> str:
    """Every broken promise, by strategy; empty when there is none."""
    return "\n".join(f"{row.strategy}:\n{report(row.violations)}" for row in rows if row.violations)


async def main(wanted: Sequence[str], channels: Sequence[str]) -> int:
    """Play the scenarios whose names begin with one of *wanted* (all), with these channels
    (all).
    """
    # That a broker is away is what we are here for.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    strategies = {name: one for name, one in STRATEGIES.items() if name in channels or not channels}
    seen: dict[str, Rows] = {}
    clusters: tuple[tuple[Literal[1, 3], dict[str, Scenario]], ...] = (
        (1, ONE_NODE),
        (3, THREE_NODES),
    )
    for nodes, scenarios in clusters:
        chosen = {
            name: one
            for name, one in scenarios.items()
            if not wanted or name.startswith(tuple(wanted))
        }
        if not chosen:
            continue
        with KafkaCluster(nodes) as cluster:
            for name, scenario in chosen.items():
                began = time.monotonic()
                folder = Path(tempfile.mkdtemp(prefix="matrix-"))
                seen[name] = await scenario(cluster, folder, strategies)
                print(f"{name}: {time.monotonic() - began:.1f} s, {folder}", file=sys.stderr)
                print(verdict(seen[name]), file=sys.stderr)
    print(table(seen))
    return 1 if any(verdict(rows) for rows in seen.values()) else 0


if __name__ == "__main__":
    faults = [argument for argument in sys.argv[1:] if not argument.startswith("channel=")]
    picked = [
        argument.removeprefix("channel=")
        for argument in sys.argv[1:]
        if argument.startswith("channel=")
    ]
    sys.exit(asyncio.run(main(faults, picked)))
