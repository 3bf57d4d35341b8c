"""The inventory of examples/inventory: rows, events and dead letters, in memory and under kills."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from examples.inventory.drive import Report, expected
from examples.inventory.inventory import app
from reactive_kafka.testing import TestApp
from tests.checkpoint.servers import sql_url
from tests.examples.driven import driven
from tests.harness.postgres import Postgres

ACME = [("tenant", b"acme")]
WEB = {"name": "web-1", "os": "linux", "cores": 4}


@pytest.fixture(autouse=True)
def own_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database is a file of the current folder."""
    monkeypatch.chdir(tmp_path)


def rows() -> list[tuple[str, str, str, int, int]]:
    with closing(sqlite3.connect("inventory.db")) as connection:
        return connection.execute("SELECT * FROM hosts ORDER BY id").fetchall()


def changes(test: TestApp) -> list[tuple[str, str]]:
    events = [json.loads(event.value or b"") for event in test.records("events")]
    return [(event["host"], event["change"]) for event in events]


async def test_a_host_that_says_nothing_new_is_counted_and_is_no_event() -> None:
    async with TestApp(app) as test:
        for cores in (4, 4, 8):
            await test.send("hosts", {**WEB, "cores": cores}, key="h1", headers=ACME)
        await test.settled()
        assert rows() == [("h1", "web-1", "linux", 8, 3)]
        assert changes(test) == [("h1", "created"), ("h1", "updated")]
        assert {dict(event.headers)["tenant"] for event in test.records("events")} == {b"acme"}


async def test_a_tombstone_deletes_the_host_and_a_second_one_changes_nothing() -> None:
    async with TestApp(app) as test:
        for value in (WEB, None, None, WEB):
            await test.send("hosts", value, key="h1", headers=ACME)
        await test.settled()
        assert rows() == [("h1", "web-1", "linux", 4, 1)]
        assert changes(test) == [("h1", change) for change in ("created", "deleted", "created")]


async def test_what_cannot_be_read_is_a_dead_letter_and_holds_up_nobody() -> None:
    async with TestApp(app) as test:
        for value in (b"{", {**WEB, "cores": 0}, WEB):
            await test.send("hosts", value, key="h1", headers=ACME)
        await test.send("hosts", WEB, headers=ACME)
        await test.settled()
        assert [row[0] for row in rows()] == ["h1"]
        assert len(test.records("dead-letter-topic-hosts")) == 3


async def test_hosts_of_other_tenants_are_skipped_even_if_they_cannot_be_read() -> None:
    async with TestApp(app) as test:
        for headers in ([("tenant", b"initech")], []):
            await test.send("hosts", WEB, key="h1", headers=headers)
            await test.send("hosts", b"{", key="h1", headers=headers)
        await test.settled()
        assert rows() == []
        assert changes(test) == [] == test.records("dead-letter-topic-hosts")


def test_the_driver_expects_of_each_report_before_a_position_what_it_says() -> None:
    first = ("web-1", "linux", 4)
    reports = [
        Report(0, 0, "h1", first, is_served=True, is_readable=True),
        Report(1, 0, "h2", first, is_served=False, is_readable=True),
        Report(0, 1, "h1", first, is_served=True, is_readable=True),
        Report(0, 2, "h1", first, is_served=True, is_readable=False),
        Report(0, 3, "h1", ("web-1", "bsd", 4), is_served=True, is_readable=True),
        Report(0, 4, "h1", None, is_served=True, is_readable=True),
    ]
    before_the_last = expected(reports, {0: 4, 1: 1})
    assert before_the_last.rows == {"h1": ("web-1", "bsd", 4, 3)}
    assert before_the_last.changes == {"h1": ["created", "updated"]}
    assert expected(reports, {}).rows == {}
    assert expected(reports).rows == {}
    assert expected(reports).changes == {"h1": ["created", "updated", "deleted"]}


@pytest.mark.kafka
@pytest.mark.postgres
@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.long_faults)])
def test_rows_and_events_agree_whenever_a_process_is_killed(
    kafka: str, postgres: Postgres, kills: int
) -> None:
    driven("inventory", kafka, kills, "--database", sql_url(postgres, "asyncpg"))


@pytest.mark.kafka
@pytest.mark.long_faults
def test_rows_of_sqlite_and_events_agree_whenever_a_process_is_killed(kafka: str) -> None:
    driven("inventory", kafka, 20)
