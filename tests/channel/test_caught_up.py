"""When everything that was there at the beginning of an assignment is handled: the rule."""

from __future__ import annotations

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka import TopicPartition
from reactive_kafka.channel.caught_up import AssignmentEnds
from tests.app.helpers import tp

PARTITIONS = frozenset({tp(0), tp(1), tp(2)})


@given(
    st.dictionaries(st.sampled_from(sorted(PARTITIONS)), st.integers(0, 5)),
    st.lists(st.dictionaries(st.sampled_from(sorted(PARTITIONS)), st.integers(0, 9)), max_size=6),
)
def test_all_is_handled_when_each_partition_has_reached_its_end_once(
    first: dict[TopicPartition, int], looks: list[dict[TopicPartition, int]]
) -> None:
    ends, reached = AssignmentEnds(PARTITIONS), set[TopicPartition]()
    ends.found(first)
    for positions in looks:
        reached |= {
            one for one, position in positions.items() if one in first and position >= first[one]
        }
        assert ends.handled(positions) == (reached == PARTITIONS)
        assert ends.left == PARTITIONS - reached


def test_a_log_that_ends_sooner_by_now_has_less_to_handle_and_one_that_grows_no_more() -> None:
    ends = AssignmentEnds(frozenset({tp()}))
    assert not ends.handled({tp(): 10})
    ends.found({tp(): 8})
    ends.found({tp(): 20})
    assert not ends.handled({tp(): 7})
    ends.found({tp(): 5})
    assert ends.handled({tp(): 5})


def test_how_many_records_are_left_is_known_when_every_end_and_position_is() -> None:
    ends = AssignmentEnds(frozenset({tp(0), tp(1)}))
    assert ends.records_left({tp(0): 0, tp(1): 0}) == inf
    ends.found({tp(0): 5, tp(1): 3})
    assert ends.records_left({tp(0): 1}) == inf
    assert ends.records_left({tp(0): 1, tp(1): 1}) == 6
    ends.handled({tp(0): 1, tp(1): 7})
    assert ends.records_left({tp(0): 1}) == 4
