"""A slow answer about where to read: partitions that have a position go on meanwhile."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reactive_kafka import App, Message
from reactive_kafka.errors import TransientBrokerError
from reactive_kafka.testing import MemoryBroker, TestApp
from tests.app.brokers import Request
from tests.app.checkpoints import Rows, app_on, store_of
from tests.app.helpers import (
    committed,
    facts,
    in_virtual_time,
    make_app,
    make_broker,
    now,
    positions,
    running,
    send,
    tp,
    until,
)

# A lookup may be slow; a partition that has a position is not.
SOON_S = 1.0


class Member:
    """An application in the group, and what it has handled."""

    def __init__(self, rows: Rows | None = None, who: str = "a", **orders: Any) -> None:
        orders = {"commit_interval": "100ms", "group_protocol": "consumer", **orders}
        self.app: App = make_app(**orders) if rows is None else app_on(rows, who=who, **orders)
        self.handled: list[tuple[int, int]] = []

        @self.app.incoming("orders")
        async def handle(message: Message[bytes]) -> None:
            self.handled.append((message.partition, message.offset))

    @property
    def assigned(self) -> set[int]:
        return {partition.partition for partition in self.app.channel("orders").assignment}


async def share(first: Member, second: Member) -> tuple[int, int]:
    """Wait until each has one of the two partitions; return that of the first, and the other."""
    await until(lambda: len(first.assigned) == 1 and len(second.assigned) == 1, 30)
    (own,) = first.assigned
    (other,) = second.assigned
    return own, other


async def is_handled_soon(test: TestApp, member: Member, partition: int) -> None:
    """Send a record, and wait until a member has handled it."""
    before = len(member.handled)
    await send(test, b"new", partition=partition)
    await until(lambda: len(member.handled) > before, SOON_S)
    assert member.handled[-1][0] == partition


@pytest.mark.parametrize("call", ["committed", "beginning_offsets", "end_offsets"])
@in_virtual_time
async def test_a_partition_that_stays_is_handled_while_the_broker_says_where_another_one_starts(
    call: Request,
) -> None:
    broker = make_broker(2)
    first = Member()
    second = Member()
    async with running(first.app, broker=broker) as test, AsyncExitStack() as stack:
        await stack.enter_async_context(TestApp(second.app, broker=broker))
        own, other = await share(first, second)
        slow = broker.hold(call)
        await stack.aclose()
        await slow.arrived()
        assert first.assigned == {own, other}
        for _ in range(3):
            await is_handled_soon(test, first, own)
        await until(lambda: committed(test, own) == 3, SOON_S)
        await send(test, b"new", partition=other)
        slow.release()
        await until(lambda: (other, 0) in first.handled, SOON_S)
    await broker.close()


@in_virtual_time
async def test_a_partition_that_stays_is_handled_while_the_store_is_slow() -> None:
    broker = make_broker(2)
    rows = Rows()
    first = Member(rows, "a")
    second = Member(rows, "b")
    async with running(first.app, broker=broker) as test, AsyncExitStack() as stack:
        await stack.enter_async_context(TestApp(second.app, broker=broker))
        own, other = await share(first, second)
        slow = store_of(first.app).faults.hold("read")
        await stack.aclose()
        await slow.arrived()
        await is_handled_soon(test, first, own)
        await send(test, b"new", partition=other)
        slow.release()
        await until(lambda: (other, 0) in first.handled, 30)
    await broker.close()


async def asks_in_vain_and_again(broker: MemoryBroker, stack: AsyncExitStack) -> Any:
    """End the other member, whose partition comes; return the second question for its position.

    The first one fails. So the second one is not asked by the call that has assigned it.
    """
    broker.fail_next("committed", TransientBrokerError("the coordinator moves"))
    slow = broker.hold("committed")
    await stack.aclose()
    await slow.arrived()
    return slow


@in_virtual_time
async def test_a_partition_that_is_taken_during_its_lookup_is_not_read_when_the_answer_comes() -> (
    None
):
    broker = make_broker(2)
    first = Member()
    second = Member()
    third = Member()
    async with running(first.app, broker=broker) as test, AsyncExitStack() as stack:
        await stack.enter_async_context(TestApp(second.app, broker=broker))
        own, other = await share(first, second)
        slow = await asks_in_vain_and_again(broker, stack)
        await stack.enter_async_context(TestApp(third.app, broker=broker))
        await until(lambda: len(first.assigned) == 1, 30)
        (stays,) = first.assigned
        slow.release()
        goes = ({own, other} - {stays}).pop()
        await until(lambda: third.assigned == {goes}, 30)
        await send(test, b"a", partition=stays)
        await send(test, b"b", partition=goes)
        await until(lambda: first.handled == [(stays, 0)] and third.handled == [(goes, 0)], 30)
    await broker.close()


@in_virtual_time
async def test_a_stop_during_a_lookup_commits_what_is_handled_and_nothing_else() -> None:
    broker = make_broker(2)
    first = Member()
    second = Member()
    async with AsyncExitStack() as stack:
        async with running(first.app, broker=broker) as test:
            await stack.enter_async_context(TestApp(second.app, broker=broker))
            own, other = await share(first, second)
            await asks_in_vain_and_again(broker, stack)
            await is_handled_soon(test, first, own)
            before = now()
        assert now() - before < 15
        assert broker.committed("billing")[tp(own)].offset == 1
        assert positions(broker, other) in ([], [0])
    await broker.close()


@in_virtual_time
async def test_a_seek_during_a_lookup_counts() -> None:
    broker = make_broker(2)
    first = Member()
    second = Member()
    async with running(first.app, broker=broker) as test, AsyncExitStack() as stack:
        await stack.enter_async_context(TestApp(second.app, broker=broker))
        own, other = await share(first, second)
        await send(test, b"a", b"b", b"c", partition=other)
        await until(lambda: len(second.handled) == 3)
        slow = await asks_in_vain_and_again(broker, stack)
        seeking = asyncio.create_task(first.app.channel("orders").seek(tp(other), 1))
        await is_handled_soon(test, first, own)
        slow.release()
        await seeking
        await until(lambda: (other, 2) in first.handled, 30)
        assert [at for at in first.handled if at[0] == other] == [(other, 1), (other, 2)]
    await broker.close()


@in_virtual_time
async def test_a_partition_is_read_at_once_when_its_position_is_known_and_that_of_another_is_not() -> (
    None
):
    broker = make_broker(4)
    first = Member()
    second = Member()
    async with running(first.app, broker=broker) as test, AsyncExitStack() as stack:
        await stack.enter_async_context(TestApp(second.app, broker=broker))
        await until(lambda: len(first.assigned) == 2 and len(second.assigned) == 2, 30)
        unknown, known = second.assigned
        broker.refuse_positions(tp(unknown), TransientBrokerError("the coordinator moves"))
        slow = await asks_in_vain_and_again(broker, stack)
        await send(test, b"a", partition=known)
        slow.release()
        # A poll that began meanwhile would wait for longer.
        await until(lambda: first.handled == [(known, 0)], 0.2)
        broker.accept_positions(tp(unknown))
    await broker.close()


@in_virtual_time
async def test_a_bug_in_a_lookup_fails_the_channel_by_name() -> None:
    broker = make_broker(1)
    first = Member(restart={"max_attempts": 0})
    broker.fail_next("committed", TransientBrokerError("the coordinator moves"))
    broker.fail_next("committed", ValueError("a bug"))  # type: ignore[arg-type]
    async with running(first.app, broker=broker) as test:
        await until(lambda: facts(test).state == "failed", 30)
        assert "a bug" in str(facts(test).reason)
    await broker.close()


@in_virtual_time
async def test_a_partition_is_handled_while_the_broker_says_where_the_log_of_another_one_begins() -> (
    None
):
    """The position of the other partition is not in its log any more."""
    broker = make_broker(2)
    member = Member()
    async with running(member.app, broker=broker) as test:
        await until(lambda: len(member.assigned) == 2)
        await send(test, *[b"old"] * 5, partition=0)
        await until(lambda: len(member.handled) == 5)
        slow = broker.hold("beginning_offsets")
        broker.truncate(tp(0), 3)
        await slow.arrived()
        for _ in range(3):
            await is_handled_soon(test, member, 1)
        slow.release()
        # auto_offset_reset = "earliest"
        await until(lambda: member.handled.count((0, 2)) == 2, 30)
    assert [offset for partition, offset in member.handled if partition == 0] == [
        *range(5),
        0,
        1,
        2,
    ]
    await broker.close()


@in_virtual_time
async def test_a_partition_is_handled_while_the_broker_says_where_an_unreadable_log_ends() -> None:
    broker = make_broker(2)
    member = Member(on_unreadable="skip")
    async with running(member.app, broker=broker) as test:
        await until(lambda: len(member.assigned) == 2)
        slow = broker.hold("end_offsets")
        broker.spoil(tp(0), 0, 1, tells_end=False)
        await send(test, *[b"lost"] * 3, partition=0)
        await slow.arrived()
        for _ in range(3):
            await is_handled_soon(test, member, 1)
        slow.release()
        await until(lambda: (0, 2) in member.handled, 60)
    await broker.close()


STEPS = st.lists(
    st.sampled_from(["slow", "refused", "join", "leave", "send", "send both", "wait"]), max_size=12
)


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=STEPS)
def test_whatever_is_slow_or_moves_each_record_is_handled_and_committed(steps: list[str]) -> None:
    @in_virtual_time
    async def play() -> None:
        broker = make_broker(2)
        first = Member()
        others: list[Member] = []
        sent = [0, 0]
        async with running(first.app, broker=broker) as test, AsyncExitStack() as stack:
            for step in steps:
                if step == "slow":
                    broker.delay_next("committed", 3.0)
                elif step == "refused":
                    broker.fail_next("committed", TransientBrokerError("the coordinator moves"))
                elif step == "join" and len(others) < 3:
                    others.append(Member())
                    await stack.enter_async_context(TestApp(others[-1].app, broker=broker))
                elif step == "leave":
                    await stack.aclose()
                elif step == "wait":
                    await asyncio.sleep(1.0)
                else:
                    for partition in range(1 if step == "send" else 2):
                        await send(test, b"record", partition=partition)
                        sent[partition] += 1
            await stack.aclose()
            await until(lambda: [committed(test, one) or 0 for one in range(2)] == sent, 120)
        handled = set(first.handled).union(*(other.handled for other in others))
        assert handled == {(one, offset) for one in range(2) for offset in range(sent[one])}
        await broker.close()

    play()
