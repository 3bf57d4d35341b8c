"""The file of ``offsets export``: read as it was written, and refused by name where it makes no
sense.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka import TopicPartition
from reactive_kafka.cli.offsets.export_file import Saved, read, written

AT = datetime(2026, 11, 21, 8, tzinfo=UTC)
SAVED = st.builds(
    Saved,
    st.builds(TopicPartition, st.sampled_from(["orders", "clicks"]), st.integers(0, 99)),
    st.integers(0, 2**63 - 1),
    st.text(max_size=20),
    st.none() | st.text(max_size=20),
)


@given(st.lists(SAVED, unique_by=lambda saved: saved.partition))
def test_a_file_is_read_as_it_was_written(saved: list[Saved]) -> None:
    assert read(written("billing", AT, saved)) == sorted(saved, key=lambda one: one.partition)


def test_a_file_says_what_it_is_and_of_when() -> None:
    document = json.loads(written("billing", AT, []))
    assert document == {
        "format": "reactive-kafka offsets",
        "version": 1,
        "group": "billing",
        "exported_at": "2026-11-21T08:00:00+00:00",
        "positions": [],
    }


def changed(**fields: Any) -> str:
    entry = {"topic": "orders", "partition": 0, "position": 5, "metadata": "", **fields}
    return json.dumps({"format": "reactive-kafka offsets", "version": 1, "positions": [entry]})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it is not JSON"),
        ("[" * 100_000, "it is not JSON"),
        ("[]", 'has no "format"'),
        (
            '{"format": "reactive-kafka offsets", "version": 2}',
            "its version is 2, and this command knows 1",
        ),
        ('{"format": "reactive-kafka offsets", "version": 1}', "its positions are not a list"),
        (
            '{"format": "reactive-kafka offsets", "version": 1, "positions": [5]}',
            "positions\\[0\\] is not an object",
        ),
        (changed(topic=""), "positions\\[0\\]: topic = ''"),
        (changed(partition=-1), "positions\\[0\\]: partition = -1"),
        (changed(position=True), "positions\\[0\\]: position = True"),
        (changed(position="5"), "positions\\[0\\]: position = '5'"),
        (changed(position=2**63), "positions\\[0\\]: position"),
        (changed(metadata="x" * 4097), "metadata is not a string of at most 4096"),
        (changed(metadata=None), "metadata is not a string"),
        (changed(state={}), "state is not a string"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_place(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read(text)


def test_a_partition_that_stands_there_twice_is_refused() -> None:
    once = Saved(TopicPartition("orders", 3), 5)
    with pytest.raises(ValueError, match="orders-3 is in it twice"):
        read(written("billing", AT, [once, once._replace(state="1")]))
