"""What was measured, kept as JSON beside the pictures: a file a series."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "images" / "performance"


@dataclass(slots=True, kw_only=True)
class Measured:
    """One point in all its runs.

    Args:
        line: Of the plan's point.
        at: The same.
        runs: What each run has measured: ``rate`` in records a second, ``cpu_us`` in µs a record,
            ``quantiles`` as pairs of a share of the records and the age in ms that it did not
            exceed.
        stacks: Those that were sampled in any of the runs, and how often.
    """

    line: str
    at: float | str
    runs: list[dict[str, Any]] = field(default_factory=list)
    stacks: dict[str, int] = field(default_factory=dict)

    def add(self, run: dict[str, Any]) -> None:
        """One more run."""
        for stack, count in run.pop("stacks", {}).items():
            self.stacks[stack] = self.stacks.get(stack, 0) + count
        self.runs.append(run)

    def values(self, figure: str) -> list[float]:
        """Of each run."""
        return [run[figure] for run in self.runs]

    def median(self, figure: str) -> float:
        """Over the runs."""
        return statistics.median(self.values(figure))

    def quantiles(self) -> list[tuple[float, float]]:
        """share -> age in ms, each the median over the runs."""
        every = [run["quantiles"] for run in self.runs]
        return [
            (pairs[0][0], statistics.median(age for _, age in pairs))
            for pairs in zip(*every, strict=True)
        ]

    def age_ms(self, share: float) -> float:
        """The age that this share of the records did not exceed."""
        return dict(self.quantiles())[share]


@dataclass(slots=True, kw_only=True)
class Figures:
    """A series: what it was measured on, and its points; of the floor what each Python takes."""

    circumstances: list[str]
    points: list[Measured] = field(default_factory=list)
    pythons: list[dict[str, Any]] = field(default_factory=list)

    def line(self, name: str) -> list[Measured]:
        """The points of a line, in their order."""
        return [one for one in self.points if one.line == name]

    def of(self, line: str, at: float | str) -> Measured:
        """One point."""
        return next(one for one in self.points if (one.line, one.at) == (line, at))

    def merged(self, old: Figures | None, order: Sequence[tuple[str, float | str]]) -> Figures:
        """With the points of *old* that were not measured anew, in the order of the plan."""
        known = {(one.line, one.at): one for one in [*(old.points if old else ()), *self.points]}
        points = [known[key] for key in order if key in known]
        return Figures(circumstances=self.circumstances, points=points, pythons=self.pythons)

    def text(self) -> str:
        """For its file."""
        return json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n"


def read(text: str) -> Figures:
    """Out of its file."""
    found: dict[str, Any] = json.loads(text)
    points = [Measured(**one) for one in found.pop("points")]
    return Figures(points=points, **found)


def kept(names: Iterator[str] | Sequence[str], folder: Path = FOLDER) -> Mapping[str, Figures]:
    """series -> its figures, of those that were ever measured."""
    files = {name: folder / f"{name}.json" for name in names}
    return {
        name: read(file.read_text(encoding="utf-8"))
        for name, file in files.items()
        if file.exists()
    }


def keep(name: str, figures: Figures, folder: Path = FOLDER) -> None:
    """Write its file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(figures.text(), encoding="utf-8")
