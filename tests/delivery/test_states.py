"""The tables of lanes and workers say what a few plain facts say; what cannot happen raises and
changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.delivery.lanes.lane import Lane
from reactive_kafka.delivery.lanes.lane_states import (
    LANE_TRANSITIONS,
    PAUSED_LANES,
    REVOKED_LANES,
    LaneState,
)
from reactive_kafka.delivery.workers.worker_states import (
    ABANDONED_WORKERS,
    IDLE,
    INTERRUPTED_WORKERS,
    PARKED_WORKERS,
    RUNNING,
    WITH_PLACE,
    WORKER_TRANSITIONS,
    WorkerState,
)
from reactive_kafka.state_table import next_state
from reactive_kafka.testing import record
from tests.tracking.values import tracker_of


def events(table: Mapping[Any, Mapping[str, Any]]) -> list[str]:
    return sorted({event for row in table.values() for event in row})


@pytest.mark.parametrize(
    ("table", "states"),
    [(LANE_TRANSITIONS, LaneState), (WORKER_TRANSITIONS, WorkerState)],
    ids=["lanes", "workers"],
)
def test_every_state_has_a_row_and_is_reached_from_the_first(table: Any, states: Any) -> None:
    assert list(table) == list(states)
    reached, new = set(), {next(iter(states))}
    while new:
        reached |= new
        new = {state for one in new for state in table[one].values()} - reached
    assert reached == set(states)


# -- lanes


@dataclass
class LaneFacts:
    """A lane as three facts that know nothing of each other."""

    paused: bool = False
    suspended: bool = False
    dropped: bool = False

    def follow(self, event: str) -> bool:
        """Whether the event could happen."""
        is_off = {"resume": not self.paused, "retain": not self.suspended}.get(event, False)
        if self.dropped or is_off:
            return False
        self.paused = event == "pause" or (self.paused and event != "resume")
        self.suspended = event == "suspend" or (self.suspended and event != "retain")
        self.dropped = event == "drop"
        return True


@given(steps=st.lists(st.sampled_from(events(LANE_TRANSITIONS)), max_size=30))
def test_a_lane_is_open_when_it_is_neither_paused_nor_suspended_nor_gone(steps: list[str]) -> None:
    lane, facts = Lane(tracker_of()), LaneFacts()
    lane.add([record(offset=0)], 0, 0.0)
    for event in steps:
        before = lane.state
        if facts.follow(event):
            lane.change(event)
        else:
            with pytest.raises(
                RuntimeError, match=f"'{event}' cannot happen to a LaneState that is {before}"
            ):
                lane.change(event)
            assert lane.state is before
        assert lane.revoked == (lane.state in REVOKED_LANES) == (facts.suspended or facts.dropped)
        assert facts.dropped or lane.is_paused == (lane.state in PAUSED_LANES) == facts.paused
        assert lane.waiting == (not facts.dropped)
        assert lane.advance() == (not (facts.paused or facts.suspended or facts.dropped))


# -- workers


@dataclass
class WorkerFacts:
    """A worker as what its task does, and two facts about that."""

    # Idle, runs, waits, returns, nothing.
    does: str = "idle"
    interrupted: bool = False
    abandoned: bool = False

    def follow(self, event: str) -> bool:
        """Whether the event could happen."""
        if not self.can(event):
            return False
        does = {
            "take": "runs",
            "turn away": "idle",
            "park": "waits",
            "return": "returns",
            "resume": "runs",
        }
        self.does = does.get(event, "nothing" if event == "end" else self.does)
        self.interrupted = event == "interrupt" or (self.interrupted and event != "handler ended")
        self.abandoned = event == "abandon" or self.abandoned
        return True

    def can(self, event: str) -> bool:
        runs = self.does == "runs" and not self.interrupted
        return {
            "take": self.does == "idle",
            "turn away": runs and not self.abandoned,
            "interrupt": runs,
            "handler ended": self.interrupted,
            "park": runs,
            "return": self.does == "waits" and not self.abandoned,
            "resume": self.does in ("waits", "returns"),
            "abandon": self.does in ("runs", "waits", "returns") and not self.abandoned,
            "end": self.does == "idle" or (runs and self.abandoned),
        }[event]


@given(steps=st.lists(st.sampled_from(events(WORKER_TRANSITIONS)), max_size=40))
def test_a_worker_has_a_place_while_it_is_idle_or_runs_and_is_not_abandoned(
    steps: list[str],
) -> None:
    state, facts = WorkerState.IDLE, WorkerFacts()
    for event in steps:
        if facts.follow(event):
            state = next_state(WORKER_TRANSITIONS, state, event)
        else:
            with pytest.raises(
                RuntimeError, match=f"'{event}' cannot happen to a WorkerState that is {state}"
            ):
                next_state(WORKER_TRANSITIONS, state, event)
        assert (state in WITH_PLACE) == (facts.does in ("idle", "runs") and not facts.abandoned)
        assert (state in PARKED_WORKERS) == (facts.does in ("waits", "returns"))
        assert (state in INTERRUPTED_WORKERS) == facts.interrupted
        assert (state in ABANDONED_WORKERS) == (facts.abandoned and facts.does != "nothing")


def test_the_two_changes_that_the_pool_writes_out_are_those_of_the_table() -> None:
    assert (WORKER_TRANSITIONS[IDLE]["take"], WORKER_TRANSITIONS[RUNNING]["turn away"]) == (
        RUNNING,
        IDLE,
    )
    assert [state for state, row in WORKER_TRANSITIONS.items() if "take" in row] == [IDLE]
    assert [state for state, row in WORKER_TRANSITIONS.items() if "turn away" in row] == [RUNNING]
