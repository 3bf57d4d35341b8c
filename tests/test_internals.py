"""docs/internals.md shows the code that there is: its map, its ways and its diagrams are compared
with it.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import states
from tests.pages import ROOT, page
from tests.test_architecture import FLOORS, PACKAGE

PAGE = page("docs/internals.md")
MOST_STEPS = 8
MOST_LINES = 6
WAYS = [
    f"The way of a {what}"
    for what in ("record", "failed message", "rebalance", "stop", "Spark batch", "checkpoint")
]
FILE = re.compile(r"`([\w/]+\.py)`")


def section(heading: str) -> str:
    return PAGE.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def exists(file: str) -> bool:
    return (ROOT / PACKAGE / file).is_file()


def map_rows() -> list[tuple[int, str, str]]:
    """Floor, room and the first file to open, of each row."""
    rows = re.findall(
        r"^\| (\d+) \| `([\w/.]+)` \| .+ \| `([\w/.]+)` \|$", section("Map"), re.MULTILINE
    )
    return [(int(floor), room, file) for floor, room, file in rows]


def as_in_the_map(room: str) -> str:
    """A room as the map calls it: ``commit/``, ``app.py``."""
    return f"{room}/" if (ROOT / PACKAGE / room).is_dir() and room else f"{room or '__init__'}.py"


def test_the_map_has_each_room_from_the_ground_up() -> None:
    rooms = [(floor, as_in_the_map(room)) for floor, rooms in enumerate(FLOORS) for room in rooms]
    assert [(floor, room) for floor, room, _ in map_rows()] == rooms


def test_the_file_to_open_first_is_one_of_the_room() -> None:
    wrong = [file for _, room, file in map_rows() if not exists(file) or not file.startswith(room)]
    assert wrong == []


@pytest.mark.parametrize("way", WAYS)
def test_a_way_has_at_most_eight_steps_and_each_is_a_file_of_its_own(way: str) -> None:
    steps = re.findall(r"^\d+\. (.+(?:\n   .+)*)", section(way), re.MULTILINE)
    files = [FILE.findall(step) for step in steps]
    assert 3 < len(steps) <= MOST_STEPS
    assert all(
        re.match(r"`[\w/]+\.py`: ", step) and len(named) == 1
        for step, named in zip(steps, files, strict=True)
    )
    assert [file for (file,) in files if not exists(file)] == []
    assert len({file for (file,) in files}) == len(files)


def test_every_file_that_is_named_exists() -> None:
    names = {Path(file).name for file in FILE.findall(PAGE.read_text())}
    files = {
        path.name
        for folder in (PACKAGE, "tests", "benchmarks")
        for path in (ROOT / folder).rglob("*.py")
    }
    assert names - files == set()


def test_a_decision_is_short() -> None:
    decisions = re.findall(r"^### \d+\. .+\n\n((?:.+\n)+)", section("Decisions"), re.MULTILINE)
    assert decisions
    assert [text for text in decisions if text.count("\n") > MOST_LINES] == []


def test_the_diagrams_are_those_of_the_tables() -> None:
    text = PAGE.read_text()
    assert states.names(text) == list(states.machines())
    assert text == states.drawn(text), "run: python -m tests.states docs/internals.md"


@pytest.mark.parametrize("name", states.machines())
def test_each_state_and_event_of_a_table_has_a_meaning(name: str) -> None:
    machine = states.machines()[name]
    events = {event for ways in machine.moves.values() for event in ways}
    assert (machine.moves.keys() - machine.states.keys(), events - machine.events.keys()) == (
        set(),
        set(),
    )


MACHINE = states.Machine(
    {
        "a b": {"go": "c", "stay": "a b", "end": "d"},
        "c": {"end": "d"},
        "e": {"end": "d"},
        "f": {"end": "d"},
        "d": {},
    },
    dict.fromkeys(("a b", "c", "d", "e", "f"), "a state"),
    dict.fromkeys(("go", "stay", "end"), "an event"),
)


def test_a_diagram_has_the_arrows_and_a_sentence_for_what_comes_from_everywhere() -> None:
    diagram, sentence = MACHINE.text().split("\n\n")
    assert diagram.splitlines() == [
        "```mermaid",
        "stateDiagram-v2",
        '    state "a b" as a_b',
        "    [*] --> a_b",
        "    a_b --> c: go",
        "    d --> [*]",
        "```",
    ]
    assert sentence == "Not drawn: `end` leads to `d` from `a b`, `c`, `e`, `f`."


def test_meanings_are_read_from_docstrings() -> None:
    text = "State -> event. ``stop``,\n``end``: the end; no more: ``x`` too;\n``fail``:\nfor poison. It stops."
    assert states.meanings(text) == {
        "stop": "the end; no more: `x` too",
        "end": "the end; no more: `x` too",
        "fail": "for poison. It stops",
    }
