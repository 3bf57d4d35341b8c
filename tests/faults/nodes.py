"""What is done to three nodes: frozen, killed, restarted, told to be slow. As in
:mod:`tests.faults.wire`.
"""

from __future__ import annotations

import asyncio
import time

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from tests.faults.driver import Life, Load
from tests.faults.processes import PROC, cpu_s
from tests.faults.wire import NODES, Bite, Choice, Fault, Play, a_leader, every_node
from tests.harness.kafka import KafkaCluster

# A node that is silent for that long, with a machine that is busy, leads nothing any more.
FENCED_AFTER_S = 10.0


def frozen(seconds: float, nodes: Choice = a_leader) -> Fault:
    """The process of a node is stopped in its tracks, and goes on.

    Where that takes longer than the others wait for it, its partitions move, and are written to
    where they are then.
    """

    async def fault(play: Play) -> Bite:
        (node,) = nodes(play)
        play.victims.append(node)
        process = play.cluster.nodes[node].process
        assert process is not None
        play.cluster.freeze(node)
        over, moved = time.monotonic() + seconds, 0
        try:
            if seconds > FENCED_AFTER_S:
                moved = await _written_to_where_they_moved(play, node, over)
            await asyncio.sleep(over - time.monotonic())
            state = (PROC / str(process.pid) / "stat").read_text().rpartition(")")[2].split()[0]
        finally:
            play.cluster.thaw(node)
        stopped = {"processes stopped": float(state == "T")}
        return (
            {**stopped, "records written where it led": moved}
            if seconds > FENCED_AFTER_S
            else stopped
        )

    return fault


async def _written_to_where_they_moved(play: Play, node: int, over: float) -> int:
    """Write to the partitions of a node that is frozen, past it, until its time is over; returns
    how many records.
    """
    scenario = play.scenario
    others = ",".join(address for one, address in play.cluster.internal.items() if one != node)
    led = [tp for tp in scenario.partitions if play.leads[tp] == node]
    while node in (await leaders(others, scenario.topic) or {0: node}).values():
        assert time.monotonic() < over, "no partition has moved"
        await asyncio.sleep(0.2)
    async with Load(others, led) as more:
        async with more.flowing(20):
            await asyncio.sleep(over - time.monotonic() - 1)
        scenario.load.sent |= more.sent
        scenario.load.maybe |= more.maybe
    return len(more.sent)


async def leaders(bootstrap: str, topic: str) -> dict[int, int]:
    """partition number -> the node that leads it; empty where nobody tells within 2 s."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap, request_timeout_ms=2000)
    try:
        async with asyncio.timeout(3):
            await admin.start()
            (described,) = await admin.describe_topics([topic])
    except (KafkaError, TimeoutError):
        return {}
    finally:
        await admin.close()
    return {one["partition"]: one["leader"] for one in described["partitions"]}


def away(
    seconds: float, nodes: Choice = every_node, *, most_cpu: float, most_lines: float
) -> Fault:
    """Nodes are killed, and started again; a member may use so much of a core, and write so many
    lines a second.
    """

    async def fault(play: Play) -> Bite:
        victims = sorted(nodes(play))
        play.victims.extend(victims)
        # Or there would be a mountain to work off.
        play.scenario.load.is_paused = True
        for node in victims:
            await asyncio.to_thread(play.cluster.kill, node)
        lives, began = (play.left, play.right), time.monotonic()
        before = [(cpu_s(life.pid), _lines(life)) for life in lives]
        await asyncio.sleep(seconds)
        took = time.monotonic() - began
        for life, (used, lines) in zip(lives, before, strict=True):
            assert (await life.health("/health/live"))[0] == 200
            assert cpu_s(life.pid) - used <= most_cpu * took, f"{life.name} spins"
            assert _lines(life) - lines <= most_lines * took, (
                f"{life.name} floods its log: {life.tail()}"
            )
        gone = [number for number, one in play.cluster.nodes.items() if one.pid is None]
        assert gone == victims
        for node in victims:
            play.cluster.nodes[node].start()
        for one in play.cluster.nodes.values():
            await asyncio.to_thread(one.wait_until_ready, len(NODES))
        play.scenario.load.is_paused = False
        return {"nodes gone": len(gone)}

    return fault


def all_but_the_coordinator(play: Play) -> list[int]:
    """Those that are left have no quorum of controllers, and no commit is replicated enough to be
    stored.
    """
    return [node for node in NODES if node != play.coordinator]


def _lines(life: Life) -> int:
    return life.log.read_bytes().count(b"\n")


def rolled(rounds: int, *, clean: bool) -> Fault:
    """Each node is restarted in turn, *rounds* times."""

    async def fault(play: Play) -> Bite:
        gone = 0
        for _ in range(rounds):
            for node in NODES:
                play.victims.append(node)
                before = play.cluster.nodes[node].pid
                await asyncio.to_thread(
                    play.cluster.terminate if clean else play.cluster.kill, node
                )
                await asyncio.to_thread(play.cluster.start_node, node)
                gone += before is not None and play.cluster.nodes[node].pid != before
                await in_sync(play, node)
        assert gone == rounds * len(NODES)
        return {"nodes restarted": gone}

    return fault


async def in_sync(play: Play, node: int) -> None:
    """Wait until a node is in sync again for every partition of the topic: two at once must never
    be away.
    """
    admin = AIOKafkaAdminClient(bootstrap_servers=play.cluster.past_the_proxies)
    await admin.start()
    try:
        async with asyncio.timeout(60):
            while True:
                (topic,) = await admin.describe_topics([play.scenario.topic])
                if all(node in one["isr"] for one in topic["partitions"]):
                    return
                await asyncio.sleep(0.2)
    finally:
        await admin.close()


def throttled(seconds: float) -> Fault:
    """Quotas of the brokers: each client may read 20 KB/s from a node, and use little of its
    time.
    """

    async def fault(play: Play) -> Bite:
        play.victims.extend(NODES)
        await asyncio.to_thread(
            _quotas, play.cluster, "--add-config", "consumer_byte_rate=20000,request_percentage=2"
        )
        try:
            await asyncio.sleep(seconds)
            behind = len(play.scenario.load.sent) - play.scenario.done()
        finally:
            await asyncio.to_thread(
                _quotas, play.cluster, "--delete-config", "consumer_byte_rate,request_percentage"
            )
        return {"records behind": behind}

    return fault


def _quotas(cluster: KafkaCluster, *change: str) -> None:
    entity = ("--entity-type", "clients", "--entity-default")
    cluster.tool("org.apache.kafka.tools.ConfigCommand", "--alter", *change, *entity)
