"""Whoever gives up waiting for a verdict changes nothing: random callers against a run in which all
of them wait on.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from hypothesis import example, given, settings
from hypothesis import strategies as st

from reactive_kafka import Message, TopicPartition
from reactive_kafka.testing import FakeClock, TestApp, run_in_virtual_time
from tests.app.helpers import make_app, make_broker, until

LETTERS = "dead-letter-topic-orders"

Call = Literal["ack", "nack", "committed"]


@dataclass(frozen=True)
class Caller:
    """One who asks, and how long that one waits: endlessly, for so many seconds, or not at all, and
    cancels.

    Attributes:
        is_handler: The handler itself waits; else a task beside it.
    """

    call: Call
    waits_s: float | None
    is_handler: bool = False


@dataclass(frozen=True)
class Play:
    """What a run meets.

    Attributes:
        records: (key, how long its handler works before it asks, who asks then), in the order of
            the log.
        away: From when and for how long dead letters cannot be written.
        rebalances: When there is one that gives everything straight back.
        slow_commits_s: How long the first commits take.
    """

    records: tuple[tuple[str, float, tuple[Caller, ...]], ...]
    away: tuple[float, float] = (0.0, 0.0)
    rebalances: tuple[float, ...] = ()
    slow_commits_s: tuple[float, ...] = ()
    strategy: str = "throttled"
    ordering: str = "partition"


@dataclass
class Seen:
    """What can be seen of a run: the order of handlers and letters in each lane, the answers, and
    what is committed.
    """

    started: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    letters: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    answers: dict[tuple[int, int], Any] = field(default_factory=dict)
    committed: int | None = None
    # Nacked, and their lane went on before the letter.
    overtaken: list[int] = field(default_factory=list)


def played(play: Play, *, all_wait: bool) -> Seen:
    """Play it; with *all_wait* nobody gives up."""
    seen, escaped = Seen(), list[Any]()

    async def main(clock: FakeClock) -> None:
        asyncio.get_running_loop().set_exception_handler(
            lambda loop, context: escaped.append(context)
        )
        async with asyncio.timeout(3600):
            await _play(play, seen, all_wait=all_wait)

    run_in_virtual_time(main)
    assert (escaped, seen.overtaken) == ([], [])
    return seen


async def _play(play: Play, seen: Seen, *, all_wait: bool) -> None:
    app = make_app(
        commit_strategy=play.strategy,
        commit_interval="2s",
        ack="manual",
        failure_strategy="dead-letter-queue",
        ordering=play.ordering,
        revoke_grace="1s",
        concurrency=4,
        unprocessed_record_max_age=0,
    )
    waiting = set[asyncio.Task[None]]()
    # Offset -> its lane.
    nacked = dict[int, str]()
    broker = make_broker(1)

    def lane_of(key: str) -> str:
        return key if play.ordering == "key" else "all"

    def written() -> list[int]:
        return [int(letter.value or b"") for letter in broker.log(TopicPartition(LETTERS, 0))]

    async def wait(caller: Caller, place: tuple[int, int], future: asyncio.Future[Any]) -> None:
        if caller.waits_s is None or all_wait:
            answer = await future
            if caller.waits_s is None:
                seen.answers[place] = answer
        elif caller.waits_s == 0.0:
            future.cancel()
        else:
            with suppress(TimeoutError):
                async with asyncio.timeout(caller.waits_s):
                    await future

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        key, works_s, callers = play.records[message.offset]
        lane = lane_of(key)
        seen.started[lane].append(message.offset)
        seen.overtaken += [at for at, its in nacked.items() if its == lane and at not in written()]
        await asyncio.sleep(works_s)
        if callers[0].call == "nack":
            nacked[message.offset] = lane
        futures = [_asked(message, caller.call) for caller in callers]
        for number, (caller, future) in enumerate(zip(callers, futures, strict=True)):
            if not caller.is_handler:
                waiting.add(asyncio.create_task(wait(caller, (message.offset, number), future)))
        for number, (caller, future) in enumerate(zip(callers, futures, strict=True)):
            if caller.is_handler:
                await wait(caller, (message.offset, number), future)

    async def disturb() -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        events = [(at, lambda: broker.rebalance("billing")) for at in play.rebalances]
        goes_at, stays_s = play.away
        events += [(goes_at, lambda: broker.topic_away(LETTERS))]
        events += [(goes_at + stays_s, lambda: broker.topic_back(LETTERS))]
        for at, event in sorted(events, key=lambda event: event[0]):
            await asyncio.sleep(max(0.0, began + at - loop.time()))
            event()

    broker.create_topic(LETTERS, 1)
    for number, (key, _, _) in enumerate(play.records):
        broker.produce("orders", b"%d" % number, key=key.encode(), partition=0)
    async with TestApp(app, broker=broker) as test:
        for delay_s in play.slow_commits_s:
            broker.delay_next("commit", delay_s)
        disturbing = asyncio.create_task(disturb())
        await until(lambda: sum(map(len, seen.started.values())) == len(play.records), 120)
        await disturbing
        await test.settled(timeout=60)
        await asyncio.gather(*waiting)
        for offset in written():
            seen.letters[lane_of(play.records[offset][0])].append(offset)
        seen.committed = next(iter(test.committed("orders").values()))
    await broker.close()


def _asked(message: Message[bytes], call: Call) -> asyncio.Future[Any]:
    if call == "ack":
        return message.ack()
    return message.nack(ValueError("bad")) if call == "nack" else message.committed()


SECONDS = st.sampled_from((0.0, 0.01, 0.5, 1.0, 3.0, 7.0))
WAITS = st.one_of(st.none(), SECONDS)
VERDICTS = st.builds(Caller, st.sampled_from(("ack", "nack", "nack")), WAITS, st.booleans())
MORE = st.lists(
    st.builds(Caller, st.sampled_from(("ack", "nack", "committed")), WAITS, st.booleans()),
    max_size=3,
)
RECORDS = st.tuples(
    st.sampled_from(("ada", "bob")),
    SECONDS,
    st.builds(lambda first, more: (first, *more), VERDICTS, MORE),
)
PLAYS = st.builds(
    Play,
    records=st.lists(RECORDS, min_size=2, max_size=6).map(tuple),
    away=st.tuples(SECONDS, SECONDS),
    rebalances=st.lists(st.floats(0, 20), max_size=2).map(tuple),
    slow_commits_s=st.lists(SECONDS, max_size=3).map(tuple),
    strategy=st.sampled_from(("throttled", "latest")),
    ordering=st.sampled_from(("partition", "key")),
)


@given(PLAYS)
@settings(max_examples=40)
@example(
    Play(
        records=(
            ("ada", 0.0, (Caller("nack", 1.0, is_handler=True),)),
            ("ada", 0.0, (Caller("ack", None, is_handler=True),)),
        ),
        away=(0.0, 21.0),
    )
)
def test_who_gives_up_waiting_changes_nothing_for_anybody_else(play: Play) -> None:
    assert played(play, all_wait=False) == played(play, all_wait=True)
