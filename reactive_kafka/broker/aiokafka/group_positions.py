"""Stores a group's positions, and asks for them (OffsetFetch, H17)."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Any

import aiokafka.errors as kafka_errors
from aiokafka.client import ConnectionGroup

from reactive_kafka.broker.aiokafka.client_calls import CALL_DEADLINE_S, within
from reactive_kafka.broker.aiokafka.error_classes import class_for, is_retriable
from reactive_kafka.broker.aiokafka.error_translation import COORDINATOR_MOVED, NOT_OWNER, translate
from reactive_kafka.broker.aiokafka.offset_requests import (
    NO_LEADER_EPOCH,
    NO_MEMBER,
    OffsetFetch,
    OffsetFetchResponse_v7,
    TxnOffsetCommit,
    commit_request,
)
from reactive_kafka.broker.aiokafka.owned_partitions import OwnedPartitions
from reactive_kafka.broker.client import (
    NO_GROUP,
    GroupHasMembersError,
    SomePositionsUnknownError,
    TransactionId,
    members_share,
)
from reactive_kafka.broker.commit_sizes import split_commit
from reactive_kafka.broker.consumer.membership.consumer_group.membership import (
    ConsumerGroupMembership,
)
from reactive_kafka.broker.wire.definitions import OFFSET_COMMIT
from reactive_kafka.broker.wire.requests import Answer, Request
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
"""A position is part of an open transaction. Before Kafka 4.0 also: a commit is being stored."""
TOPIC_CODES = frozenset({3, 29, 100})
"""Error codes about a topic: UNKNOWN_TOPIC_OR_PARTITION, TOPIC_AUTHORIZATION_FAILED,
UNKNOWN_TOPIC_ID.
"""
GONE_CODES = frozenset({25, 110})
"""Error codes about the member: UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH."""
STALE_MEMBER_EPOCH = 113
# Between two requests while the coordinator is being found, or loads the group.
RETRY_S = 0.1


def error_of(answer: Any) -> Any:
    """Return the class of the first error in a coordinator's answer; None: it has none.

    An answer may have an error of a group, of the whole answer, or of a partition. The error of the
    whole comes with an empty list of topics, when the coordinator has moved or still loads the
    group. aiokafka's own ``committed()`` does not look at it, and takes the empty list for "nothing
    is committed". Reading then began where ``auto_offset_reset`` says: records were repeated, or
    with ``latest`` lost.
    """
    whole_code = getattr(answer, "error_code", 0)
    topics = getattr(answer, "topics", None) or ()
    group_codes = (group[0] for group in getattr(answer, "groups", ()))
    partition_codes = (row[_error_index(answer)] for _, rows, *_ in topics for row in rows)
    for code in (*group_codes, whole_code, *partition_codes):
        if code:
            return class_for(code)
    return None


def positions(answer: Any) -> dict[TopicPartition, Committed]:
    """Return the positions in an answer without errors. Partitions without one are left out."""
    return {
        TopicPartition(topic, row[0]): Committed(row[1], row[_error_index(answer) - 1] or "")
        for topic, rows, *_ in answer.topics
        for row in rows
        if row[1] >= 0
    }


def _error_index(answer: Any) -> int:
    """Return where a row of the answer has its error code. The newer version has tags behind it."""
    return -2 if isinstance(answer, OffsetFetchResponse_v7) else -1


async def commit(
    owned: OwnedPartitions,
    group_id: str | None,
    offsets: Mapping[TopicPartition, Committed],
    generation: int,
) -> None:
    """Store positions, each request with the member and generation of their assignment (H4).

    It is one request, or as many as the broker needs. The client's own commit checks the ownership
    once and then retries with the current generation. The broker checks member and generation, but
    not who owns a partition: a late retry would overwrite the commit of another member. A static
    assignment commits to the group without being a member.
    """
    coordinator = _coordinator(owned, group_id)
    owned.check_owner(offsets, generation)
    has_stored = False
    refused: dict[TopicPartition, BrokerError] = {}
    for part in split_commit(coordinator.group_id, offsets):
        try:
            await _until_coordinator_free(coordinator, "commit")
            # Checked again, because time has passed.
            owned.check_owner(part, generation)
            request = _commit_request(owned, coordinator, part, generation)
            response = await _answer(coordinator, request, "commit")
            _raise_errors(coordinator, _rows(response), owned)
        except PositionsRefusedError as error:
            refused.update(error.refused)
        except BrokerError as error:
            if not has_stored:
                raise
            raise OutcomeUnknownError(
                f"a part of the positions was stored, and then: {error}"
            ) from error
        has_stored = True
    if refused:
        raise PositionsRefusedError(refused)


async def commit_in(
    owned: OwnedPartitions,
    group_id: str | None,
    transaction: TransactionId,
    offsets: Mapping[TopicPartition, Committed],
    generation: int,
) -> None:
    """Add positions to a transaction. Members and ownership are checked as in a commit."""
    coordinator = _coordinator(owned, group_id)
    owned.check_owner(offsets, generation)
    await _until_coordinator_free(coordinator, "positions of a transaction")
    # Checked again, because time has passed.
    owned.check_owner(offsets, generation)
    member_id, epoch = _member(owned, coordinator, generation)
    instance_id = None if owned.is_static else _instance_id(coordinator)
    member = (epoch, member_id, instance_id)
    transactional_id, producer_id, producer_epoch = transaction
    producer = (transactional_id, coordinator.group_id, producer_id, producer_epoch)
    refused: dict[TopicPartition, BrokerError] = {}
    for part in split_commit(coordinator.group_id, offsets):
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
            _raise_errors(coordinator, _rows(response), owned)
        except PositionsRefusedError as error:
            refused.update(error.refused)
    if refused:
        raise PositionsRefusedError(refused)


def _member(owned: OwnedPartitions, coordinator: Any, generation: int) -> tuple[str, int]:
    """Return the id of the member that commits, and its generation or epoch."""
    if owned.is_static:
        return NO_MEMBER
    if owned.group is not None:
        member = owned.group.member
        return member.settings.member_id, member.epoch
    return coordinator.member_id, generation


def _commit_request(
    owned: OwnedPartitions,
    coordinator: Any,
    offsets: Mapping[TopicPartition, Committed],
    generation: int,
) -> Any:
    member = _member(owned, coordinator, generation)
    if owned.group is None:
        return commit_request(coordinator.group_id, member, offsets)
    member_id, epoch = member
    values = {
        "group_id": coordinator.group_id,
        "generation_id_or_member_epoch": epoch,
        "member_id": member_id,
        "group_instance_id": owned.group.member.settings.instance_id,
        "topics": _by_topic(offsets),
    }
    # Older versions have no member epoch. Version 10 names topics by their ids.
    return Request(OFFSET_COMMIT, values, versions="9")


def _by_topic(offsets: Mapping[TopicPartition, Committed]) -> list[dict[str, Any]]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for (topic, number), position in offsets.items():
        topics.setdefault(topic, []).append(
            {
                "partition_index": number,
                "committed_offset": position.offset,
                "committed_metadata": position.metadata,
            }
        )
    return [{"name": topic, "partitions": rows} for topic, rows in topics.items()]


def _rows(answer: Any) -> list[tuple[TopicPartition, int]]:
    """Return the partitions in the answer to a commit, each with its error code."""
    if isinstance(answer, Answer):
        return [
            (TopicPartition(topic["name"], row["partition_index"]), row["error_code"])
            for topic in answer.values["topics"]
            for row in topic["partitions"]
        ]
    return [
        (TopicPartition(topic, partition), code)
        for topic, partitions, *_ in answer.topics
        for partition, code, *_ in partitions
    ]


def _instance_id(coordinator: Any) -> str | None:
    return getattr(coordinator, "_group_instance_id", None)


async def _until_coordinator_free(coordinator: Any, what: str) -> None:
    """Wait until the coordinator is known and owes no answer on its connection.

    It handles the requests of a connection one after the other, also those that it got before the
    client closed the connection. A heartbeat of Kafka 4 waits until the commits of all groups there
    are on the followers. If the client gives up such a connection, a commit that waits behind the
    heartbeat would be handled after commits on the next connection, and move the position back.

    Raises:
        TransientBrokerError: Nothing was sent.
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
        requests = client._conns[node, ConnectionGroup.COORDINATION]._requests
        if not requests:
            return
        answers = [answer for _, _, answer in requests if not answer.done()]
        if answers:
            await asyncio.wait(answers)
        else:
            # The callers of these requests have given up. The coordinator still owes the answers.
            await asyncio.sleep(RETRY_S)


