"""``make bench-plots``: measures what docs/performance.md shows, keeps the figures, draws them,
writes the page.

``--only partitions --only keys`` measures these series and keeps the figures of the others; ``--at
4`` measures some points of a series; ``--draw`` measures nothing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping

from benchmarks import floor, machine
from benchmarks.plots import figures, measure
from benchmarks.plots.page import PAGES, written
from benchmarks.plots.pictures import pictures
from benchmarks.plots.plan import FLOOR, PLANS, SERIES, Source


def main() -> None:
    """Measure what is wanted, then draw all there is."""
    given = _arguments()
    if not given.draw:
        if (load := machine.load()) > machine.QUIET:
            print(
                f"warning: others use this machine (load {load:.1f}): the figures will say little",
                file=sys.stderr,
            )
        wanted = given.only or SERIES
        topics = dict[Source, str]()
        with measure.kafka(given.bootstrap) as bootstrap:
            for name in wanted:
                if name != FLOOR:
                    _measure(name, bootstrap, given.at, given.rounds, topics)
        if FLOOR in wanted:
            figures.keep(
                FLOOR,
                figures.Figures(circumstances=measure.circumstances(), pythons=floor.everywhere()),
            )
    kept = whole(figures.kept(SERIES))
    for file, picture in pictures(kept).items():
        (figures.FOLDER / file).write_text(picture, encoding="utf-8")
    for page in PAGES:
        page.write_text(written(page.read_text(encoding="utf-8"), kept), encoding="utf-8")


def whole(kept: Mapping[str, figures.Figures]) -> dict[str, figures.Figures]:
    """The series of which each point was measured."""
    found = {}
    for name, series in kept.items():
        missing = set(order_of(name)) - {(one.line, one.at) for one in series.points}
        if missing:
            print(
                f"{name} is not drawn: {len(missing)} of its points were not measured",
                file=sys.stderr,
            )
        else:
            found[name] = series
    return found


def order_of(name: str) -> list[tuple[str, float | str]]:
    """The points of a series."""
    return [(one.line, one.at) for one in PLANS[name].points] if name in PLANS else []


def _measure(
    name: str, bootstrap: str, at: list[str] | None, rounds: int | None, topics: dict[Source, str]
) -> None:
    plan = PLANS[name]
    points = [one for one in plan.points if at is None or str(one.at) in at]
    if not points:
        known = ", ".join(dict.fromkeys(str(one.at) for one in plan.points))
        raise SystemExit(f"{name} has no point at {', '.join(at or ())}, only at {known}")
    found = measure.measured(plan, points, bootstrap, rounds, topics)
    old = figures.kept([name]).get(name)
    figures.keep(name, found.merged(old, order_of(name)))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plots", description=__doc__)
    parser.add_argument(
        "--only", action="append", choices=SERIES, help="measure this series (default: all of them)"
    )
    parser.add_argument("--at", action="append", help="only the points at this place of their axis")
    parser.add_argument(
        "--rounds", type=int, help="how often each point runs (default: as its series needs)"
    )
    parser.add_argument(
        "--draw", action="store_true", help="measure nothing: draw and write from the kept figures"
    )
    parser.add_argument(
        "--bootstrap", help="host:port of a Kafka that runs already (default: start one)"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
