"""Serves an ASGI application on the running event loop, so that a blocked loop fails the probes."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
from collections.abc import AsyncIterator, Iterator
from typing import NamedTuple

import anyio
from starlette.types import ASGIApp

from reactive_kafka.errors import ConfigError
from reactive_kafka.http.connection import Connection, Limits, Shared
from reactive_kafka.http.guard import is_local
from reactive_kafka.http.places import Places
from reactive_kafka.observe.events import Guard
from reactive_kafka.tasks import Fails, Handle, log_failure

BACKLOG = 64
"""Connections that wait to be accepted. They have cost nothing yet, and many of them would keep a
probe waiting.
"""
AT_ONCE = 16
"""Connections accepted in one turn of the loop."""
RETRY_S = 0.2
"""Until accepting is tried again where no descriptor is left."""
TOLD_EACH_S = 60.0

logger = logging.getLogger("reactive_kafka.http")


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
    """Listen on *host* and *port* (0: a free port) until the block ends; no connection and no task
    outlives it.

    No signal handler is installed and no access log is written. *fails* is called if the server's
    task ends by itself. ConfigError: the address cannot be bound, because the port is in use, say.
    Cancellation: Closes the server as well, within a second.
    """
    bound = await _bind(host, port)
    try:
        server = _Server(asgi, bound, limits or Limits())
        accepting = Handle(server.accept, "http", fails)
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


async def _bind(host: str, port: int) -> socket.socket:
    try:
        loop = asyncio.get_running_loop()
        kind = socket.SOCK_STREAM
        family, _, protocol, _, address = (
            await loop.getaddrinfo(host, port, type=kind, flags=socket.AI_PASSIVE)
        )[0]
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
        raise ConfigError(
            f"[http] {_bracketed(host)}:{port} cannot be bound: {getattr(error, 'strerror', None) or error}; "
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
    """uvicorn's connections on a socket of ours.

    asyncio's own accepting has no limit, and where descriptors run out it logs each of its tries,
    and tries the more often the longer that lasts: 356,016 lines for 400 clients.
    """

    def __init__(self, asgi: ASGIApp, bound: socket.socket, limits: Limits) -> None:
        self._shared = Shared(asgi, limits)
        self._bound = bound
        self._places: Places[Connection] = Places(
            min(limits.connections, _most_descriptors() // 4), limits.probes
        )
        self._told_at = -TOLD_EACH_S
        # Tries to accept, since that.
        self._failed = 0
        # A logging handler may need a descriptor, too.
        self._log = Guard()

    async def accept(self) -> None:
        """Accept until it is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                first, _ = await loop.sock_accept(self._bound)
            except ConnectionError:
                # The client is gone again.
                continue
            except OSError as error:
                if error.errno == errno.EBADF:
                    raise
                await self._make_room(error)
            else:
                await self._enter([first, *self._waiting()])

    def _waiting(self) -> Iterator[socket.socket]:
        # Nobody waits; any other reason meets the next turn again.
        with contextlib.suppress(OSError):
            for _ in range(AT_ONCE - 1):
                yield self._bound.accept()[0]

    async def _enter(self, arrived: list[socket.socket]) -> None:
        """Give each of them a place, or close it."""
        entering = []
        for client in arrived:
            for_probes = self._places.free()
            if for_probes is None:
                client.close()
                continue
            connection = Connection(self._shared, self._places.leave)
            connection.for_probes = for_probes
            self._places.take(connection, for_probes)
            entering.append(self._connect(client, connection))
        connected = asyncio.gather(*entering)
        try:
            await asyncio.shield(connected)
        except asyncio.CancelledError:
            # A turn or two of the loop: then each socket belongs to a connection, which is closed.
            await connected
            raise
        if not entering:
            await asyncio.sleep(0)

    async def _connect(self, client: socket.socket, connection: Connection) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: connection, client)
        except OSError:
            # It is gone already.
            self._places.leave(connection)
            client.close()

    async def _make_room(self, error: OSError) -> None:
        """No descriptor is left. Who has no request gives one back; else the others may, in a
        while.
        """
        loop = asyncio.get_running_loop()
        self._failed = self._failed + 1
        if loop.time() - self._told_at >= TOLD_EACH_S:
            text = "no connection can be accepted (%d times): %s"
            self._log.call(logger.warning, text, self._failed, error.strerror)
            self._told_at = loop.time()
            self._failed = 0
        await asyncio.sleep(0 if self._places.dismiss_oldest() else RETRY_S)

    async def close(self) -> None:
        """Let running answers end within the grace period, then abort the rest."""
        state = self._shared.state
        try:
            for connection in list(state.connections):
                connection.shutdown()
            await self._wait_until_gone(self._shared.limits.grace_s)
        finally:
            for connection in list(state.connections):
                connection.transport.abort()
            # Tasks that only waited for a slow client end now.
            await self._wait_until_gone(0.1)
            stuck = list(state.tasks)
            for task in stuck:
                task.cancel()
            if stuck:
                await asyncio.wait(stuck)

    async def _wait_until_gone(self, limit_s: float) -> None:
        state = self._shared.state
        loop = asyncio.get_running_loop()
        deadline = loop.time() + limit_s
        # A response is received when its connection is gone; uvicorn has nothing to await for that.
        while (state.connections or state.tasks) and loop.time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def _most_descriptors() -> int:
    try:
        import resource
    except ImportError:
        # Windows.
        return 2048
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else 2**31
