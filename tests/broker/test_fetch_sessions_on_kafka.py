"""Fetch sessions on a real Kafka: what its answers leave out, and that nothing is lost where it has
let go of one.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import Any

import pytest
from aiokafka.admin import NewTopic
from aiokafka.client import AIOKafkaClient, ConnectionGroup
from aiokafka.protocol.fetch import FetchRequest

from reactive_kafka import TopicPartition
from reactive_kafka.broker.consumer.fetching import fetch_plan
from reactive_kafka.broker.consumer.fetching.fetch_size import SMALL as SMALL_PORTION
from reactive_kafka.broker.consumer.fetching.node_fetch import NodeFetch, PreparedFetch
from reactive_kafka.broker.consumer.fetching.prefetch import FULL
from reactive_kafka.broker.consumer.fetching.response_decoding import FetchAnswer
from tests.broker.contract import group
from tests.broker.hazards.faults import until
from tests.broker.members import PATIENCE_S, Member, fill, joined
from tests.broker.test_kafka import KafkaTestCluster, cluster
from tests.broker.test_reach_on_kafka import admin
from tests.harness.kafka import KafkaCluster

__all__ = ["cluster", "group"]

pytestmark = pytest.mark.kafka

ID_NOT_FOUND, INVALID_EPOCH = 70, 71


class Fetches:
    """What a consumer's fetches were answered with, as far as its fetcher is told."""

    def __init__(self, consumer: Any) -> None:
        self._client = consumer.client
        self.answers: list[FetchAnswer] = []
        # Fetches that were to wait for nothing.
        self.hurried = 0
        answers = consumer.fetcher.answers
        take = answers.take

        def keeps(fetch: NodeFetch, answer: FetchAnswer, now: float) -> Any:
            self.answers.append(answer)
            self.hurried += not fetch.limits.max_wait_ms
            return take(fetch, answer, now)

        answers.take = keeps

    @property
    def codes(self) -> set[int]:
        return {answer.error_code for answer in self.answers}

    @property
    def sessions(self) -> list[int]:
        """The sessions of the answers, one after the other."""
        found = [answer.session_id for answer in self.answers if not answer.error_code]
        return [one for at, one in enumerate(found) if not at or found[at - 1] != one]

    def named_since(self, count: int) -> set[int]:
        """The partitions that were told of in the answers behind the first *count*."""
        told = self.answers[count:]
        return {row.partition.partition for answer in told for row in answer.partitions}

    def under_way(self) -> list[Any]:
        """The fetches that are not answered."""
        nodes = self._client.connected_nodes()
        found = [self._client.connection(node, ConnectionGroup.DEFAULT) for node in nodes]
        return [
            sent.request
            for one in found
            for sent in one.unanswered
            if isinstance(sent.request, PreparedFetch)
        ]

    def held(self) -> set[int]:
        """The partitions that the broker looks for, with a fetch that is not answered."""
        return {number for asked in self.under_way() for _, number, *_ in asked.session._known}


async def in_session(member: Member) -> Fetches:
    """Poll until its consumer is in a session whose fetches bring nothing."""
    fetches = Fetches(member.consumer)
    async with asyncio.timeout(PATIENCE_S):
        while not (
            fetches.answers
            and fetches.answers[-1].session_id
            and not fetches.answers[-1].partitions
        ):
            await member.consumer.poll(dict.fromkeys(member.owned, 10), 0.2)
    return fetches


def values(taken: dict[TopicPartition, list[Any]]) -> dict[int, list[bytes]]:
    return {
        partition.partition: [record.value for record in records]
        for partition, records in taken.items()
    }


async def test_answers_have_only_partitions_of_which_there_is_something_to_say(
    cluster: KafkaTestCluster, group: str
) -> None:
    topic = await cluster.create_topic(20)
    async with joined(cluster, topic, group) as member:
        await member.until_assigned(20)
        fetches = await in_session(member)
        for written in ({3: ["a"]}, {7: ["b"], 8: ["c", "d"]}, {3: ["e"], 19: ["f"]}):
            before = len(fetches.answers)
            await fill(cluster, topic, written)
            taken = await member.take(sum(map(len, written.values())))
            assert values(taken) == {
                one: [value.encode() for value in given] for one, given in written.items()
            }
            assert fetches.named_since(before) == set(written)
        assert len(fetches.sessions) == 1


