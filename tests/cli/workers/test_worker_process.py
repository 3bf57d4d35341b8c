"""What a supervisor gets from the process of a worker."""

from __future__ import annotations

import asyncio
import socket
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from reactive_kafka.cli.workers.worker_process import NoAnswerError, WorkerAnswer, WorkerProcess

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 18\r\n\r\n"
BODY = b"records_total 1234"


async def answer_of(response: bytes, method: str = "GET") -> WorkerAnswer:
    """The answer of a worker whose process sends these bytes and ends."""
    ours, its = socket.socketpair()
    child: Any = SimpleNamespace(pid=7)
    process = WorkerProcess(child, ours)
    process.has_loaded = True

    def respond() -> None:
        _, [descriptor], _, _ = socket.recv_fds(its, 1, 1)
        with socket.socket(fileno=descriptor) as connection:
            connection.recv(65_536)
            connection.sendall(response)

    with ours, its:
        thread = threading.Thread(target=respond)
        thread.start()
        try:
            return await process.answer(method, "/metrics", (), within_s=10)
        finally:
            await asyncio.to_thread(thread.join)


async def test_an_answer_in_which_a_worker_dies_is_no_answer() -> None:
    """A part of it has counts that are too low, or none."""
    assert (await answer_of(HEAD + BODY)).body == BODY
    for part in (BODY[:-2], BODY[:4], b""):
        with pytest.raises(NoAnswerError, match="cut off"):
            await answer_of(HEAD + part)


async def test_the_answer_to_a_head_has_the_length_of_a_body_and_none() -> None:
    assert (await answer_of(HEAD, "HEAD")).body == b""
