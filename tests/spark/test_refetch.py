"""Records read again by their offsets: all that are still there, in order, in small pieces, through
faults.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import aclosing
from dataclasses import replace
from itertools import chain, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka import IncomingSettings, TopicPartition
from reactive_kafka.errors import CorruptRecordError, FatalBrokerError, TransientBrokerError
from reactive_kafka.spark.channel.refetch import PIECE_RECORDS, SKIP_OFFSETS, records_of, stretches
from reactive_kafka.subscription import Partitions
from reactive_kafka.testing import MemoryBroker
from tests.app.helpers import Recorder, in_virtual_time, make_broker

P = TopicPartition("topic", 0)
SETTINGS = IncomingSettings(
    name="clicks",
    topics=("topic",),
    group_id="group",
    client={"group_instance_id": "one", "enable_auto_commit": True},
)


class Spy:
    """Makes the broker's own consumers and notes how."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._inner = broker.connector()
        self.made: list[dict[str, Any]] = []
        self.begun: list[int] = []
        self.open = 0

    def consumer(self, **arguments: Any) -> Any:
        self.made.append(arguments)
        consumer: Any = self._inner.consumer(**arguments)
        stop, start_at = consumer.stop, consumer.start_at
        self.open += 1

        async def stops() -> None:
            self.open -= 1
            await stop()

        def starts(positions: dict[TopicPartition, int]) -> None:
            self.begun.append(positions[P])
            start_at(positions)

        consumer.stop, consumer.start_at = stops, starts
        return consumer


def broker_with(records: int) -> MemoryBroker:
    broker = make_broker()
    for number in range(records):
        broker.produce("topic", str(number).encode(), partition=0)
    return broker


async def read(
    connector: Any, offsets: Collection[int], settings: IncomingSettings = SETTINGS, **more: Any
) -> list[list[int]]:
    """The offsets of each piece; what was read must be the record of its offset."""
    pieces = []
    async with aclosing(records_of(connector, settings, P, offsets, **more)) as found:
        async for records in found:
            assert [record.value for record in records] == [
                str(record.offset).encode() for record in records
            ]
            pieces.append([record.offset for record in records])
    return pieces


@in_virtual_time
async def test_the_wanted_ones_come_in_order_and_no_others() -> None:
    broker = broker_with(50)
    assert await read(broker.connector(), {41, 7, 9}) == [[7, 9, 41]]
    assert await read(broker.connector(), range(10, 13)) == [[10, 11, 12]]
    assert await read(broker.connector(), range(10, 17, 3)) == [[10, 13, 16]]
    assert await read(broker.connector(), ()) == []
    await broker.close()


@in_virtual_time
async def test_no_piece_is_larger_than_the_limit() -> None:
    broker = broker_with(1_300)
    pieces = await read(broker.connector(), range(1_300))
    assert [len(piece) for piece in pieces] == [PIECE_RECORDS, PIECE_RECORDS, 300]
    assert list(chain(*pieces)) == list(range(1_300))
    await broker.close()


@in_virtual_time
async def test_what_lies_far_between_is_jumped_over_and_what_lies_near_is_read_past() -> None:
    broker = broker_with(1_000)
    spy = Spy(broker)
    assert list(chain(*await read(spy, {0, SKIP_OFFSETS, 900}))) == [0, SKIP_OFFSETS, 900]
    assert spy.begun == [0, 900]
    assert len(spy.made) == 1
    await broker.close()


@in_virtual_time
async def test_the_client_belongs_to_no_group_and_is_closed() -> None:
    broker = broker_with(5)
    spy = Spy(broker)
    await read(spy, {1, 2})
    [made] = spy.made
    assert (made["group_id"], made["subscription"], made["properties"]) == (
        None,
        Partitions((P,)),
        {},
    )
    assert broker.members("group") == {}
    assert spy.open == 0
    await broker.close()


@in_virtual_time
async def test_leaving_it_early_closes_the_client() -> None:
    broker = broker_with(1_000)
    spy = Spy(broker)
    async with aclosing(records_of(spy, SETTINGS, P, range(1_000))) as found:
        assert len(await anext(found)) == PIECE_RECORDS
        assert spy.open == 1
    assert spy.open == 0
    await broker.close()


@in_virtual_time
async def test_what_is_not_in_the_log_is_not_among_them_and_nothing_hangs() -> None:
    broker = broker_with(20)
    broker.delete_records(P, 5)
    broker.compact(P, [8, 9])
    # 20 and 21: the end of the log.
    broker.append_markers(P, 2)
    began = asyncio.get_running_loop().time()
    assert await read(broker.connector(), range(40)) == [[5, 6, 7, *range(10, 20)]]
    assert await read(broker.connector(), {1, 2, 3}) == []
    assert await read(broker.connector(), {8, 9, 20, 21}) == []
    assert await read(broker.connector(), {30, 31}) == []
    assert asyncio.get_running_loop().time() == began
    await broker.close()


