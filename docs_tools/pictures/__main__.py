"""Draws the pictures into docs/pictures: ``make docs-pictures``."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from docs_tools.pictures.commits import commit_engine
from docs_tools.pictures.overview import overview
from docs_tools.pictures.rebalance import rebalance
from docs_tools.pictures.record import life_of_a_record
from docs_tools.pictures.spark import spark_batch
from docs_tools.repository import ROOT

FOLDER = ROOT / "docs" / "pictures"
PICTURES: Mapping[str, Callable[[], str]] = {
    "overview": overview,
    "record": life_of_a_record,
    "commits": commit_engine,
    "rebalance": rebalance,
    "spark": spark_batch,
}

if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(draw(), encoding="utf-8")
