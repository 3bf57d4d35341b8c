"""What every store keeps to, on each of them: memory, SQLite, files, PostgreSQL by both drivers,
Redis.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from reactive_kafka import TopicPartition
from reactive_kafka.checkpoint.store import Checkpoint, CheckpointStore, Write
from tests.checkpoint.conftest import Clients, every_store

ORDERS = TopicPartition("orders", 0)
PAID = TopicPartition("paid.v1", 11)


async def stored(
    store: CheckpointStore, group: str, partition: TopicPartition = ORDERS
) -> Checkpoint | None:
    return (await store.read(group, [partition])).get(partition)


async def put(store: CheckpointStore, group: str, checkpoint: Checkpoint) -> None:
    """Store the first row of the orders."""
    assert await store.write(group, {ORDERS: Write(0, checkpoint)}) == frozenset()


async def takes(store: CheckpointStore, group: str, write: Write) -> bool:
    """Whether the store lets a write of the orders through."""
    return not await store.write(group, {ORDERS: write})


@every_store
async def test_a_row_comes_back_as_it_was_written_with_another_client_too(
    clients: Clients, group: str
) -> None:
    store = clients.store()
    assert await store.read(group, [ORDERS, PAID]) == {}
    rows = {
        ORDERS: Checkpoint(1, 2**62, '{"seen": "ü\\u0000🙂"}', 'rk1 "quoted" \\ ü🙂\n'),
        PAID: Checkpoint(7, None, None, ""),
    }
    assert (
        await store.write(group, {partition: Write(0, row) for partition, row in rows.items()})
        == frozenset()
    )
    assert await clients.store().read(group, [ORDERS, PAID]) == rows
    assert await store.read(group, [ORDERS]) == {ORDERS: rows[ORDERS]}
    assert await store.read(group, []) == {}


@every_store
async def test_an_empty_state_is_not_the_same_as_none(clients: Clients, group: str) -> None:
    store = clients.store()
    await put(store, group, Checkpoint(1, 5, ""))
    assert await stored(store, group) == Checkpoint(1, 5, "")
    assert await takes(store, group, Write(1, Checkpoint(1, 6, None, "m"), 5))
    assert await stored(store, group) == Checkpoint(1, 6, None, "m")


@every_store
async def test_rows_of_other_groups_topics_and_partitions_are_left_alone(
    clients: Clients, group: str
) -> None:
    store = clients.store()
    await put(store, group, Checkpoint(1, 5))
    others: Mapping[str, TopicPartition] = {
        f"{group}x": ORDERS,
        group.upper(): ORDERS,
        group.replace("/", "_"): ORDERS,
        group: TopicPartition("orders", 10),
    }
    for number, (name, partition) in enumerate(others.items()):
        assert await store.write(name, {partition: Write(0, Checkpoint(3, number))}) == frozenset()
    for number, (name, partition) in enumerate(others.items()):
        assert await stored(store, name, partition) == Checkpoint(3, number)
    assert await stored(store, group) == Checkpoint(1, 5)


@every_store
async def test_a_first_row_is_written_only_where_none_is(clients: Clients, group: str) -> None:
    store = clients.store()
    await put(store, group, Checkpoint(1, 5))
    assert not await takes(store, group, Write(0, Checkpoint(1, 9)))
    assert not await takes(store, group, Write(0, Checkpoint(2, 9), 5))
    assert await stored(store, group) == Checkpoint(1, 5)


@every_store
async def test_a_write_for_a_row_that_is_gone_is_refused(clients: Clients, group: str) -> None:
    store = clients.store()
    assert not await takes(store, group, Write(1, Checkpoint(1, 9)))
    assert not await takes(store, group, Write(1, Checkpoint(2, 9), 5))
    assert await stored(store, group) is None


@every_store
async def test_a_position_of_one_owner_never_goes_back(clients: Clients, group: str) -> None:
    store = clients.store()
    await put(store, group, Checkpoint(1, 9))
    assert not await takes(store, group, Write(1, Checkpoint(1, 8), 9))
    assert not await takes(store, group, Write(1, Checkpoint(1, None), 9))
    assert await takes(store, group, Write(1, Checkpoint(1, 9, "again"), 9))
    # "10" < "9" as text.
    assert await takes(store, group, Write(1, Checkpoint(1, 10), 9))
    assert await stored(store, group) == Checkpoint(1, 10)


@every_store
async def test_a_new_owner_may_go_back_and_what_the_one_before_still_sends_is_refused(
    clients: Clients, group: str
) -> None:
    zombie, owner = clients.store(), clients.store()
    await put(zombie, group, Checkpoint(1, 9))
    assert await takes(owner, group, Write(1, Checkpoint(2, 4), 9))
    for late in (
        Write(1, Checkpoint(1, 9), 9),
        Write(1, Checkpoint(1, 10), 4),
        Write(1, Checkpoint(2, 10), 4),
    ):
        assert not await takes(zombie, group, late)
    assert await stored(zombie, group) == Checkpoint(2, 4)


@every_store
async def test_a_write_that_arrives_late_or_twice_changes_nothing(
    clients: Clients, group: str
) -> None:
    store = clients.store()
    await put(store, group, Checkpoint(1, 5))
    late = Write(1, Checkpoint(1, 7), 5)
    assert await takes(store, group, Write(1, Checkpoint(1, 9), 5))
    assert not await takes(store, group, late)
    claim = Write(1, Checkpoint(2, 9), 9)
    assert await takes(store, group, claim)
    assert not await takes(store, group, claim)
    assert await stored(store, group) == Checkpoint(2, 9)


@every_store
async def test_each_row_of_a_write_is_refused_for_itself(clients: Clients, group: str) -> None:
    store = clients.store()
    await put(store, group, Checkpoint(3, 5))
    writes = {ORDERS: Write(2, Checkpoint(2, 6), 5), PAID: Write(0, Checkpoint(1, 6))}
    assert await store.write(group, writes) == {ORDERS}
    assert await store.read(group, [ORDERS, PAID]) == {
        ORDERS: Checkpoint(3, 5),
        PAID: Checkpoint(1, 6),
    }
    assert await store.write(group, {}) == frozenset()


@every_store
async def test_of_those_who_claim_a_row_at_once_exactly_one_gets_it(
    clients: Clients, group: str
) -> None:
    stores = [clients.store() for _ in range(4)]
    for token in range(3):
        before = await stored(stores[0], group)
        expected = (before.token, before.position) if before else (0, None)
        claims = [Checkpoint(token + 1, 5, str(who)) for who in range(len(stores))]
        won = await asyncio.gather(
            *(
                takes(store, group, Write(expected[0], claim, expected[1]))
                for store, claim in zip(stores, claims, strict=True)
            )
        )
        assert won.count(True) == 1
        assert await stored(stores[1], group) == claims[won.index(True)]


@every_store
async def test_many_writers_at_once_lose_no_step(clients: Clients, group: str) -> None:
    stores = [clients.store() for _ in range(3)]
    await put(stores[0], group, Checkpoint(1, 0))
    steps = [0, 0, 0]

    async def count_up(who: int) -> None:
        while (there := await stored(stores[who], group)) is not None and there.position != 12:
            position = there.position or 0
            steps[who] += await takes(
                stores[who], group, Write(1, Checkpoint(1, position + 1), position)
            )

    await asyncio.gather(*map(count_up, range(3)))
    assert sum(steps) == 12


@every_store
async def test_a_store_can_be_used_again_after_it_was_closed(clients: Clients, group: str) -> None:
    store = clients.store()
    await put(store, group, Checkpoint(1, 5))
    await store.close()
    await store.close()
    assert await takes(store, group, Write(1, Checkpoint(1, 6), 5))


@every_store
async def test_a_call_that_is_cancelled_is_and_leaves_the_store_usable(
    clients: Clients, group: str
) -> None:
    store = clients.store()
    await put(store, group, Checkpoint(1, 0))
    for moment in range(24):
        same = {ORDERS: Write(1, Checkpoint(1, 0), 0)}
        call = asyncio.ensure_future(
            store.write(group, same) if moment % 2 else store.read(group, [ORDERS])
        )
        for _ in range(moment // 2):
            await asyncio.sleep(0)
        if call.cancel():
            await asyncio.wait([call])
            assert call.cancelled(), f"swallowed after {moment // 2} steps"
    assert await takes(store, group, Write(1, Checkpoint(1, 1), 0))
