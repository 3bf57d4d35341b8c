"""What the soak does to members, nodes and connections: each act heals itself, and says what it
bit.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.faults.checker import Disruption
from tests.faults.driver import Member, until
from tests.faults.nodes import leaders
from tests.faults.processes import PROC
from tests.faults.slopes import Away
from tests.faults.soak_ground import STOPPED_IN_S, WINDOW_S, Ground
from tests.faults.soak_service import SLOW_S
from tests.faults.wire import NODES, Bite, ProxiedCluster, coordinator_of
from tests.harness.proxy import Proxy

IN_SYNC_S = 60.0
# Until a process that was frozen gets a core, ends what it was at, and knows what it has lost.
AWAKE_S = SLOW_S + 2.5


class Done(NamedTuple):
    """An act that was played. ``still``: it promises that nobody's partitions move from its start
    to its end.
    """

    name: str
    start: float
    end: float
    bite: Bite
    still: bool

    @property
    def has_bitten(self) -> bool:
        return all(self.bite.values())


@dataclass
class Play:
    """What an act may lay hands on.

    Attributes:
        steady: Lives from the first to the last.
        others: May be ended.
        away: When nothing could be reached.
    """

    ground: Ground
    cluster: ProxiedCluster
    proxies: Mapping[int, Proxy]
    steady: Member
    others: list[Member]
    draw: random.Random
    away: list[Away] = field(default_factory=list)

    @property
    def members(self) -> list[Member]:
        return [self.steady, *self.others]


async def killed(play: Play) -> Bite:
    """kill -9 of a member, which comes back."""
    victim = play.draw.choice(play.others)
    life = victim.life
    killed_at = life.send(signal.SIGKILL)
    assert await life.exited(5) == -signal.SIGKILL
    play.ground.disruptions.append(Disruption(life.name, killed_at, killed_at))
    await asyncio.sleep(play.draw.uniform(0, 3))
    play.ground.start_again(victim)
    return {"processes killed": 1}


async def restarted(play: Play) -> Bite:
    """SIGTERM for each member but one, in turn, as a rolling restart does."""
    for member in play.others:
        life = member.life
        life.send(signal.SIGTERM)
        assert await life.exited(STOPPED_IN_S) == 0, life.tail()
        await play.ground.start_again(member).ready(60)
    return {"processes restarted": len(play.others)}


async def frozen(play: Play) -> Bite:
    """A member is stopped for longer than its session, and goes on."""
    life = play.draw.choice(play.members).life
    stopped_at = life.send(signal.SIGSTOP)
    try:
        await asyncio.sleep(play.ground.session_s + play.draw.uniform(1.5, 4))
        state = (PROC / str(life.pid) / "stat").read_text().rpartition(")")[2].split()[0]
    finally:
        woken_at = life.send(signal.SIGCONT)
    play.ground.disruptions.append(
        Disruption(life.name, stopped_at, woken_at + AWAKE_S, frozen=True)
    )
    return {"processes frozen": float(state == "T")}


async def node_killed(play: Play) -> Bite:
    """A node of the cluster gets SIGKILL, and comes back."""
    return await _node_away(play, play.draw.choice(NODES), clean=False)


async def coordinator_killed(play: Play) -> Bite:
    """The node that coordinates the group gets SIGKILL, and comes back."""
    return await _node_away(
        play, await coordinator_of(play.ground.bootstrap, play.ground.topic), clean=False
    )


async def node_restarted(play: Play) -> Bite:
    """A node is stopped cleanly, and started."""
    return await _node_away(play, play.draw.choice(NODES), clean=True)


async def _node_away(play: Play, node: int, *, clean: bool) -> Bite:
    before = play.cluster.nodes[node].pid
    await asyncio.to_thread(play.cluster.terminate if clean else play.cluster.kill, node)
    gone = play.cluster.nodes[node].pid is None
    await asyncio.sleep(0 if clean else play.draw.uniform(0, 5))
    await asyncio.to_thread(play.cluster.start_node, node)
    await _leads_again(play, node)
    return {"nodes gone": float(gone and play.cluster.nodes[node].pid != before)}


async def _leads_again(play: Play, node: int) -> None:
    """Wait until every partition has a leader, and all of them are in sync: two nodes must never be
    away at once.
    """
    give_up = time.monotonic() + IN_SYNC_S
    while not await play.ground.in_sync():
        assert time.monotonic() < give_up, f"node {node} is not in sync: {await _led(play)}"
        await asyncio.sleep(0.3)


async def _led(play: Play) -> Mapping[int, int]:
    return await leaders(play.ground.bootstrap, play.ground.topic)


async def cut_briefly(play: Play) -> Bite:
    """Packets vanish for 1 to 3 s, both ways."""
    return await _cut(play, play.draw.uniform(1, 3))


async def cut_for_long(play: Play) -> Bite:
    """Packets vanish for longer than every member's session."""
    lives = [member.life.name for member in play.members]
    cut_at = time.time()
    bite = await _cut(play, play.ground.session_s + play.draw.uniform(1.5, 4))
    play.away.append(
        Away(name="a long cut", start=cut_at, end=time.time(), processes=frozenset(lives))
    )
    play.ground.disruptions += [Disruption(life, cut_at, time.time() + WINDOW_S) for life in lives]
    return bite


async def _cut(play: Play, seconds: float) -> Bite:
    before = _held(play)
    for proxy in play.proxies.values():
        proxy.hold()
    try:
        await asyncio.sleep(seconds)
    finally:
        for proxy in play.proxies.values():
            proxy.release()
    return {"bytes held": _held(play) - before}


def _held(play: Play) -> int:
    return sum(
        proxy.requests.held_bytes + proxy.answers.held_bytes for proxy in play.proxies.values()
    )


async def reset(play: Play) -> Bite:
    """Every connection is reset, three times."""
    cut = 0
    for _ in range(3):
        cut += sum(proxy.reset_all() for proxy in play.proxies.values())
        await asyncio.sleep(play.draw.uniform(0.5, 1.5))
    return {"connections reset": cut}


async def slowed(play: Play) -> Bite:
    """Everything is 0.2 s late each way, for 5 s."""
    ways = [way for proxy in play.proxies.values() for way in (proxy.requests, proxy.answers)]
    before = sum(way.late for way in ways)
    for way in ways:
        way.delay_s = 0.2
    try:
        await asyncio.sleep(5)
    finally:
        for way in ways:
            way.delay_s = 0.0
    return {"pieces late": sum(way.late for way in ways) - before}


Act = Callable[[Play], Awaitable[Bite]]
ACTS: dict[str, Act] = {
    "kill -9": killed,
    "rolling restart": restarted,
    "member frozen": frozen,
    "node killed": node_killed,
    "coordinator killed": coordinator_killed,
    "node restarted": node_restarted,
    "cut briefly": cut_briefly,
    "cut for long": cut_for_long,
    "connections reset": reset,
    "latency": slowed,
}
STILL = frozenset(
    {
        "node killed",
        "coordinator killed",
        "node restarted",
        "cut briefly",
        "connections reset",
        "latency",
    }
)


async def play_act(
    play: Play, name: str, recovered: Callable[[float], bool], deadline_s: float
) -> Done:
    """Play one, and wait until everybody works again."""
    start = time.time()
    bite = await ACTS[name](play)
    healed_at = time.time()
    await until(
        lambda: recovered(healed_at),
        deadline_s,
        f"every partition is worked on after {name}",
        play.ground.tails,
    )
    for member in play.members:
        await member.life.ready(deadline_s)
    return Done(name, start, time.time(), bite, name in STILL)
