"""``spark jars`` prints where the connector is, and what cannot be had exits with 1."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.inside import cli_in
from tests.spark.connector import names_of_connector_jars


@pytest.mark.spark
def test_the_jars_are_put_where_they_were_asked_for(tmp_path: Path) -> None:
    ended = cli_in(tmp_path, "spark", "jars", "--to", "jars")
    assert (ended.code, ended.out) == (0, "jars\n"), ended.err
    jars = list((tmp_path / "jars").iterdir())
    assert {jar.name for jar in jars} == names_of_connector_jars()
    assert all(jar.stat().st_size > 10_000 for jar in jars)


def test_without_maven_it_exits_with_1(tmp_path: Path) -> None:
    env = {"REACTIVE_KAFKA_CACHE": str(tmp_path / "cache"), "PATH": "/nonexistent"}
    ended = cli_in(tmp_path, "spark", "jars", "--to", "jars", env=env)
    assert (ended.code, ended.out) == (1, "")
    assert "install Maven" in ended.err
    assert not (tmp_path / "jars").exists()


@pytest.mark.parametrize("arguments", [("--to", "file"), ("--from", "x"), ("more",)])
def test_wrong_usage_exits_with_2(arguments: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ended = cli_in(tmp_path, "spark", "jars", *arguments)
    assert (ended.code, ended.out) == (2, "")


@pytest.mark.spark
def test_a_folder_that_cannot_be_made_is_named_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ended = cli_in(tmp_path, "spark", "jars", "--to", "file/jars")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err == "Error: cannot write to file/jars: Not a directory: file/jars\n"
