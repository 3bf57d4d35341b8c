"""Our members of classic groups at a real coordinator, alone and with aiokafka's."""

from __future__ import annotations

import asyncio
import subprocess
import threading
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import aiokafka
import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic

from reactive_kafka.broker.aiokafka.connections.client_settings import ClientSettings
from reactive_kafka.broker.aiokafka.group_requests import CoordinatorRequests
from reactive_kafka.broker.aiokafka.kafka_client import KafkaClient
from reactive_kafka.broker.consumer.membership.classic_group.assignors.named_assignors import (
    DEFAULT_ASSIGNORS,
    assignors_named,
)
from reactive_kafka.broker.consumer.membership.classic_group.classic_membership import (
    ClassicGroupMembership,
)
from reactive_kafka.broker.consumer.membership.classic_group.member_rules import (
    ClassicGroupMember,
    ClassicMemberSettings,
)
from reactive_kafka.broker.consumer.membership.heartbeat_pace import (
    QUICK_BEAT_S,
    SETTLING_BEAT_S,
)
from reactive_kafka.broker.consumer.membership.left_behind import MembersLeftBehind
from reactive_kafka.broker.jars import find_java, kafka_jars
from reactive_kafka.errors import FatalBrokerError, FencedError
from reactive_kafka.records import TopicPartition
from tests.broker.consumer.test_classic_membership import ReadPartitions

pytestmark = pytest.mark.kafka

PARTITIONS = 6
PATIENCE_S = 20.0
COOPERATIVE = ("cooperative-sticky",)
JAVA_COOPERATIVE = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"


class RealMember:
    """A member of ours at a real coordinator."""

    def __init__(
        self,
        client: KafkaClient,
        group_id: str,
        assignors: Sequence[str],
        instance_id: str | None,
    ) -> None:
        settings = ClassicMemberSettings(
            group_id,
            assignors_named(assignors),
            rebalance_timeout_ms=20_000,
            session_timeout_ms=6_000,
            instance_id=instance_id,
        )
        self.reader = ReadPartitions()
        self.membership = ClassicGroupMembership(
            ClassicGroupMember(settings),
            CoordinatorRequests(client, group_id),
            self.reader,
            300.0,
            MembersLeftBehind(),
        )
        self.revoked: set[TopicPartition] = set()

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        self.revoked |= partitions

    async def on_assigned(self, partitions: frozenset[TopicPartition], generation: int) -> None:
        assert partitions <= self.reader.held

    @property
    def owned(self) -> frozenset[TopicPartition]:
        return self.membership.member.owned.partitions


@pytest.fixture
async def topic(kafka: str) -> AsyncIterator[str]:
    name = f"classic-{uuid.uuid4().hex[:8]}"
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(name, PARTITIONS, 1)])
        yield name
    finally:
        await admin.close()


@asynccontextmanager
async def joined(
    kafka: str,
    topic: str,
    assignors: Sequence[str] = DEFAULT_ASSIGNORS,
    instance_id: str | None = None,
    others: Sequence[str] = (),
) -> AsyncIterator[RealMember]:
    """A member of the group that has the topic's name. *others*: topics that it reads, too."""
    client = KafkaClient(ClientSettings(bootstrap_servers=kafka))
    await client.bootstrap()
    member = RealMember(client, topic, assignors, instance_id)
    member.membership.start(member, [topic, *others])
    try:
        yield member
    finally:
        await member.membership.close(None)
        await client.close()


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        # Nobody tells.
        while not is_so():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def have_all(members: Iterable[RealMember], count: int = PARTITIONS) -> bool:
    """Whether each partition has one owner, and shares are even."""
    owned = [member.owned for member in members]
    sizes = sorted(map(len, owned))
    return sum(sizes) == count == len(frozenset().union(*owned)) and sizes[-1] - sizes[0] <= 1


async def test_an_eager_group_shares_its_partitions(kafka: str, topic: str) -> None:
    async with joined(kafka, topic) as one:
        await until(lambda: have_all([one]))
        async with joined(kafka, topic) as two:
            await until(lambda: have_all([one, two]))
            assert len(one.revoked) == PARTITIONS
        await until(lambda: have_all([one]))


@pytest.mark.parametrize("assignors", [DEFAULT_ASSIGNORS, COOPERATIVE])
async def test_what_a_member_that_leaves_had_soon_has_an_owner(
    kafka: str, topic: str, assignors: Sequence[str]
) -> None:
    def has_settled(member: RealMember) -> bool:
        due_in_s = member.membership.member.due_at() - asyncio.get_running_loop().time()
        return due_in_s > SETTLING_BEAT_S

    async with joined(kafka, topic, assignors) as one:
        async with joined(kafka, topic, assignors) as two:
            await until(lambda: have_all([one, two]))
            await until(lambda: has_settled(one))
        left_at = asyncio.get_running_loop().time()
        await until(lambda: have_all([one]))
        # The heartbeat that tells of it, joining, and what the machine needs.
        assert asyncio.get_running_loop().time() - left_at < QUICK_BEAT_S + 0.5


