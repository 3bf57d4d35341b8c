"""The service of the soak and of the chaos: one channel, whose handler writes down what it does.

``python -m tests.faults.soak_service CONFIG HISTORY [--seed N]``

What the handler does with a record is in its payload: ``"do": "work"`` sleeps for some
milliseconds, ``"slow"`` for longer, ``"fail"`` raises, and is a dead letter then. The service also
writes down how many tasks there are, each second, also while there is no record to handle.

``SOAK_BUGS=ahead,lose,leak`` plants mistakes, which the judge must find: the handler leaves the
work of some records to a task and returns, returns without the work of others, and each record
leaves a task and some memory behind, every fifth a descriptor.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import os
import random
import signal
from pathlib import Path
from typing import Any

from reactive_kafka import App, Message, TopicPartition
from tests.faults.history import History, Partition

BUGS = "SOAK_BUGS"
SLOW_S = 0.5
LONGEST_S = 0.004
TASKS_EVERY = "1s"
# Longer than a commit takes.
AHEAD_S = 1.5
EVERY = {"ahead": 20, "lose": 50, "leak": 5}


class WorkFailedError(Exception):
    """What the handler raises where its record asks for it."""


class Service:
    """The handler, and what it keeps."""

    def __init__(self, history: History, seed: int, bugs: frozenset[str]) -> None:
        self._history = history
        self._latencies = random.Random(seed)
        self._bugs = bugs
        self._kept: list[Any] = []

    async def handle(self, message: Message[dict[str, Any]]) -> None:
        """Do what the record asks for."""
        self._leak(message.offset)
        self._history.begin(*_name(message))
        if self._is_hit("lose", message.offset):
            return
        if self._is_hit("ahead", message.offset):
            self._kept.append(asyncio.create_task(self._later(message)))
            return
        try:
            await self._work(message.payload["do"])
        except asyncio.CancelledError:
            self._history.end(*_name(message), "cancelled")
            raise
        except WorkFailedError:
            self._history.end(*_name(message), "failed")
            raise
        self._history.end(*_name(message))

    async def _work(self, what: str) -> None:
        await asyncio.sleep(SLOW_S if what == "slow" else self._latencies.uniform(0, LONGEST_S))
        if what == "fail":
            raise WorkFailedError

    async def _later(self, message: Message[dict[str, Any]]) -> None:
        await asyncio.sleep(AHEAD_S)
        self._history.end(*_name(message))

    def _is_hit(self, bug: str, offset: int) -> bool:
        return bug in self._bugs and offset % EVERY[bug] == 0

    def _leak(self, offset: int) -> None:
        if "leak" in self._bugs:
            self._kept += [asyncio.create_task(asyncio.Event().wait()), b"x" * 100_000]
            if self._is_hit("leak", offset):
                self._kept.append(os.open("/dev/null", os.O_RDONLY))


def _name(message: Message[dict[str, Any]]) -> tuple[Partition, int, str]:
    return (message.topic, message.partition), message.offset, message.payload["id"]


def run(config: Path, history_path: Path, seed: int) -> None:
    """Serve until a signal."""
    history = History(history_path)
    history.note("start")
    bugs = frozenset(filter(None, os.environ.get(BUGS, "").split(",")))
    service = Service(history, seed, bugs)
    app = App(str(config))

    @app.on_assigned("orders")
    async def assigned(partitions: frozenset[TopicPartition]) -> None:
        history.assigned(partitions)

    @app.on_revoked("orders")
    async def revoked(partitions: frozenset[TopicPartition]) -> None:
        history.revoked(partitions)

    @app.incoming("orders")
    async def handle(message: Message[dict[str, Any]]) -> None:
        await service.handle(message)

    @app.every(TASKS_EVERY)
    async def look() -> None:
        history.note("tasks", count=len(asyncio.all_tasks()))

    app.run()
    history.note("stop")


def die_with_parent() -> None:
    """Have the kernel kill this process when the one that started it is gone, however it went."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def main() -> None:
    die_with_parent()
    parser = argparse.ArgumentParser()
    parser.add_argument("config", type=Path)
    parser.add_argument("history", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    run(options.config, options.history, options.seed)


if __name__ == "__main__":
    main()
