"""H4: a late commit overwrites another member's. H5: a commit that never returns."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka.protocol.group import LeaveGroupRequest
from aiokafka.structs import OffsetAndMetadata
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka import Committed, TopicPartition
from reactive_kafka.broker.aiokafka.client_calls import CALL_DEADLINE_S
from reactive_kafka.broker.aiokafka.group_positions import _answer, _identity
from reactive_kafka.broker.aiokafka.kafka_inspector import AiokafkaInspector
from reactive_kafka.broker.aiokafka.offset_requests import codes_in, commit_request
from reactive_kafka.broker.commit_sizes import MOST_STORED_BYTES, split_commit
from reactive_kafka.errors import (
    BrokerError,
    NotOwnerError,
    OutcomeUnknownError,
    TransientBrokerError,
)
from tests.broker.hazards.faults import Rig, ends_within, until
from tests.broker.hazards.naive import consuming
from tests.broker.members import PATIENCE_S, Member, fill, joined
from tests.broker.test_kafka import KafkaTestCluster

COMMIT_API, COORDINATOR_NOT_AVAILABLE, UNKNOWN_MEMBER_ID = 8, 15, 25
MARGIN_S = 1.5


async def stored(cluster: KafkaTestCluster, group: str, partition: TopicPartition) -> int | None:
    """What the group has stored, asked from outside."""
    inspector = AiokafkaInspector({"bootstrap_servers": cluster.bootstrap_servers})
    await inspector.start()
    try:
        known = await inspector.committed(group, [partition])
    finally:
        await inspector.stop()
    return known[partition].offset if partition in known else None


def now() -> float:
    return asyncio.get_running_loop().time()


@asynccontextmanager
async def sharing(
    cluster: KafkaTestCluster,
    topic: str,
    group: str,
    properties: Mapping[str, object] | None = None,
) -> AsyncIterator[Member]:
    """A second member of the group, that has one partition and has committed 10 in it."""
    async with joined(cluster, topic, group, "two", properties=properties) as two:
        [partition] = await two.until_assigned(1)
        await two.consumer.commit({partition: Committed(10)}, two.generation)
        yield two


# -- H4


@pytest.mark.kafka
async def test_h4_naive_commit_that_was_held_up_overwrites_the_next_owner_s_backwards(
    cluster: KafkaTestCluster, group: str
) -> None:
    topic = await cluster.create_topic(2)
    by_hand = {"enable_auto_commit": False, **cluster.properties}
    async with consuming(cluster.bootstrap_servers, topic, group_id=group, **by_hand) as one:
        await until(lambda: len(one.assignment()) == 2, "it has both partitions")
        owned = one.assignment()
        # As another commit holds it, that is being retried.
        async with one._coordinator._commit_lock:
            late = asyncio.ensure_future(one.commit({tp: OffsetAndMetadata(3, "") for tp in owned}))
            assert not await ends_within(late, 0.05)
            async with sharing(cluster, topic, group) as two:
                [foreign] = two.owned
                await until(lambda: len(one.assignment()) == 1, "the first has joined again")
                assert await stored(cluster, group, foreign) == 10
                one._coordinator._commit_lock.release()
                # Accepted.
                await late
                await one._coordinator._commit_lock.acquire()
                assert await stored(cluster, group, foreign) == 3


@pytest.mark.kafka
async def test_h4_a_commit_that_was_held_up_over_a_rebalance_stores_nothing(
    cluster: KafkaTestCluster, group: str
) -> None:
    """Row C5 of the faults."""
    topic = await cluster.create_topic(2)
    async with joined(cluster, topic, group, "one") as one:
        owned = await one.until_assigned(2)
        coordinator: Any = one.consumer.owned.coordinator  # type: ignore[attr-defined]
        member: Any = one.consumer.owned.group.member  # type: ignore[attr-defined]
        # A heartbeat would wait, too, and the member would hear of no rebalance.
        await until(lambda: member.due_at() > now() + 0.1, "no heartbeat is due for a moment")
        # As while the coordinator is looked for.
        async with coordinator._looking_up:
            node, coordinator.node = coordinator.node, None
            late = asyncio.ensure_future(
                one.consumer.commit(dict.fromkeys(owned, Committed(3)), one.generation)
            )
            assert not await ends_within(late, 0.05)
            coordinator.node = node
            async with sharing(cluster, topic, group) as two:
                [foreign] = two.owned
                [kept] = await one.until_assigned(1)
                coordinator._looking_up.release()
                with pytest.raises(NotOwnerError):
                    await late
                await coordinator._looking_up.acquire()
                assert await stored(cluster, group, foreign) == 10
                assert await stored(cluster, group, kept) is None


@pytest.mark.kafka
async def test_h4_naive_broker_accepts_the_commit_of_a_partition_that_another_member_owns(
    cluster: KafkaTestCluster, group: str
) -> None:
    topic = await cluster.create_topic(2)
    async with consuming(
        cluster.bootstrap_servers, topic, group_id=group, **cluster.properties
    ) as one:
        await until(lambda: len(one.assignment()) == 2, "it has both partitions")
        async with sharing(cluster, topic, group) as two:
            [foreign] = two.owned
            await until(lambda: len(one.assignment()) == 1, "the first has joined again")
            await one._coordinator._do_commit_offsets(None, {foreign: OffsetAndMetadata(3, "")})
            assert await stored(cluster, group, foreign) == 3


@pytest.mark.kafka
async def test_h4_of_neither_generation_a_foreign_partition_can_be_committed(
    cluster: KafkaTestCluster, group: str
) -> None:
    topic = await cluster.create_topic(2)
    async with joined(cluster, topic, group, "one") as one:
        await one.until_assigned(2)
        before = one.generation
        async with sharing(cluster, topic, group) as two:
            [foreign] = two.owned
            await one.until_assigned(1)
            assert one.generation > before
            for generation in (before, one.generation):
                with pytest.raises(NotOwnerError):
                    await one.consumer.commit({foreign: Committed(3)}, generation)
            assert await stored(cluster, group, foreign) == 10


@pytest.mark.kafka
async def test_h4_a_broker_compares_the_epoch_of_a_commit_and_not_its_partition(
    cluster: KafkaTestCluster, group: str
) -> None:
    """So what was sent before a partition moved is stored after that, while the epoch is the same.

    The simulation allows this case, and no other.
    """
    topic = await cluster.create_topic(2)
    properties = {"group_protocol": "consumer"}
    async with joined(cluster, topic, group, "one", properties=properties) as one:
        await one.until_assigned(2)
        async with sharing(cluster, topic, group, properties) as two:
            [foreign] = two.owned
            await one.until_assigned(1)
            consumer: Any = one.consumer
            identity = _identity(consumer.owned)
            assert identity.is_epoch
            late = commit_request(group, identity, {foreign: Committed(3)})
            answer = await _answer(consumer.owned.coordinator, late, "commit")
            assert codes_in(answer) == {foreign: 0}
            assert await stored(cluster, group, foreign) == 3
            before = identity._replace(generation_or_epoch=identity.generation_or_epoch - 1)
            late = commit_request(group, before, {foreign: Committed(2)})
            answer = await _answer(consumer.owned.coordinator, late, "commit")
            assert codes_in(answer) != {foreign: 0}
            assert await stored(cluster, group, foreign) == 3


@pytest.mark.kafka
async def test_h4_a_member_that_the_group_has_removed_commits_nothing_while_it_gives_up(
    cluster: KafkaTestCluster, group: str
) -> None:
    """It has no member id any more. A commit without one is taken from anybody while a group has no
    members.
    """
    topic = await cluster.create_topic(1)
    partition = TopicPartition(topic, 0)
    async with joined(cluster, topic, group) as member:
        await member.until_assigned(1)
        refused: list[BrokerError | None] = []

        async def commit() -> None:
            try:
                await member.consumer.commit({partition: Committed(1)}, member.generation)
            except BrokerError as error:
                refused.append(error)
            else:
                refused.append(None)

        member.while_revoked = commit
        consumer: Any = member.consumer
        leaving = LeaveGroupRequest(group, consumer.owned.group.member.member_id)
        # Somebody else says so.
        await consumer.client.send(consumer.owned.coordinator.node, leaving)
        await until(lambda: refused, "it is told that its partition is lost")
        assert isinstance(refused[0], NotOwnerError)
        assert await member.consumer.committed([partition]) == {partition: None}


async def test_h4_a_refused_commit_is_one_request_and_not_tried_again(rig: Rig, group: str) -> None:
    """Rows A2, A7 of the faults."""
    topic = await rig.create_topic(1)
    partition = TopicPartition(topic, 0)
    async with joined(rig, topic, group) as member:
        await member.until_assigned(1)
        rig.broker.answer_with(COMMIT_API, COORDINATOR_NOT_AVAILABLE, times=3)
        for _ in range(3):
            # Kafka answers so also where it has written the commit, and its followers do not
            # confirm that.
            with pytest.raises(OutcomeUnknownError, match="GroupCoordinatorNotAvailableError"):
                await member.consumer.commit({partition: Committed(1)}, member.generation)
        await member.consumer.commit({partition: Committed(1)}, member.generation)
        assert await member.consumer.committed([partition]) == {partition: Committed(1)}


async def test_h4_naive_commit_repeats_itself_for_as_long_as_it_is_refused(
    rig: Rig, group: str
) -> None:
    topic = await rig.create_topic(1)
    async with consuming(
        rig.bootstrap_servers, topic, group_id=group, **rig.properties
    ) as consumer:
        await until(consumer.assignment, "it has its partition")
        [partition] = consumer.assignment()
        rig.broker.answer_with(COMMIT_API, COORDINATOR_NOT_AVAILABLE, times=1000)
        commit = asyncio.ensure_future(consumer.commit({partition: OffsetAndMetadata(1, "")}))
        assert not await ends_within(commit, 1.0)
        rig.broker.heal(COMMIT_API)
        await asyncio.wait_for(commit, 10)


# -- H5


async def test_h5_every_call_has_a_deadline_when_the_broker_does_not_answer(
    rig: Rig, group: str
) -> None:
    topic = await rig.create_topic(1)
    partition = TopicPartition(topic, 0)
    await fill(rig, topic, {0: ["a"]})
    # With a short session a connection that says nothing would be given up earlier (H20).
    async with joined(rig, topic, group, properties={"session_timeout_ms": 30_000}) as member:
        await member.until_assigned(1)
        await member.take(1)
        consumer = member.consumer
        rig.proxy.hold()
        failed = await asyncio.gather(
            *(
                failing(call)
                for call in (
                    lambda: consumer.commit({partition: Committed(1)}, member.generation),
                    lambda: consumer.committed([partition]),
                    lambda: consumer.beginning_offsets([partition]),
                    lambda: consumer.end_offsets([partition]),
                    lambda: consumer.topics(),
                )
            )
        )
        # Not before: that a fetch was answered a moment ago is enough for it. It may find the
        # connection given up.
        unchecked, check_took = await failing(consumer.check)
        rig.proxy.release()
        errors = [unchecked, *(error for error, _ in failed)]
        assert all(isinstance(error, TransientBrokerError) for error in errors), errors
        # It may have been stored.
        assert isinstance(failed[0][0], OutcomeUnknownError)
        assert [round(took - CALL_DEADLINE_S) for _, took in failed] == [0] * 5
        assert check_took < CALL_DEADLINE_S + 0.5
        await member.poll_until(lambda poll: True, {})
        await consumer.check()


async def test_h5_naive_commit_goes_on_with_the_broker_gone_while_ours_fails_in_time(
    rig: Rig, group: str
) -> None:
    topic = await rig.create_topic(1)
    partition = TopicPartition(topic, 0)
    async with (
        consuming(
            rig.bootstrap_servers, topic, group_id=f"{group}-naive", **rig.properties
        ) as naive,
        joined(rig, topic, group) as member,
    ):
        await until(naive.assignment, "it has its partition")
        await member.until_assigned(1)
        rig.broker.go_down()
        naive_commit = asyncio.ensure_future(
            naive.commit({tp: OffsetAndMetadata(1, "") for tp in naive.assignment()})
        )
        # The first finds the connection broken, the second looks for a coordinator.
        for _ in range(2):
            error, took = await failing(
                lambda: member.consumer.commit({partition: Committed(1)}, member.generation)
            )
            assert isinstance(error, TransientBrokerError)
            assert took < CALL_DEADLINE_S + MARGIN_S
        assert not naive_commit.done()
        naive_commit.cancel()
        await asyncio.wait([naive_commit])
        rig.broker.come_up()
        await until_stored(member, partition)


async def until_stored(member: Member, partition: TopicPartition) -> None:
    """Commit again and again, as the committer does, until it is stored."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                await member.consumer.commit({partition: Committed(1)}, member.generation)
            except BrokerError:
                await asyncio.sleep(0.1)
                continue
            break
    assert await member.consumer.committed([partition]) == {partition: Committed(1)}


