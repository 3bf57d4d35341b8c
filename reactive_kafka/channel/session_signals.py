"""How the parts of a session reach the channel. They are made first, so no part knows its owner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from reactive_kafka.channel.status import ChannelStatus
from reactive_kafka.errors import describe
from reactive_kafka.tasks import Flag


@dataclass(frozen=True, slots=True, eq=False)
class ChannelSignals:
    """What the parts of one session ask the channel and report to it."""

    status: ChannelStatus
    fail_channel: Callable[[BaseException], bool]
    # Called when a handler or a hook asks the process to end.
    exit: Callable[[BaseException], None]
    # Called when a client has its assignment.
    joined: Callable[[], None]
    # Called when there may be room for new records, or a drain may be over.
    made_progress: Callable[[], None]
    # Set when the session is over after a failure. From then on its parts reach nothing: the
    # channel may have another session, which they must not fail.
    has_left: Flag = field(default_factory=Flag)

    def is_over(self) -> bool:
        """Return whether the session has ended or is ending."""
        return self.has_left.is_set() or self.status.is_over

    def is_taking(self) -> bool:
        """Return whether records are wanted at all."""
        return not self.has_left.is_set() and self.status.is_taking

    def connects(self) -> None:
        """Note that a client is being built again."""
        self.status.change("connect")

    def fail(self, reason: BaseException) -> bool:
        """Stop the channel; False if it was stopping or had failed before."""
        return not self.has_left.is_set() and self.fail_channel(reason)

    def task_failed(self, error: BaseException) -> None:
        """Stop the channel because a task has failed: a bug of ours, or of the client.

        If the channel has failed already, the error is reported all the same.
        """
        if not self.fail(error):
            self.status.tell_failure(describe(error), error)


class ClientSignals:
    """What the parts of one client ask the channel and report to it, until the client is closed."""

    def __init__(self, channel: ChannelSignals) -> None:
        self._channel = channel
        self.exit = channel.exit
        self.is_taking = channel.is_taking
        self.is_closed = False
        # True: the client has an assignment.
        self.is_joined = False
        # Set when the client has to look at its topics and partitions now.
        self.look_soon = Flag()

    def is_over(self) -> bool:
        """Return whether no other client is made after this one."""
        return self.is_closed or self._channel.is_over()

    def connects(self) -> None:
        self.is_joined = False
        self._channel.connects()

    def joined(self) -> None:
        self.look_soon.set()
        self.is_joined = True
        self._channel.joined()

    def fail(self, reason: BaseException) -> bool:
        """Stop the channel.

        Returns:
            False if it was stopping, or had failed before, or this client is closed.
        """
        return not self.is_closed and self._channel.fail(reason)
