"""What every part of a client knows: its settings, the time, and where events are reported."""

from __future__ import annotations

from dataclasses import dataclass, field

from reactive_kafka.clock import Clock
from reactive_kafka.config.settings import IncomingSettings
from reactive_kafka.observe.events import Observer
from reactive_kafka.observe.open_problems import OpenProblems


@dataclass(frozen=True, slots=True)
class ClientContext:
    """The settings of one client, its clock, and the observer of its channel.

    The client of the next session, after a restart, has the same *problems*.
    """

    settings: IncomingSettings
    clock: Clock
    observer: Observer
    problems: OpenProblems = field(default_factory=OpenProblems)

    @property
    def channel(self) -> str:
        """The name of the channel."""
        return self.settings.name
