"""The states of an incoming channel, and when it restarts after a failure. No I/O."""

from __future__ import annotations

from reactive_kafka.backoff import Backoff
from reactive_kafka.clock import Clock
from reactive_kafka.config.settings import IncomingSettings
from reactive_kafka.config.tables import RestartSettings
from reactive_kafka.errors import HandlerError, text_of
from reactive_kafka.observe.events import ChannelFailed, ChannelStateChanged, Observer
from reactive_kafka.observe.facts import ChannelState
from reactive_kafka.state_table import next_state

STAYS_DOWN = (
    "restart the channel, or set another failure_strategy than 'fail' to continue past failed "
    "records"
)
"""What to do about a channel that a nack has stopped for good."""
TRANSITIONS: dict[ChannelState, dict[str, ChannelState]] = {
    "starting": {"connect": "connecting", "stop": "stopping", "fail": "failed"},
    "connecting": {
        "joined": "running",
        "stop": "stopping",
        "fail": "failed",
        "connect": "connecting",
    },
    "running": {"connect": "connecting", "stop": "stopping", "fail": "failed", "joined": "running"},
    "stopping": {
        "stopped": "stopped",
        "stop": "stopping",
        "fail": "stopping",
        "joined": "stopping",
        "connect": "stopping",
    },
    "failed": {
        "restart": "connecting",
        "stop": "stopping",
        "fail": "failed",
        "joined": "failed",
        "connect": "failed",
    },
    "stopped": {"start": "connecting", "stop": "stopped", "fail": "stopped", "stopped": "stopped"},
}
"""state -> event -> next state. ``connect``: a client is built, or built again; ``joined``: every
consumer has an assignment; ``fail``: poison, a nack, or a partition without a position to start
from; ``restart``: a call, or the end of the wait after a failure; ``stop``: a call, or the stop of
the application; ``stopped``: the group is left and the clients are closed; ``start``: a call."""


class RestartPolicy:
    """When a channel that has failed restarts by itself: a few times, each after a longer wait.

    A channel that has run for ``max_backoff`` without failing has all of its attempts again.

    Args:
        poison_after_s: Is added to that time. A channel that meets the same poison record after
            each restart runs for that long before it fails.
    """

    def __init__(self, settings: RestartSettings, poison_after_s: float = 0.0) -> None:
        self._settings = settings
        self._steady_s = settings.max_backoff_s + poison_after_s
        self._running_since: float | None = None
        # Restarts since it last ran for long enough.
        self.attempts = 0

    def runs(self, now: float) -> None:
        """Note that the channel has its assignment at *now*."""
        if self._running_since is None:
            self._running_since = now

    def failed(self, now: float) -> float | None:
        """Note a failure; return when to restart, or None if the attempts are used up."""
        since = self._running_since
        self._running_since = None
        if since is not None and now - since >= self._steady_s:
            self.attempts = 0
        if self.attempts >= self._settings.max_attempts:
            return None
        wait_s = Backoff(self._settings.backoff_s, self._settings.max_backoff_s).wait_s(
            self.attempts
        )
        self.attempts += 1
        return now + wait_s

    def forget(self) -> None:
        self.attempts = 0


class ChannelStatus:
    """A channel's state from its start to its end, through failures and restarts."""

    def __init__(self, settings: IncomingSettings, clock: Clock, observer: Observer) -> None:
        self._channel = settings.name
        self._most_restarts = settings.restart.max_attempts
        self._policy = RestartPolicy(settings.restart, settings.unprocessed_record_max_age_s)
        self._clock = clock
        self._observer = observer
        self.state: ChannelState = "starting"
        # Why it has failed. None: it has not, or it was restarted since.
        self.failure: BaseException | None = None
        # When it restarts by itself (monotonic). None: it does not.
        self.restarts_at: float | None = None
        # True: the application stops, and the channel with it.
        self.is_ending = False
        # Why it is stopped, or stopping, while the application runs. None: it is not.
        self.stopped_by: str | None = None
        # True: each of its consumers has had an assignment.
        self.has_joined = False

    @property
    def is_over(self) -> bool:
        return self.state in ("failed", "stopped")

    @property
    def is_taking(self) -> bool:
        """Whether records are wanted.

        They are while it connects, too: another of its clients may have an assignment already.
        """
        return self.state in ("running", "connecting")

    @property
    def may_go_on(self) -> bool:
        """Whether records may come, now or after the channel has restarted by itself."""
        return self.is_taking or self.restarts_at is not None

    def change(self, event: str) -> None:
        """Take the transition of an event, and report a change of the state."""
        old = self.state
        self.state = next_state(TRANSITIONS, self.state, event, "channel")
        if old != self.state:
            self._observer.on(ChannelStateChanged(channel=self._channel, old=old, new=self.state))

    def join(self) -> None:
        """Note that every consumer has an assignment."""
        self.change("joined")
        self._policy.runs(self._clock.monotonic())

    def fail(self, reason: BaseException) -> bool:
        """Note a failure.

        Returns:
            False if the channel was stopping, or had failed before. Nothing changes then.
        """
        if self.state in ("failed", "stopping", "stopped"):
            return False
        self.failure = reason
        self.restarts_at = self._policy.failed(self._clock.monotonic())
        self.change("fail")
        return True

    def restart(self) -> None:
        """Note that another session begins after a failure or a stop."""
        self.failure = None
        self.restarts_at = None
        self.stopped_by = None
        self.change("start" if self.state == "stopped" else "restart")

    def stop_for(self, why: str) -> None:
        """Note why the channel is stopped. It does not restart by itself then."""
        self.stopped_by = why
        self.restarts_at = None

    def forget_attempts(self) -> None:
        """Give the channel all of its attempts again, because it is restarted by hand."""
        self._policy.forget()

    def end(self) -> None:
        """Note that the application stops. The channel does not restart any more."""
        self.is_ending = True
        self.restarts_at = None

    def tell_failure(self, why: str, error: BaseException) -> None:
        """Report why the channel has failed, and after a nack what to do if it stays down."""
        if isinstance(error, HandlerError) and not self._most_restarts:
            why = f"{why}; {STAYS_DOWN}"
        self._observer.on(ChannelFailed(channel=self._channel, reason=why, error=error))

    def why_failed(self, now: float) -> str | None:
        """Return why it has failed, and when it restarts by itself; None: it has not failed."""
        if self.failure is None:
            return None
        why = text_of(self.failure)
        most = self._most_restarts
        if not most or self.is_ending:
            return why
        if self.restarts_at is None:
            restarts = "restart is" if most == 1 else "restarts are"
            return f"{why}; the channel stays down: its {most} {restarts} used up"
        wait_s = max(0.0, self.restarts_at - now)
        when = "at once"
        if wait_s >= 0.05:
            when = f"in {wait_s:.{int(wait_s < 10)}f} s"
        return (
            f"{why}; the channel is started again {when} "
            f"(attempt {self._policy.attempts} of {most})"
        )
