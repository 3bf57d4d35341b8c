"""One answer to an action, made from the answers of all workers. Pure.

Each worker has its own partitions of a channel. So a worker that says that it does not have the
partition, or that there is nothing to restart, is right, as long as another one has acted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

ACTED = (200, 202)
CONFLICT = 409
SAID = ("result", "error", "code", "state", "paused_by")


@dataclass(frozen=True, slots=True)
class WorkerReply:
    """The answer of one worker; without a JSON object it is text."""

    worker: int
    status: int
    text: str

    @property
    def body(self) -> Mapping[str, Any]:
        """Return the JSON object, or the text as an error."""
        try:
            body = json.loads(self.text)
        except ValueError:
            body = None
        return body if isinstance(body, dict) else {"error": self.text.strip()}


def is_for_one_worker(path: str, body: bytes) -> bool:
    """Return whether only the worker that has a partition can carry out an action.

    A pause of one partition is for all workers: it lasts when the partition moves to another one.
    """
    if path.endswith("/skip"):
        return True
    if not path.endswith("/seek"):
        return False
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        return False
    if not isinstance(given, dict):
        return False
    return given.get("all") is not True and given.get("partition") != "all"


def summary_of(
    replies: Sequence[WorkerReply], *, one_is_enough: bool
) -> tuple[int, dict[str, Any]] | None:
    """Return the status and the body for all; None: every worker has refused in the same words.

    Then the answer of the first one is that of all, with its headers.

    Args:
        one_is_enough: Once a worker has acted, nothing is left to do for those that do not answer.
    """
    first = replies[0]
    is_refusal = first.status not in (*ACTED, CONFLICT)
    if is_refusal and all(
        (reply.status, reply.text) == (first.status, first.text) for reply in replies
    ):
        return None
    acted = [reply for reply in replies if reply.status in ACTED]
    conflicts = [reply for reply in replies if reply.status == CONFLICT]
    failed = [reply for reply in replies if reply not in acted and reply not in conflicts]
    workers = [
        {
            "worker": reply.worker,
            "status": reply.status,
            **{name: reply.body[name] for name in SAID if name in reply.body},
        }
        for reply in replies
    ]
    body: dict[str, Any] = {}
    if failed and not (acted and one_is_enough):
        worst = max(failed, key=lambda reply: reply.status)
        status = worst.status
        body["error"] = _of_all(worst.body["error"], len(acted), len(replies))
    elif acted:
        status = max(reply.status for reply in acted)
        body["result"] = f"done by {len(acted)} of {len(replies)} workers"
    else:
        status = CONFLICT
        body["error"] = _of_all(conflicts[0].body["error"], 0, len(replies))
        codes = {reply.body.get("code") for reply in conflicts}
        if len(codes) == 1 and None not in codes:
            body["code"] = codes.pop()
    return status, {**body, "workers": workers}


def _of_all(error: object, acted: int, workers: int) -> str:
    return f"{error} (done by {acted} of {workers} workers)" if acted else str(error)
