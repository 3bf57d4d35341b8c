"""Replaces parts of aiokafka's connections, once, when this module is imported.

- An attempt to connect remembers why it failed. aiokafka only logs that, and some errors would end
  its tasks.
- Answers are read in frames.
- A closed connection raises KafkaConnectionError under uvloop, too.
- A refused OAuth token is a failed login.
"""

from __future__ import annotations

from collections import deque
from contextvars import ContextVar
from functools import wraps
from typing import Any
from weakref import WeakKeyDictionary

import aiokafka.conn
import aiokafka.errors as kafka_errors
from aiokafka.conn import AIOKafkaConnection, CloseReason

from reactive_kafka.broker.aiokafka import forked_clients
from reactive_kafka.broker.aiokafka.connect_failures import (
    EXPECTED_ERRORS,
    ConnectFailure,
    explain_failure,
)
from reactive_kafka.broker.aiokafka.credentials import TokenLogin, current
from reactive_kafka.broker.aiokafka.fetched.frames import FrameProtocol, read_frames
from reactive_kafka.errors import describe

start_failures: ContextVar[deque[ConnectFailure] | None] = ContextVar(
    "start_failures", default=None
)
"""Collects the failed attempts of the client that is being started in this context."""
last_failures: WeakKeyDictionary[Any, ConnectFailure] = WeakKeyDictionary()
"""An ``AIOKafkaClient`` -> why its last attempt to connect failed; missing if it succeeded."""


def _explain_connect(connect: Any) -> Any:
    """Return a ``connect`` that remembers why it failed, and raises only what aiokafka expects.

    Errors that aiokafka expects it logs. Any other error would end the task in which it is raised.
    """

    @wraps(connect)
    async def connect_and_explain(self: AIOKafkaConnection) -> Any:
        # None while the client connects to a bootstrap server.
        client = getattr(self._on_close_cb, "__self__", None)
        context, problem = current(self._ssl_context)
        self._ssl_context = context
        try:
            connected = await connect(self)
        except Exception as error:
            failure = explain_failure(self, error, is_advertised=client is not None)
            if problem:
                failure = failure._replace(text=f"{failure.text}; {problem}")
            if client is not None:
                last_failures[client] = failure
            if (failures := start_failures.get()) is not None:
                failures.append(failure)
            if isinstance(error, EXPECTED_ERRORS):
                raise
            raise kafka_errors.AuthenticationFailedError(describe(error)) from error
        if client is not None:
            last_failures.pop(client, None)
        return connected

    return connect_and_explain


def _translate_runtime_error(send: Any) -> Any:
    """Return a method of a connection that raises KafkaConnectionError for uvloop's RuntimeError.

    Writing to a socket that the broker has closed raises OSError under asyncio's loop, which
    aiokafka handles. Under uvloop it raises RuntimeError, which no ``except`` of aiokafka's
    catches: it comes out of a commit, and it ends the client's own tasks. It happens to each
    request that is sent after a broker has ended and before the client has noticed.

    Source: aio-libs/aiokafka#1038, open.
    """

    @wraps(send)
    def send_translated(self: Any, *arguments: Any, **options: Any) -> Any:
        try:
            return send(self, *arguments, **options)
        except kafka_errors.KafkaError:
            # Some of aiokafka's own errors are RuntimeErrors.
            raise
        except RuntimeError as error:
            self.close(reason=CloseReason.CONNECTION_BROKEN)
            broken = f"Connection at {self.host}:{self.port} broken: {error}"
            raise kafka_errors.KafkaConnectionError(broken) from error

    return send_translated


for _name in ("send", "_send_sasl_token"):
    setattr(AIOKafkaConnection, _name, _translate_runtime_error(getattr(AIOKafkaConnection, _name)))
AIOKafkaConnection.connect = forked_clients.track_connections(
    _explain_connect(AIOKafkaConnection.connect)
)
AIOKafkaConnection.authenticator_oauth = lambda self: TokenLogin(
    sasl_oauth_token_provider=self._sasl_oauth_token_provider
)
aiokafka.conn.AIOKafkaProtocol = FrameProtocol
AIOKafkaConnection._read = staticmethod(read_frames)
