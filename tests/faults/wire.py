"""Three Kafka nodes with a proxy before each, and what is done to connections, nodes and members there.

The services under test reach the nodes through the proxies; load and observer do not, so they go on whatever is cut.
Each fault heals itself, and returns what it bit: name -> how many, none of them 0.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from reactive_kafka.broker.local import free_ports
from tests.faults.driver import Life, Load
from tests.faults.history import Partition
from tests.faults.processes import PROC
from tests.faults.scenario import Scenario
from tests.harness.kafka import KafkaCluster
from tests.harness.proxy import HOST, Proxy

Bite = Mapping[str, float]
NODES = (1, 2, 3)
FENCED_AFTER_S = 10.0  # a node that is silent for that long, with a machine that is busy, leads nothing any more


class ProxiedCluster(KafkaCluster):
    """Three nodes that tell clients the address of a proxy, which :func:`proxied` runs while it is wanted."""

    def __init__(self, properties: Mapping[str, str] | None = None) -> None:
        super().__init__(3, properties=properties)
        self.advertised.update({node: f"{HOST}:{port}" for node, port in zip(NODES, free_ports(3), strict=True)})

    @property
    def past_the_proxies(self) -> str:
        """Bootstrap servers for those whom no fault of a proxy may hit."""
        return ",".join(self.internal.values())

    def revive(self) -> None:
        """Start again what a failed test has left dead."""
        for number, node in self.nodes.items():
            if node.pid is None:
                self.start_node(number)


@asynccontextmanager
async def proxied(cluster: ProxiedCluster) -> AsyncIterator[Mapping[int, Proxy]]:
    """node -> its proxy, without faults for a start."""
    async with AsyncExitStack() as stack:
        yield {
            node: await stack.enter_async_context(Proxy(cluster.address(node), int(address.rpartition(":")[2])))
            for node, address in cluster.advertised.items()
        }


@dataclass
class Play:
    """What a fault may lay hands on.

    Attributes:
        left, right: The group's members. Left is behind the proxies; right is so where the case says "both".
        coordinator: The node that coordinates the group.
        leads: partition -> the node that leads it, before the fault.
        victims: Nodes that the fault has hit, told by the fault itself.
    """

    cluster: ProxiedCluster
    proxies: Mapping[int, Proxy]
    scenario: Scenario
    coordinator: int
    leads: Mapping[Partition, int]
    left: Life
    right: Life
    victims: list[int] = field(default_factory=list)

    @property
    def leader(self) -> int:
        """A node that leads partitions and does not coordinate the group."""
        return next(node for node in NODES if node != self.coordinator)


Fault = Callable[[Play], Awaitable[Bite]]
Choice = Callable[[Play], Iterable[int]]


def every_node(play: Play) -> Iterable[int]:
    return NODES


def the_coordinator(play: Play) -> Iterable[int]:
    return (play.coordinator,)


def a_leader(play: Play) -> Iterable[int]:
    return (play.leader,)


async def coordinator_of(bootstrap: str, group: str) -> int:
    """The node that coordinates a group; the first question of a new cluster has it make its topic."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        async with asyncio.timeout(30):
            while True:
                try:
                    return int(await admin.find_coordinator(group))
                except KafkaError:
                    await asyncio.sleep(0.1)
    finally:
        await admin.close()


def _hit(play: Play, nodes: Choice) -> list[Proxy]:
    play.victims.extend(nodes(play))
    return [play.proxies[node] for node in play.victims]


def cut(seconds: float, nodes: Choice = every_node, *, requests: bool = True, answers: bool = True) -> Fault:
    """Packets vanish, both ways or one: what was sent meanwhile arrives when the cut is over."""

    async def fault(play: Play) -> Bite:
        hit = _hit(play, nodes)
        ways = [way for one in hit for way, is_cut in ((one.requests, requests), (one.answers, answers)) if is_cut]
        for way in ways:
            way.hold()
        try:
            await asyncio.sleep(seconds)
        finally:
            for way in ways:
                way.release()
        return {"bytes held": sum(way.held_bytes for way in ways)}

    return fault


def reset_again_and_again(seconds: float) -> Fault:
    """Every 0.5 to 1.5 s all connections are reset."""

    async def fault(play: Play) -> Bite:
        pauses, over = random.Random(1), time.monotonic() + seconds
        hit, before = _hit(play, every_node), sum(play.scenario.observer.latest.values())
        while time.monotonic() < over:
            for proxy in hit:
                proxy.reset_all()
            await asyncio.sleep(pauses.uniform(0.5, 1.5))
        committed = sum(play.scenario.observer.latest.values()) - before
        return {"connections reset": sum(proxy.cut for proxy in hit), "records committed meanwhile": committed}

    return fault


