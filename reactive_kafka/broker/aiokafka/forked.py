"""Connections of the client's in a forked child: they lead nowhere there."""

from __future__ import annotations

import os
from functools import wraps
from typing import Any
from weakref import WeakSet

from aiokafka.conn import AIOKafkaConnection

_connections: WeakSet[AIOKafkaConnection] = WeakSet()


def noted(connect: Any) -> Any:
    """A connection's method ``connect``, which notes whose it is."""

    @wraps(connect)
    async def connects(self: Any) -> Any:
        _connections.add(self)
        return await connect(self)

    return connects


def disconnect_child() -> None:
    """Put /dev/null in the place of each socket.

    Child and parent share it: what one reads is lost to the other. It is not closed, for its number
    would be another file's soon, and is in the loop's selector, which they share, too.
    """
    nowhere = os.open(os.devnull, os.O_RDWR)
    for connection in list(_connections):
        writer = connection._writer
        socket = None if writer is None else writer.get_extra_info("socket")
        # Else it has been closed.
        if socket is not None and socket.fileno() >= 0:
            os.dup2(nowhere, socket.fileno(), inheritable=False)
    os.close(nowhere)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=disconnect_child)
