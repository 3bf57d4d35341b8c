"""What every Consumer and Inspector must do beyond one group and one topic; see
:mod:`tests.broker.contract`.
"""

from __future__ import annotations

import asyncio
import uuid

import pytest

from reactive_kafka import Committed, TopicPartition
from reactive_kafka.errors import (
    BrokerError,
    FatalBrokerError,
    MetadataTooLargeError,
    NotOwnerError,
    TransientBrokerError,
)
from reactive_kafka.subscription import Partitions, Topics
from tests.broker.contract import LETTERS, PROMPTLY_S
from tests.broker.members import (
    PATIENCE_S,
    Cluster,
    GrowingCluster,
    Member,
    fill,
    inspecting,
    joined,
    producing,
    texts,
    until_committed,
)

SOON = {"metadata_max_age_ms": 300}
"""A client that looks often for new topics."""

EVERY_100_MS = {"enable_auto_commit": True, "auto_commit_interval_ms": 100}
NEVER_BY_ITSELF = {"enable_auto_commit": True, "auto_commit_interval_ms": 3_600_000}


class StaticContract:
    """Partitions named, no group joined."""

    async def test_named_partitions_come_by_themselves_and_are_never_revoked(
        self, cluster: Cluster, group: str
    ) -> None:
        topic = await cluster.create_topic(3)
        first, last = TopicPartition(topic, 0), TopicPartition(topic, 2)
        await fill(cluster, topic, {0: ["a"], 1: ["b"], 2: ["c"]})
        async with joined(cluster, None, group, partitions=[first, last]) as member:
            assert await member.until_assigned(2) == {first, last}
            taken = await member.take(2)
            assert {partition: texts(records) for partition, records in taken.items()} == {
                first: ["a"],
                last: ["c"],
            }
            assert await member.polls_nothing(dict.fromkeys(member.owned, 9))
        assert member.events == [("assigned", frozenset({first, last}))]
        assert member.generation == 0

    async def test_its_commits_are_stored_in_the_group(self, cluster: Cluster, group: str) -> None:
        topic = await cluster.create_topic(2)
        partition = TopicPartition(topic, 1)
        await fill(cluster, topic, {1: LETTERS})
        async with joined(cluster, None, group, partitions=[partition]) as member:
            await member.until_assigned(1)
            await member.consumer.commit({partition: Committed(7, "note")}, 0)
            assert await member.consumer.committed([partition]) == {partition: Committed(7, "note")}
        async with joined(cluster, None, group, partitions=[partition]) as next_member:
            await next_member.until_assigned(1)
            assert texts((await next_member.take(3))[partition]) == LETTERS[7:]

    async def test_a_commit_for_another_partition_or_generation_stores_nothing(
        self, cluster: Cluster, group: str
    ) -> None:
        topic = await cluster.create_topic(2)
        ours, foreign = TopicPartition(topic, 0), TopicPartition(topic, 1)
        async with joined(cluster, None, group, partitions=[ours]) as member:
            await member.until_assigned(1)
            with pytest.raises(NotOwnerError):
                await member.consumer.commit({ours: Committed(1), foreign: Committed(1)}, 0)
            for generation in (-1, 1):
                with pytest.raises(NotOwnerError):
                    await member.consumer.commit({ours: Committed(1)}, generation)
            assert await member.consumer.committed([ours, foreign]) == {ours: None, foreign: None}

    async def test_without_a_group_it_reads_and_has_no_committed_positions(
        self, cluster: Cluster
    ) -> None:
        topic = await cluster.create_topic(1)
        partition = TopicPartition(topic, 0)
        await fill(cluster, topic, {0: LETTERS})
        async with joined(cluster, None, None, partitions=[partition]) as member:
            await member.until_assigned(1)
            assert texts((await member.take(10))[partition]) == LETTERS
            with pytest.raises(FatalBrokerError, match="group_id"):
                await member.consumer.commit({partition: Committed(1)}, 0)
            with pytest.raises(FatalBrokerError, match="group_id"):
                await member.consumer.committed([partition])
            await member.consumer.check()

    async def test_whole_topics_need_a_group(self, cluster: Cluster) -> None:
        with pytest.raises(ValueError, match="group_id"):
            cluster.connector.consumer(
                name="one", subscription=Topics(("t",)), group_id=None, properties={}
            )

    async def test_it_is_paused_resumed_and_sought_as_a_member_s_are(
        self, cluster: Cluster, group: str
    ) -> None:
        topic = await cluster.create_topic(2)
        first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
        await fill(cluster, topic, {0: LETTERS, 1: LETTERS})
        async with joined(
            cluster, None, group, partitions=[first, second], starts_by_itself=False
        ) as member:
            await member.until_assigned(2)
            everything = {first: 99, second: 99}
            assert await member.polls_nothing(everything)
            member.consumer.start_at({first: 8, second: 0})
            member.consumer.pause([second])
            assert (await member.take(2, everything)).keys() == {first}
            assert await member.polls_nothing(everything)
            member.consumer.start_at({first: 9})
            member.consumer.resume([second])
            taken = await member.take(11, everything)
            assert (texts(taken[first]), texts(taken[second])) == (LETTERS[9:], LETTERS)
            with pytest.raises(NotOwnerError):
                member.consumer.start_at({TopicPartition(topic, 7): 0})

    async def test_a_partition_that_does_not_exist_is_silent_and_the_others_flow(
        self, cluster: Cluster, group: str
    ) -> None:
        topic = await cluster.create_topic(1)
        there, missing = TopicPartition(topic, 0), TopicPartition(topic, 7)
        await fill(cluster, topic, {0: LETTERS})
        async with joined(
            cluster, None, group, partitions=[there, missing], starts_by_itself=False
        ) as member:
            await member.until_assigned(2)
            for ask in (
                member.consumer.beginning_offsets([there, missing]),
                member.consumer.end_offsets([there, missing]),
                member.consumer.offsets_for_times({there: 0, missing: 0}),
            ):
                async with asyncio.timeout(PROMPTLY_S):
                    with pytest.raises(TransientBrokerError, match=f"{missing}"):
                        await ask
            assert (await member.consumer.topics())[topic] == [there]
            member.consumer.start_at({there: 0, missing: 0})
            assert texts((await member.take(10, {there: 99, missing: 99}))[there]) == LETTERS
            assert await member.polls_nothing({there: 99, missing: 99})

    async def test_stop_ends_an_assignment_that_its_listener_holds_up(
        self, cluster: Cluster, group: str
    ) -> None:
        topic = await cluster.create_topic(1)
        consumer = cluster.connector.consumer(
            name="one",
            subscription=Partitions((TopicPartition(topic, 0),)),
            group_id=group,
            properties=cluster.properties,
        )
        listener = Hanging(consumer)
        before = asyncio.all_tasks()
        await consumer.start(listener)
        async with asyncio.timeout(PROMPTLY_S):
            await listener.is_hanging.wait()
            await consumer.stop()
        assert asyncio.all_tasks() <= before
        assert listener.was_cancelled

    async def test_what_its_listener_raises_comes_out_of_the_next_poll(
        self, cluster: Cluster, group: str
    ) -> None:
        topic = await cluster.create_topic(1)
        consumer = cluster.connector.consumer(
            name="one",
            subscription=Partitions((TopicPartition(topic, 0),)),
            group_id=group,
            properties=cluster.properties,
        )
        try:
            await consumer.start(Failing(consumer))
            with pytest.raises(ZeroDivisionError):
                await Member(consumer).poll_until(lambda poll: False, {})
        finally:
            await consumer.stop()


