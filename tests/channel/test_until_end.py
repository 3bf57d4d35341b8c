"""When a member without partitions may end a run with ``--until-end``: the rule."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka import Committed, TopicPartition
from reactive_kafka.channel.until_end import is_done_by_group
from tests.app.helpers import tp

Positions = dict[TopicPartition, int]
MARKS = st.dictionaries(st.builds(tp, st.integers(0, 3)), st.integers(0, 5))


@given(ends=MARKS, beginnings=MARKS, stored=MARKS, reset=st.sampled_from(["earliest", "latest"]))
def test_the_group_is_done_when_no_record_before_an_end_is_left(
    ends: Positions, beginnings: Positions, stored: Positions, reset: str
) -> None:
    committed = {one: Committed(stored[one]) if one in stored else None for one in ends}
    left = 0
    for one, end in ends.items():
        begins = stored.get(one, beginnings.get(one, 0) if reset == "earliest" else end)
        left += max(0, end - begins)
    assert is_done_by_group(ends, beginnings, committed, reset) is (left == 0)
