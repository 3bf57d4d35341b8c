"""Health: an application's probes, made from its facts, with reasons for people. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from reactive_kafka.observe.facts import (
    AppFacts,
    ChannelFacts,
    OutgoingFacts,
    PartitionFacts,
    PoisonFacts,
    ReadinessFacts,
    SparkBatchFacts,
    SparkFacts,
)
from reactive_kafka.observe.safe_text import one_line

Status = Literal["UP", "DOWN"]

# The names of the checks that are not of channels, and not of @app.readiness.
OWN_CHECKS = ("application", "spark")
# A reason names at most so many poison records. The data of a check has all of them.
POISON_NAMED = 3


@dataclass(frozen=True, slots=True)
class Check:
    """One channel's part of a probe."""

    # The name of the channel. If another check has that name, the direction is appended.
    name: str
    status: Status
    # It contains only JSON values.
    data: Mapping[str, Any]
    # None: this is a check of the application itself.
    channel: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return ``{"name", "status", "data"}``."""
        return {"name": self.name, "status": self.status, "data": dict(self.data)}


@dataclass(frozen=True, slots=True)
class Probe:
    """One question about the application: UP if every check is."""

    checks: tuple[Check, ...]

    @property
    def status(self) -> Status:
        """``"UP"`` or ``"DOWN"``."""
        return _status(self.is_up)

    @property
    def is_up(self) -> bool:
        """True if every check is UP, or there is none."""
        return all(check.status == "UP" for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        """Return ``{"status", "checks"}``, the body of the HTTP endpoints."""
        return {"status": self.status, "checks": [check.to_json() for check in self.checks]}


@dataclass(frozen=True, slots=True)
class Health(Probe):
    """Four probes at one moment. Its own ``status``, ``checks`` and JSON are those of ``overall``.

    Attributes:
        live: DOWN means that only a restart helps: a channel has failed, a record is poison with
            ``on_poison = "fail"``, or the application has ended.
        ready: DOWN means that records are not processed as they should be, for example because a
            broker is unavailable.
        started: UP once every incoming channel has had an assignment since it started.
    """

    live: Probe
    ready: Probe
    started: Probe

    @property
    def overall(self) -> Probe:
        """The probe of ``/health``: UP if both ``live`` and ``ready`` are."""
        return self


@dataclass(frozen=True, slots=True)
class _CheckResult:
    """The result of one check for each of the probes."""

    name: str
    live: bool
    ready: bool
    started: bool
    data: Mapping[str, Any]
    channel: str | None = None


def health(facts: AppFacts) -> Health:
    """Return the probes of an application.

    ``live`` stays UP during an outage, a rebalance or a pause, and without partitions: a restart
    would not help.
    """
    results = tuple(_results(facts))

    def checks(is_up: Callable[[_CheckResult], bool]) -> tuple[Check, ...]:
        return tuple(
            Check(result.name, _status(is_up(result)), result.data, result.channel)
            for result in results
        )

    return Health(
        checks(lambda result: result.live and result.ready),
        live=Probe(checks(lambda result: result.live)),
        ready=Probe(checks(lambda result: result.ready)),
        started=Probe(checks(lambda result: result.started)),
    )


def channel_data(channel: ChannelFacts, spark: Sequence[SparkFacts] = ()) -> dict[str, Any]:
    """Return the ``data`` of an incoming channel's check; *spark* are the sessions it needs."""
    data: dict[str, Any] = {
        "direction": "incoming",
        "state": channel.state,
        "reason": _joined(_reasons(channel, spark)),
        "group_protocol": channel.protocol,
        "paused_by": [one_line(reason) for reason in channel.paused_by],
        "postponed": [one_line(record) for record in channel.postponed],
        "warnings": [one_line(warning) for warning in channel.warnings],
        "partitions": [partition_data(partition) for partition in channel.partitions],
        "poison": [_poison_data(poison) for poison in channel.poison],
    }
    if spark:
        data["spark"] = spark_data(spark[0])
    return data


def spark_data(session: SparkFacts) -> dict[str, Any]:
    """Return the field ``spark`` in the ``data`` of a channel's check."""
    return {"mode": session.mode, "running": [batch_data(batch) for batch in session.running]}


