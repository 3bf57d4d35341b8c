"""A process that is asked to end: how long it has, and what ends it all the same."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

# The last commit and closing get half a second, so that the tests are short.
BEGIN = """
import asyncio, os, signal
from typing import Annotated
from reactive_kafka import App, Depends
from reactive_kafka.runtime import signals
from reactive_kafka.testing import MemoryBroker

signals.CLOSING_S = 0.5
ORDERS = {
    "incoming": {
        "orders": {
            "group_id": "g",
            "value_deserializer": "bytes",
            "auto_offset_reset": "earliest",
        }
    }
}
"""

JOB = """
app = App({"http": {"enabled": False}})

@app.every("100ms")
async def count():
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.sleep(2)
    print("done")

app.run()
"""

MEMORY_CHANNEL = """
app = App({"http": {"enabled": False}, "memory": {"steps": {}}})
steps = app.emitter("steps")

@app.on_start
async def begin():
    app.first = asyncio.create_task(send())

async def send():
    await steps.send(1)

@app.incoming("steps")
async def step(number: int):
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.sleep(2)
    print("done")

app.run()
"""

ADDED_CHANNEL = """
orders = {"topic": "orders", "group_id": "g", "value_deserializer": "bytes"}
app = App(
    {
        "http": {"enabled": False},
        "incoming": {"orders": {**orders, "drain_timeout": "0s", "auto_offset_reset": "earliest"}},
    }
)
broker = MemoryBroker()
broker.produce("later", b"")
app._connector = broker.connector()

@app.incoming("orders")
async def order(value: bytes): ...

async def later(value: bytes):
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.sleep(2)
    print("done")

@app.on_start
async def begin():
    app.first = asyncio.create_task(add())

async def add():
    await asyncio.sleep(0.1)
    settings = {**orders, "topic": "later", "group_id": "h", "auto_offset_reset": "earliest"}
    await app.add_channel("later", settings, later)

app.run()
"""

HOOK = """
app = App({"http": {"enabled": False}, "kafka": {"drain_timeout": "500ms"}, **ORDERS})

@app.incoming("orders")
async def order(value: bytes): ...

@app.on_start
async def hook():
    await asyncio.sleep(2.5)
    os.kill(os.getpid(), signal.SIGTERM)
    try:
        await asyncio.sleep(60)
    finally:
        await asyncio.sleep(1)
        print("done")

app.run()
"""

DEPENDENCY = """
app = App({"http": {"enabled": False}, "kafka": {"drain_timeout": "500ms"}, **ORDERS})
broker = MemoryBroker()
broker.produce("orders", b"")
app._connector = broker.connector()

async def pool():
    yield 1
    await asyncio.sleep(3)
    print("done")

@app.incoming("orders")
async def order(value: bytes, pool: Annotated[int, Depends(pool, scope="app")]):
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.sleep(60)

app.run()
"""

NOBODY_READS = """
import logging, sys

logging.basicConfig(stream=sys.stderr, level=logging.INFO)

def told_code():
    logging.error("why it is 7")
    return 7

with signals.StopSignals(lambda: None, lambda: 0.0, lambda: 0.0, CODE):
    os.kill(os.getpid(), signal.SIGTERM)
    print("asked", flush=True)
    while True:
        logging.info("x" * 1000)
"""

NO_THREADS = """
import threading

def no_thread(thread):
    raise RuntimeError("can't start new thread")

threading.Thread.start = no_thread
with signals.StopSignals(lambda: print("asked", flush=True), lambda: 0.0, lambda: 0.0):
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGTERM)
"""


def run(text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", BEGIN + text],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        cwd=Path(__file__).parents[2],
    )


@pytest.mark.parametrize("text", [JOB, MEMORY_CHANNEL, ADDED_CHANNEL])
def test_a_process_waits_at_its_end_for_jobs_memory_channels_and_channels_added_later(
    text: str,
) -> None:
    ended = run(text)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "done\n", ended.stderr


@pytest.mark.parametrize("text", [HOOK, DEPENDENCY])
def test_a_process_gives_start_hooks_and_dependencies_their_time_behind_its_deadline(
    text: str,
) -> None:
    ended = run("signals.CLOSING_S = 10\n" + text)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "done\n", ended.stderr


@pytest.mark.parametrize(
    ("asked_again", "of_code", "code"),
    [(False, "lambda: 7", 7), (False, "told_code", 1), (True, "lambda: 7", 1)],
)
def test_a_process_whose_output_nobody_reads_ends_all_the_same(
    asked_again: bool, of_code: str, code: int
) -> None:
    text = BEGIN + NOBODY_READS.replace("CODE", of_code)
    if asked_again:
        # Only the second signal may end it: the loop does not count as blocked, and closing has time.
        text = text.replace("lambda: 0.0, CODE", "lambda: None, CODE")
        text = text.replace("CLOSING_S = 0.5", "CLOSING_S = 60")
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", text], stdout=pipe, stderr=pipe) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"asked\n"
        try:
            if asked_again:
                process.send_signal(signal.SIGTERM)
            assert process.wait(20) == code
        finally:
            process.kill()


def test_signals_ask_for_the_stop_and_end_the_process_where_no_thread_can_be_started() -> None:
    ended = run(NO_THREADS)
    assert ended.stdout == "asked\n", ended.stderr
    assert ended.returncode == 1
