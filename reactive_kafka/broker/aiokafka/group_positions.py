"""A group's positions: a commit as one request, what its answer means, and asking for them (OffsetFetch, H17)."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import aiokafka.errors as kafka_errors
from aiokafka.client import ConnectionGroup
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.commit import OffsetCommitRequest, OffsetFetchRequest_v3
from aiokafka.protocol.types import Boolean, CompactArray, CompactString, Int16, Int32, Int64, Schema, TaggedFields

from reactive_kafka.broker.aiokafka.membership import Assignment
from reactive_kafka.broker.aiokafka.setup import CALL_DEADLINE_S, COORDINATOR_MOVED, NOT_OWNER, translate, within
from reactive_kafka.broker.client import NO_GROUP, members_share
from reactive_kafka.broker.commit_parts import parts_of
from reactive_kafka.broker.transactional import TransactionId
from reactive_kafka.errors import (
    BrokerError,
    FatalBrokerError,
    MetadataTooLargeError,
    NotOwnerError,
    OutcomeUnknownError,
    TransientBrokerError,
)
from reactive_kafka.records import Committed, TopicPartition

UNSTABLE_OFFSET_COMMIT = 88  # brokers before 4.0: a commit of this partition is still being stored, ask again
TEXT = CompactString("utf-8")
TAGS = ("tags", TaggedFields)
RETRY_S = 0.1  # between two questions, while the coordinator is being found or still loads
NO_LEADER_EPOCH = -1
NO_MEMBER = ("", -1)  # member and generation of a commit by somebody who has not joined the group


class OffsetFetchResponse_v7(Response):  # type: ignore[misc]  # aiokafka is untyped
    """Source: OffsetFetchResponse.json of Kafka."""

    API_KEY = 9
    API_VERSION = 7
    _POSITION = (("partition", Int32), ("offset", Int64), ("leader_epoch", Int32), ("metadata", TEXT))
    _PARTITION = (*_POSITION, ("error_code", Int16), TAGS)
    _TOPIC = (("topic", TEXT), ("partitions", CompactArray(*_PARTITION)), TAGS)
    SCHEMA = Schema(("throttle_time_ms", Int32), ("topics", CompactArray(*_TOPIC)), ("error_code", Int16), TAGS)


class OffsetFetchRequest_v7(RequestStruct):  # type: ignore[misc]  # aiokafka is untyped
    """Source: OffsetFetchRequest.json of Kafka. Spoken by Kafka 2.5 and newer."""

    API_KEY = 9
    API_VERSION = 7
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = OffsetFetchResponse_v7
    _TOPIC = (("topic", TEXT), ("partitions", CompactArray(Int32)), TAGS)
    SCHEMA = Schema(("group_id", TEXT), ("topics", CompactArray(*_TOPIC)), ("require_stable", Boolean), TAGS)


class TxnOffsetCommitResponse_v3(Response):  # type: ignore[misc]  # aiokafka is untyped
    """Source: TxnOffsetCommitResponse.json of Kafka."""

    API_KEY = 28
    API_VERSION = 3
    _TOPIC = (("topic", TEXT), ("partitions", CompactArray(("partition", Int32), ("error_code", Int16), TAGS)), TAGS)
    SCHEMA = Schema(("throttle_time_ms", Int32), ("topics", CompactArray(*_TOPIC)), TAGS)


class TxnOffsetCommitRequest_v3(RequestStruct):  # type: ignore[misc]  # aiokafka is untyped
    """Source: TxnOffsetCommitRequest.json of Kafka. Spoken by Kafka 2.5 and newer."""

    API_KEY = 28
    API_VERSION = 3
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = TxnOffsetCommitResponse_v3
    _POSITION = (("partition", Int32), ("offset", Int64), ("leader_epoch", Int32), ("metadata", TEXT), TAGS)
    _TOPIC = (("topic", TEXT), ("partitions", CompactArray(*_POSITION)), TAGS)
    _PRODUCER = (("transactional_id", TEXT), ("group_id", TEXT), ("producer_id", Int64), ("producer_epoch", Int16))
    _MEMBER = (("generation_id", Int32), ("member_id", TEXT), ("group_instance_id", TEXT))
    SCHEMA = Schema(*_PRODUCER, *_MEMBER, ("topics", CompactArray(*_TOPIC)), TAGS)


class TxnOffsetCommit(Request[TxnOffsetCommitRequest_v3]):  # type: ignore[misc]
    """Positions for a transaction, in the name of a member of one generation (KIP-447).

    aiokafka's own request ends at version 0, which names no member: so a member that was frozen, and has lost its
    partitions meanwhile, could still store positions. Brokers before 2.5 are refused, for they cannot tell.
    """

    API_KEY = 28

    def __init__(self, arguments: tuple[Any, ...]) -> None:
        self._arguments = arguments

    def build(self, version: Any) -> Any:
        return version(*self._arguments)


class UnstableOffsetsError(kafka_errors.GroupLoadInProgressError):  # type: ignore[misc]
    """A position is still being stored, or is part of a transaction that is open. aiokafka does not know the code."""


class OffsetFetch(Request[OffsetFetchRequest_v3 | OffsetFetchRequest_v7]):  # type: ignore[misc]
    """The question for the positions of *group_id*: those of *partitions*, or None for all that it has.

    A coordinator that has just taken over tells the positions that it knows to be on all in-sync replicas, and for
    up to a second that may be fewer than were confirmed to us: a channel that starts then would repeat what it has
    committed. ``require_stable`` makes the coordinator wait until all that it has is stored, as Java's clients ask
    it to. aiokafka's own request ends at version 3, which cannot say so; brokers before 2.5 get that one.
    """

    API_KEY = 9

    def __init__(self, group_id: str, partitions: Iterable[TopicPartition] | None) -> None:
        self._group_id = group_id
        self.is_to_be_stable = True
        self._topics: dict[str, list[int]] | None = None if partitions is None else {}
        for topic, number in partitions or ():
            self._topics.setdefault(topic, []).append(number)  # type: ignore[union-attr]

    def build(self, version: Any) -> Any:
        """The request in the newest version that both sides speak."""
        topics = None if self._topics is None else list(self._topics.items())
        if version is OffsetFetchRequest_v3:
            return version(self._group_id, topics)
        tagged: list[Any] | None = None if topics is None else [(topic, numbers, {}) for topic, numbers in topics]
        return version(self._group_id, tagged, self.is_to_be_stable, {})


def error_of(answer: Any) -> Any:
    """The class of the first error in an answer of a coordinator: of a group, of the whole, or of a partition; or None.

    The one of the whole answer comes with an empty list of topics, when the coordinator has moved or still loads.
    aiokafka's own ``committed()`` does not look at it, and takes the empty list for "nothing is committed": reading
    then began where ``auto_offset_reset`` says, so that records were repeated, or with ``latest`` lost.
    """
    of_the_whole = getattr(answer, "error_code", 0)
    topics = getattr(answer, "topics", None) or ()
    of_groups = (group[0] for group in getattr(answer, "groups", ()))
    for code in (*of_groups, of_the_whole, *(row[_error_at(answer)] for _, rows, *_ in topics for row in rows)):
        if code == UNSTABLE_OFFSET_COMMIT:
            return UnstableOffsetsError
        if code:
            return kafka_errors.for_code(code)
    return None


def positions(answer: Any) -> dict[TopicPartition, Committed]:
    """What an answer without errors tells; partitions without a position are left out."""
    return {
        TopicPartition(topic, row[0]): Committed(row[1], row[_error_at(answer) - 1] or "")
        for topic, rows, *_ in answer.topics
        for row in rows
        if row[1] >= 0
    }


def _error_at(answer: Any) -> int:
    return -2 if isinstance(answer, OffsetFetchResponse_v7) else -1


async def commit(
    consumer: Assignment, group_id: str | None, offsets: Mapping[TopicPartition, Committed], generation: int
) -> None:
    """One request, or as many as the broker needs, with the member and generation of their assignment (H4).

    The client's own commit checks ownership once and then retries, with the generation of the moment; the
    broker checks member and generation but not who owns a partition, so a late retry overwrites another's.
    A static assignment commits to the group without being in it.
    """
    coordinator = _coordinator(consumer, group_id)
    member = NO_MEMBER if consumer.is_static else (coordinator.member_id, generation)
    consumer.check_owner(offsets, generation)
    has_begun = False
    for part in parts_of(coordinator.group_id, offsets):
        try:
            await _turn(coordinator, "commit")
            consumer.check_owner(part, generation)  # again: what was awaited took its time
            response = await _answer(coordinator, commit_request(coordinator.group_id, member, part), "commit")
            _raise_errors(coordinator, response, is_member=member != NO_MEMBER)
        except BrokerError as error:
            if not has_begun:
                raise
            raise OutcomeUnknownError(f"a part of the positions was stored, and then: {error}") from error
        has_begun = True


async def commit_in(
    consumer: Assignment,
    group_id: str | None,
    transaction: TransactionId,
    offsets: Mapping[TopicPartition, Committed],
    generation: int,
) -> None:
    """Have positions take part in a transaction; what the requests name, and what is checked, is as in a commit."""
    coordinator = _coordinator(consumer, group_id)
    consumer.check_owner(offsets, generation)
    await _turn(coordinator, "positions of a transaction")
    consumer.check_owner(offsets, generation)  # again: what was awaited took its time
    member = (-1, "", None) if consumer.is_static else (generation, coordinator.member_id, _instance(coordinator))
    transactional_id, producer_id, epoch = transaction
    producer = (transactional_id, coordinator.group_id, producer_id, epoch)
    for part in parts_of(coordinator.group_id, offsets):
        topics: dict[str, list[tuple[int, int, int, str, dict[int, bytes]]]] = {}
        for (topic, number), position in part.items():
            topics.setdefault(topic, []).append((number, position.offset, NO_LEADER_EPOCH, position.metadata, {}))
        request = TxnOffsetCommit((*producer, *member, [(topic, rows, {}) for topic, rows in topics.items()], {}))
        response = await _answer(coordinator, request, "positions of a transaction")
        _raise_errors(coordinator, response, is_member=not consumer.is_static)


def _instance(coordinator: Any) -> str | None:
    return getattr(coordinator, "_group_instance_id", None)


async def _turn(coordinator: Any, what: str) -> None:
    """Wait until the group's coordinator is known, and owes no answer on its connection.

    It handles the requests of a connection one after the other, also those that it got before the client closed it.
    A heartbeat of Kafka 4 waits until what is being committed there, by any group, is on the followers. A commit
    behind such a heartbeat would be handled after those of the connection that follows when the client gives this
    one up, and move the position back.

    TransientBrokerError: nothing was sent.
    """
    doing = f"{what}: not sent, for the group's coordinator owes an answer"
    await within(CALL_DEADLINE_S, _is_free(coordinator), doing)


async def _is_free(coordinator: Any) -> None:
    client = coordinator._client
    while True:
        await coordinator.ensure_coordinator_known()
        node = coordinator.coordinator_id
        if not await client.ready(node, group=ConnectionGroup.COORDINATION):
            coordinator.coordinator_dead()
            raise kafka_errors.NodeNotReadyError(f"the group's coordinator, node {node}, is not connected")
        asked = client._conns[node, ConnectionGroup.COORDINATION]._requests
        if not asked:
            return
        answers = [answer for _, _, answer in asked if not answer.done()]
        # Whoever waited for an answer may have given up: it is owed all the same.
        await (asyncio.wait(answers) if answers else asyncio.sleep(RETRY_S))


async def _answer(coordinator: Any, request: Any, what: str) -> Any:
    """Send one request to the group's coordinator. OutcomeUnknownError: it was not answered."""
    try:
        async with asyncio.timeout(CALL_DEADLINE_S):
            return await coordinator._send_req(request)
    except TimeoutError as error:
        raise OutcomeUnknownError(f"{what}: no answer within {CALL_DEADLINE_S:g} s") from error
    except kafka_errors.KafkaError as error:
        raise OutcomeUnknownError(f"{what}: {error}") from error


