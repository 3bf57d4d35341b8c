"""A connection that the broker has closed says so in aiokafka's own words, under uvloop too
(aiokafka #1038).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import uvloop
from aiokafka.conn import AIOKafkaConnection
from aiokafka.errors import KafkaConnectionError
from aiokafka.protocol.admin import ApiVersionRequest

# What is tested takes effect with this import.
import reactive_kafka.broker.aiokafka.kafka_consumer  # noqa: F401


async def send_to_a_closed_one(send: Callable[[AIOKafkaConnection], Any]) -> None:
    """Send over a connection whose socket is gone, before the client has heard of it."""
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    connection = AIOKafkaConnection(host, port)
    connection._reader, connection._writer = await asyncio.open_connection(host, port)
    connection._read_task = asyncio.create_task(asyncio.sleep(60))
    transport = connection._writer.transport
    try:
        transport.abort()
        # The loop has closed it.
        await connection._reader.read()
        send(connection)
    finally:
        connection.close()
        server.close()
        await server.wait_closed()


def test_aiokafka_alone_passes_uvloops_error_on() -> None:
    """Row D12 of the faults."""
    alone = AIOKafkaConnection.send.__wrapped__
    with pytest.raises(RuntimeError, match="the handler is closed") as raised:
        uvloop.run(send_to_a_closed_one(lambda connection: alone(connection, ApiVersionRequest())))
    assert not isinstance(raised.value, KafkaConnectionError)


def test_sending_over_a_closed_connection_is_a_connection_error() -> None:
    with pytest.raises(KafkaConnectionError, match="the handler is closed") as raised:
        uvloop.run(send_to_a_closed_one(lambda connection: connection.send(ApiVersionRequest())))
    assert type(raised.value.__cause__) is RuntimeError
