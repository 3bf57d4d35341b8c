"""The states of an incoming channel and their transitions, as a table; and when a failed channel restarts. Pure."""

from __future__ import annotations

from reactive_kafka.backoff import Backoff
from reactive_kafka.config.tables import RestartSettings
from reactive_kafka.observe.facts import ChannelState

TRANSITIONS: dict[ChannelState, dict[str, ChannelState]] = {
    "starting": {"connect": "connecting", "stop": "stopping", "fail": "failed"},
    "connecting": {"joined": "running", "stop": "stopping", "fail": "failed", "connect": "connecting"},
    "running": {"connect": "connecting", "stop": "stopping", "fail": "failed", "joined": "running"},
    "stopping": {
        "stopped": "stopped",
        "stop": "stopping",
        "fail": "stopping",
        "joined": "stopping",
        "connect": "stopping",
    },
    "failed": {"restart": "connecting", "stop": "stopping", "fail": "failed", "joined": "failed", "connect": "failed"},
    "stopped": {"stop": "stopped", "fail": "stopped"},
}
"""state -> event -> next state. ``connect``: a client is built, or built again; ``joined``: every consumer has an
assignment; ``fail``: for poison, a nack, or a partition without a position to start from; ``restart``: by a call, or by
itself; ``stop``: the application stops; ``stopped``: the group is left, and the clients are closed."""


class RestartPolicy:
    """When a channel that has failed restarts by itself: a few times in a row, each after a longer wait.

    A channel that has run for ``max_backoff`` without failing has all of its attempts again.

    Args:
        poison_after_s: Is added to ``max_backoff``: a channel that meets the same poison record each time runs for
            that long before it fails.
    """

    def __init__(self, settings: RestartSettings, poison_after_s: float = 0.0) -> None:
        self._settings = settings
        self._steady_s = settings.max_backoff_s + poison_after_s
        self._running_since: float | None = None
        self.attempts = 0  # since it last ran for long enough

    def runs(self, now: float) -> None:
        """The channel has its assignment at *now*."""
        if self._running_since is None:
            self._running_since = now

    def failed(self, now: float) -> float | None:
        """When to restart it; None if the attempts are used up."""
        since, self._running_since = self._running_since, None
        if since is not None and now - since >= self._steady_s:
            self.attempts = 0
        if self.attempts >= self._settings.max_attempts:
            return None
        wait_s = Backoff(self._settings.backoff_s, self._settings.max_backoff_s).wait_s(self.attempts)
        self.attempts += 1
        return now + wait_s

    def forget(self) -> None:
        self.attempts = 0
