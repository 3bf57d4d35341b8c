"""``keep_out_of_order_acks``: what was acked above the position is not delivered again, whoever has
the partition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from reactive_kafka import App, Batch, Committed, Message, TopicPartition
from reactive_kafka.events import KeptAcksDropped, OffsetReset
from reactive_kafka.testing import MemoryBroker
from tests.app.checkpoints import MemoryStore, Rows
from tests.app.handlers import broker_with
from tests.app.helpers import (
    Recorder,
    committed,
    facts,
    in_virtual_time,
    make_app,
    make_broker,
    now,
    rebalanced,
    running,
    send,
    settle_down,
    tp,
    until,
)
from tests.tracking.stored import KeptAcks, acks_in, text_with, text_with_acks, user_string_in

FIRST = tp(0)


class Handling:
    """An application that acks all but the offsets in ``held``; what it was called with, in
    order.
    """

    def __init__(
        self,
        held: Iterable[int] = (),
        recorder: Recorder | None = None,
        *,
        keeps: bool = True,
        **orders: Any,
    ) -> None:
        self.held = set(held)
        # Partition, offset.
        self.seen: list[tuple[int, int]] = []
        self.messages: list[Message[bytes]] = []
        self.recorder = recorder or Recorder()
        given = {
            "ordering": "unordered",
            "concurrency": 4,
            "commit_interval": "100ms",
            "revoke_grace": "100ms",
        }
        settings = {**given, "drain_timeout": "100ms", "keep_out_of_order_acks": keeps, **orders}
        self.app = make_app(self.recorder, **settings)

        @self.app.incoming("orders", ack="manual")
        async def handler(message: Message[bytes]) -> None:
            self.took(message)

    def took(self, message: Message[bytes]) -> None:
        self.seen.append((message.partition, message.offset))
        self.messages.append(message)
        if message.offset not in self.held:
            message.ack()

    def offsets(self, partition: int = 0) -> list[int]:
        return sorted(offset for its, offset in self.seen if its == partition)

    @property
    def dropped(self) -> list[KeptAcksDropped]:
        return self.recorder.of(KeptAcksDropped)


def user_string(broker: MemoryBroker) -> str:
    """The user's string beside the group's position."""
    found = broker.committed("billing")[FIRST]
    return user_string_in(found.metadata, found.offset)


def kept(
    broker: MemoryBroker, partition: TopicPartition = FIRST, group: str = "billing"
) -> KeptAcks | None:
    """The map that stands beside the group's position."""
    found = broker.committed(group).get(partition)
    return None if found is None else acks_in(found.metadata, found.offset)


def write(broker: MemoryBroker, position: int, metadata: str) -> None:
    broker._state.group("billing").commits[tp()] = Committed(position, metadata)


def written(position: int, until_: int, *still_open: int, user: str = "") -> str:
    """Metadata as another process would have written it."""
    return text_with_acks(position, still_open, until_, user=user)


async def told(
    broker: MemoryBroker, until_: int, partition: TopicPartition = FIRST, group: str = "billing"
) -> None:
    """Wait until the group knows what is done up to there."""
    await until(
        lambda: (acks := kept(broker, partition, group)) is not None and acks.until == until_, 30
    )


async def read_all(handling: Handling, broker: MemoryBroker, delivered: int) -> int:
    """Run until so many records were delivered and nothing else comes; the number of replays that
    were avoided.
    """
    async with running(handling.app, broker=broker) as test:
        await until(lambda: len(handling.seen) == delivered, 30)
        await asyncio.sleep(5)
        assert len(handling.seen) == delivered
        assert test.app.health().status == "UP"
        return facts(test).replays_avoided


# -- from one run to the next


@in_virtual_time
async def test_what_was_acked_above_the_position_is_not_delivered_again_after_a_restart() -> None:
    broker = broker_with(10)
    first = Handling(held={2, 5})
    async with running(first.app, broker=broker) as test:
        await told(broker, 10)
        assert committed(test) == 2
        assert kept(broker).still_open == [2, 5]  # type: ignore[union-attr]
    second = Handling()
    async with running(second.app, broker=broker) as test:
        await until(lambda: committed(test) == 10)
        assert second.offsets() == [2, 5]
        assert facts(test).replays_avoided == 6
    assert kept(broker) is None
    assert second.dropped == []


