"""A client keeps connections to the brokers of a cluster, and what they say of it."""

from __future__ import annotations

import ast
import asyncio
import socket
from asyncio import IncompleteReadError
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from struct import pack
from typing import Any

import aiokafka.producer
import pytest
from aiokafka.client import ConnectionGroup
from aiokafka.errors import KafkaConnectionError, NodeNotReadyError, RequestTimedOutError
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.broker.aiokafka.client_arguments import client_arguments
from reactive_kafka.broker.aiokafka.connections.client_settings import MECHANISMS, ClientSettings
from reactive_kafka.broker.aiokafka.kafka_client import KafkaClient
from reactive_kafka.broker.aiokafka.metadata_requests import metadata_request
from reactive_kafka.broker.aiokafka.pacing import RefusedConnections
from reactive_kafka.broker.aiokafka.producer_client import ProducerClient, create_producer
from reactive_kafka.broker.kafka_connector import KafkaConnector
from reactive_kafka.broker.wire import codec
from reactive_kafka.broker.wire.definitions import (
    API_VERSIONS,
    FIND_COORDINATOR,
    METADATA,
    REQUEST_HEADER,
)
from reactive_kafka.broker.wire.schema import Api
from reactive_kafka.errors import FatalBrokerError, TransientBrokerError
from reactive_kafka.records import TopicPartition
from reactive_kafka.subscription import Topics
from tests.broker.members import Member
from tests.config.values import secret_of

PATIENCE_S = 10.0
VERSIONS = {API_VERSIONS: 0, METADATA: 8, FIND_COORDINATOR: 2}
BY_KEY = {api.key: api for api in VERSIONS}


class ScriptedBroker:
    """A broker in this process. The first one of its cluster leads each partition.

    Attributes:
        topics: Name -> how many partitions.
        cluster: The brokers that it names; the first has the id 1. By itself it is the only one.
        names_brokers: False: it names no broker, like one that has just started.
        answers: Cleared: it answers no request for metadata.
        greetings: Cleared: it tells nobody which requests it has.
        greeted: How many have asked for that.
        asked: The topics of each request for metadata; None: of all topics.
        connections: How many there are now.
    """

    def __init__(self) -> None:
        self.topics: dict[str, int] = {"orders": 2}
        self.cluster = [self]
        self.names_brokers = True
        self.answers = asyncio.Event()
        self.answers.set()
        self.greetings = asyncio.Event()
        self.greetings.set()
        self.greeted = 0
        self.asked: list[set[str] | None] = []
        self.writers: set[asyncio.StreamWriter] = set()

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    async def start(self, port: int = 0) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        self.host, self.port = self._server.sockets[0].getsockname()

    async def stop(self) -> None:
        self._server.close()
        for writer in [*self.writers]:
            writer.close()
        async with asyncio.timeout(PATIENCE_S):
            while self.writers:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.add(writer)
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4))
                content = await reader.readexactly(size)
                body = await self._answer(content)
                writer.write(pack(">i", 4 + len(body)) + content[4:8] + body)
        except (IncompleteReadError, ConnectionError):
            pass
        finally:
            self.writers.discard(writer)
            writer.close()

    async def _answer(self, content: bytes) -> bytes:
        api = BY_KEY[int.from_bytes(content[:2])]
        version = int.from_bytes(content[2:4])
        _, length = codec.decode_first(REQUEST_HEADER, 1, content)
        values = codec.decode(api.request, version, content[length:])
        return codec.encode(api.response, version, await self._values(api, values))

    async def _values(self, api: Api, values: dict[str, Any]) -> dict[str, Any]:
        if api is API_VERSIONS:
            self.greeted += 1
            await self.greetings.wait()
            rows = [
                {"api_key": api.key, "min_version": 0, "max_version": version}
                for api, version in VERSIONS.items()
            ]
            return {"error_code": 0, "api_keys": rows}
        if api is FIND_COORDINATOR:
            return {"node_id": 1, "host": self.host, "port": self.port}
        wanted = values["topics"]
        self.asked.append(None if wanted is None else {topic["name"] for topic in wanted})
        await self.answers.wait()
        names = [*self.topics] if wanted is None else [topic["name"] for topic in wanted]
        brokers = [
            {"node_id": node, "host": broker.host, "port": broker.port, "rack": None}
            for node, broker in enumerate(self.cluster, 1)
        ]
        return {
            "brokers": brokers if self.names_brokers else [],
            "cluster_id": "c",
            "controller_id": 1,
            "topics": [self._topic(name) for name in names],
        }

    def _topic(self, name: str) -> dict[str, Any]:
        partitions = [
            {"partition_index": number, "leader_id": 1, "replica_nodes": [1], "isr_nodes": [1]}
            for number in range(self.topics.get(name, 0))
        ]
        return {
            "error_code": 0 if name in self.topics else 3,
            "name": name,
            "is_internal": False,
            "partitions": partitions,
        }