async def committed(
    consumer: Assignment, group_id: str | None, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, Committed | None]:
    ask = _ask(_coordinator(consumer, group_id), partitions)
    known = await within(CALL_DEADLINE_S, ask, "asking for committed positions")
    return {partition: known.get(partition) for partition in partitions}


async def _ask(coordinator: Any, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Committed]:
    request = OffsetFetch(coordinator.group_id, partitions)
    while partitions:
        try:
            await coordinator.ensure_coordinator_known()
            answer = await coordinator._send_req(request)
            error = error_of(answer)
            if error is None:
                return positions(answer)
            if issubclass(error, COORDINATOR_MOVED):
                coordinator.coordinator_dead()
            raise error()
        except kafka_errors.KafkaError as error:
            if not error.retriable:
                raise
            await asyncio.sleep(RETRY_S)
    return {}


def _coordinator(consumer: Assignment, group_id: str | None) -> Any:
    if group_id is None:
        raise FatalBrokerError(NO_GROUP)
    return consumer.client._coordinator


def commit_request(group_id: str, member: tuple[str, int], offsets: Mapping[TopicPartition, Committed]) -> Any:
    """A commit in the name of *member* (its id, its generation)."""
    by_topic: dict[str, list[tuple[int, int, str]]] = {}
    for (topic, number), position in offsets.items():
        by_topic.setdefault(topic, []).append((number, position.offset, position.metadata))
    member_id, generation = member
    retention = OffsetCommitRequest.DEFAULT_RETENTION_TIME
    return OffsetCommitRequest(group_id, generation, member_id, retention, list(by_topic.items()))


