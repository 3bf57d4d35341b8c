"""Which records of a channel are settled without a call of a handler: by its filter, or by their
age. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from reactive_kafka.config.settings import IncomingSettings
from reactive_kafka.errors import ConfigError
from reactive_kafka.formats import FormatError
from reactive_kafka.formats.user_objects import load_function
from reactive_kafka.verdicts.delivery import Delivery
from reactive_kafka.verdicts.message import Message

Filter = Callable[[Message[Any]], object]


def filter_of(settings: IncomingSettings) -> Filter | None:
    """The function of a channel's ``filter``, if it has one.

    Raises:
        ConfigError: It cannot be imported, or is no plain function.
    """
    if settings.filter is None:
        return None
    try:
        return load_function(settings.filter)
    except FormatError as error:
        raise ConfigError(f"{settings.place('filter', settings.filter)}: {error}") from error


class Skipping:
    """What of one channel is skipped. *wall* tells the time, in seconds since the epoch.

    A record that comes from a retry topic has been young enough once: its age is not looked at
    again.
    """

    def __init__(
        self, settings: IncomingSettings, filter: Filter | None, wall: Callable[[], float]
    ) -> None:
        self._settings = settings
        self._filter = filter
        self._max_age_s = settings.max_record_age_s
        self._wall = wall
        self._retries = frozenset(
            () if settings.delayed_retry is None else settings.delayed_retry.topics
        )

    @property
    def is_needed(self) -> bool:
        """Whether anything can be skipped."""
        return self._filter is not None or self._max_age_s is not None

    def is_too_old(self, delivery: Delivery) -> bool:
        """Whether a record is older than ``max_record_age``; one without a timestamp is not."""
        timestamp_ms = delivery.record.timestamp
        if self._max_age_s is None or timestamp_ms is None or timestamp_ms < 0:
            return False
        is_old = self._wall() - timestamp_ms / 1000 > self._max_age_s
        return is_old and delivery.topic_partition.topic not in self._retries

    def why(self, message: Message[Any]) -> Literal["filter", "age"] | None:
        """Why no handler is called for a message, which is decoded; None: one is. Raises what the
        filter raises.
        """
        if message.attempt == 1 and self.is_too_old(message):
            return "age"
        if self._filter is None:
            return None
        passes = self._filter(message)
        # One that forgets to return would skip everything.
        if not isinstance(passes, bool):
            named = f"filter = {self._settings.filter!r}"
            raise TypeError(
                f"{named} returned {type(passes).__name__}: True to handle the record, False to skip it"
            )
        return None if passes else "filter"
