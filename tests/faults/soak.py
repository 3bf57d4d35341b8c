"""Hours of load and random faults on a real Kafka, judged at the end: ``python -m tests.faults.soak
--hours 1``.

Three nodes behind proxies, three members, a steady load. One member lives from the first to the
last; what it uses must not grow. ``--seed`` draws the same acts again, though not the same moments.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.faults.checker import Violation, duplicates
from tests.faults.figures import parser, told, until_told
from tests.faults.owners import commits_of_strangers, disturbed, rebalances
from tests.faults.sampler import Sampler
from tests.faults.slopes import (
    GROWTHS,
    HOUR_S,
    Away,
    Growth,
    Sample,
    Series,
    growing,
    loud,
    noises,
    series,
    slope,
    too_big,
)
from tests.faults.soak_acts import ACTS, Done, Play, play_act
from tests.faults.soak_ground import PROTOCOLS, Verdict, Watch, staged
from tests.faults.tap import CommitTap
from tests.faults.wire import Bite, ProxiedCluster, proxied

SESSION_S = 10.0
RECOVERS_S = 60.0
STEADY = "steady.1"
# Of a process that can reach nobody: share of a core, lines a second.
MOST_CPU, MOST_LINES = 0.25, 5.0


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How long, how much, which faults, and what may grow; *acts* are the names of those that may
    be drawn.
    """

    seconds: float
    seed: int
    per_second: float = 250.0
    pause_s: tuple[float, float] = (3.0, 15.0)
    protocol: str = "both"
    acts: Sequence[str] = tuple(ACTS)
    growths: Mapping[str, Growth] = field(default_factory=lambda: GROWTHS)


@dataclass(kw_only=True)
class Outcome:
    """What a soak came to. ``window`` is the time in which nothing may grow: its second half."""

    plan: Plan
    took_s: float
    acts: list[Done]
    verdict: Verdict
    asked: int
    samples: list[Sample]
    used: Series
    window: tuple[float, float]
    away: list[Away]
    violations: list[Violation]

    def summary(self) -> dict[str, Any]:
        """The figures."""
        evidence, heard = self.verdict.evidence, list(noises(self.samples, self.away))
        return {
            "minutes": round(self.took_s / 60, 1),
            "seed": self.plan.seed,
            "protocol": self.plan.protocol,
            "records": len(evidence.sent),
            "lost": len(self.verdict.lost),
            "commits on the wire": self.asked,
            "commits ahead": self._broken("I1"),
            "commits of strangers": self._broken("I4"),
            "repeated": duplicates(evidence.events),
            "dead letters": len(evidence.letters),
            "rebalances": rebalances(self.verdict.group, 0, inf),
            "acts": dict(Counter(act.name for act in self.acts)),
            "bit": _total(act.bite for act in self.acts),
            "at the end": self._last(),
            "an hour more, by the second half": self._hourly(),
            "biggest process, MB": round(max(sample.memory_mb for sample in self.samples)),
            "cut off, share of a core, most": round(
                max((one.cpu_s / one.seconds for one in heard), default=0), 3
            ),
            "cut off, log lines a second, most": round(
                max((one.lines / one.seconds for one in heard), default=0), 2
            ),
            "log lines a minute": round(self._lines() / self.took_s * 60, 1),
            "broken promises": len(self.violations),
            "played": [act._asdict() for act in self.acts],
        }

    def _broken(self, invariant: str) -> int:
        return sum(one.invariant == invariant for one in self.violations)

    def _last(self) -> dict[str, float]:
        return {
            what: round(points[-1].value)
            for (process, what), points in self.used.items()
            if process == STEADY
        }

    def _hourly(self) -> dict[str, float]:
        start, end = self.window
        return {
            what: round(HOUR_S * slope([point for point in points if start <= point.t <= end]), 2)
            for (process, what), points in self.used.items()
            if process == STEADY
        }

    def _lines(self) -> int:
        return max((sample.lines for sample in self.samples if sample.process == STEADY), default=0)


def _total(bites: Iterable[Bite]) -> dict[str, float]:
    total: Counter[str] = Counter()
    for bite in bites:
        total.update({what: round(number) for what, number in bite.items()})
    return dict(total)


