"""H11, H12: a log that is not what it was - truncated, recreated, or deleted past the position -
and silent jumps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import aiokafka
import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.structs import OffsetAndMetadata

from reactive_kafka import Committed, TopicPartition
from reactive_kafka.events import ChannelFailed, OffsetReset
from tests.broker.hazards.applications import Diary, running
from tests.broker.hazards.faults import until
from tests.broker.members import fill, joined
from tests.broker.test_kafka import KafkaTestCluster

pytestmark = pytest.mark.kafka

# What the broker makes by itself, too.
PARTITIONS_OF_A_NEW_TOPIC = 4
TOPIC_EXISTS = 36
TEN = [str(number) for number in range(10)]


async def commit(
    cluster: KafkaTestCluster, group: str, partition: TopicPartition, offset: int
) -> None:
    """Store a position for a group without members."""
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers, group_id=group, enable_auto_commit=False
    )
    await consumer.start()
    try:
        theirs = aiokafka.TopicPartition(*partition)
        consumer.assign([theirs])
        await consumer.commit({theirs: OffsetAndMetadata(offset, "")})
    finally:
        await consumer.stop()


async def recreate(cluster: KafkaTestCluster, topic: str) -> None:
    """Delete a topic and make it anew, at once and empty; a reader that asks for it may be the
    first to make it.
    """
    admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    await admin.start()
    try:
        await admin.delete_topics([topic])
        answer = await admin.create_topics([NewTopic(topic, PARTITIONS_OF_A_NEW_TOPIC, 1)])
        assert answer.topic_errors[0][1] in (0, TOPIC_EXISTS)
    finally:
        await admin.close()


def after(diary: Diary) -> list[str]:
    """What was handled, as text."""
    return [payload.decode() for payload in diary.handled]


# -- H12: naive


# -- H12: the policy decides, counted and loud


@pytest.mark.parametrize(
    ("policy", "reset_to", "skipped", "handled"),
    [("earliest", 5, 3, TEN[5:]), ("latest", 10, 8, [])],
)
async def test_h12_records_deleted_past_the_committed_position_are_counted_and_told(
    cluster: KafkaTestCluster,
    group: str,
    policy: str,
    reset_to: int,
    skipped: int,
    handled: list[str],
) -> None:
    """Row F4 of the faults."""
    topic = await cluster.create_topic(1)
    partition = TopicPartition(topic, 0)
    await fill(cluster, topic, {0: TEN})
    await commit(cluster, group, partition, 2)
    await cluster.delete_records(partition, 5)
    async with running(
        cluster.bootstrap_servers, topic, group, {"auto_offset_reset": policy}
    ) as diary:
        await diary.until_assigned(1)
        await fill(cluster, topic, {0: ["next"]})
        await until(lambda: diary.committed() == {0: 11}, "it goes on")
        [reset] = diary.of(OffsetReset)
        assert (reset.partition, reset.from_offset, reset.to_offset, reset.to) == (
            partition,
            2,
            reset_to,
            policy,
        )
        assert reset.skipped == skipped
        assert reset.level == "warning"
        assert diary.facts.resets[policy] == 1
        assert after(diary) == [*handled, "next"]


async def test_h12_with_policy_none_the_channel_stops_and_nothing_is_skipped(
    cluster: KafkaTestCluster, group: str
) -> None:
    """Row C14 of the faults."""
    topic = await cluster.create_topic(1)
    partition = TopicPartition(topic, 0)
    await fill(cluster, topic, {0: TEN})
    await commit(cluster, group, partition, 2)
    await cluster.delete_records(partition, 5)
    async with running(
        cluster.bootstrap_servers, topic, group, {"auto_offset_reset": "none"}
    ) as diary:
        await until(lambda: diary.of(ChannelFailed), "it has stopped")
        assert "position 2, its log goes from 5 to 10" in diary.of(ChannelFailed)[0].reason
        assert not diary.app.health().live.is_up
        assert diary.handled == []
    async with joined(cluster, topic, group, starts_by_itself=False) as member:
        await member.until_assigned(1)
        # As it was.
        assert await member.consumer.committed([partition]) == {partition: Committed(2)}


async def test_h12_records_deleted_under_a_running_reader_are_counted_and_told(
    cluster: KafkaTestCluster, group: str
) -> None:
    """Row F5 of the faults."""
    topic = await cluster.create_topic(1)
    partition = TopicPartition(topic, 0)
    await fill(cluster, topic, {0: ["first"]})
    async with running(cluster.bootstrap_servers, topic, group, {"fetch_max_wait_ms": 50}) as diary:
        await until(lambda: diary.committed() == {0: 1}, "it reads")
        consumer = diary.consumer
        # It falls behind.
        consumer.pause([partition])
        await until(lambda: not consumer.fetcher._in_flight, "it fetches nothing more")
        await fill(cluster, topic, {0: TEN})
        await cluster.delete_records(partition, 6)
        consumer.resume([partition])
        await until(lambda: diary.committed() == {0: 11}, "it goes on")
        [_, reset] = diary.of(OffsetReset)
        assert (reset.from_offset, reset.to_offset, reset.to, reset.skipped) == (
            1,
            6,
            "earliest",
            5,
        )
        assert diary.facts.resets["earliest"] == 2
        assert after(diary) == ["first", *TEN[5:]]


# -- H11


async def test_h11_a_committed_position_beyond_the_end_is_noticed_counted_and_decided(
    cluster: KafkaTestCluster, group: str
) -> None:
    """Row A9 of the faults."""
    topic = await cluster.create_topic(1)
    partition = TopicPartition(topic, 0)
    await fill(cluster, topic, {0: TEN})
    await commit(cluster, group, partition, 50)
    async with running(cluster.bootstrap_servers, topic, group) as diary:
        await until(
            lambda: diary.committed() == {0: 10}, "all of the new log is handled and committed"
        )
        [reset] = diary.of(OffsetReset)
        assert (reset.from_offset, reset.to_offset, reset.to) == (50, 0, "earliest")
        assert diary.facts.resets["earliest"] == 1
        assert after(diary) == TEN


async def test_h11_a_topic_recreated_under_a_running_reader_is_noticed_and_nothing_of_it_is_skipped(
    cluster: KafkaTestCluster, group: str
) -> None:
    """Row F6 of the faults."""
    topic = await cluster.create_topic(PARTITIONS_OF_A_NEW_TOPIC)
    await fill(cluster, topic, {0: TEN})
    async with running(
        cluster.bootstrap_servers, topic, group, {"metadata_max_age_ms": 500}
    ) as diary:
        await until(lambda: diary.committed().get(0) == 10, "it reads")
        resets = diary.facts.resets["earliest"]
        await recreate(cluster, topic)
        await fill(cluster, topic, {0: ["new-0", "new-1"]})
        await until(
            lambda: after(diary)[10:] == ["new-0", "new-1"],
            "the new log is handled from its beginning",
        )
        await until(lambda: diary.committed().get(0) == 2, "and committed")
        assert diary.facts.resets["earliest"] > resets


async def test_h11_a_topic_recreated_with_more_records_than_the_position_is_read_from_its_beginning(
    cluster: KafkaTestCluster, group: str
) -> None:
    """Row F6 of the faults: the reader hangs meanwhile, and finds its position in the new log,
    which is longer.
    """
    topic = await cluster.create_topic(1)
    await fill(cluster, topic, {0: TEN})
    async with running(cluster.bootstrap_servers, topic, group) as diary:
        await until(lambda: diary.committed() == {0: 10}, "it reads")
        in_new = [f"new-{number}" for number in range(60)]
        await blocking_the_loop(
            lambda: recreated_elsewhere(cluster.bootstrap_servers, topic, in_new)
        )
        await until(lambda: set(in_new) <= set(after(diary)), "all of the new log is handled")
        await until(lambda: diary.committed() == {0: 60}, "and committed")
        [reset] = [event for event in diary.of(OffsetReset) if event.reason is not None]
        assert reset.to_offset == 0
        assert (reset.from_offset or 0) <= 60
        assert diary.facts.resets["earliest"] == 2


async def blocking_the_loop(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Do something in another thread, and let nothing run in this one until it is done."""
    has_run: list[bool] = []
    asyncio.get_running_loop().call_soon(has_run.append, True)
    with ThreadPoolExecutor(1) as elsewhere:
        elsewhere.submit(asyncio.run, work()).result()
    assert not has_run, "the loop went on"


async def recreated_elsewhere(bootstrap_servers: str, topic: str, values: list[str]) -> None:
    """Delete a topic, make it anew with one partition, and fill that."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers)
    await admin.start()
    try:
        await admin.delete_topics([topic])
        while (await admin.create_topics([NewTopic(topic, 1, 1)])).topic_errors[0][1]:  # noqa: ASYNC110
            # The deletion goes on after it was confirmed.
            await asyncio.sleep(0.1)
    finally:
        await admin.close()
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap_servers)
    await producer.start()
    try:
        for value in values:
            await producer.send_and_wait(topic, value.encode(), partition=0)
    finally:
        await producer.stop()
