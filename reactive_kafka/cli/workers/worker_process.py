"""A child process that runs the application, as its parent sees it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

HOP_BY_HOP = frozenset(
    {"connection", "keep-alive", "transfer-encoding", "upgrade", "date", "server"}
)
"""Headers of one connection, which do not travel further, and those that a server adds itself."""
CHUNK_BYTES = 64 * 1024

Headers = tuple[tuple[str, str], ...]


class NoAnswerError(Exception):
    """A worker has not answered a request. The text says why."""


@dataclass(frozen=True, slots=True)
class WorkerAnswer:
    """The response of a worker to one HTTP request."""

    status: int
    headers: Headers
    body: bytes


class AnswerStream:
    """A response whose body has not been read yet."""

    def __init__(self, status: int, headers: Headers, reader: asyncio.StreamReader) -> None:
        self.status = status
        self.headers = headers
        self._reader = reader

    async def chunks(self) -> AsyncIterator[bytes]:
        """Return the body piece by piece, as it comes."""
        while chunk := await self._reader.read(CHUNK_BYTES):
            yield chunk


class WorkerProcess:
    """One process of the application, and the link to it.

    Attributes:
        pid: Its process id.
        has_loaded: It has said that the application is loaded.
    """

    def __init__(self, process: asyncio.subprocess.Process, link: socket.socket) -> None:
        self._process = process
        self._link = link
        self.pid = process.pid
        self.started_at = time.monotonic()
        self.has_loaded = False

    async def loaded(self) -> dict[str, Any] | None:
        """Wait until it has loaded the application. Returns what it says, None if it has ended."""
        loop = asyncio.get_running_loop()
        told = b""
        while not told.endswith(b"\n"):
            with contextlib.suppress(ConnectionError):
                if data := await loop.sock_recv(self._link, 4096):
                    told += data
                    continue
            return None
        self.has_loaded = True
        message: dict[str, Any] = json.loads(told)
        return message

    async def end(self) -> int:
        """Wait for its end. Returns the exit code, or minus the number of a signal."""
        code = await self._process.wait()
        self._link.close()
        return code

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, unless it has ended."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    @contextlib.asynccontextmanager
    async def asked(
        self, method: str, target: str, headers: Iterable[tuple[str, str]], body: bytes
    ) -> AsyncIterator[AnswerStream]:
        """Ask it over HTTP, and yield the response when its head has come.

        Raises:
            NoAnswerError: It has ended, or serves no HTTP (yet).
        """
        if not self.has_loaded:
            # It would read the request only when its modules are imported.
            raise NoAnswerError("it is loading the application")
        ours, its = socket.socketpair()
        try:
            with its:
                socket.send_fds(self._link, [b"c"], [its.fileno()])
        except OSError as error:
            ours.close()
            raise NoAnswerError("its process takes no connections") from error
        reader, writer = await asyncio.open_connection(sock=ours)
        try:
            # HTTP/1.0: the response ends with its connection.
            lines = [f"{method} {target} HTTP/1.0"]
            # A body that came in chunks has no length of its own here.
            left_out = HOP_BY_HOP | {"content-length"}
            lines += [f"{name}: {value}" for name, value in headers if name not in left_out]
            if body:
                lines.append(f"content-length: {len(body)}")
            writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
            yield await _read_head(reader)
        except (OSError, asyncio.IncompleteReadError) as error:
            raise NoAnswerError("it does not serve HTTP yet") from error
        finally:
            writer.close()

    async def answer(
        self,
        method: str,
        target: str,
        headers: Iterable[tuple[str, str]],
        body: bytes = b"",
        *,
        within_s: float,
    ) -> WorkerAnswer:
        """Ask it over HTTP, and return the whole response.

        Raises:
            NoAnswerError: It has ended, also in its answer, serves no HTTP (yet), or takes longer
                than *within_s*.
        """
        try:
            async with asyncio.timeout(within_s):
                async with self.asked(method, target, headers, body) as stream:
                    content = b"".join([chunk async for chunk in stream.chunks()])
        except TimeoutError as error:
            raise NoAnswerError(f"it has not answered within {within_s:g} s") from error
        length = dict(stream.headers).get("content-length")
        if method != "HEAD" and length is not None and len(content) < int(length):
            raise NoAnswerError("its answer was cut off")
        return WorkerAnswer(stream.status, stream.headers, content)


async def start_process(arguments: Sequence[str]) -> WorkerProcess:
    """Start ``reactive-kafka run`` with *arguments* in a child, and link it to this process."""
    ours, its = socket.socketpair()
    ours.setblocking(False)
    with its:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "reactive_kafka",
            "run",
            "--link",
            str(its.fileno()),
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            pass_fds=(its.fileno(),),
            # A Ctrl-C in the terminal goes to all processes of its session. The children get one
            # signal from their parent instead: a second one would end them at once.
            start_new_session=True,
        )
    return WorkerProcess(process, ours)


async def _read_head(reader: asyncio.StreamReader) -> AnswerStream:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    status_line, *lines = head.rstrip("\r\n").split("\r\n")
    headers = []
    for line in lines:
        name, _, value = line.partition(":")
        if name.lower() not in HOP_BY_HOP:
            headers.append((name.lower(), value.strip()))
    return AnswerStream(int(status_line.split(" ")[1]), tuple(headers), reader)
