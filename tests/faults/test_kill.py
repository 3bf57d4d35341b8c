"""Members are killed and restarted under load with random latencies; what they did is judged from
outside.

What must hold is checked by :mod:`tests.faults.checker`; each test also shows that its fault
happened.
"""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

import pytest

from tests.faults.checker import Disruption, Rules, check, duplicates, report
from tests.faults.driver import Life, Member, until
from tests.faults.scenario import COMMIT_INTERVAL_S, Scenario, member, playing

pytestmark = pytest.mark.kafka

PER_SECOND = 600
LONGEST_HANDLER_S = {"unordered": 0.03, "partition": 0.012}
# With the machine busy: a tick that comes late, and its answer.
COMMIT_TAKES_S = 0.5
# test_matrix.py kills and stops members of channels with both orderings, for less long.
BOTH_ORDERINGS = pytest.mark.parametrize(
    "ordering", [pytest.param("unordered", marks=pytest.mark.long_faults), "partition"]
)


# Members of the consumer protocol are told of a rebalance by the broker, and keep what stays theirs.
BOTH_PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "consumer"])


def two_members(
    scenario: Scenario, ordering: str, protocol: str = "classic"
) -> tuple[Member, Member]:
    channel = f'ordering = "{ordering}"\ndrain_timeout = "10s"\ngroup_protocol = "{protocol}"'
    latency = ["--latency", "0.001", str(LONGEST_HANDLER_S[ordering])]
    return (
        member(scenario, "left", channel=channel, options=latency),
        member(scenario, "right", channel=channel, options=latency),
    )


async def busy(life: Life, ends: int = 200) -> None:
    """Wait until a process has handled some records and is in the middle of others."""
    await until(
        lambda: life.count("end") >= ends and life.in_flight,
        30,
        f"{life.name} is busy: {life.tail()}",
    )


async def finish(scenario: Scenario) -> None:
    """Let the group commit everything, and stop its members."""
    await until(scenario.all_is_committed, 30, f"all is committed, now {scenario.observer.latest}")
    for one in scenario.members:
        one.life.send(signal.SIGTERM)
    for one in scenario.members:
        assert await one.life.exited(15) == 0


@BOTH_PROTOCOLS
@BOTH_ORDERINGS
async def test_killed_members_lose_nothing_and_the_group_never_commits_ahead(
    kafka: str, tmp_path: Path, ordering: str, protocol: str
) -> None:
    """Row C3 of the faults."""
    async with playing(kafka, tmp_path) as scenario:
        left, right = two_members(scenario, ordering, protocol)
        async with scenario.load.flowing(PER_SECOND):
            for one in (left, right):
                one.start()
            for one in (left, right):
                await one.life.ready()
            for victim in (left, right, left):
                life = victim.life
                await busy(life)
                killed_at = life.send(signal.SIGKILL)
                assert await life.exited(5) == -signal.SIGKILL
                scenario.disruptions.append(Disruption(life.name, killed_at, killed_at))
                victim.start()
                await victim.life.ready()
            for one in (left, right):
                await busy(one.life)
        await finish(scenario)
        evidence = await scenario.evidence()

    window_s = COMMIT_INTERVAL_S + COMMIT_TAKES_S + LONGEST_HANDLER_S[ordering]
    assert (
        report(check(evidence, Rules(ordered=ordering == "partition", duplicate_window_s=window_s)))
        == ""
    )
    killed = [life for one in (left, right) for life in one.lives[:-1]]
    assert len(killed) == 3
    cut_off = sum(len(life.in_flight) for life in killed)
    assert all(life.in_flight for life in killed), "a kill hit nobody"
    assert duplicates(evidence.events) >= cut_off
    assert scenario.observer.polls > 50
    assert len(evidence.sent) > 4000
    assert not evidence.maybe


@pytest.mark.parametrize(
    "protocol", [pytest.param("classic", marks=pytest.mark.long_faults), "consumer"]
)
@BOTH_ORDERINGS
async def test_a_rolling_restart_loses_nothing_and_repeats_nothing(
    kafka: str, tmp_path: Path, ordering: str, protocol: str
) -> None:
    """Row C1 of the faults."""
    async with playing(kafka, tmp_path) as scenario:
        left, right = two_members(scenario, ordering, protocol)
        stopped_at = {}
        async with scenario.load.flowing(PER_SECOND):
            for one in (left, right):
                one.start()
            for one in (left, right):
                await one.life.ready()
            for restarted in (left, right) * 2:
                life = restarted.life
                await busy(life, ends=400)
                stopped_at[life.name] = life.send(signal.SIGTERM)
                assert await life.exited(10) == 0
                restarted.start()
                await restarted.life.ready()
            for one in (left, right):
                await busy(one.life)
        await finish(scenario)
        evidence = await scenario.evidence()

    assert report(check(evidence, Rules(ordered=ordering == "partition"))) == ""
    assert duplicates(evidence.events) == 0
    drained = [
        name
        for name, t in stopped_at.items()
        if any(
            event.t > t
            for event in evidence.events
            if event.process == name and event.kind == "end"
        )
    ]
    assert len(drained) > len(stopped_at) / 2, "most were idle when they were told to stop"
    assert len(evidence.sent) > 2000
    assert not evidence.maybe


async def test_work_in_flight_is_not_repeated_where_its_partition_comes_straight_back(
    kafka: str, tmp_path: Path
) -> None:
    """Row C7 of the faults."""
    async with playing(kafka, tmp_path) as scenario:
        # Eager: all partitions are taken away, and some come straight back.
        channel = 'ordering = "unordered"\nrevoke_grace = "300ms"\ngroup_protocol = "classic"'
        left, right = (member(scenario, name, channel=channel) for name in ("left", "right"))
        stays = left.start()
        await stays.ready()
        for tp in scenario.partitions:
            await scenario.load.send(tp, "slower")
        await until(
            lambda: len(stays.in_flight) == 6, 10, f"all handlers are at work: {stays.tail()}"
        )
        comes = right.start()
        await comes.ready()
        kept = [event for event in stays.events if event.kind == "assigned"][-1].partitions
        assert len(stays.in_flight) == 6, "the rebalance came too late to disturb anybody"
        await until(
            scenario.all_is_committed, 15, f"all is committed, now {scenario.observer.latest}"
        )
        evidence = await scenario.evidence()

    assert len(kept) == 3
    for tp in scenario.partitions:
        begun_by = [
            event.process for event in evidence.events if event.kind == "begin" and event.tp == tp
        ]
        assert begun_by == (["left.1"] if tp in kept else ["left.1", "right.1"])
    moved = Disruption("left.1", comes.events[0].t, comes.events[-1].t)
    # Without an excuse, the moved ones are duplicates.
    assert report(check(evidence, Rules())) != ""
    assert report(check(replace(evidence, disruptions=[moved]), Rules())) == ""
