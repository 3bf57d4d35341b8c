"""One page of metrics made from those of all workers. Pure.

Counters and histograms are summed. A gauge is what one process sees, so each keeps its own sample,
with the label ``worker``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import inf

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SAMPLE = re.compile(
    r"""
    (?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)
    (?:\{(?P<labels>(?:[^"}]|"(?:\\.|[^"\\])*")*)\})?
    \s+(?P<value>\S+)
    """,
    re.VERBOSE,
)
_SUMMED = ("counter", "histogram", "summary")

Series = tuple[str, str]
"""The name of a sample, and its labels as they are written."""


@dataclass(slots=True)
class MetricFamily:
    """One metric: its text for people, its type, and its samples in their order."""

    help_line: str = ""
    type: str = "untyped"
    samples: dict[Series, float] = field(default_factory=dict)

    def is_summed(self, series: Series) -> bool:
        """True if samples of several workers are added up. Quantiles cannot be."""
        return self.type in _SUMMED and "quantile=" not in series[1]


Families = dict[str, MetricFamily]


def parsed(text: str) -> Families:
    """Read Prometheus text (version 0.0.4). Returns name of the metric -> its family."""
    families: Families = {}
    current = MetricFamily()
    for line in text.split("\n"):
        if line.startswith(("# HELP ", "# TYPE ")):
            _, keyword, name, *rest = line.split(" ", 3)
            current = families.setdefault(name, MetricFamily())
            if keyword == "HELP":
                current.help_line = line
            elif rest:
                current.type = rest[0].strip()
        elif found := _SAMPLE.match(line):
            series = (found["name"], found["labels"] or "")
            if not families:
                # Text without any header: every sample is a metric without a type.
                families[found["name"]] = current
            current.samples[series] = float(found["value"])
    return families


class MetricSums:
    """What the processes of all workers have counted, those that have ended included.

    Without the ended ones a sum would go down, which Prometheus takes for a restart of everything:
    it would count what the others have counted a second time.
    """

    def __init__(self) -> None:
        # Process -> its last families that are summed.
        self._last: dict[int, Families] = {}
        self._ended: Families = {}

    def ended(self, process: int) -> None:
        """Keep what a process had counted when it was asked last."""
        for name, family in self._last.pop(process, {}).items():
            _add(self._ended, name, family)

    def page(self, found: Mapping[int, tuple[int, Families]]) -> str:
        """Return the text of all metrics.

        Args:
            found: Process -> the number of its worker, and what it has answered now. A process
                that did not answer is counted as it answered last.
        """
        for process, (_, families) in found.items():
            self._last[process] = families
        merged: Families = {}
        for families in (self._ended, *self._last.values()):
            for name, family in families.items():
                _add(merged, name, family)
        for worker, families in found.values():
            for name, family in families.items():
                target = merged.setdefault(name, MetricFamily(family.help_line, family.type))
                for series, value in family.samples.items():
                    if not family.is_summed(series):
                        target.samples[_with_label(series, "worker", worker)] = value
        return "".join(f"{line}\n" for line in _lines(merged))


def _add(target: Families, name: str, family: MetricFamily) -> None:
    """Add the samples of a family that are summed."""
    into = target.setdefault(name, MetricFamily(family.help_line, family.type))
    for series, value in family.samples.items():
        if family.is_summed(series):
            into.samples[series] = into.samples.get(series, 0.0) + value


def _with_label(series: Series, label: str, value: object) -> Series:
    name, labels = series
    labels = labels.rstrip(",")
    return name, f'{labels}{"," if labels else ""}{label}="{value}"'


def _lines(families: Families) -> Iterator[str]:
    for name, family in families.items():
        if family.help_line:
            yield family.help_line
        yield f"# TYPE {name} {family.type}"
        for (sample, labels), value in family.samples.items():
            yield f"{sample}{f'{{{labels}}}' if labels else ''} {_number(value)}"


def _number(value: float) -> str:
    if value == inf:
        return "+Inf"
    if value == -inf:
        return "-Inf"
    return "NaN" if value != value else repr(value)
