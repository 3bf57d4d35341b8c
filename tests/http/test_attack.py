"""What clients can do to the server: take all connections, or all descriptors, ask for ever, and
send garbage.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from reactive_kafka.http.guard import PROBES
from reactive_kafka.http.http_connection import Limits
from reactive_kafka.http.server import HttpServer, serve
from tests.http.test_server import HOST, big_answer, connected, plain, status

ROOT = Path(__file__).parent.parent.parent
ASKS = b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n"

Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@contextlib.asynccontextmanager
async def crowd(server: HttpServer, size: int, says: bytes = b"") -> AsyncIterator[list[Ends]]:
    """Connections that say so much, and no more."""
    async with contextlib.AsyncExitStack() as stack:
        clients = []
        for _ in range(size):
            clients.append(await stack.enter_async_context(connected(server)))
            clients[-1][1].write(says)
        yield clients


async def is_closed(client: Ends, within_s: float) -> bool:
    try:
        async with asyncio.timeout(within_s):
            return await client[0].read(1) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


async def all_probes(server: HttpServer) -> set[int]:
    return {await status(server, path) for path in PROBES}


@pytest.mark.parametrize(
    "says", [b"", b"GET /health HT", b"POST / HTTP/1.1\r\nHost: localhost\r\nX: "]
)
async def test_probes_answer_while_more_clients_hang_than_there_are_places(says: bytes) -> None:
    """Rows J2, S4 of the faults."""
    async with serve(plain(), HOST, 0) as server:
        async with crowd(server, 300, says) as clients:
            assert await all_probes(server) == {200}
            assert await status(server, "/metrics") == 503
            assert await status(server, "/") == 503
            open_ends = [await is_closed(client, 0.001) for client in clients].count(False)
            assert 256 <= open_ends <= 256 + 16, "so many hang at once, and the others were closed"
            assert await all_probes(server) == {200}
        assert await status(server, "/metrics") == 200


async def test_who_does_not_ask_at_once_loses_a_probes_place() -> None:
    limits = Limits(connections=2, probes=2, probe_head_s=0.2)
    async with (
        serve(plain(), HOST, 0, limits) as server,
        crowd(server, 2) as hanging,
        crowd(server, 1) as late,
    ):
        assert await is_closed(late[0], 5), "after a fifth of a second"
        async with crowd(server, 3) as more:
            assert await is_closed(more[0], 0.1), "the oldest goes for a new one"
        assert [await is_closed(client, 0.01) for client in hanging] == [False, False]


async def test_a_probe_that_waits_for_its_answer_is_not_closed_for_another_one() -> None:
    finish = asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await finish.wait()
        await send(
            {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]}
        )
        await send({"type": "http.response.body"})

    limits = Limits(connections=0, probes=2)
    async with serve(slow, HOST, 0, limits) as server, crowd(server, 2, ASKS % b"/health") as asked:
        # Their requests have been read.
        await asyncio.sleep(0.05)
        async with crowd(server, 1) as another:
            assert await is_closed(another[0], 5), "at once: nobody is idle"
        finish.set()
        assert [await client[0].readline() for client in asked] == [b"HTTP/1.1 200 OK\r\n"] * 2
        assert [b"connection: close" in await client[0].read() for client in asked] == [True, True]


async def test_probes_answer_while_scrapers_do_not_take_what_they_asked_for() -> None:
    """Row J2 of the faults."""
    others = plain()

    async def heavy(scope: Scope, receive: Receive, send: Send) -> None:
        await (big_answer if scope["path"] == "/metrics" else others)(scope, receive, send)

    async with (
        serve(heavy, HOST, 0, Limits(connections=20)) as server,
        crowd(server, 20, ASKS % b"/metrics") as slow,
    ):
        # All are answered.
        assert [await client[0].readline() for client in slow] == [b"HTTP/1.1 200 OK\r\n"] * 20
        assert await all_probes(server) == {200}
        assert await status(server, "/") == 503


def body_of(pieces: list[bytes]) -> bytes:
    head = b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"".join(pieces)


async def takes_the_body(scope: Scope, receive: Receive, send: Send) -> None:
    while (await receive()).get("more_body", False):
        pass
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]}
    )
    await send({"type": "http.response.body"})


@pytest.mark.parametrize(
    ("asgi", "says"),
    [
        (plain(), b"GET /health HTTP/1.1\r\nHo"),
        (takes_the_body, b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nslo"),
        (takes_the_body, body_of([b"3\r\nslo\r\n", b"3\r\n"])),
    ],
)
async def test_a_request_that_comes_in_drops_has_an_end(asgi: ASGIApp, says: bytes) -> None:
    """Row J2 of the faults."""
    limits = Limits(head_s=0.3, body_s=0.3)
    async with serve(asgi, HOST, 0, limits) as server, connected(server) as client:
        client[1].write(says)
        started, sent = asyncio.get_running_loop().time(), 0
        # A drop every 20 ms, as long as it takes them.
        while not await is_closed(client, 0.02):
            client[1].write(b"w" if b"\r\n\r\n" not in says else b"")
            sent += 1
            assert sent < 200
        assert asyncio.get_running_loop().time() - started >= 0.25


async def test_a_stream_has_no_end_as_long_as_it_is_taken() -> None:
    async def stream(scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        piece = b": " + b"x" * (1_000_000 if scope["path"] == "/much" else 10) + b"\n"
        while True:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            await asyncio.sleep(0.05)

    limits = Limits(head_s=0.2, body_s=0.2)
    async with (
        serve(stream, HOST, 0, limits) as server,
        crowd(server, 1, ASKS % b"/") as ((reader, _),),
    ):
        end = asyncio.get_running_loop().time() + 0.8
        while asyncio.get_running_loop().time() < end:
            assert await asyncio.wait_for(reader.readline(), 5)
        async with connected(server) as client:
            client[1].write(ASKS % b"/much")
            await client[0].readline()
            client[1].transport.pause_reading()  # type: ignore[attr-defined]
            # Its buffers are full long before.
            await asyncio.sleep(0.6)
            client[1].transport.resume_reading()  # type: ignore[attr-defined]
            with contextlib.suppress(ConnectionError):
                async with asyncio.timeout(5):
                    while await client[0].read(1_000_000):
                        pass


class TestGarbage:
    BODIES = (
        body_of([b"zz\r\n"]),
        body_of([b"2\r\nabXX"]),
        body_of([b"f" * 22 + b"\r\nx"]),
        body_of([b"2\r\nab\r\n", b"-1\r\n"]),
        body_of([b"zz\r\n"]).replace(b"POST", b"HEAD"),
        body_of([b"0\r\n\r\n", b"GARBAGE\r\n\r\n"]),
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nabGARBAGE\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n\r\n\x00\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    )

    @pytest.mark.parametrize("in_pieces", [False, True])
    @pytest.mark.parametrize(
        "asgi", [plain(), takes_the_body, big_answer], ids=["plain", "reader", "big"]
    )
    @pytest.mark.parametrize("garbage", BODIES)
    async def test_a_body_of_it_is_no_error_of_ours(
        self, garbage: bytes, asgi: ASGIApp, in_pieces: bool, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Row J3 of the faults."""
        caplog.set_level(logging.WARNING)
        async with (
            serve(asgi, HOST, 0, Limits(body_s=0.3, head_s=0.3)) as server,
            connected(server) as client,
        ):
            head, _, body = garbage.partition(b"\r\n\r\n")
            client[1].write(head + b"\r\n\r\n" + (b"" if in_pieces else body))
            if in_pieces:
                # An answer is on its way by now.
                await asyncio.sleep(0.02)
                client[1].write(body)
            answer = b""
            with contextlib.suppress(ConnectionError):
                answer = await asyncio.wait_for(client[0].read(), 5)
            assert b"HTTP/1.1 5" not in answer
            if asgi is takes_the_body and garbage in self.BODIES[:4]:
                assert answer.startswith(b"HTTP/1.1 400")
        assert [record.getMessage() for record in caplog.records] == []