@in_virtual_time
async def test_the_tick_has_stored_it_so_that_no_stop_is_needed() -> None:
    broker, first, at_the_tick = broker_with(6), Handling(held={0}), ""
    async with running(first.app, broker=broker):
        await told(broker, 6)
        at_the_tick = broker.committed("billing")[tp()].metadata
    # As it was, had the process been killed.
    write(broker, 0, at_the_tick)
    second = Handling()
    await read_all(second, broker, 1)
    assert second.offsets() == [0]


@in_virtual_time
async def test_without_the_setting_everything_above_the_position_comes_again() -> None:
    broker = broker_with(4)
    write(broker, 1, written(1, 4, 1))
    handling = Handling(keeps=False)
    async with running(handling.app, broker=broker) as test:
        await until(lambda: committed(test) == 4)
        assert handling.offsets() == [1, 2, 3]
        assert facts(test).replays_avoided == 0


@in_virtual_time
async def test_what_is_still_open_after_a_second_run_is_all_that_a_third_one_gets() -> None:
    broker = broker_with(10)
    write(broker, 1, written(1, 8, 1, 4))
    second = Handling(held={1, 9})
    await read_all(second, broker, 4)
    assert second.offsets() == [1, 4, 8, 9]
    third = Handling()
    await read_all(third, broker, 2)
    assert third.offsets() == [1, 9]


@in_virtual_time
async def test_a_run_that_settles_nothing_forgets_nothing() -> None:
    broker = broker_with(10)
    write(broker, 0, written(0, 10, 0))
    for _ in range(3):
        handling = Handling(held={0})
        await read_all(handling, broker, 1)
        assert handling.offsets() == [0]


@in_virtual_time
async def test_a_run_that_ends_before_it_has_read_all_that_is_known_forgets_nothing() -> None:
    broker = broker_with(600)
    still_open = range(0, 600, 2)
    write(broker, 0, written(0, 600, *still_open))
    # Back-pressure: it reads no further than its first records.
    second = Handling(held=range(600), max_in_flight=10)
    async with running(second.app, broker=broker):
        await until(lambda: len(second.seen) == 10)
    second.seen.clear()
    third = Handling()
    await read_all(third, broker, 300)
    assert third.offsets() == list(still_open)


@in_virtual_time
async def test_what_was_known_goes_on_with_a_position_that_moves_below_it() -> None:
    broker = broker_with(10)
    write(broker, 0, written(0, 10, 0, 1))
    second = Handling(held={1})
    async with running(second.app, broker=broker) as test:
        await until(lambda: committed(test) == 1)
        assert kept(broker) == KeptAcks(1, 10, [1])
    third = Handling()
    assert await read_all(third, broker, 1) == 8
    assert third.offsets() == [1]


@in_virtual_time
async def test_new_records_behind_what_is_known_are_delivered() -> None:
    broker = broker_with(3)
    write(broker, 0, written(0, 3, 0))
    handling = Handling()
    async with running(handling.app, broker=broker) as test:
        await send(test, b"", b"")
        await until(lambda: committed(test) == 5)
    assert handling.offsets() == [0, 3, 4]


@in_virtual_time
async def test_a_map_of_a_part_of_what_one_poll_brings_leaves_the_rest_alone() -> None:
    broker = broker_with(9)
    write(broker, 2, written(2, 6, 2, 4))
    handling = Handling()
    assert await read_all(handling, broker, 5) == 2
    assert handling.offsets() == [2, 4, 6, 7, 8]


@in_virtual_time
async def test_where_all_that_a_poll_brings_is_done_reading_goes_on_behind_it() -> None:
    broker = broker_with(5)
    write(broker, 1, written(1, 5))
    handling = Handling()
    async with running(handling.app, broker=broker) as test:
        await until(lambda: committed(test) == 5)
        await send(test, b"")
        await until(lambda: committed(test) == 6)
    assert handling.offsets() == [5]


# -- to another member, and back


@in_virtual_time
async def test_the_next_owner_gets_only_what_is_open() -> None:
    broker = broker_with(6, 6)
    first, second = Handling(held={1, 3}), Handling(held={1, 3})
    async with running(first.app, broker=broker):
        for partition in (0, 1):
            await told(broker, 6, tp(partition))
        async with running(second.app, broker=broker) as test:
            await until(lambda: len(second.seen) == 2)
            await asyncio.sleep(5)
            (moved,) = {partition for partition, _ in second.seen}
            assert second.offsets(moved) == [1, 3]
            # 2, 4 and 5.
            assert facts(test).replays_avoided == 3


