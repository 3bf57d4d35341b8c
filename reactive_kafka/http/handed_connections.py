"""Connections that another process hands to this one, instead of a port to listen on."""

from __future__ import annotations

import asyncio
import socket
import threading


class HandedConnections:
    """Connections on their way to the server of this process. Any thread may hand them over."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # None while no server takes connections.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._arrived: asyncio.Queue[socket.socket] = asyncio.Queue()

    def open(self) -> None:
        """Take connections from now on, on the running event loop."""
        with self._lock:
            self._loop = asyncio.get_running_loop()

    def close(self) -> None:
        """Take no more connections, and close those that wait."""
        with self._lock:
            self._loop = None
        while not self._arrived.empty():
            self._arrived.get_nowait().close()

    def hand(self, connection: socket.socket) -> None:
        """Have the server serve a connection. It is closed if there is no server."""
        connection.setblocking(False)
        with self._lock:
            if self._loop is None:
                connection.close()
            else:
                self._loop.call_soon_threadsafe(self._arrives, connection)

    def _arrives(self, connection: socket.socket) -> None:
        if self._loop is None:
            # It was handed over just before the server ended.
            connection.close()
        else:
            self._arrived.put_nowait(connection)

    async def next(self) -> socket.socket:
        """Wait for a connection."""
        return await self._arrived.get()
