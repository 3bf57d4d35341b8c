"""``filter_headers``: which headers with which values select a record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reactive_kafka.config.dump import dump
from reactive_kafka.config.json_schema.config_schema import config_schema
from tests.config.loading import loaded, only_problem


def wanted(filter_headers: Any, environ: dict[str, str] | None = None, kafka: Any = None) -> Any:
    orders = {"group_id": "g", "filter_headers": filter_headers}
    tables = {"incoming": {"orders": orders}, **({"kafka": kafka} if kafka else {})}
    return loaded(tables, environ).incoming["orders"].filter_headers


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ({}, {}),
        ({"service": "hccm"}, {"service": ("hccm",)}),
        ({"service": ["hccm", "a,b"], "kind": ""}, {"service": ("hccm", "a,b"), "kind": ("",)}),
        ({"X-Tenant_id": "é", "service": "a,b"}, {"X-Tenant_id": ("é",), "service": ("a,b",)}),
        ({"cloud.events": "1"}, {"cloud.events": ("1",)}),
        ({"cloud": {"events": "1"}}, {"cloud.events": ("1",)}),
    ],
)
def test_names_are_kept_as_written_and_a_text_is_one_value(written: Any, meant: Any) -> None:
    assert wanted(written) == meant


def test_a_channel_adds_to_the_headers_of_all_channels_and_overrides_them() -> None:
    kafka = {"filter_headers": {"service": "hccm", "tenant": "a"}}
    found = wanted({"tenant": "b", "kind": "order"}, kafka=kafka)
    assert found == {"service": ("hccm",), "tenant": ("b",), "kind": ("order",)}


def test_a_variable_overrides_the_header_that_a_file_names() -> None:
    prefix = "REACTIVE_KAFKA__INCOMING__ORDERS__FILTER_HEADERS"
    environ = {f"{prefix}__X_TENANT": "7", f"{prefix}__SERVICE": '["a", "b"]'}
    found = wanted({"X-Tenant": "a"}, environ)
    assert found == {"X-Tenant": ("7",), "service": ("a", "b")}


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("hccm", "filter_headers = 'hccm': expected a table: [incoming.X.filter_headers]"),
        ({"service": 5}, "filter_headers.service = 5: expected the value of a header"),
        ({"service": []}, "filter_headers.service = []: expected the value of a header"),
        ({"service": ["a", 1]}, "expected the value of a header"),
        ({"service": ["a", "a"]}, "expected the value of a header"),
        ({"service": "\ud800"}, "expected the value of a header"),
    ],
)
def test_anything_else_is_refused_with_its_place(written: Any, said: str) -> None:
    problem = only_problem({"incoming": {"orders": {"group_id": "g", "filter_headers": written}}})
    assert problem.startswith("code: [incoming.orders] filter_headers")
    assert said in problem


def test_the_name_of_a_file_is_said_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "shop.toml"
    path.write_text('[incoming.orders]\ngroup_id = "g"\nfilter_headers = { service = 1 }\n')
    assert only_problem(path).startswith(f"{path}, line 3: [incoming.orders] filter_headers.")


def test_a_misspelt_name_of_the_table_is_recognized() -> None:
    problem = only_problem({"incoming": {"orders": {"group_id": "g", "filter_header": {"a": "b"}}}})
    assert "did you mean 'filter_headers'?" in problem


def test_the_dump_has_them_as_they_were_written() -> None:
    written = {"service": "hccm", "X-Tenant": ["a", "b"], "cloud.events": "1"}
    settings = loaded({"incoming": {"orders": {"group_id": "g", "filter_headers": written}}})
    assert dump(settings)["incoming"]["orders"]["filter_headers"] == written


def test_the_schema_knows_the_table() -> None:
    from jsonschema import Draft202012Validator

    validator = Draft202012Validator(config_schema())

    def is_valid(filter_headers: Any) -> bool:
        table = {"group_id": "g", "filter_headers": filter_headers}
        return bool(validator.is_valid({"incoming": {"orders": table}}))

    assert is_valid({"service": "hccm", "X-Tenant": ["a", "b"]})
    assert not is_valid({"service": 5})
    assert not is_valid({"service": []})
