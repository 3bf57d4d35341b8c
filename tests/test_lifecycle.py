"""The states of a channel."""

from __future__ import annotations

from typing import get_args

import pytest

from reactive_kafka.lifecycle import TRANSITIONS, transition
from reactive_kafka.observe.facts import ChannelState


def after(*events: str) -> ChannelState:
    state: ChannelState = "starting"
    for event in events:
        state = transition(state, event)
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
    assert after(*events) == state


@pytest.mark.parametrize(("state", "event"), [("starting", "joined"), ("stopped", "joined"), ("running", "stopped")])
def test_an_event_that_cannot_happen_is_a_bug_that_names_both(state: ChannelState, event: str) -> None:
    with pytest.raises(RuntimeError, match=f"'{event}' cannot happen to a channel that is {state}"):
        transition(state, event)


def test_every_state_that_is_reached_has_its_row_and_can_be_left_by_a_stop() -> None:
    reached = {state for row in TRANSITIONS.values() for state in row.values()}
    assert reached <= TRANSITIONS.keys() <= set(get_args(ChannelState))
    assert all(after_stop in ("stopping", "stopped") for row in TRANSITIONS.values() for after_stop in [row["stop"]])


@pytest.mark.parametrize("state", ["failed", "stopping", "stopped"])
def test_a_channel_that_is_over_never_runs_again(state: ChannelState) -> None:
    seen: set[ChannelState] = {state}
    while more := {next_state for one in seen for next_state in TRANSITIONS[one].values()} - seen:
        seen |= more
    assert not seen & {"starting", "connecting", "running"}
