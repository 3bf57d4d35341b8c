"""The tap reads commits off the wire, however the pieces are cut."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka.protocol.commit import OffsetCommitRequest_v2
from aiokafka.protocol.metadata import MetadataRequest_v1

from reactive_kafka import Committed, TopicPartition
from reactive_kafka.broker.aiokafka.offset_requests import commit_request
from reactive_kafka.broker.consumer.membership.group_parts import CommitIdentity
from tests.faults.tap import CommitTap

COMMIT = OffsetCommitRequest_v2(
    "shop", 7, "left-1", -1, [("orders", [(0, 5, ""), (3, 9, "note")]), ("more", [])]
)

OUR_COMMIT = commit_request(
    "shop",
    CommitIdentity("left-1", 7, "left"),
    {TopicPartition("orders", 0): Committed(5), TopicPartition("orders", 3): Committed(9, "note")},
)


def on_the_wire(request: Any, client: str) -> bytes:
    """A request as clients send it."""
    message: bytes = (
        request.build_request_header(correlation_id=1, client_id=client).encode() + request.encode()
    )
    return len(message).to_bytes(4, "big") + message


@pytest.mark.parametrize("size", [1, 3, 50, 1000])
def test_commits_are_read_however_they_are_cut_and_other_requests_are_passed_over(
    size: int,
) -> None:
    sent = on_the_wire(MetadataRequest_v1(["orders"]), "left") + on_the_wire(COMMIT, "left") * 2
    tap = CommitTap()
    take = tap.connection()
    for at in range(0, len(sent), size):
        take(sent[at : at + size])
    once = [("left", 7, ("orders", 0), 5), ("left", 7, ("orders", 3), 9)]
    assert [one[1:] for one in tap.asked] == once * 2


@pytest.mark.parametrize("highest", [2, 7, 8])
def test_commits_of_ours_are_read_in_each_version(highest: int) -> None:
    tap = CommitTap()
    prepared = OUR_COMMIT.prepare({OUR_COMMIT.API_KEY: (0, highest)})
    tap.connection()(on_the_wire(prepared, "left"))
    assert [one[1:] for one in tap.asked] == [
        ("left", 7, ("orders", 0), 5),
        ("left", 7, ("orders", 3), 9),
    ]


def test_connections_are_not_mixed_up() -> None:
    tap = CommitTap()
    left, right = tap.connection(), tap.connection()
    sent = on_the_wire(COMMIT, "left")
    left(sent[:20])
    right(on_the_wire(COMMIT, "right"))
    left(sent[20:])
    assert [one.client for one in tap.asked] == ["right", "right", "left", "left"]
