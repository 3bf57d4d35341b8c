"""The service under test: nothing but the public API, a handler with random latencies, and a
history.

``python -m tests.faults.service CONFIG HISTORY [--seed N] [--latency LOW HIGH] [--ack post|manual]
[--blocking]``

What a handler does with a record is in its payload: ``"do": "work"`` sleeps a random time,
``"slow"`` four seconds, and ``"slower"`` eight; ``"fork"`` forks a child that sleeps for a minute,
with everything that it was given, and ``"return"`` one that raises out of the handler; ``"eat"``
takes 60 MB of memory; ``"await"`` never returns, ``"swallow"`` ignores cancellation too,
``"thread"`` blocks its thread for ever; ``"leave"`` returns without an ack (manual).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from reactive_kafka import App, Message, TopicPartition
from tests.faults.history import History

_eaten: list[bytes] = []


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("config", type=Path)
    parser.add_argument("history", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--latency", type=float, nargs=2, default=(0.001, 0.03))
    parser.add_argument("--blocking", action="store_true")
    parser.add_argument("--ack", choices=("post", "manual"), default="post")
    options = parser.parse_args()
    history = History(options.history)
    history.note("start")
    build(options, history).run()
    history.note("stop")


def build(options: argparse.Namespace, history: History) -> App:
    """The application: one channel, whose handler writes down when it begins and when its work is
    done.
    """
    app = App(str(options.config))
    latencies = random.Random(options.seed)

    @app.on_assigned("orders")
    async def assigned(partitions: frozenset[TopicPartition]) -> None:
        history.assigned(partitions)

    @app.on_revoked("orders")
    async def revoked(partitions: frozenset[TopicPartition]) -> None:
        history.revoked(partitions)

    if options.blocking:
        app.incoming("orders")(blocking_handler(options, history))
        return app

    @app.incoming("orders", ack=options.ack)
    async def handle(message: Message[dict[str, Any]]) -> None:
        tp, offset, id = (message.topic, message.partition), message.offset, message.payload["id"]
        history.begin(tp, offset, id)
        try:
            await work(message.payload["do"], latencies.uniform(*options.latency))
        except asyncio.CancelledError:
            history.end(tp, offset, id, "cancelled")
            raise
        if message.payload["do"] == "leave":
            return
        history.end(tp, offset, id)
        if options.ack == "manual":
            await message.ack()

    return app


def blocking_handler(
    options: argparse.Namespace, history: History
) -> Callable[[Message[dict[str, Any]]], None]:
    """A handler for worker threads."""

    def handle(message: Message[dict[str, Any]]) -> None:
        tp, offset, id = (message.topic, message.partition), message.offset, message.payload["id"]
        history.begin(tp, offset, id)
        if message.payload["do"] == "thread":
            threading.Event().wait()
        time.sleep(options.latency[0])
        history.end(tp, offset, id)

    return handle


async def work(what: str, latency_s: float) -> None:
    """What stands for the user's work."""
    if what == "work":
        await asyncio.sleep(latency_s)
    elif what == "slow":
        await asyncio.sleep(4)
    elif what == "slower":
        await asyncio.sleep(8)
    elif what == "fork":
        if not os.fork():
            time.sleep(60)  # noqa: ASYNC251 - the child has nothing else to do
            os._exit(0)
    elif what == "return":
        if not os.fork():
            raise RuntimeError("this is the child")
    elif what == "eat":
        _eaten.append(b"x" * 60_000_000)
    elif what == "await":
        await asyncio.Event().wait()
    while what == "swallow":
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue


if __name__ == "__main__":
    main()
