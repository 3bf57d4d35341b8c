"""One probe made from the probes of all workers. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

LIVE = "/health/live"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerProbe:
    """What is known of one worker when a probe is asked for."""

    number: int
    # The JSON that it has answered. None: it has not answered.
    answer: Mapping[str, Any] | None
    # Why it has not answered.
    state: str
    reason: str
    # Restarts have not helped so far.
    keeps_failing: bool = False


def merged_probe(path: str, workers: Iterable[WorkerProbe]) -> dict[str, Any]:
    """Return the JSON of a probe that is UP if it is UP for every worker.

    A worker that is being started again is DOWN for ``/health`` and ``/health/ready``. It stays UP
    for ``/health/live``, because restarting everything would not bring it back sooner. If it keeps
    failing, it is DOWN there, too.
    """
    checks = [check for worker in workers for check in _checks(path, worker)]
    is_up = all(check["status"] == "UP" for check in checks)
    return {"status": "UP" if is_up else "DOWN", "checks": checks}


def _checks(path: str, worker: WorkerProbe) -> list[dict[str, Any]]:
    """Return the checks of a worker under names that no other worker's have."""
    if worker.answer is None:
        heals = path == LIVE and worker.state != "unreachable" and not worker.keeps_failing
        data = {"worker": worker.number, "state": worker.state, "reason": worker.reason}
        return [
            {
                "name": f"worker {worker.number}",
                "status": "UP" if heals else "DOWN",
                "data": data,
            }
        ]
    return [
        {
            **check,
            "name": f"{check['name']} (worker {worker.number})",
            "data": {"worker": worker.number, **check.get("data", {})},
        }
        for check in worker.answer["checks"]
    ]
