"""The faults that calls to the in-memory broker meet, as tests script them."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, TypeVar

from reactive_kafka.errors import BrokerError, OutcomeUnknownError, TransientBrokerError
from reactive_kafka.records import TopicPartition
from reactive_kafka.tasks import Flag

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
        "start",
        "heartbeat",
        "commit",
        "send",
        "partitions",
        "create_topic",
        "add_partitions",
        "set_topic_config",
        "replication_factors",
        "describe_group",
        "list_groups",
        "topic_configs",
    ]
)

Call = Request | Literal["poll"]
T = TypeVar("T")
_MAY_HAVE_HAPPENED: frozenset[Request] = frozenset({"commit", "send", "commit_in", "end"})


class Hold:
    """One call that is being held up. See :meth:`MemoryBroker.hold`."""

    def __init__(self) -> None:
        self._arrived = Flag()
        self._released = Flag()

    async def arrived(self) -> None:
        """Wait until the call has come."""
        await self._arrived.wait()

    def release(self) -> None:
        """Let the call continue."""
        self._released.set()

    async def wait(self) -> None:
        """Report that the call has come, and wait for its release. Called by the call itself."""
        self._arrived.set()
        await self._released.wait()


@dataclass(frozen=True, slots=True)
class ScriptedFault:
    """What happens to one call on its way to the broker, or *after* its effect, on the way back."""

    error: BrokerError | None = None
    hold: Hold | None = None
    delay_s: float = 0.0
    after: bool = False

    async def carry_out(self, effect: Callable[[], T]) -> T:
        """Apply the fault and the *effect* of the call, in the order that ``after`` says."""
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
    """What happens to the next calls of clients.

    There is one script for each kind of call. Its faults are used up in order; then calls succeed
    again. A script may be restricted to calls *of* one thing, see :class:`MemoryBroker`. It is used
    before the script for all calls of the kind.
    """

    def __init__(self) -> None:
        self.counts: Counter[Call] = Counter()
        self.is_down = False
        # By the monotonic clock.
        self.went_down_at = 0.0
        self.answer_timeout_s = 10.0
        # Topic that cannot be written to -> the error of a send.
        self.topics_away: dict[str, BrokerError] = {}
        # Partition whose positions are refused -> the reason.
        self.refused_positions: dict[TopicPartition, BrokerError] = {}
        # Partition that cannot be used -> its leader, None if it has none.
        self.leaders_away: dict[TopicPartition, str | None] = {}
        self._scripts: defaultdict[tuple[Call, str | None], deque[ScriptedFault]] = defaultdict(
            deque
        )
        self._unfinished: dict[asyncio.Task[object], None] = {}

    def add(self, call: Call, of: str | None, faults: Iterable[ScriptedFault]) -> None:
        self._scripts[call, of].extend(faults)

    def check_poll(self) -> None:
        """Count a poll, and raise its scripted error.

        A poll does not fail while the broker is down.
        """
        self.counts["poll"] += 1
        script = self._script("poll", None)
        if script and (error := script.popleft().error) is not None:
            raise error

    def is_quiet(self, call: Request, of: str) -> bool:
        """True if no fault waits for the next call of this kind."""
        return not self.is_down and of not in self.topics_away and not self._script(call, of)

    async def ask(self, call: Request, effect: Callable[[], T], of: str | None = None) -> T:
        """Carry out a call: the request travels, takes *effect* at the broker, and is answered.

        A request that is held up continues when its caller has given up: it may still take effect.
        """
        self.counts[call] += 1
        if self.is_down:
            raise TransientBrokerError("the in-memory broker is down")
        if call == "send" and of in self.topics_away:
            raise self.topics_away[of].with_traceback(None)
        await asyncio.sleep(0)
        script = self._script(call, of)
        if not script:
            result = effect()
            await asyncio.sleep(0)
            return result
        task = asyncio.create_task(script.popleft().carry_out(effect), name=f"memory-broker-{call}")
        self._unfinished[task] = None
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
        unfinished = tuple(self._unfinished)
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)

    def _script(self, call: Call, of: str | None) -> deque[ScriptedFault]:
        return self._scripts[call, of] or self._scripts[call, None]

    def _forget(self, task: asyncio.Task[object]) -> None:
        self._unfinished.pop(task, None)
        if not task.cancelled():
            # Retrieved, because its caller may have given up.
            task.exception()
