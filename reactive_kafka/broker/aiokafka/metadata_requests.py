"""The request for metadata: for topics, their ids, and what this client may do with them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from reactive_kafka.broker.wire.codec import decode_first
from reactive_kafka.broker.wire.definitions import METADATA
from reactive_kafka.broker.wire.requests import Answer, Request

WITHOUT_IDS = "4-8"
"""Versions that know no ids of topics. Older ones create the topics that they are asked for."""
WITH_IDS = "10-12"
"""Versions with the ids of topics, of Kafka 2.8 and newer. In version 13 the whole answer can be an
error (KIP-1102).
"""
TELLS_RIGHTS_SINCE = 8
"""The first version that can say what this client may do with a topic (KIP-430)."""


async def ask_metadata(
    client: Any, node: int, topics: Collection[str], **options: Any
) -> dict[str, Any]:
    """Ask one broker for topics, and return the values of its answer, which names brokers, too.

    Args:
        client: A ``KafkaClient``.
        node: The broker's id.
        topics: Their names. Any broker answers at once if there are none.
        options: Those of :func:`metadata_request`.

    Raises:
        NoCommonVersionError: The broker has none of the versions.
        MessageDecodeError: The answer is damaged.
        aiokafka.errors.KafkaError: The client's own errors.
    """
    return metadata_in(await client.send(node, metadata_request(topics, **options)))


def metadata_request(
    topics: Collection[str] | None,
    versions: str | Callable[[int], str] = WITHOUT_IDS,
    *,
    creates: bool = False,
    tells_rights: bool = False,
) -> Request:
    """Return the request for topics.

    Args:
        topics: Their names; None: of all topics.
        versions: As in :class:`Request`.
        creates: A broker with auto-creation creates missing topics.
        tells_rights: The answer says what this client may do with each topic.
    """

    def values(version: int) -> dict[str, Any]:
        return {
            "topics": None if topics is None else [{"name": topic} for topic in sorted(topics)],
            "allow_auto_topic_creation": creates,
            "include_topic_authorized_operations": tells_rights and version >= TELLS_RIGHTS_SINCE,
        }

    return Request(METADATA, values, versions)


def metadata_in(answer: Answer) -> dict[str, Any]:
    """Return the values of an answer.

    librdkafka's mock cluster, which is the embedded broker, writes a byte too many at the end of
    the versions with ids. So what follows there is not read.

    Raises:
        MessageDecodeError: The answer is damaged.
    """
    values, _ = decode_first(METADATA.response, answer.version, answer.content)
    return values