@in_virtual_time
async def test_it_goes_on_where_it_was_after_faults() -> None:
    broker = broker_with(1_200)
    spy = Spy(broker)
    broker.fail_next("start", TransientBrokerError("not yet"), times=2)
    broker.fail_next("end_offsets", TransientBrokerError("not yet"))
    found: list[int] = []
    async with aclosing(records_of(spy, SETTINGS, P, range(1_200))) as pieces:
        async for records in pieces:
            if not found:
                broker.fail_next("poll", TransientBrokerError("broken"), times=2)
            found += [record.offset for record in records]
    assert found == list(range(1_200))
    # Three that did not begin, one that broke, one more, and the last.
    assert len(spy.made) == 6
    assert spy.open == 0
    await broker.close()


@in_virtual_time
async def test_records_deleted_while_they_are_read_are_left_out() -> None:
    broker = broker_with(1_200)
    found: list[int] = []
    async with aclosing(records_of(broker.connector(), SETTINGS, P, range(1_200))) as pieces:
        async for records in pieces:
            found += [record.offset for record in records]
            broker.delete_records(P, 1_000)
    assert found == [*range(500), *range(1_000, 1_200)]
    await broker.close()


@in_virtual_time
async def test_it_gives_up_when_there_was_no_progress_for_too_long_and_says_what_was_wrong() -> (
    None
):
    broker = broker_with(10)
    spy = Spy(broker)
    broker.down = True
    began = asyncio.get_running_loop().time()
    with pytest.raises(
        TransientBrokerError, match=r"topic-0 could not be read from offset 3 within 20 s: .*down"
    ):
        await read(spy, {3}, patience_s=20.0)
    assert asyncio.get_running_loop().time() == began + 20.0
    # The waits between grow.
    assert 5 <= len(spy.made) <= 10
    assert spy.open == 0
    await broker.close()


@in_virtual_time
async def test_a_broker_that_comes_back_in_time_loses_nothing() -> None:
    broker = broker_with(10)
    broker.down = True
    asyncio.get_running_loop().call_later(15.0, lambda: setattr(broker, "down", False))
    assert await read(broker.connector(), {3, 4}) == [[3, 4]]
    await broker.close()


@in_virtual_time
async def test_missing_rights_are_told_at_once() -> None:
    broker = broker_with(10)
    spy = Spy(broker)
    broker.fail_next("end_offsets", FatalBrokerError("no right"))
    with pytest.raises(FatalBrokerError, match="no right"):
        await read(spy, {3})
    assert asyncio.get_running_loop().time() == 0.0
    assert spy.open == 0
    await broker.close()


@given(st.sets(st.integers(0, 2_000)))
def test_stretches_hold_every_wanted_offset_and_no_long_gap(offsets: set[int]) -> None:
    found = stretches(offsets)
    assert {offset for stretch in found for offset in stretch} >= offsets
    for stretch in found:
        inside = sorted(offsets.intersection(stretch))
        assert (inside[0], inside[-1]) == (stretch.start, stretch.stop - 1)
        assert all(later - earlier - 1 <= SKIP_OFFSETS for earlier, later in pairwise(inside))
    for earlier, later in pairwise(found):
        assert later.start - earlier.stop > SKIP_OFFSETS


@pytest.mark.parametrize("tells_end", [True, False])
@in_virtual_time
async def test_what_cannot_be_read_is_passed_over_and_told_or_waited_for_or_raised(
    tells_end: bool,
) -> None:
    """Row F7 of the faults: executors have failed at it, and its bytes are wanted for dead
    letters.
    """
    broker, recorder = broker_with(20), Recorder()
    broker.spoil(P, 5, 7, tells_end=tells_end)
    skipping = replace(SETTINGS, on_unreadable="skip")
    pieces = await read(broker.connector(), range(20), skipping, observer=recorder)
    assert list(chain(*pieces)) == [*range(5), *range(8, 20)]
    assert {offset for one in recorder.events for offset in range(one.offset, one.until)} == {
        5,
        6,
        7,
    }
    with pytest.raises(TransientBrokerError, match="cannot be read at offset 5"):
        await read(broker.connector(), range(20), patience_s=5.0)
    with pytest.raises(CorruptRecordError):
        await read(broker.connector(), range(20), replace(SETTINGS, on_unreadable="fail"))
    await broker.close()
