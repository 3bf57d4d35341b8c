"""What is fetched next, and when to look again."""

from __future__ import annotations

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.broker.consumer.fetching.fetch_plan import SOME, has_to_wait, plan_fetches
from reactive_kafka.broker.consumer.fetching.prefetch import HELD_S
from reactive_kafka.errors import FatalBrokerError
from tests.broker.consumer.fetching.parts import ONE, OTHER, Reads, partition

NOW = 100.0
NODES = (None, ONE, OTHER, 3)
COUNT = 6


@st.composite
def some_reads(draw: st.DrawFn) -> Reads:
    """Partitions in any state."""
    numbers = range(COUNT)
    reads = Reads(0, {number: draw(st.sampled_from(NODES)) for number in numbers})
    reads.hold([partition(number) for number in numbers])
    for number in draw(st.sets(st.sampled_from(numbers))):
        reads.start([number], draw(st.integers(0, 9)))
        state = reads.state(number)
        match draw(st.sampled_from(["", "held", "failed", "later"])):
            case "held":
                reads.keep_some(number, NOW - draw(st.sampled_from([0.0, 0.05, HELD_S, 1.0])))
            case "failed":
                reads.fail(state, FatalBrokerError("no right"))
            case "later":
                state.retry_at = NOW + draw(st.sampled_from([-1.0, 0.0, 0.02]))
        if draw(st.booleans()):
            state.replica = OTHER
            state.replica_until = NOW + draw(st.sampled_from([-1.0, 1.0]))
    reads.pause([partition(number) for number in draw(st.sets(st.sampled_from(numbers)))])
    reads.stop_reading([partition(number) for number in draw(st.sets(st.sampled_from(numbers)))])
    return reads


@given(some_reads(), st.sets(st.sampled_from(NODES[1:])), st.sets(st.sampled_from(NODES[1:])))
def test_each_partition_that_can_be_read_is_fetched_from_its_node_if_that_is_free(
    reads: Reads, in_flight: set[int], hurried: set[int]
) -> None:
    plan = plan_fetches(reads, in_flight, hurried, NOW)
    wanted: dict[int, set[int]] = {}
    times = [inf]
    lacks_leader = False
    for number in range(COUNT):
        state = reads.state(number)
        is_waiting = state.piece is not None or state.error is not None
        if state.position is None or state.is_paused or state.is_leaving or is_waiting:
            continue
        node = state.node(NOW)
        if node is None:
            lacks_leader = True
            continue
        if state.retry_at > NOW:
            times.append(state.retry_at)
            continue
        newest = max(
            (
                held.piece.came_at
                for held in reads.held.values()
                if held.piece is not None and held.node(NOW) == node
            ),
            default=-inf,
        )
        is_held_back = node not in hurried and newest + HELD_S > NOW
        if node not in in_flight and not is_held_back:
            wanted.setdefault(node, set()).add(number)
        elif node not in in_flight:
            times.append(newest + HELD_S)
    found = {
        node: {state.partition.partition for state in states}
        for node, states in plan.partitions.items()
    }
    assert found == wanted
    assert plan.lacks_leader is lacks_leader
    assert plan.look_at <= min(times), "nobody would look when it is time"
    assert plan.look_at > NOW


def test_the_newest_records_of_a_node_say_how_long_its_next_fetch_may_wait() -> None:
    reads = Reads(3, {0: ONE, 1: ONE, 2: OTHER})
    reads.keep_some(0, 10.0)
    reads.keep_some(1, 12.0)
    assert plan_fetches(reads, (), (), NOW).newest_held_at == {ONE: 12.0}


def test_a_partition_whose_records_are_taken_waits_for_the_answer_of_its_node() -> None:
    reads = Reads(3, {0: ONE, 1: ONE, 2: OTHER})
    assert has_to_wait(reads, partition(0), {ONE}, NOW)
    assert not has_to_wait(reads, partition(0), {OTHER}, NOW)


def test_it_waits_for_new_records_of_its_node_and_not_for_old_ones_or_those_of_others() -> None:
    reads = Reads(3, {0: ONE, 1: ONE, 2: OTHER})
    reads.keep_some(2, NOW)
    assert not has_to_wait(reads, partition(0), (), NOW)
    reads.keep_some(1, NOW - 1)
    assert not has_to_wait(reads, partition(0), (), NOW)
    reads.keep_some(1, NOW)
    assert has_to_wait(reads, partition(0), (), NOW)


def test_only_the_last_answers_are_looked_at() -> None:
    reads = Reads(SOME + 2)
    reads.keep_some(1, NOW)
    for number in range(2, SOME + 2):
        reads.keep_some(number, NOW - 1)
    assert not has_to_wait(reads, partition(0), (), NOW)
