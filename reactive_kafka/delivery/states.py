"""The states of a lane and of a worker, and the transitions between them, as tables. Pure.

An event that a state has no row for is a bug of ours: it raises, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar


class LaneState(StrEnum):
    """Whether records of a lane may be taken.

    ``open``: records may be taken; ``paused``: the application has paused the partition or the
    channel; ``suspended``: the partition is being revoked, or the channel ends, and the records
    wait to hear whether it is retained; ``suspended and paused``: both; ``dropped``: its records
    are another member's, or are read again.
    """

    OPEN = "open"
    PAUSED = "paused"
    SUSPENDED = "suspended"
    SUSPENDED_AND_PAUSED = "suspended and paused"
    DROPPED = "dropped"


_L = LaneState
LANE_TRANSITIONS: dict[LaneState, dict[str, LaneState]] = {
    _L.OPEN: {"pause": _L.PAUSED, "suspend": _L.SUSPENDED, "drop": _L.DROPPED},
    _L.PAUSED: {
        "pause": _L.PAUSED,
        "resume": _L.OPEN,
        "suspend": _L.SUSPENDED_AND_PAUSED,
        "drop": _L.DROPPED,
    },
    _L.SUSPENDED: {
        "pause": _L.SUSPENDED_AND_PAUSED,
        "suspend": _L.SUSPENDED,
        "retain": _L.OPEN,
        "drop": _L.DROPPED,
    },
    _L.SUSPENDED_AND_PAUSED: {
        "pause": _L.SUSPENDED_AND_PAUSED,
        "resume": _L.SUSPENDED,
        "suspend": _L.SUSPENDED_AND_PAUSED,
        "retain": _L.PAUSED,
        "drop": _L.DROPPED,
    },
    _L.DROPPED: {},
}
"""state -> event -> next state. ``pause``, ``resume``: by the application; ``suspend``: the
partition is being revoked, or the channel ends; ``retain``: it was reassigned with the position as
we left it; ``drop``: its records are another member's, or are read again."""

REVOKED_LANES = frozenset({_L.SUSPENDED, _L.SUSPENDED_AND_PAUSED, _L.DROPPED})
"""The partition is going or gone: nothing that was fetched for it may be added."""

PAUSED_LANES = frozenset({_L.PAUSED, _L.SUSPENDED_AND_PAUSED})
"""Those that the application has paused."""


class WorkerState(StrEnum):
    """What a worker does at the moment.

    ``idle``: it holds no lane, and waits for work; ``running``: it takes records of a lane and
    calls the handler; ``interrupted``: its handler was cancelled for poison, and has not ended;
    ``parked``: it keeps its lane and waits for the next attempt or a dead letter, without a place;
    ``returning``: that wait is over, and it waits for a place; ``abandoned``: its handler still
    runs, and nobody waits for that; ``abandoned and interrupted``: both; ``abandoned and parked``:
    nobody waits for it, and no handler runs; ``ended``: its task is over.
    """

    IDLE = "idle"
    RUNNING = "running"
    INTERRUPTED = "interrupted"
    PARKED = "parked"
    RETURNING = "returning"
    ABANDONED = "abandoned"
    ABANDONED_INTERRUPTED = "abandoned and interrupted"
    ABANDONED_PARKED = "abandoned and parked"
    ENDED = "ended"


_W = WorkerState
# An abandoned worker ends when its handler does. Until then it can be interrupted or park as any
# other, which the pool has to know: a second interrupt, or one while no handler runs, would cancel
# our own code. So these are states of their own, and not a flag next to the others.
WORKER_TRANSITIONS: dict[WorkerState, dict[str, WorkerState]] = {
    _W.IDLE: {"take": _W.RUNNING, "end": _W.ENDED},
    _W.RUNNING: {
        "turn away": _W.IDLE,
        "interrupt": _W.INTERRUPTED,
        "park": _W.PARKED,
        "abandon": _W.ABANDONED,
    },
    _W.INTERRUPTED: {"handler ended": _W.RUNNING, "abandon": _W.ABANDONED_INTERRUPTED},
    _W.PARKED: {"resume": _W.RUNNING, "return": _W.RETURNING, "abandon": _W.ABANDONED_PARKED},
    _W.RETURNING: {"resume": _W.RUNNING, "abandon": _W.ABANDONED_PARKED},
    _W.ABANDONED: {
        "interrupt": _W.ABANDONED_INTERRUPTED,
        "park": _W.ABANDONED_PARKED,
        "end": _W.ENDED,
    },
    _W.ABANDONED_INTERRUPTED: {"handler ended": _W.ABANDONED},
    _W.ABANDONED_PARKED: {"resume": _W.ABANDONED},
    _W.ENDED: {},
}
"""state -> event -> next state.

``take``: it takes lanes; ``turn away``: it lets go of them; ``end``: nothing is left for it to do;
``interrupt``: its handler was cancelled for poison, and is expected to end; ``handler ended``: that
handler has; ``park``: it waits for something that is no handler (the next attempt, a dead letter),
and gives its place to another; ``return``: that is over, and every place is taken; ``resume``: it
has a place again; ``abandon``: nobody waits for its handler any more, for its partition is gone, or
the handler ignores its cancellation."""

WITH_PLACE = frozenset({_W.IDLE, _W.RUNNING, _W.INTERRUPTED})
"""The workers that count: a channel has ``concurrency`` places."""

PARKED_WORKERS = frozenset({_W.PARKED, _W.RETURNING, _W.ABANDONED_PARKED})
"""Those in which no handler runs, though they hold a lane: there is nothing to cancel."""

ABANDONED_WORKERS = frozenset({_W.ABANDONED, _W.ABANDONED_INTERRUPTED, _W.ABANDONED_PARKED})
"""Those that nobody waits for."""

INTERRUPTED_WORKERS = frozenset({_W.INTERRUPTED, _W.ABANDONED_INTERRUPTED})
"""Those whose task counts one cancellation of ours."""

# Hot loops compare with these: a module's name is found faster than an attribute of an enum.
OPEN = _L.OPEN
IDLE = _W.IDLE
RUNNING = _W.RUNNING

State = TypeVar("State", bound=str)


def after(
    table: Mapping[State, Mapping[str, State]], state: State, event: str, what: str = ""
) -> State:
    """The state that follows. *what* is in the state; "": the class of the state says it.

    Raises:
        RuntimeError: The event cannot happen in this state: a bug of ours.
    """
    try:
        return table[state][event]
    except KeyError:
        raise RuntimeError(
            f"{event!r} cannot happen to a {what or type(state).__name__} that is {state}"
        ) from None
