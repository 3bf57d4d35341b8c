"""A worker's end of the link to its supervisor.

The link is a socket that the worker inherits. Over it the supervisor sends HTTP connections, each
with one byte. The worker sends one line: the HTTP address that its configuration has. When the
supervisor is gone, however it ended, the socket ends, and the worker ends, too.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import threading
import time

from reactive_kafka.config.settings import HttpSettings
from reactive_kafka.http.handed_connections import HandedConnections
from reactive_kafka.runtime.signals import exit_now

ORPHAN_DRAIN_S = 6.0
"""How long a worker may drain when its supervisor is gone."""


class SupervisorLink:
    """The socket to the supervisor. A thread reads it, so that a blocked event loop does not."""

    def __init__(self, descriptor: int) -> None:
        # Children of the application must not inherit it.
        os.set_inheritable(descriptor, False)
        self._socket = socket.socket(fileno=descriptor)
        self._socket.setblocking(True)
        self.connections = HandedConnections()
        threading.Thread(target=self._read, name="supervisor link", daemon=True).start()

    def tell_loaded(self, http: HttpSettings) -> None:
        """Tell the supervisor that the application is loaded, and where it is to listen."""
        told = {"host": http.host, "port": http.port} if http.enabled else None
        with contextlib.suppress(OSError):
            # An error means that the supervisor is gone, which the thread has noticed.
            self._socket.sendall(json.dumps({"http": told}).encode() + b"\n")

    def _read(self) -> None:
        while True:
            try:
                data, descriptors, _, _ = socket.recv_fds(self._socket, 1, 1)
            except OSError:
                break
            for descriptor in descriptors:
                self.connections.hand(socket.socket(fileno=descriptor))
            if not data:
                break
        self._supervisor_is_gone()

    def _supervisor_is_gone(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        # Whoever read the log may be gone, too.
        with contextlib.suppress(OSError):
            os.write(2, b"reactive_kafka: the supervisor is gone: this worker drains and ends\n")
        time.sleep(ORPHAN_DRAIN_S)
        exit_now(1)
