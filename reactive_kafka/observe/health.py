"""An application's probes, made of its facts, with reasons for people. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from reactive_kafka.observe.facts import (
    AppFacts,
    ChannelFacts,
    OutgoingFacts,
    PartitionFacts,
    PoisonFacts,
    SparkBatchFacts,
    SparkFacts,
)
from reactive_kafka.observe.text import one_line

Status = Literal["UP", "DOWN"]

# Poison records named in a reason; the data has all of them.
POISON_NAMED = 3


@dataclass(frozen=True, slots=True)
class Check:
    """One channel's part of a probe."""

    # The channel's, unless another check has it.
    name: str
    status: Status
    # JSON values only.
    data: Mapping[str, Any]
    # None for a check of the application itself.
    channel: str | None = None

    def to_json(self) -> dict[str, Any]:
        """``{"name", "status", "data"}``."""
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
        """Whether every check is UP, or there is none."""
        return all(check.status == "UP" for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        """``{"status", "checks"}``: the body of the HTTP endpoints."""
        return {"status": self.status, "checks": [check.to_json() for check in self.checks]}


@dataclass(frozen=True, slots=True)
class Health(Probe):
    """Four probes at one moment; its own ``status``, ``checks`` and JSON are those of ``overall``.

    Attributes:
        live: DOWN means that only a restart helps: a failed channel, poison with ``on_poison =
            "fail"``, or an application that has ended.
        ready: DOWN means that records are not processed as they should be, because a broker is
            unavailable, say.
        started: UP once every incoming channel has had an assignment since it started.
    """

    live: Probe
    ready: Probe
    started: Probe

    @property
    def overall(self) -> Probe:
        """UP if both ``live`` and ``ready`` are; the answer of ``/health``."""
        return self


@dataclass(frozen=True, slots=True)
class _Verdict:
    """What one part of the application contributes to each probe."""

    name: str
    live: bool
    ready: bool
    started: bool
    data: Mapping[str, Any]
    channel: str | None = None


def health(facts: AppFacts) -> Health:
    """The probes of *facts*. An outage, a rebalance, a pause, and having no partitions never turn
    ``live`` DOWN.
    """
    verdicts = tuple(_verdicts(facts))
    return Health(
        tuple(Check(v.name, _status(v.live and v.ready), v.data, v.channel) for v in verdicts),
        live=Probe(tuple(Check(v.name, _status(v.live), v.data, v.channel) for v in verdicts)),
        ready=Probe(tuple(Check(v.name, _status(v.ready), v.data, v.channel) for v in verdicts)),
        started=Probe(
            tuple(Check(v.name, _status(v.started), v.data, v.channel) for v in verdicts)
        ),
    )


def channel_data(channel: ChannelFacts, spark: Sequence[SparkFacts] = ()) -> dict[str, Any]:
    """The ``data`` of an incoming channel's check; *spark* are the sessions it depends on."""
    data = {
        "direction": "incoming",
        "state": channel.state,
        "reason": _joined(_reasons(channel, spark)),
        "paused_by": [one_line(reason) for reason in channel.paused_by],
        "warnings": [one_line(warning) for warning in channel.warnings],
        "partitions": [_partition_data(partition) for partition in channel.partitions],
        "poison": [_poison_data(poison) for poison in channel.poison],
    }
    return data | ({"spark": spark_data(spark[0])} if spark else {})


def spark_data(session: SparkFacts) -> dict[str, Any]:
    """Spark's part in the ``data`` of a channel's check."""
    return {"mode": session.mode, "running": [batch_data(batch) for batch in session.running]}


def batch_data(batch: SparkBatchFacts) -> dict[str, Any]:
    """A Spark batch as JSON; ``timeout_seconds`` is the limit of ``elapsed_seconds``."""
    return {
        "id": batch.id,
        "ranges": [one_line(place) for place in batch.ranges],
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
    """The ``data`` of the check of an outgoing channel, or of a memory channel."""
    away = channel.broker_error is not None
    failed = [] if channel.failure is None else [f"it has failed: {channel.failure}"]
    return {
        "direction": channel.direction,
        "state": "failed" if failed else "connecting" if away else "running",
        "reason": _joined(
            [*failed, *([f"broker: {channel.broker_error}"] if away else []), *channel.not_ready]
        ),
        "in_flight": channel.in_flight,
    }


def _verdicts(facts: AppFacts) -> Iterator[_Verdict]:
    """One per check of what counts. Their names are unique, because monitors store checks by
    name.
    """
    silent = {channel.channel for channel in facts.channels if not channel.health_enabled}
    facts = replace(
        facts,
        channels=tuple(channel for channel in facts.channels if channel.health_enabled),
        outgoing=tuple(channel for channel in facts.outgoing if channel.health_enabled),
        spark=tuple(session for session in facts.spark if session.channel not in silent),
    )
    incoming = {channel.channel for channel in facts.channels}
    channels = incoming | {outgoing.channel for outgoing in facts.outgoing}
    for verdict in _verdicts_by_kind(facts):
        kind = verdict.data.get("direction", "of the application")
        is_taken = kind != "incoming" and verdict.name in (
            incoming if kind in ("outgoing", "memory") else channels
        )
        yield replace(verdict, name=f"{verdict.name} ({kind})") if is_taken else verdict


def _verdicts_by_kind(facts: AppFacts) -> Iterator[_Verdict]:
    if facts.stopping or not facts.started or facts.ended is not None:
        yield _application(facts)
    for channel in facts.channels:
        yield _incoming(
            channel, [session for session in facts.spark if session.channel == channel.channel]
        )
    if facts.spark:
        yield _spark(facts.spark)
    for outgoing in facts.outgoing:
        name = outgoing.channel
        live = outgoing.failure is None
        data = outgoing_data(outgoing)
        ready = live and outgoing.broker_error is None and not outgoing.not_ready
        yield _Verdict(name, live, ready, started=True, data=data, channel=name)


def _application(facts: AppFacts) -> _Verdict:
    """A check that exists only while the application is not in service, so that DOWN always has a
    reason.
    """
    if facts.ended is not None:
        data = {"state": "ended", "reason": one_line(facts.ended)}
        return _Verdict("application", live=False, ready=False, started=False, data=data)
    state = "stopping" if facts.stopping else "starting"
    data = {"state": state, "reason": f"the application is {state}"}
    return _Verdict("application", live=True, ready=False, started=facts.started, data=data)


def _incoming(channel: ChannelFacts, spark: Sequence[SparkFacts]) -> _Verdict:
    poisoned = bool(channel.poison)
    in_service = channel.state in ("running", "paused", "done") and channel.has_joined
    is_meant_to_stand = channel.stopped_by is not None
    return _Verdict(
        channel.channel,
        live=channel.state != "failed" and not (poisoned and channel.on_poison == "fail"),
        ready=is_meant_to_stand
        or (
            in_service
            and channel.broker_error is None
            and not channel.not_ready
            and not (poisoned and channel.on_poison != "warn")
            and all(session.ready for session in spark)
        ),
        started=channel.has_joined or is_meant_to_stand,
        data=channel_data(channel, spark),
        channel=channel.channel,
    )


def _spark(sessions: Sequence[SparkFacts]) -> _Verdict:
    """The check of Spark: UP while every channel's session is ready."""
    is_ready = all(session.ready for session in sessions)
    data = {
        "state": "running" if is_ready else "connecting",
        "reason": _joined(
            session.reason or "not ready" for session in sessions if not session.ready
        ),
        "channels": [{"channel": session.channel, **spark_data(session)} for session in sessions],
    }
    return _Verdict("spark", live=True, ready=is_ready, started=True, data=data)


def _reasons(channel: ChannelFacts, spark: Sequence[SparkFacts]) -> Iterator[str]:
    if channel.stopped_by is not None:
        yield channel.stopped_by
        return
    if channel.reason is not None:
        yield channel.reason
    # A failed one names it above.
    for poison in () if channel.state == "failed" else channel.poison[:POISON_NAMED]:
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


def _poison_reason(poison: PoisonFacts, limit_s: float) -> str:
    limit = f" (limit {limit_s:g} s)" if limit_s else ""
    return (
        f"poison: {poison.partition} offset {poison.offset} unsettled for {poison.age_s:.1f} s{limit}, "
        f"{poison.waiting} waiting behind it"
    )


def _joined(reasons: Iterable[str]) -> str | None:
    """The distinct reasons on one line; None if there are none."""
    return "; ".join(dict.fromkeys(one_line(reason) for reason in reasons)) or None


def _partition_data(facts: PartitionFacts) -> dict[str, Any]:
    return {
        "topic": facts.partition.topic,
        "partition": facts.partition.partition,
        "position": facts.position,
        "committed": facts.committed,
        "lag": facts.lag,
        "in_flight": facts.in_flight,
        "queued": facts.queued,
        "oldest_unacked_seconds": None
        if facts.oldest_unacked_s is None
        else round(facts.oldest_unacked_s, 3),
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
