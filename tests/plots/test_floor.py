"""What Python's own operations take, and what of a record's cost they are."""

from __future__ import annotations

import asyncio

import pytest

from benchmarks import decoding, floor
from benchmarks.orders import as_json


def test_each_operation_can_be_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(floor, "LOOPS", 200)
    monkeypatch.setattr(floor, "RUNS", 3)
    taken = {one.name: asyncio.run(floor.timed(one)) for one in floor.OPERATIONS}
    assert taken[floor.FIELDS] > taken[floor.TEST]
    assert (floor.parsed() or 0) > 0


def test_the_floor_counts_each_operation_as_often_as_the_loop_does_it() -> None:
    ns = dict.fromkeys((one.name for one in floor.OPERATIONS), 1.0)
    assert floor.floor(ns, with_message=True) == sum(one.with_message for one in floor.OPERATIONS)
    assert floor.floor(ns, with_message=False) == sum(one.with_bytes for one in floor.OPERATIONS)
    assert (
        floor.floor({**ns, floor.CREATE: 100.0}, with_message=True)
        - floor.floor(ns, with_message=True)
        == 99
    )
    assert floor.floor({**ns, floor.CREATE: 100.0}, with_message=False) == floor.floor(
        ns, with_message=False
    )


def test_the_table_of_the_floor_has_a_row_an_operation_and_leaves_out_what_was_not_timed() -> None:
    ns = {name: 2.0 for name in floor.NAMES if name != floor.PARSE}
    lines = floor.table(
        [{"python": "3.11, plain", "ns": {**ns, floor.LOOP_MESSAGE: 100.0}}]
    ).splitlines()
    assert len(lines) == 2 + len(floor.NAMES) + 6
    assert f"| {floor.PARSE} | - | 1 | 1 |" in lines
    assert any(line.startswith("| the sum's share of it | 44%") for line in lines), lines


def test_each_decoder_can_be_timed_and_ours_reads_what_the_library_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(decoding, "RUNS", 1)
    read = decoding.decoders()
    assert read.keys() == set(decoding.NAMES)
    order = as_json(7)
    for kind in decoding.KINDS:
        alone, ours = (read[text.format(kind)](order) for text in (decoding.LIBRARY, decoding.OURS))
        assert ours == alone
        assert (ours["id"] if isinstance(ours, dict) else ours.id) == 7
    taken = decoding.taken()
    assert taken.keys() == read.keys()
    assert min(taken.values()) > 0


def test_the_table_of_decoders_leaves_out_a_python_without_the_packages() -> None:
    with_them = {"python": "3.11, plain", "decoding": dict.fromkeys(decoding.NAMES, 250.4)}
    lines = decoding.table(
        [with_them, {"python": "3.12, plain", "decoding": {}}, {"python": "3.13"}]
    ).splitlines()
    assert lines[:2] == ["| ns an order | 3.11, plain |", "|---|---:|"]
    assert lines[2:] == [f"| {name} | 250 |" for name in decoding.NAMES]