def _raise_errors(coordinator: Any, response: Any, *, is_member: bool) -> None:
    errors = [
        (TopicPartition(topic, partition), kafka_errors.for_code(code))
        for topic, partitions, *_ in response.topics
        for partition, code, *_ in partitions
        if code != 0
    ]
    if not errors:
        return
    if any(issubclass(kind, COORDINATOR_MOVED) for _, kind in errors):
        coordinator.coordinator_dead()
    partition, kind = min(errors, key=_urgency)
    if issubclass(kind, kafka_errors.RebalanceInProgressError):
        raise TransientBrokerError(f"commit of {partition}: a rebalance is in progress") from kind()
    if issubclass(kind, NOT_OWNER) and not is_member:
        raise TransientBrokerError(f"commit of {partition}: {members_share(coordinator.group_id)}") from kind()
    if issubclass(kind, kafka_errors.OffsetMetadataTooLargeError):
        too_large = [partition for partition, one in errors if one is kind]
        what = f"commit of {partition}: its metadata is too long for the broker"
        raise MetadataTooLargeError(what, too_large) from kind()
    error = translate(kind())
    # A coordinator that loses its office says so also of what it has written and its follower may have.
    of_unknown = any(issubclass(one, COORDINATOR_MOVED) for _, one in errors) and not isinstance(error, NotOwnerError)
    raise (OutcomeUnknownError if of_unknown else type(error))(f"commit of {partition}: {error}") from kind()


def _urgency(error: tuple[TopicPartition, type[Exception]]) -> int:
    """Which of several errors is told: one that ends the ownership, else one that shorter metadata does not mend."""
    kind = error[1]
    return 0 if issubclass(kind, NOT_OWNER) else 2 if issubclass(kind, kafka_errors.OffsetMetadataTooLargeError) else 1
