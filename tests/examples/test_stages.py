"""The example of stages: a reading is acked when its row is stored, and a wrong one becomes a dead
letter alone.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from reactive_kafka.testing import TestApp

FOLDER = Path(__file__).parents[2] / "examples" / "stages"


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """The example's module, imported anew, with a database of the test's."""
    monkeypatch.syspath_prepend(str(FOLDER))
    sys.modules.pop("readings", None)
    module = import_module("readings")
    monkeypatch.setattr(module, "DATABASE", tmp_path / "readings.db")
    yield module
    sys.modules.pop("readings", None)


def stored(module: Any) -> list[tuple[str, float]]:
    with module.database() as connection:
        return connection.execute("SELECT id, celsius FROM rows ORDER BY id").fetchall()  # type: ignore[no-any-return]


def reading(number: int, fahrenheit: float) -> dict[str, Any]:
    return {"id": f"r{number}", "sensor": "roof", "fahrenheit": fahrenheit}


async def test_rows_are_stored_by_the_batch_and_what_is_wrong_is_a_dead_letter_alone(
    readings: Any,
) -> None:
    async with TestApp(readings.app) as test:
        for number, fahrenheit in enumerate([32.0, -500.0, 212.0]):
            await test.send("readings", reading(number, fahrenheit), partition=0)
        await test.settled()
        (letter,) = test.records("dead-letter-topic-readings")
        assert json.loads(letter.value or b"")["id"] == "r1"
        assert sum(test.committed("readings").values()) == 3
    assert stored(readings) == [("r0", 0.0), ("r2", 100.0)]


async def test_a_reading_whose_row_cannot_be_stored_is_not_acked_until_it_is(
    readings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    insert, calls = readings.database, list[int]()

    def away() -> Any:
        calls.append(1)
        if len(calls) == 1:
            raise sqlite3.OperationalError("the disk is full")
        return insert()

    monkeypatch.setattr(readings, "database", away)
    async with TestApp(readings.app) as test:
        await test.send("readings", reading(1, 32.0), partition=0)
        await test.settled()
    assert len(calls) == 2
    monkeypatch.setattr(readings, "database", insert)
    assert stored(readings) == [("r1", 0.0)]
