"""Why a broker cannot be used is one line by kind, which says what to change; the client's own
lines say no more.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiokafka
import pytest
from aiokafka.errors import KafkaConnectionError

from reactive_kafka.broker.embedded import EmbeddedBroker
from reactive_kafka.broker.kafka_connector import KafkaConnector
from reactive_kafka.errors import BrokerError, FatalBrokerError, TransientBrokerError
from reactive_kafka.subscription import Topics
from tests.broker.hazards.test_connecting import closed_port
from tests.broker.members import Member
from tests.broker.security.certificates import make_certificates

Answers = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture(scope="module")
def issued(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of certificates."""
    folder = tmp_path_factory.mktemp("certificates")
    make_certificates(folder)
    return folder


async def reason(address: str, **properties: Any) -> tuple[type[BrokerError], str]:
    """Why a client cannot start there."""
    client = KafkaConnector(address).producer(name="o", properties=properties)
    try:
        with pytest.raises(BrokerError) as caught:
            await client.start()
    finally:
        await client.stop()
    return type(caught.value), str(caught.value)


async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.close()


async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    writer.close()


async def speak_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    writer.close()


@asynccontextmanager
async def serving(
    answers: Answers, folder: Path | None = None, certificate: str = "server"
) -> AsyncIterator[str]:
    """``host:port`` of something that is no broker; with *folder* it speaks TLS."""
    context = None
    if folder is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / f"{certificate}.crt", folder / f"{certificate}.key")
    server = await asyncio.start_server(answers, "127.0.0.1", 0, ssl=context)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


# -- the network


async def test_a_port_where_nobody_listens() -> None:
    """Row B10 of the faults."""
    address = f"127.0.0.1:{closed_port()}"
    kind, said = await reason(address)
    assert kind is TransientBrokerError
    assert said.startswith(
        f"no broker can be used ({address}: nothing listens there ([Errno 111] Connect call failed"
    )
    assert said.endswith(
        f"): start the broker, or correct bootstrap_servers), with bootstrap_servers = {address!r}"
    )


async def test_a_name_with_several_addresses_where_nobody_listens() -> None:
    known = {
        found[4][0] for found in socket.getaddrinfo("localhost", 9092, type=socket.SOCK_STREAM)
    }
    kind, said = await reason(f"localhost:{closed_port()}")
    assert kind is TransientBrokerError
    assert "nothing listens there" in said, known


async def test_a_host_that_nobody_knows() -> None:
    kind, said = await reason("nowhere.invalid:9092")
    assert kind is TransientBrokerError
    assert "nowhere.invalid:9092: no host has this name (" in said
    assert (
        "): correct bootstrap_servers, or have the name resolved here), with bootstrap_servers"
        in said
    )


async def test_a_port_that_never_answers() -> None:
    async with serving(say_nothing) as address:
        kind, said = await reason(address, request_timeout_ms=300)
    assert kind is TransientBrokerError
    assert (
        f"({address}: no answer in time: correct bootstrap_servers, or open the way there: firewalls"
        in said
    )


async def test_an_address_that_a_broker_has_named() -> None:
    """The bootstrap servers are right; what the broker says of itself is not."""
    broker = EmbeddedBroker()
    consumer = KafkaConnector(broker.bootstrap_servers).consumer(
        name="o", subscription=Topics(("o",)), group_id="g", properties={}
    )
    try:
        await consumer.start(Member(consumer))
        broker.close()
        # The broker has answered just now, which is good for a moment.
        with pytest.raises(TransientBrokerError) as caught:
            async with asyncio.timeout(10):
                while True:
                    await consumer.check()
                    await asyncio.sleep(0.05)
    finally:
        await consumer.stop()
        broker.close()
    assert "nothing listens there (" in str(caught.value)
    assert (
        "): a broker advertises that address: reach it from here, or change the broker's advertised.listeners"
        in str(caught.value)
    )


# -- TLS


async def test_tls_to_a_port_without() -> None:
    """Row S1 of the faults."""
    async with serving(hang_up) as address:
        kind, said = await reason(address, security_protocol="SSL")
    assert kind is TransientBrokerError
    told = "the broker has closed the connection without a word: does it speak SSL there? set security_protocol to what"
    assert f"({address}: {told} that port speaks), with" in said


async def test_tls_to_something_else_altogether() -> None:
    async with serving(speak_http) as address:
        _, said = await reason(address, security_protocol="SSL")
    assert f"({address}: what answers there speaks no TLS (" in said
    assert "): does it speak SSL there? set security_protocol to what that port speaks)" in said


async def test_no_tls_to_a_port_with_it(issued: Path) -> None:
    """Row S1 of the faults."""
    async with serving(say_nothing, issued) as address:
        kind, said = await reason(address)
    assert kind is TransientBrokerError
    assert (
        f"({address}: the broker has closed the connection without a word: does it speak PLAINTEXT there?"
        in said
    )


@pytest.mark.parametrize(
    ("certificate", "authority", "what", "remedy"),
    [
        (
            "server",
            "foreign",
            "unable to get local issuer certificate",
            "name the authority that has issued it in",
        ),
        (
            "server-expired",
            "ours",
            "certificate has expired",
            "the broker needs a new one, if the clock of this",
        ),
        (
            "server-elsewhere",
            "ours",
            "IP address mismatch, certificate is not valid for '127.0.0.1'.",
            "connect by a name that is in it, or have it issued for this one",
        ),
    ],
)
async def test_a_certificate_that_is_refused(
    issued: Path, certificate: str, authority: str, what: str, remedy: str
) -> None:
    """Row S2 of the faults."""
    async with serving(say_nothing, issued, certificate) as address:
        kind, said = await reason(
            address, security_protocol="SSL", ssl_cafile=str(issued / f"{authority}.crt")
        )
    assert kind is FatalBrokerError
    assert f"({address}: the broker's certificate is refused ({what}): {remedy}" in said


# -- the client's own lines


async def test_the_clients_own_lines_about_it_are_debugging(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO):
        await reason(f"127.0.0.1:{closed_port()}")
    names = ("aiokafka", "reactive_kafka.connections")
    assert [one.getMessage() for one in caplog.records if one.name.startswith(names)] == []
    # Its own level may be set.
    with caplog.at_level(logging.DEBUG, logger="reactive_kafka.connections"):
        await reason(f"127.0.0.1:{closed_port()}")
    (line,) = [
        one for one in caplog.records if one.getMessage().startswith("cannot connect to 127.0.0.1")
    ]
    assert line.levelno == logging.DEBUG


async def test_the_lines_of_a_client_that_is_none_of_ours_stay_what_they_are(
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = aiokafka.AIOKafkaProducer(bootstrap_servers=f"127.0.0.1:{closed_port()}")
    with pytest.raises(KafkaConnectionError):
        await client.start()
    await client.stop()
    (line,) = [
        one for one in caplog.records if one.getMessage().startswith('Unable connect to "127.0.0.1')
    ]
    assert line.levelno == logging.ERROR
