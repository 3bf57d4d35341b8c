"""An application under test, its handlers on an in-memory broker; and raw records for tests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from typing import Any

from reactive_kafka.app import App
from reactive_kafka.broker.client import Written
from reactive_kafka.broker.memory.broker import MemoryBroker
from reactive_kafka.broker.memory.partition_log import StoredRecord
from reactive_kafka.clock import SYSTEM_CLOCK, Clock
from reactive_kafka.config.load import Where
from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.records import RecordBytes, TopicPartition
from reactive_kafka.testing.clock import NOVEMBER_2023, VirtualTimeLoop
from reactive_kafka.testing.cluster import Cluster, InMemory
from reactive_kafka.testing.kafka import RealKafka
from reactive_kafka.testing.settling import Causes, Settling
from reactive_kafka.testing.spies import HandlerSpy, Spies
from reactive_kafka.testing.values import written

_WITHOUT_HTTP: Mapping[str, Any] = {"http": {"enabled": False}}
_IN_MEMORY: Mapping[str, Any] = {"schema_registry": {"url": "memory://"}}


class TestApp:
    """Runs an application's own handlers on an in-memory broker, with groups, rebalances and
    commits; HTTP is off.

    It is ready when its block begins: every channel with a handler has its partitions, so that what
    is sent from there on is read whatever ``auto_offset_reset`` says. The end of the block stops
    the application; at once, if the block has raised.

        async with TestApp(app) as test:
            await test.send("orders", {"id": 1})
            await test.settled()
            assert test.records("invoices")[0].value == b'{"order":1}'

    Args:
        app: The application; it can be run again afterwards.
        config: Takes the place of the application's own configuration: a file, several, or tables.
        real: Run on a real Kafka instead: the one that ``REACTIVE_KAFKA_TEST_BOOTSTRAP=host:port``
            names, else an Apache Kafka that is started on this machine once a process.
        broker: To share one between several; None makes a new one.
        overrides: Nested tables over the configuration.
        start_timeout_s: How long the channels may take to get their partitions.
    """

    # The name begins like a test's, and pytest is not to collect it.
    __test__ = False

    def __init__(
        self,
        app: App,
        *,
        config: Where = None,
        broker: MemoryBroker | None = None,
        real: bool = False,
        overrides: Mapping[str, Any] | None = None,
        start_timeout_s: float = 10.0,
    ) -> None:
        self.app = app
        self._config = config
        self._memory = InMemory(broker, is_shared=True) if broker is not None else None
        if real and broker is not None:
            raise ValueError("real=True runs on a real Kafka, and broker= names one in memory")
        self._real = RealKafka() if real else None
        self._overrides = overrides or {}
        self._start_timeout_s = start_timeout_s
        self._spies = Spies()
        self._stage = AsyncExitStack()
        # That it runs on.
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def broker(self) -> MemoryBroker:
        """The broker in memory: topics, logs, groups, commits, and faults at will.

        Raises:
            RuntimeError: The test runs on a real Kafka.
        """
        if self._real is not None:
            raise RuntimeError(
                "this test runs on a real Kafka (real=True), which has no MemoryBroker"
            )
        return self._in_memory().broker

    def _in_memory(self) -> InMemory:
        if self._memory is None:
            # Not before: its clock is the loop's.
            self._memory = InMemory(MemoryBroker(_clock()), is_shared=False)
        return self._memory

    @property
    def _cluster(self) -> Cluster:
        return self._in_memory() if self._real is None else self._real

    async def __aenter__(self) -> TestApp:
        self._loop = asyncio.get_running_loop()
        if self._real is not None and isinstance(self._loop, VirtualTimeLoop):
            raise RuntimeError(
                "a real Kafka takes real time: no test in virtual time can wait for it"
            )
        app = self.app
        cluster = self._cluster
        causes = Causes()
        self._settling = Settling(app, cluster, causes)
        async with AsyncExitStack() as stack:
            there = await cluster.overrides()
            stack.push_async_callback(cluster.close)
            self._spies.clear()
            clock = _clock()
            fit = self._spies.put
            stage = app._staged(
                connector=cluster.connector,
                clock=clock,
                observer=causes,
                fit=fit,
                source=self._config,
            )
            own = stack.enter_context(stage)
            overrides = _merged(_merged(own or {}, self._overrides), _merged(_WITHOUT_HTTP, there))
            if (
                app.configure(overrides=overrides).schema_registry.url
                and "schema_registry" not in self._overrides
            ):
                app.configure(overrides=_merged(overrides, _IN_MEMORY))
            await cluster.open(app)
            stack.push_async_exit(self._stop)
            await app.start()
            await self._settling.joined(self._start_timeout_s)
            self._stage = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: Any
    ) -> None:
        await self._stage.__aexit__(kind, error, trace)

    async def _stop(self, kind: type[BaseException] | None, *_: object) -> None:
        await self.app.stop(drain=kind is None)

    def handler(self, function: Callable[..., Any]) -> HandlerSpy:
        """The spy on a handler, by its function: ``test.handler(invoice).calls`` are its calls, the
        oldest first.

        Raises:
            LookupError: It is no handler of the application, or the block has not begun. Functions
                on Spark and sources have no spies.
        """
        return self._spies.of(function)

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
            value: Bytes and None as they are; anything else in the format of the channel's
                ``value_deserializer``, or a string as UTF-8 and everything else (models,
                dataclasses, dicts, numbers) as JSON. A format with schemas has that of the
                channel's ``schema`` table, of the model, or of the handler's. A CloudEvent is
                written in binary mode, its data so.
            key: Bytes, or a string as UTF-8.
            partition: None: by key; without a key, partitions take turns.

        Raises:
            EncodeError: The value cannot be written in the channel's format.
            ValueError: The channel reads several topics: name one of them. Or it is a memory
                channel.
        """
        self._check_loop()
        if channel_or_topic in self.app.settings.memory:
            how = f"send to it with app.emitter({channel_or_topic!r}), made before the application starts"
            raise ValueError(f"{channel_or_topic!r} is a memory channel, no topic: {how}")
        settings = self.app.settings.incoming.get(channel_or_topic)
        topic = _topic_of(settings) if settings is not None else channel_or_topic
        key = key.encode() if isinstance(key, str) else key
        made = await written(
            self.app, channel_or_topic, topic, value, tuple(headers), _clock().wall()
        )
        record = RecordBytes(made.value, made.key if key is None else key, made.headers)
        return await self._cluster.write(topic, record, partition)

    async def settled(self, timeout: float = 5.0, *, retries: bool = True) -> None:
        """Wait until everything sent to the running channels is settled and committed; no commit
        waits for its tick.

        Args:
            timeout: In seconds; as long as records wait in retry topics, the delays of these are
                added to it.
            retries: Wait for delayed retries, too.

        Raises:
            NotSettledError: A channel has failed, or something is not settled or not committed by
                then. ``__cause__`` is what its handler has raised.
        """
        self._check_loop()
        await self._settling.settled(timeout, retries=retries)

    def records(self, channel_or_topic: str) -> list[StoredRecord]:
        """What a topic (or the topic of an outgoing channel) holds: partition by partition, oldest
        first.

        Of transactions, only what is committed.
        """
        outgoing = self.app.settings.outgoing.get(channel_or_topic)
        return list(
            self._cluster.records(outgoing.topic if outgoing is not None else channel_or_topic)
        )

    def committed(self, channel: str) -> dict[TopicPartition, int]:
        """partition -> what the channel's group has committed, of what it reads, where there is
        something.

        With ``commit_strategy = "checkpoint"``: what its store has, of the partitions that are its
        own.

        Raises:
            KeyError: No such channel is configured.
        """
        return Settling(self.app, self._cluster, Causes()).committed(channel)

    def _check_loop(self) -> None:
        """Refuse to wait for an application that stands still: its own loop does not run."""
        if self._loop is not None and self._loop is not asyncio.get_running_loop():
            why = "an async fixture has a loop of its own, and a test in virtual time, too: open TestApp in the test"
            raise RuntimeError(f"this TestApp was started on another event loop: {why}")


def _topic_of(settings: IncomingSettings) -> str:
    topics = settings.subscription.topics
    if len(topics) != 1:
        what = (
            f"the pattern {settings.pattern!r}"
            if settings.pattern is not None
            else ", ".join(topics)
        )
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
        merged[name] = (
            _merged(below, value)
            if isinstance(value, Mapping) and isinstance(below, Mapping)
            else value
        )
    return merged


def record(
    value: object = b"",
    *,
    key: bytes | str | None = None,
    offset: int = 0,
    headers: Iterable[tuple[str, bytes | None]] = (),
    timestamp: int | None = int(NOVEMBER_2023 * 1000),
) -> StoredRecord:
    """A raw record as a broker client would hand it out.

    Args:
        value: Bytes and None as they are, a string as UTF-8, anything else as JSON.
        key: Bytes, or a string as UTF-8.
        offset: Where it stands in its partition.
        headers: Pairs of name and bytes.
        timestamp: Milliseconds since the epoch.
    """
    return StoredRecord(offset, timestamp, _raw(key), _raw(value), tuple(headers))


def _raw(value: object) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else json.dumps(value).encode()
