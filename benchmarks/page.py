"""The page of results."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import machine, orders, report, topic
from benchmarks.build import Build
from benchmarks.report import Measured

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What all figures have in common.

    Args:
        broker: What to call it.
        records: In the topics that are read to their end.
        load: Of the machine, in the minute before.
        looks: How often a row waited until nobody else slowed the machine down.
        slowed: How often it waited in vain.
    """

    broker: str
    records: int
    load: float
    looks: int
    slowed: int


def results(measured: Sequence[Measured], under: Circumstances) -> str:
    """The whole page."""
    first = measured[0].build
    lines = [
        "# Measured",
        "",
        f"`make bench` on {time.strftime('%Y-%m-%d', time.gmtime())}, {_rounds(measured[0])}, rows in turns, "
        "every other round backwards. Ratios carry over to machines with a Python and a processor of the same kind, "
        "absolute figures do not: there is a page of [an older tree on an AMD EPYC](results_epyc.md).",
        "",
        *(f"- {line}" for line in machine.describe(python=None)),
        f"- Load of the machine in the minute before: {under.load:.1f}. Each row waits until a loop takes less "
        f"than {machine.SLOWED:g} times its best, for {machine.WAIT_S:g} s at most: other guests of the host slow it "
        f"down, and show in no load. {under.slowed} of {under.looks} waited in vain.",
        f"- {under.broker}; {under.records:,} records of {topic.VALUE_BYTES} bytes, uncompressed, in "
        f"{topic.PARTITIONS} partitions where a table names no other number; orders are "
        f"{len(orders.as_json(1_000_000))} bytes of JSON, or {len(orders.as_avro(1)(1_000_000))} of Avro with their "
        "schema in a registry",
        "- All contenders deliver at least once: nothing is committed before it is handled. Ours runs with metrics, "
        "poison watch and health over HTTP on, and had committed the end of the topic when it ended.",
        "- Throughput is measured from the first handler call to the end of the last one, each in a process of its own "
        "with a fresh group. CPU is what the process used in that span, RSS its peak since it started.",
        "- Latency is from a record's send, by another process that keeps the pace, to its handler's call. A start is "
        "measured from the start of the process. At rest it has nothing to read for ten seconds. A rebalance is "
        "measured from the call that revokes all partitions to the first record after it, while another member joins "
        "and when it has left.",
        "- Throughputs, and their CPU, are the best over the rounds, for all contenders alike: others only ever slow "
        "a run down. All other figures are medians over the rounds, and their ratios medians of each round's.",
        "",
        "## Pythons",
        "",
        *pythons([one.build for one in measured]),
        "",
        f"All rows run on {first.name}, and on the others those of which the interpreter's share is large. The "
        "calibrating loop calls a method that adds to an attribute; `python -m benchmarks.build` prints what yours "
        "takes.",
        "",
        "## Goals",
        "",
        report.promises(measured),
        "",
        *beside(measured),
        *(line for one in measured for line in _section(one)),
    ]
    return report.wrapped("\n".join(lines).rstrip() + "\n")


def beside(measured: Sequence[Measured]) -> list[str]:
    """What each of several Pythons gives, side by side."""
    table = report.by_python(measured) if len(measured) > 1 else ""
    what = "Records a second, and the ratio to what the other tables compare it with."
    return ["## By Python", "", what, "", table, ""] if table else []


def pythons(builds: Sequence[Build]) -> list[str]:
    """A table of how they were built."""
    return [
        "| CPython | built | compiler | flags | calibrating loop, ns a turn |",
        "|---|---|---|---|---:|",
        *(
            f"| {one.version} | {one.how} | {one.compiler} | `{one.flags}` | {one.loop_ns:.0f} |"
            for one in builds
        ),
    ]


def _section(measured: Measured) -> list[str]:
    tables = list(report.tables(measured))
    return [
        f"## CPython {measured.build.name}",
        "",
        *(line for table in tables for line in (table, "")),
    ]


def _rounds(measured: Measured) -> str:
    count = len(measured.rounds)
    return f"{count} round{'s' * (count != 1)}"
