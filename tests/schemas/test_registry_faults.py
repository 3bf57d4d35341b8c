"""A registry that is away, slow, wrong or unwilling: records wait and say why, none is lost, none
is passed over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from reactive_kafka import App, Batch, EncodeError, Message, SchemaAwayError, TopicPartition
from reactive_kafka.backoff import Backoff
from reactive_kafka.schemas import schema_registry as asking
from reactive_kafka.schemas.rest import RestRegistry
from reactive_kafka.testing import MemoryBroker, TestApp
from tests.app.helpers import until
from tests.config.values import schema_registry_settings
from tests.formats.reference_trees import HEIGHT, tree
from tests.schemas.helpers import make_app, reasons, running
from tests.schemas.server import RegistryServer

SCHEMA = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'
QUICK = {"timeout": "200ms"}


def record(number: int, id: int = 1) -> bytes:
    """A record of that schema, for numbers below 64."""
    return b"\0" + id.to_bytes(4, "big") + bytes([number * 2])


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that see real servers fail are not to take seconds each."""
    monkeypatch.setattr(asking, "NOT_READY_S", 0.3)
    monkeypatch.setattr(asking, "BACKOFF", Backoff(0.02, 0.1))


def away(registry: RegistryServer) -> None:
    registry.stop()


def answering(fault: int | str) -> Callable[[RegistryServer], None]:
    def begin(registry: RegistryServer) -> None:
        registry.fault = fault

    begin.__name__ = f"answering {fault}"
    return begin


def an_ingress_without_its_backend(registry: RegistryServer) -> None:
    registry.fault = 404
    registry.body = "default backend - 404"


def repair(registry: RegistryServer) -> None:
    registry.fault = None
    if registry._server is None:
        registry.start()


FAULTS = [
    (away, "away: [Errno 111] Connection refused"),
    (answering("slow"), "slow: no answer within 0.2 s"),
    (answering("noise"), "its answer is not the JSON of a schema registry"),
    (answering(401), "401: it refuses these credentials: told to answer 401"),
    (answering(403), "403: it refuses these credentials: told to answer 403"),
    (an_ingress_without_its_backend, "404: no schema registry answers at this path"),
    (answering(429), "429: too many requests"),
    (answering(500), "500: told to answer 500"),
    (answering(503), "503: told to answer 503"),
]
"""409 to a registration is an answer about a schema, not about the registry."""


@pytest.mark.parametrize(("fault", "reason"), FAULTS, ids=lambda one: getattr(one, "__name__", ""))
async def test_records_wait_for_a_registry_that_fails_and_none_is_lost(
    registry: RegistryServer, fault: Callable[[RegistryServer], None], reason: str
) -> None:
    """Row F17 of the faults."""
    app = make_app("avro", {"unprocessed_record_max_age": "300ms"})
    seen: list[tuple[int, int]] = []

    @app.incoming("orders")
    async def handle(message: Message[dict[str, int]]) -> None:
        seen.append((message.payload["id"], message.attempt))

    registry.add("orders-value", SCHEMA)
    fault(registry)
    async with running(app, registry, **QUICK) as test:
        for number in range(5):
            await test.send("orders", record(number))
        await until(lambda: reason in reasons(app, "orders"))
        told = reasons(app, "orders")
        assert f"schema registry {registry.url}: schema 1: {reason}" in told
        # Longer than a record may be unsettled: none of these has begun.
        await asyncio.sleep(0.5)
        facts = app.channel("orders").facts()
        assert (seen, facts.state, facts.poison, test.committed("orders")) == (
            [],
            "running",
            (),
            {},
        )
        assert app.health().live.is_up
        repair(registry)
        await test.settled()
        assert test.committed("orders") == {TopicPartition("orders", 0): 5}
        assert reasons(app, "orders") == ""
    assert seen == [(number, 1) for number in range(5)]


