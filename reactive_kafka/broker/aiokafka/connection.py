"""aiokafka's connections, made to say in their own words that they are closed.

Writing to a socket that the broker has closed raises OSError under asyncio's loop, and aiokafka knows that. Under
uvloop's it raises RuntimeError, which passes every ``except`` of aiokafka's: it comes out of a commit, and it ends
the client's own tasks. It happens whenever a request is sent between the end of a broker and the news of it.

Source: aio-libs/aiokafka#1038, open.
"""

from __future__ import annotations

from functools import wraps
from typing import Any

from aiokafka.conn import AIOKafkaConnection, CloseReason
from aiokafka.errors import KafkaConnectionError, KafkaError


def say_when_closed() -> None:
    """Make every connection raise KafkaConnectionError for uvloop's RuntimeError, as it does for OSError."""
    for name in ("send", "_send_sasl_token"):
        setattr(AIOKafkaConnection, name, _translating(getattr(AIOKafkaConnection, name)))


def _translating(send: Any) -> Any:
    @wraps(send)
    def sends(self: Any, *arguments: Any, **options: Any) -> Any:
        try:
            return send(self, *arguments, **options)
        except KafkaError:  # a RuntimeError itself
            raise
        except RuntimeError as error:
            self.close(reason=CloseReason.CONNECTION_BROKEN)
            raise KafkaConnectionError(f"Connection at {self.host}:{self.port} broken: {error}") from error

    return sends
