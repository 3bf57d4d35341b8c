"""An application under test, its handlers on an in-memory broker; and raw records for tests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from reactive_kafka.app import App
from reactive_kafka.broker.client import Written
from reactive_kafka.broker.memory.broker import MemoryBroker
from reactive_kafka.broker.memory.rules import MemoryRecord
from reactive_kafka.channel.channel import Channel
from reactive_kafka.clock import SYSTEM_CLOCK, Clock
from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.errors import BrokerError, CommitStrategyError
from reactive_kafka.records import TopicPartition
from reactive_kafka.testing.clock import NOVEMBER_2023, VirtualTimeLoop
from reactive_kafka.testing.values import written

LOOK_S = 0.005
_COMMITTING = ("throttled", "latest", "checkpoint")
_WITHOUT_HTTP: Mapping[str, Any] = {"http": {"enabled": False}}
_IN_MEMORY: Mapping[str, Any] = {"schema_registry": {"url": "memory://"}}


class NotSettledError(AssertionError):
    """What was sent is not settled and committed; the text says which records, and why as far as that is known."""


class TestApp:
    """Runs an application's own handlers on an in-memory broker, with groups, rebalances and commits; HTTP is off.

    It is ready when its block begins: every channel with a handler has its partitions, so that what is sent
    from there on is read whatever ``auto_offset_reset`` says. The end of the block stops the application; at
    once, if the block has raised.

        async with TestApp(app) as test:
            await test.send("orders", {"id": 1})
            await test.settled()
            assert test.records("invoices")[0].value == b'{"order":1}'

    Args:
        app: The application; it can be run again afterwards.
        broker: To share one between several; None makes a new one.
        overrides: Nested tables over the application's own configuration.
        start_timeout_s: How long the channels may take to get their partitions.
    """

    __test__ = False  # the name begins like a test's, and pytest is not to collect it

    def __init__(
        self,
        app: App,
        *,
        broker: MemoryBroker | None = None,
        overrides: Mapping[str, Any] | None = None,
        start_timeout_s: float = 10.0,
    ) -> None:
        self.app = app
        self._broker = broker
        self._is_shared = broker is not None
        self._overrides = overrides or {}
        self._start_timeout_s = start_timeout_s
        self._before = app._connector, app._clock, app._overrides

    @property
    def broker(self) -> MemoryBroker:
        """The broker: topics, logs, groups, commits, and faults at will."""
        if self._broker is None:
            self._broker = MemoryBroker(_clock())  # not before: the clock is that of the loop
        return self._broker

    async def __aenter__(self) -> TestApp:
        app = self.app
        overrides = _merged(_merged(app._overrides or {}, self._overrides), _WITHOUT_HTTP)
        if app.configure(overrides=overrides).schema_registry.url and "schema_registry" not in self._overrides:
            app.configure(overrides=_merged(overrides, _IN_MEMORY))
        app._connector, app._clock = self.broker.connector(), _clock()
        try:
            await app.start()
            await _until(self._not_joined, self._start_timeout_s)
        except BaseException:
            await self._end(drain=False)
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self._end(drain=kind is None)

    async def _not_joined(self) -> list[str]:
        return [
            f"channel {channel.name!r} has no partitions yet ({facts.broker_error or facts.state})"
            for channel in self._running()
            if not channel.is_ready and (facts := channel.facts()).state != "failed"
        ]

    async def _end(self, *, drain: bool) -> None:
        try:
            await self.app.stop(drain=drain)
        finally:
            app = self.app
            app._connector, app._clock, app._overrides = self._before
            app._settings = app._spec = None  # read anew, without what was for the test
            if not self._is_shared:
                await self.broker.close()

    async def send(
        self,
        channel_or_topic: str,
        value: object,
        *,
        key: bytes | str | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        partition: int | None = None,
    ) -> Written:
        """Write a record to the topic of an incoming channel, or to a topic.

        Args:
            channel_or_topic: A channel's name, else a topic's.
            value: Bytes and None as they are; anything else in the format of the channel's ``value_deserializer``,
                or a string as UTF-8 and everything else (models, dataclasses, dicts, numbers) as JSON. A format with
                schemas has that of the channel's ``schema`` table, of the model, or of the handler's. A CloudEvent is
                written in binary mode, its data so.
            key: Bytes, or a string as UTF-8.
            partition: None: by key; without a key, partitions take turns.

        Raises:
            EncodeError: The value cannot be written in the channel's format.
            ValueError: The channel reads several topics: name one of them. Or it is a memory channel.
        """
        if channel_or_topic in self.app.settings.memory:
            how = f"send to it with app.emitter({channel_or_topic!r}), made before the application starts"
            raise ValueError(f"{channel_or_topic!r} is a memory channel, no topic: {how}")
        settings = self.app.settings.incoming.get(channel_or_topic)
        topic = _topic_of(settings) if settings is not None else channel_or_topic
        key = key.encode() if isinstance(key, str) else key
        made = await written(self.app, channel_or_topic, topic, value, tuple(headers), _clock().wall())
        return self.broker.produce(
            topic,
            made.value,
            key=made.key if key is None else key,
            headers=made.headers,
            partition=partition,
        )

    async def settled(self, timeout: float = 5.0) -> None:
        """Wait until everything sent to the running channels is settled and committed; no commit waits for its tick.

        Args:
            timeout: In seconds.

        Raises:
            NotSettledError: A channel has failed, or something is not settled or not committed by then.
        """
        await _until(self._unsettled, timeout)

    def records(self, channel_or_topic: str) -> list[MemoryRecord]:
        """What a topic (or the topic of an outgoing channel) holds: partition by partition, oldest first.

        Of transactions, only what is committed.
        """
        outgoing = self.app.settings.outgoing.get(channel_or_topic)
        topic = outgoing.topic if outgoing is not None else channel_or_topic
        partitions = (partition for partition in self._partitions() if partition.topic == topic)
        return [record for partition in partitions for record in self.broker.committed_log(partition)]

    def committed(self, channel: str) -> dict[TopicPartition, int]:
        """partition -> what the channel's group has committed, of what it reads, where there is something.

        With ``commit_strategy = "checkpoint"``: what its store has, of the partitions that are its own.

        Raises:
            KeyError: No such channel is configured.
        """
        settings = self.app.settings.incoming[channel]
        if settings.commit_strategy == "checkpoint":
            facts = self.app.channel(channel).facts()
            return {one.partition: one.committed for one in facts.partitions if one.committed is not None}
        stored = {} if settings.group_id is None else self.broker.committed(settings.group_id)
        includes = settings.subscription.includes
        return {partition: kept.offset for partition, kept in stored.items() if includes(partition)}

    def _partitions(self) -> Iterator[TopicPartition]:
        for topic, count in self.broker.topics().items():
            yield from (TopicPartition(topic, number) for number in range(count))

    def _running(self) -> list[Channel]:
        channels = map(self.app.channel, self.app.settings.incoming)
        return [channel for channel in channels if channel.is_started]

    async def _unsettled(self) -> list[str]:
        for channel in self._running():
            with suppress(BrokerError):  # a test's own fault: the next look tries again
                try:
                    await channel.commit()
                except CommitStrategyError as error:
                    raise NotSettledError(f"channel {channel.name!r} fails: {error}") from error
        channels = [line for channel in self._running() for line in self._unsettled_of(channel)]
        memory = [one for one in self.app.facts().outgoing if one.direction == "memory" and one.in_flight]
        return channels + [f"memory channel {one.channel!r}: {one.in_flight} in flight" for one in memory]

    def _unsettled_of(self, channel: Channel) -> Iterator[str]:
        facts = channel.facts()
        if facts.state == "failed":
            failure = channel._lifecycle.status.failure
            raise NotSettledError(f"channel {channel.name!r} has failed: {facts.reason}") from failure
        settings = self.app.settings.incoming[channel.name]
        here = {known.partition: known for known in facts.partitions}
        committed = self.committed(channel.name)
        for partition in filter(settings.subscription.includes, self._partitions()):
            end, known = self.broker.end(partition), here.get(partition)
            what = f"channel {channel.name!r}: {partition} ends at {end}"
            if known is not None and (known.in_flight or known.queued or known.position < end):
                yield f"{what}, read up to {known.position}, {known.in_flight} in flight, {known.queued} queued"
            elif settings.commit_strategy in _COMMITTING and committed.get(partition, 0) < end:
                yield f"{what}, committed is {committed.get(partition)}"


async def _until(missing: Callable[[], Awaitable[list[str]]], timeout_s: float) -> None:
    """Look again and again until nothing is missing; NotSettledError: something still is after that time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while still := await missing():
        if loop.time() >= deadline:
            raise NotSettledError(f"after {timeout_s:g} s: " + "; ".join(still))
        await asyncio.sleep(LOOK_S)


