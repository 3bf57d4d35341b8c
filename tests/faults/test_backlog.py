"""More records than handlers can keep up with, larger than the memory that a member may take."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer

from tests.faults.cases import owned
from tests.faults.driver import Life, until
from tests.faults.sampler import Sampler
from tests.faults.scenario import Scenario, member, playing
from tests.faults.slopes import MOST_MB, too_big

pytestmark = [pytest.mark.kafka, pytest.mark.long_faults]

RECORDS, PADDING = 40_000, "x" * 5000


async def filled(scenario: Scenario) -> None:
    """Twice as much as a member may take."""
    async with AIOKafkaProducer(bootstrap_servers=scenario.bootstrap, linger_ms=20) as producer:
        for number in range(RECORDS):
            value = json.dumps({"id": f"id-{number}", "do": "work", "padding": PADDING}).encode()
            topic, partition = scenario.partitions[number % len(scenario.partitions)]
            await producer.send(topic, value, partition=partition)


async def test_a_backlog_takes_bounded_memory_and_no_pause_is_left_over_after_a_rebalance(
    kafka: str, tmp_path: Path
) -> None:
    """Row D8 of the faults."""
    assert RECORDS * len(PADDING) > 1.5 * MOST_MB * 2**20
    async with playing(kafka, tmp_path) as scenario:
        await filled(scenario)
        left, right = (
            member(scenario, name, options=("--latency", "0.03", "0.06"))
            for name in ("left", "right")
        )
        first = left.start()

        def works_on_all(*lives: Life) -> bool:
            """Each is at work on every partition that it has had for a while."""
            return all(
                owned(life)
                == {one.tp for one in life.events[-200:] if one.kind == "begin"} & owned(life)
                != set()
                for life in lives
            )

        async with Sampler(
            lambda: [one.life for one in scenario.members if one.lives]
        ).watching() as sampler:
            await first.ready()
            await until(
                lambda: first.count("end") > 500 and works_on_all(first),
                60,
                "it works on all",
                first.tail,
            )
            second = right.start()
            await second.ready()
            await until(
                lambda: len(owned(first)) == len(owned(second)) == 3, 30, "they share", second.tail
            )
            before = [life.count("end") for life in (first, second)]
            await until(
                lambda: all(
                    life.count("end") > count + 300
                    for life, count in zip((first, second), before, strict=True)
                ),
                60,
                "both go on",
            )
            assert works_on_all(first, second)
            looks = len(sampler.samples)
            await until(
                lambda: len(sampler.samples) > looks + 3, 20, "the last looks at their memory"
            )
        for life in (first, second):
            life.send(signal.SIGTERM)
        for life in (first, second):
            assert await life.exited(20) == 0, life.tail()
    assert list(too_big(sampler.samples)) == []
    assert len(sampler.samples) > 15
    assert scenario.done() < RECORDS // 4, "there was no backlog any more"
