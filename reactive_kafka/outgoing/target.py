"""What handlers, sources and emitters send to: outgoing channels and memory channels."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from reactive_kafka.config.settings import MemorySettings, OutgoingSettings
from reactive_kafka.errors import ChannelClosedError
from reactive_kafka.observe.facts import OutgoingFacts
from reactive_kafka.outgoing.queue.receipt import CallbackReceipt
from reactive_kafka.outgoing.queue.record import QueuedRecord
from reactive_kafka.records import RawRecord


class TargetWriter(Protocol):
    """Accepts prepared records or values, and reports the outcome of each."""

    @property
    def has_room(self) -> bool:
        """Whether a record is accepted at once."""

    async def put(self, prepared: Any, receipt: CallbackReceipt, /) -> None:
        """Accept what ``prepare`` returned when there is room; its outcome goes to *receipt*.

        Raises:
            ChannelClosedError: The channel stops.
        """

    async def flush(self) -> None:
        """Wait for the outcome of everything that was accepted before.

        Raises:
            ChannelClosedError: The channel stops before that.
        """

    def fail(self, error: BaseException, /) -> None:
        """Report that a task of the channel, or of its source, has ended with a bug."""

    def facts(self) -> OutgoingFacts:
        """What health and metrics show of the writer."""


class Target(Protocol):
    """A channel as its senders see it."""

    name: str

    @property
    def settings(self) -> OutgoingSettings | MemorySettings:
        """Its settings."""

    @property
    def writer(self) -> TargetWriter:
        """What accepts its records."""

    @property
    def why_full(self) -> str | None:
        """The error text for a sender that does not wait for room. None: there is room."""

    def start(self) -> None:
        """Connect in the background."""

    def prepare(self, value: Any, source: RawRecord | None = None) -> Any:
        """Return a value or a :class:`Record` in the form that the channel sends.

        Args:
            source: The incoming record that it was made of.

        Raises:
            SchemaMissing: The registry has not answered yet how to write it.
            EncodeError, RejectedRecordError: It cannot be sent.
            ConfigError: It names another channel.
        """

    def put_now(self, prepared: Any, queued: QueuedRecord, /) -> None:
        """Accept what ``prepare`` returned, even if there is no room; *queued* has its outcome.

        Raises:
            ChannelClosedError: The channel stops.
        """

    async def stop(self, deadline: float, /) -> None:
        """Send what was accepted until *deadline* (monotonic, in seconds), and close."""

    def facts(self) -> OutgoingFacts:
        """What health and metrics show of the channel."""


class LeftError(ChannelClosedError):
    """The application ends, and nothing will settle a value that was sent to a memory channel.

    The records that it was made of stay unsettled: the next owner of their partition handles them.
    """

    def __init__(self, channel: str, ending: BaseException | None = None) -> None:
        super().__init__(f"memory channel {channel!r} has stopped")
        self._ending = ending

    async def leave(self) -> None:
        """Suspend the handler that waits for the value: an error would nack its records.

        Its call is not waited for any more, and it ends with the application.

        Raises:
            BaseException: What asked the process to end, if that was the reason.
        """
        if self._ending is not None:
            raise self._ending
        await asyncio.get_running_loop().create_future()


class CalledOffError(LeftError):
    """The record that a value was made of is poison, skipped or gone: the value is not wanted.

    The record gets its verdict otherwise, so whoever made the value of it nacks nothing.
    """

    def __init__(self, channel: str) -> None:
        super().__init__(channel)
        self.args = (
            f"memory channel {channel!r}: the value was called off, because the record that it was "
            "made of is poison, was skipped, or is another member's now",
        )
