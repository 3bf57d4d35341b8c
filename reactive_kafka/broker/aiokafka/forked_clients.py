"""Disconnects the clients of a forked child: their sockets belong to the parent."""

from __future__ import annotations

import os
from socket import socket as Socket
from typing import Protocol
from weakref import WeakSet


class HasSocket(Protocol):
    """A connection. Its socket is None if it is not open."""

    @property
    def socket(self) -> Socket | None: ...


_connections: WeakSet[HasSocket] = WeakSet()


def track(connection: HasSocket) -> None:
    """Keep a weak reference to a connection, to disconnect it in a forked child."""
    _connections.add(connection)


def disconnect_child() -> None:
    """Replace each socket by /dev/null.

    Child and parent share a socket: what one reads, the other misses. Closing it would not do: its
    number would soon belong to another file, and it is still in the loop's selector, which they
    share, too.
    """
    nowhere = os.open(os.devnull, os.O_RDWR)
    for connection in list(_connections):
        used = connection.socket
        # A socket without a number is closed already.
        if used is not None and used.fileno() >= 0:
            os.dup2(nowhere, used.fileno(), inheritable=False)
    os.close(nowhere)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=disconnect_child)