async def _answer(coordinator: Any, request: Any, what: str) -> Any:
    """Send a request to the coordinator. OutcomeUnknownError: it was not answered."""
    try:
        async with asyncio.timeout(CALL_DEADLINE_S):
            return await coordinator._send_req(request)
    except TimeoutError as error:
        raise OutcomeUnknownError(f"{what}: no answer within {CALL_DEADLINE_S:g} s") from error
    except kafka_errors.KafkaError as error:
        raise OutcomeUnknownError(f"{what}: {error}") from error


async def committed(
    owned: OwnedPartitions, group_id: str | None, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, Committed | None]:
    """Return partition -> what the group has stored, None if it has nothing."""
    ask = _ask_positions(_coordinator(owned, group_id), partitions)
    known = await within(CALL_DEADLINE_S, ask, "asking for committed positions")
    return {partition: known.get(partition) for partition in partitions}


async def _ask_positions(
    coordinator: Any, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, Committed]:
    """Ask for positions until the coordinator answers, or refuses for good."""
    request = OffsetFetch(coordinator.group_id, partitions)
    while partitions:
        try:
            await coordinator.ensure_coordinator_known()
            answer = await coordinator._send_req(request)
            error = error_of(answer)
            if error is None:
                return positions(answer)
            if refused := _refused_partitions(answer):
                known = positions(answer)
                found = {
                    partition: known.get(partition)
                    for partition in partitions
                    if partition not in refused
                }
                raise SomePositionsUnknownError(found, refused)
            if issubclass(error, COORDINATOR_MOVED):
                coordinator.coordinator_dead()
            raise error()
        except kafka_errors.KafkaError as error:
            if not is_retriable(error):
                raise
            await asyncio.sleep(RETRY_S)
    return {}


