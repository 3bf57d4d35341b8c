"""The state machines of the package, drawn from their tables into a page.

``python -m tests.states docs/internals.md`` rewrites what stands between ``<!-- states:NAME -->``
and ``<!-- end -->``; ``tests/test_internals.py`` fails where a page and the code differ.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from itertools import pairwise
from pathlib import Path
from textwrap import fill
from types import ModuleType
from typing import Any

from reactive_kafka.broker.consumer.membership.classic_group import classic_states
from reactive_kafka.broker.consumer.membership.consumer_group import member_states
from reactive_kafka.channel import status as channel
from reactive_kafka.delivery.lanes import lane_states
from reactive_kafka.delivery.workers import worker_states
from reactive_kafka.nacks import handling as nacks
from reactive_kafka.observe import facts
from reactive_kafka.partitions import partition
from reactive_kafka.runtime import states as runtime
from reactive_kafka.spark.channel import batch_job as spark

FROM_EVERYWHERE = 4
"""An event that leads to one state from so many others is told in a sentence: arrows would hide the
rest.
"""

_MARKED = re.compile(r"(<!-- states:(\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_NAMES = r"(?:``[^`]+``,\s+)*``[^`]+``"
_BEFORE_NAMES = re.compile(rf"(?:[;.]\s+(?:-\s+)?|^)(?={_NAMES}:\s)")
_MEANING = re.compile(rf"({_NAMES}):\s+(.+)", re.DOTALL)


@dataclass(frozen=True)
class Machine:
    """A table of transitions with what its docstrings say about states and events.

    Attributes:
        moves: State -> event -> next state, each as it is called; the first state is the one at the
            start.
        states: State -> its meaning.
        events: Event -> its meaning.
    """

    moves: Mapping[str, Mapping[str, str]]
    states: Mapping[str, str]
    events: Mapping[str, str]

    @property
    def told(self) -> dict[tuple[str, str], list[str]]:
        """(event, next state) -> the states that it leads from, where those are many."""
        found: dict[tuple[str, str], list[str]] = {}
        for state, ways in self.moves.items():
            for event, to in ways.items():
                if to != state:
                    found.setdefault((event, to), []).append(state)
        return {way: states for way, states in found.items() if len(states) >= FROM_EVERYWHERE}

    def arrows(self) -> dict[tuple[str, str], list[str]]:
        """(state, next state) -> the events between them that are drawn."""
        found: dict[tuple[str, str], list[str]] = {}
        for state, ways in self.moves.items():
            for event, to in ways.items():
                if to != state and (event, to) not in self.told:
                    found.setdefault((state, to), []).append(event)
        return found

    def text(self) -> str:
        """A diagram, then what it leaves out. The code has the meanings."""
        return "\n".join((*self._diagram(), *self._sentences()))

    def _diagram(self) -> Iterator[str]:
        yield from ("```mermaid", "stateDiagram-v2")
        yield from (
            f'    state "{state}" as {_id(state)}' for state in self.moves if _id(state) != state
        )
        yield f"    [*] --> {_id(next(iter(self.moves)))}"
        for (state, to), events in self.arrows().items():
            yield f"    {_id(state)} --> {_id(to)}: {', '.join(events)}"
        yield from (
            f"    {_id(state)} --> [*]"
            for state, ways in self.moves.items()
            if set(ways.values()) <= {state}
        )
        yield "```"

    def _sentences(self) -> Iterator[str]:
        if self.told:
            yield ""
        for (event, to), states in self.told.items():
            yield fill(
                f"Not drawn: `{event}` leads to `{to}` from {_listed(states)}.",
                120,
                break_on_hyphens=False,
            )


def _id(state: str) -> str:
    return re.sub(r"\W+", "_", state)


def _listed(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def meanings(text: str) -> dict[str, str]:
    """What a docstring says of each name: ````stop``, ``end``: the end; ``fail``: ...`` are the
    meanings of three.
    """
    found = {}
    for part in _BEFORE_NAMES.split(inspect.cleandoc(text)):
        if match := _MEANING.fullmatch(part):
            meaning = " ".join(match[2].split()).removesuffix(".").replace("``", "`")
            found |= {
                " ".join(name.split()): meaning for name in re.findall(r"``([^`]+)``", match[1])
            }
    return found


def said_of(module: ModuleType, name: str) -> str:
    """The docstring of a module's variable, or of its class."""
    body = ast.parse(inspect.getsource(module)).body
    for node, after in pairwise(body):
        if isinstance(node, ast.ClassDef) and node.name == name:
            return ast.get_docstring(node) or ""
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            assert isinstance(after, ast.Expr), f"{module.__name__}.{name} has no docstring"
            return str(ast.literal_eval(after.value))
    raise LookupError(f"{module.__name__} has no {name}")


def machine(
    module: ModuleType, table: str, states: str, states_in: ModuleType | None = None
) -> Machine:
    """The state machine of a module: the names of its table, and of the type of its states."""
    transitions: Mapping[Any, Mapping[str, Any]] = getattr(module, table)
    return Machine(
        {
            _called(state): {event: _called(to) for event, to in ways.items()}
            for state, ways in transitions.items()
        },
        _meanings_of_values(transitions) or meanings(said_of(states_in or module, states)),
        meanings(said_of(module, table)),
    )


def _called(state: Any) -> str:
    return state.name if isinstance(state, Enum) and not isinstance(state, StrEnum) else str(state)


def _meanings_of_values(states: Mapping[Any, Any]) -> dict[str, str]:
    """Of an enum whose values say what its members mean."""
    return {state.name: state.value for state in states if _called(state) != str(state)}


def machines() -> dict[str, Machine]:
    """Name in the page -> the machine."""
    return {
        "run": machine(runtime, "TRANSITIONS", "RunState"),
        "channel": machine(channel, "TRANSITIONS", "ChannelState", facts),
        "partition": machine(partition, "TRANSITIONS", "PartitionState"),
        "lane": machine(lane_states, "LANE_TRANSITIONS", "LaneState"),
        "member": machine(member_states, "CONSUMER_MEMBER_TRANSITIONS", "ConsumerMemberState"),
        "worker": machine(worker_states, "WORKER_TRANSITIONS", "WorkerState"),
        "nack": machine(nacks, "NACK_TRANSITIONS", "NackState"),
        "job": machine(spark, "JOB_TRANSITIONS", "JobState"),
        "classic_member": machine(
            classic_states, "CLASSIC_MEMBER_TRANSITIONS", "ClassicMemberState"
        ),
    }


def drawn(page: str) -> str:
    """A page with its state machines as the code has them."""
    found = machines()
    return _MARKED.sub(lambda match: f"{match[1]}{found[match[2]].text()}\n{match[3]}", page)


def names(page: str) -> list[str]:
    """The state machines that a page has room for."""
    return [match[2] for match in _MARKED.finditer(page)]


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:]):
        path.write_text(drawn(path.read_text()))
