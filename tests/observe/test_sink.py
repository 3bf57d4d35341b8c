"""Log lines that nobody reads: they wait in bounds, and hold up nothing."""

from __future__ import annotations

import logging
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest

from reactive_kafka.observe.sink import MOST_HELD, Sink

SERVICE = """
import asyncio, logging, sys, time
from reactive_kafka import App
from reactive_kafka.observe.log_setup import configure_logging
from reactive_kafka.testing import TestApp

configure_logging("text")
app = App({"incoming": {"orders": {"group_id": "billing", "value_deserializer": "string"}}})
turns = []

@app.incoming("orders")
async def handle(number: str) -> None:
    logging.getLogger("shop").warning("%s %s", number, "x" * 1000)

async def main():
    async with TestApp(app) as test:
        for number in range(3000):
            await test.send("orders", b"%d" % number, partition=0)
        await test.settled()
        print("committed", sum(test.committed("orders").values()), flush=True)
        sys.stdin.readline()
        logging.getLogger("shop").warning("the last one")

asyncio.run(main())
"""


def test_a_service_whose_log_nobody_reads_works_on_and_tells_later_what_was_dropped(
    tmp_path: Path,
) -> None:
    """Row J11 of the faults."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", SERVICE],
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        text=True,
        cwd=Path(__file__).parents[2],
    ) as service:
        assert service.stdin and service.stdout and service.stderr
        try:
            assert select.select([service.stdout], [], [], 60)[0], "it stands still"
            assert service.stdout.readline() == "committed 3000\n"
            service.stdin.write("\n")
            service.stdin.flush()
            lines = service.stderr.read().splitlines()
            assert service.wait(20) == 0
        finally:
            service.kill()
    numbers = [int(line.split("shop: ")[1].split()[0]) for line in lines if "xxxx" in line]
    assert numbers == list(range(len(numbers)))
    assert 500 < len(numbers) < 3000, "the pipe held all of them"
    # A line of ours is shorter than the service's: it may fit behind those that are held, and says
    # so far before it.
    told = [line.split("reactive_kafka: ")[1].split()[0] for line in lines if " dropped: " in line]
    assert sum(map(int, told)) == 3000 - len(numbers)
    assert any(line.endswith("shop: the last one") for line in lines)


@pytest.fixture
def pipe() -> Iterator[tuple[int, TextIO]]:
    reads, writes = os.pipe()
    with os.fdopen(writes, "w") as stream:
        yield reads, stream
    os.close(reads)


def numbers_in(reads: int) -> list[int]:
    """The first word of each of 200 lines from a pipe."""
    taken = b""
    while taken.count(b"\n") < 200:
        assert select.select([reads], [], [], 10)[0], "the lines are held back for ever"
        taken += os.read(reads, 65536)
    return [int(line.split()[0]) for line in taken.splitlines()]


def logger_to(sink: Sink) -> logging.Logger:
    logger = logging.Logger("alone")
    logger.addHandler(sink)
    return logger


def test_what_was_held_back_is_written_as_it_is_read_without_another_line(
    pipe: tuple[int, TextIO],
) -> None:
    reads, stream = pipe
    sink, before = Sink(stream), threading.active_count()
    logger = logger_to(sink)
    for number in range(200):
        logger.warning("%d %s", number, "x" * 1000)
    assert threading.active_count() == before + 1
    assert numbers_in(reads) == list(range(200))
    give_up = time.monotonic() + 10
    while threading.active_count() > before:
        assert time.monotonic() < give_up, "who looked for the reader goes on for ever"
        time.sleep(0.01)
    for number in range(200, 400):
        logger.warning("%d %s", number, "x" * 1000)
    assert numbers_in(reads) == list(range(200, 400)), "the next reader that was slow"


def test_so_many_are_held_and_no_more_and_the_end_does_not_wait_for_ever(
    pipe: tuple[int, TextIO],
) -> None:
    sink = Sink(pipe[1])
    logger = logger_to(sink)
    for _ in range(2 * MOST_HELD // 1000):
        logger.warning("x" * 999)
    assert MOST_HELD - 1000 <= len(sink._held) <= MOST_HELD
    began = time.monotonic()
    sink.flush()
    assert time.monotonic() - began < 5


def test_a_line_longer_than_all_that_is_held_arrives_whole_and_others_behind_it_are_counted(
    pipe: tuple[int, TextIO],
) -> None:
    reads, stream = pipe
    logger = logger_to(Sink(stream))
    long = "x" * (MOST_HELD + 1000)
    logger.warning(long)
    logger.warning("y" * (MOST_HELD // 2))
    taken = b""
    while taken.count(b"\n") < 2:
        assert select.select([reads], [], [], 10)[0], "the reader waits for ever"
        taken += os.read(reads, 65536)
    assert taken.decode().splitlines() == [long, "1 log line was dropped: it was not read"]


def test_lines_that_can_be_written_to_nobody_any_more_are_given_up() -> None:
    reads, writes = os.pipe()
    with os.fdopen(writes, "w") as stream:
        sink = Sink(stream)
        logger = logger_to(sink)
        for _ in range(200):
            logger.warning("x" * 1000)
        os.close(reads)
        logger.warning("gone")
        assert not sink._held


def test_the_end_does_not_wait_for_all_that_a_slow_reader_takes(pipe: tuple[int, TextIO]) -> None:
    reads, stream = pipe
    sink = Sink(stream)
    logger = logger_to(sink)
    for _ in range(MOST_HELD // 1000):
        logger.warning("x" * 999)
    is_over = threading.Event()

    def read_slowly() -> None:
        while not is_over.wait(0.02):
            os.read(reads, 4096)

    reader = threading.Thread(target=read_slowly)
    reader.start()
    began = time.monotonic()
    sink.flush()
    took_s = time.monotonic() - began
    is_over.set()
    reader.join()
    assert took_s < 3
