"""The states of a worker and the transitions between them, as a table. Pure.

An event that a state has no row for is a bug of ours: :func:`next_state` raises.
"""

from __future__ import annotations

from enum import StrEnum


class WorkerState(StrEnum):
    """What a worker does at the moment.

    ``idle``: it holds no lane and waits for work; ``running``: it takes records of a lane and calls
    the handler; ``interrupted``: its handler was cancelled for poison and has not ended;
    ``parked``: it keeps its lane and waits for the next attempt or a dead letter, without a place;
    ``returning``: that wait is over, and it waits for a place; ``abandoned``: its handler still
    runs, and the worker is not waited for; ``abandoned and interrupted``: both; ``abandoned and
    parked``: it is not waited for, and no handler runs; ``ended``: its task is over.
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
# An abandoned worker ends when its handler does. Until then it can be interrupted or park like any
# other worker. The pool has to know that: a second interrupt, or one while no handler runs, would
# cancel our own code. So these are states, and no flag next to the other states.
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

``take``: it takes lanes; ``turn away``: it releases them; ``end``: nothing is left for it to do;
``interrupt``: its handler was cancelled for poison and is expected to end; ``handler ended``: that
handler has ended; ``park``: it waits for something that is no handler (the next attempt, a dead
letter), and gives its place to another worker; ``return``: that wait is over, and every place is
taken; ``resume``: it has a place again; ``abandon``: its handler is not waited for any more,
because its partition is gone or the handler ignores its cancellation."""

WITH_PLACE = frozenset({_W.IDLE, _W.RUNNING, _W.INTERRUPTED})
"""Workers in these states have one of the channel's ``concurrency`` places."""

PARKED_WORKERS = frozenset({_W.PARKED, _W.RETURNING, _W.ABANDONED_PARKED})
"""Workers that hold a lane while no handler runs: there is nothing to cancel."""

ABANDONED_WORKERS = frozenset({_W.ABANDONED, _W.ABANDONED_INTERRUPTED, _W.ABANDONED_PARKED})
"""Workers that are not waited for."""

INTERRUPTED_WORKERS = frozenset({_W.INTERRUPTED, _W.ABANDONED_INTERRUPTED})
"""Workers whose task counts one cancellation of ours."""

# Hot loops compare with these: a module's name is found faster than a member of an enum.
IDLE = WorkerState.IDLE
RUNNING = WorkerState.RUNNING
