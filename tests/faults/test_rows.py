"""Each row of docs/faults.md has a test that says so."""

from __future__ import annotations

from pathlib import Path

from tests.faults.rows import ROWS, TESTS, claims, written

PAGE = TESTS.parent / "docs" / "faults.md"


EACH = {
    "A": 14,
    "B": 10,
    "C": 14,
    "D": 15,
    "E": 8,
    "F": 18,
    "G": 8,
    "H": 5,
    "I": 5,
    "J": 11,
    "S": 15,
}


def test_no_row_has_gone() -> None:
    names = {"H": "H-{}"}
    assert list(ROWS) == [
        names.get(at, at + "{}").format(one + 1) for at, rows in EACH.items() for one in range(rows)
    ]


def test_every_row_has_a_test() -> None:
    shown = {claim.row for claim in claims()}
    assert shown <= ROWS.keys(), "a test names a row that there is not"
    assert not ROWS.keys() - shown, "no test names these rows"


def test_the_page_holds_the_table_as_it_is_now() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert written(page) == page, "python -m tests.faults.rows docs/faults.md"


def test_a_test_claims_the_rows_of_its_docstring_and_no_other_text_does(tmp_path: Path) -> None:
    module = '''
"""Row A1 of the faults."""
def test_one():
    """It holds.

    Rows B1, B2 and H-3 of the faults.
    """
    "Row C1 of the faults."
class TestMore:
    async def test_two(self):
        """It holds too. Row D1 of the faults."""
    def helper(self):
        """Row E1 of the faults."""
'''
    (tmp_path / "test_it.py").write_text(module)
    found = sorted((claim.row, claim.test) for claim in claims(tmp_path))
    assert found == [
        ("B1", "tests/test_it.py::test_one"),
        ("B2", "tests/test_it.py::test_one"),
        ("D1", "tests/test_it.py::TestMore::test_two"),
        ("H-3", "tests/test_it.py::test_one"),
    ]
