"""Plays many seeds: ``python -m tests.simulation --seeds 20000``, or one again: ``--seed 123``."""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from typing import Protocol

from tests.simulation.around import AROUND
from tests.simulation.chain import EXPECTED as OF_CHAINS
from tests.simulation.chain import run_chain
from tests.simulation.ends import EXPECTED as OF_ENDS
from tests.simulation.ends import run_ends
from tests.simulation.odd_draw import ON
from tests.simulation.offsets_draw import STORE_FAULTS
from tests.simulation.outages import EXPECTED as OF_OUTAGES
from tests.simulation.outages import run_outage
from tests.simulation.outbox import EXPECTED as OF_OUTBOXES
from tests.simulation.outbox import run_outbox
from tests.simulation.rounds import EXPECTED as OF_ROUNDS
from tests.simulation.rounds import run_rounds
from tests.simulation.run import REPLAY, features, report, run, scenario_of, silence
from tests.simulation.runtime_draw import STOPS
from tests.simulation.scenario import CONTROL, FAULTS, SPARK_FAULTS


class Played(Protocol):
    """A seed of a world, played."""

    violations: list[str]
    bites: Counter[str]


CHUNK = 25
MOST_SHOWN = 5
KINDS = (
    "single",
    "batch",
    "manual",
    "iterate",
    "spark",
    "checkpoint",
    "states",
    "transactions",
    "strings",
    "keep",
    "control",
    "graceful",
    "latest",
    "limit",
    "shared limit",
    "odd",
    "outage",
    "pause",
    "retention",
    "eager",
    "cooperative",
    "consumer",
    "static",
    "mixed",
    "middleware",
    "filter",
    "bytes",
    "several",
    "broadcast",
    "stops",
    "every",
    "cap",
    "later",
    "timeout",
)
WORLDS: dict[str, tuple[Callable[[int], Played], tuple[str, ...]]] = {
    "chain": (run_chain, OF_CHAINS),
    "ends": (run_ends, OF_ENDS),
    "outages": (run_outage, OF_OUTAGES),
    "outbox": (run_outbox, OF_OUTBOXES),
    "rounds": (run_rounds, OF_ROUNDS),
}
"""Seeds of other kinds, with what must happen in many of them: what a handler sends, ends of
reading, long outages, and rounds of everything with a rest after each."""
LONGEST_S = 60.0
"""Of real time, for one seed: most take a tenth of a second."""
ENOUGH = 300
"""With so many seeds every kind of fault must have happened at least once."""

OF_SPARK = (
    *(f"fault {kind}" for kind in SPARK_FAULTS),
    "crashed after a write",
    "over ok",
    "over bad",
    "over code",
    "over timeout",
    "over worker",
    "over cancelled",
    "over stuck",
    "over cluster",
    "over lost alone",
    "over lost beside",
    "planned",
    "superseded",
)
EXPECTED = (
    *(f"fault {kind}" for kind in FAULTS),
    "answer failed",
    "answer unknown",
    "assigned back",
    "assigned ",
    "end raised",
    "end failed",
    "end cancelled",
    "ignored",
    "letter",
    "poison",
    "failed",
    "compacted",
    "member crash",
    "eager",
    "cooperative",
    "consumer",
    "static",
    "mixed",
    "became classic",
    "became consumer",
    "lost",
    "expired eager",
    "expired cooperative",
    "expired consumer",
    "expired mixed",
    "commit late",
    "begun again",
    "reset",
    "fetched",
    "ready UP",
    "ready DOWN: why",
    "all lost",
    "paused",
    "resumed",
    "trimmed",
    "appeared",
    "latest",
    "graceful",
    "filtered",
    "unselected",
    "aside",
    "aside failed",
    *(f"odd {kind}" for kind in sorted(ON)),
    *(f"odd {kind}" for kind in AROUND),
)
OF_OFFSETS = {
    "store": (
        *(f"fault {kind}" for kind in STORE_FAULTS),
        "claim",
        "refused",
        "row",
        "got",
        "set",
        "beside",
        "duplicate",
        "store away",
        "store late",
        "store lost",
        "store twice",
    ),
    "strings": ("said", "fault say"),
    "keep": ("kept",),
    "run-time": (f"fault {STOPS}", "stopped", "started late", "stopped again"),
    "control": (
        "skipped",
        "asked CommitRefusedError",
        *(f"fault {kind}" for kind in CONTROL if kind != "say"),
    ),
}
"""What must have happened in a run of many seeds; a fault that never bites proves nothing."""


