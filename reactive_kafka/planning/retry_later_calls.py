"""Warns of handlers that ask for a delayed retry in a channel that has none."""

from __future__ import annotations

from collections.abc import Iterator

from reactive_kafka.handlers.signature import name_and_place
from reactive_kafka.planning.channel_plans import IncomingPlan
from reactive_kafka.planning.method_calls import calls_method


def retry_later_without_topics(plan: IncomingPlan) -> Iterator[str]:
    """Yield a warning for each handler that calls ``retry_later`` without delayed retries.

    The call raises in a channel that has none, and the record fails.
    """
    settings = plan.settings
    if settings.delayed_retry is not None:
        return
    for handler_plan in plan.handlers:
        function = handler_plan.handler.function
        if calls_method(function, "retry_later"):
            where = settings.place("failure_strategy", settings.failure_strategy)
            yield (
                f"{where}: {name_and_place(function)} calls retry_later(), which raises without "
                'delayed retries: set failure_strategy = "delayed-retry-topic", or give one '
                "exception that route"
            )
