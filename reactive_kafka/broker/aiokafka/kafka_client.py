"""A client of a Kafka cluster: connections to its brokers, and what it knows of them."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from asyncio import Future
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, Protocol

import aiokafka.errors as kafka_errors
from aiokafka.client import ConnectionGroup, CoordinationType
from aiokafka.cluster import ClusterMetadata
from aiokafka.conn import collect_hosts

from reactive_kafka.broker.aiokafka.connect_failures import (
    EXPECTED_ERRORS,
    ConnectFailure,
    explain_failure,
)
from reactive_kafka.broker.aiokafka.connections.broker_connection import (
    BrokerConnection,
    ClosedBecause,
)
from reactive_kafka.broker.aiokafka.connections.client_settings import ClientSettings
from reactive_kafka.broker.aiokafka.credentials import current
from reactive_kafka.broker.aiokafka.error_classes import class_for
from reactive_kafka.broker.aiokafka.known_cluster import update_cluster
from reactive_kafka.broker.aiokafka.metadata_requests import metadata_in, metadata_request
from reactive_kafka.broker.aiokafka.pacing import LookupPauses, RefusedConnections
from reactive_kafka.broker.wire.definitions import FIND_COORDINATOR
from reactive_kafka.broker.wire.errors import MessageDecodeError
from reactive_kafka.broker.wire.requests import Answer, Request
from reactive_kafka.errors import describe
from reactive_kafka.tasks import Flag

logger = logging.getLogger("reactive_kafka.connections")

PRODUCE_KEY = 0
LONGEST_PAUSE_S = 5.0
"""The longest pause after refused connections, unless deadlines say another."""
MOST_FAILURES = 8
"""How many failed attempts to connect are kept."""
NO_ANSWER = (kafka_errors.KafkaError, TimeoutError, MessageDecodeError)


class AnswerDeadlines(Protocol):
    """How long a client waits for its brokers."""

    connect_timeout_s: float
    longest_pause_s: float

    def send(
        self, client: KafkaClient, connection: BrokerConnection, request: Any
    ) -> Awaitable[Any]:
        """Send a request on a connection of the client, and return its answer."""
        ...


class KafkaClient:
    """A client of one cluster. Its methods are those of aiokafka's client, and some more.

    Args:
        settings: Where the brokers are, and how to log in.
        deadlines: None: each request has the ``request_timeout_ms`` of the settings.
        cluster: What is known of the cluster; None: a new one.
        on_connected: Called after each new connection to a broker of the cluster.

    Attributes:
        cluster: The brokers, topics and leaders that a broker has named last.
        failures: Why the last attempts to connect have failed.
        last_failure: Why the last attempt to connect to an advertised address has failed; None if
            it succeeded.
    """

    def __init__(
        self,
        settings: ClientSettings,
        deadlines: AnswerDeadlines | None = None,
        *,
        cluster: ClusterMetadata | None = None,
        on_connected: Callable[[], None] = lambda: None,
    ) -> None:
        self.settings = settings
        self.cluster = cluster or ClusterMetadata(metadata_max_age_ms=settings.metadata_max_age_ms)
        self.failures: list[ConnectFailure] = []
        self.last_failure: ConnectFailure | None = None
        self._deadlines = deadlines
        self._on_connected = on_connected
        longest_pause_s = LONGEST_PAUSE_S if deadlines is None else deadlines.longest_pause_s
        self._refused = RefusedConnections(longest_pause_s)
        self._lookup_pauses = LookupPauses()
        # All connections that are open or being opened.
        self._opened: set[BrokerConnection] = set()
        # Node and group of requests -> its connection, which may be closed.
        self._connections: dict[tuple[int, Any], BrokerConnection] = {}
        # One for each: connecting to a node that hangs must not hold up the others.
        self._locks: dict[tuple[int, Any], asyncio.Lock] = {}
        # The connection to a bootstrap server that has named no broker yet.
        self._bootstrap_connection: BrokerConnection | None = None
        # Those whose metadata is asked for. Empty: of all topics.
        self._topics: frozenset[str] = frozenset()
        # The result of the update that was asked for. None: no update was asked for.
        self._update: Future[bool] | None = None
        self._update_is_due = Flag()
        self._updating: asyncio.Task[None] | None = None
        self._is_closed = False
        if settings.sends_password_in_the_clear:
            logger.warning(
                "%s sends its password in the clear: set security_protocol to SASL_SSL, "
                "or sasl_mechanism to SCRAM-SHA-512",
                settings.client_id,
            )

    def __repr__(self) -> str:
        return f"<KafkaClient {self.settings.client_id}>"

    # Connecting

    async def bootstrap(self) -> None:
        """Ask the bootstrap servers which brokers there are, and keep the metadata fresh from now.

        Raises:
            aiokafka.errors.KafkaConnectionError: None of them answers.
        """
        await self._ask_bootstrap_servers(())
        if self._updating is None:
            self._updating = asyncio.create_task(self._keep_updated(), name="metadata")

    async def find_moved_brokers(self) -> None:
        """Ask the bootstrap servers again, because no known broker answers.

        Raises:
            aiokafka.errors.KafkaConnectionError: None of them answers either.
        """
        await self._ask_bootstrap_servers(self._topics or None)
        self.force_metadata_update()

    async def close(self) -> None:
        """Close all connections, after what was written is sent. Fails requests without answer."""
        self._is_closed = True
        updating = self._updating
        self._updating = None
        if updating is not None:
            updating.cancel()
        self._end_update(has_succeeded=False)
        connections = [*self._opened]
        # Before the first wait, in which this may be cancelled.
        for connection in connections:
            connection.close()
        await asyncio.gather(*(connection.wait_closed() for connection in connections))
        if updating is not None:
            await asyncio.wait([updating])

    async def ready(self, node: int, *, group: Any = ConnectionGroup.DEFAULT) -> bool:
        """Connect to a node, unless it is connected. False: that has failed, or has to wait."""
        return await self._connection(node, group) is not None

    def connection(self, node: int | None, group: Any) -> BrokerConnection | None:
        """Return the open connection to a node; None if the node is not connected."""
        if node is None:
            return None
        found = self._connections.get((node, group))
        return found if found is not None and found.is_open else None

    def connected_nodes(self) -> set[int]:
        """Return the brokers of the cluster with an open connection of the default group."""
        return {
            node
            for (node, group), connection in self._connections.items()
            if group == ConnectionGroup.DEFAULT
            and connection.is_open
            and self.cluster.broker_metadata(node) is not None
        }

    def get_random_node(self) -> int | None:
        """Return the id of any known broker; None: none is known."""
        nodes = [broker.nodeId for broker in self.cluster.brokers()]
        return random.choice(nodes) if nodes else None

    # Requests

    async def send(self, node: int, request: Any, *, group: Any = ConnectionGroup.DEFAULT) -> Any:
        """Send a request to a node, in one attempt, and return its answer.

        Cancellation: the request may have been sent, and its answer is dropped.

        Args:
            node: The id of a broker.
            request: As in :meth:`BrokerConnection.send`.
            group: Each group of requests has connections of its own.

        Raises:
            aiokafka.errors.NodeNotReadyError: The node cannot be connected to now.
            aiokafka.errors.RequestTimedOutError: It has not answered. The connection is closed.
            aiokafka.errors.KafkaConnectionError: The connection was closed.
        """
        connection = await self._connection(node, group)
        if connection is None:
            raise kafka_errors.NodeNotReadyError(
                f"Attempt to send a request to node which is not ready (node id {node})."
            )
        try:
            # The only request that may go without an answer.
            if request.API_KEY == PRODUCE_KEY and request.required_acks == 0:
                return await connection.send(request, expects_answer=False)
            return await self._send_on(connection, request)
        except TimeoutError as error:
            connection.close(ClosedBecause.TIMED_OUT, error)
            raise kafka_errors.RequestTimedOutError() from error

    async def coordinator_lookup(self, kind: CoordinationType, key: str) -> int:
        """Return the node of the coordinator of a group or of a transactional id.

        Waits longer after each lookup, because an answer is no progress: the node that it names may
        say that it is not the coordinator.

        Raises:
            aiokafka.errors.KafkaError: The broker's error, or no answer.
        """
        await self._lookup_pauses.wait()
        node = self.get_random_node()
        if node is None:
            raise kafka_errors.NodeNotReadyError("looking up the coordinator: no broker is known")
        values = {"key": key, "key_type": int(kind)}
        answer: Answer = await self.send(node, Request(FIND_COORDINATOR, values, "1-3"))
        if code := answer.values["error_code"]:
            raise class_for(code)()
        coordinator: int = answer.values["node_id"]
        return coordinator

    # Metadata

    def force_metadata_update(self) -> Future[bool]:
        """Have the metadata updated soon. The result: whether a broker has answered."""
        if self._update is None:
            self._update = asyncio.get_running_loop().create_future()
            if self._is_closed:
                self._update.set_result(False)
            self._update_is_due.set()
        return asyncio.shield(self._update)

    async def fetch_all_metadata(self) -> ClusterMetadata:
        """Return metadata of all topics, and leave what the client knows alone.

        Raises:
            aiokafka.errors.KafkaError: No broker answers.
        """
        cluster = ClusterMetadata(metadata_max_age_ms=self.settings.metadata_max_age_ms)
        if not await self._update_from_any_broker(cluster, None):
            raise kafka_errors.KafkaError("Unable to get cluster metadata over all known brokers")
        return cluster

    @property
    def is_updating(self) -> bool:
        """True if an update was asked for, and has not ended."""
        return self._update is not None

    @property
    def asks_for_all_topics(self) -> bool:
        return not self._topics

    def add_topic(self, topic: str) -> Future[bool]:
        """Ask for the metadata of this topic, too. The result: as that of an update."""
        if topic in self._topics:
            return _known()
        self._topics |= {topic}
        return self.force_metadata_update()

    def set_topics(self, topics: Collection[str]) -> Future[bool]:
        """Ask for the metadata of these topics only; of all topics if there are none."""
        has_new = not topics or not self._topics.issuperset(topics)
        self._topics = frozenset(topics)
        return self.force_metadata_update() if has_new else _known()

    async def _keep_updated(self) -> None:
        max_age_s = self.settings.metadata_max_age_ms / 1000
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(max_age_s):
                    await self._update_is_due.wait()
            self._update_is_due.clear()
            topics = self._topics
            has_succeeded = False
            try:
                has_succeeded = await self._update_from_any_broker(self.cluster, topics or None)
            except Exception:
                # A listener of the cluster has failed. Without this task nothing would be updated.
                logger.exception("updating the metadata")
            if topics == self._topics:
                self._end_update(has_succeeded=has_succeeded)
            else:
                # Those who wait asked for the topics that there are now.
                self._update_is_due.set()

    def _end_update(self, *, has_succeeded: bool) -> None:
        update = self._update
        self._update = None
        self._update_is_due.clear()
        if update is not None and not update.done():
            update.set_result(has_succeeded)

    async def _update_from_any_broker(
        self, cluster: ClusterMetadata, topics: Collection[str] | None
    ) -> bool:
        """Ask one broker after the other until one names brokers. False: none does."""
        nodes = [broker.nodeId for broker in self.cluster.brokers()]
        random.shuffle(nodes)
        for node in nodes:
            connection = await self._connection(node, ConnectionGroup.DEFAULT)
            metadata = None if connection is None else await self._metadata(connection, topics)
            if metadata is not None and _take(cluster, metadata):
                return True
        if self._bootstrap_connection is not None:
            metadata = await self._metadata(self._bootstrap_connection, topics)
            if metadata is not None and _take(cluster, metadata):
                self._forget_bootstrap_connection()
                return True
        cluster.failed_update(None)
        return False

    async def _metadata(
        self, connection: BrokerConnection, topics: Collection[str] | None
    ) -> Mapping[str, Any] | None:
        """Return a broker's answer; None: it has not answered."""
        request = metadata_request(topics, creates=True)
        try:
            return metadata_in(await self._send_on(connection, request))
        except NO_ANSWER as error:
            logger.debug("no metadata from %s:%d: %r", connection.host, connection.port, error)
            return None

    # Connections

    async def _ask_bootstrap_servers(self, topics: Collection[str] | None) -> None:
        """Take the brokers that one of the bootstrap servers names.

        If those that answer name none, the connection to one of them is kept: a cluster that has
        just started may name no broker yet, and is asked again there.

        Raises:
            aiokafka.errors.KafkaConnectionError: None of them answers.
        """
        self._forget_bootstrap_connection()
        hosts = collect_hosts(self.settings.bootstrap_servers)
        for host, port, _ in hosts:
            if await self._ask_bootstrap_server(host, port, topics):
                self._forget_bootstrap_connection()
                return
        if self._bootstrap_connection is None:
            raise kafka_errors.KafkaConnectionError(f"Unable to bootstrap from {hosts}")

    async def _ask_bootstrap_server(
        self, host: str, port: int, topics: Collection[str] | None
    ) -> bool:
        """Take the brokers that a bootstrap server names. Returns False if it names none."""
        try:
            connection = await self._open(host, port, is_advertised=False)
        except EXPECTED_ERRORS:
            return False
        try:
            metadata = await self._metadata(connection, topics)
        except BaseException:
            # A cancellation must close the connection, too: nobody else has it yet.
            connection.close()
            raise
        if metadata is not None and not _take(self.cluster, metadata):
            self._forget_bootstrap_connection()
            self._bootstrap_connection = connection
            return False
        connection.close()
        return metadata is not None

    def _forget_bootstrap_connection(self) -> None:
        if self._bootstrap_connection is not None:
            self._bootstrap_connection.close()
            self._bootstrap_connection = None

    async def _connection(self, node: int, group: Any) -> BrokerConnection | None:
        """Return a connection to a node; None: it cannot be had, or not before a pause is over."""
        known = self.connection(node, group)
        if known is not None:
            return known
        async with self._locks.setdefault((node, group), asyncio.Lock()):
            known = self.connection(node, group)
            if known is not None:
                return known
            broker = self.cluster.broker_metadata(node)
            if broker is None:
                # A coordinator, for example, that is new in the cluster.
                self.force_metadata_update()
                return None
            # The pause belongs to the address: a node that has moved may be reached at once.
            address = (broker.host, broker.port)
            if self._refused.has_to_wait(address, time.monotonic()):
                return None
            try:
                connection = await self._open(*address, is_advertised=True)
            except EXPECTED_ERRORS:
                self._refused.refused(address, time.monotonic())
                # Other brokers may have taken over its partitions and groups.
                self.force_metadata_update()
                return None
            self._refused.connected(address)
            self._connections[node, group] = connection
            self._on_connected()
            return connection

    async def _open(self, host: str, port: int, *, is_advertised: bool) -> BrokerConnection:
        """Connect to an address.

        *is_advertised*: a broker has named the address; it does not come from the settings.

        Raises:
            OSError: The network refuses.
            aiokafka.errors.KafkaError: Everything else. For example, this client is closed.
        """
        self._raise_if_closed()
        settings = self.settings
        context, problem = None, ""
        if settings.uses_tls:
            context, problem = current(settings.ssl_context)
        connection = BrokerConnection(
            host, port, settings, lambda reason: self._connection_closed(connection, reason)
        )
        self._opened.add(connection)
        timeout_s = settings.request_timeout_s
        if self._deadlines is not None:
            timeout_s = self._deadlines.connect_timeout_s
        try:
            await connection.connect(context, timeout_s)
        except Exception as error:
            failure = explain_failure(
                f"{host}:{port}", settings, error, is_advertised=is_advertised
            )
            if problem:
                failure = failure._replace(text=f"{failure.text}; {problem}")
            self.failures.append(failure)
            del self.failures[:-MOST_FAILURES]
            if is_advertised:
                self.last_failure = failure
            logger.debug("cannot connect to %s", failure.text)
            if isinstance(error, EXPECTED_ERRORS):
                raise
            raise kafka_errors.AuthenticationFailedError(describe(error)) from error
        finally:
            if self._is_closed:
                # This client was closed before the connection was open.
                connection.close()
            if not connection.is_open:
                self._opened.discard(connection)
        self._raise_if_closed()
        if is_advertised:
            self.last_failure = None
        return connection

    def _raise_if_closed(self) -> None:
        if self._is_closed:
            raise kafka_errors.KafkaConnectionError(f"{self} is closed")

    def _connection_closed(self, connection: BrokerConnection, reason: ClosedBecause) -> None:
        self._opened.discard(connection)
        # The broker may have ended, and others may lead its partitions.
        if reason in (ClosedBecause.BROKEN, ClosedBecause.TIMED_OUT):
            self.force_metadata_update()

    def _send_on(self, connection: BrokerConnection, request: Any) -> Awaitable[Any]:
        if self._deadlines is None:
            return connection.send(request)
        return self._deadlines.send(self, connection, request)


def _known() -> Future[bool]:
    known: Future[bool] = asyncio.get_running_loop().create_future()
    known.set_result(True)
    return known


def _take(cluster: ClusterMetadata, metadata: Mapping[str, Any]) -> bool:
    """Take an answer into *cluster*, unless it names no broker. Returns whether it names one."""
    if not metadata["brokers"]:
        return False
    update_cluster(cluster, metadata)
    return True
