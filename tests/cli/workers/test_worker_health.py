"""One probe from the probes of all workers."""

from __future__ import annotations

from typing import Any

import pytest

from reactive_kafka.cli.workers.worker_health import WorkerProbe, merged_probe


def answering(number: int, status: str) -> WorkerProbe:
    data = {"direction": "incoming", "state": "running"}
    check: dict[str, Any] = {"name": "orders", "status": status, "data": data}
    answer = {"status": status, "checks": [check]}
    return WorkerProbe(number=number, answer=answer, state="running", reason="")


def silent(number: int, state: str, *, keeps_failing: bool = False) -> WorkerProbe:
    return WorkerProbe(
        number=number, answer=None, state=state, reason="why", keeps_failing=keeps_failing
    )


def test_the_whole_is_up_if_every_worker_is_up() -> None:
    probe = merged_probe("/health", [answering(1, "UP"), answering(2, "UP")])
    assert probe["status"] == "UP"


def test_one_worker_that_is_down_is_enough_and_its_checks_have_its_number() -> None:
    probe = merged_probe("/health", [answering(1, "UP"), answering(2, "DOWN")])
    assert probe["status"] == "DOWN"
    assert [(check["name"], check["status"]) for check in probe["checks"]] == [
        ("orders (worker 1)", "UP"),
        ("orders (worker 2)", "DOWN"),
    ]
    assert [check["data"]["worker"] for check in probe["checks"]] == [1, 2]


@pytest.mark.parametrize(
    ("path", "worker", "expected"),
    [
        ("/health", silent(2, "restarting"), "DOWN"),
        ("/health/ready", silent(2, "starting"), "DOWN"),
        ("/health/live", silent(2, "restarting"), "UP"),
        ("/health/live", silent(2, "starting"), "UP"),
        ("/health/live", silent(2, "restarting", keeps_failing=True), "DOWN"),
        ("/health/live", silent(2, "unreachable"), "DOWN"),
    ],
)
def test_a_worker_without_an_answer_is_live_only_while_a_restart_may_help(
    path: str, worker: WorkerProbe, expected: str
) -> None:
    probe = merged_probe(path, [answering(1, "UP"), worker])
    assert probe["status"] == expected
    assert probe["checks"][1] == {
        "name": "worker 2",
        "status": expected,
        "data": {"worker": 2, "state": worker.state, "reason": "why"},
    }
