"""Which seeds have handlers that ask to be called later, or attempts that may take too long.

With dice of its own, so that the other seeds stay what they were.
"""

from __future__ import annotations

import random
from dataclasses import replace

from tests.simulation.scenario import Scenario

LATER = "later-"
"""The beginning of what a handler does that asks for a delay; its end is the scope."""
SCOPES = ("record", "record", "partition", "channel")
LATER_SHARE, LIMIT_SHARE = 0.2, 0.15
OWN_CANCELLATIONS = ("self-cancel", "self-cancel-late", "home-timeout", "home-timeout-over")
"""What leaves cancellations in the task: nothing here knows then whose the last one was."""
LONGER = 6.0
"""So many times what a handler takes is the delay that it asks for: longer than it takes to be
poison.
"""


def with_times(scenario: Scenario, features: frozenset[str]) -> Scenario:
    """The scenario, with what is drawn here."""
    if "later" not in features or scenario.mode not in ("single", "batch", "manual"):
        return scenario
    if scenario.graceful or scenario.settings.get("ack") == "pre":
        return scenario
    dice = random.Random(f"{scenario.seed}/times")
    later, limit = dice.random(), dice.random()
    # Where strings are supplied, commits that are to fail must not wait until all is healed.
    if later < LATER_SHARE and not scenario.strings:
        share = dice.choice([0.05, 0.2])
        loads = tuple(
            replace(load, odd=LATER + dice.choice(SCOPES))
            if not load.odd and load.behaviour in ("quick", "yields") and dice.random() < share
            else load
            for load in scenario.loads
        )
        scenario = replace(scenario, loads=loads)
    # With "fail" a record that never ends in time stops its channel for ever. In a transaction the
    # waits for the store do not count, so nothing here knows when an attempt has taken too long.
    if (
        limit < LIMIT_SHARE
        and scenario.settings["failure_strategy"] != "fail"
        and not scenario.store
        and not any(load.odd in OWN_CANCELLATIONS for load in scenario.loads)
    ):
        settings = {**scenario.settings, "attempt_timeout": dice.choice([0.2, 0.6, 2.0])}
        scenario = replace(scenario, settings=settings)
    return scenario
