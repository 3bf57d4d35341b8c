"""The states of a channel."""

from __future__ import annotations

from typing import get_args

import pytest

from reactive_kafka.channel.states import TRANSITIONS, RestartPolicy
from reactive_kafka.config.tables import RestartSettings
from reactive_kafka.delivery.states import after
from reactive_kafka.observe.facts import ChannelState


def reached_by(*events: str) -> ChannelState:
    state: ChannelState = "starting"
    for event in events:
        state = after(TRANSITIONS, state, event, "channel")
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
    ],
)
def test_events_lead_from_state_to_state(events: list[str], state: ChannelState) -> None:
    assert reached_by(*events) == state


@pytest.mark.parametrize(("state", "event"), [("starting", "joined"), ("stopped", "joined"), ("running", "stopped")])
def test_an_event_that_cannot_happen_is_a_bug_that_names_both(state: ChannelState, event: str) -> None:
    with pytest.raises(RuntimeError, match=f"'{event}' cannot happen to a channel that is {state}"):
        after(TRANSITIONS, state, event, "channel")


def test_every_state_that_is_reached_has_its_row_and_can_be_left_by_a_stop() -> None:
    reached = {state for row in TRANSITIONS.values() for state in row.values()}
    assert reached <= TRANSITIONS.keys() <= set(get_args(ChannelState))
    assert all(after_stop in ("stopping", "stopped") for row in TRANSITIONS.values() for after_stop in [row["stop"]])


@pytest.mark.parametrize("state", ["stopping", "stopped"])
def test_a_channel_that_is_over_never_runs_again(state: ChannelState) -> None:
    assert not reached_from(state, TRANSITIONS) & {"starting", "connecting", "running"}


def test_a_channel_that_has_failed_runs_again_by_a_restart_only() -> None:
    assert reached_by("connect", "joined", "fail", "restart", "joined") == "running"
    rest = TRANSITIONS | {"failed": {event: to for event, to in TRANSITIONS["failed"].items() if event != "restart"}}
    assert not reached_from("failed", rest) & {"starting", "connecting", "running"}


@pytest.mark.parametrize("state", ["starting", "connecting", "running", "stopping", "stopped"])
def test_only_a_failed_channel_can_be_restarted(state: ChannelState) -> None:
    with pytest.raises(RuntimeError, match="'restart' cannot happen"):
        after(TRANSITIONS, state, "restart", "channel")


def reached_from(state: ChannelState, table: dict[ChannelState, dict[str, ChannelState]]) -> set[ChannelState]:
    seen: set[ChannelState] = {state}
    while more := {next_state for one in seen for next_state in table[one].values()} - seen:
        seen |= more
    return seen


class TestRestartPolicy:
    settings = RestartSettings(max_attempts=4, backoff_s=1.0, max_backoff_s=5.0)

    def test_each_wait_is_twice_the_last_one_up_to_the_longest_and_the_attempts_end(self) -> None:
        comebacks = RestartPolicy(self.settings)
        assert [comebacks.failed(now=100.0) for _ in range(6)] == [101.0, 102.0, 104.0, 105.0, None, None]

    def test_without_attempts_it_stays_down(self) -> None:
        assert RestartPolicy(RestartSettings()).failed(0.0) is None

    def test_a_run_as_long_as_the_longest_wait_brings_all_attempts_back(self) -> None:
        comebacks = RestartPolicy(self.settings)
        for _ in range(4):
            comebacks.failed(0.0)
        comebacks.runs(10.0)
        comebacks.runs(14.0)  # the client was rebuilt meanwhile: it has run since 10
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
