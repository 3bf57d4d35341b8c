"""The answers to fetches, before aiokafka's fetcher sees them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from aiokafka.protocol.fetch import FetchRequest

from reactive_kafka.broker.aiokafka.error_classes import class_for
from reactive_kafka.broker.aiokafka.error_translation import translate
from reactive_kafka.broker.aiokafka.fetched.fetch_size import FetchSize
from reactive_kafka.broker.aiokafka.fetched.log_bytes import batch_at, next_after
from reactive_kafka.broker.aiokafka.fetched.prefetch import FULL
from reactive_kafka.broker.error_codes import Act, error_code
from reactive_kafka.errors import BrokerError, CorruptRecordError
from reactive_kafka.records import TopicPartition

CORRUPT_MESSAGE = 2
RAISED_BY_THE_CLIENT = frozenset({1, 29})
"""Error codes that the client itself raises: OFFSET_OUT_OF_RANGE, TOPIC_AUTHORIZATION_FAILED."""
CUT = "a batch is cut short, or larger than max_partition_fetch_bytes"


class FetchResponses:
    """Looks at each answer to a fetch before aiokafka's fetcher does.

    It keeps the bytes of each partition until they are taken, and the errors that the fetcher only
    logs:

    - The fetcher splits the bytes into batches without checking them. A length below zero would end
      its only fetching task, for all partitions. If the first batch is cut short, it skips an
      offset. So a first batch that cannot be one is removed from the answer.
    - If a partition's fetch is refused for good, the fetcher logs that and fetches it again.

    Args:
        wake: Wakes a waiting poll: there is an error to return.
        records_came: Wakes a waiting poll: there are records.
    """

    def __init__(
        self, wake: Callable[[], None], records_came: Callable[[], None] = lambda: None
    ) -> None:
        self._wake = wake
        self._records_came = records_came
        self._contents: dict[Any, bytes] = {}
        # (topic, partition) -> the offset that was asked for, and why it could not be fetched
        self._errors: dict[Any, tuple[int, BrokerError]] = {}
        # None: the fetches of this client are not limited by us.
        self.fetch_size: FetchSize | None = None
        # The last answer was full, and no other partitions were asked for since.
        self.has_more = False

    def note(self, request: FetchRequest, answer: Any) -> None:
        """Keep bytes and errors of an answer, and remove from it what the fetcher cannot read."""
        size = 0
        largest = 0
        for topic_index, (topic, partitions) in enumerate(answer.topics or ()):
            for index, (partition, code, *rest) in enumerate(partitions):
                name = (topic, partition)
                content = rest[-1] or b""
                self._contents.pop(name, None)
                # Checked first: with many partitions most of them have neither.
                if not (code or content):
                    continue
                first_bytes, reason = _first_batch(code, content)
                error = self._error(request, TopicPartition(*name), code, reason, content)
                if error is not None:
                    self._errors[name] = (_asked_offset(request, TopicPartition(*name)), error)
                    self._wake()
                if error is not None or reason is not None:
                    emptied = [*partitions]
                    emptied[index] = (partition, 0, *rest[:-1], b"")
                    partitions = emptied
                    answer.topics[topic_index] = (topic, partitions)
                elif content:
                    self._contents[name] = content
                    size += len(content)
                    largest = max(largest, first_bytes)
                    self._records_came()
        self.has_more = size >= FULL * request._max_bytes
        if self.fetch_size is not None and size:
            self.fetch_size.note_first_batch(largest)

    def _error(
        self,
        request: FetchRequest,
        partition: TopicPartition,
        code: int,
        reason: str | None,
        content: bytes,
    ) -> BrokerError | None:
        """Return the error that a poll has to return for a partition, if any."""
        if _is_refused(code):
            return translate(class_for(code)())
        if reason is None or (reason is CUT and self._enlarge(request)):
            return None
        offset = _asked_offset(request, partition)
        return CorruptRecordError(partition, offset, reason, next_after(content, 0, offset))

    def _enlarge(self, request: FetchRequest) -> bool:
        """Ask for more bytes of each partition; False if the request had the largest size."""
        asked_bytes = request.topics[0][1][0][2]
        return self.fetch_size is not None and self.fetch_size.enlarge(asked_bytes)

    def take_content(self, partition: TopicPartition, size: int) -> bytes | None:
        """Return the last fetched bytes of a partition, once; None if they have another *size*."""
        content = self._contents.pop(partition, None)
        return content if content is not None and len(content) == size else None

    @property
    def all_are_begun(self) -> bool:
        """True if readers have all bytes that were fetched."""
        return not self._contents

    def clear(self) -> None:
        """Forget what was fetched for an assignment that is over."""
        self._contents.clear()
        self._errors.clear()

    @property
    def has_errors(self) -> bool:
        """True if :meth:`take_errors` may return any."""
        return bool(self._errors)

    def take_errors(
        self, positions: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, BrokerError]:
        """Return partition -> why it could not be fetched at its position, each error once."""
        found = self._errors
        self._errors = {}
        return {
            TopicPartition(*name): error
            for name, (offset, error) in found.items()
            if positions.get(name) == offset
        }


def _first_batch(code: int, content: bytes) -> tuple[int, str | None]:
    """Return the size of a partition's first batch, or 0 and why the bytes begin with none."""
    if code == CORRUPT_MESSAGE:
        return 0, "the broker finds it corrupt"
    if code or not content:
        return 0, None
    try:
        first = batch_at(content, 0)
    except ValueError as error:
        return 0, str(error)
    return (0, CUT) if first is None else (first.end, None)


def _is_refused(code: int) -> bool:
    """True if fetching the partition is useless until an operator has acted."""
    if code == 0 or code in RAISED_BY_THE_CLIENT:
        return False
    return error_code(code).act in (Act.OPERATOR, Act.REFUSE)


def _asked_offset(request: FetchRequest, partition: TopicPartition) -> int:
    """Return the offset that a fetch asked for. Searched on demand: few answers have an error."""
    offsets = (
        offset
        for topic, asked_partitions in request.topics
        for number, offset, _ in asked_partitions
        if (topic, number) == partition
    )
    return next(offsets, 0)
