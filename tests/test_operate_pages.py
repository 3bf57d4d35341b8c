"""The pages about choosing and operating say what measurements, code and settings say."""

from __future__ import annotations

import re

from tests import pages


def table(page: str, heading: str) -> list[list[str]]:
    """The rows of the first table below a heading, without its head."""
    text = pages.page(page).read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in text.splitlines()
        if line.startswith("| ")
    ]
    assert rows, f"no table below {heading} in {page}"
    return rows[1:]


def test_the_page_why_repeats_the_measured_rows_of_lost_and_repeated() -> None:
    measured = {
        contender.strip(): (guarantee, lost, kills, restarts)
        for contender, guarantee, _, _, _, lost, kills, restarts in table(
            "benchmarks/peers_results.md", "Lost and repeated"
        )
    }
    shown = table("docs/why.md", "Lost and repeated")
    assert len(shown) >= 10
    for contender, *figures in shown:
        assert measured[contender] == tuple(figures)


def test_the_page_why_hides_no_peer_that_does_better() -> None:
    """Of peers that promise at least once, those that repeat less after kills are shown."""
    rows = table("benchmarks/peers_results.md", "Lost and repeated")
    (ours,) = (int(row[6].replace(",", "")) for row in rows if row[0] == "reactive_kafka")
    better = {
        re.sub(r"[,\s].*", "", row[0])
        for row in rows
        if row[1].startswith("at least once") and int(row[6].replace(",", "")) < ours
    }
    shown = {re.sub(r"[,\s].*", "", row[0]) for row in table("docs/why.md", "Lost and repeated")}
    assert better <= shown
