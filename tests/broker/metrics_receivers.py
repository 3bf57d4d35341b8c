"""A broker that takes metrics, for tests of what pushes them."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from reactive_kafka.broker.client_metrics import (
    NEW_INSTANCE as NEW_INSTANCE,
)
from reactive_kafka.broker.client_metrics import (
    ClientCounts,
    MetricsSubscription,
    PushAnswer,
)
from reactive_kafka.broker.client_metrics import (
    Latencies as Latencies,
)
from reactive_kafka.broker.error_codes import TABLE
from reactive_kafka.errors import TransientBrokerError

CODES = {row.name: row.code for row in TABLE}
INSTANCE = b"i" * 16


def subscription(**changes: Any) -> MetricsSubscription:
    """A broker that wants everything every ten seconds."""
    plain = {
        "instance_id": INSTANCE,
        "subscription_id": 7,
        "push_interval_s": 10.0,
        "most_bytes": 1_000_000,
        "prefixes": ("*",),
    }
    return MetricsSubscription(**{**plain, **changes})


def refused(name: str, throttle_s: float = 0.0) -> MetricsSubscription:
    """The answer of a broker that refuses the question."""
    return MetricsSubscription(error_code=CODES[name], throttle_s=throttle_s)


def push_answer(name: str = "NONE", throttle_s: float = 0.0) -> PushAnswer:
    """What a broker says about a push."""
    return PushAnswer(CODES[name], throttle_s)


class ScriptedReceiver:
    """A broker that says what a test wants, and remembers what it was asked.

    Attributes:
        wanted: The next answers to the question what is wanted; the last one stays. None: the
            broker takes no metrics.
        answers: The next answers to pushes; after them all is well. An exception is raised.
        asked: The instance ids that came with the questions.
        pushed: Each push with its payload, and whether it was the last.
    """

    def __init__(self, *wanted: MetricsSubscription | None) -> None:
        self.wanted = deque(wanted)
        self.answers: deque[PushAnswer | Exception] = deque()
        self.asked: list[bytes] = []
        self.pushed: list[tuple[bytes, bool]] = []
        self.is_away = False
        self.hangs = False
        self.counts = ClientCounts()
        self.member_id: str | None = "m-1"
        self.connects = asyncio.Event()
        self._has_pushed = asyncio.Event()

    async def pushes_again(self) -> None:
        """Wait for another push."""
        self._has_pushed.clear()
        await self._has_pushed.wait()

    async def subscription(self, instance_id: bytes) -> MetricsSubscription | None:
        self._answer()
        self.asked.append(instance_id)
        return self.wanted[0] if len(self.wanted) == 1 else self.wanted.popleft()

    async def compressed(
        self, payload: bytes, subscription: MetricsSubscription
    ) -> tuple[int, bytes]:
        return 0, payload

    async def push(
        self, subscription: MetricsSubscription, packed: tuple[int, bytes], *, is_last: bool
    ) -> PushAnswer:
        if self.hangs:
            await asyncio.Event().wait()
        self._answer()
        self.pushed.append((packed[1], is_last))
        self._has_pushed.set()
        answer = self.answers.popleft() if self.answers else push_answer()
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def reconnected(self) -> None:
        self.connects.clear()
        await self.connects.wait()

    def _answer(self) -> None:
        if self.is_away:
            raise TransientBrokerError("the broker is away")
