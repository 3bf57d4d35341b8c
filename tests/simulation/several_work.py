"""What a filter and several handlers do in a run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from reactive_kafka import Message
from reactive_kafka.planning.channel_plans import AppPlan
from tests.simulation.odd_work import own
from tests.simulation.scenario import TOPIC
from tests.simulation.several_draw import ASIDE_S, HANDLERS, fails_aside, is_filtered, whose

if TYPE_CHECKING:
    from tests.simulation.member import Member

Payload = dict[str, Any]


class AsideError(Exception):
    """Of the other handler of a broadcast."""


class SeveralWork:
    """What belongs to one start of the application."""

    def __init__(self, member: Member) -> None:
        self._member = member
        if member.world.scenario.filters and member.world.scenario.selects != "headers":
            # The configuration could only name a function of a module.
            member.app._fit = self._with_filter

    def _with_filter(self, plan: AppPlan) -> AppPlan:
        is_undecoded = self._member.world.scenario.selects == "undecoded"
        passes = self._passes_undecoded if is_undecoded else self._passes
        incoming = {
            name: replace(one, filter=passes, filters_undecoded=is_undecoded)
            for name, one in plan.incoming.items()
        }
        return replace(plan, incoming=incoming)

    def _passes_undecoded(self, message: Message[bytes]) -> bool:
        try:
            payload = json.loads(message.payload)
        except ValueError:
            # It is to fail when it is decoded.
            return True
        return self._is_kept(message, payload["id"])

    def _passes(self, message: Message[Payload]) -> bool:
        return self._is_kept(message, message.payload["id"])

    def _is_kept(self, message: Message[Any], id: str) -> bool:
        if not is_filtered(id):
            return True
        self._member.world.bite("filtered")
        self._member.note(
            "skipped", tp=(message.topic, message.partition), offset=message.offset, note="filter"
        )
        return False

    def decorate(self, single: Callable[[Message[Payload]], Awaitable[None]]) -> None:
        """Give the channel its handlers, which do what *single* does."""
        app, several = self._member.app, self._member.world.scenario.several
        if not several:
            app.incoming(TOPIC)(single)
        elif several == "shared":
            for number in range(HANDLERS):
                self._share(number, single)
        else:
            handlers = [single, self._aside]
            for handler in handlers[:: -1 if several == "aside first" else 1]:
                app.incoming(TOPIC)(handler)

    def _share(self, number: int, single: Callable[[Message[Payload]], Awaitable[None]]) -> None:
        async def handle(message: Message[Payload]) -> None:
            if whose(message.payload["id"]) != number:
                self._member.world.fail(AssertionError(f"handler {number} got {message!r}"))
            await single(message)

        def when(message: Message[Payload]) -> bool:
            return whose(message.payload["id"]) == number

        is_last = number == HANDLERS - 1
        self._member.app.incoming(TOPIC, when=None if is_last else when)(handle)

    async def _aside(self, message: Message[Payload]) -> None:
        await asyncio.sleep(ASIDE_S)
        if fails_aside(message.payload["id"]) and message.attempt < self._member.max_attempts:
            self._member.world.bite("aside failed")
            raise own(AsideError(message.payload["id"]))
        self._member.note("aside", tp=(message.topic, message.partition), offset=message.offset)
