"""Asks the other processes of a service how they are, for a page that shows all of them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence

from reactive_kafka.config.secrets import revealed
from reactive_kafka.http.member_json import Json, members_in, unreached
from reactive_kafka.observe.safe_text import one_line

ANSWER_S = 2.0
"""How long a peer may take to answer."""
KEPT_S = 2.0
"""How long an answer is kept, so that many pages ask a peer no more often than one."""
MOST_BYTES = 1024 * 1024
ONLY_SELF = "self"
"""``?only=self``: a peer that is asked does not ask its own peers."""


class Members:
    """The peers in ``[http] peers``. They are asked only while a page is looked at.

    Args:
        peers: Returns their addresses, ``host:port``.
        token: Returns the token of this process, which they need to have, too.
    """

    def __init__(self, peers: Callable[[], Sequence[str]], token: Callable[[], str | None]) -> None:
        self._peers = peers
        self._token = token
        self._asking = asyncio.Lock()
        self._answered_at: float | None = None
        self._found: Sequence[Json] = ()

    async def others(self) -> Sequence[Json]:
        """Return the members that the peers have answered with, and those that cannot be reached.

        Cancellation: safe; the next caller asks again.
        """
        peers = self._peers()
        if not peers:
            return ()
        time = asyncio.get_running_loop().time
        async with self._asking:
            if self._answered_at is None or time() - self._answered_at >= KEPT_S:
                self._found = await self._ask_all(peers)
                self._answered_at = time()
        return self._found

    async def _ask_all(self, peers: Sequence[str]) -> list[Json]:
        answers = await asyncio.gather(*(self._ask(peer) for peer in peers))
        return [member for answer in answers for member in answer]

    async def _ask(self, peer: str) -> Sequence[Json]:
        try:
            async with asyncio.timeout(ANSWER_S):
                status, body = await _answer_of(peer, self._token())
        except TimeoutError:
            return [unreached(f"no answer within {ANSWER_S:g} s", address=peer)]
        except (OSError, ValueError, asyncio.IncompleteReadError) as error:
            return [unreached(_reason(error), address=peer)]
        if status != 200:
            said = one_line(body[:500].decode(errors="replace").strip(), 200)
            return [unreached(f"it answered {status}: {said}", address=peer)]
        try:
            return members_in(body, address=peer)
        except ValueError as error:
            return [unreached(f"its answer cannot be read: {error}", address=peer)]


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        # asyncio says it with the numbers of the call.
        return os.strerror(error.errno)
    return str(error) or type(error).__name__


async def _answer_of(peer: str, token: str | None) -> tuple[int, bytes]:
    """Ask a peer, and return the status and the body of its answer.

    Raises:
        OSError: It cannot be connected to, or the connection broke.
        ValueError: It does not speak HTTP, or says too much.
    """
    host, _, port = peer.rpartition(":")
    reader, writer = await asyncio.open_connection(host.strip("[]"), int(port), limit=MOST_BYTES)
    try:
        # HTTP/1.0: the answer ends with its connection.
        lines = [f"GET /api/members?only={ONLY_SELF} HTTP/1.0", f"Host: {peer}", "Accept: */*"]
        if token is not None:
            lines.append(f"Authorization: Bearer {revealed(token)}")
        writer.write("".join(f"{line}\r\n" for line in [*lines, ""]).encode("latin-1"))
        status_line = await reader.readline()
        words = status_line.split()
        if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
            raise ValueError("it does not speak HTTP/1")
        while (await reader.readline()).strip():
            pass
        body = b""
        while chunk := await reader.read(65_536):
            body += chunk
            if len(body) > MOST_BYTES:
                raise ValueError(f"its answer has more than {MOST_BYTES} bytes")
        return int(words[1]), body
    finally:
        writer.close()
