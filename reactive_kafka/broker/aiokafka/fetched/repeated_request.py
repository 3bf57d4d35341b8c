"""Requests that are sent again and again, and usually answered with the same bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from io import BytesIO
from struct import Struct
from typing import Any

from reactive_kafka.broker.aiokafka.fetched.request_encoding import EPOCH_AT, WAIT_AT
from reactive_kafka.broker.aiokafka.fetched.response_decoding import (
    HEADER_BYTES,
    decode_fetch_response,
)

_NUMBER = Struct(">i")
# After the length of the message, the API key and the version.
_NUMBER_AT = 8


class RepeatedRequest:
    """A request that is encoded once, and whose answer is decoded only if its bytes have changed.

    While nothing is written, a channel sends nothing else. A new connection encodes it again.

    Args:
        request: aiokafka's request.
        simplify: Returns the answer to use when the same bytes come again. None: decode them again.
        repeat_wait_ms: For fetches. Called when the same bytes have come. Returns how long the
            broker may wait if the connection sends the fetch again at once, so that the caller only
            sees the first answer that differs. None: the caller gets this answer.
    """

    def __init__(
        self,
        request: Any,
        simplify: Callable[[Any], Any],
        repeat_wait_ms: Callable[[], int | None] = lambda: None,
    ) -> None:
        self.request = request
        request.repeated = self
        # Called each time that the connection has sent the fetch again.
        self.sent_again: Callable[[], object] = lambda: None
        self._repeat_wait_ms = repeat_wait_ms
        self._simplify = simplify
        self._original_prepare = request.prepare
        request.prepare = self._prepare
        self._versions: object = None
        self._built: Any = None
        self._response_type: Any = None
        self._bytes = b""
        self._answer: Any = None
        self._message = bytearray()
        # Where the content of the fetch begins in the message, after its header.
        self._content_at = 0
        self._wait_ms: int | None = None

    def _prepare(self, versions: Mapping[int, tuple[int, int]]) -> Any:
        # This mapping belongs to one connection.
        """Return aiokafka's request for a connection, encoded once per connection.

        It takes the place of the request's own ``prepare``.
        """
        if versions is not self._versions:
            self._versions = versions
            self._built = None
            self._bytes = b""
        # In a fetch session the next request is shorter and has another epoch: build it again.
        if self._built is None or hasattr(self._built, "session"):
            built = self._original_prepare(versions)
            content = built.encode()
            built.encode = lambda: content
            self._response_type = built.RESPONSE_TYPE
            built.RESPONSE_TYPE = self
            self._built = built
            self._message.clear()
        return self._built

    def decode(self, data: BytesIO) -> Any:
        """Decode an answer. aiokafka calls this on what it takes for a response class."""
        content = data.getvalue()[data.tell() :]
        if self._is_known(content):
            return self._answer
        return self._keep(self._response_type.decode(data), content)

    def decode_frame(self, frame: memoryview) -> Any:
        """Decode the answer to a fetch from a frame of the connection."""
        content = frame[HEADER_BYTES:]
        if self._is_known(content):
            return self._answer
        return self._keep(decode_fetch_response(self._response_type, frame), content)

    def repeats(self, frame: memoryview) -> bool:
        """True if the answer has the same bytes as the last one, and the fetch is sent again."""
        if not self._is_known(frame[HEADER_BYTES:]):
            return False
        session = getattr(self._built, "session", None)
        is_same = session is None or session.would_repeat(
            self._built.asked, self._answer.session_id
        )
        self._wait_ms = self._repeat_wait_ms() if is_same else None
        return self._wait_ms is not None

    def message(self, number: int, client_id: str) -> bytes:
        """Return the message that sends the fetch again, with another request number."""
        if not self._message:
            header = self._built.build_request_header(
                correlation_id=number, client_id=client_id
            ).encode()
            content = header + self._built.encode()
            self._message += _NUMBER.pack(len(content)) + content
            self._content_at = _NUMBER.size + len(header)
        _NUMBER.pack_into(self._message, _NUMBER_AT, number)
        _NUMBER.pack_into(self._message, self._content_at + WAIT_AT, self._wait_ms)
        if hasattr(self._built, "session"):
            epoch = self._built.session.repeat(self._built.asked)
            _NUMBER.pack_into(self._message, self._content_at + EPOCH_AT, epoch)
        return bytes(self._message)

    def _is_known(self, content: bytes | memoryview) -> bool:
        return (
            self._answer is not None and len(content) == len(self._bytes) and content == self._bytes
        )

    def _keep(self, answer: Any, content: bytes | memoryview) -> Any:
        """Remember an answer and its bytes."""
        self._answer = self._simplify(answer)
        self._bytes = b"" if self._answer is None else bytes(content)
        return answer
