"""``TestApp``, which runs an application under test; ``record``, a raw record for a test."""

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
from reactive_kafka.config.load import ConfigSource
from reactive_kafka.config.settings import IncomingSettings, Settings
from reactive_kafka.errors import EncodeError
from reactive_kafka.formats.sent_values import check_value
from reactive_kafka.records import Record, RecordBytes, TopicPartition
from reactive_kafka.testing.cluster import Cluster, InMemory
from reactive_kafka.testing.encoding import encode_for_channel
from reactive_kafka.testing.fake_clock import NOVEMBER_2023, VirtualTimeLoop
from reactive_kafka.testing.real_kafka import RealKafka
from reactive_kafka.testing.settlement import LastErrors, SettlementCheck
from reactive_kafka.testing.spies import HandlerSpy, Spies

_WITHOUT_HTTP: Mapping[str, Any] = {"http": {"enabled": False}}
_REGISTRY_IN_MEMORY: Mapping[str, Any] = {"schema_registry": {"url": "memory://"}}


class TestApp:
    """Runs the handlers of an application on an in-memory broker; HTTP is off.

    The broker has groups, rebalances and commits. When the block begins, every channel with a
    handler has its partitions, so the channels read what the test sends, whatever
    ``auto_offset_reset`` says. The end of the block stops the application. If the block has raised,
    it stops without waiting for records in flight.

        async with TestApp(app) as test:
            await test.send("orders", {"id": 1})
            await test.settled()
            assert test.records("invoices")[0].value == b'{"order":1}'

    Args:
        app: The application. It can be run again afterwards.
        config: Replaces the application's own configuration: a file, several files, or tables.
        real: Run on a real Kafka instead: the one that ``REACTIVE_KAFKA_TEST_BOOTSTRAP=host:port``
            names, else an Apache Kafka that is started on this machine once for each process.
        broker: A broker that several applications share. None makes a new one.
        overrides: Nested tables that replace single settings of the configuration.
        start_timeout_s: How long the channels may take to get their partitions, in seconds.
    """

    # pytest would collect it as a test, because of its name.
    __test__ = False

    def __init__(
        self,
        app: App,
        *,
        config: ConfigSource = None,
        broker: MemoryBroker | None = None,
        real: bool = False,
        overrides: Mapping[str, Any] | None = None,
        start_timeout_s: float = 10.0,
    ) -> None:
        if not isinstance(app, App):
            raise TypeError(f"TestApp({app!r}): expected an App")
        self.app = app
        self._config = config
        self._memory = InMemory(broker, is_shared=True) if broker is not None else None
        if real and broker is not None:
            raise ValueError("real=True and broker= exclude each other: leave one of them out")
        self._real = RealKafka() if real else None
        self._overrides = overrides or {}
        self._start_timeout_s = start_timeout_s
        self._spies = Spies()
        self._running = AsyncExitStack()
        # The loop that the application runs on.
        self._loop: asyncio.AbstractEventLoop | None = None
        # None until the block begins.
        self._settlement: SettlementCheck | None = None
        # Those that the application had at the end of the block. None: it has not ended.
        self._last_settings: Settings | None = None

    @property
    def broker(self) -> MemoryBroker:
        """The broker in memory: topics, logs, groups and commits. It can also be made to fail.

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
            # Made as late as this because its clock is that of the running loop.
            self._memory = InMemory(MemoryBroker(_clock()), is_shared=False)
        return self._memory

    @property
    def _cluster(self) -> Cluster:
        return self._in_memory() if self._real is None else self._real

    async def __aenter__(self) -> TestApp:
        self._loop = asyncio.get_running_loop()
        if self._real is not None and isinstance(self._loop, VirtualTimeLoop):
            raise RuntimeError(
                "a test in virtual time cannot use a real Kafka, which needs real time"
            )
        app = self.app
        cluster = self._cluster
        errors = LastErrors()
        settlement = SettlementCheck(app, cluster, errors)
        async with AsyncExitStack() as stack:
            # First, because it refuses an application that is running.
            own_overrides = stack.enter_context(
                app._staged(
                    connector=cluster.connector,
                    clock=_clock(),
                    observer=errors,
                    fit=self._spies.install,
                    source=self._config,
                )
            )
            cluster_overrides = await cluster.overrides()
            stack.push_async_callback(cluster.close)
            self._spies.clear()
            self._settlement = settlement
            self._last_settings = None
            overrides = _merged(own_overrides or {}, self._overrides)
            overrides = _merged(overrides, _merged(_WITHOUT_HTTP, cluster_overrides))
            settings = app.configure(overrides=overrides)
            if settings.schema_registry.url and "schema_registry" not in self._overrides:
                # A test must not register schemas in the registry of the application.
                app.configure(overrides=_merged(overrides, _REGISTRY_IN_MEMORY))
            await cluster.open(app)
            stack.push_async_exit(self._stop)
            await app.start()
            await settlement.wait_until_assigned(self._start_timeout_s)
            self._running = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: Any
    ) -> None:
        await self._running.__aexit__(kind, error, trace)

    async def _stop(self, kind: type[BaseException] | None, *_: object) -> None:
        self._last_settings = self.app.settings
        await self.app.stop(drain=kind is None)

    @property
    def _settings(self) -> Settings:
        # Behind the block the application has its own configuration again.
        return self._last_settings or self.app.settings

    def handler(self, function: Callable[..., Any]) -> HandlerSpy:
        """Return the spy on a handler: ``test.handler(invoice).calls``, oldest first.

        Raises:
            LookupError: *function* is no handler of the application, or the block has not begun.
                Functions on Spark and sources have no spies.
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
            channel_or_topic: The name of a channel, else of a topic.
            value: Bytes and None are written as they are, other values in the format of the
                channel's ``value_deserializer``. Without one, a string is written as UTF-8, and
                everything else (models, dataclasses, dicts, numbers) as JSON. The schema is that of
                the channel's ``schema`` table, of the value's model, or of the handler. A
                CloudEvent is written in binary mode, its data in the same format.
            key: Bytes, or a string that is written as UTF-8.
            headers: Pairs of name and bytes.
            partition: Its number. None: the key decides; without a key, partitions take turns.

        Raises:
            EncodeError: The value cannot be written in the channel's format, or is a Record.
            ValueError: The channel reads several topics, so name one of these instead. Or it is a
                memory channel.
        """
        self._check_loop()
        if channel_or_topic in self.app.settings.memory:
            raise ValueError(
                f"{channel_or_topic!r} is a memory channel, no topic: send to it with"
                f" app.emitter({channel_or_topic!r}), made before the application starts"
            )
        if isinstance(value, Record):
            raise EncodeError("test.send() takes no Record: give it the value, key= and headers=")
        check_value(value)
        settings = self.app.settings.incoming.get(channel_or_topic)
        topic = _topic_of(settings) if settings is not None else channel_or_topic
        event = await encode_for_channel(
            self.app, channel_or_topic, topic, value, tuple(headers), _clock().wall()
        )
        if key is None:
            key = event.key
        elif isinstance(key, str):
            key = key.encode()
        record = RecordBytes(event.value, key, event.headers)
        return await self._cluster.write(topic, record, partition)

    async def settled(self, timeout: float = 5.0, *, retries: bool = True) -> None:
        """Wait until every record sent to the running channels is settled and committed.

        It commits what is settled, and does not wait for the next commit of a channel.

        Args:
            timeout: In seconds. While records wait in retry topics, their delays are added to it.
            retries: Wait for delayed retries, too.

        Raises:
            NotSettledError: A channel has failed, or a record is not settled and committed within
                the timeout. ``__cause__`` is the exception of its handler.
            RuntimeError: The block has not begun.
        """
        self._check_loop()
        if self._settlement is None:
            raise RuntimeError("test.settled() before `async with TestApp(app) as test:`")
        await self._settlement.wait_until_settled(timeout, retries=retries)

    def records(self, channel_or_topic: str) -> list[StoredRecord]:
        """Return the records of a topic, or of an outgoing channel's topic, oldest first.

        Partition by partition. Records of a transaction appear when it is committed. It may be
        called after the block, too.
        """
        outgoing = self._settings.outgoing.get(channel_or_topic)
        topic = channel_or_topic if outgoing is None else outgoing.topic
        return list(self._cluster.records(topic))

    def committed(self, channel: str) -> dict[TopicPartition, int]:
        """Return partition -> committed position, of the partitions that a channel reads.

        Partitions without a committed position are left out. With
        ``commit_strategy = "checkpoint"`` the positions are those in the store, of the partitions
        that the channel is assigned. Otherwise it may be called after the block, too.

        Raises:
            KeyError: No such channel is configured.
            ChannelClosedError: With ``commit_strategy = "checkpoint"``: the block is over.
        """
        check = SettlementCheck(self.app, self._cluster, LastErrors())
        return check.committed(self._settings.incoming[channel])

    def _check_loop(self) -> None:
        """Refuse to wait on another loop: the application runs only while its own loop does."""
        if self._loop is not None and self._loop is not asyncio.get_running_loop():
            raise RuntimeError(
                "this TestApp was started on another event loop: an async fixture has a loop of its"
                " own, and so has a test in virtual time. Open TestApp in the test"
            )


def _topic_of(settings: IncomingSettings) -> str:
    topics = settings.subscription.topics
    if len(topics) == 1:
        return topics[0]
    read = ", ".join(topics) if settings.pattern is None else f"the pattern {settings.pattern!r}"
    raise ValueError(f"channel {settings.name!r} reads {read}: name one of its topics")


def _clock() -> Clock:
    """Return the clock of the running loop: virtual if its time is."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return SYSTEM_CLOCK
    return loop.clock if isinstance(loop, VirtualTimeLoop) else SYSTEM_CLOCK


def _merged(tables: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return *tables* with *overrides* over them; tables that both have are merged."""
    merged = dict(tables)
    for name, value in overrides.items():
        existing = merged.get(name)
        if isinstance(value, Mapping) and isinstance(existing, Mapping):
            merged[name] = _merged(existing, value)
        else:
            merged[name] = value
    return merged


def record(
    value: object = b"",
    *,
    key: bytes | str | None = None,
    offset: int = 0,
    headers: Iterable[tuple[str, bytes | None]] = (),
    timestamp: int | None = int(NOVEMBER_2023 * 1000),
) -> StoredRecord:
    """Return a raw record, as a broker client returns it.

    Args:
        value: Bytes and None stay as they are. A string becomes UTF-8, any other value JSON.
        key: Bytes, or a string that becomes UTF-8.
        offset: Its offset in the partition.
        headers: Pairs of name and bytes.
        timestamp: Milliseconds since the epoch.
    """
    return StoredRecord(offset, timestamp, _raw(key), _raw(value), tuple(headers))


def _raw(value: object) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else json.dumps(value).encode()
