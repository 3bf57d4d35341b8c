"""Stores a group's positions, and asks for them (OffsetFetch, H17)."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Any

import aiokafka.errors as kafka_errors

from reactive_kafka.broker.aiokafka.client_calls import CALL_DEADLINE_S, within
from reactive_kafka.broker.aiokafka.error_classes import class_for, is_retriable
from reactive_kafka.broker.aiokafka.error_translation import COORDINATOR_MOVED, NOT_OWNER, translate
from reactive_kafka.broker.aiokafka.group_requests import CoordinatorRequests
from reactive_kafka.broker.aiokafka.offset_requests import (
    codes_in,
    commit_in_request,
    commit_request,
    fetch_request,
    positions_in,
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
from reactive_kafka.broker.consumer.membership.group_parts import (
    NOBODY,
    CommitIdentity,
    GroupMembership,
)
from reactive_kafka.broker.wire.errors import MessageDecodeError
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
"""The group does not know the member any more: UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH."""
OUTDATED_CODES = frozenset({22, 27, 82, 113})
"""The group may have moved on, which the next heartbeat tells: ILLEGAL_GENERATION,
REBALANCE_IN_PROGRESS, FENCED_INSTANCE_ID, STALE_MEMBER_EPOCH.
"""
# Between two requests while the coordinator is being found, or loads the group.
RETRY_S = 0.1


def error_of(answer: Mapping[str, Any]) -> type[kafka_errors.BrokerResponseError] | None:
    """Return the class of the first error in a coordinator's answer; None: it has none.

    An answer may have an error of a group, of the whole answer, or of a partition. The error of the
    whole comes with an empty list of topics, when the coordinator has moved or still loads the
    group. aiokafka's own ``committed()`` does not look at it, and takes the empty list for "nothing
    is committed". Reading then began where ``auto_offset_reset`` says: records were repeated, or
    with ``latest`` lost.
    """
    group_codes = [group["error_code"] for group in answer.get("groups", ())]
    whole_code = answer.get("error_code", 0)
    partition_codes = codes_in(answer).values() if "topics" in answer else ()
    for code in (*group_codes, whole_code, *partition_codes):
        if code:
            return class_for(code)
    return None


async def commit(
    owned: OwnedPartitions, offsets: Mapping[TopicPartition, Committed], generation: int
) -> None:
    """Store positions, each request with the member and generation of their assignment (H4).

    It is one request, or as many as the broker needs. The client's own commit checks the ownership
    once and then retries with the current generation. The broker checks member and generation, but
    not who owns a partition: a late retry would overwrite the commit of another member. A static
    assignment commits to the group without being a member.
    """
    coordinator = _coordinator(owned)
    owned.check_owner(offsets, generation)
    has_stored = False
    refused: dict[TopicPartition, BrokerError] = {}
    for part in split_commit(coordinator.group_id, offsets):
        try:
            await _until_coordinator_free(coordinator, "commit")
            # Checked again, because time has passed.
            owned.check_owner(part, generation)
            identity = _identity(owned)
            request = commit_request(coordinator.group_id, identity, part)
            answer = await _answer(coordinator, request, "commit")
            _raise_errors(owned, identity, codes_in(answer))
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
    transaction: TransactionId,
    offsets: Mapping[TopicPartition, Committed],
    generation: int,
) -> None:
    """Add positions to a transaction. Members and ownership are checked as in a commit."""
    coordinator = _coordinator(owned)
    owned.check_owner(offsets, generation)
    await _until_coordinator_free(coordinator, "positions of a transaction")
    # Checked again, because time has passed.
    owned.check_owner(offsets, generation)
    identity = _identity(owned)
    refused: dict[TopicPartition, BrokerError] = {}
    for part in split_commit(coordinator.group_id, offsets):
        request = commit_in_request(transaction, coordinator.group_id, identity, part)
        answer = await _answer(coordinator, request, "positions of a transaction")
        try:
            _raise_errors(owned, identity, codes_in(answer))
        except PositionsRefusedError as error:
            refused.update(error.refused)
    if refused:
        raise PositionsRefusedError(refused)


def _identity(owned: OwnedPartitions) -> CommitIdentity:
    """Return in whose name a commit is sent now.

    Raises:
        NotOwnerError: The group has removed the member, which may still have to give up partitions.
            It has no member id then, and a commit in nobody's name could be accepted.
    """
    if owned.group is None:
        return NOBODY
    if not owned.group.is_member():
        raise NotOwnerError("the group has removed this member")
    return owned.group.commit_identity()


async def _until_coordinator_free(coordinator: CoordinatorRequests, what: str) -> None:
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


async def _until_free(coordinator: CoordinatorRequests) -> None:
    while True:
        await coordinator.find()
        if not await coordinator.is_connected():
            node = coordinator.node
            coordinator.coordinator_moved()
            raise kafka_errors.NodeNotReadyError(
                f"the group's coordinator, node {node}, is not connected"
            )
        requests = coordinator.unanswered
        if not requests:
            return
        answers = [sent.answer for sent in requests if not sent.answer.done()]
        if answers:
            await asyncio.wait(answers)
        else:
            # The callers of these requests have given up. The coordinator still owes the answers.
            await asyncio.sleep(RETRY_S)


async def _answer(
    coordinator: CoordinatorRequests, request: Request, what: str
) -> Mapping[str, Any]:
    """Send a request to the coordinator, and return the values of its answer.

    Raises:
        OutcomeUnknownError: It was not answered, or the answer is damaged.
        NoCommonVersionError: The coordinator does not have it. Nothing was sent.
    """
    try:
        async with asyncio.timeout(CALL_DEADLINE_S):
            answer: Answer = await coordinator.send(request)
            return answer.values
    except TimeoutError as error:
        raise OutcomeUnknownError(f"{what}: no answer within {CALL_DEADLINE_S:g} s") from error
    except (kafka_errors.KafkaError, MessageDecodeError) as error:
        raise OutcomeUnknownError(f"{what}: {error}") from error


async def committed(
    owned: OwnedPartitions, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, Committed | None]:
    """Return partition -> what the group has stored, None if it has nothing."""
    ask = _ask_positions(_coordinator(owned), partitions)
    known = await within(CALL_DEADLINE_S, ask, "asking for committed positions")
    return {partition: known.get(partition) for partition in partitions}


async def _ask_positions(
    coordinator: CoordinatorRequests, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, Committed]:
    """Ask for positions until the coordinator answers, or refuses for good."""
    request = fetch_request(coordinator.group_id, partitions)
    while partitions:
        try:
            await coordinator.find()
            answer = (await coordinator.send(request)).values
            error = error_of(answer)
            if error is None:
                return positions_in(answer)
            if refused := _refused_partitions(answer):
                known = positions_in(answer)
                found = {
                    partition: known.get(partition)
                    for partition in partitions
                    if partition not in refused
                }
                raise SomePositionsUnknownError(found, refused)
            if issubclass(error, COORDINATOR_MOVED):
                coordinator.coordinator_moved()
            raise error()
        except kafka_errors.KafkaError as error:
            if not is_retriable(error):
                raise
            await asyncio.sleep(RETRY_S)
    return {}


def _refused_partitions(answer: Mapping[str, Any]) -> dict[TopicPartition, BrokerError]:
    """Return partition -> why its position is refused; empty unless others were answered."""
    if answer["error_code"]:
        return {}
    codes = codes_in(answer)
    refused = {partition: class_for(code) for partition, code in codes.items() if code}
    is_about_group = any(
        issubclass(kind, (*NOT_OWNER, *COORDINATOR_MOVED)) for kind in refused.values()
    )
    if is_about_group or len(refused) == len(codes):
        return {}
    return {partition: translate(kind()) for partition, kind in refused.items()}


def _coordinator(owned: OwnedPartitions) -> CoordinatorRequests:
    if owned.is_closed:
        raise TransientBrokerError("the client is not started")
    if owned.coordinator is None:
        raise FatalBrokerError(NO_GROUP)
    return owned.coordinator


def _raise_errors(
    owned: OwnedPartitions, identity: CommitIdentity, codes: Mapping[TopicPartition, int]
) -> None:
    """Raise the error in the answer to a commit, if it has any."""
    errors = [(partition, class_for(code)) for partition, code in codes.items() if code]
    if not errors:
        return
    coordinator = _coordinator(owned)
    if owned.group is not None:
        _tell_membership(owned.group, identity, codes)
    if any(issubclass(kind, COORDINATOR_MOVED) for _, kind in errors):
        coordinator.coordinator_moved()
    partition, kind = min(errors, key=_urgency)
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
    group: GroupMembership, identity: CommitIdentity, codes: Mapping[TopicPartition, int]
) -> None:
    """Pass on what the answer to a commit says about the member.

    Raises:
        TransientBrokerError: The group may have moved on. The next heartbeat tells, and then the
            commit may be sent again, or the partitions are lost.
    """
    for partition, code in codes.items():
        if code in GONE_CODES:
            group.refused_commit(identity, is_member=False)
            return
        if code in OUTDATED_CODES:
            group.refused_commit(identity, is_member=True)
            raise TransientBrokerError(
                f"commit of {partition}: {class_for(code).__name__}: the group may have moved on"
            )


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
