"""What others do to a group on Kafka, and to its topic, while a member works."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import KafkaError

from reactive_kafka.broker.jars import KafkaUnavailableError
from tests.faults.cases import finish, owned
from tests.faults.checker import Disruption, Rules, check, report
from tests.faults.driver import Life, Load, create_topic, until
from tests.faults.observer import read_commits
from tests.faults.scenario import COMMIT_INTERVAL_S, Scenario, member, new_topic, playing
from tests.faults.stage import not_sooner_than
from tests.harness.kafka import KafkaCluster

pytestmark = [pytest.mark.kafka, pytest.mark.long_faults]

CLASSIC = 'group_protocol = "classic"'


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    """A broker with its tools."""
    with KafkaCluster() as cluster:
        yield cluster


async def works(scenario: Scenario, life: Life, records: int = 200) -> None:
    before = life.count("end")
    await until(lambda: life.count("end") > before + records, 30, f"{life.name} works", life.tail)


async def test_a_standby_that_was_idle_for_longer_than_max_poll_interval_takes_over(
    cluster: KafkaCluster, tmp_path: Path
) -> None:
    """Row C8 of the faults."""
    idle_s = 2.0
    async with playing(cluster.bootstrap_servers, tmp_path, 1) as scenario:
        channel = f'"max.poll.interval.ms" = {int(idle_s * 1000)}'
        lives = [member(scenario, name, channel=channel).start() for name in ("left", "right")]
        async with scenario.load.flowing(50):
            for life in lives:
                await life.ready()
            await until(lambda: any(map(owned, lives)), 20, "one owns the partition")
            owner, standby = sorted(lives, key=lambda life: not owned(life))
            await works(scenario, owner, 20)
            await not_sooner_than(time.time() + 3 * idle_s)
            assert standby.count("begin") == 0, "it was no standby"
            killed_at = owner.send(signal.SIGKILL)
            assert await owner.exited(5) == -signal.SIGKILL
            scenario.disruptions.append(Disruption(owner.name, killed_at, killed_at))
            await works(scenario, standby, 20)
        await until(scenario.all_is_committed, 30, "all is committed", standby.tail)
        evidence = await scenario.evidence()
    assert report(check(evidence, Rules(duplicate_window_s=COMMIT_INTERVAL_S + 0.7))) == ""


@contextlib.asynccontextmanager
async def foreigner(
    cluster: KafkaCluster, topic: str, group: str, assignor: Any
) -> AsyncIterator[AIOKafkaConsumer]:
    """A member of the group that is none of ours: another topic, and never a commit."""
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=cluster.bootstrap_servers,
        group_id=group,
        enable_auto_commit=False,
        partition_assignment_strategy=(assignor,),
    )
    await consumer.start()
    try:
        await until(consumer.assignment, 20, "the foreigner has its partitions")
        yield consumer
    finally:
        await consumer.stop()


async def test_a_foreign_protocol_in_the_group_is_named_and_work_begins_when_it_is_gone(
    cluster: KafkaCluster, tmp_path: Path
) -> None:
    """Row C10 of the faults. Members of a classic group need an assignor in common."""
    foreign = new_topic()
    await create_topic(cluster.bootstrap_servers, foreign, 2)
    async with playing(cluster.bootstrap_servers, tmp_path) as scenario:
        async with foreigner(cluster, foreign, scenario.topic, StickyPartitionAssignor):
            life = member(scenario, "service", channel=CLASSIC).start()
            await life.probe_shows("/health/live", 200, 20)
            await life.says("INCONSISTENT_GROUP_PROTOCOL", 20)
            assert (await life.health("/health/live"))[0] == 200
        async with scenario.load.flowing(100):
            await works(scenario, life)
        await finish(scenario)
        assert report(check(await scenario.evidence(), Rules())) == ""
        assert {
            one.tp[0] for one in await read_commits(cluster.bootstrap_servers, scenario.topic)
        } == {scenario.topic}


async def test_a_foreign_topic_of_another_member_is_never_committed(
    cluster: KafkaCluster, tmp_path: Path
) -> None:
    """Row C10 of the faults."""
    foreign = new_topic()
    await create_topic(cluster.bootstrap_servers, foreign, 2)
    async with playing(cluster.bootstrap_servers, tmp_path) as scenario:
        life = member(scenario, "service").start()
        async with scenario.load.flowing(100):
            await life.ready()
            await works(scenario, life)
            async with foreigner(
                cluster, foreign, scenario.topic, RoundRobinPartitionAssignor
            ) as other:
                await until(
                    lambda: {tp.topic for tp in other.assignment()} == {foreign},
                    20,
                    "it has its own topic",
                )
                await works(scenario, life)
            await works(scenario, life)
        await finish(scenario)
        assert report(check(await scenario.evidence(), Rules())) == ""
        assert {
            one.tp[0] for one in await read_commits(cluster.bootstrap_servers, scenario.topic)
        } == {scenario.topic}


async def test_positions_are_not_moved_under_a_member_and_count_when_they_were_moved_without_one(
    cluster: KafkaCluster, tmp_path: Path
) -> None:
    """Row C11 of the faults."""
    async with playing(cluster.bootstrap_servers, tmp_path) as scenario:
        service = member(scenario, "service")
        life = service.start()
        async with scenario.load.flowing(100):
            await life.ready()
            await works(scenario, life)
            stranger = AIOKafkaConsumer(
                bootstrap_servers=cluster.bootstrap_servers,
                group_id=scenario.topic,
                enable_auto_commit=False,
            )
            await stranger.start()
            stranger.assign([TopicPartition(*scenario.partitions[0])])
            with pytest.raises(KafkaError):
                await stranger.commit({TopicPartition(*scenario.partitions[0]): 0})
            await stranger.stop()
            with pytest.raises(KafkaUnavailableError):
                await asyncio.to_thread(groups, cluster, "--delete-offsets", scenario.topic)
            await works(scenario, life)
        await finish(scenario)
        assert report(check(await scenario.evidence(), Rules())) == ""

        await asyncio.to_thread(
            groups, cluster, "--reset-offsets", scenario.topic, "--to-earliest", "--execute"
        )
        again = service.start()
        await again.ready()
        due = set(scenario.load.sent)
        await until(
            lambda: due <= {(one.tp, one.offset) for one in again.events if one.kind == "end"},
            30,
            "all once more",
        )
        await until(scenario.all_is_committed, 30, "all is committed once more")
        again.send(signal.SIGTERM)
        assert await again.exited(15) == 0


def groups(cluster: KafkaCluster, what: str, topic: str, *more: str) -> None:
    where = ("--group", topic, "--topic", topic)
    said = cluster.tool(
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", what, *where, *more
    )
    if "Error" in said:
        raise KafkaUnavailableError(said)


async def test_partitions_that_are_added_are_read_from_their_beginning(
    cluster: KafkaCluster, tmp_path: Path
) -> None:
    """Row C12 of the faults.

    A broker that assigns tells of new partitions at once. In a classic group a member finds them
    later, when there is something in them.
    """
    bootstrap = cluster.bootstrap_servers
    async with playing(bootstrap, tmp_path, 3) as scenario:
        channel = f'{CLASSIC}\n"metadata.max.age.ms" = 5000'
        service = member(scenario, "service", channel=channel)
        service.config = service.config.replace(
            'auto_offset_reset = "earliest"', 'auto_offset_reset = "latest"'
        )
        life = service.start()
        await life.ready()
        async with scenario.load.flowing(100):
            await works(scenario, life)
            admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
            await admin.start()
            await admin.create_partitions({scenario.topic: NewPartitions(6)})
            await admin.close()
            added = [(scenario.topic, number) for number in (3, 4, 5)]
            async with Load(bootstrap, added) as later, later.flowing(100):
                await until(lambda: len(later.sent) > 50, 30, "they are written to")
                unknown = not owned(life) & set(added)
                await until(lambda: owned(life) >= set(added), 30, "they are assigned", life.tail)
                await until(lambda: len(later.sent) > 300, 30, "they are written to")
        assert unknown, "the member knew them before anything was in them"
        await until(
            lambda: (
                set(later.sent)
                <= {(one.tp, one.offset) for one in life.events if one.kind == "end"}
            ),
            30,
            "all of the new partitions is handled",
            life.tail,
        )
        await until(scenario.all_is_committed, 30, "all is committed")
        assert min(offset for _, offset in later.sent) == 0


async def test_a_transaction_that_nobody_ends_holds_up_its_partition_and_nothing_of_it_is_handled(
    cluster: KafkaCluster, tmp_path: Path
) -> None:
    """Row F3 of the faults."""
    async with playing(cluster.bootstrap_servers, tmp_path, 2) as scenario:
        life = member(scenario, "service", channel='isolation_level = "read_committed"').start()
        hangs, flows = scenario.partitions
        producer = AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers, transactional_id=scenario.topic
        )
        await life.ready()
        await producer.start()
        await producer.begin_transaction()
        topic, partition = hangs
        await producer.send_and_wait(
            topic, json.dumps({"id": "never", "do": "work"}).encode(), partition=partition
        )
        async with scenario.load.flowing(100):
            await until(
                lambda: sum(one.tp == flows for one in life.events) > 200, 30, "the other one flows"
            )
            assert not [one for one in life.events if one.tp == hangs and one.kind == "begin"]
            assert scenario.observer.committed(hangs) <= 0
            stands = f"the last stable offset of {topic}-{partition} has stood at 0 for "
            await until(
                lambda: f"{topic}-{partition} stays at 0" in life.tail(),
                20,
                "it is told",
                life.tail,
            )
            status, body = await life.health("/health/ready")
            warnings = body["checks"][0]["data"]["warnings"]
            [warning] = [one for one in warnings if one.startswith(stands)]
            assert status == 200
            end = int(warning.partition("the end is ")[2].partition(":")[0])
            assert 1 < end <= 1 + max(offset for tp, offset in scenario.load.sent if tp == hangs)
            await producer.abort_transaction()
            await until(
                lambda: any(one.tp == hangs for one in life.events if one.kind == "end"),
                30,
                "it goes on",
                life.tail,
            )
        await producer.stop()
        await until(
            lambda: (
                set(scenario.load.sent)
                <= {(one.tp, one.offset) for one in life.events if one.kind == "end"}
            ),
            30,
            "all is handled",
        )
        await until(scenario.all_is_committed, 30, "all is committed")
        assert "never" not in {one.id for one in life.events}
        life.send(signal.SIGTERM)
        assert await life.exited(15) == 0
