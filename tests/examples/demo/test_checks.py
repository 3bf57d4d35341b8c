"""Each check of the summary can fail, and fails alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from examples.demo.checks import Answer, Check, Found, Outcome, Place, checks, summary
from reactive_kafka.records import TopicPartition

ORDERS, PAYMENTS, CLICKS = (TopicPartition(topic, 0) for topic in ("orders", "payments", "clicks"))
HELD = Place(PAYMENTS, 1)
OTHER = Place(ORDERS, 1)
RED, GREEN = Answer(10.0, 503, frozenset({HELD})), Answer(13.0, 200)

GOOD = Outcome(
    unconfirmed=[],
    produced={"orders": {0, 1, 2}, "payments": {0, 1}, "clicks": {0, 1, 2, 3}},
    handled={"orders": {0: 1, 1: 1, 2: 1}, "payments": {0: 1, 1: 1}},
    clicks=4,
    batches=2,
    has_spark=True,
    positions={ORDERS: (3, 3), PAYMENTS: (2, 2), CLICKS: (4, 4)},
    own_lag={ORDERS: 0, PAYMENTS: 0, CLICKS: 0},
    held=HELD,
    found=[Found(HELD, age_s=5.02, limit_s=5.0)],
    answers=[Answer(1.0, 200), RED, GREEN],
    settled_at=12.0,
)


def test_a_good_run_holds() -> None:
    assert [check.name for check in checks(GOOD)] == [
        "produced",
        "orders",
        "payments",
        "clicks",
        "committed",
        "lag",
        "poison",
        "health",
    ]
    assert all(check.ok for check in checks(GOOD))
    assert summary(checks(GOOD))[-1] == "all of it holds"


def test_the_summary_says_that_clicks_were_counted_without_spark() -> None:
    said = {check.name: check.text for check in checks(replace(GOOD, has_spark=False))}
    assert said["clicks"] == (
        "4 produced, 4 counted without Spark in 2 batches: "
        "PySpark is not installed (make setup, or the extra spark)"
    )


@pytest.mark.parametrize(
    ("name", "text", "wrong"),
    [
        (
            "produced",
            "1 records were not confirmed: orders 7: away",
            {"unconfirmed": ["orders 7: away"]},
        ),
        (
            "orders",
            "never handled: 1",
            {"handled": {"orders": {0: 1, 2: 1}, "payments": {0: 1, 1: 1}}},
        ),
        (
            "payments",
            "handled and not produced: 9",
            {"handled": {"orders": {0: 1, 1: 1, 2: 1}, "payments": {0: 1, 1: 1, 9: 1}}},
        ),
        ("clicks", "4 produced, 3 rows", {"clicks": 3}),
        ("clicks", "4 produced, 5 rows", {"clicks": 5}),
        (
            "committed",
            "orders-0: committed 2, end 3",
            {"positions": {**GOOD.positions, ORDERS: (2, 3)}},
        ),
        (
            "committed",
            "committed nothing, end 3",
            {"positions": {**GOOD.positions, ORDERS: (None, 3)}},
        ),
        ("committed", "on 0 of 0 partitions", {"positions": {}}),
        ("lag", "orders-0: 2", {"own_lag": {**GOOD.own_lag, ORDERS: 2}}),
        ("lag", "clicks-0: None", {"own_lag": {ORDERS: 0, PAYMENTS: 0}}),
        ("poison", "never found", {"found": []}),
        (
            "poison",
            "not poison, but reported: orders-0 offset 1",
            {"found": [*GOOD.found, Found(OTHER, 61, 60)]},
        ),
        ("poison", "1.500 s after its limit", {"found": [Found(HELD, age_s=6.5, limit_s=5.0)]}),
        ("poison", "-1.000 s after its limit", {"found": [Found(HELD, age_s=4.0, limit_s=5.0)]}),
        ("health", "never answered 503", {"answers": [Answer(1.0, 200), GREEN]}),
        (
            "health",
            "never answered 503",
            {"answers": [replace(RED, poison=frozenset({OTHER})), GREEN]},
        ),
        ("health", "never answered 503", {"answers": [replace(RED, status=200), GREEN]}),
        ("health", "never 200 to the end", {"answers": [Answer(1.0, 200), RED]}),
        (
            "health",
            "never 200 to the end",
            {"answers": [RED, Answer(11.0, 200), Answer(13.0, 503)]},
        ),
        ("health", "never 200 to the end", {"answers": [RED, GREEN, Answer(14.0, 503)]}),
        ("health", "never settled", {"settled_at": None}),
    ],
)
def test_each_check_can_fail_and_names_what_is_wrong(
    name: str, text: str, wrong: dict[str, Any]
) -> None:
    failed = [check for check in checks(replace(GOOD, **wrong)) if not check.ok]
    assert [check.name for check in failed] == [name]
    assert text in failed[0].text
    assert summary(failed)[-1] == f"failed: {name}"


def test_a_run_in_which_nothing_was_held_fails() -> None:
    failed = {check.name for check in checks(replace(GOOD, held=None, found=[])) if not check.ok}
    assert failed == {"poison", "health"}


def test_a_channel_without_records_proves_nothing() -> None:
    produced = {**GOOD.produced, "orders": set()}
    failed = {
        check.name: check.text for check in checks(replace(GOOD, produced=produced)) if not check.ok
    }
    assert failed["produced"] == "nothing was produced for orders"


def test_records_handled_more_than_once_are_told_and_no_failure() -> None:
    handled = {**GOOD.handled, "orders": {0: 1, 1: 2, 2: 1}}
    orders = next(
        check for check in checks(replace(GOOD, handled=handled)) if check.name == "orders"
    )
    assert orders == Check("orders", True, "3 produced, 3 handled, 1 of them more than once")


def test_an_untouched_partition_needs_no_commit() -> None:
    empty = TopicPartition("orders", 1)
    outcome = replace(
        GOOD, positions={**GOOD.positions, empty: (None, 0)}, own_lag={**GOOD.own_lag, empty: 0}
    )
    assert all(check.ok for check in checks(outcome))


def test_many_wrong_ones_are_cut_short() -> None:
    outcome = replace(GOOD, produced={**GOOD.produced, "orders": set(range(100))})
    orders = next(check for check in checks(outcome) if check.name == "orders")
    assert orders.text.endswith("never handled: 3, 4, 5, 6, 7 and 92 more")
