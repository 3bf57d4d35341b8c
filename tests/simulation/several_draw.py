"""Which seeds have a filter, several handlers on the channel, or broadcast; and which record is
whose.

With dice of its own, so that the other seeds stay what they were.
"""

from __future__ import annotations

import random
from dataclasses import replace
from zlib import crc32

from tests.simulation.scenario import Load, Scenario

FILTER_SHARE, HANDLERS_SHARE = 0.15, 0.25
SELECTED = "selected"
"""The header by which records are selected."""
HANDLERS = 3
"""Where they share the records among them; with broadcast there are two."""
ASIDE_S = 0.01
"""How long the other handler of a broadcast takes."""


def with_several(scenario: Scenario) -> Scenario:
    """The scenario, with what is drawn here; a handler that keeps a state or writes the strings is
    alone.
    """
    dice = random.Random(f"{scenario.seed}/several")
    filters, handlers, is_broadcast, comes_first, selects = (dice.random() for _ in range(5))
    if scenario.mode == "spark" or scenario.states or scenario.transactions or scenario.strings:
        return scenario
    scenario = replace(scenario, filters=filters < FILTER_SHARE)
    if scenario.filters:
        scenario = _with_selection(scenario, selects)
    if handlers >= HANDLERS_SHARE or scenario.mode not in ("single", "manual"):
        return scenario
    # Which counts the calls of one handler.
    is_plain = not scenario.store and not scenario.middleware
    if is_broadcast < 0.5 and scenario.settings.get("ack", "post") == "post" and is_plain:
        settings = {**scenario.settings, "broadcast": True}
        return replace(
            scenario,
            settings=settings,
            several="aside first" if comes_first < 0.5 else "aside last",
        )
    return replace(scenario, several="shared")


def _with_selection(scenario: Scenario, drawn: float) -> Scenario:
    """The scenario, with what skips the records that are filtered."""
    if drawn < 1 / 3:
        return scenario
    if drawn < 2 / 3:
        return replace(scenario, selects="undecoded")
    loads = tuple(map(with_header, scenario.loads))
    settings = {**scenario.settings, "filter_headers": {SELECTED: ["maybe", "yes"]}}
    return replace(scenario, selects="headers", loads=loads, settings=settings)


def with_header(load: Load) -> Load:
    """The load, with the header that says whether its record is selected."""
    said = b"no" if is_filtered(load.id) else b"yes"
    return replace(load, headers=(*load.headers, (SELECTED, said)))


def is_filtered(id: str) -> bool:
    """Whether the filter skips a record."""
    return crc32(id.encode()) % 7 == 0


def whose(id: str) -> int:
    """The number of the handler that shares the others' records, and has this one."""
    return crc32(id.encode()) // 7 % HANDLERS


def fails_aside(id: str) -> bool:
    """Whether the other handler of a broadcast fails with a record, unless it is its last
    attempt.
    """
    return crc32(id.encode()) % 5 == 0
