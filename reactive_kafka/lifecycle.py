"""The states of an incoming channel and the transitions between them, as a table. No I/O."""

from __future__ import annotations

from reactive_kafka.observe.facts import ChannelState

TRANSITIONS: dict[ChannelState, dict[str, ChannelState]] = {
    "starting": {"connect": "connecting", "stop": "stopping", "fail": "failed"},
    "connecting": {"joined": "running", "stop": "stopping", "fail": "failed", "connect": "connecting"},
    "running": {"connect": "connecting", "stop": "stopping", "fail": "failed", "joined": "running"},
    "stopping": {
        "stopped": "stopped",
        "stop": "stopping",
        "fail": "stopping",
        "joined": "stopping",
        "connect": "stopping",
    },
    "failed": {"stop": "stopping", "fail": "failed", "joined": "failed", "connect": "failed"},
    "stopped": {"stop": "stopped", "fail": "stopped"},
}
"""state -> event -> next state. ``connect``: the client is (re)built; ``joined``: an assignment came;
``fail``: by poison, a nack or a position that nobody may choose; ``stop``, ``stopped``: the end."""


def transition(state: ChannelState, event: str) -> ChannelState:
    """The state that follows.

    Raises:
        RuntimeError: The event cannot happen in this state: a bug of ours.
    """
    try:
        return TRANSITIONS[state][event]
    except KeyError:
        raise RuntimeError(f"{event!r} cannot happen to a channel that is {state}") from None
