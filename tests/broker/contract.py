"""What every Consumer and Producer must do: one suite, run on the in-memory broker, the embedded
one and Kafka.

A test class derives from what its broker can do and has a fixture ``cluster`` (and ``group``, from
here).
"""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import Any

import pytest

from reactive_kafka import Committed, TopicPartition
from reactive_kafka.broker.client import Sight
from reactive_kafka.errors import (
    MetadataTooLargeError,
    NotOwnerError,
    OffsetOutOfRangeError,
    PositionsRefusedError,
    RejectedRecordError,
    TransientBrokerError,
)
from reactive_kafka.records import RecordBytes
from reactive_kafka.subscription import Topics
from tests.broker.members import PATIENCE_S, Cluster, Member, fill, joined, producing, texts

LETTERS = list("abcdefghij")
PROMPTLY_S = 2.0
# A member with this session whose partitions move within LEFT_S has left by itself: it was not
# merely taken for dead.
LONG_SESSION = {"session_timeout_ms": 120_000}
LEFT_S = 20.0


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:8]}"


class ReadingContract:
    """One member reads."""

    async def test_a_record_arrives_with_all_its_fields(self, cluster: Cluster, group: str) -> None:
        topic = await cluster.create_topic(1)
        headers = [("trace", b"1"), ("trace", b"2"), ("empty", b""), ("null", None)]
        async with producing(cluster) as producer:
            sent = await producer.send(
                topic, b"value", key=b"key", headers=headers, timestamp_ms=1_700_000_000_123
            )
            assert await sent == (TopicPartition(topic, 0), 0)
        async with joined(cluster, topic, group) as member:
            await member.until_assigned(1)
            [record] = (await member.take(1))[TopicPartition(topic, 0)]
        assert (record.offset, record.key, record.value) == (0, b"key", b"value")
        assert record.timestamp == 1_700_000_000_123
        assert [tuple(pair) for pair in record.headers] == headers

    @pytest.mark.parametrize("way", ["sent", "written"])
    async def test_headers_of_any_kind_arrive_as_they_were_given(
        self, cluster: Cluster, group: str, way: str
    ) -> None:
        """Row F12 of the faults. Bytes of a name that are no UTF-8 are lone surrogates, and come
        back.
        """
        topic = await cluster.create_topic(1)
        kinds: list[list[tuple[str, bytes | None]]] = [
            [],
            [("trace", b"1"), ("trace", b"2"), ("", b""), ("null", None)],
            [("caf\udce9", b"latin 1"), ("\udcff\udcfe", None), ("café", b"utf-8")],
            [(f"header-{number}", b"%d" % number) for number in range(1000)],
            [("large", b"x" * 1_000_000)],
        ]
        records = [RecordBytes(b"value", b"key", headers) for headers in kinds]
        async with producing(cluster) as producer:
            if way == "sent":
                for one in records:
                    await (
                        await producer.send(
                            topic, one.value, key=one.key, headers=one.headers, partition=0
                        )
                    )
            left = [] if way == "sent" else records
            while left:
                left = left[(await producer.write(TopicPartition(topic, 0), left)).count :]
        async with joined(cluster, topic, group) as member:
            await member.until_assigned(1)
            taken = (await member.take(len(kinds)))[TopicPartition(topic, 0)]
        assert [[tuple(pair) for pair in record.headers] for record in taken] == kinds
        assert {(record.key, record.value) for record in taken} == {(b"key", b"value")}

    async def test_null_and_empty_keys_and_values_stay_apart(
        self, cluster: Cluster, group: str
    ) -> None:
        """Row F11 of the faults."""
        topic = await cluster.create_topic(1)
        pairs = [(None, b""), (b"", None), (b"", b""), (None, None)]
        async with producing(cluster) as producer:
            for key, value in pairs:
                await (await producer.send(topic, value, key=key, partition=0))
        async with joined(cluster, topic, group) as member:
            await member.until_assigned(1)
            records = (await member.take(4))[TopicPartition(topic, 0)]
        assert [(record.key, record.value) for record in records] == pairs
        assert [list(record.headers) for record in records] == [[], [], [], []]

    async def test_records_of_a_partition_arrive_in_order_and_once(
        self, cluster: Cluster, group: str
    ) -> None:
        topic = await cluster.create_topic(2)
        values = [str(number) for number in range(300)]
        await fill(cluster, topic, {0: values, 1: values})
        async with joined(cluster, topic, group) as member:
            await member.until_assigned(2)
            taken = await member.take(600)
            assert [texts(taken[TopicPartition(topic, number)]) for number in (0, 1)] == [
                values,
                values,
            ]
            assert [record.offset for record in taken[TopicPartition(topic, 1)]] == list(range(300))
            assert await member.polls_nothing(dict.fromkeys(member.owned, 10))

    async def test_a_poll_takes_no_more_than_its_budget_and_the_rest_comes_next(
        self, cluster: Cluster, group: str
    ) -> None:
        topic = await cluster.create_topic(1)
        partition = TopicPartition(topic, 0)
        await fill(cluster, topic, {0: LETTERS})
        async with joined(cluster, topic, group) as member:
            await member.until_assigned(1)
            runs: list[str] = []
            while "".join(runs) != "abcdefghij":
                poll = await member.poll_until(lambda poll: bool(poll.chunks), {partition: 3})
                [chunk] = poll.chunks
                assert len(chunk.records) <= 3
                assert chunk.next_offset == chunk.records[-1].offset + 1
                assert chunk.high_watermark == 10
                assert member.consumer.positions() == {partition: chunk.next_offset}
                runs.append("".join(texts(chunk.records)))
            assert runs[0] == "abc"

    async def test_a_partition_left_out_of_a_poll_keeps_what_it_has(
        self, cluster: Cluster, group: str
    ) -> None:
        topic = await cluster.create_topic(2)
        first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
        await fill(cluster, topic, {0: ["a1", "a2"], 1: ["b1", "b2"]})
        async with joined(cluster, topic, group) as member:
            await member.until_assigned(2)
            assert texts((await member.take(2, {first: 9}))[first]) == ["a1", "a2"]
            assert await member.polls_nothing({first: 9})
            assert member.consumer.positions()[second] == 0
            assert texts((await member.take(2, {first: 9, second: 9}))[second]) == ["b1", "b2"]

    async def test_nothing_flows_before_start_at(self, cluster: Cluster, group: str) -> None:
        topic = await cluster.create_topic(2)
        first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
        await fill(cluster, topic, {0: ["a"], 1: ["b"]})
        async with joined(cluster, topic, group, starts_by_itself=False) as member:
            await member.until_assigned(2)
            assert await member.polls_nothing({first: 9, second: 9})
            assert member.consumer.positions() == {}
            member.consumer.start_at({second: 0})
            assert await member.take(1, {first: 9, second: 9}) != {}
            assert await member.polls_nothing({first: 9, second: 9})
            assert member.consumer.positions() == {second: 1}

    async def test_start_at_goes_back_and_forth(self, cluster: Cluster, group: str) -> None:
        topic = await cluster.create_topic(1)
        partition = TopicPartition(topic, 0)
        await fill(cluster, topic, {0: LETTERS})
        async with joined(cluster, topic, group) as member:
            await member.until_assigned(1)
            assert texts((await member.take(2, {partition: 2}))[partition]) == ["a", "b"]
            member.consumer.start_at({partition: 8})
            assert member.consumer.positions() == {partition: 8}
            assert texts((await member.take(2))[partition]) == ["i", "j"]
            member.consumer.start_at({partition: 1})
            assert texts((await member.take(2, {partition: 2}))[partition]) == ["b", "c"]

    async def test_start_at_refuses_a_partition_that_is_not_assigned_and_changes_nothing(
        self, cluster: Cluster, group: str
    ) -> None:
        topic = await cluster.create_topic(1)
        partition = TopicPartition(topic, 0)
        async with joined(cluster, topic, group) as member:
            await member.until_assigned(1)
            with pytest.raises(NotOwnerError):
                member.consumer.start_at({partition: 5, TopicPartition(topic, 7): 0})
            assert member.consumer.positions() == {partition: 0}

    async def test_a_poll_ends_when_a_record_arrives(self, cluster: Cluster, group: str) -> None:
        topic = await cluster.create_topic(1)
        async with joined(cluster, topic, group) as member, producing(cluster) as producer:
            await member.until_assigned(1)
            poll = asyncio.ensure_future(
                member.consumer.poll(dict.fromkeys(member.owned, 9), 2 * PATIENCE_S)
            )
            assert await goes_on_for_a_while(poll)
            await (await producer.send(topic, b"late"))
            async with asyncio.timeout(PATIENCE_S):
                [chunk] = (await poll).chunks
            assert texts(chunk.records) == ["late"]

    async def test_a_poll_without_budgets_takes_its_time_and_nothing_else(
        self, cluster: Cluster, group: str
    ) -> None:
        topic = await cluster.create_topic(1)
        await fill(cluster, topic, {0: ["a"]})
        async with joined(cluster, topic, group) as member:
            await member.until_assigned(1)
            began = time.monotonic()
            assert (await member.consumer.poll({}, 0.2)).chunks == []
            assert time.monotonic() - began < PROMPTLY_S
            assert len(await member.take(1)) == 1

    async def test_a_poll_that_is_bounded_keeps_its_bound_and_partitions_take_turns(
        self, cluster: Cluster, group: str
    ) -> None:
        topic = await cluster.create_topic(3)
        await fill(cluster, topic, dict.fromkeys(range(3), LETTERS))
        async with joined(cluster, topic, group) as member:
            await member.until_assigned(3)
            budgets, taken = dict.fromkeys(member.owned, 3), list[TopicPartition]()
            # All of them have been fetched by now.
            await member.take(3, dict.fromkeys(member.owned, 1))
            while len(taken) < 6:
                poll = await member.consumer.poll(budgets, 5.0, 3)
                assert sum(len(chunk.records) for chunk in poll.chunks) <= 3
                taken += [chunk.partition for chunk in poll.chunks]
            assert set(taken[:3]) == set(taken[3:6]) == member.owned
            assert (await member.consumer.poll(budgets, 0.1, 0)).chunks == []

    async def test_wake_ends_a_waiting_poll_and_spares_the_next_one_its_wait(
        self, cluster: Cluster, group: str
    ) -> None:
        topic = await cluster.create_topic(1)
        async with joined(cluster, topic, group) as member:
            await member.until_assigned(1)
            async with asyncio.timeout(PATIENCE_S):
                waiting = asyncio.ensure_future(member.consumer.poll({}, 2 * PATIENCE_S))
                assert await goes_on_for_a_while(waiting)
                member.consumer.wake()
                await waiting
                member.consumer.wake()
                await member.consumer.poll({}, 2 * PATIENCE_S)
                waiting = asyncio.ensure_future(member.consumer.poll({}, 2 * PATIENCE_S))
                assert await goes_on_for_a_while(waiting)
                member.consumer.wake()
                await waiting

    async def test_a_cancelled_poll_loses_nothing(self, cluster: Cluster, group: str) -> None:
        topic = await cluster.create_topic(1)
        async with joined(cluster, topic, group) as member, producing(cluster) as producer:
            await member.until_assigned(1)
            seen: list[str] = []
            for number in range(20):
                poll = asyncio.ensure_future(
                    member.consumer.poll(dict.fromkeys(member.owned, 9), 5.0)
                )
                await (await producer.send(topic, str(number).encode()))
                poll.cancel()
                try:
                    seen += [text for chunk in (await poll).chunks for text in texts(chunk.records)]
                except asyncio.CancelledError:
                    pass
            if len(seen) < 20:
                seen += texts((await member.take(20 - len(seen)))[TopicPartition(topic, 0)])
            assert seen == [str(number) for number in range(20)]

    async def test_a_paused_partition_does_not_flow_until_it_is_resumed(
        self, cluster: Cluster, group: str
    ) -> None:
        topic = await cluster.create_topic(2)
        first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
        await fill(cluster, topic, {0: LETTERS, 1: LETTERS})
        async with joined(cluster, topic, group) as member:
            await member.until_assigned(2)
            await member.take(1, {first: 1})
            member.consumer.pause([first, TopicPartition(topic, 7)])
            taken = await member.take(10, {first: 99, second: 99})
            assert taken.keys() == {second}
            assert await member.polls_nothing({first: 99, second: 99})
            member.consumer.resume([first, TopicPartition(topic, 7)])
            assert texts((await member.take(9))[first]) == LETTERS[1:]

    async def test_a_position_outside_the_log_is_an_error_of_that_partition_alone(
        self, cluster: Cluster, group: str
    ) -> None:
        topic = await cluster.create_topic(2)
        lost, fine = TopicPartition(topic, 0), TopicPartition(topic, 1)
        await fill(cluster, topic, {0: ["a"], 1: LETTERS})
        budgets = {lost: 99, fine: 99}
        async with joined(cluster, topic, group, starts_by_itself=False) as member:
            await member.until_assigned(2)
            member.consumer.start_at({lost: 50, fine: 0})
            seen: list[str] = []
            error = None
            async with asyncio.timeout(PATIENCE_S):
                while error is None or len(seen) < 10:
                    poll = await member.consumer.poll(budgets, 0.2)
                    seen += [text for chunk in poll.chunks for text in texts(chunk.records)]
                    error = poll.errors.get(lost, error)
                    assert poll.errors.keys() <= {lost}
            assert seen == LETTERS
            assert isinstance(error, OffsetOutOfRangeError)
            assert (error.partition, error.offset) == (lost, 50)
            member.consumer.start_at({lost: 0})
            poll = await member.poll_until(lambda poll: bool(poll.chunks), budgets)
            assert texts(poll.chunks[0].records) == ["a"]

    async def test_the_ends_of_logs_are_known(self, cluster: Cluster, group: str) -> None:
        topic = await cluster.create_topic(2)
        first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
        await fill(cluster, topic, {0: LETTERS})
        async with joined(cluster, topic, group) as member:
            await member.until_assigned(2)
            assert await member.consumer.beginning_offsets([first, second]) == {first: 0, second: 0}
            assert await member.consumer.end_offsets([first, second]) == {first: 10, second: 0}
            await member.take(10)

    async def test_topics_and_their_partitions_are_listed(
        self, cluster: Cluster, group: str
    ) -> None:
        topic = await cluster.create_topic(3)
        async with joined(cluster, topic, group) as member:
            await member.consumer.check()
            listed = await member.consumer.topics()
        assert listed[topic] == [TopicPartition(topic, number) for number in range(3)]

    async def test_some_topics_alone_are_listed_without_making_one_that_is_not_there(
        self, cluster: Cluster, group: str
    ) -> None:
        topic, other, missing = (
            await cluster.create_topic(3),
            await cluster.create_topic(1),
            f"missing-{group}",
        )
        async with joined(cluster, topic, group) as member:
            await member.consumer.check()
            assert await member.consumer.topics([topic, missing]) == {
                topic: [TopicPartition(topic, number) for number in range(3)]
            }
            listed = await member.consumer.topics()
        assert missing not in listed
        assert other in listed

    async def test_a_look_finds_nothing_amiss_where_everything_answers(
        self, cluster: Cluster, group: str
    ) -> None:
        topic = await cluster.create_topic(3)
        async with joined(cluster, topic, group) as member:
            owned = await member.until_assigned(3)
            await member.consumer.check()
            assert await member.consumer.look(owned) == Sight()
            assert await member.consumer.look(()) == Sight()

    async def test_a_member_is_one_until_the_group_puts_it_out(
        self, cluster: Cluster, group: str
    ) -> None:
        topic = await cluster.create_topic(1)
        async with joined(cluster, topic, group) as member:
            assert member.consumer.is_member()
            await member.until_assigned(1)
            assert member.consumer.is_member()

    async def test_the_first_join_revokes_nothing(self, cluster: Cluster, group: str) -> None:
        topic = await cluster.create_topic(1)
        async with joined(cluster, topic, group) as member:
            owned = await member.until_assigned(1)
            before = [partitions for kind, partitions in member.events if kind != "assigned"]
        assert owned == {TopicPartition(topic, 0)}
        assert set(before) <= {frozenset()}


