"""The probe reads what a broker says, and only that."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from reactive_kafka.broker.local_kafka import brokers_known_to


def broker(node: int, host: str, port: int, rack: str | None) -> bytes:
    told = struct.pack(">ih", node, len(host)) + host.encode() + struct.pack(">i", port)
    return told + (
        struct.pack(">h", -1) if rack is None else struct.pack(">h", len(rack)) + rack.encode()
    )


class Server:
    """Answers the first connection with fixed bytes."""

    def __init__(self) -> None:
        self.answer = b""
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> Server:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()

    def _serve(self) -> None:
        try:
            connection, _ = self._socket.accept()
        except OSError:
            return
        with connection:
            connection.recv(1000)
            connection.sendall(self.answer)


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        yield server


def test_every_broker_is_found_with_and_without_a_rack(server: Server) -> None:
    body = (
        struct.pack(">iii", 1, 0, 2)
        + broker(1, "a.example", 9092, "rack-1")
        + broker(7, "b", 1, None)
    )
    server.answer = struct.pack(">i", len(body)) + body
    assert brokers_known_to("127.0.0.1", server.port) == {1: "a.example:9092", 7: "b:1"}


def test_a_server_of_another_kind_is_refused(server: Server) -> None:
    server.answer = b"HTTP/1.1 400 Bad Request\r\n\r\n"
    with pytest.raises(OSError, match="does not speak Kafka's protocol"):
        brokers_known_to("127.0.0.1", server.port)


def test_an_answer_that_breaks_off_is_refused(server: Server) -> None:
    server.answer = struct.pack(">i", 100) + b"short"
    with pytest.raises(ConnectionError, match="closed the connection"):
        brokers_known_to("127.0.0.1", server.port)


def test_nobody_there_is_an_os_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(ConnectionRefusedError):
        brokers_known_to("127.0.0.1", port)
