"""The tables of docs/performance.md and benchmarks/record_costs.md.

Each is between markers such as ``<!-- plots: keys -->`` and ``<!-- /plots -->``.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from benchmarks import decoding, floor
from benchmarks.plan import FEW_PARTITIONS, WAIT_S
from benchmarks.plots.figures import Figures
from benchmarks.plots.pictures import ratio, stacks_of
from benchmarks.plots.plan import (
    AT_1000_A_SECOND,
    AT_FULL_SPEED,
    BY_KEY,
    BY_PARTITION,
    BYTES,
    DEFAULTS,
    IN_FLIGHT,
    KEYS,
    LATENCY,
    MESSAGE,
    PARTITIONS,
    RATES,
    RAW,
    THROUGHPUT,
    WAITING,
)
from benchmarks.plots.stacks import STAGES, by_stage

_ROOT = Path(__file__).resolve().parents[2]
PAGES = (_ROOT / "docs" / "performance.md", _ROOT / "benchmarks" / "record_costs.md")
_BLOCK = re.compile(r"(<!-- plots: ([a-z-]+) -->\n).*?(<!-- /plots -->)", re.DOTALL)


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    names = list(head)
    lines = [names, ["---", *["---:"] * (len(names) - 1)], *(list(row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _filled(words: str, indent: str = "") -> str:
    return textwrap.fill(
        words, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def circumstances(figures: Figures) -> str:
    """On what the figures of a series were taken."""
    return "\n".join(_filled(f"- {line}", "  ") for line in figures.circumstances)


def partitions(figures: Figures) -> str:
    """A row a number of partitions."""

    def cells(count: int, line: str) -> list[str]:
        point = figures.of(line, count)
        raw = figures.of(RAW, count)
        times = "" if line == RAW else f" ({ratio(point.values('rate'), raw.values('rate')):.2f})"
        return [f"{point.median('rate'):,.0f}{times}", f"{point.median('cpu_us'):.2f}"]

    lines = (RAW, MESSAGE, BYTES)
    head = ["partitions", *(cell for line in lines for cell in (f"{line}, records/s", "CPU µs"))]
    rows = [
        [f"{count:,}", *(cell for line in lines for cell in cells(count, line))]
        for count in PARTITIONS
    ]
    return _table(head, rows)


def in_flight(figures: Figures) -> str:
    """A row a number of handlers."""
    points = [figures.of(WAITING, count) for count in IN_FLIGHT]
    rows = [
        [
            f"{count:,}",
            f"{point.median('rate'):,.0f}",
            f"{point.median('rate') * WAIT_S / count:.0%}",
            f"{point.median('cpu_us'):.1f}",
        ]
        for count, point in zip(IN_FLIGHT, points, strict=True)
    ]
    return _table(["`concurrency`", "records/s", "of what the waits allow", "CPU µs"], rows)


def keys(figures: Figures) -> str:
    """A row a number of keys."""
    rows = []
    for count in KEYS:
        by_key = figures.of(BY_KEY, count)
        by_partition = figures.of(BY_PARTITION, count)
        rows.append(
            [
                f"{count:,}",
                f"{by_key.median('cpu_us'):.2f}",
                f"{by_key.median('rate'):,.0f}",
                f"{by_partition.median('cpu_us'):.2f}",
                f"{by_partition.median('rate'):,.0f}",
            ]
        )
    head = ["keys", f"{BY_KEY}, CPU µs", "records/s", f"{BY_PARTITION}, CPU µs", "records/s"]
    return _table(head, rows)


def stages(figures: Figures) -> str:
    """A row a stage."""
    lines = (MESSAGE, BYTES)
    shares = {line: by_stage(stacks_of(figures, line)) for line in lines}
    cpu = {line: figures.of(line, FEW_PARTITIONS).median("cpu_us") for line in lines}
    rows = [
        [stage, *(cell for line in lines for cell in _share(shares[line][stage], cpu[line]))]
        for stage in STAGES
    ]
    rows.append(["all", *(cell for line in lines for cell in _share(1.0, cpu[line]))])
    return _table(
        ["stage", *(cell for line in lines for cell in (f"{line}, CPU µs", "share"))], rows
    )


def _share(share: float, of: float) -> list[str]:
    return [f"{share * of:.3f}", f"{share:.1%}"]


def latency(figures: Figures) -> str:
    """A row a pace and a client."""
    rows = []
    for rate in RATES:
        for line in (RAW, BYTES):
            point = figures.of(line, rate)
            ages = [f"{point.age_ms(share):.2f}" for share in (0.5, 0.9, 0.99, 0.999)]
            rows.append([f"{line}, {rate:,} records/s", *ages, f"{point.median('cpu_us'):.1f}"])
    return _table(["", "p50 ms", "p90 ms", "p99 ms", "p99.9 ms", "CPU µs"], rows)


def tuning(figures: Figures) -> str:
    """A row a setting, at full speed."""
    base = figures.of(THROUGHPUT, DEFAULTS)
    rows = []
    for choice in AT_FULL_SPEED:
        point = figures.of(THROUGHPUT, choice.name)
        times = ratio(point.values("rate"), base.values("rate"))
        rows.append(
            [
                choice.name,
                f"{point.median('rate'):,.0f}",
                f"{times:.2f}",
                f"{point.median('cpu_us'):.2f}",
            ]
        )
    return _table(["", "records/s", "times the defaults", "CPU µs"], rows)


def tuning_latency(figures: Figures) -> str:
    """A row a setting, at a pace."""
    rows = []
    for choice in AT_1000_A_SECOND:
        point = figures.of(LATENCY, choice.name)
        ages = [f"{point.age_ms(share):.2f}" for share in (0.5, 0.99)]
        rows.append([choice.name, *ages, f"{point.median('cpu_us'):.1f}"])
    return _table(["", "p50 ms", "p99 ms", "CPU µs"], rows)


def python_floor(figures: Figures) -> str:
    """A row an operation."""
    return floor.table(figures.pythons)


def decoders(figures: Figures) -> str:
    """A row a decoder."""
    return decoding.table(figures.pythons)


def spread(figures: Figures) -> str:
    """How far the runs of one point lie apart."""
    every = [
        max(one.values("rate")) / min(one.values("rate")) - 1
        for one in figures.points
        if len(one.runs) > 1
    ]
    if not every:
        return "Each point is one run."
    middle = sorted(every)[len(every) // 2]
    return _filled(
        f"Each point is the median of {len(figures.points[0].runs)} runs, taken in turns. The fastest run of a point "
        f"is {middle:.0%} above its slowest in the middle, and {max(every):.0%} at most: "
        f"what differs by less than that says nothing."
    )


Writer = Callable[[Figures], str]
BLOCKS: Mapping[str, tuple[str, Writer]] = {
    "circumstances": ("partitions", circumstances),
    "spread": ("tuning", spread),
    "partitions": ("partitions", partitions),
    "in-flight": ("in-flight", in_flight),
    "keys": ("keys", keys),
    "stages": ("stages", stages),
    "latency": ("latency", latency),
    "tuning": ("tuning", tuning),
    "tuning-latency": ("tuning-latency", tuning_latency),
    "floor": ("floor", python_floor),
    "decoders": ("floor", decoders),
}
"""marker -> the series that it is about, and what stands there."""


def written(page: str, kept: Mapping[str, Figures]) -> str:
    """The page with the tables of these figures; those of a series without any stay as they are."""

    def block(match: re.Match[str]) -> str:
        series, write = BLOCKS[match[2]]
        return f"{match[1]}\n{write(kept[series])}\n\n{match[3]}" if series in kept else match[0]

    return _BLOCK.sub(block, page)
