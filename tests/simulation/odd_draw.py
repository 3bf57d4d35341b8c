"""Which seeds are graceful, begin at the latest, have limits, and handlers, callers and hooks
that behave oddly.

All of it with dice of its own, so that the other seeds stay what they were.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tests.simulation.offsets_draw import commits
from tests.simulation.scenario import Fault, Load, Scenario

ODD_HANDLERS = (
    "self-cancel",
    "self-cancel-late",
    "home-timeout",
    "home-timeout-over",
    "leaves-child",
    "cancelled-child",
    "mute",
    "unhashable",
    "base",
    "generator-exit",
    "group",
    "base-group",
    "context",
    "nack-waits",
    "ack-waits",
    "ack-cancelled",
)
"""What a handler does beside its work: see :mod:`tests.simulation.odd_work`."""
ODD_HOOKS = (
    "hook-raises",
    "hook-cancelled",
    "hook-acks",
    "hook-seeks",
    "seek-on-join",
    "seek-while-beginning",
)
"""What an application does while it is assigned a partition."""
ON = frozenset({*ODD_HANDLERS, *ODD_HOOKS})
"""The kinds that are drawn; one that is left out finds a bug that is not mended yet."""
CANCEL_THEIR_TASK = frozenset(
    {"self-cancel", "self-cancel-late", "home-timeout", "home-timeout-over"}
)
"""Those of handlers after which each call of the application gets a task of its own."""
BY_HAND = frozenset({"nack-waits", "ack-waits", "ack-cancelled", "hook-acks"})
"""Those of handlers that give verdicts by hand."""

GRACEFUL = (
    "rebalance",
    "join",
    "leave",
    "more-partitions",
    "pause",
    "pause-some",
    "say",
    "commit-now",
)
GRACEFUL_SHARE, LATEST_SHARE, ODD_SHARE, HOOKS_SHARE, PAUSE_SHARE, OUTAGE_SHARE = (
    0.2,
    0.15,
    0.3,
    0.15,
    0.1,
    0.05,
)
LOST_SHARE = 0.05
LIMIT_SHARE = 0.1
SHARED_SHARE = 0.1
# As written -> records a second.
RATES = {"10/s": 10.0, "30/s": 30.0, "1200/m": 20.0, "1000000/s": 1e6}
HEADERS: tuple[tuple[tuple[str, bytes | None], ...], ...] = (
    (("trace", b"1"),),
    (("tag", b"a"), ("tag", b"b"), ("none", None), ("empty", b"")),
    (("dead-letter-topic", b"forged"), ("trace", "\u00e9\u4e2d".encode())),
)


def with_odd(scenario: Scenario) -> Scenario:
    """The scenario, with what is drawn here."""
    dice = random.Random(f"{scenario.seed}/odd")
    graceful, latest, odd, hooks, pause, outage, lost = (dice.random() for _ in range(7))
    if graceful < GRACEFUL_SHARE and scenario.mode != "spark":
        scenario = _graceful(scenario, dice)
    if latest < LATEST_SHARE:
        scenario = replace(scenario, settings={**scenario.settings, "auto_offset_reset": "latest"})
    if odd < ODD_SHARE and not scenario.graceful:
        scenario = _with_odd_handlers(scenario, dice)
    if hooks < HOOKS_SHARE and not scenario.graceful:
        kinds = [one for one in ODD_HOOKS if one in ON and _fits(one, scenario)]
        scenario = replace(
            scenario, hooks=tuple(dice.sample(kinds, k=min(len(kinds), dice.choice([1, 2]))))
        )
    if pause < PAUSE_SHARE:
        seeks = scenario.mode != "spark" and not scenario.graceful
        faults = tuple(
            _some(scenario, dice, ("pause-some", "pause-seek") if seeks else ("pause-some",), 2)
        )
        scenario = replace(scenario, faults=(*scenario.faults, *faults))
    if outage < OUTAGE_SHARE and not scenario.graceful:
        away = Fault(
            "broker-down", dice.uniform(2.0, scenario.lasts_s), 0, dice.choice([12.0, 15.0]), 1, 0.0
        )
        scenario = replace(scenario, faults=(*scenario.faults, away))
    if lost < LOST_SHARE and not scenario.graceful:
        faults = tuple(_some(scenario, dice, ("retention-all",), 2))
        scenario = replace(scenario, faults=(*scenario.faults, *faults))
    return _with_headers(_with_shared_limit(_with_limit(scenario)))


def _some(
    scenario: Scenario, dice: random.Random, kinds: tuple[str, ...], count: int
) -> Iterator[Fault]:
    for _ in range(count):
        at, lasts_s = dice.uniform(0.2, scenario.lasts_s), dice.choice([0.05, 0.5, 1.5, 3.0])
        yield Fault(dice.choice(kinds), at, 0, lasts_s, 1, dice.random())


def _with_headers(scenario: Scenario) -> Scenario:
    dice = random.Random(f"{scenario.seed}/headers")
    loads = tuple(replace(load, headers=dice.choice(((), *HEADERS))) for load in scenario.loads)
    return replace(scenario, loads=loads)


def _with_limit(scenario: Scenario) -> Scenario:
    dice = random.Random(f"{scenario.seed}/limit")
    if dice.random() >= LIMIT_SHARE:
        return scenario
    rate: Any = dice.choice(list(RATES))
    # Only single records that a handler takes have a rate for each value.
    by = dice.choice((None, "key", "partition"))
    if by is not None and scenario.mode in ("single", "manual"):
        rate = {"rate": rate, "by": by}
    return replace(scenario, settings={**scenario.settings, "rate_limit": rate})


def _with_shared_limit(scenario: Scenario) -> Scenario:
    dice = random.Random(f"{scenario.seed}/shared limit")
    if dice.random() >= SHARED_SHARE or scenario.mode in ("iterate", "spark"):
        return scenario
    settings = {**scenario.settings, "limit": "shared"}
    return replace(scenario, settings=settings, slots=dice.choice((1, 2, 5)))


# -- where nothing goes wrong


def _graceful(scenario: Scenario, dice: random.Random) -> Scenario:
    """Members come and go, and every handler ends in time: nothing excuses that a record comes
    twice.
    """
    settings = dict(scenario.settings)
    settings.pop("commit_latest_unsafe", None)
    if not commits(settings):
        settings["commit_strategy"] = "throttled"
    settings["commit_interval"] = dice.choice([0.5, 3.0, 8.0 if scenario.store else 30.0])
    if (
        settings.get("ordering", "partition") != "partition"
        and "keep_out_of_order_acks" not in settings
    ):
        # Else what is done behind a record that waits comes again.
        settings["ordering"] = "partition"
    settings["revoke_grace"], settings["drain_timeout"] = (
        dice.choice([3.0, 5.0]),
        dice.choice([4.0, 10.0]),
    )
    if "retry" in settings:
        settings["retry"] = {**settings["retry"], "max_attempts": 1}
    loads = tuple(_in_time(load, scenario) for load in scenario.loads)
    faults = tuple(one for one in scenario.faults if one.kind in GRACEFUL)
    more = _some(
        scenario,
        dice,
        ("rebalance", "join", "leave", "leave", "more-partitions"),
        dice.choice([1, 2, 4]),
    )
    faults = (*faults, *more)
    members = max(2, scenario.members)
    return replace(
        scenario, settings=settings, loads=loads, faults=faults, members=members, graceful=True
    )


def _in_time(load: Load, scenario: Scenario) -> Load:
    longest_s = 1.0 / scenario.settings.get("batch_max_records", 1)
    fails = load.behaviour in ("bad", "unreadable")
    behaviour = load.behaviour if fails or load.behaviour in ("quick", "slow") else "yields"
    return replace(load, behaviour=behaviour, takes_s=min(load.takes_s, longest_s))


# -- handlers and hooks


def _with_odd_handlers(scenario: Scenario, dice: random.Random) -> Scenario:
    kinds = [one for one in ODD_HANDLERS if one in ON and _fits(one, scenario)]
    if not kinds or scenario.mode not in ("single", "batch", "manual"):
        return scenario
    kinds = dice.sample(kinds, k=min(len(kinds), dice.choice([1, 2, 3])))
    share = (
        dice.choice([0.05, 0.15, 0.3]) if scenario.settings["failure_strategy"] != "fail" else 0.03
    )
    loads = tuple(
        replace(load, odd=dice.choice(kinds))
        if dice.random() < share and load.behaviour in ("quick", "yields")
        else load
        for load in scenario.loads
    )
    return replace(scenario, loads=loads)


def _fits(kind: str, scenario: Scenario) -> bool:
    settings: Any = scenario.settings
    # The handler has failed by the time it returns: what it has acked stays acked.
    if kind == "self-cancel-late":
        return scenario.mode != "manual" and not scenario.strings
    if kind in BY_HAND:
        return scenario.mode == "manual" and settings["failure_strategy"] != "fail"
    seeks = kind.startswith(("hook-seek", "seek-"))
    return not (seeks and (scenario.mode == "spark" or scenario.store))
