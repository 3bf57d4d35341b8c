"""The newest letters of a topic, in however many partitions they are."""

from __future__ import annotations

import pytest

from reactive_kafka import TopicPartition
from reactive_kafka.dead_letters.last_letters import KEPT_TIMES, ends_of, last_letters
from reactive_kafka.records import LogRange
from tests.cli.inside import make_broker
from tests.dead_letters.letters_topic import cluster_of

PARTITIONS = 2 * KEPT_TIMES


def test_the_last_offsets_of_a_log_are_no_more_than_it_has() -> None:
    places = [TopicPartition("letters", number) for number in range(4)]
    logs = dict(
        zip(
            places,
            (LogRange(0, 0), LogRange(0, 3), LogRange(7, 9), LogRange(7, 900)),
            strict=True,
        )
    )
    assert list(ends_of(logs, 5).values()) == [
        LogRange(0, 0),
        LogRange(0, 3),
        LogRange(7, 9),
        LogRange(895, 900),
    ]


@pytest.mark.parametrize("newest", range(PARTITIONS))
async def test_the_newest_letter_is_found_in_whichever_partition_it_is(newest: int) -> None:
    broker = make_broker(PARTITIONS, "letters")
    for number in range(PARTITIONS):
        made_ms = 2_000_000 if number == newest else 1_000_000 + number
        for _ in range(2):
            broker.produce("letters", b"x", partition=number, timestamp_ms=made_ms)
    found = await last_letters(cluster_of(broker), "letters", 1)
    assert [letter["partition"] for letter in found.letters] == [newest]
    assert [letter["offset"] for letter in found.letters] == [1]
    assert found.offsets == 2 * PARTITIONS