def batch_data(batch: SparkBatchFacts) -> dict[str, Any]:
    """Return a Spark batch as JSON; ``timeout_seconds`` is the limit of ``elapsed_seconds``."""
    return {
        "id": batch.id,
        "ranges": [one_line(batch_range) for batch_range in batch.ranges],
        "records": batch.records,
        "attempt": batch.attempt,
        "elapsed_seconds": round(batch.since_s, 3),
        "timeout_seconds": batch.timeout_s,
        "stages": batch.stages,
        "stages_done": batch.stages_done,
        "tasks": batch.tasks,
        "tasks_done": batch.tasks_done,
        "tasks_active": batch.tasks_active,
        "tasks_failed": batch.tasks_failed,
    }


def outgoing_data(channel: OutgoingFacts) -> dict[str, Any]:
    """Return the ``data`` of the check of an outgoing channel, or of a memory channel."""
    state = "running"
    reasons = list(channel.not_ready)
    if channel.broker_error is not None:
        state = "connecting"
        reasons.insert(0, f"broker: {channel.broker_error}")
    if channel.failure is not None:
        state = "failed"
        reasons.insert(0, f"it has failed: {channel.failure}")
    data: dict[str, Any] = {
        "direction": channel.direction,
        "state": state,
        "reason": _joined(reasons),
        "in_flight": channel.in_flight,
    }
    if channel.direction == "memory":
        data["postponed"] = [one_line(value) for value in channel.postponed]
    return data


def _results(facts: AppFacts) -> Iterator[_CheckResult]:
    """Return the result of each check, without channels that have ``health_enabled = false``.

    Their names are unique, because monitors store checks by name.
    """
    disabled = {channel.channel for channel in facts.channels if not channel.health_enabled}
    facts = replace(
        facts,
        channels=tuple(channel for channel in facts.channels if channel.health_enabled),
        outgoing=tuple(channel for channel in facts.outgoing if channel.health_enabled),
        spark=tuple(session for session in facts.spark if session.channel not in disabled),
    )
    incoming = {channel.channel for channel in facts.channels}
    channels = incoming | {outgoing.channel for outgoing in facts.outgoing}
    for result in _results_by_kind(facts):
        kind = result.data.get("direction", "of the application")
        # An incoming channel keeps its name. Others yield to it, and checks of the application
        # yield to every channel.
        if kind == "incoming":
            is_taken = False
        elif kind in ("outgoing", "memory"):
            is_taken = result.name in incoming
        else:
            is_taken = result.name in channels
        yield replace(result, name=f"{result.name} ({kind})") if is_taken else result


def _results_by_kind(facts: AppFacts) -> Iterator[_CheckResult]:
    if facts.stopping or not facts.started or facts.ended is not None:
        yield _check_application(facts)
    for channel in facts.channels:
        sessions = [session for session in facts.spark if session.channel == channel.channel]
        yield _check_incoming(channel, sessions)
    if facts.spark:
        yield _check_spark(facts.spark)
    for outgoing in facts.outgoing:
        yield _check_outgoing(outgoing)
    for readiness in facts.readiness:
        yield _check_readiness(readiness)


def _check_application(facts: AppFacts) -> _CheckResult:
    """Check the application while it is not in service, so that DOWN always has a reason."""
    if facts.ended is not None:
        data = {"state": "ended", "reason": one_line(facts.ended)}
        return _CheckResult("application", live=False, ready=False, started=False, data=data)
    state = "stopping" if facts.stopping else "starting"
    data = {"state": state, "reason": f"the application is {state}"}
    return _CheckResult("application", live=True, ready=False, started=facts.started, data=data)


def _check_incoming(channel: ChannelFacts, spark: Sequence[SparkFacts]) -> _CheckResult:
    has_poison = bool(channel.poison)
    is_in_service = channel.state in ("running", "paused", "done") and channel.has_joined
    works = (
        is_in_service
        and channel.broker_error is None
        and not channel.not_ready
        and not (has_poison and channel.on_poison != "warn")
        and all(session.ready for session in spark)
    )
    # A channel that the application has stopped is as it should be.
    is_stopped_on_purpose = channel.stopped_by is not None
    return _CheckResult(
        channel.channel,
        live=channel.state != "failed" and not (has_poison and channel.on_poison == "fail"),
        ready=works or is_stopped_on_purpose,
        started=channel.has_joined or is_stopped_on_purpose,
        data=channel_data(channel, spark),
        channel=channel.channel,
    )


