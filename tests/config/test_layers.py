from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.config.layers import expanded, from_text, of_environment, of_mapping


def paths(environ: dict[str, str], *known: tuple[str, ...]) -> dict[tuple[str, ...], Any]:
    return {leaf.path: leaf.value for leaf in of_environment(environ, known).leaves}


def test_nested_tables_become_paths_and_an_empty_table_stays() -> None:
    layer = of_mapping("code", {"incoming": {"a": {}, "b": {"x.y": 1, "z": {"w": [2]}}}})
    assert [(leaf.path, leaf.value) for leaf in layer.leaves] == [
        (("incoming", "a"), {}),
        (("incoming", "b", "x.y"), 1),
        (("incoming", "b", "z", "w"), [2]),
    ]


def test_a_variable_means_the_channel_that_there_is_whatever_its_case() -> None:
    known = ("incoming", "My-Orders.v2", "topic")
    found = paths(
        {
            "REACTIVE_KAFKA__INCOMING__MY_ORDERS_V2__GROUP_ID": "g",
            "REACTIVE_KAFKA_CONFIG": "x",
            "PATH": "/",
        },
        known,
    )
    assert found == {("incoming", "My-Orders.v2", "group_id"): "g"}


@pytest.mark.parametrize("names", [("a_b", "a-b"), ("a-b", "a_b")])
@pytest.mark.parametrize("keys", [("topic", "topic"), ("group_id", "topic"), ("topic", "group_id")])
def test_a_variable_means_the_channel_that_is_spelled_as_it_is(
    names: tuple[str, str], keys: tuple[str, str]
) -> None:
    known = [("incoming", name, key) for name, key in zip(names, keys, strict=True)]
    assert paths({"REACTIVE_KAFKA__INCOMING__A_B__TOPIC": "t"}, *known) == {
        ("incoming", "a_b", "topic"): "t"
    }


def test_a_variable_of_an_unknown_channel_means_one_in_lower_case() -> None:
    assert paths({"reactive_kafka__Incoming__Clicks__TOPIC": "t"}) == {
        ("incoming", "clicks", "topic"): "t"
    }


def test_a_variable_finds_a_spark_property_by_its_case() -> None:
    known = ("spark", "conf", "spark.sql.adaptive.coalescePartitions.enabled")
    name = "REACTIVE_KAFKA__SPARK__CONF__SPARK_SQL_ADAPTIVE_COALESCEPARTITIONS_ENABLED"
    assert paths({name: "true"}, known) == {known: True}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("0.5", 0.5),
        ("true", True),
        ('"5"', "5"),
        ('["a", "b"]', ["a", "b"]),
        ("orders", "orders"),
        ("5s", "5s"),
        ("", ""),
        ("2026-11-21", "2026-11-21"),
        ("{a = 1}", "{a = 1}"),
        ("5\nother = 1", "5\nother = 1"),
        ("[" * 5000, "[" * 5000),
        ("9" * 5000, "9" * 5000),
    ],
)
def test_a_text_reads_as_a_toml_value_or_is_itself(text: str, value: Any) -> None:
    assert from_text(text) == value


@given(st.text())
def test_any_text_can_be_read(text: str) -> None:
    assert isinstance(from_text(text), str | bool | int | float | list)


def test_a_reference_may_stand_for_a_number_and_keeps_its_text() -> None:
    layer = expanded(of_mapping("code", {"a": "${A}", "b": ["${A}", 1], "c": "9"}), {"A": "5"})
    assert [(leaf.value, leaf.text) for leaf in layer.leaves] == [
        (5, "5"),
        (["5", 1], None),
        ("9", None),
    ]


def test_a_reference_that_fails_leaves_the_value_as_written() -> None:
    (leaf,) = expanded(of_mapping("code", {"a": "${A}"}), {}).leaves
    assert leaf.value == "${A}"
    assert leaf.problem is not None and "${A} is not set" in leaf.problem
