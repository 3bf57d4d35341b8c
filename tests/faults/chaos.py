"""Members are killed by the thousand under load: ``python -m tests.faults.chaos --kills 1000``.

Several groups of three members on one node. A killed member comes back at once, forked from a
process that has imported everything; four kills of five wait until its group works again, the
others come at any moment, in the middle of a rebalance too. Each third one waits for a moment at
which its process is in the middle of a record. The judge of the fault tests has the last word on
each group.
"""

from __future__ import annotations

import asyncio
import logging
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.faults.checker import Disruption, Violation
from tests.faults.driver import until
from tests.faults.figures import parser, told, until_told
from tests.faults.owners import rebalances
from tests.faults.prestarted import Server, forking
from tests.faults.repeats import oldest, repeats
from tests.faults.soak_ground import (
    MOST_REPEATED,
    PROTOCOLS,
    Ground,
    Verdict,
    Watch,
    staged,
)
from tests.harness.kafka import KafkaCluster

SESSION_S = 3.0
MEMBERS = 3
# A killed process is gone by then.
ENDS_S = 20.0
# Share of the kills that do not wait until the group works again.
AT_ONCE = 0.2
# Each third kill waits for a record in flight: handlers take 2 ms, so that the others seldom hit
# one.
AT_WORK = 3
# And not longer: a member may have no partitions just then.
AT_WORK_S = 5.0
WORKS_S = 60.0
SHOWN_EVERY = 50


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How many kills and records at least, in how many groups, under how many records a second in
    all.
    """

    kills: int
    records: int
    seed: int
    groups: int = 3
    per_second: float = 450.0
    most_minutes: float = 90.0
    protocol: str = "both"


@dataclass(kw_only=True)
class Outcome:
    """What it came to, group by group."""

    plan: Plan
    took_s: float
    groups: list[Verdict]
    kills: Counter[str]

    @property
    def violations(self) -> list[Violation]:
        """The broken promises, of all groups."""
        return [violation for group in self.groups for violation in group.violations]

    def summary(self) -> dict[str, Any]:
        """The figures."""
        evidence = [group.evidence for group in self.groups]
        found = [repeats(one.events) for one in evidence]
        by_kill = Counter(
            (group, one.process) for group, repeated in enumerate(found) for one in repeated
        )
        kills = sum(self.kills.values())
        repeated = sum(map(len, found))
        return {
            "kills": kills,
            "of these, in the middle of work": self.kills["at work"],
            "minutes": round(self.took_s / 60, 1),
            "kills a minute": round(kills / self.took_s * 60, 1),
            "seed": self.plan.seed,
            "protocol": self.plan.protocol,
            "records": sum(len(one.sent) for one in evidence),
            "lost": sum(len(group.lost) for group in self.groups),
            "commits ahead": sum(one.invariant == "I1" for one in self.violations),
            "rebalances": sum(rebalances(group.group, 0, inf) for group in self.groups),
            "repeated": repeated,
            "repeated by a kill": round(repeated / max(1, kills), 2),
            "repeated by a kill, most": max(by_kill.values(), default=0),
            "repeated by a kill, bound": MOST_REPEATED,
            "oldest that was repeated, s before the kill": round(
                max(oldest(one.events, one.disruptions) for one in evidence), 2
            ),
            "broken promises": len(self.violations),
        }


async def play(bootstrap: str, folder: Path, plan: Plan, server: Server) -> Outcome:
    """Play it, drain and judge."""
    kills: Counter[str] = Counter()
    draw = random.Random(plan.seed)
    began = time.monotonic()
    async with AsyncExitStack() as stack:
        grounds = []
        for number in range(plan.groups):
            into = folder / f"group{number}"
            stage = staged(bootstrap, into, SESSION_S, 1, PROTOCOLS[plan.protocol])
            grounds.append(await stack.enter_async_context(stage))

        def is_over() -> bool:
            enough = (
                sum(kills.values()) >= plan.kills
                and sum(len(one.load.sent) for one in grounds) >= plan.records
            )
            return enough or time.monotonic() - began > plan.most_minutes * 60

        for ground in grounds:
            for name in ("a", "b", "c")[:MEMBERS]:
                ground.member(name, bootstrap, server.launch).start()
        async with AsyncExitStack() as flows, asyncio.TaskGroup() as killers:
            for ground in grounds:
                await flows.enter_async_context(ground.load.flowing(plan.per_second / plan.groups))
            for ground in grounds:
                killers.create_task(_kill(ground, random.Random(draw.random()), kills, is_over))
        for ground in grounds:
            await ground.drained()
            await ground.stopped()
        took_s = time.monotonic() - began
        judged = [await ground.judged() for ground in grounds]
    return Outcome(plan=plan, took_s=took_s, groups=judged, kills=kills)


async def _kill(
    ground: Ground, draw: random.Random, kills: Counter[str], is_over: Callable[[], bool]
) -> None:
    """Kill members of a group until it is over."""
    watch = Watch(ground)
    since = 0.0
    while not is_over() and not ground.failed:
        with ground.told("the wait for the group"):
            if draw.random() >= AT_ONCE:
                await until(
                    partial(watch.all_worked_on_since, since),
                    WORKS_S,
                    "the group works",
                    ground.tails,
                )
            await asyncio.sleep(draw.uniform(0, 1))
            since = await _kill_one(ground, draw, kills)
            if not sum(kills.values()) % SHOWN_EVERY:
                print(f"{time.strftime('%H:%M:%S')} {sum(kills.values())} kills", file=sys.stderr)


async def _kill_one(ground: Ground, draw: random.Random, kills: Counter[str]) -> float:
    member = draw.choice(ground.members)
    life = member.life
    if not sum(kills.values()) % AT_WORK:
        with suppress(AssertionError):
            await until(life.freezes_at_work, AT_WORK_S, "it is at work")
    killed_at = life.send(signal.SIGKILL)
    # It works on until it is gone, which takes some milliseconds where the machine is busy. Its
    # sockets are open until then, too: the next one is forked so soon that one in a thousand found
    # its port taken.
    await life.exited(ENDS_S)
    ground.disruptions.append(Disruption(life.name, killed_at, time.time()))
    ground.start_again(member)
    kills["at work" if life.in_flight else "idle"] += 1
    return killed_at


def main() -> int:
    wanted = parser(__doc__)
    wanted.add_argument("--kills", type=int, default=1000)
    wanted.add_argument(
        "--records", type=int, default=0, help="go on until there were so many, too"
    )
    wanted.add_argument("--groups", type=int, default=Plan.groups)
    wanted.add_argument(
        "--per-second", type=float, default=Plan.per_second, help="records (default: %(default)s)"
    )
    wanted.add_argument(
        "--protocol",
        choices=PROTOCOLS,
        default=Plan.protocol,
        help="of the members; both: in turn (default: %(default)s)",
    )
    options = wanted.parse_args()
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    plan = Plan(
        kills=options.kills,
        records=options.records,
        seed=options.seed,
        groups=options.groups,
        per_second=options.per_second,
        protocol=options.protocol,
    )
    with (
        TemporaryDirectory(prefix="chaos-") as folder,
        forking() as server,
        KafkaCluster() as cluster,
    ):
        work = play(cluster.bootstrap_servers, options.keep or Path(folder), plan, server)
        outcome = asyncio.run(until_told(work))
    return told("chaos", outcome.summary(), outcome.violations, options)


if __name__ == "__main__":
    sys.exit(main())