class WholeTopicContract:
    """All partitions of a topic, no group joined."""

    async def test_all_partitions_come_by_themselves_and_new_ones_alone_once_it_has_looked(
        self, cluster: GrowingCluster, group: str
    ) -> None:
        topic, other = await cluster.create_topic(2), await cluster.create_topic(2)
        first, second, third = (TopicPartition(topic, number) for number in range(3))
        named = TopicPartition(other, 1)
        await fill(cluster, topic, {0: ["a", "b"], 1: ["c"]})
        async with joined(cluster, None, group, partitions=[named], whole=(topic,)) as member:
            assert await member.until_assigned(3) == {first, second, named}
            taken = await member.take(1, {first: 1})
            assert texts(taken[first]) == ["a"]
            await member.consumer.check()
            assert len(member.events) == 1
            member.consumer.pause([second])
            await cluster.grow(topic, 3)
            await fill(cluster, topic, {2: ["d"]})
            async with asyncio.timeout(PATIENCE_S):
                while len(member.owned) < 4:
                    await member.consumer.check()
                    await asyncio.sleep(0.1)
            assert member.events == [("assigned", {first, second, named}), ("assigned", {third})]
            # Where it stood in the others, and what it has paused, is what it was.
            taken = await member.take(2, dict.fromkeys(member.owned, 9))
            assert {one: texts(records) for one, records in taken.items()} == {
                first: ["b"],
                third: ["d"],
            }
            await member.consumer.commit({first: Committed(2), third: Committed(1)}, 0)
            member.consumer.resume([second])
            assert texts((await member.take(1, dict.fromkeys(member.owned, 9)))[second]) == ["c"]

    async def test_a_whole_topic_that_does_not_exist_yet_comes_when_it_does(
        self, cluster: GrowingCluster, group: str
    ) -> None:
        topic = f"later-{uuid.uuid4().hex[:8]}"
        async with joined(cluster, None, group, whole=(topic,)) as member:
            await member.until(lambda: bool(member.events))
            await fill(cluster, topic, {0: ["a"]})
            async with asyncio.timeout(PATIENCE_S):
                while not member.owned:
                    await member.consumer.check()
                    await asyncio.sleep(0.1)
            assert texts((await member.take(1))[TopicPartition(topic, 0)]) == ["a"]


