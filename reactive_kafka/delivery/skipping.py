"""Which records of a channel are skipped, by its filter or by their age. Pure.

A skipped record is settled without a call of a handler.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from reactive_kafka.config.settings import IncomingSettings
from reactive_kafka.errors import ConfigError
from reactive_kafka.formats import FormatError
from reactive_kafka.formats.user_objects import load_function
from reactive_kafka.verdicts.delivery import Delivery, is_called_again
from reactive_kafka.verdicts.message import Message, new_message

Filter = Callable[[Message[Any]], object]


def filter_of(settings: IncomingSettings) -> Filter | None:
    """Return the function of a channel's ``filter``, or None if it has no filter.

    Raises:
        ConfigError: The function cannot be imported, or is no plain function.
    """
    if settings.filter is None:
        return None
    try:
        return load_function(settings.filter)
    except FormatError as error:
        raise ConfigError(f"{settings.place('filter', settings.filter)}: {error}") from error


def undecoded_message(delivery: Delivery) -> Message[bytes | None]:
    """Return the message of a record with the bytes of its value as payload."""
    record = delivery.record
    undecoded: Message[bytes | None] = new_message(
        record.value, record, delivery.tracker, delivery.index
    )
    if isinstance(delivery, Message) and is_called_again(delivery):
        undecoded.attempt = delivery.attempt
    return undecoded


class Skipping:
    """Says which records of one channel are skipped.

    A record from a retry topic is never too old: it was young enough when it first came.

    Args:
        wall: Returns the time in seconds since the epoch.
        filters_undecoded: The filter takes messages whose payload is the bytes of the record.
    """

    def __init__(
        self,
        settings: IncomingSettings,
        filter: Filter | None,
        wall: Callable[[], float],
        *,
        filters_undecoded: bool = False,
    ) -> None:
        self._settings = settings
        self._filter = filter
        self._max_age_s = settings.max_record_age_s
        self._wall = wall
        self.filters_undecoded = filters_undecoded
        delayed_retry = settings.delayed_retry
        self._retry_topics = frozenset(() if delayed_retry is None else delayed_retry.topics)

    @property
    def filters_decoded(self) -> bool:
        """Whether the filter takes decoded messages."""
        return self._filter is not None and not self.filters_undecoded

    @property
    def is_needed(self) -> bool:
        """Whether anything can be skipped."""
        return self._filter is not None or self._max_age_s is not None

    def is_too_old(self, delivery: Delivery) -> bool:
        """Return whether a record is older than ``max_record_age``; False without a timestamp."""
        timestamp_ms = delivery.record.timestamp
        if self._max_age_s is None or timestamp_ms is None or timestamp_ms < 0:
            return False
        if self._wall() - timestamp_ms / 1000 <= self._max_age_s:
            return False
        return delivery.topic_partition.topic not in self._retry_topics

    def _came_too_late(self, message: Message[Any]) -> bool:
        """Return whether a message is too old for its first call.

        Its handler is called again however old it gets meanwhile: it has begun its work. It may be
        another message of the same record, which a rebalance has put back into its lane.
        """
        if not self.is_too_old(message) or is_called_again(message):
            return False
        return not message.tracker.has_had(message.index)

    def why(self, message: Message[Any]) -> Literal["filter", "age"] | None:
        """Return why a decoded message is skipped; None: it is not. Raises as the filter.

        Raises:
            TypeError: The filter returned no bool. One that returns nothing would skip all records.
        """
        if self._came_too_late(message):
            return "age"
        if self.filters_undecoded:
            return None
        return self._filtered(message)

    def why_undecoded(self, message: Message[Any]) -> Literal["filter", "age"] | None:
        """Return why a message is skipped before it is decoded, as :meth:`why` does.

        Args:
            message: Its payload is the bytes of the record.
        """
        if self._came_too_late(message):
            return "age"
        if not self.filters_undecoded:
            return None
        return self._filtered(message)

    def _filtered(self, message: Message[Any]) -> Literal["filter"] | None:
        if self._filter is None:
            return None
        passes = self._filter(message)
        if not isinstance(passes, bool):
            returned = f"filter = {self._settings.filter!r} returned {type(passes).__name__}"
            raise TypeError(f"{returned}: True to handle the record, False to skip it")
        return None if passes else "filter"
