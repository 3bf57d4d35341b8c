"""Requests that are sent again and again, and answered with the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from io import BytesIO
from struct import Struct
from typing import Any

from reactive_kafka.broker.aiokafka.fetched.answers import HEADER_BYTES, fetched
from reactive_kafka.broker.aiokafka.fetched.requests import EPOCH_AT, WAIT_AT

_NUMBER = Struct(">i")
# Behind the length, the key and the version.
_NUMBER_AT = 8


class Repeated:
    """A request that is sent again as it was: it is encoded once, and an answer of the same bytes
    is not decoded again.

    That is all that a channel asks while nothing is written. Each connection begins anew.

    A fetch that *stands* is sent again as soon as it is answered so: who waits for the answer hears
    of the first one that is another. It is asked each time, and says how many ms the broker may
    wait for more; None: it does not stand.
    """

    def __init__(
        self,
        request: Any,
        again: Callable[[Any], Any],
        stands: Callable[[], int | None] = lambda: None,
    ) -> None:
        self.request = request
        request.repeated = self
        # Told each time that it is.
        self.sent_again: Callable[[], object] = lambda: None
        self._stands = stands
        # What an answer is given as the next time; None: it is decoded the next time, too.
        self._again = again
        self._make = request.prepare
        request.prepare = self._prepare
        self._versions: object = None
        self._asked: Any = None
        self._kind: Any = None
        self._bytes = b""
        self._answer: Any = None
        self._message = bytearray()
        self._content_at = 0
        self._wait_ms: int | None = None

    def _prepare(self, versions: Mapping[int, tuple[int, int]]) -> Any:
        # The connection's own object.
        if versions is not self._versions:
            self._versions = versions
            self._asked = None
            self._bytes = b""
        # Which has it say less, and under another epoch.
        if self._asked is None or hasattr(self._asked, "session"):
            asked = self._make(versions)
            content = asked.encode()
            asked.encode = lambda: content
            self._kind = asked.RESPONSE_TYPE
            asked.RESPONSE_TYPE = self
            self._asked = asked
            self._message.clear()
        return self._asked

    def decode(self, data: BytesIO) -> Any:
        """An answer, behind its header."""
        content = data.getvalue()[data.tell() :]
        return (
            self._answer
            if self._is_known(content)
            else self._kept(self._kind.decode(data), content)
        )

    def fetched(self, frame: memoryview) -> Any:
        """The answer to a fetch, as it comes off the connection."""
        content = frame[HEADER_BYTES:]
        return (
            self._answer
            if self._is_known(content)
            else self._kept(fetched(self._kind, frame), content)
        )

    def stands(self, frame: memoryview) -> bool:
        """Whether this is the last answer again, and the request is to be sent once more."""
        if not self._is_known(frame[HEADER_BYTES:]):
            return False
        session = getattr(self._asked, "session", None)
        is_same = session is None or session.stands(self._asked.asked, self._answer.session_id)
        self._wait_ms = self._stands() if is_same else None
        return self._wait_ms is not None

    def message(self, number: int, client_id: str) -> bytes:
        """The fetch as it goes over the connection, under another number."""
        if not self._message:
            header = self._asked.build_request_header(
                correlation_id=number, client_id=client_id
            ).encode()
            content = header + self._asked.encode()
            self._message += _NUMBER.pack(len(content)) + content
            self._content_at = _NUMBER.size + len(header)
        _NUMBER.pack_into(self._message, _NUMBER_AT, number)
        _NUMBER.pack_into(self._message, self._content_at + WAIT_AT, self._wait_ms)
        if hasattr(self._asked, "session"):
            epoch = self._asked.session.again(self._asked.asked)
            _NUMBER.pack_into(self._message, self._content_at + EPOCH_AT, epoch)
        return bytes(self._message)

    def _is_known(self, content: bytes | memoryview) -> bool:
        return (
            self._answer is not None and len(content) == len(self._bytes) and content == self._bytes
        )

    def _kept(self, answer: Any, content: bytes | memoryview) -> Any:
        self._answer = self._again(answer)
        self._bytes = b"" if self._answer is None else bytes(content)
        return answer
