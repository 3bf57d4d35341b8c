"""Which incarnation of its topic a position belongs to."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.commit.incarnations import Incarnations
from reactive_kafka.records import TopicPartition

ORDERS = TopicPartition("orders", 0)


def test_a_position_is_void_once_another_id_was_told() -> None:
    known = Incarnations()
    known.told({"orders": "a"})
    assert known.reads(ORDERS) == "a"
    assert known.why_void("orders", "a") is None
    known.told({"orders": "b"})
    why = known.why_void("orders", "a")
    assert why == "topic 'orders' was deleted and made anew: its id was a, and is b"
    assert known.last_read(ORDERS) == "a"
    assert known.reads(ORDERS) == known.last_read(ORDERS) == "b"


def test_where_no_id_is_told_nothing_is_void() -> None:
    known = Incarnations()
    assert known.reads(ORDERS) is None
    known.told({})
    assert known.why_void("orders", "a") is None
    known.told({"orders": "a"})
    assert known.why_void("orders", None) is None


@given(
    st.lists(st.integers(1, 4), min_size=1),  # how many answers tell of each incarnation
    st.data(),
)
def test_brokers_that_lag_behind_void_nothing(runs: list[int], data: st.DataObject) -> None:
    """Each incarnation is told once or more, with answers in between of brokers that know only earlier ones."""
    known, voided = Incarnations(), 0
    belongs_to = None
    for newest, answers in enumerate(runs):
        for at in range(answers):
            told = newest if at == 0 else data.draw(st.integers(0, newest), label="told")
            known.told({"orders": str(told)})
            voided += known.why_void("orders", belongs_to) is not None
            belongs_to = known.reads(ORDERS)
            assert belongs_to == str(newest)
    assert voided == len(runs) - 1
