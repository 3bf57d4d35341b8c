"""When a member without partitions may end a run with ``--until-end``, and when it gives up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka import Committed, TopicPartition
from reactive_kafka.channel.until_end import SHARED_S, UntilEnd, is_done_by_group
from reactive_kafka.errors import BrokerError
from reactive_kafka.testing import FakeClock
from tests.app.helpers import tp
from tests.broker.members import refusal_for_members

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


def test_commits_that_fail_for_another_reason_begin_the_wait_for_members_again() -> None:
    clock = FakeClock()
    services = SimpleNamespace(clock=clock, observer=None)
    channel: Any = SimpleNamespace(name="orders", services=services)
    waiting = UntilEnd(channel)

    def is_over(cause: BaseException) -> bool:
        error = BrokerError("the commit failed")
        error.__cause__ = cause
        return waiting._is_refused_for_members(error)

    members = refusal_for_members()
    assert not is_over(members)
    clock.advance(SHARED_S - 1)
    assert not is_over(TimeoutError())
    assert not is_over(members)
    clock.advance(SHARED_S - 1)
    assert not is_over(members)
    clock.advance(1)
    assert is_over(members)
