"""What a hook awaits holds up no rebalance, and what it raises keeps no partition from being
read.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.driver import ODD_SERVICE, Life, until
from tests.faults.history import Event, Partition
from tests.faults.scenario import member, playing

pytestmark = pytest.mark.kafka

REBALANCE_S = 5.0


def assignments(life: Life) -> list[Event]:
    """What its hook was told."""
    return [event for event in life.events if event.kind == "assigned"]


def handled(life: Life) -> set[Partition]:
    """The partitions of which it has done some work."""
    return {event.tp for event in life.events if event.kind == "end" and event.outcome == "ok"}


@pytest.mark.parametrize("strategy", ["throttled", "latest"])
async def test_a_hook_may_await_an_ack_of_before_the_rebalance(
    kafka: str, tmp_path: Path, strategy: str
) -> None:
    async with playing(kafka, tmp_path, partitions=4) as scenario:
        # An eager rebalance takes all partitions away and gives some back. Hooks may then await acks
        # of partitions that are back.
        channel = (
            f'commit_strategy = "{strategy}"\nrevoke_grace = "500ms"\ngroup_protocol = "classic"'
        )
        options = ["--ack", "manual", "--hook", "settle"]
        left, right = (
            member(scenario, name, channel=channel, options=options, module=ODD_SERVICE)
            for name in ("left", "right")
        )
        first = left.start()
        await first.ready()
        for tp in scenario.partitions:
            await scenario.load.send(tp, "keep")
        await until(lambda: len(handled(first)) == 4, 10, "all are kept", first.tail)

        second = right.start()
        await until(lambda: assignments(second), 20, "it has joined", second.tail)
        await until(
            lambda: first.count("settled") == 4, REBALANCE_S, "all acks are answered", first.tail
        )
        assigned = assignments(first)[1]
        answers = {event.tp: event.outcome for event in first.events if event.kind == "settled"}
        assert answers == {tp: str(tp in assigned.partitions) for tp in scenario.partitions}
        assert max(event.t for event in first.events) - assigned.t < REBALANCE_S

        before = len(first.events)
        for tp in scenario.partitions:
            await scenario.load.send(tp, "work")
        await until(
            lambda: (
                {event.tp for event in first.events[before:] if event.kind == "end"}
                == set(assigned.partitions)
                and handled(second) == set(scenario.partitions) - set(assigned.partitions)
            ),
            REBALANCE_S,
            "both handle what is theirs",
            lambda: f"{first.tail()}\n{second.tail()}",
        )
        await until(
            lambda: all(scenario.observer.committed(tp) >= 1 for tp in assigned.partitions),
            5,
            "what was acked stays",
        )
        assert "the hook " not in first.log.read_text()
        # The group is stable.
        assert len(assignments(first)) == 2
        assert (await first.health("/health"))[0] == 200


async def test_partitions_are_read_though_a_hook_awaits_what_was_cancelled(
    kafka: str, tmp_path: Path
) -> None:
    async with playing(kafka, tmp_path, partitions=2) as scenario:
        for tp in scenario.partitions:
            await scenario.load.send(tp, "work")
        life = member(
            scenario, "service", options=["--hook", "await-cancelled"], module=ODD_SERVICE
        ).start()
        await life.probe_shows("/health/started", 200, 20)
        await until(
            lambda: handled(life) == set(scenario.partitions), REBALANCE_S, "all is read", life.tail
        )
        await until(scenario.all_is_committed, 5, "all is committed", life.tail)
        assert (await life.health("/health"))[0] == 200
        told = [
            line
            for line in life.log.read_text().splitlines()
            if "the hook " in line and "CancelledError" in line
        ]
        assert len(told) == 1, life.tail()
