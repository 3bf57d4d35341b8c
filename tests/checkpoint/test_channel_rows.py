"""The rows of a channel, in a store where requests of earlier writes keep arriving late."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka import Committed, IncomingSettings, TopicPartition
from reactive_kafka.checkpoint.channel_rows import ATTEMPTS, LOOK_S, CheckpointRows, StoreOutage
from reactive_kafka.checkpoint.owned_row import ClientPartition, OwnedRow
from reactive_kafka.checkpoint.store import Checkpoint, Write
from reactive_kafka.checkpoint.stores.memory_store import MemoryStore, Rows
from reactive_kafka.clock import SYSTEM_CLOCK, Clock
from reactive_kafka.errors import CheckpointRefusedError, StoreAwayError, TransientBrokerError
from reactive_kafka.events import StoreAvailable, StoreUnavailable
from reactive_kafka.testing import VirtualTimeLoop
from tests.app.helpers import Recorder, in_virtual_time, run_in_virtual_time
from tests.nacks.acknowledgers import make_acknowledger
from tests.tracking.values import tracker_of

PARTITION = TopicPartition("orders", 0)
WANTED = Committed(100)
ARRIVAL = st.sampled_from(["ours", "wanted", "another owner's"])


class LateArrivals(MemoryStore):
    """A store that lets something else happen to the row before each of our writes."""

    def __init__(self, arrivals: list[str]) -> None:
        super().__init__(Rows())
        self._arrivals = arrivals

    async def write(
        self, group: str, writes: Mapping[TopicPartition, Write]
    ) -> frozenset[TopicPartition]:
        row = self.rows.row(group, PARTITION)
        assert row is not None
        arrival = self._arrivals.pop(0) if self._arrivals else None
        if arrival == "ours":
            row = row._replace(position=(row.position or 0) + 1)
        elif arrival == "wanted":
            row = row._replace(position=WANTED.offset)
        elif arrival == "another owner's":
            row = row._replace(token=row.token + 1)
        self.rows.put(group, PARTITION, row)
        return await super().write(group, writes)


def make_rows(store: MemoryStore, clock: Clock = SYSTEM_CLOCK) -> CheckpointRows:
    settings = IncomingSettings(name="orders", topics=("orders",), group_id="billing")
    return CheckpointRows(settings, store, lambda: (), clock, Recorder(), StoreOutage())


def claimed_row(store: MemoryStore, clock: Clock = SYSTEM_CLOCK) -> tuple[CheckpointRows, OwnedRow]:
    rows = make_rows(store, clock)
    row = Checkpoint(3, 0, None)
    store.rows.put("billing", PARTITION, row)
    owner = ClientPartition("orders")
    rows.claimed(PARTITION, owner, row)
    assert owner.row is not None
    return rows, owner.row


def row_after_write(arrivals: list[str]) -> Checkpoint | None:
    """Write the position, while these arrive."""
    store = LateArrivals(arrivals)
    rows, owned = claimed_row(store)
    run_in_virtual_time(lambda clock: rows.write({owned: WANTED}))
    return store.rows.row("billing", PARTITION)


@given(late=st.integers(0, ATTEMPTS - 1), last=ARRIVAL)
def test_whose_a_row_is_counts_after_the_last_attempt_too(late: int, last: str) -> None:
    arrivals = ["ours"] * late + [last]
    if last == "another owner's":
        with pytest.raises(CheckpointRefusedError, match="another owner has orders-0"):
            row_after_write(arrivals)
    elif last == "ours" and late == ATTEMPTS - 1:
        with pytest.raises(TransientBrokerError, match="the rows of orders-0 keep changing"):
            row_after_write(arrivals)
    else:
        row = row_after_write(arrivals)
        assert row is not None
        assert row[:2] == (3, WANTED.offset)


def test_writes_that_a_full_store_refuses_for_hours_are_not_all_kept() -> None:
    store = MemoryStore(Rows())
    rows, owned = claimed_row(store)
    # As of plans or kept acks. Each row that is kept refers to this one text.
    wanted = Committed(WANTED.offset, "".join(["kept", "acks"]))
    attempts = 500
    # Such a store still answers reads.
    store.faults.script("write", *["away"] * attempts)

    async def write_again_and_again(_: object) -> None:
        for _ in range(attempts):
            with pytest.raises(StoreAwayError):
                await rows.write({owned: wanted})
        assert sys.getrefcount(wanted.metadata) < 20
        await rows.write({owned: wanted})

    run_in_virtual_time(write_again_and_again)
    assert store.rows.row("billing", PARTITION) == Checkpoint(3, 100, None, "keptacks")


def test_a_failed_write_that_a_later_one_has_made_up_for_prolongs_no_outage() -> None:
    store = MemoryStore(Rows())
    rows, owned = claimed_row(store)

    async def fail_twice(_: object) -> None:
        store.faults.script("write", "away")
        with pytest.raises(StoreAwayError):
            await rows.write({owned: WANTED})
        # After a failed write a read says nothing about writes.
        await rows.read([PARTITION])
        assert rows.away is not None
        await rows.write({owned: WANTED})
        assert rows.away is None
        store.faults.script("read", "away")
        with pytest.raises(StoreAwayError):
            await rows.read([PARTITION])
        assert rows.away is not None
        await rows.read([PARTITION])
        assert rows.away is None

    run_in_virtual_time(fail_twice)
    assert isinstance(rows.observer, Recorder)
    assert len(rows.observer.of(StoreUnavailable)) == 2
    assert len(rows.observer.of(StoreAvailable)) == 2


async def test_a_stored_position_ends_the_wait_of_a_client_that_was_fenced() -> None:
    rows, owned = claimed_row(MemoryStore(Rows()))
    owned.owner.fence(rows.clock.monotonic())
    assert owned.owner.fenced_for(rows.clock.monotonic()) is not None
    await rows.write({owned: WANTED})
    assert owned.owner.fenced_for(rows.clock.monotonic()) is None


@in_virtual_time
async def test_the_last_commit_of_an_assignment_does_not_wait_for_a_transaction() -> None:
    store = MemoryStore(Rows())
    rows, owned = claimed_row(store)
    tracker = tracker_of(PARTITION)
    owned.begin(tracker)
    owned.transaction = tracker
    async with owned.lock, asyncio.timeout(60):
        await rows.write({owned: WANTED})
    row = store.rows.row("billing", PARTITION)
    assert row is not None
    assert row.position == WANTED.offset


@in_virtual_time
async def test_a_store_is_looked_for_only_if_it_has_answered_nothing_for_a_while() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    store = MemoryStore(Rows())
    rows, owned = claimed_row(store, loop.clock)
    owned.begin(tracker_of(PARTITION))
    await rows.read([PARTITION])
    store.faults.script("read", "away")
    await rows.look()
    assert rows.away is None
    await asyncio.sleep(LOOK_S)
    await rows.look()
    assert rows.away is not None


class Compared(TopicPartition):
    """Counts how often partitions are compared."""

    times = 0

    __hash__ = TopicPartition.__hash__

    def __eq__(self, other: object) -> bool:
        Compared.times += 1
        return super().__eq__(other)


async def test_each_of_many_partitions_is_claimed_and_begun_without_a_look_at_the_others() -> None:
    rows = make_rows(MemoryStore(Rows()))
    acknowledger, _ = make_acknowledger()
    trackers = [tracker_of(Compared("orders", number), 5) for number in range(500)]
    Compared.times = 0
    for tracker in trackers:
        rows.claimed(tracker.partition, ClientPartition("orders"), Checkpoint(1, 5))
    for tracker in trackers:
        acknowledger.begins(tracker, "orders")
        rows.begin(tracker, "orders")
    assert [rows.of(tracker) for tracker in trackers] == list(rows.owned.values())
    assert Compared.times < 5 * len(trackers)
