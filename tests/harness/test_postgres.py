"""The harness's PostgreSQL keeps what was committed, cuts off its clients, and leaves nothing
behind.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.harness.postgres import (
    Postgres,
    PostgresMissingError,
    Programs,
    cached,
    running_postgres,
)

NEEDS_SERVER = pytest.mark.postgres


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with running_postgres() as server:
        yield server


@NEEDS_SERVER
def test_a_restart_keeps_what_was_committed_and_cuts_off_who_was_connected(
    postgres: Postgres,
) -> None:
    before = postgres.pid
    with psycopg.connect(postgres.dsn) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 1 AS number")
    left = psycopg.connect(postgres.dsn)
    postgres.restart()
    assert postgres.pid != before
    with pytest.raises(psycopg.OperationalError):
        left.execute("SELECT 1")
    left.close()
    with psycopg.connect(postgres.dsn) as connection:
        assert connection.execute("SELECT number FROM kept").fetchall() == [(1,)]


@NEEDS_SERVER
def test_nothing_is_left_of_it() -> None:
    with running_postgres() as server:
        pid, folder = server.pid, server._data.parent
        assert folder.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert not folder.exists()


@NEEDS_SERVER
def test_a_server_that_does_not_start_says_why() -> None:
    with running_postgres() as server:
        second = Postgres(server._programs, server._data.parent)
        with pytest.raises(AssertionError, match="lock file"):
            second.start()


def test_a_cache_without_a_server_in_it_is_named(tmp_path: Path) -> None:
    with pytest.raises(PostgresMissingError, match=str(tmp_path)):
        cached(tmp_path)


def test_programs_of_the_cache_are_copied_to_where_any_user_reaches_them(tmp_path: Path) -> None:
    program = tmp_path / "cache/usr/lib/postgresql/15/bin/postgres"
    program.parent.mkdir(parents=True)
    program.touch()
    (tmp_path / "cache/usr/lib/x86_64-linux-gnu").mkdir()
    copy = cached(tmp_path / "cache").within(tmp_path / "copy")
    assert copy == Programs(tmp_path / "copy/usr/lib/postgresql/15/bin", tmp_path / "copy")
    assert (copy.bin / "postgres").exists()
    assert copy.environment() == {
        "LD_LIBRARY_PATH": str(tmp_path / "copy/usr/lib/x86_64-linux-gnu")
    }
