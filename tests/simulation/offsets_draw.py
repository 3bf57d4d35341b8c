"""Which seeds keep their offsets otherwise: in a store, with strings of the user's, with kept acks,
with seeks.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from tests.simulation.scenario import Fault, Scenario

STORE_FAULTS = (
    "store-away",
    "store-slow",
    "store-lost",
    "store-late",
    "store-twice",
    "store-zombie",
    "store-away",
    "store-late",
)
STORE = "sqlite:///of-nobody.db"
"""Never opened: the applications get a store of the simulation's."""

STORE_SHARE, KEEP_SHARE, STRINGS_SHARE, CONTROL_SHARE = 0.2, 0.15, 0.25, 0.2


def with_offsets(scenario: Scenario, features: frozenset[str]) -> Scenario:
    """The scenario, with what is drawn for its offsets. With dice of its own: the other seeds stay
    what they were.
    """
    dice = random.Random(f"offsets {scenario.seed}")
    store, keeps, strings, control = (dice.random() for _ in range(4))
    if "store" in features and store < STORE_SHARE:
        scenario = _with_store(scenario, dice, features)
    if "keep" in features and keeps < KEEP_SHARE:
        scenario = _with_kept_acks(scenario, dice)
    if "strings" in features and strings < STRINGS_SHARE and commits(scenario.settings):
        settings = {
            **scenario.settings,
            "offset_metadata_strategy": dice.choice(["current", "exact"]),
        }
        faults = tuple(_some(scenario, dice, ["say"], dice.choice([0, 3, 8])))
        scenario = replace(
            scenario, settings=settings, faults=(*scenario.faults, *faults), strings=True
        )
    if "control" in features and control < CONTROL_SHARE:
        seeks = ["seek", "seek"] if scenario.mode != "spark" else []
        kinds = [
            *seeks,
            "pause",
            *(["commit-now", "commit-at"] if commits(scenario.settings) else []),
        ]
        faults = tuple(_some(scenario, dice, kinds, dice.choice([1, 2, 4])))
        scenario = replace(scenario, faults=(*scenario.faults, *faults), control=True)
    return scenario


def commits(settings: Mapping[str, Any]) -> bool:
    """Whether a position is ever stored."""
    return bool(settings["commit_strategy"] != "ignore")


def _with_store(scenario: Scenario, dice: random.Random, features: frozenset[str]) -> Scenario:
    settings = {
        key: value for key, value in scenario.settings.items() if key != "commit_latest_unsafe"
    }
    settings["commit_strategy"] = "checkpoint"
    settings["checkpoint"] = {
        "store": STORE,
        "kafka_commit_interval": dice.choice([0.5, 2.0, 10.0, 60.0]),
    }
    faults = [
        Fault(
            dice.choice(STORE_FAULTS),
            dice.uniform(0.2, scenario.lasts_s),
            dice.randrange(1, 250) if dice.random() < 0.5 else 0,
            dice.choice([0.05, 0.5, 1.5, 3.0, 7.0]),
            dice.choice([1, 1, 2, 5]),
            dice.random(),
        )
        for _ in range(dice.choice([0, 1, 2, 3, 5]))
    ]
    handles = scenario.mode in ("single", "batch") and settings.get("ack") is None
    states = transactions = False
    if handles:
        states, transactions = dice.choice(
            [(True, False), (True, False), (False, True), (True, True)]
        )
        settings["ordering"] = "partition"
        if settings["failure_strategy"] == "delayed-retry-topic":
            settings["failure_strategy"] = "dead-letter-queue"
            del settings["delayed_retry"]
    return replace(
        scenario,
        settings=settings,
        faults=(*scenario.faults, *faults),
        store=True,
        states=states,
        transactions=transactions,
    )


def _with_kept_acks(scenario: Scenario, dice: random.Random) -> Scenario:
    settings = dict(scenario.settings)
    if scenario.mode == "spark" or not commits(settings) or settings.get("commit_latest_unsafe"):
        return scenario
    if scenario.states or scenario.transactions:
        return scenario
    if scenario.mode != "iterate":
        settings["ordering"] = (
            "unordered" if scenario.mode == "batch" else dice.choice(["unordered", "key"])
        )
        settings["concurrency"] = max(4, settings["concurrency"])
        settings["max_in_flight"] = max(100, settings["max_in_flight"])
    settings["keep_out_of_order_acks"] = True
    return replace(scenario, settings=settings)


def _some(scenario: Scenario, dice: random.Random, kinds: list[str], count: int) -> Iterator[Fault]:
    for _ in range(count):
        at, lasts_s = dice.uniform(0.2, scenario.lasts_s), dice.choice([0.05, 0.5, 1.5, 3.0])
        yield Fault(dice.choice(kinds), at, 0, lasts_s, 1, dice.random())
