"""Actions as values: what a request asks for, and how it is answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

CHANNEL_ACTIONS = ("pause", "resume", "restart", "stop", "start", "seek", "skip")
"""``POST /api/channels/NAME/ACTION``."""
REPLAY = "replay"
"""``POST /api/dlq/TOPIC/replay``."""
LOG_LEVEL = "log-level"
"""``POST /api/log-level``."""
CLIENT_HEADER = "x-reactive-kafka-client"
"""In a worker, its supervisor says here who the client is. Elsewhere it is ignored."""
NOT_ASSIGNED = "not-assigned"
"""The code of an answer that says that another member has the partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionRequest:
    """One request to act, with a token that was right."""

    action: str
    # The channel, or the topic of the dead letters. Empty for the log level.
    target: str
    # The JSON object in the body.
    arguments: Mapping[str, Any] = field(default_factory=dict)
    # The address of the client.
    remote: str


@dataclass(frozen=True, slots=True)
class ActionAnswer:
    """The answer to an action: an HTTP status, and a JSON object."""

    status: int
    body: Mapping[str, Any]
    # False: everything was as asked for before.
    has_changed: bool = True


class ActionError(Exception):
    """An action that is not carried out. The text is a sentence for the caller.

    Args:
        status: 400: the request is wrong; 404: no such thing; 409: the state does not allow it;
            503: the application starts or stops, or a broker does not answer.
        code: A word for programs.
    """

    def __init__(self, status: int, sentence: str, code: str | None = None) -> None:
        super().__init__(sentence)
        self.status = status
        self.code = code

    def answer(self) -> ActionAnswer:
        """Return the answer that says why."""
        body = {"error": str(self)}
        if self.code is not None:
            body["code"] = self.code
        return ActionAnswer(self.status, body)


class Records(Protocol):
    """Knows what happened to records."""

    def look(self, query: Mapping[str, str]) -> ActionAnswer:
        """Return where the record is that a query names."""


class Actions(Protocol):
    """Carries out actions, on the event loop of the application."""

    async def act(self, request: ActionRequest) -> ActionAnswer:
        """Carry out one action. A refusal is an answer, too."""

    def progress(self, replay: str) -> ActionAnswer:
        """Return how far a replay of dead letters is."""

    async def letters(self, topic: str, query: Mapping[str, str]) -> ActionAnswer:
        """Read the last dead letters of a topic."""
