"""What the HTTP endpoints show of the facts: JSON-able values, and one plain HTML page. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from reactive_kafka.observe.facts import AppFacts, ChannelFacts, OutgoingFacts, SparkFacts
from reactive_kafka.observe.health import Health, channel_data, outgoing_data
from reactive_kafka.observe.text import one_line

STYLE = """
body { font: 15px/1.4 system-ui, sans-serif; margin: 2rem; color: #1b1f23; background: #fff; }
table { border-collapse: collapse; margin: 0 0 1.5rem; }
th, td { padding: .25rem .7rem; text-align: right; border-bottom: 1px solid #d0d7de; }
th:first-child, td:first-child { text-align: left; }
.UP { color: #116329; } .DOWN { color: #a40e26; font-weight: bold; }
@media (prefers-color-scheme: dark) { body { color: #e6edf3; background: #0d1117; } a { color: #79b8ff; }
.UP { color: #56d364; } .DOWN { color: #ff7b72; } th, td { border-color: #30363d; } }
"""
REFRESH_S = 5

_PARTITION_COLUMNS = ("partition", "position", "committed", "lag", "in flight", "queued", "oldest unacked", "paused")


def channels_json(facts: AppFacts) -> dict[str, Any]:
    """``{"incoming": [...], "outgoing": [...]}``: each channel's health data and its totals."""
    return {
        "incoming": [_incoming_json(channel, facts.spark) for channel in facts.channels],
        "outgoing": [
            {"channel": channel.channel, **outgoing_data(channel), "sent": dict(channel.sent)}
            for channel in facts.outgoing
        ],
    }


def spark_json(facts: AppFacts) -> dict[str, Any]:
    """``{"sessions": [...]}``: readiness, batches by outcome, and the running job's tasks, one for each channel."""
    return {
        "sessions": [
            {
                "channel": session.channel,
                "ready": session.ready,
                "reason": None if session.reason is None else one_line(session.reason),
                "jobs": dict(session.jobs),
                "job_seconds": round(session.job_durations.sum_s, 3),
                "batch_records": session.batch_records,
                "tasks": dict(session.tasks),
            }
            for session in facts.spark
        ]
    }


def page(facts: AppFacts, health: Health, root: str) -> str:
    """The page of ``/`` as HTML without scripts; *root* is the path under which the application is mounted."""
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
    totals = channel.totals.values()
    return {
        "channel": channel.channel,
        **channel_data(channel, [session for session in spark if session.channel == channel.channel]),
        "received": sum(partition.received for partition in totals),
        "acked": sum(partition.acked for partition in totals),
        "nacked": sum(sum(partition.nacked.values()) for partition in totals),
        "poisoned": sum(partition.poison for partition in totals),
        "retries": channel.retries,
        "commits": dict(channel.commits),
        "rebalances": dict(channel.rebalances),
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
    return f"<h2>{_text(channel.channel)}: {channel.state}</h2>{_table(_PARTITION_COLUMNS, rows)}"


def _outgoing_html(channels: Sequence[OutgoingFacts]) -> str:
    rows = [(c.channel, c.sent.get("ok", 0), c.sent.get("failed", 0), c.in_flight) for c in channels]
    return f"<h2>outgoing</h2>{_table(('channel', 'sent', 'failed', 'in flight'), rows)}" if rows else ""


def _spark_html(sessions: Sequence[SparkFacts]) -> str:
    rows = [
        (s.channel, "ready" if s.ready else s.reason or "not ready", s.jobs.get("ok", 0), s.jobs.get("failed", 0))
        for s in sessions
    ]
    return f"<h2>spark</h2>{_table(('channel', 'session', 'batches ok', 'failed'), rows)}" if rows else ""


def _table(columns: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    head = "".join(f"<th>{column}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _text(value: object) -> str:
    return "" if value is None else escape(one_line(str(value)))