@in_virtual_time
async def test_what_comes_straight_back_is_told_on_as_before() -> None:
    broker = broker_with(10)
    write(broker, 0, written(0, 8, 0, 4))
    handling = Handling(held={0, 4, 9})
    async with running(handling.app, broker=broker) as test:
        await until(lambda: len(handling.seen) == 4)
        await rebalanced(test)
        await asyncio.sleep(5)
        assert handling.offsets() == [0, 4, 8, 9]
    third = Handling()
    await read_all(third, broker, 3)
    assert third.offsets() == [0, 4, 9]


# -- what does not fit


@in_virtual_time
async def test_what_was_cut_off_is_handled_again_and_nothing_that_is_open_is_left_out() -> None:
    broker = broker_with(601)
    first = Handling(held=range(0, 600, 2), max_in_flight=1000)
    async with running(first.app, broker=broker) as test:
        await until(lambda: len(first.seen) == 601)
        # Leaves a few characters for the map.
        text = "x" * 4000
        assert test.app.channel("orders").store_offset_metadata(tp(), text)
        first.messages[0].ack()
        await until(lambda: committed(test) == 2)
    assert user_string(broker) == text
    acks = kept(broker)
    assert acks is not None
    assert 2 < acks.until < 600
    second = Handling()
    async with running(second.app, broker=broker) as test:
        await until(lambda: committed(test) == 601)
        assert second.offsets() == [one for one in range(2, 601) if not acks.is_done(one)]
        assert facts(test).replays_avoided == acks.until - acks.base - len(acks.still_open)


# -- metadata of others


FOREIGN = {
    "a person's": "import of May, step 3",
    "json": '{"step": 3}',
    "of the parallel consumer": "bgAAAAEAAQ==",
    "of Kafka Streams": "AgAAAYz1fQAA",
    "blanks": "   ",
}
OURS = {
    "cut off": written(1, 5, 1, user="mine")[:-2],
    "changed": written(1, 5, 1, user="mine").replace("1/4", "1/3"),
    "of a later version": "rk2" + written(1, 5, 1, user="mine")[3:],
    "of another position": written(2, 5, 2, user="mine"),
}


@pytest.mark.parametrize("text", FOREIGN.values(), ids=FOREIGN)
@in_virtual_time
async def test_foreign_metadata_is_left_alone_and_reading_begins_at_the_position(text: str) -> None:
    broker = broker_with(5)
    write(broker, 1, text)
    handling = Handling(held={1, 2, 3, 4})
    await read_all(handling, broker, 4)
    assert handling.offsets() == [1, 2, 3, 4]
    assert broker.committed("billing")[tp()] == Committed(1, text)
    assert handling.dropped == []


@pytest.mark.parametrize("text", OURS.values(), ids=OURS)
@in_virtual_time
async def test_what_cannot_be_believed_is_dropped_and_told_and_the_users_string_kept(
    text: str,
) -> None:
    broker = broker_with(5)
    write(broker, 1, text)
    handling = Handling(held={1})
    async with running(handling.app, broker=broker):
        await until(lambda: len(handling.seen) == 4)
        assert handling.offsets() == [1, 2, 3, 4]
        assert len(handling.dropped) == 1
        # What is known anew.
        await told(broker, 5)
        assert user_string(broker) == "mine"


@in_virtual_time
async def test_a_map_that_cannot_be_read_is_dropped_though_its_envelope_is_whole() -> None:
    broker = broker_with(5)
    write(broker, 1, text_with(1, user="mine", acks="z9:1/4:AA"))
    handling = Handling()
    await read_all(handling, broker, 4)
    assert [event.reason for event in handling.dropped] == ["it cannot be read"]


# -- another log


@in_virtual_time
async def test_a_map_that_goes_beyond_the_end_of_the_log_is_of_another_topic() -> None:
    broker = broker_with(5)
    write(broker, 1, written(1, 6, 1))
    handling = Handling()
    await read_all(handling, broker, 4)
    assert handling.offsets() == [1, 2, 3, 4]
    assert [event.reason for event in handling.dropped] == [
        "they go up to 6, and the log ends at 5"
    ]


