"""Lists the groups of a cluster and describes their members, with the client of an inspector."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import aiokafka.errors as kafka_errors

from reactive_kafka.broker.aiokafka.client_calls import within
from reactive_kafka.broker.aiokafka.error_classes import class_for
from reactive_kafka.broker.aiokafka.error_translation import translate
from reactive_kafka.broker.client import (
    GroupDescription,
    GroupListing,
    GroupMember,
)
from reactive_kafka.broker.wire.consumer_protocol import decode_assignment
from reactive_kafka.broker.wire.definitions import (
    CONSUMER_GROUP_DESCRIBE,
    DESCRIBE_GROUPS,
    LIST_GROUPS,
    SHARE_GROUP_DESCRIBE,
)
from reactive_kafka.broker.wire.errors import MessageDecodeError, NoCommonVersionError
from reactive_kafka.broker.wire.requests import Request, call
from reactive_kafka.errors import BrokerError, FatalBrokerError
from reactive_kafka.records import TopicPartition

DEADLINE_S = 20.0
# Kafka's types of groups. Brokers before 3.8 have classic groups only, and do not say it.
CLASSIC = "classic"
CONSUMER = "consumer"
SHARE = "share"
_NEWER_KINDS = {CONSUMER: CONSUMER_GROUP_DESCRIBE, SHARE: SHARE_GROUP_DESCRIBE}
NOT_OF_THIS_KIND = (kafka_errors.GroupIdNotFound, kafka_errors.UnsupportedVersionError)


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
        answer = await within(DEADLINE_S, call(client, node, LIST_GROUPS, {}), doing)
    except NoCommonVersionError as error:
        raise FatalBrokerError(f"{doing}: {error}") from error
    if answer["error_code"]:
        refusal = class_for(answer["error_code"])()
        raise translate(refusal) from refusal
    return [_listing(group) for group in answer["groups"]]


def _listing(group: Mapping[str, Any]) -> GroupListing:
    # Brokers before 2.6 say no state, and those before 3.8 no type.
    state = group["group_state"] or None
    kind = group["group_type"].lower() or CLASSIC
    return GroupListing(group["group_id"], group["protocol_type"], state, kind)


def describe_request(group_id: str) -> Request:
    """Return the request that describes a classic group. Its answer is for :func:`description`."""
    # From version 6 on an unknown group is an error, and no state.
    return Request(DESCRIBE_GROUPS, {"groups": [group_id]}, "0-5")


def description(answer: Mapping[str, Any]) -> GroupDescription:
    """Return what the broker says about a classic group."""
    (group,) = answer["groups"]
    members = tuple(_classic_member(member) for member in group["members"])
    return GroupDescription(group["group_state"], group["protocol_type"], members)


async def describe_newer(
    group_id: str, kind: str, ask: Callable[[Request], Awaitable[Mapping[str, Any]]]
) -> GroupDescription | None:
    """Return what the broker says about a group of this kind; None if it is not one.

    *ask* sends a request to the coordinator of the group.
    """
    try:
        answer = await ask(Request(_NEWER_KINDS[kind], {"group_ids": [group_id]}))
    except NoCommonVersionError:
        # The broker has no such groups, or an early version of them.
        return None
    except BrokerError as error:
        if isinstance(error.__cause__, NOT_OF_THIS_KIND):
            return None
        raise
    (group,) = answer["groups"]
    return GroupDescription(group["group_state"], kind, tuple(map(_newer_member, group["members"])))


def _newer_member(member: Mapping[str, Any]) -> GroupMember:
    partitions = [
        TopicPartition(topic["topic_name"], number)
        for topic in member["assignment"]["topic_partitions"]
        for number in topic["partitions"]
    ]
    return _member(member, partitions)


def _classic_member(member: Mapping[str, Any]) -> GroupMember:
    """Return a member of a classic group, with its partitions if it is a consumer's."""
    try:
        assignment = decode_assignment(member["member_assignment"])
    except MessageDecodeError:
        # It has none yet. Or it is of another protocol, such as that of Kafka Connect, whose
        # assignment is not of partitions.
        return _member(member, [])
    partitions = [
        TopicPartition(topic["topic"], number)
        for topic in assignment["assigned_partitions"]
        for number in topic["partitions"]
    ]
    return _member(member, partitions)


def _member(member: Mapping[str, Any], partitions: list[TopicPartition]) -> GroupMember:
    host = member["client_host"]
    return GroupMember(member["member_id"], member["client_id"], host, tuple(sorted(partitions)))
