"""The state of one channel, and why it is in it. Made first: the parts of the channel ask it."""

from __future__ import annotations

from reactive_kafka.channel.states import TRANSITIONS, RestartPolicy
from reactive_kafka.clock import Clock
from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.delivery.states import after
from reactive_kafka.errors import text_of
from reactive_kafka.observe.events import ChannelFailed, ChannelStateChanged, Observer
from reactive_kafka.observe.facts import ChannelState


class ChannelStatus:
    """A channel's state from its start to its end, through failures and restarts.

    Attributes:
        failure: What it has failed for; None: it has not, or was restarted since.
        restarts_at: When it restarts by itself, by the monotonic clock; None: it does not.
        is_ending: The application stops, and the channel with it.
        has_joined: Each of its consumers has had an assignment once.
    """

    def __init__(self, settings: IncomingSettings, clock: Clock, observer: Observer) -> None:
        self._channel = settings.name
        self._most_restarts = settings.restart.max_attempts
        self._policy = RestartPolicy(settings.restart, settings.unprocessed_record_max_age_s)
        self._clock = clock
        self._observer = observer
        self.state: ChannelState = "starting"
        self.failure: BaseException | None = None
        self.restarts_at: float | None = None
        self.is_ending = False
        self.has_joined = False

    @property
    def is_over(self) -> bool:
        return self.state in ("failed", "stopped")

    @property
    def is_taking(self) -> bool:
        """Whether records are wanted: one client may have its assignment while another one connects."""
        return self.state in ("running", "connecting")

    @property
    def may_go_on(self) -> bool:
        """Whether records may come, now or after the channel has restarted by itself."""
        return self.is_taking or self.restarts_at is not None

    def change(self, event: str) -> None:
        """Take the transition of an event, and tell it if the state is another one."""
        old, self.state = self.state, after(TRANSITIONS, self.state, event, "channel")
        if old != self.state:
            self._observer.on(ChannelStateChanged(channel=self._channel, old=old, new=self.state))

    def join(self) -> None:
        """Every consumer has an assignment."""
        self.change("joined")
        self._policy.runs(self._clock.monotonic())

    def fail(self, reason: BaseException) -> bool:
        """Note a failure; False if the channel was stopping or had failed before: nothing changes then."""
        if self.state in ("failed", "stopping", "stopped"):
            return False
        self.failure = reason
        self.restarts_at = self._policy.failed(self._clock.monotonic())
        self.change("fail")
        return True

    def restart(self) -> None:
        self.failure = self.restarts_at = None
        self.change("restart")

    def forget_attempts(self) -> None:
        """Somebody restarts the channel by hand: it has all of its attempts again."""
        self._policy.forget()

    def end(self) -> None:
        """The application stops: the channel does not restart any more."""
        self.is_ending, self.restarts_at = True, None

    def tell_failure(self, why: str, error: BaseException) -> None:
        self._observer.on(ChannelFailed(channel=self._channel, reason=why, error=error))

    def why_failed(self, now: float) -> str | None:
        """The reason, and when the channel restarts if it does so by itself; None: it has not failed."""
        if self.failure is None:
            return None
        why, most = text_of(self.failure), self._most_restarts
        if not most or self.is_ending:
            return why
        if self.restarts_at is None:
            return f"{why}; the channel stays down: its {most} {'restart is' if most == 1 else 'restarts are'} used up"
        wait_s = max(0.0, self.restarts_at - now)
        when = "at once" if wait_s < 0.05 else f"in {wait_s:.{int(wait_s < 10)}f} s"
        return f"{why}; the channel is started again {when} (attempt {self._policy.attempts} of {most})"
