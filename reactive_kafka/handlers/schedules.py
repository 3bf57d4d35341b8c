"""When what ``@app.every`` and ``@app.cron`` declare is due. The rules are told the time, by both
clocks.
"""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from typing import Protocol
from zoneinfo import ZoneInfo

from reactive_kafka.config.kinds import SOME_TIME
from reactive_kafka.errors import ConfigError, MissingExtraError


class Schedule(Protocol):
    """When one job is due; *now* is by the monotonic clock, *wall* in seconds since the epoch."""

    def begin(self, now: float, wall: float) -> None:
        """It may run from here on, maybe again: what was due before is left out."""

    def wait_s(self, now: float, wall: float) -> float:
        """How long it is until it is due; 0 or less: it is."""

    def runs(self, now: float, wall: float) -> None:
        """It begins to run, as it is due."""

    def left_out(self, now: float, wall: float) -> bool:
        """It has ended: whether it was due again meanwhile. Those times have passed, and the next
        one follows.
        """


class Every:
    """Due each *interval_s* by the monotonic clock, which no jump of the other one moves.

    With *is_shared* the first time is the next multiple of the interval since the epoch, so that it
    stays the same whoever has the partition.
    """

    def __init__(self, interval_s: float, *, is_shared: bool = False) -> None:
        self._interval_s = interval_s
        self._is_shared = is_shared
        self._due = 0.0
        self._ran: float | None = None

    def begin(self, now: float, wall: float) -> None:
        self._due = now + self._interval_s - (wall % self._interval_s if self._is_shared else 0.0)
        # The clocks drift apart: the moment at which it ran last may come once more by the other
        # one.
        if self._ran is not None and self._due - self._ran < self._interval_s / 2:
            self._due += self._interval_s

    def wait_s(self, now: float, wall: float) -> float:
        return self._due - now

    def runs(self, now: float, wall: float) -> None:
        self._ran = now
        self._pass(now)

    def left_out(self, now: float, wall: float) -> bool:
        is_due = self._due <= now
        if is_due:
            self._pass(now)
        return is_due

    def _pass(self, now: float) -> None:
        self._due += self._interval_s * max(1, int((now - self._due) // self._interval_s) + 1)


class Cron:
    """Due at the times of a cron expression in a zone, by the wall clock.

    A clock that is set forward past one of them has it run once. One that is set back has nothing
    run twice, unless it goes back further than the expression's own times lie apart: then it was
    wrong before, and what it says now counts.
    """

    def __init__(self, expression: str, zone: tzinfo) -> None:
        self._expression = expression
        self._zone = zone
        self._since = self._next = 0.0

    def begin(self, now: float, wall: float) -> None:
        self._go_on(max(wall, self._since))

    def wait_s(self, now: float, wall: float) -> float:
        if self._next - wall > 2 * (self._next - self._since):
            self._go_on(wall)
        return self._next - wall

    def runs(self, now: float, wall: float) -> None:
        self._go_on(max(wall, self._next))

    def left_out(self, now: float, wall: float) -> bool:
        is_due = self._next <= wall
        if is_due:
            self._go_on(wall)
        return is_due

    def _go_on(self, since: float) -> None:
        self._since = since
        self._next = self._after(since)

    def _after(self, wall: float) -> float:
        return _next_time(self._expression, datetime.fromtimestamp(wall, self._zone)).timestamp()


def _next_time(expression: str, since: datetime) -> datetime:
    """The first time after *since* that fits, in its zone. ValueError: the expression cannot be
    read, or none fits.

    What an hour has that a zone leaves out comes right after it, and what it has twice comes once,
    unless the expression names no hour. Source: cronsim, which does what Debian's cron does.
    """
    try:
        from cronsim import CronSim, CronSimError
    except ImportError:
        raise MissingExtraError("@app.cron", "cron") from None
    try:
        return next(CronSim(expression, since))
    except CronSimError as error:
        raise ValueError(str(error)) from None
    except StopIteration:
        raise ValueError("no time fits it") from None


def every(who: str, interval: object, *, is_shared: bool) -> Every:
    """The schedule of ``@app.every(interval)``. ConfigError: that is no time above 0."""
    try:
        return Every(SOME_TIME.parse(interval), is_shared=is_shared)
    except ValueError as error:
        raise ConfigError(f"{who}: {error}") from None


def cron(who: str, expression: object, tz: object) -> Cron:
    """The schedule of ``@app.cron(expression, tz=tz)``.

    Raises:
        ConfigError: The expression cannot be read, or no time fits it, or there is no such zone.
        MissingExtraError: cronsim is not installed.
    """
    zone = _zone(tz)
    if zone is None:
        raise ConfigError(f'{who}: expected the name of a time zone: "UTC", "Europe/Berlin"')
    try:
        if not isinstance(expression, str):
            raise ValueError("a string")
        _next_time(expression, datetime.now(zone))
    except ValueError as error:
        raise ConfigError(
            f'{who}: expected a cron expression such as "0 3 * * *": {error}'
        ) from None
    return Cron(expression, zone)


def _zone(name: object) -> tzinfo | None:
    # Needs no database.
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name) if isinstance(name, str) else None
    except (KeyError, ValueError, OSError):
        # No such key; no key at all; a folder of the database.
        return None
