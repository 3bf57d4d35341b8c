"""A revocation ends while the group still waits for this member, whatever hangs: hooks, handlers,
the commit.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from reactive_kafka import Message, TopicPartition
from reactive_kafka.events import HandlerAbandoned, HookFailed, RevocationCut, SettledNotStored
from reactive_kafka.testing import MemoryBroker, TestApp
from tests.app.checkpoints import Rows, app_on
from tests.app.helpers import (
    Recorder,
    in_virtual_time,
    make_app,
    make_broker,
    now,
    running,
    send,
    tp,
    until,
)

# The group, for its members.
WAITS_S = 10.0
# Less a heartbeat, and the join.
PATIENCE_S = WAITS_S - 2 - 1
# After an assignment: two heartbeats have told that no rebalance has begun.
HEARD_S = 5.0
SHORT: dict[str, Any] = {
    "rebalance_timeout_ms": int(WAITS_S * 1000),
    "commit_interval": "100s",
    "concurrency": 4,
}

Partitions = frozenset[TopicPartition]


def hanging_app(app: Any, hooks: int = 1) -> list[float]:
    """Give *app* a handler that does not return for "stuck", and hooks that never do; when each was
    called.
    """
    called: list[float] = []

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        if value == b"stuck":
            await asyncio.Event().wait()

    async def hook(partitions: Partitions) -> None:
        called.append(now())
        await asyncio.Event().wait()

    for _ in range(hooks):
        app.on_revoked("orders")(hook)
    return called


async def moved_on(broker: MemoryBroker, generation: int, within_s: float = 2 * WAITS_S) -> None:
    await until(lambda: broker.generation("billing") > generation, within_s)


async def rebalance_of(test: TestApp) -> tuple[float, bool]:
    """How long a rebalance has taken, and whether this member was in the group all the time."""
    before, generation, began = (
        list(test.broker.members("billing")),
        test.broker.generation("billing"),
        now(),
    )
    test.broker.rebalance("billing")
    await moved_on(test.broker, generation)
    took_s = now() - began
    await until(lambda: test.app.channel("orders").is_ready, 300)
    return took_s, list(test.broker.members("billing")) == before


@pytest.mark.parametrize("grace", ["1s", "5s", "9s"])
@in_virtual_time
async def test_with_a_hook_and_a_handler_that_never_return_and_a_slow_commit_it_is_back_in_time(
    grace: str,
) -> None:
    recorder = Recorder()
    app = make_app(recorder, revoke_grace=grace, **SHORT)
    hanging_app(app)
    async with running(app, partitions=2) as test:
        await send(test, b"settled", b"settled", partition=0)
        await send(test, b"settled", b"stuck", partition=1)
        await until(
            lambda: [one.in_flight for one in app.channel("orders").facts().partitions] == [0, 1]
        )
        await asyncio.sleep(HEARD_S)
        test.broker.delay_next("commit", 1)
        took_s, stayed = await rebalance_of(test)
        assert stayed
        assert 4 <= took_s <= PATIENCE_S
        assert [test.broker.committed("billing")[tp(number)].offset for number in (0, 1)] == [2, 1]
        (hook,) = recorder.of(HookFailed)
        assert hook.reason.startswith("no end within")
        (left,) = recorder.of(HandlerAbandoned)
        assert left.records == 1
        (cut,) = recorder.of(RevocationCut)
        assert (cut.hooks, cut.records, cut.unstored) == (1, 1, 0)
        assert cut.text() == (
            "revocation cut short, for the group waits 10 s: left 1 on_revoked hook, 1 unsettled record; "
            "raise rebalance.timeout.ms"
        )


@in_virtual_time
async def test_a_commit_that_is_never_answered_is_told_with_what_was_not_stored() -> None:
    recorder = Recorder()
    app = make_app(recorder, **SHORT)
    hanging_app(app)
    async with running(app) as test:
        await send(test, b"settled")
        await until(lambda: app.channel("orders").facts().partitions[0].position == 1)
        held = test.broker.hold("commit")
        await asyncio.sleep(HEARD_S)
        took_s, stayed = await rebalance_of(test)
        assert stayed
        assert took_s <= PATIENCE_S
        (cut,) = recorder.of(RevocationCut)
        assert (cut.hooks, cut.records, cut.unstored) == (1, 0, 1)
        assert len(recorder.of(SettledNotStored)) == 1
        held.release()
    # The stop has all its time.
    assert len(recorder.of(RevocationCut)) == 1


@in_virtual_time
async def test_several_hooks_share_the_time_and_none_of_them_goes_without() -> None:
    app = make_app(**SHORT)
    called = hanging_app(app, hooks=3)
    async with running(app) as test:
        await asyncio.sleep(HEARD_S)
        took_s, stayed = await rebalance_of(test)
        assert stayed
        assert took_s <= PATIENCE_S
        first, second, third = called[:3]
        # A quarter of its share is left for its cleanup.
        assert second - first == pytest.approx(7 / 6, abs=0.01)
        # And goes to the next ones if it does not need it.
        assert third - second == pytest.approx(1.125 * 7 / 6, abs=0.01)


@in_virtual_time
async def test_another_member_waits_no_longer_than_the_group_does() -> None:
    broker = make_broker(2)
    app, other, seen = make_app(**SHORT), make_app(**SHORT), list[int]()
    hanging_app(app)

    @other.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        seen.append(message.partition)

    async with TestApp(app, broker=broker) as test:
        await asyncio.sleep(HEARD_S)
        (name,) = broker.members("billing")
        began = now()
        async with TestApp(other, broker=broker):
            assert now() - began <= PATIENCE_S + 0.5
            assert name in broker.members("billing")
            await send(test, b"", partition=0)
            await send(test, b"", partition=1)
            await until(lambda: len(seen) == 1)


@in_virtual_time
async def test_a_rebalance_that_comes_while_the_hooks_of_an_assignment_run_is_in_time_too() -> None:
    recorder = Recorder()
    app = make_app(recorder, commit_interval="100s")
    hanging_app(app)
    assigned: list[float] = []

    @app.on_assigned("orders")
    async def hook(partitions: Partitions) -> None:
        assigned.append(now())
        if len(assigned) == 2:
            await asyncio.Event().wait()

    async with running(app) as test:
        (name,) = test.broker.members("billing")
        test.broker.rebalance("billing")
        await until(lambda: len(assigned) == 2, 60)
        began, generation = now(), test.broker.generation("billing")
        test.broker.rebalance("billing")
        await moved_on(test.broker, generation, 60)
        assert 45 < now() - began < 60
        assert list(test.broker.members("billing")) == [name]
        assert recorder.of(RevocationCut)[-1].hooks == 1


@in_virtual_time
async def test_a_checkpoint_store_that_does_not_answer_costs_no_membership() -> None:
    rows, recorder = Rows(), Recorder()
    app = app_on(rows, recorder, **{**SHORT, "checkpoint": {"unsynced_max_age": "200s"}})
    hanging_app(app)
    async with running(app) as test:
        await send(test, b"settled")
        await until(lambda: app.channel("orders").facts().partitions[0].position == 1)
        rows.faults.slow_s = 100
        await asyncio.sleep(HEARD_S)
        asyncio.get_running_loop().call_later(WAITS_S, setattr, rows.faults, "slow_s", 0)
        took_s, stayed = await rebalance_of(test)
        assert stayed
        assert took_s <= PATIENCE_S
        assert (recorder.of(RevocationCut)[0].hooks, recorder.of(RevocationCut)[0].unstored) == (
            1,
            1,
        )