async def test_what_is_paused_is_forgotten_and_what_is_resumed_or_sought_is_read(
    cluster: KafkaTestCluster, group: str
) -> None:
    topic = await cluster.create_topic(3)
    one, other, third = (TopicPartition(topic, number) for number in range(3))
    async with joined(cluster, topic, group) as member:
        await member.until_assigned(3)
        fetches = await in_session(member)
        member.consumer.pause([other])
        await fill(cluster, topic, {2: ["x"]})
        await member.take(1)
        await until(lambda: fetches.held() == {0, 2}, "it is forgotten")
        before = len(fetches.answers)
        await fill(cluster, topic, {0: ["a"], 1: ["b"]})
        assert values(await member.take(1)) == {0: [b"a"]}
        assert fetches.named_since(before) == {0}
        member.consumer.resume([other])
        assert values(await member.take(1)) == {1: [b"b"]}
        assert len(fetches.sessions) == 1
        member.consumer.start_at({one: 0, other: 0, third: 0})
        assert values(await member.take(3)) == {0: [b"a"], 1: [b"b"], 2: [b"x"]}
        # Everything was told anew.
        assert len(fetches.sessions) == 2
        assert fetches.codes == {0}


async def test_the_ends_of_logs_stand_where_answers_leave_them_out(
    cluster: KafkaTestCluster, group: str
) -> None:
    topic = await cluster.create_topic(2)
    await fill(cluster, topic, {0: ["a", "b", "c"], 1: ["d", "e"]})

    def ends(member: Member) -> dict[int, int | None]:
        states = member.consumer._reads.states  # type: ignore[attr-defined]
        return {one.partition: state.end(read_committed=False) for one, state in states.items()}

    async with joined(cluster, topic, group) as member:
        await member.until_assigned(2)
        await member.take(5)
        fetches = await in_session(member)
        before = len(fetches.answers)
        await fill(cluster, topic, {0: ["f"]})
        await member.take(1)
        assert fetches.named_since(before) == {0}
        assert ends(member) == {0: 4, 1: 2}
        await member.consumer.check()
        # The states of all partitions are new then.
        async with joined(cluster, topic, group, "other") as other:
            poll = asyncio.create_task(member.poll_until(lambda poll: len(member.owned) == 1, {}))
            await other.until_assigned(1)
            await poll
        await member.poll_until(lambda poll: len(member.owned) == 2, {})
        # Nothing is left to read.
        member.consumer.start_at({TopicPartition(topic, 0): 4, TopicPartition(topic, 1): 2})
        await member.poll_until(
            lambda poll: ends(member) == {0: 4, 1: 2}, dict.fromkeys(member.owned, 9)
        )


@pytest.mark.parametrize("code", [ID_NOT_FOUND, INVALID_EPOCH])
async def test_a_session_that_the_broker_has_let_go_of_is_followed_by_another(
    cluster: KafkaTestCluster, group: str, code: int
) -> None:
    topic = await cluster.create_topic(4)
    async with joined(cluster, topic, group) as member:
        await member.until_assigned(4)
        fetches = await in_session(member)
        await fill(cluster, topic, {0: ["a"]})
        await member.take(1)
        stranger = AIOKafkaClient(bootstrap_servers=cluster.bootstrap_servers)
        await stranger.bootstrap()
        try:
            error = -1
            # It is too late where the consumer has asked again meanwhile.
            while error:
                (asked,) = fetches.under_way()
                epoch = 0 if code == ID_NOT_FOUND else asked.session._epoch + 1
                error = await takes(
                    stranger, fetches.sessions[-1], epoch, topic if code == ID_NOT_FOUND else ""
                )
        finally:
            await stranger.close()
        await fill(cluster, topic, {number: ["x", "y"] for number in range(4)})
        assert values(await member.take(8)) == {number: [b"x", b"y"] for number in range(4)}
        # What is under way when the session goes is answered still.
        poll = await member.poll_until(
            lambda poll: len(fetches.sessions) == 2, dict.fromkeys(member.owned, 9)
        )
        assert not poll.chunks
        assert code in fetches.codes
        await fill(cluster, topic, {3: ["z"]})
        assert values(await member.take(1)) == {3: [b"z"]}


