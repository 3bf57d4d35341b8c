"""The topics of dead letters and delayed retries: looked at, and created if they are missing."""

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
from reactive_kafka.tasks import Flag

BACKOFF = Backoff(0.5, 5.0)

# How long, in seconds, a look that a write has asked for answers later writes, too.
FRESH_S = 1.0


@dataclass(slots=True)
class _LetterTopic:
    """One topic that letters are written to.

    Attributes:
        kind: What it is, for people.
        client: The connection to its cluster, and other properties.
        partitions: How many it has, as far as is known.
        is_there: It was seen, and no write to it has failed since.
        problem: Why it cannot be used as far as is known, for people.
        looked: Set once the cluster was asked for it.
    """

    name: str
    kind: str
    client: Mapping[str, Any]
    partitions: int | None = None
    is_there: bool = False
    problem: str | None = None
    looked: Flag = field(default_factory=Flag)


class LetterTopics:
    """Keeps the topics in existence; a new one gets as many partitions as the channel's own has."""

    def __init__(self, settings: IncomingSettings, connector: Connector) -> None:
        self._settings = settings
        self._connector = connector
        self._topics: dict[str, _LetterTopic] = {}
        if settings.dead_letter_queue is not None:
            letters = settings.dead_letter_queue
            self._add(letters.topic, "dead-letter topic", letters.client)
        if settings.delayed_retry is not None:
            for topic in settings.delayed_retry.topics:
                self._add(topic, "retry topic", settings.client)
        # Set when a write has failed, or takes long.
        self._look_is_wanted = Flag()
        # Set when a write wants to know how many partitions there are.
        self._partitions_are_wanted = Flag()
        # Set at the end of the next look, or of the one under way. Each look has its own.
        self._end_of_look = Flag()
        # Until then, by the loop's time, every caller gets the last answer.
        self._fresh_until = 0.0
        self._source_partitions = 0

    def _add(self, topic: str, kind: str, client: Mapping[str, Any]) -> None:
        self._topics[topic] = _LetterTopic(topic, kind, client)

    @property
    def problems(self) -> dict[str, str]:
        """Topic -> why it cannot be used, for people; only topics with a problem."""
        return {
            topic.name: topic.problem
            for topic in self._topics.values()
            if topic.problem is not None
        }

    async def partitions(self, topic: str) -> int | None:
        """Return how many partitions *topic* has; None if that is not known.

        Waits until the cluster was asked. A topic that could not be created is looked for again:
        the channel's own topic, which gives it its number of partitions, may exist by now. One look
        answers all who ask, and no other follows while the last answer is fresh.
        """
        known = self._topics.get(topic)
        if known is None:
            return None
        await known.looked.wait()
        if known.partitions is None and asyncio.get_running_loop().time() >= self._fresh_until:
            self._partitions_are_wanted.set()
            await self._end_of_look.wait()
        return known.partitions

    async def looked(self) -> None:
        """Wait until each topic was looked for, and created where it was missing, if possible."""
        for topic in self._topics.values():
            await topic.looked.wait()

    def look_again(self, topic: str) -> None:
        """A write to *topic* has failed, or takes long: the topic may be gone."""
        known = self._topics.get(topic)
        if known is not None:
            known.is_there = False
            self._look_is_wanted.set()

    async def run(self) -> None:
        """Look until all topics are there, and again when asked to.

        Only this task looks: each look makes a connection.
        """
        waits = Waits(BACKOFF)
        while True:
            self._look_is_wanted.clear()
            await self._look_everywhere()
            if self._partitions_are_wanted.is_set():
                self._partitions_are_wanted.clear()
                self._fresh_until = asyncio.get_running_loop().time() + FRESH_S
            # Wake all who wait for this look.
            ended = self._end_of_look
            self._end_of_look = Flag()
            ended.set()
            if all(topic.is_there for topic in self._topics.values()):
                rests_since = asyncio.get_running_loop().time()
                await self._look_is_wanted.wait()
                # Finding the topics is not progress while writes to them keep failing, because
                # each failed write asks for another look. A long rest is progress.
                if asyncio.get_running_loop().time() - rests_since >= BACKOFF.last_s:
                    waits.progressed()
            with suppress(TimeoutError):
                async with asyncio.timeout(waits.next_s()):
                    await self._partitions_are_wanted.wait()

    async def _look_everywhere(self) -> None:
        """Look for the missing topics, in each cluster once."""
        # The channel's own cluster is the first one, even if nothing is missing there: it has the
        # number of partitions for new topics.
        own_cluster = self._settings.client.get("bootstrap_servers")
        missing: dict[object, list[_LetterTopic]] = {own_cluster: []}
        for topic in self._topics.values():
            if not topic.is_there:
                missing.setdefault(topic.client.get("bootstrap_servers"), []).append(topic)
        for topics in missing.values():
            client = topics[0].client if topics else self._settings.client
            await self._look_in(client, topics)

    async def _look_in(self, client: Mapping[str, Any], topics: Sequence[_LetterTopic]) -> None:
        try:
            async with inspecting(self._connector, client) as inspector:
                found = await inspector.topics()
                counts = {name: len(partitions) for name, partitions in found.items()}
                own_cluster = self._settings.client.get("bootstrap_servers")
                if client.get("bootstrap_servers") == own_cluster:
                    reads = self._settings.subscription.reads
                    self._source_partitions = max(
                        (count for name, count in counts.items() if reads(name)), default=0
                    )
                for topic in topics:
                    await self._find(inspector, topic, counts.get(topic.name))
        except BrokerError as error:
            for topic in topics:
                if not topic.is_there:
                    topic.problem = f"the {topic.kind} {topic.name!r} cannot be looked at: {error}"

    async def _find(
        self, inspector: Inspector, topic: _LetterTopic, partitions: int | None
    ) -> None:
        if not partitions:
            partitions = await self._create(inspector, topic)
        if partitions:
            topic.partitions = partitions
            topic.is_there = True
            topic.problem = None
        # Set even if there is no topic: the broker may create it when it is written to.
        topic.looked.set()

    async def _create(self, inspector: Inspector, topic: _LetterTopic) -> int:
        """Create a topic; return its number of partitions, 0 if it could not be created."""
        wanted = self._source_partitions
        if not wanted:
            topic.problem = (
                f"the {topic.kind} {topic.name!r} does not exist, "
                "and neither does the channel's topic"
            )
            return 0
        try:
            await inspector.create_topic(topic.name, wanted)
        except BrokerError as error:
            # Another member may have created it meanwhile.
            partitions = (await inspector.topics()).get(topic.name)
            if not partitions:
                topic.problem = (
                    f"the {topic.kind} {topic.name!r} does not exist, or the right to see it is "
                    f"missing, and it was not created: {error}"
                )
                return 0
            return len(partitions)
        return wanted
