"""Produces orders, payments and clicks at a steady rate, and remembers what the broker
confirmed.
"""

from __future__ import annotations

import asyncio
import json
from asyncio import Future
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from reactive_kafka.broker.client import Producer, Written

from .checks import Place

TICK_S = 0.05
PAGES = ("home", "search", "product", "basket", "checkout")

RATES: Mapping[str, float] = {"orders": 60.0, "payments": 10.0, "clicks": 250.0}
"""channel -> records a second."""


@dataclass(frozen=True, slots=True)
class _Sent:
    channel: str
    id: int
    is_held: bool


class Traffic:
    """Writes records with rising ids to the topic of each channel.

    Args:
        producer: Started.
        topics: channel -> topic.
    """

    def __init__(self, producer: Producer, topics: Mapping[str, str]) -> None:
        self._producer = producer
        self._topics = topics
        self._sent = dict.fromkeys(RATES, 0)
        self._open: set[Future[Written]] = set()
        self._holds_next = False
        self.confirmed: dict[str, set[int]] = {channel: set() for channel in RATES}
        self.failed: list[str] = []
        self.held: Place | None = None
        self.held_id: int | None = None

    async def run(self, stopped: Callable[[], bool]) -> None:
        """Produce until *stopped*, then wait for the last confirmations."""
        began = asyncio.get_running_loop().time()
        while not stopped():
            elapsed_s = asyncio.get_running_loop().time() - began
            for channel, rate in RATES.items():
                while self._sent[channel] < int(elapsed_s * rate):
                    await self._send(channel)
            await asyncio.sleep(TICK_S)
        if self._open:
            await asyncio.wait(self._open)

    def hold_a_payment(self) -> None:
        """Make the next payment one that waits for approval."""
        self._holds_next = True

    async def _send(self, channel: str) -> None:
        number = self._sent[channel]
        self._sent[channel] += 1
        is_held = channel == "payments" and self._holds_next
        if is_held:
            self._holds_next = False
            self.held_id = number
        value = json.dumps(_value(channel, number, is_held)).encode()
        written = await self._producer.send(self._topics[channel], value, key=str(number).encode())
        self._open.add(written)
        written.add_done_callback(lambda done: self._note(done, _Sent(channel, number, is_held)))

    def _note(self, done: Future[Written], sent: _Sent) -> None:
        self._open.discard(done)
        error = done.exception()
        if error is not None:
            self.failed.append(f"{sent.channel} {sent.id}: {error}")
            return
        self.confirmed[sent.channel].add(sent.id)
        if sent.is_held:
            self.held = Place(*done.result())


def _value(channel: str, number: int, is_held: bool) -> dict[str, object]:
    match channel:
        case "orders":
            return {
                "id": number,
                "customer": f"customer {number % 97}",
                "amount": 10 + number % 190,
            }
        case "payments":
            return {"id": number, "amount": 10 + number % 190, "needs_approval": is_held}
        case _:
            return {"id": number, "page": PAGES[number % len(PAGES)]}
