"""The harness itself: it sees what happens on a real broker, and it catches a service that loses
records.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.faults.checker import Disruption, Rules, check
from tests.faults.driver import NAIVE_SERVICE, until
from tests.faults.scenario import member, playing

pytestmark = pytest.mark.kafka


async def test_the_harness_catches_a_service_that_commits_ahead_of_its_work(
    kafka: str, tmp_path: Path
) -> None:
    async with playing(kafka, tmp_path) as scenario:
        naive = member(scenario, "naive", module=NAIVE_SERVICE, options=["--latency", "0.2", "0.6"])
        async with scenario.load.flowing(per_second=300):
            life = naive.start()
            await until(lambda: scenario.done() > 300, 20, "the first records are handled")
            killed_at = life.send(signal.SIGKILL)
            assert await life.exited(5) == -signal.SIGKILL
            assert life.in_flight, "nobody was hurt by the kill"
            scenario.disruptions.append(Disruption(life.name, killed_at, killed_at))
            before = scenario.done()
            naive.start()
            await until(lambda: scenario.done() > before + 300, 20, "the next process goes on")
        await until(scenario.all_is_committed, 20, "everything is committed")
        naive.life.send(signal.SIGTERM)
        assert await naive.life.exited(10) == 0
        found = check(await scenario.evidence(), Rules(duplicate_window_s=1.0))

    unsafe = [violation.text for violation in found if violation.invariant == "I1"]
    # Seen by asking the group while it ran.
    assert any("(poll)" in text for text in unsafe)
    # Seen in the commits themselves.
    assert any("(log)" in text for text in unsafe)
    lost = {violation.text for violation in found if violation.invariant == "I2"}
    assert len(lost) > 10
    assert all("was never handled" in text for text in lost)
    # And it accuses of nothing else.
    assert {violation.invariant for violation in found} == {"I1", "I2"}
