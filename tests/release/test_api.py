"""What users build on does not change unnoticed."""

from __future__ import annotations

import pytest

from tests.release.api import COMMAND, FILE, api, difference


def test_what_users_build_on_is_what_was_written_down() -> None:
    changed = difference(FILE.read_text(), api())
    if changed:
        pytest.fail(
            f"{changed}\n\nNames, options, keys or metrics have changed (- before, + now).\n"
            "If that is meant: write it into CHANGELOG.md, see in docs/versions.md which version\n"
            f"it needs, and run: {COMMAND}",
            pytrace=False,
        )


def test_the_difference_names_what_is_gone_and_what_is_new() -> None:
    now = api()
    before = now.replace("reactive_kafka.Router", "reactive_kafka.Rooter")
    changed = difference(before, now).splitlines()
    assert any(line.startswith("-reactive_kafka.Rooter(") for line in changed)
    assert any(line.startswith("+reactive_kafka.Router(") for line in changed)
    assert not any("reactive_kafka.App" in line for line in changed)


def test_every_kind_of_promise_is_written_down() -> None:
    lines = FILE.read_text().splitlines()
    for start in (
        "reactive_kafka.App.incoming(",
        "reactive_kafka.testing.TestApp(",
        "incoming.X.commit_strategy = ",
        "reactive_kafka_records_",
        "reactive-kafka run --",
        "2 WrongUsage",
    ):
        assert any(line.startswith(start) for line in lines), start
