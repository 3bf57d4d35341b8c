"""Some kills of the chaos: what a thousand show takes twenty minutes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.chaos import Plan, play
from tests.faults.checker import report
from tests.faults.prestarted import forking
from tests.faults.soak_ground import MOST_REPEATED

pytestmark = pytest.mark.kafka


async def test_kills_at_any_moment_lose_nothing_and_repeat_no_more_than_the_bound(
    kafka: str, tmp_path: Path
) -> None:
    """Row C3 of the faults. Members come back with the other group protocol."""
    plan = Plan(kills=15, records=3000, seed=1, groups=2, per_second=300)
    with forking() as server:
        outcome = await play(kafka, tmp_path, plan, server)
    assert report(outcome.violations) == ""
    summary = outcome.summary()
    assert summary["kills"] >= 15
    assert summary["of these, in the middle of work"] > 0
    assert summary["records"] >= 3000
    assert 0 < summary["repeated by a kill, most"] <= MOST_REPEATED
