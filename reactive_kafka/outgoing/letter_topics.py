"""The topics that dead letters and delayed retries go to: looked at in the background, and created
where they miss.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from reactive_kafka.backoff import Backoff, Waits
from reactive_kafka.broker.client import Connector, Inspector, inspecting
from reactive_kafka.config.settings import IncomingSettings
from reactive_kafka.errors import BrokerError

BACKOFF = Backoff(0.5, 5.0)

# So long counts the answer that a write has asked for: it is asked for so often at most.
FRESH_S = 1.0


@dataclass(slots=True)
class _Target:
    """One topic that is written to."""

    topic: str
    # What it is, for people.
    kind: str
    # The connection of its cluster, and other properties.
    client: Mapping[str, Any]
    # How many it has, as far as is known.
    partitions: int | None = None
    # It was seen, and no write to it has failed since.
    is_there: bool = False
    # Why it cannot be used as far as is known, for people.
    problem: str | None = None
    # Set once the cluster was asked for it.
    looked: asyncio.Event = field(default_factory=asyncio.Event)


class TargetTopics:
    """Sees to it that the topics are there, with as many partitions as the channel's own where it
    creates them.
    """

    def __init__(self, settings: IncomingSettings, connector: Connector) -> None:
        self._settings = settings
        targets = []
        if (letters := settings.dead_letter_queue) is not None:
            targets.append(_Target(letters.topic, "dead-letter topic", letters.client))
        if (retry := settings.delayed_retry) is not None:
            targets += [_Target(topic, "retry topic", settings.client) for topic in retry.topics]
        self._targets = {target.topic: target for target in targets}
        self._connector = connector
        # A write has failed.
        self._again = asyncio.Event()
        # A write wants to know how many partitions there are.
        self._asked = asyncio.Event()
        # Of the next one, or the one under way; each has its own.
        self._end_of_look = asyncio.Event()
        # Of the loop's time: the last answer counts for who asks.
        self._fresh_until = 0.0
        self._source_partitions = 0

    @property
    def problems(self) -> dict[str, str]:
        """topic -> why it cannot be used, for those where something is wrong."""
        return {
            target.topic: target.problem
            for target in self._targets.values()
            if target.problem is not None
        }

    async def partitions(self, topic: str) -> int | None:
        """How many partitions *topic* has, None where nobody can tell; waits until the cluster was
        asked.

        One that could not be created is looked for again, for what it is made after may be there by
        now: for all who ask by one look, and not while the last answer is fresh.
        """
        target = self._targets.get(topic)
        if target is None:
            return None
        await target.looked.wait()
        if target.partitions is None and asyncio.get_running_loop().time() >= self._fresh_until:
            self._asked.set()
            await self._end_of_look.wait()
        return target.partitions

    async def looked(self) -> None:
        """Wait until the cluster was asked for each topic, and what was missing was created where
        it lets us.
        """
        for target in self._targets.values():
            await target.looked.wait()

    def look_again(self, topic: str) -> None:
        """A write to *topic* has failed: it may be gone."""
        if (target := self._targets.get(topic)) is not None:
            target.is_there = False
            self._again.set()

    async def run(self) -> None:
        """Look until all are there, and again when asked to. Nobody else looks: each look is a
        connection.
        """
        waits = Waits(BACKOFF)
        while True:
            self._again.clear()
            await self._look_everywhere()
            if self._asked.is_set():
                self._asked.clear()
                self._fresh_until = asyncio.get_running_loop().time() + FRESH_S
            ended = self._end_of_look
            self._end_of_look = asyncio.Event()
            # Whoever waits for this look goes on.
            ended.set()
            if all(target.is_there for target in self._targets.values()):
                rests = asyncio.get_running_loop().time()
                await self._again.wait()
                # That the topics are there is no progress while writes to them go on failing: each
                # has them looked at.
                if asyncio.get_running_loop().time() - rests >= BACKOFF.last_s:
                    waits.progressed()
            with suppress(TimeoutError):
                async with asyncio.timeout(waits.next_s()):
                    await self._asked.wait()

    async def _look_everywhere(self) -> None:
        clusters: dict[object, list[_Target]] = {self._settings.client.get("bootstrap_servers"): []}
        for target in self._targets.values():
            if not target.is_there:
                clusters.setdefault(target.client.get("bootstrap_servers"), []).append(target)
        # The channel's own cluster is the first: it has the number of partitions.
        for targets in clusters.values():
            await self._look_in(targets[0].client if targets else self._settings.client, targets)

    async def _look_in(self, client: Mapping[str, Any], targets: Sequence[_Target]) -> None:
        try:
            async with inspecting(self._connector, client) as inspector:
                there = {
                    topic: len(partitions)
                    for topic, partitions in (await inspector.topics()).items()
                }
                if client.get("bootstrap_servers") == self._settings.client.get(
                    "bootstrap_servers"
                ):
                    reads = self._settings.subscription.reads
                    self._source_partitions = max(
                        (there[topic] for topic in there if reads(topic)), default=0
                    )
                for target in targets:
                    await self._find(inspector, target, there.get(target.topic))
        except BrokerError as error:
            for target in targets:
                if not target.is_there:
                    target.problem = (
                        f"the {target.kind} {target.topic!r} cannot be looked at: {error}"
                    )

    async def _find(self, inspector: Inspector, target: _Target, partitions: int | None) -> None:
        if not partitions:
            partitions = await self._create(inspector, target)
        if partitions:
            target.partitions = partitions
            target.is_there = True
            target.problem = None
        # Also without it: the broker may create it when it is written to.
        target.looked.set()

    async def _create(self, inspector: Inspector, target: _Target) -> int:
        """Its number of partitions, 0 when it could not be created."""
        wanted = self._source_partitions
        if not wanted:
            target.problem = f"the {target.kind} {target.topic!r} does not exist, and neither does the channel's topic"
            return 0
        try:
            await inspector.create_topic(target.topic, wanted)
        except BrokerError as error:
            # Somebody else may have been faster.
            there = (await inspector.topics()).get(target.topic)
            if not there:
                why = "does not exist, or the right to see it is missing, and it was not created"
                target.problem = f"the {target.kind} {target.topic!r} {why}: {error}"
            return len(there or ())
        return wanted