async def test_a_cooperative_group_moves_only_what_has_to_move(kafka: str, topic: str) -> None:
    async with joined(kafka, topic, COOPERATIVE) as one:
        await until(lambda: have_all([one]))
        async with joined(kafka, topic, COOPERATIVE) as two:
            await until(lambda: have_all([one, two]))
            assert one.revoked == two.owned
            async with joined(kafka, topic, COOPERATIVE) as three:
                await until(lambda: have_all([one, two, three]))
                assert one.revoked | two.revoked >= three.owned
            one.revoked.clear()
            await until(lambda: have_all([one, two]))
            assert one.revoked == set()


async def test_a_group_of_aiokafkas_members_takes_ours_and_the_other_way_round(
    kafka: str, topic: str
) -> None:
    theirs = aiokafka.AIOKafkaConsumer(
        topic, bootstrap_servers=kafka, group_id=topic, heartbeat_interval_ms=200
    )
    await theirs.start()
    try:
        await until(lambda: len(theirs.assignment()) == PARTITIONS)
        async with joined(kafka, topic) as ours:
            await until(lambda: len(theirs.assignment()) == len(ours.owned) == PARTITIONS // 2)
            assert not {tuple(it) for it in theirs.assignment()} & {tuple(it) for it in ours.owned}
            await theirs.stop()
            await until(lambda: have_all([ours]))
            # Now ours is the leader.
            again = aiokafka.AIOKafkaConsumer(
                topic, bootstrap_servers=kafka, group_id=topic, heartbeat_interval_ms=200
            )
            await again.start()
            try:
                await until(lambda: len(again.assignment()) == len(ours.owned) == PARTITIONS // 2)
            finally:
                await again.stop()
    finally:
        await theirs.stop()


@pytest.mark.parametrize("strategy", ["range,roundrobin", "cooperative-sticky"])
async def test_a_group_of_librdkafkas_members_takes_ours_and_the_other_way_round(
    kafka: str, topic: str, strategy: str
) -> None:
    assignors = COOPERATIVE if strategy == "cooperative-sticky" else DEFAULT_ASSIGNORS
    with librdkafka(kafka, topic, strategy) as theirs:
        await until(lambda: len(theirs()) == PARTITIONS)
        async with joined(kafka, topic, assignors) as ours:
            await until(lambda: len(theirs()) == len(ours.owned) == PARTITIONS // 2)
            assert not theirs() & ours.owned
            await asyncio.to_thread(theirs.close)
            await until(lambda: have_all([ours]))
            # Now ours is the leader.
            ours.revoked.clear()
            with librdkafka(kafka, topic, strategy) as again:
                await until(lambda: len(again()) == len(ours.owned) == PARTITIONS // 2)
                assert not again() & ours.owned
                if assignors == COOPERATIVE:
                    assert ours.revoked == again()


class RdkafkaMember:
    """A consumer of librdkafka, polled by a thread."""

    def __init__(self, kafka: str, topic: str, strategy: str) -> None:
        import confluent_kafka

        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": kafka,
                "group.id": topic,
                "partition.assignment.strategy": strategy,
                "heartbeat.interval.ms": 200,
                "session.timeout.ms": 6000,
            }
        )
        self._consumer.subscribe([topic])
        self._ends = threading.Event()
        self._owned: frozenset[TopicPartition] = frozenset()
        self._thread = threading.Thread(target=self._poll)
        self._thread.start()

    def __call__(self) -> frozenset[TopicPartition]:
        """What it owns."""
        return self._owned

    def _poll(self) -> None:
        while not self._ends.is_set():
            self._consumer.poll(0.05)
            self._owned = frozenset(
                TopicPartition(it.topic, it.partition) for it in self._consumer.assignment()
            )
        self._consumer.close()

    def close(self) -> None:
        self._ends.set()
        self._thread.join()


@contextmanager
def librdkafka(kafka: str, topic: str, strategy: str) -> Iterator[RdkafkaMember]:
    member = RdkafkaMember(kafka, topic, strategy)
    try:
        yield member
    finally:
        member.close()


@pytest.mark.parametrize("is_cooperative", [False, True], ids=["default", "cooperative"])
async def test_a_group_of_javas_members_takes_ours_and_the_other_way_round(
    kafka: str, topic: str, is_cooperative: bool
) -> None:
    assignors = COOPERATIVE if is_cooperative else DEFAULT_ASSIGNORS
    strategy = JAVA_COOPERATIVE if is_cooperative else "-"
    with java_member(kafka, topic, strategy) as theirs:
        await until(lambda: len(theirs()) == PARTITIONS)
        async with joined(kafka, topic, assignors) as ours:
            await until(lambda: len(theirs()) == len(ours.owned) == PARTITIONS // 2)
            assert not theirs() & ours.owned
            await asyncio.to_thread(theirs.close)
            await until(lambda: have_all([ours]))
            # Now ours is the leader.
            ours.revoked.clear()
            with java_member(kafka, topic, strategy) as again:
                await until(lambda: len(again()) == len(ours.owned) == PARTITIONS // 2)
                assert not again() & ours.owned
                if is_cooperative:
                    assert ours.revoked == again()


class JavaMember:
    """A consumer of Kafka's own client, in a process that prints what it owns."""

    def __init__(self, kafka: str, topic: str, strategy: str) -> None:
        program = Path(__file__).parent / "consumer" / "JavaMember.java"
        run = [find_java(), "-cp", f"{kafka_jars()}/*", str(program), kafka, topic, topic, strategy]
        self._topic = topic
        self._process = subprocess.Popen(
            run, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._owned: frozenset[TopicPartition] = frozenset()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def __call__(self) -> frozenset[TopicPartition]:
        """What it owns."""
        return self._owned

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                # The log is on stdout, too.
                if line.startswith("owned"):
                    self._owned = frozenset(
                        TopicPartition(self._topic, int(number)) for number in line.split()[1:]
                    )

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._thread.join()


@contextmanager
def java_member(kafka: str, topic: str, strategy: str) -> Iterator[JavaMember]:
    member = JavaMember(kafka, topic, strategy)
    try:
        yield member
    finally:
        member.close()


async def test_a_static_member_comes_back_to_its_partitions(kafka: str, topic: str) -> None:
    async with joined(kafka, topic, instance_id="till-1") as stays:
        async with joined(kafka, topic, instance_id="till-2") as goes:
            await until(lambda: have_all([stays, goes]))
            owned = goes.owned
            stays.revoked.clear()
        async with joined(kafka, topic, instance_id="till-2") as again:
            await until(lambda: again.owned == owned)
            assert stays.revoked == set()


@pytest.mark.parametrize("name", ["till-1", "till-2"])
async def test_a_static_member_that_comes_back_with_one_more_topic_reads_it(
    kafka: str, topic: str, name: str
) -> None:
    """One of the two is the leader. The coordinator does not rebalance for either."""
    other = f"{topic}-other"
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(other, 1, 1)])
    finally:
        await admin.close()
    (stays_name,) = {"till-1", "till-2"} - {name}
    async with joined(kafka, topic, instance_id=stays_name) as stays:
        async with joined(kafka, topic, instance_id=name) as goes:
            await until(lambda: have_all([stays, goes]))
        async with joined(kafka, topic, instance_id=name, others=[other]) as again:
            await until(lambda: TopicPartition(other, 0) in again.owned)


async def test_the_second_user_of_an_instance_id_takes_the_place_of_the_first(
    kafka: str, topic: str
) -> None:
    async with joined(kafka, topic, instance_id="till-1") as first:
        await until(lambda: have_all([first]))
        async with joined(kafka, topic, instance_id="till-1") as second:
            await until(lambda: have_all([second]))
            await until(lambda: first.owned == frozenset())
            with pytest.raises(FencedError):
                first.membership.raise_errors()


async def test_a_static_leader_notices_partitions_that_came_while_it_was_away(
    kafka: str, topic: str
) -> None:
    async with joined(kafka, topic, instance_id="till-1") as leader:
        await until(lambda: have_all([leader]))
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    try:
        await admin.create_partitions({topic: NewPartitions(PARTITIONS + 2)})
    finally:
        await admin.close()
    async with joined(kafka, topic, instance_id="till-1") as again:
        await until(lambda: len(again.owned) == PARTITIONS + 2)


async def test_the_leader_of_a_group_notices_new_partitions(kafka: str, topic: str) -> None:
    async with joined(kafka, topic) as member:
        await until(lambda: have_all([member]))
        admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
        await admin.start()
        try:
            await admin.create_partitions({topic: NewPartitions(PARTITIONS + 2)})
        finally:
            await admin.close()

        def has_looked() -> bool:
            # It looks every 30 s; here it looks at once.
            member.membership._look_at = 0.0
            member.membership._changed()
            return have_all([member], PARTITIONS + 2)

        await until(has_looked)


async def test_a_member_without_a_common_assignor_says_what_to_set(kafka: str, topic: str) -> None:
    async with joined(kafka, topic, ["range"]) as first:
        await until(lambda: have_all([first]))
        async with joined(kafka, topic, ["sticky"]) as other:
            await until(lambda: other.reader.woken > 0)
            with pytest.raises(
                FatalBrokerError, match=r"INCONSISTENT_GROUP_PROTOCOL.+set assignors"
            ):
                other.membership.raise_errors()
        assert have_all([first])