class NoEnd(KeyboardInterrupt):
    """A run goes on and on. Of this kind, because asyncio and the code under test let nothing else
    through.
    """


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Interrupt the block when it takes too much time: virtual time may stand still for ever.

    Args:
        seconds: Of this process's CPU. A busy machine makes it longer by the real clock, and a
            block that waits for something outside is interrupted after ten times as long by that.
    """

    def interrupt(*_: object) -> None:
        raise NoEnd(f"no end within {seconds:g} s")

    limits = (
        (signal.ITIMER_PROF, signal.SIGPROF, seconds),
        (signal.ITIMER_REAL, signal.SIGALRM, seconds * 10),
    )
    before = [signal.signal(number, interrupt) for _, number, _ in limits]
    for timer, _, limit in limits:
        signal.setitimer(timer, limit, 5.0)
    try:
        yield
    finally:
        for timer, _, _ in limits:
            signal.setitimer(timer, 0)
        for (_, number, _), handler in zip(limits, before, strict=True):
            signal.signal(number, handler)


def play(seeds: range, mode: str | None = None) -> tuple[int, Counter[str], list[tuple[int, str]]]:
    """How many were played, what happened in them, and the reports of the red ones; *mode*: only
    those of one kind.
    """
    bites: Counter[str] = Counter()
    red = []
    if mode in WORLDS:
        return play_world(seeds, mode)
    played = [seed for seed in seeds if mode is None or mode in scenario_of(seed).kinds]
    for seed in played:
        try:
            with at_most(LONGEST_S):
                outcome, violations = run(seed)
        except (
            Exception,
            NoEnd,
            # A crash of the run is as red as a broken promise, and the other seeds go on.
        ) as error:
            red.append(
                (seed, f"seed {seed}: {type(error).__name__}: {error}\n{REPLAY.format(seed=seed)}")
            )
            continue
        bites.update(outcome.bites)
        if violations:
            red.append((seed, "\n".join(report(outcome, violations))))
    return len(played), bites, red


def play_world(seeds: range, mode: str) -> tuple[int, Counter[str], list[tuple[int, str]]]:
    """The same, of a world of its own."""
    bites: Counter[str] = Counter()
    red = []
    for seed in seeds:
        again = f"again: python -m tests.simulation --mode {mode} --seed {seed}"
        try:
            with at_most(LONGEST_S), silence():
                played = WORLDS[mode][0](seed)
        except (Exception, NoEnd) as error:
            red.append((seed, f"seed {seed}: {type(error).__name__}: {error}\n{again}"))
            continue
        bites.update(played.bites)
        if played.violations:
            red.append((seed, "\n".join([f"seed {seed}:", *played.violations, again])))
    return len(seeds), bites, red


def chunks(first: int, count: int) -> Iterator[range]:
    for start in range(first, first + count, CHUNK):
        yield range(start, min(start + CHUNK, first + count))


def never_bitten(bites: Counter[str]) -> list[str]:
    """What the scenarios may draw and what never happened."""
    possible = [
        what
        for what in EXPECTED
        if not what.startswith("fault ") or what.replace(" ", "=", 1) in features()
    ]
    possible += OF_SPARK if "spark" in features() else ()
    for feature, whats in OF_OFFSETS.items():
        possible += whats if feature in features() else ()
    return [what for what in dict.fromkeys(possible) if not bites[what]]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seeds", type=int, default=1000, help="how many")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first one")
    parser.add_argument("--seed", type=int, help="play this one only")
    kinds = (*KINDS, *WORLDS)
    parser.add_argument("--mode", choices=kinds, help=f"only seeds of this kind: {' '.join(kinds)}")
    parser.add_argument("--hunt", action="store_true", help="stop at the first red one")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    if options.seed is not None:
        _, _, red = play(range(options.seed, options.seed + 1), options.mode)
        print(red[0][1] if red else f"seed {options.seed} is green")
        return 1 if red else 0
    if options.hunt:
        return hunt(options.first, options.seeds, options.mode)
    return many(options.first, options.seeds, options.jobs, options.mode)


def hunt(first: int, count: int, mode: str | None) -> int:
    """Play seeds one after the other up to the first red one."""
    for seed in range(first, first + count):
        _, _, red = play(range(seed, seed + 1), mode)
        if red:
            broken = sorted(set(re.findall(r"^([CEILORSV]\d+), ", red[0][1], re.MULTILINE))) or [
                "crash or no end"
            ]
            print(f"red: seed {seed}, {' '.join(broken)}")
            return 1
    return 0


def many(first: int, count: int, jobs: int, mode: str | None) -> int:
    """Play *count* seeds in *jobs* processes, and print what came of them."""
    started, bites, red, played = time.monotonic(), Counter[str](), [], 0
    with ProcessPoolExecutor(jobs) as pool:
        for done in as_completed(
            [pool.submit(play, chunk, mode) for chunk in chunks(first, count)]
        ):
            number, bitten, reports = done.result()
            played += number
            bites.update(bitten)
            for seed, text in reports:
                red.append(seed)
                if len(red) <= MOST_SHOWN:
                    print(text, flush=True)
    took = time.monotonic() - started
    print(
        f"{played} seeds in {took:.0f} s, {played / took:.1f} a second; {len(red)} red: {sorted(red)[:50]}"
    )
    print(", ".join(f"{what} {number}" for what, number in sorted(bites.items())))
    missing = never_bitten(bites) if count >= ENOUGH and mode is None else []
    if count >= ENOUGH and mode in WORLDS:
        missing = [what for what in WORLDS[mode][1] if not bites[what]]
    if missing:
        print("these never happened, so they prove nothing: " + ", ".join(missing))
    return 1 if red or missing else 0


if __name__ == "__main__":
    sys.exit(main())
