"""With which protocol a group is joined."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from reactive_kafka.broker.consumer.membership.protocol_choice import (
    configured_protocol,
    has_consumer_protocol,
)


@pytest.mark.parametrize(
    ("group_protocol", "assignors", "chosen"),
    [
        ("auto", None, None),
        ("auto", ("cooperative-sticky",), "classic"),
        ("classic", None, "classic"),
        ("consumer", None, "consumer"),
        ("consumer", ("range",), "consumer"),
    ],
)
def test_the_cluster_decides_unless_a_protocol_or_assignors_are_named(
    group_protocol: str, assignors: Sequence[str] | None, chosen: str | None
) -> None:
    assert configured_protocol(group_protocol, assignors) == chosen


@pytest.mark.parametrize(
    ("features", "has_it"),
    [
        ({}, False),
        ({"metadata.version": 25}, False),
        ({"group.version": 0, "metadata.version": 25}, False),
        ({"metadata.version": 25, "group.version": 1}, True),
    ],
)
def test_a_cluster_has_the_consumer_protocol_if_its_feature_is_switched_on(
    features: dict[str, int], has_it: bool
) -> None:
    finalized = [{"name": name, "max_version_level": level} for name, level in features.items()]
    assert has_consumer_protocol(finalized) is has_it
