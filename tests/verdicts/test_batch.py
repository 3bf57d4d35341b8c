"""A batch as it was read, whose messages are made when one is asked for, is the batch of its
messages.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka import TopicPartition
from reactive_kafka.testing import record
from reactive_kafka.verdicts.batch import Batch, Piece, batch_of, settle_all, undecoded
from reactive_kafka.verdicts.message import Message, new_message
from tests.tracking.values import tracker_of


class Read(NamedTuple):
    """What was read of some partitions: the batch, and the messages that it should have."""

    trackers: list[Any]
    batch: Batch[Any]
    wanted: list[Message[Any]]


@st.composite
def read(draw: st.DrawFn) -> Read:
    """Of each partition pieces with holes between them, where records could not be decoded; some
    messages are made.
    """
    trackers, pieces, wanted = [], list[Piece](), list[Message[Any]]()
    for number in range(draw(st.integers(1, 3))):
        partition, count = TopicPartition("t", number), draw(st.integers(1, 20))
        tracker = tracker_of(partition)
        tracker.deliver(range(count), count)
        trackers.append(tracker)
        records = [record(b"%d" % at, offset=at) for at in range(count)]
        for first, end in pairwise(
            sorted({0, count, *draw(st.lists(st.integers(0, count), max_size=4))})
        ):
            # The last one is refused.
            end -= draw(st.booleans())
            payloads = [f"{number}-{at}" for at in range(first, end)]
            messages = [
                new_message(f"{number}-{at}", records[at], tracker, at) for at in range(first, end)
            ]
            made = messages if draw(st.booleans()) else []
            pieces.append(Piece(tracker, first, records[first:end], payloads, made))
            wanted += messages
    return Read(trackers, batch_of(pieces), wanted)


def seen(messages: Any) -> list[tuple[Any, ...]]:
    return [(one.payload, one.tracker, one.index, one.record) for one in messages]


@given(read(), st.booleans())
def test_it_has_the_messages_that_it_would_be_made_of(read: Read, looks_first: bool) -> None:
    batch, whole = read.batch, Batch(read.wanted)
    messages = list(batch) if looks_first else None
    assert (len(batch), bool(batch), repr(batch)) == (len(whole), bool(whole), repr(whole))
    assert batch.payloads == whole.payloads
    assert seen(batch) == seen(whole)
    assert messages is None or all(one is two for one, two in zip(messages, batch, strict=True))
    assert all(one is two for one, two in zip(batch, batch, strict=True))
    assert seen(batch[1:]) == seen(whole[1:])


@given(read(), st.booleans(), st.randoms())
def test_what_has_a_verdict_keeps_it_and_all_else_that_is_in_it_is_settled(
    read: Read, looks_first: bool, chance: Any
) -> None:
    verdicts = {
        (one.tracker, one.index): chance.choice(("none", "acked", "nacked")) for one in read.wanted
    }
    for (tracker, index), verdict in verdicts.items():
        assert verdict == "none" or (
            tracker.settle(index) if verdict == "acked" else tracker.nack(index)
        )
    if looks_first:
        assert len(list(read.batch)) == len(read.wanted)
    settle_all(read.batch)
    for tracker in read.trackers:
        flags = [verdicts.get((tracker, index), "refused") for index in range(len(tracker.flags))]
        assert [tracker.is_open(index) for index in range(len(flags))] == [
            flag == "refused" for flag in flags
        ]
        assert tracker.settled == sum(flag in ("none", "acked") for flag in flags)


@given(read())
def test_a_payload_that_a_handler_has_changed_is_that_of_the_batch(read: Read) -> None:
    for message in read.batch:
        message.payload = "changed"
    assert read.batch.payloads == ["changed"] * len(read.wanted)


def test_values_alone_make_no_message() -> None:
    tracker = tracker_of(TopicPartition("t", 0))
    tracker.deliver(range(3), 3)
    piece = undecoded(tracker, 0, [record(b"%d" % at, offset=at) for at in range(3)])
    batch = batch_of([piece])
    assert batch.payloads == [b"0", b"1", b"2"]
    batch.payloads.clear()
    # A list of the caller's own.
    assert batch.payloads == [b"0", b"1", b"2"]
    settle_all(batch)
    assert tracker.settled == 3
    assert piece.messages == []
    assert batch._made is None
    assert [message.offset for message in batch] == [0, 1, 2]
