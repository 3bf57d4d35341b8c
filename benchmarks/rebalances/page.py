"""Verdicts become a page. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.rebalances.diary import VALUE_BYTES
from benchmarks.rebalances.judge import RestartVerdict
from benchmarks.rebalances.plan import HANDLER_S, ROWS, SESSION_S, Restarted
from benchmarks.rebalances.scene import DRAINS_S, Size

COLUMNS = (
    "stay, but revoked",
    "moved in a restart",
    "longest pause untouched, s",
    "longest pause moved, s",
    "p99 age, s",
    "duplicates",
    "lost",
    "records",
    "longest gap of the load, s",
)


def page(
    verdicts: Mapping[str, RestartVerdict],
    failures: Mapping[str, str],
    *,
    size: Size,
    circumstances: Sequence[str],
) -> str:
    """Return the whole page.

    Args:
        verdicts: By the names of the rows.
        failures: Why a row has none, by its name.
        size: Of the scenes.
        circumstances: When and on what it was measured, a text for each line.
    """
    lines = [
        "# Rolling restarts, side by side",
        "",
        f"`make bench-rebalance`: a group of {size.members} members reads {size.partitions} "
        f"partitions under a load of {size.per_second:,} records/s. Each member is restarted once, "
        "one after the other: SIGTERM, wait for its exit, start it again, wait until it has "
        f"handled a record, and {size.seconds:g} s more.",
        "",
        *(f"- {line}" for line in circumstances),
        f"- Records have {VALUE_BYTES} bytes. A handler takes {HANDLER_S * 1e3:g} ms. Each member "
        "handles its partitions at the same time, and the records of a partition in their order.",
        "- Each member commits what it has handled once a second, when partitions are revoked, and "
        "when it stops.",
        f"- Sessions are {SESSION_S:g} s. Heartbeat intervals are the defaults: 3 s of the peers in a "
        "classic group, and 5 s, which the broker asks for, with the consumer protocol. "
        "reactive_kafka sends one every 0.75 s in both, and every 0.25 s for 4 s after a rebalance.",
        "",
        *table(verdicts, failures),
        "",
        "## What the columns mean",
        "",
        "All but *lost* and *records* count from the first SIGTERM to the end of the load. A "
        "restart lasts until the next one begins.",
        "",
        "- *Stay, but revoked*: how often a partition was taken from a member and given back to "
        "the same one.",
        "- *Moved in a restart*: partitions whose owner changed, on average over the restarts. "
        "Those of the restarted member have to.",
        "- *Longest pause*: the longest time between two handled records of one partition. An "
        "*untouched* partition had one owner during the whole restart. A *moved* one had several. "
        "–: there was none.",
        "- *p99 age*: the 99th percentile of the time from the send of a record to the end of its "
        "handler.",
        "- *Duplicates*: handler calls with a record that a handler had finished before.",
        f"- *Lost*: records that nobody has handled {DRAINS_S:g} s after the load.",
        "- *Longest gap of the load*: the longest time between two records that were sent to one "
        "partition. No pause can be much shorter.",
        "",
        "## Settings",
        "",
        *(f"- {row.name}: {row.settings}." for row in ROWS),
        "- confluent-kafka and Java with a classic group: `session.timeout.ms` 45 s. FastStream and "
        "aiokafka know only classic groups.",
    ]
    failed = [f"- {name}: {why}" for name, why in failures.items()]
    if failed:
        lines += ["", "## What went wrong", "", *failed]
    return "\n".join(lines) + "\n"


def table(verdicts: Mapping[str, RestartVerdict], failures: Mapping[str, str]) -> list[str]:
    """A line for each row, in the order of the plan."""
    head = f"| contender | {' | '.join(COLUMNS)} |"
    return [
        head,
        "|---|" + "---:|" * len(COLUMNS),
        *(line(row, verdicts.get(row.name), row.name in failures) for row in ROWS),
    ]


def line(row: Restarted, verdict: RestartVerdict | None, has_failed: bool = False) -> str:
    """The line of one row."""
    if verdict is None:
        why = "failed" if has_failed else "not measured"
        return f"| {row.name} | {why} |" + " |" * (len(COLUMNS) - 1)
    cells = (
        f"{verdict.kept_revoked:,}",
        f"{verdict.moved:.1f}",
        _seconds(verdict.untouched_pause_s),
        _seconds(verdict.moved_pause_s),
        _seconds(verdict.age_p99_s),
        f"{verdict.duplicates:,}",
        f"**{verdict.lost:,}**" if verdict.lost else "0",
        f"{verdict.sent:,}",
        _seconds(verdict.load_gap_s),
    )
    return f"| {row.name} | {' | '.join(cells)} |"


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
