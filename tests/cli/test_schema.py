"""``schema`` prints what editors read."""

from __future__ import annotations

import json
from pathlib import Path

from reactive_kafka.config.json_schema.config_schema import config_schema
from tests.cli.inside import cli_in


def test_it_prints_the_schema_whatever_stands_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / "reactive-kafka.toml").write_text("broken")
    ended = cli_in(tmp_path, "schema")
    assert (ended.code, ended.err) == (0, "")
    assert json.loads(ended.out) == config_schema()
    assert ended.out.isascii()


def test_it_takes_no_arguments(tmp_path: Path) -> None:
    ended = cli_in(tmp_path, "schema", "orders")
    assert (ended.code, ended.out) == (2, "")
    assert "unexpected extra argument (orders)" in ended.err
