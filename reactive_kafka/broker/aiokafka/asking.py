"""What is asked of the brokers: topics, ends of logs, who leads a partition, and whether anybody is
there.
"""

from __future__ import annotations

import asyncio
import time
from asyncio import Future
from collections.abc import Awaitable, Callable, Collection, Mapping
from math import inf
from typing import Any

import aiokafka
from aiokafka.cluster import ClusterMetadata
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.metadata import MetadataRequest

from reactive_kafka.backoff import Backoff, Waits
from reactive_kafka.broker.aiokafka.closing import cancel
from reactive_kafka.broker.aiokafka.fetched import ahead
from reactive_kafka.broker.aiokafka.fetched.repeated import Repeated
from reactive_kafka.broker.aiokafka.fetched.standing import Standing, nothing_new
from reactive_kafka.broker.aiokafka.setup import CALL_DEADLINE_S, our_keys, theirs, within
from reactive_kafka.broker.aiokafka.topic_ids import TopicIdQuestion, topic_ids, topic_ids_of_all
from reactive_kafka.errors import BrokerError, TransientBrokerError
from reactive_kafka.records import TopicIds, TopicPartition

# A while without a question, and they begin anew.
PAUSES = Backoff(0.1, 1.0)

ANSWERED_S = 0.5
"""Beyond the wait of a fetch: nobody need be asked whether it is there who has answered one
since.
"""
METADATA_S = 15.0
"""How old the metadata may become where answers to fetches say that brokers are there."""


