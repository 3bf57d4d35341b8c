"""``tests/typing`` misses no public name; mypy checks what it says about them (``make types``)."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

import reactive_kafka
from reactive_kafka import (
    App,
    Batch,
    Channel,
    Headers,
    Health,
    Message,
    SparkBatch,
    SparkRange,
    TopicPartition,
    testing,
)
from reactive_kafka.testing import FakeClock, TestApp

FILES = ("api.py", "testing_api.py")
OURS = {"index", "rejects", "tracker"}
"""Attributes without an underscore that are for the package itself: of a delivery, and what
``SparkBatch.reject`` has collected."""


@cache
def used() -> frozenset[str]:
    """Every name and attribute that is used, imports alone not counted."""
    trees = [ast.parse((Path(__file__).parent / "typing" / file).read_text()) for file in FILES]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    return frozenset(names | {node.attr for node in nodes if isinstance(node, ast.Attribute)})


@pytest.mark.parametrize("package", [reactive_kafka, testing], ids=lambda package: package.__name__)
def test_every_public_name_is_used_in_typed_code(package: type) -> None:
    assert set(package.__all__) - used() == set()


@pytest.mark.parametrize(
    "kind",
    [
        App,
        Batch,
        Channel,
        FakeClock,
        Headers,
        Health,
        Message,
        SparkBatch,
        SparkRange,
        TestApp,
        TopicPartition,
    ],
)
def test_every_public_attribute_of_what_users_hold_is_used_in_typed_code(kind: type) -> None:
    ours = [one for one in kind.__mro__ if one.__module__.startswith("reactive_kafka")]
    of_users = {name for one in ours for name in vars(one) if not name.startswith("_")}
    assert of_users - used() - OURS == set()
