"""Lists the groups of a cluster and describes their members, with the client of an inspector.

aiokafka knows classic groups only. The groups of newer protocols have requests of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import aiokafka.errors as kafka_errors
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
from aiokafka.protocol.admin import ListGroupsRequest_v1
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Schema,
    TaggedFields,
)

from reactive_kafka.broker.aiokafka.client_calls import within
from reactive_kafka.broker.aiokafka.error_classes import class_for
from reactive_kafka.broker.aiokafka.error_translation import translate
from reactive_kafka.broker.aiokafka.topic_ids import Uuid
from reactive_kafka.broker.client import (
    GroupDescription,
    GroupListing,
    GroupMember,
)
from reactive_kafka.errors import BrokerError, FatalBrokerError
from reactive_kafka.records import TopicPartition

DEADLINE_S = 20.0
TEXT = CompactString("utf-8")
TAGS = ("tags", TaggedFields)
_ASSIGNED_TOPIC = (
    ("topic_id", Uuid),
    ("topic_name", TEXT),
    ("partitions", CompactArray(Int32)),
    TAGS,
)
_ASSIGNMENT = Schema(("topic_partitions", CompactArray(*_ASSIGNED_TOPIC)), TAGS)
# Kafka's types of groups. Brokers before 3.8 have classic groups only, and do not say it.
CLASSIC = "classic"
CONSUMER = "consumer"
SHARE = "share"
NOT_OF_THIS_KIND = (
    kafka_errors.IncompatibleBrokerVersion,
    kafka_errors.GroupIdNotFound,
    kafka_errors.UnsupportedVersionError,
)


# aiokafka is untyped.
class ListGroupsResponse_v4(Response):  # type: ignore[misc]
    """Source: ListGroupsResponse.json of Kafka."""

    API_KEY = 16
    API_VERSION = 4
    _GROUP = (("group_id", TEXT), ("protocol_type", TEXT), ("state", TEXT), TAGS)
    SCHEMA = Schema(
        ("throttle_time_ms", Int32), ("error_code", Int16), ("groups", CompactArray(*_GROUP)), TAGS
    )


# aiokafka is untyped.
class ListGroupsRequest_v4(RequestStruct):  # type: ignore[misc]
    """Source: ListGroupsRequest.json of Kafka. Spoken by Kafka 2.6 and newer."""

    API_KEY = 16
    API_VERSION = 4
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = ListGroupsResponse_v4
    SCHEMA = Schema(("states", CompactArray(TEXT)), TAGS)


# aiokafka is untyped.
class ListGroupsResponse_v5(Response):  # type: ignore[misc]
    """Source: ListGroupsResponse.json of Kafka."""

    API_KEY = 16
    API_VERSION = 5
    _GROUP = (
        ("group_id", TEXT),
        ("protocol_type", TEXT),
        ("state", TEXT),
        ("group_type", TEXT),
        TAGS,
    )
    SCHEMA = Schema(
        ("throttle_time_ms", Int32), ("error_code", Int16), ("groups", CompactArray(*_GROUP)), TAGS
    )


# aiokafka is untyped.
class ListGroupsRequest_v5(RequestStruct):  # type: ignore[misc]
    """Source: ListGroupsRequest.json of Kafka. Spoken by Kafka 3.8 and newer."""

    API_KEY = 16
    API_VERSION = 5
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = ListGroupsResponse_v5
    SCHEMA = Schema(("states", CompactArray(TEXT)), ("types", CompactArray(TEXT)), TAGS)


ListGroupsStruct = ListGroupsRequest_v1 | ListGroupsRequest_v4 | ListGroupsRequest_v5


class ListGroups(Request[ListGroupsStruct]):  # type: ignore[misc]
    """Asks a broker for the groups that it coordinates."""

    API_KEY = 16

    def build(self, version: Any) -> Any:
        if version is ListGroupsRequest_v5:
            return version([], [], {})
        return version([], {}) if version is ListGroupsRequest_v4 else version()


def _described_groups(*member: Any) -> Any:
    """Return the schema of an answer about groups, which differ in the fields of their members."""
    group = (
        ("error_code", Int16),
        ("error_message", TEXT),
        ("group_id", TEXT),
        ("state", TEXT),
        ("group_epoch", Int32),
        ("assignment_epoch", Int32),
        ("assignor", TEXT),
        ("members", CompactArray(*member)),
        ("authorized_operations", Int32),
        TAGS,
    )
    return Schema(("throttle_time_ms", Int32), ("groups", CompactArray(*group)), TAGS)


# aiokafka is untyped.
class ConsumerGroupDescribeResponse_v0(Response):  # type: ignore[misc]
    """Source: ConsumerGroupDescribeResponse.json of Kafka."""

    API_KEY = 69
    API_VERSION = 0
    _MEMBER = (
        ("member_id", TEXT),
        ("instance_id", TEXT),
        ("rack_id", TEXT),
        ("member_epoch", Int32),
        ("client_id", TEXT),
        ("client_host", TEXT),
        ("topic_names", CompactArray(TEXT)),
        ("topic_regex", TEXT),
        ("assignment", _ASSIGNMENT),
        ("target_assignment", _ASSIGNMENT),
        TAGS,
    )
    SCHEMA = _described_groups(*_MEMBER)


# aiokafka is untyped.
class ConsumerGroupDescribeRequest_v0(RequestStruct):  # type: ignore[misc]
    """Source: ConsumerGroupDescribeRequest.json of Kafka. Spoken by Kafka 3.7 and newer."""

    API_KEY = 69
    API_VERSION = 0
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = ConsumerGroupDescribeResponse_v0
    SCHEMA = Schema(("group_ids", CompactArray(TEXT)), ("with_operations", Boolean), TAGS)


class ConsumerGroupDescribe(Request[ConsumerGroupDescribeRequest_v0]):  # type: ignore[misc]
    """Asks for the members of a group of the protocol ``consumer`` (KIP-848)."""

    API_KEY = 69

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id

    def build(self, version: Any) -> Any:
        return version([self._group_id], False, {})


# aiokafka is untyped.
class ShareGroupDescribeResponse_v1(Response):  # type: ignore[misc]
    """Source: ShareGroupDescribeResponse.json of Kafka."""

    API_KEY = 77
    API_VERSION = 1
    _MEMBER = (
        ("member_id", TEXT),
        ("rack_id", TEXT),
        ("member_epoch", Int32),
        ("client_id", TEXT),
        ("client_host", TEXT),
        ("topic_names", CompactArray(TEXT)),
        ("assignment", _ASSIGNMENT),
        TAGS,
    )
    SCHEMA = _described_groups(*_MEMBER)


# aiokafka is untyped.
class ShareGroupDescribeRequest_v1(RequestStruct):  # type: ignore[misc]
    """Source: ShareGroupDescribeRequest.json of Kafka. Spoken by Kafka 4.1 and newer."""

    API_KEY = 77
    API_VERSION = 1
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = ShareGroupDescribeResponse_v1
    SCHEMA = Schema(("group_ids", CompactArray(TEXT)), ("with_operations", Boolean), TAGS)


class ShareGroupDescribe(Request[ShareGroupDescribeRequest_v1]):  # type: ignore[misc]
    """Asks for the members of a share group (KIP-932)."""

    API_KEY = 77

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id

    def build(self, version: Any) -> Any:
        return version([self._group_id], False, {})


_REQUESTS: dict[str, Callable[[str], Any]] = {
    CONSUMER: ConsumerGroupDescribe,
    SHARE: ShareGroupDescribe,
}


async def list_groups(client: Any) -> list[GroupListing]:
    """Return the groups of all brokers, by name. Each broker knows those that it coordinates."""
    await within(DEADLINE_S, client.fetch_all_metadata(), "asking for the brokers")
    nodes = [broker.nodeId for broker in client.cluster.brokers()]
    answers = await asyncio.gather(*[_groups_of(client, node) for node in nodes])
    found = {group.group_id: group for groups in answers for group in groups}
    return [found[name] for name in sorted(found)]


async def _groups_of(client: Any, node: int) -> list[GroupListing]:
    doing = "asking for the groups"
    try:
        answer = await within(DEADLINE_S, client.send(node, ListGroups()), doing)
    except BrokerError as error:
        if isinstance(error.__cause__, kafka_errors.IncompatibleBrokerVersion):
            raise FatalBrokerError(f"{doing}: the broker has no such request") from error
        raise
    if answer.error_code:
        refusal = class_for(answer.error_code)()
        raise translate(refusal) from refusal
    return [_listing(*group) for group in answer.groups]


def _listing(
    group_id: str, protocol_type: str, state: str | None = None, kind: Any = None, *_: Any
) -> GroupListing:
    # Before version 5 the next field holds the tags, and there were classic groups only.
    found = kind.lower() if isinstance(kind, str) and kind else CLASSIC
    return GroupListing(group_id, protocol_type, state, found)


async def describe_newer(
    group_id: str, kind: str, ask: Callable[[Any], Awaitable[Any]]
) -> GroupDescription | None:
    """Return what the broker says about a group of this kind; None if it is not one.

    *ask* sends a request to the coordinator of the group.
    """
    try:
        answer = await ask(_REQUESTS[kind](group_id))
    except NotImplementedError:
        # The broker has an early version of the request, with another content.
        return None
    except BrokerError as error:
        # The broker has no such groups, or this is not one of them.
        if isinstance(error.__cause__, NOT_OF_THIS_KIND):
            return None
        raise
    group = answer.groups[0]
    if kind == CONSUMER:
        members = [
            GroupMember(member[0], member[4], member[5], _assigned(member[8][0]))
            for member in group[7]
        ]
    else:
        members = [
            GroupMember(member[0], member[3], member[4], _assigned(member[6][0]))
            for member in group[7]
        ]
    return GroupDescription(group[3], kind, tuple(members))


def _assigned(topics: Iterable[tuple[Any, ...]]) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(
            TopicPartition(name, number) for _, name, numbers, *_ in topics for number in numbers
        )
    )


def classic_member(member: tuple[Any, ...]) -> GroupMember:
    """Return a member of a classic group, with its partitions if it is a consumer's."""
    member_id, client_id, host, _, assignment, *_ = member
    partitions: tuple[TopicPartition, ...] = ()
    if assignment:
        try:
            decoded = ConsumerProtocolMemberAssignment.decode(assignment)
            partitions = tuple(sorted(TopicPartition(*each) for each in decoded.partitions()))
        except (ValueError, TypeError):
            # Another protocol, such as that of Kafka Connect: its assignment is not of partitions.
            partitions = ()
    return GroupMember(member_id, client_id, host, partitions)
