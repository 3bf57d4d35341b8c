"""The faults that calls to the in-memory broker meet, as tests script them."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, TypeVar

from reactive_kafka.errors import BrokerError, OutcomeUnknownError, TransientBrokerError
from reactive_kafka.records import TopicPartition

Question = Literal[
    "committed",
    "beginning_offsets",
    "end_offsets",
    "offsets_for_times",
    "topics",
    "topic_ids",
    "check",
]

Transactional = Literal["claim", "add_group", "commit_in", "end"]
Request = (
    Question
    | Transactional
    | Literal[
        "start", "commit", "send", "partitions", "create_topic", "describe_group", "topic_configs"
    ]
)

Call = Request | Literal["poll"]
T = TypeVar("T")
_MAY_HAVE_HAPPENED: frozenset[Request] = frozenset({"commit", "send", "commit_in", "end"})


class Hold:
    """One call that is being held up; see :meth:`MemoryBroker.hold`."""

    def __init__(self) -> None:
        self._arrived = asyncio.Event()
        self._released = asyncio.Event()

    async def arrived(self) -> None:
        """Wait until the call is there."""
        await self._arrived.wait()

    def release(self) -> None:
        """Let the call go on."""
        self._released.set()

    async def wait(self) -> None:
        """The call's side: tell that it is there, and wait until it may go on."""
        self._arrived.set()
        await self._released.wait()


@dataclass(frozen=True, slots=True)
class ScriptedStep:
    """What one call meets on its way to the broker, or *after* it took effect, on the way back."""

    error: BrokerError | None = None
    hold: Hold | None = None
    delay_s: float = 0.0
    after: bool = False

    async def carry_out(self, effect: Callable[[], T]) -> T:
        if not self.after:
            await self._interfere()
            return effect()
        result = effect()
        await self._interfere()
        return result

    async def _interfere(self) -> None:
        if self.delay_s > 0:
            await asyncio.sleep(self.delay_s)
        if self.hold is not None:
            await self.hold.wait()
        if self.error is not None:
            raise self.error


class BrokerFaults:
    """What the next calls will meet. One script a kind of call, used up in order; then calls
    succeed again.

    A script may be for calls *of* one thing alone, as :class:`MemoryBroker` has them. It comes
    before the one for all calls of that kind.
    """

    def __init__(self) -> None:
        self.asked: Counter[Call] = Counter()
        self.down = False
        # When it went down last, by the monotonic clock.
        self.down_since = 0.0
        self.answer_timeout_s = 10.0
        # Topic that cannot be written to -> the error that a send gets.
        self.away: dict[str, BrokerError] = {}
        # Partitions whose positions are refused -> why.
        self.unstorable: dict[TopicPartition, BrokerError] = {}
        # Partitions that nobody can use -> their leader.
        self.leaders_away: dict[TopicPartition, str | None] = {}
        self._scripts: defaultdict[tuple[Call, str | None], deque[ScriptedStep]] = defaultdict(
            deque
        )
        self._late: dict[asyncio.Task[object], None] = {}

    def add(self, call: Call, of: str | None, steps: Iterable[ScriptedStep]) -> None:
        self._scripts[call, of].extend(steps)

    def check_poll(self) -> None:
        """A poll: an absent broker is no error of it, only what the script has."""
        self.asked["poll"] += 1
        script = self._script("poll", None)
        if script and (error := script.popleft().error) is not None:
            raise error

    def is_quiet(self, call: Request, of: str) -> bool:
        """No fault waits for the next call of this kind."""
        return not self.down and of not in self.away and not self._script(call, of)

    async def ask(self, call: Request, effect: Callable[[], T], of: str | None = None) -> T:
        """Carry out one call: the request travels, takes *effect* at the broker, and the answer
        travels back.

        A request that was held goes on even when its caller has given up: it may still take effect.
        """
        self.asked[call] += 1
        if self.down:
            raise TransientBrokerError("the in-memory broker is down")
        if call == "send" and of in self.away:
            raise self.away[of].with_traceback(None)
        await asyncio.sleep(0)
        script = self._script(call, of)
        if not script:
            result = effect()
            await asyncio.sleep(0)
            return result
        task = asyncio.create_task(script.popleft().carry_out(effect), name=f"memory-broker-{call}")
        self._late[task] = None
        task.add_done_callback(self._forget)
        try:
            async with asyncio.timeout(self.answer_timeout_s):
                return await asyncio.shield(task)
        except TimeoutError:
            kind = OutcomeUnknownError if call in _MAY_HAVE_HAPPENED else TransientBrokerError
            raise kind(
                f"the in-memory broker did not answer {call} within {self.answer_timeout_s:g} s"
            ) from None

    async def close(self) -> None:
        late = tuple(self._late)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    def _script(self, call: Call, of: str | None) -> deque[ScriptedStep]:
        return self._scripts[call, of] or self._scripts[call, None]

    def _forget(self, task: asyncio.Task[object]) -> None:
        self._late.pop(task, None)
        if not task.cancelled():
            # Its caller may have given up; nobody else asks for it.
            task.exception()
