"""When jobs are due: at their times, each once, whatever the clocks do."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.errors import ConfigError
from reactive_kafka.handlers.schedules import Cron, Every, Schedule, cron, every

BERLIN = ZoneInfo("Europe/Berlin")
INTERVALS = st.sampled_from([0.5, 1.0, 7.0, 60.0, 3600.0])
START = datetime(2026, 3, 1, tzinfo=UTC).timestamp()


class Played:
    """Plays a schedule: time passes until it is due, or for as long as something takes."""

    def __init__(self, schedule: Schedule, wall: float = START) -> None:
        self.schedule, self.now, self.wall = schedule, 100.0, wall
        # By both clocks.
        self.ran: list[tuple[float, float]] = []
        schedule.begin(self.now, self.wall)

    def pass_(self, seconds: float) -> None:
        self.now += seconds
        self.wall += seconds

    def run(self, takes_s: float = 0.0, looks_s: float = 30.0) -> bool:
        """Wait for the next time, and run; whether a time was left out."""
        while (wait_s := self.schedule.wait_s(self.now, self.wall)) > 0:
            self.pass_(min(wait_s, looks_s))
        self.ran.append((self.now, self.wall))
        self.schedule.call_begins(self.now, self.wall)
        self.pass_(takes_s)
        return self.schedule.call_ended(self.now, self.wall)


def at(played: Played, zone: Any = UTC) -> list[str]:
    return [
        datetime.fromtimestamp(round(wall), zone).strftime("%d. %H:%M %Z") for _, wall in played.ran
    ]


# -- every


@given(INTERVALS, st.lists(st.floats(0, 0.9), min_size=1, max_size=10), st.floats(0, 86_400))
def test_every_interval_it_runs_once_however_long_it_takes_within_that(
    interval_s: float, takes: list[float], phase_s: float
) -> None:
    played = Played(Every(interval_s), START + phase_s)
    left_out = [played.run(share * interval_s) for share in takes]
    assert not any(left_out)
    times = [100.0 + interval_s * number for number in range(1, len(takes) + 1)]
    assert [now for now, _ in played.ran] == pytest.approx(times)


@given(INTERVALS, st.floats(1.1, 50))
def test_what_is_due_while_it_runs_is_left_out_and_the_next_time_is_one_of_the_same_row(
    interval_s: float, takes: float
) -> None:
    played = Played(Every(interval_s))
    assert played.run(takes * interval_s)
    played.run()
    (first, _), (second, _) = played.ran
    passed = (second - first) / interval_s
    assert passed == pytest.approx(round(passed), abs=1e-6)
    assert takes <= passed + 1e-6 <= takes + 1 + 1e-5


@given(INTERVALS, st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=8))
def test_jumps_of_the_wall_clock_move_no_interval(interval_s: float, jumps: list[float]) -> None:
    played = Played(Every(interval_s, is_shared=True))
    for jump in jumps:
        played.run()
        played.wall += jump
    gaps = [after - before for (before, _), (after, _) in pairwise(played.ran)]
    assert gaps == pytest.approx([interval_s] * (len(jumps) - 1))


@given(INTERVALS, st.floats(0, 1e5), st.floats(0, 1e5))
def test_two_owners_of_a_partition_run_at_the_same_times(
    interval_s: float, one: float, other: float
) -> None:
    played = [Played(Every(interval_s, is_shared=True), START + begins) for begins in (one, other)]
    for each in played:
        each.run()
        phase = each.ran[0][1] / interval_s
        assert phase == pytest.approx(round(phase), abs=1e-3)


@given(INTERVALS, st.floats(-0.01, 0.01))
def test_a_partition_that_comes_back_does_not_run_the_same_moment_again(
    interval_s: float, drift: float
) -> None:
    played = Played(Every(interval_s, is_shared=True))
    played.run()
    # The clocks drift apart.
    played.wall += drift * interval_s
    played.schedule.begin(played.now, played.wall)
    played.run()
    (first, _), (second, _) = played.ran
    assert second - first >= interval_s / 2


# -- cron


def test_a_cron_expression_is_one_of_its_zone() -> None:
    played = Played(Cron("0 3 * * *", BERLIN), datetime(2026, 3, 26, 12, tzinfo=UTC).timestamp())
    for _ in range(4):
        played.run(looks_s=3600)
    assert at(played, BERLIN) == [
        "27. 03:00 CET",
        "28. 03:00 CET",
        "29. 03:00 CEST",
        "30. 03:00 CEST",
    ]


def test_an_hour_that_summer_time_leaves_out_comes_right_after_it_and_one_that_comes_twice_once() -> (
    None
):
    spring = Played(Cron("30 2 * * *", BERLIN), datetime(2026, 3, 28, 12, tzinfo=UTC).timestamp())
    autumn = Played(Cron("30 2 * * *", BERLIN), datetime(2026, 10, 24, 12, tzinfo=UTC).timestamp())
    for played in (spring, autumn):
        played.run()
        played.run()
    assert at(spring, BERLIN) == ["29. 03:00 CEST", "30. 02:30 CEST"]
    assert at(autumn, BERLIN) == ["25. 02:30 CEST", "26. 02:30 CET"]


def test_a_job_that_begins_in_the_second_of_two_equal_hours_waits_for_its_next_time() -> None:
    # The summer time ends: 02:00 to 03:00 comes twice, and the job was due in the first of them.
    begins = datetime(2026, 10, 25, 1, 5, tzinfo=UTC).timestamp()
    daily = Played(Cron("30 2 * * *", BERLIN), begins)
    hourly = Played(Cron("15 0-23 * * *", BERLIN), begins)
    for played in (daily, hourly):
        played.run()
        played.run()
    assert at(daily, BERLIN) == ["26. 02:30 CET", "27. 02:30 CET"]
    assert at(hourly, BERLIN) == ["25. 03:15 CET", "25. 04:15 CET"]


@given(
    st.sampled_from(["30 2 * * *", "0 0-3 * * *", "*/10 1,2 * * *", "5 * * * *", "0 3 * 10 0"]),
    st.sampled_from(
        [
            ("Europe/Berlin", datetime(2026, 3, 29, 1, tzinfo=UTC)),
            ("Europe/Berlin", datetime(2026, 10, 25, 1, tzinfo=UTC)),
            ("America/Havana", datetime(2026, 11, 1, 5, tzinfo=UTC)),
            ("Australia/Lord_Howe", datetime(2026, 4, 4, 15, tzinfo=UTC)),
        ]
    ),
    st.floats(-3 * 3600, 3 * 3600),
)
def test_where_clocks_change_a_job_is_not_due_when_it_begins_or_again_when_its_call_begins(
    expression: str, change: tuple[str, datetime], begins_s: float
) -> None:
    zone, changes = change
    played = Played(Cron(expression, ZoneInfo(zone)), changes.timestamp() + begins_s)
    for _ in range(2):
        assert played.schedule.wait_s(played.now, played.wall) > 0
        played.run(looks_s=86_400)


@given(st.integers(1, 12), st.integers(0, 27 * 86_400))
def test_each_quarter_of_an_hour_comes_once_through_summer_time(month: int, begins_s: int) -> None:
    start = datetime(2026, month, 1, tzinfo=UTC) + timedelta(seconds=begins_s)
    played = Played(Cron("*/15 * * * *", BERLIN), start.timestamp())
    for _ in range(12):
        played.run(looks_s=900)
    walls = [wall for _, wall in played.ran]
    assert all(wall % 900 == 0 for wall in walls)
    assert [after - before for before, after in pairwise(walls)] == [900] * 11


@given(st.floats(1, 20 * 3600))
def test_a_clock_that_is_set_back_has_nothing_run_twice(back_s: float) -> None:
    played = Played(Cron("0 3 * * *", UTC))
    played.run()
    played.wall -= back_s
    # A rebalance in between makes no difference.
    played.schedule.begin(played.now, played.wall)
    played.run()
    assert [datetime.fromtimestamp(wall, UTC).day for _, wall in played.ran] == [1, 2]


def test_a_clock_that_was_years_ahead_and_is_right_again_counts_as_it_is() -> None:
    played = Played(Cron("0 3 * * *", UTC), START + 10 * 365 * 86_400)
    played.run()
    played.wall = START
    played.run()
    assert played.ran[1][1] == START + 3 * 3600


def test_a_minutely_job_goes_on_by_a_clock_that_was_set_back_an_hour() -> None:
    played = Played(Cron("* * * * *", UTC))
    played.run()
    played.wall -= 3600
    played.run()
    assert played.ran[1][0] - played.ran[0][0] <= 60


def test_a_clock_that_is_set_forward_past_several_times_runs_once() -> None:
    played = Played(Cron("0 3 * * *", UTC))
    played.wall += 5 * 86_400
    assert not played.run()
    played.run()
    assert [datetime.fromtimestamp(wall, UTC).day for _, wall in played.ran] == [6, 6]
    assert played.ran[1][1] - played.ran[0][1] == 3 * 3600


def test_a_run_that_takes_two_days_leaves_two_times_out() -> None:
    played = Played(Cron("0 3 * * *", UTC))
    assert played.run(2.5 * 86_400)
    played.run()
    assert at(played) == ["01. 03:00 UTC", "04. 03:00 UTC"]


# -- what may be written


@pytest.mark.parametrize("interval", ["0s", 0, -1, "often", None, True, [], float("nan")])
def test_what_is_no_interval_is_refused(interval: Any) -> None:
    with pytest.raises(ConfigError, match=r"@app\.every.*above 0"):
        every("@app.every(...)", interval, is_shared=False)


@pytest.mark.parametrize(
    "expression", ["", "* * * *", "@daily", "61 * * * *", "0 0 30 2 *", None, 5]
)
def test_what_is_no_cron_expression_is_refused(expression: Any) -> None:
    with pytest.raises(ConfigError, match=r"@app\.cron.*expected a cron expression"):
        cron("@app.cron(...)", expression, "UTC")


@pytest.mark.parametrize("zone", ["", "Europe", "../UTC", "Mars/Olympus", "a\0b", None, 1])
def test_what_is_no_time_zone_is_refused(zone: Any) -> None:
    with pytest.raises(ConfigError, match=r"@app\.cron.*name of a time zone"):
        cron("@app.cron(...)", "0 3 * * *", zone)
