"""The states of a channel, why it is in one, and when it restarts."""

from __future__ import annotations

from typing import get_args

import pytest

from reactive_kafka import IncomingSettings
from reactive_kafka.channel.status import TRANSITIONS, ChannelStatus, RestartPolicy
from reactive_kafka.events import ChannelStateChanged
from reactive_kafka.observe.facts import ChannelState
from reactive_kafka.state_table import next_state
from tests.app.helpers import Recorder
from tests.config.values import restart_settings


def reached_by(*events: str) -> ChannelState:
    state: ChannelState = "starting"
    for event in events:
        state = next_state(TRANSITIONS, state, event, "channel")
    return state


@pytest.mark.parametrize(
    ("events", "state"),
    [
        (["connect"], "connecting"),
        (["connect", "joined"], "running"),
        (["connect", "joined", "joined"], "running"),
        (["connect", "joined", "connect"], "connecting"),
        (["connect", "joined", "stop", "stopped"], "stopped"),
        (["connect", "fail"], "failed"),
        (["connect", "joined", "fail", "joined"], "failed"),
        (["connect", "joined", "fail", "stop", "stopped"], "stopped"),
        (["connect", "joined", "stop", "fail"], "stopping"),
        (["connect", "joined", "stop", "joined", "connect"], "stopping"),
        (["stop", "stopped", "start", "joined", "stop", "stopped", "stopped"], "stopped"),
    ],
)
def test_events_lead_from_state_to_state(events: list[str], state: ChannelState) -> None:
    assert reached_by(*events) == state


@pytest.mark.parametrize(
    ("state", "event"), [("starting", "joined"), ("stopped", "joined"), ("running", "stopped")]
)
def test_an_event_that_cannot_happen_is_a_bug_that_names_both(
    state: ChannelState, event: str
) -> None:
    with pytest.raises(RuntimeError, match=f"'{event}' cannot happen to a channel that is {state}"):
        next_state(TRANSITIONS, state, event, "channel")


def test_every_state_that_is_reached_has_its_row_and_can_be_left_by_a_stop() -> None:
    reached = {state for row in TRANSITIONS.values() for state in row.values()}
    assert reached <= TRANSITIONS.keys() <= set(get_args(ChannelState))
    assert all(
        after_stop in ("stopping", "stopped")
        for row in TRANSITIONS.values()
        for after_stop in [row["stop"]]
    )


@pytest.mark.parametrize("state", ["stopping", "stopped"])
def test_a_channel_that_is_over_runs_again_only_by_a_start(state: ChannelState) -> None:
    others = {
        one: {event: to for event, to in row.items() if event != "start"}
        for one, row in TRANSITIONS.items()
    }
    assert not reached_from(state, others) & {"starting", "connecting", "running"}
    assert "running" in reached_from(state, TRANSITIONS)


def test_a_channel_that_has_failed_runs_again_by_a_restart_only() -> None:
    assert reached_by("connect", "joined", "fail", "restart", "joined") == "running"
    calls = ("restart", "start")
    rest = {
        one: {event: to for event, to in row.items() if event not in calls}
        for one, row in TRANSITIONS.items()
    }
    assert not reached_from("failed", rest) & {"starting", "connecting", "running"}


@pytest.mark.parametrize("state", ["starting", "connecting", "running", "stopping", "stopped"])
def test_only_a_failed_channel_can_be_restarted(state: ChannelState) -> None:
    with pytest.raises(RuntimeError, match="'restart' cannot happen"):
        next_state(TRANSITIONS, state, "restart", "channel")


def reached_from(
    state: ChannelState, table: dict[ChannelState, dict[str, ChannelState]]
) -> set[ChannelState]:
    seen: set[ChannelState] = {state}
    while more := {next_state for one in seen for next_state in table[one].values()} - seen:
        seen |= more
    return seen


class TestRestartPolicy:
    settings = restart_settings(max_attempts=4, backoff_s=1.0, max_backoff_s=5.0)

    def test_each_wait_is_twice_the_last_one_up_to_the_longest_and_the_attempts_end(self) -> None:
        comebacks = RestartPolicy(self.settings)
        assert [comebacks.failed(now=100.0) for _ in range(6)] == [
            101.0,
            102.0,
            104.0,
            105.0,
            None,
            None,
        ]

    def test_without_attempts_it_stays_down(self) -> None:
        assert RestartPolicy(restart_settings()).failed(0.0) is None

    def test_a_run_as_long_as_the_longest_wait_brings_all_attempts_back(self) -> None:
        comebacks = RestartPolicy(self.settings)
        for _ in range(4):
            comebacks.failed(0.0)
        comebacks.runs(10.0)
        # The client was rebuilt meanwhile: it has run since 10.
        comebacks.runs(14.0)
        assert comebacks.failed(15.0) == 16.0

    def test_a_shorter_run_does_not(self) -> None:
        comebacks = RestartPolicy(self.settings)
        for now in (0.0, 10.0, 20.0, 30.0):
            comebacks.failed(now)
            comebacks.runs(now + 6)
        assert comebacks.failed(40.0) is None

    def test_time_that_it_did_not_run_is_not_counted(self) -> None:
        comebacks = RestartPolicy(self.settings)
        comebacks.runs(0.0)
        assert comebacks.failed(1.0) == 2.0
        assert comebacks.failed(100.0) == 102.0

    def test_a_restart_by_hand_brings_all_attempts_back(self) -> None:
        comebacks = RestartPolicy(self.settings)
        for _ in range(5):
            comebacks.failed(0.0)
        comebacks.forget()
        assert comebacks.failed(0.0) == 1.0


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now


def status_with(attempts: int = 0) -> tuple[ChannelStatus, Recorder]:
    recorder = Recorder()
    restart = restart_settings(max_attempts=attempts, backoff_s=4.0, max_backoff_s=30.0)
    settings = IncomingSettings(
        name="orders", topics=("orders",), group_id="billing", restart=restart
    )
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
