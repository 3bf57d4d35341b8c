"""What one ``@app.incoming`` says about the function below it. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from reactive_kafka.config.settings import AckMode
from reactive_kafka.config.tables import RetrySettings
from reactive_kafka.handlers.middleware import Layers
from reactive_kafka.verdicts.message import Message

When = Callable[[Message[Any]], object]
"""A predicate of a handler: true for the messages that it takes."""


@dataclass(frozen=True, slots=True)
class IncomingDecoration:
    """One ``@app.incoming`` of a function."""

    channel: str
    ack: AckMode | None = None
    # The number of calls in all, or a whole table. None: as the channel is configured.
    retry: int | RetrySettings | None = None
    when: When | None = None
    # The middleware of the application or router that the function was declared on.
    layers: Layers = field(default_factory=Layers)

    def retries(self, configured: RetrySettings) -> RetrySettings:
        """Return the retries of the function: those of its channel, unless it has its own."""
        if isinstance(self.retry, int):
            return replace(configured, max_attempts=self.retry)
        return self.retry or configured
