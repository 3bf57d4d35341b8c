"""What a consumer's properties say about fetching."""

from __future__ import annotations

import pytest

from reactive_kafka.broker.consumer.fetching.fetch_settings import rack_problem


@pytest.mark.parametrize(
    ("rack", "racks", "problem"),
    [
        ("", [None], None),
        ("a", [], None),
        ("a", ["b", "a", None], None),
        (
            "a",
            ["c", "b", "c", None],
            "client_rack = 'a' has no effect: no broker is in that rack, their racks are b, c",
        ),
        (
            "a",
            [None, ""],
            "client_rack = 'a' has no effect: no broker is in that rack, none of them has "
            "broker.rack set",
        ),
    ],
)
def test_a_rack_has_no_effect_if_no_broker_is_in_it(
    rack: str, racks: list[str | None], problem: str | None
) -> None:
    assert rack_problem(rack, racks) == problem