@pytest.fixture
async def broker() -> AsyncIterator[ScriptedBroker]:
    broker = ScriptedBroker()
    await broker.start()
    yield broker
    await broker.stop()


@asynccontextmanager
async def client_of(broker: ScriptedBroker, **settings: Any) -> AsyncIterator[KafkaClient]:
    client = KafkaClient(ClientSettings(bootstrap_servers=broker.address, **settings))
    try:
        await client.bootstrap()
        yield client
    finally:
        await client.close()


async def test_it_knows_the_cluster_after_an_update(broker: ScriptedBroker) -> None:
    async with client_of(broker) as client:
        assert client.get_random_node() == 1
        assert await client.set_topics(["orders"])
        assert client.cluster.partitions_for_topic("orders") == {0, 1}
        assert client.cluster.leader_for_partition(TopicPartition("orders", 1)) == 1
        assert client.cluster.controller.nodeId == 1
        # The connection to the bootstrap server is closed by now.
        assert client.connected_nodes() == {1}
        assert await client.coordinator_lookup(0, "billing") == 1


async def test_a_topic_that_is_added_during_an_update_is_known_when_its_own_future_is_done(
    broker: ScriptedBroker,
) -> None:
    async with client_of(broker) as client:
        await client.set_topics(["orders"])
        broker.topics["invoices"] = 1
        broker.answers.clear()
        first = client.force_metadata_update()
        async with asyncio.timeout(PATIENCE_S):
            while broker.asked[-2:] != [{"orders"}, {"orders"}]:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        added = client.add_topic("invoices")
        broker.answers.set()
        assert await added
        assert await first
        assert client.cluster.partitions_for_topic("invoices") == {0}


async def test_metadata_are_asked_for_again_when_they_are_old(broker: ScriptedBroker) -> None:
    async with client_of(broker, metadata_max_age_ms=20) as client:
        client.set_topics(["orders"])
        broker.topics["orders"] = 3
        async with asyncio.timeout(PATIENCE_S):
            while len(broker.asked) < 5:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert client.cluster.partitions_for_topic("orders") == {0, 1, 2}


