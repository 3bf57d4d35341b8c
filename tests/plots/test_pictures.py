"""Pictures and tables of docs/performance.md, from figures that are kept or made by hand; nothing
is measured.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from pathlib import Path

import pytest

from benchmarks import floor
from benchmarks.plots import figures, flame, page, pictures, stacks
from benchmarks.plots.__main__ import order_of, whole
from benchmarks.plots.charts import Axis, Chart, Scale, Series, drawn
from benchmarks.plots.figures import Figures, Measured
from benchmarks.plots.plan import AT_FULL_SPEED, FLOOR, PLANS, RATES, SERIES
from benchmarks.plots.work import QUANTILES

MOST_BYTES = 150_000
SVG = "{http://www.w3.org/2000/svg}"
STACKS = {
    "asyncio/base_events.py:run;reactive_kafka/delivery/records.py:_run": 6,
    "asyncio/base_events.py:run;reactive_kafka/delivery/records.py:_run;benchmarks/plots/work.py:f.<locals>.handle": 3,
    "asyncio/base_events.py:run;aiokafka/conn.py:_read;asyncio/streams.py:read": 1,
}


def a_run(number: int) -> dict[str, object]:
    ages = [[share, 0.1 + share * number] for share in QUANTILES]
    return {"rate": 1_000.0 * number, "cpu_us": 10.0 / number, "quantiles": ages}


def some_figures() -> dict[str, Figures]:
    """Of each series, of no particular size."""
    counter = itertools.count(1)
    every = {
        name: Figures(
            circumstances=["a machine"],
            points=[
                Measured(line=line, at=at, runs=[a_run(next(counter))], stacks=STACKS)
                for line, at in order_of(name)
            ],
        )
        for name in PLANS
    }
    pythons = [
        {"python": f"3.{minor}", "ns": dict.fromkeys(floor.NAMES, float(minor))}
        for minor in (11, 12)
    ]
    return every | {FLOOR: Figures(circumstances=["a machine"], pythons=pythons)}


def texts_of(picture: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(picture).iter(f"{SVG}text")]


# -- what is kept


def test_every_series_is_kept_whole() -> None:
    assert whole(figures.kept(SERIES)).keys() == set(SERIES)


@pytest.mark.parametrize("file", pictures.DRAWN)
def test_a_picture_is_the_one_of_the_kept_figures(file: str) -> None:
    there = (figures.FOLDER / file).read_text(encoding="utf-8")
    assert there == pictures.pictures(figures.kept(SERIES))[file], (
        "python -m benchmarks.plots --draw"
    )
    assert len(there.encode()) < MOST_BYTES


@pytest.mark.parametrize("path", page.PAGES, ids=lambda path: path.name)
def test_a_page_holds_the_tables_of_the_kept_figures(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert page.written(text, figures.kept(SERIES)) == text, "python -m benchmarks.plots --draw"


def test_the_pages_have_each_table_and_each_picture_and_no_other() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in page.PAGES)
    assert set(re.findall(r"<!-- plots: ([a-z-]+) -->", text)) == page.BLOCKS.keys()
    assert set(re.findall(r"images/performance/([\w-]+\.svg)\)", text)) == pictures.DRAWN.keys()
    assert {one.name for one in figures.FOLDER.glob("*.svg")} == pictures.DRAWN.keys()


def test_figures_come_out_of_a_file_as_they_went_into_it() -> None:
    for series in some_figures().values():
        assert figures.read(series.text()) == series


def test_points_that_are_measured_anew_replace_those_that_are_kept_and_no_others() -> None:
    order: list[tuple[str, float | str]] = [("a", 1), ("a", 2), ("b", 1)]
    old = Figures(
        circumstances=["then"],
        points=[Measured(line=line, at=at, runs=[{"rate": 1.0}]) for line, at in order],
    )
    new = Figures(circumstances=["now"], points=[Measured(line="a", at=2, runs=[{"rate": 5.0}])])
    merged = new.merged(old, order)
    assert [(one.line, one.at, one.median("rate")) for one in merged.points] == [
        ("a", 1, 1.0),
        ("a", 2, 5.0),
        ("b", 1, 1.0),
    ]
    assert merged.circumstances == ["now"]
    assert new.merged(None, order).points == new.points


def test_the_samples_of_all_runs_of_a_point_are_added_up() -> None:
    point = Measured(line="a", at=1)
    for number in (1.0, 3.0):
        point.add({"rate": number, "stacks": {"f": 2, f"g{number:g}": 1}})
    assert point.values("rate") == [1.0, 3.0]
    assert point.stacks == {"f": 4, "g1": 1, "g3": 1}
    assert point.runs == [{"rate": 1.0}, {"rate": 3.0}]


def test_a_series_with_a_point_missing_is_not_drawn() -> None:
    every = some_figures()
    every["keys"].points.pop()
    assert whole(every).keys() == set(SERIES) - {"keys"}
    text = "<!-- plots: keys -->\nas before\n<!-- /plots -->\n<!-- plots: in-flight -->\n<!-- /plots -->"
    written = page.written(text, whole(every))
    assert "as before" in written
    assert "| `concurrency` |" in written


# -- what is drawn


@pytest.mark.parametrize("file", pictures.DRAWN)
def test_any_figures_give_a_picture_that_is_well_formed_and_has_a_scheme_for_the_dark(
    file: str,
) -> None:
    picture = pictures.pictures(some_figures())[file]
    root = ET.fromstring(picture)
    assert root.tag == f"{SVG}svg"
    assert "prefers-color-scheme:dark" in picture
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for element in root.iter(f"{SVG}text"):
        assert 0 <= float(element.attrib["x"]) <= width
        assert 0 <= float(element.attrib["y"]) <= height


@pytest.mark.parametrize(
    ("file", "names"),
    [
        (
            "partitions.svg",
            [pictures.plain(name) for name in ("aiokafka getmany(500)", "reactive_kafka, bytes")],
        ),
        ("keys.svg", ['ordering = "key"', 'ordering = "partition"']),
        ("in-flight.svg", ["a handler that waits 10 ms", "if nothing but the wait took time"]),
        (
            "latency.svg",
            [
                f"{who}, {rate:,}/s"
                for who in ("aiokafka getmany", "reactive_kafka")
                for rate in RATES
            ],
        ),
        ("tuning.svg", [pictures.plain(one.name) for one in AT_FULL_SPEED]),
        ("stages.svg", [*stacks.STAGES, "reactive_kafka, Message", "reactive_kafka, bytes"]),
        ("flame.svg", [*stacks.STAGES]),
        ("floor.svg", ["3.11", "3.12"]),
    ],
)
def test_a_picture_names_every_series(file: str, names: Iterable[str]) -> None:
    said = texts_of(pictures.pictures(some_figures())[file])
    assert [name for name in names if name not in said] == []


def test_a_line_goes_through_its_points() -> None:
    chart = Chart(
        title="t",
        x=Axis(label="x", is_log=True, ticks=(1, 100)),
        y=Axis(label="y", most=10.0),
        series=[Series(name="a", points=[(1, 0), (10, 5), (100, 10)])],
    )
    (line,) = ET.fromstring(drawn(chart)).iter(f"{SVG}polyline")
    (x1, y1), (x2, y2), (x3, y3) = (
        [float(one) for one in point.split(",")] for point in line.attrib["points"].split()
    )
    assert x2 - x1 == pytest.approx(x3 - x2, abs=0.2)
    assert y1 - y2 == pytest.approx(y2 - y3, abs=0.2)
    assert y3 < y1, "up is less on a picture"


@pytest.mark.parametrize(
    ("axis", "values", "ticks"),
    [
        (Axis(label=""), [0, 57], [0, 10, 20, 30, 40, 50]),
        (Axis(label=""), [0, 0.57], [0, 0.1, 0.2, 0.3, 0.4, 0.5]),
        (Axis(label="", is_log=True), [0.3, 1_500], [1, 10, 100, 1_000]),
        (Axis(label="", is_log=True), [2.2, 30], [2, 5, 10, 20, 50]),
        (Axis(label="", is_log=True, ticks=(1, 4)), [2, 3], [1, 4]),
    ],
)
def test_ticks_are_round(axis: Axis, values: list[float], ticks: list[float]) -> None:
    assert Scale(axis, values, 0, 100).ticks() == pytest.approx(ticks)


# -- stacks


@pytest.mark.parametrize(
    ("stack", "stage"),
    [
        (["asyncio/base_events.py:run"], "event loop"),
        (["asyncio/base_events.py:run", "aiokafka/conn.py:send"], "fetch and parse"),
        (["reactive_kafka/broker/aiokafka/record_poller.py:RecordPoller.poll"], "fetch and parse"),
        (
            [
                "reactive_kafka/channel/client_connection.py:poll",
                "reactive_kafka/fetching/intake.py:RecordIntake.take",
            ],
            "tracker",
        ),
        (
            [
                "reactive_kafka/fetching/intake.py:RecordIntake.take",
                "reactive_kafka/tracking/tracker.py:deliver",
            ],
            "tracker",
        ),
        (["reactive_kafka/delivery/records.py:_run", "asyncio/tasks.py:sleep"], "dispatch"),
        (
            [
                "reactive_kafka/delivery/records.py:_run",
                "benchmarks/plots/work.py:add.<locals>.handle",
            ],
            "handler",
        ),
        (["benchmarks/plots/work.py:main", "asyncio/runners.py:run"], "event loop"),
        (["reactive_kafka/commit/committer.py:Committer.commit"], "commit"),
        (
            ["reactive_kafka/commit/committer.py:commit", "aiokafka/client.py:send"],
            "fetch and parse",
        ),
        (["reactive_kafka/observe/prometheus.py:collect"], "metrics and health"),
        (["reactive_kafka/channel/channel.py:Channel.run"], "channel"),
    ],
)
def test_a_sample_belongs_to_the_stage_of_the_innermost_function_that_has_one(
    stack: list[str], stage: str
) -> None:
    assert stacks.stage_of(tuple(stack)) == stage


def test_the_shares_of_the_stages_are_of_all_samples() -> None:
    shares = stacks.by_stage(stacks.unfolded(STACKS))
    assert shares.keys() == set(stacks.STAGES)
    assert (shares["dispatch"], shares["handler"], shares["fetch and parse"]) == pytest.approx(
        (0.6, 0.3, 0.1)
    )
    assert sum(shares.values()) == pytest.approx(1)


def test_each_folder_of_a_stage_is_there() -> None:
    for place, _ in stacks.FOLDERS:
        assert place == "aiokafka/" or (stacks.ROOT / place).exists(), place


def test_rare_functions_count_for_their_caller_and_no_sample_is_lost() -> None:
    every = {("a", "b"): 90, ("a", "b", "c"): 8, ("a", "b", "d"): 1, ("a", "e"): 1}
    assert stacks.without_rare(every, 0.05) == {("a", "b"): 91, ("a", "b", "c"): 8, ("a",): 1}


def test_a_flame_graph_is_as_wide_as_the_shares_and_says_what_each_function_takes() -> None:
    picture = flame.drawn({("f.py:a",): 3, ("f.py:a", "g.py:b"): 1}, "graph", 2.0)
    boxes = {
        title.text: float(box.attrib["width"])
        for box in ET.fromstring(picture).iter(f"{SVG}rect")
        if (title := box.find(f"{SVG}title")) is not None
    }
    assert boxes.keys() == {
        "all: 2.000 µs a record",
        "f.py:a: 2.000 µs a record",
        "g.py:b: 0.500 µs a record",
    }
    assert boxes["g.py:b: 0.500 µs a record"] == pytest.approx(
        boxes["all: 2.000 µs a record"] / 4, abs=0.1
    )


def test_what_was_found_where_a_function_begins_has_passed_in_its_caller() -> None:
    sampler = stacks.Sampler()

    def callee() -> None:
        pass

    def caller() -> None:
        while sampler.stacks.total() < 20:
            callee()

    sampler.start()
    try:
        caller()
    finally:
        sampler.stop()
    innermost = {stack[-1].rpartition(".")[2] for stack in sampler.stacks}
    assert "caller" in innermost
    assert "callee" not in innermost


def test_a_coroutine_that_does_nothing_is_seen() -> None:
    sampler = stacks.Sampler()

    async def callee() -> None:
        pass

    async def caller() -> None:
        while sampler.stacks.total() < 50:
            await callee()

    sampler.start()
    try:
        asyncio.run(caller())
    finally:
        sampler.stop()
    assert {stack[-1].rpartition(".")[2] for stack in sampler.stacks if stack} >= {
        "caller",
        "callee",
    }
    assert not any(stacks.TURN in stack for stack in sampler.stacks)


@pytest.mark.parametrize(
    ("file", "short"),
    [
        (stacks.__file__, "benchmarks/plots/stacks.py"),
        (f"{stacks.ROOT}/.venv/lib/python3.11/site-packages/aiokafka/conn.py", "aiokafka/conn.py"),
        (asyncio.__file__, "asyncio/__init__.py"),
    ],
)
def test_a_function_is_named_by_the_package_that_it_is_in(file: str, short: str) -> None:
    assert stacks.shortened(file) == short
