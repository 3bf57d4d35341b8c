"""The states of one run of an application and their transitions, as a table. Pure."""

from __future__ import annotations

from typing import Literal

RunState = Literal["starting", "running", "stopping", "ended"]
"""``starting``: hooks, Spark and producers are started, then the channels; ``running``: the
channels consume; ``stopping``: the channels drain, then everything is closed; ``ended``: no task of
the run is left."""

TRANSITIONS: dict[RunState, dict[str, RunState]] = {
    "starting": {"started": "running", "end": "ended"},
    "running": {"stop": "stopping", "end": "ended"},
    "stopping": {"end": "ended"},
    "ended": {},
}
"""state -> event -> next state. ``started``: the channels are started; ``stop``: the stop begins,
which may have been asked for while the run was starting; ``end``: the run has stopped or failed,
and nothing of it runs any more."""