@pytest.mark.parametrize(("fault", "reason"), FAULTS, ids=lambda one: getattr(one, "__name__", ""))
async def test_what_is_sent_waits_too_and_its_incoming_record_stays_unsettled(
    registry: RegistryServer, fault: Callable[[RegistryServer], None], reason: str
) -> None:
    """Row F17 of the faults."""
    from dataclasses import make_dataclass

    Out = make_dataclass("Out", [("id", int)])
    app = make_app("avro", {"value_deserializer": "int"})
    seen: list[int] = []

    @app.incoming("orders")
    @app.outgoing("out")
    async def handle(number: int) -> Any:
        seen.append(number)
        return Out(number)

    fault(registry)
    async with running(app, registry, **QUICK) as test:
        for number in range(3):
            await test.send("orders", number)
        await until(lambda: reason in reasons(app, "out"))
        assert "registering the schema of subject 'orders-out-value'" in reasons(app, "out")
        assert (seen, test.records("out"), test.committed("orders")) == ([0], [], {})
        repair(registry)
        await test.settled()
        assert [one.value for one in test.records("out")] == [record(number) for number in range(3)]
        assert reasons(app, "out") == ""
    assert seen == [0, 1, 2]


async def test_an_emitter_waits_for_its_send_timeout_and_send_nowait_does_not(
    registry: RegistryServer,
) -> None:
    from dataclasses import make_dataclass

    Out = make_dataclass("Out", [("id", int)])
    app = make_app("avro", outgoing={"send_timeout": "300ms"})
    emitter = app.emitter("out")
    registry.fault = 500
    async with running(app, registry, **QUICK) as test:
        with pytest.raises(
            SchemaAwayError, match=r"not sent within 0\.3 s: .*orders-out-value.*500"
        ):
            await emitter.send(Out(1))
        for _ in range(3):
            with pytest.raises(SchemaAwayError, match="schema registry"):
                emitter.send_nowait(Out(1))
        registry.fault = None
        await emitter.send(Out(2))
        await emitter.send_nowait(Out(3))
        assert [one.value for one in test.records("out")] == [record(2), record(3)]


async def test_a_schema_that_the_registry_does_not_have_is_the_records_fault_once_that_is_certain(
    registry: RegistryServer,
) -> None:
    """Row F18 of the faults."""
    app = make_app("avro", {"failure_strategy": "dead-letter-queue"})
    seen: list[int] = []

    @app.incoming("orders")
    async def handle(order: dict[str, int]) -> None:
        seen.append(order["id"])

    registry.add("orders-value", SCHEMA)
    async with running(app, registry, **QUICK) as test:
        for value in (record(0), record(1, id=9), record(2, id=9), record(3)):
            await test.send("orders", value)
        await test.settled()
        letters = test.records("dead-letter-topic-orders")
    assert seen == [0, 3]
    assert [letter.value for letter in letters] == [record(1, id=9), record(2, id=9)]
    assert b"schema 9: 404: Schema not found" in (
        dict(letters[0].headers)["dead-letter-reason"] or b""
    )
    assert registry.requests.count("GET /schemas/ids/9") == asking.NOT_FOUND_CERTAIN_AFTER


GUID = UUID(int=77)


@pytest.mark.parametrize("has_guids", [False, True])
@pytest.mark.parametrize("place", ["value", "header", "key header"])
async def test_bytes_that_look_like_a_guid_do_not_block_their_partition(
    registry: RegistryServer, place: str, has_guids: bool
) -> None:
    """Row F18 of the faults. Registries without that path answer 404 in a form of their own."""
    registry.guids = has_guids
    registry.add("orders-value", SCHEMA)
    app = make_app("avro", {"key_deserializer": "avro", "failure_strategy": "dead-letter-queue"})
    seen: list[int] = []

    @app.incoming("orders")
    async def handle(message: Message[dict[str, int]]) -> None:
        seen.append(message.payload["id"])

    named = b"\1" + GUID.bytes
    async with running(app, registry, **QUICK) as test:
        for number in range(3):
            if place == "value":
                test.broker.produce("orders", named + bytes([number]), key=record(9))
            else:
                header = "__value_schema_id" if place == "header" else "__key_schema_id"
                test.broker.produce(
                    "orders", record(number), key=record(9), headers=[(header, named)]
                )
        test.broker.produce("orders", record(5), key=record(9))
        await test.settled()
        assert test.committed("orders") == {TopicPartition("orders", 0): 4}
        letters = test.records("dead-letter-topic-orders")
    assert seen == [5]
    answer = "Schema not found" if has_guids else "it does not look up schemas by GUID"
    reason = f"schema registry {registry.url}: schema {GUID}: 404: {answer}"
    assert [
        reason in (dict(letter.headers)["dead-letter-reason"] or b"").decode() for letter in letters
    ] == [True] * 3
    assert registry.requests.count(f"GET /schemas/guids/{GUID}") == asking.NOT_FOUND_CERTAIN_AFTER


