"""``GET /api/stream``: what it sends and when, to whom, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.routing import Mount

from reactive_kafka import App
from reactive_kafka.http.asgi import make_asgi
from reactive_kafka.http.fact_stream import (
    MOST_SELECTIONS,
    MOST_STREAMS,
    FactStreams,
    Partitions,
    StreamPace,
)
from reactive_kafka.http.http_connection import Limits
from reactive_kafka.http.server import HttpServer, serve
from reactive_kafka.testing import MemoryBroker, TestApp
from tests.app.helpers import in_virtual_time
from tests.http.applike import FactsApp
from tests.observe.samples import app, channel, outgoing, partition, spark

HOST = "127.0.0.1"
FAST = StreamPace(facts_s=0.02, comment_s=0.1)
TAKEN = 5.0


@contextlib.asynccontextmanager
async def reading(url: str) -> AsyncIterator[AsyncIterator[str]]:
    """The lines of a stream."""
    async with (
        httpx.AsyncClient(trust_env=False, timeout=TAKEN) as client,
        client.stream("GET", url) as answer,
    ):
        assert answer.status_code == 200, await answer.aread()
        assert answer.headers["content-type"] == "text/event-stream"
        yield answer.aiter_lines()


async def next_facts(lines: AsyncIterator[str]) -> Any:
    async for line in lines:
        if line.startswith("data: "):
            return json.loads(line.removeprefix("data: "))
    raise AssertionError("the stream has ended")


async def until_open(server: HttpServer, url: str) -> None:
    """Wait until a stream can be opened again."""
    async with asyncio.timeout(TAKEN), httpx.AsyncClient(trust_env=False) as client:
        while True:
            async with client.stream("GET", url) as answer:
                if answer.status_code == 200:
                    return


async def test_an_event_holds_what_the_two_json_paths_hold() -> None:
    served = FactsApp(app(channel(), outgoing=(outgoing(),), spark=(spark(),)))
    async with (
        serve(make_asgi(served, pace=FAST), HOST, 0) as server,
        reading(f"{server.url}/api/stream") as lines,
        httpx.AsyncClient(trust_env=False) as client,
    ):
        assert await anext(lines) == "event: facts"
        facts = await next_facts(lines)
        channels = (await client.get(f"{server.url}/api/channels")).json()
        sessions = (await client.get(f"{server.url}/api/spark")).json()
    assert {"incoming", "outgoing", "sessions"} <= facts.keys()
    for one in (facts, channels):
        for incoming in one["incoming"]:
            # Rates are those of the moment of a look.
            assert incoming.pop("received_per_second") in (None, 0.0)
            assert incoming.pop("settled_per_second") in (None, 0.0)
            assert incoming.pop("lag_per_second") in (None, 0.0)
        for sent in one["outgoing"]:
            assert sent.pop("sent_per_second") in (None, 0.0)
    assert facts == {"application": facts["application"], **channels, **sessions}


async def test_events_follow_the_application_and_comments_come_between_them() -> None:
    served = FactsApp()
    async with (
        serve(make_asgi(served, pace=FAST), HOST, 0) as server,
        reading(f"{server.url}/api/stream") as lines,
    ):
        assert (await next_facts(lines))["incoming"][0]["state"] == "running"
        served.now = app(channel(state="failed"))
        async with asyncio.timeout(TAKEN):
            while (await next_facts(lines))["incoming"][0]["state"] != "failed":
                pass
            while not (await anext(lines)).startswith(": "):
                pass


async def test_facts_are_read_once_for_all_streams_and_never_without_one() -> None:
    served = FactsApp()
    pace = StreamPace(facts_s=0.2)
    async with serve(make_asgi(served, pace=pace), HOST, 0) as server:
        url = f"{server.url}/api/stream"
        async with contextlib.AsyncExitStack() as streams:
            opened = [await streams.enter_async_context(reading(url)) for _ in range(6)]
            for lines in opened:
                await next_facts(lines)
            before = served.looks
            for lines in opened:
                await next_facts(lines)
            assert served.looks - before <= 2
        await until_open(server, url)
        async with asyncio.timeout(TAKEN):
            # Let the last stream end.
            count = -1
            while count != served.looks:
                count = served.looks
                await asyncio.sleep(3 * pace.facts_s)


async def test_an_open_page_costs_less_than_a_hundredth_of_a_core() -> None:
    """An event a second may take 10 ms of processor time. Here many come one after the other."""
    table = {"group_id": "billing", "auto_offset_reset": "earliest"}
    service = App({"incoming": {f"orders-{number}": table for number in range(10)}})
    broker = MemoryBroker()
    for number in range(10):
        broker.create_topic(f"orders-{number}", 12)

        @service.incoming(f"orders-{number}")
        async def take(order: bytes) -> None: ...

    events = 100
    async with (
        TestApp(service, broker=broker),
        serve(make_asgi(service, pace=StreamPace(facts_s=0.002)), HOST, 0) as server,
    ):
        reader, writer = await asyncio.open_connection(HOST, server.port)
        # As the page of a channel asks for it, which has its partitions.
        writer.write(b"GET /api/stream?partitions=orders-1 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        await reader.readuntil(b"event: facts")
        began = time.process_time()
        for _ in range(events):
            data = await reader.readuntil(b"event: facts")
        spent_s = time.process_time() - began
        writer.close()
    assert data.count(b'"lag"') > 20, "ten channels, and the partitions of one"
    print(f"{spent_s / events * 1000:.2f} ms of processor time for an event")
    assert spent_s / events < 0.010
    await broker.close()


async def test_a_client_may_leave_partitions_out() -> None:
    two = app(channel(), channel(channel="clicks", partitions=(partition(), partition())))
    async with serve(make_asgi(FactsApp(two), pace=FAST), HOST, 0) as server:
        for query, listed in (
            ("", [1, 2]),
            ("?partitions=", [0, 0]),
            ("?partitions=clicks", [0, 2]),
            ("?partitions=clicks&partitions=orders", [1, 2]),
            ("?partitions=nosuch", [0, 0]),
        ):
            async with reading(f"{server.url}/api/stream{query}") as lines:
                facts = await next_facts(lines)
            assert [len(one["partitions"]) for one in facts["incoming"]] == listed, query


async def test_too_many_streams_are_refused_until_one_ends() -> None:
    async with serve(make_asgi(FactsApp()), HOST, 0) as server:
        url = f"{server.url}/api/stream"
        async with contextlib.AsyncExitStack() as streams:
            # A stream would be closed if its lines were dropped.
            opened = [await streams.enter_async_context(reading(url)) for _ in range(MOST_STREAMS)]
            for lines in opened:
                await next_facts(lines)
            async with httpx.AsyncClient(trust_env=False) as client:
                refused = await client.get(url)
                assert refused.status_code == 503
                assert refused.headers["retry-after"] == "5"
                assert f"all {MOST_STREAMS} streams are taken" in refused.text
                assert (await client.get(f"{server.url}/health")).status_code == 200
        await until_open(server, url)


async def test_a_stream_outlives_the_limits_of_other_answers() -> None:
    limits = Limits(head_s=0.1, body_s=0.1, keep_alive_s=1)
    async with (
        serve(make_asgi(FactsApp(), pace=FAST), HOST, 0, limits) as server,
        reading(f"{server.url}/api/stream") as lines,
    ):
        end = asyncio.get_running_loop().time() + 0.5
        while asyncio.get_running_loop().time() < end:
            await next_facts(lines)


async def test_a_client_that_does_not_read_gets_the_newest_facts_and_no_old_ones() -> None:
    """The application makes no facts for a stream whose client does not read."""
    # More than all the buffers between the server and its client take.
    served = FactsApp(app(channel(channel="x" * 20_000_000)))
    async with serve(make_asgi(served, pace=FAST), HOST, 0) as server:
        reader, writer = await asyncio.open_connection(HOST, server.port)
        writer.write(b"GET /api/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await reader.readline()
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        before = served.looks
        # Time for 20 events, if they were made.
        await asyncio.sleep(0.4)
        assert served.looks - before <= 1
        served.now = app(channel(state="failed"))
        reader._transport.resume_reading()  # type: ignore[attr-defined]
        async with asyncio.timeout(TAKEN):
            while b'"state": "failed"' not in await reader.read(1_000_000):
                pass
        writer.close()


async def test_a_stream_ends_as_a_whole_answer_when_the_server_closes() -> None:
    before = asyncio.all_tasks()
    async with contextlib.AsyncExitStack() as client:
        async with serve(make_asgi(FactsApp()), HOST, 0) as server:
            lines = await client.enter_async_context(reading(f"{server.url}/api/stream"))
            await next_facts(lines)
        # An answer that is cut off raises here.
        async with asyncio.timeout(TAKEN):
            async for _ in lines:
                pass
    assert asyncio.all_tasks() - before == set()


async def test_head_gets_the_headers_only() -> None:
    async with (
        serve(make_asgi(FactsApp()), HOST, 0) as server,
        httpx.AsyncClient(trust_env=False, timeout=TAKEN) as client,
    ):
        answer = await client.head(f"{server.url}/api/stream")
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-type"] == "text/event-stream"


async def test_it_works_under_a_path_of_another_application() -> None:
    host = Starlette(routes=[Mount("/kafka", make_asgi(FactsApp(), pace=FAST))])
    async with (
        serve(host, HOST, 0) as server,
        reading(f"{server.url}/kafka/api/stream") as lines,
    ):
        await next_facts(lines)
        await next_facts(lines)


class EndingServer:
    """A server that handles SIGTERM as uvicorn does."""

    def __init__(self) -> None:
        self.should_exit = False

    def handle_exit(self, *_: object) -> None:
        self.should_exit = True


async def test_a_stream_ends_when_uvicorn_is_asked_to_exit() -> None:
    host = EndingServer()
    before = signal.signal(signal.SIGTERM, host.handle_exit)
    try:
        async with (
            serve(make_asgi(FactsApp(), pace=FAST), HOST, 0) as server,
            reading(f"{server.url}/api/stream") as lines,
        ):
            await next_facts(lines)
            signal.raise_signal(signal.SIGTERM)
            async with asyncio.timeout(TAKEN):
                async for _ in lines:
                    pass
    finally:
        signal.signal(signal.SIGTERM, before)


async def test_a_slow_client_keeps_its_stream_as_long_as_it_takes_something() -> None:
    limit_s = 0.2
    served = FactsApp(app(channel(channel="x" * 12_000_000)))
    limits = Limits(body_s=limit_s)
    async with serve(make_asgi(served, pace=FAST), HOST, 0, limits) as server:
        reader, writer = await asyncio.open_connection(HOST, server.port, limit=1_000)
        writer.write(b"GET /api/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
        end = asyncio.get_running_loop().time() + 5 * limit_s
        taken = 0
        while asyncio.get_running_loop().time() < end:
            piece = await asyncio.wait_for(reader.read(100_000), TAKEN)
            assert piece, "the server has closed the stream"
            taken += len(piece)
            await asyncio.sleep(0.01)
        assert taken < 12_000_000, "the client was not slow"
        writer.close()


@in_virtual_time
async def test_facts_are_kept_for_one_turn_and_for_a_few_selections_of_partitions() -> None:
    rendered = list[Partitions]()

    def render(partitions: Partitions) -> str:
        rendered.append(partitions)
        return f"{len(rendered)}"

    streams = FactStreams(render)
    # More than a server keeps: each client may ask for other channels.
    selections = [frozenset({f"channel {number}"}) for number in range(MOST_SELECTIONS + 2)]
    streams.opened()
    for _ in range(2):
        for partitions in selections:
            streams.event(partitions)
    assert rendered == [*selections, *selections[MOST_SELECTIONS:]]
    await asyncio.sleep(streams.pace.facts_s)
    newest = len(rendered) + 1
    assert streams.event(selections[0]) == f"event: facts\ndata: {newest}\n\n".encode()
    streams.closed()
    # In the same turn, but nothing is kept while no stream is open.
    assert streams.event(selections[0]) == f"event: facts\ndata: {newest + 1}\n\n".encode()
