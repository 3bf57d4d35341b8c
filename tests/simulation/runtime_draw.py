"""Which seeds stop and start their channel at run time, begin late, commit by number and cap their
partitions.

With dice of its own, so that the other seeds stay what they were.
"""

from __future__ import annotations

import random
from dataclasses import replace

from tests.simulation.scenario import Fault, Scenario

STOPS = "stop-start"
STOPS_SHARE, LATE_SHARE, EVERY_SHARE, CAP_SHARE = 0.2, 0.1, 0.25, 0.4


def with_run_time(scenario: Scenario, features: frozenset[str]) -> Scenario:
    """The scenario, with what is drawn here."""
    if "run-time" not in features:
        return scenario
    dice = random.Random(f"{scenario.seed}/run time")
    stops, late, every, cap = (dice.random() for _ in range(4))
    settings, faults = dict(scenario.settings), list(scenario.faults)
    if stops < STOPS_SHARE:
        for _ in range(dice.choice([1, 2, 4])):
            at, lasts_s = dice.uniform(0.2, scenario.lasts_s), dice.choice([0.0, 0.05, 0.5, 3.0])
            at_call = dice.randrange(1, 250) if dice.random() < 0.3 and not scenario.graceful else 0
            faults.append(Fault(STOPS, at, at_call, lasts_s, dice.choice([1, 1, 2]), dice.random()))
    if late < LATE_SHARE:
        settings["enabled"] = False
    if every < EVERY_SHARE and settings["commit_strategy"] in ("throttled", "checkpoint"):
        settings["commit_every"] = dice.choice([1, 3, 10])
    if (
        cap < CAP_SHARE
        and settings.get("ordering") in ("key", "unordered")
        and scenario.mode in ("single", "manual")
    ):
        settings["concurrency_per_partition"] = dice.choice([1, 2, 3])
    return replace(scenario, settings=settings, faults=tuple(faults))
