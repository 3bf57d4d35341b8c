"""Which seeds have bounds in bytes: some are smaller than one record.

With dice of its own, so that the other seeds stay what they were.
"""

from __future__ import annotations

import random
from dataclasses import replace

from tests.simulation.scenario import Scenario

BYTES_SHARE = 0.12
"""The share of seeds with bounds in bytes. A record has 12 bytes and more."""


def with_byte_bounds(scenario: Scenario) -> Scenario:
    """The scenario, with a bound of the bytes in flight, and with one of batches."""
    dice = random.Random(f"{scenario.seed}/bytes")
    share = dice.random()
    most = dice.choice([1, 50, 300, 5000])
    of_batch = dice.choice([1, 40, 200])
    if share >= BYTES_SHARE:
        return scenario
    bounds = {"max_in_flight_bytes": most}
    if scenario.mode == "batch":
        bounds["batch_max_bytes"] = min(most, of_batch)
    return replace(scenario, settings={**scenario.settings, **bounds})
