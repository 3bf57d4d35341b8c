"""From a seed to a verdict."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from reactive_kafka import App, Channel
from reactive_kafka.partitions.partition import Partition
from reactive_kafka.tracking.metadata.codec import Metadata
from tests.simulation.around import with_around
from tests.simulation.bytes_draw import with_byte_bounds
from tests.simulation.checker import Violation, between, check
from tests.simulation.loop import run_seeded
from tests.simulation.member import is_known
from tests.simulation.odd_draw import with_odd
from tests.simulation.offsets_draw import STORE, with_offsets
from tests.simulation.runtime_draw import with_run_time
from tests.simulation.scenario import FAULTS, SPARK_FAULTS, Scenario, draw, with_assignment
from tests.simulation.several_draw import with_several
from tests.simulation.time_draw import with_times
from tests.simulation.world import Outcome, play

REPLAY = "again: make simulate SEED={seed}"

_SETTINGS = {
    "commit_strategy": ("latest", "ignore"),
    "failure_strategy": ("ignore", "dead-letter-queue"),
    "on_poison": ("pause-partition", "warn", "dead-letter-queue"),
    "ordering": ("unordered", "key"),
}


@cache
def features() -> frozenset[str]:
    """What the code under test knows."""
    found = {
        f"{name}={value}"
        for name, values in _SETTINGS.items()
        for value in values
        if is_known({name: value})
    }
    if is_known({"restart": {"max_attempts": 1}}):
        found.add("restart")
    if is_known({"consumers": 2}):
        found.add("consumers")
    retried = {
        "failure_strategy": "delayed-retry-topic",
        "delayed_retry": {"topics": ["a_1"], "max_retries": 1},
    }
    if is_known(retried):
        found.add("failure_strategy=delayed-retry-topic")
    spark = {"mode": "ranges", "max_concurrent_jobs": 2, "on_failure": "bisect"}
    if is_known({"spark": spark}) and hasattr(App({}), "_spark_engine"):
        found |= {"spark", *(f"fault={kind}" for kind in SPARK_FAULTS)}
    found |= {f"fault={kind}" for kind in FAULTS}
    if is_known({"commit_strategy": "checkpoint", "checkpoint": {"store": STORE}}) and hasattr(
        App({}), "_stores"
    ):
        found.add("store")
    if is_known({"keep_out_of_order_acks": True, "ordering": "key"}) and "acks" in Metadata._fields:
        found.add("keep")
    if is_known({"attempt_timeout": 1.0}):
        found.add("later")
    if hasattr(Channel, "stop"):
        found.add("run-time")
    if hasattr(Channel, "store_offset_metadata"):
        found.add("control")
    if hasattr(Partition, "store_metadata"):
        found.add("strings")
    return frozenset(found)


def scenario_of(seed: int) -> Scenario:
    """All that the seed draws."""
    found = with_around(with_odd(with_offsets(draw(seed, features()), features())))
    found = with_byte_bounds(found)
    found = with_run_time(with_several(with_assignment(found)), features())
    return with_times(found, features())


def run(seed: int) -> tuple[Outcome, list[Violation]]:
    """Play the scenario of a seed, and judge it."""
    scenario = scenario_of(seed)
    with silence():
        outcome = run_seeded(
            lambda clock: play(scenario, clock, can_restart="restart" in features()), seed
        )
    return outcome, check(outcome.case)


@contextmanager
def silence() -> Iterator[None]:
    """Let the applications log nothing: what they say is noted as events."""
    logger = logging.getLogger("reactive_kafka")
    level = logger.level
    # The loggers of its modules take its level, and would not notice that it is disabled.
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)


def report(outcome: Outcome, violations: list[Violation], each: int = 2) -> Iterator[str]:
    """A red seed for people: the scenario, what was broken, what was around it, and how to see it
    again.
    """
    yield from outcome.scenario.words()
    for invariant in sorted({violation.invariant for violation in violations}):
        found = [violation for violation in violations if violation.invariant == invariant]
        yield f"{invariant}, {len(found)} times:"
        for violation in found[:each]:
            yield f"  {violation.text}"
            yield from (f"    {line}" for line in between(outcome.case.events, violation.index))
    yield REPLAY.format(seed=outcome.scenario.seed)
