"""Checks that the master of a standalone cluster can be reached. It blocks."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import closing
from typing import Any

from reactive_kafka.errors import OffloadError
from reactive_kafka.spark.session.conf import masters_in

# The timeout for each master.
CONNECT_LIMIT_S = 5.0
Connect = Callable[[tuple[str, int], float], Any]


def reach_master(master: str, shown: str, connect: Connect = socket.create_connection) -> None:
    """Check that one of the masters in a URL accepts a connection.

    Spark itself needs a driver and up to a minute to find out, and its error lacks the address.
    Nothing is checked if the URL names no standalone master.

    Args:
        master: The URL.
        shown: The URL for people, without secrets.
        connect: Opens a connection.

    Raises:
        OffloadError: None of them does.
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
