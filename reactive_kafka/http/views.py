"""What the HTTP endpoints show of the facts: JSON values, and one plain HTML page. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any

from reactive_kafka.observe.batches import current_stage, short_id, whole_seconds
from reactive_kafka.observe.catalogue import SPARK_OUTCOMES
from reactive_kafka.observe.facts import AppFacts, ChannelFacts, OutgoingFacts, SparkBatchFacts, SparkFacts
from reactive_kafka.observe.health import Health, batch_data, channel_data, outgoing_data
from reactive_kafka.observe.text import one_line

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
RANGES_NAMED = 2  # of a batch, on the page; the JSON has all of them

_RUNNING_COLUMNS = ("batch", "progress", "stage", "tasks", "failed", "records", "attempt", "time", "ranges")
_LAST_COLUMNS = ("batch", "ended", "took", "records", "rejected", "attempt", "outcome", "ranges", "reason")
_POISON_COLUMNS = ("poison", "offset", "unsettled for", "waiting behind it", "on_poison")
_TOTALS = {"dead_lettered": "dead letters", "delayed": "delayed retries", "poisoned": "poison"}
_PARTITION_COLUMNS = ("partition", "position", "committed", "lag", "in flight", "queued", "oldest unacked", "paused")


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
    """``{"sessions": [...]}``, one per Spark channel: readiness, counts, running batches, and the last ones."""
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
        "ended_at": None if batch.ended_at is None else _time(batch.ended_at),
    }


def _time(seconds: float) -> str:
    """Seconds since the epoch as ``2026-11-21T17:49:53Z``."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def page(facts: AppFacts, health: Health, root: str) -> str:
    """The page at ``/`` as HTML without scripts; *root* is the path at which the application is mounted."""
    links = " ".join(
        f'<a href="{escape(root)}/{path}">{path}</a>' for path in ("health", "metrics", "api/channels", "api/spark")
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
        **channel_data(channel, [session for session in spark if session.channel == channel.channel]),
        **_totals(channel),
        "retries": channel.retries,
        "duplicates_dropped": channel.duplicates_dropped,
        "replays_avoided": channel.replays_avoided,
        "metadata_dropped": channel.metadata_dropped,
        "unsynced_seconds": None if channel.unsynced_age_s is None else round(channel.unsynced_age_s, 3),
        "commits": dict(channel.commits),
        "rebalances": dict(channel.rebalances),
    }


def _totals(channel: ChannelFacts) -> dict[str, int]:
    """Records of the channel since it was created, also of partitions that are no longer assigned."""
    totals = channel.totals.values()
    return {
        "received": sum(partition.received for partition in totals),
        "acked": sum(partition.acked for partition in totals),
        "nacked": sum(sum(partition.nacked.values()) for partition in totals),
        "dead_lettered": sum(partition.dead_lettered for partition in totals),
        "delayed": sum(partition.delayed for partition in totals),
        "poisoned": sum(partition.poison for partition in totals),
    }


def _incoming_html(channel: ChannelFacts) -> str:
    rows = [
        (
            str(facts.partition),
            facts.position,
            facts.committed,
            facts.lag,
            facts.in_flight,
            facts.queued,
            None if facts.oldest_unacked_s is None else f"{facts.oldest_unacked_s:.1f} s",
            "paused" if facts.paused else None,
        )
        for facts in channel.partitions
    ]
    poison = [
        (str(one.partition), one.offset, f"{one.age_s:.1f} s", one.waiting, channel.on_poison) for one in channel.poison
    ]
    totals = ", ".join(f"{_TOTALS.get(name, name)} {count}" for name, count in _totals(channel).items())
    notes = [*(f"paused: {reason}" for reason in channel.paused_by), *channel.warnings]
    return (
        f"<h2>{_text(channel.channel)}: {channel.state}</h2>"
        + (f"<ul>{''.join(f'<li>{_text(note)}</li>' for note in notes)}</ul>" if notes else "")
        + (_table(_POISON_COLUMNS, poison) if poison else "")
        + _table(_PARTITION_COLUMNS, rows)
        + f"<p>{_text(totals)}</p>"
    )


