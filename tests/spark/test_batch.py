from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka import TopicPartition
from reactive_kafka.errors import RejectedByJobError
from reactive_kafka.spark.batches.spark_batch import Rejects, SparkBatch, batch_id, spark_range

CLICKS_3 = TopicPartition("clicks", 3)
IDENTITIES = st.tuples(
    st.text(max_size=5),
    st.text(max_size=5),
    st.integers(0, 20),
    st.integers(0, 2**62),
    st.integers(0, 2**62),
)
CLICKS = TopicPartition("clicks", 0)
RANGES = (
    spark_range("g", CLICKS, 10, 20),
    spark_range("g", TopicPartition("clicks", 1), 0, 5),
    # Of the same partition.
    spark_range("g", CLICKS, 30, 40),
)


def test_the_same_range_has_the_same_id_in_every_process() -> None:
    assert spark_range("billing", CLICKS_3, 10, 20).id == "013c08d1f1eecd8f"


@given(IDENTITIES, IDENTITIES)
def test_two_ranges_share_an_id_only_when_they_are_the_same(one: Any, other: Any) -> None:
    def identity(group: str, topic: str, partition: int, start: int, until: int) -> str:
        return spark_range(group, TopicPartition(topic, partition), start, until).id

    assert (identity(*one) == identity(*other)) == (one == other)


def test_a_batch_id_joins_the_ids_of_its_ranges() -> None:
    ranges = [
        spark_range("billing", CLICKS_3, 0, 5),
        spark_range("billing", TopicPartition("clicks", 4), 0, 5),
    ]
    assert batch_id(ranges) == f"{ranges[0].id}-{ranges[1].id}"


def test_a_range_reads_as_topic_partition_and_offsets() -> None:
    assert str(spark_range("billing", CLICKS_3, 10, 20)) == "clicks-3 [10, 20)"


def rejects() -> Rejects:
    return Rejects(RANGES)


def test_rejected_records_come_with_their_reason_by_partition_and_offset() -> None:
    rejected = rejects()
    error = KeyError("customer")
    rejected.add([("clicks", 1, 4), ("clicks", 0, 39)], error)
    rejected.add(iter([("clicks", 0, 10)]), "no such page")
    (first, second, third) = rejected.close()
    assert first[:2] == (CLICKS, 10)
    assert isinstance(first[2], RejectedByJobError)
    assert str(first[2]) == "no such page"
    # The exception itself: failure routes go by its class.
    assert second == (CLICKS, 39, error)
    assert third == (("clicks", 1), 4, error)


def test_the_first_reason_of_a_record_counts() -> None:
    rejected = rejects()
    rejected.note(CLICKS, 10, ValueError("corrupt"))
    rejected.add([("clicks", 0, 10), ("clicks", 0, 11)], "twice")
    rejected.add([("clicks", 0, 11)], "once more")
    assert [str(reason) for _, _, reason in rejected.close()] == ["corrupt", "twice"]


@given(
    st.lists(
        st.tuples(st.sampled_from(["clicks", "views"]), st.integers(-1, 2), st.integers(-2, 45))
    )
)
def test_what_lies_outside_the_ranges_is_an_error_that_names_it_and_nothing_is_taken(
    rows: Any,
) -> None:
    inside = {("clicks", 0, at) for at in (*range(10, 20), *range(30, 40))} | {
        ("clicks", 1, at) for at in range(5)
    }
    rejected = rejects()
    strange = [row for row in rows if row not in inside]
    if strange:
        with pytest.raises(ValueError, match="not records of this batch") as refused:
            rejected.add(rows, "bad")
        topic, partition, offset = strange[0]
        assert f"{topic}-{partition} offset {offset}" in str(refused.value)
        assert "it covers clicks-0 [10, 20), clicks-0 [30, 40), clicks-1 [0, 5)" in str(
            refused.value
        )
        assert rejected.close() == []
    else:
        rejected.add(rows, "bad")
        assert [(*partition, offset) for partition, offset, _ in rejected.close()] == sorted(
            set(rows)
        )


@pytest.mark.parametrize(
    "row", [("clicks", 0), ("clicks", 0, "10"), ("clicks", None, 10), 10, None, "abc"]
)
def test_a_row_that_is_no_topic_partition_and_offset_is_an_error(row: Any) -> None:
    with pytest.raises(ValueError, match="not records of this batch"):
        rejects().add([row], "bad")


def test_an_error_names_a_few_rows_and_not_all() -> None:
    with pytest.raises(
        ValueError, match=r"clicks-0 offset 0, .*clicks-0 offset 4, \.\.\.; it covers"
    ) as refused:
        rejects().add((("clicks", 0, offset) for offset in range(1_000_000_000)), "bad")
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("reason", [None, 5, ValueError])
def test_a_reason_is_text_or_an_exception(reason: Any) -> None:
    with pytest.raises(ValueError, match="a string or an exception"):
        rejects().add([("clicks", 0, 10)], reason)


def test_what_comes_after_the_function_has_returned_is_an_error() -> None:
    batch = SparkBatch("id", RANGES, None, 1)
    batch.rejects.close()
    with pytest.raises(RuntimeError, match="too late"):
        batch.reject([("clicks", 0, 10)], "bad")
