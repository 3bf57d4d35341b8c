"""What is sent while the broker is away: nothing is lost, and every key keeps its order."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaConsumer

from reactive_kafka import App, BufferFullError, Message, Record, Sending
from tests.faults.driver import create_topic, until
from tests.harness.kafka import KafkaCluster

pytestmark = pytest.mark.kafka

KEYS = [f"key-{number}".encode() for number in range(10)]
EACH = 1_000
MOST = 500
# The longer one is as long as send_timeout.
FOR_A_WHILE = pytest.mark.parametrize(
    "away_s", [8.0, pytest.param(30.0, marks=pytest.mark.long_faults)]
)


@pytest.fixture
def broker() -> Iterator[KafkaCluster]:
    """A broker that these tests may kill."""
    with KafkaCluster() as cluster:
        yield cluster


async def read_all(bootstrap: str, topic: str) -> dict[bytes, list[int]]:
    """Key -> the numbers that stand in the topic, in the order of their partition."""
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    found: dict[bytes, list[int]] = defaultdict(list)
    try:
        ends = await consumer.end_offsets(consumer.assignment())
        while any([await consumer.position(tp) < end for tp, end in ends.items()]):
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                for record in records:
                    found[record.key].append(int(record.value))
    finally:
        await consumer.stop()
    return found


def check(found: dict[bytes, list[int]]) -> int:
    """Every number is there, and the first copies of a key's stand in their order; how many were
    written twice.
    """
    repeats = 0
    for key in KEYS:
        first = list(dict.fromkeys(found[key]))
        assert first == list(range(EACH)), (
            f"{key!r}: {len(first)} of {EACH}, in order: {first == sorted(first)}"
        )
        repeats += len(found[key]) - EACH
    return repeats


async def broker_is_away(broker: KafkaCluster, since: asyncio.Event, away_s: float) -> None:
    await since.wait()
    await asyncio.to_thread(broker.kill)
    await asyncio.sleep(away_s)
    await asyncio.to_thread(broker.start_node, 1)


@FOR_A_WHILE
async def test_10_000_emitted_records_outlive_a_broker_that_is_away(
    broker: KafkaCluster, away_s: float
) -> None:
    await create_topic(broker.bootstrap_servers, "emitted", 4)
    app = App(
        {
            "kafka": {"bootstrap_servers": broker.bootstrap_servers},
            "http": {"enabled": False},
            "outgoing": {"emitted": {"max_in_flight": MOST}},
        }
    )
    emitter, sent, under_way, most = app.emitter("emitted"), list[Sending](), asyncio.Event(), 0

    async def emit(key: bytes) -> None:
        nonlocal most
        for number in range(EACH):
            while True:
                try:
                    sent.append(emitter.send_nowait(number, key=key))
                    break
                except BufferFullError:
                    most = max(most, app.facts().outgoing[0].in_flight)
                    await next(one for one in reversed(sent) if not one.done())
            if number == EACH // 3:
                under_way.set()
            if number % 10 == 0:
                await asyncio.sleep(0)

    async with app:
        away = asyncio.create_task(broker_is_away(broker, under_way, away_s))
        await asyncio.gather(*(emit(key) for key in KEYS))
        await emitter.flush()
        assert not [one for one in sent if not one.done() or one.error is not None]
        await away
    assert most == MOST, "the broker was away long enough that they had to wait"
    print(f"written twice: {check(await read_all(broker.bootstrap_servers, 'emitted'))}")


@FOR_A_WHILE
async def test_what_handlers_return_is_written_before_its_record_is_committed_while_the_broker_goes_and_comes(
    broker: KafkaCluster, away_s: float
) -> None:
    await create_topic(broker.bootstrap_servers, "orders", 4)
    await create_topic(broker.bootstrap_servers, "invoices", 4)
    app = App(
        {
            "kafka": {"bootstrap_servers": broker.bootstrap_servers},
            "http": {"enabled": False},
            "incoming": {
                "orders": {
                    "group_id": "billing",
                    "auto_offset_reset": "earliest",
                    "commit_interval": "100ms",
                    "value_deserializer": "bytes",
                }
            },
            "outgoing": {"seed": {"topic": "orders"}, "invoices": {"wait_for_write": False}},
        }
    )
    seed, handled, under_way = app.emitter("seed"), 0, asyncio.Event()

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def invoice(message: Message[bytes]) -> Record:
        nonlocal handled
        handled += 1
        if handled == len(KEYS) * EACH // 3:
            under_way.set()
        return Record(message.payload, key=message.key)

    async with app:
        away = asyncio.create_task(broker_is_away(broker, under_way, away_s))
        for number in range(EACH):
            for key in KEYS:
                while True:
                    try:
                        seed.send_nowait(number, key=key)
                        break
                    except BufferFullError:
                        await seed.flush()
        await seed.flush()
        await away

        channel = app.channel("orders")
        await until(
            lambda: [one.lag for one in channel.facts().partitions] == [0] * 4,
            60,
            "all is committed",
            lambda: str(channel.facts().partitions),
        )
        # By its own account it may be done before it has heard of the last records, so the broker
        # is asked, too.
        async with asyncio.timeout(60):
            # There is no event for it.
            while any((await channel.lag()).values()):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        found = await read_all(broker.bootstrap_servers, "invoices")
    print(f"written twice: {check(found)}")
    await until(lambda: handled >= len(KEYS) * EACH, 1, "each was handled")
