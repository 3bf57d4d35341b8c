"""Connections to brokers that nobody has closed before their event loop ended."""

from __future__ import annotations

from reactive_kafka.broker.aiokafka.connections.broker_connection import BrokerConnection
from reactive_kafka.broker.aiokafka.forked_clients import _connections


def take_left_open() -> list[str]:
    """Return the addresses of these connections, each of which is returned once."""
    left = [
        connection
        for connection in list(_connections)
        if isinstance(connection, BrokerConnection) and _is_left(connection)
    ]
    for connection in left:
        _connections.discard(connection)
    return [f"{connection.host}:{connection.port}" for connection in left]


def _is_left(connection: BrokerConnection) -> bool:
    if not connection.is_open or connection._protocol is None:
        return False
    return connection._protocol.closed.get_loop().is_closed()
