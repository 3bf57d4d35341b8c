"""Values that all rooms share: partitions, positions, and records as they are read and sent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, Protocol, cast, overload

from reactive_kafka.wire import headers_problem, shown

HeaderPairs = Sequence[tuple[str, bytes | None]]
_NO_HEADERS: tuple[tuple[str, bytes | None], ...] = ()

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
"""The time with the timestamp 0."""


class TopicPartition(NamedTuple):
    """One partition of a topic. Equals the tuple ``(topic, partition)``, with the same hash."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class LogRange(NamedTuple):
    """The offsets of a partition's log: of its first record, and of the record after its last."""

    start: int
    end: int


PartitionLike = TopicPartition | tuple[str, int]
"""What users may pass for a partition."""


def as_partition(value: object) -> TopicPartition:
    """Return a ``TopicPartition`` for one, or for a tuple of a topic and a number.

    Raises:
        TypeError: It is neither.
        ValueError: The number is below 0, or the topic has no name.
    """
    match value:
        case tuple((str(topic), int(number))) if not isinstance(number, bool):
            if not topic or number < 0:
                raise ValueError(f"there is no such partition: {value!r}")
            return TopicPartition(topic, number)
    raise TypeError(
        f"a TopicPartition, or a tuple of a topic and a number, is wanted, not {value!r}"
    )


class Committed(NamedTuple):
    """A position stored in the group: the next offset to read, and a string stored with it."""

    offset: int
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class TopicIds:
    """The ids of topics as one broker knows them."""

    broker: int
    # Topic -> its id, for topics that exist at this broker.
    ids: Mapping[str, str]
    # The brokers that this one knows, itself included.
    alive: frozenset[int]
    # The id of the cluster; None: the broker does not say.
    cluster_id: str | None = None


class RecordBytes(NamedTuple):
    """A record in bytes, as it is written.

    ``timestamp_ms`` is since the epoch; None: the time of writing.
    """

    value: bytes | None
    key: bytes | None = None
    headers: HeaderPairs = ()
    timestamp_ms: int | None = None


class RecordFields(Protocol):
    """The fields of a record that are written. :class:`RecordBytes` has them."""

    @property
    def value(self) -> bytes | None: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def headers(self) -> HeaderPairs: ...
    @property
    def timestamp_ms(self) -> int | None: ...


class RawRecord(Protocol):
    """A record as the Kafka client returns it: bytes only, nothing decoded.

    The client's own compiled record satisfies this, so no record is copied. ``timestamp`` is in
    milliseconds since the epoch, or None for the oldest message formats.
    """

    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int | None: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> HeaderPairs: ...


def size_of(record: RawRecord) -> int:
    """Return the bytes of a record's key, value and headers."""
    size = len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        size += len(name.encode("utf-8", "surrogateescape")) + len(value or b"")
    return size


class Headers(Sequence[tuple[str, bytes | None]]):
    """The headers of a record, in their order on the wire. A name may occur more than once."""

    __slots__ = ("_pairs",)

    def __init__(self, pairs: Iterable[tuple[str, bytes | None]] = ()) -> None:
        self._pairs = tuple((name, value) for name, value in pairs)

    def get(self, name: str, default: bytes | None = None) -> bytes | None:
        """Return the value of the last header called *name*, or *default*.

        Source: Kafka's ``Headers.lastHeader``.
        """
        for header, value in reversed(self._pairs):
            if header == name:
                return value
        return default

    def get_all(self, name: str) -> list[bytes | None]:
        """Return the values of all headers called *name*, in order."""
        return [value for header, value in self._pairs if header == name]

    @overload
    def __getitem__(self, index: int) -> tuple[str, bytes | None]: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[tuple[str, bytes | None], ...]: ...
    def __getitem__(self, index: int | slice) -> Any:
        return self._pairs[index]

    def __len__(self) -> int:
        return len(self._pairs)

    def __iter__(self) -> Iterator[tuple[str, bytes | None]]:
        return iter(self._pairs)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Headers):
            return self._pairs == other._pairs
        if isinstance(other, list | tuple):
            return self._pairs == tuple(other)
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self._pairs)

    def __repr__(self) -> str:
        return f"Headers({list(self._pairs)!r})"


