"""The code keeps the goals for its structure that ``tests/house.py`` measures."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tests.house import MEASURES, House, Measure, table

NOT_YET: dict[str, float] = {}
"""Measure -> the worst value that it may have until it reaches its goal. Tighten it as the code gets better."""


@cache
def house() -> House:
    return House()


@pytest.mark.parametrize("measure", MEASURES, ids=lambda measure: measure.name)
def test_a_goal_is_kept_and_what_has_not_reached_it_gets_no_worse(measure: Measure) -> None:
    found = measure.find(house())
    seen = f"{measure.title}: {found.value:,}, goal {measure.goal}; `make house HOUSE_ARGS='--list {measure.name}'`"
    if measure.name not in NOT_YET:
        assert measure.is_met(found.value), seen
    else:
        assert not measure.is_worse(found.value, NOT_YET[measure.name]), f"{seen}; it was {NOT_YET[measure.name]:,}"
        assert not measure.is_met(found.value), f"{seen}; the goal is reached: remove the row in NOT_YET"


def test_every_row_of_what_is_not_reached_yet_names_a_measure() -> None:
    assert NOT_YET.keys() <= {measure.name for measure in MEASURES if measure.goal is not None}


METHODS = "\n".join(f"    def m{number}(self): ..." for number in range(21))
PARAMETERS = ", ".join(f"p{number}" for number in range(9))

TREE = {
    "reactive_kafka/__init__.py": "from reactive_kafka.commit.engine import Engine\n",
    "reactive_kafka/records.py": "x = 1\n" * 301,
    "reactive_kafka/commit/engine.py": f"""
from typing import TYPE_CHECKING, Protocol
from reactive_kafka.incoming import lanes
from reactive_kafka.records import TopicPartition
if TYPE_CHECKING:
    from reactive_kafka.config.schema import Settings
class Host(Protocol): ...
class Engine:
    def __init__(self, {PARAMETERS}):
        self._stored: dict[TopicPartition, int] = {{}}
        self._asked: set[TopicPartition] | None = None
        self._names: dict[str, TopicPartition] = {{}}  # not by partition
        self._names, other._stored, other._replace(x=1)
{METHODS}
""",
    "reactive_kafka/incoming/lanes.py": """
class Host(Protocol): ...
class Lane:
    # -- a banner
    def take(self):
        from reactive_kafka.commit.engine import Engine  # noqa: PLC0415
        return "# no comment"
""",
    "reactive_kafka/config/schema.py": "from reactive_kafka.commit.engine import Engine\n",
    "reactive_kafka/checkpoint/memory.py": "def f(s):\n    s.rows: dict[TopicPartition, int] = {}\n",
    "reactive_kafka/broker/aiokafka/consumer.py": "print(client._coordinator)\n",
    "docs/page.md": f"{'word ' * 30}\n| {'cell ' * 30} |\n```\nhttp://{'x' * 120}\n{'y' * 121}\n```\n",
}


@pytest.fixture
def tree(tmp_path: Path) -> House:
    """A small tree with one or two of everything that is counted, and some that must not be."""
    for name, text in TREE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return House(tmp_path)


@pytest.mark.parametrize(
    ("name", "value", "place"),
    [
        ("files", 1, "records.py 301"),
        ("classes", 1, "commit/engine.py:8 Engine 22"),
        ("constructors", 1, "commit/engine.py:9 Engine 9"),
        ("protocols", 2, "commit/engine.py:7 Host"),
        ("private", 1, "commit/engine.py:13 other._stored"),
        ("cycles", 1, "2 rooms: commit, incoming"),
        ("folder", 2, ". 2"),
        ("maps", 2, "commit/engine.py:10 _stored: dict[TopicPartition, int]"),
        ("docs", 2, "docs/page.md:1 150"),
    ],
)
def test_a_measure_counts_what_it_says(tree: House, name: str, value: float, place: str) -> None:
    (measure,) = (measure for measure in MEASURES if measure.name == name)
    found = measure.find(tree)
    assert (found.value, found.places[0]) == (value, place)


def test_a_banner_and_a_line_for_a_tool_are_comments_that_give_no_reason(tree: House) -> None:
    found = {measure.name: measure.find(tree).places for measure in MEASURES}
    assert len(found["comments"]) == 3
    assert [place.partition("#")[2] for place in found["reasons"]] == [" not by partition"]


def test_the_table_has_a_column_for_each_tree(tree: House) -> None:
    head, *rows = table({"before": tree, "now": tree}).splitlines()
    assert head.split() == ["e589cd5", "before", "now", "goal"]
    assert [row.split()[0] for row in rows] == [measure.name for measure in MEASURES]
    assert rows[0].split()[-4:] == ["25", "1", "1", "10"]
