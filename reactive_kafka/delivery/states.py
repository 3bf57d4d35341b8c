"""The states of a lane and of a worker, and the transitions between them, as tables. Pure.

An event that a state has no row for is a bug of ours: it raises, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar


class LaneState(StrEnum):
    """Whether records of a lane may be taken.

    ``open``: records may be taken; ``paused``: the application has paused the partition or the channel;
    ``suspended``: the partition is being revoked, or the channel ends, and the records wait to hear whether it is
    retained; ``suspended and paused``: both; ``dropped``: its records are another member's, or are read again.
    """

    OPEN = "open"
    PAUSED = "paused"
    SUSPENDED = "suspended"
    SUSPENDED_AND_PAUSED = "suspended and paused"
    DROPPED = "dropped"


LANE_TRANSITIONS: dict[LaneState, dict[str, LaneState]] = {
    LaneState.OPEN: {
        "pause": LaneState.PAUSED,
        "suspend": LaneState.SUSPENDED,
        "drop": LaneState.DROPPED,
    },
    LaneState.PAUSED: {
        "pause": LaneState.PAUSED,
        "resume": LaneState.OPEN,
        "suspend": LaneState.SUSPENDED_AND_PAUSED,
        "drop": LaneState.DROPPED,
    },
    LaneState.SUSPENDED: {
        "pause": LaneState.SUSPENDED_AND_PAUSED,
        "suspend": LaneState.SUSPENDED,
        "retain": LaneState.OPEN,
        "drop": LaneState.DROPPED,
    },
    LaneState.SUSPENDED_AND_PAUSED: {
        "pause": LaneState.SUSPENDED_AND_PAUSED,
        "resume": LaneState.SUSPENDED,
        "suspend": LaneState.SUSPENDED_AND_PAUSED,
        "retain": LaneState.PAUSED,
        "drop": LaneState.DROPPED,
    },
    LaneState.DROPPED: {},
}
"""state -> event -> next state. ``pause``, ``resume``: by the application; ``suspend``: the partition is being revoked,
or the channel ends; ``retain``: it was reassigned with the position as we left it; ``drop``: its records are another
member's, or are read again."""

REVOKED_LANES = frozenset({LaneState.SUSPENDED, LaneState.SUSPENDED_AND_PAUSED, LaneState.DROPPED})
"""The partition is going or gone: nothing that was fetched for it may be added."""

PAUSED_LANES = frozenset({LaneState.PAUSED, LaneState.SUSPENDED_AND_PAUSED})
"""Those that the application has paused."""


class WorkerState(StrEnum):
    """What a worker does at the moment.

    ``idle``: it holds no lane, and waits for work; ``running``: it takes records of a lane and calls the handler;
    ``interrupted``: its handler was cancelled for poison, and has not ended; ``parked``: it keeps its lane and waits
    for the next attempt or a dead letter, without a place; ``returning``: that wait is over, and it waits for a place;
    ``abandoned``: its handler still runs, and nobody waits for that; ``abandoned, interrupted``: both; ``ended``: its
    task is over.
    """

    IDLE = "idle"
    RUNNING = "running"
    INTERRUPTED = "interrupted"
    PARKED = "parked"
    RETURNING = "returning"
    ABANDONED = "abandoned"
    ABANDONED_INTERRUPTED = "abandoned, interrupted"
    ENDED = "ended"


WORKER_TRANSITIONS: dict[WorkerState, dict[str, WorkerState]] = {
    WorkerState.IDLE: {
        "take": WorkerState.RUNNING,
        "end": WorkerState.ENDED,
    },
    WorkerState.RUNNING: {
        "turn away": WorkerState.IDLE,
        "interrupt": WorkerState.INTERRUPTED,
        "park": WorkerState.PARKED,
        "abandon": WorkerState.ABANDONED,
    },
    WorkerState.INTERRUPTED: {
        "handler ended": WorkerState.RUNNING,
        "abandon": WorkerState.ABANDONED_INTERRUPTED,
    },
    WorkerState.PARKED: {
        "resume": WorkerState.RUNNING,
        "return": WorkerState.RETURNING,
        "abandon": WorkerState.ABANDONED,
    },
    WorkerState.RETURNING: {
        "resume": WorkerState.RUNNING,
        "abandon": WorkerState.ABANDONED,
    },
    WorkerState.ABANDONED: {
        "interrupt": WorkerState.ABANDONED_INTERRUPTED,
        "end": WorkerState.ENDED,
    },
    WorkerState.ABANDONED_INTERRUPTED: {
        "handler ended": WorkerState.ABANDONED,
    },
    WorkerState.ENDED: {},
}
"""state -> event -> next state.

``take``: it takes lanes; ``turn away``: it lets go of them; ``end``: nothing is left for it to do; ``interrupt``: its
handler was cancelled for poison, and is expected to end; ``handler ended``: that handler has; ``park``: it waits for
something that is no handler (the next attempt, a dead letter), and gives its place to another; ``return``: that is
over, and every place is taken; ``resume``: it has a place again; ``abandon``: nobody waits for its handler any more,
for its partition is gone, or the handler ignores its cancellation."""

WITH_PLACE = frozenset({WorkerState.IDLE, WorkerState.RUNNING, WorkerState.INTERRUPTED})
"""The workers that count: a channel has ``concurrency`` places."""

ABANDONED_WORKERS = frozenset({WorkerState.ABANDONED, WorkerState.ABANDONED_INTERRUPTED})

INTERRUPTED_WORKERS = frozenset({WorkerState.INTERRUPTED, WorkerState.ABANDONED_INTERRUPTED})
"""Those whose task counts one cancellation of ours."""

State = TypeVar("State", LaneState, WorkerState)


def after(table: Mapping[State, Mapping[str, State]], state: State, event: str) -> State:
    """The state that follows.

    Raises:
        RuntimeError: The event cannot happen in this state: a bug of ours.
    """
    try:
        return table[state][event]
    except KeyError:
        raise RuntimeError(f"{event!r} cannot happen to a {type(state).__name__} that is {state}") from None
