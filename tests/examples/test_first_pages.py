"""The first pages that a newcomer reads: each command does and prints what the page shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.examples.typed_page import TypedPage, printed


@pytest.mark.kafka
@pytest.mark.parametrize(
    ("page", "at_least"), [("docs/quickstart.md", 6), ("docs/tutorial.md", 14)]
)
def test_an_empty_folder_becomes_what_the_page_promises(
    page: str, at_least: int, tmp_path: Path
) -> None:
    assert TypedPage(page, tmp_path).run() >= at_least


@pytest.mark.parametrize(
    ("expected", "output", "same"),
    [
        ("one\n", "one\n", True),
        ("one\n", "one\ntwo\n", False),
        ("one\n...\n", "one\ntwo\nthree\n", True),
        ("one and ...\n", "one and two\n", True),
        ("one and ...\n", "two and one\n", False),
        ("orders-2 offset 7: no\n", "orders-0 offset 1: no\n", True),
        ("1 passed in 0.11s\n", "1 failed in 0.11s\n", False),
    ],
)
def test_what_a_page_shows_is_compared_line_by_line(expected: str, output: str, same: bool) -> None:
    assert printed(expected, output, whole=True) is same


def test_what_a_running_command_prints_may_have_lines_around_it() -> None:
    assert printed("two\n", "one\ntwo\nthree\n")
    assert not printed("four\n", "one\ntwo\nthree\n")
