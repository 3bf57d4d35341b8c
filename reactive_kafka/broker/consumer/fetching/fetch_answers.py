"""What the answers to fetches mean for the partitions. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from reactive_kafka.broker.consumer.fetching.fetch_parts import RecordFormat
from reactive_kafka.broker.consumer.fetching.fetch_settings import FetchSettings
from reactive_kafka.broker.consumer.fetching.fetch_size import FetchSize
from reactive_kafka.broker.consumer.fetching.node_fetch import AskedPartition, NodeFetch
from reactive_kafka.broker.consumer.fetching.prefetch import FULL
from reactive_kafka.broker.consumer.fetching.read_partition import FetchedPiece, ReadPartition
from reactive_kafka.broker.consumer.fetching.read_partitions import ReadPartitions
from reactive_kafka.broker.consumer.fetching.response_decoding import FetchAnswer, PartitionAnswer
from reactive_kafka.broker.error_codes import Act, error_code
from reactive_kafka.errors import BrokerError, CorruptRecordError, OffsetOutOfRangeError

OFFSET_OUT_OF_RANGE = 1
CORRUPT_MESSAGE = 2
RETRY_S = 0.1
"""After an error a partition is not fetched for so long."""
CUT = "a batch is cut short, or larger than max_partition_fetch_bytes"


class News(NamedTuple):
    """What an answer has brought."""

    # There are records, or errors that a poll has to return.
    is_to_be_taken: bool
    # The broker knows the cluster better than we do.
    needs_metadata: bool


class FetchAnswers:
    """Keeps what the answers of one consumer bring, until polls take it.

    - Records of a partition that was sought, or released, meanwhile are dropped. So are those that
      another node has sent, too.
    - A first batch that cannot be one is an error of its partition. So is one that is cut short,
      if it was fetched with the largest size; otherwise the next fetch asks for more.
    - If a partition's fetch is refused for good, polls return why, each time that it is tried.

    Args:
        reads: The partitions.
        settings: Of the consumer.
        record_format: Reads batches.
        has_node: True for the nodes that there are.

    Attributes:
        has_more: The last answer was full, and no other partitions were asked for since.
    """

    def __init__(
        self,
        reads: ReadPartitions,
        settings: FetchSettings,
        record_format: RecordFormat,
        has_node: Callable[[int], bool],
    ) -> None:
        self.has_more = False
        self.fetch_size = FetchSize(settings.max_partition_fetch_bytes, settings.fetch_max_bytes)
        self._reads = reads
        self._settings = settings
        self._format = record_format
        self._has_node = has_node

    def take(self, fetch: NodeFetch, answer: FetchAnswer, now: float) -> News:
        """Keep what an answer brings."""
        is_to_be_taken = False
        needs_metadata = False
        size = 0
        largest = 0
        for row in answer.partitions:
            asked = self._still_asked(fetch, row)
            if asked is None:
                continue
            state = asked.state
            if row.error_code:
                needs_metadata |= self._note_error(fetch, asked, row.error_code, now)
                is_to_be_taken |= state.error is not None
                continue
            state.high_watermark = row.high_watermark
            state.last_stable_offset = row.last_stable_offset
            state.log_start = row.log_start
            if self._settings.client_rack and self._has_node(row.preferred_replica):
                state.replica = row.preferred_replica
                state.replica_until = now + self._settings.metadata_max_age_ms / 1000
            if not row.content:
                continue
            first_bytes = self._keep(asked, row, fetch.most_bytes, now)
            if first_bytes:
                size += len(row.content)
                largest = max(largest, first_bytes)
            is_to_be_taken |= state.piece is not None or state.error is not None
        self.has_more = size >= FULL * self._settings.fetch_max_bytes
        if size:
            self.fetch_size.note_first_batch(largest)
        return News(is_to_be_taken, needs_metadata)

    def fail(self, fetch: NodeFetch) -> None:
        """Note that a node has not answered: what it was asked for as a follower is its leader's.

        Only followers are forgotten; leaders come from the metadata.
        """
        for state, _ in fetch.asked.values():
            if state.replica == fetch.node:
                state.replica = None

    def _still_asked(self, fetch: NodeFetch, row: PartitionAnswer) -> AskedPartition | None:
        """Return what the answer's partition was asked for, if its records are still wanted."""
        asked = fetch.asked.get(row.partition)
        if asked is None or self._reads.states.get(row.partition) is not asked.state:
            return None
        if asked.state.piece is not None:
            # Its leader has moved while the fetch was on its way, and the new one has answered.
            return None
        return asked if asked.state.position == asked.offset else None

    def _keep(
        self, asked: AskedPartition, row: PartitionAnswer, asked_bytes: int, now: float
    ) -> int:
        """Keep the records of a partition.

        Returns the size of its first batch in bytes, 0 without one.

        An error takes their place if they do not begin with a batch.
        """
        content = row.content
        try:
            first_bytes = self._format.first_batch_bytes(content)
            if not first_bytes and self.fetch_size.enlarge(asked_bytes):
                # The same again, with more bytes.
                return 0
            if not first_bytes:
                raise ValueError(CUT)
        except ValueError as error:
            until = self._format.until(content, asked.offset)
            self._fail(
                asked.state,
                CorruptRecordError(row.partition, asked.offset, str(error), until),
                now,
            )
            return 0
        aborted = row.aborted if self._settings.read_committed else None
        reader = self._format.reader(row.partition, asked.offset, content, aborted)
        self._reads.keep(asked.state, FetchedPiece(reader, len(content), now))
        return first_bytes

    def _note_error(self, fetch: NodeFetch, asked: AskedPartition, code: int, now: float) -> bool:
        """Note why a partition was not fetched. Returns True if metadata is needed."""
        state = asked.state
        is_of_follower = state.replica is not None and state.replica == fetch.node
        state.replica = None
        state.retry_at = now + RETRY_S
        if code == OFFSET_OUT_OF_RANGE:
            # A follower may be behind. Its leader decides.
            if not is_of_follower:
                self._fail(state, OffsetOutOfRangeError(state.partition, asked.offset), now)
            return False
        if code == CORRUPT_MESSAGE:
            reason = "the broker finds it corrupt"
            self._fail(state, CorruptRecordError(state.partition, asked.offset, reason), now)
            return False
        if error_code(code).act in (Act.OPERATOR, Act.REFUSE):
            self._fail(state, self._format.error_of(code, state.partition.topic), now)
            return False
        # The leader has moved, or the topic is not there any more.
        return True

    def _fail(self, state: ReadPartition, error: BrokerError, now: float) -> None:
        state.retry_at = now + RETRY_S
        self._reads.fail(state, error)