class Questions:
    """The base of clients that ask through an aiokafka consumer, and wait ``deadline_s`` for an
    answer.
    """

    deadline_s = CALL_DEADLINE_S
    _client: aiokafka.AIOKafkaConsumer | None = None
    _id_question: Repeated | None = None

    @property
    def client(self) -> aiokafka.AIOKafkaConsumer:
        """It; raises where it has not started."""
        if self._client is None:
            raise TransientBrokerError("the client is not started")
        return self._client

    async def topics(self, names: Collection[str] | None = None) -> dict[str, list[TopicPartition]]:
        client = self.client._client
        ask = client.fetch_all_metadata() if names is None else _metadata(client, names)
        known = await within(self.deadline_s, ask, "asking for the topics")
        return {
            topic: [
                TopicPartition(topic, number)
                for number in sorted(known.partitions_for_topic(topic) or ())
            ]
            for topic in sorted(known.topics())
        }

    async def topic_ids(self, topics: Collection[str], *, of_all: bool = False) -> list[TopicIds]:
        if of_all:
            return await topic_ids_of_all(self.client._client, topics, self.deadline_s)
        if self._id_question is None or frozenset(topics) != self._id_question.request.topics:
            self._id_question = Repeated(TopicIdQuestion(frozenset(topics)), lambda answer: answer)
        return await topic_ids(self.client._client, self._id_question.request, self.deadline_s)

    async def beginning_offsets(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        await self._check_existence(partitions)
        ask = self.client.beginning_offsets(theirs(partitions))
        return our_keys(await within(self.deadline_s, ask, "asking for the log's beginning"))

    async def end_offsets(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        await self._check_existence(partitions)
        ask = self.client.end_offsets(theirs(partitions))
        return our_keys(await within(self.deadline_s, ask, "asking for the log's end"))

    async def offsets_for_times(
        self, times_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        await self._check_existence(times_ms)
        ask = self.client.offsets_for_times(
            {aiokafka.TopicPartition(*tp): max(0, ms) for tp, ms in times_ms.items()}
        )
        found = our_keys(await within(self.deadline_s, ask, "asking for offsets by time"))
        return {partition: None if at is None else at.offset for partition, at in found.items()}

    async def _check_existence(self, partitions: Collection[TopicPartition]) -> None:
        """Raise for a partition that is not there, which the client would ask for again and again,
        and for that topic alone from then on: a pattern would find no other.
        """
        client = self.client._client
        unknown = _unknown(client, partitions)
        if not unknown:
            return
        # Else it asks for all of them anyway.
        if client._topics:
            for partition in unknown:
                client.add_topic(partition.topic)
        await within(self.deadline_s, client.force_metadata_update(), "asking for the topics")
        missing = _unknown(client, unknown)
        if missing:
            raise TransientBrokerError(f"no such partition: {', '.join(map(str, sorted(missing)))}")


async def _metadata(client: Any, topics: Collection[str]) -> ClusterMetadata:
    """What there is of these topics; none is created, and nothing is logged of one that does not
    exist.
    """
    known = ClusterMetadata()
    # What is wrong with a topic is passed over.
    known.need_all_topic_metadata = True
    node = client.get_random_node()
    if node is None:
        raise TransientBrokerError("asking for the topics: no broker is known")
    known.update_metadata(await client.send(node, MetadataRequest(sorted(topics), False)))
    return known


def _unknown(client: Any, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
    known = {
        topic: client.cluster.partitions_for_topic(topic) or ()
        for topic in {one.topic for one in partitions}
    }
    return [
        partition for partition in partitions if partition.partition not in known[partition.topic]
    ]


class Sparing:
    """aiokafka's client, as its fetcher has it: all of it, but that it asks for metadata with
    pauses.

    The fetcher itself asks as fast as the broker answers (H15): a partition without a leader (its
    topic was deleted, its only replica's node is away) has it ask, look, and ask again, thousands
    of times a second, for as long as it is assigned. And *look* is shown what each of its fetches
    is answered with, before the fetcher sees that. Of a fetch that says nothing new it sees no
    partition: each of them costs it more than the whole answer costs us. And most of those it does
    not see at all: the connection sends the fetch again by itself, where *fetcher* would do the
    same (:class:`Standing`), for *stands_s* at most.
    """

    def __init__(
        self,
        client: Any,
        look: Callable[[Any, Any], None],
        wait_s: float,
        fetcher: Any = None,
        stands_s: float = 0.0,
    ) -> None:
        self._client = client
        self._fetcher = fetcher
        self._stands_s = stands_s
        self._look = look
        self._lately_s = wait_s + ANSWERED_S
        # The fetcher reads it for each partition, each time that it looks for work.
        self.cluster = client.cluster
        self._pauses = Waits(PAUSES)
        self._next_at = 0.0
        self._later: Future[bool] | None = None
        # Node -> when it has answered a fetch last, by the loop's time.
        self._answered: dict[int, float] = {}
        # node -> the partitions and offsets of the last fetch, and that fetch if it was sent more
        # than once
        self._last: dict[int, tuple[frozenset[Any], Repeated | None]] = {}
        # Node -> the fetch that is on its way.
        self._standing: dict[int, Standing] = {}
        # Nodes whose next fetch brings what there is, and waits for nothing.
        self.hurried: set[int] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def send(self, node_id: int, request: Any, **given: Any) -> Any:
        """The answer of a node."""
        if not isinstance(request, FetchRequest):
            return await self._client.send(node_id, request, **given)
        asks = frozenset(
            (topic, *one) for topic, partitions in request.topics for one in partitions
        )
        last, repeated = self._last.get(node_id, (None, None))
        request.asks = asks
        request.anew = last is None
        most_ms = (
            inf
            if self._fetcher is None
            else ahead.most_wait_ms(self._fetcher, node_id, time.monotonic())
        )
        if is_hurried := node_id in self.hurried:
            self.hurried.discard(node_id)
            most_ms = request._min_bytes = 0
        if is_short := most_ms <= request._max_wait_ms:
            request._max_wait_ms = int(most_ms)
        # Which must never stand.
        if last != asks or is_short:
            # Where records come it is sent once. A Repeated would be made in vain, and its request
            # refers to it: at 10,000 records/s such cycles had the garbage collector stop the loop
            # for 30 ms each second.
            self._last[node_id] = asks, None
        else:
            if repeated is None:
                repeated = Repeated(request, nothing_new, lambda: self._stands(node_id, last))
                self._last[node_id] = last, repeated
            request = repeated.request
        try:
            answer = await self._client.send(node_id, request, **given)
        finally:
            self._standing.pop(node_id, None)
            if is_hurried:
                ahead.rest(self._fetcher)
        self._answered[node_id] = asyncio.get_running_loop().time()
        self._look(request, answer)
        return answer

    def _stands(self, node_id: int, asks: frozenset[Any]) -> int | None:
        """How many ms it may wait, if a fetch that has brought nothing may be sent again without
        the fetcher's help.
        """
        now = asyncio.get_running_loop().time()
        self._answered[node_id] = now
        if self._fetcher is None or self._last.get(node_id, (None,))[0] is not asks:
            return None
        standing = self._standing.get(node_id)
        if standing is None:
            standing = self._standing[node_id] = Standing(
                self._fetcher, node_id, asks, now, now + self._stands_s
            )
        return standing.wait_ms(now) if standing.holds(now) else None

    def all_stand_since(self) -> float:
        """Since when fetches stand that ask for all that is assigned, by the loop's time; infinite:
        they do not.
        """
        subscription = None if self._fetcher is None else self._fetcher._subscriptions.subscription
        assignment = None if subscription is None else subscription.assignment
        if assignment is None or not all(map(self.was_answered, self._standing)):
            return inf
        asked = sum(standing.asks_of(assignment) for standing in self._standing.values())
        if not asked or asked < len(assignment.tps):
            return inf
        return max(standing.since for standing in self._standing.values())

    def forget(self) -> None:
        """The fetcher is to see the next answers whole: what it knows of its partitions begins
        anew.
        """
        self._last.clear()

    def was_answered(self, node_id: int) -> bool:
        """Whether a node has answered a fetch since it was looked at last."""
        return (
            asyncio.get_running_loop().time() - self._answered.get(node_id, -inf) <= self._lately_s
        )

    def keeps_known(self, topics: Collection[str]) -> bool:
        """Whether a broker has answered a fetch so lately, these topics are known, and what is
        known is not old.
        """
        is_old = time.time() - self.cluster._last_successful_refresh_ms / 1000 > METADATA_S
        return (
            (not is_old or self.all_stand_since() < inf)
            and any(map(self.was_answered, self._answered))
            and all(map(self.cluster.partitions_for_topic, topics))
        )

    def force_metadata_update(self) -> Future[bool]:
        """Ask now, or say when the fetcher may look again; it asks then where that is needed
        still.
        """
        loop = asyncio.get_running_loop()
        now = loop.time()
        if now >= self._next_at:
            if now >= self._next_at + PAUSES.last_s:
                self._pauses.progressed()
            self._next_at = now + self._pauses.next_s()
            return self._client.force_metadata_update()  # type: ignore[no-any-return]
        if self._later is None or self._later.done():
            self._later = loop.create_future()
            loop.call_at(self._next_at, _complete, self._later)
        return self._later


async def known_topics(
    client: aiokafka.AIOKafkaConsumer, topics: Collection[str], stop: Callable[[], Awaitable[None]]
) -> None:
    """Have a client know these topics, before their partitions are assigned; *stop* it where that
    fails.
    """
    try:
        await within(CALL_DEADLINE_S, client._client.set_topics(topics), "asking for the topics")
    except BaseException:
        await stop()
        raise


def partitions_of(
    client: aiokafka.AIOKafkaConsumer, topics: Collection[str]
) -> set[TopicPartition]:
    """The partitions that a client knows of these topics."""
    known = {topic: client._client.cluster.partitions_for_topic(topic) or () for topic in topics}
    return {TopicPartition(topic, number) for topic, numbers in known.items() for number in numbers}


async def silent_leaders(
    client: Any, partitions: Collection[TopicPartition], answers: Callable[[int], bool]
) -> dict[TopicPartition, str | None]:
    """The partitions whose leader does not answer -> that node; None: they have none.

    One small request to each node, but those of which it is known that it *answers*.
    """
    leaders = {
        partition: client.cluster.leader_for_partition(partition) for partition in partitions
    }
    nodes = sorted(
        {node for node in leaders.values() if node is not None and node != -1 and not answers(node)}
    )
    told = dict(
        zip(nodes, await asyncio.gather(*(_answers(client, node) for node in nodes)), strict=True)
    )
    told[-1] = False
    return {
        partition: None if node == -1 else _address(client, node)
        for partition, node in leaders.items()
        if node is not None and not told.get(node, True)
    }


async def anybody_answers(client: Any) -> bool:
    """Whether any broker answers: with metadata, or with nothing where the client waits long for
    the one it picked.

    Metadata that fails is no answer yet: a broker closes the connection where a login's time is
    over.
    """
    told = client.force_metadata_update()
    await asyncio.wait([told], timeout=CALL_DEADLINE_S / 2)
    if told.done() and told.result():
        return True
    asked = [
        asyncio.create_task(_answers(client, broker.nodeId)) for broker in client.cluster.brokers()
    ]
    try:
        for answer in asyncio.as_completed([told, *asked]):
            if await answer:
                return True
    finally:
        await cancel([one for one in asked if not one.done()])
    return False


async def _answers(client: Any, node: int) -> bool:
    """Whether a node answers a request for nothing; behind a fetch that waits for records, it does
    so after that.
    """
    try:
        await within(CALL_DEADLINE_S, client.send(node, MetadataRequest([])), "asking a leader")
    except BrokerError:
        return False
    return True


def _address(client: Any, node: int) -> str:
    broker = client.cluster.broker_metadata(node)
    return str(node) if broker is None else f"{node} at {broker.host}:{broker.port}"


def _complete(later: Future[bool]) -> None:
    if not later.done():
        later.set_result(False)
