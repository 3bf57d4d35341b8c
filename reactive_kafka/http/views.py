"""Makes JSON values and an HTML page from the facts, for the HTTP endpoints. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from html import escape
from operator import attrgetter
from typing import Any

from reactive_kafka.observe.catalogue import SPARK_OUTCOMES
from reactive_kafka.observe.facts import (
    AppFacts,
    ChannelFacts,
    OutgoingFacts,
    PartitionFacts,
    PartitionTotals,
    SparkBatchFacts,
    SparkFacts,
)
from reactive_kafka.observe.health import Health, batch_data, channel_data, outgoing_data
from reactive_kafka.observe.safe_text import one_line
from reactive_kafka.observe.wording import (
    current_stage,
    first_of,
    share_done,
    short_id,
    whole_seconds,
)

STYLE = """
body { font: 15px/1.4 system-ui, sans-serif; margin: 2rem; color: #1b1f23; background: #fff; }
table { border-collapse: collapse; margin: 0 0 1.5rem; }
th, td { padding: .25rem .7rem; text-align: right; border-bottom: 1px solid #d0d7de; }
th:first-child, td:first-child, .batches th:last-child, .batches td:last-child { text-align: left; }
.batches td { white-space: nowrap; }
.batches td:last-child { white-space: normal; overflow-wrap: anywhere; min-width: 20rem; }
progress { width: 12rem; vertical-align: middle; }
.UP { color: #116329; } .DOWN { color: #a40e26; font-weight: bold; }
@media (prefers-color-scheme: dark) {
body { color: #e6edf3; background: #0d1117; } a { color: #79b8ff; }
.UP { color: #56d364; } .DOWN { color: #ff7b72; } th, td { border-color: #30363d; } }
"""
REFRESH_S = 5
LAST_BATCHES = 20
# How many ranges of a batch the page names. The JSON has all of them.
RANGES_NAMED = 2

_RUNNING_COLUMNS = (
    "batch",
    "progress",
    "stage",
    "tasks",
    "failed",
    "records",
    "attempt",
    "time",
    "ranges",
)
_LAST_COLUMNS = (
    "batch",
    "ended",
    "took",
    "records",
    "rejected",
    "attempt",
    "outcome",
    "ranges",
    "reason",
)
_POISON_COLUMNS = ("poison", "offset", "unsettled for", "waiting behind it", "on_poison")
_TOTALS = {
    "dead_lettered": "dead letters",
    "outputs_lost": "outputs lost",
    "delayed": "delayed retries",
    "poisoned": "poison",
}
_PARTITION_COLUMNS = (
    "partition",
    "position",
    "committed",
    "lag",
    "in flight",
    "queued",
    "oldest unacked",
    "state",
)
_NUMBERS = attrgetter("partition", "position", "committed", "lag", "in_flight", "queued")


def channels_json(facts: AppFacts) -> dict[str, Any]:
    """Return ``{"incoming": [...], "outgoing": [...]}``: health and totals of each channel."""
    return {
        "incoming": [_incoming_json(channel, facts.spark) for channel in facts.channels],
        "outgoing": [
            {"channel": channel.channel, **outgoing_data(channel), "sent": dict(channel.sent)}
            for channel in facts.outgoing
        ],
    }


def spark_json(facts: AppFacts) -> dict[str, Any]:
    """Return ``{"sessions": [...]}``: readiness, counts and batches of each Spark channel."""
    return {"sessions": [_session_json(session) for session in facts.spark]}


def stream_json(facts: AppFacts, partitions: Collection[str] | None = None) -> dict[str, Any]:
    """Return an event of the stream: `channels_json` and `spark_json` in one.

    Args:
        partitions: The channels that are listed with their partitions. None: all of them.
    """
    if partitions is not None:
        channels = [
            channel if channel.channel in partitions else replace(channel, partitions=())
            for channel in facts.channels
        ]
        facts = replace(facts, channels=tuple(channels))
    return {**channels_json(facts), **spark_json(facts)}


def _session_json(session: SparkFacts) -> dict[str, Any]:
    return {
        "channel": session.channel,
        "mode": session.mode,
        "ready": session.ready,
        "reason": None if session.reason is None else one_line(session.reason),
        "jobs": dict(session.jobs),
        "job_seconds": round(session.job_durations.sum_s, 3),
        "batch_records": session.batch_records,
        "rejected": session.rejected,
        "bisection_jobs": session.bisection_jobs,
        "tasks": dict(session.tasks),
        "running": [batch_data(batch) for batch in session.running],
        "last": [_ended_json(batch) for batch in reversed(session.last)],
    }


def _ended_json(batch: SparkBatchFacts) -> dict[str, Any]:
    return {
        **batch_data(batch),
        "rejected": batch.rejected,
        "outcome": batch.outcome,
        "reason": None if batch.reason is None else one_line(batch.reason),
        "ended_at": _time(batch.ended_at),
    }


def _time(seconds: float | None) -> str | None:
    """Return seconds since the epoch as ``2026-11-21T17:49:53Z``."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def page(facts: AppFacts, health: Health, root: str) -> str:
    """Return the page at ``/``, HTML without scripts.

    Args:
        facts: The facts to show.
        health: The health to show.
        root: The path at which the application is mounted.
    """
    links = " ".join(
        f'<a href="{escape(root)}/{path}">{path}</a>'
        for path in ("health", "metrics", "api/channels", "api/spark")
    )
    down = [
        f"<b>{_text(check.name)}</b>: {_text(check.data.get('reason') or 'down')}"
        for check in health.overall.checks
        if check.status == "DOWN"
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>reactive_kafka</title>'
        f'<meta http-equiv="refresh" content="{REFRESH_S}"><style>{STYLE}</style></head><body>'
        f'<h1>reactive_kafka <span class="{health.status}">{health.status}</span></h1>'
        + _list(down)
        + "".join(map(_incoming_html, facts.channels))
        + _outgoing_html(facts.outgoing)
        + _spark_html(facts.spark)
        + f"<p>{links}</p></body></html>"
    )


def _incoming_json(channel: ChannelFacts, spark: Sequence[SparkFacts]) -> dict[str, Any]:
    sessions = [session for session in spark if session.channel == channel.channel]
    unsynced_s = channel.unsynced_age_s
    return {
        "channel": channel.channel,
        **channel_data(channel, sessions),
        **_totals(channel),
        "retries": channel.retries,
        "duplicates_dropped": channel.duplicates_dropped,
        "replays_avoided": channel.replays_avoided,
        "metadata_dropped": channel.metadata_dropped,
        "unsynced_seconds": None if unsynced_s is None else round(unsynced_s, 3),
        "commits": dict(channel.commits),
        "rebalances": dict(channel.rebalances),
    }


def _totals(channel: ChannelFacts) -> dict[str, int]:
    """Sum up the records of all partitions since the start, also of those no longer assigned."""
    sums = PartitionTotals()
    for totals in channel.totals.values():
        sums.add(totals)
    return {
        "received": sums.received,
        "acked": sums.acked,
        "nacked": sum(sums.nacked.values()),
        "dead_lettered": sums.dead_lettered,
        "outputs_lost": sums.outputs_lost,
        "delayed": sums.delayed,
        "poisoned": sums.poison,
    }


def _incoming_html(channel: ChannelFacts) -> str:
    partitions = [
        (*_NUMBERS(partition), _seconds(partition.oldest_unacked_s), _state(partition))
        for partition in channel.partitions
    ]
    poison = [
        (
            record.partition,
            record.offset,
            _seconds(record.age_s),
            record.waiting,
            channel.on_poison,
        )
        for record in channel.poison
    ]
    totals = ", ".join(
        f"{_TOTALS.get(name, name)} {count}" for name, count in _totals(channel).items()
    )
    notes = [*(f"paused: {reason}" for reason in channel.paused_by), *channel.warnings]
    if channel.limited_by is not None:
        notes.append(f"records wait for rate_limit = {channel.limited_by}")
    if channel.stopped_by is not None:
        notes.insert(0, channel.stopped_by)
    return (
        f"<h2>{_text(channel.channel)}: {channel.state}</h2>"
        + _list([_text(note) for note in notes])
        + _section("", _POISON_COLUMNS, poison)
        + _table(_PARTITION_COLUMNS, partitions)
        + f"<p>{_text(totals)}</p>"
    )


def _state(partition: PartitionFacts) -> str:
    if partition.done:
        return "done"
    return "paused" if partition.paused else ""


def _outgoing_html(channels: Sequence[OutgoingFacts]) -> str:
    rows = [
        (
            channel.channel,
            channel.sent.get("ok", 0),
            channel.sent.get("failed", 0),
            channel.in_flight,
        )
        for channel in channels
    ]
    return _section("<h2>outgoing</h2>", ("channel", "sent", "failed", "in flight"), rows)


def _spark_html(sessions: Sequence[SparkFacts]) -> str:
    running: list[tuple[object, ...]] = []
    ended: list[tuple[str, SparkBatchFacts]] = []
    for session in sessions:
        running += [_running_row(session.channel, batch) for batch in session.running]
        ended += [(session.channel, batch) for batch in session.last]
    ended.sort(key=lambda pair: pair[1].ended_at or 0, reverse=True)
    last = [_last_row(channel, batch) for channel, batch in ended[:LAST_BATCHES]]
    states = list(map(_session_row, sessions))
    return (
        _section("<h2>spark</h2>", ("channel", "mode", "session", *SPARK_OUTCOMES), states)
        + _section("<h3>running batches</h3>", _RUNNING_COLUMNS, running, "batches")
        + _section("<h3>last batches</h3>", _LAST_COLUMNS, last, "batches")
    )


def _session_row(session: SparkFacts) -> tuple[object, ...]:
    """Return a row of the table of Spark sessions."""
    state = "ready" if session.ready else session.reason or "not ready"
    jobs = [session.jobs.get(outcome, 0) for outcome in SPARK_OUTCOMES]
    return (session.channel, session.mode, state, *jobs)


def _running_row(channel: str, batch: SparkBatchFacts) -> tuple[object, ...]:
    """Return a row for `_RUNNING_COLUMNS`."""
    share = share_done(batch)
    # Without a value the bar shows an unknown progress, until Spark knows the number of tasks.
    value = ""
    if batch.tasks or share:
        most = max(1, batch.tasks)
        value = f' max="{most:d}" value="{share * most:.12g}"'
    return (
        _named(channel, batch),
        _Html(f"<progress{value}></progress>"),
        f"{current_stage(batch)}/{batch.stages}",
        f"{batch.tasks_done}/{batch.tasks} ({batch.tasks_active} running)",
        batch.tasks_failed,
        batch.records,
        batch.attempt,
        f"{whole_seconds(batch.since_s)} of {whole_seconds(batch.timeout_s)}",
        first_of(batch.ranges, RANGES_NAMED),
    )


def _last_row(channel: str, batch: SparkBatchFacts) -> tuple[object, ...]:
    """Return a row for `_LAST_COLUMNS`."""
    outcome = batch.outcome
    if outcome != "ok":
        outcome = _Html(f'<span class="DOWN">{_text(outcome)}</span>')
    return (
        _named(channel, batch),
        _time(batch.ended_at),
        f"{batch.since_s:.2f} s",
        batch.records,
        batch.rejected or None,
        batch.attempt,
        outcome,
        first_of(batch.ranges, RANGES_NAMED),
        batch.reason,
    )


def _named(channel: str, batch: SparkBatchFacts) -> str:
    return f"{channel} {short_id(batch.id)}"


def _seconds(seconds: float | None) -> str | None:
    return None if seconds is None else f"{seconds:.1f} s"


class _Html(str):
    """Markup for a table cell. Any other cell is escaped."""

    __slots__ = ()


def _section(
    heading: str, columns: Iterable[str], rows: Sequence[Iterable[object]], style: str = ""
) -> str:
    """Return a heading and a table, or nothing if there are no rows."""
    return f"{heading}{_table(columns, rows, style)}" if rows else ""


def _list(items: Sequence[str]) -> str:
    """Return a list of items that are escaped already, or nothing if there are none."""
    if not items:
        return ""
    return f"<ul>{''.join(f'<li>{item}</li>' for item in items)}</ul>"


def _table(columns: Iterable[str], rows: Iterable[Iterable[object]], style: str = "") -> str:
    head = "".join(f"<th>{column}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>" for row in rows)
    of_class = f' class="{style}"' if style else ""
    return f"<table{of_class}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _text(value: object) -> str:
    if isinstance(value, _Html):
        return value
    return "" if value is None else escape(one_line(str(value)))