def _refused_partitions(answer: Any) -> dict[TopicPartition, BrokerError]:
    """Return partition -> why its position is refused; empty unless others were answered."""
    if getattr(answer, "error_code", 0):
        return {}
    error_index = _error_index(answer)
    codes = {
        TopicPartition(topic, row[0]): row[error_index]
        for topic, rows, *_ in answer.topics
        for row in rows
    }
    refused = {partition: class_for(code) for partition, code in codes.items() if code}
    is_about_group = any(
        issubclass(kind, (*NOT_OWNER, *COORDINATOR_MOVED)) for kind in refused.values()
    )
    if is_about_group or len(refused) == len(codes):
        return {}
    return {partition: translate(kind()) for partition, kind in refused.items()}


def _coordinator(owned: OwnedPartitions, group_id: str | None) -> Any:
    if group_id is None:
        raise FatalBrokerError(NO_GROUP)
    return owned.client._coordinator


def _raise_errors(
    coordinator: Any, codes: list[tuple[TopicPartition, int]], owned: OwnedPartitions
) -> None:
    """Raise the error in the answer to a commit, if it has any."""
    errors = [(partition, class_for(code)) for partition, code in codes if code != 0]
    if not errors:
        return
    if owned.group is not None:
        _tell_membership(owned.group, codes)
    if any(issubclass(kind, COORDINATOR_MOVED) for _, kind in errors):
        coordinator.coordinator_dead()
    partition, kind = min(errors, key=_urgency)
    if issubclass(kind, kafka_errors.RebalanceInProgressError):
        raise TransientBrokerError(f"commit of {partition}: a rebalance is in progress") from kind()
    if issubclass(kind, NOT_OWNER) and owned.is_static:
        raise GroupHasMembersError(
            f"commit of {partition}: {members_share(coordinator.group_id)}"
        ) from kind()
    if issubclass(kind, kafka_errors.OffsetMetadataTooLargeError):
        too_large = [partition for partition, error_kind in errors if error_kind is kind]
        what = f"commit of {partition}: its metadata is too long for the broker"
        raise MetadataTooLargeError(what, too_large) from kind()
    # An error about the group or the member is repeated for each partition of the request. If other
    # positions were stored, or the error is about a topic, it concerns single partitions.
    has_stored = len(errors) < len(codes)
    is_about_group = any(
        issubclass(error_kind, (*NOT_OWNER, *COORDINATOR_MOVED)) for _, error_kind in errors
    )
    is_about_topics = all(error_kind.errno in TOPIC_CODES for _, error_kind in errors)
    if not is_about_group and (has_stored or is_about_topics):
        raise PositionsRefusedError(
            {partition: _refusal(partition, error_kind) for partition, error_kind in errors}
        ) from kind()
    error = translate(kind())
    # A coordinator that is being replaced may refuse a commit that it has already written. Its
    # successor may have it.
    has_moved = any(issubclass(error_kind, COORDINATOR_MOVED) for _, error_kind in errors)
    if has_moved and not isinstance(error, NotOwnerError):
        raise OutcomeUnknownError(f"commit of {partition}: {error}") from kind()
    raise type(error)(f"commit of {partition}: {error}") from kind()


def _tell_membership(
    group: ConsumerGroupMembership, codes: list[tuple[TopicPartition, int]]
) -> None:
    """Pass on what the answer to a commit says about the member.

    Raises:
        TransientBrokerError: The epoch of the member is over. The next heartbeat has the new one.
    """
    for partition, code in codes:
        if code in GONE_CODES:
            group.refused_commit(is_member=False)
            return
        if code == STALE_MEMBER_EPOCH:
            group.refused_commit(is_member=True)
            raise TransientBrokerError(f"commit of {partition}: the member has a new epoch")


def _refusal(
    partition: TopicPartition, kind: type[kafka_errors.BrokerResponseError]
) -> BrokerError:
    if issubclass(kind, kafka_errors.OffsetMetadataTooLargeError):
        return MetadataTooLargeError("its metadata is too long for the broker", [partition])
    return translate(kind())


def _urgency(error: tuple[TopicPartition, type[Exception]]) -> int:
    """Return the rank of an error; that with the lowest rank is raised.

    An error that ends the ownership comes first. Too long metadata comes last: leaving out the
    metadata helps against no other error.
    """
    kind = error[1]
    if issubclass(kind, NOT_OWNER):
        return 0
    if issubclass(kind, kafka_errors.OffsetMetadataTooLargeError):
        return 2
    return 1
