"""Three Kafka nodes with a proxy before each, and what is done to connections there.

The services under test reach the nodes through the proxies; load and observer do not, so they go on
whatever is cut. Each fault heals itself, and returns what it bit: name -> how many, none of them 0.
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

from reactive_kafka.broker.local_kafka import free_ports
from tests.faults.driver import Life
from tests.faults.history import Partition
from tests.faults.scenario import Scenario
from tests.harness.kafka import KafkaCluster
from tests.harness.proxy import HOST, Proxy

Bite = Mapping[str, float]
NODES = (1, 2, 3)


class ProxiedCluster(KafkaCluster):
    """Three nodes that tell clients the address of a proxy, which :func:`proxied` runs while it is
    wanted.
    """

    def __init__(self, properties: Mapping[str, str] | None = None) -> None:
        super().__init__(3, properties=properties)
        self.advertised.update(
            {node: f"{HOST}:{port}" for node, port in zip(NODES, free_ports(3), strict=True)}
        )

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
            node: await stack.enter_async_context(
                Proxy(cluster.address(node), int(address.rpartition(":")[2]))
            )
            for node, address in cluster.advertised.items()
        }


@dataclass
class Play:
    """What a fault may lay hands on.

    Attributes:
        left, right: The group's members. Left is behind the proxies; right is so where the case
            says "both".
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
    """The node that coordinates a group; the first question of a new cluster has it make its
    topic.
    """
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


def cut(
    seconds: float, nodes: Choice = every_node, *, requests: bool = True, answers: bool = True
) -> Fault:
    """Packets vanish, both ways or one: what was sent meanwhile arrives when the cut is over."""

    async def fault(play: Play) -> Bite:
        hit = _hit(play, nodes)
        ways = [
            way
            for one in hit
            for way, is_cut in ((one.requests, requests), (one.answers, answers))
            if is_cut
        ]
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
        return {
            "connections reset": sum(proxy.cut for proxy in hit),
            "records committed meanwhile": committed,
        }

    return fault


def refused(seconds: float, nodes: Choice, most_a_second: float) -> Fault:
    """Connections are reset, and new ones refused; each member tries it again, but not in a
    spin.
    """

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
        assert tries <= most_a_second, (
            f"{tries:.1f} connections a second to a node that refuses them"
        )
        return {"connections refused": sum(proxy.refused for proxy in hit)}

    return fault


def slow(
    seconds: float, *, delay_s: float = 0.0, bytes_per_s: float = 0.0, loss: float = 0.0
) -> Fault:
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