class Hanging(Member):
    """Never comes back from an assignment."""

    was_cancelled = False

    async def on_assigned(self, partitions: frozenset[TopicPartition], generation: int) -> None:
        self.is_hanging.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.was_cancelled = True

    @property
    def is_hanging(self) -> asyncio.Event:
        return self._changed


class Failing(Member):
    """Raises at an assignment."""

    async def on_assigned(self, partitions: frozenset[TopicPartition], generation: int) -> None:
        raise ZeroDivisionError


class PatternContract:
    """All topics whose names fit."""

    async def test_a_pattern_means_whole_names(self, cluster: Cluster, group: str) -> None:
        prefix = f"p{uuid.uuid4().hex[:8]}"
        [one, two] = [await cluster.create_topic(2, prefix), await cluster.create_topic(1, prefix)]
        for other in (f"x-{prefix}", f"{prefix}-a"):
            await cluster.create_topic(1, other)
        async with joined(
            cluster, None, group, pattern=f"{prefix}-[^-]*", properties=SOON
        ) as member:
            owned = await member.until_assigned(3)
        assert owned == {TopicPartition(one, 0), TopicPartition(one, 1), TopicPartition(two, 0)}

    async def test_alternatives_and_flags_work_and_the_broker_s_own_topics_are_never_meant(
        self, cluster: Cluster, group: str
    ) -> None:
        prefix = f"p{uuid.uuid4().hex[:8]}"
        topic = await cluster.create_topic(1, prefix)
        await cluster.create_topic(1, f"__{prefix}")
        pattern = f"(?i)__.*|{prefix.upper()}-.*"
        async with joined(cluster, None, group, pattern=pattern, properties=SOON) as member:
            assert await member.until_assigned(1) == {TopicPartition(topic, 0)}

    async def test_a_pattern_that_fits_nothing_yet_waits_for_the_first_topic(
        self, cluster: Cluster, group: str
    ) -> None:
        prefix = f"p{uuid.uuid4().hex[:8]}"
        async with joined(cluster, None, group, pattern=f"{prefix}-.*", properties=SOON) as member:
            await member.until(lambda: ("assigned", frozenset()) in member.events)
            topic = await cluster.create_topic(1, prefix)
            assert await member.until_assigned(1) == {TopicPartition(topic, 0)}

    async def test_asking_about_another_topic_does_not_narrow_a_pattern(
        self, cluster: Cluster, group: str
    ) -> None:
        prefix = f"p{uuid.uuid4().hex[:8]}"
        await cluster.create_topic(1, prefix)
        await cluster.create_topic(1, prefix)
        properties = {"metadata_max_age_ms": 3_600_000}
        async with joined(
            cluster, None, group, pattern=f"{prefix}-.*", properties=properties
        ) as member:
            await member.until_assigned(2)
            # A coordinator that hears of the second topic a moment later assigns it afterwards.
            joined_with = [event for event in member.events if event[1]]
            other = await cluster.create_topic(1)
            await member.consumer.end_offsets([TopicPartition(other, 0)])
            await member.consumer.check()
            await member.polls_nothing({})
            assert len(member.owned) == 2
            assert [event for event in member.events if event[1]] == joined_with


class EagerPatternContract(PatternContract):
    """A new topic takes all partitions from all members."""

    async def test_a_topic_that_appears_later_is_read_and_the_commit_before_it_is_stored(
        self, cluster: Cluster, group: str
    ) -> None:
        """Row C13 of the faults."""
        prefix = f"p{uuid.uuid4().hex[:8]}"
        first = await cluster.create_topic(1, prefix)
        await fill(cluster, first, {0: LETTERS})
        async with joined(cluster, None, group, pattern=f"{prefix}-.*", properties=SOON) as member:
            await member.until_assigned(1)
            await member.take(10)

            async def commit() -> None:
                await member.consumer.commit(
                    dict.fromkeys(member.owned, Committed(6)), member.generation
                )

            member.while_revoked = commit
            second = await cluster.create_topic(1, prefix)
            await fill(cluster, second, {0: ["new"]})
            owned = await member.until_assigned(2)
            taken = await member.take(5)
            assert owned == {TopicPartition(first, 0), TopicPartition(second, 0)}
            assert texts(taken[TopicPartition(first, 0)]) == LETTERS[6:]
            assert texts(taken[TopicPartition(second, 0)]) == ["new"]


