"""The channels of one run, and the Spark session under them: started, ended and asked together."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from reactive_kafka.channel.channel import Channel
from reactive_kafka.channel.lifecycle import ChannelLifecycle
from reactive_kafka.channel.spec import RunServices
from reactive_kafka.observe.events import EndFailed
from reactive_kafka.observe.facts import ChannelFacts, OutgoingFacts, SparkFacts
from reactive_kafka.outgoing.channel import OutgoingChannel
from reactive_kafka.runtime.build import ChannelBuilder
from reactive_kafka.runtime.spec import RunSpec
from reactive_kafka.tasks import Fails, outcome_of, told_of

if TYPE_CHECKING:
    from reactive_kafka.spark.session.engine import SparkEngine


class RunChannels:
    """Everything that a run of an application reads, writes and computes with.

    Attributes:
        faces: What users hold of the incoming channels.

    Raises:
        ConfigError: A strategy or a store of a channel cannot be made.
    """

    def __init__(self, spec: RunSpec, services: RunServices) -> None:
        self._observer = services.observer
        incoming = spec.app.incoming
        self._with_handler = [name for name, one in incoming.items() if one.has_handler]
        modes = {one.settings.spark.mode for one in incoming.values() if one.spark is not None}
        self._spark = (spec.spark or _spark_engine(spec, ranges="ranges" in modes)) if modes else None
        builder = ChannelBuilder(spec, services, self._spark)
        sent_to = {name for one in incoming.values() for name in one.outgoing}
        self.outgoing: dict[str, OutgoingChannel] = {
            name: builder.outgoing(one) for name, one in spec.app.outgoing.items() if name in sent_to
        }
        self.incoming: dict[str, ChannelLifecycle] = {
            name: builder.incoming(one, self.outgoing) for name, one in incoming.items()
        }
        self.faces = {name: Channel(channel) for name, channel in self.incoming.items()}
        self._runners = builder.runners

    async def start(self, spark_fails: Fails) -> None:
        """Start Spark, and the channels that have a handler; the others start when they are iterated over."""
        if self._spark is not None:
            await self._spark.start(spark_fails)
        for channel in self.outgoing.values():
            channel.start()
        for name in self._with_handler:
            self.incoming[name].start()

    async def drain(self, deadlines: Mapping[str, float]) -> None:
        """Call no handler any more, and wait for those that run, until each channel's deadline (monotonic)."""
        await self._each("draining", {name: one.quiesce(deadlines[name]) for name, one in self.incoming.items()})

    async def leave(self, deadlines: Mapping[str, float]) -> None:
        """Commit for the last time, leave the groups, and end Spark and the outgoing channels."""
        await self._each("leaving", {name: one.finish(deadlines[name]) for name, one in self.incoming.items()})
        if self._spark is not None:
            error = await outcome_of(self._spark.stop, "stop Spark", None)  # it has bounds of its own
            if error is not None:
                self._tell_end_failed("*", "stopping Spark", error)
        await self._each("closing", {name: channel.stop() for name, channel in self.outgoing.items()})

    async def _each(self, doing: str, ends: Mapping[str, Coroutine[Any, Any, None]]) -> None:
        """Bring every channel's end to its end, whatever another one's raises; that is told."""
        errors = await asyncio.gather(*ends.values(), return_exceptions=True)
        for channel, error in zip(ends, errors, strict=True):
            if error is not None:
                self._tell_end_failed(channel, doing, error)

    def _tell_end_failed(self, channel: str, doing: str, error: BaseException) -> None:
        self._observer.on(EndFailed(channel=channel, doing=doing, reason=told_of(error), error=error))

    def facts(self) -> tuple[ChannelFacts, ...]:
        """What is known about the incoming channels that have started."""
        return tuple(channel.facts() for channel in self.faces.values() if channel.is_started)

    def outgoing_facts(self) -> tuple[OutgoingFacts, ...]:
        """What is known about the outgoing channels."""
        return tuple(channel.facts() for channel in self.outgoing.values())

    def spark_facts(self) -> tuple[SparkFacts, ...]:
        """What is known about the Spark batches of each channel."""
        return tuple(runner.facts() for runner in self._runners.values())


def _spark_engine(spec: RunSpec, *, ranges: bool) -> SparkEngine:
    from reactive_kafka.spark.session.engine import SparkEngine

    return SparkEngine(spec.settings.spark, ranges=ranges)