@in_virtual_time
async def test_where_the_position_is_reset_nothing_is_left_out() -> None:
    broker = broker_with(5)
    write(broker, 7, written(7, 9, 7))
    handling = Handling()
    await read_all(handling, broker, 5)
    assert handling.offsets() == [0, 1, 2, 3, 4]
    assert len(handling.recorder.of(OffsetReset)) == 1
    assert [event.reason for event in handling.dropped] == ["reading begins at 0"]


@in_virtual_time
async def test_where_the_log_loses_its_beginning_what_was_known_is_void() -> None:
    broker = broker_with(50)
    write(broker, 0, written(0, 50, *range(0, 50, 2)))
    handling = Handling(held=range(50), max_in_flight=4)
    async with running(handling.app, broker=broker):
        await until(lambda: len(handling.seen) == 4)
        broker.delete_records(tp(), 45)
        handling.held.clear()
        for message in handling.messages:
            message.ack()
        await until(lambda: len(handling.seen) >= 9)
        await asyncio.sleep(5)
        assert handling.offsets()[-5:] == [45, 46, 47, 48, 49]
        assert [event.reason for event in handling.dropped] == ["the log goes from 45 to 50"]


@in_virtual_time
async def test_where_the_log_loses_its_end_under_its_owner_what_comes_in_its_place_is_handled() -> (
    None
):
    broker = broker_with(50)
    write(broker, 0, written(0, 50, 0, 1, 2, 3))
    handling = Handling(held=range(4), max_in_flight=4)
    async with running(handling.app, broker=broker) as test:
        await until(lambda: len(handling.seen) == 4)
        broker.truncate(tp(), 10)
        for _ in range(3):
            broker.produce("orders", b"another", partition=0)
        for message in handling.messages:
            message.ack()
        await until(lambda: committed(test) == 13)
        assert handling.offsets()[-3:] == [10, 11, 12]
        assert [event.reason for event in handling.dropped] == [
            "they go up to 50, and the log ends at 13"
        ]


# -- seeks


@in_virtual_time
async def test_whoever_seeks_back_gets_everything_again() -> None:
    broker = broker_with(6)
    write(broker, 2, written(2, 6, 2))
    handling = Handling(held={2})
    async with running(handling.app, broker=broker) as test:
        await until(lambda: len(handling.seen) == 1)
        handling.seen.clear()
        await test.app.channel("orders").seek(tp(), 1)
        await until(lambda: len(handling.seen) == 5)
        assert handling.offsets() == [1, 2, 3, 4, 5]


@in_virtual_time
async def test_what_was_known_before_a_seek_is_not_known_after_the_next_restart() -> None:
    broker = broker_with(6)
    write(broker, 2, written(2, 6, 2))
    handling = Handling(held=range(6))
    async with running(handling.app, broker=broker) as test:
        await until(lambda: len(handling.seen) == 1)
        await test.app.channel("orders").seek(tp(), 1)
        await until(lambda: len(handling.seen) == 6)
        handling.held = set()
        # 6 is acked, above what is open from 1 on.
        await send(test, b"")
        await until(lambda: len(handling.seen) == 7)
        await asyncio.sleep(5)
    second = Handling()
    async with running(second.app, broker=broker) as test:
        await until(lambda: committed(test) == 7)
        assert set(second.offsets()) >= {2, 3, 4, 5}


# -- all ways to have records handled


@in_virtual_time
async def test_batches_hold_only_what_is_open() -> None:
    broker, seen = broker_with(8), list[int]()
    write(broker, 0, written(0, 6, 0, 3))
    app = make_app(keep_out_of_order_acks=True, commit_interval="100ms")

    @app.incoming("orders")
    async def handler(batch: Batch[bytes]) -> None:
        seen.extend(message.offset for message in batch)

    async with running(app, broker=broker) as test:
        await until(lambda: committed(test) == 8)
    assert seen == [0, 3, 6, 7]