class TimesContract:
    """Offsets by time."""

    async def test_the_first_record_at_or_after_a_time_is_found(
        self, cluster: Cluster, group: str
    ) -> None:
        topic = await cluster.create_topic(2)
        full, empty = TopicPartition(topic, 0), TopicPartition(topic, 1)
        async with producing(cluster) as producer:
            for time_ms in (1_000_000, 2_000_000, 3_000_000):
                await (await producer.send(topic, b"x", partition=0, timestamp_ms=time_ms))
        async with joined(cluster, topic, group) as member, inspecting(cluster) as inspector:
            await member.until_assigned(2)
            for ask in (member.consumer.offsets_for_times, inspector.offsets_for_times):
                for time_ms, offset in (
                    (-5, 0),
                    (0, 0),
                    (1_000_000, 0),
                    (1_000_001, 1),
                    (3_000_000, 2),
                    (3_000_001, None),
                ):
                    assert await ask({full: time_ms, empty: time_ms}) == {full: offset, empty: None}
                assert await ask({}) == {}
            await cluster.delete_records(full, 2)
            assert await inspector.beginning_offsets([full, empty]) == {full: 2, empty: 0}
            assert await inspector.beginning_offsets([]) == {}


class AutoCommitContract:
    """The client commits by itself."""

    async def test_positions_of_what_polls_handed_out_are_committed_every_interval(
        self, cluster: Cluster, group: str
    ) -> None:
        topic = await cluster.create_topic(2)
        first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
        await fill(cluster, topic, {0: LETTERS, 1: LETTERS})
        async with joined(
            cluster, topic, group, properties=EVERY_100_MS, starts_by_itself=False
        ) as member:
            await member.until_assigned(2)
            # The other one has not begun, so nothing of it is committed.
            member.consumer.start_at({first: 2})
            await member.take(3, {first: 3})
            await until_committed(cluster, group, {first: 5})
            await member.take(1, {first: 1})
            await until_committed(cluster, group, {first: 6})
            member.consumer.start_at({second: 4})
            await until_committed(cluster, group, {first: 6, second: 4})

    async def test_stop_commits_a_last_time(self, cluster: Cluster, group: str) -> None:
        topic = await cluster.create_topic(1)
        partition = TopicPartition(topic, 0)
        await fill(cluster, topic, {0: LETTERS})
        before = asyncio.all_tasks()
        async with joined(cluster, topic, group, properties=NEVER_BY_ITSELF) as member:
            await member.until_assigned(1)
            await member.take(4, {partition: 4})
        assert asyncio.all_tasks() <= before
        await until_committed(cluster, group, {partition: 4})

    async def test_named_partitions_are_committed_too(self, cluster: Cluster, group: str) -> None:
        topic = await cluster.create_topic(1)
        partition = TopicPartition(topic, 0)
        await fill(cluster, topic, {0: LETTERS})
        async with joined(
            cluster, None, group, partitions=[partition], properties=EVERY_100_MS
        ) as member:
            await member.until_assigned(1)
            await member.take(10)
            await until_committed(cluster, group, {partition: 10})