def _check_outgoing(channel: OutgoingFacts) -> _CheckResult:
    live = channel.failure is None
    return _CheckResult(
        channel.channel,
        live=live,
        ready=live and channel.broker_error is None and not channel.not_ready,
        started=True,
        data=outgoing_data(channel),
        channel=channel.channel,
    )


def _check_readiness(readiness: ReadinessFacts) -> _CheckResult:
    """Check what a function of the application says. A restart would not help it."""
    is_ready = readiness.reason is None
    data = {
        "state": "ready" if is_ready else "not ready",
        "reason": None if readiness.reason is None else one_line(readiness.reason),
    }
    return _CheckResult(readiness.name, live=True, ready=is_ready, started=True, data=data)


def _check_spark(sessions: Sequence[SparkFacts]) -> _CheckResult:
    """Check Spark: UP while the session of every channel is ready."""
    is_ready = all(session.ready for session in sessions)
    data = {
        "state": "running" if is_ready else "connecting",
        "reason": _joined(
            session.reason or "not ready" for session in sessions if not session.ready
        ),
        "channels": [{"channel": session.channel, **spark_data(session)} for session in sessions],
    }
    return _CheckResult("spark", live=True, ready=is_ready, started=True, data=data)


def _reasons(channel: ChannelFacts, spark: Sequence[SparkFacts]) -> Iterator[str]:
    """Yield why an incoming channel is not ready.

    If its records wait for one of its limits, that is named, too.
    """
    if channel.stopped_by is not None:
        yield channel.stopped_by
        return
    if channel.reason is not None:
        yield channel.reason
    # A failed channel handles no record at all, and its reason says why. If that is poison, the
    # reason names the record.
    if channel.state != "failed":
        for poison in channel.poison[:POISON_NAMED]:
            yield _poison_reason(poison, channel.poison_limit_s)
        if len(channel.poison) > POISON_NAMED:
            yield f"poison: {len(channel.poison) - POISON_NAMED} more"
    if channel.broker_error is not None:
        yield f"broker: {channel.broker_error}"
    yield from channel.not_ready
    yield from (f"spark: {session.reason or 'not ready'}" for session in spark if not session.ready)
    if channel.state in ("starting", "connecting", "stopping", "stopped"):
        yield f"the channel is {channel.state}"
    if channel.state == "failed" and channel.reason is None:
        yield "the channel has failed"
    if not channel.has_joined:
        yield f"the channel has no assignment{'' if channel.state == 'failed' else ' yet'}"
    if channel.limited_by is not None:
        yield f"records wait for {channel.limited_by}"


def _poison_reason(poison: PoisonFacts, limit_s: float) -> str:
    limit = f" (limit {limit_s:g} s)" if limit_s else ""
    return (
        f"poison: {poison.partition} offset {poison.offset}"
        f" unsettled for {poison.age_s:.1f} s{limit}, {poison.waiting} waiting behind it"
    )


def _joined(reasons: Iterable[str]) -> str | None:
    """Return the distinct reasons on one line, or None if there are none."""
    return "; ".join(dict.fromkeys(one_line(reason) for reason in reasons)) or None


def partition_data(facts: PartitionFacts) -> dict[str, Any]:
    """Return a partition in the ``data`` of a channel's check."""
    oldest_s = facts.oldest_unacked_s
    return {
        "topic": facts.partition.topic,
        "partition": facts.partition.partition,
        "position": facts.position,
        "committed": facts.committed,
        "lag": facts.lag,
        "in_flight": facts.in_flight,
        "queued": facts.queued,
        "oldest_unacked_seconds": None if oldest_s is None else round(oldest_s, 3),
        "paused": facts.paused,
        "done": facts.done,
    }


def _poison_data(facts: PoisonFacts) -> dict[str, Any]:
    return {
        "topic": facts.partition.topic,
        "partition": facts.partition.partition,
        "offset": facts.offset,
        "age_seconds": round(facts.age_s, 3),
        "waiting": facts.waiting,
    }


def _status(is_up: bool) -> Status:
    return "UP" if is_up else "DOWN"