def refused(seconds: float, nodes: Choice, most_a_second: float) -> Fault:
    """Connections are reset, and new ones refused; each member tries it again, but not in a spin."""

    async def fault(play: Play) -> Bite:
        hit = _hit(play, nodes)
        for proxy in hit:
            proxy.is_refusing = True
            proxy.reset_all()
        try:
            await asyncio.sleep(seconds)
        finally:
            for proxy in hit:
                proxy.is_refusing = False
        tries = max(proxy.refused for proxy in hit) / seconds
        assert tries <= most_a_second, f"{tries:.1f} connections a second to a node that refuses them"
        return {"connections refused": sum(proxy.refused for proxy in hit)}

    return fault


def slow(seconds: float, *, delay_s: float = 0.0, bytes_per_s: float = 0.0, loss: float = 0.0) -> Fault:
    """Everything is late, in both directions."""

    async def fault(play: Play) -> Bite:
        ways = [way for proxy in _hit(play, every_node) for way in (proxy.requests, proxy.answers)]
        for way in ways:
            way.delay_s, way.bytes_per_s, way.loss = delay_s, bytes_per_s, loss
        try:
            await asyncio.sleep(seconds)
        finally:
            for way in ways:
                way.delay_s = way.bytes_per_s = way.loss = 0.0
        return {"pieces late": sum(way.late + way.lost for way in ways)}

    return fault


def throttled(seconds: float) -> Fault:
    """Quotas of the brokers: each client may read 20 KB/s from a node, and use little of its time."""

    async def fault(play: Play) -> Bite:
        play.victims.extend(NODES)
        await asyncio.to_thread(_quotas, play.cluster, "--add-config", "consumer_byte_rate=20000,request_percentage=2")
        try:
            await asyncio.sleep(seconds)
            behind = len(play.scenario.load.sent) - play.scenario.done()
        finally:
            await asyncio.to_thread(_quotas, play.cluster, "--delete-config", "consumer_byte_rate,request_percentage")
        return {"records behind": behind}

    return fault


def _quotas(cluster: KafkaCluster, *change: str) -> None:
    entity = ("--entity-type", "clients", "--entity-default")
    cluster.tool("kafka.admin.ConfigCommand", "--alter", *change, *entity)


def forgotten(seconds: float) -> Fault:
    """Every connection is half-open from now on; new ones pass."""

    async def fault(play: Play) -> Bite:
        connections = sum(proxy.forget() for proxy in _hit(play, every_node))
        await asyncio.sleep(seconds)
        return {"connections forgotten": connections}

    return fault


def flapping(times: int, period_s: float = 1.0) -> Fault:
    """The way is cut and open in turn."""

    async def fault(play: Play) -> Bite:
        held = 0.0
        for _ in range(times):
            held = (await cut(period_s)(play))["bytes held"]
            await asyncio.sleep(period_s)
        return {"bytes held": held}

    return fault


def frozen(seconds: float, nodes: Choice = a_leader) -> Fault:
    """The process of a node is stopped in its tracks, and goes on.

    Where that takes longer than the others wait for it, its partitions move, and are written to where they are then.
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
        return {**stopped, "records written where it led": moved} if seconds > FENCED_AFTER_S else stopped

    return fault


async def _written_to_where_they_moved(play: Play, node: int, over: float) -> int:
    """Write to the partitions of a node that is frozen, past it, until its time is over; returns how many records."""
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


def rolled(rounds: int, *, clean: bool) -> Fault:
    """Each node is restarted in turn, *rounds* times."""

    async def fault(play: Play) -> Bite:
        gone = 0
        for _ in range(rounds):
            for node in NODES:
                play.victims.append(node)
                before = play.cluster.nodes[node].pid
                await asyncio.to_thread(play.cluster.terminate if clean else play.cluster.kill, node)
                await asyncio.to_thread(play.cluster.start_node, node)
                gone += before is not None and play.cluster.nodes[node].pid != before
                await in_sync(play, node)
        assert gone == rounds * len(NODES)
        return {"nodes restarted": gone}

    return fault


async def in_sync(play: Play, node: int) -> None:
    """Wait until a node is in sync again for every partition of the topic: two at once must never be away."""
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
