"""Results become a page. No I/O."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from benchmarks.peers.contenders.work import SESSION_S
from benchmarks.peers.homes import version
from benchmarks.peers.journal import VALUE_BYTES
from benchmarks.peers.plan import (
    ALO,
    BASELINES,
    CRASHES,
    JVM,
    NONE,
    ONE_AT_A_TIME,
    OWN,
    SAFETIES,
    SPEEDS,
    TOPIC_RECORDS,
    WAIT_S,
    Safety,
    Series,
    Speed,
)
from benchmarks.peers.state import Round, State
from reactive_kafka.broker.jars import KAFKA_VERSION

TITLES: dict[Series, str] = {
    "no-op": "A handler that does nothing",
    "10 ms": f"A handler that waits {WAIT_S * 1e3:g} ms, about 1,000 at once",
}
TIME_OVER = "time was over"
NOT_INSTALLED = "not measured: it cannot be installed here"


def page(state: State, machine: Sequence[str]) -> str:
    """The whole page; *machine* says what it was measured on."""
    lines = ["# Peers, side by side", "", *_head(state, machine), ""]
    for series, title in TITLES.items():
        lines += [f"## {title}", "", *speeds(state, series), ""]
    lines += [
        f"Not in this table: {ONE_AT_A_TIME}, which handle one record at a time, and so fewer than 100 a second.",
        "",
        "## Lost and repeated",
        "",
        *safety(state),
        "",
    ]
    if state.missing or state.failures:
        lines += ["## What went wrong", ""]
        lines += [f"- Not installed: {family}: {why}" for family, why in state.missing.items()]
        lines += [f"- {turn}: {why}" for turn, why in state.failures.items() if why != TIME_OVER]
        left_out = [turn for turn, why in state.failures.items() if why == TIME_OVER]
        lines += [f"- Left out, as time was over: {', '.join(left_out)}"] if left_out else []
    return "\n".join(lines).rstrip() + "\n"


def _head(state: State, machine: Sequence[str]) -> list[str]:
    loads = "not measured"
    if state.loads:
        loads = f"{min(state.loads):.1f} to {max(state.loads):.1f}, median {statistics.median(state.loads):.1f}"
    return [
        f"`make bench-peers` on {state.day}, {len(state.rounds)} rounds, contenders in turns, every other round "
        "backwards. Ratios are medians of the ratios in each round.",
        "",
        *(f"- {line}" for line in (*machine, state.commit)),
        f"- Load of the machine in the minute before each turn: {loads}",
        f"- Peers in homes of their own: {', '.join(version(family) for family in (*OWN, *JVM))}",
        f"- Apache Kafka {KAFKA_VERSION}, one node on this machine; {TOPIC_RECORDS:,} records of {VALUE_BYTES} bytes, "
        "uncompressed, in 4 partitions, read by one process with a group of its own",
        "- Each commits once a second where it can be told to; FastStream with `ACK` after each batch or record; auto "
        "commits of FastStream and kstreams come as they do. Ours has metrics, poison watch and health over HTTP on.",
        "- Python is measured from the first call of the handler to the end of the last one; the JVM after a warm-up "
        "of as many records again, in the same process, with its default heap. CPU is what the process used in that "
        "span, RSS its peak since it started.",
        f"- *{ALO}*: nothing is committed before it is handled. *{CRASHES}*: so it is when a process is killed, but a "
        f"record whose handler failed is committed, too. *{NONE}*: the client commits what it has handed out, handled "
        "or not.",
        "- *Lost and repeated*: two members under load. Three times one of them is killed (SIGKILL) and comes back, "
        f"with sessions of {SESSION_S:g} seconds; then both are restarted twice, one after the other (SIGTERM). Each "
        "writes which record it handles before its handler returns. Handlers of members with many records under way "
        "wait up to half a second. *Lost* is what nobody has handled though the committed position is beyond it.",
    ]


def speeds(state: State, series: Series) -> list[str]:
    """A row for each contender of *series*, in the order of the plan."""
    head = (
        "| contender | guarantee | records | records/s, median (lowest - highest) | "
        f"ratio to {BASELINES[series]} | CPU µs per record | peak RSS MB |"
    )
    rows = [_speed(state, row) for row in SPEEDS if row.series == series]
    return [head, "|---|---|---:|---:|---:|---:|---:|", *rows]


def _speed(state: State, row: Speed) -> str:
    runs = [each[row.name] for each in state.rounds if row.name in each]
    start = f"| {row.name} | {row.guarantee} |"
    if not runs:
        return f"{start} {_why(state, row)} | | | | |"
    rates = [run.rate for run in runs]
    spread = f"{statistics.median(rates):,.0f} ({min(rates):,.0f} - {max(rates):,.0f})"
    beside = ratios(state.rounds, row.name, BASELINES[row.series])
    ratio = _short(statistics.median(beside)) if beside else ""
    cpu = statistics.median(run.cpu_us for run in runs)
    rss = statistics.median(run.peak_rss_mb for run in runs)
    return f"{start} {runs[0].records:,} | {spread} | {ratio} | {_short(cpu)} | {rss:,.0f} |"


def ratios(rounds: Sequence[Round], name: str, baseline: str) -> list[float]:
    """How much faster it was than the raw client, for each round that has both."""
    return [
        each[name].rate / each[baseline].rate
        for each in rounds
        if name in each and baseline in each
    ]


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2g}"


def safety(state: State) -> list[str]:
    """A row for each contender that was killed, in the order of the plan."""
    head = (
        "| contender | guarantee | commits | load, records/s | records | lost | repeated after 3 kills | "
        "repeated in 2 rolling restarts |"
    )
    return [
        head,
        "|---|---|---|---:|---:|---:|---:|---:|",
        *(_safety(state, row) for row in SAFETIES),
    ]


def _safety(state: State, row: Safety) -> str:
    start = f"| {row.name} | {row.guarantee} | {row.commits} | {row.per_second:,} |"
    verdict = state.verdicts.get(row.name)
    if verdict is None:
        return f"{start} {_why(state, row)} | | | |"
    lost = f"**{verdict.lost:,}**" if verdict.lost else "0"
    if verdict.unread:
        lost += f", and {verdict.unread:,} not read"
    return f"{start} {verdict.sent:,} | {lost} | {verdict.repeated_kills:,} | {verdict.repeated_restarts:,} |"


def _why(state: State, row: Speed | Safety) -> str:
    if row.family in state.missing:
        return NOT_INSTALLED
    kind = "kills" if isinstance(row, Safety) else "round"
    failed = any(
        turn.startswith(kind) and turn.endswith(f": {row.name}") and why != TIME_OVER
        for turn, why in state.failures.items()
    )
    return "failed" if failed else "not measured"