async def play(cluster: ProxiedCluster, folder: Path, plan: Plan) -> Outcome:
    """Play it, drain and judge."""
    began, tap, direct = time.time(), CommitTap(), cluster.past_the_proxies
    async with (
        proxied(cluster) as proxies,
        staged(direct, folder, SESSION_S, len(cluster.nodes), PROTOCOLS[plan.protocol]) as ground,
    ):
        for proxy in proxies.values():
            proxy.tap = tap.connection
        steady, *others = (
            ground.member(name, cluster.bootstrap_servers) for name in ("steady", "left", "right")
        )
        it = Play(ground, cluster, proxies, steady, others, random.Random(plan.seed))
        for member in it.members:
            await member.start().ready(60)
        async with (
            Sampler(ground.running).watching() as sampler,
            ground.load.flowing(plan.per_second),
        ):
            start = time.time()
            acts = await _act(it, plan)
            window = (start + time.time()) / 2, time.time()
        await ground.drained()
        await ground.stopped()
        verdict = await ground.judged()
    counted = [
        (event.process, event.t, event.count)
        for event in verdict.evidence.events
        if event.kind == "tasks"
    ]
    used = series(sampler.samples, counted)
    return Outcome(
        plan=plan,
        took_s=time.time() - began,
        acts=acts,
        verdict=verdict,
        asked=len(tap.asked),
        samples=sampler.samples,
        used=used,
        window=window,
        away=it.away,
        violations=[
            *verdict.violations,
            *commits_of_strangers(verdict.group, tap.asked),
            *disturbed(
                verdict.group, [(act.name, act.start, act.end) for act in acts if act.still]
            ),
            *growing(used, *window, plan.growths),
            *too_big(sampler.samples),
            *loud(sampler.samples, it.away, MOST_CPU, MOST_LINES),
            *(
                Violation("bite", f"{act.name} at {act.start:.0f} hit nothing")
                for act in acts
                if not act.has_bitten
            ),
        ],
    )


async def _act(it: Play, plan: Plan) -> list[Done]:
    """Draw and play acts until the time is over; each one is over before the next begins."""
    over = time.monotonic() + plan.seconds
    watch = Watch(it.ground)
    acts: list[Done] = []
    names: list[str] = []
    while time.monotonic() < over:
        await asyncio.sleep(min(it.draw.uniform(*plan.pause_s), max(0.0, over - time.monotonic())))
        if time.monotonic() >= over or not plan.acts:
            continue
        # Every act once in a round.
        if not names:
            names = it.draw.sample(plan.acts, len(plan.acts))
        name = names.pop()
        with it.ground.told(name):
            acts.append(await play_act(it, name, watch.is_settled, RECOVERS_S))
        # The next one would be played on a group that is not well.
        if it.ground.failed:
            break
        print(
            f"{time.strftime('%H:%M:%S')} {acts[-1].name}: {acts[-1].end - acts[-1].start:.1f} s",
            file=sys.stderr,
        )
    return acts


def main() -> int:
    wanted = parser(__doc__)
    wanted.add_argument("--hours", type=float, default=1.0)
    wanted.add_argument(
        "--per-second", type=float, default=Plan.per_second, help="records (default: %(default)s)"
    )
    wanted.add_argument(
        "--acts", default=",".join(ACTS), help="those that may be drawn, with commas (default: all)"
    )
    wanted.add_argument(
        "--protocol",
        choices=PROTOCOLS,
        default=Plan.protocol,
        help="of the members; both: in turn (default: %(default)s)",
    )
    options = wanted.parse_args()
    # That brokers are away is what we are here for.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    acts = options.acts.split(",")
    plan = Plan(
        seconds=options.hours * 3600,
        seed=options.seed,
        per_second=options.per_second,
        protocol=options.protocol,
        acts=acts,
    )
    with TemporaryDirectory(prefix="soak-") as folder, ProxiedCluster() as cluster:
        outcome = asyncio.run(until_told(play(cluster, options.keep or Path(folder), plan)))
    return told("soak", outcome.summary(), outcome.violations, options)


if __name__ == "__main__":
    sys.exit(main())
