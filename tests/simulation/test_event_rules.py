"""What applications say, against hand-made histories: for each number a true one, and some that are
not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.simulation.checker import Promise, Said
from tests.simulation.event_rules import EVENT_RULES
from tests.simulation.history import Event
from tests.simulation.test_checker import TP, broken, case

PROMISE = Promise(
    max_age_s=4.0, backoff_s=1.0, drain_s=2.0, grace_s=0.5, ordering="unordered", reaches_end=False
)
LETTERS, RETRY = "dead-letter-topic-orders", "orders_retry_500"
HISTORY: Sequence[Event] = (
    Event(0.0, "assigned", "A1", TP, 3, client=1),
    Event(1.0, "fetched", "A1", TP, 0, client=1, until=3, count=3),
    Event(1.0, "begin", "A1", TP, 0, "r0", 1, 1),
    Event(1.5, "end", "A1", TP, 0, "raised", 1, 1),
    Event(2.5, "begin", "A1", TP, 0, "r0", 2, 2),
    Event(3.0, "fault", note="stall #1"),
    Event(5.0, "calm", note="stall #1"),
    Event(6.0, "letter", "", TP, 0, f"is {LETTERS}-0@0"),
    Event(6.0, "copy", "", TP, 1, f"is {RETRY}-0@0"),
    Event(7.0, "send", "A1", TP, 1, call=9, client=1),
    Event(8.0, "answer", "A1", note="failed", call=9),
    Event(8.0, "claim", "A1", TP, call=10, token=7),
    Event(8.0, "claim", "A2", TP, call=11, token=8),
)


def said(name: str, at: float = 9.0, until: int = len(HISTORY), **fields: Any) -> Said:
    return Said(
        at, until, "A1", name, {"channel": "orders", "partition": TP, "offset": 0, **fields}
    )


LETTER: dict[str, Any] = {"to": LETTERS}
DELAYED: dict[str, Any] = {"offset": 1, "to": RETRY, "delay_s": 0.5}
POISON: dict[str, Any] = {"age_s": 5.0, "limit_s": 4.0, "waiting": 2}
AGAIN: dict[str, Any] = {"at": 1.5, "until": 4, "attempt": 1, "wait_s": 1.0}
LEFT: dict[str, Any] = {"during": "stop", "records": 3, "waited_s": 2.0}
FAILED: dict[str, Any] = {"outcome": "failed", "partitions": frozenset({TP})}
GIVEN: dict[str, Any] = {"kind": "assigned", "partitions": frozenset({TP}), "generation": 3}
BATCH: dict[str, Any] = {"duration_s": 3.0, "records": 3, "attempt": 1, "rejected": 1}


def away(of: str, away_s: float) -> list[Said]:
    return [said(f"{of}Unavailable", 2.0), said(f"{of}Available", 9.0, away_s=away_s)]


GOOD = (
    [said("RecordDeadLettered", **LETTER), said("RecordDelayed", **DELAYED)],
    [said("RecordPoisoned", **POISON), said("PoisonSettled", 9.5, age_s=5.5)],
    [said("HandlerRetried", **AGAIN)],
    # Another client of the application got the record while the first one waited.
    [said("HandlerRetried", **AGAIN), said("HandlerRetried", **AGAIN | {"at": 2.2})],
    [said("HandlerAbandoned", **LEFT), said("StopWaits", records=0, left_s=2.0)],
    away("Broker", 7.0),
    away("Store", 7.5),
    [said("CommitFailed", **FAILED), said("Rebalanced", **GIVEN)],
    [said("CheckpointFenced", token=7, found=8), said("CheckpointFenced", token=7, found=None)],
    [said("SparkBatchEnded", **BATCH)],
    [said("SessionOver"), said("SessionUp"), said("LoopBlocked", lag_s=2.0)],
    [said("SettledNotStored", partitions=frozenset({TP}), records=3)],
)
BAD = (
    ("V1", [said("RecordDeadLettered", offset=2, **LETTER)]),
    ("V1", [said("RecordDeadLettered", to="elsewhere")]),
    ("V1", [said("RecordDelayed", **DELAYED | {"to": LETTERS + "_500"})]),
    ("V1", [said("RecordDelayed", **DELAYED | {"delay_s": 500.0})]),
    ("V2", [said("RecordPoisoned", **POISON | {"age_s": 3.9})]),
    ("V2", [said("RecordPoisoned", **POISON | {"age_s": 8.5})]),
    ("V2", [said("RecordPoisoned", **POISON | {"limit_s": 4_000.0})]),
    ("V2", [said("RecordPoisoned", **POISON | {"waiting": 3})]),
    ("V2", [said("PoisonSettled", age_s=5.0)]),
    ("V2", [said("RecordPoisoned", **POISON), said("PoisonSettled", age_s=4.5)]),
    ("V3", [said("HandlerRetried", **AGAIN | {"attempt": 2})]),
    ("V3", [said("HandlerRetried", **AGAIN | {"attempt": 0})]),
    ("V3", [said("HandlerRetried", **AGAIN | {"wait_s": 1_000.0})]),
    ("V3", [said("HandlerRetried", **AGAIN | {"at": 2.0})]),
    ("V3", [said("HandlerRetried", **AGAIN | {"at": at}) for at in (1.8, 2.0)]),
    ("V4", [said("HandlerAbandoned", **LEFT | {"records": 0})]),
    ("V4", [said("HandlerAbandoned", **LEFT | {"records": 4})]),
    ("V4", [said("HandlerAbandoned", **LEFT | {"waited_s": 30.0})]),
    ("V4", [said("StopWaits", records=1, left_s=-1.0)]),
    ("V5", away("Broker", 7_000.0)),
    ("V5", away("Store", 0.0)),
    ("V5", [said("BrokerAvailable", away_s=1.0)]),
    ("V6", [said("CommitFailed", **FAILED | {"outcome": "unknown"})]),
    ("V6", [said("CommitFailed", **FAILED | {"partitions": frozenset({("orders", 5)})})]),
    ("V7", [said("Rebalanced", **GIVEN | {"generation": 4})]),
    ("V7", [said("Rebalanced", **GIVEN | {"partitions": frozenset({("orders", 5)})})]),
    ("V8", [said("CheckpointFenced", token=8, found=7)]),
    ("V8", [said("CheckpointFenced", token=7, found=7)]),
    ("V8", [said("CheckpointFenced", token=7, found=9)]),
    ("V9", [said("SparkBatchEnded", **BATCH | {"duration_s": 3_000.0})]),
    ("V9", [said("SparkBatchEnded", **BATCH | {"records": 4})]),
    ("V9", [said("SparkBatchEnded", **BATCH | {"attempt": 0})]),
    ("V9", [said("SparkBatchEnded", **BATCH | {"rejected": 4})]),
    ("V10", [said("SessionUp")]),
    ("V10", [said("LoopBlocked", lag_s=2_000.0)]),
    ("V11", [said("SettledNotStored", partitions=frozenset({TP}), records=4)]),
    ("V11", [said("SettledNotStored", partitions=frozenset({TP}), records=0)]),
)


def rules(*told: Said) -> set[str]:
    played = case(list(HISTORY), promise=PROMISE, said=told)
    return {rule for rule in broken(played) if rule.startswith("V")}


@pytest.mark.parametrize("told", GOOD, ids=lambda told: told[0].name)
def test_what_is_true_breaks_no_rule(told: list[Said]) -> None:
    assert rules(*told) == set()


@pytest.mark.parametrize(
    ("rule", "told"), BAD, ids=lambda one: one if isinstance(one, str) else one[-1].name
)
def test_a_wrong_number_is_seen(rule: str, told: list[Said]) -> None:
    assert rules(*told) == {rule}


def test_each_rule_has_a_wrong_number() -> None:
    assert len({rule for rule, _ in BAD}) == len(EVENT_RULES)


@pytest.mark.parametrize(("other_has_said", "found"), [(True, set()), (False, {"V3"})])
def test_attempts_of_two_clients_that_have_one_record_are_told_apart(
    other_has_said: bool, found: set[str]
) -> None:
    """A client that the group has removed without a word goes on with its own attempts."""

    def attempt(number: int, at: float, client: int) -> list[Event]:
        return [
            Event(at, "begin", "A1", TP, 0, "r0", client, number, client=client),
            Event(at, "end", "A1", TP, 0, "raised", client, number, client=client),
        ]

    history = [
        *attempt(1, 0.1, 2),
        *attempt(2, 0.5, 2),
        *attempt(1, 0.6, 1),
        *attempt(2, 1.1, 1),
        *attempt(3, 1.5, 2),
    ]
    told = [
        said("HandlerRetried", at=0.6, until=6, attempt=1, wait_s=0.5),
        said("HandlerRetried", at=1.1, until=8, attempt=2, wait_s=1.0),
    ]
    if other_has_said:
        told.insert(0, said("HandlerRetried", at=0.5, until=4, attempt=2, wait_s=1.0))
    played = case(history, promise=PROMISE, said=told)
    assert broken(played) & {"V3"} == found
