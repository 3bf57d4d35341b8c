"""Ends a run by itself, when every channel has handled what was there at its start."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from reactive_kafka.channel.until_end import UntilEnd
from reactive_kafka.observe.events import (
    Event,
    HandlerAbandoned,
    SafeCaller,
    SettledNotStored,
    TopicMissing,
)
from reactive_kafka.runtime.channels import RunChannels

logger = logging.getLogger("reactive_kafka")


class EndOfRun:
    """Asks for the stop when everything is handled, and knows afterwards whether it was."""

    def __init__(self, ask_to_stop: Callable[[], None], log: SafeCaller) -> None:
        self._ask_to_stop = ask_to_stop
        self._log = log
        self._is_reached = False
        # True: messages without a verdict, or last commits, are left to the stop.
        self._leaves_some = False
        self._failure: str | None = None

    async def wait(self, channels: RunChannels) -> None:
        """Ask for the stop when all channels with handlers are at their ends, or have failed."""
        watched = dict[str, UntilEnd]()
        over = dict[str, bool]()
        for name, channel in channels.incoming.items():
            if channel.is_iterated:
                text = "channel %r has no handler: the run does not wait for its end"
                self._log.call(logger.warning, text, name)
        while True:
            # Asked again after each wait: channels may have been added, and stopped ones started.
            names = [
                name
                for name, channel in channels.incoming.items()
                if not channel.is_iterated and (name not in watched or watched[name].goes_on)
            ]
            if not names:
                break
            for name in names:
                watched[name] = UntilEnd(channels.incoming[name])
            ends = await asyncio.gather(*(watched[name].is_over() for name in names))
            over.update(zip(names, ends, strict=True))
        self._leaves_some = not all(over.values())
        failures = [each.failure for each in watched.values() if each.failure is not None]
        self._failure = self._failure or "; ".join(failures) or None
        self._is_reached = True
        text = "every channel has come to its end%s; the application ends"
        self._log.call(logger.info, text, ", or has failed" if failures else "")
        self._ask_to_stop()

    def on(self, event: Event) -> None:
        """Note events that say that not everything was handled and committed."""
        if isinstance(event, TopicMissing):
            self._ask_to_stop()
        elif not isinstance(event, SettledNotStored | HandlerAbandoned) or event.during != "stop":
            return
        elif self._is_reached and not self._leaves_some:
            # The event is about records that came after the end.
            return
        self._failure = self._failure or event.text()

    def why_not(self) -> str | None:
        """Return why not everything was handled; None: it was. Called when the run is over."""
        if self._failure is None and not self._is_reached:
            return "it was stopped before every channel had come to its end"
        return self._failure
