"""When a poll that waits goes on: with the answer, and not again when the client tells of that
answer later.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from types import SimpleNamespace
from typing import Any

import pytest

from reactive_kafka import TopicPartition
from reactive_kafka.broker.aiokafka.fetched.record_poller import SOME, RecordPoller, has_to_wait

LONG_S = 60.0


class Fetcher:
    """What the client's own has for those who wait for records."""

    def __init__(self) -> None:
        self._records: dict[object, object] = {}
        self._waiters: set[asyncio.Future[None]] = set()
        self._closed = False

    def _create_fetch_waiter(self) -> asyncio.Future[None]:
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        return waiter

    def tell(self, error: Exception | None = None) -> None:
        for waiter in [one for one in self._waiters if not one.done()]:
            waiter.set_result(None) if error is None else waiter.set_exception(error)


def reader_of(fetcher: Fetcher) -> RecordPoller:
    subscription = SimpleNamespace(reassignment_in_progress=False)
    client = SimpleNamespace(_fetcher=fetcher, _subscription=subscription)
    assignment: Any = SimpleNamespace(client=client, started=set(), leaving=set(), is_closed=False)
    return RecordPoller(assignment)


async def turns(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def answer(content: bytes) -> Any:
    return SimpleNamespace(topics=[("orders", [(0, 0, 8, content)])])


ASKED: Any = SimpleNamespace(topics=[("orders", [(0, 0, 1 << 20)])], _max_bytes=1 << 20)
BATCH = b"\0" * 8 + (49).to_bytes(4, "big") + b"\0" * 4 + b"\2" + b"\0" * 44


async def test_a_poll_looks_when_an_answer_with_records_comes() -> None:
    fetcher = Fetcher()
    reader = reader_of(fetcher)
    poll = asyncio.create_task(reader.poll({}, LONG_S, None))
    await turns()
    reader.responses.note(ASKED, answer(b""))
    await turns()
    assert not poll.done()
    reader.responses.note(ASKED, answer(BATCH))
    # As the client does, in the same turn of the loop.
    fetcher._records["orders-0"] = object()
    await asyncio.wait_for(poll, 1)


async def test_it_goes_on_waiting_where_the_client_has_nothing_for_it() -> None:
    fetcher = Fetcher()
    reader = reader_of(fetcher)
    poll = asyncio.create_task(reader.poll({}, LONG_S, None))
    for _ in range(3):
        await turns()
        fetcher.tell()
    await turns()
    assert not poll.done()
    reader.wake()
    await asyncio.wait_for(poll, 1)


async def test_it_ends_with_the_client() -> None:
    fetcher = Fetcher()
    poll = asyncio.create_task(reader_of(fetcher).poll({}, LONG_S, None))
    await turns()
    fetcher._closed = True
    fetcher.tell()
    await asyncio.wait_for(poll, 1)


async def test_it_ends_with_its_time() -> None:
    await asyncio.wait_for(reader_of(Fetcher()).poll({}, 0.01, None), 1)


class Held:
    def __init__(self, backoff_s: float) -> None:
        self.calculate_backoff = lambda: backoff_s


NEW, OLD = Held(0.05), Held(0)
HERE, THERE, ELSEWHERE = (
    TopicPartition("orders", 0),
    TopicPartition("orders", 1),
    TopicPartition("orders", 2),
)


@pytest.mark.parametrize(
    ("held", "in_flight", "waits"),
    [
        ({}, (), False),
        ({}, (1,), True),
        ({}, (2,), False),
        ({THERE: NEW}, (), True),
        ({THERE: OLD}, (), False),
        ({ELSEWHERE: NEW}, (), False),
        ({THERE: OLD, ELSEWHERE: NEW}, (), False),
        ({THERE: NEW, ELSEWHERE: OLD}, (), True),
        # It is looked at there.
        ({THERE: NEW, **{TopicPartition("old", one): OLD for one in range(SOME)}}, (), False),
    ],
)
def test_the_client_is_told_that_a_partition_was_taken_where_it_would_fetch(
    held: dict[TopicPartition, Held], in_flight: tuple[int, ...], waits: bool
) -> None:
    nodes = {HERE: 1, THERE: 1, ELSEWHERE: 2}
    fetcher = SimpleNamespace(
        _records=OrderedDict(held),
        _in_flight=set(in_flight),
        _select_read_replica=lambda one: nodes.get(one, 3),
    )
    assert has_to_wait(fetcher, HERE) is waits
