"""The client of a producer, which is made once for all who ask."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from reactive_kafka.broker.aiokafka.kafka_transactional_producer import (
    AiokafkaTransactionalProducer,
)
from reactive_kafka.broker.aiokafka.replaceable_client import ReplaceableClient
from reactive_kafka.errors import TransientBrokerError


class Counted(ReplaceableClient):
    """Counts the clients that it makes; a moment passes for each."""

    made = 0

    async def _create(self) -> Any:
        await asyncio.sleep(0)
        self.made += 1
        return object()


async def test_whenever_it_is_asked_for_one_client_is_made() -> None:
    client, asking = Counted("orders", {}, lambda made: None), []
    for _ in range(10):
        asking.append(asyncio.create_task(client.current()))
        await asyncio.sleep(0)
    await asyncio.gather(*asking)
    assert client.made == 1


class Slow(ReplaceableClient):
    """Its clients are made when it is told to, and left behind where nobody holds them."""

    def __init__(self) -> None:
        super().__init__("orders", {}, lambda made: None)
        self.is_making = asyncio.Event()
        self.may_go_on = asyncio.Event()
        self.made = 0

    async def _create(self) -> Any:
        self.is_making.set()
        await self.may_go_on.wait()
        self.made += 1
        return object()


async def test_a_claim_that_a_stop_comes_into_leaves_no_client_behind() -> None:
    producer, clients = AiokafkaTransactionalProducer("orders", "billing", {}), Slow()
    producer._clients = clients
    claiming = asyncio.create_task(producer.claim())
    await clients.is_making.wait()
    await producer.stop()
    clients.may_go_on.set()
    with pytest.raises(TransientBrokerError, match="has stopped"):
        await claiming
    assert clients.made == 0
    with pytest.raises(TransientBrokerError, match="has stopped"):
        await producer.claim()
    assert clients.made == 0


class Aborting(ReplaceableClient):
    """Its client has an open transaction, and the broker does not answer about it."""

    def __init__(self) -> None:
        super().__init__("orders", {}, lambda made: None)
        self.is_aborting = asyncio.Event()
        self.is_stopped = False
        self.client = self

    @property
    def _txn_manager(self) -> Any:
        return self

    def is_in_transaction(self) -> bool:
        return True

    async def abort_transaction(self) -> None:
        self.is_aborting.set()
        await asyncio.Event().wait()

    async def stop(self) -> None:
        self.is_stopped = True


async def test_a_stop_that_is_cancelled_while_a_transaction_is_aborted_closes_the_client() -> None:
    producer, clients = AiokafkaTransactionalProducer("orders", "billing", {}), Aborting()
    producer._clients = clients
    stopping = asyncio.create_task(producer.stop())
    await clients.is_aborting.wait()
    stopping.cancel()
    await asyncio.wait([stopping])
    assert stopping.cancelled()
    assert clients.is_stopped
