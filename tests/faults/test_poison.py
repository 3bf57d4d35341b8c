"""A record that is never settled is found within one second of the limit, though nothing else
flows.
"""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.faults.cases import finish
from tests.faults.checker import Rules, check, report
from tests.faults.driver import Life, until
from tests.faults.history import Partition
from tests.faults.scenario import member, playing
from tests.harness.prometheus import running_prometheus

pytestmark = pytest.mark.kafka

LIMIT_S = 2.0
SCRAPE_S = 0.5


def channel(on_poison: str) -> str:
    return f'unprocessed_record_max_age = "{LIMIT_S}s"\non_poison = "{on_poison}"'


async def first_time(
    life: Life, path: str, status: int, deadline_s: float = 10.0
) -> tuple[float, dict[str, Any]]:
    """When a probe answered with *status* first, looking each 50 ms, and what it said."""
    give_up = time.monotonic() + deadline_s
    while time.monotonic() < give_up:
        answer, body = await life.health(path)
        if answer == status:
            return time.time(), body
        await asyncio.sleep(0.05)
    raise AssertionError(f"{path} did not answer with {status} within {deadline_s} s: {body}")


@pytest.mark.parametrize("on_poison", ["fail", "pause-partition"])
async def test_poison_is_found_within_a_second_of_the_limit_without_other_traffic(
    kafka: str, tmp_path: Path, on_poison: str
) -> None:
    """Row D7 of the faults."""
    async with playing(kafka, tmp_path) as scenario:
        service = member(
            scenario, "service", channel=channel(on_poison), options=["--ack", "manual"]
        )
        life = service.start()
        await life.ready()
        poisoned = scenario.partitions[2]
        await scenario.load.send(poisoned, "work")
        await scenario.load.send(poisoned, "leave")
        await until(lambda: life.count("begin") == 2, 10, f"both have begun: {life.tail()}")
        begun_at = life.events[-1].t

        found_at, health = await first_time(life, "/health", 503)
        assert LIMIT_S <= found_at - begun_at <= LIMIT_S + 1
        (orders,) = [check for check in health["checks"] if check["name"] == "orders"]
        (poison,) = orders["data"]["poison"]
        assert (poison["topic"], poison["partition"], poison["offset"]) == (*poisoned, 1)
        assert poison["age_seconds"] == pytest.approx(found_at - begun_at, abs=0.3)
        assert (await life.health("/health/ready"))[0] == 503
        assert (await life.health("/health/live"))[0] == (503 if on_poison == "fail" else 200)


async def test_health_recovers_when_the_poison_record_settles(kafka: str, tmp_path: Path) -> None:
    async with playing(kafka, tmp_path) as scenario:
        life = member(scenario, "service", channel=channel("pause-partition")).start()
        await life.ready()
        poisoned = scenario.partitions[1]
        # Settles after twice the limit.
        await scenario.load.send(poisoned, "slow")
        red_at, _ = await first_time(life, "/health", 503)
        green_at, _ = await first_time(life, "/health", 200)
        (begin, end) = (event for event in life.events if event.tp == poisoned)
        assert LIMIT_S <= red_at - begin.t <= LIMIT_S + 1
        assert end.t <= green_at <= end.t + 1
        await until(lambda: scenario.observer.committed(poisoned) == 1, 5, "it is committed")


async def test_another_member_goes_on_soon_after_poison_has_stopped_a_channel(
    kafka: str, tmp_path: Path
) -> None:
    async with playing(kafka, tmp_path) as scenario:
        settings = f'{channel("fail")}\nordering = "unordered"\ndrain_timeout = "30s"'
        left, right = (
            member(scenario, name, channel=settings).start() for name in ("left", "right")
        )
        await left.ready()
        await right.ready()
        await until(
            lambda: owned(left) and owned(right) and not owned(left) & owned(right),
            20,
            "each has its share",
        )
        poisoned = min(owned(left))
        await scenario.load.send(poisoned, "await")
        await until(lambda: left.count("begin") == 1, 10, f"it has begun: {left.tail()}")
        red_at, _ = await first_time(left, "/health/live", 503)

        await scenario.load.send(poisoned, "work")
        await until(
            lambda: ended_at(right, poisoned) is not None,
            10,
            f"{poisoned} goes on at another member",
            lambda: f"{left.tail()}\n{right.tail()}",
        )
        assert (ended_at(right, poisoned) or 0.0) - red_at < 5
        assert poisoned in owned(right)


def ended_at(life: Life, tp: Partition) -> float | None:
    """When it first had done the work of a record of a partition."""
    return next((event.t for event in life.events if event.kind == "end" and event.tp == tp), None)