class SharedGroupContract:
    """What only shows in a group of several members."""

    async def test_a_revocation_commits_what_was_handed_out(
        self, cluster: Cluster, group: str
    ) -> None:
        topic = await cluster.create_topic(2)
        await fill(cluster, topic, {0: LETTERS, 1: LETTERS})
        async with joined(cluster, topic, group, "one", properties=NEVER_BY_ITSELF) as one:
            await one.until_assigned(2)
            taken = await one.take(8, {TopicPartition(topic, 0): 4, TopicPartition(topic, 1): 4})
            async with joined(cluster, topic, group, "two") as two:
                [partition] = await two.until_assigned(1)
                seen = len(taken[partition])
                assert texts((await two.take(10 - seen))[partition]) == LETTERS[seen:]

    async def test_named_partitions_cannot_be_committed_to_a_group_with_members(
        self, cluster: Cluster, group: str
    ) -> None:
        topic = await cluster.create_topic(1)
        partition = TopicPartition(topic, 0)
        async with joined(cluster, topic, group) as member:
            await member.until_assigned(1)
            async with joined(cluster, None, group, "static", partitions=[partition]) as static:
                await static.until_assigned(1)
                with pytest.raises(TransientBrokerError, match=f"group '{group}' has members"):
                    await static.consumer.commit({partition: Committed(1)}, 0)
            assert await member.consumer.committed([partition]) == {partition: None}

    async def test_the_positions_of_a_group_are_set_from_outside_only_while_it_has_no_members(
        self, cluster: Cluster, group: str
    ) -> None:
        topic = await cluster.create_topic(1)
        partition = TopicPartition(topic, 0)
        async with inspecting(cluster) as inspector:
            async with joined(cluster, topic, group, "one") as member:
                await member.until_assigned(1)
                told = await inspector.describe_group(group)
                assert (told.state, told.protocol_type, told.exists) == ("Stable", "consumer", True)
                [who] = told.members
                assert "one" in who.client_id
                await member.consumer.commit({partition: Committed(5)}, member.generation)
                with pytest.raises(TransientBrokerError, match=f"group '{group}' has members"):
                    await inspector.commit(group, {partition: Committed(1)})
                assert await inspector.committed(group) == {partition: Committed(5)}
            told = await inspector.describe_group(group)
            assert (told.state, told.members, told.exists) == ("Empty", (), True)
            await inspector.commit(group, {partition: Committed(1, "note")})
            with pytest.raises(MetadataTooLargeError):
                await inspector.commit(group, {partition: Committed(2, "x" * 4097)})
            assert await inspector.committed(group) == {partition: Committed(1, "note")}

    async def test_members_share_what_a_pattern_finds(self, cluster: Cluster, group: str) -> None:
        prefix = f"p{uuid.uuid4().hex[:8]}"
        await cluster.create_topic(2, prefix)
        pattern = f"{prefix}-.*"
        async with (
            joined(cluster, None, group, "one", pattern=pattern, properties=SOON) as one,
            joined(cluster, None, group, "two", pattern=pattern, properties=SOON) as two,
        ):
            await one.until_assigned(1)
            await two.until_assigned(1)
            await cluster.create_topic(2, prefix)
            await one.until_assigned(2)
            await two.until_assigned(2)
            assert not one.owned & two.owned


class InspectorContract:
    """Somebody looks from outside."""

    async def test_topics_are_created_and_listed(self, cluster: Cluster) -> None:
        topic = f"made-{uuid.uuid4().hex[:8]}"
        async with inspecting(cluster) as inspector:
            await inspector.create_topic(topic, 3)
            partitions = [TopicPartition(topic, number) for number in range(3)]
            assert (await inspector.topics())[topic] == partitions
            assert await inspector.end_offsets(partitions) == dict.fromkeys(partitions, 0)
            await fill(cluster, topic, {1: ["a", "b"]})
            assert await inspector.end_offsets([partitions[1]]) == {partitions[1]: 2}
            with pytest.raises(BrokerError, match="already exists"):
                await inspector.create_topic(topic, 3)

    async def test_what_a_group_has_stored_is_told(self, cluster: Cluster, group: str) -> None:
        topic = await cluster.create_topic(2)
        first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
        async with inspecting(cluster) as inspector:
            assert await inspector.committed(group) == {}
            async with joined(cluster, None, group, partitions=[first, second]) as member:
                await member.until_assigned(2)
                await member.consumer.commit({second: Committed(0, "note")}, 0)
            assert await inspector.committed(group) == {second: Committed(0, "note")}
            assert await inspector.committed(group, [first]) == {}
            assert (await inspector.describe_group(group)).exists in (True, None)
            assert (await inspector.describe_group(f"{group}-other")).exists in (False, None)

    async def test_a_group_that_nobody_has_joined_takes_positions_lower_ones_too(
        self, cluster: Cluster, group: str
    ) -> None:
        topic = await cluster.create_topic(2)
        first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
        async with inspecting(cluster) as inspector:
            await inspector.commit(group, {first: Committed(7, "seven"), second: Committed(8)})
            await inspector.commit(group, {first: Committed(2)})
            await inspector.commit(group, {})
            assert await inspector.committed(group) == {first: Committed(2), second: Committed(8)}
            assert (await inspector.describe_group(group)).state in ("Empty", None)

    async def test_it_cannot_ask_before_it_has_started(self, cluster: Cluster) -> None:
        with pytest.raises(BrokerError, match="not started"):
            await cluster.connector.inspector(properties={}).topics()
