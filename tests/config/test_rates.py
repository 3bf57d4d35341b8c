"""``rate_limit``: a rate for the channel, or one for each value."""

from __future__ import annotations

from typing import Any

import pytest

from reactive_kafka.config.dump import dump
from reactive_kafka.config.incoming_kinds import RateLimit
from tests.config.loading import incoming, loaded, only_problem, problems, unused

BY_ORG = {"rate": "5/s", "by": "header:org"}


def rate_of(*tables: dict[str, Any], environ: dict[str, str] | None = None) -> RateLimit | None:
    merged: dict[str, Any] = {}
    for table in tables:
        merged |= table
    return loaded(merged, environ).incoming["orders"].rate_limit


@pytest.mark.parametrize("by", ["header:org", "key", "partition"])
def test_a_rate_may_be_for_each_value(by: str) -> None:
    settings = loaded(incoming(rate_limit={"rate": "30/m", "by": by}, ordering="key"))
    rate = settings.incoming["orders"].rate_limit
    assert rate is not None
    assert (rate.per_second, rate.by, str(rate)) == (0.5, by, f"30/m by {by}")
    assert dump(settings)["incoming"]["orders"]["rate_limit"] == {"rate": "30/m", "by": by}


def test_a_table_with_a_rate_only_is_a_rate_for_the_channel() -> None:
    assert rate_of(incoming(rate_limit={"rate": "5/s"})) == rate_of(incoming(rate_limit="5/s"))


@pytest.mark.parametrize("table", [{}, {"by": "key"}])
def test_a_table_has_a_rate(table: dict[str, str]) -> None:
    line = only_problem(incoming(rate_limit=table, ordering="key"))
    assert "rate is missing in rate_limit; it is a number of records, above 0" in line
    assert "[incoming.orders" in line


@pytest.mark.parametrize("by", ["header:", "org", "topic", "", 5, "header"])
def test_other_values_are_refused_with_what_is_allowed(by: Any) -> None:
    line = only_problem(incoming(rate_limit={"rate": "5/s", "by": by}))
    assert "rate_limit.by" in line
    assert '"header:NAME", "key" or "partition"' in line


@pytest.mark.parametrize("rate", ["0/s", "-1/s", 5, "5"])
def test_the_rate_in_a_table_is_above_0(rate: Any) -> None:
    line = only_problem(incoming(rate_limit={"rate": rate, "by": "key"}))
    assert "rate_limit.rate" in line
    assert "above 0" in line


def test_a_misspelt_key_of_the_table_is_told() -> None:
    lines = problems(incoming(rate_limit={"rate": "5/s", "bye": "key"}))
    assert any("did you mean" in line for line in lines)


def test_the_channels_own_limit_replaces_that_of_all_channels_as_a_whole() -> None:
    of_all = {"kafka": {"rate_limit": BY_ORG}}
    inherited = rate_of(of_all, incoming(ordering="key"))
    assert inherited is not None
    assert inherited.by == "header:org"
    own = rate_of(of_all, incoming(rate_limit="7/s"))
    assert own is not None
    assert str(own) == "7/s"
    by_key = rate_of({"kafka": {"rate_limit": "7/s"}}, incoming(rate_limit=BY_ORG, ordering="key"))
    assert str(by_key) == "5/s by header:org"


def test_a_variable_may_change_the_rate_or_replace_the_table() -> None:
    tables = incoming(rate_limit=BY_ORG, ordering="key")
    name = "REACTIVE_KAFKA__INCOMING__ORDERS__RATE_LIMIT"
    assert str(rate_of(tables, environ={f"{name}__RATE": "9/s"})) == "9/s by header:org"
    assert str(rate_of(tables, environ={name: "9/s"})) == "9/s"
    one_rate = incoming(rate_limit="5/s", ordering="key")
    assert str(rate_of(one_rate, environ={f"{name}__BY": "key"})) == "5/s by key"


def test_an_order_by_partition_is_told_to_hold_back_other_values() -> None:
    (line,) = unused(incoming(rate_limit=BY_ORG))
    assert "rate_limit.by = 'header:org': slows down other values, too" in line
    assert not unused(incoming(rate_limit=BY_ORG, ordering="unordered"))
    assert not unused(incoming(rate_limit={"rate": "5/s", "by": "partition"}))