async def test_a_registry_without_guids_is_not_asked_for_each_record_that_looks_like_one(
    registry: RegistryServer,
) -> None:
    registry.guids = False
    app = make_app("avro", {"failure_strategy": "ignore"})

    @app.incoming("orders")
    async def handle(order: dict[str, int]) -> None: ...

    async with running(app, registry, **QUICK) as test:
        for number in range(50):
            test.broker.produce("orders", b"\1" + UUID(int=number).bytes)
        await test.settled()
        assert test.committed("orders") == {TopicPartition("orders", 0): 50}
    assert len(registry.requests) == asking.NOT_FOUND_CERTAIN_AFTER


async def test_a_registry_that_has_found_a_guid_is_away_where_a_page_says_404(
    registry: RegistryServer,
) -> None:
    one, other = (
        registry.add("orders-value", SCHEMA.replace("Order", name)) for name in ("One", "Other")
    )
    app = make_app("avro")
    seen: list[int] = []

    @app.incoming("orders")
    async def handle(order: dict[str, int]) -> None:
        seen.append(order["id"])

    async with running(app, registry, **QUICK) as test:
        test.broker.produce("orders", b"\1" + UUID(int=one).bytes + b"\2")
        await test.settled()
        registry.guids = False
        test.broker.produce("orders", b"\1" + UUID(int=other).bytes + b"\4")
        await until(
            lambda: "404: no schema registry answers at this path" in reasons(app, "orders")
        )
        registry.guids = True
        await test.settled()
    assert seen == [1, 2]


@pytest.mark.parametrize("status", [400, 404, 405, 406, 410, 415, 422])
async def test_a_question_that_the_registry_refuses_makes_the_record_unreadable(
    registry: RegistryServer, status: int
) -> None:
    """Row F18 of the faults."""
    registry.fault = status
    app = make_app("avro", {"failure_strategy": "dead-letter-queue"})

    @app.incoming("orders")
    async def handle(order: dict[str, int]) -> None: ...

    async with running(app, registry, **QUICK) as test:
        await test.send("orders", record(0))
        await test.settled()
        (letter,) = test.records("dead-letter-topic-orders")
    reason = f"schema registry {registry.url}: schema 1: {status}: told to answer {status}"
    assert reason.encode() in (dict(letter.headers)["dead-letter-reason"] or b"")


@pytest.mark.parametrize("register", [True, False], ids=["registering", "latest"])
@pytest.mark.parametrize("status", [400, 404, 405, 406, 409, 422])
async def test_a_question_that_the_registry_refuses_is_an_error_of_what_is_sent(
    registry: RegistryServer, status: int, register: bool
) -> None:
    from dataclasses import make_dataclass

    Out = make_dataclass("Out", [("id", int)])
    registry.fault = status
    app = make_app("avro", outgoing={"schema": {"register": register}})
    emitter = app.emitter("out")
    async with running(app, registry, **QUICK):
        with pytest.raises(
            EncodeError, match=f"'orders-out-value'.*{status}: told to answer {status}"
        ):
            await emitter.send(Out(1) if register else {"id": 1})


def of_an_unknown_type(registry: RegistryServer) -> None:
    registry.add("orders-value", "<schema/>", "XML")


def with_many_references(registry: RegistryServer) -> None:
    references = []
    for number in range(1, 203):
        registry.add("parts", SCHEMA.replace("Order", f"Part{number}"))
        references.append({"name": f"Part{number}", "subject": "parts", "version": number})
    schema = registry.add("orders-value", SCHEMA, references=references)
    registry.schemas[1] = registry.schemas[schema]


def longer_than_16_mib(registry: RegistryServer) -> None:
    registry.fault = 200
    registry.body = " " * (16 * 1024 * 1024 + 1)


