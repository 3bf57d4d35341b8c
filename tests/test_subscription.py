"""What a subscription reads, which is the one answer to that question."""

from __future__ import annotations

import pytest

from reactive_kafka.config.incoming_values import AssignedPartition
from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.records import TopicPartition
from reactive_kafka.subscription import Partitions, Pattern, Subscription, Topics

ASSIGNED = Partitions((TopicPartition("orders", 1), TopicPartition("orders", 3)))


@pytest.mark.parametrize(
    ("subscription", "topic", "expected"),
    [
        (Topics(("orders", "refunds")), "refunds", True),
        (Topics(("orders",)), "orders-2", False),
        (Pattern("ord.*"), "orders", True),
        (Pattern("ord"), "orders", False),  # the whole name
        (Pattern(".*"), "__consumer_offsets", False),  # the broker's own
        (Topics(("__consumer_offsets",)), "__consumer_offsets", True),  # named on purpose
        (ASSIGNED, "orders", True),
        (ASSIGNED, "refunds", False),
    ],
)
def test_it_reads_its_topics_what_its_pattern_matches_or_what_it_is_assigned(
    subscription: Subscription, topic: str, expected: bool
) -> None:
    assert subscription.reads(topic) is expected


def test_of_assigned_topics_it_reads_the_assigned_partitions() -> None:
    assert ASSIGNED.includes(TopicPartition("orders", 1))
    assert not ASSIGNED.includes(TopicPartition("orders", 0))
    assert Pattern("ord.*").includes(TopicPartition("orders", 0))
    assert Topics(("orders",)).includes(TopicPartition("orders", 0))


@pytest.mark.parametrize(
    ("subscription", "topics"), [(Topics(("b", "a")), ("b", "a")), (Pattern("a|b"), ()), (ASSIGNED, ("orders",))]
)
def test_it_names_the_topics_that_are_known_without_asking(subscription: Subscription, topics: tuple[str, ...]) -> None:
    assert subscription.topics == topics


def test_a_channels_settings_say_what_it_reads() -> None:
    named = IncomingSettings(name="orders", group_id="billing", topics=("orders",))
    matched = IncomingSettings(name="orders", group_id="billing", topics=(), pattern="ord.*")
    assigned = tuple(AssignedPartition(partition=partition) for partition in ASSIGNED.partitions)
    static = IncomingSettings(name="orders", group_id=None, topics=(), assign=assigned)
    assert [one.subscription for one in (named, matched, static)] == [Topics(("orders",)), Pattern("ord.*"), ASSIGNED]
