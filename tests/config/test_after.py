"""``after``: which channels may come before another one."""

from __future__ import annotations

from typing import Any

import pytest

from reactive_kafka.config.dump import dump
from tests.config.loading import loaded, only_problem, problems


def channels(**after: Any) -> dict[str, Any]:
    """Tables of incoming channels, each with its ``after``; None: it has none."""
    return {
        "incoming": {
            name: {"group_id": name} | ({} if names is None else {"after": names})
            for name, names in after.items()
        }
    }


def test_a_channel_names_those_before_it() -> None:
    settings = loaded(channels(recalc=["upload", "urgent"], upload=None, urgent="upload"))
    assert settings.incoming["recalc"].after == ("upload", "urgent")
    assert settings.incoming["urgent"].after == ("upload",)
    assert settings.incoming["upload"].after == ()
    assert dump(settings)["incoming"]["recalc"]["after"] == ["upload", "urgent"]


def test_an_unknown_channel_is_named_with_those_that_exist() -> None:
    line = only_problem(channels(recalc=["uplod"], upload=None))
    assert "[incoming.recalc] after = ['uplod']: there is no [incoming.uplod]" in line
    assert "(there are 'upload'); did you mean 'upload'?" in line


def test_outgoing_channels_are_none_of_them() -> None:
    tables = channels(recalc=["invoices"]) | {"outgoing": {"invoices": {}}}
    assert "there is no [incoming.invoices] (there are none)" in only_problem(tables)


def test_a_channel_does_not_wait_for_itself() -> None:
    line = only_problem(channels(recalc=["recalc"], upload=None))
    assert "a channel cannot wait for itself" in line


@pytest.mark.parametrize(
    ("after", "chain"),
    [
        ({"a": ["b"], "b": ["a"]}, "'a' after 'b' after 'a'"),
        ({"a": ["b"], "b": ["c"], "c": ["d"], "d": ["b"]}, "'b' after 'c' after 'd' after 'b'"),
        ({"a": ["b", "c"], "b": None, "c": ["a"]}, "'a' after 'c' after 'a'"),
    ],
)
def test_a_circle_is_shown(after: dict[str, Any], chain: str) -> None:
    line = only_problem(channels(**after))
    assert f"these channels would wait for each other: {chain}" in line


def test_two_ways_to_one_channel_are_no_circle() -> None:
    assert not loaded(channels(a=["b", "c"], b=["d"], c=["d"], d=None)).warnings


@pytest.mark.parametrize("value", [[], "", 5, ["a", "a"], [""]])
def test_other_values_are_refused(value: Any) -> None:
    (line,) = problems(channels(recalc=value, a=None))
    assert "a list of different names of incoming channels" in line


def test_it_is_no_default_of_all_channels() -> None:
    tables = channels(a=None) | {"kafka": {"after": ["a"]}}
    assert "after" in only_problem(tables)