async def takes(stranger: AIOKafkaClient, session_id: int, epoch: int, topic: str) -> int:
    """Ask under another's session: as all of it, which closes it, or as its next fetch; returns the
    error.
    """
    (node,) = (broker.nodeId for broker in stranger.cluster.brokers())
    topics = [(topic, [(0, -1, 0, -1, 1 << 20)])] if topic else []
    request: Any = FetchRequest(1, 0, 1 << 20, 0, [])
    request.build = lambda kind: kind(-1, 1, 0, 1 << 20, 0, session_id, epoch, topics, [], "")
    answer = await stranger.send(node, request)
    return int(answer.error_code)


async def test_without_room_for_sessions_everything_is_read(group: str) -> None:
    with KafkaCluster(properties={"max.incremental.fetch.session.cache.slots": "0"}) as kafka:
        topic = f"orders-{uuid.uuid4().hex[:8]}"
        async with admin(kafka.bootstrap_servers) as client:
            await client.create_topics([NewTopic(topic, 3, 1)])
            crowded = KafkaTestCluster(kafka.bootstrap_servers, client)
            async with joined(crowded, topic, group) as member:
                await member.until_assigned(3)
                fetches = Fetches(member.consumer)
                for round in range(3):
                    await fill(crowded, topic, {0: ["a"], 1: ["b"], 2: ["c"]})
                    assert values(await member.take(3)) == {0: [b"a"], 1: [b"b"], 2: [b"c"]}, round
                # It stands.
                assert await member.polls_nothing(dict.fromkeys(member.owned, 9), 3)
                assert fetches.sessions == [0]


async def test_a_rebalance_takes_partitions_out_of_a_session_and_brings_others_in(
    cluster: KafkaTestCluster, group: str
) -> None:
    topic = await cluster.create_topic(4)
    async with joined(cluster, topic, group) as one:
        await one.until_assigned(4)
        fetches = await in_session(one)
        async with joined(cluster, topic, group, "other") as other:
            poll = asyncio.create_task(one.poll_until(lambda poll: len(one.owned) == 2, {}))
            await other.until_assigned(2)
            await poll
            before = len(fetches.answers)
            await fill(cluster, topic, {number: ["a"] for number in range(4)})
            taken = [values(await member.take(2)) for member in (one, other)]
            assert {**taken[0], **taken[1]} == {number: [b"a"] for number in range(4)}
            assert fetches.named_since(before) == set(taken[0])
        await one.poll_until(lambda poll: len(one.owned) == 4, {})
        await fill(cluster, topic, {number: ["b"] for number in range(4)})
        # Nobody has committed: those of the other are read from their beginning.
        seen = values(await one.take(6))
        assert {values[-1] for values in seen.values()} == {b"b"}
        assert fetches.codes == {0}


SMALL = {"fetch_max_bytes": 200_000, "max_partition_fetch_bytes": 50_000}
"""An answer has four partitions' records."""


async def read_all(member: Member, wanted: dict[int, list[bytes]], pause_s: float = 0) -> None:
    """Take it all in small bites, and check that it comes in its order, and once."""
    seen: dict[int, list[bytes]] = {}
    async with asyncio.timeout(30):
        while sum(map(len, seen.values())) < sum(map(len, wanted.values())):
            for number, some in values(
                await member.take(1, dict.fromkeys(member.owned, 5))
            ).items():
                seen.setdefault(number, []).extend(some)
            # As a channel does.
            await asyncio.sleep(pause_s)
    assert seen == wanted
    assert await member.polls_nothing(dict.fromkeys(member.owned, 9))


async def backlog(
    cluster: KafkaTestCluster, topic: str, partitions: int, records: int = 200, size: int = 900
) -> dict[int, list[bytes]]:
    texts = {
        number: [f"{number}-{at}".ljust(size, ".") for at in range(records)]
        for number in range(partitions)
    }
    await fill(cluster, topic, texts)
    return {number: [text.encode() for text in given] for number, given in texts.items()}


