"""A test imports internals of the room that it tests, and public names of all others.

So a change inside of a room touches the tests of that room. ``EXCEPTIONS`` lists what does not keep
to it yet. Take entries out; do not add any.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.test_architecture import FLOORS, PACKAGE

TESTS = Path(__file__).parent
ROOMS = {room for floor in FLOORS for room in floor}

PUBLIC = {"", "errors", "events", "testing"}
"""The modules that users import from."""

VALUES = set(FLOORS[0])
"""The values of the ground floor, which every room stands on: records, clocks, subscriptions."""

EXCEPTIONS: dict[str, str] = {
    "assignment/test_deadlines.py": "config",
    "channel/test_reach.py": "broker",
    "channel/test_status.py": "observe",
    "checkpoint/test_owned_row.py": "tracking",
    "cli/test_schema.py": "config",
    "commit/test_engine.py": "tracking",
    "commit/test_metadata_pending.py": "tracking",
    "commit/test_named_partitions.py": "partitions tracking",
    "commit/test_plan_commits.py": "tracking",
    "delivery/test_ages.py": "observe",
    "nacks/test_letter_writer.py": "broker failure",
    "nacks/test_letters_on_kafka.py": "failure",
    "planning/test_handler_plans.py": "handlers",
    "schemas/test_registry.py": "formats",
    "testing/test_clock.py": "handlers",
}
"""Test file -> the other rooms whose internals it imports."""

MOST = 17
"""So many foreign rooms are imported today. This number only falls."""


@cache
def found() -> dict[str, str]:
    """What ``EXCEPTIONS`` has to be, for the folders that are named like a room.

    Helper modules do not count: they are the one place that knows how something is set up.
    """
    exceptions = {}
    for folder in sorted(ROOMS - {""}):
        for path in sorted((TESTS / folder).rglob("test_*.py")):
            rooms = {room_of(module) for module in imported_by(path)}
            if foreign := rooms - PUBLIC - VALUES - {folder}:
                exceptions[path.relative_to(TESTS).as_posix()] = " ".join(sorted(foreign))
    return exceptions


def room_of(module: str) -> str:
    """The room of a module of the package; "" is the package's own file."""
    room = module.removeprefix(PACKAGE).lstrip(".").partition(".")[0]
    return room if room in ROOMS else ""


def imported_by(path: Path) -> Iterator[str]:
    """The modules of the package that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (name for name in names if name.partition(".")[0] == PACKAGE)


def test_a_test_imports_internals_of_its_own_room_only() -> None:
    new = {
        path: rooms
        for path, rooms in found().items()
        if set(rooms.split()) - set(EXCEPTIONS.get(path, "").split())
    }
    assert new == {}, (
        "these import internals of other rooms: use public names, a helper of the tests of that room, "
        "or move the test to its room"
    )


def test_no_exception_is_left_that_is_none_any_more() -> None:
    gone = {
        path: rooms
        for path, rooms in EXCEPTIONS.items()
        if set(rooms.split()) - set(found().get(path, "").split())
    }
    assert gone == {}, "take these rooms out of EXCEPTIONS, and lower MOST"


def test_there_are_not_more_exceptions_than_there_were() -> None:
    assert sum(len(rooms.split()) for rooms in EXCEPTIONS.values()) == MOST


def test_internals_are_seen_wherever_they_are_imported(tmp_path: Path) -> None:
    path = tmp_path / "test_it.py"
    path.write_text(
        "import reactive_kafka.commit.strategy\n"
        "from reactive_kafka import App, events\n"
        "from reactive_kafka.testing import TestApp\n"
        "from reactive_kafka.tracking import metadata\n"
        "def test() -> None:\n"
        "    from reactive_kafka.broker.client import Consumer\n"
    )
    rooms = {room_of(module) for module in imported_by(path)}
    assert rooms == {"commit", "", "events", "testing", "tracking", "broker"}
