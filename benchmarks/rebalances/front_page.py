"""The table of the README, and of the page about performance, that compares rolling restarts.

``python -m benchmarks.rebalances.front_page`` copies it from ``benchmarks/rebalance_results.md``,
which ``make bench-rebalance`` writes.
"""

from __future__ import annotations

from benchmarks.peers.front_page import between
from benchmarks.peers.homes import ROOT

RESULTS = ROOT / "benchmarks" / "rebalance_results.md"
PAGES = (ROOT / "README.md", ROOT / "docs" / "performance.md")
MARK = "rebalances"
COLUMNS = {
    "stay, but revoked": "partitions revoked that stay",
    "longest pause untouched, s": "longest pause of one that stays",
    "longest pause moved, s": "of one that moves",
    "p99 age, s": "p99 age of a record",
    "duplicates": "repeated",
    "lost": "lost",
}
"""Column of the results -> what it is called here."""


def table(results: str) -> list[str]:
    """The lines of the table; times are in seconds."""
    rows = [_cells(line) for line in results.splitlines() if line.startswith("| ")]
    head = next(row for row in rows if row[0] == "contender")
    places = [head.index(column) for column in COLUMNS]
    lines = [
        f"| six members, one restarted after the other | {' | '.join(COLUMNS.values())} |",
        "|---|" + "---:|" * len(COLUMNS),
    ]
    for row in rows:
        if len(row) == len(head) and row is not head:
            cells = [row[place] for place in places]
            cells[1:4] = [cell if cell == "–" else f"{cell} s" for cell in cells[1:4]]
            lines.append(f"| {_name(row[0])} | {' | '.join(cells)} |")
    return lines


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("| ").split(" | ")]


def _name(contender: str) -> str:
    return f"**{contender}**" if contender.startswith("reactive_kafka") else contender


def with_table(page: str, results: str) -> str:
    """The page with the table of *results* between its marks."""
    return between(page, MARK, table(results))


def main() -> None:
    """Write the table into those of the pages that have its marks."""
    for page in PAGES:
        text = page.read_text()
        if f"<!-- {MARK} -->" in text:
            page.write_text(with_table(text, RESULTS.read_text()))


if __name__ == "__main__":
    main()
