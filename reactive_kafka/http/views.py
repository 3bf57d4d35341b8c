"""What the HTTP endpoints show of the facts: JSON values, and one plain HTML page. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from operator import attrgetter
from typing import Any

from reactive_kafka.observe.batches import current_stage, share_done, short_id, whole_seconds
from reactive_kafka.observe.catalogue import SPARK_OUTCOMES
from reactive_kafka.observe.facts import (
    AppFacts,
    ChannelFacts,
    OutgoingFacts,
    SparkBatchFacts,
    SparkFacts,
)
from reactive_kafka.observe.health import Health, batch_data, channel_data, outgoing_data
from reactive_kafka.observe.text import first_of, one_line

STYLE = """
body { font: 15px/1.4 system-ui, sans-serif; margin: 2rem; color: #1b1f23; background: #fff; }
table { border-collapse: collapse; margin: 0 0 1.5rem; }
th, td { padding: .25rem .7rem; text-align: right; border-bottom: 1px solid #d0d7de; }
th:first-child, td:first-child, .batches th:last-child, .batches td:last-child { text-align: left; }
.batches td { white-space: nowrap; }
.batches td:last-child { white-space: normal; overflow-wrap: anywhere; min-width: 20rem; }
progress { width: 12rem; vertical-align: middle; }
.UP { color: #116329; } .DOWN { color: #a40e26; font-weight: bold; }
@media (prefers-color-scheme: dark) { body { color: #e6edf3; background: #0d1117; } a { color: #79b8ff; }
.UP { color: #56d364; } .DOWN { color: #ff7b72; } th, td { border-color: #30363d; } }
"""
REFRESH_S = 5
LAST_BATCHES = 20
# Of a batch, on the page; the JSON has all of them.
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
    """``{"incoming": [...], "outgoing": [...]}``: health data and totals of each channel."""
    return {
        "incoming": [_incoming_json(channel, facts.spark) for channel in facts.channels],
        "outgoing": [
            {"channel": channel.channel, **outgoing_data(channel), "sent": dict(channel.sent)}
            for channel in facts.outgoing
        ],
    }


def spark_json(facts: AppFacts) -> dict[str, Any]:
    """``{"sessions": [...]}``, one per Spark channel: readiness, counts, running batches, and the
    last ones.
    """
    return {"sessions": [_session_json(session) for session in facts.spark]}


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
    """Seconds since the epoch as ``2026-11-21T17:49:53Z``."""
    return (
        None
        if seconds is None
        else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    )


def page(facts: AppFacts, health: Health, root: str) -> str:
    """The page at ``/`` as HTML without scripts; *root* is the path at which the application is
    mounted.
    """
    links = " ".join(
        f'<a href="{escape(root)}/{path}">{path}</a>'
        for path in ("health", "metrics", "api/channels", "api/spark")
    )
    down = [
        f"<li><b>{_text(check.name)}</b>: {_text(check.data.get('reason') or 'down')}</li>"
        for check in health.overall.checks
        if check.status == "DOWN"
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>reactive_kafka</title>'
        f'<meta http-equiv="refresh" content="{REFRESH_S}"><style>{STYLE}</style></head><body>'
        f'<h1>reactive_kafka <span class="{health.status}">{health.status}</span></h1>'
        + (f"<ul>{''.join(down)}</ul>" if down else "")
        + "".join(map(_incoming_html, facts.channels))
        + _outgoing_html(facts.outgoing)
        + _spark_html(facts.spark)
        + f"<p>{links}</p></body></html>"
    )


def _incoming_json(channel: ChannelFacts, spark: Sequence[SparkFacts]) -> dict[str, Any]:
    return {
        "channel": channel.channel,
        **channel_data(
            channel, [session for session in spark if session.channel == channel.channel]
        ),
        **_totals(channel),
        "retries": channel.retries,
        "duplicates_dropped": channel.duplicates_dropped,
        "replays_avoided": channel.replays_avoided,
        "metadata_dropped": channel.metadata_dropped,
        "unsynced_seconds": None
        if channel.unsynced_age_s is None
        else round(channel.unsynced_age_s, 3),
        "commits": dict(channel.commits),
        "rebalances": dict(channel.rebalances),
    }


def _totals(channel: ChannelFacts) -> dict[str, int]:
    """Records of the channel since it was created, also of partitions that are no longer
    assigned.
    """
    totals = channel.totals.values()
    return {
        "received": sum(one.received for one in totals),
        "acked": sum(one.acked for one in totals),
        "nacked": sum(sum(one.nacked.values()) for one in totals),
        "dead_lettered": sum(one.dead_lettered for one in totals),
        "outputs_lost": sum(one.outputs_lost for one in totals),
        "delayed": sum(one.delayed for one in totals),
        "poisoned": sum(one.poison for one in totals),
    }


def _incoming_html(channel: ChannelFacts) -> str:
    rows = [
        (*_NUMBERS(one), _s(one.oldest_unacked_s), "done" if one.done else "paused" * one.paused)
        for one in channel.partitions
    ]
    poison = [
        (one.partition, one.offset, _s(one.age_s), one.waiting, channel.on_poison)
        for one in channel.poison
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
        + (f"<ul>{''.join(f'<li>{_text(note)}</li>' for note in notes)}</ul>" if notes else "")
        + _section("", _POISON_COLUMNS, poison)
        + _table(_PARTITION_COLUMNS, rows)
        + f"<p>{_text(totals)}</p>"
    )


def _outgoing_html(channels: Sequence[OutgoingFacts]) -> str:
    rows = [
        (c.channel, c.sent.get("ok", 0), c.sent.get("failed", 0), c.in_flight) for c in channels
    ]
    return _section("<h2>outgoing</h2>", ("channel", "sent", "failed", "in flight"), rows)


def _spark_html(sessions: Sequence[SparkFacts]) -> str:
    states = []
    for s in sessions:
        ready = "ready" if s.ready else s.reason or "not ready"
        states.append(
            (s.channel, s.mode, ready, *(s.jobs.get(outcome, 0) for outcome in SPARK_OUTCOMES))
        )
    running = [_running_row(s.channel, batch) for s in sessions for batch in s.running]
    ended = [(s.channel, batch) for s in sessions for batch in s.last]
    ended.sort(key=lambda pair: pair[1].ended_at or 0, reverse=True)
    last = [_last_row(*pair) for pair in ended[:LAST_BATCHES]]
    return (
        _section("<h2>spark</h2>", ("channel", "mode", "session", *SPARK_OUTCOMES), states)
        + _section("<h3>running batches</h3>", _RUNNING_COLUMNS, running, "batches")
        + _section("<h3>last batches</h3>", _LAST_COLUMNS, last, "batches")
    )


def _running_row(channel: str, batch: SparkBatchFacts) -> tuple[object, ...]:
    share = share_done(batch)
    known = ""
    # A bar of unknown length until Spark knows the number of tasks.
    if batch.tasks or share:
        most = max(1, batch.tasks)
        known = f' max="{most:d}" value="{share * most:.12g}"'
    bar = _Html(f"<progress{known}></progress>")
    stage = f"{current_stage(batch)}/{batch.stages}"
    tasks = f"{batch.tasks_done}/{batch.tasks} ({batch.tasks_active} running)"
    numbers = (batch.tasks_failed, batch.records, batch.attempt)
    time = f"{whole_seconds(batch.since_s)} of {whole_seconds(batch.timeout_s)}"
    return (
        _named(channel, batch),
        bar,
        stage,
        tasks,
        *numbers,
        time,
        first_of(batch.ranges, RANGES_NAMED),
    )


def _last_row(channel: str, batch: SparkBatchFacts) -> tuple[object, ...]:
    took = f"{batch.since_s:.2f} s"
    numbers = (batch.records, batch.rejected or None, batch.attempt)
    outcome = (
        batch.outcome
        if batch.outcome == "ok"
        else _Html(f'<span class="DOWN">{_text(batch.outcome)}</span>')
    )
    ranges = first_of(batch.ranges, RANGES_NAMED)
    return (
        _named(channel, batch),
        _time(batch.ended_at),
        took,
        *numbers,
        outcome,
        ranges,
        batch.reason,
    )


def _named(channel: str, batch: SparkBatchFacts) -> str:
    return f"{channel} {short_id(batch.id)}"


def _s(seconds: float | None) -> str | None:
    return None if seconds is None else f"{seconds:.1f} s"


class _Html(str):
    """Markup of our own in a table cell; every other cell is escaped."""

    __slots__ = ()


def _section(
    heading: str, columns: Iterable[str], rows: Sequence[Iterable[object]], style: str = ""
) -> str:
    """A table under its heading; nothing where it would be empty."""
    return f"{heading}{_table(columns, rows, style)}" if rows else ""


def _table(columns: Iterable[str], rows: Iterable[Iterable[object]], style: str = "") -> str:
    head = "".join(f"<th>{column}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>" for row in rows)
    of_class = f' class="{style}"' if style else ""
    return f"<table{of_class}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _text(value: object) -> str:
    if isinstance(value, _Html):
        return value
    return "" if value is None else escape(one_line(str(value)))
