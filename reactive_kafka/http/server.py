"""Serves an ASGI application on the running event loop, so that a blocked loop fails the probes."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import NamedTuple

import anyio
from starlette.types import ASGIApp

from reactive_kafka.errors import ConfigError
from reactive_kafka.http.connection_places import Places
from reactive_kafka.http.guard import is_local
from reactive_kafka.http.handed_connections import HandedConnections
from reactive_kafka.http.http_connection import Connection, ConnectionContext, Limits
from reactive_kafka.observe.events import SafeCaller
from reactive_kafka.tasks import Fails, Handle, log_failure

BACKLOG = 64
"""How many connections may wait to be accepted. With more, a probe would wait behind all of them.
"""
ACCEPTED_AT_ONCE = 16
"""How many connections are accepted in one turn of the loop."""
RETRY_S = 0.2
"""Pause before accepting again when no descriptor is left."""
LOGGED_EVERY_S = 60.0

logger = logging.getLogger("reactive_kafka.http")


class HttpServer(NamedTuple):
    """A listening server: the address that it is bound to, and its actual port."""

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
    """Listen on *host* and *port* (0: a free port) until the block ends.

    No connection and no task outlives the block. No signal handler is installed, and no access log
    is written. *fails* is called if the server's task ends by itself.

    Raises:
        ConfigError: The address cannot be bound, for example because the port is in use.

    Cancellation: Closes the server as well, within a second.
    """
    bound = await _bind(host, port)
    try:
        server = _Server(asgi, limits or Limits())
        accepting = Handle(partial(server.accept, bound), "http", fails)
        try:
            yield HttpServer(*bound.getsockname()[:2])
        finally:
            accepting.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait([accepting.task])
                bound.close()
                await server.close()
    finally:
        bound.close()


@contextlib.asynccontextmanager
async def serve_handed(
    asgi: ASGIApp, handed: HandedConnections, *, fails: Fails = log_failure
) -> AsyncIterator[None]:
    """Serve the connections that another process hands over, until the block ends.

    No connection and no task outlives the block. *fails* is called if the server's task ends by
    itself.

    Cancellation: Closes the server as well, within a second.
    """
    server = _Server(asgi, Limits())
    handed.open()
    taking = Handle(partial(server.take, handed), "http", fails)
    try:
        yield
    finally:
        handed.close()
        taking.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait([taking.task])
            await server.close()


async def _bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens there."""
    try:
        loop = asyncio.get_running_loop()
        addresses = await loop.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, kind, protocol, _, address = addresses[0]
        bound = socket.socket(family, kind, protocol)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
            bound.listen(BACKLOG)
            bound.setblocking(False)
        except BaseException:
            bound.close()
            raise
    except (OSError, OverflowError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"[http] {_bracketed(host)}:{port} cannot be bound: {reason}; "
            "set host and port to a free address, port = 0 for any free port, or enabled = false"
        ) from error
    if not is_local(str(address[0])):
        logger.warning(
            "health and metrics are open to the network: listening on %s:%s",
            *bound.getsockname()[:2],
        )
    return bound


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


class _Server:
    """Serves connections with uvicorn's protocol.

    asyncio can accept by itself, but without a limit. When descriptors run out, it logs each
    attempt, and tries more and more often: 356,016 lines for 400 clients.
    """

    def __init__(self, asgi: ASGIApp, limits: Limits) -> None:
        self._context = ConnectionContext(asgi, limits)
        self._places: Places[Connection] = Places(
            min(limits.connections, _most_descriptors() // 4), limits.probes
        )
        self._logged_at = -LOGGED_EVERY_S
        # Failed attempts to accept since then.
        self._failed = 0
        # A logging handler may need a descriptor, too, and raise.
        self._log = SafeCaller()

    async def accept(self, bound: socket.socket) -> None:
        """Accept connections on a socket until the task is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                first, _ = await loop.sock_accept(bound)
            except ConnectionError:
                # The client has disconnected already.
                continue
            except OSError as error:
                if error.errno == errno.EBADF:
                    raise
                await self._make_room(error)
            else:
                await self._serve([first, *_accept_waiting(bound)])

    async def take(self, handed: HandedConnections) -> None:
        """Serve the connections that are handed over, until the task is cancelled."""
        while True:
            await self._serve([await handed.next()])

    async def _serve(self, clients: list[socket.socket]) -> None:
        """Give each client a place, or close its socket."""
        connecting = []
        for client in clients:
            for_probes = self._places.free()
            if for_probes is None:
                client.close()
                continue
            connection = Connection(self._context, self._places.leave)
            connection.for_probes = for_probes
            self._places.take(connection, for_probes)
            connecting.append(self._connect(client, connection))
        connected = asyncio.gather(*connecting)
        try:
            await asyncio.shield(connected)
        except asyncio.CancelledError:
            # This takes a turn or two of the loop. Then each socket belongs to a connection, and
            # `close` closes it.
            await connected
            raise
        if not connecting:
            # No client got a place. Let the loop do other work before the next ones are accepted.
            await asyncio.sleep(0)

    async def _connect(self, client: socket.socket, connection: Connection) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: connection, client)
        except OSError:
            # The client has disconnected already.
            self._places.leave(connection)
            client.close()

    async def _make_room(self, error: OSError) -> None:
        """Close an idle connection, because no descriptor is left; if there is none, wait."""
        loop = asyncio.get_running_loop()
        self._failed += 1
        if loop.time() - self._logged_at >= LOGGED_EVERY_S:
            text = "no connection can be accepted (%d times): %s"
            self._log.call(logger.warning, text, self._failed, error.strerror)
            self._logged_at = loop.time()
            self._failed = 0
        await asyncio.sleep(0 if self._places.dismiss_oldest() else RETRY_S)

    async def close(self) -> None:
        """Let running answers finish within the grace period, then abort the others."""
        state = self._context.state
        try:
            for connection in list(state.connections):
                connection.shutdown()
            await self._wait_until_gone(self._context.limits.grace_s)
        finally:
            for connection in list(state.connections):
                connection.transport.abort()
            # Tasks that only waited for a slow client end by themselves now.
            await self._wait_until_gone(0.1)
            stuck = list(state.tasks)
            for task in stuck:
                task.cancel()
            if stuck:
                await asyncio.wait(stuck)

    async def _wait_until_gone(self, limit_s: float) -> None:
        state = self._context.state
        loop = asyncio.get_running_loop()
        deadline = loop.time() + limit_s
        # A response is received when its connection is gone. uvicorn has no way to await that.
        while (state.connections or state.tasks) and loop.time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def _accept_waiting(bound: socket.socket) -> Iterator[socket.socket]:
    """Accept clients that wait already, so that one turn of the loop takes several."""
    # An error means that no client waits. Any other error will meet the next turn again.
    with contextlib.suppress(OSError):
        for _ in range(ACCEPTED_AT_ONCE - 1):
            yield bound.accept()[0]


def _most_descriptors() -> int:
    try:
        import resource
    except ImportError:
        # Windows has no such module, and no such limit either.
        return 2048
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else 2**31
