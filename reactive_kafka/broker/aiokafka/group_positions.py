"""A group's positions: a commit as one request, what its answer means, and asking for them
(OffsetFetch, H17).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Any

import aiokafka.errors as kafka_errors
from aiokafka.client import ConnectionGroup

from reactive_kafka.broker.aiokafka.error_classes import class_for, is_retriable
from reactive_kafka.broker.aiokafka.membership import Assignment
from reactive_kafka.broker.aiokafka.offset_requests import (
    NO_LEADER_EPOCH,
    NO_MEMBER,
    OffsetFetch,
    OffsetFetchResponse_v7,
    TxnOffsetCommit,
    commit_request,
)
from reactive_kafka.broker.aiokafka.setup import (
    CALL_DEADLINE_S,
    COORDINATOR_MOVED,
    NOT_OWNER,
    translate,
    within,
)
from reactive_kafka.broker.client import (
    NO_GROUP,
    GroupHasMembersError,
    SomePositionsUnknownError,
    members_share,
)
from reactive_kafka.broker.commit_parts import parts_of
from reactive_kafka.broker.transactional import TransactionId
from reactive_kafka.errors import (
    BrokerError,
    FatalBrokerError,
    MetadataTooLargeError,
    NotOwnerError,
    OutcomeUnknownError,
    PositionsRefusedError,
    TransientBrokerError,
)
from reactive_kafka.records import Committed, TopicPartition

UNSTABLE_OFFSET_COMMIT = 88
"""A position is part of a transaction that is open; before Kafka 4.0 also: a commit of it is still
being stored.
"""
OF_TOPICS = frozenset({3, 29, 100})
"""Error codes that are about a topic: UNKNOWN_TOPIC_OR_PARTITION, TOPIC_AUTHORIZATION_FAILED,
UNKNOWN_TOPIC_ID.
"""
# Between two questions, while the coordinator is being found or still loads.
RETRY_S = 0.1


def error_of(answer: Any) -> Any:
    """The class of the first error in an answer of a coordinator: of a group, of the whole, or of a
    partition; or None.

    The one of the whole answer comes with an empty list of topics, when the coordinator has moved
    or still loads. aiokafka's own ``committed()`` does not look at it, and takes the empty list for
    "nothing is committed": reading then began where ``auto_offset_reset`` says, so that records
    were repeated, or with ``latest`` lost.
    """
    of_the_whole = getattr(answer, "error_code", 0)
    topics = getattr(answer, "topics", None) or ()
    of_groups = (group[0] for group in getattr(answer, "groups", ()))
    for code in (
        *of_groups,
        of_the_whole,
        *(row[_error_at(answer)] for _, rows, *_ in topics for row in rows),
    ):
        if code:
            return class_for(code)
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
    consumer: Assignment,
    group_id: str | None,
    offsets: Mapping[TopicPartition, Committed],
    generation: int,
) -> None:
    """One request, or as many as the broker needs, with the member and generation of their
    assignment (H4).

    The client's own commit checks ownership once and then retries, with the generation of the
    moment; the broker checks member and generation but not who owns a partition, so a late retry
    overwrites another's. A static assignment commits to the group without being in it.
    """
    coordinator = _coordinator(consumer, group_id)
    member = NO_MEMBER if consumer.is_static else (coordinator.member_id, generation)
    consumer.check_owner(offsets, generation)
    has_begun = False
    refused: dict[TopicPartition, BrokerError] = {}
    for part in parts_of(coordinator.group_id, offsets):
        try:
            await _turn(coordinator, "commit")
            # again: what was awaited took its time.
            consumer.check_owner(part, generation)
            response = await _answer(
                coordinator, commit_request(coordinator.group_id, member, part), "commit"
            )
            _raise_errors(coordinator, response, is_member=member != NO_MEMBER)
        except PositionsRefusedError as error:
            refused.update(error.refused)
        except BrokerError as error:
            if not has_begun:
                raise
            raise OutcomeUnknownError(
                f"a part of the positions was stored, and then: {error}"
            ) from error
        has_begun = True
    if refused:
        raise PositionsRefusedError(refused)


async def commit_in(
    consumer: Assignment,
    group_id: str | None,
    transaction: TransactionId,
    offsets: Mapping[TopicPartition, Committed],
    generation: int,
) -> None:
    """Have positions take part in a transaction; what the requests name, and what is checked, is as
    in a commit.
    """
    coordinator = _coordinator(consumer, group_id)
    consumer.check_owner(offsets, generation)
    await _turn(coordinator, "positions of a transaction")
    # again: what was awaited took its time.
    consumer.check_owner(offsets, generation)
    member = (
        (-1, "", None)
        if consumer.is_static
        else (generation, coordinator.member_id, _instance(coordinator))
    )
    transactional_id, producer_id, epoch = transaction
    producer = (transactional_id, coordinator.group_id, producer_id, epoch)
    refused: dict[TopicPartition, BrokerError] = {}
    for part in parts_of(coordinator.group_id, offsets):
        topics: dict[str, list[tuple[int, int, int, str, dict[int, bytes]]]] = {}
        for (topic, number), position in part.items():
            topics.setdefault(topic, []).append(
                (number, position.offset, NO_LEADER_EPOCH, position.metadata, {})
            )
        request = TxnOffsetCommit(
            (*producer, *member, [(topic, rows, {}) for topic, rows in topics.items()], {})
        )
        response = await _answer(coordinator, request, "positions of a transaction")
        try:
            _raise_errors(coordinator, response, is_member=not consumer.is_static)
        except PositionsRefusedError as error:
            refused.update(error.refused)
    if refused:
        raise PositionsRefusedError(refused)


def _instance(coordinator: Any) -> str | None:
    return getattr(coordinator, "_group_instance_id", None)


async def _turn(coordinator: Any, what: str) -> None:
    """Wait until the group's coordinator is known, and owes no answer on its connection.

    It handles the requests of a connection one after the other, also those that it got before the
    client closed it. A heartbeat of Kafka 4 waits until what is being committed there, by any
    group, is on the followers. A commit behind such a heartbeat would be handled after those of the
    connection that follows when the client gives this one up, and move the position back.

    TransientBrokerError: nothing was sent.
    """
    doing = f"{what}: not sent, for the group's coordinator owes an answer"
    await within(CALL_DEADLINE_S, _until_free(coordinator), doing)


async def _until_free(coordinator: Any) -> None:
    client = coordinator._client
    while True:
        await coordinator.ensure_coordinator_known()
        node = coordinator.coordinator_id
        if not await client.ready(node, group=ConnectionGroup.COORDINATION):
            coordinator.coordinator_dead()
            raise kafka_errors.NodeNotReadyError(
                f"the group's coordinator, node {node}, is not connected"
            )
        asked = client._conns[node, ConnectionGroup.COORDINATION]._requests
        if not asked:
            return
        answers = [answer for _, _, answer in asked if not answer.done()]
        # Whoever waited for an answer may have given up. The coordinator owes it all the same.
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


async def _ask(
    coordinator: Any, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, Committed]:
    request = OffsetFetch(coordinator.group_id, partitions)
    while partitions:
        try:
            await coordinator.ensure_coordinator_known()
            answer = await coordinator._send_req(request)
            error = error_of(answer)
            if error is None:
                return positions(answer)
            if refused := _refused_alone(answer):
                known = positions(answer)
                found = {one: known.get(one) for one in partitions if one not in refused}
                raise SomePositionsUnknownError(found, refused)
            if issubclass(error, COORDINATOR_MOVED):
                coordinator.coordinator_dead()
            raise error()
        except kafka_errors.KafkaError as error:
            if not is_retriable(error):
                raise
            await asyncio.sleep(RETRY_S)
    return {}


def _refused_alone(answer: Any) -> dict[TopicPartition, BrokerError]:
    """partition -> why its position is not told, in an answer that tells those of others."""
    if getattr(answer, "error_code", 0):
        return {}
    at = _error_at(answer)
    codes = {
        TopicPartition(topic, row[0]): row[at] for topic, rows, *_ in answer.topics for row in rows
    }
    refused = {partition: class_for(code) for partition, code in codes.items() if code}
    is_of_group = any(
        issubclass(kind, (*NOT_OWNER, *COORDINATOR_MOVED)) for kind in refused.values()
    )
    if is_of_group or len(refused) == len(codes):
        return {}
    return {partition: translate(kind()) for partition, kind in refused.items()}


def _coordinator(consumer: Assignment, group_id: str | None) -> Any:
    if group_id is None:
        raise FatalBrokerError(NO_GROUP)
    return consumer.client._coordinator


def _raise_errors(coordinator: Any, response: Any, *, is_member: bool) -> None:
    """Raise what the answer to a commit says: of the whole request, or of single partitions."""
    codes = [
        (TopicPartition(topic, partition), code)
        for topic, partitions, *_ in response.topics
        for partition, code, *_ in partitions
    ]
    errors = [(partition, class_for(code)) for partition, code in codes if code != 0]
    if not errors:
        return
    if any(issubclass(kind, COORDINATOR_MOVED) for _, kind in errors):
        coordinator.coordinator_dead()
    partition, kind = min(errors, key=_urgency)
    if issubclass(kind, kafka_errors.RebalanceInProgressError):
        raise TransientBrokerError(f"commit of {partition}: a rebalance is in progress") from kind()
    if issubclass(kind, NOT_OWNER) and not is_member:
        raise GroupHasMembersError(
            f"commit of {partition}: {members_share(coordinator.group_id)}"
        ) from kind()
    if issubclass(kind, kafka_errors.OffsetMetadataTooLargeError):
        too_large = [partition for partition, one in errors if one is kind]
        what = f"commit of {partition}: its metadata is too long for the broker"
        raise MetadataTooLargeError(what, too_large) from kind()
    # An error of the group or of the member comes once for each partition of the request. If other
    # positions were stored, or the error is about a topic, it concerns that partition alone.
    has_stored = len(errors) < len(codes)
    is_of_group = any(issubclass(one, (*NOT_OWNER, *COORDINATOR_MOVED)) for _, one in errors)
    if not is_of_group and (has_stored or all(one.errno in OF_TOPICS for _, one in errors)):
        raise PositionsRefusedError(
            {partition: _refusal(partition, one) for partition, one in errors}
        ) from kind()
    error = translate(kind())
    # A coordinator that has been replaced says so also of what it has written, and its successor
    # may have that.
    of_unknown = any(issubclass(one, COORDINATOR_MOVED) for _, one in errors) and not isinstance(
        error, NotOwnerError
    )
    raise (OutcomeUnknownError if of_unknown else type(error))(
        f"commit of {partition}: {error}"
    ) from kind()


def _refusal(
    partition: TopicPartition, kind: type[kafka_errors.BrokerResponseError]
) -> BrokerError:
    if issubclass(kind, kafka_errors.OffsetMetadataTooLargeError):
        return MetadataTooLargeError("its metadata is too long for the broker", [partition])
    return translate(kind())


def _urgency(error: tuple[TopicPartition, type[Exception]]) -> int:
    """Which of several errors is told: one that ends the ownership, else one that shorter metadata
    does not mend.
    """
    kind = error[1]
    return (
        0
        if issubclass(kind, NOT_OWNER)
        else 2
        if issubclass(kind, kafka_errors.OffsetMetadataTooLargeError)
        else 1
    )
