"""``[limits.X]``: what a limit takes, and which channels may have it."""

from __future__ import annotations

from typing import Any

import pytest

from reactive_kafka.config.dump import dump
from tests.config.loading import incoming, loaded, only_problem, problems

LIMIT = {"limits": {"database": {"concurrency": 20}}}


def test_a_limit_is_for_the_channels_that_name_it() -> None:
    settings = loaded(incoming(limit="database") | LIMIT)
    assert settings.limits["database"].concurrency == 20
    assert settings.incoming["orders"].limit == "database"
    assert settings.warnings == ()
    assert loaded(incoming()).incoming["orders"].limit is None
    assert dump(settings)["limits"] == {"database": {"concurrency": 20}}
    assert dump(settings)["incoming"]["orders"]["limit"] == "database"


def test_the_default_of_all_channels_may_be_a_limit() -> None:
    settings = loaded(incoming() | LIMIT | {"kafka": {"limit": "database"}})
    assert settings.incoming["orders"].limit == "database"


def test_variables_may_change_a_limit() -> None:
    environ = {"REACTIVE_KAFKA__LIMITS__DATABASE__CONCURRENCY": "5"}
    settings = loaded(incoming(limit="database") | LIMIT, environ)
    assert settings.limits["database"].concurrency == 5


def test_a_variable_of_no_known_limit_is_refused() -> None:
    environ = {"REACTIVE_KAFKA__LIMITS__DATABSE__CONCURRENCY": "5"}
    line = only_problem(incoming(limit="database") | LIMIT, environ)
    assert "no such limit (there are 'database'); did you mean 'database'?" in line


@pytest.mark.parametrize("value", [0, -1, 1.5, "many", True])
def test_a_limit_is_at_least_1(value: Any) -> None:
    line = only_problem(incoming(limit="a") | {"limits": {"a": {"concurrency": value}}})
    assert "[limits.a] concurrency = " in line
    assert "a whole number of at least 1" in line


def test_a_limit_says_how_many() -> None:
    line = only_problem(incoming(limit="a") | {"limits": {"a": {}}})
    assert "[limits.a]: concurrency is missing; it is a whole number of at least 1" in line


def test_an_unknown_limit_is_named_with_those_that_exist() -> None:
    line = only_problem(incoming(limit="databse") | LIMIT | {"kafka": {"limit": "database"}})
    assert "[incoming.orders] limit = 'databse': there is no [limits.databse]" in line
    assert "(there are 'database'); did you mean 'database'?" in line
    assert "(there are none)" in only_problem(incoming(limit="database"))


def test_a_limit_has_one_key() -> None:
    lines = problems(incoming(limit="a") | {"limits": {"a": {"concurrencyy": 1}}})
    assert any("did you mean 'concurrency'?" in line for line in lines)


@pytest.mark.parametrize("value", [0, 10_001, 10**6, 2**31 - 1])
def test_a_channel_has_at_most_ten_thousand_consumers(value: int) -> None:
    line = only_problem(incoming(consumers=value))
    assert f"consumers = {value}: expected a whole number from 1 to 10000" in line
    assert loaded(incoming(consumers=10_000)).incoming["orders"].consumers == 10_000
