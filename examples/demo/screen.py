"""What the demo shows: a live table where there is a terminal, lines every few seconds
elsewhere.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from reactive_kafka.cli.spark_progress import bars
from reactive_kafka.observe.log_setup import configure_logging
from reactive_kafka.observe.wording import progress_text, short_id

if TYPE_CHECKING:
    from reactive_kafka.observe.facts import AppFacts, ChannelFacts, PartitionFacts
    from reactive_kafka.observe.health import Health

LINES_EVERY_S = 5.0
COLUMNS = (
    "channel",
    "partition",
    "position",
    "committed",
    "lag",
    "in flight",
    "oldest unacked",
    "health",
)
# That a channel has started is in the table.
LEVEL = logging.WARNING


class Row(NamedTuple):
    """One partition of a channel, as text in the order of COLUMNS."""

    channel: str
    partition: str
    position: str
    committed: str
    lag: str
    in_flight: str
    oldest_unacked: str
    health: str


class Screen(Protocol):
    """Where the demo speaks."""

    def say(self, text: str) -> None:
        """Show a line that stays."""

    def show(self, facts: AppFacts, health: Health, title: str, *, is_last: bool = False) -> None:
        """Show how things stand now; the last time too, however short ago the one before was."""

    def close(self) -> None:
        """Stop showing; what was said stays."""


def make_screen() -> Screen:
    """A live table on a terminal with rich, else lines."""
    logging.getLogger("reactive_kafka").addFilter(_is_news)
    if sys.stdout.isatty() and find_spec("rich") is not None:
        return LiveScreen()
    return LineScreen()


def _is_news(record: logging.LogRecord) -> bool:
    """All but that nothing is committed yet: in the demo's new groups nothing can be."""
    return getattr(record, "event_type", None) != "OffsetReset"


def rows(facts: AppFacts, health: Health) -> list[Row]:
    """A row for each assigned partition; one with dashes for a channel that has none."""
    statuses = {check.name: check.status for check in health.checks}
    return [
        Row(channel.channel, *_cells(partition), statuses.get(channel.channel, "-"))
        for channel in facts.channels
        for partition in _by_partition(channel) or [None]
    ]


def _by_partition(channel: ChannelFacts) -> list[PartitionFacts | None]:
    return [*sorted(channel.partitions, key=lambda facts: facts.partition)]


def _cells(facts: PartitionFacts | None) -> tuple[str, str, str, str, str, str]:
    if facts is None:
        return ("-",) * 6
    oldest = "-" if facts.oldest_unacked_s is None else f"{facts.oldest_unacked_s:.1f} s"
    return (
        str(facts.partition.partition),
        str(facts.position),
        _number(facts.committed),
        _number(facts.lag),
        str(facts.in_flight),
        oldest,
    )


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def channel_lines(facts: AppFacts, health: Health) -> list[str]:
    """One line a channel, its partitions summed up, and one for each Spark batch that runs."""
    statuses: Mapping[str, Literal["UP", "DOWN"]] = {
        check.name: check.status for check in health.checks
    }
    lines = []
    for channel in facts.channels:
        partitions = channel.partitions
        oldest_s = max((facts.oldest_unacked_s or 0.0 for facts in partitions), default=0.0)
        lag = sum(facts.lag or 0 for facts in partitions)
        in_flight = sum(facts.in_flight for facts in partitions)
        lines.append(
            f"{channel.channel:<9} {len(partitions)} partitions, lag {lag}, "
            f"in flight {in_flight}, oldest unacked {oldest_s:.1f} s, "
            f"{statuses.get(channel.channel, '-')}"
        )
    for session in facts.spark:
        lines += [
            f"{session.channel} {short_id(batch.id)}: {progress_text(batch)}"
            for batch in session.running
        ]
    return lines


class LineScreen:
    """Plain lines on stdout, a few every five seconds."""

    def __init__(self) -> None:
        configure_logging(level=LEVEL)
        self._last_s: float | None = None

    def say(self, text: str) -> None:
        print(text, flush=True)

    def show(self, facts: AppFacts, health: Health, title: str, *, is_last: bool = False) -> None:
        now = time.monotonic()
        if not is_last and self._last_s is not None and now - self._last_s < LINES_EVERY_S:
            return
        self._last_s = now
        print(
            "\n".join((title, *(f"  {line}" for line in channel_lines(facts, health)))), flush=True
        )

    def close(self) -> None:
        """There is nothing to stop."""


class LiveScreen:
    """A table that is redrawn in place, under it the Spark batches that run; log lines scroll by
    above.
    """

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console()
        self._live: Any = Live(console=self._console, auto_refresh=False)
        self._live.start()
        # To the stderr of this moment, which writes above the table.
        configure_logging(level=LEVEL)

    def say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False)

    def show(self, facts: AppFacts, health: Health, title: str, *, is_last: bool = False) -> None:
        from rich.console import Group

        running = bars(facts.spark, self._console.width)
        drawn = table(rows(facts, health), title)
        self._live.update(drawn if running is None else Group(drawn, running), refresh=True)

    def close(self) -> None:
        self._live.stop()
        configure_logging(level=LEVEL)


def table(shown: Sequence[Row], title: str) -> Any:
    """The rows as a rich table."""
    from rich.table import Table

    drawn = Table(title=title, title_justify="left")
    for column in COLUMNS:
        drawn.add_column(column, justify="left" if column in ("channel", "health") else "right")
    for index, row in enumerate(shown):
        is_last = index + 1 == len(shown) or shown[index + 1].channel != row.channel
        style = "" if row.health == "UP" else "red"
        drawn.add_row(*row, style=style, end_section=is_last)
    return drawn
