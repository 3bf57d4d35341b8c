"""The pictures of the page, drawn from the kept figures. Values in, SVG out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from benchmarks.plan import FEW_PARTITIONS, WAIT_S
from benchmarks.plots import flame
from benchmarks.plots.charts import Axis, Bar, Bars, Chart, Series, drawn, number
from benchmarks.plots.figures import Figures
from benchmarks.plots.plan import (
    AT_FULL_SPEED,
    BY_KEY,
    BY_PARTITION,
    BYTES,
    DEFAULTS,
    IN_FLIGHT,
    KEYS,
    MESSAGE,
    PARTITIONS,
    RATES,
    RAW,
    THROUGHPUT,
    WAITING,
)
from benchmarks.plots.stacks import STAGES, by_stage, unfolded

PER_SECOND = "thousand records per second"
CPU = "µs of CPU per record"


def plain(words: str) -> str:
    """Without the marks of code, which pictures have not."""
    return words.replace("`", "")


def _line(figures: Figures, name: str, figure: str, per: float = 1.0) -> Series:
    points = [(float(one.at), one.median(figure) / per) for one in figures.line(name)]
    return Series(name=plain(name), points=points)


def partitions(figures: Figures) -> str:
    """Throughput over partitions."""
    return drawn(
        Chart(
            title="Throughput over partitions: a handler that does nothing",
            x=Axis(label="partitions", is_log=True, ticks=PARTITIONS),
            y=Axis(label=PER_SECOND),
            series=[_line(figures, name, "rate", 1e3) for name in (RAW, MESSAGE, BYTES)],
        )
    )


def in_flight(figures: Figures) -> str:
    """Throughput over what is in flight."""
    ideal = [(float(count), count / WAIT_S) for count in IN_FLIGHT]
    return drawn(
        Chart(
            title="Throughput over records in flight: a handler that waits 10 ms",
            x=Axis(label="handlers at once (concurrency)", is_log=True, ticks=IN_FLIGHT),
            y=Axis(label="records per second", is_log=True),
            series=[
                _line(figures, WAITING, "rate"),
                Series(
                    name="if nothing but the wait took time",
                    points=ideal,
                    is_dashed=True,
                    has_dots=False,
                ),
            ],
        )
    )


def in_flight_cpu(figures: Figures) -> str:
    """CPU over what is in flight."""
    return drawn(
        Chart(
            title="CPU per record over records in flight: a handler that waits 10 ms",
            x=Axis(label="handlers at once (concurrency)", is_log=True, ticks=IN_FLIGHT),
            y=Axis(label=CPU, is_log=True),
            series=[_line(figures, WAITING, "cpu_us")],
        )
    )


def keys(figures: Figures) -> str:
    """CPU over keys."""
    return drawn(
        Chart(
            title="CPU per record over the number of keys: a handler that does nothing",
            x=Axis(label="different keys in 1,000,000 records", is_log=True, ticks=KEYS),
            y=Axis(label=CPU),
            series=[_line(figures, name, "cpu_us") for name in (BY_KEY, BY_PARTITION)],
        )
    )


def stacks_of(figures: Figures, line: str) -> dict[tuple[str, ...], int]:
    """The samples of a line."""
    return unfolded(figures.of(line, FEW_PARTITIONS).stacks)


def flame_graph(figures: Figures) -> str:
    """Where the time of a record goes, function by function."""
    point = figures.of(MESSAGE, FEW_PARTITIONS)
    title = "A record's CPU by function: a handler of Message that does nothing"
    return flame.drawn(stacks_of(figures, MESSAGE), title, point.median("cpu_us"))


def stages(figures: Figures) -> str:
    """Where it goes, stage by stage."""
    rows = []
    for line in (MESSAGE, BYTES):
        shares = by_stage(stacks_of(figures, line))
        cpu = figures.of(line, FEW_PARTITIONS).median("cpu_us")
        parts = [(place, shares[stage] * cpu) for place, stage in enumerate(STAGES)]
        rows.append(Bar(name=plain(line), parts=parts, note=f"{cpu:.2f} µs"))
    return drawn(
        Bars(title="CPU per record by stage", axis=Axis(label=CPU), rows=rows, parts=STAGES)
    )


def latency(figures: Figures) -> str:
    """How old records are when their handlers are called."""
    lines = []
    for rate in RATES:
        for name in (RAW, BYTES):
            ages = [
                (max(age, 0.01), share * 100) for share, age in figures.of(name, rate).quantiles()
            ]
            said = f"{plain(name).partition('(')[0].partition(',')[0]}, {rate:,}/s"
            lines.append(Series(name=said, points=ages, has_dots=False))
    return drawn(
        Chart(
            title="From send to handler: share of the records that took at most so long",
            x=Axis(label="ms from send to the call of the handler", is_log=True),
            y=Axis(label="% of the records", most=100.0),
            series=lines,
        )
    )


def tuning(figures: Figures) -> str:
    """What settings do to throughput."""
    base = figures.of(THROUGHPUT, DEFAULTS)
    rows = []
    for choice in AT_FULL_SPEED:
        point = figures.of(THROUGHPUT, choice.name)
        value = ratio(point.values("rate"), base.values("rate"))
        rows.append(Bar(name=plain(choice.name), parts=[(0, value)], note=f"{value:.2f}"))
    axis = Axis(label="throughput, the defaults with a handler of bytes being 1")
    return drawn(
        Bars(
            title="What settings do to throughput: a handler that does nothing",
            axis=axis,
            rows=rows,
        )
    )


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median of the ratios in each round."""
    every = sorted(one / other for one, other in zip(ours, theirs, strict=True))
    middle = len(every) // 2
    return every[middle] if len(every) % 2 else (every[middle - 1] + every[middle]) / 2


def python_floor(figures: Figures) -> str:
    """What a record takes at least, by operation, on each Python."""
    from benchmarks.floor import OPERATIONS, PARSE

    counted = [one for one in OPERATIONS if one.with_message]
    names = [*(plain(one.name).partition(":")[0] for one in counted), plain(PARSE)]
    rows = []
    for one in figures.pythons:
        parts = [
            *(
                (place, one["ns"][each.name] * each.with_message)
                for place, each in enumerate(counted[:7])
            ),
            (7, sum(one["ns"][each.name] * each.with_message for each in counted[7:])),
        ]
        rows.append(
            Bar(name=one["python"], parts=parts, note=f"{number(sum(ns for _, ns in parts))} ns")
        )
    legend = [*names[:7], "the rest"]
    return drawn(
        Bars(
            title="What Python's own operations take for a record, without reading it",
            axis=Axis(label="ns per record"),
            rows=rows,
            parts=legend,
        )
    )


Drawer = Callable[[Figures], str]
DRAWN: Mapping[str, tuple[str, Drawer]] = {
    "partitions.svg": ("partitions", partitions),
    "in-flight.svg": ("in-flight", in_flight),
    "in-flight-cpu.svg": ("in-flight", in_flight_cpu),
    "keys.svg": ("keys", keys),
    "flame.svg": ("stages", flame_graph),
    "stages.svg": ("stages", stages),
    "latency.svg": ("latency", latency),
    "tuning.svg": ("tuning", tuning),
    "floor.svg": ("floor", python_floor),
}
"""file -> the series that it shows, and how."""


def pictures(kept: Mapping[str, Figures]) -> dict[str, str]:
    """file -> picture, of all series that were measured."""
    return {file: draw(kept[series]) for file, (series, draw) in DRAWN.items() if series in kept}
