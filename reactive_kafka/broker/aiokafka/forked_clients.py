"""Disconnects the clients of a forked child: their sockets belong to the parent."""

from __future__ import annotations

import os
from functools import wraps
from typing import Any
from weakref import WeakSet

from aiokafka.conn import AIOKafkaConnection

_connections: WeakSet[AIOKafkaConnection] = WeakSet()


def track_connections(connect: Any) -> Any:
    """Return a connection's method ``connect`` that keeps a weak reference to the connection."""

    @wraps(connect)
    async def connect_tracked(self: Any) -> Any:
        _connections.add(self)
        return await connect(self)

    return connect_tracked


def disconnect_child() -> None:
    """Replace each socket by /dev/null.

    Child and parent share a socket: what one reads, the other misses. Closing it would not do: its
    number would soon belong to another file, and it is still in the loop's selector, which they
    share, too.
    """
    nowhere = os.open(os.devnull, os.O_RDWR)
    for connection in list(_connections):
        writer = connection._writer
        socket = None if writer is None else writer.get_extra_info("socket")
        # A socket without a number is closed already.
        if socket is not None and socket.fileno() >= 0:
            os.dup2(nowhere, socket.fileno(), inheritable=False)
    os.close(nowhere)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=disconnect_child)
