"""Other ways in and out of a channel with schemas: requests, transactions, TLS, missing
packages.
"""

from __future__ import annotations

import asyncio
import ssl
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from reactive_kafka import App, Batch, Message, MissingExtraError
from reactive_kafka.testing import MemoryBroker, TestApp
from tests.app.helpers import until
from tests.broker.security.certificates import make_certificates
from tests.schemas.helpers import make_app, reasons, running
from tests.schemas.server import RegistryServer, registry_server

SCHEMA = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'


@dataclass
class Order:
    id: int


@dataclass
class Answer:
    doubled: int


async def test_a_request_and_its_reply_wait_for_their_schemas(registry: RegistryServer) -> None:
    app = App(
        {
            "schema_registry": {"url": "memory://"},
            "incoming": {"orders": {"group_id": "g", "value_deserializer": "avro"}},
            "outgoing": {
                "asks": {"topic": "orders", "value_serializer": "avro", "reply_topic": "replies"},
                "answers": {"topic": "replies", "value_serializer": "avro"},
            },
        }
    )
    emitter = app.emitter("asks")

    @app.incoming("orders")
    @app.outgoing("answers")
    async def answer(order: Order) -> Answer:
        return Answer(2 * order.id)

    registry.fault, registry.times = 500, 2
    async with running(app, registry):
        assert await emitter.request(Order(21), reply_type=Answer, timeout=10) == Answer(42)


async def test_what_an_emitter_sends_in_a_transaction_waits_for_its_schema(
    registry: RegistryServer,
) -> None:
    app = make_app("avro", outgoing={"transactional_id": "t"})
    emitter = app.emitter("out")
    registry.fault, registry.times = 500, 2
    async with running(app, registry) as test:
        async with emitter.transaction() as transaction:
            await transaction.send(Order(1))
            await transaction.send(Order(2))
        assert [record.value for record in test.records("out")] == [
            b"\0\0\0\0\1\2",
            b"\0\0\0\0\1\4",
        ]


async def test_a_send_that_waits_for_its_schema_when_its_block_ends_is_refused(
    registry: RegistryServer,
) -> None:
    app = make_app("avro", outgoing={"transactional_id": "t"})
    emitter = app.emitter("out")
    registry.fault, registry.times = 500, 2
    async with running(app, registry) as test:
        async with emitter.transaction() as transaction:
            late = asyncio.ensure_future(transaction.send(Order(1)))
            await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="await it within the block"):
            await late
        async with emitter.transaction() as transaction:
            await transaction.send(Order(2))
        assert [record.value for record in test.records("out")] == [b"\0\0\0\0\1\4"]


def is_ours(message: Message[bytes]) -> bool:
    return message.headers.get("service") == b"ours"


@pytest.mark.parametrize("takes", ["record", "batch", "broadcast"])
async def test_a_filter_of_bytes_is_asked_before_the_schema_of_the_record_is(
    registry: RegistryServer, takes: str
) -> None:
    settings = {"filter": f"{__name__}:is_ours", "broadcast": takes == "broadcast"}
    app = make_app("avro", {**settings, "failure_strategy": "dead-letter-queue"})
    emitter = app.emitter("out")
    seen: list[int] = []

    async def one(order: Order) -> None:
        seen.append(order.id)

    async def again(order: Order) -> None:
        seen.append(order.id)

    async def many(batch: Batch[Order]) -> None:
        seen.extend(order.id for order in batch.payloads)

    app.incoming("orders")(many if takes == "batch" else one)
    if takes == "broadcast":
        app.incoming("orders")(again)
    async with running(app, registry) as test:
        # It registers the schema, which has the id 1. The incoming channel has not read it.
        await emitter.send(Order(1))
        registry.fault, registry.times = 500, 2
        for service, schema in ((b"theirs", 99), (b"ours", 1), (b"theirs", 98), (b"ours", 1)):
            value = b"\0\0\0\0" + bytes([schema, 2 * schema])
            test.broker.produce("orders", value, partition=0, headers=[("service", service)])
        await test.settled()
        (totals,) = test.app.channel("orders").facts().totals.values()
        assert (totals.acked, totals.skipped, totals.dead_lettered) == (2, {"filter": 2}, 0)
        assert not [asked for asked in registry.requests if asked.endswith(("/98", "/99"))]
    # The schema was waited for.
    assert registry.fault is None
    assert seen == [1] * (4 if takes == "broadcast" else 2)