class RecordOrigin(Protocol):
    """A message, as a Record names it."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Record:
    """What a handler returns, or an emitter sends, to say more than the value.

    Args:
        value: Serialised by the outgoing channel's ``value_serializer``; None is a tombstone.
        key: Bytes, or a string (sent as UTF-8); None lets the partitioner choose.
        headers: Pairs of name and bytes or None, in the order in which they are written.
        partition: The partition to write to; None lets the partitioner choose by key.
        timestamp: An aware datetime; None lets the producer take the time of sending.
        topic: Replaces the channel's topic.
        channel: With several ``@app.outgoing``: send to this channel only.
        origin: The message of a batch that the record was made of. If the record is refused, only
            that message is nacked, and not the batch. Outputs of other functions need none.

    Raises:
        TypeError: A field has another type. It is raised when the record is created, not when it is
            sent: by then, for example in a transaction, its incoming record may be settled.
        ValueError: A timestamp without a time zone, or an impossible partition.
    """

    value: Any
    key: bytes | str | None = None
    headers: Iterable[tuple[str, bytes | None]] = _NO_HEADERS
    partition: int | None = None
    timestamp: datetime | None = None
    topic: str | None = None
    channel: str | None = None
    origin: RecordOrigin | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        # Most records have only a value and a key, and each comparison here costs each record time.
        if self.headers is not _NO_HEADERS:
            object.__setattr__(self, "headers", _checked_headers(self.headers))
        if self.partition is not None:
            _check_partition(self.partition)
        if self.timestamp is not None:
            _check_timestamp(self.timestamp)
        if self.topic is not None and not isinstance(self.topic, str):
            raise TypeError(f"Record(topic={shown(self.topic)}): expected the name of a topic")
        if self.channel is not None and not isinstance(self.channel, str):
            raise TypeError(
                f"Record(channel={shown(self.channel)}): expected the name of an outgoing channel"
            )
        if self.origin is not None and not hasattr(self.origin, "offset"):
            raise TypeError(f"Record(origin={shown(self.origin)}): expected a message of the batch")


def _checked_headers(headers: object) -> HeaderPairs:
    """Return the headers as a sequence. An iterator is read once."""
    if isinstance(headers, Mapping):
        raise TypeError(
            f"Record(headers={shown(headers)}): expected pairs of a name and bytes; "
            "of a dict: list(headers.items())"
        )
    if not isinstance(headers, Iterable):
        raise TypeError(
            f"Record(headers={shown(headers)}): expected pairs of a name and bytes: "
            '[("trace", b"1")]'
        )
    pairs: Any = headers if isinstance(headers, Sequence) else tuple(headers)
    problem = headers_problem(pairs)
    if problem is not None:
        raise TypeError(f"Record: {problem}")
    return cast(HeaderPairs, pairs)


def _check_partition(partition: object) -> None:
    if isinstance(partition, bool) or not isinstance(partition, int):
        raise TypeError(f"Record(partition={shown(partition)}): expected the number of a partition")
    if not 0 <= partition < 2**31:
        raise ValueError(f"Record(partition={partition}): partitions have numbers from 0 on")


def epoch_ms(moment: datetime) -> int:
    """Return a time as the timestamp of a record: whole milliseconds since 1970.

    It is the inverse of :attr:`Message.timestamp`. Seconds in a float would not be: some times
    would become one millisecond earlier.
    """
    return (moment - EPOCH) // timedelta(milliseconds=1)


def _check_timestamp(timestamp: object) -> None:
    if not isinstance(timestamp, datetime):
        raise TypeError(
            f"Record(timestamp={shown(timestamp)}): expected a datetime with a time zone; "
            "of milliseconds since 1970: datetime.fromtimestamp(milliseconds / 1000, UTC)"
        )
    if timestamp.tzinfo is None:
        raise ValueError(
            f"Record(timestamp={timestamp!r}) has no time zone: "
            "say which moment it is, with tzinfo=UTC"
        )


def record_of(
    value: Any,
    key: Any,
    headers: HeaderPairs,
    partition: int | None,
    timestamp: datetime | None,
    topic: str | None,
) -> Any:
    """Return what an emitter sends: the value, or a Record if anything else is given.

    Raises:
        TypeError: The value is a Record, which has all of that itself.
    """
    if key is None and not headers and partition is None and timestamp is None and topic is None:
        return value
    if isinstance(value, Record):
        raise TypeError("a Record says its key, headers, partition, timestamp and topic itself")
    return Record(
        value, key=key, headers=headers, partition=partition, timestamp=timestamp, topic=topic
    )
