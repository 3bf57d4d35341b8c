"""Metrics go to a broker that the client is connected to, in a compression that it reads."""

from __future__ import annotations

import gzip
from typing import Any

import pytest
from aiokafka.client import ConnectionGroup
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.broker.aiokafka.metrics_requests import (
    COMPRESSIONS,
    NO_COMPRESSION,
    PUSHING,
    MetricsRequests,
    best_compression,
)
from reactive_kafka.broker.client_metrics import NEW_INSTANCE, ClientCounts
from reactive_kafka.broker.wire.errors import NoCommonVersionError
from reactive_kafka.errors import TransientBrokerError
from tests.broker.metrics_receivers import subscription

SUBSCRIPTION = {
    "throttle_time_ms": 0,
    "error_code": 0,
    "client_instance_id": b"i" * 16,
    "subscription_id": 7,
    "accepted_compression_types": [4, 1],
    "push_interval_ms": 60_000,
    "telemetry_max_bytes": 1000,
    "delta_temporality": True,
    "requested_metrics": ["*"],
}
PUSHED = {"throttle_time_ms": 1500, "error_code": 0}


class Said:
    """An answer on the wire."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values


class Client:
    """Of a client what is used here: its connected brokers, and sending.

    Attributes:
        says: The next answers. An exception is raised.
        sent: The node and the connection of each request.
    """

    def __init__(self, *connected: int) -> None:
        self._connected = set(connected)
        self.says: list[Any] = []
        self.sent: list[tuple[int, Any]] = []

    def connected_nodes(self) -> set[int]:
        return set(self._connected)

    async def send(self, node: int, request: Any, group: Any = ConnectionGroup.DEFAULT) -> Said:
        self.sent.append((node, group))
        said = self.says.pop(0)
        if isinstance(said, Exception):
            raise said
        return Said(said)


def requests_of(client: Any) -> MetricsRequests:
    return MetricsRequests(client, ClientCounts(), lambda: None)


async def test_the_question_goes_to_a_connected_broker_and_the_push_to_the_same_one() -> None:
    client = Client(3)
    client.says = [SUBSCRIPTION, PUSHED]
    requests = requests_of(client)
    wanted = await requests.subscription(NEW_INSTANCE)
    assert wanted is not None
    assert wanted.push_interval_s == 60.0
    assert wanted.compressions == (4, 1)
    answer = await requests.push(wanted, (NO_COMPRESSION, b"x"), is_last=False)
    assert answer.throttle_s == 1.5
    assert client.sent == [(3, ConnectionGroup.DEFAULT), (3, PUSHING)]


async def test_a_broker_that_answers_is_asked_again_and_another_one_after_an_error() -> None:
    client = Client(*range(20))
    requests = requests_of(client)
    client.says = [SUBSCRIPTION] * 5
    for _ in range(5):
        await requests.subscription(NEW_INSTANCE)
    assert len({node for node, _ in client.sent}) == 1

    client.says = [OSError("gone"), SUBSCRIPTION] * 20
    for _ in range(20):
        with pytest.raises(TransientBrokerError):
            await requests.subscription(NEW_INSTANCE)
        await requests.subscription(NEW_INSTANCE)
    assert len({node for node, _ in client.sent}) > 1


async def test_a_broker_without_these_requests_takes_no_metrics() -> None:
    client = Client(1)
    client.says = [NoCommonVersionError("the broker has no GetTelemetrySubscriptionsRequest")]
    assert await requests_of(client).subscription(NEW_INSTANCE) is None


async def test_a_client_without_a_connection_opens_none_to_ask() -> None:
    client = Client()
    with pytest.raises(TransientBrokerError, match="no broker is connected"):
        await requests_of(client).subscription(NEW_INSTANCE)
    assert client.sent == []


async def test_a_payload_is_compressed_as_the_broker_reads_it() -> None:
    requests = requests_of(Client(1))
    number, packed = await requests.compressed(b"x" * 1000, subscription(compressions=(9, 1)))
    assert number == 1
    assert gzip.decompress(packed) == b"x" * 1000
    plain = await requests.compressed(b"x", subscription(compressions=()))
    assert plain == (NO_COMPRESSION, b"x")


@given(st.lists(st.integers(-1, 9)))
def test_the_first_accepted_compression_that_can_be_written_is_used(accepted: list[int]) -> None:
    writable = [one for one in accepted if one in COMPRESSIONS and COMPRESSIONS[one][0]()]
    assert best_compression(accepted) == (writable[0] if writable else NO_COMPRESSION)
