"""What the tests of hazards break things with: an embedded broker that errs on command, behind a
rewriting proxy.
"""

from __future__ import annotations

import asyncio
import ctypes
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any

from reactive_kafka import TopicPartition
from reactive_kafka.broker.client import Connector
from reactive_kafka.broker.embedded import EmbeddedBroker
from reactive_kafka.broker.kafka_connector import KafkaConnector
from tests.broker.members import PATIENCE_S
from tests.harness.proxy import Direction, Proxy

_BROKER = 1


class MockBroker(EmbeddedBroker):
    """The embedded broker with librdkafka's levers. Clients are told the address of *proxy* where
    there is one.
    """

    def __init__(self) -> None:
        super().__init__()
        library, pointer = self._library, ctypes.c_void_p
        for name, result, arguments in (
            ("broker_set_down", ctypes.c_int, [pointer, ctypes.c_int32]),
            ("broker_set_up", ctypes.c_int, [pointer, ctypes.c_int32]),
            (
                "broker_set_host_port",
                ctypes.c_int,
                [pointer, ctypes.c_int32, ctypes.c_char_p, ctypes.c_int],
            ),
            (
                "push_request_errors_array",
                None,
                [pointer, ctypes.c_int16, ctypes.c_size_t, pointer],
            ),
            ("clear_request_errors", None, [pointer, ctypes.c_int16]),
        ):
            function = getattr(library, f"rd_kafka_mock_{name}")
            function.restype, function.argtypes = result, arguments

    def go_down(self) -> None:
        """Cut all connections and refuse new ones."""
        self._library.rd_kafka_mock_broker_set_down(self._running, _BROKER)

    def come_up(self) -> None:
        """Accept connections again."""
        self._library.rd_kafka_mock_broker_set_up(self._running, _BROKER)

    def advertise(self, address: str) -> None:
        """Tell clients this address instead of its own."""
        host, _, port = address.rpartition(":")
        self._library.rd_kafka_mock_broker_set_host_port(
            self._running, _BROKER, host.encode(), int(port)
        )

    def answer_with(self, api: int, code: int, times: int) -> None:
        """Answer the next *times* requests of an API with an error code."""
        codes = (ctypes.c_int * times)(*[code] * times)
        self._library.rd_kafka_mock_push_request_errors_array(
            self._running, api, times, ctypes.byref(codes)
        )

    def heal(self, api: int) -> None:
        """Forget the errors that are left for an API."""
        self._library.rd_kafka_mock_clear_request_errors(self._running, api)


class Rewriting(Direction):
    """Replaces bytes in what passes, as long as it is told to; the lengths stay."""

    def __init__(self) -> None:
        super().__init__()
        self.rewrite: Callable[[bytes], bytes] | None = None
        self.rewritten = 0
        self.passed_bytes = 0

    async def treat(self, piece: bytes) -> bytes:
        """The piece as it comes out."""
        piece = await super().treat(piece)
        self.passed_bytes += len(piece)
        if self.rewrite is None:
            return piece
        changed = self.rewrite(piece)
        assert len(changed) == len(piece)
        self.rewritten += changed != piece
        return changed


class Rig:
    """A mock broker that is reached through a proxy only; a cluster for
    :mod:`tests.broker.members`.
    """

    # The mock lets who joins a group that others have left wait for a session (less one second).
    properties: Mapping[str, object] = {"heartbeat_interval_ms": 200, "session_timeout_ms": 2000}

    def __init__(self, broker: MockBroker, proxy: Proxy, answers: Rewriting) -> None:
        self.broker = broker
        self.proxy = proxy
        self.answers = answers
        self.bootstrap_servers = proxy.address
        self.connector: Connector = KafkaConnector(proxy.address)

    async def create_topic(self, partitions: int, prefix: str = "topic") -> str:
        """A new topic; returns its name."""
        topic = f"{prefix}-{uuid.uuid4().hex[:8]}"
        self.broker.create_topic(topic, partitions)
        return topic

    async def delete_records(self, partition: TopicPartition, before: int) -> None:
        """The mock cannot."""
        raise NotImplementedError

    async def produce_and_leave_a_marker(
        self, partition: TopicPartition, values: Collection[bytes]
    ) -> None:
        """The mock cannot."""
        raise NotImplementedError


@asynccontextmanager
async def rigged() -> AsyncIterator[Rig]:
    """A mock broker of its own behind a proxy."""
    with MockBroker() as broker:
        proxy = Proxy(broker.bootstrap_servers)
        answers = proxy.answers = Rewriting()
        async with proxy:
            broker.advertise(proxy.address)
            yield Rig(broker, proxy, answers)


async def until(fact: Callable[[], Any], what: str, within_s: float = PATIENCE_S) -> None:
    """Wait until something becomes true that nobody announces."""
    try:
        async with asyncio.timeout(within_s):
            while not fact():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"not within {within_s:g} s: {what}") from None


async def ends_within(task: asyncio.Future[Any], seconds: float) -> bool:
    """Whether it is over by then; it is not cancelled."""
    done, _ = await asyncio.wait([task], timeout=seconds)
    return bool(done)


def tasks_but(before: set[asyncio.Task[Any]]) -> set[asyncio.Task[Any]]:
    """The tasks that run now and did not before."""
    return asyncio.all_tasks() - before
