"""State machines as tables: state -> event -> next state. Pure.

A state has a row for each event that can happen in it. Any other event is a bug of ours: it raises,
and the state stays as it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

State = TypeVar("State", bound=str)


def next_state(
    table: Mapping[State, Mapping[str, State]], state: State, event: str, what: str = ""
) -> State:
    """Return the state that follows *state* after *event*.

    Args:
        what: Names the thing that has the state, for the error; "": the class of the state.

    Raises:
        RuntimeError: The event cannot happen in this state.
    """
    try:
        return table[state][event]
    except KeyError:
        raise RuntimeError(
            f"{event!r} cannot happen to a {what or type(state).__name__} that is {state}"
        ) from None
