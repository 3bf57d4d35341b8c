"""What a supervisor forwards, and when it stops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from reactive_kafka.cli.workers.supervisor_http import SupervisorHttp
from reactive_kafka.cli.workers.worker_process import WorkerAnswer


class EndlessStream:
    """A response whose body never ends."""

    status = 200
    headers = (("content-type", "text/event-stream"),)

    async def chunks(self) -> AsyncIterator[bytes]:
        yield b"data: first\n\n"
        await asyncio.Event().wait()


class StreamingWorker:
    """The process of a worker, as far as the supervisor asks it."""

    pid = 7

    def __init__(self, number: int) -> None:
        self.number = number
        self.open = 0
        self.asked_for: list[str] = []

    @asynccontextmanager
    async def asked(self, method: str, target: str, *_: object) -> AsyncIterator[EndlessStream]:
        self.asked_for.append(f"{method} {target}")
        self.open += 1
        try:
            yield EndlessStream()
        finally:
            self.open -= 1

    async def answer(self, method: str, target: str, *_: object, within_s: float) -> WorkerAnswer:
        self.asked_for.append(f"{method} {target}")
        return WorkerAnswer(200 + self.number, (), b"done")


@dataclass
class RunningSlot:
    """The place of a worker that runs."""

    number: int
    process: Any
    keeps_failing: bool = False
    restarts: int = 0
    last_end: str = ""


def scope_of(method: str, path: str) -> dict[str, Any]:
    return {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [],
    }


class HttpClient:
    """A client of the supervisor: one request, and then it may leave."""

    def __init__(self) -> None:
        self.received: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.received.put_nowait({"type": "http.request", "body": b"", "more_body": False})
        self.sent: list[Any] = []
        self.has_data = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        return await self.received.get()

    async def send(self, message: Any) -> None:
        self.sent.append(message)
        if message.get("body"):
            self.has_data.set()

    def leave(self) -> None:
        self.received.put_nowait({"type": "http.disconnect"})


async def test_a_stream_ends_at_the_worker_when_the_client_leaves() -> None:
    worker = StreamingWorker(1)
    http = SupervisorHttp([RunningSlot(1, worker)])
    client = HttpClient()
    serving = asyncio.create_task(http(scope_of("GET", "/api/stream"), client.receive, client.send))
    async with asyncio.timeout(5):
        await client.has_data.wait()
        assert worker.open == 1
        client.leave()
        await serving
    assert worker.open == 0


@pytest.mark.parametrize(
    ("path", "first", "second"),
    [
        ("/workers/2/api/stream", [], ["GET /api/stream"]),
        ("/workers/1/", ["GET /"], []),
        ("/api/spark", ["GET /api/spark"], []),
    ],
)
async def test_a_request_goes_to_the_worker_in_its_path_or_to_the_first(
    path: str, first: list[str], second: list[str]
) -> None:
    workers = [StreamingWorker(1), StreamingWorker(2)]
    http = SupervisorHttp([RunningSlot(worker.number, worker) for worker in workers])
    client = HttpClient()
    serving = asyncio.create_task(http(scope_of("GET", path), client.receive, client.send))
    async with asyncio.timeout(5):
        await client.has_data.wait()
        client.leave()
        await serving
    assert [worker.asked_for for worker in workers] == [first, second]


async def test_an_action_on_a_channel_goes_to_all_and_the_highest_status_is_the_answer() -> None:
    workers = [StreamingWorker(1), StreamingWorker(2)]
    http = SupervisorHttp([RunningSlot(worker.number, worker) for worker in workers])
    client = HttpClient()
    await http(scope_of("POST", "/api/channels/orders/pause"), client.receive, client.send)
    assert [len(worker.asked_for) for worker in workers] == [1, 1]
    assert client.sent[0]["status"] == 202