CROWDED = """
import asyncio, logging, os, resource, sys, time
from reactive_kafka.http.server import serve
from tests.http.test_server import plain

class Count(logging.Handler):
    lines = []
    def emit(self, record):
        self.lines.append(record.getMessage())
        if len(sys.argv) > 1:
            raise OSError("this sink needs a descriptor, too")

logging.getLogger().addHandler(Count())
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, hard))
turns = 0

async def turn():
    global turns
    while True:
        await asyncio.sleep(0.01)
        turns += 1

def free(limit):
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))

async def main():
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    async with serve(plain(), "127.0.0.1", 0) as server:
        turning = asyncio.create_task(turn())
        print(server.port, flush=True)
        async for command in commands:
            if command == b"use up\\n":
                lowest = os.dup(0)
                os.close(lowest)
                free(lowest)
            elif command == b"free\\n":
                free(4096)
            try:
                os.close(os.dup(0))
                left = "some"
            except OSError as error:
                left = type(error).__name__ + str(error.errno)
            print(left, turns, time.process_time(), len(Count.lines), "|".join(Count.lines), flush=True)
        turning.cancel()

asyncio.run(main())
"""


class Child:
    """A server in a process of its own, whose descriptors end when it is told."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        assert process.stdout is not None
        self.server = HttpServer(HOST, int(process.stdout.readline()))

    def ask(self, command: str) -> tuple[str, int, float, int, str]:
        """What is left, turns of its loop, CPU seconds, lines of its log, and those lines."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        left, turns, seconds, lines, *text = (
            self._process.stdout.readline().rstrip("\n").split(" ", 4)
        )
        return left, int(turns), float(seconds), int(lines), text[0] if text else ""