class CommitContract:
    """One member commits."""

    async def test_a_commit_is_read_back_with_its_metadata(
        self, cluster: Cluster, group: str
    ) -> None:
        topic = await cluster.create_topic(3)
        one, two, three = (TopicPartition(topic, number) for number in range(3))
        await fill(cluster, topic, {0: LETTERS, 1: LETTERS})
        async with joined(cluster, topic, group) as member:
            await member.until_assigned(3)
            await member.consumer.commit(
                {one: Committed(3, '{"läuft": "✓"}'), two: Committed(4)}, member.generation
            )
            stored = await member.consumer.committed([one, two, three])
        assert stored == {one: Committed(3, '{"läuft": "✓"}'), two: Committed(4, ""), three: None}

    async def test_a_position_that_is_refused_is_named_and_the_others_are_stored(
        self, cluster: Cluster, group: str
    ) -> None:
        topic = await cluster.create_topic(2)
        first, second, missing = (TopicPartition(topic, number) for number in (0, 1, 7))
        async with joined(
            cluster, None, group, starts_by_itself=False, partitions=[first, second, missing]
        ) as member:
            await member.until_assigned(3)
            # The group's coordinator is there when it answers.
            await member.consumer.committed([first])
            offsets = {first: Committed(3), missing: Committed(4, "x"), second: Committed(5, "y")}
            for wanted in (offsets, {missing: Committed(4)}):
                with pytest.raises(PositionsRefusedError, match=str(missing)) as caught:
                    await member.consumer.commit(wanted, member.generation)
                assert caught.value.refused.keys() == {missing}
                assert isinstance(caught.value.refused[missing], TransientBrokerError)
            stored = await member.consumer.committed([first, second])
        assert stored == {first: Committed(3), second: Committed(5, "y")}

    async def test_the_next_member_begins_where_the_last_one_committed(
        self, cluster: Cluster, group: str
    ) -> None:
        topic = await cluster.create_topic(1)
        partition = TopicPartition(topic, 0)
        await fill(cluster, topic, {0: LETTERS})
        async with joined(cluster, topic, group) as member:
            await member.until_assigned(1)
            await member.take(5, {partition: 5})
            await member.consumer.commit({partition: Committed(2)}, member.generation)
        async with joined(cluster, topic, group, "two") as next_member:
            await next_member.until_assigned(1)
            assert texts((await next_member.take(8))[partition]) == LETTERS[2:]

    async def test_a_lower_position_is_accepted_as_kafka_does(
        self, cluster: Cluster, group: str
    ) -> None:
        topic = await cluster.create_topic(1)
        partition = TopicPartition(topic, 0)
        await fill(cluster, topic, {0: LETTERS})
        async with joined(cluster, topic, group) as member:
            await member.until_assigned(1)
            await member.consumer.commit({partition: Committed(7, "x")}, member.generation)
            await member.consumer.commit({partition: Committed(3, "y")}, member.generation)
            assert await member.consumer.committed([partition]) == {partition: Committed(3, "y")}

    async def test_a_commit_of_another_generation_is_refused_and_stores_nothing(
        self, cluster: Cluster, group: str
    ) -> None:
        topic = await cluster.create_topic(1)
        partition = TopicPartition(topic, 0)
        async with joined(cluster, topic, group) as member:
            await member.until_assigned(1)
            for generation in (member.generation - 1, member.generation + 1):
                with pytest.raises(NotOwnerError):
                    await member.consumer.commit({partition: Committed(1)}, generation)
            assert await member.consumer.committed([partition]) == {partition: None}

    async def test_a_commit_that_names_a_partition_not_assigned_stores_nothing(
        self, cluster: Cluster, group: str
    ) -> None:
        topic = await cluster.create_topic(1)
        partition, foreign = TopicPartition(topic, 0), TopicPartition(topic, 7)
        async with joined(cluster, topic, group) as member:
            await member.until_assigned(1)
            with pytest.raises(NotOwnerError):
                await member.consumer.commit(
                    {partition: Committed(1), foreign: Committed(1)}, member.generation
                )
            assert await member.consumer.committed([partition]) == {partition: None}

    async def test_stop_commits_nothing_and_may_be_called_twice(
        self, cluster: Cluster, group: str
    ) -> None:
        topic = await cluster.create_topic(1)
        partition = TopicPartition(topic, 0)
        await fill(cluster, topic, {0: LETTERS})
        async with joined(cluster, topic, group) as member:
            await member.until_assigned(1)
            await member.take(10)
            events = list(member.events)
            await member.consumer.stop()
            await member.consumer.stop()
            assert member.events == events
        async with joined(cluster, topic, group, "two") as next_member:
            await next_member.until_assigned(1)
            assert await next_member.consumer.committed([partition]) == {partition: None}


