"""A handler that never ends holds up neither the exit beyond its deadline nor the record's next
delivery.
"""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

from tests.faults.checker import Rules, check, report
from tests.faults.driver import Life, until
from tests.faults.history import Event, Partition
from tests.faults.scenario import Scenario, member, playing

pytestmark = pytest.mark.kafka

DRAIN_S = 1.5
MARGIN_S = 1.5
NEVER_ENDING = pytest.mark.parametrize("how", ["await", "swallow", "thread"])


def begun(life: Life, tp: Partition, offset: int) -> bool:
    return any(
        event.kind == "begin" and (event.tp, event.offset) == (tp, offset) for event in life.events
    )


async def stuck(scenario: Scenario, life: Life, how: str) -> Partition:
    """Give it records 0, 1 and 2, of which 1 never ends, and wait until it has done what it can."""
    (tp,) = scenario.partitions
    await life.ready()
    for do in ("work", how, "work"):
        await scenario.load.send(tp, do)
    await until(
        lambda: begun(life, tp, 1) and life.count("end") == 2,
        10,
        f"0 and 2 are done: {life.tail()}",
    )
    return tp


def kind(how: str) -> list[str]:
    """The command line of a service whose handler is of the right sort."""
    return ["--blocking"] if how == "thread" else []


@NEVER_ENDING
async def test_a_handler_that_never_ends_is_left_behind_after_the_drain_timeout(
    kafka: str, tmp_path: Path, how: str
) -> None:
    """Rows D1, D4 of the faults."""
    async with playing(kafka, tmp_path, partitions=1) as scenario:
        channel = f'ordering = "unordered"\ndrain_timeout = "{DRAIN_S}s"'
        service = member(scenario, "service", channel=channel, options=kind(how))
        first = service.start()
        tp = await stuck(scenario, first, how)

        sent_at = first.send(signal.SIGTERM)
        assert await first.exited(DRAIN_S + MARGIN_S) == 0
        # It was given its time.
        assert time.time() - sent_at >= DRAIN_S
        assert "1 record not settled after 1.5 s was left behind" in first.tail()
        await until(
            lambda: scenario.observer.committed(tp) == 1, 2, "record 0 is committed, 1 is not"
        )

        second = service.start()
        await until(
            lambda: begun(second, tp, 1), 20, f"record 1 is delivered again: {second.tail()}"
        )
        assert not begun(second, tp, 0)


@NEVER_ENDING
async def test_a_second_sigterm_exits_at_once_with_1(kafka: str, tmp_path: Path, how: str) -> None:
    """Row D1 of the faults."""
    async with playing(kafka, tmp_path, partitions=1) as scenario:
        channel = 'ordering = "unordered"\ndrain_timeout = "60s"'
        service = member(scenario, "service", channel=channel, options=kind(how)).start()
        await stuck(scenario, service, how)
        service.send(signal.SIGTERM)
        give_up = time.monotonic() + 2
        # Two at once could arrive as one.
        while service.exit_code is None and time.monotonic() < give_up:
            service.send(signal.SIGTERM)
            try:
                await service.exited(0.3)
            except AssertionError:
                continue
        assert service.exit_code == 1, service.tail()


def at_slow_work(life: Life) -> list[Event]:
    """What it has been at for a while: a handler of the others takes no time."""
    return [event for event in life.in_flight if time.time() - event.t > 0.3]


async def group_state(bootstrap: str, group: str) -> str:
    """As its coordinator tells it."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        (answer,) = await admin.describe_consumer_groups([group])
    finally:
        await admin.close()
    (described,) = answer.groups
    return str(described[2])


async def test_a_sigterm_in_the_middle_of_a_rebalance_ends_in_time_and_repeats_nothing(
    kafka: str, tmp_path: Path
) -> None:
    """Row D1 of the faults."""
    async with playing(kafka, tmp_path) as scenario:
        # In a classic group the newcomer waits until the others have joined again.
        channel = 'revoke_grace = "10s"\ndrain_timeout = "10s"\ngroup_protocol = "classic"'
        left, right = (member(scenario, name, channel=channel) for name in ("left", "right"))
        first = left.start()
        newcomer = AIOKafkaConsumer(
            scenario.topic,
            bootstrap_servers=kafka,
            group_id=scenario.topic,
            enable_auto_commit=False,
            partition_assignment_strategy=(RoundRobinPartitionAssignor,),
        )
        async with scenario.load.flowing(per_second=100):
            await first.ready()
            for tp in scenario.partitions:
                await scenario.load.send(tp, "slow")
            await until(
                lambda: len(at_slow_work(first)) == len(scenario.partitions),
                10,
                "all are at work",
                first.tail,
            )
            # A process would take longer to come than the handlers.
            joining = asyncio.create_task(newcomer.start())
            while await group_state(kafka, scenario.topic) != "PreparingRebalance":
                assert at_slow_work(first), "the rebalance came too late"
            sent_at = first.send(signal.SIGTERM)
            assert await group_state(kafka, scenario.topic) == "PreparingRebalance"
            assert at_slow_work(first), "nothing held the rebalance up"
            assert await first.exited(10 + 5) == 0, first.tail()
            assert time.time() - sent_at < 10 + MARGIN_S
            await joining
            await newcomer.stop()
            second = right.start()
            await until(lambda: second.count("end") > 100, 30, "the other one has all", second.tail)
        await until(scenario.all_is_committed, 30, "all is committed", second.tail)
        second.send(signal.SIGTERM)
        assert await second.exited(15) == 0
        evidence = await scenario.evidence()
    assert report(check(evidence, Rules())) == ""
