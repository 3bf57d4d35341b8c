"""Serves an ASGI application on the running event loop, so that a blocked loop fails the probes."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import NamedTuple

import anyio
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from reactive_kafka.errors import ConfigError
from reactive_kafka.tasks import Fails, Handle, log_failure

CHUNK_BYTES = 1024

logger = logging.getLogger("reactive_kafka.http")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What clients may use of the server."""

    connections: int = 64  # at once; further requests are answered with 503
    header_bytes: int = 8 * 1024  # size of a request's head; above it (by up to 1 KiB) the answer is 400
    keep_alive_s: int = 5  # how long a connection may idle between requests; whole seconds
    exchange_s: float = 10.0  # from the connection, or its last response, until the client has received the next one
    grace_s: float = 0.4  # how long running responses may take when the server closes


class HttpServer(NamedTuple):
    """A listening server: the address it is bound to, and its port, never 0."""

    host: str
    port: int

    @property
    def url(self) -> str:
        """Its URL, without a slash at the end."""
        return f"http://{_bracketed(self.host)}:{self.port}"


@contextlib.asynccontextmanager
async def serve(
    asgi: ASGIApp, host: str, port: int, limits: Limits | None = None, *, fails: Fails = log_failure
) -> AsyncIterator[HttpServer]:
    """Listen on *host* and *port* (0: a free port) until the block ends; no connection and no task outlives it.

    No signal handler is installed and no access log is written. *fails* is called if the server's task ends by itself.
    ConfigError: the address cannot be bound, because the port is in use, say.
    Cancellation: Closes the server as well, within a second.
    """
    bound = await _bind(host, port)
    server = _Server(_Config(asgi, limits or Limits()))
    try:
        await server.open(bound)
        ticking = Handle(server.main_loop, "http", fails)
        try:
            yield HttpServer(*bound.getsockname()[:2])
        finally:
            ticking.cancel()
            with anyio.CancelScope(shield=True):
                await server.close()
                await asyncio.wait([ticking.task])
    finally:
        bound.close()


async def _bind(host: str, port: int) -> socket.socket:
    try:
        loop, kind = asyncio.get_running_loop(), socket.SOCK_STREAM
        family, _, protocol, _, address = (await loop.getaddrinfo(host, port, type=kind, flags=socket.AI_PASSIVE))[0]
        bound = socket.socket(family, kind, protocol)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
            bound.listen(128)
            bound.setblocking(False)
        except BaseException:
            bound.close()
            raise
    except (OSError, OverflowError, UnicodeError) as error:
        raise ConfigError(
            f"[http] {_bracketed(host)}:{port} cannot be bound: {getattr(error, 'strerror', None) or error}; "
            "set host and port to a free address, port = 0 for any free port, or enabled = false"
        ) from error
    if not ipaddress.ip_address(address[0]).is_loopback:
        logger.warning("health and metrics are open to the network: listening on %s:%s", *bound.getsockname()[:2])
    return bound


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


class _Config(uvicorn.Config):
    def __init__(self, asgi: ASGIApp, limits: Limits) -> None:
        self.limits = limits
        super().__init__(
            asgi,
            interface="asgi3",
            http=_Connection,
            ws="none",
            lifespan="off",
            log_config=None,  # logging belongs to the owner of the process
            proxy_headers=False,
            server_header=False,
            limit_concurrency=limits.connections,
            timeout_keep_alive=limits.keep_alive_s,
            h11_max_incomplete_event_size=limits.header_bytes,
        )


class _Connection(H11Protocol):
    """Drops a client that does not end its request or read the response: uvicorn limits the time between them only."""

    config: _Config
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.access_log = False  # uvicorn's own setting would silence the access log of the whole process
        self._set_deadline()

    def data_received(self, data: bytes) -> None:
        # h11 checks the size of a head only while its end has not arrived: in one piece, a head of any size passes.
        for start in range(0, len(data), CHUNK_BYTES):
            if not self.transport.is_closing():
                super().data_received(data[start : start + CHUNK_BYTES])

    def on_response_complete(self) -> None:
        self._set_deadline()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        super().connection_lost(exc)

    def _set_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self.loop.call_later(self.config.limits.exchange_s, self.transport.abort)


class _Server(uvicorn.Server):
    """uvicorn's server without what belongs to a process: signal handlers, log lines, a shutdown at its own pace."""

    config: _Config

    async def open(self, bound: socket.socket) -> None:
        self.config.load()
        self.lifespan = self.config.lifespan_class(self.config)
        await self.startup(sockets=[bound])

    async def close(self) -> None:
        """Stop listening, let running responses end within the grace period, then abort the rest."""
        for server in self.servers:
            server.close()
        try:
            for connection in list(self.server_state.connections):
                connection.shutdown()
            await self._wait_until_gone(self.config.limits.grace_s)
        finally:
            for connection in list(self.server_state.connections):
                connection.transport.abort()
            await self._wait_until_gone(0.1)  # tasks that only waited for a slow client end now
            stuck = list(self.server_state.tasks)
            for task in stuck:
                task.cancel()
            if stuck:
                await asyncio.wait(stuck)

    async def _wait_until_gone(self, limit_s: float) -> None:
        state, loop = self.server_state, asyncio.get_running_loop()
        deadline = loop.time() + limit_s
        # A response is received when its connection is gone; uvicorn has nothing to await for that.
        while (state.connections or state.tasks) and loop.time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
