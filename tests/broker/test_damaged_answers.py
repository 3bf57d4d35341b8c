"""An answer that cannot be read tells nothing about what the broker has done."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import pytest

from reactive_kafka import Committed, TopicPartition
from reactive_kafka.broker.aiokafka.group_positions import commit, commit_in, committed
from reactive_kafka.broker.aiokafka.group_requests import CoordinatorRequests
from reactive_kafka.broker.client import STATIC_GENERATION, TransactionId
from reactive_kafka.broker.wire.definitions import OFFSET_COMMIT, OFFSET_FETCH, TXN_OFFSET_COMMIT
from reactive_kafka.broker.wire.errors import MessageDecodeError, NoCommonVersionError
from reactive_kafka.broker.wire.requests import Request
from reactive_kafka.errors import FatalBrokerError, OutcomeUnknownError, TransientBrokerError

PARTITION = TopicPartition("orders", 0)
OFFSETS = {PARTITION: Committed(5)}
TRANSACTION = TransactionId("billing-1", 4711, 3)
KAFKA_4 = {OFFSET_COMMIT.key: (2, 10), OFFSET_FETCH.key: (1, 10), TXN_OFFSET_COMMIT.key: (0, 6)}
KAFKA_2_4 = {OFFSET_COMMIT.key: (0, 8), OFFSET_FETCH.key: (0, 6), TXN_OFFSET_COMMIT.key: (0, 2)}


class DamagingBroker:
    """A client whose broker answers everything with two bytes."""

    def __init__(self, versions: dict[int, tuple[int, int]]) -> None:
        self._versions = versions

    def connection(self, node: int, group: Any) -> None:
        """None is open."""

    async def ready(self, node: int, *, group: Any) -> bool:
        return True

    async def send(self, node: int, request: Request, **_: Any) -> Any:
        return request.prepare(self._versions).RESPONSE_TYPE.decode(BytesIO(b"\x00\x00"))


class Owned:
    """The partitions of a static assignment, which commits to a group."""

    is_closed = False
    is_static = True
    group = None

    def __init__(self, versions: dict[int, tuple[int, int]]) -> None:
        client: Any = DamagingBroker(versions)
        self.coordinator = CoordinatorRequests(client, "billing")
        self.coordinator.node = 1

    def check_owner(self, partitions: object, generation: int) -> None:
        """All are ours."""


async def test_a_commit_with_a_damaged_answer_may_have_been_stored() -> None:
    owned: Any = Owned(KAFKA_4)
    with pytest.raises(OutcomeUnknownError, match="commit: OffsetCommitResponse v8") as raised:
        await commit(owned, OFFSETS, STATIC_GENERATION)
    assert isinstance(raised.value.__cause__, MessageDecodeError)


async def test_positions_of_a_transaction_with_a_damaged_answer_may_have_been_stored() -> None:
    owned: Any = Owned(KAFKA_4)
    with pytest.raises(OutcomeUnknownError, match="TxnOffsetCommitResponse v3"):
        await commit_in(owned, TRANSACTION, OFFSETS, STATIC_GENERATION)


async def test_a_broker_before_2_5_is_refused_for_transactions_before_anything_is_sent() -> None:
    owned: Any = Owned(KAFKA_2_4)
    with pytest.raises(FatalBrokerError, match="the broker has the versions 0-2") as raised:
        await commit_in(owned, TRANSACTION, OFFSETS, STATIC_GENERATION)
    assert isinstance(raised.value, NoCommonVersionError)


async def test_positions_with_a_damaged_answer_are_unknown() -> None:
    owned: Any = Owned(KAFKA_4)
    with pytest.raises(TransientBrokerError, match="OffsetFetchResponse v7"):
        await committed(owned, [PARTITION])
