"""A service whose handlers and hooks do what none should, and some do.

``python -m tests.faults.odd_service CONFIG HISTORY [--ack post|manual] [--hook NAME] [--log-all]``;
it has a handler for each incoming channel of the configuration, and ``--hook`` names what
``on_assigned`` does. What a handler does with a record is in its payload: ``"do": "work"``
succeeds, ``"keep"`` leaves the message to the hook (manual), and :data:`ODD` has the others.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import tomllib
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from reactive_kafka import App, Message, TopicPartition
from tests.faults.history import History

NACK_AWAITED_S = 0.5
Odd = Callable[[Message[dict[str, Any]]], Awaitable[None]]


class MuteError(Exception):
    """An exception whose text cannot be had."""

    def __str__(self) -> str:
        # The mistake.
        return int("x")  # type: ignore[return-value]

    __repr__ = __str__


async def fail(message: Message[dict[str, Any]]) -> None:
    if message.partition % 2:
        raise KeyError(message.offset)
    raise ValueError(message.offset)


async def be_mute(message: Message[dict[str, Any]]) -> None:
    raise MuteError


async def fail_differently(message: Message[dict[str, Any]]) -> None:
    """Another error at each attempt."""
    raise {1: TimeoutError(), 2: KeyError("second")}.get(message.attempt, ValueError("bad iban"))


async def nack_under_a_timeout(message: Message[dict[str, Any]]) -> None:
    async with asyncio.timeout(NACK_AWAITED_S):
        await message.nack(ValueError("nobody waits for its letter"))


async def cancel_itself(message: Message[dict[str, Any]]) -> None:
    this_task().cancel()
    await asyncio.sleep(0)


async def time_out_by_hand(message: Message[dict[str, Any]]) -> None:
    """As it was done before Python 3.11: nobody takes the request to cancel back."""
    asyncio.get_running_loop().call_later(0.05, this_task().cancel)
    try:
        await asyncio.sleep(10)
    except asyncio.CancelledError:
        raise TimeoutError("made by hand") from None


async def await_what_was_cancelled(message: Message[dict[str, Any]]) -> None:
    await cancelled_child()


async def hang(message: Message[dict[str, Any]]) -> None:
    await asyncio.Event().wait()


async def time_out(message: Message[dict[str, Any]]) -> None:
    async with asyncio.timeout(0.05):
        await asyncio.sleep(10)


ODD: Mapping[str, Odd] = {
    "fail": fail,
    "be mute": be_mute,
    "fail differently": fail_differently,
    "nack under a timeout": nack_under_a_timeout,
    "cancel itself": cancel_itself,
    "time out by hand": time_out_by_hand,
    "await what was cancelled": await_what_was_cancelled,
    "time out": time_out,
    "hang": hang,
}


async def cancelled_child() -> None:
    child = asyncio.create_task(asyncio.sleep(10))
    child.cancel()
    await child


def this_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


class Service:
    """Its handlers and hooks, and what they write down."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._kept: list[Message[dict[str, Any]]] = []

    async def handle(self, message: Message[dict[str, Any]]) -> None:
        tp, do, id = (
            (message.topic, message.partition),
            message.payload["do"],
            message.payload["id"],
        )
        self._history.begin(tp, message.offset, id, message.attempt)
        outcome = "failed"
        try:
            if do in ODD:
                await ODD[do](message)
            elif do == "keep":
                self._kept.append(message)
            outcome = "ok"
        finally:
            self._history.end(tp, message.offset, id, outcome)

    async def settle(self, partitions: frozenset[TopicPartition]) -> None:
        """Ack what was kept, and wait for each."""
        self._history.assigned(partitions)
        for message in self._kept:
            settled = await message.ack()
            tp = message.topic, message.partition
            self._history.note("settled", tp=tp, offset=message.offset, outcome=str(settled))

    async def await_cancelled(self, partitions: frozenset[TopicPartition]) -> None:
        self._history.assigned(partitions)
        await cancelled_child()

    async def note(self, partitions: frozenset[TopicPartition]) -> None:
        self._history.assigned(partitions)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("config", type=Path)
    parser.add_argument("history", type=Path)
    parser.add_argument("--seed", type=int, default=1, help="not used: nothing is drawn")
    parser.add_argument("--ack", choices=("post", "manual"), default="post")
    parser.add_argument("--hook", choices=("note", "settle", "await-cancelled"), default="note")
    parser.add_argument(
        "--log-all", action="store_true", help="as an application that configures logging by itself"
    )
    options = parser.parse_args()
    if options.log_all:
        logging.basicConfig(level=logging.INFO)
    history = History(options.history)
    service = Service(history)
    hook = {
        "note": service.note,
        "settle": service.settle,
        "await-cancelled": service.await_cancelled,
    }[options.hook]
    app = App(str(options.config))
    for name in tomllib.loads(options.config.read_text())["incoming"]:
        app.on_assigned(name)(hook)
        app.incoming(name, ack=options.ack)(handler_of(service))
    history.note("start")
    app.run()
    history.note("stop")


def handler_of(service: Service) -> Odd:
    """A function of its own for each channel."""

    async def handle(message: Message[dict[str, Any]]) -> None:
        await service.handle(message)

    return handle


if __name__ == "__main__":
    main()
