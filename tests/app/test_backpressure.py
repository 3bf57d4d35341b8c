"""How much is in flight at once: the limit is kept, and neither a stuck nor a busy partition
starves another.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from reactive_kafka import Batch, Message, Progress
from reactive_kafka.errors import TransientBrokerError
from reactive_kafka.testing import MemoryBroker, TestApp
from tests.app.checkpoints import Rows, app_on
from tests.app.handlers import keep_messages, take_all
from tests.app.helpers import (
    committed,
    facts,
    in_virtual_time,
    make_app,
    make_broker,
    now,
    rebalanced,
    running,
    send,
    tp,
    until,
)
from tests.fetching.noting import times_of_plans


def held(test: object) -> int:
    """Records delivered or queued, and not settled."""
    return sum(known.in_flight + known.queued for known in facts(test).partitions)  # type: ignore[arg-type]


async def settle_all(kept: list[Message[bytes]], count: int) -> None:
    """Ack messages as they come, until so many have."""
    while len(kept) < count:
        for message in kept:
            message.ack()
        await asyncio.sleep(0.01)
    for message in kept:
        message.ack()


@pytest.mark.parametrize("partitions", [1, 3])
@in_virtual_time
async def test_max_in_flight_is_respected_exactly(partitions: int) -> None:
    """Row D8 of the faults."""
    app, most = make_app(ordering="unordered", concurrency=12, max_in_flight=12), [0]

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        most[0] = max(most[0], held(test))
        await asyncio.sleep(1)

    async with running(app, partitions=partitions) as test:
        for partition in range(partitions):
            await send(test, *[b""] * 100, partition=partition)
        await test.settled(timeout=200)
    assert most == [12]


@in_virtual_time
async def test_manual_messages_left_unsettled_stop_the_fetching_until_they_are_settled() -> None:
    """Row E4 of the faults."""
    app, kept = make_app(ack="manual", max_in_flight=5), list[Message[bytes]]()
    keep_messages(app, kept)

    async with running(app) as test:
        await send(test, *[b""] * 20)
        await asyncio.sleep(10)
        assert len(kept) == 5
        began = now()
        kept[3].ack()
        await until(lambda: len(kept) == 6)
        assert now() - began < 0.1
        for message in kept:
            message.ack()
        await until(lambda: len(kept) == 11)


@pytest.mark.parametrize("ordering", ["partition", "unordered"])
@in_virtual_time
async def test_one_stuck_partition_never_starves_another(ordering: str) -> None:
    """Row F16 of the faults."""
    app, seen, never = (
        make_app(ordering=ordering, concurrency=20, max_in_flight=20),
        [0],
        asyncio.Event(),
    )

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        if message.partition == 0:
            await never.wait()
        seen[0] += message.partition

    async with running(app, partitions=2) as test:
        await send(test, *[b""] * 500, partition=0)
        await asyncio.sleep(2)
        began = now()
        await send(test, *[b""] * 500, partition=1)
        await until(lambda: seen[0] == 500)
        assert now() - began < 1
        stuck = facts(test).partitions[0]
        assert stuck.partition == tp(0)
        assert stuck.in_flight + stuck.queued < 20
        never.set()
        await test.settled(timeout=60)


@in_virtual_time
async def test_a_partition_whose_records_nobody_settles_leaves_the_others_their_part() -> None:
    app, kept, seen = (
        make_app(ack="manual", max_in_flight=20),
        list[Message[bytes]](),
        list[Message[bytes]](),
    )

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        if message.partition == 0:
            kept.append(message)
        else:
            seen.append(message)
            message.ack()

    async with running(app, partitions=2) as test:
        await send(test, *[b""] * 100, partition=0)
        await asyncio.sleep(2)
        await send(test, *[b""] * 200, partition=1)
        await until(lambda: len(seen) == 200)
        assert 14 <= len(kept) <= 15
        await settle_all(kept, 100)
        await test.settled()


@in_virtual_time
async def test_a_partition_without_room_for_a_while_is_paused_and_facts_say_so() -> None:
    app, kept = make_app(ack="manual", max_in_flight=2), list[Message[bytes]]()
    keep_messages(app, kept)

    async with running(app, partitions=2) as test:
        await send(test, *[b""] * 5, partition=0)
        await asyncio.sleep(3)
        assert [known.paused for known in facts(test).partitions] == [True, False]
        assert app.health().status == "UP"
        # PollRequest for, because nothing is fetched.
        await until(lambda: facts(test).partitions[0].log_end == 5)
        for message in kept:
            message.ack()
        await asyncio.sleep(0.1)
        assert [known.paused for known in facts(test).partitions] == [False, False]
        await settle_all(kept, 5)
        await test.settled()


@in_virtual_time
async def test_what_was_paused_for_want_of_room_flows_again_after_rebalances() -> None:
    """Row D8 of the faults: no pause is left over, neither in what came straight back nor in what
    was elsewhere.
    """
    app, seen = make_app(concurrency=2, max_in_flight=2, revoke_grace="5s"), Counter[int]()
    other, theirs = make_app(concurrency=2, max_in_flight=2), Counter[int]()

    async def slow(message: Message[bytes], counted: Counter[int]) -> None:
        await asyncio.sleep(3)
        counted[message.partition] += 1

    @app.incoming("orders")
    async def mine(message: Message[bytes]) -> None:
        await slow(message, seen)

    @other.incoming("orders")
    async def his(message: Message[bytes]) -> None:
        await slow(message, theirs)

    async with running(app, partitions=4) as test:
        for partition in range(4):
            await send(test, *[b""] * 20, partition=partition)
        await until(lambda: any(known.paused for known in facts(test).partitions))
        for _ in range(3):
            await rebalanced(test)
        async with TestApp(other, broker=test.broker):
            await until(lambda: sum(theirs.values()) > 10, 60)
        before = seen.copy()
        await until(lambda: all(seen[partition] > before[partition] for partition in range(4)), 60)
        await test.settled(timeout=300)
        assert not any(known.paused for known in facts(test).partitions)
        assert sum((seen + theirs).values()) == 80


@in_virtual_time
async def test_what_polls_may_bring_where_nothing_is_held_is_so_for_the_partitions_of_then_and_no_longer() -> (
    None
):
    app, other = make_app(ack="manual", max_in_flight=4), make_app()
    kept, is_busy = list[Message[bytes]](), False

    @app.incoming("orders")
    async def mine(message: Message[bytes]) -> None:
        if is_busy:
            kept.append(message)
        else:
            await message.ack()

    @other.incoming("orders")
    async def his(message: Message[bytes]) -> None:
        """Has its partition."""

    broker = make_broker(2)
    elsewhere = TestApp(other, broker=broker)
    await elsewhere.__aenter__()
    async with running(app, broker=broker) as test:
        await until(lambda: len(facts(test).partitions) == 1, 60)
        for _ in range(3):
            await send(test, b"", partition=0)
            await send(test, b"", partition=1)
            await asyncio.sleep(5)
        await elsewhere.__aexit__(None, None, None)
        await until(lambda: len(facts(test).partitions) == 2, 60)
        is_busy = True
        for partition in range(2):
            await send(test, *[b""] * 20, partition=partition)
        await asyncio.sleep(10)
        assert {message.partition for message in kept} == {0, 1}
        assert 3 <= len(kept) <= 4
        is_busy = False
        await settle_all(kept, len(kept))
    await broker.close()


@in_virtual_time
async def test_a_partition_with_little_waiting_is_not_behind_the_backlog_of_another() -> None:
    app, order = make_app(concurrency=1), list[int]()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        order.append(message.partition)
        await asyncio.sleep(0.02)

    broker = make_broker(4)
    for number in range(200):
        broker.produce("orders", b"", partition=2 * (number % 2))
    broker.produce("orders", b"", partition=1)
    broker.produce("orders", b"", partition=3)
    async with running(app, broker=broker) as test:
        await test.settled(timeout=60)
    assert len(order) == 202
    assert order.index(1) < 4
    assert order.index(3) < 4


async def test_a_handler_that_never_suspends_lets_the_loop_run() -> None:
    app, turns, done = make_app(), [0], asyncio.Event()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        until_then = now() + 0.001
        while now() < until_then:
            pass
        if message.offset == 199:
            done.set()

    async def turn() -> None:
        while not done.is_set():
            turns[0] += 1
            await asyncio.sleep(0)

    async with running(app) as test:
        await send(test, *[b""] * 200)
        await asyncio.wait_for(turn(), 30)
        await test.settled()
    assert turns[0] > 20


@in_virtual_time
async def test_batches_fill_up_to_their_size_under_back_pressure() -> None:
    app, sizes = make_app(batch_max_records=10, batch_max_wait="5s", max_in_flight=30), list[int]()

    @app.incoming("orders")
    async def handler(batch: Batch[bytes]) -> None:
        sizes.append(len(batch))
        await asyncio.sleep(0.5)

    async with running(app) as test:
        await send(test, *[b""] * 200)
        await test.settled(timeout=60)
    assert sizes == [10] * 20


@pytest.mark.parametrize("partitions", [1, 20, 100])
@pytest.mark.parametrize(
    ("batch", "orders"),
    [(500, {}), (500, {"max_in_flight": 1000}), (1000, {"max_in_flight": 1000})],
)
@in_virtual_time
async def test_batches_fill_at_once_however_many_partitions_they_come_from(
    partitions: int, batch: int, orders: dict[str, int]
) -> None:
    app, sizes, ended = (
        make_app(batch_max_records=batch, batch_max_wait="5s", **orders),
        list[int](),
        [0.0],
    )

    @app.incoming("orders")
    async def handler(messages: Batch[bytes]) -> None:
        sizes.append(len(messages))
        await asyncio.sleep(0.1)
        ended[0] = now()

    async with running(app, broker=backlog(partitions, 4000 // partitions)) as test:
        began = now()
        await test.settled(timeout=60)
    assert sizes == [batch] * (4000 // batch)
    assert ended[0] - began < 0.1 * len(sizes) + 0.2


@pytest.mark.parametrize("partitions", [2, 4, 5, 6, 12, 16, 17, 100])
@pytest.mark.parametrize("is_trickling", [False, True])
@in_virtual_time
async def test_batches_of_the_one_partition_that_has_a_backlog_fill_at_once(
    partitions: int, is_trickling: bool
) -> None:
    app, sizes, ended = make_app(batch_max_records=500, batch_max_wait="5s"), list[int](), [0.0]

    @app.incoming("orders")
    async def handler(messages: Batch[bytes]) -> None:
        sizes.append(len(messages))
        await asyncio.sleep(0.1)
        ended[0] = now()

    broker = make_broker(partitions)
    for _ in range(4000):
        broker.produce("orders", b"", partition=0)
    async with running(app, broker=broker) as test:
        began = now()
        while is_trickling and len(sizes) < 8:
            broker.produce("orders", b"", partition=1)
            await asyncio.sleep(0.01)
        await until(lambda: len(sizes) == 8)
        await asyncio.sleep(0.2)
        assert sizes == [500] * 8
        assert ended[0] - began < 0.1 * len(sizes) + 0.2
        await test.settled(timeout=60)


@pytest.mark.parametrize("partitions", [2, 5, 6, 16, 17, 100])
@pytest.mark.parametrize("busy", [1, 2, 100])
@pytest.mark.parametrize(
    ("batch", "room"), [(700, 1000), (900, 1000), (1000, 1000), (1, 1), (7, 7)]
)
@in_virtual_time
async def test_a_batch_that_has_no_room_to_fill_does_not_wait_for_more(
    partitions: int, busy: int, batch: int, room: int
) -> None:
    app = make_app(batch_max_records=batch, batch_max_wait="5s", max_in_flight=room)
    sizes, ended = list[int](), [0.0]

    @app.incoming("orders")
    async def handler(messages: Batch[bytes]) -> None:
        sizes.append(len(messages))
        await asyncio.sleep(0.1)
        ended[0] = now()

    broker, records = make_broker(partitions), 10 * room
    for number in range(records):
        broker.produce("orders", b"", partition=number % min(busy, partitions))
    async with running(app, broker=broker) as test:
        began = now()
        await until(lambda: sum(sizes) >= records - room, within_s=400)
        # None has waited.
        assert ended[0] - began < 0.15 * len(sizes) + 0.2
        assert min(sizes[:-1]) >= room // 3
        await test.settled(timeout=60)


@pytest.mark.parametrize("partitions", [2, 3, 5, 16])
@pytest.mark.parametrize("busy", [1, 20])
@pytest.mark.parametrize("comes_later", [False, True])
@in_virtual_time
async def test_a_batch_that_takes_long_keeps_no_others_waiting(
    partitions: int, busy: int, comes_later: bool
) -> None:
    app = make_app(batch_max_records=500, batch_max_wait="5s", concurrency=2)
    has_begun, is_over, sizes = asyncio.Event(), asyncio.Event(), list[int]()

    @app.incoming("orders")
    async def handler(messages: Batch[bytes]) -> None:
        if any(message.partition == 0 for message in messages):
            has_begun.set()
            await is_over.wait()
        sizes.append(len(messages))
        await asyncio.sleep(0.1)

    broker = make_broker(partitions)
    for _ in range(4000):
        broker.produce("orders", b"", partition=0)
    async with running(app, broker=broker) as test:
        await has_begun.wait()
        if comes_later:
            await asyncio.sleep(1)
        for number in range(10_000):
            broker.produce("orders", b"", partition=number % min(partitions - 1, busy) + 1)
        began = now()
        await until(lambda: sum(sizes) >= 9_500)
        assert min(sizes) > 250
        assert now() - began < 0.1 * len(sizes) + 0.3
        is_over.set()
        await test.settled(timeout=60)


@in_virtual_time
async def test_a_second_batch_begins_at_once_though_the_window_is_full_and_nothing_comes() -> None:
    app = make_app(batch_max_records=500, batch_max_wait="5s", concurrency=2)
    seen, is_over = list[int](), asyncio.Event()

    @app.incoming("orders")
    async def handler(messages: Batch[bytes]) -> None:
        seen.append(messages[0].partition)
        await is_over.wait()

    async with running(app, broker=backlog(2, 4000)) as test:
        await until(lambda: sorted(seen) == [0, 1])
        is_over.set()
        await test.settled(timeout=60)


@pytest.mark.parametrize("settings", [{}, {"consumers": 3}])
@in_virtual_time
async def test_batches_fill_from_several_clients_in_narrow_windows(
    settings: dict[str, int],
) -> None:
    app, sizes = (
        make_app(batch_max_records=20, batch_max_wait="5s", max_in_flight=30, **settings),
        list[int](),
    )

    @app.incoming("orders")
    async def handler(messages: Batch[bytes]) -> None:
        sizes.append(len(messages))
        await asyncio.sleep(0.1)

    async with running(app, broker=backlog(3, 300)) as test:
        began = now()
        await until(lambda: sum(sizes) >= 880)
        assert now() - began < 0.1 * 900 / 20 + 1
        await test.settled(timeout=60)


@pytest.mark.parametrize("partitions", [2, 8, 16, 100])
@pytest.mark.parametrize("settings", [{}, {"batch_max_records": 10}])
@in_virtual_time
async def test_where_handlers_are_slow_a_full_window_is_not_looked_at_again_and_again(
    partitions: int, settings: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = make_app(**settings)
    looks = times_of_plans(monkeypatch)

    @app.incoming("orders")
    async def handler(messages: Batch[bytes] if settings else Message[bytes]) -> None:  # type: ignore[valid-type]
        await asyncio.sleep(2)

    async with running(app, broker=backlog(partitions, 2000)):
        await asyncio.sleep(4)
        before = len(looks)
        assert before > 0
        await asyncio.sleep(10)
        assert len(looks) - before < 100


@pytest.mark.parametrize(
    "orders", [{}, {"ordering": "key", "concurrency": 10}, {"max_in_flight": 200}]
)
@in_virtual_time
async def test_a_record_of_a_quiet_partition_does_not_wait_for_room_in_the_backlogs_of_many(
    orders: dict[str, Any],
) -> None:
    app, quiet = make_app(**{"concurrency": 20, **orders}), dict[int, float]()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        if message.partition < 20:
            await asyncio.sleep(0.0503)
        else:
            quiet[message.partition] = now()

    broker = make_broker(50)
    for number in range(20 * 300):
        broker.produce("orders", b"", partition=number % 20)
    async with running(app, broker=broker) as test:
        await asyncio.sleep(2)
        for partition in range(20, 50):
            began = now()
            await send(test, b"", partition=partition)
            await until(lambda number=partition: number in quiet)  # type: ignore[misc]
            assert quiet[partition] - began < 0.2
            await asyncio.sleep(0.037)
        await test.settled(timeout=60)


@in_virtual_time
async def test_more_partitions_than_room_still_all_go_on() -> None:
    app, seen = make_app(max_in_flight=2, concurrency=2), set[int]()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        await asyncio.sleep(0.1)
        seen.add(message.partition)

    async with running(app, partitions=6) as test:
        for partition in range(6):
            await send(test, b"", b"", b"", partition=partition)
        await test.settled(timeout=60)
    assert seen == set(range(6))


@pytest.mark.parametrize("ordering", ["partition", "unordered"])
@in_virtual_time
async def test_a_window_far_below_the_number_of_partitions_is_kept_exactly_and_all_go_on(
    ordering: str,
) -> None:
    app, most, seen = make_app(ordering=ordering, concurrency=10, max_in_flight=10), [0], set[int]()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        await asyncio.sleep(0.1)
        most[0] = max(most[0], held(test))
        seen.add(message.partition)

    async with running(app, broker=backlog(100, 3)) as test:
        await test.settled(timeout=600)
    assert most[0] == 10
    assert seen == set(range(100))


@in_virtual_time
async def test_a_window_far_below_the_number_of_partitions_is_kept_by_records_nobody_settles() -> (
    None
):
    app, kept = make_app(ack="manual", max_in_flight=10), list[Message[bytes]]()
    keep_messages(app, kept)

    async with running(app, broker=backlog(100, 3)) as test:
        await asyncio.sleep(10)
        assert len(kept) == 10
        await settle_all(kept, 300)
        await test.settled()


@in_virtual_time
async def test_with_the_default_window_most_of_many_partitions_may_be_stuck_and_the_others_go_on() -> (
    None
):
    app, kept, seen = make_app(ack="manual"), list[Message[bytes]](), list[int]()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        if message.partition < 150:
            kept.append(message)
        else:
            seen.append(message.partition)
            message.ack()

    async with running(app, broker=backlog(200, 100)) as test:
        await until(lambda: len(seen) == 50 * 100)
        assert {message.partition for message in kept} == set(range(150))
        assert len(kept) <= 1200
        await settle_all(kept, 150 * 100)
        await test.settled(timeout=600)


def backlog(partitions: int, records: int) -> MemoryBroker:
    """A broker whose topic has so many records in each partition."""
    broker = make_broker(partitions)
    for partition in range(partitions):
        for _ in range(records):
            broker.produce("orders", b"", partition=partition)
    return broker


@pytest.mark.parametrize(
    ("setting", "most"), [({}, 10_000), *(({"max_uncommitted": n}, n) for n in (1, 50, 20_000))]
)
@in_virtual_time
async def test_what_is_settled_and_not_committed_is_bounded_too(
    setting: dict[str, Any], most: int
) -> None:
    """Row A13 of the faults."""
    app, handled = make_app(max_in_flight=10, **setting), [0]

    @app.incoming("orders")
    async def handler(order: bytes) -> None:
        handled[0] += 1

    async with running(app) as test:
        test.broker.fail_next("commit", TransientBrokerError("refused"), times=125)
        await send(test, *[b""] * 30_000)
        await asyncio.sleep(60)
        assert most <= handled[0] <= most + 10
        assert f"(max_uncommitted = {most})" in str(facts(test).not_ready)
        assert "refused" in str(facts(test).not_ready)
        assert committed(test) is None
        # The commits are refused for ten minutes.
        await test.settled(timeout=2_000)
        assert handled[0] == 30_000
        await until(lambda: "max_uncommitted" not in str(facts(test).not_ready))


@pytest.mark.parametrize("strategy", ["throttled", "latest"])
@in_virtual_time
async def test_a_commit_that_is_refused_at_the_bound_is_tried_again_soon_whatever_the_interval(
    strategy: str,
) -> None:
    app, handled = (
        make_app(commit_strategy=strategy, commit_interval="1h", max_uncommitted=100),
        [0],
    )

    @app.incoming("orders")
    async def handler(order: bytes) -> None:
        handled[0] += 1

    broker = backlog(1, 2_000)
    broker.fail_next("commit", TransientBrokerError("refused"), times=3)
    async with running(app, broker=broker) as test:
        await until(lambda: handled[0] == 2_000, 10)
        await until(lambda: (committed(test) or 0) >= 1_900, 10)
        assert facts(test).not_ready == ()


@in_virtual_time
async def test_of_two_consumers_each_notices_that_its_own_commits_are_late() -> None:
    app, handled = make_app(consumers=2, concurrency=2, batch_max_records=100), [0, 0]

    @app.incoming("orders")
    async def handler(batch: Batch[bytes]) -> None:
        await asyncio.sleep(0.02)
        handled[batch[0].partition] += len(batch)

    broker = backlog(2, 50_000)
    broker.delay_next("commit", seconds=3_600.0, times=1)
    async with running(app, broker=broker) as test:
        await asyncio.sleep(8)
        late, other = sorted(handled)
        assert other > 30_000
        assert 5_000 <= late <= 15_000, "half of 10,000, and what it does in a second or two"
        assert "(max_uncommitted = 5000)" in str(facts(test).not_ready)
        await test.settled(timeout=60)
    assert handled == [50_000, 50_000]


@in_virtual_time
async def test_half_of_the_bound_is_committed_before_its_time_and_nobody_waits_for_it() -> None:
    app = make_app(commit_interval="1h", max_uncommitted=100)
    take_all(app)

    async with running(app) as test:
        await send(test, *[b""] * 49)
        await asyncio.sleep(60)
        assert committed(test) is None
        await send(test, *[b""] * 1_000)
        await until(lambda: facts(test).partitions[0].position == 1_049, 10)
        await until(lambda: (committed(test) or 0) >= 1_000, 10)
        assert facts(test).not_ready == ()


@in_virtual_time
async def test_what_waits_behind_an_unsettled_record_does_not_count() -> None:
    app, kept = (
        make_app(ordering="unordered", concurrency=2, max_uncommitted=20, ack="manual"),
        list[Message[bytes]](),
    )

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        if message.offset == 0:
            kept.append(message)
        else:
            message.ack()

    async with running(app) as test:
        await send(test, *[b""] * 500)
        await until(lambda: facts(test).partitions[0].position == 500)
        assert facts(test).not_ready == ()
        kept[0].ack()
        await until(lambda: facts(test).partitions[0].committed == 500)


@pytest.mark.parametrize(
    "strategy", ["throttled", "checkpoint", "tests.app.test_backpressure:NEVER"]
)
@in_virtual_time
async def test_the_client_of_delayed_retries_is_bounded_whatever_the_strategy_of_its_channel(
    strategy: str,
) -> None:
    group, retries = "kafka-delayed-retry-topic-billing", "orders_retry_1000"
    settings: dict[str, Any] = {
        "max_in_flight": 10,
        "max_uncommitted": 20,
        "commit_strategy": strategy,
        "failure_strategy": "delayed-retry-topic",
        "delayed_retry": {"topics": [retries]},
    }
    app = app_on(Rows(), **settings) if strategy == "checkpoint" else make_app(**settings)
    handled = [0]

    @app.incoming("orders")
    async def handler(order: bytes) -> None:
        handled[0] += 1

    broker = make_broker()
    for _ in range(500):
        broker.produce(retries, b"", partition=0, timestamp_ms=0)
    broker.fail_next("commit", TransientBrokerError("refused"), times=20, of=group)
    async with running(app, broker=broker) as test:
        await until(lambda: "max_uncommitted = 20" in str(facts(test).not_ready), 20)
        assert 20 <= handled[0] <= 30
        await until(lambda: handled[0] == 500, 600)
    await broker.close()


class Never:
    """A custom strategy that commits at the end only."""

    interval_s: float | None = 1.0
    commits_at_ack = False

    def position(self, progress: Progress, now: float) -> int | None:
        return progress.safe if progress.is_last else None


NEVER = Never()


@in_virtual_time
async def test_a_custom_strategy_may_commit_as_rarely_as_it_likes() -> None:
    app, handled = (
        make_app(commit_strategy="tests.app.test_backpressure:NEVER", max_uncommitted=20),
        [0],
    )

    @app.incoming("orders")
    async def handler(order: bytes) -> None:
        handled[0] += 1

    async with running(app) as test:
        await send(test, *[b""] * 500)
        await until(lambda: handled[0] == 500)
        assert committed(test) is None
        assert facts(test).not_ready == ()
