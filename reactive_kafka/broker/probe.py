"""Asks a broker which brokers its cluster has, over a plain socket: how a starting one is known to be ready."""

from __future__ import annotations

import socket
import struct
from typing import BinaryIO

_METADATA = 3
_METADATA_VERSION = 4  # the newest without compact fields; every Kafka from 0.11 on answers it
_MAX_ANSWER_BYTES = 1024 * 1024


def brokers_known_to(host: str, port: int, timeout_s: float = 1.0) -> dict[int, str]:
    """node id -> advertised ``host:port``, as the broker at *host* and *port* tells its clients.

    Raises:
        OSError: Nobody answers there, or not in time.
    """
    with socket.create_connection((host, port), timeout=timeout_s) as connection, connection.makefile("rb") as stream:
        connection.sendall(_metadata_request())
        (size,) = struct.unpack(">i", _receive(stream, 4))
        if not 0 < size <= _MAX_ANSWER_BYTES:
            raise OSError(f"{host}:{port} does not speak Kafka's protocol")
        return _brokers(_receive(stream, size))


def _metadata_request() -> bytes:
    client_id = b"reactive-kafka-probe"
    head = struct.pack(">hhih", _METADATA, _METADATA_VERSION, 1, len(client_id)) + client_id
    body = struct.pack(">i?", 0, False)  # no topics, and create none
    return struct.pack(">i", len(head) + len(body)) + head + body


def _receive(stream: BinaryIO, size: int) -> bytes:
    received = stream.read(size)
    if len(received) < size:
        raise ConnectionError("the broker closed the connection")
    return received


def _brokers(answer: bytes) -> dict[int, str]:
    found = {}
    (count,) = struct.unpack_from(">i", answer, 8)  # after the correlation id and the throttle time
    at = 12
    for _ in range(count):
        node, length = struct.unpack_from(">ih", answer, at)
        at += 6
        host = answer[at : at + length].decode()
        (port, rack) = struct.unpack_from(">ih", answer, at + length)
        at += length + 6 + max(rack, 0)
        found[node] = f"{host}:{port}"
    return found
