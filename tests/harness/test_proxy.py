"""The proxy's faults bite; without this, a green fault test would prove nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable

import pytest

from tests.harness.proxy import HOST, Proxy


@pytest.fixture
async def echo() -> AsyncIterator[str]:
    """The address of a server that sends back what it gets."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(1000):
            writer.write(piece)
        writer.close()

    server = await asyncio.start_server(answer, HOST, 0)
    yield f"{HOST}:{server.sockets[0].getsockname()[1]}"
    server.close()


@pytest.fixture
async def proxy(echo: str) -> AsyncIterator[Proxy]:
    async with Proxy(echo) as proxy:
        yield proxy


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def ask(self, text: bytes) -> bytes:
        self.writer.write(text)
        return await asyncio.wait_for(self.reader.readexactly(len(text)), 5.0)


@pytest.fixture
async def client(proxy: Proxy) -> AsyncIterator[Client]:
    client = await connect(proxy)
    yield client
    client.writer.close()


async def connect(proxy: Proxy) -> Client:
    host, _, port = proxy.address.rpartition(":")
    return Client(*await asyncio.open_connection(host, int(port)))


async def test_everything_passes_unchanged_without_faults(client: Client) -> None:
    assert await client.ask(b"hello" * 1000) == b"hello" * 1000


async def test_a_delay_counts_in_each_direction(proxy: Proxy, client: Client) -> None:
    proxy.requests.delay_s = proxy.answers.delay_s = 0.1
    began = time.monotonic()
    await client.ask(b"x")
    assert 0.2 <= time.monotonic() - began < 1.0
    assert (proxy.requests.late, proxy.answers.late) == (1, 1)


async def test_a_rate_slows_large_pieces_down(proxy: Proxy, client: Client) -> None:
    proxy.requests.bytes_per_s = 10_000
    began = time.monotonic()
    await client.ask(b"x" * 3_000)
    assert time.monotonic() - began >= 0.3


async def test_held_bytes_arrive_after_the_release(proxy: Proxy, client: Client) -> None:
    proxy.answers.hold()
    asking = asyncio.ensure_future(client.ask(b"x"))
    done, _ = await asyncio.wait([asking], timeout=0.2)
    assert not done
    proxy.release()
    assert await asking == b"x"
    assert (proxy.requests.held_bytes, proxy.answers.held_bytes) == (0, 1)


async def test_what_is_lost_comes_late_and_is_counted(proxy: Proxy, client: Client) -> None:
    proxy.answers.loss = 0.5
    began = time.monotonic()
    while not proxy.answers.lost:
        await client.ask(b"x")
    assert time.monotonic() - began >= 0.2


async def test_a_forgotten_connection_stays_open_and_passes_nothing_and_a_new_one_passes(
    proxy: Proxy, client: Client
) -> None:
    await client.ask(b"x")
    assert proxy.forget() == 1
    asking = asyncio.ensure_future(client.ask(b"y"))
    again = await connect(proxy)
    assert await again.ask(b"z") == b"z"
    assert not asking.done()
    assert proxy.connections == 2
    asking.cancel()
    again.writer.close()


async def test_a_reset_breaks_connections_and_new_ones_pass(proxy: Proxy, client: Client) -> None:
    await client.ask(b"x")
    assert proxy.reset_all() == 1
    with pytest.raises(ConnectionResetError):
        await client.ask(b"y")
    again = await connect(proxy)
    assert await again.ask(b"z") == b"z"
    again.writer.close()


async def test_refused_connections_are_reset(proxy: Proxy) -> None:
    proxy.is_refusing = True
    refused = await connect(proxy)
    with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
        await refused.ask(b"x")
    refused.writer.close()
    assert (proxy.connections, proxy.refused) == (0, 1)
    proxy.is_refusing = False
    accepted = await connect(proxy)
    assert await accepted.ask(b"x") == b"x"
    accepted.writer.close()


async def test_one_byte_is_flipped_as_often_as_asked(proxy: Proxy, client: Client) -> None:
    proxy.answers.flip_bytes()
    garbled = await client.ask(b"abcdefgh")
    assert sum(one != other for one, other in zip(garbled, b"abcdefgh", strict=True)) == 1
    assert await client.ask(b"abcdefgh") == b"abcdefgh"


async def test_a_tap_sees_what_each_client_sends_and_changes_nothing(proxy: Proxy) -> None:
    seen: list[list[bytes]] = []

    def tap() -> Callable[[bytes], None]:
        seen.append([])
        return seen[-1].append

    proxy.tap = tap
    left, right = await connect(proxy), await connect(proxy)
    assert await left.ask(b"one") == b"one"
    assert await right.ask(b"two") == b"two"
    assert sorted(seen) == [[b"one"], [b"two"]]
    for client in (left, right):
        client.writer.close()