def _topic_of(settings: IncomingSettings) -> str:
    topics = settings.subscription.topics
    if len(topics) != 1:
        what = f"the pattern {settings.pattern!r}" if settings.pattern is not None else ", ".join(topics)
        raise ValueError(f"channel {settings.name!r} reads {what}: name one of them")
    return topics[0]


def _clock() -> Clock:
    """The clock of the running loop: virtual where its time is."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return SYSTEM_CLOCK
    return loop.clock if isinstance(loop, VirtualTimeLoop) else SYSTEM_CLOCK


def _merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(under)
    for name, value in over.items():
        below = merged.get(name)
        merged[name] = _merged(below, value) if isinstance(value, Mapping) and isinstance(below, Mapping) else value
    return merged


def record(
    value: object = b"",
    *,
    key: bytes | str | None = None,
    offset: int = 0,
    headers: Iterable[tuple[str, bytes | None]] = (),
    timestamp: int | None = int(NOVEMBER_2023 * 1000),
) -> MemoryRecord:
    """A raw record as a broker client would hand it out.

    Args:
        value: Bytes and None as they are, a string as UTF-8, anything else as JSON.
        key: Bytes, or a string as UTF-8.
        offset: Where it stands in its partition.
        headers: Pairs of name and bytes.
        timestamp: Milliseconds since the epoch.
    """
    return MemoryRecord(offset, timestamp, _raw(key), _raw(value), tuple(headers))


def _raw(value: object) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else json.dumps(value).encode()
