"""The requests about a group's positions name what the version of the broker knows."""

from __future__ import annotations

from typing import Any

import pytest

from reactive_kafka import Committed, TopicPartition
from reactive_kafka.broker.aiokafka.group_positions import UNSTABLE_OFFSET_COMMIT, error_of
from reactive_kafka.broker.aiokafka.offset_requests import (
    codes_in,
    commit_in_request,
    commit_request,
    fetch_all_request,
    fetch_request,
    positions_in,
)
from reactive_kafka.broker.client import TransactionId
from reactive_kafka.broker.consumer.membership.group_parts import CommitIdentity
from reactive_kafka.broker.wire.codec import decode, encode
from reactive_kafka.broker.wire.definitions import (
    FIND_COORDINATOR,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    TXN_OFFSET_COMMIT,
)
from reactive_kafka.broker.wire.errors import NoCommonVersionError
from reactive_kafka.broker.wire.requests import PreparedRequest, Request
from reactive_kafka.broker.wire.schema import Api

LOADING = 14
UNKNOWN_TOPIC = 3
FIRST = TopicPartition("orders", 0)
SECOND = TopicPartition("orders", 1)
THIRD = TopicPartition("bills", 0)
OFFSETS = {SECOND: Committed(8, "eight"), FIRST: Committed(5), THIRD: Committed(0)}


def prepared(request: Request, highest: int) -> PreparedRequest:
    return request.prepare({request.API_KEY: (0, highest)})


def sent(api: Api, request: Request, highest: int) -> tuple[int, dict[str, Any]]:
    """The version in which a request is sent to such a broker, and its values there."""
    ready = prepared(request, highest)
    return ready.API_VERSION, decode(api.request, ready.API_VERSION, ready.encode())


# -- OffsetFetch


@pytest.mark.parametrize(
    ("highest", "version", "is_stable"),
    [(2, 2, False), (5, 5, False), (6, 5, False), (7, 7, True), (10, 7, True)],
)
def test_stable_positions_are_asked_for_where_the_broker_knows_them(
    highest: int, version: int, is_stable: bool
) -> None:
    request = fetch_request("billing", [SECOND, FIRST, THIRD])
    chosen, values = sent(OFFSET_FETCH, request, highest)
    assert (chosen, values["require_stable"]) == (version, is_stable)
    assert values["group_id"] == "billing"
    assert values["topics"] == [
        {"name": "orders", "partition_indexes": [1, 0]},
        {"name": "bills", "partition_indexes": [0]},
    ]


def test_positions_that_are_not_final_can_be_asked_for() -> None:
    _, values = sent(OFFSET_FETCH, fetch_request("billing", [FIRST], is_stable=False), 10)
    assert values["require_stable"] is False
    _, values = sent(OFFSET_FETCH, fetch_all_request("billing", is_stable=False), 10)
    assert values["require_stable"] is False


def test_everything_of_a_group_is_asked_for_without_topics() -> None:
    chosen, values = sent(OFFSET_FETCH, fetch_all_request("billing"), 10)
    assert (chosen, values["topics"], values["require_stable"]) == (7, None, True)
    with pytest.raises(NoCommonVersionError):
        prepared(fetch_all_request("billing"), 6)


@pytest.mark.parametrize("version", [2, 5, 7])
def test_partitions_without_a_position_are_left_out(version: int) -> None:
    rows = [
        {"partition_index": 1, "committed_offset": 8, "metadata": "eight"},
        {"partition_index": 0, "committed_offset": -1, "metadata": None},
        {"partition_index": 2, "committed_offset": 0, "metadata": None},
    ]
    told = {"topics": [{"name": "orders", "partitions": rows}]}
    answer = decode(OFFSET_FETCH.response, version, encode(OFFSET_FETCH.response, version, told))
    assert error_of(answer) is None
    assert positions_in(answer) == {
        SECOND: Committed(8, "eight"),
        TopicPartition("orders", 2): Committed(0),
    }


# -- OffsetCommit


