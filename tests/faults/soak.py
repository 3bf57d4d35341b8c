"""Hours of load and random faults on a real Kafka, judged at the end: ``python -m tests.faults.soak --hours 1``.

Three nodes behind proxies, three members, a steady load. One member lives from the first to the last; what it uses
must not grow. ``--seed`` draws the same acts again, though not the same moments.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.faults.checker import Evidence, Rules, Violation, duplicates, lost
from tests.faults.figures import parser, told, until_told
from tests.faults.soak_acts import ACTS, Done, Play, play_act
from tests.faults.soak_ground import Watch, staged
from tests.faults.wire import ProxiedCluster, proxied

SESSION_S = 10.0
RECOVERS_S = 60.0


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How long, how much, and which faults; *acts* are the names of those that may be drawn."""

    seconds: float
    seed: int
    per_second: float = 250.0
    pause_s: tuple[float, float] = (3.0, 15.0)
    acts: Sequence[str] = tuple(ACTS)


@dataclass(kw_only=True)
class Outcome:
    """What a soak came to."""

    plan: Plan
    took_s: float
    acts: list[Done]
    evidence: Evidence
    violations: list[Violation]
    figures: dict[str, Any] = field(default_factory=dict)

    def summary(self) -> dict[str, Any]:
        """The figures."""
        records = len(self.evidence.sent)
        return {
            "minutes": round(self.took_s / 60, 1),
            "seed": self.plan.seed,
            "records": records,
            "lost": len(lost(self.evidence, Rules())),
            "commits ahead": sum(one.invariant == "I1" for one in self.violations),
            "repeated": duplicates(self.evidence.events),
            "dead letters": len(self.evidence.letters),
            "acts": dict(Counter(act.name for act in self.acts)),
            "bit": _total(act.bite for act in self.acts),
            "broken promises": len(self.violations),
            "played": [act._asdict() for act in self.acts],
            **self.figures,
        }


def _total(bites: Iterable[Any]) -> dict[str, float]:
    total: Counter[str] = Counter()
    for bite in bites:
        total.update(bite)
    return {what: round(number) for what, number in total.items()}


async def play(cluster: ProxiedCluster, folder: Path, plan: Plan) -> Outcome:
    """Play it, drain and judge."""
    began = time.time()
    direct = cluster.past_the_proxies
    async with proxied(cluster) as proxies, staged(direct, folder, SESSION_S, len(cluster.nodes)) as ground:
        steady, *others = (ground.member(name, cluster.bootstrap_servers) for name in ("steady", "left", "right"))
        it = Play(ground, cluster, proxies, steady, others, random.Random(plan.seed))
        for member in it.members:
            await member.start().ready(60)
        async with ground.load.flowing(plan.per_second):
            acts = await _act(it, plan)
        await ground.drained()
        await ground.stopped()
        evidence, violations = await ground.judged()
    violations += [Violation("bite", f"{act.name} at {act.start:.0f} hit nothing") for act in acts if not _bit(act)]
    return Outcome(plan=plan, took_s=time.time() - began, acts=acts, evidence=evidence, violations=violations)


def _bit(act: Done) -> bool:
    return all(act.bite.values())


async def _act(it: Play, plan: Plan) -> list[Done]:
    """Draw and play acts until the time is over; each one is over before the next begins."""
    over = time.monotonic() + plan.seconds
    watch = Watch(it.ground)
    acts: list[Done] = []
    names: list[str] = []
    while time.monotonic() < over:
        await asyncio.sleep(min(it.draw.uniform(*plan.pause_s), max(0.0, over - time.monotonic())))
        if time.monotonic() > over or not plan.acts:
            continue
        if not names:  # every act once in a round
            names = it.draw.sample(plan.acts, len(plan.acts))
        acts.append(await play_act(it, names.pop(), watch.all_worked_on_since, RECOVERS_S))
        print(f"{time.strftime('%H:%M:%S')} {acts[-1].name}: {acts[-1].end - acts[-1].start:.1f} s", file=sys.stderr)
    return acts


def main() -> int:
    wanted = parser(__doc__)
    wanted.add_argument("--hours", type=float, default=1.0)
    wanted.add_argument("--per-second", type=float, default=Plan.per_second, help="records (default: %(default)s)")
    wanted.add_argument("--acts", default=",".join(ACTS), help="those that may be drawn, with commas (default: all)")
    options = wanted.parse_args()
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # that brokers are away is what we are here for
    acts = options.acts.split(",")
    plan = Plan(seconds=options.hours * 3600, seed=options.seed, per_second=options.per_second, acts=acts)
    with TemporaryDirectory(prefix="soak-") as folder, ProxiedCluster() as cluster:
        outcome = asyncio.run(until_told(play(cluster, options.keep or Path(folder), plan)))
    return told("soak", outcome.summary(), outcome.violations, options)


if __name__ == "__main__":
    sys.exit(main())