@in_virtual_time
async def test_an_iteration_gets_only_what_is_open_and_keeps_what_it_acks() -> None:
    broker = broker_with(8)
    write(broker, 0, written(0, 6, 0, 3))
    seen: list[int] = []
    for expected in ([0, 3, 6, 7], [0]):
        count = len(expected)
        app = make_app(
            keep_out_of_order_acks=True,
            commit_interval="100ms",
            drain_timeout="100ms",
            value_deserializer="bytes",
        )
        async with running(app, broker=broker):

            async def iterate(app: App = app) -> None:
                async for message in app.channel("orders"):
                    seen.append(message.offset)
                    if message.offset != 0:
                        message.ack()

            task = asyncio.create_task(iterate())
            await until(lambda count=count: len(seen) == count)  # type: ignore[misc]
            await told(broker, 8)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        assert seen == expected
        seen.clear()


@pytest.mark.parametrize("ordering", ["partition", "key", "unordered"])
@in_virtual_time
async def test_every_order_leaves_out_what_is_done(ordering: str) -> None:
    broker = make_broker()
    for number in range(12):
        broker.produce("orders", b"", key=b"%d" % (number % 3), partition=0)
    first = Handling(held={1, 4, 7}, ordering=ordering)
    async with running(first.app, broker=broker):
        await told(broker, 12)
    second = Handling(ordering=ordering)
    async with running(second.app, broker=broker) as test:
        await until(lambda: committed(test) == 12)
    assert second.offsets() == [1, 4, 7]


@in_virtual_time
async def test_a_hot_key_that_hangs_costs_the_others_no_replay() -> None:
    broker, gate = make_broker(), asyncio.Event()
    for number in range(20):
        broker.produce(
            "orders", b"", key=b"hot" if number % 10 == 0 else b"%d" % number, partition=0
        )
    seen: list[int] = []

    def app() -> App:
        app = make_app(
            keep_out_of_order_acks=True,
            ordering="key",
            concurrency=4,
            commit_interval="100ms",
            drain_timeout="100ms",
        )

        @app.incoming("orders")
        async def handler(message: Message[bytes]) -> None:
            seen.append(message.offset)
            if message.key == b"hot":
                await gate.wait()

        return app

    async with running(app(), broker=broker):
        await told(broker, 20)
    # The second hot one waits behind the first.
    assert len(seen) == 19
    seen.clear()
    gate.set()
    async with running(app(), broker=broker) as test:
        await until(lambda: committed(test) == 20)
    assert seen == [0, 10]


@in_virtual_time
async def test_every_client_of_a_channel_leaves_out_what_is_done_in_its_partitions() -> None:
    broker = broker_with(5, 5)
    first = Handling(held={0, 2}, consumers=2)
    async with running(first.app, broker=broker):
        for partition in (0, 1):
            await told(broker, 5, tp(partition))
    second = Handling(consumers=2)
    async with running(second.app, broker=broker) as test:
        await until(lambda: committed(test, 0) == committed(test, 1) == 5)
        assert (second.offsets(0), second.offsets(1)) == ([0, 2], [0, 2])
        assert facts(test).replays_avoided == 6


@in_virtual_time
async def test_partitions_that_no_group_assigns_leave_out_what_is_done_unless_their_start_is_named() -> (
    None
):
    broker = broker_with(5)
    write(broker, 1, written(1, 5, 1))
    for assigned, expected in (("orders:0:1", [1, 2, 3, 4]), ("orders:0", [1])):
        write(broker, 1, written(1, 5, 1))
        handling = Handling(held={1}, auto_offset_reset="earliest", assign=[assigned])
        await read_all(handling, broker, len(expected))
        assert handling.offsets() == expected


@pytest.mark.parametrize("assign", [[], ["orders:0"]])
@in_virtual_time
async def test_a_channel_that_failed_and_comes_back_leaves_out_what_is_done(
    assign: list[str],
) -> None:
    broker, seen, bad = broker_with(6), [], {1}
    given: dict[str, Any] = {"ordering": "unordered", "concurrency": 6, "commit_interval": "100ms"}
    given |= {"assign": assign} if assign else {}
    app = make_app(
        keep_out_of_order_acks=True, restart={"backoff": "1s", "max_attempts": 1}, **given
    )

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        seen.append(message.offset)
        if message.offset in bad:
            bad.clear()
            await asyncio.sleep(1)
            raise ValueError("no")

    async with running(app, broker=broker) as test:
        await until(lambda: committed(test) == 6)
        assert facts(test).replays_avoided == 4
    assert sorted(seen) == [0, 1, 1, 2, 3, 4, 5]


