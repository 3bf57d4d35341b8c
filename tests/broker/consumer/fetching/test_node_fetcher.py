"""The fetches of a consumer, with nodes that answer when a test says so."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator
from math import inf

import pytest

from reactive_kafka.broker.client_metrics import Latencies
from reactive_kafka.broker.consumer.fetching.node_fetcher import NodeFetcher
from reactive_kafka.errors import TransientBrokerError
from tests.broker.consumer.fetching.parts import (
    ONE,
    OTHER,
    SETTINGS,
    Reads,
    ScriptedNodes,
    TextFormat,
    answer,
    partition,
    says,
    turns,
)

AWAY = TransientBrokerError("the node is away")
PATIENCE_S = 5.0


class Ground:
    """Partitions 0 to 3, of which node 2 leads the last one, and a fetcher of them."""

    def __init__(self) -> None:
        self.reads = Reads(0, {3: OTHER})
        self.nodes = ScriptedNodes(self.reads)
        self.came = 0
        self.latencies = Latencies()
        self.fetcher = NodeFetcher(
            self.reads, self.nodes, TextFormat(), SETTINGS, self._note, self.latencies
        )
        self.reads._changed = self.fetcher.changed

    def _note(self) -> None:
        self.came += 1

    def take_all(self, number: int) -> None:
        """Take what was fetched of a partition, as a poll does."""
        state = self.reads.state(number)
        assert state.piece is not None
        state.piece.reader.take(1_000)
        state.position = state.piece.reader.next_offset
        self.reads.drop(state)
        self.fetcher.taken(state.partition)

    async def until_asked(self, number: int, node: int = ONE) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while number not in self.nodes.asked(node):  # noqa: ASYNC110
                await asyncio.sleep(0.01)


@pytest.fixture
async def ground() -> AsyncIterator[Ground]:
    ground = Ground()
    await turns()
    yield ground
    await ground.fetcher.close()


async def started(ground: Ground) -> None:
    ground.reads.start(range(4))
    await turns()


async def test_each_node_is_asked_for_the_partitions_that_it_leads(ground: Ground) -> None:
    ground.reads.hold([partition(number) for number in range(4)])
    await turns()
    assert ground.nodes.sent == [], "nobody has said where to begin"
    await started(ground)
    assert ground.nodes.asked(ONE) == {0: 7, 1: 7, 2: 7}
    assert ground.nodes.asked(OTHER) == {3: 7}


async def test_a_node_that_answers_nothing_is_asked_for_the_same_with_the_same_request(
    ground: Ground,
) -> None:
    await started(ground)
    for _ in range(3):
        await ground.nodes.answers(answer(says(0), says(1), says(2)))
    first, *again = [fetch for fetch in ground.nodes.sent if fetch.node == ONE]
    assert len(again) == 3
    assert all(fetch is first for fetch in again)
    assert not first.is_full
    assert ground.came == 0


@pytest.mark.parametrize("turn", range(8))
async def test_a_change_while_a_fetch_ends_leaves_no_node_unasked(
    ground: Ground, turn: int
) -> None:
    await started(ground)
    answering = asyncio.ensure_future(ground.nodes.answers(answer(says(0), says(1), says(2))))
    await turns(turn)
    # As when partitions are given up.
    ground.reads.release([partition(2)])
    await answering
    await turns()
    assert ground.nodes.asked(ONE).items() >= {0: 7, 1: 7}.items()
    assert ground.nodes.asked(OTHER) == {3: 7}


async def test_records_hold_the_node_back_until_they_are_taken(ground: Ground) -> None:
    await started(ground)
    await ground.nodes.answers(answer(says(0, b"ab"), says(1, b"c")))
    assert ground.came == 1
    assert ground.nodes.asked() == {}
    ground.take_all(0)
    await turns()
    assert ground.nodes.asked() == {}, "those of the other one are new"
    ground.take_all(1)
    await turns()
    assert ground.nodes.asked() == {0: 9, 1: 8, 2: 7}


async def test_if_they_are_not_taken_the_others_are_fetched_with_a_short_wait(
    ground: Ground,
) -> None:
    await started(ground)
    await ground.nodes.answers(answer(says(0, b"ab")))
    await ground.until_asked(1)
    assert ground.nodes.asked() == {1: 7, 2: 7}
    assert 0 < ground.nodes.sent[-1].limits.max_wait_ms < SETTINGS.fetch_max_wait_ms / 4


async def test_a_hurried_node_is_asked_at_once_and_waits_for_nothing(ground: Ground) -> None:
    await started(ground)
    await ground.nodes.answers(answer(says(0, b"ab")))
    ground.fetcher.hurry()
    await turns()
    assert ground.nodes.asked() == {1: 7, 2: 7}
    hurried = ground.nodes.sent[-1]
    assert hurried.limits[:2] == (0, 0)
    # Only once: what is held counts again.
    await ground.nodes.answers(answer())
    assert ground.nodes.asked() == {}
    assert hurried.repeat_wait_ms is None


async def test_the_time_of_each_answered_fetch_is_counted_also_of_repeated_ones(
    ground: Ground,
) -> None:
    await started(ground)
    await ground.nodes.answers(AWAY, OTHER)
    assert ground.latencies.take() is None, "it was not answered"
    await ground.nodes.answers(answer(says(0), says(1), says(2)))
    assert ground.latencies.take() is not None
    assert repeated(ground) is not None
    assert ground.latencies.take() is not None


async def test_pauses_seeks_and_releases_are_in_the_next_fetch(ground: Ground) -> None:
    await started(ground)
    ground.reads.pause([partition(0)])
    ground.reads.start_at({partition(1): 20})
    ground.reads.release([partition(2)])
    await ground.nodes.answers(answer(says(0, b"a"), says(1, b"b"), says(2, b"c")))
    assert list(ground.reads.held) == [partition(0)]
    ground.fetcher.hurry()
    await turns()
    assert ground.nodes.asked() == {1: 20}
    assert ground.nodes.sent[-1].is_full, "a session leaves out what has not changed"


async def test_a_node_that_is_away_is_asked_again_after_a_pause_and_others_go_on(
    ground: Ground,
) -> None:
    await started(ground)
    await ground.nodes.answers(AWAY, ONE)
    assert ground.nodes.asked(ONE) == {}
    await ground.nodes.answers(answer(says(3, b"x")), OTHER)
    assert list(ground.reads.held) == [partition(3)]
    await ground.until_asked(0)
    assert not ground.fetcher.was_answered(ONE)
    assert ground.fetcher.was_answered(OTHER)


async def test_a_session_that_is_over_is_followed_at_once_and_other_errors_after_a_pause(
    ground: Ground,
) -> None:
    await started(ground)
    await ground.nodes.answers(answer(error=70))
    assert ground.nodes.asked() == {0: 7, 1: 7, 2: 7}
    await ground.nodes.answers(answer(error=-1))
    assert ground.nodes.asked() == {}
    await ground.until_asked(0)


async def test_metadata_is_asked_for_with_pauses_while_a_leader_is_missing(ground: Ground) -> None:
    ground.reads.leaders[partition(0)] = None
    await started(ground)
    assert ground.nodes.metadata_requests == 1
    for _ in range(20):
        ground.fetcher.metadata_came()
        await turns()
    assert ground.nodes.metadata_requests == 1
    async with asyncio.timeout(PATIENCE_S):
        while ground.nodes.metadata_requests < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    ground.reads.leaders[partition(0)] = OTHER
    ground.fetcher.metadata_came()
    await ground.nodes.answers(answer(says(3)), OTHER)
    assert ground.nodes.asked(OTHER) == {0: 7, 3: 7}


async def test_a_leader_that_has_moved_is_looked_up_at_once_and_its_partition_waits(
    ground: Ground,
) -> None:
    await started(ground)
    await ground.nodes.answers(answer(says(0, error=6), says(1), says(2)))
    assert ground.nodes.metadata_requests == 1
    assert ground.nodes.asked() == {1: 7, 2: 7}
    ground.reads.leaders[partition(0)] = OTHER
    ground.fetcher.metadata_came()
    await ground.nodes.answers(answer(says(3)), OTHER)
    await asyncio.sleep(0.15)
    await ground.nodes.answers(answer(says(3)), OTHER)
    await ground.until_asked(0, OTHER)


async def test_what_a_fetch_must_not_raise_ends_the_fetcher_and_polls_are_told(
    ground: Ground,
) -> None:
    await started(ground)
    ground.fetcher.raise_errors()
    broken = says(0)._replace(error_code=None)  # type: ignore[arg-type]
    await ground.nodes.answers(answer(broken._replace(content=3)))  # type: ignore[arg-type]
    with pytest.raises(TransientBrokerError, match="stopped working: TypeError"):
        ground.fetcher.raise_errors()
    assert ground.nodes.asked(OTHER) == {}, "its fetches go on"
    assert ground.came == 1


async def test_a_closed_fetcher_leaves_no_task(ground: Ground) -> None:
    await started(ground)
    before = asyncio.all_tasks()
    await ground.fetcher.close()
    await turns()
    left = [task for task in before if not task.done()]
    assert left == [asyncio.current_task()]


# -- idle fetches


async def idle(ground: Ground, *nodes: int) -> None:
    """Nodes are asked for the second time, and answer nothing again."""
    for node in nodes:
        numbers = ground.nodes.asked(node)
        await ground.nodes.answers(answer(*map(says, numbers)), node)
        wait_ms = repeated(ground, node)
        assert wait_ms is not None


def repeated(ground: Ground, node: int = ONE) -> int | None:
    """How long the node may wait if the connection repeats its last fetch now."""
    last = next(fetch for fetch in reversed(ground.nodes.sent) if fetch.node == node)
    return None if last.repeat_wait_ms is None else last.repeat_wait_ms()


async def test_all_are_idle_if_fetches_that_bring_nothing_name_them_all(ground: Ground) -> None:
    await started(ground)
    assert ground.fetcher.all_idle_since() == inf
    await idle(ground, ONE)
    # One of them may have anything.
    assert ground.fetcher.all_idle_since() == inf
    await idle(ground, OTHER)
    assert ground.fetcher.all_idle_since() < inf
    assert ground.fetcher.has_fresh_metadata()


@pytest.mark.parametrize("change", ["pause", "seek", "release", "own", "metadata", "records"])
async def test_any_change_ends_what_is_repeated(ground: Ground, change: str) -> None:
    await started(ground)
    await idle(ground, ONE, OTHER)
    match change:
        case "pause":
            ground.reads.pause([partition(0)])
        case "seek":
            ground.reads.start_at({partition(0): 9})
        case "release":
            ground.reads.release([partition(0)])
        case "own":
            ground.reads.hold([partition(9)])
        case "metadata":
            ground.fetcher.metadata_came()
        case "records":
            await ground.nodes.answers(answer(says(0, b"x")), ONE)
    assert ground.fetcher.all_idle_since() == inf
    if change != "records":
        assert repeated(ground) is None


async def test_a_partition_that_was_left_out_is_asked_for_next(ground: Ground) -> None:
    await started(ground)
    await ground.nodes.answers(answer(says(0, b"x")))
    await ground.until_asked(1)
    for _ in range(3):
        await ground.nodes.answers(answer())
        await ground.until_asked(1)
        assert repeated(ground) is None, "nobody would fetch partition 0"


async def test_fetches_that_bring_records_leave_nothing_to_the_garbage_collector(
    ground: Ground,
) -> None:
    """At 10,000 records/s such cycles made the collector stop the loop for 30 ms each second."""
    await started(ground)
    await ground.nodes.answers(answer(says(3)), OTHER)
    gc.disable()
    try:
        for _ in range(50):
            await ground.nodes.answers(answer(says(0, b"x")))
            ground.take_all(0)
            await turns()
        made = [weakref.ref(fetch) for fetch in ground.nodes.sent]
        ground.nodes.sent.clear()
        # The last one of each node is on its way.
        assert len({fetch() for fetch in made} - {None}) == 2
    finally:
        gc.enable()
