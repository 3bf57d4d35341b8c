"""What the demo shows of an application's facts."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from examples.demo.screen import LineScreen, LiveScreen, channel_lines, rows, table
from reactive_kafka.observe.health import health
from tests.observe.samples import ORDERS_0, ORDERS_1, app, batch, channel, partition, poison, spark


def test_there_is_a_row_for_each_partition_in_order() -> None:
    facts = app(channel(partitions=(partition(partition=ORDERS_1), partition(partition=ORDERS_0))))
    assert [row.partition for row in rows(facts, health(facts))] == ["0", "1"]


def test_a_channel_without_partitions_has_a_row_too() -> None:
    facts = app(channel(partitions=()))
    (row,) = rows(facts, health(facts))
    assert row[1:7] == ("-",) * 6


def test_a_poisoned_channel_is_down() -> None:
    facts = app(channel(on_poison="pause-partition", poison=(poison(),)))
    assert {row.health for row in rows(facts, health(facts))} == {"DOWN"}
    assert channel_lines(facts, health(facts))[0].endswith("DOWN")


def test_the_table_has_every_column_and_cell() -> None:
    facts = app(channel())
    shown = rows(facts, health(facts))
    file = io.StringIO()
    console = Console(file=file, width=120)
    console.print(table(shown, "12 of 30 s"))
    drawn = file.getvalue()
    for text in ("12 of 30 s", "oldest unacked", "committed", *shown[0]):
        assert text in drawn


def test_lines_come_every_five_seconds_and_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    facts = app(channel())
    screen = LineScreen()
    screen.show(facts, health(facts), "0 of 30 s")
    screen.show(facts, health(facts), "1 of 30 s")
    screen.show(facts, health(facts), "30 of 30 s", is_last=True)
    out = capsys.readouterr().out
    assert [line for line in out.splitlines() if line.endswith(" s")] == ["0 of 30 s", "30 of 30 s"]


def test_the_live_table_has_a_bar_under_it_for_each_spark_batch_that_runs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    busy = app(channel(), spark=(spark(running=(batch(), batch(id="beef"))),))
    screen = LiveScreen()
    screen.show(busy, health(busy), "12 of 30 s")
    # Without a terminal all is drawn once, at the end.
    screen.close()
    last = [line for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert [line[:11] for line in last[-2:]] == ["clicks 7f3a", "clicks beef"]
    assert any("12 of 30 s" in line for line in last)