async def test_the_next_fetch_comes_while_the_last_of_the_one_before_is_read(
    cluster: KafkaTestCluster, group: str
) -> None:
    topic = await cluster.create_topic(20)
    wanted = await backlog(cluster, topic, 20)
    async with joined(cluster, topic, group, properties=SMALL) as member:
        await member.until_assigned(20)
        fetches = Fetches(member.consumer)
        await read_all(member, wanted)
        assert fetches.hurried > 3
        assert fetches.codes == {0}


async def test_partitions_that_are_wanted_do_not_wait_for_what_came_of_others(
    cluster: KafkaTestCluster, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # How old what it holds is before it asks again.
    monkeypatch.setattr(fetch_plan, "HELD_S", 60.0)
    topic = await cluster.create_topic(20)
    await backlog(cluster, topic, 20)
    async with joined(cluster, topic, group, properties=SMALL) as member:
        await member.until_assigned(20)
        seen = set[TopicPartition]()
        while seen < member.owned:
            seen |= (await member.take(1, dict.fromkeys(member.owned - seen, 1))).keys()


async def test_while_polls_get_what_they_want_and_much_is_held_no_more_is_fetched(
    cluster: KafkaTestCluster, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_plan, "HELD_S", 60.0)
    topic = await cluster.create_topic(20)
    # Batches, of which a fetch brings four: what of one is left nobody counts.
    for _ in range(5):
        await backlog(cluster, topic, 20, 12)
    async with joined(cluster, topic, group, properties=SMALL) as member:
        await member.until_assigned(20)
        fetches, taken = Fetches(member.consumer), 0
        while taken < 30:
            taken += len(
                (await member.consumer.poll(dict.fromkeys(member.owned, 1), 5.0, 1)).chunks
            )
            # More than a fetch takes that is not to wait.
            await asyncio.sleep(0.02)
        (answer,) = fetches.answers
        assert sum(len(row.content) for row in answer.partitions) > FULL * 200_000


async def test_a_partition_with_a_backlog_does_not_wait_for_many_that_have_nothing(
    cluster: KafkaTestCluster, group: str
) -> None:
    topic = await cluster.create_topic(20)
    wanted = [await backlog(cluster, topic, 1) for _ in range(4)]
    async with joined(
        cluster, topic, group, properties={**SMALL, "fetch_max_wait_ms": 5_000}
    ) as member:
        await member.until_assigned(20)
        fetches = Fetches(member.consumer)
        began = time.monotonic()
        await read_all(member, {0: [value for one in wanted for value in one[0]]}, 0.001)
        assert time.monotonic() - began < 5, "a fetch has waited for what nobody writes"
        assert fetches.hurried > 0


@pytest.mark.parametrize(
    ("batches", "records", "size"), [(24, 16, 900), (4, 1, 90_000), (2, 1, 180_000)]
)
async def test_of_many_partitions_with_a_backlog_little_is_held_of_each(
    cluster: KafkaTestCluster, group: str, batches: int, records: int, size: int
) -> None:
    topic, wanted = await cluster.create_topic(40), dict[int, list[bytes]]()
    for _ in range(batches):
        for number, some in (await backlog(cluster, topic, 40, records, size)).items():
            wanted.setdefault(number, []).extend(some)
    async with joined(cluster, topic, group, properties={"fetch_max_bytes": 500_000}) as member:
        await member.until_assigned(40)
        fetches = Fetches(member.consumer)
        held = member.consumer._reads.held  # type: ignore[attr-defined]
        async with asyncio.timeout(30):
            while len(held) < 40:
                await member.consumer.poll({}, 0.1)
        held_bytes = sum(state.piece.size for state in held.values())
        # All of it is 14 MB.
        assert held_bytes < 2_500_000 + 40 * max(SMALL_PORTION, records * size + 1_000)
        # Where batches do not fit in portions, each partition needs one of its own.
        assert len(fetches.answers) < 30
        await read_all(member, wanted)
