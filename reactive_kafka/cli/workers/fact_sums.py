"""The facts of one application, made from the facts of all its workers. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Json = Mapping[str, Any]

_SUMS = frozenset(
    {
        "lag",
        "in_flight",
        "queued",
        "partition_count",
        "received",
        "acked",
        "nacked",
        "dead_lettered",
        "outputs_lost",
        "delayed",
        "poisoned",
        "retries",
        "duplicates_dropped",
        "replays_avoided",
        "metadata_dropped",
        "received_per_second",
        "settled_per_second",
        "lag_per_second",
        "sent_per_second",
    }
)
_SUMS_BY_NAME = frozenset({"commits", "rebalances", "sent"})
_LARGEST = frozenset({"oldest_unacked_seconds", "unsynced_seconds"})
_LARGEST_BY_NAME = frozenset({"handler_seconds", "send_seconds"})
# Each item says which worker it is from.
_LISTED = frozenset({"partitions", "poison", "history"})
_TEXTS = frozenset({"warnings", "paused_by"})
_STATES = (
    "failed",
    "stopping",
    "starting",
    "connecting",
    "stopped",
    "paused",
    "running",
    "done",
)
"""The states of a channel. The first of them that a worker has is the one that is shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFacts:
    """What one worker has answered."""

    number: int
    # None: it has not answered.
    facts: Json | None
    # Why it has not answered.
    reason: str = ""


def merged_facts(workers: Sequence[WorkerFacts]) -> dict[str, Any]:
    """Return the facts of all workers as those of one application.

    Counts and rates are summed, and partitions are listed with the number of their worker. A
    worker that does not answer makes the application DOWN.
    """
    answered = [(worker.number, worker.facts) for worker in workers if worker.facts is not None]
    return {
        "application": _application(workers),
        "incoming": _channels(answered, "incoming"),
        "outgoing": _channels(answered, "outgoing"),
        "sessions": [
            {**session, "worker": number}
            for number, facts in answered
            for session in facts["sessions"]
        ],
    }


def _application(workers: Sequence[WorkerFacts]) -> dict[str, Any]:
    found = [worker.facts["application"] for worker in workers if worker.facts is not None]
    reasons = [reason for worker in workers for reason in _reasons(worker)]
    states = {one["state"] for one in found}
    is_up = len(found) == len(workers) and all(one["status"] == "UP" for one in found)
    uptimes = [one["uptime_seconds"] for one in found if one["uptime_seconds"] is not None]
    first = found[0] if found else {}
    return {
        "name": "application",
        "version": None,
        "library_version": "",
        "host": "",
        "pid": None,
        **first,
        "members": len(workers),
        "uptime_seconds": max(uptimes, default=None),
        "state": states.pop() if len(states) == 1 else "starting",
        "status": "UP" if is_up else "DOWN",
        "reasons": reasons,
    }


def _reasons(worker: WorkerFacts) -> list[dict[str, Any]]:
    if worker.facts is None:
        return [{"name": f"worker {worker.number}", "reason": worker.reason}]
    return [
        {**one, "name": f"{one['name']} (worker {worker.number})"}
        for one in worker.facts["application"]["reasons"]
    ]


def _channels(answered: Iterable[tuple[int, Json]], direction: str) -> list[dict[str, Any]]:
    """Return one object for each channel, in the order in which the workers list them."""
    by_name: dict[tuple[str, str], list[tuple[int, Json]]] = {}
    for number, facts in answered:
        for channel in facts[direction]:
            key = (channel["direction"], channel["channel"])
            by_name.setdefault(key, []).append((number, channel))
    return [_channel(same) for same in by_name.values()]


def _channel(same: Sequence[tuple[int, Json]]) -> dict[str, Any]:
    _, first = same[0]
    return {key: _value(key, same) for key in first}


def _value(key: str, same: Sequence[tuple[int, Json]]) -> Any:
    """Return what the field *key* is for all workers together."""
    values = [channel[key] for _, channel in same if channel.get(key) is not None]
    if key in _LISTED:
        items = [
            {**item, "worker": number} for number, channel in same for item in channel.get(key, ())
        ]
        return sorted(items, key=_at, reverse=True) if key == "history" else items
    if key in _TEXTS:
        return list(dict.fromkeys(text for texts in values for text in texts))
    if not values:
        return None
    if key in _SUMS:
        return round(sum(values), 2)
    if key in _LARGEST:
        return max(values)
    if key in _SUMS_BY_NAME:
        return _by_name(values, sum)
    if key in _LARGEST_BY_NAME:
        return _by_name(values, max)
    if key == "status":
        return "DOWN" if "DOWN" in values else "UP"
    if key == "state":
        return min(values, key=_severity)
    if key == "reason":
        return "; ".join(dict.fromkeys(values))
    if key == "last_error":
        return max(values, key=_at)
    return values[0]


def _by_name(values: Iterable[Json], joined: Callable[[list[Any]], Any]) -> dict[str, Any]:
    found: dict[str, list[Any]] = {}
    for value in values:
        for name, number in value.items():
            numbers = found.setdefault(name, [])
            if number is not None:
                numbers.append(number)
    return {name: joined(numbers) if numbers else None for name, numbers in found.items()}


def _severity(state: str) -> int:
    return _STATES.index(state) if state in _STATES else 0


def _at(item: Json) -> str:
    return str(item["at"])
