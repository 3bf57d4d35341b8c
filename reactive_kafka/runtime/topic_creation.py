"""Creates the topics with ``[topics.X] create = true`` before a client of a channel uses them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from reactive_kafka.broker.client import (
    NO_CONFIG,
    Connector,
    Consumer,
    Inspector,
    Producer,
    RebalanceListener,
    TransactionalProducer,
    inspecting,
)
from reactive_kafka.broker.client_wrapper import ClientWrapper
from reactive_kafka.config.settings import IncomingSettings, OutgoingSettings, Settings
from reactive_kafka.config.tables import TopicSettings
from reactive_kafka.errors import BrokerError, FatalBrokerError, TransientBrokerError
from reactive_kafka.observe.events import Observer, TopicCreated
from reactive_kafka.subscription import Subscription


class DeclaredTopics:
    """The topics that the channels of one run may create."""

    def __init__(self, settings: Settings, observer: Observer) -> None:
        self._outgoing = settings.outgoing
        self._observer = observer
        self._declared = {name: topic for name, topic in settings.topics.items() if topic.create}

    def of_incoming(self, settings: IncomingSettings, connector: Connector) -> Connector:
        """Return what makes the clients of an incoming channel."""
        if not self._declared:
            return connector
        # The topics of its letters are looked at, and created, by an inspector: they get as many
        # partitions as the channel's own.
        retries = () if settings.delayed_retry is None else settings.delayed_retry.topics
        read = {name: topic for name, topic in self._declared.items() if name not in retries}
        return CreatingConnector(
            connector, settings.name, self._declared, self._observer, read=read, written=()
        )

    def of_outgoing(self, settings: OutgoingSettings, connector: Connector) -> Connector:
        """Return what makes the clients of an outgoing channel."""
        if not self._declared:
            return connector
        written = {settings.topic}
        if settings.transactional_id is not None:
            # Channels with the same id share their producers.
            written |= {
                other.topic
                for other in self._outgoing.values()
                if other.transactional_id == settings.transactional_id
            }
        return CreatingConnector(
            connector,
            settings.name,
            self._declared,
            self._observer,
            read=self._declared,
            written=written,
        )


class CreatingConnector(ClientWrapper[Connector]):
    """Makes clients that create missing topics when they start.

    A client whose topic cannot be created does not start, and its channel tries again as with any
    other error of a broker. So readiness says why, for example which right is missing.

    Args:
        declared: All topics that may be created.
        read: Those that its consumers create, if they read them.
        written: The names of the topics that its producers write to.
    """

    def __init__(
        self,
        inner: Connector,
        channel: str,
        declared: Mapping[str, TopicSettings],
        observer: Observer,
        *,
        read: Mapping[str, TopicSettings],
        written: Collection[str],
    ) -> None:
        super().__init__(inner)
        self._channel = channel
        self._declared = declared
        self._read = read
        self._written = [topic for name, topic in declared.items() if name in written]
        self._observer = observer
        # The topics that were seen in this run. If one is deleted later, it stays deleted.
        self._seen: set[str] = set()

    def consumer(
        self,
        *,
        name: str,
        subscription: Subscription,
        group_id: str | None,
        properties: Mapping[str, object],
    ) -> Consumer:
        """As :meth:`Connector.consumer`."""
        inner = self._inner.consumer(
            name=name, subscription=subscription, group_id=group_id, properties=properties
        )
        read = [topic for name, topic in self._read.items() if subscription.reads(name)]
        return _CreatingConsumer(inner, self, read, properties) if read else inner

    def producer(self, *, name: str, properties: Mapping[str, object]) -> Producer:
        """As :meth:`Connector.producer`."""
        inner = self._inner.producer(name=name, properties=properties)
        return _CreatingProducer(inner, self, properties) if self._written else inner

    def transactional_producer(
        self, *, name: str, transactional_id: str, properties: Mapping[str, object]
    ) -> TransactionalProducer:
        """As :meth:`Connector.transactional_producer`."""
        inner = self._inner.transactional_producer(
            name=name, transactional_id=transactional_id, properties=properties
        )
        if not self._written:
            return inner
        return _CreatingTransactionalProducer(inner, self, properties)

    def inspector(self, *, properties: Mapping[str, object]) -> Inspector:
        """As :meth:`Connector.inspector`."""
        return _DeclaringInspector(self._inner.inspector(properties=properties), self._declared)

    async def create_written(self, properties: Mapping[str, object]) -> None:
        """Create the topics that producers write to, if they are missing."""
        await self.create(self._written, properties)

    async def create(
        self, topics: Iterable[TopicSettings], properties: Mapping[str, object]
    ) -> None:
        """Create those of the topics that are missing.

        Raises:
            BrokerError: One of them is missing and was not created.
        """
        wanted = [topic for topic in topics if topic.name not in self._seen]
        if not wanted:
            return
        async with inspecting(self._inner, properties) as inspector:
            existing = await inspector.topics([topic.name for topic in wanted])
            for topic in wanted:
                if not existing.get(topic.name):
                    await self._create(inspector, topic)
                self._seen.add(topic.name)

    async def _create(self, inspector: Inspector, topic: TopicSettings) -> None:
        partitions = topic.partitions or 1
        try:
            await inspector.create_topic(
                topic.name, partitions, topic.replication_factor, topic.config
            )
        except BrokerError as error:
            # Another member may have created it meanwhile.
            if (await inspector.topics([topic.name])).get(topic.name):
                return
            kind: type[BrokerError] = FatalBrokerError
            if isinstance(error, TransientBrokerError):
                kind = TransientBrokerError
            raise kind(
                f"the topic {topic.name!r} does not exist, or the right to see it is missing, and "
                f"it was not created: {error}"
            ) from error
        self._observer.on(
            TopicCreated(channel=self._channel, topic=topic.name, partitions=partitions)
        )


class _CreatingConsumer(ClientWrapper[Consumer]):
    def __init__(
        self,
        inner: Consumer,
        connector: CreatingConnector,
        topics: Collection[TopicSettings],
        properties: Mapping[str, object],
    ) -> None:
        super().__init__(inner)
        self._connector = connector
        self._topics = topics
        self._properties = properties

    async def start(self, listener: RebalanceListener) -> None:
        await self._connector.create(self._topics, self._properties)
        await self._inner.start(listener)


class _CreatingProducer(ClientWrapper[Producer]):
    def __init__(
        self, inner: Producer, connector: CreatingConnector, properties: Mapping[str, object]
    ) -> None:
        super().__init__(inner)
        self._connector = connector
        self._properties = properties

    async def start(self) -> None:
        await self._connector.create_written(self._properties)
        await self._inner.start()


class _CreatingTransactionalProducer(ClientWrapper[TransactionalProducer]):
    def __init__(
        self,
        inner: TransactionalProducer,
        connector: CreatingConnector,
        properties: Mapping[str, object],
    ) -> None:
        super().__init__(inner)
        self._connector = connector
        self._properties = properties

    async def claim(self) -> None:
        await self._connector.create_written(self._properties)
        await self._inner.claim()


class _DeclaringInspector(ClientWrapper[Inspector]):
    """Creates a declared topic with its declared settings, in place of those of the caller."""

    def __init__(self, inner: Inspector, declared: Mapping[str, TopicSettings]) -> None:
        super().__init__(inner)
        self._declared = declared

    async def create_topic(
        self,
        topic: str,
        partitions: int,
        replication_factor: int | None = None,
        config: Mapping[str, str] = NO_CONFIG,
        *,
        only_checks: bool = False,
    ) -> None:
        """As :meth:`Inspector.create_topic`."""
        declared = self._declared.get(topic)
        if declared is not None:
            partitions = declared.partitions or partitions
            replication_factor = declared.replication_factor
            config = declared.config
        await self._inner.create_topic(
            topic, partitions, replication_factor, config, only_checks=only_checks
        )
