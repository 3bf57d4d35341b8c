"""The status of a channel: its state, why it is in it, and when it restarts."""

from __future__ import annotations

import pytest

from reactive_kafka.channel.status import ChannelStatus
from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.config.tables import RestartSettings
from reactive_kafka.observe.events import ChannelStateChanged
from tests.app.helpers import Recorder


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now


def status_with(attempts: int = 0) -> tuple[ChannelStatus, Recorder]:
    recorder = Recorder()
    restart = RestartSettings(max_attempts=attempts, backoff_s=4.0, max_backoff_s=30.0)
    settings = IncomingSettings(name="orders", topics=("orders",), group_id="billing", restart=restart)
    return ChannelStatus(settings, Clock(), recorder), recorder


def running(attempts: int = 0) -> ChannelStatus:
    status, _ = status_with(attempts)
    status.change("connect")
    status.join()
    return status


def test_each_new_state_is_told_once() -> None:
    status, recorder = status_with()
    status.change("connect")
    status.change("connect")
    status.join()
    told = [(event.old, event.new) for event in recorder.of(ChannelStateChanged)]
    assert told == [("starting", "connecting"), ("connecting", "running")]


def test_a_second_failure_changes_nothing() -> None:
    status = running()
    first = ValueError("first")
    assert status.fail(first)
    assert not status.fail(ValueError("second"))
    assert status.failure is first
    assert (status.is_over, status.is_taking, status.may_go_on) == (True, False, False)


@pytest.mark.parametrize(
    ("attempts", "failures", "why"),
    [
        (0, 1, "no"),
        (2, 1, "no; the channel is started again in 4.0 s (attempt 1 of 2)"),
        (2, 2, "no; the channel is started again in 8.0 s (attempt 2 of 2)"),
        (2, 3, "no; the channel stays down: its 2 restarts are used up"),
        (1, 2, "no; the channel stays down: its 1 restart is used up"),
    ],
)
def test_the_reason_says_when_the_channel_restarts(attempts: int, failures: int, why: str) -> None:
    status = running(attempts)
    for number in range(failures):
        if number:
            status.restart()
        assert status.fail(ValueError("no"))
    assert status.why_failed(100.0) == why


def test_a_channel_that_restarts_by_itself_may_go_on_until_the_application_stops() -> None:
    status = running(attempts=1)
    status.fail(ValueError("no"))
    assert status.may_go_on
    status.end()
    assert (status.may_go_on, status.restarts_at) == (False, None)
    assert status.why_failed(100.0) == "no"


def test_a_restart_by_hand_gives_all_attempts_back() -> None:
    status = running(attempts=1)
    status.fail(ValueError("no"))
    status.restart()
    status.fail(ValueError("no"))
    assert status.restarts_at is None
    status.forget_attempts()
    status.restart()
    assert (status.failure, status.why_failed(100.0)) == (None, None)
    status.fail(ValueError("no"))
    assert status.restarts_at == 104.0
