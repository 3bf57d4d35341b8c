"""What has been measured up to now, in a file after each turn: a run that was cut short goes on
from there.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.peers.judge import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What one measured run took: as the contenders' own result, and no more of it than every
    language has.
    """

    records: int
    wall_s: float
    cpu_s: float
    peak_rss_mb: float

    @property
    def rate(self) -> float:
        """Records a second."""
        return self.records / self.wall_s

    @property
    def cpu_us(self) -> float:
        """Microseconds of the processor for a record."""
        return self.cpu_s / self.records * 1e6


def figures(output: str) -> Figures | None:
    """The result in what a contender has written: its last line in braces.

    Some peers write after it, and Faust hides the cursor before it, in the same line.
    """
    for line in reversed(output.splitlines()):
        _, brace, rest = line.partition("{")
        if rest.endswith("}"):
            read: dict[str, Any] = json.loads(brace + rest)
            return Figures(**{name: read[name] for name in Figures.__dataclass_fields__})
    return None


Round = dict[str, Figures]
"""name -> what it took in that round; without those that failed."""


@dataclass(slots=True, kw_only=True)
class State:
    """All results of a run, and what stands in their way.

    Args:
        commit: What is measured: versions, and the commit of the tree.
        day: When it began.
        rounds: What the contenders took, round by round.
        verdicts: What their groups have lost and repeated.
        failures: What went wrong: the turn, and why.
        missing: Family -> why it cannot be installed here.
        loads: The load of the machine before each turn of a round.
    """

    commit: str
    day: str
    rounds: list[Round] = field(default_factory=list)
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    loads: list[float] = field(default_factory=list)

    def save(self, path: Path) -> None:
        """Write it; whole, or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_suffix(".new")
        beside.write_text(json.dumps(asdict(self), indent=1))
        beside.rename(path)

    @classmethod
    def load(cls, path: Path) -> State:
        """Read what was saved."""
        read = json.loads(path.read_text())
        read["rounds"] = [
            {name: Figures(**one) for name, one in each.items()} for each in read["rounds"]
        ]
        read["verdicts"] = {name: Verdict(**one) for name, one in read["verdicts"].items()}
        return cls(**read)