def _outgoing_html(channels: Sequence[OutgoingFacts]) -> str:
    rows = [(c.channel, c.sent.get("ok", 0), c.sent.get("failed", 0), c.in_flight) for c in channels]
    return f"<h2>outgoing</h2>{_table(('channel', 'sent', 'failed', 'in flight'), rows)}" if rows else ""


def _spark_html(sessions: Sequence[SparkFacts]) -> str:
    if not sessions:
        return ""
    rows = [
        (
            s.channel,
            s.mode,
            "ready" if s.ready else s.reason or "not ready",
            *(s.jobs.get(o, 0) for o in SPARK_OUTCOMES),
        )
        for s in sessions
    ]
    running = [_running_row(s.channel, batch) for s in sessions for batch in s.running]
    last = sorted(
        ((s.channel, batch) for s in sessions for batch in s.last), key=lambda pair: pair[1].ended_at or 0, reverse=True
    )
    return (
        f"<h2>spark</h2>{_table(('channel', 'mode', 'session', *SPARK_OUTCOMES), rows)}"
        + (f"<h3>running batches</h3>{_table(_RUNNING_COLUMNS, running, 'batches')}" if running else "")
        + (
            "<h3>last batches</h3>"
            + _table(_LAST_COLUMNS, (_last_row(*pair) for pair in last[:LAST_BATCHES]), "batches")
            if last
            else ""
        )
    )


def _running_row(channel: str, batch: SparkBatchFacts) -> tuple[object, ...]:
    return (
        _named(channel, batch),
        _Html(_progress(batch)),
        f"{current_stage(batch)}/{batch.stages}",
        f"{batch.tasks_done}/{batch.tasks} ({batch.tasks_active} running)",
        batch.tasks_failed,
        batch.records,
        batch.attempt,
        f"{whole_seconds(batch.since_s)} of {whole_seconds(batch.timeout_s)}",
        _ranges(batch),
    )


def _last_row(channel: str, batch: SparkBatchFacts) -> tuple[object, ...]:
    return (
        _named(channel, batch),
        None if batch.ended_at is None else _time(batch.ended_at),
        f"{batch.since_s:.2f} s",
        batch.records,
        batch.rejected or None,
        batch.attempt,
        batch.outcome if batch.outcome == "ok" else _Html(f'<span class="DOWN">{_text(batch.outcome)}</span>'),
        _ranges(batch),
        batch.reason,
    )


def _named(channel: str, batch: SparkBatchFacts) -> str:
    return f"{channel} {short_id(batch.id)}"


def _ranges(batch: SparkBatchFacts) -> str:
    more = len(batch.ranges) - RANGES_NAMED
    return ", ".join(batch.ranges[:RANGES_NAMED]) + (f" and {more} more" if more > 0 else "")


def _progress(batch: SparkBatchFacts) -> str:
    """A progress bar, indeterminate until Spark knows the number of tasks."""
    known = f' max="{batch.tasks:d}" value="{min(batch.tasks_done, batch.tasks):d}"' if batch.tasks else ""
    return f"<progress{known}></progress>"


class _Html(str):
    """Markup of our own in a table cell; every other cell is escaped."""

    __slots__ = ()


def _table(columns: Iterable[str], rows: Iterable[Iterable[object]], style: str = "") -> str:
    head = "".join(f"<th>{column}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(f'<td>{_cell(cell)}</td>' for cell in row)}</tr>" for row in rows)
    of_class = f' class="{style}"' if style else ""
    return f"<table{of_class}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: object) -> str:
    return value if isinstance(value, _Html) else _text(value)


def _text(value: object) -> str:
    return "" if value is None else escape(one_line(str(value)))
