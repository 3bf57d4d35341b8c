"""Whether the master of a standalone cluster can be reached. Blocks."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import closing
from typing import Any

from reactive_kafka.errors import OffloadError
from reactive_kafka.spark.session.conf import masters_in

# For each master.
CONNECT_LIMIT_S = 5.0
Connect = Callable[[tuple[str, int], float], Any]


def reach_master(master: str, shown: str, connect: Connect = socket.create_connection) -> None:
    """Raise OffloadError unless a master in the URL accepts a connection; *shown* is the URL for
    people.

    Spark's own answer takes a driver and up to a minute of silence, and does not have the address.
    Nothing is tried where the URL names no standalone master.
    """
    refusals = []
    for address in masters_in(master):
        try:
            with closing(connect(address, CONNECT_LIMIT_S)):
                return
        except OSError as error:
            refusals.append(error.strerror or str(error))
    if refusals:
        raise OffloadError(
            f"no master can be reached at {shown}: {', '.join(dict.fromkeys(refusals))}"
        )
