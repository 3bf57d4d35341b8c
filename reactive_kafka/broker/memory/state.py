"""What the in-memory broker holds, shared by its clients and the tests' own face of it, and its
scripted failures.
"""

from __future__ import annotations

import asyncio
import zlib
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from math import inf
from typing import Literal, TypeVar

from reactive_kafka.broker.client import Written
from reactive_kafka.broker.memory.coordinator import Coordinator
from reactive_kafka.broker.memory.group import Group
from reactive_kafka.broker.memory.rules import PartitionLog
from reactive_kafka.clock import Clock
from reactive_kafka.errors import BrokerError, OutcomeUnknownError, TransientBrokerError
from reactive_kafka.records import RecordBytes, TopicPartition
from reactive_kafka.subscription import Subscription

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


def key_hash(key: bytes) -> int:
    """A number of a key, which says its partition."""
    return zlib.crc32(key)


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
class Step:
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


class Faults:
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
        self._scripts: defaultdict[tuple[Call, str | None], deque[Step]] = defaultdict(deque)
        self._late: dict[asyncio.Task[object], None] = {}

    def add(self, call: Call, of: str | None, steps: Iterable[Step]) -> None:
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

    def _script(self, call: Call, of: str | None) -> deque[Step]:
        return self._scripts[call, of] or self._scripts[call, None]

    def _forget(self, task: asyncio.Task[object]) -> None:
        self._late.pop(task, None)
        if not task.cancelled():
            # Its caller may have given up; nobody else asks for it.
            task.exception()


class Signal:
    """Wakes everybody who waits for something to change."""

    def __init__(self) -> None:
        # Woken in the order in which they came.
        self._waiters: dict[asyncio.Future[None], None] = {}

    def notify(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self) -> None:
        """Wait for the next change."""
        await self.wait_until(inf)

    async def wait_until(self, deadline: float) -> bool:
        """Wait for the next change; False if the loop's time reaches *deadline* first."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = None
        try:
            async with asyncio.timeout_at(None if deadline == inf else deadline):
                await waiter
        except TimeoutError:
            return False
        finally:
            del self._waiters[waiter]
        return True


class MemoryState:
    """Topics, groups and faults of one in-memory broker; :class:`MemoryBroker` says what its
    changes do.
    """

    def __init__(self, clock: Clock, default_partitions: int, *, auto_create: bool) -> None:
        self.clock = clock
        self.default_partitions = default_partitions
        self.auto_create = auto_create
        self.logs: dict[str, list[PartitionLog]] = {}
        # Topic -> its configs. Clients can read them; the broker does not act on them.
        self.configs: dict[str, dict[str, str]] = {}
        # Of the topics that exist; one that is made anew gets another.
        self.ids: dict[str, str] = {}
        self._numbers = count(1)
        self.groups: dict[str, Group] = {}
        self.transactions = Coordinator(self)
        self.faults = Faults()
        self.changed = Signal()

    def use(self, topic: str) -> int:
        """Number of partitions of a topic; one that is not known is created, as Kafka does by
        default, else 0.
        """
        if topic not in self.logs and self.auto_create:
            self.create(topic, self.default_partitions)
        return len(self.logs.get(topic, ()))

    def create(self, topic: str, partitions: int, configs: Mapping[str, str] | None = None) -> None:
        logs = self.logs.setdefault(topic, [])
        self.configs.setdefault(topic, {}).update(configs or {})
        if topic not in self.ids:
            self.ids[topic] = f"id-{next(self._numbers)}"
        logs.extend(PartitionLog() for _ in range(partitions - len(logs)))
        self._rebalance_readers_of(topic)
        self.changed.notify()

    def delete(self, topic: str) -> None:
        self.logs.pop(topic, None)
        self.ids.pop(topic, None)
        self.configs.pop(topic, None)
        for group in self.groups.values():
            group.positions.forget(topic)
        self._rebalance_readers_of(topic)

    def _rebalance_readers_of(self, topic: str) -> None:
        for group in self.groups.values():
            if any(member.subscription.reads(topic) for member in group.members.values()):
                group.rebalance()

    def partitions_by_topic(self) -> dict[str, list[TopicPartition]]:
        return {
            topic: [TopicPartition(topic, at) for at in range(len(logs))]
            for topic, logs in self.logs.items()
        }

    def log(self, partition: TopicPartition) -> PartitionLog | None:
        """The log of a partition; None where there is no such partition."""
        logs = self.logs.get(partition.topic, ())
        return logs[partition.partition] if 0 <= partition.partition < len(logs) else None

    def existing_log(self, partition: TopicPartition) -> PartitionLog:
        """The log of a partition; where there is none yet, TransientBrokerError."""
        if (log := self.log(partition)) is None:
            raise TransientBrokerError(f"{TopicPartition(*partition)} does not exist")
        return log

    def refusals(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, BrokerError]:
        """partition -> why no group may store a position of it."""
        refused: dict[TopicPartition, BrokerError] = {}
        for partition in partitions:
            if (error := self.faults.unstorable.get(partition)) is not None:
                refused[partition] = error
            elif self.log(partition) is None:
                refused[partition] = TransientBrokerError("it does not exist")
        return refused

    def led_log(self, partition: TopicPartition) -> PartitionLog:
        """The same, as its leader tells it: TransientBrokerError where that is away, too."""
        if partition in self.faults.leaders_away:
            raise TransientBrokerError(
                f"the leader of {TopicPartition(*partition)} does not answer"
            )
        return self.existing_log(partition)

    def spread(self, topic: str, key: bytes | None, turn: Iterator[int]) -> int:
        """The partition of a record: by its key, else the next in turn."""
        return (next(turn) if key is None else key_hash(key)) % (self.use(topic) or 1)

    def append(self, to: TopicPartition, record: RecordBytes, by: str | None = None) -> Written:
        """Store a record in a partition that exists, *by* a transactional id in its transaction."""
        value, key, headers, timestamp_ms = record
        at = int(self.clock.wall() * 1000) if timestamp_ms is None else timestamp_ms
        stored = self.existing_log(to).append(at, key, value, headers, by)
        self.changed.notify()
        return Written(to, stored.offset)

    def group(self, name: str) -> Group:
        if name not in self.groups:
            self.groups[name] = Group(name, self)
        return self.groups[name]

    def sizes(self, read: Sequence[Subscription]) -> dict[str, int]:
        """topic -> number of partitions, of the topics that are read; those read by name are
        created.
        """
        for topic in sorted({topic for one in read for topic in one.topics}):
            self.use(topic)
        return {
            topic: len(self.logs[topic])
            for topic in sorted(self.logs)
            if any(one.reads(topic) for one in read)
        }