@pytest.fixture
def child(request: pytest.FixtureRequest) -> Iterator[Child]:
    pipes: dict[str, Any] = {
        "stdin": subprocess.PIPE,
        "stdout": subprocess.PIPE,
        "text": True,
        "cwd": ROOT,
    }
    with subprocess.Popen(
        [sys.executable, "-c", CROWDED, *getattr(request, "param", ())], **pipes
    ) as process:
        try:
            yield Child(process)
        finally:
            process.kill()


@pytest.mark.parametrize("child", [(), ("a log that raises",)], indirect=True)
async def test_without_descriptors_the_loop_and_the_log_go_on_and_probes_answer_when_there_are_some(
    child: Child,
) -> None:
    """Row D10 of the faults."""
    left, turns, seconds, lines, _ = child.ask("use up")
    assert (left, lines) == ("OSError24", 0), "EMFILE: there is none left"
    async with crowd(child.server, 50, ASKS % b"/health"):
        with pytest.raises(httpx.ReadTimeout):
            async with httpx.AsyncClient(trust_env=False, timeout=2) as client:
                await client.get(f"{child.server.url}/health")
        _, turns_after, seconds_after, lines_after, text = child.ask("how is it")
        assert "Too many open files" in text
        assert lines_after == 1
        assert turns_after - turns > 100, "of 200: the loop goes on"
        assert seconds_after - seconds < 0.5
        assert child.ask("free")[0] == "some"
        assert await status(child.server, "/health") == 200
    assert child.ask("how is it")[3] == 1


async def test_without_descriptors_who_hangs_gives_one_to_who_asks(child: Child) -> None:
    """Row D10 of the faults."""
    async with crowd(child.server, 20) as hanging:
        # So all of them have been accepted.
        assert await status(child.server) == 200
        assert child.ask("use up")[0] == "OSError24"
        assert [await status(child.server, path) for path in ("/health", "/metrics", "/")] == [
            200,
            200,
            200,
        ]
        assert [await is_closed(client, 0.01) for client in hanging].count(True) >= 1