def owned(life: Life) -> set[Partition]:
    """What it has by its own history."""
    owned: set[Partition] = set()
    for event in life.events:
        if event.kind == "assigned":
            owned |= set(event.partitions)
        elif event.kind == "revoked":
            owned -= set(event.partitions)
    return owned


@pytest.mark.prometheus
async def test_a_real_prometheus_shows_poison_as_soon_as_it_scrapes_it(
    kafka: str, tmp_path: Path
) -> None:
    async with playing(kafka, tmp_path) as scenario:
        life = member(
            scenario, "service", channel=channel("warn"), options=["--ack", "manual"]
        ).start()
        await life.ready()
        poisoned = scenario.partitions[3]
        labels = f'channel="orders",topic="{poisoned[0]}",partition="{poisoned[1]}"'
        async with running_prometheus(
            [life.address], tmp_path, scrape_interval=f"{SCRAPE_S * 1000:.0f}ms"
        ) as prometheus:
            await prometheus.until('up{job="reactive_kafka"}', 1)
            await scenario.load.send(poisoned, "leave")
            await until(lambda: life.count("begin") == 1, 10, f"it has begun: {life.tail()}")
            begun_at = life.events[-1].t
            await prometheus.until(
                f"reactive_kafka_poison_records_total{{{labels}}}", 1, timeout_s=10
            )
            found_at = time.time()
            age_s = await prometheus.value(f"reactive_kafka_oldest_unacked_age_seconds{{{labels}}}")
        assert LIMIT_S <= found_at - begun_at <= LIMIT_S + 1 + 2 * SCRAPE_S
        assert age_s is not None
        assert age_s == pytest.approx(found_at - begun_at, abs=2 * SCRAPE_S)
        # Warn leaves the probes alone.
        assert (await life.health("/health"))[0] == 200


async def test_time_in_which_the_process_was_stopped_makes_no_record_poison(
    kafka: str, tmp_path: Path
) -> None:
    """Row D15 of the faults."""
    # A stop that the group does not notice: the session lasts 3 s.
    limit_s, stopped_s = 4.0, 2.5
    async with playing(kafka, tmp_path) as scenario:
        settings = f'unprocessed_record_max_age = "{limit_s}s"\non_poison = "pause-partition"'
        service = member(scenario, "service", channel=settings, options=["--ack", "manual"])
        life = service.start()
        await life.ready()
        await scenario.load.send(scenario.partitions[0], "leave")
        await until(lambda: life.count("begin") == 1, 10, f"it has begun: {life.tail()}")
        begun_at = life.events[-1].t

        life.send(signal.SIGSTOP)
        try:
            await until(lambda: is_stopped(life.pid), 5, "the process is stopped")
            await asyncio.sleep(stopped_s)
        finally:
            life.send(signal.SIGCONT)
        found_at, _ = await first_time(life, "/health/ready", 503, limit_s + stopped_s + 2)
        counted_s = found_at - begun_at - stopped_s
        # Of a gap, all but what a tick may be late is not counted.
        assert limit_s - 1 <= counted_s <= limit_s + 1.5


def is_stopped(pid: int) -> bool:
    """Whether the process is stopped by a signal, as the kernel says."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


async def test_a_process_that_gets_a_tenth_of_the_time_stays_a_member_and_finds_no_poison(
    kafka: str, tmp_path: Path
) -> None:
    """Row D15 of the faults."""
    limit_s, times = 2.0, 20
    async with playing(kafka, tmp_path) as scenario:
        settings = f'unprocessed_record_max_age = "{limit_s}s"\non_poison = "fail"'
        life = member(scenario, "service", channel=settings).start()
        await life.ready()
        async with scenario.load.flowing(per_second=40):
            await until(lambda: life.count("end") > 40, 20, "it works", life.tail)
            before, stopped = life.count("end"), 0
            for _ in range(times):
                life.send(signal.SIGSTOP)
                try:
                    await until(lambda: is_stopped(life.pid), 5, "the process is stopped")
                    await asyncio.sleep(0.27)
                    stopped += is_stopped(life.pid)
                finally:
                    life.send(signal.SIGCONT)
                await asyncio.sleep(0.03)
            assert stopped == times
            assert life.count("end") > before, "it did nothing in its time"
            await until(
                lambda: life.count("end") > before + 40 * 0.3 * times,
                20,
                "it catches up",
                life.tail,
            )
        await finish(scenario)
        evidence = await scenario.evidence()
    assert report(check(evidence, Rules())) == ""
    assert life.count("assigned") == 1, "it was thrown out"
    assert "poison" not in life.tail()
