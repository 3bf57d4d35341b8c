"""Tells of handlers that ask for a delayed retry in a channel that has none."""

from __future__ import annotations

from collections.abc import Iterator

from reactive_kafka.handlers.method_calls import calls_method
from reactive_kafka.handlers.signature import name_and_place
from reactive_kafka.handlers.spec import IncomingSpec


def cannot_put_off(spec: IncomingSpec) -> Iterator[str]:
    """A warning for each handler that calls ``retry_later`` although its channel has no retry
    topics.

    The call raises, and the record fails.
    """
    settings = spec.settings
    if settings.delayed_retry is not None:
        return
    for handler in spec.handlers:
        if calls_method(handler.function, "retry_later"):
            where = settings.place("failure_strategy", settings.failure_strategy)
            yield (
                f"{where}: {name_and_place(handler.function)} calls retry_later(), which raises without delayed "
                'retries: set failure_strategy = "delayed-retry-topic", or give one exception that route'
            )
