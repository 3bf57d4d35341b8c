"""Hours of load and random faults on a real Kafka, judged at the end: ``python -m tests.faults.soak --hours 1``.

Three nodes behind proxies, three members, a steady load. One member lives from the first to the last; what it uses
must not grow. ``--seed`` draws the same acts again, though not the same moments.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.faults.checker import Evidence, Rules, Violation, duplicates, lost, report
from tests.faults.history import Partition
from tests.faults.soak_acts import ACTS, Done, Play, play_act
from tests.faults.soak_ground import Ground, last_ends, staged
from tests.faults.wire import ProxiedCluster, proxied

SESSION_S = 10.0
RECOVERS_S = 60.0
DRAIN_S = 180.0
STOP_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
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

    @property
    def is_kept(self) -> bool:
        return not self.violations

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
        await _finish(ground, it)
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


class Watch:
    """Looks at the histories for when each partition was last worked on."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._seen: dict[str, int] = {}
        self._ends: dict[Partition, float] = {}

    def all_worked_on_since(self, t: float) -> bool:
        last_ends(self._ground.lives, self._seen, self._ends)
        return all(self._ends.get(tp, 0.0) > t for tp in self._ground.partitions)


async def _finish(ground: Ground, it: Play) -> None:
    await ground.drained(DRAIN_S)  # if it does not, the judge says what is left
    for member in it.members:
        member.life.send(signal.SIGTERM)
    for member in it.members:
        assert await member.life.exited(STOP_S) == 0, member.life.tail()


def table(summary: dict[str, Any]) -> str:
    """The figures as Markdown."""
    lines = ["| | |", "|---|---|"]
    for name, value in summary.items():
        if isinstance(value, list):
            continue
        shown = ", ".join(f"{one} {number:,}" for one, number in value.items()) if isinstance(value, dict) else value
        lines.append(f"| {name} | {shown:,} |" if isinstance(shown, int | float) else f"| {name} | {shown} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--per-second", type=float, default=250.0, help="records (default: %(default)s)")
    parser.add_argument("--acts", help="names of the acts that may be drawn, with commas (default: all)")
    parser.add_argument("--write", type=Path, help="write the figures there, as JSON")
    parser.add_argument("--keep", type=Path, help="a folder for histories and logs")
    options = parser.parse_args()
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # that brokers are away is what we are here for
    acts = options.acts.split(",") if options.acts else tuple(ACTS)
    plan = Plan(seconds=options.hours * 3600, seed=options.seed, per_second=options.per_second, acts=acts)
    with TemporaryDirectory(prefix="soak-") as folder, ProxiedCluster() as cluster:
        outcome = asyncio.run(_until_told(play(cluster, options.keep or Path(folder), plan)))
    summary = outcome.summary()
    print(table(summary))
    print(report(outcome.violations))
    if options.write:
        options.write.write_text(json.dumps(summary, indent=2) + "\n")
    return 0 if outcome.is_kept else 1


async def _until_told(work: Any) -> Outcome:
    """Cancel it on SIGTERM, as Ctrl-C does."""
    task = asyncio.ensure_future(work)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    outcome: Outcome = await task
    return outcome


if __name__ == "__main__":
    sys.exit(main())