async def test_a_listener_that_fails_does_not_end_the_updates(
    broker: ScriptedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async with client_of(broker) as client:

        def fail(cluster: Any) -> None:
            client.cluster.remove_listener(fail)
            raise KeyError("a bug")

        client.cluster.add_listener(fail)
        assert not await client.force_metadata_update()
        assert "a bug" in caplog.text
        assert await client.force_metadata_update()


async def test_a_cluster_that_names_no_broker_yet_is_asked_again(broker: ScriptedBroker) -> None:
    broker.names_brokers = False
    async with client_of(broker) as client:
        assert client.get_random_node() is None
        assert not await client.force_metadata_update()
        broker.names_brokers = True
        assert await client.force_metadata_update()
        assert client.get_random_node() == 1


@pytest.fixture
async def ignorant(broker: ScriptedBroker) -> AsyncIterator[ScriptedBroker]:
    """The second broker of the cluster. It names no broker."""
    ignorant = ScriptedBroker()
    await ignorant.start()
    broker.cluster.append(ignorant)
    ignorant.names_brokers = False
    yield ignorant
    await ignorant.stop()


async def test_another_broker_is_asked_when_one_names_no_brokers(
    broker: ScriptedBroker, ignorant: ScriptedBroker
) -> None:
    async with client_of(broker) as client:
        # Which one is asked first is drawn.
        assert all([await client.force_metadata_update() for _ in range(20)])
        assert ignorant.asked


async def test_another_bootstrap_server_is_asked_when_one_names_no_brokers(
    broker: ScriptedBroker, ignorant: ScriptedBroker
) -> None:
    settings = ClientSettings(bootstrap_servers=[broker.address, ignorant.address])
    # Which one is asked first is drawn.
    for _ in range(10):
        client = KafkaClient(settings)
        await client.bootstrap()
        assert {node.nodeId for node in client.cluster.brokers()} == {1, 2}
        await client.close()
    assert ignorant.asked
    # No connection to it is kept.
    async with asyncio.timeout(PATIENCE_S):
        while ignorant.writers:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_metadata_are_asked_for_when_a_broker_closes_its_connection(
    broker: ScriptedBroker,
) -> None:
    async with client_of(broker) as client:
        assert await client.ready(1)
        before = len(broker.asked)
        for writer in broker.writers:
            writer.close()
        async with asyncio.timeout(PATIENCE_S):
            while len(broker.asked) == before:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


async def test_an_address_that_refuses_is_not_asked_at_once_again(broker: ScriptedBroker) -> None:
    async with client_of(broker) as client:
        await broker.stop()
        assert not await client.ready(1)
        assert client.last_failure is not None
        failed = len(client.failures)
        with pytest.raises(NodeNotReadyError, match="node id 1"):
            await client.send(1, metadata_request(()))
        assert len(client.failures) == failed
        await broker.start(broker.port)
        async with asyncio.timeout(PATIENCE_S):
            while not await client.ready(1):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert client.last_failure is None


async def test_brokers_at_another_address_are_found_and_topics_stay_known(
    broker: ScriptedBroker,
) -> None:
    async with client_of(broker) as client:
        await client.set_topics(["orders"])
        await broker.stop()
        moved = ScriptedBroker()
        await moved.start()
        with pytest.raises(KafkaConnectionError, match="Unable to bootstrap"):
            await client.find_moved_brokers()
        client.settings = ClientSettings(bootstrap_servers=moved.address)
        await client.find_moved_brokers()
        assert moved.asked[0] == {"orders"}
        assert client.cluster.partitions_for_topic("orders") == {0, 1}
        assert await client.ready(1)
        await client.close()
        await moved.stop()


async def test_a_close_that_is_cancelled_leaves_no_connection(broker: ScriptedBroker) -> None:
    client = KafkaClient(ClientSettings(bootstrap_servers=broker.address))
    await client.bootstrap()
    assert await client.ready(1)
    closing = asyncio.ensure_future(client.close())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert client.connected_nodes() == set()
    async with asyncio.timeout(PATIENCE_S):
        while broker.writers:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await client.close()


@pytest.mark.parametrize("at", ["the greeting", "the answer"])
@pytest.mark.parametrize("names_brokers", [True, False])
@pytest.mark.parametrize("search", ["the first one", "a later one"])
async def test_a_client_that_is_closed_during_a_search_for_brokers_leaves_no_connection(
    broker: ScriptedBroker, search: str, names_brokers: bool, at: str
) -> None:
    client = KafkaClient(ClientSettings(bootstrap_servers=broker.address))
    if search == "a later one":
        await client.bootstrap()
    broker.names_brokers = names_brokers
    awaited = broker.greetings if at == "the greeting" else broker.answers
    awaited.clear()
    greeted, asked = broker.greeted, len(broker.asked)
    begin = client.bootstrap if search == "the first one" else client.find_moved_brokers
    searching = asyncio.ensure_future(begin())
    async with asyncio.timeout(PATIENCE_S):
        while broker.greeted == greeted or (at == "the answer" and len(broker.asked) == asked):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await client.close()
    awaited.set()
    with pytest.raises(KafkaConnectionError, match="Unable to bootstrap"):
        await searching
    async with asyncio.timeout(PATIENCE_S):
        while broker.writers:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    with pytest.raises(KafkaConnectionError, match="Unable to bootstrap"):
        await client.find_moved_brokers()


async def test_a_broker_that_does_not_answer_loses_its_connection(broker: ScriptedBroker) -> None:
    async with client_of(broker) as client:
        assert await client.ready(1)
        connection = client.connection(1, ConnectionGroup.DEFAULT)
        assert connection is not None
        connection.answer_timeout_s = 0.05
        broker.answers.clear()
        with pytest.raises(RequestTimedOutError):
            await client.send(1, metadata_request(()))
        assert client.connected_nodes() == set()
        broker.answers.set()


async def test_a_produce_request_without_acks_waits_for_no_answer(broker: ScriptedBroker) -> None:
    async with client_of(broker) as client:
        broker.answers.clear()
        request: Any = metadata_request(())
        request.API_KEY = 0
        request.required_acks = 0
        assert await client.send(1, request) is None
        connection = client.connection(1, ConnectionGroup.DEFAULT)
        assert connection is not None
        assert not connection.unanswered
        broker.answers.set()


async def test_closing_ends_updates_and_leaves_no_connection(broker: ScriptedBroker) -> None:
    async with client_of(broker) as client:
        broker.answers.clear()
        update = client.force_metadata_update()
        connecting = asyncio.ensure_future(client.ready(1, group="another"))
        await client.close()
        assert not await update
        assert not await client.force_metadata_update()
        await connecting
        broker.answers.set()
        assert client.connection(1, "another") is None
    async with asyncio.timeout(PATIENCE_S):
        while broker.writers:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_node_that_nobody_has_named_cannot_be_connected_to(broker: ScriptedBroker) -> None:
    async with client_of(broker) as client:
        assert not await client.ready(7)
        assert client.connection(None, "any") is None


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 3)), max_size=30), st.floats(0.2, 5.0))
async def test_an_address_waits_longer_after_each_refusal_up_to_the_longest_pause_until_it_connects(
    steps: list[tuple[bool, float]], longest_s: float
) -> None:
    refused = RefusedConnections(longest_s)
    address, other = ("a", 1), ("b", 1)
    now = 0.0
    for is_refused, later_s in steps:
        now += later_s
        if is_refused:
            refused.refused(address, now)
            assert refused.has_to_wait(address, now)
        else:
            refused.connected(address)
            assert not refused.has_to_wait(address, now)
        assert not refused.has_to_wait(address, now + 1.5 * longest_s)
        assert not refused.has_to_wait(other, now)


