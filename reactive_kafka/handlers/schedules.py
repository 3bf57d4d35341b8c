"""When the jobs of ``@app.every`` and ``@app.cron`` are due, by the times that they are given."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from typing import Protocol

from reactive_kafka.config.kinds import SOME_TIME
from reactive_kafka.errors import ConfigError, MissingExtraError


class Schedule(Protocol):
    """When one job is due.

    *now* is the time of the monotonic clock, *wall* the seconds since the epoch.
    """

    def begin(self, now: float, wall: float) -> None:
        """Note that the job may run from now on, maybe again. What was due before is left out."""

    def wait_s(self, now: float, wall: float) -> float:
        """Return the seconds until the job is due; 0 or less: it is due."""

    def call_begins(self, now: float, wall: float) -> None:
        """Note that a call begins because the job is due."""

    def call_ended(self, now: float, wall: float) -> bool:
        """Note that the call has ended; return whether the job was due again while it ran.

        Those times are left out.
        """


class Every:
    """Due every *interval_s* by the monotonic clock, which does not jump.

    Args:
        is_shared: The first time is the next multiple of the interval since the epoch. So the
            times stay the same when the partition gets another owner.
    """

    def __init__(self, interval_s: float, *, is_shared: bool = False) -> None:
        self._interval_s = interval_s
        self._is_shared = is_shared
        self._due = 0.0
        self._ran: float | None = None

    def begin(self, now: float, wall: float) -> None:
        passed_s = wall % self._interval_s if self._is_shared else 0.0
        self._due = now + self._interval_s - passed_s
        # The clocks drift apart, so the multiple at which it ran last may seem to come again.
        if self._ran is not None and self._due - self._ran < self._interval_s / 2:
            self._due += self._interval_s

    def wait_s(self, now: float, wall: float) -> float:
        return self._due - now

    def call_begins(self, now: float, wall: float) -> None:
        self._ran = now
        self._pass(now)

    def call_ended(self, now: float, wall: float) -> bool:
        is_due = self._due <= now
        if is_due:
            self._pass(now)
        return is_due

    def _pass(self, now: float) -> None:
        self._due += self._interval_s * max(1, int((now - self._due) // self._interval_s) + 1)


class Cron:
    """Due at the times of a cron expression in a zone, by the wall clock.

    If the clock is set forward past several of these times, the job runs once. If it is set back,
    no time comes twice. An exception is a clock that is set back by more than the times of the
    expression lie apart: it was wrong before, so its new time counts.
    """

    def __init__(self, expression: str, zone: tzinfo) -> None:
        self._expression = expression
        self._zone = zone
        self._since = 0.0
        self._next = 0.0

    def begin(self, now: float, wall: float) -> None:
        self._go_on(max(wall, self._since))

    def wait_s(self, now: float, wall: float) -> float:
        if self._next - wall > 2 * (self._next - self._since):
            self._go_on(wall)
        return self._next - wall

    def call_begins(self, now: float, wall: float) -> None:
        self._go_on(max(wall, self._next))

    def call_ended(self, now: float, wall: float) -> bool:
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
    """Return the first time of the expression after *since*, in the same zone.

    A time within an hour that the zone skips comes right after that hour. A time within an hour
    that the zone repeats comes once, unless the expression names no hour.

    Raises:
        ValueError: The expression cannot be read, or no time fits it.

    Source: cronsim, which does what Debian's cron does.
    """
    try:
        from cronsim import CronSim, CronSimError
    except ImportError:
        raise MissingExtraError("@app.cron", "cron") from None
    try:
        # In an hour that the zone repeats, CronSim also names times of the first of the two, which
        # are over in the second. Datetimes of one zone compare by what their clock shows.
        times = CronSim(expression, since)
        return next(time for time in times if time.timestamp() > since.timestamp())
    except CronSimError as error:
        raise ValueError(str(error)) from None
    except StopIteration:
        raise ValueError("no time fits it") from None


def every(who: str, interval: object, *, is_shared: bool) -> Every:
    """Return the schedule of ``@app.every(interval)``.

    Raises:
        ConfigError: The interval is no time above 0.
    """
    try:
        return Every(SOME_TIME.parse(interval), is_shared=is_shared)
    except ValueError as error:
        raise ConfigError(f"{who}: {error}") from None


def cron(who: str, expression: object, tz: object) -> Cron:
    """Return the schedule of ``@app.cron(expression, tz=tz)``.

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
    # A system without time zone data has UTC all the same.
    if name == "UTC":
        return UTC
    # Here, because it takes a quarter of a megabyte, and few applications have jobs with a zone.
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name) if isinstance(name, str) else None
    except (KeyError, ValueError, OSError):
        # There is no such zone, the name is malformed, or it is a folder of the data.
        return None
