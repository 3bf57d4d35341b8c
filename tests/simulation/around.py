"""Middleware that raises now and then, before or after the handler: which seeds have it, and what
it does.

All of it with dice of its own, so that the other seeds stay what they were.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from reactive_kafka import Batch, CallNext, Message
from tests.simulation.odd_work import own
from tests.simulation.scenario import Load, Scenario

if TYPE_CHECKING:
    from tests.simulation.member import Member

BEFORE, AFTER = "around-before", "around-after"
AROUND = (BEFORE, AFTER)
"""What a record's middleware does at the first calls for it; ``Load.odd`` says so."""
SHARE = 0.2


class AroundError(Exception):
    """A middleware's own."""


def with_around(scenario: Scenario) -> Scenario:
    """The scenario, maybe with middleware that raises for some of the records."""
    dice = random.Random(f"{scenario.seed}/around")
    if (
        dice.random() >= SHARE
        or scenario.graceful
        or scenario.mode not in ("single", "batch", "manual")
    ):
        return scenario
    # Where a verdict is given, or a position stored, inside of the handler, it stands whatever is
    # raised around that.
    settles_inside = scenario.mode == "manual" or scenario.strings or scenario.transactions
    kinds = (BEFORE,) if settles_inside else AROUND
    share = (
        dice.choice([0.05, 0.15, 0.3]) if scenario.settings["failure_strategy"] != "fail" else 0.03
    )
    loads = tuple(
        replace(load, odd=dice.choice(kinds)) if dice.random() < share and _is_plain(load) else load
        for load in scenario.loads
    )
    return replace(scenario, loads=loads, middleware=True)


def _is_plain(load: Load) -> bool:
    return not load.odd and load.behaviour in ("quick", "yields", "slow")


class Around:
    """The middleware of one application."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._world = member.world
        # Ids of the first messages of calls that fail when the handler has returned.
        self._failing: set[int] = set()

    async def middleware(self, given: Any, call_next: CallNext) -> Any:
        """Raise for what is drawn to fail, before or after the handler's call."""
        messages: Sequence[Message[Any]] = given if isinstance(given, Batch) else [given]
        loads = [self._world.loads[message.payload["id"]] for message in messages]
        if any(
            load.odd == BEFORE and self._world.deliveries(load.id) < load.times for load in loads
        ):
            self._world.bite(f"odd {BEFORE}")
            self._member.never_called(messages)
            raise own(AroundError("before"))
        try:
            result = await call_next(given)
        finally:
            fails = id(messages[0]) in self._failing
            self._failing.discard(id(messages[0]))
        if fails:
            self._world.bite(f"odd {AFTER}")
            raise own(AroundError("after"))
        return result

    def fails_after(
        self, messages: Sequence[Message[Any]], loads: Sequence[Load], times: Sequence[int]
    ) -> bool:
        """Whether this call fails when its handler has returned: the calls number *times* for these
        records.

        It is drawn once, as the handler begins: another member may begin with the same record
        before this one ends.
        """
        fails = any(
            load.odd == AFTER and time <= load.times
            for load, time in zip(loads, times, strict=True)
        )
        if fails:
            self._failing.add(id(messages[0]))
        return fails
