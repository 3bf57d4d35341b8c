"""The states of a run."""

from __future__ import annotations

from typing import get_args

import pytest

from reactive_kafka.runtime.states import TRANSITIONS, RunState
from reactive_kafka.state_table import next_state


def reached_by(*events: str) -> RunState:
    state: RunState = "starting"
    for event in events:
        state = next_state(TRANSITIONS, state, event, "run")
    return state


@pytest.mark.parametrize(
    ("events", "state"),
    [
        ([], "starting"),
        (["started"], "running"),
        (["started", "stop"], "stopping"),
        (["started", "stop", "end"], "ended"),
        (["end"], "ended"),
        (["started", "end"], "ended"),
    ],
)
def test_events_lead_from_state_to_state(events: list[str], state: RunState) -> None:
    assert reached_by(*events) == state


def test_every_state_has_a_row_and_all_but_the_last_can_end() -> None:
    assert TRANSITIONS.keys() == set(get_args(RunState))
    assert [state for state, row in TRANSITIONS.items() if "end" not in row] == ["ended"]
    assert TRANSITIONS["ended"] == {}


@pytest.mark.parametrize(
    ("state", "event"), [("starting", "stop"), ("running", "started"), ("ended", "end")]
)
def test_an_event_that_cannot_happen_is_a_bug_that_names_both(state: RunState, event: str) -> None:
    with pytest.raises(RuntimeError, match=f"'{event}' cannot happen to a run that is {state}"):
        next_state(TRANSITIONS, state, event, "run")
