"""Watches the application from outside: its health over HTTP, and the events that it reports."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from http.client import HTTPConnection, HTTPException
from typing import Any
from urllib.parse import urlsplit

from anyio import to_thread

from reactive_kafka.observe.events import Event, RecordPoisoned
from reactive_kafka.records import TopicPartition

from .checks import Answer, Found, Place

ASK_EVERY_S = 0.2
ANSWER_WITHIN_S = 2.0


class PoisonEvents:
    """Keeps what the poison watch reports."""

    def __init__(self) -> None:
        self.found: list[Found] = []

    def on(self, event: Event) -> None:
        """Keep a report."""
        if isinstance(event, RecordPoisoned):
            self.found.append(
                Found(Place(event.partition, event.offset), event.age_s, event.limit_s)
            )


class ReadyProbe:
    """Asks ``/health/ready`` over HTTP again and again, as an orchestrator would.

    Args:
        url: Of the application, without a path.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host = parts.hostname or ""
        self._port = parts.port
        self.answers: list[Answer] = []

    @property
    def last(self) -> Answer | None:
        """The newest answer."""
        return self.answers[-1] if self.answers else None

    def has_seen(self, condition: Callable[[Answer], bool]) -> bool:
        """Whether any answer so far was such a one."""
        return any(map(condition, self.answers))

    async def run(self) -> None:
        """Ask until cancelled."""
        now = asyncio.get_running_loop().time
        while True:
            status, body = await to_thread.run_sync(self._ask)
            self.answers.append(Answer(now(), status, frozenset(poison_in(body))))
            await asyncio.sleep(ASK_EVERY_S)

    def _ask(self) -> tuple[int, Mapping[str, Any]]:
        connection = HTTPConnection(self._host, self._port, timeout=ANSWER_WITHIN_S)
        try:
            connection.request("GET", "/health/ready")
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        except (OSError, HTTPException):
            return 0, {}
        finally:
            connection.close()


def poison_in(body: Mapping[str, Any]) -> list[Place]:
    """The poison records that a health response names."""
    return [
        Place(TopicPartition(poison["topic"], poison["partition"]), poison["offset"])
        for check in body.get("checks", ())
        for poison in check.get("data", {}).get("poison", ())
    ]
