"""A certificate, key or CA file that is missing is a problem before anything connects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.config.loading import incoming, loaded, only_problem, outgoing, problems, unused, write

TLS = {"security.protocol": "SSL"}


@pytest.mark.parametrize(
    ("key", "written", "why"),
    [
        ("ssl_cafile", {}, "there is no such file"),
        ("ssl_capath", {}, "there is no such folder"),
        ("ssl_certfile", {}, "there is no such file"),
        ("ssl_keyfile", {"ssl_certfile": __file__}, "there is no such file"),
    ],
)
def test_a_file_that_is_missing_is_named_with_channel_and_key(
    tmp_path: Path, key: str, written: dict[str, str], why: str
) -> None:
    """Row J6 of the faults."""
    for tables, section in ((incoming, "incoming.orders"), (outgoing, "outgoing.invoices")):
        line = only_problem(tables(**TLS, **written, **{key: "/nowhere/gone.pem"}))
        assert line == f"code: [{section}] {key} = '/nowhere/gone.pem': {why} (channel {section})"
        long = str(tmp_path / ("long" * 20) / "gone.pem")
        line = only_problem(tables(**TLS, **written, **{key: long}))
        assert line.endswith(f"...: {why}: {long} (channel {section})")


def test_it_is_named_with_the_file_and_the_line_and_once_for_all_channels(tmp_path: Path) -> None:
    text = """\
[kafka]
group_id = "g"
security_protocol = "SSL"
ssl_cafile = "/nowhere/ca.pem"
[incoming.a]
[incoming.b]
[outgoing.c]
"""
    file = write(tmp_path, "prod.toml", text)
    assert (
        only_problem(file)
        == f"{file}, line 4: [kafka] ssl_cafile = '/nowhere/ca.pem': there is no such file"
    )


@pytest.mark.parametrize(
    ("strategy", "table"),
    [("dead-letter-queue", "dead_letter_queue"), ("delayed-retry-topic", "delayed_retry")],
)
def test_tables_with_a_connection_of_their_own_are_looked_at_too(strategy: str, table: str) -> None:
    line = only_problem(
        incoming(failure_strategy=strategy, **{table: TLS | {"ssl_cafile": "/nowhere.pem"}})
    )
    assert f"{table}.ssl_cafile = '/nowhere.pem': there is no such file" in line
    switched = only_problem(
        {"kafka": {"ssl_cafile": "/nowhere.pem", "security.protocol": "PLAINTEXT"}}
        | incoming(failure_strategy=strategy, **{table: TLS})
    )
    assert "ssl_cafile = '/nowhere.pem': there is no such file" in switched


def test_a_relative_path_says_where_it_starts_and_a_folder_is_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert f"(a relative path starts at {tmp_path})" in only_problem(
        incoming(**TLS, ssl_cafile="ca.pem")
    )
    assert "cannot be read: Is a directory" in only_problem(
        incoming(**TLS, ssl_cafile=str(tmp_path))
    )
    assert "cannot be read: Not a directory" in only_problem(incoming(**TLS, ssl_capath=__file__))
    assert "cannot be read: embedded null" in only_problem(incoming(**TLS, ssl_cafile="a\0b"))
    write(tmp_path, "ca.pem", "")
    loaded(incoming(**TLS, ssl_cafile="ca.pem"))


@pytest.mark.parametrize("over", [{"ssl_cafile": __file__}, {"security.protocol": "PLAINTEXT"}])
def test_a_file_that_is_not_in_effect_may_be_missing(over: dict[str, Any]) -> None:
    below = incoming(**TLS, ssl_cafile="/nowhere.pem")
    settings = loaded(below, overrides={"incoming": {"orders": over}})
    assert len(settings.warnings) == ("security.protocol" in over)
    assert len(unused(below, overrides={"incoming": {"orders": over}})) == len(settings.warnings)


def test_it_stands_in_one_report_with_all_other_problems() -> None:
    lines = problems(incoming(**TLS, ssl_cafile="/nowhere.pem", concurrency=0))
    assert len(lines) == 2


@pytest.mark.parametrize(
    "name", ["a..b:1", ".a:1", "a" * 64 + ":1", "b.".join(["a" * 60] * 5), ".:1"]
)
def test_a_host_name_that_nobody_could_look_up_is_refused(name: str) -> None:
    assert 'expected "host:port"' in only_problem(
        {"kafka": {"bootstrap_servers": name}} | incoming()
    )


@pytest.mark.parametrize(
    "name", ["a.b:1", "a.b.:1", "a_b-c.d:1", "a" * 63 + ":1", "10.0.0.1", "[::1]:9", "kafka"]
)
def test_host_names_that_may_be_looked_up_are_taken(name: str) -> None:
    loaded({"kafka": {"bootstrap_servers": name}} | incoming())
