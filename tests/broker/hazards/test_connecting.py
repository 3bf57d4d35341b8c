"""H8: the password in the log. And starting: the client says that it could not, but not why."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from collections.abc import Callable, Iterator
from typing import Any

import aiokafka
import pytest
from aiokafka.errors import KafkaConnectionError
from aiokafka.protocol.admin import SaslAuthenticateRequest

from reactive_kafka.broker.aiokafka.kafka_consumer import AiokafkaConsumer
from reactive_kafka.broker.aiokafka.kafka_producer import AiokafkaProducer
from reactive_kafka.broker.client import Connector, Consumer, Producer
from reactive_kafka.broker.kafka_connector import KafkaConnector
from reactive_kafka.errors import BrokerError, FatalBrokerError, TransientBrokerError
from reactive_kafka.events import BrokerUnavailable
from reactive_kafka.subscription import Topics
from tests.broker.hazards.applications import running
from tests.broker.hazards.faults import Rig, rigged, tasks_but, until
from tests.broker.members import Member
from tests.config.values import secret_of
from tests.harness.kafka import KafkaCluster

USER, PASSWORD, WRONG = "carol", "canary-6d1f", "canary-wrong-82aa"
MECHANISMS = ["PLAIN", "SCRAM-SHA-256"]


@pytest.fixture(scope="module")
def sasl() -> Iterator[str]:
    """``host:port`` of a Kafka that asks for a name and a password."""
    # The listener that is otherwise the brokers' own: with one node, they can use the clients'.
    jaas = "org.apache.kafka.common.security"
    properties = {
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,INTERNAL:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.internal.plain.sasl.jaas.config": (
            f'{jaas}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
        ),
        "listener.name.internal.scram-sha-256.sasl.jaas.config": f"{jaas}.scram.ScramLoginModule required;",
    }
    with KafkaCluster(properties=properties) as cluster:
        yield cluster.internal[1]


def credentials(password: str = PASSWORD, mechanism: str = "PLAIN") -> dict[str, Any]:
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password": secret_of(password),
    }


def a_consumer(connector: Connector, properties: dict[str, Any]) -> Consumer:
    return connector.consumer(
        name="orders", subscription=Topics(("orders",)), group_id="group", properties=properties
    )


def a_producer(connector: Connector, properties: dict[str, Any]) -> Producer:
    return connector.producer(name="orders", properties=properties)


async def start(client: Consumer | Producer) -> None:
    if isinstance(client, AiokafkaConsumer):
        await client.start(Member(client))
    elif isinstance(client, AiokafkaProducer):
        await client.start()


async def failing_start(client: Consumer | Producer) -> BrokerError:
    """What starting it raises."""
    with pytest.raises(BrokerError) as caught:
        await start(client)
    return caught.value


BOTH = pytest.mark.parametrize("make", [a_consumer, a_producer])
Make = Callable[[Connector, dict[str, Any]], Consumer | Producer]


# -- H8


@pytest.mark.kafka
async def test_h8_naive_client_logs_the_password_at_debug(
    sasl: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert PASSWORD in repr(
        SaslAuthenticateRequest(f"\0{USER}\0{PASSWORD}".encode()).prepare({36: (0, 0)})
    )
    with caplog.at_level(logging.DEBUG):
        # A client of its own is given the text.
        known = {**credentials(), "sasl_plain_password": PASSWORD}
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=sasl, **known):
            pass
    assert PASSWORD in caplog.text


@pytest.mark.kafka
@BOTH
@pytest.mark.parametrize("password", [PASSWORD, WRONG])
@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_h8_no_line_and_no_error_holds_the_password(
    sasl: str, caplog: pytest.LogCaptureFixture, make: Make, password: str, mechanism: str
) -> None:
    """Row S3 of the faults."""
    client = make(KafkaConnector(sasl), credentials(password, mechanism))
    with caplog.at_level(logging.DEBUG):
        try:
            await start(client)
        except FatalBrokerError as error:
            assert password not in f"{error!r} {error} {error.__cause__!r}"
        finally:
            await client.stop()
    # The login was logged.
    assert "SaslAuthenticateRequest" in caplog.text
    assert "canary" not in caplog.text
    assert not any("canary" in str(vars(record)) for record in caplog.records)


# -- starting


@pytest.mark.kafka
async def test_naive_start_with_a_wrong_password_does_not_say_so(sasl: str) -> None:
    consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=sasl, **credentials(WRONG))
    with pytest.raises(KafkaConnectionError) as caught:
        await consumer.start()
    await consumer.stop()
    assert re.fullmatch(r"KafkaConnectionError: Unable to bootstrap from \[.*\]", str(caught.value))


@pytest.mark.kafka
@BOTH
async def test_a_wrong_password_is_fatal_and_named(sasl: str, make: Make) -> None:
    """Row J7 of the faults."""
    error = await failing_start(make(KafkaConnector(sasl), credentials(WRONG)))
    assert isinstance(error, FatalBrokerError)
    assert "Authentication failed: Invalid username or password" in str(error)
    assert isinstance(error.__cause__, KafkaConnectionError)


@pytest.mark.kafka
async def test_a_mechanism_that_the_broker_does_not_have_is_named(sasl: str) -> None:
    """Row S1 of the faults."""
    error = await failing_start(
        a_consumer(KafkaConnector(sasl), credentials(mechanism="SCRAM-SHA-512"))
    )
    assert "SCRAM-SHA-512" in str(error) or "UnsupportedSaslMechanism" in str(error)
    assert isinstance(error, FatalBrokerError)


@BOTH
async def test_start_against_a_closed_port_raises_with_the_address_and_the_reason_and_leaves_nothing(
    make: Make,
) -> None:
    """Row B10 of the faults."""
    before = asyncio.all_tasks()
    port = closed_port()
    client = make(KafkaConnector(f"127.0.0.1:{port}"), {})
    error = await failing_start(client)
    assert isinstance(error, TransientBrokerError)
    assert re.search(rf"127\.0\.0\.1:?'?, ?'?{port}|127\.0\.0\.1:{port}", str(error))
    assert "Connect call failed" in str(error) or "refused" in str(error)
    assert not tasks_but(before)


@BOTH
async def test_the_reason_is_told_also_where_the_client_logs_nothing(make: Make) -> None:
    """Row J7 of the faults."""
    log = logging.getLogger("aiokafka")
    before, port = log.level, closed_port()
    log.setLevel(logging.CRITICAL + 1)
    try:
        error = await failing_start(make(KafkaConnector(f"127.0.0.1:{port}"), {}))
    finally:
        log.setLevel(before)
    assert f"(127.0.0.1:{port}: nothing listens there ([Errno 111] Connect call failed" in str(
        error
    )


@BOTH
async def test_addresses_that_are_dead_or_have_no_name_are_passed_over(
    make: Make, rig: Rig
) -> None:
    """Row B10 of the faults."""
    dead = f"127.0.0.1:{closed_port()},nowhere.invalid:9092"
    client = make(KafkaConnector(f"{dead},{rig.bootstrap_servers}"), {})
    await start(client)
    await client.stop()
    assert rig.proxy.accepted > 0
    error = await failing_start(make(KafkaConnector("nowhere.invalid:9092"), {}))
    assert isinstance(error, TransientBrokerError)
    assert "nowhere.invalid" in str(error)


@BOTH
async def test_two_that_start_at_once_are_told_each_its_own_reason(make: Make) -> None:
    ports = [closed_port(), closed_port()]
    errors = await asyncio.gather(
        *(failing_start(make(KafkaConnector(f"127.0.0.1:{port}"), {})) for port in ports)
    )
    for error, own, other in zip(errors, ports, reversed(ports), strict=True):
        assert str(own) in str(error)
        assert str(other) not in str(error)


async def test_an_application_starts_cold_says_why_it_waits_and_connects_by_itself(
    group: str,
) -> None:
    async with rigged() as rig:
        topic = await rig.create_topic(1)
        rig.broker.go_down()
        async with running(rig.bootstrap_servers, topic, group) as diary:
            await until(lambda: diary.of(BrokerUnavailable), "it says that nobody is there")
            assert "no broker can be used (" in diary.of(BrokerUnavailable)[0].reason
            health = diary.app.health()
            assert (health.live.is_up, health.ready.is_up, health.started.is_up) == (
                True,
                False,
                False,
            )
            rig.broker.come_up()
            await until(lambda: diary.app.health().ready.is_up, "it is ready")
            assert diary.app.health().started.is_up


async def test_an_application_goes_on_by_itself_when_its_broker_was_away(
    rig: Rig, group: str
) -> None:
    topic = await rig.create_topic(1)
    async with running(rig.bootstrap_servers, topic, group) as diary:
        await diary.until_assigned(1)
        rig.broker.go_down()
        await until(lambda: not diary.app.health().ready.is_up, "it is not ready")
        assert diary.app.health().live.is_up
        rig.broker.come_up()
        await until(lambda: diary.app.health().ready.is_up, "it is ready again")


def closed_port() -> int:
    """A port where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
