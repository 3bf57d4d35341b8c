"""What every part of a client knows: its settings, the time, and where events are reported."""

from __future__ import annotations

from dataclasses import dataclass

from reactive_kafka.clock import Clock
from reactive_kafka.config.settings import IncomingSettings
from reactive_kafka.observe.events import Observer


@dataclass(frozen=True, slots=True)
class ClientContext:
    """The settings of one client, its clock, and the observer of its channel."""

    settings: IncomingSettings
    clock: Clock
    observer: Observer

    @property
    def channel(self) -> str:
        """The name of the channel."""
        return self.settings.name
