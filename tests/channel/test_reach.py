"""What is remembered of looks: since when something is missing or silent, and when it is told."""

from __future__ import annotations

from reactive_kafka.broker.client import Sight
from reactive_kafka.channel.reach import Reach
from reactive_kafka.events import (
    Event,
    LeadersAway,
    LeadersBack,
    RackHasNoEffect,
    TopicFound,
    TopicMissing,
)
from tests.app.helpers import Recorder, tp
from tests.observe.samples import open_problems
from tests.partitions.reading import table_of

GONE = Sight(missing=frozenset({"orders"}))


def reach_of(recorder: Recorder, *, tells_topics: bool = True) -> Reach:
    """Of a client that has four partitions."""
    table = table_of(*(tp(number) for number in range(4)))
    return Reach("orders", table, recorder, open_problems(), tells_topics=tells_topics)


def kinds(recorder: Recorder) -> list[type[Event]]:
    return [type(event) for event in recorder.events]


def test_a_topic_that_we_lack_the_right_to_see_is_told_as_that() -> None:
    recorder = Recorder()
    reach = reach_of(recorder)
    sight = Sight(forbidden=frozenset({"orders"}))
    reach.found(sight, 0.0, 0.1)
    reach.found(sight, 2.0, 2.1)
    (reason,) = reach.not_ready
    assert (
        reason == "the topic 'orders' may not be read: the right to describe and read it is missing"
    )
    assert [event.reason for event in recorder.of(TopicMissing)] == [reason]


def test_a_topic_is_not_ready_at_once_and_told_when_it_has_been_missing_for_two_seconds() -> None:
    recorder = Recorder()
    reach = reach_of(recorder)
    reach.found(GONE, 0.0, 0.1)
    assert (len(reach.not_ready), reach.is_unsure, recorder.events) == (1, True, [])
    reach.found(GONE, 2.0, 2.1)
    assert (reach.is_unsure, kinds(recorder)) == (False, [TopicMissing])
    reach.found(GONE, 4.0, 4.1)
    reach.found(Sight(), 6.0, 6.1)
    assert (reach.not_ready, kinds(recorder)) == ([], [TopicMissing, TopicFound])


def test_a_topic_that_was_being_created_is_never_told() -> None:
    recorder = Recorder()
    reach = reach_of(recorder)
    for at in range(0, 100, 4):
        reach.found(GONE, at, at)
        reach.found(Sight(), at + 1, at + 1)
    assert (recorder.events, reach.not_ready, reach.is_unsure) == ([], [], False)


def test_of_several_clients_of_a_channel_one_tells_of_topics() -> None:
    recorder = Recorder()
    reach = reach_of(recorder, tells_topics=False)
    for sight, at in ((GONE, 0), (GONE, 5), (Sight(), 10)):
        reach.found(sight, at, at)
        assert len(reach.not_ready) == len(sight.missing)
    assert recorder.events == []


def test_a_leader_counts_from_when_it_was_first_asked_in_vain() -> None:
    recorder = Recorder()
    reach = reach_of(recorder)
    silent = Sight(silent={tp(1): "2 at host:9092"})
    reach.found(silent, 10.0, 14.9)
    assert (reach.not_ready, reach.is_unsure) == ([], True)
    reach.found(silent, 14.9, 15.0)
    assert reach.not_ready == [
        "orders-1 cannot be read: its leader, node 2 at host:9092, does not answer"
    ]
    assert kinds(recorder) == [LeadersAway]
    reach.found(Sight(), 16.0, 16.0)
    reach.found(silent, 17.0, 17.0)
    assert (reach.not_ready, kinds(recorder)) == ([], [LeadersAway, LeadersBack])


def test_partitions_of_one_node_are_named_together() -> None:
    reach = reach_of(Recorder())
    silent = Sight(silent={tp(3): None, tp(0): "2", tp(2): "2"})
    reach.found(silent, 0.0, 0.0)
    reach.found(silent, 6.0, 6.0)
    assert reach.not_ready == [
        "orders-0, orders-2 cannot be read: its leader, node 2, does not answer",
        "orders-3 cannot be read: no node leads it",
    ]


def test_a_rack_without_brokers_is_told_when_that_begins_and_by_one_client() -> None:
    recorder = Recorder()
    reach = reach_of(recorder)
    other = reach_of(recorder, tells_topics=False)
    for problem in ("no broker", "no broker", None, "no broker"):
        reach.found(Sight(rack_problem=problem), 0.0, 0.1)
        other.found(Sight(rack_problem=problem), 0.0, 0.1)
    assert [event.reason for event in recorder.of(RackHasNoEffect)] == ["no broker"] * 2
    assert reach.not_ready == []