async def failing(call: Callable[[], Awaitable[object]]) -> tuple[BrokerError, float]:
    """What a call raises, and after how many seconds."""
    began = time.monotonic()
    with pytest.raises(BrokerError) as caught:
        await call()
    return caught.value, time.monotonic() - began


# -- many positions: the broker stores those of a request as one batch, which may be too large


@pytest.mark.kafka
async def test_positions_of_many_partitions_are_stored_with_their_strings_in_as_many_requests_as_it_takes(
    cluster: KafkaTestCluster, group: str
) -> None:
    topic = await cluster.create_topic(300)
    wanted = {TopicPartition(topic, number): Committed(number, "m" * 4096) for number in range(300)}
    async with joined(cluster, topic, group) as member:
        await member.until_assigned(300)
        await member.consumer.commit(wanted, member.generation)
        assert await member.consumer.committed(list(wanted)) == wanted
    inspector = AiokafkaInspector({"bootstrap_servers": cluster.bootstrap_servers})
    await inspector.start()
    try:
        await inspector.commit(group + "-2", wanted)
        assert await inspector.committed(group + "-2", list(wanted)) == wanted
    finally:
        await inspector.stop()


async def test_where_a_part_was_stored_the_outcome_is_unknown_even_if_the_rest_was_not_ours_any_more(
    rig: Rig, group: str
) -> None:
    topic = await rig.create_topic(300)
    async with joined(rig, topic, group) as member:
        wanted = dict.fromkeys(await member.until_assigned(300), Committed(1, "m" * 4096))
        rig.broker.answer_with(COMMIT_API, 0, 1)
        rig.broker.answer_with(COMMIT_API, UNKNOWN_MEMBER_ID, 2)
        # So that a string which was stored is known again.
        with pytest.raises(OutcomeUnknownError):
            await member.consumer.commit(wanted, member.generation)
        # Of the first part: nothing was stored.
        with pytest.raises(NotOwnerError):
            await member.consumer.commit(wanted, member.generation)


@given(
    st.dictionaries(
        st.integers(0, 400), st.sampled_from(["", "short", "m" * 4096, "\u20ac" * 4096]), min_size=1
    )
)
def test_each_position_is_in_one_of_the_requests_and_the_longest_strings_are_in_the_first(
    texts: dict[int, str],
) -> None:
    offsets = {
        TopicPartition("orders", number): Committed(number, text) for number, text in texts.items()
    }
    parts = split_commit("billing", offsets)
    assert sum(map(len, parts)) == len(offsets)
    assert {one: at for part in parts for one, at in part.items()} == offsets
    assert all(
        sum(len(at.metadata.encode()) for at in part.values()) <= MOST_STORED_BYTES
        for part in parts
    )
    longest = [max(len(at.metadata) for at in part.values()) for part in parts]
    assert longest == sorted(longest, reverse=True)
    if len(offsets) < 60:
        assert len(parts) == 1
