"""What the client is to fetch next, said quickly: as its own look says it."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import MethodType, SimpleNamespace
from typing import Any

import pytest
from aiokafka.consumer.fetcher import Fetcher
from aiokafka.consumer.subscription_state import Assignment
from aiokafka.structs import TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.broker.aiokafka.fetched.fetch_planning import (
    fetch_actions,
    plan_fetches_quickly,
)
from reactive_kafka.broker.aiokafka.fetched.fetch_size import SMALL

NODES = (None, -1, 1, 2, 3)


class Piece:
    """What was fetched of a partition, and holds back its node so long."""

    def __init__(self, backoff_s: float) -> None:
        self._backoff_s = backoff_s

    def calculate_backoff(self) -> float:
        return self._backoff_s


@st.composite
def looks(draw: st.DrawFn) -> tuple[Any, Any]:
    """A client's fetcher and its assignment, where mostly all is well."""
    partitions = [
        TopicPartition(topic, number) for topic in "ab" for number in range(draw(st.integers(0, 6)))
    ]
    good = draw(st.booleans())
    nodes = st.sampled_from(NODES[2:] if good else NODES)
    leaders = {one: draw(nodes) for one in partitions}
    assignment = Assignment(partitions)
    for one in partitions:
        state = assignment.state_value(one)
        if good or draw(st.booleans()):
            state.reset_to(draw(st.integers(0, 9)))
        if draw(st.booleans()):
            state._paused, state._resume_fut = True, object()
    held = draw(st.sets(st.sampled_from([*partitions, TopicPartition("gone", 0)])))
    fetcher = SimpleNamespace(
        _records={one: Piece(draw(st.sampled_from([0, 0.05, 0.1]))) for one in held},
        _in_flight=set(draw(st.lists(st.sampled_from([1, 2, 3])))),
        _client=SimpleNamespace(
            cluster=SimpleNamespace(leader_for_partition=lambda one: leaders.get(one, 1))
        ),
        _preferred_read_replica={},
        _max_partition_fetch_bytes=7,
        _fetch_max_wait_ms=500,
        _fetch_min_bytes=1,
        _fetch_max_bytes=99,
        _isolation_level=1,
        _client_rack=draw(st.sampled_from([None, "r"])),
        _fetcher_timeout=60.0,
    )
    fetcher._select_read_replica = MethodType(Fetcher._select_read_replica, fetcher)
    return fetcher, assignment


def told(request: Any) -> tuple[Any, ...]:
    """All that a fetch says, whatever the order of its partitions."""
    rest = {name: value for name, value in vars(request).items() if name != "_topics"}
    return rest, {topic: sorted(those) for topic, those in request.topics}


@given(data=st.data())
def test_it_says_what_the_client_says_or_leaves_it_to_the_client(data: st.DataObject) -> None:
    async def compare() -> None:
        fetcher, assignment = data.draw(looks())
        ours, theirs = (
            fetch_actions(fetcher, assignment),
            Fetcher._get_actions_per_node(fetcher, assignment),
        )
        if ours is None:
            # Positions or leaders to find.
            assert theirs[1] or theirs[3]
            return
        assert {node: told(request) for node, request in ours[0]} == {
            node: told(request) for node, request in theirs[0]
        }
        assert len(ours[0]) == len(theirs[0])
        assert ours[1:4] == (dict(theirs[1]), theirs[2], theirs[3])
        assert Counter(map(id, ours[4])) == Counter(map(id, theirs[4]))

    asyncio.run(compare())


async def test_reading_from_a_follower_is_left_to_the_client() -> None:
    one = TopicPartition("a", 0)
    assignment = Assignment([one])
    assignment.state_value(one).reset_to(0)
    fetcher = SimpleNamespace(_preferred_read_replica={one: (2, 10.0**9)})
    assert fetch_actions(fetcher, assignment) is None


def fetcher_of_one_node() -> SimpleNamespace:
    return SimpleNamespace(
        _records={},
        _in_flight=set(),
        _preferred_read_replica={},
        _max_partition_fetch_bytes=7,
        _fetch_max_wait_ms=500,
        _fetch_min_bytes=1,
        _fetch_max_bytes=99,
        _isolation_level=0,
        _client_rack=None,
        _fetcher_timeout=60.0,
        _client=SimpleNamespace(cluster=SimpleNamespace(leader_for_partition=lambda one: 1)),
        _get_actions_per_node=lambda assignment: pytest.fail("it was left to the client"),
    )


async def test_no_partition_is_always_the_last_one_of_a_fetch() -> None:
    partitions = [TopicPartition("a", number) for number in range(3)]
    assignment = Assignment(partitions)
    for one in partitions:
        assignment.state_value(one).reset_to(0)
    fetcher = fetcher_of_one_node()
    plan_fetches_quickly(fetcher)
    last = {
        fetcher._get_actions_per_node(assignment)[0][0][1].topics[0][1][-1][0] for _ in range(200)
    }
    assert last == {0, 1, 2}


@pytest.mark.parametrize("missing", ["_records", "_client_rack", "_isolation_level"])
async def test_a_client_whose_internals_differ_looks_in_its_own_way(missing: str) -> None:
    fetcher = fetcher_of_one_node()
    delattr(fetcher, missing)
    own = fetcher._get_actions_per_node
    plan_fetches_quickly(fetcher)
    assert fetcher._get_actions_per_node is own


async def test_where_much_is_held_the_client_asks_for_little_in_both_ways() -> None:
    partitions = [TopicPartition("a", number) for number in range(9)]
    assignment, fetcher = Assignment(partitions), fetcher_of_one_node()
    fetcher._get_actions_per_node = MethodType(Fetcher._get_actions_per_node, fetcher)
    fetcher._select_read_replica = MethodType(Fetcher._select_read_replica, fetcher)
    fetcher._max_partition_fetch_bytes = whole = 4 * SMALL
    fetch_size = plan_fetches_quickly(fetcher)
    for one in partitions:
        assignment.state_value(one).reset_to(0)

    def asked() -> set[int]:
        [(_, request)] = fetcher._get_actions_per_node(assignment)[0]
        return {size for _, those in request.topics for *_, size in those}

    assert asked() == {whole}
    for one in partitions[:5]:
        fetcher._records[one] = Piece(0)
        fetcher._records[one]._partition_records = SimpleNamespace(
            _records=SimpleNamespace(size_in_bytes=lambda: whole)
        )
    assert asked() == {SMALL}
    fetch_size.note_first_batch(SMALL + 1)
    assert asked() == {SMALL + 1}
    fetcher._client.cluster.leader_for_partition = lambda one: None if one == partitions[8] else 1
    # By the client's own look: one has no leader.
    assert asked() == {SMALL + 1}
