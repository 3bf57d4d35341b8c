"""What ends a transaction is raised where somebody waits for it, once, and asyncio has nothing to
add.
"""

from __future__ import annotations

import asyncio
import gc
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from reactive_kafka import TopicPartition
from reactive_kafka.broker.client import TransactionalProducer
from reactive_kafka.errors import BrokerError
from reactive_kafka.records import RecordBytes
from tests.broker.contract_transactions import transacting
from tests.broker.hazards.faults import Rig, until
from tests.broker.hazards.test_codes import counting

PRODUCE = 0
ADD_PARTITIONS = 24
ADD_OFFSETS = 25
END = 26
TIMED_OUT = 7
LOADING = 14
NOT_AVAILABLE = 15
NOT_COORDINATOR = 16
NO_RIGHT_TO_THE_TOPIC = 29
NO_RIGHT_TO_THE_GROUP = 30
FENCED = 47
WRONG_STATE = 48
WRONG_ID = 49
CONCURRENT = 51
NO_RIGHT_TO_THE_ID = 53

Step = Callable[[TransactionalProducer, TopicPartition], Awaitable[object]]


async def write(producer: TransactionalProducer, to: TopicPartition) -> None:
    await producer.write(to, [RecordBytes(b"x")])


async def send(producer: TransactionalProducer, to: TopicPartition) -> None:
    await (await producer.send(to.topic, b"x", partition=to.partition))


async def add_group(producer: TransactionalProducer, to: TopicPartition) -> None:
    await producer.add_group("billing")


async def commit(producer: TransactionalProducer, to: TopicPartition) -> None:
    await producer.commit()


async def abort(producer: TransactionalProducer, to: TopicPartition) -> None:
    await producer.abort()


@pytest.mark.parametrize("code", [FENCED, WRONG_STATE, NO_RIGHT_TO_THE_ID])
@pytest.mark.parametrize("end", [commit, abort])
async def test_an_end_that_was_given_up_and_is_refused_later_is_not_told_by_asyncio(
    rig: Rig, end: Step, code: int
) -> None:
    """The broker was away until the deadline of the end, and knows another owner of the id when it
    is back.
    """
    told = listen()
    await given_up(rig, end, code)
    assert told() == []


async def given_up(rig: Rig, end: Step, code: int) -> None:
    """The end of a transaction is waited for no longer, and then the broker refuses it."""
    to = TopicPartition(await rig.create_topic(1), 0)
    async with transacting(rig, f"id-{uuid.uuid4().hex[:8]}") as producer:
        producer.begin()
        await write(producer, to)
        rig.proxy.hold()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await end(producer, to)
        rig.broker.answer_with(END, code, times=100)
        rig.proxy.release()
        await until(lambda: sender_of(producer).sender_task.done(), "the client has had the answer")


@pytest.mark.parametrize(
    ("api", "code", "step"),
    [
        (ADD_PARTITIONS, FENCED, write),
        (ADD_PARTITIONS, FENCED, send),
        (ADD_PARTITIONS, WRONG_ID, send),
        (ADD_PARTITIONS, NO_RIGHT_TO_THE_ID, send),
        (PRODUCE, FENCED, write),
        (PRODUCE, FENCED, send),
        (PRODUCE, NO_RIGHT_TO_THE_TOPIC, send),
        (ADD_OFFSETS, FENCED, add_group),
        (ADD_OFFSETS, NO_RIGHT_TO_THE_GROUP, add_group),
        (END, FENCED, commit),
        (END, FENCED, abort),
    ],
)
@pytest.mark.parametrize("aborts", [False, True], ids=["left", "aborted"])
async def test_what_ends_a_transaction_is_raised_by_the_step_and_is_not_told_by_asyncio(
    rig: Rig, api: int, code: int, step: Step, aborts: bool
) -> None:
    told = listen()
    to = TopicPartition(await rig.create_topic(1), 0)
    async with transacting(rig, f"id-{uuid.uuid4().hex[:8]}") as producer:
        producer.begin()
        if api not in (ADD_PARTITIONS, PRODUCE):
            await write(producer, to)
        rig.broker.answer_with(api, code, times=100)
        with pytest.raises(BrokerError):
            await step(producer, to)
        if aborts:
            with pytest.raises(BrokerError):
                await producer.abort()
        rig.broker.heal(api)
        await producer.claim()
        producer.begin()
        await write(producer, to)
        await producer.commit()
    assert told() == []


@pytest.mark.parametrize("code", [TIMED_OUT, LOADING, NOT_AVAILABLE, NOT_COORDINATOR, CONCURRENT])
async def test_a_group_is_added_again_until_the_coordinator_takes_it(rig: Rig, code: int) -> None:
    to = TopicPartition(await rig.create_topic(1), 0)
    async with transacting(rig, f"id-{uuid.uuid4().hex[:8]}") as producer:
        producer.begin()
        await write(producer, to)
        asked = counting(rig)
        rig.broker.answer_with(ADD_OFFSETS, code, times=2)
        await producer.add_group("billing")
        assert asked[ADD_OFFSETS] == 3
        await producer.commit()


def sender_of(producer: TransactionalProducer) -> Any:
    return producer._clients.client._sender  # type: ignore[attr-defined]


def listen() -> Callable[[], list[str]]:
    """What asyncio tells from now on of errors that nobody has seen."""
    told: list[str] = []

    def keep(loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        told.append(f"{context['message']}: {context.get('exception')!r}")

    asyncio.get_running_loop().set_exception_handler(keep)

    def collected() -> list[str]:
        gc.collect()
        return told

    return collected
