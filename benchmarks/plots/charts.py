"""Charts as values, and how they are drawn: lines over an axis, and bars."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.plots import svg

WIDTH = 760
HEIGHT = 400
LEFT = 78
RIGHT = 40
TOP = 44
BOTTOM = 52
BAR = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """What an axis shows.

    Args:
        label: With its unit.
        is_log: Each step multiplies.
        ticks: Where there are labels; empty: at round numbers.
        least: Where a linear axis begins.
        most: Where it ends; None: behind the largest value.
    """

    label: str
    is_log: bool = False
    ticks: Sequence[float] = ()
    least: float = 0.0
    most: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A line of a chart; a dashed one was not measured."""

    name: str
    points: Sequence[tuple[float, float]]
    is_dashed: bool = False
    has_dots: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Lines over one axis."""

    title: str
    x: Axis
    y: Axis
    series: Sequence[Series]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A row of bars one behind the other, of which each has the colour of its part.

    Args:
        name: Beside it.
        parts: The number of the part's colour, and how long it is.
        note: At its end.
    """

    name: str
    parts: Sequence[tuple[int, float]]
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """Rows of bars; *parts* are the names of the colours, none if there is one only."""

    title: str
    axis: Axis
    rows: Sequence[Bar]
    parts: Sequence[str] = ()


class Scale:
    """Where on the picture a value is."""

    def __init__(self, axis: Axis, values: Sequence[float], start: float, end: float) -> None:
        self._axis = axis
        self._start = start
        self._end = end
        if axis.is_log and axis.ticks:
            self._low = min([*values, *axis.ticks])
            self._high = max([*values, *axis.ticks])
        elif axis.is_log:
            steps = [factor * 10.0**power for power in range(-9, 12) for factor in (1, 2, 5)]
            self._low = max(one for one in steps if one <= min(values) * 1.001)
            self._high = min(one for one in steps if one >= max(values) * 0.999)
        else:
            self._low = axis.least
            self._high = (
                axis.most if axis.most is not None else max(values, default=1.0) * 1.05 or 1.0
            )

    def at(self, value: float) -> float:
        """The pixel."""
        low, high, value = (
            math.log10(one) if self._axis.is_log else one for one in (self._low, self._high, value)
        )
        share = (value - low) / (high - low) if high > low else 0.5
        return self._start + share * (self._end - self._start)

    def ticks(self) -> list[float]:
        """Where there are labels."""
        if self._axis.ticks:
            return list(self._axis.ticks)
        return (
            _round_logs(self._low, self._high)
            if self._axis.is_log
            else _round(self._low, self._high)
        )


def _round(low: float, high: float) -> list[float]:
    rough = (high - low) / 6
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    return [low + number * step for number in range(int((high - low) / step + 1e-9) + 1)]


def _round_logs(low: float, high: float) -> list[float]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1,) if high / low > 200 else (1, 2, 5)
    every = [factor * 10.0**power for power in powers for factor in factors]
    return [one for one in every if low * 0.999 <= one <= high * 1.001]


def number(value: float) -> str:
    """As people write it."""
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def drawn(chart: Chart | Bars) -> str:
    """The chart as a file."""
    return _lines(chart) if isinstance(chart, Chart) else _bars(chart)


def _lines(chart: Chart) -> str:
    colours = {one.name: (7 if one.is_dashed else place) for place, one in enumerate(chart.series)}
    names, top = svg.legend(LEFT, TOP, WIDTH - LEFT - RIGHT, colours.items())
    bottom = HEIGHT - BOTTOM
    points = [point for one in chart.series for point in one.points]
    across = Scale(chart.x, [x for x, _ in points], LEFT, WIDTH - RIGHT)
    up = Scale(chart.y, [y for _, y in points], bottom, top)
    body = [svg.text(LEFT, 24, chart.title, kind="title"), *names]
    for tick in up.ticks():
        body += [svg.line(LEFT, up.at(tick), WIDTH - RIGHT, up.at(tick))]
        body += [svg.text(LEFT - 8, up.at(tick) + 4, number(tick), anchor="end")]
    for tick in across.ticks():
        body += [svg.line(across.at(tick), top, across.at(tick), bottom)]
        body += [svg.text(across.at(tick), bottom + 18, number(tick), anchor="middle")]
    body += [svg.text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, chart.x.label, anchor="middle")]
    body += [svg.text(18, (top + bottom) / 2, chart.y.label, anchor="middle", turned=True)]
    for one in chart.series:
        places = [(across.at(x), up.at(y)) for x, y in one.points]
        body.append(svg.path(places, colours[one.name], dashed=one.is_dashed))
        for (x, y), (at_x, at_y) in zip(one.points, places, strict=True) if one.has_dots else ():
            body.append(
                svg.dot(at_x, at_y, colours[one.name], f"{one.name}: {number(y)} at {number(x)}")
            )
    return svg.picture(WIDTH, HEIGHT, chart.title, body)


def _bars(chart: Bars) -> str:
    left = 24 + max(len(row.name) for row in chart.rows) * svg.WIDTH_OF_A_LETTER
    room = 16 + max(len(row.note) for row in chart.rows) * svg.WIDTH_OF_A_LETTER
    names, top = svg.legend(
        24, TOP, WIDTH - 48, list(zip(chart.parts, range(len(chart.parts)), strict=True))
    )
    top = top - 8 if chart.parts else TOP - 8
    bottom = top + len(chart.rows) * (BAR + 6) + 4
    across = Scale(
        chart.axis, [sum(value for _, value in row.parts) for row in chart.rows], left, WIDTH - room
    )
    body = [svg.text(24, 24, chart.title, kind="title"), *names]
    for tick in across.ticks():
        body += [svg.line(across.at(tick), top, across.at(tick), bottom)]
        body += [svg.text(across.at(tick), bottom + 16, number(tick), anchor="middle")]
    body += [svg.text((left + WIDTH - room) / 2, bottom + 38, chart.axis.label, anchor="middle")]
    for place, row in enumerate(chart.rows):
        y = top + 4 + place * (BAR + 6)
        value = 0.0
        body.append(svg.text(left - 8, y + BAR - 5, row.name, anchor="end"))
        for colour, length in row.parts:
            start = across.at(value)
            end = across.at(value + length)
            tip = f"{chart.parts[colour] if chart.parts else row.name}: {number(length)}"
            body.append(svg.box(start, y, end - start, BAR, colour, tip))
            value += length
        body.append(svg.text(across.at(value) + 8, y + BAR - 5, row.note))
    return svg.picture(WIDTH, round(bottom + 52), chart.title, body)
