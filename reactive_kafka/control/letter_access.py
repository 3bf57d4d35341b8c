"""Gives access to the dead letters that the channels of a running application write."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from reactive_kafka.broker.client import Connector, Inspector, inspecting
from reactive_kafka.config.client_properties import connection_of
from reactive_kafka.config.settings import IncomingSettings, Settings
from reactive_kafka.dead_letters.replay import letter_client
from reactive_kafka.http.action_requests import ActionError
from reactive_kafka.observe.safe_text import one_line
from reactive_kafka.tasks import Tasks


class RunningParts(Protocol):
    """What a replay uses of a run of the application."""

    @property
    def connector(self) -> Connector | None: ...
    @property
    def tasks(self) -> Tasks | None: ...


@dataclass(frozen=True, slots=True)
class AppLetters:
    """The cluster of an application, as a replay uses it."""

    connector: Connector
    properties: Mapping[str, Any]
    channels: tuple[IncomingSettings, ...]

    @asynccontextmanager
    async def clients(
        self, **more_properties: object
    ) -> AsyncIterator[tuple[Connector, Inspector]]:
        """Open an inspector. The connector is that of the application, and stays open."""
        async with inspecting(self.connector, {**self.properties, **more_properties}) as inspector:
            yield self.connector, inspector


class LetterAccess:
    """Finds the cluster of a dead-letter topic.

    Args:
        settings: Returns the settings of the application.
        running: Returns its run; None: nothing runs.
    """

    def __init__(
        self, settings: Callable[[], Settings], running: Callable[[], RunningParts | None]
    ) -> None:
        self._settings = settings
        self._running = running

    def of(self, topic: str) -> tuple[AppLetters, Tasks]:
        """Return the cluster that has the dead letters, and the tasks of the run.

        Raises:
            ActionError: No channel writes dead letters to the topic, or nothing runs.
        """
        channels = tuple(self._settings().incoming.values())
        client = next(
            (found for channel in channels if (found := letter_client(channel, topic)) is not None),
            None,
        )
        if client is None:
            topics = {
                channel.dead_letter_queue.topic
                for channel in channels
                if channel.dead_letter_queue is not None
            }
            names = ", ".join(sorted(filter(None, topics))) or "none"
            raise ActionError(
                404,
                f"no channel writes dead letters to {one_line(repr(topic), 100)}; topics of dead "
                f"letters: {names}",
            )
        running = self._running()
        if running is None or running.connector is None or running.tasks is None:
            raise ActionError(503, "the application does not run")
        return AppLetters(running.connector, connection_of(client), channels), running.tasks
