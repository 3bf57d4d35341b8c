"""What the answers to fetches mean for the partitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from reactive_kafka.broker.consumer.fetching.fetch_answers import RETRY_S, FetchAnswers
from reactive_kafka.broker.consumer.fetching.fetch_settings import FetchSettings
from reactive_kafka.broker.consumer.fetching.fetch_size import SMALL
from reactive_kafka.broker.consumer.fetching.next_fetches import NextFetches
from reactive_kafka.broker.consumer.fetching.node_fetch import NodeFetch
from reactive_kafka.errors import CorruptRecordError, FatalBrokerError, OffsetOutOfRangeError
from tests.broker.consumer.fetching.parts import (
    CUT,
    GARBAGE,
    ONE,
    OTHER,
    SETTINGS,
    Reads,
    TextFormat,
    answer,
    partition,
    says,
)

NOW = 100.0
WITH_RACK = replace(SETTINGS, client_rack="a")


class Answered:
    """Partitions of one node, and what its answers to fetches of all of them mean."""

    def __init__(self, count: int, settings: FetchSettings = SETTINGS) -> None:
        self.reads = Reads(count)
        self.format = TextFormat()
        self.answers = FetchAnswers(self.reads, settings, self.format, lambda node: node == OTHER)
        self._next = NextFetches(settings)

    def fetch(self, node: int = ONE, most_bytes: int = 9) -> NodeFetch:
        return self._next.fetch(
            node,
            [*self.reads.states.values()],
            most_bytes,
            newest_held_at=None,
            is_hurried=False,
            restarts=self.reads.restarts,
            now=NOW,
        )

    def errors(self) -> dict[int, Exception]:
        return {one.partition: state.error for one, state in self.reads.failed.items()}  # type: ignore[misc]


def test_records_and_ends_are_kept_and_a_partition_without_records_is_fetched_again() -> None:
    ground = Answered(2)
    news = ground.answers.take(ground.fetch(), answer(says(0, b"abc", end=20), says(1, end=9)), NOW)
    assert news == (True, False)
    assert list(ground.reads.held) == [partition(0)]
    piece = ground.reads.state(0).piece
    assert piece is not None
    assert (piece.size, piece.came_at, piece.reader.next_offset) == (3, NOW, 7)
    assert [ground.reads.state(number).high_watermark for number in (0, 1)] == [20, 9]


def test_an_answer_with_nothing_to_take_wakes_nobody() -> None:
    ground = Answered(1)
    assert ground.answers.take(ground.fetch(), answer(says(0)), NOW) == (False, False)


@pytest.mark.parametrize("change", ["sought", "released", "released and owned again"])
def test_what_was_fetched_is_dropped_if_the_partition_has_moved_on(change: str) -> None:
    ground = Answered(2)
    fetch = ground.fetch()
    if change == "sought":
        ground.reads.start_at({partition(0): 9})
    else:
        ground.reads.release([partition(0)])
    if change == "released and owned again":
        ground.reads.start([0])
    news = ground.answers.take(fetch, answer(says(0, b"abc", error=0), says(1)), NOW)
    assert not news.is_to_be_taken
    assert not ground.reads.held
    ground.answers.take(fetch, answer(says(0, error=1)), NOW)
    assert not ground.reads.failed


def test_records_that_both_the_old_and_the_new_leader_send_are_held_once() -> None:
    ground = Answered(1)
    of_old_leader = ground.fetch(ONE)
    of_new_leader = ground.fetch(OTHER)
    ground.answers.take(of_new_leader, answer(says(0, b"abc")), NOW)
    news = ground.answers.take(of_old_leader, answer(says(0, b"abc")), NOW)
    assert news == (False, False)
    assert ground.reads.left_bytes == 3
    ground.reads.drop(ground.reads.state(0))
    assert ground.reads.left_bytes == 0


def test_an_error_of_the_old_leader_leaves_what_the_new_one_has_sent() -> None:
    ground = Answered(1)
    of_old_leader = ground.fetch(ONE)
    ground.answers.take(ground.fetch(OTHER), answer(says(0, b"abc")), NOW)
    ground.answers.take(of_old_leader, answer(says(0, error=1)), NOW)
    assert not ground.errors()
    assert list(ground.reads.held) == [partition(0)]


def test_an_error_of_a_partition_that_was_sought_is_not_told() -> None:
    ground = Answered(1)
    fetch = ground.fetch()
    ground.answers.take(fetch, answer(says(0, error=1)), NOW)
    ground.reads.start_at({partition(0): 9})
    assert not ground.reads.failed


@pytest.mark.parametrize(
    ("code", "kind", "text"),
    [
        (1, OffsetOutOfRangeError, "offset 7 of orders-0 is outside"),
        (2, CorruptRecordError, "the broker finds it corrupt"),
        (29, FatalBrokerError, "29: orders"),
        (76, FatalBrokerError, "76: orders"),
    ],
)
def test_an_error_that_does_not_pass_is_kept_for_a_poll(
    code: int, kind: type[Exception], text: str
) -> None:
    """Row F8 of the faults: a broker answers CORRUPT_MESSAGE."""
    ground = Answered(2)
    news = ground.answers.take(ground.fetch(), answer(says(0, error=code), says(1, b"x")), NOW)
    assert news == (True, False)
    [error] = ground.errors().values()
    assert isinstance(error, kind)
    assert text in str(error)
    assert list(ground.reads.held) == [partition(1)], "another partition has paid for it"


@pytest.mark.parametrize("code", [3, 5, 6, 9, 56, 74, 78])
def test_an_error_that_passes_asks_for_metadata_and_the_partition_pauses(code: int) -> None:
    ground = Answered(2)
    news = ground.answers.take(ground.fetch(), answer(says(0, error=code)), NOW)
    assert news == (False, True)
    assert ground.reads.state(0).retry_at == NOW + RETRY_S
    assert ground.reads.state(1).retry_at == 0


def test_content_that_begins_with_no_batch_is_an_error_at_its_offset() -> None:
    """Row F7 of the faults."""
    ground = Answered(3)
    told = answer(says(0, GARBAGE), says(1, b"abc"), says(2, GARBAGE))
    ground.answers.take(ground.fetch(), told, NOW)
    errors = ground.errors()
    assert errors.keys() == {0, 2}
    error = errors[0]
    assert isinstance(error, CorruptRecordError)
    assert (error.offset, error.until, error.reason) == (7, 8, "no batch begins so")
    assert list(ground.reads.held) == [partition(1)]


def test_a_batch_that_is_cut_short_is_fetched_in_larger_portions_until_none_is_larger() -> None:
    whole = 4 * SMALL
    ground = Answered(9, replace(SETTINGS, max_partition_fetch_bytes=whole, fetch_max_bytes=1))
    for number in range(1, 6):
        ground.reads.keep_some(number, content=b"much")
    size = ground.answers.fetch_size
    sizes = []
    while not ground.errors():
        asked = size.bytes_per_partition(ground.reads.held.values())
        sizes.append(asked)
        ground.answers.take(ground.fetch(most_bytes=asked), answer(says(0, CUT)), NOW)
    assert sizes == [SMALL, 2 * SMALL, 4 * SMALL]
    assert "larger than max_partition_fetch_bytes" in str(ground.errors()[0])


def test_portions_have_room_for_the_largest_first_batch() -> None:
    ground = Answered(9, replace(SETTINGS, max_partition_fetch_bytes=10 * SMALL, fetch_max_bytes=1))
    ground.answers.take(ground.fetch(), answer(says(7, bytes(10)), says(8, bytes(SMALL + 9))), NOW)
    for number in range(5):
        ground.reads.keep_some(number)
    size = ground.answers.fetch_size
    assert size.bytes_per_partition(ground.reads.held.values()) == SMALL + 9


@pytest.mark.parametrize(("size", "has_more"), [(74, False), (75, True)])
def test_an_answer_that_is_almost_full_says_that_there_is_more(size: int, has_more: bool) -> None:
    ground = Answered(1, replace(SETTINGS, fetch_max_bytes=100))
    ground.answers.take(ground.fetch(), answer(says(0, bytes(size))), NOW)
    assert ground.answers.has_more is has_more


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_aborted_transactions_are_passed_over_only_if_committed_records_are_read(
    isolation: str,
) -> None:
    ground = Answered(1, replace(SETTINGS, isolation_level=isolation))
    aborted: Sequence[tuple[int, int]] = ((5, 7),)
    ground.answers.take(ground.fetch(), answer(says(0, b"abc", aborted=aborted)), NOW)
    assert ground.format.aborted == (aborted if isolation == "read_committed" else None)


# -- followers


def test_a_follower_that_is_named_is_read_until_its_time_is_over() -> None:
    ground = Answered(1, WITH_RACK)
    ground.answers.take(ground.fetch(), answer(says(0, replica=OTHER)), NOW)
    state = ground.reads.state(0)
    ends_at = NOW + WITH_RACK.metadata_max_age_ms / 1000
    assert state.node(ends_at - 1) == OTHER
    assert state.node(ends_at) == ONE
    assert state.replica is None


@pytest.mark.parametrize(("settings", "replica"), [(SETTINGS, OTHER), (WITH_RACK, 9)])
def test_no_follower_is_read_without_a_rack_and_none_that_the_cluster_does_not_have(
    settings: FetchSettings, replica: int
) -> None:
    ground = Answered(1, settings)
    ground.answers.take(ground.fetch(), answer(says(0, replica=replica)), NOW)
    assert ground.reads.state(0).node(NOW) == ONE


def follower_is_read() -> Answered:
    ground = Answered(1, WITH_RACK)
    ground.answers.take(ground.fetch(), answer(says(0, replica=OTHER)), NOW)
    return ground


@pytest.mark.parametrize("code", [1, 6, 78])
def test_after_an_error_of_a_follower_the_leader_is_asked(code: int) -> None:
    ground = follower_is_read()
    ground.answers.take(ground.fetch(OTHER), answer(says(0, error=code)), NOW)
    assert ground.reads.state(0).node(NOW) == ONE
    # A follower may be behind.
    assert not ground.reads.failed


def test_after_a_follower_that_does_not_answer_the_leader_is_asked() -> None:
    ground = follower_is_read()
    # Of the leader, sent before.
    ground.answers.fail(ground.fetch(ONE))
    assert ground.reads.state(0).node(NOW) == OTHER
    ground.answers.fail(ground.fetch(OTHER))
    assert ground.reads.state(0).node(NOW) == ONE
