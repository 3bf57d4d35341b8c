"""What fetching needs around it, made by hand: a format of batches, nodes that answer as told."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from reactive_kafka import TopicPartition
from reactive_kafka.broker.consumer.fetching.fetch_settings import FetchSettings
from reactive_kafka.broker.consumer.fetching.node_fetch import NodeFetch
from reactive_kafka.broker.consumer.fetching.read_partition import FetchedPiece, ReadPartition
from reactive_kafka.broker.consumer.fetching.read_partitions import ReadPartitions
from reactive_kafka.broker.consumer.fetching.response_decoding import FetchAnswer, PartitionAnswer
from reactive_kafka.errors import BrokerError, FatalBrokerError
from reactive_kafka.records import RawRecord
from tests.broker.consumer.fetching.records import PlainRecord

ONE = 1
OTHER = 2
"""Nodes."""
CUT = b"cut"
"""Content whose first batch is cut short."""
GARBAGE = b"garbage"
"""Content that begins with no batch."""


def partition(number: int) -> TopicPartition:
    return TopicPartition("orders", number)


class TextReader:
    """Reads content that has one record in each byte."""

    pending_unpack: Callable[[], memoryview] | None = None

    def __init__(self, offset: int, content: bytes) -> None:
        self.next_offset = offset
        self._left = deque(content)

    @property
    def is_exhausted(self) -> bool:
        return not self._left

    @property
    def left_bytes(self) -> int:
        return len(self._left)

    def take(self, count: int) -> list[RawRecord]:
        taken: list[RawRecord] = []
        while self._left and len(taken) < count:
            taken.append(PlainRecord(self.next_offset, bytes([self._left.popleft()])))
            self.next_offset += 1
        return taken

    def take_bytes(self, count: int, most_bytes: int) -> list[RawRecord]:
        return self.take(min(count, most_bytes))

    def finish_unpack(self, done: Any) -> None:
        raise AssertionError("nothing was to be unpacked")


class TextFormat:
    """Content of one record a byte; the first batch is all of it."""

    def __init__(self) -> None:
        self.aborted: Sequence[tuple[int, int]] | None = None

    def first_batch_bytes(self, content: bytes) -> int:
        if content == GARBAGE:
            raise ValueError("no batch begins so")
        return 0 if content == CUT else len(content)

    def until(self, content: bytes, offset: int) -> int | None:
        return offset + 1 if content == GARBAGE else None

    def reader(
        self,
        partition: TopicPartition,
        offset: int,
        content: bytes,
        aborted: Sequence[tuple[int, int]] | None,
    ) -> TextReader:
        self.aborted = aborted
        return TextReader(offset, content)

    def error_of(self, code: int, about: str) -> BrokerError:
        return FatalBrokerError(f"{code}: {about}")


class Reads(ReadPartitions):
    """Partitions with leaders as told, that count what they are told."""

    def __init__(self, count: int = 0, leaders: Mapping[int, int | None] | None = None) -> None:
        self.leaders: dict[TopicPartition, int | None] = {
            partition(number): node for number, node in (leaders or {}).items()
        }
        self.changes = 0
        self.wakes = 0
        super().__init__(self._note, self._note_wake, self.leader_of)
        self.start(range(count))

    def start(self, numbers: Iterable[int], offset: int = 7) -> None:
        """Own partitions and read them from an offset on."""
        partitions = [partition(number) for number in numbers]
        self.hold(partitions)
        self.start_at(dict.fromkeys(partitions, offset))

    def leader_of(self, wanted: TopicPartition) -> int | None:
        return self.leaders.get(wanted, ONE)

    def state(self, number: int) -> ReadPartition:
        return self.states[partition(number)]

    def keep_some(self, number: int, came_at: float = 0.0, content: bytes = b"abc") -> None:
        """Hold something that was fetched of a partition."""
        state = self.state(number)
        piece = FetchedPiece(TextReader(state.position or 0, content), len(content), came_at)
        self.keep(state, piece)

    def _note(self) -> None:
        self.changes += 1

    def _note_wake(self) -> None:
        self.wakes += 1


def says(
    number: int,
    content: bytes = b"",
    *,
    error: int = 0,
    end: int = 7,
    stable: int = 7,
    aborted: Sequence[tuple[int, int]] = (),
    replica: int = -1,
) -> PartitionAnswer:
    """What an answer says of a partition."""
    return PartitionAnswer(partition(number), error, end, stable, 0, aborted, replica, content)


def answer(*rows: PartitionAnswer, error: int = 0, session_id: int = 0) -> FetchAnswer:
    return FetchAnswer(error, session_id, rows)


class ScriptedNodes:
    """Nodes that answer when a test says so.

    Attributes:
        sent: The fetches, in their order.
    """

    def __init__(self, reads: Reads) -> None:
        self.sent: list[NodeFetch] = []
        self.metadata_requests = 0
        self.nodes = {ONE, OTHER}
        self._reads = reads
        self._waiting: dict[int, asyncio.Future[FetchAnswer]] = {}

    async def send(self, fetch: NodeFetch) -> FetchAnswer:
        assert fetch.node not in self._waiting, "two fetches of one node at a time"
        self.sent.append(fetch)
        answered = asyncio.get_running_loop().create_future()
        self._waiting[fetch.node] = answered
        try:
            return await answered
        finally:
            del self._waiting[fetch.node]

    async def answers(self, told: FetchAnswer | BrokerError, node: int = ONE) -> None:
        """Answer the fetch of a node, and let the fetcher look at that."""
        answered = self._waiting[node]
        if isinstance(told, BrokerError):
            answered.set_exception(told)
        else:
            answered.set_result(told)
        await turns()

    def asked(self, node: int = ONE) -> dict[int, int]:
        """Partition -> offset, of the fetch that is on its way to a node; empty: none is."""
        if node not in self._waiting:
            return {}
        last = next(fetch for fetch in reversed(self.sent) if fetch.node == node)
        return {number: offset for _, number, offset, _ in last.asks}

    def leader_of(self, wanted: TopicPartition) -> int | None:
        return self._reads.leader_of(wanted)

    def has_node(self, node: int) -> bool:
        return node in self.nodes

    def request_metadata(self) -> None:
        self.metadata_requests += 1


async def turns(count: int = 5) -> None:
    """Let other tasks run."""
    for _ in range(count):
        await asyncio.sleep(0)


SETTINGS = FetchSettings(max_partition_fetch_bytes=9, fetch_max_bytes=99, idle_s=10.0)
