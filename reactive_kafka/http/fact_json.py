"""Makes JSON values from the facts, for ``/api``, the stream and the page. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal

from reactive_kafka.observe.facts import (
    AppFacts,
    ApplicationIdentity,
    ChannelFacts,
    OutboxFacts,
    OutgoingFacts,
    PartitionFacts,
    SparkBatchFacts,
    SparkFacts,
)
from reactive_kafka.observe.health import (
    Health,
    Status,
    batch_data,
    channel_data,
    outgoing_data,
    partition_data,
)
from reactive_kafka.observe.recent_events import LastError, RecentEvents, TimelineEntry
from reactive_kafka.observe.safe_text import one_line
from reactive_kafka.observe.trends import TrendFacts, total_lag, totals_of
from reactive_kafka.observe.wording import current_stage, share_done

Direction = Literal["incoming", "outgoing", "memory"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Everything that is shown of an application at one moment."""

    facts: AppFacts
    identity: ApplicationIdentity
    health: Health
    # (direction, channel) -> how fast it works.
    trends: Mapping[tuple[str, str], TrendFacts]
    recent: RecentEvents
    # The channels whose partitions and history are shown. None: those of all channels.
    selected: Collection[str] | None = None
    # Whether a token is configured. Without one, no action is possible.
    can_act: bool = False
    # (direction, channel) -> status of its check. A channel without a check is missing.
    statuses: Mapping[tuple[str, str], Status] = field(init=False)

    def __post_init__(self) -> None:
        statuses = {
            (check.data["direction"], check.channel): check.status
            for check in self.health.checks
            if check.channel is not None and "direction" in check.data
        }
        object.__setattr__(self, "statuses", statuses)

    def is_selected(self, channel: str) -> bool:
        """Return whether the partitions and the history of a channel are shown."""
        return self.selected is None or channel in self.selected


def channels_json(look: Look) -> dict[str, Any]:
    """Return ``{"incoming": [...], "outgoing": [...]}``: what is known of each channel."""
    return {
        "incoming": [_incoming_json(channel, look) for channel in look.facts.channels],
        "outgoing": [_outgoing_json(channel, look) for channel in look.facts.outgoing],
    }


def _outbox_json(outbox: OutboxFacts | None) -> dict[str, Any]:
    oldest_s = None if outbox is None else outbox.oldest_s
    return {
        "outbox": None if outbox is None else outbox.text(),
        "outbox_rows": None if outbox is None else outbox.rows,
        "outbox_oldest_seconds": None if oldest_s is None else round(oldest_s, 3),
        "outbox_relayed": None if outbox is None else outbox.relayed,
    }


def spark_json(look: Look) -> dict[str, Any]:
    """Return ``{"sessions": [...]}``: readiness, counts and batches of each Spark channel."""
    return {"sessions": [_session_json(session) for session in look.facts.spark]}


def stream_json(look: Look) -> dict[str, Any]:
    """Return an event of the stream: `channels_json` and `spark_json` in one, and more."""
    return {"application": application_json(look), **channels_json(look), **spark_json(look)}


def application_json(look: Look) -> dict[str, Any]:
    """Return which application this is, and how it is."""
    identity = look.identity
    uptime_s = identity.uptime_s
    down = [check for check in look.health.checks if check.status == "DOWN"]
    return {
        "name": one_line(identity.name),
        "version": None if identity.version is None else one_line(identity.version),
        "library_version": identity.library_version,
        "host": one_line(identity.host),
        "pid": identity.pid,
        "can_act": look.can_act,
        "uptime_seconds": None if uptime_s is None else round(uptime_s, 1),
        "state": _application_state(look.facts),
        "status": look.health.status,
        "reasons": [
            {"name": one_line(check.name), "reason": check.data.get("reason") or "down"}
            for check in down
        ],
    }


def _application_state(facts: AppFacts) -> str:
    if facts.ended is not None:
        return "ended"
    if facts.stopping:
        return "stopping"
    return "running" if facts.started else "starting"


