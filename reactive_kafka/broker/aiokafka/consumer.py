"""aiokafka behind the seam: translates its errors and rebalance callbacks, and contains its traps.

Private attributes of aiokafka are used here (the package caps its version): what it fetched, its coordinator, and
one request built by hand. docs/internals.md names each trap and the test that shows it.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Collection, Mapping
from typing import Any, TypeVar

import aiokafka
import aiokafka.errors as kafka_errors
from aiokafka.consumer.fetcher import FetchResult, PartitionRecords
from aiokafka.protocol.group import LeaveGroupRequest

from reactive_kafka.broker.aiokafka.commit import NO_MEMBER, send_commit
from reactive_kafka.broker.aiokafka.listener import Listener
from reactive_kafka.broker.aiokafka.metadata import anybody_answers, silent_leaders, spare
from reactive_kafka.broker.aiokafka.record_batches import BatchReader
from reactive_kafka.broker.aiokafka.setup import (
    CALL_DEADLINE_S,
    CONSUMER_DEFAULTS,
    CONSUMER_FIXED,
    LEAVE_DEADLINE_S,
    START_DEADLINE_S,
    STOP_DEADLINE_S,
    StartupReasons,
    client_properties,
    translate,
    within,
)
from reactive_kafka.broker.aiokafka.static import fenced, is_taken
from reactive_kafka.broker.auto_commit import AutoCommit, auto_commit_interval_s
from reactive_kafka.broker.client import Chunk, Poll, RebalanceListener, Sight
from reactive_kafka.broker.finish import cancel, finish
from reactive_kafka.broker.static_assignment import GENERATION, NO_GROUP
from reactive_kafka.errors import (
    BrokerError,
    CorruptRecordError,
    FatalBrokerError,
    FencedError,
    NotOwnerError,
    OffsetOutOfRangeError,
    TransientBrokerError,
)
from reactive_kafka.records import Committed, TopicPartition
from reactive_kafka.subscription import Partitions, Pattern, Subscription

T = TypeVar("T")


class AiokafkaConsumer:
    """A member of a group, or a static assignment; see :class:`reactive_kafka.broker.client.Consumer`."""

    def __init__(
        self,
        *,
        name: str,
        subscription: Subscription,
        group_id: str | None,
        properties: Mapping[str, Any],
    ) -> None:
        if group_id is None and not isinstance(subscription, Partitions):
            raise ValueError(f"channel {name!r} needs a group_id")
        self._name = name
        self._subscription = subscription
        self._group_id = group_id
        self._auto_commit_s = auto_commit_interval_s(properties)
        self._auto: AutoCommit | None = None
        self._properties = {**CONSUMER_DEFAULTS, **properties}
        self._read_committed = self._properties.get("isolation_level") == "read_committed"
        self._consumer: aiokafka.AIOKafkaConsumer | None = None
        self._closing: asyncio.Task[None] | None = None
        self._assigning: asyncio.Task[None] | None = None
        self._waiter: Future[None] | None = None
        self._is_woken = False
        self._is_fast = True
        self._instance_id: str | None = self._properties.get("group_instance_id")
        self._is_fenced = False
        self.has_joined = False
        self.started: set[TopicPartition] = set()
        self._assignment: Any = None  # the client's, kept: with a pattern it forgets its own before it revokes it
        self.listener_error: Exception | None = None
        self.is_in_listener = False

    # -- start and stop

    async def start(self, listener: RebalanceListener) -> None:
        arguments = client_properties(self._properties)
        arguments.setdefault("client_id", f"reactive-kafka-{self._name}")
        with StartupReasons() as log:
            self._consumer = aiokafka.AIOKafkaConsumer(group_id=self._group_id, **{**arguments, **CONSUMER_FIXED})
            try:
                await within(START_DEADLINE_S, self._consumer.start(), "connecting")
            except BrokerError as error:
                await self.stop()  # else "Unclosed AIOKafkaConsumer" is logged
                raise log.explain(error) from error.__cause__
            except BaseException:
                await self.stop()
                raise
        spare(self._consumer)
        self._is_fast = has_expected_internals(self._consumer)
        self._is_fenced = self.has_joined = False
        if self._auto_commit_s is not None:
            listener = self._auto = AutoCommit(self, listener, self._auto_commit_s)
            self._auto.start()
        self._subscribe(self._consumer, Listener(self, listener))

    def _subscribe(self, consumer: aiokafka.AIOKafkaConsumer, listener: Listener) -> None:
        if isinstance(self._subscription, Partitions):
            theirs = _theirs(sorted(self._subscription.partitions))
            consumer.assign(theirs)
            self._assigning = asyncio.create_task(listener.on_partitions_assigned(theirs), name="assign partitions")
        elif isinstance(self._subscription, Pattern):
            # The client's own subscribe() takes a pattern as text only, and matches the beginning of a name with it.
            consumer._subscription.subscribe_pattern(pattern=_Matching(self._subscription), listener=listener)
            consumer._client.set_topics([])
        else:
            consumer.subscribe(topics=list(self._subscription.topics), listener=listener)

    async def stop(self) -> None:
        auto, self._auto = self._auto, None
        try:
            if auto is not None:
                await auto.close()
        finally:
            await self._disconnect()

    async def _disconnect(self) -> None:
        consumer, self._consumer = self._consumer, None
        self.let_go()
        self.wake()
        if consumer is not None:
            # In a task of its own, so that who is cancelled while it waits leaves nothing half closed (H6).
            self._closing = asyncio.create_task(self._close(consumer, asyncio.current_task()), name="close a consumer")
        if self._closing is not None:
            await asyncio.shield(self._closing)

    async def _close(self, consumer: aiokafka.AIOKafkaConsumer, caller: asyncio.Task[Any] | None) -> None:
        if self._assigning is not None and self._assigning is not caller:
            await cancel([self._assigning])
        await self._leave_in_a_rebalance(consumer, caller)
        await finish(consumer.stop(), STOP_DEADLINE_S)  # H6: it may raise CancelledError, or leave tasks
        coordinator, fetcher = consumer._coordinator, consumer._fetcher
        tasks = [
            getattr(coordinator, name, None)
            for name in ("_coordination_task", "_heartbeat_task", "_commit_refresh_task", "_reset_committed_task")
        ]
        if fetcher is not None:
            tasks += [fetcher._fetch_task, *fetcher._pending_tasks]
        await cancel([task for task in tasks if task is not None and not task.done()])
        await finish(consumer._client.close(), 2.0)

    async def _leave_in_a_rebalance(
        self, consumer: aiokafka.AIOKafkaConsumer, caller: asyncio.Task[Any] | None
    ) -> None:
        """Leave in the middle of a rebalance, which the client's own stop would wait for first, without bound (H13).

        A member that just went away would be given partitions, and hold them until its session ends.
        """
        coordinator = consumer._coordinator
        task = getattr(coordinator, "_coordination_task", None)
        if task is None or task is caller or self._is_static or not self._is_rebalancing(consumer):
            return
        await cancel([task])
        node, member = coordinator.coordinator_id, coordinator.member_id
        if node is not None and member and coordinator._group_instance_id is None:
            # Not on the join's connection: the broker reads nothing more from it before the join is answered.
            await finish(consumer._client.send(node, LeaveGroupRequest(self._group_id, member)), LEAVE_DEADLINE_S)
            coordinator.reset_generation()

    def _is_rebalancing(self, consumer: aiokafka.AIOKafkaConsumer) -> bool:
        return self.is_in_listener or bool(consumer._subscription.reassignment_in_progress)

    # -- the assignment

    @property
    def _is_static(self) -> bool:
        return isinstance(self._subscription, Partitions)

    @property
    def generation(self) -> int:
        """The group's generation that this member is in, -1 outside of any; that of a static assignment is its own."""
        if self._is_static:
            return GENERATION
        return int(self._running._coordinator.generation)

    def hold(self, partitions: Collection[Any]) -> None:
        """Keep newly assigned partitions from flowing until ``start_at``, without the client resetting them."""
        self._assignment = self._running._subscription.subscription.assignment
        for partition in partitions:
            state = self._assignment.state_value(partition)
            state.pause()
            state.seek(0)  # any position: with none, every poll would raise

    def let_go(self) -> None:
        """Nothing is assigned any more."""
        self.started.clear()
        self._assignment = None

    async def stay_out_if_fenced(self) -> None:
        """Do not join again, until the end, where another goes by our ``group_instance_id``."""
        consumer = self._running
        if not self.is_member() and await self._is_taken(consumer):
            self._is_fenced = True
            self.wake()
            await asyncio.Event().wait()

    def is_member(self) -> bool:
        if self._consumer is None or self._is_static or not self.has_joined:
            return True
        return bool(self._consumer._coordinator.member_id != "")  # thrown out, it is to ask for a new one

    async def _is_taken(self, consumer: aiokafka.AIOKafkaConsumer) -> bool:
        if self._instance_id is None or self._group_id is None:
            return False
        return await is_taken(consumer, self._group_id, self._instance_id)

    def start_at(self, positions: Mapping[TopicPartition, int]) -> None:
        consumer = self._running
        assigned = self._assigned()
        missing = [partition for partition in positions if partition not in assigned]
        if missing:
            raise NotOwnerError(f"not assigned: {', '.join(map(str, missing))}")
        for partition, offset in positions.items():
            state = self._assignment.state_value(partition)
            state.seek(offset)
            consumer._fetcher._records.pop(partition, None)
            if partition not in self.started:
                state.resume()
                self.started.add(partition)
        consumer._fetcher._notify(consumer._fetcher._wait_consume_future)

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        for partition in self.started.intersection(partitions):
            self._assignment.state_value(partition).pause()

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        for partition in self.started.intersection(partitions):
            self._assignment.state_value(partition).resume()

    def positions(self) -> dict[TopicPartition, int]:
        states = self._states()
        return {partition: state.position for partition, state in states.items() if state.has_valid_position}

    def high_watermarks(self) -> dict[TopicPartition, int]:
        ends = {partition: self._end(state) for partition, state in self._states().items()}
        return {partition: end for partition, end in ends.items() if end is not None}

    def _end(self, state: Any) -> int | None:
        end = state.lso if self._read_committed else state.highwater
        return None if end is None or end < 0 else int(end)

    def _states(self) -> dict[TopicPartition, Any]:
        return {partition: self._assignment.state_value(partition) for partition in self.started}

    def _assigned(self) -> frozenset[Any]:
        return frozenset() if self._assignment is None else frozenset(self._assignment.tps)

    # -- reading

    async def poll(self, budgets: Mapping[TopicPartition, int], timeout_s: float, most: int | None = None) -> Poll:
        consumer = self._running
        with consumer._subscription.fetch_context():
            pass  # tells the client that we poll; a cancelled await in here would break its idle time for ever (H3)
        if self._auto is not None:
            self._auto.check()
        await self._raise_errors(consumer)
        poll = await self._take(consumer, budgets, most)
        if not poll.chunks and not poll.errors and not self._is_woken and timeout_s > 0:
            await self._wait(consumer, timeout_s)
            if self._consumer is consumer:
                poll = await self._take(consumer, budgets, most)
        self._is_woken = False
        return poll

    def wake(self) -> None:
        self._is_woken = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _raise_errors(self, consumer: aiokafka.AIOKafkaConsumer) -> None:
        """Raise what the client has parked for the next poll; a task of its that has ended makes it useless."""
        if self._is_fenced:
            raise FencedError(fenced(str(self._instance_id)))
        listener_error, self.listener_error = self.listener_error, None
        if listener_error is not None:
            raise listener_error
        coordinator = getattr(consumer._coordinator, "_coordination_task", None)  # without a group there is none
        for task in (coordinator, consumer._fetcher._fetch_task):
            if task is not None and task.done():
                cause = None if task.cancelled() else task.exception()
                raise TransientBrokerError(f"the client has stopped working: {cause!r}") from cause
        try:
            consumer._coordinator.check_errors()
        except kafka_errors.KafkaError as error:
            self._is_fenced = "UnknownError" in str(error) and await self._is_taken(consumer)
            if self._is_fenced:
                raise FencedError(fenced(str(self._instance_id))) from error
            raise translate(error) from error

    async def _wait(self, consumer: aiokafka.AIOKafkaConsumer, timeout_s: float) -> None:
        self._waiter = waiter = consumer._fetcher._create_fetch_waiter()
        timer = asyncio.get_running_loop().call_later(timeout_s, _complete, waiter)
        try:
            await waiter
        except kafka_errors.KafkaError:
            pass  # told to all waiters; the coordinator keeps it, and the next poll raises it
        finally:
            timer.cancel()
            self._waiter = None

    async def _take(
        self, consumer: aiokafka.AIOKafkaConsumer, budgets: Mapping[TopicPartition, int], most: int | None
    ) -> Poll:
        poll = Poll()
        if consumer._subscription.reassignment_in_progress:  # H13: getmany would wait for its end without bound
            return poll
        fetched = consumer._fetcher._records
        left = sum(budgets.values()) if most is None else most
        for partition in list(fetched):
            if left <= 0:
                break
            budget = min(budgets.get(partition, 0), left)
            if budget <= 0 or partition not in self.started:
                continue
            ours = TopicPartition(partition.topic, partition.partition)
            try:
                if self._is_fast and isinstance(fetched[partition], FetchResult):
                    chunk = self._take_records(consumer, ours, fetched[partition], budget)
                else:
                    chunk = await self._take_slowly(consumer, ours, budget)
            except BrokerError as error:
                poll.errors[ours] = error
                continue
            if chunk is not None:
                poll.chunks.append(chunk)
                left -= len(chunk.records)
            if partition in fetched:
                fetched.move_to_end(partition)  # partitions take turns
        return poll

    def _take_records(
        self, consumer: aiokafka.AIOKafkaConsumer, partition: TopicPartition, result: Any, budget: int
    ) -> Chunk | None:
        """Take from one partition alone, so that an error of another can never cost its records (H1)."""
        fetcher = consumer._fetcher
        if not result.check_assignment(partition) or not result.has_more():
            self._drop(fetcher, partition)
            return None
        piece = result._partition_records
        reader = result.__dict__.get("reader")
        if reader is None:
            reader = result.reader = BatchReader(partition, piece, read_committed=self._read_committed)
        before = reader.next_offset
        try:
            records = reader.take(budget)
        finally:
            state = result._assignment.state_value(partition)
            piece.next_fetch_offset = reader.next_offset
            state.consumed_to(reader.next_offset)
            if reader.is_exhausted:
                self._drop(fetcher, partition)
        if reader.next_offset == before:
            return None
        return Chunk(partition, records, reader.next_offset, self._end(state) or reader.next_offset)

    def _drop(self, fetcher: Any, partition: TopicPartition) -> None:
        fetcher._records.pop(partition, None)
        fetcher._notify(fetcher._wait_consume_future)

    async def _take_slowly(
        self, consumer: aiokafka.AIOKafkaConsumer, partition: TopicPartition, budget: int
    ) -> Chunk | None:
        """The client's own way, for errors it has kept for a partition, and where its internals are not as expected."""
        before = self.positions()[partition]
        try:
            # Not getmany: where it raises, the client takes itself to be polled from then on for ever (H3).
            taken = await consumer._fetcher.fetched_records(_theirs([partition]), 0, max_records=budget)
        except kafka_errors.OffsetOutOfRangeError as error:
            raise OffsetOutOfRangeError(partition, int(next(iter(error.args[0].values())))) from error
        except kafka_errors.RecordTooLargeError as error:
            offset = int(error.args[2])
            consumer._subscription.seek(partition, offset)  # the client has gone one further, unread
            reason = "a batch is cut short, or larger than max_partition_fetch_bytes"
            raise CorruptRecordError(partition, offset, reason) from error
        except kafka_errors.CorruptRecordException as error:
            raise CorruptRecordError(partition, before, str(error)) from error
        except kafka_errors.KafkaError as error:
            raise translate(error) from error
        records: list[Any] = next(iter(taken.values()), [])
        state = self._states().get(partition)
        if state is None or state.position == before:
            return None
        return Chunk(partition, records, state.position, self._end(state) or state.position)

    # -- asking

    async def commit(self, offsets: Mapping[TopicPartition, Committed], generation: int) -> None:
        """One request, with the member and generation of the assignment it was made for (H4).

        The client's own commit checks ownership once and then retries, with the generation of the moment; the
        broker checks member and generation but not who owns a partition, so a late retry overwrites another's.
        """
        consumer = self._running
        if self._group_id is None:
            raise FatalBrokerError(NO_GROUP)
        coordinator = consumer._coordinator
        member = NO_MEMBER if self._is_static else (coordinator.member_id, generation)
        self._check_owner(consumer, offsets, generation)
        await within(CALL_DEADLINE_S, coordinator.ensure_coordinator_known(), "finding the group's coordinator")
        self._check_owner(consumer, offsets, generation)
        await send_commit(coordinator, member, offsets)

    def _check_owner(self, consumer: Any, offsets: Mapping[TopicPartition, Committed], generation: int) -> None:
        if self._consumer is None or self._consumer is not consumer or self.generation != generation:
            raise NotOwnerError(f"the group has moved on from generation {generation}")
        missing = offsets.keys() - self._assigned()
        if missing:
            raise NotOwnerError(f"not assigned: {', '.join(map(str, missing))}")

    async def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Committed | None]:
        coordinator = self._running._coordinator
        if self._group_id is None:
            raise FatalBrokerError(NO_GROUP)
        known = await within(
            CALL_DEADLINE_S, coordinator.fetch_committed_offsets(_theirs(partitions)), "asking for committed positions"
        )
        return {
            partition: Committed(known[partition].offset, known[partition].metadata) if partition in known else None
            for partition in partitions
        }

    async def beginning_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        await self._check_existence(partitions)
        ask = self._running.beginning_offsets(_theirs(partitions))
        return _our_keys(await within(CALL_DEADLINE_S, ask, "asking for the log's beginning"))

    async def end_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        await self._check_existence(partitions)
        ask = self._running.end_offsets(_theirs(partitions))
        return _our_keys(await within(CALL_DEADLINE_S, ask, "asking for the log's end"))

    async def offsets_for_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        await self._check_existence(times_ms)
        theirs = {aiokafka.TopicPartition(*partition): max(0, time_ms) for partition, time_ms in times_ms.items()}
        ask = self._running.offsets_for_times(theirs)
        found = await within(CALL_DEADLINE_S, ask, "asking for offsets by time")
        return _our_keys({partition: at.offset if at is not None else None for partition, at in found.items()})

    async def _check_existence(self, partitions: Collection[TopicPartition]) -> None:
        """Raise for a partition that is not there, which the client would ask for again and again.

        And it would ask for that topic alone from then on: a pattern would find no other.
        """
        client = self._running._client
        unknown = _unknown(client, partitions)
        if not unknown:
            return
        if client._topics:  # else it asks for all of them anyway
            for partition in unknown:
                client.add_topic(partition.topic)
        await within(CALL_DEADLINE_S, _awaited(client.force_metadata_update()), "asking for the topics")
        missing = _unknown(client, unknown)
        if missing:
            raise TransientBrokerError(f"no such partition: {', '.join(map(str, sorted(missing)))}")

    async def topics(self) -> dict[str, list[TopicPartition]]:
        client = self._running._client
        metadata = await within(CALL_DEADLINE_S, client.fetch_all_metadata(), "asking for the topics")
        return {
            topic: [TopicPartition(topic, number) for number in sorted(metadata.partitions_for_topic(topic) or ())]
            for topic in metadata.topics()
        }

    async def check(self) -> None:
        if not await within(CALL_DEADLINE_S, anybody_answers(self._running._client), "asking any broker"):
            raise TransientBrokerError("no broker answers")

    async def look(self, partitions: Collection[TopicPartition]) -> Sight:
        client = self._running._client
        known, topics = client.cluster, frozenset(self._subscription.topics)
        forbidden = topics & known.unauthorized_topics
        missing = {topic for topic in topics - forbidden if not known.partitions_for_topic(topic)}
        return Sight(frozenset(missing), frozenset(forbidden), await silent_leaders(client, partitions))

    @property
    def _running(self) -> aiokafka.AIOKafkaConsumer:
        if self._consumer is None:
            raise TransientBrokerError("the client is not started")
        return self._consumer


class _Matching:
    """A pattern with the method of a compiled regular expression that aiokafka calls."""

    def __init__(self, pattern: Pattern) -> None:
        self.match = pattern.reads


def has_expected_internals(consumer: Any) -> bool:
    """Whether what the fast way in reads is where it is expected; else ``getmany`` does it."""
    return all(hasattr(consumer._fetcher, name) for name in ("_records", "_wait_consume_future", "_notify")) and all(
        hasattr(PartitionRecords, name) for name in ("_consume_aborted_up_to", "_contains_abort_marker")
    )


def _theirs(partitions: Collection[TopicPartition]) -> list[Any]:
    return [aiokafka.TopicPartition(*partition) for partition in partitions]


def _unknown(client: Any, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
    known = {topic: client.cluster.partitions_for_topic(topic) or () for topic in {one.topic for one in partitions}}
    return [partition for partition in partitions if partition.partition not in known[partition.topic]]


def _our_keys(offsets: Mapping[Any, T]) -> dict[TopicPartition, T]:
    return {TopicPartition(partition.topic, partition.partition): offset for partition, offset in offsets.items()}


def _complete(waiter: Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


async def _awaited(future: Future[T]) -> T:
    return await future