@pytest.mark.parametrize(
    ("given_settings", "said"),
    [
        ({"security_protocol": "TLS"}, "security_protocol = 'TLS': it is one of PLAINTEXT, SSL,"),
        ({"security_protocol": "SSL"}, "security_protocol = 'SSL' needs an ssl_context"),
        (
            {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "X"},
            "sasl_mechanism = 'X': it is one of PLAIN, GSSAPI,",
        ),
        (
            {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-256"},
            "sasl_mechanism = 'SCRAM-SHA-256' needs sasl_plain_username and sasl_plain_password",
        ),
        (
            {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"},
            "sasl_mechanism = 'OAUTHBEARER' needs a sasl_oauth_token_provider",
        ),
    ],
)
def test_settings_that_cannot_work_name_the_key_and_what_is_allowed(
    given_settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        ClientSettings(**given_settings)


def test_settings_do_not_show_the_password() -> None:
    settings = ClientSettings(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=MECHANISMS[0],
        sasl_plain_username="carol",
        sasl_plain_password="canary",
    )
    assert "canary" not in repr(settings)


@pytest.mark.parametrize(("mechanism", "is_warned_of"), [("PLAIN", True), ("SCRAM-SHA-256", False)])
def test_a_password_that_goes_out_in_the_clear_is_warned_of(
    mechanism: str, is_warned_of: bool, caplog: pytest.LogCaptureFixture
) -> None:
    settings = ClientSettings(
        client_id="orders",
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_plain_username="carol",
        sasl_plain_password="canary",
    )
    KafkaClient(settings)
    assert ("orders sends its password in the clear" in caplog.text) == is_warned_of
    assert "canary" not in caplog.text


# -- the producer's client


def names_of_the_client(attribute: str) -> set[str]:
    """The private names that aiokafka's producer uses of its client."""
    found = set()
    for path in Path(aiokafka.producer.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Attribute)
                and node.value.attr == attribute
                and node.attr.startswith("_")
            ):
                found.add(node.attr)
    return found


def test_the_producer_s_client_has_each_private_name_that_the_producer_uses() -> None:
    used = names_of_the_client("client") | names_of_the_client("_client")
    assert used == {"_client_id", "_wait_on_metadata", "_maybe_wait_metadata"}
    assert used <= vars(ProducerClient).keys()


async def test_the_producer_uses_our_client_for_everything(broker: ScriptedBroker) -> None:
    arguments = client_arguments(
        {
            "bootstrap_servers": broker.address,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_plain_username": "carol",
            "sasl_plain_password": secret_of("canary"),
            "linger_ms": 3,
        },
        "invoices",
    )
    producer = create_producer(arguments)
    client = producer.client
    try:
        assert isinstance(client, ProducerClient)
        assert producer._sender.client is client
        # Where the producer looks leaders and partitions up.
        assert producer._metadata is client.cluster
        assert producer._message_accumulator._cluster is client.cluster
        assert client.settings.sasl_plain_password == "canary"
        assert (client._client_id, client._bootstrap_servers) == (
            "reactive-kafka-invoices",
            broker.address,
        )
    finally:
        await producer.stop()


# How a start of a consumer ends half way: the broker that the bootstrap server names is not there,
# the caller gives up while it is asked, or the settings turn out to be wrong.
HALF_WAY = {
    "nobody is there": ({}, TransientBrokerError),
    "the caller gives up": ({}, TimeoutError),
    "no such assignor": ({"assignors": ["nobodys:assignor"]}, FatalBrokerError),
}


@pytest.mark.parametrize("how", HALF_WAY)
async def test_a_consumer_whose_start_ends_half_way_leaves_no_task_and_no_connection(
    broker: ScriptedBroker, how: str
) -> None:
    away = ScriptedBroker()
    broker.cluster = [away]
    before = asyncio.all_tasks()
    properties, error = HALF_WAY[how]
    consumer = KafkaConnector(broker.address).consumer(
        name="orders", subscription=Topics(("orders",)), group_id="g", properties=properties
    )
    # It accepts connections, and says nothing.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        away.host, away.port = silent.getsockname()
        if how == "nobody is there":
            silent.close()
        with pytest.raises(error):
            async with asyncio.timeout(1 if how == "the caller gives up" else PATIENCE_S):
                await consumer.start(Member(consumer))
        assert await all_ended(before, broker)


async def all_ended(before: set[asyncio.Task[Any]], broker: ScriptedBroker) -> bool:
    """Return whether all tasks but those before, and all connections, end soon."""
    for _ in range(100):
        # The broker has a task for each connection.
        if not asyncio.all_tasks() - before and not broker.writers:
            return True
        await asyncio.sleep(0.01)
    return False


async def test_an_address_that_a_broker_names_and_nobody_answers_at_is_in_the_error(
    broker: ScriptedBroker,
) -> None:
    away = ScriptedBroker()
    broker.cluster = [away]
    with socket.create_server(("127.0.0.1", 0)) as closed:
        away.host, away.port = closed.getsockname()
    consumer = KafkaConnector(broker.address).consumer(
        name="orders", subscription=Topics(("orders",)), group_id="g", properties={}
    )
    with pytest.raises(TransientBrokerError, match=away.address):
        await consumer.start(Member(consumer))
