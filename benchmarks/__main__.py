"""``make bench``: all rows on a real Kafka, in turns, and the page of it.

Each run is a process of its own with a fresh consumer group. The clocks of a throughput run from
the first handler call to the end of the last one, so starting up and joining the group are not in
the figures.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from benchmarks import build, machine, page, report
from benchmarks.build import Build
from benchmarks.figures import Figures
from benchmarks.gauges.plan import GAUGES
from benchmarks.page import RESULTS
from benchmarks.place import Place, fill, kafka, make_topics, registry_for
from benchmarks.plan import CONTENDERS, Contender
from benchmarks.report import Measured
from benchmarks.runs import Row, RunFailedError, run


def main() -> int:
    """Measure, print and write the results.

    Returns:
        1 if a run failed, or with ``--check`` if a goal is missed; 2 if no row was asked for.
    """
    given = _arguments()
    contenders = [one for one in CONTENDERS if _is_wanted(one, given.only, given.partitions)]
    gauges = [one for one in GAUGES if _is_wanted(one, given.only, given.partitions)]
    if not (contenders or gauges):
        print(_no_row(given.only, given.partitions), file=sys.stderr)
        return 2
    load = machine.load()
    if load > machine.QUIET:
        print(
            f"warning: others use this machine (load {load:.1f}): the figures will say little",
            file=sys.stderr,
        )
    builds = in_order([build.of(python) for python in given.python or [sys.executable]])
    with kafka(given.bootstrap) as (bootstrap, broker), registry_for(contenders) as registry:
        place = Place(
            bootstrap=bootstrap,
            registry="" if registry is None else registry.url,
            records=given.records,
        )
        fill(place, contenders, registry)
        make_topics(place, gauges)
        rows: list[Row] = [*contenders, *gauges]
        # The broker's code is cold at first, and the first reader alone would pay for it.
        run(rows[0], place, builds[0].python)
        pace = machine.Pace(build.calibrate, time.sleep)
        measured, failures = measure(rows, given.rounds, place, builds, pace)
    under = page.Circumstances(
        broker=broker, records=given.records, load=load, slowed=pace.slowed, looks=pace.looks
    )
    text = page.results(measured, under)
    print("\n" + text)
    if given.write and not (given.only or given.partitions):
        RESULTS.write_text(text)
    missed = (
        [verdict.sentence for verdict in report.verdicts(measured) if not verdict.met]
        if given.check
        else []
    )
    print("\n".join([*failures, *missed]), file=sys.stderr)
    return 1 if failures or missed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--python",
        nargs="+",
        help="those to measure, with our packages (default: the one that runs)",
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="how often each row runs (default: %(default)s)"
    )
    parser.add_argument(
        "--records", type=int, default=2_000_000, help="records in a topic (default: %(default)s)"
    )
    parser.add_argument(
        "--only", action="append", help="only rows whose module:function contains this, or this"
    )
    parser.add_argument(
        "--partitions", type=int, help="only those that read a topic of so many partitions"
    )
    parser.add_argument(
        "--bootstrap", help="host:port of a Kafka that runs already (default: start one)"
    )
    parser.add_argument("--check", action="store_true", help="fail if a performance goal is missed")
    parser.add_argument(
        "--no-write",
        dest="write",
        action="store_false",
        help="leave benchmarks/results.md alone, as it is where --only or --partitions is given",
    )
    return parser.parse_args()


def _is_wanted(row: Row, names: Sequence[str] | None, partitions: int | None) -> bool:
    is_named = names is None or any(name in row.run for name in names)
    return is_named and partitions in (None, row.partitions)


def _no_row(names: Sequence[str] | None, partitions: int | None) -> str:
    rows: list[Row] = [*CONTENDERS, *GAUGES]
    of_names = [row for row in rows if _is_wanted(row, names, None)]
    if not of_names:
        allowed = ", ".join(sorted({row.run for row in rows}))
        return f"--only {' '.join(names or ())}: no row has this in its module:function: {allowed}"
    counts = ", ".join(str(count) for count in sorted({row.partitions for row in of_names}))
    return f"--partitions {partitions}: such rows read topics of {counts} partitions"


def in_order(builds: Sequence[Build]) -> list[Build]:
    """The Python that users are likely to have comes first: an optimised one, if there is any."""
    return sorted(builds, key=lambda one: not one.is_optimised)


def rows_on(rows: Sequence[Row], *, is_first: bool) -> list[Row]:
    """Those that are measured on a Python: all of them on the first one."""
    return [row for row in rows if is_first or (isinstance(row, Contender) and row.everywhere)]


def measure(
    rows: Sequence[Row], count: int, place: Place, builds: Sequence[Build], pace: machine.Pace
) -> tuple[list[Measured], list[str]]:
    """Run everything *count* times, every other round backwards; what each Python measured, and
    what failed.
    """
    chosen = {one.python: rows_on(rows, is_first=one is builds[0]) for one in builds}
    measured = [
        Measured(build=one, rows=frozenset(row.name for row in chosen[one.python]))
        for one in builds
    ]
    failures: list[str] = []
    for number in range(count):
        for on in measured if number % 2 == 0 else reversed(measured):
            results: dict[str, Figures] = {}
            # Neighbours stay neighbours, so that what is compared ran within seconds of each other.
            for row in (
                chosen[on.build.python] if number % 2 == 0 else reversed(chosen[on.build.python])
            ):
                label = f"round {number + 1}, {on.build.name}: {row.name}"
                try:
                    pace.wait()
                    results[row.name] = run(row, place, on.build.python)
                except RunFailedError as error:
                    failures.append(f"{label}: {error}")
                    print(failures[-1], file=sys.stderr, flush=True)
                    continue
                print(f"{label}: {report.in_short(results[row.name])}", flush=True)
            on.rounds.append(results)
    return measured, failures


if __name__ == "__main__":
    sys.exit(main())
