"""The figures of long runs: as a table, and in a page."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.figures import table, written

PAGE = Path(__file__).parents[2] / "docs" / "soak.md"


def test_a_table_has_a_line_for_each_figure_and_leaves_lists_out() -> None:
    shown = table(
        {"records": 1234567, "acts": {"kill -9": 3, "latency": 1}, "played": [1], "seed": 5}
    )
    assert shown.splitlines() == [
        "| | |",
        "|---|---|",
        "| records | 1,234,567 |",
        "| acts | kill -9 3, latency 1 |",
        "| seed | 5 |",
    ]


@pytest.mark.parametrize("name", ["soak", "chaos"])
def test_a_page_is_changed_between_its_markers_only(name: str) -> None:
    page = PAGE.read_text(encoding="utf-8")
    changed = written(page, name, "figures")
    assert f"<!-- {name} -->\nfigures\n<!-- /{name} -->" in changed
    assert written(changed, name, "more") == changed.replace("\nfigures\n", "\nmore\n")
    other = "chaos" if name == "soak" else "soak"
    assert changed.count(f"<!-- {other} -->") == changed.count(f"<!-- /{other} -->") == 1


def test_a_page_without_markers_is_refused() -> None:
    with pytest.raises(AssertionError, match="the page has no <!-- soak -->"):
        written("text", "soak", "figures")


@pytest.mark.parametrize("name", ["soak", "chaos"])
def test_the_page_shows_a_run_that_broke_no_promise(name: str) -> None:
    figures = (
        PAGE.read_text(encoding="utf-8")
        .partition(f"<!-- {name} -->")[2]
        .partition(f"<!-- /{name} -->")[0]
    )
    for promise in ("lost", "commits ahead", "broken promises"):
        assert f"| {promise} | 0 |" in figures