async def test_without_waiting_for_writes_records_are_settled_when_the_schema_has_come(
    registry: RegistryServer,
) -> None:
    app = make_app("avro", {"value_deserializer": "int"}, {"wait_for_write": False})

    @app.incoming("orders")
    @app.outgoing("out")
    async def handle(number: int) -> Order:
        return Order(number)

    registry.fault, registry.times = 500, 2
    async with running(app, registry) as test:
        for number in range(5):
            await test.send("orders", number)
        await test.settled()
        assert [record.value for record in test.records("out")] == [
            b"\0\0\0\0\1" + bytes([2 * number]) for number in range(5)
        ]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    make_certificates(folder)
    return folder


def tls(folder: Path) -> dict[str, Any]:
    return {
        "ssl_certfile": str(folder / "server.crt"),
        "ssl_keyfile": str(folder / "server.key"),
        "ssl_ca_certs": str(folder / "ours.crt"),
        "ssl_cert_reqs": ssl.CERT_REQUIRED,
    }


@pytest.mark.parametrize("is_known", [True, False])
async def test_a_registry_with_tls_gets_our_certificate_and_has_to_show_its_own(
    certificates: Path, is_known: bool
) -> None:
    app = make_app("avro")
    seen: list[int] = []

    @app.incoming("orders")
    async def handle(order: Order) -> None:
        seen.append(order.id)

    client = {
        "ssl_certfile": str(certificates / "client.crt"),
        "ssl_keyfile": str(certificates / "client.key"),
    }
    trusted = str(certificates / ("ours.crt" if is_known else "foreign.crt"))
    with registry_server(**tls(certificates)) as registry, pytest.MonkeyPatch.context() as patch:
        patch.setattr("reactive_kafka.schemas.schema_registry.NOT_READY_S", 0.2)
        registry.add("orders-value", SCHEMA)
        async with running(app, registry, ssl_cafile=trusted, **client) as test:
            await test.send("orders", b"\0\0\0\0\1\4")
            if is_known:
                await test.settled()
            else:
                await until(lambda: "certificate verify failed" in reasons(app, "orders"))
    assert seen == ([2] if is_known else [])


@pytest.mark.parametrize(
    ("format", "package", "extra"),
    [
        ("avro", "fastavro", "avro"),
        ("json-schema", "jsonschema", "json-schema"),
        ("protobuf", "google.protobuf", "protobuf"),
    ],
)
@pytest.mark.parametrize("side", ["incoming", "outgoing"])
def test_a_missing_package_is_told_at_the_start_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch, format: str, package: str, extra: str, side: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    app = (
        make_app(format) if side == "incoming" else make_app(format, {"value_deserializer": "json"})
    )
    with pytest.raises(MissingExtraError, match=rf"{format}.*pip install '\.\[{extra}\]'"):
        app.configure()


async def test_two_runs_of_one_application_ask_their_own_registries() -> None:
    app = make_app("avro")
    emitter = app.emitter("out")
    for first in (Order(1), Answer(1)):
        broker = MemoryBroker(partitions=1)
        async with TestApp(app, broker=broker) as test:
            await emitter.send(first)
            await emitter.send(Order(2))
            ids = [(record.value or b"")[4] for record in test.records("out")]
        await broker.close()
        assert ids == ([1, 1] if isinstance(first, Order) else [1, 2])