class ProducingContract:
    """One producer writes."""

    async def test_a_confirmation_says_where_the_record_stands(self, cluster: Cluster) -> None:
        topic = await cluster.create_topic(2)
        written = await fill(cluster, topic, {1: ["a", "b"], 0: ["c"]})
        assert written == [
            (TopicPartition(topic, 1), 0),
            (TopicPartition(topic, 1), 1),
            (TopicPartition(topic, 0), 0),
        ]

    async def test_a_key_always_goes_to_the_same_partition(self, cluster: Cluster) -> None:
        topic = await cluster.create_topic(3)
        keys = [b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h"]
        async with producing(cluster) as producer:
            first = [(await (await producer.send(topic, b"1", key=key))).partition for key in keys]
            second = [(await (await producer.send(topic, b"2", key=key))).partition for key in keys]
        assert first == second
        assert len(set(first)) > 1

    async def test_a_record_that_is_too_large_is_rejected_and_the_next_one_is_written(
        self, cluster: Cluster
    ) -> None:
        topic = await cluster.create_topic(1)
        async with producing(cluster, {"max_request_size": 2000}) as producer:
            with pytest.raises(RejectedRecordError):
                await (await producer.send(topic, b"x" * 3000))
            assert (await (await producer.send(topic, b"x"))).offset == 0

    @pytest.mark.parametrize(
        "wrong",
        [
            {"value": "text"},
            {"value": 5},
            {"key": "text"},
            {"headers": [("name", "text")]},
            {"headers": [("name", 5)]},
            {"headers": [(b"name", b"bytes")]},
            {"headers": [("name",)]},
            {"headers": [("lone \ud800", b"bytes")]},
            {"headers": None},
            {"partition": -1},
            {"partition": "0"},
            {"partition": 7},
            {"timestamp_ms": "5"},
            {"timestamp_ms": 2**70},
            {"topic": "bad name!"},
            {"topic": ""},
        ],
        ids=lambda wrong: "-".join(f"{name}={value!r}" for name, value in wrong.items()),
    )
    async def test_what_kafka_does_not_take_is_rejected_at_once_and_the_next_one_is_written(
        self, cluster: Cluster, wrong: dict[str, Any]
    ) -> None:
        topic = await cluster.create_topic(1)
        fields: dict[str, Any] = {"topic": topic, "value": b"value", "key": b"key"}
        async with producing(cluster) as producer:
            async with asyncio.timeout(PROMPTLY_S):
                with pytest.raises(RejectedRecordError):
                    await (await producer.send(**(fields | wrong)))
            assert (await (await producer.send(**fields))).offset == 0

    async def test_stop_writes_what_is_queued(self, cluster: Cluster) -> None:
        topic = await cluster.create_topic(1)
        async with producing(cluster) as producer:
            confirmed = [await producer.send(topic, str(number).encode()) for number in range(50)]
        assert [(await one).offset for one in confirmed] == list(range(50))


class GroupContract:
    """Several members share a topic."""

    async def test_a_leaver_s_partitions_move_promptly(self, cluster: Cluster, group: str) -> None:
        topic = await cluster.create_topic(4)
        leaving = joined(cluster, topic, group, "two", properties=LONG_SESSION)
        async with joined(cluster, topic, group, "one") as one, leaving as two:
            await one.until_assigned(2)
            await two.until_assigned(2)
            await two.consumer.stop()
            await one.until_assigned(4, within_s=LEFT_S)

    async def test_a_revocation_is_awaited_before_anybody_gets_the_partitions(
        self, cluster: Cluster, group: str
    ) -> None:
        topic = await cluster.create_topic(4)
        done, in_revocation = asyncio.Event(), asyncio.Event()

        async def finish_work() -> None:
            in_revocation.set()
            await done.wait()

        async with joined(cluster, topic, group, "one") as one:
            await one.until_assigned(4)
            one.while_revoked = finish_work
            joining = asyncio.ensure_future(_join_and_wait(cluster, topic, group))
            async with asyncio.timeout(PATIENCE_S):
                await in_revocation.wait()
            await one.polls_nothing({}, 0.3)
            assert not joining.done()
            done.set()
            async with asyncio.timeout(PATIENCE_S):
                other = await joining
            try:
                assert len(other.owned) == 2
                kinds = [kind for kind, partitions in one.events if partitions]
                assert kinds[:3] == ["assigned", "revoking", "revoked"]
            finally:
                await other.consumer.stop()

    async def test_a_commit_inside_the_revocation_is_stored_and_the_next_owner_sees_it(
        self, cluster: Cluster, group: str
    ) -> None:
        topic = await cluster.create_topic(2)
        await fill(cluster, topic, {0: LETTERS, 1: LETTERS})
        async with joined(cluster, topic, group, "one") as one:
            await one.until_assigned(2)

            async def commit() -> None:
                await one.consumer.commit(dict.fromkeys(one.owned, Committed(6)), one.generation)

            one.while_revoked = commit
            async with joined(cluster, topic, group, "two") as two:
                await two.until_assigned(1)
                [records] = (await two.take(4)).values()
                assert texts(records) == LETTERS[6:]

    async def test_stop_inside_a_revocation_leaves_at_once(
        self, cluster: Cluster, group: str
    ) -> None:
        topic = await cluster.create_topic(2)
        in_revocation = asyncio.Event()

        async def hang() -> None:
            in_revocation.set()
            await asyncio.Event().wait()

        async with joined(cluster, topic, group, "one", properties=LONG_SESSION) as one:
            await one.until_assigned(2)
            one.while_revoked = hang
            joining = asyncio.ensure_future(_join_and_wait(cluster, topic, group))
            async with asyncio.timeout(PATIENCE_S):
                await in_revocation.wait()
                await one.consumer.stop()
            async with asyncio.timeout(LEFT_S):
                other = await joining
            try:
                await other.until_assigned(2)
            finally:
                await other.consumer.stop()

    async def test_a_newcomer_that_stops_while_it_joins_leaves_no_trace(
        self, cluster: Cluster, group: str
    ) -> None:
        topic = await cluster.create_topic(2)
        done, in_revocation = asyncio.Event(), asyncio.Event()

        async def finish_work() -> None:
            in_revocation.set()
            await done.wait()

        async with joined(cluster, topic, group, "one") as one:
            await one.until_assigned(2)
            one.while_revoked = finish_work
            newcomer = joined(cluster, topic, group, "two", properties=LONG_SESSION)
            async with asyncio.timeout(PATIENCE_S), newcomer:
                await in_revocation.wait()
            done.set()
            await one.until_assigned(2, within_s=LEFT_S)


class EagerGroupContract(GroupContract):
    """Every rebalance takes all partitions from all members, and begins a generation for all."""

    async def test_members_share_the_partitions_in_one_generation(
        self, cluster: Cluster, group: str
    ) -> None:
        topic = await cluster.create_topic(4)
        await fill(cluster, topic, {number: [f"{number}"] for number in range(4)})
        async with joined(cluster, topic, group, "one") as one:
            await one.until_assigned(4)
            alone = one.generation
            async with joined(cluster, topic, group, "two") as two:
                await one.until_assigned(2)
                await two.until_assigned(2)
                assert not one.owned & two.owned
                assert one.generation == two.generation > alone
                both = await one.take(2) | await two.take(2)
                assert len(both) == 4

    async def test_nothing_is_polled_from_the_revocation_to_the_next_start(
        self, cluster: Cluster, group: str
    ) -> None:
        topic = await cluster.create_topic(2)
        await fill(cluster, topic, {0: LETTERS, 1: LETTERS})
        everything = {TopicPartition(topic, number): 99 for number in (0, 1)}
        quiet: list[bool] = []
        async with joined(cluster, topic, group, "one") as one:
            await one.until_assigned(2)

            async def poll() -> None:
                quiet.append(await one.polls_nothing(everything))

            one.while_revoked = poll
            one.starts_by_itself = False
            async with joined(cluster, topic, group, "two") as two:
                await two.until_assigned(1)
                await one.until_assigned(1)
                assert quiet == [True]
                assert await one.polls_nothing(everything)
                assert one.consumer.positions() == {}

    async def test_after_a_rebalance_the_old_generation_cannot_commit(
        self, cluster: Cluster, group: str
    ) -> None:
        topic = await cluster.create_topic(2)
        async with joined(cluster, topic, group, "one") as one:
            old = await one.until_assigned(2)
            generation = one.generation
            async with joined(cluster, topic, group, "two") as two:
                await two.until_assigned(1)
                await one.until_assigned(1)
                for partition in old:
                    with pytest.raises(NotOwnerError):
                        await one.consumer.commit({partition: Committed(1)}, generation)
                [foreign] = two.owned
                with pytest.raises(NotOwnerError):
                    await one.consumer.commit({foreign: Committed(1)}, one.generation)
                assert set((await two.consumer.committed(old)).values()) == {None}

    async def test_pauses_do_not_survive_a_rebalance(self, cluster: Cluster, group: str) -> None:
        topic = await cluster.create_topic(2)
        await fill(cluster, topic, {0: LETTERS, 1: LETTERS})
        async with joined(cluster, topic, group, "one") as one:
            one.consumer.pause(await one.until_assigned(2))
            async with joined(cluster, topic, group, "two") as two:
                await two.until_assigned(1)
                await one.until_assigned(1)
                assert len(await one.take(10)) == 1


class LogContract:
    """What only a log with retention, transactions and limits shows."""

    async def test_the_position_passes_markers_at_the_end_of_the_log(
        self, cluster: Cluster, group: str
    ) -> None:
        topic = await cluster.create_topic(1)
        partition = TopicPartition(topic, 0)
        await cluster.produce_and_leave_a_marker(partition, [b"a", b"b"])
        async with joined(cluster, topic, group) as member:
            await member.until_assigned(1)
            reached = 0
            high_watermark = None
            async with asyncio.timeout(PATIENCE_S):
                while reached < 3:
                    for chunk in (await member.consumer.poll({partition: 1}, 0.2)).chunks:
                        reached = chunk.next_offset
                        # A busy broker writes the marker later than it answers.
                        high_watermark = chunk.high_watermark
            assert high_watermark == 3
            assert member.consumer.positions() == {partition: 3}
            assert await member.consumer.end_offsets([partition]) == {partition: 3}
            assert await member.polls_nothing({partition: 9})

    async def test_records_on_both_sides_of_a_marker_arrive(
        self, cluster: Cluster, group: str
    ) -> None:
        topic = await cluster.create_topic(1)
        partition = TopicPartition(topic, 0)
        await cluster.produce_and_leave_a_marker(partition, [b"a"])
        await cluster.produce_and_leave_a_marker(partition, [b"b"])
        async with joined(cluster, topic, group) as member:
            await member.until_assigned(1)
            records = (await member.take(2))[partition]
        assert [(record.offset, record.value) for record in records] == [(0, b"a"), (2, b"b")]

    async def test_deleted_records_move_the_beginning_and_leave_a_reader_out_of_range(
        self, cluster: Cluster, group: str
    ) -> None:
        topic = await cluster.create_topic(1)
        partition = TopicPartition(topic, 0)
        await fill(cluster, topic, {0: LETTERS})
        await cluster.delete_records(partition, 4)
        async with joined(cluster, topic, group, starts_by_itself=False) as member:
            await member.until_assigned(1)
            assert await member.consumer.beginning_offsets([partition]) == {partition: 4}
            member.consumer.start_at({partition: 1})
            poll = await member.poll_until(lambda poll: bool(poll.errors), {partition: 9})
            assert isinstance(poll.errors[partition], OffsetOutOfRangeError)
            member.consumer.start_at({partition: 4})
            assert texts((await member.take(6))[partition]) == LETTERS[4:]

    async def test_metadata_is_limited_to_4096_utf16_units_and_costs_only_its_own_partition(
        self, cluster: Cluster, group: str
    ) -> None:
        topic = await cluster.create_topic(2)
        one, two = TopicPartition(topic, 0), TopicPartition(topic, 1)
        full = "\N{GRINNING FACE}" * 2048
        async with joined(cluster, topic, group) as member:
            await member.until_assigned(2)
            await member.consumer.commit({one: Committed(1, full)}, member.generation)
            with pytest.raises(MetadataTooLargeError) as raised:
                await member.consumer.commit(
                    {one: Committed(2, full + "x"), two: Committed(2)}, member.generation
                )
            assert raised.value.partitions == {one}
            stored = await member.consumer.committed([one, two])
        assert stored == {one: Committed(1, full), two: Committed(2)}


async def goes_on_for_a_while(future: asyncio.Future[Any]) -> bool:
    done, _ = await asyncio.wait([future], timeout=0.1)
    return not done


async def _join_and_wait(cluster: Cluster, topic: str, group: str) -> Member:
    consumer = cluster.connector.consumer(
        name="two", subscription=Topics((topic,)), group_id=group, properties=cluster.properties
    )
    member = Member(consumer)
    await consumer.start(member)
    await member.until(lambda: bool(member.owned))
    return member
