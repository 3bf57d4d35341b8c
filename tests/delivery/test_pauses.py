"""Who has paused what: reasons come and go in any order, for the whole channel and for partitions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.delivery.pauses import Pauses
from reactive_kafka.records import TopicPartition

PARTITIONS = [TopicPartition("orders", number) for number in range(3)]
STEPS = st.tuples(
    st.booleans(), st.sampled_from(["a", "b", "c"]), st.none() | st.lists(st.sampled_from(PARTITIONS), max_size=3)
)


@given(st.lists(STEPS, max_size=30))
def test_a_partition_is_paused_while_a_reason_is_left_for_it_or_for_the_channel(
    steps: list[tuple[bool, str, list[TopicPartition] | None]],
) -> None:
    pauses, model = Pauses(), set[tuple[TopicPartition | None, str]]()
    for pausing, reason, partitions in steps:
        places = {(place, reason) for place in ([None] if partitions is None else partitions)}
        if pausing:
            pauses.pause(reason, partitions)
            model |= places
        else:
            pauses.resume(reason, partitions)
            model -= {place for place in model if place[1] == reason} if partitions is None else places
        paused = {place for place, _ in model}
        assert set(pauses.reasons) == {reason for place, reason in model if place is None}
        assert [pauses.has(partition) for partition in PARTITIONS] == [
            None in paused or partition in paused for partition in PARTITIONS
        ]
        assert bool(pauses) == bool(model)


def test_reasons_are_told_in_the_order_in_which_they_came() -> None:
    pauses = Pauses()
    for reason in ("b", "a", "b"):
        pauses.pause(reason)
    assert pauses.reasons == ("b", "a")


def test_a_reason_that_is_taken_away_without_partitions_is_gone_everywhere() -> None:
    pauses = Pauses()
    pauses.pause("a")
    pauses.pause("a", PARTITIONS)
    pauses.pause("b", PARTITIONS[:1])
    pauses.resume("a")
    assert (pauses.reasons, pauses.partitions) == ((), frozenset(PARTITIONS[:1]))


def test_partitions_keep_the_channels_reasons_when_theirs_is_taken_away() -> None:
    pauses = Pauses()
    pauses.pause("a")
    pauses.pause("a", PARTITIONS)
    pauses.resume("a", PARTITIONS)
    assert (pauses.reasons, pauses.has(PARTITIONS[0])) == (("a",), True)
