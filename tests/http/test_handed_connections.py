"""Connections that another process hands over are served as those of a port."""

from __future__ import annotations

import asyncio
import socket
import threading

from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from reactive_kafka.http.handed_connections import HandedConnections
from reactive_kafka.http.server import serve_handed

GET = b"GET /hello HTTP/1.0\r\n\r\n"


async def hello(_: object) -> PlainTextResponse:
    return PlainTextResponse("hello")


ASGI = Starlette(routes=[Route("/hello", hello)])


async def answer_to(handed: HandedConnections) -> bytes:
    """What comes back over a connection that a thread hands over."""
    ours, its = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours)
    threading.Thread(target=handed.hand, args=(its,)).start()
    writer.write(GET)
    async with asyncio.timeout(10):
        found = await reader.read()
    writer.close()
    return found


async def test_a_connection_that_a_thread_hands_over_is_served() -> None:
    handed = HandedConnections()
    async with serve_handed(ASGI, handed):
        first, second = await asyncio.gather(answer_to(handed), answer_to(handed))
    assert first.startswith(b"HTTP/1.1 200 OK\r\n")
    assert first.endswith(b"\r\n\r\nhello")
    assert second.endswith(b"\r\n\r\nhello")


async def test_a_connection_is_closed_where_no_server_takes_it() -> None:
    handed = HandedConnections()
    ours, its = socket.socketpair()
    with ours:
        handed.hand(its)
        assert ours.recv(1) == b""
    async with serve_handed(ASGI, handed):
        pass
    ours, its = socket.socketpair()
    with ours:
        handed.hand(its)
        assert ours.recv(1) == b""


async def test_a_connection_that_is_handed_over_as_the_server_ends_is_closed() -> None:
    handed = HandedConnections()
    handed.open()
    ours, its = socket.socketpair()
    with ours:
        handed.hand(its)
        handed.close()
        await asyncio.sleep(0)
        ours.settimeout(5)
        assert ours.recv(1) == b""