@pytest.mark.parametrize(("highest", "version"), [(2, 2), (7, 7), (8, 8), (10, 8)])
def test_a_member_commits_in_its_generation(highest: int, version: int) -> None:
    request = commit_request("billing", CommitIdentity("m-1", 7, "static"), OFFSETS)
    chosen, values = sent(OFFSET_COMMIT, request, highest)
    assert chosen == version
    assert (values["member_id"], values["generation_id_or_member_epoch"]) == ("m-1", 7)
    assert values["group_instance_id"] == ("static" if version >= 7 else None)
    assert written(values) == OFFSETS


def test_an_epoch_is_sent_in_the_only_version_that_has_it_and_the_names_of_topics() -> None:
    request = commit_request("billing", CommitIdentity("m-1", 7, None, is_epoch=True), OFFSETS)
    assert sent(OFFSET_COMMIT, request, 10)[0] == 9
    with pytest.raises(NoCommonVersionError):
        prepared(request, 8)


def written(values: dict[str, Any]) -> dict[TopicPartition, Committed]:
    return {
        TopicPartition(topic["name"], row["partition_index"]): Committed(
            row["committed_offset"], row["committed_metadata"]
        )
        for topic in values["topics"]
        for row in topic["partitions"]
    }


# -- TxnOffsetCommit


def test_positions_of_a_transaction_name_the_producer_and_the_member() -> None:
    request = commit_in_request(
        TransactionId("billing-1", 4711, 3), "billing", CommitIdentity("m-1", 7, "static"), OFFSETS
    )
    chosen, values = sent(TXN_OFFSET_COMMIT, request, 6)
    # Newer versions leave out that the group is added to the transaction.
    assert chosen == 3
    assert (values["transactional_id"], values["group_id"]) == ("billing-1", "billing")
    assert (values["producer_id"], values["producer_epoch"]) == (4711, 3)
    assert (values["member_id"], values["generation_id_or_member_epoch"]) == ("m-1", 7)
    assert values["group_instance_id"] == "static"
    assert written(values) == OFFSETS


def test_a_broker_that_would_not_check_the_member_gets_no_positions_of_a_transaction() -> None:
    transaction = TransactionId("billing-1", 4711, 3)
    request = commit_in_request(transaction, "billing", CommitIdentity("m-1", 7, None), OFFSETS)
    with pytest.raises(NoCommonVersionError):
        prepared(request, 2)


# -- answers


@pytest.mark.parametrize("version", [2, 7])
@pytest.mark.parametrize("code", [LOADING, 15, 16, UNSTABLE_OFFSET_COMMIT])
def test_an_error_without_topics_is_an_error(code: int, version: int) -> None:
    content = encode(OFFSET_FETCH.response, version, {"error_code": code})
    error = error_of(decode(OFFSET_FETCH.response, version, content))
    assert error is not None
    assert error.errno == code
    assert error.retriable


def test_an_error_of_one_partition_is_an_error() -> None:
    rows = [
        {"partition_index": 0, "error_code": 0},
        {"partition_index": 1, "error_code": UNSTABLE_OFFSET_COMMIT},
    ]
    answer = {"topics": [{"name": "orders", "partitions": rows}], "error_code": 0}
    assert codes_in(answer) == {FIRST: 0, SECOND: UNSTABLE_OFFSET_COMMIT}
    error = error_of(answer)
    assert error is not None
    assert error.errno == UNSTABLE_OFFSET_COMMIT


def test_an_error_of_a_group_is_an_error() -> None:
    error = error_of({"groups": [{"error_code": 0}, {"error_code": LOADING}]})
    assert error is not None
    assert error.errno == LOADING


def test_the_error_of_a_lookup_is_an_error() -> None:
    content = encode(FIND_COORDINATOR.response, 3, {"error_code": LOADING})
    error = error_of(decode(FIND_COORDINATOR.response, 3, content))
    assert error is not None
    assert error.errno == LOADING
    assert error_of({"error_code": 0, "node_id": 1}) is None
