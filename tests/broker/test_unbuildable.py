"""What keeps a client from being made or started is an error of ours that names the key, and
nothing is left behind.
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from reactive_kafka.broker.kafka_connector import KafkaConnector
from reactive_kafka.errors import BrokerError, FatalBrokerError, TransientBrokerError
from reactive_kafka.subscription import Topics
from tests.broker.hazards.faults import tasks_but
from tests.broker.members import Member

SASL = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}


async def consumer(connector: KafkaConnector, properties: dict[str, Any]) -> None:
    client = connector.consumer(
        name="o", subscription=Topics(("o",)), group_id="g", properties=properties
    )
    try:
        await client.start(Member(client))
    finally:
        await client.stop()


async def producer(connector: KafkaConnector, properties: dict[str, Any]) -> None:
    client = connector.producer(name="o", properties=properties)
    try:
        await client.start()
    finally:
        await client.stop()


async def transactional(connector: KafkaConnector, properties: dict[str, Any]) -> None:
    client = connector.transactional_producer(name="o", transactional_id="t", properties=properties)
    try:
        await client.claim()
    finally:
        await client.stop()


async def inspector(connector: KafkaConnector, properties: dict[str, Any]) -> None:
    client = connector.inspector(properties=properties)
    try:
        await client.start()
    finally:
        await client.stop()


CLIENTS = pytest.mark.parametrize("start", [consumer, producer, transactional, inspector])


@CLIENTS
@pytest.mark.parametrize(
    ("servers", "properties", "kind", "said"),
    [
        (
            "127.0.0.1:1",
            {"ssl_cafile": "/gone.pem"},
            FatalBrokerError,
            "ssl_cafile = '/gone.pem': [Errno 2] No such",
        ),
        (
            "127.0.0.1:1",
            {"ssl_cafile": __file__},
            FatalBrokerError,
            f"ssl_cafile = {__file__!r}: [X509",
        ),
        (
            "127.0.0.1:1",
            {"ssl_certfile": __file__},
            FatalBrokerError,
            f"ssl_certfile = {__file__!r}: [SSL",
        ),
        (
            "127.0.0.1:1",
            {"ssl_cadata": "-----BEGIN CERTIFICATE-----"},
            FatalBrokerError,
            "set up with ssl_cadata: ",
        ),
        (
            "[::1%nowhere]:9092",
            {},
            TransientBrokerError,
            "bootstrap_servers = '[::1%nowhere]:9092'",
        ),
        ("[::1%nowhere]:9092", {}, TransientBrokerError, "Name or service not known"),
        (
            "a..b:9092",
            {},
            FatalBrokerError,
            "label empty or too long)), with bootstrap_servers = 'a..b:9092'",
        ),
        (
            "127.0.0.1:1",
            SASL | {"sasl_mechanism": "X"},
            FatalBrokerError,
            "sasl_mechanism = 'X': it is one of PLAIN, GSSAPI",
        ),
    ],
)
async def test_a_client_that_cannot_be_made_or_started_says_why_and_what_to_look_at(
    start: Callable[..., Awaitable[None]],
    servers: str,
    properties: dict[str, Any],
    kind: type[BrokerError],
    said: str,
) -> None:
    """Rows B10 and J7 of the faults."""
    before = asyncio.all_tasks()
    with pytest.raises(kind) as caught:
        await start(KafkaConnector(servers), properties)
    assert said in str(caught.value)
    assert not tasks_but(before)


@CLIENTS
@pytest.mark.skipif(
    importlib.util.find_spec("gssapi") is not None, reason="what is missing here is there"
)
async def test_a_library_that_is_missing_is_an_error_of_ours(
    start: Callable[..., Awaitable[None]],
) -> None:
    properties = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "GSSAPI"}
    with pytest.raises(
        FatalBrokerError, match=r"gssapi library required.* sasl_mechanism = 'GSSAPI'"
    ):
        await start(KafkaConnector("127.0.0.1:1"), properties)


class Tokens:
    """No class of the client's: an object with an async method token()."""

    async def token(self) -> str:
        raise KeyError("the vault is sealed")


@CLIENTS
async def test_any_object_may_give_tokens(start: Callable[..., Awaitable[None]]) -> None:
    """Row J9 of the faults."""
    properties = SASL | {"sasl_oauth_token_provider": Tokens()}
    with pytest.raises(TransientBrokerError, match="Connect call failed"):
        await start(KafkaConnector("127.0.0.1:1"), properties)
