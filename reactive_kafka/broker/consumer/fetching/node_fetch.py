"""The fetch of one node, as a request that a connection sends, and sends again. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from io import BytesIO
from struct import Struct
from typing import NamedTuple

from reactive_kafka.broker.consumer.fetching.fetch_session import (
    FULL,
    FetchSession,
    PartitionFetch,
    SessionFetch,
)
from reactive_kafka.broker.consumer.fetching.read_partition import ReadPartition
from reactive_kafka.broker.consumer.fetching.request_encoding import (
    EPOCH_AT,
    FIRST_WITH_SESSIONS,
    VERSIONS,
    WAIT_AT,
    FetchLimits,
    encode_fetch,
)
from reactive_kafka.broker.consumer.fetching.response_decoding import (
    HEADER_BYTES,
    FetchAnswer,
    decode_fetch_response,
)
from reactive_kafka.broker.wire.definitions import FETCH
from reactive_kafka.broker.wire.errors import NoCommonVersionError
from reactive_kafka.broker.wire.requests import EncodedHeader, ResponseHeader
from reactive_kafka.records import TopicPartition

# API key, version, number of the request, length of the client id.
_HEADER = Struct(">hhih")
_NUMBER = Struct(">i")
_WITHOUT_SESSION = SessionFetch(0, FULL, None)


class AskedPartition(NamedTuple):
    """One partition of a fetch: its state, and where it was to be read from."""

    state: ReadPartition
    offset: int


class _KnownAnswer(NamedTuple):
    """An answer without news, and the bytes that it came in."""

    version: int
    content: bytes
    answer: FetchAnswer


class NodeFetch:
    """A fetch of one node, before its version is known.

    It is encoded for the session of the connection that sends it. The same object is sent again as
    long as the same partitions are to be fetched from the same offsets.

    Args:
        node: Is asked.
        asked: Partition -> what is asked for.
        rows: The same for the request, in the order in which the node is to look at them.
        limits: The other fields.

    Attributes:
        session: Of the connection, which sets it.
        most_bytes: Of each partition.
        was_sent: It was sent at least once.
        is_full: The answer has to have all partitions, like the first one of a session.
        repeat_wait_ms: Called when the same answer without news has come again. Returns how long
            the node may wait if the connection sends the fetch again at once, so that the caller
            only sees the first answer that differs. None: the caller gets this answer. It is set
            once the fetch was sent twice.
        sent_again: Called each time that the connection has sent the fetch again.
    """

    API_KEY = FETCH.key

    def __init__(
        self,
        node: int,
        asked: Mapping[TopicPartition, AskedPartition],
        rows: Sequence[PartitionFetch],
        limits: FetchLimits,
    ) -> None:
        self.node = node
        self.asked = asked
        self.limits = limits
        self.asks = frozenset(rows)
        self.session = FetchSession()
        self.most_bytes = rows[0][-1] if rows else 0
        self.was_sent = False
        self.is_full = False
        self.repeat_wait_ms: Callable[[], int | None] | None = None
        self.sent_again: Callable[[], object] = lambda: None
        self._rows = rows
        self._known: _KnownAnswer | None = None

    def prepare(self, versions: Mapping[int, tuple[int, int]]) -> PreparedFetch:
        """Return the fetch in the highest common version. A connection calls this.

        Raises:
            NoCommonVersionError: The broker has none that we have.
        """
        first, last = versions.get(self.API_KEY, (0, -1))
        version = min(last, max(VERSIONS))
        if version < max(first, min(VERSIONS)):
            raise NoCommonVersionError(
                f"Fetch: the broker has the versions {first}-{last}, "
                f"and this client needs {min(VERSIONS)}-{max(VERSIONS)}"
            )
        if version < FIRST_WITH_SESSIONS:
            session_fetch = _WITHOUT_SESSION
        else:
            session_fetch = self.session.ask(self.asks, full=self.is_full)
        named: Iterable[PartitionFetch] = self._rows
        if session_fetch.named is not None:
            named = session_fetch.named
        content = encode_fetch(version, self.limits, session_fetch, named)
        return PreparedFetch(self, version, session_fetch, content)

    def known_answer(self, version: int, content: memoryview) -> FetchAnswer | None:
        """Return the answer without news that has come in the same bytes before."""
        known = self._known
        if known is None or version != known.version or content != known.content:
            return None
        return known.answer

    def know(self, version: int, content: memoryview, answer: FetchAnswer) -> None:
        """Keep an answer if it is one without news, and the fetch is sent again and again."""
        self._known = None
        if self.repeat_wait_ms is not None and answer.is_empty:
            without_partitions = answer._replace(partitions=())
            self._known = _KnownAnswer(version, bytes(content), without_partitions)


class PreparedFetch:
    """A fetch in one version, with what a connection needs of a request.

    Args:
        fetch: Is sent.
        version: Of both the request and its answer.
        session_fetch: Its session fields.
        content: The encoded request, without its header.
    """

    API_KEY = FETCH.key
    # The versions that we encode are older than the encoding with tags.
    FLEXIBLE_VERSION = False
    RESPONSE_TYPE = None

    def __init__(
        self, fetch: NodeFetch, version: int, session_fetch: SessionFetch, content: bytes
    ) -> None:
        self.API_VERSION = version
        self.session = fetch.session
        self._fetch = fetch
        self._session_fetch = session_fetch
        self._content = content
        self._wait_ms: int = fetch.limits.max_wait_ms

    @property
    def has_session(self) -> bool:
        return self.API_VERSION >= FIRST_WITH_SESSIONS

    def build_request_header(self, correlation_id: int, client_id: str) -> EncodedHeader:
        name = client_id.encode()
        return EncodedHeader(
            _HEADER.pack(self.API_KEY, self.API_VERSION, correlation_id, len(name)) + name
        )

    def encode(self) -> bytes:
        return self._content

    def parse_response_header(self, buffer: BytesIO) -> ResponseHeader:
        """Read the header of an answer whose caller has given up."""
        return ResponseHeader(_NUMBER.unpack(buffer.read(HEADER_BYTES))[0])

    def read_answer(self, frame: memoryview) -> FetchAnswer:
        """Decode the answer, and continue the session.

        Raises:
            ValueError: It is cut short.
        """
        content = frame[HEADER_BYTES:]
        answer = self._fetch.known_answer(self.API_VERSION, content)
        if answer is None:
            answer = decode_fetch_response(self.API_VERSION, frame)
            self._fetch.know(self.API_VERSION, content, answer)
        if self.has_session:
            self.session.answered(self._session_fetch, answer.error_code, answer.session_id)
        return answer

    def is_repeated(self, frame: memoryview) -> bool:
        """True if the answer says nothing new, and the fetch is to be sent again at once."""
        repeat_wait_ms = self._fetch.repeat_wait_ms
        answer = self._fetch.known_answer(self.API_VERSION, frame[HEADER_BYTES:])
        if answer is None or repeat_wait_ms is None:
            return False
        if self.has_session and not self.session.would_repeat(
            self._session_fetch, answer.session_id
        ):
            return False
        wait_ms = repeat_wait_ms()
        if wait_ms is None:
            return False
        self._wait_ms = wait_ms
        return True

    def next_message(self, number: int, client_id: str) -> bytes:
        """Return the message that sends the fetch again, as another request."""
        header = self.build_request_header(number, client_id).encode()
        message = bytearray(_NUMBER.size + len(header) + len(self._content))
        _NUMBER.pack_into(message, 0, len(message) - _NUMBER.size)
        content_at = _NUMBER.size + len(header)
        message[_NUMBER.size : content_at] = header
        message[content_at:] = self._content
        _NUMBER.pack_into(message, content_at + WAIT_AT, self._wait_ms)
        if self.has_session:
            epoch = self.session.repeat(self._session_fetch)
            _NUMBER.pack_into(message, content_at + EPOCH_AT, epoch)
        return bytes(message)

    def sent_again(self) -> None:
        """Note that the connection has sent the next message."""
        self._fetch.sent_again()

    def __repr__(self) -> str:
        # Logged at level DEBUG.
        return f"FetchRequest v{self.API_VERSION} ({len(self._content)} bytes)"