@in_virtual_time
async def test_delayed_retries_leave_out_what_is_done() -> None:
    topic, group = "orders_retry_1000", "kafka-delayed-retry-topic-billing"
    delayed: dict[str, Any] = {
        "failure_strategy": "delayed-retry-topic",
        "delayed_retry": {"topics": [topic]},
    }
    broker = make_broker()
    seen: list[tuple[str, bytes]] = []

    def app(*held: bytes) -> App:
        given: dict[str, Any] = {
            "keep_out_of_order_acks": True,
            "commit_interval": "100ms",
            "drain_timeout": "100ms",
        }
        app = make_app(**given, **delayed)

        @app.incoming("orders", ack="manual")
        async def handler(message: Message[bytes]) -> None:
            seen.append((message.topic, message.payload))
            if message.topic == "orders":
                message.nack(ValueError("later"))
            elif message.payload not in held:
                message.ack()

        return app

    retried = TopicPartition(topic, 0)
    async with running(app(b"a", b"c"), broker=broker) as test:
        await send(test, b"a", b"b", b"c", b"d")
        await told(broker, 4, retried, group)
    seen.clear()
    async with running(app(), broker=broker):
        await until(lambda: broker.committed(group)[retried].offset == 4, 30)
    assert seen == [(topic, b"a"), (topic, b"c")]


@in_virtual_time
async def test_acks_are_kept_before_the_position_has_ever_moved() -> None:
    broker = broker_with(3)
    first = Handling(held={0})
    async with running(first.app, broker=broker):
        await told(broker, 3)
    assert broker.committed("billing")[tp()].offset == 0
    second = Handling()
    await read_all(second, broker, 1)
    assert second.offsets() == [0]


@in_virtual_time
async def test_nothing_is_committed_while_nothing_changes() -> None:
    broker = broker_with(6)
    first = Handling(held={1})
    async with running(first.app, broker=broker):
        await told(broker, 6)
        before = len(broker.commits("billing"))
        await asyncio.sleep(60)
        assert len(broker.commits("billing")) == before
    await settle_down()
    assert now() > 60


@in_virtual_time
async def test_a_checkpoint_store_keeps_them_beside_its_own_position() -> None:
    broker, rows = broker_with(6), Rows()

    def on_the_store(handling: Handling, who: str) -> Handling:
        store = MemoryStore(rows, who=who)
        handling.app._stores = lambda _: store
        return handling

    settings: dict[str, Any] = {
        "commit_strategy": "checkpoint",
        "checkpoint": {"store": "memory://unused"},
    }
    first = on_the_store(Handling(held={2}, **settings), "a")

    def known() -> KeptAcks | None:
        found = rows.row("billing", tp())
        return (
            None
            if found is None or found.position is None
            else acks_in(found.metadata, found.position)
        )

    async with running(first.app, broker=broker):
        await until(lambda: known() == KeptAcks(2, 6, [2]))
    second = on_the_store(Handling(**settings), "b")
    assert await read_all(second, broker, 1) == 3
    assert second.offsets() == [2]


@in_virtual_time
async def test_after_a_seek_back_kept_acks_beside_the_stores_position_make_no_record_a_duplicate() -> (
    None
):
    rows, broker, blocked, seen = Rows(), make_broker(), asyncio.Event(), list[int]()
    app = make_app(
        ordering="key",
        concurrency=2,
        commit_interval="100ms",
        commit_strategy="checkpoint",
        checkpoint={"store": "memory://unused"},
        keep_out_of_order_acks=True,
    )
    store = MemoryStore(rows, who="a")
    app._stores = lambda _: store

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        seen.append(message.offset)
        if len(seen) > 4 and message.offset == 0:
            await blocked.wait()

    def row() -> tuple[int | None, bool]:
        found = rows.row("billing", FIRST)
        if found is None or found.position is None:
            return None, False
        return found.position, acks_in(found.metadata, found.position) is not None

    async with running(app, broker=broker):
        for _ in range(4):
            broker.produce("orders", b"", key=b"slow", partition=0)
        await until(lambda: row() == (4, False))
        await app.channel("orders").seek(FIRST, 0)
        broker.produce("orders", b"", key=b"quick", partition=0)
        # The ack of offset 4 is kept beside the position of before.
        await until(lambda: row() == (4, True))
        blocked.set()
        await until(lambda: row()[0] == 5)
    await broker.close()
    assert sorted(seen) == [0, 0, 1, 1, 2, 2, 3, 3, 4]
