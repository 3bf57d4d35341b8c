import asyncio
import contextlib
import logging
import re
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import anyio
import httpx
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from reactive_kafka.errors import ConfigError
from reactive_kafka.http.asgi import make_asgi
from reactive_kafka.http.http_connection import Limits
from reactive_kafka.http.server import BACKLOG, HttpServer, serve
from tests.http.applike import FactsApp

HOST = "127.0.0.1"
# More than any socket buffer takes.
BIG = b"x" * 20_000_000


async def big_answer(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": BIG, "more_body": True})
    await send({"type": "http.response.body", "body": b"end"})


@contextlib.asynccontextmanager
async def connected(
    server: HttpServer,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(server.host, server.port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def status(server: HttpServer, path: str = "/health/live") -> int:
    async with httpx.AsyncClient(trust_env=False, timeout=5) as client:
        return (await client.get(f"{server.url}{path}")).status_code


def plain() -> ASGIApp:
    return make_asgi(FactsApp())


def test_the_limits_are_those_of_the_docs() -> None:
    """Rows J2 and S4 of the faults. The tests of what happens at a limit have shorter ones."""
    limits = Limits()
    assert (limits.connections, limits.probes, limits.header_bytes) == (256, 16, 8 * 1024)
    assert (limits.head_s, limits.probe_head_s, limits.body_s, limits.keep_alive_s) == (
        10.0,
        1.0,
        30.0,
        5,
    )
    assert BACKLOG <= 64


# To show who is not waited for at all.
PATIENT = Limits(grace_s=30)


async def closes_within_a_second(
    asgi: ASGIApp, use: Callable[[HttpServer], Awaitable[None]], limits: Limits | None = None
) -> None:
    """*use* the server, close it, and look for what is left."""
    before = asyncio.all_tasks()
    async with serve(asgi, HOST, 0, limits) as server:
        await use(server)
        started = time.monotonic()
    assert time.monotonic() - started < 1.0
    assert asyncio.all_tasks() - before == set()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(HOST, server.port)


async def test_port_zero_takes_a_free_port_and_says_which() -> None:
    async with serve(plain(), HOST, 0) as server:
        assert server.host == HOST
        assert server.port > 0
        assert await status(server) == 200


async def test_a_port_in_use_is_an_error_that_names_host_and_port() -> None:
    """Row J1 of the faults."""
    async with serve(plain(), HOST, 0) as server:
        with pytest.raises(
            ConfigError,
            match=rf"\[http\] 127\.0\.0\.1:{server.port} cannot be bound: Address already",
        ):
            async with serve(plain(), HOST, server.port):
                pass
        # The first one goes on.
        assert await status(server) == 200


@pytest.mark.parametrize("host", ["no-such-host.invalid", "192.0.2.1", "a..b"])
async def test_an_address_that_is_not_ours_is_an_error_that_names_it(host: str) -> None:
    with pytest.raises(ConfigError) as raised:
        async with serve(plain(), host, 9000):
            pass
    assert f"{host}:9000 cannot be bound" in raised.value.problems[0]
    assert "\n" not in raised.value.problems[0]


async def test_a_port_is_free_again_as_soon_as_the_server_is_closed() -> None:
    async with httpx.AsyncClient(trust_env=False) as client:
        async with serve(plain(), HOST, 0) as first:
            assert (await client.get(first.url)).status_code == 200
        # The server has closed the connection first, so the kernel keeps its end of it for a
        # minute.
        async with serve(plain(), HOST, first.port) as second:
            assert await status(second) == 200


async def test_listening_to_the_network_is_warned_about_and_loopback_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Row S4 of the faults."""
    async with serve(plain(), HOST, 0):
        assert not caplog.records
    async with serve(plain(), "0.0.0.0", 0):
        assert "open to the network" in caplog.messages[0]


async def test_signals_and_foreign_logs_are_left_alone() -> None:
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    access = logging.getLogger("uvicorn.access")
    levels = (access.propagate, access.level, logging.getLogger("uvicorn.error").level)
    async with serve(plain(), HOST, 0):
        assert {number: signal.getsignal(number) for number in handlers} == handlers
        assert (access.propagate, access.level, logging.getLogger("uvicorn.error").level) == levels


async def test_requests_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with serve(plain(), HOST, 0) as server:
        assert await status(server) == 200
    assert not [record for record in caplog.records if record.name.startswith("uvicorn")]


async def test_it_closes_within_a_second_with_an_idle_keep_alive_connection() -> None:
    async with httpx.AsyncClient(trust_env=False) as client:

        async def use(server: HttpServer) -> None:
            assert (await client.get(f"{server.url}/health")).status_code == 200

        await closes_within_a_second(plain(), use, PATIENT)


async def test_it_closes_within_a_second_with_a_request_that_never_ends() -> None:
    async with contextlib.AsyncExitStack() as clients:

        async def use(server: HttpServer) -> None:
            _, writer = await clients.enter_async_context(connected(server))
            writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\nX-Slow: ")
            await writer.drain()
            # By now the other one has been read.
            assert await status(server) == 200

        await closes_within_a_second(plain(), use, PATIENT)


async def test_it_closes_within_a_second_with_a_client_that_never_reads() -> None:
    readers: list[asyncio.StreamReader] = []
    async with contextlib.AsyncExitStack() as clients:

        async def use(server: HttpServer) -> None:
            reader, writer = await clients.enter_async_context(connected(server))
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
            readers.append(reader)

        await closes_within_a_second(big_answer, use)
        with contextlib.suppress(ConnectionResetError):
            # Cut off, not left to itself.
            assert len(await asyncio.wait_for(readers[0].read(), 5)) < len(BIG)


async def test_it_closes_within_a_second_with_an_endpoint_that_never_ends() -> None:
    entered = asyncio.Event()

    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        entered.set()
        await asyncio.Event().wait()

    async with contextlib.AsyncExitStack() as clients:

        async def use(server: HttpServer) -> None:
            _, writer = await clients.enter_async_context(connected(server))
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            await entered.wait()

        await closes_within_a_second(endless, use)


async def test_an_answer_on_its_way_is_still_given_when_the_server_closes() -> None:
    entered, finish = asyncio.Event(), asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        entered.set()
        await finish.wait()
        await send(
            {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]}
        )
        await send({"type": "http.response.body", "body": b"done"})

    async with httpx.AsyncClient(trust_env=False) as client:
        async with serve(slow, HOST, 0) as server:
            answer = asyncio.create_task(client.get(server.url))
            await entered.wait()
            # The server is closing by then.
            asyncio.get_running_loop().call_later(0.05, finish.set)
        assert (await answer).text == "done"


async def test_cancelled_from_outside_it_still_leaves_nothing() -> None:
    entered = asyncio.Event()

    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        entered.set()
        await asyncio.Event().wait()

    before = asyncio.all_tasks()
    async with contextlib.AsyncExitStack() as clients:
        with anyio.CancelScope() as scope:
            async with serve(endless, HOST, 0) as server:
                _, writer = await clients.enter_async_context(connected(server))
                writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                await entered.wait()
                scope.cancel()
                await anyio.sleep_forever()
        assert scope.cancelled_caught
        assert asyncio.all_tasks() - before == set()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(HOST, server.port)


async def test_a_client_that_does_not_finish_its_request_is_cut_off() -> None:
    """Row S4 of the faults."""
    async with (
        serve(plain(), HOST, 0, Limits(head_s=0.2)) as server,
        connected(server) as (reader, writer),
    ):
        writer.write(b"GET /health HTTP/1.1\r\n")
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(reader.read(), 5) == b""


async def test_a_client_that_does_not_take_its_answer_is_cut_off() -> None:
    """Row J2 of the faults."""
    limits = Limits(head_s=0.3, body_s=0.2)
    async with serve(big_answer, HOST, 0, limits) as server, connected(server) as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readline()
        taken = 0
        # Nothing is read meanwhile.
        await asyncio.wait_for(_gone(server), 5)
        with contextlib.suppress(ConnectionResetError):
            while chunk := await asyncio.wait_for(reader.read(1_000_000), 5):
                taken += len(chunk)
        assert taken < len(BIG)


async def _gone(server: HttpServer) -> None:
    """Wait until a new connection's own limit has passed, so that an older one's has too."""
    async with connected(server) as (reader, _):
        with contextlib.suppress(ConnectionResetError):
            await reader.read()


async def test_a_used_keep_alive_connection_outlives_the_limit_of_one_exchange() -> None:
    async with (
        serve(plain(), HOST, 0, Limits(head_s=0.3, body_s=0.3)) as server,
        httpx.AsyncClient(trust_env=False) as client,
    ):
        loop = asyncio.get_running_loop()
        end, seen = loop.time() + 0.8, set()
        while loop.time() < end:
            answer = await client.get(f"{server.url}/health/live")
            seen.add(answer.extensions["network_stream"].get_extra_info("client_addr"))
        assert len(seen) == 1


async def test_a_header_beyond_the_limit_is_refused() -> None:
    """Row S4 of the faults."""
    async with serve(plain(), HOST, 0) as server, httpx.AsyncClient(trust_env=False) as client:
        assert (await client.get(server.url, headers={"x": "y" * 7000})).status_code == 200
        assert (await client.get(server.url, headers={"x": "y" * 10000})).status_code == 400


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x00\xff\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\r\n",
    ],
)
async def test_garbage_is_answered_with_400(
    request_bytes: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Row J3 of the faults."""
    # The client of this test, where another test has left the level of all loggers at INFO.
    caplog.set_level(logging.WARNING, logger="httpx")
    async with serve(plain(), HOST, 0) as server, connected(server) as (reader, writer):
        writer.write(request_bytes)
        assert (await asyncio.wait_for(reader.readline(), 5)).startswith(b"HTTP/1.1 400")
        assert await status(server) == 200
    # Whoever sends it would fill the log.
    assert caplog.messages == []


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with serve(plain(), HOST, 0) as server, connected(server) as (reader, writer):
        writer.write(
            b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\nGET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        )
        answers = await asyncio.wait_for(reader.read(), 5)
        assert re.findall(rb"HTTP/1.1 (\d+)", answers) == [b"404", b"200"]


class LoopInThread:
    """A server in a loop of its own thread, so that a test can block that loop."""

    def __init__(self) -> None:
        self.ready = threading.Event()
        self._thread = threading.Thread(target=asyncio.run, args=(self._main(),))

    async def _main(self) -> None:
        self.loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        async with serve(plain(), HOST, 0) as self.server:
            self.ready.set()
            await self._end.wait()

    def __enter__(self) -> "LoopInThread":
        self._thread.start()
        assert self.ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.call_soon_threadsafe(self._end.set)
        self._thread.join(10)


@pytest.fixture
def elsewhere() -> Iterator[LoopInThread]:
    with LoopInThread() as running:
        yield running


def test_a_blocked_loop_does_not_answer_the_liveness_probe(elsewhere: LoopInThread) -> None:
    unblock = threading.Event()
    url = f"{elsewhere.server.url}/health/live"
    with httpx.Client(trust_env=False, timeout=0.5) as client:
        assert client.get(url, timeout=10).status_code == 200
        elsewhere.loop.call_soon_threadsafe(unblock.wait, 30)
        try:
            with pytest.raises(httpx.ReadTimeout):
                client.get(url)
        finally:
            unblock.set()
        assert client.get(url, timeout=10).status_code == 200


async def test_the_socket_is_closed_when_the_server_could_not_start() -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        # An open socket would be a ResourceWarning, that is an error.
        with pytest.raises(ConfigError):
            async with serve(plain(), HOST, port):
                pass