@pytest.mark.parametrize(
    ("begin", "reason"),
    [
        (of_an_unknown_type, "a schema of type 'XML' cannot be read here"),
        (with_many_references, "a schema refers to more than 200 others"),
        (longer_than_16_mib, "its answer is longer than 16777216 bytes"),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
async def test_a_schema_that_cannot_be_used_here_makes_the_record_unreadable(
    registry: RegistryServer, begin: Callable[[RegistryServer], None], reason: str
) -> None:
    """Row F18 of the faults."""
    begin(registry)
    app = make_app("avro", {"failure_strategy": "dead-letter-queue"})

    @app.incoming("orders")
    async def handle(order: dict[str, int]) -> None: ...

    async with running(app, registry, timeout="30s") as test:
        await test.send("orders", record(0))
        await test.settled(timeout=40)
        (letter,) = test.records("dead-letter-topic-orders")
    assert reason.encode() in (dict(letter.headers)["dead-letter-reason"] or b"")


async def test_a_schema_that_comes_late_is_waited_for_and_a_no_is_not_for_ever(
    registry: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row F18 of the faults."""
    monkeypatch.setattr(asking, "REFUSED_S", 0.2)
    app = make_app("avro", {"failure_strategy": "ignore"})
    seen: list[int] = []

    @app.incoming("orders")
    async def handle(order: dict[str, int]) -> None:
        seen.append(order["id"])

    async with running(app, registry, **QUICK) as test:
        await test.send("orders", record(0))
        await until(
            lambda: registry.requests.count("GET /schemas/ids/1") == asking.NOT_FOUND_CERTAIN_AFTER
        )
        await test.settled()
        registry.add("orders-value", SCHEMA)
        await asyncio.sleep(0.3)
        await test.send("orders", record(1))
        await test.settled()
    assert seen == [1]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"concurrency": 8},
        {"ordering": "key"},
        {"ordering": "unordered", "concurrency": 4},
        {"ack": "pre"},
        {"ack": "manual"},
    ],
    ids=str,
)
@pytest.mark.parametrize("shape", ["payload", "message", "batch"])
async def test_however_records_are_delivered_they_wait_and_one_request_is_made(
    registry: RegistryServer, settings: dict[str, Any], shape: str
) -> None:
    if (shape, settings) in (("batch", {"ordering": "key"}), ("payload", {"ack": "manual"})):
        # The two do not go together.
        settings = {}
    app = make_app("avro", settings)
    seen: list[int] = []
    if shape == "payload":

        @app.incoming("orders")
        async def handle_payload(order: dict[str, int]) -> None:
            seen.append(order["id"])

    elif shape == "message":

        @app.incoming("orders")
        async def handle_message(message: Message[dict[str, int]]) -> None:
            seen.append(message.payload["id"])
            message.ack()

    else:

        @app.incoming("orders")
        async def handle_batch(batch: Batch[dict[str, int]]) -> None:
            seen.extend(order["id"] for order in batch.payloads)
            batch.ack()

    registry.add("orders-value", SCHEMA)
    registry.fault, registry.times = 500, 3
    async with running(app, registry, **QUICK) as test:
        for number in range(40):
            test.broker.produce("orders", record(number), key=b"k%d" % (number % 5))
        await test.settled()
    assert sorted(seen) == list(range(40))
    assert registry.requests.count("GET /schemas/ids/1") == 4


async def test_a_key_waits_for_its_schema_before_the_handler_is_called(
    registry: RegistryServer,
) -> None:
    app = make_app("avro", {"key_deserializer": "avro", "value_deserializer": "int"})
    seen: list[tuple[Any, int]] = []

    @app.incoming("orders")
    async def handle(message: Message[int]) -> None:
        seen.append((message.key, message.attempt))

    registry.add("orders-key", SCHEMA)
    registry.fault, registry.times = 500, 2
    async with running(app, registry, **QUICK) as test:
        for number in range(2):
            test.broker.produce("orders", bytes(8), key=record(number))
        await test.settled()
    assert seen == [({"id": 0}, 1), ({"id": 1}, 1)]


async def test_a_stop_does_not_wait_for_the_registry_and_the_next_run_has_every_record(
    registry: RegistryServer,
) -> None:
    def make() -> tuple[App, list[int]]:
        app, seen = make_app("avro", {"drain_timeout": "20s"}), []

        @app.incoming("orders")
        async def handle(order: dict[str, int]) -> None:
            seen.append(order["id"])

        return app, seen

    registry.add("orders-value", SCHEMA)
    registry.fault = 500
    table = {"schema_registry": {"url": registry.url, **QUICK}}
    broker = MemoryBroker(partitions=1)
    first, nothing = make()
    async with TestApp(first, broker=broker, overrides=table) as test:
        for number in range(3):
            await test.send("orders", record(number))
        await until(lambda: registry.requests)
        begun = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - begun < 5
    registry.fault = None
    second, seen = make()
    async with TestApp(second, broker=broker, overrides=table) as test:
        await test.settled()
    await broker.close()
    assert (nothing, seen) == ([], [0, 1, 2])


async def test_a_revocation_gives_waiting_records_to_the_next_owner(
    registry: RegistryServer,
) -> None:
    registry.add("orders-value", SCHEMA)
    registry.fault = 500
    table = {"schema_registry": {"url": registry.url, **QUICK}}
    broker, seen = MemoryBroker(partitions=2), []

    def make() -> App:
        app = make_app("avro")

        @app.incoming("orders")
        async def handle(order: dict[str, int]) -> None:
            seen.append(order["id"])

        return app

    async with TestApp(make(), broker=broker, overrides=table) as first:
        for number in range(6):
            await first.send("orders", record(number), partition=number % 2)
        await until(lambda: registry.requests)
        async with TestApp(make(), broker=broker, overrides=table) as second:
            registry.fault = None
            await until(lambda: len(seen) == 6)
            await first.settled()
            await second.settled()
    await broker.close()
    assert sorted(seen) == list(range(6))


async def test_readiness_says_that_a_schema_is_incompatible_where_that_fails_the_channel(
    registry: RegistryServer,
) -> None:
    from dataclasses import make_dataclass

    Out = make_dataclass("Out", [("id", int)])
    app = make_app("avro", {"value_deserializer": "int", "failure_strategy": "fail"})

    @app.incoming("orders")
    @app.outgoing("out")
    async def handle(number: int) -> Any:
        return Out(number)

    registry.add("orders-out-value", SCHEMA)
    registry.compatible = False
    async with running(app, registry, **QUICK) as test:
        await test.send("orders", 1)
        await until(
            lambda: "409: Schema being registered is incompatible" in reasons(app, "orders")
        )
        assert "subject 'orders-out-value'" in reasons(app, "orders")
        assert (test.records("out"), test.committed("orders")) == ([], {})


async def test_a_lookup_that_finds_nothing_is_an_encode_error(registry: RegistryServer) -> None:
    from dataclasses import make_dataclass

    Out = make_dataclass("Out", [("id", int)])
    app = make_app("avro", outgoing={"schema": {"register": False}})
    emitter = app.emitter("out")
    async with running(app, registry, **QUICK):
        with pytest.raises(
            EncodeError, match=r"looking up .*'orders-out-value'.*404: Subject .* not found"
        ):
            await emitter.send(Out(1))
    assert registry.subjects == {}


@pytest.mark.parametrize(
    ("login", "header"),
    [
        ({"username": "ada", "password": "s3cret"}, "Basic YWRhOnMzY3JldA=="),
        ({"token": "t0ken"}, "Bearer t0ken"),
        ({}, None),
    ],
    ids=str,
)
async def test_credentials_are_sent_and_never_shown(
    registry: RegistryServer,
    login: dict[str, str],
    header: str | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = make_app("avro")

    @app.incoming("orders")
    async def handle(order: dict[str, int]) -> None: ...

    registry.add("orders-value", SCHEMA)
    registry.fault = 401
    async with running(app, registry, **QUICK, **login) as test:
        await test.send("orders", record(0))
        await until(lambda: "401" in reasons(app, "orders"))
        told = reasons(app, "orders") + caplog.text + repr(app.settings)
        registry.fault = None
        await test.settled()
    assert set(registry.authorizations) == {header}
    assert not any(secret in told for name, secret in login.items() if name != "username")


async def test_another_url_is_asked_where_the_first_is_away(registry: RegistryServer) -> None:
    from tests.faults.driver import free_port

    app = make_app("avro")
    seen: list[int] = []

    @app.incoming("orders")
    async def handle(order: dict[str, int]) -> None:
        seen.append(order["id"])

    registry.add("orders-value", SCHEMA)
    away_url = f"http://127.0.0.1:{free_port()}"
    overrides = {"schema_registry": {"url": [away_url, registry.url], **QUICK}}
    async with TestApp(app, overrides=overrides) as test:
        await test.send("orders", record(3))
        await test.settled()
    assert seen == [3]


async def test_a_schema_that_many_others_refer_to_is_registered_once(
    registry: RegistryServer,
) -> None:
    client = RestRegistry(schema_registry_settings(url=(registry.url,)))
    await client.register("top", tree(HEIGHT))
    # A reference is registered, and then asked for its version.
    assert len(registry.requests) == 2 * 2 * HEIGHT + 1
    assert len(registry.subjects) == 2 * HEIGHT + 1
