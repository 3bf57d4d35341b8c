"""Judges what processes use: memory (I8), what leaks (I9), and how loud they are (I11). Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from tests.faults.checker import Violation

HOUR_S = 3600.0
# Share of a window in which nothing need be known of a process.
MOST_LEFT_OUT = 0.2


class Sample(NamedTuple):
    """What a process used at one time. ``cpu_s`` and ``lines`` (of its log) are since its start."""

    t: float
    process: str
    memory_mb: float
    threads: int
    descriptors: int
    sockets: int
    cpu_s: float
    lines: int


class Point(NamedTuple):
    """One number of a series."""

    t: float
    value: float


class Growth(NamedTuple):
    """How much a number may grow in a window: *at_once*, for noise and what is made late, and so
    much an hour.
    """

    at_once: float
    an_hour: float

    def over(self, seconds: float) -> float:
        return self.at_once + self.an_hour * seconds / HOUR_S


GROWTHS: Mapping[str, Growth] = {
    "memory_mb": Growth(5, 4),
    "threads": Growth(2, 1),
    "descriptors": Growth(5, 2),
    "sockets": Growth(5, 2),
    # A worker is made when it is needed first.
    "tasks": Growth(16, 2),
}
MOST_MB = 100.0
Series = Mapping[tuple[str, str], Sequence[Point]]
"""(process, what) -> its points, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Away:
    """A time in which something that processes need was away; ``processes`` did not get any
    work.
    """

    name: str
    start: float
    end: float
    processes: frozenset[str]


def slope(points: Sequence[Point]) -> float:
    """Growth a second, by least squares; 0 of fewer than two moments."""
    if not points:
        return 0.0
    middle_t = sum(point.t for point in points) / len(points)
    middle = sum(point.value for point in points) / len(points)
    spread = sum((point.t - middle_t) ** 2 for point in points)
    return (
        sum((point.t - middle_t) * (point.value - middle) for point in points) / spread
        if spread
        else 0.0
    )


def series(samples: Iterable[Sample], tasks: Iterable[tuple[str, float, int]]) -> Series:
    """What was sampled, and how many tasks each process had at which time.

    A process counts from when it first tells its tasks. Before that it starts: it loads its modules,
    which takes seconds on a busy machine, and grows by all that they take.
    """
    tasks = list(tasks)
    started: dict[str, float] = {}
    for process, t, _ in tasks:
        started[process] = min(t, started.get(process, t))
    made: dict[tuple[str, str], list[Point]] = defaultdict(list)
    for sample in samples:
        if sample.t < started.get(sample.process, inf):
            continue
        for what in ("memory_mb", "threads", "descriptors", "sockets"):
            made[sample.process, what].append(Point(sample.t, getattr(sample, what)))
    for process, t, count in tasks:
        made[process, "tasks"].append(Point(t, count))
    return made


def growing(
    found: Series, start: float, end: float, growths: Mapping[str, Growth] = GROWTHS
) -> Iterator[Violation]:
    """I8, I9: in a window nothing grows in a process that lives through it; there must be such a
    process.
    """
    judged = set()
    for (process, what), points in found.items():
        within = [point for point in points if start <= point.t <= end]
        if not _covers(within, start, end):
            continue
        judged.add(what)
        grown, most = slope(within) * (end - start), growths[what].over(end - start)
        if grown > most:
            invariant = "I8" if what == "memory_mb" else "I9"
            yield Violation(
                invariant,
                f"{process}: {what} grew by {grown:.1f} in {end - start:.0f} s, not {most:.1f}",
            )
    for what in growths.keys() - judged:
        yield Violation("I9", f"no process shows its {what} from {start:.0f} to {end:.0f}")


def _covers(points: Sequence[Point], start: float, end: float) -> bool:
    return bool(points) and points[-1].t - points[0].t >= (1 - MOST_LEFT_OUT) * (end - start)


def too_big(samples: Iterable[Sample], most_mb: float = MOST_MB) -> Iterator[Violation]:
    """I8: no process is ever bigger than its windows and buffers allow."""
    biggest: dict[str, float] = defaultdict(float)
    for sample in samples:
        biggest[sample.process] = max(biggest[sample.process], sample.memory_mb)
    for process, size in biggest.items():
        if size > most_mb:
            yield Violation("I8", f"{process}: {size:.0f} MB, and {most_mb:.0f} may be")


class Noise(NamedTuple):
    """What a process did while something was away."""

    name: str
    process: str
    seconds: float
    cpu_s: float
    lines: int


def noises(samples: Sequence[Sample], away: Iterable[Away]) -> Iterator[Noise]:
    """What each process did while something was away; nothing of one that was looked at less than
    twice.
    """
    for time in away:
        for process in sorted(time.processes):
            found = [
                it for it in samples if it.process == process and time.start <= it.t <= time.end
            ]
            if len(found) > 1:
                first, last = found[0], found[-1]
                yield Noise(
                    time.name,
                    process,
                    last.t - first.t,
                    last.cpu_s - first.cpu_s,
                    last.lines - first.lines,
                )


def loud(
    samples: Sequence[Sample], away: Sequence[Away], most_cpu: float, most_lines: float
) -> Iterator[Violation]:
    """I11: what cannot work neither spins nor floods its log: so much of a core, so many lines a
    second.
    """
    heard = list(noises(samples, away))
    for one in heard:
        if one.cpu_s > most_cpu * one.seconds:
            text = (
                f"{one.process}: {one.cpu_s:.1f} s of a core in {one.seconds:.1f} s of {one.name}"
            )
            yield Violation("I11", text)
        if one.lines > most_lines * one.seconds:
            yield Violation(
                "I11", f"{one.process}: {one.lines:.0f} lines in {one.seconds:.1f} s of {one.name}"
            )
    known = {(one.name, one.process) for one in heard}
    for time in away:
        for process in sorted(time.processes):
            if (time.name, process) not in known:
                yield Violation("I11", f"{process}: nothing is known of it during {time.name}")
