"""What fetches are answered with, before the client sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from aiokafka.protocol.fetch import FetchRequest

from reactive_kafka.broker.aiokafka.error_classes import class_for
from reactive_kafka.broker.aiokafka.fetched.ahead import FULL
from reactive_kafka.broker.aiokafka.fetched.log_bytes import next_after, slice_at
from reactive_kafka.broker.aiokafka.fetched.portions import Portions
from reactive_kafka.broker.aiokafka.setup import translate
from reactive_kafka.broker.error_codes import Act, error_code
from reactive_kafka.errors import BrokerError, CorruptRecordError
from reactive_kafka.records import TopicPartition

CORRUPT_MESSAGE = 2
TOLD_BY_THE_CLIENT = frozenset({1, 29})
"""Error codes that the client itself raises: OFFSET_OUT_OF_RANGE, TOPIC_AUTHORIZATION_FAILED."""
CUT = "a batch is cut short, or larger than max_partition_fetch_bytes"


class Answers:
    """What fetches are answered with, until it is taken: bytes of partitions, and what the client
    only logs.

    The client cuts batches out of the bytes without a look at what it cuts. A first batch that
    cannot be one is taken out before it gets them: a length below zero would end the client's only
    fetching task, for all partitions; one that is cut short makes it skip an offset.

    A partition whose fetch is refused for good is told of as well: the client would log that and
    fetch it again.
    """

    def __init__(self, wake: Callable[[], None], came: Callable[[], None] = lambda: None) -> None:
        # There is an error to tell.
        self._wake = wake
        # There are records.
        self._came = came
        self._contents: dict[Any, bytes] = {}
        # (topic, partition) -> the offset that was asked for, and why it could not be fetched
        self._errors: dict[Any, tuple[int, BrokerError]] = {}
        # The client's.
        self.portions: Portions | None = None
        # The last answer was full, and nothing was asked for since.
        self.has_more = False

    def note(self, request: FetchRequest, answer: Any) -> None:
        """Look at an answer, before the client does."""
        size = largest = 0
        for at, (topic, partitions) in enumerate(answer.topics or ()):
            for number, (partition, code, *rest) in enumerate(partitions):
                name = (topic, partition)
                content = rest[-1] or b""
                self._contents.pop(name, None)
                # Most of them, where there are many.
                if not (code or content):
                    continue
                first_bytes, reason = _first_batch(code, content)
                is_refused = _is_refused(code)
                if is_refused or reason is not None:
                    if is_refused:
                        self._tell(request, TopicPartition(*name), translate(class_for(code)()))
                    elif reason is not CUT or not self._was_too_small(request):
                        partition_name = TopicPartition(*name)
                        error = _corrupt(request, partition_name, reason or "", content)
                        self._tell(request, partition_name, error)
                    sound = [*partitions]
                    sound[number] = (partition, 0, *rest[:-1], b"")
                    answer.topics[at] = (topic, partitions := sound)
                elif content:
                    self._contents[name] = content
                    size = size + len(content)
                    largest = max(largest, first_bytes)
                    self._came()
        self.has_more = size >= FULL * request._max_bytes
        if self.portions is not None and size:
            self.portions.answered(largest)

    def _tell(self, request: FetchRequest, name: TopicPartition, error: BrokerError) -> None:
        self._errors[name] = _asked(request, name), error
        self._wake()

    def _was_too_small(self, request: FetchRequest) -> bool:
        return self.portions is not None and self.portions.was_too_small(request.topics[0][1][0][2])

    def content(self, partition: TopicPartition, size: int) -> bytes | None:
        """The bytes that were fetched last of a partition, once; None: they are not those of this
        size.
        """
        content = self._contents.pop(partition, None)
        return content if content is not None and len(content) == size else None

    @property
    def are_begun(self) -> bool:
        """Whether all that came is being read."""
        return not self._contents

    def clear(self) -> None:
        """Forget what was fetched for an assignment that is over."""
        self._contents.clear()
        self._errors.clear()

    @property
    def has_errors(self) -> bool:
        """Whether :meth:`errors` may have any to tell."""
        return bool(self._errors)

    def errors(self, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, BrokerError]:
        """partition -> why it could not be fetched at the position where it stands; each is told
        once.
        """
        found = self._errors
        self._errors = {}
        return {
            TopicPartition(*name): error
            for name, (offset, error) in found.items()
            if positions.get(name) == offset
        }


def _first_batch(code: int, content: bytes) -> tuple[int, str | None]:
    """How large the first batch is of what was fetched of a partition, or why it cannot begin with
    one.
    """
    if code == CORRUPT_MESSAGE:
        return 0, "the broker finds it corrupt"
    if code or not content:
        return 0, None
    try:
        first = slice_at(content, 0)
    except ValueError as error:
        return 0, str(error)
    return (0, CUT) if first is None else (first.end, None)


def _is_refused(code: int) -> bool:
    """Whether a fetch of the partition is of no use until an operator has acted."""
    if code == 0 or code in TOLD_BY_THE_CLIENT:
        return False
    return error_code(code).act in (Act.OPERATOR, Act.REFUSE)


def _corrupt(
    request: FetchRequest, name: TopicPartition, reason: str, content: bytes
) -> CorruptRecordError:
    asked = _asked(request, name)
    return CorruptRecordError(name, asked, reason, next_after(content, 0, asked))


def _asked(request: FetchRequest, name: TopicPartition) -> int:
    """The offset that was asked for: looked up only now, as hardly an answer has an error."""
    offsets = (
        offset
        for topic, parts in request.topics
        for one, offset, _ in parts
        if (topic, one) == name
    )
    return next(offsets, 0)