def _incoming_json(channel: ChannelFacts, look: Look) -> dict[str, Any]:
    name = channel.channel
    sessions = [session for session in look.facts.spark if session.channel == name]
    unsynced_s = channel.unsynced_age_s
    # The partitions of this answer say more than those of a health check.
    data = channel_data(replace(channel, partitions=()), sessions)
    is_selected = look.is_selected(name)
    if is_selected:
        data["partitions"] = [_partition_json(one) for one in channel.partitions]
        data["history"] = [_entry_json(entry) for entry in look.recent.timeline(name)]
    return {
        "channel": name,
        "status": look.statuses.get(("incoming", name), "UP"),
        **data,
        "partition_count": len(channel.partitions),
        "on_poison": channel.on_poison,
        "stopped_by": None if channel.stopped_by is None else one_line(channel.stopped_by),
        "limited_by": channel.limited_by,
        "topics": list(channel.topics),
        "group": channel.group_id,
        "protocol": channel.protocol,
        "handlers": [one_line(handler) for handler in channel.handlers],
        "dead_letter_topic": channel.dead_letter_topic,
        **_sums(channel.partitions),
        **_trend_json(look.trends.get(("incoming", name), TrendFacts())),
        **_totals(channel),
        "retries": channel.retries,
        "last_error": _error_json(look.recent.last_error(name)),
        "duplicates_dropped": channel.duplicates_dropped,
        "replays_avoided": channel.replays_avoided,
        "metadata_dropped": channel.metadata_dropped,
        "unsynced_seconds": None if unsynced_s is None else round(unsynced_s, 3),
        **_outbox_json(channel.outbox),
        "commits": dict(channel.commits),
        "rebalances": dict(channel.rebalances),
    }


def _sums(partitions: Sequence[PartitionFacts]) -> dict[str, Any]:
    """Return the sums over all assigned partitions, and the age of the oldest record."""
    ages = [one.oldest_unacked_s for one in partitions if one.oldest_unacked_s is not None]
    return {
        "lag": total_lag(one.lag for one in partitions),
        "in_flight": sum(one.in_flight for one in partitions),
        "queued": sum(one.queued for one in partitions),
        "oldest_unacked_seconds": round(max(ages), 3) if ages else None,
    }


def _partition_json(partition: PartitionFacts) -> dict[str, Any]:
    return {
        **partition_data(partition),
        "log_end": partition.log_end,
        "settled_above": [list(offsets) for offsets in partition.settled_above],
    }


def _outgoing_json(channel: OutgoingFacts, look: Look) -> dict[str, Any]:
    name = channel.channel
    trend = look.trends.get((channel.direction, name), TrendFacts())
    return {
        "channel": name,
        "status": look.statuses.get((channel.direction, name), "UP"),
        **outgoing_data(channel),
        "topic": channel.topic,
        "sent": dict(channel.sent),
        "sent_per_second": _rounded(trend.done_per_s),
        "send_seconds": {"p50": _rounded(trend.p50_s, 6), "p99": _rounded(trend.p99_s, 6)},
        "last_error": _error_json(look.recent.last_error(name)),
    }


def _trend_json(trend: TrendFacts) -> dict[str, Any]:
    return {
        "received_per_second": _rounded(trend.received_per_s),
        "settled_per_second": _rounded(trend.done_per_s),
        "lag_per_second": _rounded(trend.lag_per_s),
        "handler_seconds": {"p50": _rounded(trend.p50_s, 6), "p99": _rounded(trend.p99_s, 6)},
    }


def _rounded(value: float | None, digits: int = 2) -> float | None:
    return None if value is None else round(value, digits)


def _error_json(error: LastError | None) -> dict[str, Any] | None:
    if error is None:
        return None
    record = None
    if error.record is not None:
        place, offset = error.record
        record = {"topic": place.topic, "partition": place.partition, "offset": offset}
    return {
        "at": time_text(error.at),
        "type": error.type,
        "text": one_line(error.text),
        "record": record,
    }


def _entry_json(entry: TimelineEntry) -> dict[str, Any]:
    return {
        "at": time_text(entry.at),
        "kind": entry.kind,
        "text": one_line(entry.text),
        "count": entry.count,
    }


def _totals(channel: ChannelFacts) -> dict[str, int]:
    """Sum up the records of all partitions since the start, also of those no longer assigned."""
    sums = totals_of(channel)
    return {
        "received": sums.received,
        "acked": sums.acked,
        "nacked": sum(sums.nacked.values()),
        "dead_lettered": sums.dead_lettered,
        "outputs_lost": sums.outputs_lost,
        "delayed": sums.delayed,
        "poisoned": sums.poison,
    }


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
        "running": [_running_json(batch) for batch in session.running],
        "last": [_ended_json(batch) for batch in reversed(session.last)],
    }


def _running_json(batch: SparkBatchFacts) -> dict[str, Any]:
    # The share never falls, although Spark may add tasks while a batch runs.
    return {
        **batch_data(batch),
        "stage": current_stage(batch),
        "share": round(share_done(batch), 4) if batch.tasks or batch.share is not None else None,
    }


def _ended_json(batch: SparkBatchFacts) -> dict[str, Any]:
    return {
        **batch_data(batch),
        "rejected": batch.rejected,
        "outcome": batch.outcome,
        "reason": None if batch.reason is None else one_line(batch.reason),
        "ended_at": time_text(batch.ended_at),
        "ended_seconds_ago": _rounded(batch.ended_ago_s, 3),
    }


def time_text(seconds: float | None) -> str | None:
    """Return seconds since the epoch as ``2026-11-21T17:49:53Z``."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
